//! The temperature while the step size moves: Bayesian linear regression, full batch, asked for 1.

use thinfer::methods::Method;
use thinfer::methods::csgmcmc::{Csgmcmc, CsgmcmcMethod};
use thinfer::methods::em_mcmc::{AfterFreeze, Cadence, EmMcmc, EmMcmcMethod};
use thinfer::methods::sghmc::NoiseRule;
use thinfer::prune::{HardThreshold, SoftThreshold};
use thinfer::schedule::{Clock, Schedule, Shape};
use thinfer::train::Schedules;

use super::*;

const ROWS: usize = 200;
const TAU: f64 = 0.5;
/// l at its largest. τ l λ is then at most 0.07, so that the step-size factor is below 1.02.
const LARGEST: f64 = 0.05;
/// What the step-size factor and the jump of a restart may add to a temperature of 1.
const ALLOWED: f64 = 0.03;

/// The samplers with a velocity. cSGHMC has no τ: its step size is τ l.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sampler {
    Sghmc,
    EmMcmc,
    Csghmc,
}

const SAMPLERS: [Sampler; 3] = [Sampler::Sghmc, Sampler::EmMcmc, Sampler::Csghmc];

impl Sampler {
    fn method(self, beta1: f64, wd: f64) -> Box<dyn Method> {
        let key = Key::new(5, 0, Stream::Sampler);
        let sghmc = sghmc(beta1, NoiseRule::Exact, wd);
        match self {
            Sampler::Sghmc => Box::new(method(sghmc)),
            Sampler::EmMcmc => {
                let config = EmMcmc {
                    sghmc,
                    spike_decay: 1.0,
                    soft_threshold: SoftThreshold::Given(1e-30),
                    hard_threshold: HardThreshold::Given(1e-30),
                    warm_up_epochs: usize::MAX,
                    freeze_after_epochs: None,
                    after_freeze: AfterFreeze::Em,
                    cadence: Cadence::Epoch,
                    regrow: false,
                    draw: None,
                };
                Box::new(EmMcmcMethod { config, groups: Vec::new(), channels: None, key })
            }
            Sampler::Csghmc => {
                let config = Csgmcmc {
                    momentum: beta1,
                    weight_decay: wd,
                    sampling_epochs: None,
                    clip: None,
                    follow: true,
                };
                Box::new(CsgmcmcMethod { config, cycles: Vec::new(), key, batch_noise: None })
            }
        }
    }

    fn largest(self) -> f64 {
        if self == Sampler::Csghmc { TAU * LARGEST } else { LARGEST }
    }
}

/// A run whose epochs are one step each.
struct Course {
    copies: usize,
    shape: Shape,
    warm_up: f64,
    steps: usize,
    /// Samples are taken after every so many steps, from this step on.
    sample_every: u64,
    sample_from: u64,
}

/// Whether the velocity is told of the step size before, or believes that it never changes.
#[derive(Clone, Copy, PartialEq)]
enum Velocity {
    Follows,
    Stays,
}

impl Course {
    /// Cycles of `period` steps, with a sample at the end of each in the second half.
    fn cycles(period: u64, cycles: usize, copies: usize) -> Self {
        let steps = period as usize * cycles;
        Self {
            copies,
            shape: Shape::Cyclical { cycles },
            warm_up: 0.0,
            steps,
            sample_every: period,
            sample_from: steps as u64 / 2,
        }
    }

