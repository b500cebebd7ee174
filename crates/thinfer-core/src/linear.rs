//! The linear model that runs and `thinfer select` are compared with: ridge regression for a number, ridge
//! logistic regression for classes.
//!
//! Everything is computed in `f64` over blocks of a fixed size whose sums are added in a fixed
//! order, so a fit has the same bits for any number of threads.

use rayon::prelude::*;
use serde::Serialize;
use thinfer_data::{Error, Result};
use thinfer_engine::{Dataset, vectorize};

use self::logistic::{Objective, log_loss, null_logits, sigmoid, softmax};
use self::normal::{Form, Normal};

mod logistic;
mod normal;

/// Rows of a block in passes over the data.
const BLOCK_ROWS: usize = 128;
/// Blocks whose partial sums are kept at once; larger data get larger blocks.
const MAX_BLOCKS: usize = 64;
/// Penalties in a row that may do worse on the validation rows before the logistic path ends.
const PATIENCE: usize = 3;
/// How exact a logistic fit is, in nats a row: enough to compare penalties.
const ROUGH: f64 = 1e-7;
/// How exact the fit of the chosen penalty is.
const EXACT: f64 = 1e-12;

/// A linear predictor, fitted with a ridge penalty that the validation rows chose.
///
/// Ridge regression minimises 1/(2n) Σᵢ (yᵢ − b − wᵀxᵢ)² + λ/2 ‖w‖², logistic regression
/// −1/n Σᵢ ln p(yᵢ | xᵢ) + λ/2 ‖w‖². The intercept b is not penalised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinearModel {
    weights: Vec<f64>,
    bias: Vec<f64>,
    penalty: f64,
    /// 0 for regression.
    classes: usize,
}

impl LinearModel {
    /// Ridge regression of the one target column; λ has the least squared error on `valid`.
    ///
    /// Fails when either set is empty, holds a number that is not finite, or does not have one
    /// target column and the same input columns as the other.
    pub fn ridge(train: &Dataset, valid: &Dataset) -> Result<Self> {
        check(train, valid)?;
        Self::ridge_in(Form::of(train), train, valid)
    }

    fn ridge_in(form: Form, train: &Dataset, valid: &Dataset) -> Result<Self> {
        let inputs = Centred::new(train);
        let normal = Normal::new(form, &inputs)?;
        let rows = train.rows() as f64;
        let mean = train.targets().iter().map(|&y| y as f64).sum::<f64>() / rows;
        let centred: Vec<f64> = train.targets().iter().map(|&y| y as f64 - mean).collect();
        let right = match form {
            Form::Primal => inputs.weighted_sums(&centred, 1),
            Form::Dual => centred,
        };
        let mut best = Best::default();
        for penalty in normal.penalties() {
            let Some(factor) = normal.factor(rows * penalty) else { continue };
            let mut solution = right.clone();
            factor.solve(&mut solution);
            let weights = match form {
                Form::Primal => solution,
                Form::Dual => inputs.weighted_sums(&solution, 1),
            };
            let bias = vec![mean - dot(&inputs.means, &weights)];
            let model = Self { weights, bias, penalty, classes: 0 };
            let score = model
                .predict(valid)
                .iter()
                .zip(valid.targets())
                .map(|(p, &y)| (p - y as f64).powi(2))
                .sum::<f64>();
            best.offer(score, model);
        }
        best.found()
    }

