//! SVBNN (Bai, Song & Cheng 2020): spike-and-slab variational inference, with the inclusion of
//! every weight relaxed by a Gumbel softmax.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thinfer_core::posterior::Posterior;
use thinfer_core::posterior::Snapshot;
use thinfer_data::Bundle;
use thinfer_data::Result;
use thinfer_engine::elementary::{exp, ln};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Network, Plan, vectorize};
use thinfer_run::config::Activation;

use super::found::{Found, Predictor, threshold_path};
use super::network::{
    Adam, Batches, STEPS_A_LOOK, Shape, check_loss, check_stop, network_size, perceptron,
};
use super::{ABOVE_0, LAYERS, has_units, require};

/// Every weight is γ (μ + σ ε) with γ ~ Bernoulli(φ), σ = ln(1 + exp ρ), φ = 1/(1 + exp(−θ)).
/// Minimises the mean loss over such draws + KL/N, where a weight's prior is 0 with probability 1 −
/// λ and else N(0, s²).
///
/// Deviation: the authors' program computes in `f64`; this is `f32`, as all networks here.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `hidden`, `activation` | | 5-3, ReLU | | |
/// | `rate` | Adam's | 5e-3 | > 0 | unstable |
/// | `batch` | | 512 | ≥ 1 | slower |
/// | `steps` | | 42,000 | ≥ 1 | slower |
/// | `slab_sd` | s | 1.3 | > 0 | keeps less |
/// | `softness` | temperature of the relaxation | 0.5 | > 0 | biased gradients |
/// | `members` | networks drawn to predict | 30 | ≥ 1 | slower |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see the table")]
pub struct Svbnn {
    pub hidden: Vec<usize>,
    pub activation: Activation,
    pub rate: f64,
    pub batch: usize,
    pub steps: u64,
    pub slab_sd: f64,
    pub softness: f64,
    pub members: u32,
}

impl Default for Svbnn {
    fn default() -> Self {
        Self {
            hidden: vec![5, 3],
            activation: Activation::Relu,
            rate: 5e-3,
            batch: 512,
            steps: 42_000,
            slab_sd: 1.3,
            softness: 0.5,
            members: 30,
        }
    }
}

/// The variational distribution, and one draw from it.
struct Variational {
    mu: Vec<f32>,
    rho: Vec<f32>,
    theta: Vec<f32>,
    eps: Vec<f32>,
    /// ln u − ln(1 − u) for uniform u.
    logistic: Vec<f32>,
    /// The draw.
    weights: Vec<f32>,
}

/// Constants of the objective.
#[derive(Clone, Copy, Debug)]
struct Objective {
    /// ln λ − ln(1 − λ)
    prior_logit: f32,
    slab_sd: f32,
    softness: f32,
    /// 1/N
    kl_share: f32,
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    // Below −80 the exponential leaves f32's range, and the result is 0 anyway.
    1.0 / (1.0 + exp((-x).min(80.0)))
}

#[inline(always)]
fn softplus(x: f32) -> f32 {
    x.max(0.0) + ln(1.0 + exp(-x.abs()))
}

impl Variational {
    /// μ ~ U(−0.6, 0.6), ρ = −6, φ = 0.99
    fn start(len: usize, seed: u64) -> Self {
        let key = Key::new(seed, 0, Stream::Initial);
        Self {
            mu: (0..len).map(|i| 0.6 * (2.0 * key.uniform(0, i) - 1.0)).collect(),
            rho: vec![-6.0; len],
            theta: vec![99.0f32.ln(); len],
            eps: vec![0.0; len],
            logistic: vec![0.0; len],
            weights: vec![0.0; len],
        }
    }

