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
mod methods;
mod predict;
mod report;
mod reproduce;
mod select;
mod selftest;
mod shrink;
mod subnetwork;
mod train;

use crate::context::Context;

macro_rules! commands {
    ($($name:ident: $module:ident,)+) => {
        /// The commands, in the order of the help.
        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $($name($module::Args),)+
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

commands! {
    Data: data,
    Init: init,
    Train: train,
    Select: select,
    Reproduce: reproduce,
    Eval: eval,
    Diagnose: diagnose,
    Predict: predict,
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
}
