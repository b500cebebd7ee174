//! cSGLD and cSGHMC: cyclical stochastic-gradient MCMC (Zhang, Li, Zhang, Chen & Wilson, 2020).

use std::ops::Range;
use std::sync::Arc;

use thinfer_data::Result;
use thinfer_engine::noise::Key;
use thinfer_engine::{Arena, Chunk, Clip, Pass, vectorize};

use super::batch_noise::{self, BatchNoise, Shape};
use super::kernels::{self, CsgmcmcScalars, Kernel, Scalars};
use super::registry::{Declaration, Setup, When};
use super::sghmc::NoiseRule;
use super::{Method, SMALLEST_FOLLOWED, Tick, Vitals, follow};
use crate::keys::{Kind, MOST, key};
use crate::prune::{ALIVE, KEEP};

/// Settings of cSGHMC; without momentum it is cSGLD and keeps no velocity.
///
/// Targets exp(−L(w) / k²), `L = mean loss + ½ wd |w|²`, in the sampling epochs, up to the
/// step-size factor 2(1+β) / (2(1+β) − lr λ) of a direction with curvature λ. In the other epochs
/// of a cycle there is no noise, and the step is SGD with momentum.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `momentum` | β = 1 − a | 0.1, cSGLD 0 | [0, 1) | oscillates |
/// | `weight_decay` | wd = δ/N | 2e-4 | ≥ 0 | underfits |
/// | `sampling_epochs` | | all | ≥ 1 | less time without noise to find a mode |
/// | `clip` | | 10 on tables, else none | > 0 | no effect |
#[derive(Clone, Debug, PartialEq)]
pub struct Csgmcmc {
    /// β = 1 − a, where a is the friction.
    pub momentum: f64,
    /// wd = δ/N
    pub weight_decay: f64,
    /// How many epochs at the end of each cycle have noise; `None` is all of them.
    pub sampling_epochs: Option<usize>,
    /// The largest norm of the data gradient; a longer one is scaled down to it.
    ///
    /// Deviation: the authors' program has no limit. On tables `exact` sets one of 10 for warm
    /// restarts, see docs/em-mcmc.md.
    pub clip: Option<f64>,
    /// Whether u follows the step size in the steps with noise.
    pub follow: bool,
}

/// State buffer of the velocity u, where there is momentum.
pub const VELOCITY: usize = 0;

/// The numbers of one step, the same for every weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coeffs {
    /// β, times √(lr/lr₋) where u follows the step size.
    pub momentum: f32,
    /// lr
    pub rate: f32,
    /// wd
    pub decay: f32,
    /// s = √(2 lr (1−β)) k, or 0 where there is no noise.
    pub noise: f32,
}

impl Coeffs {
    /// lr/s, which makes the noise of a gradient one in units of the injected noise; 0 where none
    /// is injected.
    fn batch_scale(&self) -> f32 {
        if self.noise > 0.0 { self.rate / self.noise } else { 0.0 }
    }
}

/// The new velocity of one weight.
///
/// u ← β √(lr/lr₋) u − lr (g + wd w) + s ε,  s = √(2 lr (1−β) T),  T = k²
///
/// Deviation: the authors' program has no factor √(lr/lr₋), with lr₋ the step size of the step
/// before. u has the stationary variance 2 lr T / (1+β), so that without the factor the energy of
/// large steps heats the samples taken at small ones. In steps without noise, and in the presets
/// that follow paper or program, the factor is 1.
#[inline(always)]
fn velocity(c: &Coeffs, u: f32, w: f32, g: f32, eps: f32) -> f32 {
    c.momentum * u - c.rate * (g + c.decay * w) + c.noise * eps
}