    /// Draws ε, u and with them the weights: γ is 1 where the relaxed inclusion is above ½, which
    /// is where θ + ln u − ln(1 − u) > 0.
    ///
    /// u = exp(−(a² + b²)/2) for two normal numbers a and b is uniform, and normal numbers come
    /// many at a time.
    fn draw(&mut self, seed: u64, step: u64) {
        let [eps, a, b] = [0, 1, 2].map(|chain| Key::new(seed, chain, Stream::Sampler));
        eps.normals(step, 0, &mut self.eps);
        a.normals(step, 0, &mut self.logistic);
        b.normals(step, 0, &mut self.weights);
        vectorize(
            #[inline(always)]
            || {
                let n = self.weights.len();
                let (mu, rho, theta) = (&self.mu[..n], &self.rho[..n], &self.theta[..n]);
                let (eps, logistic) = (&self.eps[..n], &mut self.logistic[..n]);
                for (i, w) in self.weights.iter_mut().enumerate() {
                    let minus_ln_u = 0.5 * (logistic[i] * logistic[i] + *w * *w);
                    // u rounds to 1 where its logarithm is below the spacing of f32.
                    let rest = (1.0 - exp(-minus_ln_u)).max(0.5 * f32::EPSILON);
                    logistic[i] = -minus_ln_u - ln(rest);
                    let value = mu[i] + softplus(rho[i]) * eps[i];
                    *w = if theta[i] + logistic[i] > 0.0 { value } else { 0.0 };
                }
            },
        );
    }

    /// Gradients of mean loss + KL/N by μ, ρ and θ, from the gradient g by the drawn weights.
    ///
    /// With r = 1/(1 + exp(−(θ + ln u − ln(1 − u))/t)) the relaxed inclusion, straight through:
    /// ∂μ = γ g + φ μ/s² / N
    /// ∂ρ = ( γ g ε + φ (σ/s² − 1/σ) / N ) / (1 + exp(−ρ))
    /// ∂θ = g (μ + σ ε) r (1 − r)/t + φ (1 − φ) ( θ − logit λ + ln(s/σ) + (σ² + μ²)/2s² − ½ ) / N
    fn gradients(&self, o: Objective, g: &[f32], out: [&mut [f32]; 3]) {
        let [d_mu, d_rho, d_theta] = out;
        let precision = 1.0 / (o.slab_sd * o.slab_sd);
        vectorize(
            #[inline(always)]
            || {
                let n = g.len();
                let (mus, rhos, thetas) = (&self.mu[..n], &self.rho[..n], &self.theta[..n]);
                let (noise, logistic) = (&self.eps[..n], &self.logistic[..n]);
                let (d_mu, d_rho, d_theta) = (&mut d_mu[..n], &mut d_rho[..n], &mut d_theta[..n]);
                for i in 0..n {
                    let (mu, rho, theta, eps) = (mus[i], rhos[i], thetas[i], noise[i]);
                    let (sigma, phi) = (softplus(rho), sigmoid(theta));
                    let score = theta + logistic[i];
                    let gamma = if score > 0.0 { 1.0 } else { 0.0 };
                    let relaxed = sigmoid(score / o.softness);
                    let slab =
                        ln(o.slab_sd / sigma) + 0.5 * (sigma * sigma + mu * mu) * precision - 0.5;
                    d_mu[i] = gamma * g[i] + o.kl_share * phi * mu * precision;
                    let d_sigma =
                        gamma * g[i] * eps + o.kl_share * phi * (sigma * precision - 1.0 / sigma);
                    d_rho[i] = d_sigma * sigmoid(rho);
                    d_theta[i] = g[i] * (mu + sigma * eps) * relaxed * (1.0 - relaxed) / o.softness
                        + o.kl_share * phi * (1.0 - phi) * (theta - o.prior_logit + slab);
                }
            },
        );
    }
}

impl Svbnn {
    pub(super) fn multiply_adds(&self, columns: usize) -> f64 {
        // Draws and updates cost about as much as a hundred rows.
        2.0 * network_size(columns, &self.hidden) * (self.batch + 100) as f64 * self.steps as f64
    }

    /// ln λ = −ln T − 0.1 ( (L + 1) ln W + ln(√n p) ) for T parameters, L hidden layers of width W,
    /// n rows and p columns.
    pub fn log_inclusion(&self, parameters: usize, rows: usize, columns: usize) -> f64 {
        let width = self.hidden.iter().copied().max().unwrap_or(1) as f64;
        let layers = (self.hidden.len() + 1) as f64;
        let size = layers * width.ln() + ((rows as f64).sqrt() * columns as f64).ln();
        -(parameters as f64).ln() - 0.1 * size
    }

    fn objective(&self, log_inclusion: f64, rows: usize) -> Objective {
        Objective {
            prior_logit: (log_inclusion - (-log_inclusion.exp()).ln_1p()) as f32,
            slab_sd: self.slab_sd as f32,
            softness: self.softness as f32,
            kl_share: 1.0 / rows as f32,
        }
    }

