//! IVON: improved variational online Newton (Shen et al., 2024). A normal distribution for each
//! weight, whose precision is learned from the gradients.

use std::sync::Arc;

use thinfer_data::Result;
use thinfer_engine::noise::{CUDA_SOURCE, Key, Stream};
use thinfer_engine::{Arena, Chunk, Pass, joined, vectorize};

use super::kernels::{Kernel, Scalars, kernel, with_key};
use super::registry::{Declaration, When};
use super::{Method, Tick, Vitals};
use crate::keys::{Kind, key};
use crate::prune::ALIVE;

/// Settings of IVON.
///
/// Fits q(w) = N(m, σ²), σ² = k²/(h + wd), to exp(−L(w) / k²), `L = mean loss + ½ wd |w|²`. At the
/// fixed point h is the curvature of the mean loss.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `beta1` | β₁ | 0.9 | [0, 1) | oscillates |
/// | `beta2` | β₂ | 0.9999, images 0.99999 | [0, 1) | h stays where it starts |
/// | `first_curvature` | h₀ | 0.5 | > 0 | slow and with too little noise at first |
/// | `weight_decay` | wd = δ/N | 2e-4 | ≥ 0 | underfits |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ivon {
    /// β₁
    pub beta1: f64,
    /// β₂
    pub beta2: f64,
    /// h at the start.
    pub first_curvature: f64,
    /// wd = δ/N
    pub weight_decay: f64,
}

/// State buffer of the gradient momentum g.
pub const MOMENTUM: usize = 0;
/// State buffer of the curvature h.
pub const CURVATURE: usize = 1;

/// The numbers of one step, in the order of `Scalars` in `ivon.cu`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coeffs {
    /// k, for which 1/k² is the effective number of rows.
    pub k: f32,
    /// 1/k, or 0 where k is 0.
    pub over_k: f32,
    /// β₁
    pub beta1: f32,
    /// 1 − β₁
    pub share1: f32,
    /// 1 − β₂, or 0 where k is 0: without noise nothing tells of the curvature.
    pub share2: f32,
    /// 1/(1 − β₁ᵗ), t counted from 1.
    pub unbias: f32,
    /// l
    pub rate: f32,
    /// wd
    pub decay: f32,
}

/// The weight that the network reads: w = m + σ ε, σ = k/√(h + wd).
#[inline(always)]
pub fn draw(c: &Coeffs, m: f32, h: f32, eps: f32) -> f32 {
    m + c.k / (h + c.decay).sqrt() * eps
}

/// One step of IVON, given ε and the gradient ĝ at w = m + σ ε.
///
/// g ← β₁ g + (1−β₁) ĝ;  ĥ = ĝ ε/σ
/// h ← β₂ h + (1−β₂) ĥ + ½ (1−β₂)² (h − ĥ)²/(h + wd)
/// m ← m − l (g/(1−β₁ᵗ) + wd m)/(h + wd)
///
/// Targets the normal distribution nearest to exp(−L / k²), coordinate by coordinate. The last term
/// of h keeps h + wd above 0.
#[inline(always)]
pub fn step(c: &Coeffs, mean: &mut [f32], g: &mut [f32], h: &mut [f32], at: &[f32], eps: &[f32]) {
    let n = mean.len();
    let (g, h, at, eps) = (&mut g[..n], &mut h[..n], &at[..n], &eps[..n]);
    for i in 0..n {
        let precision = h[i] + c.decay;
        let estimate = c.over_k * precision.sqrt() * eps[i] * at[i];
        let moved = c.share2 * (estimate - h[i]);
        let curvature = h[i] + moved + 0.5 * moved * moved / precision;
        let along = c.beta1 * g[i] + c.share1 * at[i];
        mean[i] -= c.rate * (c.unbias * along + c.decay * mean[i]) / (curvature + c.decay);
        h[i] = curvature;
        g[i] = along;
    }
}

const SOURCE: &str = joined!(CUDA_SOURCE, include_str!("ivon.cu"));
/// Writes the weights that the network reads.
pub const DRAW: Kernel = kernel(SOURCE, "ivon_draw");
/// The update. State: g, h.
pub const UPDATE: Kernel = kernel(SOURCE, "ivon");

/// One step, or the draw before it, as a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The numbers.
    pub coeffs: Coeffs,
    /// The key of the noise.
    pub key: Key,
    /// The step, from 0.
    pub step: u64,
}

impl Scalars for Step {
    fn words(&self) -> Vec<u32> {
        let Coeffs { k, over_k, beta1, share1, share2, unbias, rate, decay } = self.coeffs;
        let numbers = [k, over_k, beta1, share1, share2, unbias, rate, decay];
        with_key(self.key, self.step, &numbers)
    }
}

const PIECE: usize = 512;

struct Update(Step);

