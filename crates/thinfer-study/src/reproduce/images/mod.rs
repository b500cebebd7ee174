//! Tables 1 to 3 of the paper, run again: image networks, dense and pruned, the paper's accuracy
//! beside ours.
//!
//! A row is a shipped configuration. What is finished is kept and not done again, and a run that
//! was interrupted goes on to the bits that it would have had.

mod budget;
mod estimate;
mod outcome;
mod plan;
mod row;
mod summary;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use thinfer_core::device::Device;
use thinfer_core::train::{Observer, Record};
use thinfer_data::{Error, Result, jobs};
use thinfer_engine::EngineError;
use thinfer_run::config::{Config, DataKind};
use thinfer_run::run::{Control, RunObserver};

use super::table_file::claim_folder;
pub use budget::shortened;
pub use estimate::{Cost, Source};
use outcome::Doing;
pub use outcome::Outcome;
pub use plan::{Counts, Plan};
pub use row::{PaperTable, Row};
pub use summary::{Failure, Measured, Summary};

/// Who is told of the runs. All methods may be called from several threads.
pub trait Watcher: Sync {
    /// A run begins or goes on; runs have numbers from 0.
    fn begins(&self, number: usize, name: &str);
    /// Its first chain has done `step` of `total` steps.
    fn progress(&self, number: usize, step: u64, total: u64, record: Option<&Record>);
    /// It is finished, or why it is not.
    fn ends(&self, number: usize, name: &str, result: &Result<Outcome>);
    /// Something that the user should know.
    fn notice(&self, text: &str);
    /// Something without which a result is read wrongly.
    fn warning(&self, text: &str) {
        self.notice(text);
    }
}

/// Where and how runs are done.
pub struct Setting<'a> {
    /// The folder of runs and results.
    pub out: &'a Path,
    /// Runs at a time; `None` is one a core on the CPU, and one on a GPU.
    pub jobs: Option<usize>,
    /// Whether checkpoints and samples of a run go when its result is written: a wide network
    /// leaves gigabytes of them.
    pub discard_samples: bool,
    /// Where to compute.
    pub device: Device,
    /// The same in words.
    pub device_name: &'a str,
    /// Set by the user to stop after the current step.
    pub stop: &'a AtomicBool,
    /// Who is told.
    pub watcher: &'a dyn Watcher,
}

/// Does what is missing of a plan and gives the table. A run whose loss stops being a number is
/// missing in it, with the reason beside it; the others go on.
pub fn reproduce(plan: &Plan, setting: &Setting<'_>) -> Result<Measured> {
    let out = setting.out;
    let mut runs = Vec::new();
    let mut jobs = Vec::new();
    let all = plan.jobs()?;
    plan.check(&all)?;
    // Two programs on one folder would do the same runs.
    let _until_the_end = claim_folder(out)?;
    for job in all {
        match job.kept(out)? {
            Some(outcome) => runs.push(outcome),
            None => jobs.push(job),
        }
    }
    for job in &jobs {
        check_place(&job.config)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let usual = if setting.device == Device::Cpu { cores } else { 1 };
    let side_by_side = setting.jobs.unwrap_or(usual).clamp(1, jobs.len().max(1));
    let doing = Doing {
        out,
        jobs: side_by_side,
        threads: (cores / side_by_side).max(1),
        discard_samples: setting.discard_samples,
    };
    let all: Vec<_> = jobs.iter().collect();
    let faults = Mutex::new(Vec::new());
    let results = jobs::run(all, side_by_side, |number, job| {
        let (name, watcher) = (job.name(), setting.watcher);
        watcher.begins(number, &name);
        let observer = Numbered { watcher, number };
        let control = Control {
            stop: setting.stop,
            observer: &observer,
            device: setting.device,
            device_name: setting.device_name,
        };
        let result = outcome::run(job, &doing, &control);
        watcher.ends(number, &name, &result);
        match result {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(error @ (Error::NonFinite { .. } | Error::BlownUp(_))) => {
                let (row, reason) = (job.row.name(), error.to_string());
                Ok(Err(Failure { row, seed: job.seed, reason }))
            }
            Err(Error::Interrupted(_)) => Err(Error::Interrupted(out.to_owned())),
            Err(Error::Engine(EngineError::Fault { problem, launched })) => {
                if let Ok(mut faults) = faults.lock() {
                    faults.push(format!("{name}: {launched}"));
                }
                Err(Error::Engine(EngineError::Fault { problem, launched }))
            }
            Err(error) => Err(name_run(error, &name)),
        }
    });
    let results =
        results.map_err(|error| name_runs(error, faults.into_inner().unwrap_or_default()))?;
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(outcome) => runs.push(outcome),
            Err(failure) => failures.push(failure),
        }
    }
    let notice = |text: &str| setting.watcher.notice(text);
    let file = plan.write_table(out, failures.clone(), notice)?;
    Ok(Measured { file: Some(file), ..plan.table_of(runs, failures) })
}

/// Says which of several runs a call on the GPU failed for.
fn name_run(error: Error, run: &str) -> Error {
    match error {
        Error::Engine(EngineError::Cuda { call, problem }) => {
            let problem = format!(
                "{problem}. It ended {run}; its checkpoint stays, and the same command goes on from it"
            );
            Error::Engine(EngineError::Cuda { call, problem })
        }
        other => other,
    }
}

/// Runs of a process share what a fault ends: says what each of them had launched.
fn name_runs(error: Error, mut faults: Vec<String>) -> Error {
    faults.sort();
    match error {
        Error::Engine(EngineError::Fault { problem, .. }) if !faults.is_empty() => {
            Error::Engine(EngineError::Fault { problem, launched: faults.join("; ") })
        }
        other => other,
    }
}

/// ImageNet is the one set of the tables that `thinfer data get` does not know.
fn check_place(config: &Config) -> Result<()> {
    let path = config.data.path.as_deref().unwrap_or_default();
    if config.data.kind != DataKind::Images || Path::new(path).exists() {
        return Ok(());
    }
    Err(Error::Data(format!(
        "{path} is not there; ImageNet has to be got from its makers (`thinfer data get` has the other sets): put its classes into {path}/train and {path}/val, one folder of images each, or set `data.path` to where they are"
    )))
}

/// The table of the runs that `out` holds; nothing is run or written, and what is not there is
/// missing.
pub fn collect(plan: &Plan, out: &Path) -> Result<Measured> {
    let kept = plan.jobs()?.iter().map(|job| job.kept(out)).collect::<Result<Vec<_>>>()?;
    Ok(plan.table_of(kept.into_iter().flatten().collect(), Vec::new()))
}

/// One run among several.
struct Numbered<'a> {
    watcher: &'a dyn Watcher,
    number: usize,
}

impl RunObserver for Numbered<'_> {}

impl Observer for Numbered<'_> {
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>) {
        if chain == 0 {
            self.watcher.progress(self.number, step, total, record);
        }
    }

    fn notice(&self, text: &str) {
        self.watcher.notice(text);
    }

    fn warning(&self, text: &str) {
        self.watcher.warning(text);
    }
}
