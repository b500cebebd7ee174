//! How good a prediction, a selection or a chain is: pure functions of numbers.
//!
//! A metric of nothing is `None`, or 0 where the item says so; never NaN from an empty mean. Class
//! probabilities are row-major, rows × classes, and class numbers may have any type that goes into
//! `f64`, since data sets store them as `f32`. Slices that belong together must have lengths that
//! fit; a metric panics otherwise, as that is a mistake of the caller and not of the data.

mod calibration;
mod chains;
mod detection;
mod erf;
mod mixture;
mod pit;
mod ranking;
mod selective;
mod uncertainty;

use std::collections::BTreeSet;
use std::f64::consts::{PI, SQRT_2};

use serde::Serialize;

pub use calibration::{
    Calibration, ECE_BINS, ReliabilityBin, classwise_ece, ece, ece_by_chance, ece_equal_mass,
};
pub use chains::{bulk_ess, r_hat, tail_ess};
pub use detection::{Detection, detect};
pub use erf::{erf, erfc, normal_quantile};
pub use mixture::{Noise, Scales};
pub use pit::{Coverage, PIT_BINS, PIT_LEVELS, Pit, pit};
pub use ranking::{Roc, auc, roc};
pub use selective::{RiskCoverage, risk_coverage};
pub use uncertainty::{Uncertainty, entropy, uncertainty};

// Regression.

/// The mean of (prediction − truth)².
pub fn mse<T: Copy + Into<f64>>(predictions: &[f64], truth: &[T]) -> Option<f64> {
    assert_eq!(predictions.len(), truth.len(), "one prediction a row");
    mean(predictions.iter().zip(truth).map(|(p, &y)| (p - y.into()).powi(2)))
}

/// The mean of |prediction − truth|.
pub fn mae<T: Copy + Into<f64>>(predictions: &[f64], truth: &[T]) -> Option<f64> {
    assert_eq!(predictions.len(), truth.len(), "one prediction a row");
    mean(predictions.iter().zip(truth).map(|(p, &y)| (p - y.into()).abs()))
}

/// The share of the variance of the truth that is explained, 1 − Σ (y − f)² / Σ (y − ȳ)²: 1 is
/// perfect, 0 the mean of these rows, and what is worse is below. `None` where the truth does not
/// vary.
pub fn r2<T: Copy + Into<f64>>(predictions: &[f64], truth: &[T]) -> Option<f64> {
    let centre = mean(truth.iter().map(|&y| y.into()))?;
    let spread = mean(truth.iter().map(|&y| (y.into() - centre).powi(2)))?;
    let error = mse(predictions, truth)?;
    (spread > 0.0).then(|| 1.0 - error / spread)
}

/// The mean over rows of −ln( 1/M Σₘ N(y; fₘ, σₘ²) ), the predictive density of M members.
///
/// `member_means` holds one vector of row means a member, `sigmas` one noise sd a member, above 0.
pub fn gaussian_mixture_nll<T: Copy + Into<f64>>(
    member_means: &[Vec<f64>],
    sigmas: &[f64],
    truth: &[T],
) -> Option<f64> {
    assert_eq!(member_means.len(), sigmas.len(), "one sigma a member");
    assert!(member_means.iter().all(|f| f.len() == truth.len()), "one mean a row");
    if sigmas.is_empty() {
        return None;
    }
    let mut logs = vec![0.0; sigmas.len()];
    mean(truth.iter().enumerate().map(|(row, &y)| {
        for ((log, f), sigma) in logs.iter_mut().zip(member_means).zip(sigmas) {
            let z = (y.into() - f[row]) / sigma;
            *log = -0.5 * (z * z + (2.0 * PI).ln()) - sigma.ln();
        }
        (sigmas.len() as f64).ln() - log_sum_exp(&logs)
    }))
}

/// The share of rows with lower ≤ truth ≤ upper.
pub fn interval_coverage<T: Copy + Into<f64>>(
    lower: &[f64],
    upper: &[f64],
    truth: &[T],
) -> Option<f64> {
    assert!(lower.len() == truth.len() && upper.len() == truth.len(), "one interval a row");
    mean(truth.iter().zip(lower).zip(upper).map(|((&y, low), high)| {
        let y: f64 = y.into();
        one_if(*low <= y && y <= *high)
    }))
}

