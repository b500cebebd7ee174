//! Ridge logistic regression by L-BFGS, with the normal equations as the first guess of the
//! curvature.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;

use super::normal::{Factor, Form, Normal};
use super::{BLOCK_ROWS, Centred, add_scaled, dot};

/// Steps that L-BFGS remembers.
const MEMORY: usize = 12;
/// The most steps of one fit.
const MAX_STEPS: usize = 200;
/// The least curvature that is assumed; a fit that is nearly sure of every row has less.
const MIN_CURVATURE: f64 = 1e-3;

pub(super) fn sigmoid(z: f64) -> f64 {
    if z >= 0.0 {
        1.0 / (1.0 + (-z).exp())
    } else {
        let e = z.exp();
        e / (1.0 + e)
    }
}

pub(super) fn softmax(z: &mut [f64]) {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for z in z.iter_mut() {
        *z = (*z - top).exp();
    }
    let total: f64 = z.iter().sum();
    for z in z.iter_mut() {
        *z /= total;
    }
}

/// Logits become the probabilities of the classes they stand for: one logit is that of class 1.
fn to_probabilities(z: &mut [f64]) {
    match z {
        [z] => *z = sigmoid(*z),
        z => softmax(z),
    }
}

/// Which outputs stand for the class: output k of a softmax, the one logit for class 1.
#[inline]
fn hot(label: usize, output: usize, outputs: usize) -> f64 {
    f64::from(u8::from(label == if outputs == 1 { 1 } else { output }))
}

/// The logits that fit the class frequencies, with half a row more in each class.
pub(super) fn null_logits(labels: &[usize], classes: usize) -> Vec<f64> {
    let log_counts: Vec<f64> = (0..classes)
        .map(|k| (labels.iter().filter(|l| **l == k).count() as f64 + 0.5).ln())
        .collect();
    if let [zero, one] = log_counts[..] { vec![one - zero] } else { log_counts }
}

/// Σ over blocks of rows of what `block` returns for its rows, in order.
fn sum_blocks<const N: usize>(
    rows: usize,
    block: impl Fn(Range<usize>) -> [f64; N] + Sync,
) -> [f64; N] {
    let partial: Vec<[f64; N]> = (0..rows.div_ceil(BLOCK_ROWS))
        .into_par_iter()
        .map(|b| block(b * BLOCK_ROWS..rows.min((b + 1) * BLOCK_ROWS)))
        .collect();
    partial.iter().fold([0.0; N], |mut sums, one| {
        sums.iter_mut().zip(one).for_each(|(sum, x)| *sum += x);
        sums
    })
}

/// The mean of −ln p(yᵢ) from logits.
pub(super) fn log_loss(logits: &[f64], labels: &[usize], outputs: usize) -> f64 {
    let [sum] = sum_blocks(labels.len(), |rows| {
        [rows
            .map(|i| match &logits[i * outputs..][..outputs] {
                [z] => {
                    let wrong = if labels[i] == 1 { -z } else { *z };
                    wrong.max(0.0) + (-wrong.abs()).exp().ln_1p()
                }
                z => {
                    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    z.iter().map(|z| (z - top).exp()).sum::<f64>().ln() + top - z[labels[i]]
                }
            })
            .sum()]
    });
    sum / labels.len() as f64
}

/// The logistic objective of one λ. A point is θ = (w₁ … w_K, b₁ … b_K) on centred inputs.
pub(super) struct Objective<'a> {
    pub(super) inputs: &'a Centred<'a>,
    pub(super) labels: &'a [usize],
    pub(super) outputs: usize,
    pub(super) penalty: f64,
}

