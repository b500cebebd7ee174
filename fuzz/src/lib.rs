//! What the targets and the replay of their corpus share: the call of a reader, and what counts as
//! a fault.

mod peak;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thinfer::fuzzing::{Format, Outcome};

#[global_allocator]
static ALLOCATOR: peak::Counting = peak::Counting;

/// Panics since the last call of a reader, also those that it caught.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn panics() -> MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a panic was raised in a dependency. Readers may catch such panics, and none of ours.
fn is_foreign(panic: &PanicHookInfo<'_>) -> bool {
    panic.location().is_some_and(|place| place.file().contains("/registry/src/"))
}

/// Leaves panics of the project itself to the hook of libFuzzer, which ends the process and shows
/// where they came from.
pub fn prepare() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if is_foreign(panic) {
            return panics().push(panic.to_string());
        }
        default(panic);
    }));
}

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of readers, silently: those of the project are faults.
pub fn keep_panics() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !READING.get() {
            return default(panic);
        }
        let whose = if is_foreign(panic) { "" } else { OURS };
        panics().push(format!("{whose}{panic}"));
    }));
}

/// What stands before a panic of the project.
const OURS: &str = "ours: ";

/// Reads bytes as a format. An error is a promise that was broken: by a panic, by what the reader
/// itself says, or by the memory it takes.
pub fn read(format: Format, bytes: &[u8]) -> Result<Outcome, String> {
    panics().clear();
    READING.set(true);
    let call = || panic::catch_unwind(AssertUnwindSafe(|| (format.read)(bytes)));
    let (called, memory) = peak::of(call);
    READING.set(false);
    if let Some(own) = panics().iter().find(|panic| panic.starts_with(OURS)) {
        return Err(own.clone());
    }
    let outcome = called.map_err(|_| format!("nothing caught {}", panics().join(", ")))??;
    let most = format.most_memory(bytes.len());
    if memory > most {
        return Err(format!("{} bytes took {memory} of memory, {most} at most", bytes.len()));
    }
    Ok(outcome)
}

/// Reads bytes as the format called `name`, and panics at a fault.
pub fn check(name: &str, bytes: &[u8]) {
    let Some(format) = Format::find(name) else { panic!("there is no format `{name}`") };
    if let Err(fault) = read(format, bytes) {
        panic!("{name}: {fault}");
    }
}
