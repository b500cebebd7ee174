//! Table 4 of the paper, run again: independent data sets, the paper's number beside ours, and
//! beside the paper's rows what a practitioner would try first.

mod example;
mod outcome;
mod plan;
mod row;
mod scored;
mod summary;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use thinfer_core::train::Observer;
use thinfer_data::{Error, Result, jobs};
use thinfer_run::run::write_json;

use super::table_file::claim_folder;
pub use example::Example;
pub use outcome::{Outcome, PathQuality};
use plan::Job;
pub use plan::{Cost, Plan};
pub use row::{Printed, Row, printed};
pub use summary::{Failure, Summary, Table4};

/// Runs the plan, one run a core. With a folder every finished run is kept there, and runs that are
/// there already are not done again. A run that fails on its data is missing in the table, with the
/// reason beside it; the others go on.
pub fn table4(
    plan: &Plan,
    folder: Option<&Path>,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Table4> {
    let started = Instant::now();
    plan.check()?;
    let jobs = plan.jobs_to_run()?;
    // Two programs on one folder would do the same runs.
    let _until_the_end = folder.map(claim_folder).transpose()?;
    if let Some(folder) = folder {
        let runs = folder.join("runs");
        std::fs::create_dir_all(&runs).map_err(|e| Error::file("create", &runs, e))?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let side_by_side = plan.jobs.unwrap_or(cores).max(1);
    let done = AtomicUsize::new(0);
    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    let results = jobs::run(jobs.clone(), side_by_side, |_, job| {
        let result = keep(plan, job, folder, stop);
        let finished = done.fetch_add(1, Ordering::Relaxed) + 1;
        observer.progress(0, finished as u64, jobs.len() as u64, None);
        match result {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(error @ (Error::NonFinite { .. } | Error::BlownUp(_) | Error::Data(_))) => {
                Ok(Err(failure(job, &error)))
            }
            Err(error) => Err(error),
        }
    })
    .map_err(|error| match (error, folder) {
        (Error::Interrupted(_), Some(folder)) => Error::Interrupted(folder.to_owned()),
        (other, _) => other,
    })?;
    for result in results {
        match result {
            Ok(outcome) => runs.push(outcome),
            Err(failure) => failures.push(failure),
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let table = plan.table_of(runs, failures, seconds, side_by_side)?;
    let Some(folder) = folder else { return Ok(table) };
    let file = plan.write_table(folder, table.clone(), |text| observer.notice(text))?;
    Ok(Table4 { file: Some(file), ..table })
}

/// The table of the runs that `folder` holds; nothing is run or written, and what is not there is
/// missing.
pub fn collect(plan: &Plan, folder: &Path) -> Result<Table4> {
    let started = Instant::now();
    let mut runs = Vec::new();
    for job in plan.jobs() {
        runs.extend(plan.kept(Some(folder), job)?);
    }
    plan.table_of(runs, Vec::new(), started.elapsed().as_secs_f64(), 0)
}

fn failure(job: Job, error: &Error) -> Failure {
    let Job { example, row: method, repeat } = job;
    Failure { example, method, repeat, reason: error.to_string() }
}

/// One run, taken from the folder where it is already there.
fn keep(plan: &Plan, job: Job, folder: Option<&Path>, stop: &AtomicBool) -> Result<Outcome> {
    if let Some(outcome) = plan.kept(folder, job)? {
        return Ok(outcome);
    }
    let outcome = plan.run(job, stop)?;
    if let Some(folder) = folder {
        write_json(&plan.path(folder, job)?, &outcome)?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
