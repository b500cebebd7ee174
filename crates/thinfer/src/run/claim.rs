//! One program at a time trains in a folder.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::{Error, Result};

/// Claims a folder for as long as the result lives; it is free again when the program ends, however it
/// does. `None` where the system has no such locks, as some network file systems do not.
pub(super) fn claim(folder: &Path) -> Result<Option<File>> {
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::store(
            folder,
            "another thinfer is training in this folder; wait for it to end, or choose another one with --out",
        )),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_folder_is_claimed_once_and_free_again_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path()).unwrap();
        assert!(first.is_some());
        let error = claim(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another thinfer is training"), "{error}");
        drop(first);
        assert!(claim(folder.path()).unwrap().is_some());
    }
}
