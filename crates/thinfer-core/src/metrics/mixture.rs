//! Predictive distributions of one number: mixtures with an equal part for every member.

use std::borrow::Cow;
use std::f64::consts::PI;

use statrs::function::beta::beta_reg;
use statrs::function::gamma::{gamma_ur, ln_gamma};
use thinfer_engine::Loss;

use super::{erfc, gaussian_mixture_nll, log_sum_exp, mean, mixture_quantile};

/// What a member says about a number, given its mean m and its scale s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// N(m, s²)
    Normal,
    /// Student's t around m, with s times a standard t of so many degrees of freedom.
    StudentT {
        /// ν
        dof: f64,
    },
    /// A count of mean m; s is not used.
    Poisson,
    /// A count of mean m and variance m + s² m².
    NegativeBinomial,
}

/// The scales of the members of a mixture, see [`Noise`].
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// One of each member, for all rows.
    OfMembers(Vec<f64>),
    /// `[member][row]`
    OfRows(Vec<Vec<f64>>),
}

impl Scales {
    /// How many members there are.
    pub fn members(&self) -> usize {
        match self {
            Scales::OfMembers(scales) => scales.len(),
            Scales::OfRows(scales) => scales.len(),
        }
    }

    /// That of a member at a row.
    pub fn at(&self, member: usize, row: usize) -> f64 {
        match self {
            Scales::OfMembers(scales) => scales[member],
            Scales::OfRows(scales) => scales[member][row],
        }
    }

    /// Those of all members at a row.
    pub fn at_row(&self, row: usize) -> Cow<'_, [f64]> {
        match self {
            Scales::OfMembers(scales) => Cow::Borrowed(scales),
            Scales::OfRows(scales) => scales.iter().map(|rows| rows[row]).collect(),
        }
    }

    /// One member alone.
    #[must_use]
    pub fn of_member(&self, member: usize) -> Self {
        match self {
            Scales::OfMembers(scales) => Scales::OfMembers(vec![scales[member]]),
            Scales::OfRows(scales) => Scales::OfRows(vec![scales[member].clone()]),
        }
    }

    /// Some rows only.
    #[must_use]
    pub fn at_rows(&self, rows: &[usize]) -> Self {
        match self {
            Scales::OfMembers(_) => self.clone(),
            Scales::OfRows(scales) => {
                let pick = |of: &Vec<f64>| rows.iter().map(|row| of[*row]).collect();
                Scales::OfRows(scales.iter().map(pick).collect())
            }
        }
    }

    /// The mean logarithm of a member's, over rows.
    pub fn mean_log(&self, member: usize) -> f64 {
        match self {
            Scales::OfMembers(scales) => scales[member].ln(),
            Scales::OfRows(scales) => {
                let rows = &scales[member];
                rows.iter().map(|scale| scale.ln()).sum::<f64>() / rows.len().max(1) as f64
            }
        }
    }
}

impl From<Vec<f64>> for Scales {
    fn from(of_members: Vec<f64>) -> Self {
        Scales::OfMembers(of_members)
    }
}

impl Noise {
    /// The noise of a loss that predicts numbers.
    pub fn of(loss: &Loss) -> Option<Self> {
        match loss {
            Loss::Gaussian { .. } => Some(Noise::Normal),
            Loss::StudentT { dof, .. } => Some(Noise::StudentT { dof: *dof }),
            Loss::Poisson { .. } => Some(Noise::Poisson),
            Loss::NegativeBinomial { .. } => Some(Noise::NegativeBinomial),
            Loss::Bernoulli | Loss::CrossEntropy { .. } => None,
        }
    }

    /// Whether the number is a count.
    pub fn counts(self) -> bool {
        matches!(self, Noise::Poisson | Noise::NegativeBinomial)
    }

    /// ln p(y | m, s); of a count, the logarithm of its probability.
    pub fn log_density(self, y: f64, mean: f64, scale: f64) -> f64 {
        match self {
            Noise::Normal => {
                let z = (y - mean) / scale;
                -0.5 * (z * z + (2.0 * PI).ln()) - scale.ln()
            }
            Noise::StudentT { dof } => {
                let z = (y - mean) / scale;
                ln_gamma(0.5 * (dof + 1.0))
                    - ln_gamma(0.5 * dof)
                    - 0.5 * (dof * PI).ln()
                    - scale.ln()
                    - 0.5 * (dof + 1.0) * (z * z / dof).ln_1p()
            }
            Noise::Poisson => y * mean.ln() - mean - ln_gamma(y + 1.0),
            Noise::NegativeBinomial => {
                let phi = scale.powi(-2);
                ln_gamma(y + phi) - ln_gamma(phi) - ln_gamma(y + 1.0)
                    + phi * (phi / (phi + mean)).ln()
                    + y * (mean / (phi + mean)).ln()
            }
        }
    }

