//! One file a command: its `Args`, documented as its help, and `run`.
//!
//! To add one, write the file, then a `mod` line and a line in the list below.

mod bench;
mod compare;
mod completions;
mod data;
mod diagnose;
mod doctor;
mod eval;
mod export;
mod init;
mod man;
mod methods;
mod predict;
mod report;
mod reproduce;
mod select;
mod selftest;
mod shrink;
mod subnetwork;
mod train;
mod watch;

use clap::{Args as _, Subcommand as _};

use crate::context::{Context, Flags};

macro_rules! commands {
    ($($(#[$how:meta])* $name:ident: $module:ident,)+) => {
        /// The commands, in the order of the help.
        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $($(#[$how])* $name($module::Args),)+
        }

        impl Command {
            /// Does what was asked.
            pub(crate) fn run(&self, context: &Context) -> anyhow::Result<()> {
                match self {
                    $(Command::$name(args) => $module::run(args, context),)+
                }
            }
        }
    };
}

/// All of the program, as completions and manual pages describe it.
fn program() -> clap::Command {
    let about = "Train a Bayesian neural network and prune it in the same run";
    let program = clap::Command::new("thinfer").version(env!("CARGO_PKG_VERSION")).about(about);
    Command::augment_subcommands(Flags::augment_args(program))
}

commands! {
    Data: data,
    Init: init,
    Train: train,
    Select: select,
    Reproduce: reproduce,
    Eval: eval,
    Diagnose: diagnose,
    Predict: predict,
    Watch: watch,
    Report: report,
    Compare: compare,
    Shrink: shrink,
    Export: export,
    Subnetwork: subnetwork,
    Methods: methods,
    Doctor: doctor,
    Selftest: selftest,
    Bench: bench,
    Completions: completions,
    #[command(hide = true)]
    Man: man,
}
