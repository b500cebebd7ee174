//! The program `thinfer`: trains a Bayesian neural network and prunes it in the same run.
//!
//! `commands/` has one file for each command; everything else here is what they share. Logs and
//! progress go to stderr, results to stdout. Exit codes: 0 done, 1 failed, 2 usage or
//! configuration, 3 a checked promise was broken, 130 interrupted after a checkpoint.

mod beside;
mod cli;
mod commands;
mod context;
mod device;
mod download;
mod evaluated_run;
mod failure;
mod frozen;
mod image_summary;
mod interrupt;
mod output;
mod progress;
mod progress_line;
mod run_folder;
mod shell;
mod signals;
mod source;
mod sparkline;
mod summary;
mod terminal;
mod text_table;
mod version;

use std::borrow::Cow;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::context::Context;

fn main() -> ExitCode {
    failure::remember_panics();
    signals::survive_file_limits();
    std::panic::catch_unwind(run).unwrap_or_else(|payload| failure::report_bug(payload.as_ref()))
}

fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if version::is_asked_in_full(&error) => {
            let shown = version::in_full();
            return context::data_to_stdout(|out| writeln!(out, "{shown}"))
                .map_or_else(|error| failure::report(&error), |()| ExitCode::SUCCESS);
        }
        Err(error) => {
            // Where the help or the message cannot be written there is nobody to tell.
            let text = error.render().to_string();
            match terminal::shown(&text) {
                Cow::Owned(shown) => context::to_stderr(shown.trim_end()),
                Cow::Borrowed(_) => drop(error.print()),
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let context = Context::new(cli.flags);
    if let Some((there, wanted)) = thinfer::threads::prepare() {
        context.notice(&format!(
            "the system gives this program {there} more threads and not {wanted}, so it is slower; raise the limit (`ulimit -u`, or that of the container), or end other programs"
        ));
    }
    match cli.command.run(&context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
