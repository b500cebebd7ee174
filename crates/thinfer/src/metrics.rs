//! How good a prediction, a selection or a chain is: pure functions of numbers.
//!
//! A metric of nothing is `None`, or 0 where the item says so; never NaN from an empty mean. Class
//! probabilities are row-major, rows × classes, and class numbers may have any type that goes into
//! `f64`, since data sets store them as `f32`. Slices that belong together must have lengths that
//! fit; a metric panics otherwise, as that is a mistake of the caller and not of the data.

use std::collections::BTreeSet;
use std::f64::consts::{PI, SQRT_2};

use serde::Serialize;

/// The usual number of bins of [`ece`].
pub const ECE_BINS: usize = 15;

// Regression.

/// The mean of (prediction − truth)².
pub fn mse<T: Copy + Into<f64>>(predictions: &[f64], truth: &[T]) -> Option<f64> {
    assert_eq!(predictions.len(), truth.len(), "one prediction a row");
    mean(predictions.iter().zip(truth).map(|(p, &y)| (p - y.into()).powi(2)))
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
pub fn disagreement(member_predictions: &[Vec<f64>]) -> Option<f64> {
    let rows = member_predictions.first()?.len();
    assert!(member_predictions.iter().all(|p| p.len() == rows), "one prediction a row");
    let mut of_row = vec![0.0; member_predictions.len()];
    mean((0..rows).map(|row| {
        of_row.iter_mut().zip(member_predictions).for_each(|(x, member)| *x = member[row]);
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

/// Rows whose top probability lies in (lower, upper]; an empty bin has confidence and accuracy 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReliabilityBin {
    /// The lower end, not in the bin (but 0 is in the first).
    pub lower: f64,
    /// The upper end, in the bin.
    pub upper: f64,
    /// The mean top probability.
    pub confidence: f64,
    /// The share of rows that are right.
    pub accuracy: f64,
    /// How many rows there are.
    pub count: usize,
}

/// What [`ece`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The expected calibration error.
    pub ece: f64,
    /// The reliability diagram, from low to high confidence.
    pub bins: Vec<ReliabilityBin>,
}

/// The expected calibration error Σ_b (n_b / n) |accuracy_b − confidence_b| over `bins` bins of
/// equal width on the top probability (Guo, Pleiss, Sun & Weinberger, ICML 2017), and the bins.
/// [`ECE_BINS`] is the usual number. `None` without rows or without bins.
pub fn ece<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
    bins: usize,
) -> Option<Calibration> {
    if truth.is_empty() || bins == 0 {
        return None;
    }
    let mut sums = vec![(0.0, 0.0, 0usize); bins];
    for (p, class) in rows(probabilities, classes, truth) {
        let (guess, confidence) = top(p);
        let bin = ((confidence * bins as f64).ceil() as usize).clamp(1, bins) - 1;
        let (total, right, count) = &mut sums[bin];
        *total += confidence;
        *right += one_if(guess == class);
        *count += 1;
    }
    let bins: Vec<ReliabilityBin> = sums
        .iter()
        .enumerate()
        .map(|(bin, (total, right, count))| ReliabilityBin {
            lower: bin as f64 / bins as f64,
            upper: (bin + 1) as f64 / bins as f64,
            confidence: total / (*count).max(1) as f64,
            accuracy: right / (*count).max(1) as f64,
            count: *count,
        })
        .collect();
    let weighted = |b: &ReliabilityBin| b.count as f64 * (b.accuracy - b.confidence).abs();
    let ece = bins.iter().map(weighted).sum::<f64>() / truth.len() as f64;
    Some(Calibration { ece, bins })
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

/// Split R̂ (Gelman et al., *Bayesian Data Analysis*, 3rd ed., section 11.4): √(V̂ / W), each chain
/// cut into two halves, where W is the mean variance within halves and V̂ that of all draws.
///
/// Of chains of different length the last draws are used; with an odd number the first of them is
/// left out. `None` with fewer than four draws a chain, with a draw that is not finite, or when no
/// half varies.
pub fn split_r_hat(chains: &[Vec<f64>]) -> Option<f64> {
    let halves = Halves::of(chains)?;
    Some((halves.total / halves.within).sqrt())
}

/// The effective sample size of the mean over all chains, by the initial monotone sequence on
/// split chains (Vehtari, Gelman, Simpson, Carpenter & Bürkner, *Bayesian Analysis* 16, 2021,
/// section 3.2, without rank normalisation). `None` where [`split_r_hat`] is.
pub fn effective_sample_size(chains: &[Vec<f64>]) -> Option<f64> {
    let halves = Halves::of(chains)?;
    let length = halves.draws[0].len();
    let centred: Vec<Vec<f64>> = halves
        .draws
        .iter()
        .map(|half| {
            let centre = half.iter().sum::<f64>() / length as f64;
            half.iter().map(|x| x - centre).collect()
        })
        .collect();
    let correlation = |lag: usize| {
        let product =
            |half: &Vec<f64>| half.iter().zip(&half[lag..]).map(|(a, b)| a * b).sum::<f64>();
        // Over n − 1 as W is, so that lag 0 has correlation 1 in a single half.
        let covariance =
            centred.iter().map(product).sum::<f64>() / ((length - 1) * centred.len()) as f64;
        1.0 - (halves.within - covariance) / halves.total
    };
    let draws = (length * centred.len()) as f64;
    // Sums of neighbours are positive and fall in theory; where they stop to, noise begins.
    let (mut sum, mut last) = (0.0, f64::INFINITY);
    for lag in (0..length.saturating_sub(1)).step_by(2) {
        let pair = correlation(lag) + correlation(lag + 1);
        if pair <= 0.0 {
            break;
        }
        last = pair.min(last);
        sum += last;
    }
    // A chain that swings can beat independent draws, but not without bound (as in Stan).
    let time = (2.0 * sum - 1.0).max(1.0 / draws.log10());
    Some(draws / time)
}

/// Chains cut in two.
struct Halves<'a> {
    draws: Vec<&'a [f64]>,
    /// W, the mean variance within a half.
    within: f64,
    /// V̂ = (n − 1)/n W + B/n, where B/n is the variance of the means.
    total: f64,
}

impl<'a> Halves<'a> {
    fn of(chains: &'a [Vec<f64>]) -> Option<Self> {
        let shortest = chains.iter().map(Vec::len).min()?;
        if shortest < 4 || chains.iter().flatten().any(|x| !x.is_finite()) {
            return None;
        }
        let n = shortest / 2;
        let draws: Vec<&[f64]> =
            chains.iter().flat_map(|chain| chain[chain.len() - 2 * n..].chunks_exact(n)).collect();
        let within = mean(draws.iter().map(|half| variance(half)))?;
        if within <= 0.0 {
            return None;
        }
        let means: Vec<f64> =
            draws.iter().map(|half| half.iter().sum::<f64>() / n as f64).collect();
        let total = within * (n as f64 - 1.0) / n as f64 + variance(&means);
        Some(Self { draws, within, total })
    }
}

// The arithmetic below them.

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

/// Chebyshev coefficients of exp(x²) erfc(x) / t in 2t − 1, where t = 2 / (2 + x) and x ≥ 0; the
/// first that is left out is 6e-14. Made with mpmath 1.3:
///
/// ```text
/// from mpmath import *; mp.dps = 40; M = 200
/// y = [cos(pi * (k + mpf(1) / 2) / M) for k in range(M)]
/// x = [4 / (y + 1) - 2 for y in y]       # t = (y + 1) / 2; for x > 50 by the asymptotic series
/// g = [exp(x * x) * erfc(x) * (2 + x) / 2 for x in x]
/// c = [2 * sum(g * cos(pi * j * (k + mpf(1) / 2) / M) for k, g in enumerate(g)) / M for j in range(19)]
/// c[0] /= 2
/// ```
const ERFC: [f64; 19] = [
    0.577_033_738_616_469_7,
    0.355_436_921_270_498_5,
    0.065_095_158_828_786_52,
    0.003_671_142_395_836_639,
    -0.001_112_844_743_352_632_5,
    -0.000_160_758_299_153_780_8,
    0.000_032_780_315_741_731_37,
    5.442_441_645_505_016e-6,
    -1.515_466_555_317_148_2e-6,
    -1.429_760_818_116_986_5e-7,
    8.234_608_827_419_493e-8,
    -1.296_284_685_230_656_3e-9,
    -4.154_721_631_015_198e-9,
    6.347_058_278_362_811e-10,
    1.432_082_271_225_622_4e-10,
    -6.160_390_105_204_586e-11,
    2.061_213_855_472_169_6e-12,
    3.571_493_148_847_704_4e-12,
    -8.586_422_843_251_796e-13,
];

/// 1 − erf(x), with a relative error below 1e-12 for −26 ≤ x ≤ 26.
pub fn erfc(x: f64) -> f64 {
    let size = x.abs();
    let t = 2.0 / (2.0 + size);
    // Clenshaw's recurrence.
    let y = 2.0 * t - 1.0;
    let (mut b1, mut b2) = (0.0, 0.0);
    for c in ERFC.iter().skip(1).rev() {
        (b1, b2) = (2.0 * y * b1 - b2 + c, b1);
    }
    let tail = t * (-size * size).exp() * (y * b1 - b2 + ERFC[0]);
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// The error function 2/√π ∫₀ˣ exp(−t²) dt, with an absolute error below 1e-12.
pub fn erf(x: f64) -> f64 {
    1.0 - erfc(x)
}

#[cfg(test)]
mod tests {
    use thinfer_engine::noise::{Key, Stream};

    use super::*;

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-12 * want.abs().max(1.0), "{got} is not {want}");
    }

    const NOTHING: [f32; 0] = [];

    #[test]
    fn squared_errors_by_hand() {
        close(mse(&[1.0, 2.0, 4.0], &[1.0f32, 0.0, 5.0]).unwrap(), 5.0 / 3.0);
        assert_eq!(mse(&[], &NOTHING), None);
    }

    #[test]
    #[should_panic(expected = "one prediction a row")]
    fn lengths_must_fit() {
        mse(&[1.0], &[1.0f32, 2.0]);
    }

    /// Two members, two rows; from mpmath 1.3:
    /// `-mean(log((npdf(y, f1, 1) + npdf(y, f2, 0.5)) / 2))`.
    #[test]
    fn mixture_density_against_mpmath() {
        let means = [vec![0.0, 1.0], vec![2.0, -1.0]];
        close(
            gaussian_mixture_nll(&means, &[1.0, 0.5], &[0.5f32, -2.0]).unwrap(),
            2.295_468_525_018_034,
        );
        // One member is the plain Gaussian, however far away.
        let far = gaussian_mixture_nll(&[vec![0.0]], &[1.0], &[1e4f32]).unwrap();
        close(far, 0.5e8 + 0.5 * (2.0 * PI).ln());
        // Equal members count as one.
        let three = gaussian_mixture_nll(&vec![vec![0.0]; 3], &[1.0; 3], &[1e4f32]).unwrap();
        close(three, far);
        assert_eq!(gaussian_mixture_nll(&[], &[], &[1.0f32]), None);
        assert_eq!(gaussian_mixture_nll(&[vec![]], &[1.0], &NOTHING), None);
    }

    #[test]
    fn coverage_counts_the_ends() {
        let (lower, upper) = ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]);
        close(interval_coverage(&lower, &upper, &[0.0f32, 1.0, 0.5, 1.5]).unwrap(), 0.75);
        assert_eq!(interval_coverage(&[], &[], &NOTHING), None);
    }

    /// From mpmath 1.3: `findroot(lambda x: mean(ncdf((x - m) / s)) - q, start)`.
    #[test]
    fn quantiles_against_mpmath() {
        let (means, sigmas) = ([-1.0, 0.0, 3.0], [0.5, 1.0, 2.0]);
        for (q, want) in [
            (0.025, -1.886_524_611_257_226),
            (0.5, -0.075_059_751_873_119_57),
            (0.9, 4.048_948_998_510_319),
            (0.999, 8.495_562_770_889_988),
        ] {
            let got = mixture_quantile(&means, &sigmas, q).unwrap();
            assert!((got - want).abs() < 1e-10, "{q}: {got} is not {want}");
        }
        for (q, want) in [
            (0.975, 1.959_963_984_540_054),
            (0.05, -1.644_853_626_951_473),
            (1e-10, -6.361_340_902_404_056),
        ] {
            let got = mixture_quantile(&[10.0], &[2.0], q).unwrap();
            assert!((got - 10.0 - 2.0 * want).abs() < 1e-9, "{q}: {got}");
        }
    }

    /// Newton's method alone leaves for infinity here: the start has no density.
    #[test]
    fn quantiles_of_members_far_apart() {
        let (means, sigmas) = ([-1e6, 1e6], [1.0, 1e-3]);
        let low = mixture_quantile(&means, &sigmas, 0.25).unwrap();
        assert!((low + 1e6).abs() < 1e-6);
        let high = mixture_quantile(&means, &sigmas, 0.75).unwrap();
        assert!((high - 1e6).abs() < 1e-6);
        let between = mixture_quantile(&means, &sigmas, 0.5).unwrap();
        assert!((-1e6..=1e6).contains(&between));
    }

    #[test]
    fn quantiles_that_do_not_exist() {
        assert_eq!(mixture_quantile(&[], &[], 0.5), None);
        for (sigma, q) in [(0.0, 0.5), (f64::NAN, 0.5), (1.0, 0.0), (1.0, 1.0), (1.0, f64::NAN)] {
            assert_eq!(mixture_quantile(&[0.0], &[sigma], q), None);
        }
    }

    /// Rows (0, 2) and (1, 1, ...): sd √2 and 0.
    #[test]
    fn disagreement_by_hand() {
        close(disagreement(&[vec![0.0, 1.0], vec![2.0, 1.0]]).unwrap(), SQRT_2 / 2.0);
        assert_eq!(disagreement(&[vec![3.0, 4.0]]), Some(0.0));
        assert_eq!(disagreement(&[]), None);
        assert_eq!(disagreement(&[vec![], vec![]]), None);
    }

    /// Three rows, three classes; the second is wrong, the third a tie that goes to class 0.
    const PROBABILITIES: [f64; 9] = [0.7, 0.2, 0.1, 0.1, 0.3, 0.6, 0.4, 0.4, 0.2];
    const TRUTH: [f32; 3] = [0.0, 1.0, 0.0];

    #[test]
    fn classes_by_hand() {
        close(accuracy_from_probabilities(&PROBABILITIES, 3, &TRUTH).unwrap(), 2.0 / 3.0);
        close(
            negative_log_likelihood_classes(&PROBABILITIES, 3, &TRUTH).unwrap(),
            -(0.7f64 * 0.3 * 0.4).ln() / 3.0,
        );
        // 0.09 + 0.04 + 0.01; 0.01 + 0.49 + 0.36; 0.36 + 0.16 + 0.04
        close(brier(&PROBABILITIES, 3, &TRUTH).unwrap(), (0.14 + 0.86 + 0.56) / 3.0);
        assert_eq!(accuracy_from_probabilities(&[], 3, &NOTHING), None);
        assert_eq!(negative_log_likelihood_classes(&[], 3, &NOTHING), None);
        assert_eq!(brier(&[], 3, &NOTHING), None);
        let impossible = negative_log_likelihood_classes(&[1.0, 0.0], 2, &[1.0f32]).unwrap();
        assert!((impossible - 708.396).abs() < 1e-3);
    }

    #[test]
    #[should_panic(expected = "class 3 of 3")]
    fn classes_must_exist() {
        brier(&PROBABILITIES, 3, &[0.0f32, 3.0, 0.0]);
    }

    /// Five bins. Top probabilities 0.7 (right), 0.6 (wrong), 0.4 (right): the second and the third
    /// are the upper ends of their bins. ECE = (|1 − 0.7| + |0 − 0.6| + |1 − 0.4|) / 3.
    #[test]
    fn calibration_by_hand() {
        let found = ece(&PROBABILITIES, 3, &TRUTH, 5).unwrap();
        close(found.ece, 0.5);
        let counts: Vec<usize> = found.bins.iter().map(|b| b.count).collect();
        assert_eq!(counts, [0, 1, 1, 1, 0]);
        let bin = found.bins[3];
        close(bin.lower, 0.6);
        close(bin.upper, 0.8);
        close(bin.confidence, 0.7);
        close(bin.accuracy, 1.0);
        assert_eq!(found.bins[0].accuracy, 0.0);

        // In one bin the errors cancel: |2/3 − 1.7/3|.
        close(ece(&PROBABILITIES, 3, &TRUTH, 1).unwrap().ece, 0.1);
        // A sure and right classifier is calibrated, and 1 belongs to the last bin.
        let sure = ece(&[1.0, 0.0, 0.0, 1.0], 2, &[0.0f32, 1.0], ECE_BINS).unwrap();
        assert_eq!((sure.ece, sure.bins.len(), sure.bins[14].count), (0.0, 15, 2));
        assert_eq!(ece(&[], 3, &NOTHING, 15), None);
        assert_eq!(ece(&PROBABILITIES, 3, &TRUTH, 0), None);
    }

    #[test]
    fn selections_by_hand() {
        let found = Selection::compare(&[4, 0, 7, 7], &[0, 1, 2, 4, 5]);
        let want =
            Selection { selected: 3, false_discoveries: 1, missed: 3, fdr: 1.0 / 3.0, fndr: 0.6 };
        assert_eq!(found, want);
        let nothing = Selection::compare(&[], &[1, 2]);
        assert_eq!((nothing.fdr, nothing.fndr, nothing.missed), (0.0, 1.0, 2));
        let no_truth = Selection::compare(&[1, 2], &[]);
        assert_eq!((no_truth.fdr, no_truth.fndr), (1.0, 0.0));
    }

    #[test]
    fn sparsity_and_density_count() {
        let values = [0.0, 1.0, -0.0, 2.0, 0.0];
        assert_eq!(Sparsity::of(&values).value(), 0.6);
        assert_eq!(Density::of(&values).value(), 0.4);
        assert_eq!(Sparsity::of(&[]).value(), 0.0);
        assert_eq!(Density::of(&[]).value(), 0.0);
        assert_eq!(serde_json::to_string(&Sparsity::of_counts(1, 4)).unwrap(), "0.25");
        assert_eq!(serde_json::to_string(&Density::of_counts(3, 4)).unwrap(), "0.75");
    }

    #[test]
    fn spreads_by_hand() {
        let found = Spread::of(&[2.0, 4.0, 9.0]);
        assert_eq!((found.mean, found.n, found.min, found.max), (5.0, 3, 2.0, 9.0));
        close(found.sd, 13.0f64.sqrt());
        let one = Spread { mean: 3.0, sd: 0.0, n: 1, min: 3.0, max: 3.0 };
        assert_eq!(Spread::of(&[3.0]), one);
        assert_eq!(Spread::of(&[0.1; 3]).sd, 0.0);
        assert_eq!(Spread::of(&[]), Spread::default());
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(text, r#"{"mean":3.0,"sd":0.0,"n":1,"min":3.0,"max":3.0}"#);
    }

    /// Halves (1, 2) and (3, 4): W = 1/2, the means have variance 2, V̂ = 1/2 · 1/2 + 2 = 9/4.
    #[test]
    fn r_hat_by_hand() {
        close(split_r_hat(&[vec![1.0, 2.0, 3.0, 4.0]]).unwrap(), 4.5f64.sqrt());
        // The first of five draws is left out, and so is the start of the longer chain.
        close(split_r_hat(&[vec![9.0, 1.0, 2.0, 3.0, 4.0]]).unwrap(), 4.5f64.sqrt());
        let same = [vec![1.0, 2.0, 1.0, 2.0], vec![50.0, 60.0, 1.0, 2.0, 1.0, 2.0]];
        close(split_r_hat(&same).unwrap(), 0.5f64.sqrt());
        assert_eq!(split_r_hat(&[]), None);
        assert_eq!(split_r_hat(&[vec![1.0, 2.0, 3.0]]), None);
        assert_eq!(split_r_hat(&[vec![0.1; 10], vec![0.1; 10]]), None);
        assert_eq!(split_r_hat(&[vec![1.0, 2.0, f64::NAN, 4.0]]), None);
    }

    /// An AR(1) chain started from its stationary distribution.
    fn chains(phi: f64, count: u32, length: usize) -> Vec<Vec<f64>> {
        (0..count)
            .map(|chain| {
                let key = Key::new(17, chain, Stream::Sampler);
                let mut x = 0.0;
                (0..length)
                    .map(|i| {
                        let scale = if i == 0 { 1.0 } else { (1.0 - phi * phi).sqrt() };
                        x = phi * x + scale * key.normal(0, i) as f64;
                        x
                    })
                    .collect()
            })
            .collect()
    }

    /// In theory N (1 − φ) / (1 + φ); the estimate has a relative sd of a few percent here.
    #[test]
    fn effective_sample_size_of_autoregressions() {
        for (phi, share) in [(0.0, 1.0), (0.5, 1.0 / 3.0), (0.9, 1.0 / 19.0)] {
            let draws = chains(phi, 4, 5000);
            let found = effective_sample_size(&draws).unwrap() / 20_000.0;
            assert!((found / share - 1.0).abs() < 0.15, "{phi}: {found} is not {share}");
            assert!((split_r_hat(&draws).unwrap() - 1.0).abs() < 0.02);
        }
        let swinging = effective_sample_size(&chains(-0.5, 4, 5000)).unwrap() / 20_000.0;
        assert!((swinging - 3.0).abs() < 0.45, "{swinging}");
        assert_eq!(effective_sample_size(&[vec![1.0; 8]]), None);
        assert_eq!(effective_sample_size(&[]), None);
    }

    #[test]
    fn chains_that_disagree_are_seen() {
        let mut draws = chains(0.0, 4, 200);
        draws[3].iter_mut().for_each(|x| *x += 3.0);
        assert!(split_r_hat(&draws).unwrap() > 1.5);
        assert!(effective_sample_size(&draws).unwrap() < 20.0);
    }

    /// From mpmath 1.3: `nstr(erf(x), 18), nstr(erfc(x), 18)`.
    #[test]
    fn error_function_against_mpmath() {
        for (x, want, want_tail) in [
            (0.0, 0.0, 1.0),
            (1e-3, 0.001_128_378_790_969_236_4, 0.998_871_621_209_030_8),
            (0.1, 0.112_462_916_018_284_9, 0.887_537_083_981_715_1),
            (0.5, 0.520_499_877_813_046_5, 0.479_500_122_186_953_5),
            (1.0, 0.842_700_792_949_714_9, 0.157_299_207_050_285_13),
            (1.5, 0.966_105_146_475_310_7, 0.033_894_853_524_689_27),
            (2.0, 0.995_322_265_018_952_7, 0.004_677_734_981_047_266),
            (3.0, 0.999_977_909_503_001_4, 2.209_049_699_858_544e-5),
            (4.0, 0.999_999_984_582_742_1, 1.541_725_790_028_002e-8),
            (6.0, 1.0, 2.151_973_671_249_891_3e-17),
            (10.0, 1.0, 2.088_487_583_762_544_8e-45),
            (26.0, 1.0, 5.663_192_408_856_143e-296),
        ] {
            for (x, want, want_tail) in [(x, want, want_tail), (-x, -want, 2.0 - want_tail)] {
                assert!((erf(x) - want).abs() < 1e-12, "erf({x}) = {}", erf(x));
                let error = (erfc(x) / want_tail - 1.0).abs();
                assert!(error < 1e-12, "erfc({x}) = {}", erfc(x));
            }
        }
        assert_eq!((erfc(40.0), erfc(-40.0)), (0.0, 2.0));
    }
}