/// The q-quantile of an equal-weight mixture of N(meanₘ, σₘ²), by Newton's method that falls back
/// on bisection; `None` without members, with a σ that is not above 0, or with q outside (0, 1).
pub fn mixture_quantile(means: &[f64], sigmas: &[f64], q: f64) -> Option<f64> {
    assert_eq!(means.len(), sigmas.len(), "one sigma a member");
    let usable = means.iter().zip(sigmas).all(|(m, s)| m.is_finite() && s.is_finite() && *s > 0.0);
    if means.is_empty() || !usable || !(q > 0.0 && q < 1.0) {
        return None;
    }
    let members = || means.iter().zip(sigmas);
    // No f64 but 0 is so small that its normal quantile lies beyond 40 sd.
    let mut low = members().map(|(m, s)| m - 40.0 * s).fold(f64::INFINITY, f64::min);
    let mut high = members().map(|(m, s)| m + 40.0 * s).fold(f64::NEG_INFINITY, f64::max);
    let mut x = means.iter().sum::<f64>() / means.len() as f64;
    for _ in 0..200 {
        // Above the median the upper tail is compared, which keeps its digits.
        let (mut tail, mut density) = (0.0, 0.0);
        for (mean, sigma) in members() {
            let z = (x - mean) / sigma;
            tail += 0.5 * erfc(if q > 0.5 { z } else { -z } / SQRT_2);
            density += (-0.5 * z * z).exp() / (sigma * (2.0 * PI).sqrt());
        }
        let count = means.len() as f64;
        let excess = if q > 0.5 { 1.0 - q - tail / count } else { tail / count - q };
        if excess > 0.0 {
            high = x;
        } else {
            low = x;
        }
        let newton = x - excess * count / density;
        let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
        let moved = (next - x).abs();
        x = next;
        if moved <= 1e-13 * (x.abs() + sigmas.iter().copied().fold(f64::INFINITY, f64::min)) {
            break;
        }
    }
    Some(x)
}

/// The mean over rows of the sd (n − 1) over members, one vector of predictions a member; 0 with
/// one member.
pub fn disagreement<M: AsRef<[f64]>>(member_predictions: &[M]) -> Option<f64> {
    let rows = member_predictions.first()?.as_ref().len();
    assert!(member_predictions.iter().all(|p| p.as_ref().len() == rows), "one prediction a row");
    let mut of_row = vec![0.0; member_predictions.len()];
    mean((0..rows).map(|row| {
        of_row.iter_mut().zip(member_predictions).for_each(|(x, m)| *x = m.as_ref()[row]);
        Spread::of(&of_row).sd
    }))
}

// Classification.

/// The share of rows whose most likely class is the true one; of equals the first counts.
pub fn accuracy_from_probabilities<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
) -> Option<f64> {
    mean(rows(probabilities, classes, truth).map(|(p, class)| one_if(top(p).0 == class)))
}

/// The mean of −ln p(true class). A probability of 0 counts as the smallest normal number, which
/// costs 708 nats, so that the result can be written down.
pub fn negative_log_likelihood_classes<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
) -> Option<f64> {
    mean(
        rows(probabilities, classes, truth).map(|(p, class)| -p[class].max(f64::MIN_POSITIVE).ln()),
    )
}

/// The probability of the true class of each row.
pub fn of_truth<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
) -> Vec<f64> {
    rows(probabilities, classes, truth).map(|(p, class)| p[class]).collect()
}

/// The mean over rows of Σₖ (pₖ − 1[y = k])², from 0 to 2 (Brier's own definition; for two classes
/// twice the other one).
pub fn brier<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
) -> Option<f64> {
    mean(rows(probabilities, classes, truth).map(|(p, class)| {
        p.iter().enumerate().map(|(k, p)| (p - one_if(k == class)).powi(2)).sum()
    }))
}

/// How often each class was taken for which: `[true class][predicted class]`.
pub fn confusion<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
) -> Vec<Vec<usize>> {
    let mut counts = vec![vec![0; classes]; classes];
    rows(probabilities, classes, truth).for_each(|(p, class)| counts[class][top(p).0] += 1);
    counts
}

