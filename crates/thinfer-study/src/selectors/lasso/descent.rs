//! Coordinate descent for one penalty after another, each from where the last one ended.

use super::columns::Columns;

/// Sweeps over the active columns, at most, for one quadratic model.
const MAX_SWEEPS: usize = 1000;
/// Quadratic models, at most, for one penalty of a logistic fit.
const MAX_MODELS: usize = 30;
/// A fit has settled when no coordinate would lower the loss by more than this share of that of a
/// constant.
const TOLERANCE: f64 = 1e-9;
/// The least weight of a row in a logistic fit, which is nearly 0 where the fit is sure.
const LEAST_WEIGHT: f64 = 1e-5;

/// What is minimised besides λ ‖β‖₁.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// 1/(2n) Σ (yᵢ − ηᵢ)²
    Gaussian,
    /// 1/n Σ ln(1 + exp ηᵢ) − yᵢ ηᵢ
    Bernoulli,
}

/// One fit, which goes down the path. Rows of share 0 do not count, but are predicted.
pub(super) struct Fit<'a> {
    x: &'a Columns,
    y: &'a [f64],
    family: Family,
    share: Vec<f64>,
    total: f64,
    pub(super) intercept: f64,
    pub(super) beta: Vec<f64>,
    /// ηᵢ = β₀ + xᵢᵀβ
    pub(super) eta: Vec<f64>,
    /// Weights of the quadratic model, and weight times residual.
    weight: Vec<f64>,
    residual: Vec<f64>,
    /// Σ residual · xⱼ / n at the last look at all columns.
    gradient: Vec<f64>,
    curvature: Vec<f64>,
    active: Vec<usize>,
    scale: f64,
}

pub(super) fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

/// ln(1 + exp z) without overflow.
fn softplus(z: f64) -> f64 {
    z.max(0.0) + (-z.abs()).exp().ln_1p()
}

impl<'a> Fit<'a> {
    /// Starts at the best constant.
    pub(super) fn new(x: &'a Columns, y: &'a [f64], family: Family, share: Vec<f64>) -> Self {
        let total: f64 = share.iter().sum::<f64>().max(1.0);
        let mean = share.iter().zip(y).map(|(s, y)| s * y).sum::<f64>() / total;
        let intercept = match family {
            Family::Gaussian => mean,
            Family::Bernoulli => {
                let p = mean.clamp(0.5 / total, 1.0 - 0.5 / total);
                (p / (1.0 - p)).ln()
            }
        };
        let columns = x.columns();
        let mut fit = Self {
            x,
            y,
            family,
            weight: share.clone(),
            share,
            total,
            intercept,
            beta: vec![0.0; columns],
            eta: vec![intercept; y.len()],
            residual: vec![0.0; y.len()],
            gradient: vec![0.0; columns],
            curvature: vec![0.0; columns],
            active: Vec::new(),
            scale: 1.0,
        };
        fit.scale = fit.mean_loss(|row| fit.share[row] > 0.0).max(f64::MIN_POSITIVE);
        fit.quadratic_model();
        fit.look_at_all_columns();
        fit
    }

    /// The least λ at which every coefficient is zero.
    pub(super) fn largest_penalty(&self) -> f64 {
        self.gradient.iter().fold(0.0, |most, g| most.max(g.abs()))
    }

    /// The mean loss over the rows that `which` names: squared error, or minus ln p.
    pub(super) fn mean_loss(&self, which: impl Fn(usize) -> bool) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for row in (0..self.y.len()).filter(|&row| which(row)) {
            let (eta, y) = (self.eta[row], self.y[row]);
            sum += match self.family {
                Family::Gaussian => (y - eta).powi(2),
                Family::Bernoulli => softplus(eta) - y * eta,
            };
            count += 1.0;
        }
        sum / f64::max(count, 1.0)
    }

    /// The rows that do not count, which this fit can be judged on.
    pub(super) fn held_out_loss(&self) -> f64 {
        self.mean_loss(|row| self.share[row] == 0.0)
    }

    /// Minimises for λ, from the solution for `last`.
    pub(super) fn solve(&mut self, lambda: f64, last: f64) {
        // The strong rule of Tibshirani et al. (2012) names nearly all columns that can come in;
        // what it misses is found when all columns are looked at.
        self.active = (0..self.beta.len())
            .filter(|&j| self.beta[j] != 0.0 || self.gradient[j].abs() >= 2.0 * lambda - last)
            .collect();
        loop {
            self.solve_active(lambda);
            self.look_at_all_columns();
            let missed: Vec<usize> = (0..self.beta.len())
                .filter(|&j| self.beta[j] == 0.0 && self.gradient[j].abs() > lambda * (1.0 + 1e-6))
                .filter(|j| self.active.binary_search(j).is_err())
                .collect();
            if missed.is_empty() {
                return;
            }
            self.active.extend(missed);
            self.active.sort_unstable();
        }
    }

    fn solve_active(&mut self, lambda: f64) {
        let models = if self.family == Family::Gaussian { 1 } else { MAX_MODELS };
        for _ in 0..models {
            self.quadratic_model();
            for &j in &self.active {
                self.curvature[j] = self.x.square(j, &self.weight) / self.total;
            }
            let mut first = 0.0;
            for sweep in 0..MAX_SWEEPS {
                let gain = self.sweep(lambda);
                if sweep == 0 {
                    first = gain;
                }
                if gain <= TOLERANCE * self.scale {
                    break;
                }
            }
            if first <= TOLERANCE * self.scale {
                break;
            }
        }
    }

    /// Newton's quadratic model of the loss at η; that of squared errors is the loss itself.
    fn quadratic_model(&mut self) {
        for row in 0..self.y.len() {
            let share = self.share[row];
            match self.family {
                Family::Gaussian => self.residual[row] = share * (self.y[row] - self.eta[row]),
                Family::Bernoulli => {
                    let p = sigmoid(self.eta[row]);
                    self.weight[row] = share * (p * (1.0 - p)).max(LEAST_WEIGHT);
                    self.residual[row] = share * (self.y[row] - p);
                }
            }
        }
    }

    /// βⱼ ← S(gⱼ + vⱼ βⱼ, λ) / vⱼ for the active columns, then the intercept. Returns the largest
    /// vⱼ (Δβⱼ)², about twice what the step gained.
    fn sweep(&mut self, lambda: f64) -> f64 {
        let mut most = 0.0f64;
        for at in 0..self.active.len() {
            let j = self.active[at];
            let v = self.curvature[j];
            if v <= 0.0 {
                continue;
            }
            let pull = self.x.dot(j, &self.residual) / self.total + v * self.beta[j];
            let new = (pull.abs() - lambda).max(0.0).copysign(pull) / v;
            let step = new - self.beta[j];
            if step != 0.0 {
                self.beta[j] = new;
                self.x.shift(j, step, &self.weight, &mut self.eta, &mut self.residual);
                most = most.max(v * step * step);
            }
        }
        let weight: f64 = self.weight.iter().sum();
        let step = self.residual.iter().sum::<f64>() / weight.max(f64::MIN_POSITIVE);
        self.intercept += step;
        for row in 0..self.eta.len() {
            self.eta[row] += step;
            self.residual[row] -= step * self.weight[row];
        }
        most.max(weight / self.total * step * step)
    }

    fn look_at_all_columns(&mut self) {
        if self.family == Family::Bernoulli {
            self.quadratic_model();
        }
        for j in 0..self.gradient.len() {
            self.gradient[j] = self.x.dot(j, &self.residual) / self.total;
        }
    }
}