    /// P(Y ≤ y | m, s)
    pub fn below(self, y: f64, mean: f64, scale: f64) -> f64 {
        match self {
            Noise::Normal => 0.5 * erfc((mean - y) / scale / std::f64::consts::SQRT_2),
            Noise::StudentT { dof } => {
                let z = (y - mean) / scale;
                let tail = 0.5 * beta_reg(0.5 * dof, 0.5, dof / (dof + z * z));
                if z > 0.0 { 1.0 - tail } else { tail }
            }
            Noise::Poisson | Noise::NegativeBinomial if y < 0.0 => 0.0,
            Noise::Poisson => gamma_ur(y.floor() + 1.0, mean.max(f64::MIN_POSITIVE)),
            Noise::NegativeBinomial => {
                let phi = scale.powi(-2);
                beta_reg(phi, y.floor() + 1.0, phi / (phi + mean))
            }
        }
    }

    /// The variance; infinite where there is none.
    pub fn variance(self, mean: f64, scale: f64) -> f64 {
        match self {
            Noise::Normal => scale * scale,
            Noise::StudentT { dof } if dof > 2.0 => scale * scale * dof / (dof - 2.0),
            Noise::StudentT { .. } => f64::INFINITY,
            Noise::Poisson => mean,
            Noise::NegativeBinomial => mean + (scale * mean).powi(2),
        }
    }

    /// The mean over rows of −ln( 1/M Σₘ p(y | fₘ, sₘ) ); `means[member][row]`.
    pub fn nll<T: Copy + Into<f64>>(
        self,
        means: &[Vec<f64>],
        scales: &Scales,
        truth: &[T],
    ) -> Option<f64> {
        if let (Noise::Normal, Scales::OfMembers(scales)) = (self, scales) {
            return gaussian_mixture_nll(means, scales, truth);
        }
        mean(self.row_nlls(means, scales, truth).into_iter())
    }

    /// −ln( 1/M Σₘ p(y | fₘ, sₘ) ) of each row; none without members.
    pub fn row_nlls<T: Copy + Into<f64>>(
        self,
        means: &[Vec<f64>],
        scales: &Scales,
        truth: &[T],
    ) -> Vec<f64> {
        assert!(means.iter().all(|m| m.len() == truth.len()), "one mean a row");
        let members = scales.members();
        if members == 0 {
            return Vec::new();
        }
        let mut logs = vec![0.0; members];
        let of_row = |(row, &y): (usize, &T)| {
            for (member, (log, means)) in logs.iter_mut().zip(means).enumerate() {
                *log = self.log_density(y.into(), means[row], scales.at(member, row));
            }
            (members as f64).ln() - log_sum_exp(&logs)
        };
        truth.iter().enumerate().map(of_row).collect()
    }

    /// P(Y ≤ y) under the mixture.
    pub fn mixture_below(self, y: f64, means: &[f64], scales: &[f64]) -> f64 {
        let each = means.iter().zip(scales).map(|(mean, scale)| self.below(y, *mean, *scale));
        each.sum::<f64>() / means.len().max(1) as f64
    }