    /// Logistic regression of the class numbers in the one target column; λ has the least
    /// negative log-likelihood on `valid`. Two classes share one logit, more have a softmax.
    ///
    /// A weight is finite even where a plane separates the classes, since λ > 0. Fails as
    /// [`LinearModel::ridge`] does, and when a target is not a class number below `classes`.
    pub fn logistic(train: &Dataset, valid: &Dataset, classes: usize) -> Result<Self> {
        check(train, valid)?;
        if classes < 2 {
            return Err(Error::Data(format!(
                "a classifier needs at least 2 classes, not {classes}; give a target with more"
            )));
        }
        let (labels, valid_labels) =
            (class_numbers(train, classes)?, class_numbers(valid, classes)?);
        let inputs = Centred::new(train);
        let normal = Normal::new(Form::of(train), &inputs)?;
        let outputs = if classes == 2 { 1 } else { classes };
        let objective = |penalty| Objective { inputs: &inputs, labels: &labels, outputs, penalty };
        let mut theta = vec![0.0; outputs * train.columns()];
        theta.extend(null_logits(&labels, classes));

        let mut best = Best::default();
        // From the strongest penalty on, each fit starts where the last one ended.
        for penalty in normal.penalties() {
            if objective(penalty).minimise(&mut theta, &normal, ROUGH).is_none() {
                continue;
            }
            let (weights, bias) = inputs.uncentred(&theta);
            let score = log_loss(&products(valid, weights, &bias), &valid_labels, outputs);
            best.offer(score, (penalty, theta.clone()));
            if best.worse_in_a_row == PATIENCE {
                break;
            }
        }
        let (penalty, mut theta) = best.found()?;
        objective(penalty).minimise(&mut theta, &normal, EXACT);
        let (weights, bias) = inputs.uncentred(&theta);
        Ok(Self { weights: weights.to_vec(), bias, penalty, classes })
    }

    /// The predicted values of a regression, or the class probabilities row by row (also for two
    /// classes, where there is only one logit).
    ///
    /// # Panics
    ///
    /// When `data` does not have the columns of the training data.
    pub fn predict(&self, data: &Dataset) -> Vec<f64> {
        assert_eq!(data.columns(), self.columns(), "the columns of the training data");
        let logits = products(data, &self.weights, &self.bias);
        match self.classes {
            0 => logits,
            2 => logits.iter().flat_map(|&z| [sigmoid(-z), sigmoid(z)]).collect(),
            classes => {
                let mut values = logits;
                values.chunks_exact_mut(classes).for_each(softmax);
                values
            }
        }
    }

    /// The weights, one row an output: one for regression and two classes, else one a class.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The intercepts, one an output.
    pub fn bias(&self) -> &[f64] {
        &self.bias
    }

    /// The chosen λ.
    pub fn penalty(&self) -> f64 {
        self.penalty
    }

    /// How many inputs a row must have.
    pub fn columns(&self) -> usize {
        self.weights.len() / self.bias.len()
    }

    /// How many classes there are; `None` for a regression.
    pub fn classes(&self) -> Option<usize> {
        (self.classes > 0).then_some(self.classes)
    }
}

/// The fit with the lowest score so far; of equals the first, which has the larger penalty.
struct Best<T> {
    best: Option<(f64, T)>,
    worse_in_a_row: usize,
}

impl<T> Default for Best<T> {
    fn default() -> Self {
        Self { best: None, worse_in_a_row: 0 }
    }
}

impl<T> Best<T> {
    fn offer(&mut self, score: f64, fit: T) {
        if score.is_finite() && self.best.as_ref().is_none_or(|(best, _)| score < *best) {
            self.best = Some((score, fit));
            self.worse_in_a_row = 0;
        } else {
            self.worse_in_a_row += 1;
        }
    }

    fn found(self) -> Result<T> {
        self.best.map(|(_, fit)| fit).ok_or_else(|| {
            Error::Data("no linear model could be fitted; standardise the inputs".into())
        })
    }
}

fn check(train: &Dataset, valid: &Dataset) -> Result<()> {
    let columns = train.columns();
    if columns == 0 || columns != valid.columns() {
        return Err(Error::Data(format!(
            "the linear model needs the same inputs to train and to validate, not {columns} and {}; \
             give both the same columns, at least one",
            valid.columns()
        )));
    }
    for (name, data) in [("training", train), ("validation", valid)] {
        if data.rows() == 0 {
            return Err(Error::Data(format!("there are no {name} rows; give at least one")));
        }
        if !data.has_targets() || data.target_columns() != 1 {
            return Err(Error::Data(format!(
                "the linear model predicts one target, the {name} rows have {}; choose one",
                if data.has_targets() { data.target_columns() } else { 0 }
            )));
        }
        if let Some(at) = data.inputs().iter().position(|x| !x.is_finite()) {
            return Err(Error::Data(format!(
                "input {} of {name} row {} is not a finite number; fill it or drop the row",
                at % columns,
                at / columns
            )));
        }
        if let Some(row) = data.targets().iter().position(|y| !y.is_finite()) {
            return Err(Error::Data(format!(
                "the target of {name} row {row} is not a finite number; fill it or drop the row"
            )));
        }
    }
    Ok(())
}

