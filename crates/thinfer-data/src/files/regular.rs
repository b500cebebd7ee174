//! Files that are read: pipes and devices have no end, or none that comes by itself.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use crate::memory::{available_memory, human_bytes};

/// Opens a file to read it, after links. What is no file is refused before it is opened, since
/// opening a pipe waits for whoever writes to it.
pub fn open(path: &Path) -> Result<File> {
    check(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Refuses what is no file.
pub fn check(found: &fs::Metadata) -> Result<()> {
    if found.is_file() {
        return Ok(());
    }
    if found.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    Err(Error::new(ErrorKind::InvalidInput, "it is a pipe, a socket or a device and not a file"))
}

/// The bytes of a file that fits into memory.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_up_to(path, available_memory().unwrap_or(u64::MAX))
}

/// The bytes of a file that may have at most so many.
pub fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let len = file.metadata()?.len();
    if len > most {
        let (len, most) = (human_bytes(len), human_bytes(most));
        let problem = format!("it has {len}, and at most {most} can be read");
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file that may have at most so many bytes.
pub fn read_to_string(path: &Path, most: u64) -> Result<String> {
    let bytes = read_up_to(path, most)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened_and_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert_eq!(read(&at("link")).unwrap(), b"text");
        assert_eq!(read_to_string(&at("file"), 4).unwrap(), "text");
        let error = read_to_string(&at("file"), 3).unwrap_err().to_string();
        assert_eq!(error, "it has 4 bytes, and at most 3 bytes can be read");
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        for name in ["pipe", "socket", "device"] {
            let error = open(&at(name)).unwrap_err();
            assert!(error.to_string().contains("not a file"), "{name}: {error}");
        }
        assert_eq!(open(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(open(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