impl Pass for Update {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        Some((UPDATE, self.0.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        let [g, h] = &mut chunk.state[..] else { return };
        let mut eps = [0.0; PIECE];
        for start in (0..chunk.weights.len()).step_by(PIECE) {
            let end = (start + PIECE).min(chunk.weights.len());
            let eps = &mut eps[..end - start];
            self.0.key.normals(self.0.step, chunk.first + start, eps);
            let (mean, at) = (&mut chunk.weights[start..end], &chunk.gradient[start..end]);
            let (g, h) = (&mut g[start..end], &mut h[start..end]);
            vectorize(
                #[inline(always)]
                || step(&self.0.coeffs, mean, g, h, at, eps),
            );
        }
    }
}

/// `forward ← m + σ ε`
struct Draw(Step);

impl Pass for Draw {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        Some((DRAW, self.0.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        let forward = &mut *chunk.forward;
        self.0.key.normals(self.0.step, chunk.first, forward);
        let n = forward.len();
        let (mean, h) = (&chunk.weights[..n], &chunk.state[CURVATURE][..n]);
        vectorize(
            #[inline(always)]
            || {
                for i in 0..n {
                    forward[i] = draw(&self.0.coeffs, mean[i], h[i], forward[i]);
                }
            },
        );
        chunk.state.clear();
    }
}

/// IVON with the key of its noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IvonMethod {
    /// Settings.
    pub config: Ivon,
    /// The key of the noise.
    pub key: Key,
}

impl IvonMethod {
    fn coeffs(&self, tick: Tick) -> Coeffs {
        let (config, rates) = (&self.config, tick.rates);
        let k = rates.temperature;
        let steps = (tick.step + 1) as f64;
        Coeffs {
            k: k as f32,
            over_k: if k > 0.0 { (1.0 / k) as f32 } else { 0.0 },
            beta1: config.beta1 as f32,
            share1: (1.0 - config.beta1) as f32,
            share2: if k > 0.0 { (1.0 - config.beta2) as f32 } else { 0.0 },
            unbias: (1.0 / (1.0 - config.beta1.powf(steps))) as f32,
            rate: rates.step_size as f32,
            decay: (config.weight_decay * rates.decay_factor) as f32,
        }
    }

    fn step(&self, tick: Tick) -> Step {
        Step { coeffs: self.coeffs(tick), key: self.key, step: tick.step }
    }
}

impl Method for IvonMethod {
    fn state_buffers(&self) -> usize {
        2
    }

    fn start(&self, arena: &mut Arena, _key: Key) -> Result<()> {
        arena.set_marks(&vec![ALIVE; arena.len()])?;
        arena.set_state(CURVATURE, &vec![self.config.first_curvature as f32; arena.len()])?;
        arena.separate_forward();
        Ok(())
    }

    fn has_forward_copy(&self) -> bool {
        true
    }

    fn materialize(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Draw(self.step(tick)));
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Update(self.step(tick)));
    }

    /// A draw from q; its noise has a stream of its own, so taking samples does not disturb the
    /// run.
    fn sample(&self, arena: &Arena, tick: Tick) -> Vec<f32> {
        let mut eps = vec![0.0; arena.len()];
        Key { stream: Stream::Predictive, ..self.key }.normals(tick.step, 0, &mut eps);
        let coeffs = self.coeffs(tick);
        let weights = arena.weights().iter().zip(arena.state(CURVATURE)).zip(&eps);
        weights.map(|((m, h), eps)| draw(&coeffs, *m, *h, *eps)).collect()
    }

    fn sample_reads_state(&self) -> bool {
        true
    }

    fn vitals(&self, _arena: &Arena, _tick: Tick) -> Vitals {
        Vitals::default()
    }
}