    /// See [`Selector::check`](super::Selector::check).
    pub(super) fn check(&self) -> Result<()> {
        require(
            "svbnn",
            &[
                ("hidden", has_units(&self.hidden), LAYERS),
                ("rate", self.rate > 0.0, ABOVE_0),
                ("batch", self.batch > 0, ABOVE_0),
                ("steps", self.steps > 0, ABOVE_0),
                ("slab_sd", self.slab_sd > 0.0, ABOVE_0),
                ("softness", self.softness > 0.0, ABOVE_0),
                ("members", self.members > 0, ABOVE_0),
            ],
        )
    }

    /// See [`Selector::fit`](super::Selector::fit).
    pub fn fit(&self, data: &Bundle, seed: u64, stop: &AtomicBool) -> Result<Found> {
        self.check()?;
        let started = Instant::now();
        let shape = Shape { hidden: &self.hidden, activation: self.activation, bias: true };
        let network = perceptron(data, shape)?;
        let (len, rows, columns) =
            (network.params().len(), data.train.rows(), data.train.columns());
        let log_inclusion = self.log_inclusion(len, rows, columns);
        let objective = self.objective(log_inclusion, rows);
        let mut q = Variational::start(len, seed);
        let mut batches = Batches::new(rows, self.batch, seed, 0);
        let mut plan = Plan::new(&network, self.batch.min(rows))?;
        let mut adam = [Adam::new(len), Adam::new(len), Adam::new(len)];
        let mut gradient = vec![0.0; len];
        let [mut d_mu, mut d_rho, mut d_theta] = [vec![0.0; len], vec![0.0; len], vec![0.0; len]];
        for step in 0..self.steps {
            if step % STEPS_A_LOOK == 0 {
                check_stop(stop)?;
            }
            q.draw(seed, step);
            plan.set_live_inputs(Some(&live_columns(&network, &q.weights)));
            let batch = batches.rows(step);
            let loss = plan.gradient_at(&q.weights, &mut [], &data.train, batch, &mut gradient)?;
            check_loss(loss, "SVBNN", step)?;
            q.gradients(objective, &gradient, [&mut d_mu, &mut d_rho, &mut d_theta]);
            adam[0].step(step, self.rate, &mut q.mu, &d_mu);
            adam[1].step(step, self.rate, &mut q.rho, &d_rho);
            adam[2].step(step, self.rate, &mut q.theta, &d_theta);
        }
        let members = (0..self.members)
            .map(|member| {
                q.draw(seed, self.steps + u64::from(member));
                let keep = q.weights.iter().map(|w| u8::from(*w != 0.0)).collect();
                let weights = q.weights.clone();
                Snapshot {
                    chain: 0,
                    epoch: member as usize,
                    weights,
                    keep,
                    stats: Vec::new(),
                    inclusion: Vec::new(),
                }
            })
            .collect();
        let scores = inclusion(&network, &q.theta);
        let kept = q.theta.iter().filter(|theta| **theta > 0.0).count();
        Ok(Found {
            columns: (0..columns).filter(|&j| scores[j] > 0.5).collect(),
            path: threshold_path(&scores),
            scores,
            predictor: Predictor::Network(Posterior { network, members }),
            chosen: BTreeMap::from([
                ("kept_weights".to_owned(), kept as f64),
                ("log_inclusion".to_owned(), log_inclusion),
            ]),
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// The columns with a drawn weight in the first layer.
fn live_columns(network: &Network, weights: &[f32]) -> Vec<usize> {
    let columns = network.input_len();
    let mut live = vec![false; columns];
    let first = network.first_weight().map_or(0..0, thinfer_engine::Param::range);
    for unit in weights[first].chunks_exact(columns) {
        live.iter_mut().zip(unit).for_each(|(live, w)| *live |= *w != 0.0);
    }
    (0..columns).filter(|&j| live[j]).collect()
}

/// The largest φ in the first layer of every column.
fn inclusion(network: &Network, theta: &[f32]) -> Vec<f64> {
    let columns = network.input_len();
    let mut most = vec![f32::NEG_INFINITY; columns];
    let first = network.first_weight().map_or(0..0, thinfer_engine::Param::range);
    for unit in theta[first].chunks_exact(columns) {
        most.iter_mut().zip(unit).for_each(|(most, theta)| *most = most.max(*theta));
    }
    most.into_iter().map(|theta| 1.0 / (1.0 + f64::from(-theta).exp())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selectors::network::judged;
    use crate::selectors::testing::{bundle, classes};

    fn quick() -> Svbnn {
        Svbnn { hidden: vec![4], rate: 0.02, batch: 200, steps: 2500, ..Svbnn::default() }
    }

    /// The inclusion probabilities that methods.md 10.3 states: Bai's own, Examples 1, 2 and 3.
    #[test]
    fn prior_inclusions_are_the_published_ones() {
        for (hidden, parameters, rows, columns, want) in [
            (vec![7, 7, 7], 1527, 3000, 200, 1.19e-4),
            (vec![5, 3], 5027, 10_000, 1000, 3.9e-5),
            (vec![6, 4, 3], 12_053, 10_000, 2000, 1.2e-5),
            (vec![6, 4, 3], 6053, 10_000, 1000, 2.6e-5),
        ] {
            let s = Svbnn { hidden, ..Svbnn::default() };
            let got = s.log_inclusion(parameters, rows, columns).exp();
            assert!((got / want - 1.0).abs() < 0.02, "{got} {want}");
        }
    }

    /// The KL terms against differences of the printed KL, with g = 0.
    #[test]
    fn gradients_are_derivatives_of_the_kl() {
        let kl = |mu: f64, rho: f64, theta: f64| {
            let (sigma, phi) = (rho.exp().ln_1p(), 1.0 / (1.0 + (-theta).exp()));
            let (lambda, s) = (1e-3f64, 1.3f64);
            phi * (phi / lambda).ln()
                + (1.0 - phi) * ((1.0 - phi) / (1.0 - lambda)).ln()
                + phi * ((s / sigma).ln() + (sigma * sigma + mu * mu) / (2.0 * s * s) - 0.5)
        };
        let o = Objective {
            prior_logit: (1e-3f64 / (1.0 - 1e-3)).ln() as f32,
            slab_sd: 1.3,
            softness: 0.5,
            kl_share: 1.0,
        };
        for (mu, rho, theta) in [(0.4, -2.0, 0.5), (-1.5, 0.3, -2.0), (0.0, -6.0, 4.5)] {
            let mut q = Variational::start(1, 1);
            (q.mu[0], q.rho[0], q.theta[0]) = (mu as f32, rho as f32, theta as f32);
            let [mut a, mut b, mut c] = [[0.0f32]; 3];
            q.gradients(o, &[0.0], [&mut a, &mut b, &mut c]);
            let h = 1e-5;
            let by = |m: f64, r: f64, t: f64| {
                (kl(mu + m * h, rho + r * h, theta + t * h)
                    - kl(mu - m * h, rho - r * h, theta - t * h))
                    / (2.0 * h)
            };
            for (got, want) in
                [(a[0], by(1.0, 0.0, 0.0)), (b[0], by(0.0, 1.0, 0.0)), (c[0], by(0.0, 0.0, 1.0))]
            {
                assert!((f64::from(got) - want).abs() < 2e-3 * (1.0 + want.abs()), "{got} {want}");
            }
        }
    }

    /// The data terms, with a KL of no weight, against differences of g·w for the relaxed weight r
    /// (μ + σ ε): through γ by μ and ρ, through r by θ, also where γ is 0.
    #[test]
    fn gradients_are_derivatives_of_the_relaxed_weight() {
        let o = Objective { prior_logit: -7.0, slab_sd: 1.3, softness: 0.5, kl_share: 0.0 };
        let g = 0.7f64;
        for (mu, rho, theta, eps, logistic) in
            [(0.4, -1.0, 0.5, 0.8, 0.3), (-1.5, 0.3, -0.6, -1.1, 0.2), (0.9, 0.1, 1.0, 0.4, -1.3)]
        {
            let value = |mu: f64, rho: f64| mu + rho.exp().ln_1p() * eps;
            let relaxed = |theta: f64| 1.0 / (1.0 + (-(theta + logistic) / 0.5).exp());
            let gamma = f64::from(u8::from(theta + logistic > 0.0));
            let mut q = Variational::start(1, 1);
            (q.mu[0], q.rho[0], q.theta[0]) = (mu as f32, rho as f32, theta as f32);
            (q.eps[0], q.logistic[0]) = (eps as f32, logistic as f32);
            let [mut a, mut b, mut c] = [[0.0f32]; 3];
            q.gradients(o, &[g as f32], [&mut a, &mut b, &mut c]);
            let h = 1e-6;
            let by_rho = (value(mu, rho + h) - value(mu, rho - h)) / (2.0 * h);
            let by_theta = (relaxed(theta + h) - relaxed(theta - h)) / (2.0 * h);
            let wanted = [g * gamma, g * gamma * by_rho, g * value(mu, rho) * by_theta];
            for (got, want) in [a[0], b[0], c[0]].into_iter().zip(wanted) {
                assert!((f64::from(got) - want).abs() < 1e-5, "{got} {want}");
            }
        }
    }

    /// y = w x + noise with w in the slab N(0, 1.3²) for sure: q comes to rest at the posterior of
    /// w, whose precision is Σx² + 1/1.3². Many weights of the same problem, to average over their
    /// noise.
    #[test]
    fn a_weight_that_is_in_comes_to_rest_at_its_posterior() {
        let (rows, copies, steps) = (25, 200, 6000);
        let key = Key::new(4, 0, Stream::Inputs);
        let x: Vec<f32> = (0..rows).map(|i| 0.5 * key.normal(0, i)).collect();
        let y: Vec<f32> = (0..rows).map(|i| 0.8 * x[i] + key.normal(1, i)).collect();
        let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let (xx, xy) = (sum(&x, &x), sum(&x, &y));
        let precision = f64::from(xx) + 1.0 / (1.3 * 1.3);
        let s = Svbnn::default();
        let o = s.objective((0.5f64).ln(), rows);
        let mut q = Variational::start(copies, 1);
        q.theta.fill(30.0);
        let mut adam = [Adam::new(copies), Adam::new(copies)];
        let [mut d_mu, mut d_rho, mut d_theta] = [(); 3].map(|()| vec![0.0; copies]);
        let (mut mean, mut sd) = (0.0, 0.0);
        for step in 0..steps {
            q.draw(9, step);
            let slope = |w: &f32| (xx * w - xy) / rows as f32;
            let g: Vec<f32> = q.weights.iter().map(slope).collect();
            q.gradients(o, &g, [&mut d_mu, &mut d_rho, &mut d_theta]);
            adam[0].step(step, s.rate, &mut q.mu, &d_mu);
            adam[1].step(step, s.rate, &mut q.rho, &d_rho);
            if step >= steps / 2 {
                let share = 1.0 / (steps / 2 * copies as u64) as f64;
                mean += q.mu.iter().map(|m| f64::from(*m)).sum::<f64>() * share;
                sd += q.rho.iter().map(|r| f64::from(softplus(*r))).sum::<f64>() * share;
            }
        }
        let want = (f64::from(xy) / precision, precision.powf(-0.5));
        assert!((mean - want.0).abs() < 0.02, "{mean} {want:?}");
        assert!((sd / want.1 - 1.0).abs() < 0.05, "{sd} {want:?}");
    }

    #[test]
    fn draws_have_the_inclusion_and_spread_of_the_parameters() {
        let n = 20_000;
        let mut q = Variational::start(n, 3);
        q.mu.fill(2.0);
        q.rho.fill((0.5f32.exp() - 1.0).ln());
        q.theta.fill((0.3f32 / 0.7).ln());
        q.draw(1, 5);
        let live: Vec<f64> =
            q.weights.iter().filter(|w| **w != 0.0).map(|w| f64::from(*w)).collect();
        let spread = thinfer_core::metrics::Spread::of(&live);
        assert!((live.len() as f64 / n as f64 - 0.3).abs() < 0.02);
        assert!((spread.mean - 2.0).abs() < 0.03 && (spread.sd - 0.5).abs() < 0.02);
    }

    #[test]
    fn it_finds_the_columns_that_matter() {
        let data = bundle(1, 800, 12, |x, e| 3.0 * x[0].max(0.0) - 2.0 * x[3] + 0.5 * e);
        let found = quick().fit(&data, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(found.columns, [0, 3]);
        let (loss, _) = judged(&found.predictor.predict(&data.test).unwrap(), &data.test);
        assert!(loss < 1.0, "{loss}");
        let again = quick().fit(&data, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(again.scores, found.scores);

        let data = classes(2, 800, 8, |x, e| 4.0 * x[2] - 4.0 * x[5] + e > 0.0);
        let found = quick().fit(&data, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(found.columns, [2, 5]);
        assert_eq!(quick().fit(&data, 1, &AtomicBool::new(true)).unwrap_err().exit_code(), 130);
    }
}