impl Objective<'_> {
    /// How many of θ are weights.
    fn weights(&self) -> usize {
        self.outputs * self.inputs.means.len()
    }

    /// ∇ = (Σᵢ (pᵢₖ − 1[yᵢ = k]) (xᵢ − x̄) / n + λ wₖ, Σᵢ (pᵢₖ − 1[yᵢ = k]) / n)
    fn gradient(&self, theta: &[f64], logits: &[f64]) -> Vec<f64> {
        let outputs = self.outputs;
        let share = 1.0 / self.labels.len() as f64;
        let mut residuals = logits.to_vec();
        residuals.par_chunks_mut(outputs * BLOCK_ROWS).enumerate().for_each(|(block, rows)| {
            for (row, &label) in
                rows.chunks_exact_mut(outputs).zip(&self.labels[block * BLOCK_ROWS..])
            {
                to_probabilities(row);
                for (k, r) in row.iter_mut().enumerate() {
                    *r = (*r - hot(label, k, outputs)) * share;
                }
            }
        });
        let mut gradient = self.inputs.weighted_sums(&residuals, outputs);
        add_scaled(&mut gradient, self.penalty, &theta[..self.weights()]);
        gradient
            .extend((0..outputs).map(|k| residuals.iter().skip(k).step_by(outputs).sum::<f64>()));
        gradient
    }

    /// First and second derivative of the mean loss along u at logits z + t u.
    fn slope(&self, logits: &[f64], along: &[f64], t: f64) -> (f64, f64) {
        let outputs = self.outputs;
        let [first, second] = sum_blocks(self.labels.len(), |rows| {
            let mut p = vec![0.0; outputs];
            let (mut first, mut second) = (0.0, 0.0);
            for i in rows {
                let (z, u) = (&logits[i * outputs..][..outputs], &along[i * outputs..][..outputs]);
                p.iter_mut().zip(z).zip(u).for_each(|((p, z), u)| *p = z + t * u);
                to_probabilities(&mut p);
                let (mut mean, mut square, mut at_label) = (0.0, 0.0, 0.0);
                for (k, (p, u)) in p.iter().zip(u).enumerate() {
                    mean += p * u;
                    square += p * u * u;
                    at_label += hot(self.labels[i], k, outputs) * u;
                }
                first += mean - at_label;
                second += square - mean * mean;
            }
            [first, second]
        });
        let rows = self.labels.len() as f64;
        (first / rows, second / rows)
    }

    /// The step along `direction` where the slope is a tenth of `start` or less, by Newton's
    /// method between bounds. A trial costs no pass over the inputs, as logits are linear in it.
    fn line_search(
        &self,
        theta: &[f64],
        direction: &[f64],
        logits: &[f64],
        along: &[f64],
        start: f64,
    ) -> f64 {
        let weights = self.weights();
        let cross = self.penalty * dot(&theta[..weights], &direction[..weights]);
        let square = self.penalty * dot(&direction[..weights], &direction[..weights]);
        let (mut low, mut high, mut t) = (0.0, f64::INFINITY, 1.0);
        for _ in 0..30 {
            let (first, second) = self.slope(logits, along, t);
            let (first, second) = (first + cross + t * square, second + square);
            if first.abs() <= 0.1 * start.abs() {
                break;
            }
            if first < 0.0 {
                low = t;
            } else {
                high = t;
            }
            let newton = t - first / second;
            t = if newton > low && newton < high.min(10.0 * t) {
                newton
            } else if high.is_finite() {
                0.5 * (low + high)
            } else {
                10.0 * t
            };
        }
        t
    }

    /// L-BFGS (Nocedal & Wright, algorithm 7.4) whose first guess of the inverse Hessian is
    /// [`Curvature`], so that correlated inputs cost few steps more than independent ones.
    ///
    /// Stops when gᵀHg, twice the expected decrease, is below `tolerance`. Gives `None` and leaves
    /// θ alone when the curvature cannot be factorised.
    pub(super) fn minimise(
        &self,
        theta: &mut [f64],
        normal: &Normal,
        tolerance: f64,
    ) -> Option<()> {
        let mut logits = self.inputs.products(theta);
        let curvature = Curvature::new(self, normal, &logits)?;
        let mut gradient = self.gradient(theta, &logits);
        let mut solved = curvature.solve(&gradient);
        let mut pairs: VecDeque<Pair> = VecDeque::new();
        for _ in 0..MAX_STEPS {
            let direction = descent(&gradient, &solved, &pairs);
            let start = dot(&gradient, &direction);
            if start.is_nan() || start >= -tolerance {
                break;
            }
            let along = self.inputs.products(&direction);
            let t = self.line_search(theta, &direction, &logits, &along, start);
            add_scaled(theta, t, &direction);
            add_scaled(&mut logits, t, &along);
            let new_gradient = self.gradient(theta, &logits);
            let new_solved = curvature.solve(&new_gradient);
            let step: Vec<f64> = direction.iter().map(|d| t * d).collect();
            let change = difference(&new_gradient, &gradient);
            let product = dot(&step, &change);
            if product > 0.0 {
                let solved_change = difference(&new_solved, &solved);
                let scale = product / dot(&change, &solved_change);
                if pairs.len() == MEMORY {
                    pairs.pop_front();
                }
                pairs.push_back(Pair { step, change, solved_change, product, scale });
            }
            (gradient, solved) = (new_gradient, new_solved);
        }
        Some(())
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// What L-BFGS remembers of a step.
struct Pair {
    /// s
    step: Vec<f64>,
    /// y, the change of the gradient
    change: Vec<f64>,
    /// H₀ y
    solved_change: Vec<f64>,
    /// sᵀy
    product: f64,
    /// sᵀy / yᵀH₀y, by which H₀ is too small
    scale: f64,
}

/// −H g by the two-loop recursion, with H₀ g given.
fn descent(gradient: &[f64], solved: &[f64], pairs: &VecDeque<Pair>) -> Vec<f64> {
    let mut q = gradient.to_vec();
    let mut result = solved.to_vec();
    let mut alphas = Vec::with_capacity(pairs.len());
    for pair in pairs.iter().rev() {
        let alpha = dot(&pair.step, &q) / pair.product;
        add_scaled(&mut q, -alpha, &pair.change);
        add_scaled(&mut result, -alpha, &pair.solved_change);
        alphas.push(alpha);
    }
    let scale = pairs.back().map_or(1.0, |pair| pair.scale);
    for r in &mut result {
        *r *= scale;
    }
    for (pair, alpha) in pairs.iter().zip(alphas.iter().rev()) {
        let beta = dot(&pair.change, &result) / pair.product;
        add_scaled(&mut result, alpha - beta, &pair.step);
    }
    for r in &mut result {
        *r = -*r;
    }
    result
}

/// A fixed guess of the Hessian: c XᵀX / n + λ for each output and c for its intercept, where c is
/// the mean of p (1 − p) at the starting point.
struct Curvature<'a> {
    inputs: &'a Centred<'a>,
    form: Form,
    factor: Factor,
    penalty: f64,
    mean: f64,
}

