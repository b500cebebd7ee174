//! What belongs to a run, and how it goes.

use std::fs;
use std::path::{Path, PathBuf};

use thinfer_data::{Error, Result};

use crate::tensorboard;

/// Files and folders that belong to a run; nothing else in its folder is ever touched.
const OWN_FILES: [&str; 6] = [
    "config.toml",
    "evaluation.json",
    "history.csv",
    "report.html",
    "selection.json",
    "status.json",
];

/// Whether a file is an export of the run: `posterior`, `small` or `sampleNNN`, in one of the
/// formats.
fn is_export(name: &str) -> bool {
    let Some((stem, ending)) = name.split_once('.') else { return false };
    let number = stem.strip_prefix("sample").is_some_and(|number| number.parse::<usize>().is_ok());
    (stem == "posterior" || stem == "small" || number)
        && ["safetensors", "architecture.json", "onnx"].contains(&ending)
}

/// The attribute by which a folder of exported chains is known.
pub const CHAINS_WRITER: (&str, &str) = ("inference_library", "thinfer");

/// Whether a folder holds chains that thinfer exported.
pub fn is_chains_export(path: &Path) -> bool {
    let attributes = thinfer_data::files::regular::read(&path.join(".zattrs")).ok();
    let attributes: Option<serde_json::Value> =
        attributes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    attributes.is_some_and(|found| found[CHAINS_WRITER.0] == CHAINS_WRITER.1)
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", path, e)),
        _ => Ok(()),
    }
}

fn list(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Removes files of the chains whose names begin with one of these.
fn remove_from_chains(folder: &Path, begin: &[&str]) -> Result<()> {
    let is_chain = |path: &PathBuf| path.is_dir() && file_name(path).starts_with("chain-");
    for chain in list(folder).into_iter().filter(is_chain) {
        for file in list(&chain) {
            let name = file_name(&file);
            if begin.iter().any(|own| name.starts_with(own)) {
                remove_file(&file)?;
            }
        }
        // Stays where there is something else in it.
        let _ = fs::remove_dir(&chain);
    }
    Ok(())
}

/// Removes checkpoints and samples of a run that is done with. Its settings, history, times and
/// evaluation stay; it can neither go on nor predict any more.
pub fn remove_samples(folder: &Path) -> Result<()> {
    remove_from_chains(folder, &["checkpoint", "snapshot-"])
}

/// Removes a run that is about to be replaced. `run.json` stays until another one takes its place:
/// whenever this is interrupted, the folder is recognised as a run.
pub(super) fn remove_run(folder: &Path) -> Result<()> {
    remove_from_chains(folder, &["checkpoint", "snapshot-", "times.csv"])?;
    for export in list(folder).into_iter().filter(|path| is_export(&file_name(path))) {
        remove_file(&export)?;
    }
    let chains = folder.join("posterior.zarr");
    if is_chains_export(&chains) {
        fs::remove_dir_all(&chains).map_err(|e| Error::file("remove", &chains, e))?;
    }
    tensorboard::remove(folder)?;
    for own in OWN_FILES {
        remove_file(&folder.join(own))?;
    }
    Ok(())
}