/// IVON as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "ivon",
    about: "IVON: variational online Newton, a normal distribution with learned precision",
    page: "docs/ivon.md",
    reads: &[
        "method.beta1",
        "method.curvature_memory",
        "method.first_curvature",
        "schedule.temperature",
    ],
    keys: &[
        key(
            "method.curvature_memory",
            Kind::NumberBelow(0.0, 1.0),
            "β₂ of IVON, how much of the curvature stays; 0.9999, for images 0.99999",
        ),
        key(
            "method.first_curvature",
            Kind::NumberAbove(0.0, 1e6),
            "curvature from which IVON starts; 0.5",
        ),
    ],
    defaults: &[
        (
            When::Always,
            "
method.beta1 = 0.9
method.curvature_memory = 0.9999
method.first_curvature = 0.5
",
        ),
        (
            When::Images,
            r#"
method.curvature_memory = 0.99999
schedule.step_size.value = 0.05
schedule.temperature.value = "1/sqrt(N)"
"#,
        ),
    ],
    check: None,
    network: None,
    kernels: &[DRAW, UPDATE],
    build: |setup| {
        let own = &setup.method.own;
        let config = Ivon {
            beta1: setup.method.beta1,
            beta2: own.number("curvature_memory").unwrap_or(0.9999),
            first_curvature: own.number("first_curvature").unwrap_or(0.5),
            weight_decay: setup.prior.weight_decay,
        };
        Ok(Arc::new(IvonMethod { config, key: setup.key }))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Rates;
    use crate::metrics::Spread;

    const RATES: Rates = Rates {
        step_size: 0.2,
        step_size_before: 0.2,
        temperature: 0.5,
        eta: 0.0,
        decay_factor: 1.0,
    };

    fn method(beta2: f64) -> IvonMethod {
        let config = Ivon { beta1: 0.4, beta2, first_curvature: 0.7, weight_decay: 0.02 };
        IvonMethod { config, key: Key::new(3, 0, Stream::Sampler) }
    }

    /// Three steps, line by line in `f64`, with the ε that moved the forward pass.
    #[test]
    fn a_step_follows_the_equations_with_the_noise_of_its_draw() {
        let method = method(0.9);
        let mut arena = Arena::flat(600, 2);
        method.start(&mut arena, method.key).unwrap();
        arena.set_weights(&[1.5; 600]).unwrap();
        let mut want = vec![(1.5f64, 0.0f64, 0.7f64); 600];
        for at in 0..3 {
            let tick = Tick { step: at, epoch: 0, rates: RATES };
            method.materialize(&mut arena, tick);
            let w: Vec<f64> = arena.forward().iter().map(|w| f64::from(*w)).collect();
            let gradient: Vec<f32> = w.iter().map(|w| (0.8 * w - 0.5) as f32).collect();
            arena.set_gradient(&gradient).unwrap();
            for ((m, g, h), (w, at_w)) in want.iter_mut().zip(w.iter().zip(&gradient)) {
                let (precision, at_w) = (*h + 0.02, f64::from(*at_w));
                let variance = 0.25 / precision;
                let estimate = at_w * (w - *m) / variance;
                *g = 0.4 * *g + 0.6 * at_w;
                *h = 0.9 * *h + 0.1 * estimate + 0.5 * 0.01 * (*h - estimate).powi(2) / precision;
                let unbiased = *g / (1.0 - 0.4f64.powi(at as i32 + 1));
                *m -= 0.2 * (unbiased + 0.02 * *m) / (*h + 0.02);
            }
            method.update(&mut arena, tick);
            let got = arena.weights().iter().zip(arena.state(MOMENTUM)).zip(arena.state(CURVATURE));
            for (((m, g), h), want) in got.zip(&want) {
                let near = |got: &f32, want: f64| (f64::from(*got) - want).abs() < 1e-4;
                assert!(near(m, want.0) && near(g, want.1) && near(h, want.2), "{want:?}");
            }
        }
    }

    /// Forward passes and samples are draws from N(m, k²/(h + wd)), apart from each other.
    #[test]
    fn samples_are_draws_from_q() {
        const N: usize = 20_000;
        let method = method(0.9);
        let mut arena = Arena::flat(N, 2);
        method.start(&mut arena, method.key).unwrap();
        arena.set_weights(&vec![2.0; N]).unwrap();
        let tick = Tick { step: 7, epoch: 0, rates: RATES };
        method.materialize(&mut arena, tick);
        let sd = 0.5 / 0.72f64.sqrt();
        let sample = method.sample(&arena, tick);
        for draw in [arena.forward(), &sample] {
            let values: Vec<f64> = draw.iter().map(|w| f64::from(*w)).collect();
            let found = Spread::of(&values);
            assert!((found.mean - 2.0).abs() < 5.0 * sd / (N as f64).sqrt(), "{found:?}");
            assert!((found.sd / sd - 1.0).abs() < 5.0 / (2.0 * N as f64).sqrt(), "{found:?}");
        }
        assert_ne!(arena.forward(), &sample[..]);
    }

    /// However far an estimate lies below, the precision stays positive; without noise h rests.
    #[test]
    fn the_precision_stays_positive() {
        let c = |k| {
            let rates = Rates { temperature: k, ..RATES };
            method(0.0).coeffs(Tick { step: 0, epoch: 0, rates })
        };
        for gradient in [-1e3, -1.0, 0.0, 1e3] {
            let (mut m, mut g, mut h) = ([0.3], [0.0], [0.7]);
            step(&c(0.5), &mut m, &mut g, &mut h, &[gradient], &[1.5]);
            assert!(h[0] + 0.02 > 0.0 && m[0].is_finite(), "{gradient}: {h:?}");
            let (mut m, mut g, mut h) = ([0.3], [0.0], [0.7]);
            step(&c(0.0), &mut m, &mut g, &mut h, &[gradient], &[1.5]);
            assert_eq!(h, [0.7]);
            assert_eq!(draw(&c(0.0), 0.3, 0.7, 1.5), 0.3);
        }
    }
}
