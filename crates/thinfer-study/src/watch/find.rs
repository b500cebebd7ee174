//! Which runs there are below a folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders inside each other that are looked into, at most.
const DEPTH: usize = 8;
/// Folders that are looked into, at most: a home folder has more.
const MOST_FOLDERS: usize = 5000;
/// Runs that are shown, at most.
pub(super) const MOST_RUNS: usize = 500;

/// Whether a folder holds a run.
pub(super) fn is_run(folder: &Path) -> bool {
    folder.join("run.json").is_file()
}

/// The folder where it is a run, and all runs below it, in the order of their names. Links to
/// folders are not followed: they may lead back.
pub(super) fn runs_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut seen) = (Vec::new(), 0);
    look(folder, DEPTH, &mut seen, &mut found);
    found.sort();
    found
}

fn look(folder: &Path, depth: usize, seen: &mut usize, found: &mut Vec<PathBuf>) {
    *seen += 1;
    if *seen > MOST_FOLDERS || found.len() >= MOST_RUNS {
        return;
    }
    let run = is_run(folder);
    if run {
        found.push(folder.to_owned());
    }
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Of a run, the folds may be runs; nothing else in it is.
        let may_hold_runs = if run { name.starts_with("folds-") } else { !name.starts_with('.') };
        if may_hold_runs && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            look(&entry.path(), depth - 1, seen, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_runs_below_a_folder_are_found() {
        let place = tempfile::tempdir().unwrap();
        let runs = ["a", "b/c", "a/folds-5/fold-1"];
        for run in runs.into_iter().chain(["a/chain-0", ".hidden/run"]) {
            let folder = place.path().join(run);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("run.json"), "{}").unwrap();
        }
        let mut wanted: Vec<PathBuf> = runs.iter().map(|run| place.path().join(run)).collect();
        wanted.sort();
        assert_eq!(runs_below(place.path()), wanted);
        assert_eq!(runs_below(&place.path().join("a"))[0], place.path().join("a"));
        assert!(runs_below(&place.path().join("none")).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_circle_end() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("run")).unwrap();
        fs::write(place.path().join("run/run.json"), "{}").unwrap();
        std::os::unix::fs::symlink(place.path(), place.path().join("back")).unwrap();
        assert_eq!(runs_below(place.path()), [place.path().join("run")]);
    }
}
