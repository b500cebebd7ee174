//! `thinfer completions`: the completions of a shell.

use clap::{Args as _, Subcommand};
use clap_complete::Shell;
use serde_json::json;

use super::Command;
use crate::context::{Context, Flags};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer completions bash > ~/.local/share/bash-completion/completions/thinfer
  thinfer completions zsh > ~/.zfunc/_thinfer")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let mut program =
        Command::augment_subcommands(Flags::augment_args(clap::Command::new("thinfer")));
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "thinfer", &mut script);
    let script = String::from_utf8(script)?;
    let json = json!({ "shell": args.shell.to_string(), "script": script });
    context.result(&json, || script.clone())
}
