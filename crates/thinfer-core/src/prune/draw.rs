//! Draws of which groups are in the slab, and of how probable the slab is: Gibbs steps.

use thinfer_engine::noise::{Key, Stream};

use super::{Groups, SLAB};

/// δ₁ of the slab and δ₀ of the spike, δ₁ < δ₀.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precisions {
    /// δ₁
    pub slab: f64,
    /// δ₀
    pub spike: f64,
}

/// The probability that a group of `size` weights is in the slab, given the sum of their squares
/// and ln(π/(1−π)), π = P(slab).
///
/// P(γ = 1 | w, π) = sigmoid( ln(π/(1−π)) + (K/2) ln(δ₁/δ₀) + ½ (δ₀ − δ₁) |w|² )
///
/// It is ½ where the mean square is λ₁, see [`soft_threshold`](super::soft_threshold).
pub fn slab_probability(precisions: Precisions, log_odds: f64, size: usize, square: f64) -> f64 {
    let Precisions { slab, spike } = precisions;
    let prior = log_odds + 0.5 * size as f64 * (slab / spike).ln();
    1.0 / (1.0 + (-(prior + 0.5 * (spike - slab) * square)).exp())
}

/// [`slab_probability`] of every group.
pub fn slab_probabilities(
    groups: &Groups,
    weights: &[f32],
    precisions: Precisions,
    log_odds: f64,
) -> Vec<f64> {
    let mut values = groups.mean_squares(weights);
    for (group, value) in values.iter_mut().enumerate() {
        let size = groups.size(group);
        *value = slab_probability(precisions, log_odds, size, *value * size as f64);
    }
    values
}

/// γ_g ~ Bernoulli(`probabilities[g]`): marks the groups, and returns how many are in the slab.
/// `first` is the number of the first group among those of all layers, which keys the noise.
pub fn draw_groups(
    groups: &Groups,
    probabilities: &[f64],
    key: Key,
    step: u64,
    first: usize,
    marks: &mut [u8],
) -> usize {
    let key = Key { stream: Stream::Assignment, ..key };
    let in_slab = |(group, p): (usize, &f64)| f64::from(key.uniform(step, first + group)) < *p;
    let slab: Vec<bool> = probabilities.iter().enumerate().map(in_slab).collect();
    groups.mark(&slab, SLAB, true, marks);
    slab.into_iter().filter(|slab| *slab).count()
}

/// ln(π/(1−π)) of π ~ Beta(a, b), the `at`-th of its step.
///
/// X ~ Gamma(a), Y ~ Gamma(b):  π = X / (X + Y) ~ Beta(a, b),  π/(1−π) = X / Y
pub fn draw_log_odds([a, b]: [f64; 2], key: Key, step: u64, at: usize) -> f64 {
    let key = Key { stream: Stream::SlabProbability, ..key };
    draw_log_gamma(a, key, step, 2 * at) - draw_log_gamma(b, key, step, 2 * at + 1)
}

/// Attempts of one draw; each is accepted with a probability above 0.95.
const ATTEMPTS: usize = 32;
/// The first block of uniforms, behind all that make normal numbers.
const UNIFORMS: usize = 1 << 31;