impl<'a> Curvature<'a> {
    fn new(objective: &Objective<'a>, normal: &Normal, logits: &[f64]) -> Option<Self> {
        let [sum] = sum_blocks(objective.labels.len(), |rows| {
            let mut p =
                logits[rows.start * objective.outputs..rows.end * objective.outputs].to_vec();
            p.chunks_exact_mut(objective.outputs).for_each(to_probabilities);
            [p.iter().map(|p| p * (1.0 - p)).sum()]
        });
        let mean = (sum / logits.len() as f64).max(MIN_CURVATURE);
        let factor = normal.factor(objective.labels.len() as f64 * objective.penalty / mean)?;
        let (inputs, penalty) = (objective.inputs, objective.penalty);
        Some(Self { inputs, form: normal.form, factor, penalty, mean })
    }

    /// The inverse times g. In the dual form it is (g − Xᵀ(XXᵀ + nλ/c)⁻¹X g) / λ (Woodbury).
    fn solve(&self, gradient: &[f64]) -> Vec<f64> {
        let columns = self.inputs.means.len();
        let outputs = gradient.len() / (columns + 1);
        let (weights, bias) = gradient.split_at(outputs * columns);
        let mut result = weights.to_vec();
        match self.form {
            Form::Primal => {
                let share = self.inputs.data.rows() as f64 / self.mean;
                result.par_chunks_mut(columns).for_each(|x| {
                    self.factor.solve(x);
                    for x in x.iter_mut() {
                        *x *= share;
                    }
                });
            }
            Form::Dual => {
                let mut centred = weights.to_vec();
                centred.resize(gradient.len(), 0.0);
                let products = self.inputs.products(&centred);
                let solved: Vec<Vec<f64>> = (0..outputs)
                    .into_par_iter()
                    .map(|k| {
                        let mut x: Vec<f64> =
                            products.iter().skip(k).step_by(outputs).copied().collect();
                        self.factor.solve(&mut x);
                        x
                    })
                    .collect();
                let by_row: Vec<f64> =
                    (0..products.len()).map(|at| solved[at % outputs][at / outputs]).collect();
                add_scaled(&mut result, -1.0, &self.inputs.weighted_sums(&by_row, outputs));
                for x in &mut result {
                    *x /= self.penalty;
                }
            }
        }
        result.extend(bias.iter().map(|b| b / self.mean));
        result
    }
}

