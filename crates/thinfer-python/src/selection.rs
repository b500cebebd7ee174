//! Selecting the columns of a table.

use pyo3::prelude::*;
use thinfer::Error;
use thinfer::config::TaskChoice;
use thinfer::select::{Control, Options, check_options, select as select_variables};

use crate::errors::{caught, json};
use crate::events::{Listener, listened};
use crate::tables::Table;

/// `thinfer select --json` of a table in memory.
#[pyfunction]
#[pyo3(signature = (table, target, task, chains, holdout, seed, listener))]
pub(crate) fn select(
    table: &Table,
    target: &str,
    task: &str,
    chains: usize,
    holdout: f64,
    seed: u64,
    listener: Bound<'_, PyAny>,
) -> PyResult<String> {
    let options = caught(|| {
        let task = match task {
            "auto" => TaskChoice::Auto,
            "regression" => TaskChoice::Regression,
            "classification" => TaskChoice::Classification,
            other => {
                let problem = format!(
                    "is \"{other}\", but must be \"auto\", \"regression\" or \"classification\""
                );
                return Err(Error::config("task", problem));
            }
        };
        let options = Options { task, chains, seed, holdout, ..Options::default() };
        check_options(&options)?;
        Ok(options)
    })?;
    let table = caught(|| table.take())?;
    listened(&Listener(listener), |stop, observer| {
        let control = Control { stop, observer };
        json(&select_variables(&table, target, &options, &control)?)
    })
}