fn class_numbers(data: &Dataset, classes: usize) -> Result<Vec<usize>> {
    data.targets()
        .iter()
        .enumerate()
        .map(|(row, &y)| {
            if y >= 0.0 && y < classes as f32 && y.fract() == 0.0 {
                return Ok(y as usize);
            }
            Err(Error::Data(format!(
                "the target of row {row} is {y}, not a class number from 0 to {}; number the classes",
                classes - 1
            )))
        })
        .collect()
}

// Passes over the data.

/// Σⱼ xⱼ wⱼ with the sums of 32 lanes side by side, which a vector unit can keep apart.
#[inline(always)]
fn dot<T: Copy + Into<f64>>(x: &[T], w: &[f64]) -> f64 {
    let (x_lanes, x_rest) = x.as_chunks::<32>();
    let (w_lanes, w_rest) = w.as_chunks::<32>();
    let mut sums = [0.0; 32];
    for (x, w) in x_lanes.iter().zip(w_lanes) {
        for lane in 0..32 {
            sums[lane] += x[lane].into() * w[lane];
        }
    }
    let rest: f64 = x_rest.iter().zip(w_rest).map(|(&x, w)| x.into() * w).sum();
    sums.iter().sum::<f64>() + rest
}

/// target ← target + factor · x
#[inline(always)]
fn add_scaled(target: &mut [f64], factor: f64, x: &[f64]) {
    for (t, x) in target.iter_mut().zip(x) {
        *t += factor * x;
    }
}

/// wₖᵀxᵢ + bₖ for all rows i and outputs k. The bits of a row do not depend on its neighbours.
fn products(data: &Dataset, weights: &[f64], bias: &[f64]) -> Vec<f64> {
    let (columns, outputs) = (data.columns(), bias.len());
    let mut result = vec![0.0; data.rows() * outputs];
    result
        .par_chunks_mut(BLOCK_ROWS * outputs)
        .zip(data.inputs().par_chunks(BLOCK_ROWS * columns))
        .for_each(|(result, x)| {
            vectorize(
                #[inline(always)]
                || {
                    for (result, x) in result.chunks_mut(4 * outputs).zip(x.chunks(4 * columns)) {
                        for (k, w) in weights.chunks_exact(columns).enumerate() {
                            if x.len() == 4 * columns {
                                let sums = row_sums::<4>(x, w);
                                for row in 0..4 {
                                    result[row * outputs + k] = sums[row] + bias[k];
                                }
                            } else {
                                for (row, x) in x.chunks_exact(columns).enumerate() {
                                    result[row * outputs + k] = row_sums::<1>(x, w)[0] + bias[k];
                                }
                            }
                        }
                    }
                },
            );
        });
    result
}

/// wᵀxᵢ of R rows, which share the reading of w.
#[inline(always)]
fn row_sums<const R: usize>(x: &[f32], w: &[f64]) -> [f64; R] {
    let rows: [(&[[f32; 8]], &[f32]); R] =
        std::array::from_fn(|row| x[row * w.len()..][..w.len()].as_chunks());
    let (w_lanes, w_rest) = w.as_chunks::<8>();
    let mut sums = [[0.0; 8]; R];
    for (step, w) in w_lanes.iter().enumerate() {
        for row in 0..R {
            for lane in 0..8 {
                sums[row][lane] += rows[row].0[step][lane] as f64 * w[lane];
            }
        }
    }
    std::array::from_fn(|row| {
        let rest: f64 = rows[row].1.iter().zip(w_rest).map(|(&x, w)| x as f64 * w).sum();
        sums[row].iter().sum::<f64>() + rest
    })
}

