//! Where a command's words go: results to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};

use anyhow::bail;
use serde_json::Value;
use thinfer::train::{Observer, Record};

use crate::terminal;

/// What every command takes.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Flags {
    /// Only results, warnings and errors
    #[arg(short, long, global = true, display_order = 100)]
    pub(crate) quiet: bool,
    /// Print the result as one JSON object
    #[arg(long, global = true, display_order = 101)]
    pub(crate) json: bool,
}

/// How the program was asked to talk.
pub(crate) struct Context {
    flags: Flags,
}

impl Context {
    pub(crate) fn new(flags: Flags) -> Self {
        Self { flags }
    }

    /// Whether the result is to be one JSON object.
    pub(crate) fn json(&self) -> bool {
        self.flags.json
    }

    /// Whether nothing but results and errors is wanted.
    pub(crate) fn quiet(&self) -> bool {
        self.flags.quiet
    }

    /// Whether progress can be shown.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.flags.quiet && io::stderr().is_terminal()
    }

    /// Says something on stderr, unless it is to be quiet.
    pub(crate) fn say(&self, text: &str) {
        if !self.flags.quiet {
            to_stderr(text);
        }
    }

    /// Says something on stderr that the user should know.
    pub(crate) fn notice(&self, text: &str) {
        if !self.flags.quiet {
            to_stderr_as("notice:", "33", text);
        }
    }

    /// Says something on stderr without which the result is read wrongly, also when it is to be
    /// quiet.
    #[expect(clippy::unused_self, reason = "beside `notice`, which asks how to talk")]
    pub(crate) fn warning(&self, text: &str) {
        to_stderr_as("warning:", "33", text);
    }

    /// Prints a result: `json` with `--json`, the text otherwise.
    pub(crate) fn result(&self, json: &Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = if self.flags.json {
            terminal::shown_json(&json.to_string())
        } else {
            terminal::shown(&text()).into_owned()
        };
        to_stdout(|out| writeln!(out, "{}", text.trim_end()))
    }
}

/// What a run has to say when nobody watches it.
impl Observer for Context {
    fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}

    fn notice(&self, text: &str) {
        Context::notice(self, text);
    }

    fn warning(&self, text: &str) {
        Context::warning(self, text);
    }
}

/// Writes data to stdout, which a terminal gets as text that it does not obey.
pub(crate) fn data_to_stdout(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    to_stdout(|out| terminal::write_data(out, write))
}

/// Writes a result to stdout. A reader that has seen enough (`thinfer … | head`) is no failure.
fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => bail!(
            "could not write the result to standard output: {error}. Free some space there, or send it elsewhere"
        ),
        _ => Ok(()),
    }
}

/// Writes a line to stderr; where that cannot be written there is nobody to tell.
pub(crate) fn to_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", terminal::shown(text));
}

/// The same after a word in a colour that says what it is.
pub(crate) fn to_stderr_as(label: &str, code: &str, text: &str) {
    let label = colored(label, code);
    let _ = writeln!(io::stderr().lock(), "{label} {}", terminal::shown(text));
}

/// The text in a colour, where stderr is a terminal and `NO_COLOR` is not set.
fn colored(text: &str, code: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|value| value == "dumb")
        || !io::stderr().is_terminal();
    if plain { text.to_owned() } else { format!("\x1b[1;{code}m{text}\x1b[0m") }
}
