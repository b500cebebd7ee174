//! Whether a predictive distribution says what happens: the probability integral transform and
//! what intervals hold.

use serde::Serialize;

/// Bins of [`Pit::bins`].
pub const PIT_BINS: usize = 10;
/// The levels of [`Pit::coverage`].
pub const PIT_LEVELS: [f64; 4] = [0.5, 0.8, 0.9, 0.95];

/// What an interval of some level holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coverage {
    /// Its level.
    pub level: f64,
    /// The share of rows inside it.
    pub share: f64,
}

/// The probability integral transform of some rows: where the truth lies in what was predicted, as
/// P(Y ≤ y). It is uniform on (0, 1) where predictions are calibrated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pit {
    /// Rows with a prediction that is a number.
    pub rows: usize,
    /// How many rows lie in each of ten bins of equal width. A count is spread evenly over its
    /// interval, so parts of rows occur.
    pub bins: Vec<f64>,
    /// The largest distance between the distribution of the transform and the uniform one
    /// (Kolmogorov and Smirnov's): nothing of probability p comes true more or less often than that
    /// beside p.
    pub distance: f64,
    /// How often chance alone leaves so large a distance where predictions are calibrated. Of
    /// counts it is at most this often.
    pub p_value: f64,
    /// What central intervals hold.
    pub coverage: Vec<Coverage>,
}

/// The transform of rows of which `around` has P(Y < y) and P(Y ≤ y); both are the same where y is
/// no count. `None` without a row where they are numbers.
///
/// F(u) is the mean over rows of 0 below P(Y < y), of 1 from P(Y ≤ y) on and of a straight line in
/// between (Czado, Gneiting & Held, *Biometrics* 65, 2009): of counts the expectation of the
/// transform that draws a place in the interval at random, which the middle of the interval is not.
pub fn pit(around: &[(f64, f64)]) -> Option<Pit> {
    let known: Vec<(f64, f64)> =
        around.iter().copied().filter(|(a, b)| a.is_finite() && b.is_finite()).collect();
    if known.is_empty() {
        return None;
    }
    let rows = known.len();
    let distance = distance(&known);
    Some(Pit {
        rows,
        bins: bins(&known),
        distance,
        p_value: kolmogorov(distance, rows),
        coverage: PIT_LEVELS.map(|level| covered(&known, level)).to_vec(),
    })
}

/// The rows in each bin.
fn bins(around: &[(f64, f64)]) -> Vec<f64> {
    let mut bins = vec![0.0; PIT_BINS];
    let width = 1.0 / PIT_BINS as f64;
    for (a, b) in around {
        if b - a <= f64::EPSILON {
            bins[((a * PIT_BINS as f64) as usize).min(PIT_BINS - 1)] += 1.0;
            continue;
        }
        for (at, bin) in bins.iter_mut().enumerate() {
            let (from, to) = (at as f64 * width, (at + 1) as f64 * width);
            *bin += (b.min(to) - a.max(from)).max(0.0) / (b - a);
        }
    }
    bins
}

/// sup |F(u) − u|: between two ends of intervals F is a straight line, so it lies at an end.
fn distance(around: &[(f64, f64)]) -> f64 {
    // At each place, by how much F jumps and by how much its slope changes.
    let mut ends: Vec<(f64, f64, f64)> = Vec::with_capacity(2 * around.len());
    for (a, b) in around {
        if b - a <= f64::EPSILON {
            ends.push((*a, 1.0, 0.0));
        } else {
            let slope = 1.0 / (b - a);
            ends.extend([(*a, 0.0, slope), (*b, 0.0, -slope)]);
        }
    }
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let n = around.len() as f64;
    let (mut place, mut value, mut slope, mut largest) = (0.0, 0.0, 0.0, 0.0f64);
    for (at, jump, change) in ends {
        value += slope * (at - place);
        place = at;
        largest = largest.max((value / n - at).abs());
        value += jump;
        slope += change;
        largest = largest.max((value / n - at).abs());
    }
    largest
}

