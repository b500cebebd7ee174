//! Cross-validated lasso: what a practitioner tries first.

mod columns;
mod descent;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thinfer_core::metrics::Noise;
use thinfer_core::posterior::Predictive;
use thinfer_data::{Bundle, Task};
use thinfer_data::{Error, Result};
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};

use self::columns::Columns;
use self::descent::{Family, Fit, sigmoid};
use super::found::{Found, PathPoint, Predictor};
use super::network::check_stop;

/// Penalties in a row that may be worse in cross-validation before the path ends.
const PATIENCE: usize = 4;

/// Which penalty of the path is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The one with the least cross-validated loss.
    Minimum,
    /// The largest whose loss is within one standard error of the least.
    OneStandardError,
}

/// Minimises 1/(2n) Σᵢ (yᵢ − β₀ − xᵢᵀβ)² + λ ‖β‖₁, or −1/n Σᵢ ln p(yᵢ | xᵢ) + λ ‖β‖₁ for two
/// classes, on inputs of standard deviation 1; λ by cross-validation on the training rows.
///
/// | name | default | range | effect |
/// |---|---|---|---|
/// | `folds` | 10 | ≥ 2 | more folds, steadier λ, more time |
/// | `penalties` | 60 | ≥ 2 | how fine the path is |
/// | `smallest_share` | 1e-3 | (0, 1) | the last λ as a share of the first, at which nothing is in |
/// | `rule` | one standard error | | the minimum lets more columns in |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see the table")]
pub struct Lasso {
    pub folds: usize,
    pub penalties: usize,
    pub smallest_share: f64,
    pub rule: Rule,
}

impl Default for Lasso {
    fn default() -> Self {
        Self { folds: 10, penalties: 60, smallest_share: 1e-3, rule: Rule::OneStandardError }
    }
}

/// A linear predictor with few coefficients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LassoModel {
    /// β₀, in the units of the data.
    pub intercept: f64,
    /// The columns whose coefficient is not zero, with it, in the units of the data.
    pub coefficients: Vec<(usize, f64)>,
    /// The cross-validated standard deviation of the residuals; `None` for classes.
    pub sigma: Option<f64>,
}

impl LassoModel {
    fn of(fit: &Fit<'_>, x: &Columns) -> Self {
        let live = (0..fit.beta.len()).filter(|&j| fit.beta[j] != 0.0);
        let coefficients: Vec<(usize, f64)> =
            live.map(|j| (j, fit.beta[j] * x.scales[j])).collect();
        let shift: f64 = coefficients.iter().map(|(j, b)| b * x.means[*j]).sum();
        Self { intercept: fit.intercept - shift, coefficients, sigma: None }
    }

    fn columns(&self) -> Vec<usize> {
        self.coefficients.iter().map(|c| c.0).collect()
    }

    /// What it says about rows that have the columns of the training rows.
    pub fn predict(&self, data: &Dataset) -> Predictive {
        let linear = |row: usize| {
            let x = data.input(row);
            let terms = self.coefficients.iter().map(|(j, b)| b * f64::from(x[*j]));
            self.intercept + terms.sum::<f64>()
        };
        let values = (0..data.rows()).map(linear);
        if let Some(sigma) = self.sigma {
            return Predictive::Regression {
                noise: Noise::Normal,
                means: vec![values.collect()],
                sigmas: vec![sigma].into(),
            };
        }
        let both = values.flat_map(|eta| [sigmoid(-eta), sigmoid(eta)]).collect();
        Predictive::Classes { classes: 2, members: vec![both] }
    }
}

impl Lasso {
    pub(super) fn multiply_adds(&self, rows: usize, columns: usize) -> f64 {
        // About as much as twenty looks at all columns for a penalty and fold.
        20.0 * (self.folds + 1) as f64 * self.penalties as f64 * rows as f64 * columns as f64
    }

    /// See [`Selector::check`](super::Selector::check).
    pub(super) fn check(&self, rows: usize) -> Result<()> {
        let (least, most) = (self.folds >= 2, self.folds <= rows);
        let share = self.smallest_share > 0.0 && self.smallest_share < 1.0;
        super::require(
            "lasso",
            &[
                ("folds", least && most, "must be from 2 to the number of training rows"),
                ("penalties", self.penalties >= 2, "must be at least 2"),
                ("smallest_share", share, "must lie between 0 and 1"),
            ],
        )
    }

