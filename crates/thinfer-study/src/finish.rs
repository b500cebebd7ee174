//! The files that lie beside a finished run: its evaluation and its report.

use std::path::{Path, PathBuf};

use thinfer_data::{Error, Result};
use thinfer_run::evaluated::Evaluated;
use thinfer_run::run::{Run, write_json, write_text};

use crate::report;
use crate::select::Selected;

/// The order of the keys in `evaluation.json`. Readers do not care; files stay as they always were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// By name, as `train` writes them.
    Sorted,
    /// As the evaluation declares them, as the tables of the paper write them.
    Declared,
}

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `evaluation.json`.
    pub evaluation: PathBuf,
    /// `report.html`.
    pub report: PathBuf,
}

/// Writes evaluation and report of a finished run into its folder. `evaluated` must be that of the
/// same run.
pub fn finish(run: &Run, evaluated: &Evaluated, folder: &Path, keys: Keys) -> Result<Files> {
    let files =
        Files { evaluation: folder.join("evaluation.json"), report: folder.join("report.html") };
    match keys {
        Keys::Sorted => write_json(&files.evaluation, &to_json(evaluated)?)?,
        Keys::Declared => write_json(&files.evaluation, evaluated)?,
    }
    write_text(&files.report, &report::of_run(run, evaluated, Selected::read(folder)?.as_ref())?)?;
    Ok(files)
}

/// An evaluation as JSON, keys sorted.
pub fn to_json(evaluated: &Evaluated) -> Result<serde_json::Value> {
    serde_json::to_value(evaluated).map_err(|e| Error::Data(format!("could not be written: {e}")))
}