/// One step with the noise given: u as in the line above, then w ← w + u. Without a velocity
/// (cSGLD, β = 0) `u` is empty. `factor` shortens the gradient where it is clipped.
///
/// Targets exp(−L / T): the noise has q = 2 (1−β) lr T, which is what the temperature T asks for at
/// any lr and β.
#[inline(always)]
pub fn step(c: &Coeffs, w: &mut [f32], u: &mut [f32], g: &[f32], factor: f32, eps: &[f32]) {
    let n = w.len();
    let (g, eps) = (&g[..n], &eps[..n]);
    if u.is_empty() {
        for i in 0..n {
            w[i] += velocity(c, 0.0, w[i], factor * g[i], eps[i]);
        }
    } else {
        let u = &mut u[..n];
        for i in 0..n {
            u[i] = velocity(c, u[i], w[i], factor * g[i], eps[i]);
            w[i] += u[i];
        }
    }
}

/// Elements whose noise is made at once: one tile of [`Key::normals`].
const PIECE: usize = 128;

struct Update {
    coeffs: Coeffs,
    key: Key,
    step: u64,
    clip: Option<f64>,
    /// Whether there is a velocity.
    moves: bool,
    /// The shape of the noise, and the state buffer of b, where mini-batch noise is accounted for.
    shape: Option<(Shape, usize)>,
}

impl Update {
    /// Where the gradient is limited.
    fn limit(&self) -> Option<Clip> {
        self.clip.map(|most| Clip { most, among: KEEP, except: 0 })
    }
}

impl Pass for Update {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        let Self { coeffs, key, step, .. } = *self;
        let kernel = kernels::csgmcmc(coeffs.momentum > 0.0);
        Some((kernel, CsgmcmcScalars { coeffs, key, step }.words()))
    }

    fn clip(&self) -> Option<Clip> {
        self.limit()
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        let mut eps = [0.0; PIECE];
        for start in (0..chunk.weights.len()).step_by(PIECE) {
            let end = (start + PIECE).min(chunk.weights.len());
            let eps = &mut eps[..end - start];
            if self.coeffs.noise > 0.0 {
                self.key.normals(self.step, chunk.first + start, eps);
            }
            if let Some((shape, buffer)) = self.shape {
                let scale = shape.along * shape.finite * chunk.factor * self.coeffs.batch_scale();
                for (eps, b) in eps.iter_mut().zip(&chunk.state[buffer][start..end]) {
                    *eps = shape.across * *eps + scale * b;
                }
            }
            let u = chunk.state.get_mut(VELOCITY).filter(|_| self.moves);
            let u = u.map_or(&mut [][..], |u| &mut u[start..end]);
            let (w, g) = (&mut chunk.weights[start..end], &chunk.gradient[start..end]);
            vectorize(
                #[inline(always)]
                || step(&self.coeffs, w, u, g, chunk.factor, eps),
            );
        }
    }
}

/// The sampler with the cycles of its run and the key of its noise.
#[derive(Clone, Debug, PartialEq)]
pub struct CsgmcmcMethod {
    /// Settings.
    pub config: Csgmcmc,
    /// The epochs of each cycle.
    pub cycles: Vec<Range<usize>>,
    /// The key of the noise.
    pub key: Key,
    /// Accounts for mini-batch noise, where it does.
    pub batch_noise: Option<BatchNoise>,
}

impl CsgmcmcMethod {
    /// Whether the steps of an epoch have noise.
    pub fn samples(&self, epoch: usize) -> bool {
        let Some(last) = self.config.sampling_epochs else { return true };
        let cycle = self.cycles.iter().find(|cycle| cycle.contains(&epoch));
        cycle.is_some_and(|cycle| epoch + last >= cycle.end)
    }

    /// Whether there is a velocity.
    fn moves(&self) -> bool {
        self.config.momentum > 0.0
    }

    fn coeffs(&self, tick: Tick) -> Coeffs {
        let (config, rates) = (&self.config, tick.rates);
        let smallest = if config.follow { SMALLEST_FOLLOWED } else { 0.0 };
        let size = rates.step_size.max(smallest);
        let noise = (2.0 * size * (1.0 - config.momentum)).sqrt() * rates.temperature;
        let samples = self.samples(tick.epoch);
        // SGD's momentum, without noise, has no temperature to keep.
        let follows = config.follow && samples;
        Coeffs {
            momentum: (config.momentum * if follows { follow(&rates) } else { 1.0 }) as f32,
            rate: rates.step_size as f32,
            decay: (config.weight_decay * rates.decay_factor) as f32,
            noise: if samples { noise as f32 } else { 0.0 },
        }
    }
}

