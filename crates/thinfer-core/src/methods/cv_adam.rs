//! Algorithm 1: constrained variational Adam, the variational form.

use std::sync::Arc;

use thinfer_data::Result;
use thinfer_engine::elementary::sigmoid;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Chunk, Pass, vectorize};

use super::kernels::{self, CvAdamScalars, Kernel, Scalars};
use super::registry::Declaration;
use super::{Method, Tick, Vitals};
use crate::keys::{Kind, key};
use crate::prune::ALIVE;

/// Settings of Algorithm 1.
///
/// Fits q(w) = N(μ, α² τ²) with τ = sigmoid(ρ) in (0, 1) by mirror descent on the negative ELBO.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `beta1` | β₁ | 0.1 | [0, 1) | oscillates |
/// | `beta2` | β₂ | 1 | > 0 | unstable |
/// | `weight_decay` | wd = δ/N | 2e-4 | ≥ 0 | underfits |
/// | `alpha` | α | k l^{3/4} | > 0 | too much noise in the forward pass |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CvAdam {
    /// β₁
    pub beta1: f64,
    /// β₂
    pub beta2: f64,
    /// wd = δ/N
    pub weight_decay: f64,
    /// N
    pub train_rows: usize,
    /// α; `None` is the paper's α = k l^{3/4}, for which τ hardly learns (see `docs/cv-adam.md`).
    pub alpha: Option<f64>,
}

/// State buffer of the gradient momentum m.
pub const MOMENTUM: usize = 0;
/// State buffer of ρ.
pub const RHO: usize = 1;

/// The numbers of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coeffs {
    /// β₁
    pub beta1: f32,
    /// β₂
    pub beta2: f32,
    /// l
    pub rate: f32,
    /// α
    pub alpha: f32,
    /// η
    pub eta: f32,
    /// N
    pub n: f32,
    /// wd
    pub decay: f32,
}

/// One step of Algorithm 1, given ε and the gradient at w = μ + α τ ε.
///
/// m ← β₁ m + β₂ (g + wd μ)
/// ρ ← ρ + η ( 1/(Nτ) − α² wd τ − α ε g );  τ ← sigmoid(ρ)
/// μ ← μ − l τ m
///
/// The fixed point is the mean-field posterior: α² τ² = 1/(N H + δ).
///
/// Deviation: the paper prints η/τ and δ undivided while g is a mini-batch mean, and puts wd μ into
/// the g of the ρ update; see [`super::sghmc::rho_step`].
#[inline(always)]
pub fn step(c: &Coeffs, mu: &mut [f32], m: &mut [f32], rho: &mut [f32], g: &[f32], eps: &[f32]) {
    let n = mu.len();
    let (m, rho, g, eps) = (&mut m[..n], &mut rho[..n], &g[..n], &eps[..n]);
    for i in 0..n {
        m[i] = c.beta1 * m[i] + c.beta2 * (g[i] + c.decay * mu[i]);
        let tau = sigmoid(rho[i]);
        rho[i] += c.eta
            * (1.0 / (c.n * tau) - c.alpha * c.alpha * c.decay * tau - c.alpha * eps[i] * g[i]);
        mu[i] -= c.rate * sigmoid(rho[i]) * m[i];
    }
}

const PIECE: usize = 512;

/// Algorithm 1 with the key of its noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CvAdamMethod {
    /// Settings.
    pub config: CvAdam,
    /// The key of the noise.
    pub key: Key,
}

struct Update {
    coeffs: Coeffs,
    key: Key,
    step: u64,
}

