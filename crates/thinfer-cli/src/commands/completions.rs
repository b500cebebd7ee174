use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::cli::Cli;
use crate::context::Context;

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
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "thinfer", &mut script);
    let script = String::from_utf8(script)?;
    let json = json!({ "shell": args.shell.to_string(), "script": script });
    context.result(&json, || script.clone())
}
