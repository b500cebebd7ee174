//! Loss heads: negative log-likelihoods of one row, and their gradient.
//!
//! The plan divides by the number of rows, so `gradient` is the mini-batch mean ḡ of the paper.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use statrs::function::gamma::{digamma, ln_gamma};

use crate::error::EngineError;
use crate::param::{ParamTable, Role};
use crate::real::Real;

/// The standard deviation of Gaussian observation noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Known: σ.
    Known(f64),
    /// Learned: the network has a parameter `noise.log_sigma`.
    Learned {
        /// σ at the start.
        start: f64,
        /// Its number in the table; filled in when the network is finished.
        param: usize,
    },
    /// Predicted row by row: the network gives two numbers, f and ln σ of the row.
    ByRow {
        /// σ at the start.
        start: f64,
    },
}

impl Scale {
    /// σ where it is known, or where learning starts.
    pub fn at_start(&self) -> f64 {
        match self {
            Scale::Known(sigma)
            | Scale::Learned { start: sigma, .. }
            | Scale::ByRow { start: sigma } => *sigma,
        }
    }
}

/// The unit of the output layer that gives ln σ of a row: its places in the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoiseUnit {
    /// Its weights.
    pub weights: Range<usize>,
    /// Its bias, which is the noise of a row of which nothing is known.
    pub bias: Option<usize>,
}

/// The loss at the head of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// `Σ_j (y_j − f_j)² / 2σ² + ln σ`: half the squared error where σ = 1. The constant ½ ln 2π is
    /// left out here; the negative log-likelihood that metrics report has it.
    Gaussian {
        /// The noise.
        scale: Scale,
    },
    /// `ln(1 + e^f) − y f` for one logit `f` and `y` in {0, 1}.
    Bernoulli,
    /// `ln Σ_j e^{f_j} − Σ_j t_j f_j` for as many logits as there are classes. The target `t` has
    /// 1 − smoothing at the class, and the rest is spread evenly over all classes.
    CrossEntropy {
        /// Label smoothing, from 0 to below 1.
        #[serde(default)]
        smoothing: f64,
    },
    /// `½ (ν + 1) ln(1 + z²/ν) + ln σ`, `z = (y − f)/σ`: Student's t, whose tails forgive outliers.
    /// What depends on ν alone is left out.
    StudentT {
        /// σ
        scale: Scale,
        /// ν, the degrees of freedom.
        dof: f64,
    },
    /// `r − y ln r` for a count `y` and the rate `r = e^{f + log_mean}`; `ln y!` is left out.
    Poisson {
        /// The logarithm of the mean count of the training rows, so that f is about 0 at first.
        log_mean: f64,
    },
    /// A count whose rate varies: mean `r = e^{f + log_mean}`, variance `r + σ² r²`. With `φ = 1/σ²`
    /// the loss is `(y + φ) ln(φ + r) − y ln r − φ ln φ − ln Γ(y + φ) + ln Γ(φ)`; `ln y!` is left out.
    NegativeBinomial {
        /// The logarithm of the mean count of the training rows.
        log_mean: f64,
        /// σ, the standard deviation of the rate relative to its mean.
        scale: Scale,
    },
}

impl Loss {
    /// Gaussian with known noise.
    pub fn gaussian(sigma: f64) -> Self {
        Loss::Gaussian { scale: Scale::Known(sigma) }
    }

    /// Gaussian whose noise is learned from `start` on.
    pub fn gaussian_learned(start: f64) -> Self {
        Loss::Gaussian { scale: Scale::Learned { start, param: 0 } }
    }

    /// Cross entropy without label smoothing.
    pub fn cross_entropy() -> Self {
        Loss::CrossEntropy { smoothing: 0.0 }
    }