impl Pass for Update {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        let Self { coeffs, key, step } = *self;
        Some((kernels::CV_ADAM, CvAdamScalars { coeffs, key, step }.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        let [m, rho] = &mut chunk.state[..] else { return };
        let mut eps = [0.0; PIECE];
        for start in (0..chunk.weights.len()).step_by(PIECE) {
            let end = (start + PIECE).min(chunk.weights.len());
            let eps = &mut eps[..end - start];
            self.key.normals(self.step, chunk.first + start, eps);
            let (mu, g) = (&mut chunk.weights[start..end], &chunk.gradient[start..end]);
            let (m, rho) = (&mut m[start..end], &mut rho[start..end]);
            vectorize(
                #[inline(always)]
                || step(&self.coeffs, mu, m, rho, g, eps),
            );
        }
    }
}

/// `forward ← μ + α τ ε`
struct Draw {
    coeffs: Coeffs,
    key: Key,
    step: u64,
}

impl Pass for Draw {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        let Self { coeffs, key, step } = *self;
        Some((kernels::CV_ADAM_DRAW, CvAdamScalars { coeffs, key, step }.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        let forward = &mut *chunk.forward;
        self.key.normals(self.step, chunk.first, forward);
        let (mu, rho) = (&*chunk.weights, &*chunk.state[RHO]);
        let n = forward.len();
        let (mu, rho) = (&mu[..n], &rho[..n]);
        vectorize(
            #[inline(always)]
            || {
                for i in 0..n {
                    forward[i] = mu[i] + self.coeffs.alpha * sigmoid(rho[i]) * forward[i];
                }
            },
        );
        chunk.state.clear();
    }
}

impl CvAdamMethod {
    fn coeffs(&self, tick: Tick) -> Coeffs {
        let config = &self.config;
        Coeffs {
            beta1: config.beta1 as f32,
            beta2: config.beta2 as f32,
            rate: tick.rates.step_size as f32,
            alpha: self.alpha(tick),
            eta: tick.rates.eta as f32,
            n: config.train_rows as f32,
            decay: (config.weight_decay * tick.rates.decay_factor) as f32,
        }
    }

    fn alpha(&self, tick: Tick) -> f32 {
        let paper = tick.rates.temperature * tick.rates.step_size.powf(0.75);
        self.config.alpha.unwrap_or(paper) as f32
    }
}

impl Method for CvAdamMethod {
    fn state_buffers(&self) -> usize {
        2
    }

    fn start(&self, arena: &mut Arena, _key: Key) -> Result<()> {
        arena.set_marks(&vec![ALIVE; arena.len()])?;
        arena.separate_forward();
        Ok(())
    }

    fn has_forward_copy(&self) -> bool {
        true
    }

    fn materialize(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Draw { coeffs: self.coeffs(tick), key: self.key, step: tick.step });
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Update { coeffs: self.coeffs(tick), key: self.key, step: tick.step });
    }

    /// A draw from q; its noise has a stream of its own, so taking samples does not disturb the
    /// run.
    fn sample(&self, arena: &Arena, tick: Tick) -> Vec<f32> {
        let mut eps = vec![0.0; arena.len()];
        Key { stream: Stream::Predictive, ..self.key }.normals(tick.step, 0, &mut eps);
        let alpha = self.alpha(tick);
        let weights = arena.weights().iter().zip(arena.state(RHO)).zip(&eps);
        weights.map(|((mu, rho), eps)| mu + alpha * sigmoid(*rho) * eps).collect()
    }

    fn sample_reads_state(&self) -> bool {
        true
    }

    fn vitals(&self, _arena: &Arena, _tick: Tick) -> Vitals {
        Vitals::default()
    }

    fn vitals_of_state(&self, arena: &Arena, _tick: Tick, vitals: Vitals) -> Vitals {
        let n = arena.len() as f64;
        let taus = || arena.state(RHO).iter().map(|r| f64::from(sigmoid(*r)));
        let mean = taus().sum::<f64>() / n;
        let variance = taus().map(|t| (t - mean).powi(2)).sum::<f64>() / n;
        Vitals { tau: Some((mean, variance.sqrt())), ..vitals }
    }
}