/// Σᵢ fᵢₖ xᵢ for all outputs k.
fn weighted_sums(data: &Dataset, factors: &[f64], outputs: usize) -> Vec<f64> {
    let columns = data.columns();
    let block = BLOCK_ROWS.max(data.rows().div_ceil(MAX_BLOCKS)).next_multiple_of(4);
    let partial: Vec<Vec<f64>> = data
        .inputs()
        .par_chunks(block * columns)
        .zip(factors.par_chunks(block * outputs))
        .map(|(x, factors)| {
            let mut sums = vec![0.0; outputs * columns];
            vectorize(
                #[inline(always)]
                || {
                    for (x, f) in x.chunks(4 * columns).zip(factors.chunks(4 * outputs)) {
                        add_rows(&mut sums, columns, x, f);
                    }
                },
            );
            sums
        })
        .collect();
    let mut total = vec![0.0; outputs * columns];
    for sums in &partial {
        add_scaled(&mut total, 1.0, sums);
    }
    total
}

/// Adds up to four rows at once, since reading and writing `sums` is what takes the time.
#[inline(always)]
fn add_rows(sums: &mut [f64], columns: usize, x: &[f32], factors: &[f64]) {
    let outputs = sums.len() / columns;
    for (k, sums) in sums.chunks_exact_mut(columns).enumerate() {
        if x.len() == 4 * columns {
            let [f0, f1, f2, f3] = [0, 1, 2, 3].map(|row| factors[row * outputs + k]);
            let (x0, rest) = x.split_at(columns);
            let (x1, rest) = rest.split_at(columns);
            let (x2, x3) = rest.split_at(columns);
            for ((((sum, x0), x1), x2), x3) in sums.iter_mut().zip(x0).zip(x1).zip(x2).zip(x3) {
                *sum += (f0 * *x0 as f64 + f1 * *x1 as f64) + (f2 * *x2 as f64 + f3 * *x3 as f64);
            }
        } else {
            for (row, x) in x.chunks_exact(columns).enumerate() {
                let factor = factors[row * outputs + k];
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum += factor * *x as f64;
                }
            }
        }
    }
}

/// The training inputs as seen from their mean, which makes the intercept a matter of its own.
struct Centred<'a> {
    data: &'a Dataset,
    means: Vec<f64>,
}

impl<'a> Centred<'a> {
    fn new(data: &'a Dataset) -> Self {
        let mut means = weighted_sums(data, &vec![1.0; data.rows()], 1);
        for m in &mut means {
            *m /= data.rows() as f64;
        }
        Self { data, means }
    }

    /// wₖᵀ(xᵢ − x̄) + bₖ for θ = (w₁ … w_K, b₁ … b_K)
    fn products(&self, theta: &[f64]) -> Vec<f64> {
        let (weights, bias) = self.uncentred(theta);
        products(self.data, weights, &bias)
    }

    /// Σᵢ fᵢₖ (xᵢ − x̄)
    fn weighted_sums(&self, factors: &[f64], outputs: usize) -> Vec<f64> {
        let mut sums = weighted_sums(self.data, factors, outputs);
        for (k, sums) in sums.chunks_exact_mut(self.means.len()).enumerate() {
            let total: f64 = factors.iter().skip(k).step_by(outputs).sum();
            add_scaled(sums, -total, &self.means);
        }
        sums
    }

    /// The weights of θ, and its intercepts for inputs that are not centred.
    fn uncentred<'t>(&self, theta: &'t [f64]) -> (&'t [f64], Vec<f64>) {
        let columns = self.means.len();
        let outputs = theta.len() / (columns + 1);
        let (weights, bias) = theta.split_at(outputs * columns);
        let bias =
            weights.chunks_exact(columns).zip(bias).map(|(w, b)| b - dot(&self.means, w)).collect();
        (weights, bias)
    }
}

#[cfg(test)]
mod tests;
