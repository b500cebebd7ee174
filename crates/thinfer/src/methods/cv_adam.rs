//! Algorithm 1: constrained variational Adam, the variational form.

use thinfer_engine::elementary::sigmoid;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Chunk, Pass, vectorize};

use super::kernels::{self, CvAdamScalars, Kernel, Scalars};
use super::{Method, Tick, Vitals};
use crate::error::Result;
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

    fn materialize(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Draw { coeffs: self.coeffs(tick), key: self.key, step: tick.step });
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Update { coeffs: self.coeffs(tick), key: self.key, step: tick.step });
    }

    /// A draw from q; its noise has a stream of its own, so taking samples does not disturb the run.
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
