//! The file of a whole table: everything that lies in a folder with the same settings, whatever a
//! single call asked for.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thinfer_data::files::{Claim, claim, read_json, remove_leftovers};
use thinfer_data::{Error, Result};

/// What to do about a result that cannot be read.
pub(super) const ADVICE: &str = "put back a copy of it, or move it away to have the run done again";

/// Makes the folder of a table or a figure, claims it for this program and removes what a killed
/// one left there of files that it was writing.
pub(super) fn claim_folder(folder: &Path) -> Result<Claim> {
    let runs = folder.join("runs");
    std::fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
    let claimed = claim(folder)?;
    remove_leftovers(folder, &["table", "figure"]);
    remove_leftovers(&runs, &[""]);
    Ok(claimed)
}

/// The results of all finished runs in a folder, whatever their settings, and why others cannot be
/// read.
pub(super) fn results<R: DeserializeOwned>(folder: &Path) -> (Vec<R>, Vec<Error>) {
    let files = std::fs::read_dir(folder.join("runs")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    paths.sort();
    let (mut results, mut unreadable) = (Vec::new(), Vec::new());
    for path in paths {
        match read_json(&path, ADVICE) {
            Ok(result) => results.extend(result),
            Err(error) => unreadable.push(error),
        }
    }
    (results, unreadable)
}

/// What is needed of a table that was written before.
#[derive(Deserialize)]
struct Written<R> {
    runs: Vec<R>,
}

/// Where the table of some settings is written, and the runs that the file there has already.
///
/// This is `folder/STEM.json`, unless that is the table of other settings or cannot be read: then
/// it stays, and the number that stands for the settings becomes part of the name. That file is
/// never written over where it cannot be read.
pub(super) fn place<R: DeserializeOwned>(
    folder: &Path,
    stem: &str,
    settings: u32,
    ours: impl Fn(&R) -> bool,
) -> Result<(PathBuf, Vec<R>)> {
    let advice = "put back a copy of it, or move it away to have the table written anew";
    let runs_of = |path: &Path| -> Result<Option<Vec<R>>> {
        Ok(read_json::<Written<R>>(path, advice)?.map(|written| written.runs))
    };
    let usual = folder.join(format!("{stem}.json"));
    match runs_of(&usual) {
        Ok(None) => Ok((usual, Vec::new())),
        Ok(Some(runs)) if runs.iter().all(&ours) => Ok((usual, runs)),
        _ => {
            let beside = folder.join(format!("{stem}-{settings:08x}.json"));
            let runs = runs_of(&beside)?.unwrap_or_default().into_iter().filter(&ours).collect();
            Ok((beside, runs))
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
        let place = || place(folder.path(), "table", 0xab, even).unwrap();
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
        write("table-000000ab.json", "not JSON either");
        let error = super::place(folder.path(), "table", 0xab, even).unwrap_err().to_string();
        assert!(error.contains("table-000000ab.json: cannot be read"), "{error}");
    }

    #[test]
    fn every_result_is_read_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(results::<u32>(folder.path()).0.is_empty());
        let runs = folder.path().join("runs");
        std::fs::create_dir_all(runs.join("folder")).unwrap();
        for (name, text) in [("b.json", "2"), ("a.json", "1"), ("c.json", "?"), ("d.txt", "3")] {
            std::fs::write(runs.join(name), text).unwrap();
        }
        let (read, unreadable) = results::<u32>(folder.path());
        assert_eq!((read, unreadable.len()), (vec![1, 2], 1));
        assert!(unreadable[0].to_string().contains("c.json: cannot be read"), "{unreadable:?}");
    }
}
