//! Runs of one line of the table, together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use thinfer_core::metrics::Spread;
use thinfer_data::Result;
use thinfer_run::config::Config;

use super::example::Example;
use super::outcome::Outcome;
use super::plan::Plan;
use super::row::{Printed, Row, printed};
use crate::selectors::Selector;

/// One row of the printed table; spreads are sample standard deviations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The design.
    pub example: Example,
    /// The row.
    pub method: Row,
    /// Runs that were asked for.
    pub asked: usize,
    /// Runs that are there; the others are missing.
    pub repeats: usize,
    /// Test MSE.
    pub mse: Option<Spread>,
    /// Test accuracy.
    pub accuracy: Option<Spread>,
    /// Test MSE of the last sample alone.
    pub last_mse_mean: Option<f64>,
    /// Test accuracy of the last sample alone.
    pub last_accuracy_mean: Option<f64>,
    /// Mean over repeats of the share of selected variables that do not matter.
    pub fdr_mean: Option<f64>,
    /// Mean over repeats of the share of variables that matter and were not selected.
    pub fndr_mean: Option<f64>,
    /// Mean over repeats of the share of variables that matter and were selected.
    pub power_mean: Option<f64>,
    /// False selections of all repeats over all their selections, as Sun et al. count.
    pub fsr_pooled: Option<f64>,
    /// Missed variables of all repeats over all that matter, as Sun et al. count.
    pub nsr_pooled: Option<f64>,
    /// Selected variables.
    pub selected_mean: Option<f64>,
    /// Repeats with exactly the right variables.
    pub perfect_repeats: usize,
    /// The share of repeats (seeds) that selected each variable, where any did.
    pub inclusion: BTreeMap<String, f64>,
    /// Time of a run on one thread.
    pub seconds_mean: Option<f64>,
    /// Steps whose gradient was clipped; EM-MCMC only.
    pub clipped_steps_mean: Option<f64>,
    /// The largest loss of an epoch in any run; EM-MCMC only.
    pub largest_loss_max: Option<f64>,
    /// What the paper says.
    pub printed: Option<Printed>,
}

/// A run that could not be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The design.
    pub example: Example,
    /// The row.
    pub method: Row,
    /// The repeat.
    pub repeat: u64,
    /// Why.
    pub reason: String,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Table4 {
    /// The rows, also those of which every run is missing.
    pub rows: Vec<Summary>,
    /// The single runs.
    pub runs: Vec<Outcome>,
    /// Runs that could not be done.
    pub failures: Vec<Failure>,
    /// Wall-clock time of the call.
    pub seconds: f64,
    /// The version of the program.
    pub thinfer: &'static str,
    /// Runs at a time.
    pub jobs: usize,
    /// The most epochs of a run; set where longer ones were scaled down, which makes this another
    /// table than the paper's.
    pub budget_epochs: Option<usize>,
    /// Settings besides those that are shipped.
    pub overrides: Vec<String>,
    /// The resolved settings of every design, without the seed of the repeat.
    pub configs: BTreeMap<String, Config>,
    /// The settings of the selectors, by design and row.
    pub selectors: BTreeMap<String, Selector>,
    /// The file with these and all other runs in the folder that have the same settings, where one
    /// was written.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Plan {
    /// The table of some runs. Of designs, rows and seeds that are there and not asked for, what is
    /// there counts as asked for.
    pub(super) fn table_of(
        &self,
        mut runs: Vec<Outcome>,
        mut failures: Vec<Failure>,
        seconds: f64,
        jobs: usize,
    ) -> Result<Table4> {
        runs.sort_by_key(|o| (o.example, o.method, o.repeat));
        failures.sort_by_key(|f| (f.example, f.method, f.repeat));
        let (mut rows, mut configs, mut selectors) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for example in Example::ALL {
            for row in Row::ALL {
                let of_line = |r: &&Outcome| (r.example, r.method) == (example, row);
                let of_line: Vec<&Outcome> = runs.iter().filter(of_line).collect();
                let mut seeds: BTreeSet<u64> = of_line.iter().map(|r| r.repeat).collect();
                if self.examples.contains(&example) && self.rows.contains(&row) {
                    seeds.extend(&self.seeds);
                }
                if seeds.is_empty() {
                    continue;
                }
                rows.push(line(example, row, seeds.len(), &of_line));
                // Selectors take their data from it, DFP and DPF all of it; only theirs can be
                // scaled down.
                let em_mcmc = matches!(row, Row::Dfp | Row::Dpf);
                if em_mcmc || !configs.contains_key(example.name()) {
                    let of = if em_mcmc { Row::Dfp } else { row };
                    configs.insert(example.name().to_owned(), self.config(example, of, 1)?);
                }
                if let Some(selector) = self.selector(example, row)? {
                    selectors.insert(format!("{}-{}", example.name(), row.name()), selector);
                }
            }
        }
        Ok(Table4 {
            rows,
            runs,
            failures,
            seconds,
            thinfer: env!("CARGO_PKG_VERSION"),
            jobs,
            budget_epochs: self.budget_epochs,
            overrides: self.overrides.clone(),
            configs,
            selectors,
            file: None,
        })
    }
}