    /// N times the mean of (w − μ)ᵀ(H + wd)(w − μ)/d, which is the temperature in units of the one
    /// asked for, and its standard error over copies. Every copy starts in equilibrium.
    fn temperature(&self, sampler: Sampler, beta1: f64, velocity: Velocity) -> (f64, f64) {
        let target = regression(ROWS, 4.0, [TAU; 3]);
        let method = sampler.method(beta1, target.wd);
        let (mean, inverse) = target.mean_and_inverse();
        let (d, copies) = (target.dim(), self.copies);
        let clock = Clock { steps_per_epoch: 1, epochs: self.steps };
        let schedules = Schedules {
            step_size: Schedule {
                value: sampler.largest(),
                shape: self.shape.clone(),
                warm_up_epochs: self.warm_up,
            },
            temperature: Schedule::constant(1.0 / (ROWS as f64).sqrt()),
            eta: Schedule::constant(0.0),
            weight_decay: Schedule::constant(1.0),
        };
        let mut arena = Arena::flat(d * copies, method.state_buffers());
        method.start(&mut arena, Key::new(5, 0, Stream::Sampler)).unwrap();
        arena.set_weights(&draws(&mean, &inverse, copies)).unwrap();
        // Var v = 2 k² l / (τ (1 + β₁)), with the first step size; cSGHMC has no τ.
        let tau = if sampler == Sampler::Csghmc { 1.0 } else { TAU };
        let first = schedules.step_size.at(0, clock);
        let sd = (2.0 * first / (ROWS as f64 * tau * (1.0 + beta1))).sqrt();
        let mut v = vec![0.0; d * copies];
        Key::new(9, 0, Stream::Momentum).normals(0, 0, &mut v);
        v.iter_mut().for_each(|v| *v *= sd as f32);
        arena.set_state(0, &v).unwrap();

        let h = |i: usize, j: usize| target.h[i][j] + if i == j { target.wd } else { 0.0 };
        let mut gradient = vec![0.0f32; d * copies];
        let (mut energy, mut count) = (vec![0.0; copies], 0.0);
        for step in 0..self.steps as u64 {
            let mut rates = schedules.at(step, clock);
            if velocity == Velocity::Stays {
                rates.step_size_before = rates.step_size;
            }
            let tick = Tick { step, epoch: step as usize, rates };
            for (g, w) in gradient.chunks_exact_mut(d).zip(arena.weights().chunks_exact(d)) {
                for i in 0..d {
                    let product: f64 = (0..d).map(|j| target.h[i][j] * f64::from(w[j])).sum();
                    g[i] = (product - target.b[i]) as f32;
                }
            }
            arena.set_gradient(&gradient).unwrap();
            method.update(&mut arena, tick);
            if step < self.sample_from || !(step + 1).is_multiple_of(self.sample_every) {
                continue;
            }
            count += 1.0;
            for (energy, w) in energy.iter_mut().zip(arena.weights().chunks_exact(d)) {
                let away = |i: usize| f64::from(w[i]) - mean[i];
                for i in 0..d {
                    *energy += (0..d).map(|j| away(i) * h(i, j) * away(j)).sum::<f64>();
                }
            }
        }
        let each: Vec<f64> = energy.iter().map(|e| e * ROWS as f64 / (count * d as f64)).collect();
        let mean = each.iter().sum::<f64>() / copies as f64;
        let var = each.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / copies as f64;
        (mean, (var / copies as f64).sqrt())
    }

    /// With every sampler the temperature is the one asked for. It would be `wrong` (β₁ = 0.9,
    /// 0.97), within 5 %, if the velocity did not follow the step size: the course can tell the two
    /// apart.
    fn check(&self, wrong: [f64; 2]) {
        for (beta1, wrong) in [0.9, 0.97].into_iter().zip(wrong) {
            let name = format!("β₁ {beta1}, {:?}, {} steps", self.shape, self.steps);
            for sampler in SAMPLERS {
                let (found, error) = self.temperature(sampler, beta1, Velocity::Follows);
                let off = (found - 1.0).abs();
                assert!(
                    off < ALLOWED + 5.0 * error,
                    "{sampler:?}, {name}: {found:.3} ± {error:.3}"
                );
            }
            let (found, error) = self.temperature(Sampler::Csghmc, beta1, Velocity::Stays);
            let off = (found / wrong - 1.0).abs();
            assert!(off < 0.05, "without the factor, {name}: {found:.3} ± {error:.3}");
            assert!((found - 1.0).abs() > ALLOWED + 5.0 * error, "{name}: {found:.3} ± {error:.3}");
        }
    }
}

/// Draws from N(mean, inverse / N), by a Cholesky factor.
fn draws(mean: &[f64], inverse: &[Vec<f64>], copies: usize) -> Vec<f32> {
    let d = mean.len();
    let mut factor = vec![vec![0.0; d]; d];
    for i in 0..d {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
            let rest = inverse[i][j] / ROWS as f64 - sum;
            factor[i][j] = if i == j { rest.sqrt() } else { rest / factor[j][j] };
        }
    }
    let mut normal = vec![0.0; d * copies];
    Key::new(9, 0, Stream::Initial).normals(0, 0, &mut normal);
    let draw = |z: &[f32], i: usize| {
        mean[i] + (0..=i).map(|j| factor[i][j] * f64::from(z[j])).sum::<f64>()
    };
    normal.chunks_exact(d).flat_map(|z| (0..d).map(move |i| draw(z, i) as f32)).collect()
}

#[test]
fn cycles_of_50_steps_keep_the_temperature() {
    Course::cycles(50, 24, 1000).check([1.68, 4.56]);
}

#[test]
fn cycles_of_150_steps_keep_the_temperature() {
    Course::cycles(150, 10, 1500).check([1.38, 2.94]);
}

#[test]
fn cycles_of_1000_steps_keep_the_temperature() {
    Course::cycles(1000, 6, 2000).check([1.12, 1.65]);
}

/// The velocity grows with Δt; left behind, it takes energy from the weights.
#[test]
fn a_warm_up_keeps_the_temperature() {
    Course {
        copies: 6000,
        shape: Shape::Constant,
        warm_up: 100.0,
        steps: 110,
        sample_every: 5,
        sample_from: 40,
    }
    .check([0.934, 0.752]);
}

/// Two drops of the step size to a tenth.
#[test]
fn drops_of_the_step_size_keep_the_temperature() {
    Course {
        copies: 4000,
        shape: Shape::Steps { factor: 0.1, at_epochs: vec![60, 120] },
        warm_up: 0.0,
        steps: 180,
        sample_every: 5,
        sample_from: 60,
    }
    .check([1.48, 2.87]);
}
