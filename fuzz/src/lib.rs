//! What all targets share: the call of a reader, and what counts as a fault.

mod peak;

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process;
use std::sync::Mutex;

use thinfer::fuzzing::Format;

#[global_allocator]
static ALLOCATOR: peak::Counting = peak::Counting;

/// The last panic in a dependency.
static FOREIGN: Mutex<String> = Mutex::new(String::new());

/// Whether a panic was raised in a dependency. Readers may catch such panics, and none of ours.
fn is_foreign(panic: &PanicHookInfo<'_>) -> bool {
    panic.location().is_some_and(|place| place.file().contains("/registry/src/"))
}

/// Ends the process at any panic in the project itself, also where the reader would catch it.
pub fn prepare() {
    panic::set_hook(Box::new(|panic| {
        if is_foreign(panic) {
            if let Ok(mut last) = FOREIGN.lock() {
                *last = panic.to_string();
            }
            return;
        }
        eprintln!("{panic}");
        process::abort();
    }));
}

/// Reads bytes as the format called `name`. Ends the process where a promise is broken: by a panic,
/// by what the reader itself says, or by the memory it takes.
pub fn check(name: &str, bytes: &[u8]) {
    let Some(format) = Format::find(name) else { panic!("there is no format `{name}`") };
    let read = || panic::catch_unwind(AssertUnwindSafe(|| (format.read)(bytes)));
    let (checked, memory) = peak::of(read);
    match checked {
        Ok(Ok(_)) => {}
        Ok(Err(promise)) => panic!("{name}: {promise}"),
        Err(_) => {
            eprintln!("{name}: {}", FOREIGN.lock().map(|last| last.clone()).unwrap_or_default());
            process::abort();
        }
    }
    let most = format.most_memory(bytes.len());
    assert!(
        memory <= most,
        "{name}: {} bytes took {memory} of memory, {most} at most",
        bytes.len()
    );
}
