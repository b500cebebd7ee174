//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop after its step, the second ends it at
//! once. A signal that was ignored when the program started, as under `nohup`, stays ignored.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use thinfer::Error;

use crate::context::{Context, to_stderr};
use crate::signals;

/// Set when the run is to stop.
static STOP: AtomicBool = AtomicBool::new(false);

/// Takes over the signals and gives the flag that they set. Only commands that look at the flag
/// ask for it; all others end at the first signal. To be called once.
pub(crate) fn stop_flag(context: &Context) -> anyhow::Result<&'static AtomicBool> {
    let quiet = context.quiet();
    let watch = move || {
        if STOP.swap(true, Ordering::SeqCst) {
            // Checkpoints are renamed into place, so whatever is being written now is not missed.
            std::process::exit(130);
        }
        if !quiet {
            to_stderr("stopping after this step; once more to stop at once");
        }
    };
    signals::keeping_ignored(|| ctrlc::set_handler(watch))
        .context("Ctrl-C cannot be watched for; start the program from an ordinary shell")?;
    Ok(&STOP)
}

/// Where the user stopped the work, says how to go on; other errors stay as they are.
pub(crate) fn explain(error: Error, how: impl FnOnce() -> String) -> anyhow::Error {
    if let Error::Interrupted(_) = error {
        anyhow::Error::from(error).context(how())
    } else {
        error.into()
    }
}
