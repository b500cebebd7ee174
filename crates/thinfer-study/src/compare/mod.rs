//! Several runs on the same data beside each other: the scores of each, and which of them no other
//! one beats.
//!
//! Only what runs say of themselves is read, so neither data nor samples have to be there still; a
//! finished run that was never evaluated is evaluated.

mod course;
mod entry;
mod front;
mod groups;

use std::path::PathBuf;

use serde::Serialize;
use thinfer_core::device::Device;
use thinfer_core::train::Observer;
use thinfer_data::{Error, Result};
use thinfer_run::config::{Config, DataKind};
use thinfer_run::run::{RunInfo, read_info};

pub use course::{Course, Curve};
pub use entry::{Entry, Evaluated};
pub use front::{Axis, front};
pub use groups::{Differing, Group, OverSeeds};

/// What runs predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The classes of images.
    Images,
    /// The classes of rows.
    Classes,
    /// Numbers.
    Numbers,
}

/// Several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The data, as a configuration names it.
    pub data: String,
    /// What is predicted; `null` where no run is finished and it cannot be told.
    pub subject: Option<Subject>,
    /// The runs, in the order in which they were given.
    pub runs: Vec<Entry>,
    /// The numbers, from 0, of the runs that no other one beats in both score and sparsity.
    pub front: Vec<usize>,
    /// Where the configurations of the runs differ.
    pub differences: Vec<Differing>,
    /// The runs by what they differ in besides the seed: each is in one group.
    pub groups: Vec<Group>,
    /// Whether the rows of the table are divided by the seed of the run, so that runs with different
    /// seeds were tested on different rows.
    pub split_by_seed: bool,
}

impl Comparison {
    /// Whether the score is an error, of which less is better.
    pub fn is_error(&self) -> bool {
        self.subject == Some(Subject::Numbers)
    }

    /// The numbers of the runs that no other one beats in a score and in something else; runs that
    /// lack one of them are left out.
    pub fn front_of(
        &self,
        x: (Axis, fn(&Entry) -> Option<f64>),
        y: (Axis, fn(&Entry) -> Option<f64>),
    ) -> Vec<usize> {
        let both = |entry: &Entry| Some((x.1(entry)?, y.1(entry)?));
        let numbers: Vec<usize> =
            (0..self.runs.len()).filter(|&at| both(&self.runs[at]).is_some()).collect();
        let points: Vec<(f64, f64)> =
            numbers.iter().filter_map(|&at| both(&self.runs[at])).collect();
        front(&points, x.0, y.0).into_iter().map(|at| numbers[at]).collect()
    }

    /// What a score is and which way is better.
    pub fn score(&self) -> (Axis, fn(&Entry) -> Option<f64>) {
        if self.is_error() {
            (Axis::LessIsBetter, |entry| entry.evaluated.as_ref()?.mse)
        } else {
            (Axis::MoreIsBetter, |entry| entry.evaluated.as_ref()?.accuracy)
        }
    }
}

/// Puts runs beside each other. Those that predict images and were not evaluated yet compute on
/// `device`.
pub fn compare(folders: &[PathBuf], device: Device, observer: &dyn Observer) -> Result<Comparison> {
    let infos =
        folders.iter().map(|folder| read_info(folder, observer)).collect::<Result<Vec<_>>>()?;
    let Some(first) = infos.first() else {
        return Err(Error::config("RUN", "is missing; give the folders of the runs to compare"));
    };
    for (folder, info) in folders.iter().zip(&infos).skip(1) {
        if let Some(difference) = difference(first, info) {
            let problem = format!(
                "{difference} than {}; only runs on the same data can be compared",
                folders[0].display()
            );
            return Err(Error::store(folder, problem));
        }
    }
    let mut runs = Vec::with_capacity(folders.len());
    for (folder, info) in folders.iter().zip(&infos) {
        runs.push(Entry::read(folder, info, device, observer)?);
    }
    let regression = runs.iter().find_map(|run| Some(run.evaluated.as_ref()?.mse.is_some()));
    let of_table = |regression| if regression { Subject::Numbers } else { Subject::Classes };
    let images = first.images().is_ok();
    let subject = if images { Some(Subject::Images) } else { regression.map(of_table) };
    let data = first.config.data.kind.name().to_owned();
    let configs: Vec<&Config> = infos.iter().map(|info| &info.config).collect();
    let differences = groups::differing(&configs)?;
    let groups = groups::groups(&differences, &runs);
    let split_by_seed = infos.iter().any(|info| divided_by_seed(first, info));
    let front = Vec::new();
    let mut comparison =
        Comparison { data, subject, runs, front, differences, groups, split_by_seed };
    let sparsity: fn(&Entry) -> Option<f64> = |entry| Some(entry.evaluated.as_ref()?.sparsity);
    comparison.front = comparison.front_of((Axis::MoreIsBetter, sparsity), comparison.score());
    Ok(comparison)
}

/// Whether two runs are on the same table, whose rows each divides by a seed of its own.
fn divided_by_seed(one: &RunInfo, other: &RunInfo) -> bool {
    let [a, b] = [one, other].map(|info| &info.config);
    let same_rows = |info: &RunInfo| info.rows.0 + info.rows.1 + info.rows.2;
    a.data.kind == DataKind::Table
        && a.seed != b.seed
        && a.data == b.data
        && a.data.split.is_none()
        && a.data.test_path.is_none()
        && same_rows(one) == same_rows(other)
}

/// How the data of two runs differ, if they do.
fn difference(one: &RunInfo, other: &RunInfo) -> Option<String> {
    let images = other.images().is_ok();
    if images != one.images().is_ok() {
        let subject = if images { "images" } else { "a table" };
        return Some(format!("is about {subject}, another task"));
    }
    let (kind, wanted) = (other.config.data.kind, one.config.data.kind);
    if kind != wanted {
        let (kind, wanted) = (kind.name(), wanted.name());
        return Some(format!("was trained on {kind} and not on {wanted}, so on other data"));
    }
    let targets = |run: &RunInfo| run.network.loss().target_len(run.network.output_len());
    let classes =
        |run: &RunInfo| run.network.loss().has_classes().then(|| run.network.output_len());
    if targets(one) != targets(other) || classes(one) != classes(other) {
        return Some("predicts something else".to_owned());
    }
    if (one.data_fingerprint, one.rows.2) == (other.data_fingerprint, other.rows.2) {
        return None;
    }
    if divided_by_seed(one, other) {
        return None;
    }
    // What is generated follows the seed of the run unless it has its own.
    let generated = kind.is_generated();
    Some(if generated && one.config.data_seed() != other.config.data_seed() {
        "has generated data of another seed (--set data.seed=1 gives all runs the same), so other data"
            .to_owned()
    } else {
        "was trained or tested on other rows, so on other data".to_owned()
    })
}

#[cfg(test)]
mod tests;
