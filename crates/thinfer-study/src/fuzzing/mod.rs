//! Every format that is read from a file, as a function of bytes.
//!
//! The targets in `fuzz/` and the test that replays their corpus call these functions and nothing
//! else, so that both test the same. Each calls the reader that the program itself uses, and checks
//! what it promises: what was read can be written and read again, and is the same then.

mod networks;
mod runs;
mod tables;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use thinfer_data::images::fuzzed as images;

pub use networks::small_networks;
pub use runs::CHECKPOINT_SETTINGS;
pub use thinfer_data::fuzzed::{Checked, Outcome};

/// A format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name of its target and of its corpus.
    pub name: &'static str,
    /// Reads bytes.
    pub read: fn(&[u8]) -> Checked,
    /// Memory that reading may take whatever the bytes are.
    base_memory: usize,
}

const MIB: usize = 1 << 20;
/// Memory that reading may take for each byte of the file: packed bytes grow a thousand times.
const MEMORY_OF_A_BYTE: usize = 4096;

const fn format(name: &'static str, read: fn(&[u8]) -> Checked) -> Format {
    Format { name, read, base_memory: 32 * MIB }
}

/// A format of pictures, whose decoders have limits of their own.
const fn pictures(name: &'static str, read: fn(&[u8]) -> Checked) -> Format {
    Format { name, read, base_memory: 128 * MIB }
}

/// All of them.
pub const FORMATS: [Format; 13] = [
    format("checkpoint", runs::checkpoint),
    format("cifar_binary", images::cifar_binary),
    format("cifar_pickle", images::cifar_pickle),
    format("csv", tables::csv),
    format("idx", images::idx),
    pictures("jpeg", images::jpeg),
    format("network", networks::network),
    format("parquet", tables::parquet),
    pictures("png", images::png),
    format("run_json", runs::run_json),
    format("safetensors", networks::safetensors),
    format("tar", images::shard),
    format("toml", runs::configuration),
];

impl Format {
    /// The format of that name.
    pub fn find(name: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Memory that reading so many bytes may take at once.
    pub fn most_memory(self, bytes: usize) -> usize {
        self.base_memory + MEMORY_OF_A_BYTE * bytes
    }
}

/// A promise that was broken.
fn broken<T>(promise: &str, found: &impl ToString) -> std::result::Result<T, String> {
    Err(format!("{promise}: {}", found.to_string()))
}

thread_local! {
    static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// A file of that name with these bytes, for readers that look for files. It is in memory where the
/// system has such a folder, and is replaced by the next one.
fn file(name: &str, bytes: &[u8]) -> std::result::Result<PathBuf, String> {
    const MEMORY: &str = "/dev/shm";
    FOLDER.with_borrow_mut(|folder| {
        let made = match folder.take() {
            Some(made) => Ok(made),
            None if Path::new(MEMORY).is_dir() => tempfile::tempdir_in(MEMORY),
            None => tempfile::tempdir(),
        };
        let made = folder.insert(made.map_err(|e| e.to_string())?);
        let path = made.path().join(name);
        std::fs::write(&path, bytes).map_err(|e| e.to_string())?;
        Ok(path)
    })
}