    /// Refuses data that have more classes than two.
    pub(super) fn check_classes(data: &Bundle) -> Result<()> {
        if data.task == Task::Classification && data.classes != 2 {
            return Err(Error::Data(format!(
                "the logistic lasso tells 2 classes apart, the target has {}; take another selector",
                data.classes
            )));
        }
        Ok(())
    }

    /// See [`Selector::fit`](super::Selector::fit).
    pub fn fit(&self, data: &Bundle, seed: u64, stop: &AtomicBool) -> Result<Found> {
        Self::check_classes(data)?;
        self.check(data.train.rows())?;
        let started = Instant::now();
        let rows = data.train.rows();
        let family = match data.task {
            Task::Regression => Family::Gaussian,
            Task::Classification => Family::Bernoulli,
        };
        let x = Columns::new(&data.train);
        let y: Vec<f64> = data.train.targets().iter().map(|y| f64::from(*y)).collect();
        let mut fold_of = vec![0; rows];
        let order = Key::new(seed, 2, Stream::Split).permutation(0, rows);
        order.iter().enumerate().for_each(|(at, row)| fold_of[*row as usize] = at % self.folds);
        // Fold `folds` holds no row, so that the last fit reads all of them.
        let mut fits: Vec<Fit<'_>> = (0..=self.folds)
            .into_par_iter()
            .map(|fold| {
                let share = fold_of.iter().map(|f| f64::from(u8::from(*f != fold))).collect();
                Fit::new(&x, &y, family, share)
            })
            .collect();

        let start = fits[self.folds].largest_penalty();
        let ratio = self.smallest_share.powf(1.0 / (self.penalties - 1) as f64);
        let mut path: Vec<(PathPoint, LassoModel)> = Vec::new();
        let mut scores = vec![0.0; x.columns()];
        let (mut best, mut worse) = (f64::INFINITY, 0);
        let mut last = start;
        for step in 0..self.penalties {
            check_stop(stop)?;
            let lambda = start * ratio.powi(step as i32);
            fits.par_iter_mut().for_each(|fit| fit.solve(lambda, last));
            last = lambda;
            let losses: Vec<f64> = fits[..self.folds].iter().map(Fit::held_out_loss).collect();
            let spread = thinfer_core::metrics::Spread::of(&losses);
            let model = LassoModel::of(&fits[self.folds], &x);
            for (j, _) in &model.coefficients {
                if scores[*j] == 0.0 {
                    scores[*j] = lambda / start;
                }
            }
            let loss = (spread.mean, spread.sd / (self.folds as f64).sqrt());
            path.push((PathPoint::new(lambda, model.columns(), Some(loss)), model));
            if spread.mean < best {
                (best, worse) = (spread.mean, 0);
            } else {
                worse += 1;
            }
            if worse == PATIENCE || start == 0.0 {
                break;
            }
        }

        let loss = |at: usize| path[at].0.loss.unwrap_or(f64::INFINITY);
        let minimum = (0..path.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b))).unwrap_or(0);
        let limit = loss(minimum) + path[minimum].0.loss_se.unwrap_or(0.0);
        let one_se = (0..=minimum).find(|&at| loss(at) <= limit).unwrap_or(minimum);
        let taken = if self.rule == Rule::Minimum { minimum } else { one_se };
        let mut model = path[taken].1.clone();
        model.sigma = (family == Family::Gaussian).then(|| loss(taken).sqrt());
        let chosen = BTreeMap::from([
            ("penalty".to_owned(), path[taken].0.at),
            ("penalty_minimum".to_owned(), path[minimum].0.at),
            ("penalty_one_standard_error".to_owned(), path[one_se].0.at),
            ("selected_minimum".to_owned(), path[minimum].0.selected as f64),
            ("selected_one_standard_error".to_owned(), path[one_se].0.selected as f64),
        ]);
        Ok(Found {
            columns: model.columns(),
            scores,
            path: path.into_iter().rev().map(|p| p.0).collect(),
            predictor: Predictor::Linear(model),
            chosen,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests;