impl Method for CsgmcmcMethod {
    fn state_buffers(&self) -> usize {
        usize::from(self.moves()) + usize::from(self.batch_noise.is_some())
    }

    fn numbers(&self, _weights: usize) -> usize {
        self.batch_noise.map_or(0, |_| BatchNoise::NUMBERS)
    }

    fn batch_noise(&self, tick: Tick) -> Option<&BatchNoise> {
        let noisy = self.samples(tick.epoch) && tick.rates.temperature > 0.0;
        self.batch_noise.as_ref().filter(|_| noisy)
    }

    fn needs_host(&self) -> Option<&'static str> {
        self.batch_noise.map(|_| batch_noise::NEEDS_HOST)
    }

    fn adds_noise(&self) -> bool {
        true
    }

    fn start(&self, arena: &mut Arena, _key: Key) -> Result<()> {
        arena.set_marks(&vec![ALIVE; arena.len()])?;
        Ok(())
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        let coeffs = self.coeffs(tick);
        let (key, step, clip) = (self.key, tick.step, self.config.clip);
        let mut update = Update { coeffs, key, step, clip, moves: self.moves(), shape: None };
        if let Some(noise) = self.batch_noise(tick) {
            // A gradient that is shortened has less noise.
            let scale = arena.clip_factor(update.limit()) * coeffs.batch_scale();
            let shape = noise.shape(arena, tick, (key, step), |_, _| scale);
            update.shape = Some((shape, noise.buffer));
        }
        arena.run(&update);
    }

    fn epoch(&self, arena: &mut Arena, _tick: Tick) {
        if self.batch_noise.is_some() {
            BatchNoise::begin_epoch(arena);
        }
    }

    fn recorded(&self, arena: &mut Arena) {
        if self.batch_noise.is_some() {
            BatchNoise::recorded(arena);
        }
    }

    fn vitals(&self, arena: &Arena, tick: Tick) -> Vitals {
        let noise = if self.samples(tick.epoch) { tick.rates.temperature } else { 0.0 };
        let vitals = Vitals { effective_temperature: Some(noise * noise), ..Vitals::default() };
        self.batch_noise.map_or(vitals, |_| BatchNoise::vitals(arena, vitals))
    }
}

/// cSGLD as a configuration knows it.
pub const CSGLD: Declaration = Declaration {
    name: "csgld",
    about: "cSGLD: Langevin dynamics with a cyclical step size",
    page: "docs/csgmcmc.md",
    reads: &["method.batch_noise", "method.sampling_epochs", "method.clip", "schedule.temperature"],
    keys: &[key(
        "method.sampling_epochs",
        Kind::Integer(1, MOST),
        "epochs with noise at the end of each cycle of cSGLD and cSGHMC; absent: all",
    )],
    defaults: DEFAULTS,
    check: Some(batch_noise::check),
    network: None,
    kernels: &[kernels::csgmcmc(false)],
    build: |setup| Ok(build(setup, 0.0)),
};

/// cSGHMC as a configuration knows it. It shares the keys of cSGLD.
pub const CSGHMC: Declaration = Declaration {
    name: "csghmc",
    about: "cSGHMC: the same with momentum",
    page: "docs/csgmcmc.md",
    reads: &[
        "method.beta1",
        "method.noise",
        "method.batch_noise",
        "method.sampling_epochs",
        "method.clip",
        "schedule.temperature",
    ],
    keys: &[],
    defaults: DEFAULTS,
    check: Some(batch_noise::check),
    network: None,
    kernels: &[kernels::csgmcmc(true)],
    build: |setup| Ok(build(setup, setup.method.beta1)),
};

/// The settings of the authors' program.
const DEFAULTS: &[(When, &str)] = &[(
    When::Images,
    "
method.sampling_epochs = 5
schedule.step_size.value = 0.5
",
)];