/// P(D ≥ d) of so many uniform numbers: Kolmogorov's distribution
/// 2 Σⱼ (−1)^{j−1} exp(−2 j² λ²) at λ = (√n + 0.12 + 0.11/√n) d (Stephens, *JRSS B* 32, 1970).
fn kolmogorov(distance: f64, n: usize) -> f64 {
    let root = (n as f64).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    // Here the sum converges slowly, and it is 1 to the last digit.
    if lambda < 0.2 {
        return 1.0;
    }
    let term = |j: i32| {
        let sign = if j % 2 == 0 { -1.0 } else { 1.0 };
        sign * (-2.0 * f64::from(j * j) * lambda * lambda).exp()
    };
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

/// What the central interval of a level holds. Its ends are the smallest values with
/// P(Y ≤ y) ≥ (1 ∓ level)/2, and both belong to it.
fn covered(around: &[(f64, f64)], level: f64) -> Coverage {
    let (low, high) = (0.5 - level / 2.0, 0.5 + level / 2.0);
    let inside = |(before, at): &&(f64, f64)| {
        // Where they are the same the number is no count, and an end has no probability.
        *at >= low && if before == at { *at <= high } else { *before < high }
    };
    let count = around.iter().filter(inside).count();
    Coverage { level, share: count as f64 / around.len().max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Noise;

    fn of(values: &[f64]) -> Pit {
        pit(&values.iter().map(|v| (*v, *v)).collect::<Vec<_>>()).unwrap()
    }

    /// scipy 1.17:
    /// `kstest([0.02, 0.11, 0.13, 0.35, 0.4, 0.41, 0.55, 0.9], 'uniform', method='exact')`.
    #[test]
    fn distance_and_p_value_are_those_of_scipy() {
        let found = of(&[0.02, 0.11, 0.13, 0.35, 0.4, 0.41, 0.55, 0.9]);
        assert!((found.distance - DISTANCE).abs() < 1e-12, "{}", found.distance);
        assert!((found.p_value - P_VALUE).abs() < 0.01, "{}", found.p_value);
        assert_eq!(found.bins, [1.0, 2.0, 0.0, 1.0, 2.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        let far = of(&[0.9; 40]);
        assert!((far.distance - 0.9).abs() < 1e-12 && far.p_value < 1e-12);
    }

    const DISTANCE: f64 = 0.34;
    const P_VALUE: f64 = 0.249_905_688_577_928_6;

    /// Of 200 numbers in the middle of equal parts.
    #[test]
    fn what_is_uniform_is_found_so_and_narrow_and_wide_are_told_apart() {
        let even: Vec<f64> = (0..200).map(|at| (f64::from(at) + 0.5) / 200.0).collect();
        let found = of(&even);
        assert!((found.distance - 0.0025).abs() < 1e-12 && found.p_value == 1.0);
        assert!(found.bins.iter().all(|bin| *bin == 20.0), "{:?}", found.bins);
        let shares: Vec<f64> = found.coverage.iter().map(|c| c.share).collect();
        assert_eq!(shares, [0.5, 0.8, 0.9, 0.95]);
        // Predictions that are too wide: the truth is always near their middle.
        let wide = of(&even.iter().map(|u| 0.25 + 0.5 * u).collect::<Vec<_>>());
        assert!((wide.distance - 0.25).abs() < 0.01 && wide.coverage[1].share == 1.0);
        let apart = |u: &f64| if *u < 0.5 { u / 2.0 } else { 0.5 + u / 2.0 };
        let narrow = of(&even.iter().map(apart).collect::<Vec<_>>());
        assert_eq!(narrow.coverage[0].share, 0.0);
    }

    /// Every count of a Poisson variable of mean 0.7, as often as it occurs: exactly uniform, which
    /// the middles of the intervals are not.
    #[test]
    fn counts_are_spread_over_their_intervals() {
        let below = |y: f64| Noise::Poisson.below(y, 0.7, 1.0);
        let rows = 2000;
        let mut around = Vec::new();
        for y in 0..12 {
            let (before, at) = (below(f64::from(y) - 1.0), below(f64::from(y)));
            let times =
                ((at * f64::from(rows)).round() - (before * f64::from(rows)).round()) as usize;
            around.extend(vec![(before, at); times]);
        }
        let found = pit(&around).unwrap();
        assert!(found.distance < 1e-3, "{}", found.distance);
        assert!(found.bins.iter().all(|bin| (bin - 200.0).abs() < 1.0), "{:?}", found.bins);
        let middles: Vec<f64> = around.iter().map(|(a, b)| 0.5 * (a + b)).collect();
        assert!(of(&middles).distance > 0.2);
    }

    /// The interval of a count has both its ends, as [`Noise::quantile`] gives them.
    #[test]
    fn coverage_is_that_of_the_intervals() {
        for noise in [Noise::Normal, Noise::Poisson, Noise::NegativeBinomial] {
            let (means, scales) = ([2.0, 3.5], [0.8, 0.5]);
            let truths: Vec<f64> = (0..12).map(f64::from).collect();
            let before = |y: f64| if noise.counts() { y - 1.0 } else { y };
            let below = |y: f64| noise.mixture_below(y, &means, &scales);
            let around: Vec<(f64, f64)> =
                truths.iter().map(|y| (below(before(*y)), below(*y))).collect();
            for Coverage { level, share } in pit(&around).unwrap().coverage {
                let end = |q: f64| noise.quantile(&means, &scales, q).unwrap();
                let (low, high) = (end(0.5 - level / 2.0), end(0.5 + level / 2.0));
                let inside = truths.iter().filter(|y| low <= **y && **y <= high).count();
                assert_eq!(share, inside as f64 / 12.0, "{noise:?} {level}");
            }
        }
    }

    #[test]
    fn rows_that_are_no_numbers_are_left_out() {
        assert_eq!(pit(&[]), None);
        assert_eq!(pit(&[(f64::NAN, f64::NAN)]), None);
        assert_eq!(pit(&[(f64::NAN, 0.3), (0.3, 0.3)]).map(|p| p.rows), Some(1));
        let ends = pit(&[(0.0, 0.0), (1.0, 1.0)]).unwrap();
        assert_eq!((ends.bins[0], ends.bins[9]), (1.0, 1.0));
    }
}
