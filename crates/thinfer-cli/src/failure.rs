//! How a failure is told, and the exit code that goes with it.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::Mutex;

use thinfer::Error;

use crate::context::{to_stderr, to_stderr_as};

/// Where the last panic was.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// Keeps panics quiet until somebody decides what they mean: readers of damaged files catch those
/// of the libraries under them, and only one that gets to `main` is a bug to tell of.
///
/// With `RUST_BACKTRACE` set everything is shown, for those who look for a bug.
pub(crate) fn remember_panics() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        return;
    }
    std::panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        if let Ok(mut place) = PLACE.lock() {
            *place = info.location().map(ToString::to_string);
        }
    }));
}

/// Tells of a panic that nobody caught.
pub(crate) fn report_bug(payload: &(dyn Any + Send)) -> ExitCode {
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let what = text.unwrap_or_else(|| "something that cannot happen did".into());
    let place = PLACE.lock().ok().and_then(|place| place.clone()).unwrap_or_default();
    let text = format!(
        "thinfer hit a bug: {what} ({place}); please report it with the command and its input"
    );
    to_stderr_as("error:", "31", &text);
    ExitCode::FAILURE
}

/// Tells what went wrong, with the causes that the message does not name itself.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let code = error.downcast_ref::<Error>().map_or(1, Error::exit_code);
    if let Some(Error::Interrupted(_)) = error.downcast_ref::<Error>() {
        // The user did this; the outermost message says how to go on.
        to_stderr(&error.to_string());
    } else {
        to_stderr_as("error:", "31", &describe(error));
    }
    ExitCode::from(code)
}

fn describe(error: &anyhow::Error) -> String {
    let mut lines = vec![error.to_string()];
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if lines.last().is_none_or(|told| !told.contains(&cause)) {
            lines.push(cause);
        }
    }
    lines.join("\n  caused by: ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::Path;

    #[test]
    fn a_cause_that_the_message_names_is_not_repeated() {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let error = anyhow::Error::from(Error::file("write", Path::new("a.csv"), source));
        assert_eq!(
            describe(&error),
            "could not write a.csv: no storage space. Free some space and try again"
        );
        let error = anyhow::anyhow!("inner").context("outer");
        assert_eq!(describe(&error), "outer\n  caused by: inner");
    }

    #[test]
    fn the_exit_code_is_found_under_a_context() {
        let error = anyhow::Error::from(Error::Promise("broken".into())).context("while at it");
        assert_eq!(error.downcast_ref::<Error>().map(Error::exit_code), Some(3));
    }
}