#[cfg(test)]
mod tests {
    use thinfer_engine::Dataset;
    use thinfer_engine::noise::{Key, Stream};

    use super::*;

    fn data(rows: usize, columns: usize) -> Dataset {
        let mut inputs = vec![0.0; rows * columns];
        Key::new(8, 0, Stream::Inputs).normals(0, 0, &mut inputs);
        for x in &mut inputs {
            *x += 0.3;
        }
        Dataset::new(columns, 1, inputs, vec![0.0; rows]).unwrap()
    }

    /// The penalised mean loss, from its definition.
    fn value(objective: &Objective, theta: &[f64]) -> f64 {
        let weights = &theta[..objective.weights()];
        log_loss(&objective.inputs.products(theta), objective.labels, objective.outputs)
            + 0.5 * objective.penalty * dot(weights, weights)
    }

    /// The gradient and the slope against differences of `value`, error of order h² = 1e-10.
    #[test]
    fn derivatives_agree_with_differences() {
        for outputs in [1, 3] {
            let data = data(150, 4);
            let inputs = Centred::new(&data);
            let labels: Vec<usize> = (0..150).map(|i| (i * 7) % (outputs + 1).min(3)).collect();
            let objective = Objective { inputs: &inputs, labels: &labels, outputs, penalty: 0.3 };
            let theta: Vec<f64> = (0..5 * outputs).map(|i| (i as f64 * 1.7).sin()).collect();
            let u: Vec<f64> = (0..5 * outputs).map(|i| (i as f64 * 0.9).cos()).collect();
            let logits = inputs.products(&theta);
            let gradient = objective.gradient(&theta, &logits);
            let h = 1e-5;
            for i in 0..theta.len() {
                let at = |shift: f64| {
                    let mut moved = theta.clone();
                    moved[i] += shift;
                    value(&objective, &moved)
                };
                let want = (at(h) - at(-h)) / (2.0 * h);
                assert!((gradient[i] - want).abs() < 1e-8, "{outputs} outputs, coordinate {i}");
            }
            let unpenalised = Objective { penalty: 0.0, ..objective };
            let at = |t: f64| {
                let moved: Vec<f64> = theta.iter().zip(&u).map(|(x, u)| x + t * u).collect();
                value(&unpenalised, &moved)
            };
            let (first, second) = unpenalised.slope(&logits, &inputs.products(&u), 0.4);
            assert!((first - (at(0.4 + h) - at(0.4 - h)) / (2.0 * h)).abs() < 1e-8);
            let h = 1e-3;
            let want = (at(0.4 + h) - 2.0 * at(0.4) + at(0.4 - h)) / (h * h);
            assert!((second - want).abs() < 1e-5);
        }
    }

    #[test]
    fn extreme_logits_stay_finite() {
        assert_eq!(log_loss(&[800.0, -800.0], &[1, 0], 1), 0.0);
        assert_eq!(log_loss(&[800.0, -800.0], &[0, 1], 1), 800.0);
        assert_eq!(log_loss(&[900.0, 0.0, -900.0], &[2], 3), 1800.0);
        assert_eq!([sigmoid(-800.0), sigmoid(0.0), sigmoid(800.0)], [0.0, 0.5, 1.0]);
        let mut z = [1000.0, 1000.0, -1000.0];
        softmax(&mut z);
        assert_eq!(z, [0.5, 0.5, 0.0]);
    }

    #[test]
    fn null_logits_are_smoothed_class_frequencies() {
        assert_eq!(null_logits(&[1, 1, 1, 0], 2), [(3.5f64 / 1.5).ln()]);
        let mut p = null_logits(&[0, 2, 2], 3);
        softmax(&mut p);
        for (p, want) in p.iter().zip([1.5 / 4.5, 0.5 / 4.5, 2.5 / 4.5]) {
            assert!((p - want).abs() < 1e-15);
        }
    }
}