/// The logarithm of the `at`-th Gamma(shape) number of a step, by Marsaglia & Tsang (2000).
///
/// d = shape − 1/3, c = 1/√(9 d), v = (1 + c x)³ with x ~ N(0, 1); d v is taken if
/// ln u < ½ x² + d − d v + d ln v. For shape < 1: Gamma(shape) = Gamma(shape + 1) u^{1/shape}.
fn draw_log_gamma(shape: f64, key: Key, step: u64, at: usize) -> f64 {
    let uniform = |i: usize| f64::from(key.uniform(step, UNIFORMS + (ATTEMPTS + 1) * at + i));
    let less = if shape < 1.0 { uniform(ATTEMPTS).ln() / shape } else { 0.0 };
    let d = if shape < 1.0 { shape + 1.0 } else { shape } - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    for attempt in 0..ATTEMPTS {
        let x = f64::from(key.normal(step, ATTEMPTS * at + attempt));
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && uniform(attempt).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return (d * v).ln() + less;
        }
    }
    // Of 0.05^32 draws one comes here.
    d.ln() + less
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prune::{Grouping, KEEP, soft_threshold};
    use thinfer_engine::{Param, Role};

    const PRECISIONS: Precisions = Precisions { slab: 2.0, spike: 100.0 };

    fn key() -> Key {
        Key::new(3, 1, Stream::Sampler)
    }

    /// ```python
    /// from math import exp, log
    /// def p(pi, d1, d0, k, s):
    ///     a = pi * d1 ** (k / 2) * exp(-d1 * s / 2)
    ///     b = (1 - pi) * d0 ** (k / 2) * exp(-d0 * s / 2)
    ///     return a / (a + b)
    /// for pi, k, s in [(0.5, 1, 0.0), (0.5, 1, 0.09), (0.3, 5, 0.2), (0.05, 2, 0.01)]:
    ///     print(repr(p(pi, 2.0, 100.0, k, s)))
    /// ```
    #[test]
    fn the_conditional_probability_is_the_ratio_of_the_densities() {
        for (pi, size, square, want) in GOLDEN {
            let found = slab_probability(PRECISIONS, f64::ln(pi / (1.0 - pi)), size, square);
            assert!((found - want).abs() < 1e-12, "{pi} {size} {square}: {found} against {want}");
        }
        // As extreme as it gets: no NaN, and the right end.
        assert_eq!(slab_probability(PRECISIONS, -700.0, 10_000, 0.0), 0.0);
        assert_eq!(slab_probability(PRECISIONS, 0.0, 1, 1e9), 1.0);
    }

    const GOLDEN: [(f64, usize, f64, f64); 4] = [
        (0.5, 1, 0.0, 0.123_899_343_099_295_41),
        (0.5, 1, 0.09, 0.920_852_633_091_585_4),
        (0.3, 5, 0.2, 0.304_204_552_651_133_2),
        (0.05, 2, 0.01, 0.001_715_280_357_900_428_7),
    ];

    #[test]
    fn the_mode_changes_where_the_probability_is_one_half() {
        for (spike, size) in [(0.3, 5), (0.9, 1), (0.5, 20)] {
            let threshold = soft_threshold(PRECISIONS.spike, PRECISIONS.slab, spike, size);
            let odds = f64::ln((1.0 - spike) / spike);
            let found = slab_probability(PRECISIONS, odds, size, threshold * size as f64);
            assert!((found - 0.5).abs() < 1e-12, "{found}");
        }
    }

    #[test]
    fn groups_are_in_the_slab_as_often_as_their_probability_says() {
        let shape = vec![2, 3];
        let param = Param { name: "w".into(), shape, role: Role::LinearWeight, offset: 0 };
        let groups = Groups::new(&param, Grouping::Input);
        let probabilities = [0.0, 0.3, 1.0];
        let (mut times, mut both, steps) = ([0usize; 3], 0, 20_000);
        for step in 0..steps {
            let mut marks = [KEEP | SLAB, KEEP, KEEP, KEEP | SLAB, KEEP, KEEP];
            let count = draw_groups(&groups, &probabilities, key(), step, 0, &mut marks);
            assert_eq!(marks[..3], marks[3..], "a group is in one part");
            let slab = |at: usize| usize::from(marks[at] & SLAB != 0);
            assert_eq!(count, slab(0) + slab(1) + slab(2));
            times.iter_mut().enumerate().for_each(|(at, times)| *times += slab(at));
            // Groups of another layer have other noise.
            let mut others = [KEEP; 6];
            draw_groups(&groups, &[0.3; 3], key(), step, 3, &mut others);
            both += usize::from(marks[1] & others[1] & SLAB != 0);
        }
        assert_eq!((times[0], times[2]), (0, steps as usize));
        let error = |p: f64| 5.0 * (p * (1.0 - p) / steps as f64).sqrt();
        assert!((times[1] as f64 / steps as f64 - 0.3).abs() < error(0.3), "{times:?}");
        assert!((both as f64 / steps as f64 - 0.09).abs() < error(0.09), "{both}");
    }

    /// Mean a/(a + b) and variance a b/((a + b)² (a + b + 1)) within five standard errors.
    #[test]
    fn the_probability_of_the_slab_has_the_moments_of_its_law() {
        for [a, b] in [[1.0, 1.0], [4.0, 9.0], [0.4, 0.7], [301.0, 2.0]] {
            let n = 40_000;
            let draws: Vec<f64> = (0..n)
                .map(|step| 1.0 / (1.0 + (-draw_log_odds([a, b], key(), step, 3)).exp()))
                .collect();
            let n = n as f64;
            let mean = draws.iter().sum::<f64>() / n;
            let power = |k| draws.iter().map(|x| (x - mean).powi(k)).sum::<f64>() / n;
            let (variance, fourth) = (power(2), power(4));
            let want = a / (a + b);
            let spread = a * b / ((a + b).powi(2) * (a + b + 1.0));
            assert!((mean - want).abs() < 5.0 * (variance / n).sqrt(), "{mean} against {want}");
            let error = ((fourth - variance * variance) / n).sqrt();
            assert!((variance - spread).abs() < 5.0 * error, "{variance} against {spread}");
        }
    }
}
