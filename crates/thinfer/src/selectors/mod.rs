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
mod splbnn;
mod stability;
mod stochastic_gates;
mod svbnn;
#[cfg(test)]
mod testing;

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

pub(crate) use found::threshold_path;
pub use found::{Found, PathPoint, Predictor};
pub use lasso::{Lasso, LassoModel, Rule};
pub use splbnn::Splbnn;
pub use stability::{Quality, inclusion_frequencies, quality};
pub use stochastic_gates::StochasticGates;
pub use svbnn::Svbnn;

use crate::data::Bundle;
use crate::error::Result;

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
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub fn fit(&self, data: &Bundle, seed: u64, stop: &AtomicBool) -> Result<Found> {
        match self {
            Selector::Lasso(lasso) => lasso.fit(data, seed, stop),
            Selector::StochasticGates(gates) => gates.fit(data, seed, stop),
            Selector::Splbnn(splbnn) => splbnn.fit(data, seed, stop),
            Selector::Svbnn(svbnn) => svbnn.fit(data, seed, stop),
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
