//! The file of a whole table: everything that lies in a folder with the same settings, whatever a
//! single call asked for.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The results of all finished runs in a folder, whatever their settings.
pub(super) fn results<R: DeserializeOwned>(folder: &Path) -> Vec<R> {
    let files = std::fs::read_dir(folder.join("runs")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    paths.sort();
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok();
    paths.into_iter().filter_map(read).collect()
}

/// What is needed of a table that was written before.
#[derive(Deserialize)]
struct Written<R> {
    runs: Vec<R>,
}

/// Where the table of some settings is written, and the runs that the file there has already.
///
/// This is `folder/STEM.json`, unless that is the table of other settings or cannot be read: then it
/// stays, and the number that stands for the settings becomes part of the name.
pub(super) fn place<R: DeserializeOwned>(
    folder: &Path,
    stem: &str,
    settings: u32,
    ours: impl Fn(&R) -> bool,
) -> (PathBuf, Vec<R>) {
    let runs_of = |path: &Path| -> Option<Vec<R>> {
        let text = std::fs::read_to_string(path).ok()?;
        serde_json::from_str::<Written<R>>(&text).ok().map(|written| written.runs)
    };
    let usual = folder.join(format!("{stem}.json"));
    if !usual.exists() {
        return (usual, Vec::new());
    }
    match runs_of(&usual) {
        Some(runs) if runs.iter().all(&ours) => (usual, runs),
        _ => {
            let beside = folder.join(format!("{stem}-{settings:08x}.json"));
            let runs = runs_of(&beside).unwrap_or_default().into_iter().filter(&ours).collect();
            (beside, runs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_other_settings_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        let even = |run: &u32| run.is_multiple_of(2);
        let place = || place(folder.path(), "table", 0xab, even);
        let usual = folder.path().join("table.json");
        let beside = folder.path().join("table-000000ab.json");
        assert_eq!(place(), (usual.clone(), vec![]));
        write("table.json", r#"{"rows": [], "runs": [2, 4]}"#);
        assert_eq!(place(), (usual, vec![2, 4]));
        write("table-000000ab.json", r#"{"runs": [6]}"#);
        for other in [r#"{"runs": [2, 3]}"#, "not JSON"] {
            write("table.json", other);
            assert_eq!(place(), (beside.clone(), vec![6]), "{other}");
        }
    }

    #[test]
    fn every_result_is_read_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(results::<u32>(folder.path()).is_empty());
        let runs = folder.path().join("runs");
        std::fs::create_dir_all(runs.join("folder")).unwrap();
        for (name, text) in [("b.json", "2"), ("a.json", "1"), ("c.json", "?"), ("d.txt", "3")] {
            std::fs::write(runs.join(name), text).unwrap();
        }
        assert_eq!(results::<u32>(folder.path()), [1, 2]);
    }
}
