//! Selectors to compare with: other ways to find the columns of a table that matter.
//!
//! All of them read a [`Bundle`], look at its training and validation rows only, and give a
//! [`Found`]: the selected columns, a score for every column, what other thresholds or penalties
//! would have selected, a predictor, and the time it took. Each is one file with its settings, its
//! update and its tests; `docs/selectors.md` says what differs from the publications.

mod curvature;
mod found;
mod lasso;
mod network;
pub mod registry;
mod splbnn;
mod stability;
mod stochastic_gates;
mod svbnn;
#[cfg(test)]
mod testing;

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use thinfer_data::Bundle;
use thinfer_data::{Error, Result};

pub(crate) use found::threshold_path;
pub use found::{Found, PathPoint, Predictor};
pub use lasso::{Lasso, LassoModel, Rule};
pub use splbnn::Splbnn;
pub use stability::{Quality, inclusion_frequencies, quality};
pub use stochastic_gates::StochasticGates;
pub use svbnn::Svbnn;

/// Refuses the first setting whose rule does not hold: its name, whether it holds, and the rule.
fn require(selector: &str, rules: &[(&str, bool, &str)]) -> Result<()> {
    match rules.iter().find(|(_, holds, _)| !holds) {
        Some((setting, _, rule)) => Err(Error::config(format!("{selector}.{setting}"), *rule)),
        None => Ok(()),
    }
}

const ABOVE_0: &str = "must be above 0";
const LAYERS: &str = "must have a layer, and every layer at least one unit";

fn has_units(hidden: &[usize]) -> bool {
    !hidden.is_empty() && hidden.iter().all(|units| *units > 0)
}

/// A selector with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Selector {
    /// Cross-validated lasso, linear or logistic.
    Lasso(Lasso),
    /// Stochastic gates (Yamada, Lindenbaum, Negahban & Kluger 2020).
    StochasticGates(StochasticGates),
    /// A mixture prior, thresholds and the Laplace evidence (Sun, Song & Liang).
    Splbnn(Splbnn),
    /// Spike-and-slab variational inference (Bai, Song & Cheng).
    Svbnn(Svbnn),
}