fn line(example: Example, method: Row, asked: usize, runs: &[&Outcome]) -> Summary {
    let spread = |value: fn(&Outcome) -> Option<f64>| -> Option<Spread> {
        let values: Vec<f64> = runs.iter().filter_map(|r| value(r)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    };
    let mean = |value: fn(&Outcome) -> Option<f64>| spread(value).map(|s| s.mean);
    let relevant = example.design().relevant().len() as f64;
    let sum = |value: fn(&Outcome) -> f64| runs.iter().map(|r| value(r)).sum::<f64>();
    let selections = sum(|r| r.selected.len() as f64);
    let mut inclusion = BTreeMap::new();
    for name in runs.iter().flat_map(|r| &r.selected) {
        *inclusion.entry(name.clone()).or_insert(0.0) += 1.0 / runs.len() as f64;
    }
    let any = !runs.is_empty();
    let largest = runs.iter().filter_map(|r| r.largest_loss).reduce(f64::max);
    Summary {
        example,
        method,
        asked,
        repeats: runs.len(),
        mse: spread(|r| r.mse),
        accuracy: spread(|r| r.accuracy),
        last_mse_mean: mean(|r| r.last_mse),
        last_accuracy_mean: mean(|r| r.last_accuracy),
        fdr_mean: mean(|r| Some(r.fdr)),
        fndr_mean: mean(|r| Some(r.fndr)),
        power_mean: mean(|r| Some(r.power)),
        fsr_pooled: any.then(|| sum(|r| r.fdr * r.selected.len() as f64) / selections.max(1.0)),
        nsr_pooled: any.then(|| sum(|r| r.fndr) * relevant / (relevant * runs.len() as f64)),
        selected_mean: mean(|r| Some(r.selected.len() as f64)),
        perfect_repeats: runs.iter().filter(|r| r.perfect).count(),
        inclusion,
        seconds_mean: mean(|r| Some(r.seconds)),
        clipped_steps_mean: mean(|r| r.clipped_steps.map(|c| c as f64)),
        largest_loss_max: largest,
        printed: printed(example, method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selectors::quality;

    fn run(repeat: u64, columns: &[usize], mse: f64) -> Outcome {
        let found = quality(columns, &Example::Example1.design().relevant());
        Outcome {
            example: Example::Example1,
            method: Row::Svbnn,
            repeat,
            fingerprint: 0,
            mse: Some(mse),
            accuracy: None,
            last_mse: None,
            last_accuracy: None,
            members: 1,
            fdr: found.fdr,
            fndr: found.fndr,
            power: found.power,
            selected: columns.iter().map(|c| format!("x{}", c + 1)).collect(),
            perfect: found.exact,
            path: Vec::new(),
            chosen: BTreeMap::new(),
            largest_loss: None,
            final_loss: None,
            clipped_steps: None,
            seconds: 2.0,
        }
    }

    /// x1 to x5 matter. Shares are averaged over repeats, and besides counted over all of them
    /// together.
    #[test]
    fn a_line_has_means_over_repeats_and_pooled_shares() {
        let runs = [run(1, &[0, 1, 2, 3, 4], 1.0), run(2, &[0, 1, 2, 7, 8, 9, 10, 11, 12], 3.0)];
        let found = line(Example::Example1, Row::Svbnn, 10, &[&runs[0], &runs[1]]);
        let close = |got: Option<f64>, want: f64| {
            assert!((got.unwrap() - want).abs() < 1e-12, "{got:?} is not {want}");
        };
        close(found.fdr_mean, 0.5 * (0.0 + 6.0 / 9.0));
        close(found.fsr_pooled, 6.0 / 14.0);
        close(found.fndr_mean, 0.5 * (0.0 + 2.0 / 5.0));
        close(found.nsr_pooled, 2.0 / 10.0);
        close(found.power_mean, 0.8);
        close(found.selected_mean, 7.0);
        let mse = found.mse.unwrap();
        assert_eq!((mse.mean, mse.n, mse.sd), (2.0, 2, 2f64.sqrt()));
        assert_eq!((found.asked, found.repeats, found.perfect_repeats), (10, 2, 1));
        assert_eq!((found.inclusion["x1"], found.inclusion["x4"]), (1.0, 0.5));
        let missing = line(Example::Example1, Row::Svbnn, 10, &[]);
        assert_eq!((missing.asked, missing.repeats, missing.fsr_pooled), (10, 0, None));
        assert_eq!((missing.mse, missing.fdr_mean), (None, None));
        // Nothing selected is no false selection.
        let none = run(1, &[], 1.0);
        close(line(Example::Example1, Row::Svbnn, 1, &[&none]).fsr_pooled, 0.0);
    }
}