    /// Targets a row, for a network with `outputs` outputs.
    pub fn target_len(&self, outputs: usize) -> usize {
        match self {
            _ if self.is_by_row() => outputs / 2,
            Loss::Gaussian { .. } | Loss::StudentT { .. } => outputs,
            Loss::Bernoulli
            | Loss::CrossEntropy { .. }
            | Loss::Poisson { .. }
            | Loss::NegativeBinomial { .. } => 1,
        }
    }

    /// The noise, where the loss has one.
    pub fn scale(&self) -> Option<&Scale> {
        match self {
            Loss::Gaussian { scale }
            | Loss::StudentT { scale, .. }
            | Loss::NegativeBinomial { scale, .. } => Some(scale),
            Loss::Bernoulli | Loss::CrossEntropy { .. } | Loss::Poisson { .. } => None,
        }
    }

    /// The number of the parameter ln σ in the table, where the noise is learned.
    pub fn scale_param(&self) -> Option<usize> {
        match self.scale()? {
            Scale::Learned { param, .. } => Some(*param),
            Scale::Known(_) | Scale::ByRow { .. } => None,
        }
    }

    /// Whether the noise is predicted row by row.
    pub fn is_by_row(&self) -> bool {
        matches!(self.scale(), Some(Scale::ByRow { .. }))
    }

    /// Where ln σ of a row comes from in a network with this loss and these parameters, where it is
    /// predicted row by row: the last unit of the last layer.
    pub fn noise_unit(&self, table: &ParamTable) -> Option<NoiseUnit> {
        let last = table.iter().rposition(|param| param.role.is_weight())?;
        let end = table[last].range().end;
        let bias = table.iter().nth(last + 1).filter(|param| param.role == Role::Bias);
        self.is_by_row().then_some(NoiseUnit {
            weights: end - table[last].fan_in()..end,
            bias: bias.map(|bias| bias.range().end - 1),
        })
    }

    /// The loss of one row with the target `y` where the network answers 0 and the noise is that of
    /// the start.
    pub fn of_zero(&self, y: f64) -> f64 {
        let targets = [y as f32];
        match self.scale() {
            Some(Scale::ByRow { start }) => {
                let output = [0.0, start.ln()];
                gradient(self, None, &output, &targets, 2, 1.0, &mut [0.0; 2]).0
            }
            _ => gradient(self, None, &[0.0], &targets, 1, 1.0, &mut [0.0]).0,
        }
    }

    /// One of some targets that the loss can take, for checks: a normal number or a number from 0
    /// that goes round the classes, or the counts.
    pub fn some_target(&self, outputs: usize, number: usize, normal: f32) -> f32 {
        match self {
            Loss::Gaussian { .. } | Loss::StudentT { .. } => normal,
            Loss::Bernoulli => (number % 2) as f32,
            Loss::CrossEntropy { .. } => (number % outputs) as f32,
            Loss::Poisson { .. } | Loss::NegativeBinomial { .. } => (number % 5) as f32,
        }
    }

    /// Whether the target is a class.
    pub fn has_classes(&self) -> bool {
        matches!(self, Loss::Bernoulli | Loss::CrossEntropy { .. })
    }

    /// Notes where ln σ is, in a loss that learns it.
    pub(crate) fn set_scale_param(&mut self, at: usize) {
        if let Loss::Gaussian { scale }
        | Loss::StudentT { scale, .. }
        | Loss::NegativeBinomial { scale, .. } = self
            && let Scale::Learned { param, .. } = scale
        {
            *param = at;
        }
    }