    /// The q-quantile of the mixture: of a count, the smallest with P(Y ≤ y) ≥ q. `None` without
    /// members, where a number is not usable, or with q outside (0, 1).
    pub fn quantile(self, means: &[f64], scales: &[f64], q: f64) -> Option<f64> {
        if self == Noise::Normal {
            return mixture_quantile(means, scales, q);
        }
        let usable = means.iter().all(|m| m.is_finite()) && scales.iter().all(|s| s.is_finite());
        if means.is_empty() || !usable || !(q > 0.0 && q < 1.0) {
            return None;
        }
        let below = |y: f64| self.mixture_below(y, means, scales);
        let largest = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if self.counts() {
            let mut high = largest.max(1.0).ceil();
            while below(high) < q {
                high *= 2.0;
            }
            let mut low = -1.0;
            while high - low > 1.0 {
                let middle = (0.5 * (low + high)).floor();
                if below(middle) < q { low = middle } else { high = middle }
            }
            return Some(high);
        }
        let smallest = means.iter().copied().fold(f64::INFINITY, f64::min);
        let mut reach = scales.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        while below(smallest - reach) > q || below(largest + reach) < q {
            reach *= 2.0;
        }
        let (mut low, mut high) = (smallest - reach, largest + reach);
        let density = |y: f64| -> f64 {
            let each = means.iter().zip(scales).map(|(m, s)| self.log_density(y, *m, *s).exp());
            each.sum::<f64>() / means.len() as f64
        };
        // Newton's steps, and halves where one leaves the bracket.
        let mut at = 0.5 * (low + high);
        for _ in 0..100 {
            let apart = below(at) - q;
            if apart < 0.0 {
                low = at;
            } else {
                high = at;
            }
            let step = at - apart / density(at);
            let next = if low < step && step < high { step } else { 0.5 * (low + high) };
            let moved = (next - at).abs();
            at = next;
            if moved <= 1e-12 * (at.abs() + reach) {
                break;
            }
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy 1.17: `t.logpdf(1.5, 4, 0.3, 0.7)`, `t.cdf(…)`, `poisson.logpmf(3, 2.5)`, `.cdf(…)`,
    /// `nbinom.logpmf(3, 4, 4 / 6.5)`, `.cdf(…)`.
    #[test]
    fn densities_and_distribution_functions_are_those_of_scipy() {
        for (noise, y, mean, scale, log_density, below) in [
            (Noise::Normal, 1.5, 0.3, 0.7, NORMAL),
            (Noise::StudentT { dof: 4.0 }, 1.5, 0.3, 0.7, T),
            (Noise::Poisson, 3.0, 2.5, 1.0, POISSON),
            (Noise::NegativeBinomial, 3.0, 2.5, 0.5, NBINOM),
        ]
        .map(|(noise, y, mean, scale, (log, below))| (noise, y, mean, scale, log, below))
        {
            let found = noise.log_density(y, mean, scale);
            assert!((found - log_density).abs() < 1e-9, "{noise:?}: {found}");
            let found = noise.below(y, mean, scale);
            assert!((found - below).abs() < 1e-9, "{noise:?}: {found}");
        }
    }

    const NORMAL: (f64, f64) = (-2.03165134436798, 0.956761867253167);
    const T: (f64, f64) = (-2.00123170502222, 0.919186208196639);
    const POISSON: (f64, f64) = (-1.54288727360559, 0.757576133133066);
    const NBINOM: (f64, f64) = (-1.81283332465512, 0.739386271073147);

    /// A quantile is where the distribution function reaches its level, and a count the first.
    #[test]
    fn quantiles_invert_the_distribution_function() {
        let (means, scales) = ([0.4, 3.0, 11.0], [0.6, 0.8, 0.3]);
        for noise in [Noise::StudentT { dof: 3.0 }, Noise::Poisson, Noise::NegativeBinomial] {
            for q in [0.001, 0.05, 0.5, 0.95, 0.999] {
                let at = noise.quantile(&means, &scales, q).unwrap();
                let below = |y| noise.mixture_below(y, &means, &scales);
                if noise.counts() {
                    assert!(below(at) >= q && below(at - 1.0) < q, "{noise:?} {q}: {at}");
                } else {
                    assert!((below(at) - q).abs() < 1e-9, "{noise:?} {q}: {at}");
                }
            }
        }
        assert_eq!(Noise::Poisson.quantile(&[], &[], 0.5), None);
        assert_eq!(Noise::Poisson.quantile(&[f64::NAN], &[1.0], 0.5), None);
    }

    /// By hand: a member whose scale at each row is that of another member.
    #[test]
    fn scales_of_rows_are_those_of_members_row_by_row() {
        let means = [vec![0.4, 3.0], vec![-1.0, 2.0]];
        let of_rows = Scales::OfRows(vec![vec![0.5, 2.0], vec![0.7, 0.9]]);
        for noise in [Noise::Normal, Noise::StudentT { dof: 4.0 }] {
            let one = |row: usize, y: f64| {
                let means: Vec<Vec<f64>> = means.iter().map(|m| vec![m[row]]).collect();
                let scales = Scales::OfMembers(of_rows.at_row(row).into_owned());
                noise.nll(&means, &scales, &[y]).unwrap()
            };
            let rows = noise.row_nlls(&means, &of_rows, &[0.1, 2.5]);
            assert!((rows[0] - one(0, 0.1)).abs() < 1e-12 && (rows[1] - one(1, 2.5)).abs() < 1e-12);
            let both = noise.nll(&means, &of_rows, &[0.1, 2.5]).unwrap();
            assert!((both - 0.5 * (rows[0] + rows[1])).abs() < 1e-12);
        }
        assert_eq!(of_rows.at_rows(&[1]), Scales::OfRows(vec![vec![2.0], vec![0.9]]));
        assert_eq!((of_rows.members(), of_rows.at(1, 0)), (2, 0.7));
        assert!(of_rows.mean_log(0).abs() < 1e-12);
    }

    /// Probabilities of counts add up to 1, and their mean and variance are what is said.
    #[test]
    fn counts_have_the_moments_that_are_said() {
        for (noise, scale) in [(Noise::Poisson, 1.0), (Noise::NegativeBinomial, 0.7)] {
            let p = |y: f64| noise.log_density(y, 4.0, scale).exp();
            let ys = || (0..2_000).map(f64::from);
            let (total, mean) = (ys().map(p).sum::<f64>(), ys().map(|y| y * p(y)).sum::<f64>());
            let variance = ys().map(|y| (y - 4.0).powi(2) * p(y)).sum::<f64>();
            assert!((total - 1.0).abs() < 1e-9 && (mean - 4.0).abs() < 1e-8);
            assert!((variance - noise.variance(4.0, scale)).abs() < 1e-6, "{variance}");
        }
        assert_eq!(Noise::StudentT { dof: 2.0 }.variance(0.0, 1.0), f64::INFINITY);
        assert_eq!(Noise::StudentT { dof: 4.0 }.variance(0.0, 3.0), 18.0);
    }
}
