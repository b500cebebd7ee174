//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop after its step, the second ends it at
//! once. A signal that was ignored when the program started, as under `nohup`, stays ignored.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use thinfer::Error;

use crate::context::{Context, to_stderr};
use crate::signals;

/// Set when the run is to stop.
static STOP: AtomicBool = AtomicBool::new(false);

/// What to say when the program is stopped where nothing waits to be written.
static LAST_WORDS: Mutex<Option<String>> = Mutex::new(None);

/// Why there is nobody to wait for a signal.
const UNWATCHED: &str = "Ctrl-C cannot be watched for; start the program from an ordinary shell, and raise the limit on threads (`ulimit -u`, or that of the container)";

/// Takes over the signals and gives the flag that they set. Only commands that look at the flag
/// ask for it; all others end at the first signal. To be called once.
pub(crate) fn stop_flag(context: &Context) -> anyhow::Result<&'static AtomicBool> {
    let quiet = context.quiet();
    let watch = move || {
        if let Ok(words) = LAST_WORDS.lock()
            && let Some(words) = words.as_deref()
        {
            to_stderr(words);
            std::process::exit(130);
        }
        if STOP.swap(true, Ordering::SeqCst) {
            // Checkpoints are renamed into place, so whatever is being written now is not missed.
            std::process::exit(130);
        }
        if !quiet {
            to_stderr("stopping after this step; once more to stop at once");
        }
    };
    signals::keeping_ignored(|| ctrlc::set_handler(watch)).context(UNWATCHED)?;
    Ok(&STOP)
}

/// Takes over the signals for a command that ends by them and by nothing else: the first one does
/// something that ends it, the second ends the program. To be called once.
pub(crate) fn on_stop(end: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let watch = move || {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        end();
    };
    signals::keeping_ignored(|| ctrlc::set_handler(watch)).context(UNWATCHED)
}

/// From now on the first signal ends the program at once, with these words: the work is on disk,
/// and what follows can be done again. One that has come already does the same.
pub(crate) fn end_at_once(words: String) {
    let stopped = STOP.load(Ordering::SeqCst);
    if stopped {
        to_stderr(&words);
        std::process::exit(130);
    }
    if let Ok(mut last) = LAST_WORDS.lock() {
        *last = Some(words);
    }
}

/// Where the user stopped the work, says how to go on; other errors stay as they are.
pub(crate) fn explain(error: Error, how: impl FnOnce() -> String) -> anyhow::Error {
    if let Error::Interrupted(_) = error {
        anyhow::Error::from(error).context(how())
    } else {
        error.into()
    }
}