    pub(crate) fn check(&self, outputs: usize) -> Result<(), EngineError> {
        if let Some(s) = self.scale().map(Scale::at_start)
            && !(s.is_finite() && s > 0.0)
        {
            let problem = format!("the noise standard deviation is {s}; it must be positive");
            return Err(EngineError::Network { node: "loss".into(), problem });
        }
        let problem = match self {
            Loss::NegativeBinomial { scale: Scale::ByRow { .. }, .. } => {
                "predicts its noise row by row, which numbers can have and counts cannot".to_owned()
            }
            _ if self.is_by_row() && outputs != 2 => format!(
                "predicts the noise of a row beside its number and reads two outputs, but the network gives {outputs}"
            ),
            Loss::StudentT { dof, .. } if !(dof.is_finite() && *dof > 0.0) => {
                format!("the degrees of freedom are {dof}; they must be positive")
            }
            Loss::Poisson { log_mean } | Loss::NegativeBinomial { log_mean, .. }
                if !log_mean.is_finite() =>
            {
                "the mean of the counts is not a positive number".to_owned()
            }
            Loss::Poisson { .. } | Loss::NegativeBinomial { .. } if outputs != 1 => {
                format!("a count has one rate, but the network gives {outputs} outputs")
            }
            Loss::Bernoulli if outputs != 1 => {
                format!("a Bernoulli loss reads one logit, but the network gives {outputs}")
            }
            Loss::CrossEntropy { .. } if outputs < 2 => {
                format!("cross entropy needs two classes or more, but the network gives {outputs}")
            }
            Loss::CrossEntropy { smoothing } if !(0.0..1.0).contains(smoothing) => {
                format!("the label smoothing is {smoothing}; it must be from 0 to below 1")
            }
            _ => return Ok(()),
        };
        Err(EngineError::Network { node: "loss".into(), problem })
    }
}

/// Loss and gradient of one block of rows.
///
/// Returns the summed loss, writes `d loss / d output · weight` into `doutput` and gives back the
/// summed derivative with respect to ln σ (0 where the noise is known).
pub(crate) fn gradient<T: Real>(
    loss: &Loss,
    log_sigma: Option<T>,
    output: &[T],
    targets: &[f32],
    outputs: usize,
    weight: T,
    doutput: &mut [T],
) -> (f64, f64) {
    let rows = output.len() / outputs;
    let (mut total, mut dscale) = (0.0, 0.0);
    let (log_sigma, sigma) = match (loss.scale(), log_sigma) {
        (Some(Scale::Learned { .. }), Some(l)) => (l.wide(), l.wide().exp()),
        (Some(Scale::ByRow { .. }), _) => {
            return gradient_by_row(loss, output, targets, weight, doutput);
        }
        (Some(scale), _) => (scale.at_start().ln(), scale.at_start()),
        (None, _) => (0.0, 1.0),
    };
    match loss {
        Loss::Gaussian { .. } => {
            let precision = T::of(1.0 / (sigma * sigma));
            // Eight sums, so that none waits for the one before it.
            let mut squares = [0.0; 8];
            let blocks = output.chunks(8).zip(targets.chunks(8)).zip(doutput.chunks_mut(8));
            for ((f, y), d) in blocks {
                for (((f, y), d), sum) in f.iter().zip(y).zip(d).zip(&mut squares) {
                    let residual = *f - T::of_single(*y);
                    let scaled = residual * precision;
                    *d = scaled * weight;
                    *sum += (scaled * residual).wide();
                }
            }
            let (squares, count) = (squares.iter().sum::<f64>(), output.len() as f64);
            total = 0.5 * squares + count * log_sigma;
            dscale = count - squares;
        }
        Loss::Bernoulli => {
            for ((f, y), d) in output.iter().zip(targets).zip(doutput.iter_mut()) {
                let (f, y) = (f.wide(), *y as f64);
                // ln(1 + e^f) without overflow.
                total += f.max(0.0) + (-f.abs()).exp().ln_1p() - y * f;
                *d = T::of(1.0 / (1.0 + (-f).exp()) - y) * weight;
            }
        }
        Loss::CrossEntropy { smoothing } => {
            let spread = smoothing / outputs as f64;
            for row in 0..rows {
                let f = &output[row * outputs..(row + 1) * outputs];
                let d = &mut doutput[row * outputs..(row + 1) * outputs];
                let class = targets[row] as usize;
                let most = f.iter().map(|v| v.wide()).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = f.iter().map(|v| (v.wide() - most).exp()).sum();
                let log_sum = most + sum.ln();
                total += log_sum - (1.0 - smoothing) * f[class].wide();
                if spread > 0.0 {
                    total -= spread * f.iter().map(|v| v.wide()).sum::<f64>();
                }
                for (j, (f, d)) in f.iter().zip(d).enumerate() {
                    let p = (f.wide() - log_sum).exp();
                    let target = if j == class { 1.0 - smoothing + spread } else { spread };
                    *d = T::of(p - target) * weight;
                }
            }
        }
        Loss::StudentT { dof, .. } => {
            for ((f, y), d) in output.iter().zip(targets).zip(doutput.iter_mut()) {
                let z = (f.wide() - f64::from(*y)) / sigma;
                let pull = (dof + 1.0) * z / (dof + z * z);
                total += 0.5 * (dof + 1.0) * (z * z / dof).ln_1p() + log_sigma;
                dscale += 1.0 - pull * z;
                *d = T::of(pull / sigma) * weight;
            }
        }
        Loss::Poisson { log_mean } => {
            for ((f, y), d) in output.iter().zip(targets).zip(doutput.iter_mut()) {
                let (log_rate, y) = (f.wide() + log_mean, f64::from(*y));
                let rate = log_rate.exp();
                total += rate - y * log_rate;
                *d = T::of(rate - y) * weight;
            }
        }
        Loss::NegativeBinomial { log_mean, .. } => {
            let phi = (-2.0 * log_sigma).exp();
            let of_phi = ln_gamma(phi) - phi * phi.ln();
            let slope_of_phi = digamma(phi) - phi.ln() - 1.0;
            for ((f, y), d) in output.iter().zip(targets).zip(doutput.iter_mut()) {
                let (log_rate, y) = (f.wide() + log_mean, f64::from(*y));
                let all = phi + log_rate.exp();
                total += (y + phi) * all.ln() - y * log_rate - ln_gamma(y + phi) + of_phi;
                let slope = all.ln() + (y + phi) / all - digamma(y + phi) + slope_of_phi;
                // φ = e^{−2 ln σ}
                dscale -= 2.0 * phi * slope;
                *d = T::of(phi * (log_rate.exp() - y) / all) * weight;
            }
        }
    }
    (total, dscale)
}

