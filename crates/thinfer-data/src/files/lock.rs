//! One program at a time works in a folder.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// A folder that is claimed for as long as this lives. It is free again when the program ends,
/// however it does.
#[must_use = "the folder is free again when this is dropped"]
#[derive(Debug)]
pub struct Claim {
    /// `None` where the system has no such locks, as some network file systems do not.
    _lock: Option<File>,
}

/// How often a folder that somebody has is asked for again, and the pause before each time:
/// [`is_claimed`] has it for a moment.
const TRIES: usize = 4;
const PAUSE: Duration = Duration::from_millis(25);

/// Claims a folder, or says who has it.
pub fn claim(folder: &Path) -> Result<Claim> {
    let Ok(file) = File::open(folder) else { return Ok(Claim { _lock: None }) };
    let mut taken = file.try_lock();
    for _ in 0..TRIES {
        if !matches!(taken, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(PAUSE);
        taken = file.try_lock();
    }
    match taken {
        Ok(()) => Ok(Claim { _lock: Some(file) }),
        Err(TryLockError::WouldBlock) => {
            let who =
                holder(&file).map_or(String::new(), |process| format!(" (process {process})"));
            let problem = format!(
                "another thinfer{who} is at work in this folder; wait for it to end, or choose another one with --out"
            );
            Err(Error::store(folder, problem))
        }
        Err(TryLockError::Error(_)) => Ok(Claim { _lock: None }),
    }
}

/// Whether somebody has claimed a folder; `None` where the system does not tell.
pub fn is_claimed(folder: &Path) -> Option<bool> {
    // Many may look at a time: they share the lock, and a claim waits for them.
    match File::open(folder).ok()?.try_lock_shared() {
        Ok(()) => Some(false),
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}

/// The process that holds the lock of a file, where the system tells.
#[cfg(target_os = "linux")]
fn holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata().ok()?;
    let (device, inode) = (found.dev(), found.ino());
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & 0xffff_ff00;
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4242 08:01:1234 0 EOF`; whoever waits has `->` after the number.
    let held = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, at, ..] = words[..] else { return None };
        // A process of another container has no number here.
        process.parse::<u32>().ok().filter(|process| *process > 0 && at == place)
    };
    locks.lines().find_map(held)
}

#[cfg(not(target_os = "linux"))]
fn holder(_: &File) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_folder_is_claimed_once_and_free_again_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path()).unwrap();
        let error = claim(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is at work in this folder; wait for it to end"), "{error}");
        drop(first);
        claim(folder.path()).map(drop).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn looking_takes_nobody_s_claim_away() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(is_claimed(folder.path()), Some(false));
        let held = claim(folder.path()).unwrap();
        assert_eq!(is_claimed(folder.path()), Some(true));
        drop(held);
        assert_eq!(is_claimed(folder.path()), Some(false));
        assert_eq!(is_claimed(&folder.path().join("none")), None);
        // Somebody looks just now.
        let looking = File::open(folder.path()).unwrap();
        looking.try_lock_shared().unwrap();
        let waits = std::thread::scope(|scope| {
            let claimed = scope.spawn(|| claim(folder.path()).is_ok());
            std::thread::sleep(PAUSE / 2);
            drop(looking);
            claimed.join().unwrap()
        });
        assert!(waits);
    }

    /// Some file systems of containers number their devices in another way; then nobody is named.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_holder_is_named_where_the_system_tells() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        assert_eq!(holder(&file), None);
        let _first = claim(folder.path()).unwrap();
        let told = holder(&file);
        assert!(told.is_none_or(|process| process == std::process::id()), "{told:?}");
    }
}