impl Selector {
    /// Its name in commands and files.
    pub fn name(&self) -> &'static str {
        match self {
            Selector::Lasso(_) => "lasso",
            Selector::StochasticGates(_) => "stochastic-gates",
            Selector::Splbnn(_) => "splbnn",
            Selector::Svbnn(_) => "svbnn",
        }
    }

    /// Selects columns of `data`. Everything random follows from `seed`; `stop` ends it early with
    /// [`Error::Interrupted`].
    pub fn fit(&self, data: &Bundle, seed: u64, stop: &AtomicBool) -> Result<Found> {
        match self {
            Selector::Lasso(lasso) => lasso.fit(data, seed, stop),
            Selector::StochasticGates(gates) => gates.fit(data, seed, stop),
            Selector::Splbnn(splbnn) => splbnn.fit(data, seed, stop),
            Selector::Svbnn(svbnn) => svbnn.fit(data, seed, stop),
        }
    }

    /// Refuses settings that cannot be run with on so many training rows; the error names the
    /// setting as `splbnn.starts`.
    pub fn check(&self, rows: usize) -> Result<()> {
        match self {
            Selector::Lasso(lasso) => lasso.check(rows),
            Selector::StochasticGates(gates) => gates.check(),
            Selector::Splbnn(splbnn) => splbnn.check(),
            Selector::Svbnn(svbnn) => svbnn.check(),
        }
    }

    /// The same, able to run on this data: no more folds than there are rows. Data that it has no
    /// model for are refused.
    pub fn on(&self, data: &Bundle) -> Result<Self> {
        let selector = match self.clone() {
            Selector::Lasso(lasso) => {
                Lasso::check_classes(data)?;
                Selector::Lasso(Lasso { folds: lasso.folds.min(data.train.rows()), ..lasso })
            }
            other => other,
        };
        selector.check(data.train.rows())?;
        Ok(selector)
    }

    /// The same with at most so many passes over so many training rows. The stages of SPLBNN are
    /// scaled down together, each start by itself; the lasso has no epochs and stays as it is.
    pub fn shortened(&self, rows: usize, epochs: usize) -> Self {
        let steps = |batch: usize| {
            let an_epoch = (rows / batch.clamp(1, rows.max(1))).max(1);
            (epochs * an_epoch) as u64
        };
        match self.clone() {
            Selector::Lasso(lasso) => Selector::Lasso(lasso),
            Selector::StochasticGates(gates) => {
                let epochs = gates.epochs.min(epochs);
                Selector::StochasticGates(StochasticGates { epochs, ..gates })
            }
            Selector::Splbnn(splbnn) => {
                let most = steps(splbnn.batch);
                Selector::Splbnn(splbnn.shortened(most))
            }
            Selector::Svbnn(svbnn) => {
                let steps = svbnn.steps.min(steps(svbnn.batch));
                Selector::Svbnn(Svbnn { steps, ..svbnn })
            }
        }
    }

    /// Multiply-adds that a fit to data of this size takes, roughly: what an estimate of its time
    /// goes by.
    pub fn multiply_adds(&self, rows: usize, columns: usize) -> f64 {
        match self {
            Selector::Lasso(lasso) => lasso.multiply_adds(rows, columns),
            Selector::StochasticGates(gates) => gates.multiply_adds(rows, columns),
            Selector::Splbnn(splbnn) => splbnn.multiply_adds(columns),
            Selector::Svbnn(svbnn) => svbnn.multiply_adds(columns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_run_with_are_named() {
        assert!(Selector::Lasso(Lasso::default()).check(10).is_ok());
        for (selector, key) in [
            (Selector::Lasso(Lasso { folds: 11, ..Lasso::default() }), "lasso.folds"),
            (
                Selector::StochasticGates(StochasticGates {
                    penalties: vec![],
                    ..StochasticGates::default()
                }),
                "stochastic-gates.penalties",
            ),
            (
                Selector::Splbnn(Splbnn { slab_variance: 1e-5, ..Splbnn::default() }),
                "splbnn.slab_variance",
            ),
            (Selector::Svbnn(Svbnn { rate: f64::NAN, ..Svbnn::default() }), "svbnn.rate"),
            (Selector::Svbnn(Svbnn { hidden: vec![0], ..Svbnn::default() }), "svbnn.hidden"),
        ] {
            let error = selector.check(10).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().starts_with(&format!("`{key}`: must")), "{error}");
        }
    }

    #[test]
    fn the_lasso_takes_no_more_folds_than_rows_and_no_third_class() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = |target: fn(usize) -> &'static str| {
            let rows = (0..12).map(|row| format!("{},{}\n", row * row % 7, target(row)));
            let path = folder.path().join("table.csv");
            std::fs::write(&path, format!("a,y\n{}", rows.collect::<String>())).unwrap();
            let table = thinfer_data::table::Table::read(&path).unwrap();
            let task = thinfer_run::config::TaskChoice::Classification;
            let rules = thinfer_data::table::Rules::plain();
            Bundle::from_table(&table, "y", task, 0.2, &rules, 1).unwrap()
        };
        let lasso = Selector::Lasso(Lasso::default());
        let two = bundle(|row| ["u", "v"][row % 2]);
        assert!(two.train.rows() < 10);
        let Selector::Lasso(able) = lasso.on(&two).unwrap() else { panic!("lasso") };
        assert_eq!(able.folds, two.train.rows());
        assert!(able.fit(&two, 1, &AtomicBool::new(false)).is_ok());
        let three = bundle(|row| ["u", "v", "w"][row % 3]);
        assert!(lasso.on(&three).unwrap_err().to_string().contains("2 classes"));
        let gates = Selector::StochasticGates(StochasticGates::default());
        assert_eq!(gates.on(&three).unwrap(), gates);
    }

    #[test]
    fn shorter_runs_keep_their_proportions() {
        let Selector::Splbnn(s) = Selector::Splbnn(Splbnn::default()).shortened(10_000, 100) else {
            panic!("splbnn")
        };
        // 100 epochs of 10 steps, over one stage of 80,001 and two of 40,001 steps.
        assert_eq!((s.steps, s.fine_tune_steps), (500, 250));
        let Selector::Svbnn(s) = Selector::Svbnn(Svbnn::default()).shortened(10_000, 100) else {
            panic!("svbnn")
        };
        assert_eq!(s.steps, 1900);
        let gates = Selector::StochasticGates(StochasticGates::default());
        assert_ne!(gates.shortened(10_000, 100), gates);
        let lasso = Selector::Lasso(Lasso::default());
        let long = Selector::Svbnn(Svbnn::default());
        for selector in [&gates, &lasso, &long] {
            assert_eq!(&selector.shortened(10_000, 1_000_000), selector);
        }
        assert_eq!(lasso.shortened(10_000, 1), lasso);
    }
}
