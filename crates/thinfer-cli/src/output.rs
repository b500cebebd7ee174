//! Files that a command writes where the user said. What would keep them from being written is
//! found before the work and not after it.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use thinfer::{Error, Result};

/// Refuses a file that cannot be written, or that would replace another one without being told to.
pub(crate) fn check(path: &Path, force: bool) -> Result<()> {
    if path.file_name().is_none() && !path.is_dir() {
        let problem = format!("`{}` is no name of a file; give one", path.display());
        return Err(Error::config("--out", problem));
    }
    if let Ok(found) = path.metadata()
        && !found.is_file()
    {
        let what = if found.is_dir() { "a folder" } else { "a device or a pipe" };
        let problem = format!("{} is {what}; give the name of a file", path.display());
        return Err(Error::config("--out", problem));
    }
    check_free(path, force)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let problem = format!(
            "{} cannot be written, as {} is no folder; make it, or choose another file",
            path.display(),
            folder.display()
        );
        return Err(Error::config("--out", problem));
    }
    probe(folder).map_err(|e| Error::file("write", path, e))
}

/// Refuses to replace a file unless told to. Asked again before the file is written: the work may
/// have taken hours.
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

/// Whether a file can be made in a folder. Rights alone do not say: the disk may be read-only.
fn probe(folder: &Path) -> std::io::Result<()> {
    let name: PathBuf = folder.join(format!(".thinfer-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&name)?;
    fs::remove_file(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("there"), "mine").unwrap();
        let refused = |path: &Path, force| check(path, force).unwrap_err().to_string();
        assert!(check(&at("new"), false).is_ok());
        assert!(check(Path::new("new-in-this-folder"), false).is_ok());
        assert!(refused(&at("there"), false).contains("already exists"));
        assert!(check(&at("there"), true).is_ok());
        assert!(refused(&at("none/new"), true).contains("none is no folder; make it"));
        assert!(refused(&at("there/new"), true).contains("there is no folder"));
        assert!(refused(folder.path(), true).contains("is a folder; give the name of a file"));
        assert!(refused(Path::new(""), true).contains("no name of a file"));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing is left behind");
        assert_eq!(fs::read_to_string(at("there")).unwrap(), "mine");
    }

    /// Nothing can be made in `/proc`, not even by root.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_that_takes_no_files_is_known_before() {
        let error = check(Path::new("/proc/new"), false).unwrap_err().to_string();
        assert!(error.starts_with("could not write /proc/new: "), "{error}");
        let error = check(Path::new("/dev/null"), true).unwrap_err().to_string();
        assert!(error.contains("is a device or a pipe"), "{error}");
    }
}