/// The largest probability of each row, and whether its class is the true one.
pub fn confidences<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
) -> (Vec<f64>, Vec<bool>) {
    let of = |(p, class): (&[f64], usize)| {
        let (guess, confidence) = top(p);
        (confidence, guess == class)
    };
    rows(probabilities, classes, truth).map(of).unzip()
}

/// The probabilities and the class number of each row.
fn rows<'a, T: Copy + Into<f64>>(
    probabilities: &'a [f64],
    classes: usize,
    truth: &'a [T],
) -> impl Iterator<Item = (&'a [f64], usize)> {
    assert_eq!(probabilities.len(), truth.len() * classes, "one probability a row and class");
    probabilities.chunks_exact(classes.max(1)).zip(truth).map(move |(p, &y)| {
        let class = y.into();
        assert!(class >= 0.0 && class < classes as f64, "class {class} of {classes}");
        (p, class as usize)
    })
}

/// The first of the most likely classes and its probability.
fn top(p: &[f64]) -> (usize, f64) {
    p.iter()
        .copied()
        .enumerate()
        .fold((0, 0.0), |best, (k, p)| if p > best.1 { (k, p) } else { best })
}

// Selection and sparsity.

/// Selected variables against the true ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// |Ŝ|, how many variables were selected.
    pub selected: usize,
    /// |Ŝ \ S|, how many of them should not have been.
    pub false_discoveries: usize,
    /// |S \ Ŝ|, how many true variables were not selected.
    pub missed: usize,
    /// |Ŝ \ S| / |Ŝ|, or 0 when nothing was selected.
    pub fdr: f64,
    /// |S \ Ŝ| / |S|, or 0 when nothing is true.
    pub fndr: f64,
}

impl Selection {
    /// Compares two sets of variables; order and repetition do not matter.
    pub fn compare(selected: &[usize], truth: &[usize]) -> Self {
        let selected: BTreeSet<usize> = selected.iter().copied().collect();
        let truth: BTreeSet<usize> = truth.iter().copied().collect();
        let false_discoveries = selected.difference(&truth).count();
        let missed = truth.difference(&selected).count();
        Self {
            selected: selected.len(),
            false_discoveries,
            missed,
            fdr: share(false_discoveries, selected.len()),
            fndr: share(missed, truth.len()),
        }
    }
}

/// What share of a thing is gone. [`Density`] is the other one; there is no `From` between them.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Sparsity(f64);

impl Sparsity {
    /// Counts zeros; an empty tensor has sparsity 0, not NaN.
    pub fn of(values: &[f32]) -> Self {
        Self::of_counts(values.iter().filter(|v| **v == 0.0).count(), values.len())
    }

    /// `gone` of `total`; 0 of 0 is sparsity 0.
    pub fn of_counts(gone: usize, total: usize) -> Self {
        Self(share(gone, total))
    }

    /// The share, from 0 to 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// What share of a thing is left. [`Sparsity`] is the other one.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Density(f64);

impl Density {
    /// Counts what is not zero; an empty tensor has density 0 too.
    pub fn of(values: &[f32]) -> Self {
        Self::of_counts(values.iter().filter(|v| **v != 0.0).count(), values.len())
    }

    /// `left` of `total`; 0 of 0 is density 0.
    pub fn of_counts(left: usize, total: usize) -> Self {
        Self(share(left, total))
    }

    /// The share, from 0 to 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

// Repeated runs and chains.

/// A number that was measured several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation (n − 1), or 0 when n = 1.
    pub sd: f64,
    /// How often it was measured.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of measurements; without any, n and all else are 0.
    pub fn of(values: &[f64]) -> Self {
        let Some(mean) = mean(values.iter().copied()) else { return Self::default() };
        Self {
            mean,
            sd: variance(values).sqrt(),
            n: values.len(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// The sample variance (n − 1), or 0 of fewer than two.
fn variance(values: &[f64]) -> f64 {
    // Equal numbers have no variance, but their mean is rounded.
    if values.len() < 2 || values.iter().all(|x| *x == values[0]) {
        return 0.0;
    }
    let centre = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// The q-quantile of ascending numbers, between neighbours where it falls between them.
///
/// # Panics
///
/// Without numbers.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn one_if(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

/// ln Σ exp(xₘ), also where every exp underflows; −∞ of nothing.
fn log_sum_exp(x: &[f64]) -> f64 {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        return top;
    }
    top + x.iter().map(|x| (x - top).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests;
