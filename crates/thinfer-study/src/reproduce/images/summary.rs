//! Runs of one row, together.

use std::path::PathBuf;

use serde::Serialize;
use thinfer_core::metrics::Spread;

use super::outcome::Outcome;
use super::plan::Plan;
use super::row::{PaperTable, Row};

/// One row of the table; spreads are sample standard deviations over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The network, as in the names of configurations.
    pub network: &'static str,
    /// The method, as in the names of configurations.
    pub method: &'static str,
    /// The target, in per cent of all parameters.
    pub percent: Option<u32>,
    /// The accuracy that the paper prints.
    pub printed: Option<f64>,
    /// Whether there is a configuration to run it with.
    pub shipped: bool,
    /// Runs that were asked for.
    pub asked: usize,
    /// Runs that are there; the others are missing.
    pub runs: usize,
    /// Test accuracy of the posterior.
    pub accuracy: Option<Spread>,
    /// Mean test accuracy of the last sample alone.
    pub last_accuracy_mean: Option<f64>,
    /// Mean negative log-likelihood of the posterior.
    pub nll: Option<Spread>,
    /// Expected calibration error of the posterior.
    pub ece: Option<Spread>,
    /// Mean pruned share of all parameters.
    pub sparsity_mean: Option<f64>,
    /// Mean share of multiply-adds that is left without dead channels.
    pub multiply_adds_left_mean: Option<f64>,
    /// Seconds of a run.
    pub seconds: Option<Spread>,
    /// Epochs of the runs that are there.
    pub epochs: Option<usize>,
}

/// A run that could not be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// Its row.
    pub row: String,
    /// Its seed.
    pub seed: u64,
    /// Why.
    pub reason: String,
}

/// The whole table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which.
    pub table: PaperTable,
    /// The most epochs of a run; set where longer schedules were scaled down, which makes this
    /// another table than the paper's.
    pub budget_epochs: Option<usize>,
    /// The rows, also those of which every run is missing.
    pub rows: Vec<Summary>,
    /// The single runs.
    pub runs: Vec<Outcome>,
    /// Runs that could not be done.
    pub failures: Vec<Failure>,
    /// Settings besides those that are shipped.
    pub overrides: Vec<String>,
    /// The version of the program.
    pub thinfer: &'static str,
    /// The file with these and all other runs in the folder that have the same settings, where one
    /// was written.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Plan {
    /// The table of some runs.
    pub(super) fn table_of(&self, mut runs: Vec<Outcome>, mut failures: Vec<Failure>) -> Measured {
        let known = self.table.rows();
        runs.sort_by_key(|run| (known.iter().position(|row| row.made(run)), run.seed));
        failures.sort_by_key(|failure| {
            (known.iter().position(|row| row.name() == failure.row), failure.seed)
        });
        // Of rows that are there and not asked for, what is there counts as asked for.
        let rows = known.iter().filter_map(|row| {
            let of_row: Vec<&Outcome> = runs.iter().filter(|run| row.made(run)).collect();
            let mut seeds: Vec<u64> = of_row.iter().map(|run| run.seed).collect();
            if self.rows.contains(row) {
                seeds.extend(&self.seeds);
            }
            seeds.sort_unstable();
            seeds.dedup();
            (!seeds.is_empty()).then(|| line(row, seeds.len(), &of_row))
        });
        Measured {
            table: self.table,
            budget_epochs: self.budget_epochs,
            rows: rows.collect(),
            runs,
            failures,
            overrides: self.overrides.clone(),
            thinfer: env!("CARGO_PKG_VERSION"),
            file: None,
        }
    }
}

fn line(row: &Row, asked: usize, runs: &[&Outcome]) -> Summary {
    let spread = |value: fn(&Outcome) -> f64| -> Option<Spread> {
        let values: Vec<f64> = runs.iter().map(|run| value(run)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    };
    let mean = |value: fn(&Outcome) -> f64| spread(value).map(|s| s.mean);
    Summary {
        network: row.network,
        method: row.method,
        percent: row.percent,
        printed: row.printed,
        shipped: row.config.is_some(),
        asked,
        runs: runs.len(),
        accuracy: spread(|r| r.accuracy),
        last_accuracy_mean: mean(|r| r.last_accuracy),
        nll: spread(|r| r.nll),
        ece: spread(|r| r.ece),
        sparsity_mean: mean(|r| r.sparsity),
        multiply_adds_left_mean: mean(|r| r.multiply_adds_left),
        seconds: spread(|r| r.seconds),
        epochs: runs.first().map(|r| r.epochs),
    }
}
