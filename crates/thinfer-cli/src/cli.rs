//! What can be typed.

use clap::{Args, Parser};

use crate::commands::Command;

/// Train a Bayesian neural network and prune it in the same run
#[derive(Parser)]
#[command(
    name = "thinfer",
    version,
    disable_help_subcommand = true,
    max_term_width = 80,
    // As usual, with one blank line alone: all commands are to fit one screen.
    help_template = "\
{about}
{usage-heading} {usage}
{all-args}
Examples:
  thinfer train configs/example1.toml"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) flags: Flags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Copy)]
pub(crate) struct Flags {
    /// Only results, warnings and errors
    #[arg(short, long, global = true, display_order = 100)]
    pub(crate) quiet: bool,
    /// Print the result as one JSON object
    #[arg(long, global = true, display_order = 101)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