fn build(setup: &Setup<'_>, momentum: f64) -> Arc<dyn Method> {
    let method = setup.method;
    let config = Csgmcmc {
        momentum,
        weight_decay: setup.prior.weight_decay,
        sampling_epochs: method.own.whole("sampling_epochs"),
        clip: method.clip,
        follow: method.noise == NoiseRule::Exact,
    };
    let batch_noise = BatchNoise::of(setup, usize::from(momentum > 0.0));
    Arc::new(CsgmcmcMethod { config, cycles: setup.cycles.clone(), key: setup.key, batch_noise })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Rates, sgd};
    use thinfer_engine::noise::Stream;

    fn method(momentum: f64) -> CsgmcmcMethod {
        let config = Csgmcmc {
            momentum,
            weight_decay: 1e-2,
            sampling_epochs: Some(5),
            clip: None,
            follow: true,
        };
        let cycles = vec![0..50, 50..100, 100..150, 150..200];
        let key = Key::new(3, 0, Stream::Sampler);
        CsgmcmcMethod { config, cycles, key, batch_noise: None }
    }

    /// methods.md section 5: noise where (epoch mod 50) + 1 > 45.
    #[test]
    fn the_last_epochs_of_a_cycle_have_noise() {
        let method = method(0.1);
        for epoch in 0..200 {
            assert_eq!(method.samples(epoch), epoch % 50 + 1 > 45, "epoch {epoch}");
        }
        let always = Csgmcmc { sampling_epochs: None, ..method.config.clone() };
        assert!(CsgmcmcMethod { config: always, ..method }.samples(0));
    }

    /// u = −lr buf, so outside the sampling epochs the step is SGD's; lr is a power of two, for
    /// which the two round alike.
    #[test]
    fn without_noise_it_is_sgd_with_momentum() {
        for momentum in [0.0, 0.75] {
            let method = method(momentum);
            let mut arena = Arena::flat(300, method.state_buffers());
            method.start(&mut arena, method.key).unwrap();
            let mut w: Vec<f32> = (0..300).map(|i| (i as f32 - 150.0) / 64.0).collect();
            arena.set_weights(&w).unwrap();
            let mut buf = vec![0.0; 300];
            let c = sgd::Coeffs {
                momentum: momentum as f32,
                decay: 1e-2,
                rate: 0.125,
                nesterov: false,
            };
            let rates = Rates {
                step_size: 0.125,
                step_size_before: 0.125,
                temperature: 0.5,
                eta: 0.0,
                decay_factor: 1.0,
            };
            for at in 0..20 {
                let g: Vec<f32> = w.iter().map(|w| 0.3 * w).collect();
                arena.set_gradient(&g).unwrap();
                method.update(&mut arena, Tick { step: at, epoch: 7, rates });
                sgd::step(&c, &mut w, &mut buf, &g);
                assert_eq!(arena.weights(), w, "step {at}, momentum {momentum}");
            }
            method.update(&mut arena, Tick { step: 20, epoch: 48, rates });
            let g = arena.gradient().to_vec();
            sgd::step(&c, &mut w, &mut buf, &g);
            assert!(arena.weights().iter().zip(&w).all(|(a, b)| a != b), "no noise came");
        }
    }

    /// u follows the step size where there is noise; SGD's momentum does not.
    #[test]
    fn the_velocity_follows_the_step_size_in_epochs_with_noise_alone() {
        let rates = Rates {
            step_size: 0.125,
            step_size_before: 0.5,
            temperature: 0.5,
            eta: 0.0,
            decay_factor: 1.0,
        };
        let memory = |method: &CsgmcmcMethod, epoch: usize| {
            method.coeffs(Tick { step: 9, epoch, rates }).momentum
        };
        let follows = method(0.75);
        assert_eq!(
            [44, 45, 49, 50].map(|epoch| memory(&follows, epoch)),
            [0.75, 0.375, 0.375, 0.75]
        );
        let config = Csgmcmc { follow: false, ..follows.config.clone() };
        assert_eq!(memory(&CsgmcmcMethod { config, ..follows }, 49), 0.75);
    }

    #[test]
    fn langevin_keeps_no_velocity() {
        assert_eq!((method(0.0).state_buffers(), method(0.1).state_buffers()), (0, 1));
    }
}
