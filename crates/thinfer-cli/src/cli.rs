//! What can be typed.

use clap::Parser;

use crate::commands::Command;
use crate::context::Flags;

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
  thinfer train houses.csv --target price"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) flags: Flags,
    #[command(subcommand)]
    pub(crate) command: Command,
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
