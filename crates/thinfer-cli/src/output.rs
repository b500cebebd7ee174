//! Files that a command writes where the user said.

use std::path::Path;

use thinfer::{Error, Result};

/// Refuses to replace a file unless told to.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<()> {
    if !force && path.symlink_metadata().is_ok() {
        let problem = format!(
            "{} already exists; choose another place, or replace it with --force",
            path.display()
        );
        return Err(Error::config("--out", problem));
    }
    Ok(())
}

/// Refuses a file whose folder is not there, before the work and not after it.
pub(crate) fn check_folder(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let problem = format!(
                "{} cannot be written, as {} is no folder; make it, or choose another file",
                path.display(),
                folder.display()
            );
            Err(Error::config("--out", problem))
        }
        _ => Ok(()),
    }
}
