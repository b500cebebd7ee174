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