/// Algorithm 1 as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "cv-adam",
    about: "Algorithm 1: constrained variational Adam, a normal distribution for each weight",
    page: "docs/cv-adam.md",
    reads: &[
        "method.beta1",
        "method.beta2",
        "method.alpha",
        "schedule.temperature",
        "schedule.eta",
    ],
    keys: &[key(
        "method.alpha",
        Kind::NumberAbove(0.0, 1e3),
        "α of Algorithm 1; absent: k l^(3/4)",
    )],
    defaults: &[],
    check: None,
    network: None,
    kernels: &[kernels::CV_ADAM_DRAW, kernels::CV_ADAM],
    build: |setup| {
        let method = setup.method;
        let config = CvAdam {
            beta1: method.beta1,
            beta2: method.beta2,
            weight_decay: setup.prior.weight_decay,
            train_rows: setup.train_rows,
            alpha: method.own.number("alpha"),
        };
        Ok(Arc::new(CvAdamMethod { config, key: setup.key }))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Rates;
    use crate::metrics::Spread;

    const N: usize = 20_000;

    /// Two steps of Algorithm 1, line by line in `f64`, with the ε that moved the forward pass: α =
    /// k l^{3/4} from the tick, or as given.
    #[test]
    fn a_step_follows_the_equations_with_the_noise_of_its_draw() {
        for given in [None, Some(0.3)] {
            let config =
                CvAdam { beta1: 0.4, beta2: 0.7, weight_decay: 0.02, train_rows: 50, alpha: given };
            let method = CvAdamMethod { config, key: Key::new(3, 0, Stream::Sampler) };
            let mut arena = Arena::flat(600, 2);
            method.start(&mut arena, method.key).unwrap();
            arena.set_weights(&[1.5; 600]).unwrap();
            arena.set_state(RHO, &[-0.4; 600]).unwrap();
            let rates = Rates {
                step_size: 0.2,
                step_size_before: 0.2,
                temperature: 0.5,
                eta: 0.1,
                decay_factor: 1.0,
            };
            let alpha = given.unwrap_or(0.5 * 0.2f64.powf(0.75));
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let mut want = vec![(1.5f64, 0.0f64, -0.4f64); 600];
            for step in 0..2 {
                let tick = Tick { step, epoch: 0, rates };
                method.materialize(&mut arena, tick);
                let w: Vec<f64> = arena.forward().iter().map(|w| f64::from(*w)).collect();
                let g: Vec<f32> = w.iter().map(|w| (0.8 * w - 0.5) as f32).collect();
                arena.set_gradient(&g).unwrap();
                for ((mu, m, rho), (w, g)) in want.iter_mut().zip(w.iter().zip(&g)) {
                    let (tau, g) = (sigmoid(*rho), f64::from(*g));
                    let eps = (w - *mu) / (alpha * tau);
                    *m = 0.4 * *m + 0.7 * (g + 0.02 * *mu);
                    *rho +=
                        0.1 * (1.0 / (50.0 * tau) - alpha * alpha * 0.02 * tau - alpha * eps * g);
                    *mu -= 0.2 * sigmoid(*rho) * *m;
                }
                method.update(&mut arena, tick);
                let got = arena.weights().iter().zip(arena.state(MOMENTUM)).zip(arena.state(RHO));
                for (((mu, m), rho), want) in got.zip(&want) {
                    let near = |got: &f32, want: f64| (f64::from(*got) - want).abs() < 1e-4;
                    assert!(near(mu, want.0) && near(m, want.1) && near(rho, want.2), "{want:?}");
                }
            }
        }
    }

    /// Forward passes and samples are draws from N(μ, α² τ²), apart from each other, with α as
    /// given or k l^{3/4}.
    #[test]
    fn samples_are_draws_from_q() {
        for (alpha, size) in [(Some(0.3), 0.3), (None, 0.5 * 0.2f64.powf(0.75))] {
            let config =
                CvAdam { beta1: 0.1, beta2: 1.0, weight_decay: 0.0, train_rows: 10, alpha };
            let method = CvAdamMethod { config, key: Key::new(3, 0, Stream::Sampler) };
            let mut arena = Arena::flat(N, 2);
            method.start(&mut arena, method.key).unwrap();
            arena.set_weights(&vec![2.0; N]).unwrap();
            arena.set_state(RHO, &vec![-1.0; N]).unwrap();
            let rates = Rates {
                step_size: 0.2,
                step_size_before: 0.2,
                temperature: 0.5,
                eta: 0.1,
                decay_factor: 1.0,
            };
            let tick = Tick { step: 7, epoch: 0, rates };
            method.materialize(&mut arena, tick);
            let sd = size / (1.0 + 1f64.exp());
            let sample = method.sample(&arena, tick);
            for draw in [arena.forward(), &sample] {
                let values: Vec<f64> = draw.iter().map(|w| f64::from(*w)).collect();
                let found = Spread::of(&values);
                assert!((found.mean - 2.0).abs() < 5.0 * sd / (N as f64).sqrt(), "{found:?}");
                assert!((found.sd / sd - 1.0).abs() < 5.0 / (2.0 * N as f64).sqrt(), "{found:?}");
            }
            assert_ne!(arena.forward(), &sample[..]);
        }
    }
}
