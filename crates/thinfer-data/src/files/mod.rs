//! Files that the program writes. Every one of them goes through here.
//!
//! A file is written beside its place under a name of its own, synced and renamed. A reader sees
//! the old contents or the new ones and never a part, and two programs that write the same file do
//! not write into each other's.

mod json;
mod lock;
pub mod regular;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

pub use self::json::{Contents, read_json, sealed_json, take_json};
pub use self::lock::Claim;
pub use self::lock::{claim, is_claimed};
use crate::error::{Error, Result};

/// How the names of files end that are being written.
const PARTIAL: &str = ".partial";

/// A file that is being written: it goes away unless it is given its name.
pub struct Draft {
    file: NamedTempFile,
    place: PathBuf,
}

impl Draft {
    /// Begins a file whose place is `path`.
    pub fn begin(path: &Path) -> Result<Self> {
        let mut prefix = path.file_name().unwrap_or_default().to_os_string();
        prefix.push(".");
        // With the rights that any other new file gets.
        let open = |name: &Path| OpenOptions::new().write(true).create_new(true).open(name);
        let file = Builder::new().prefix(&prefix).suffix(PARTIAL).make_in(folder_of(path), open);
        let file = file.map_err(|e| Error::file("write", path, e))?;
        Ok(Self { file, place: path.to_owned() })
    }

    /// Writes all of a file whose place is `path`.
    pub fn of(path: &Path, bytes: &[u8]) -> Result<Self> {
        let draft = Self::begin(path)?;
        let written = draft.file().write_all(bytes);
        written.map_err(|e| Error::file("write", path, e))?;
        Ok(draft)
    }

    /// The open file.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// The contents as the disk has them.
    pub fn read_back(&self) -> Result<Vec<u8>> {
        fs::read(self.file.path()).map_err(|e| Error::file("read back", &self.place, e))
    }

    /// Gives it its name. A file that has it is replaced.
    pub fn replace(self) -> Result<()> {
        self.name(NamedTempFile::persist)
    }

    /// Gives it its name, or fails where a file has it.
    pub fn create(self) -> Result<()> {
        let place = self.place.clone();
        self.name(NamedTempFile::persist_noclobber).map_err(|error| match error {
            Error::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                let problem = "was made by somebody else in the meantime, and is kept; choose another path with --out or pass --force";
                Error::table(&place, problem)
            }
            other => other,
        })
    }

    fn name(
        self,
        persist: impl FnOnce(
            NamedTempFile<File>,
            PathBuf,
        ) -> std::result::Result<File, tempfile::PersistError<File>>,
    ) -> Result<()> {
        let Self { file, place } = self;
        file.as_file().sync_all().map_err(|e| Error::file("write", &place, e))?;
        persist(file, place.clone()).map_err(|e| Error::file("rename", &place, e.error))?;
        sync_folder(&place);
        Ok(())
    }
}

/// Writes a file, whole or not at all. One that is there is replaced.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    Draft::of(path, bytes)?.replace()
}

/// Like [`write_whole`], for a file that is written again soon: readers see the old contents or the
/// new ones, but a machine that loses its power may have neither.
pub fn write_for_now(path: &Path, bytes: &[u8]) -> Result<()> {
    let Draft { file, place } = Draft::of(path, bytes)?;
    file.persist(&place).map_err(|e| Error::file("rename", &place, e.error))?;
    Ok(())
}

/// Like [`write_whole`], keeping the file that was there as the previous one.
pub fn write_keeping_previous(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = Draft::of(path, bytes)?;
    // Before the file that is there goes, the new one must be on the disk.
    draft.file().sync_all().map_err(|e| Error::file("write", path, e))?;
    if path.exists() {
        fs::rename(path, previous(path)).map_err(|e| Error::file("rename", path, e))?;
    }
    draft.replace()
}

/// The file before the newest one.
pub fn previous(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".previous");
    path.with_file_name(name)
}

/// Whether this is the name of a file that was being written when its program was killed, of a file
/// whose name begins with one of these. Older versions left `NAME.partial` and `NAME.next`.
pub fn is_leftover(name: &str, begin: &[&str]) -> bool {
    let ended = name.strip_suffix(PARTIAL).or_else(|| name.strip_suffix(".next"));
    ended.is_some_and(|rest| begin.iter().any(|own| rest.starts_with(own)))
}

/// Removes what a killed program left of files whose names begin with one of these. Only the holder
/// of the folder's claim may.
pub fn remove_leftovers(folder: &Path, begin: &[&str]) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && name.to_str().is_some_and(|name| is_leftover(name, begin)) {
            // Nobody reads it; it only takes space.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Makes a rename durable where the system can sync folders; elsewhere there is nothing to do.
fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_previous_file_is_kept_and_half_written_ones_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        write_keeping_previous(&path, b"one").unwrap();
        write_keeping_previous(&path, b"two").unwrap();
        let third = Draft::of(&path, b"thr").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read(previous(&path)).unwrap(), b"one");
        drop(third);
        assert_eq!(names(folder.path()), ["checkpoint", "checkpoint.previous"]);
    }

    #[test]
    fn two_writers_of_one_file_do_not_meet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let [first, second] = [b"first", b"other"].map(|text| Draft::of(&path, text).unwrap());
        assert_eq!(first.read_back().unwrap(), b"first");
        second.replace().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        first.replace().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_file_that_came_in_the_meantime_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let draft = Draft::of(&path, b"ours").unwrap();
        fs::write(&path, "theirs").unwrap();
        let error = draft.create().unwrap_err().to_string();
        assert!(error.contains("in the meantime, and is kept"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(folder.path()), ["file"]);
        fs::remove_file(&path).unwrap();
        Draft::of(&path, b"ours").unwrap().create().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
    }

    #[test]
    fn what_a_killed_program_left_is_known_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let draft = Draft::of(&path, b"half").unwrap();
        let (_, left) = draft.file.keep().unwrap();
        for name in ["run.json.partial", "checkpoint.next", "notes.partial", "run.json"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(is_leftover(left.file_name().unwrap().to_str().unwrap(), &["run.json"]));
        remove_leftovers(folder.path(), &["run.json", "checkpoint"]);
        assert_eq!(names(folder.path()), ["notes.partial", "run.json"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_the_rights_of_any_other() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [ours, plain] = ["ours", "plain"].map(|name| folder.path().join(name));
        write_whole(&ours, b"x").unwrap();
        fs::write(&plain, "x").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn a_folder_that_cannot_be_written_says_so() {
        let error = write_whole(Path::new("/proc/none/file"), b"x").unwrap_err().to_string();
        assert!(error.starts_with("could not write /proc/none/file: "), "{error}");
        assert!(!error.contains(PARTIAL), "{error}");
    }
}
