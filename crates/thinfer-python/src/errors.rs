//! Errors of thinfer as exceptions of Python, with the advice of the program in words of Python.

use std::any::Any;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyKeyboardInterrupt, PyMemoryError, PyOSError,
    PyPermissionError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use thinfer::Error;

/// What the program says, and what says the same in Python. Longer texts come first.
const WORDS: [(&str, &str); 23] = [
    ("continue it with --resume", "go on with resume=True"),
    ("replace it with --force", "replace it with force=True"),
    ("start the run again with --force", "start the run again with force=True"),
    ("start again with --force", "start again with force=True"),
    ("train again with --force", "train again with force=True"),
    ("choose another folder with --out", "choose another folder with out="),
    ("choose another one with --out", "choose another one with out="),
    ("choose another disk with --out", "choose another disk with out="),
    ("may write to with --out", "may write to with out="),
    ("can go on with --resume from", "can go on with resume=True from"),
    ("--task regression", "task=\"regression\""),
    ("--task classification", "task=\"classification\""),
    ("`--target`", "`target`"),
    ("with --target", "as target"),
    ("`--chains`", "`chains`"),
    ("`--holdout`", "`holdout`"),
    ("use `--device cuda", "use `device=\"cuda"),
    ("`--missing", "`data.missing"),
    ("`--keep", "`data.keep"),
    ("`--leave-out", "`data.leave_out"),
    ("pass `--categorical ", "give text instead of numbers in `"),
    ("`--set ", "`"),
    ("--set ", ""),
];

/// The words of Python in the place of options of the program.
fn in_python(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The exception for an error.
pub(crate) fn exception(error: &Error) -> PyErr {
    let text = in_python(&error.to_string());
    match error {
        Error::File { source, .. } => match source.kind() {
            ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
            ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
            _ => PyOSError::new_err(text),
        },
        Error::RunExists(_) => PyFileExistsError::new_err(text),
        Error::Memory(_) => PyMemoryError::new_err(text),
        Error::BlownUp(_) | Error::NonFinite { .. } | Error::Promise(_) => {
            PyRuntimeError::new_err(text)
        }
        Error::Interrupted(folder) if folder == Path::new("memory") => {
            let text = "interrupted; the run was in memory alone and is lost: give out= for one that can go on";
            PyKeyboardInterrupt::new_err(text)
        }
        Error::Interrupted(_) => PyKeyboardInterrupt::new_err(text),
        Error::Config { .. }
        | Error::Table { .. }
        | Error::Data(_)
        | Error::Store { .. }
        | Error::Engine(_) => PyValueError::new_err(text),
    }
}

/// Where the last panic was.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// Remembers where a panic was and prints nothing: readers of damaged files catch those of the
/// libraries under them, and all others become exceptions.
pub(crate) fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut place) = PLACE.lock() {
            *place = info.location().map(ToString::to_string);
        }
    }));
}

/// The exception for a panic.
fn bug(payload: &(dyn Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let what = text.unwrap_or_else(|| "something that cannot happen did".into());
    let place = PLACE.lock().ok().and_then(|place| place.clone()).unwrap_or_default();
    PyRuntimeError::new_err(format!(
        "thinfer hit a bug: {what} ({place}); please report it with what you called"
    ))
}

/// Does something without the GIL; errors and panics become exceptions.
pub(crate) fn without_gil<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> thinfer::Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| caught(work))
}

/// The same with the GIL, or in a thread that never had it.
pub(crate) fn caught<T>(work: impl FnOnce() -> thinfer::Result<T>) -> PyResult<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| exception(&error)),
        Err(payload) => Err(bug(payload.as_ref())),
    }
}

/// A value as JSON, for Python to read.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> thinfer::Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::Data(format!("the result could not be written: {e}; report this")))
}

/// Panics, so that a test can see what becomes of that.
#[pyfunction]
#[pyo3(name = "_hit_a_bug")]
#[expect(clippy::panic, reason = "it is what this is for")]
pub(crate) fn hit_a_bug(py: Python<'_>) -> PyResult<()> {
    without_gil(py, || panic!("asked for"))
}
