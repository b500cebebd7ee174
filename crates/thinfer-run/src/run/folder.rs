//! What a folder says of the run in it: `run.json` under its checksum, and `config.toml`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use thinfer_core::train::Observer;
use thinfer_data::files::{
    self, Contents, is_leftover, regular, sealed_json, take_json, write_whole,
};
use thinfer_data::{Error, Result};

use super::journal::HISTORY;
use super::{Mode, RunInfo, resume, status};
use crate::config::{Config, FORMAT};

const INFO: &str = "run.json";
const CONFIG: &str = "config.toml";
/// What a run that was killed at its very start may have begun to write.
const FIRST: [&str; 2] = [INFO, CONFIG];
/// The files that are written by whoever holds the claim of the folder: in it, and for each chain.
const CLAIMED: [&str; 4] = [INFO, CONFIG, HISTORY, status::NAME];
const CLAIMED_OF_A_CHAIN: [&str; 3] = ["checkpoint", "snapshot-", "times.csv"];

/// Decides about a folder. Gives the run in it where that goes on, and nothing where a run begins.
///
/// What it finds may change until the folder is claimed, so it is asked again then.
pub(super) fn look(
    config: &Config,
    folder: &Path,
    mode: Mode,
    observer: &dyn Observer,
) -> Result<Option<RunInfo>> {
    let is_run = folder.join(INFO).exists();
    match mode {
        Mode::Resume if is_run => {
            let before = read_info(folder, observer)?;
            // Before the data, which may take long to load and must be of these settings.
            resume::check_settings(&before, &resume::as_started(&before, config), folder)?;
            Ok(Some(before))
        }
        // What is there is removed when everything about the new run has been checked.
        _ => check_place(folder, mode).map(|()| None),
    }
}

/// Refuses a folder in which no run can begin, or go on, before the work for it is done.
pub fn check_place(folder: &Path, mode: Mode) -> Result<()> {
    let is_run = folder.join(INFO).exists();
    if is_run {
        return match mode {
            Mode::New => Err(Error::RunExists(folder.to_owned())),
            Mode::Resume | Mode::Force => Ok(()),
        };
    }
    if is_occupied(folder) {
        let problem = "the folder is not empty and holds no run; choose another one with --out";
        return Err(Error::store(folder, problem));
    }
    match folder.ancestors().find(|path| path.exists()) {
        Some(file) if !file.is_dir() => {
            let problem = format!("{} is no folder; choose another place", file.display());
            Err(Error::store(folder, problem))
        }
        _ => Ok(()),
    }
}

/// Whether there is anything that a run which was killed at its very start did not leave.
fn is_occupied(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_none_or(|name| !is_leftover(name, &FIRST)))
}

/// Removes what a killed run began to write. The folder must be claimed.
pub(super) fn clean(folder: &Path) {
    files::remove_leftovers(folder, &CLAIMED);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("chain-") {
            files::remove_leftovers(&entry.path(), &CLAIMED_OF_A_CHAIN);
        }
    }
}

/// Writes what makes a folder a run.
pub(super) fn write_start(folder: &Path, info: &RunInfo) -> Result<()> {
    // run.json first: it is what makes the folder a run, should the next line not be reached.
    write_info(folder, info)?;
    write_config(folder, &info.config)
}

/// Writes the settings again where the run was stopped between its first two files.
pub(super) fn restore_config(folder: &Path, info: &RunInfo) -> Result<()> {
    if folder.join(CONFIG).exists() { Ok(()) } else { write_config(folder, &info.config) }
}

fn write_config(folder: &Path, config: &Config) -> Result<()> {
    write_whole(&folder.join(CONFIG), config.to_toml()?.as_bytes())
}

pub(super) fn write_info(folder: &Path, info: &RunInfo) -> Result<()> {
    write_whole(&folder.join(INFO), &sealed_json(info)?)
}

/// Reads `run.json`. The observer is told where it has no checksum.
pub fn read_info(folder: &Path, observer: &dyn Observer) -> Result<RunInfo> {
    let path = folder.join(INFO);
    let bytes = regular::read(&path).map_err(|source| {
        if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            Error::store(folder, "is not a run folder (it has no run.json); give the folder that `thinfer train` wrote")
        } else {
            Error::file("read", &path, source)
        }
    })?;
    info_from_bytes(&path, &bytes, observer)
}

/// Reads the bytes of `run.json`; `path` is named in messages.
pub fn info_from_bytes(path: &Path, bytes: &[u8], observer: &dyn Observer) -> Result<RunInfo> {
    let (ours, advice) = (env!("CARGO_PKG_VERSION"), "or train again with --force");
    // Another version may seal its files in another way, so this comes before the checksum.
    if let Ok(Origin { thinfer, config }) = serde_json::from_slice(bytes)
        && config.format != FORMAT
    {
        let problem = format!(
            "was written by thinfer {thinfer} in format {}, but this is thinfer {ours}, which reads format {FORMAT}; use that version, {advice}",
            config.format
        );
        return Err(Error::store(path, problem));
    }
    let Contents { value, checked } = take_json(bytes).map_err(|problem| {
        let problem = format!(
            "cannot be read by thinfer {ours}: {problem}; it is damaged or from another version. Put back a copy, use that version, {advice}"
        );
        Error::store(path, problem)
    })?;
    if !checked {
        observer.notice(&format!(
            "{} has no checksum, as runs of older versions; if it was damaged, that does not show",
            path.display()
        ));
    }
    Ok(value)
}

/// What every version of `run.json` says of where it comes from.
#[derive(Deserialize)]
struct Origin {
    thinfer: String,
    config: OriginConfig,
}

#[derive(Deserialize)]
struct OriginConfig {
    format: i64,
}