/// The same where the outputs of a row are f and l = ln σ:
///
/// z = (f − y) e^{−l},  loss = ρ(z) + l,  ∂/∂f = ρ′(z) e^{−l},  ∂/∂l = 1 − z ρ′(z)
///
/// with ρ = ½ z² of a normal, and ½ (ν + 1) ln(1 + z²/ν) of Student's t.
fn gradient_by_row<T: Real>(
    loss: &Loss,
    output: &[T],
    targets: &[f32],
    weight: T,
    doutput: &mut [T],
) -> (f64, f64) {
    let mut total = 0.0;
    let rows = output.chunks_exact(2).zip(targets).zip(doutput.chunks_exact_mut(2));
    for ((f, y), d) in rows {
        let (l, over) = (f[1].wide(), (-f[1].wide()).exp());
        let z = (f[0].wide() - f64::from(*y)) * over;
        let (cost, slope) = match loss {
            Loss::StudentT { dof, .. } => {
                (0.5 * (dof + 1.0) * (z * z / dof).ln_1p(), (dof + 1.0) * z / (dof + z * z))
            }
            _ => (0.5 * z * z, z),
        };
        total += cost + l;
        d[0] = T::of(slope * over) * weight;
        d[1] = T::of(1.0 - z * slope) * weight;
    }
    (total, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(loss: &Loss, output: &[f64], target: f32) -> f64 {
        let mut d = vec![0.0; output.len()];
        gradient(loss, None, output, &[target], output.len(), 1.0, &mut d).0
    }

    /// By hand: (2 − 1)²/(2·4) + ln 2; ln(1 + e²) − 2; ln(e¹ + e² + e³) − 2.
    #[test]
    fn worked_cases() {
        assert!((at(&Loss::gaussian(2.0), &[2.0], 1.0) - (0.125 + 2f64.ln())).abs() < 1e-12);
        assert!((at(&Loss::Bernoulli, &[2.0], 1.0) - 0.126_928_011_042_972_5).abs() < 1e-12);
        let ce = at(&Loss::cross_entropy(), &[1.0, 2.0, 3.0], 1.0);
        assert!((ce - 1.407_605_964_444_38).abs() < 1e-12);
    }

    /// torch.nn.functional.cross_entropy(torch.tensor([[1., 2., 3.]], dtype=torch.float64,
    ///     requires_grad=True), torch.tensor([1]), label_smoothing=0.3) and its gradient.
    #[test]
    fn smoothed_labels_are_those_of_pytorch() {
        let (loss, f) = (Loss::CrossEntropy { smoothing: 0.3 }, [1.0, 2.0, 3.0]);
        let mut d = [0f64; 3];
        let (total, _) = gradient(&loss, None, &f, &[1.0], 3, 1.0, &mut d);
        // By hand: ln(e¹ + e² + e³) − 0.7·2 − 0.1·(1 + 2 + 3).
        assert!((total - 1.407_605_964_444_38).abs() < 1e-12);
        let want = [-0.009_969_426_823_25, -0.555_271_527_529_73, 0.565_240_954_352_98];
        for (d, want) in d.iter().zip(want) {
            assert!((d - want).abs() < 1e-6, "{d} against {want}");
        }
        let uneven = at(&loss, &[1.0, 2.0, 5.0], 0.0);
        let log_sum = (1f64.exp() + 2f64.exp() + 5f64.exp()).ln();
        assert!((uneven - (log_sum - 0.7 - 0.1 * 8.0)).abs() < 1e-12);
        let bad = Loss::CrossEntropy { smoothing: 1.0 }.check(3).unwrap_err().to_string();
        assert!(bad.contains("below 1"), "{bad}");
    }

    /// From scipy 1.17: `-t.logpdf(1.5, 4, loc=0.3, scale=0.7)`, `-poisson.logpmf(3, 2.5)`,
    /// `-nbinom.logpmf(3, 4, 4 / 6.5)` (φ = 4, σ = 1/2), with the constants put back.
    #[test]
    fn likelihoods_of_robust_regression_and_of_counts_are_those_of_scipy() {
        let t = Loss::StudentT { scale: Scale::Known(0.7), dof: 4.0 };
        let constant = ln_gamma(2.0) - ln_gamma(2.5) + 0.5 * (4.0 * std::f64::consts::PI).ln();
        let found = at(&t, &[0.3], 1.5) + constant;
        assert!((found - 2.001_231_705_002_219).abs() < 1e-9, "{found}");
        let (mean, log_factorial) = (2.5f64, ln_gamma(4.0));
        let poisson = Loss::Poisson { log_mean: mean.ln() };
        let found = at(&poisson, &[0.0], 3.0) + log_factorial;
        assert!((found - 1.542_887_273_605_59).abs() < 1e-9, "{found}");
        let spread = Loss::NegativeBinomial { log_mean: mean.ln(), scale: Scale::Known(0.5) };
        let found = at(&spread, &[0.0], 3.0) + log_factorial;
        assert!((found - 1.812_833_324_655_120_5).abs() < 1e-9, "{found}");
    }

    /// Central differences, towards the output and towards ln σ.
    #[test]
    fn slopes_of_robust_regression_and_of_counts_are_differences() {
        let scale = Scale::Learned { start: 1.0, param: 0 };
        for loss in [
            Loss::StudentT { scale, dof: 3.0 },
            Loss::Poisson { log_mean: 0.4 },
            Loss::NegativeBinomial { log_mean: 0.4, scale },
        ] {
            let (f, log_sigma, h) = (0.7, -0.6, 1e-5);
            let value = |f: f64, log_sigma: f64| {
                let mut d = [0.0];
                gradient(&loss, Some(log_sigma), &[f], &[4.0], 1, 1.0, &mut d).0
            };
            let mut d = [0.0];
            let (_, dscale) = gradient(&loss, Some(log_sigma), &[f], &[4.0], 1, 1.0, &mut d);
            let slope = (value(f + h, log_sigma) - value(f - h, log_sigma)) / (2.0 * h);
            assert!((d[0] - slope).abs() < 1e-8, "{loss:?}: {} against {slope}", d[0]);
            let slope = (value(f, log_sigma + h) - value(f, log_sigma - h)) / (2.0 * h);
            assert!((dscale - slope).abs() < 1e-8, "{loss:?}: {dscale} against {slope}");
        }
    }

    /// With ln σ as an output the loss is that of a known σ, and its slopes are differences.
    #[test]
    fn noise_by_row_is_the_known_noise_of_each_row() {
        let by_row = Scale::ByRow { start: 0.5 };
        let known = Scale::Known(0.3);
        for (loss, same) in [
            (Loss::Gaussian { scale: by_row }, Loss::Gaussian { scale: known }),
            (Loss::StudentT { scale: by_row, dof: 3.0 }, Loss::StudentT { scale: known, dof: 3.0 }),
        ] {
            let (f, l, h) = (0.7, 0.3f64.ln(), 1e-5);
            assert!((at(&loss, &[f, l], 1.5) - at(&same, &[f], 1.5)).abs() < 1e-12);
            let value = |f: f64, l: f64| at(&loss, &[f, l], 1.5);
            let mut d = [0.0; 4];
            let output = [0.1, -2.0, f, l];
            let (total, _) = gradient(&loss, None, &output, &[0.2, 1.5], 2, 0.5, &mut d);
            assert!((total - at(&loss, &[0.1, -2.0], 0.2) - value(f, l)).abs() < 1e-12);
            let slope = (value(f + h, l) - value(f - h, l)) / (2.0 * h);
            assert!((d[2] - 0.5 * slope).abs() < 1e-7, "{loss:?}: {} against {slope}", d[2]);
            let slope = (value(f, l + h) - value(f, l - h)) / (2.0 * h);
            assert!((d[3] - 0.5 * slope).abs() < 1e-7, "{loss:?}: {} against {slope}", d[3]);
            assert_eq!((loss.target_len(2), loss.scale_param()), (1, None));
            let start = at(&loss, &[0.0, 0.5f64.ln()], 2.0);
            assert!((loss.of_zero(2.0) - start).abs() < 1e-12);
            let error = loss.check(1).unwrap_err().to_string();
            assert!(error.contains("two outputs") && loss.check(2).is_ok(), "{error}");
        }
        let counts = Loss::NegativeBinomial { log_mean: 0.0, scale: by_row };
        assert!(counts.check(1).unwrap_err().to_string().contains("counts cannot"));
    }

    #[test]
    fn far_logits_do_not_overflow() {
        assert!((at(&Loss::Bernoulli, &[800.0], 0.0) - 800.0).abs() < 1e-9);
        assert!((at(&Loss::Bernoulli, &[-800.0], 1.0) - 800.0).abs() < 1e-9);
        assert!((at(&Loss::cross_entropy(), &[900.0, -900.0], 1.0) - 1800.0).abs() < 1e-9);
    }

    #[test]
    fn losses_say_what_they_need() {
        assert!(Loss::Bernoulli.check(2).unwrap_err().to_string().contains("one logit"));
        assert!(Loss::cross_entropy().check(1).unwrap_err().to_string().contains("two classes"));
        assert!(Loss::gaussian(0.0).check(1).unwrap_err().to_string().contains("positive"));
    }
}
