//! SMILE: microcanonical Langevin Monte Carlo on mini-batches, from an optimised start.

use std::sync::Arc;

use thinfer_data::{Error, Result};
use thinfer_engine::Arena;
use thinfer_engine::noise::Key as NoiseKey;

use super::descent::{Adam, Descent};
use super::mclmc::{StepFit, turn};
use super::registry::{Declaration, Setup, When};
use super::walker::{self, Decay, Energy, Part, Target, Walker};
use super::{Method, Tick, Vitals};
use crate::keys::{Kind, key};
use crate::prune::ALIVE;

/// Settings of SMILE.
///
/// Targets exp(−S), S = (mean loss + ½ Σ wdᵢ wᵢ²) / k²; with k = 1/√N the posterior.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `batch` | B | 128 | ≥ 1 | fewer moves for the same work |
/// | `noise_share` | | 0.1 | (0, 1\] | biased by mini-batches |
/// | `energy_error` | Var\[E\]/d | 5e-4 | > 0 | biased by long moves |
/// | `start_share` | | 0.3 | \[0, 0.9\] | starts overfit, if nothing is held out |
/// | `learning_rate` | | 0.01 | > 0 | the start is poor |
#[derive(Clone, Debug, PartialEq)]
pub struct Smile {
    /// Rows of a move.
    pub batch: usize,
    /// Training rows: an epoch has a move for each batch of them.
    pub rows: usize,
    /// How much of the forgetting mini-batch noise may do, at most.
    pub noise_share: f64,
    /// The variance of the energy of a move, for each dimension.
    pub energy_error: f64,
    /// Epochs of Adam before the chain moves.
    pub start_epochs: usize,
    /// The first epoch with a sample; before it step size and scales are learned.
    pub warm_up_epochs: usize,
    /// L/√d: how long a direction is kept, in spreads of the weights.
    pub persistence: f64,
    /// Adam's.
    pub learning_rate: f64,
    /// wdᵢ = 1/(sdᵢ² N)
    pub decay: Decay,
}

/// The variance that mini-batches add to each number of a direction in a move of length ε:
/// aᵢ = (ε/(d−1))² Dᵢ² Vᵢ, where V is the variance of ∇S of a batch and D the scales.
pub fn noise_of_a_move(step: f64, scale: &[f64], variance: &[f64]) -> Vec<f64> {
    let rate = step / (scale.len() as f64 - 1.0).max(1.0);
    scale.iter().zip(variance).map(|(d, v)| (rate * d).powi(2) * v).collect()
}

/// A part of the direction is forgotten, with the noise that is there already taken into account:
/// u ← (u + √(c − a) z) / |…|,  c = max(ν², max a),  ν² = (e^{2ε/L} − 1)/d.
///
/// Gradient noise and z together have the variance c in every direction. A microcanonical chain keeps
/// its target under noise that has no direction; noise that has one heats the weights it falls on.
pub fn refresh_beside(u: &mut [f64], z: &[f32], share: f64, noise: &[f64]) {
    let wanted = (2.0 * share).exp_m1() / u.len() as f64;
    let level = noise.iter().fold(wanted, |most, a| most.max(*a));
    let mut length = 0.0;
    for ((u, z), a) in u.iter_mut().zip(z).zip(noise) {
        *u += (level - a).sqrt() * f64::from(*z);
        length += *u * *u;
    }
    let length = length.sqrt();
    u.iter_mut().for_each(|u| *u /= length);
}

/// Numbers beside those of each weight.
const SCALARS: usize = 12;
/// Vectors of the length of the weights.
const VECTORS: usize = 7;

/// What a chain keeps, in [`Arena::numbers`].
struct Memory {
    /// The weights in double precision.
    x: Vec<f64>,
    /// The direction, in scaled weights.
    u: Vec<f64>,
    /// D
    scale: Vec<f64>,
    descent: Descent,
    /// Sums of ½ (difference of ∇S between two batches)², then V.
    variance: Vec<f64>,
    fit: StepFit,
    /// Differences in the sums.
    counted: f64,
    failures: f64,
    loss: f64,
}

impl Memory {
    fn read(numbers: &[f64]) -> Option<Self> {
        let d = numbers.len().checked_sub(SCALARS)? / VECTORS;
        let mut parts = numbers.chunks_exact(d.max(1)).map(<[f64]>::to_vec);
        let mut next = || parts.next().unwrap_or_default();
        let (x, u, scale, first, second, best, variance) =
            (next(), next(), next(), next(), next(), next(), next());
        let s = &numbers[VECTORS * d..];
        Some(Self {
            x,
            u,
            scale,
            descent: Descent {
                adam: Adam { first, second, steps: s[2] },
                best,
                best_loss: s[0],
                since_best: s[1],
                stopped: s[8],
            },
            variance,
            fit: StepFit { step: s[3], most: s[4], fit: s[5], weight: s[6] },
            counted: s[7],
            failures: s[9],
            loss: s[10],
        })
    }

    fn write(self) -> Vec<f64> {
        let StepFit { step, most, fit, weight } = self.fit;
        let Descent { adam, best, best_loss, since_best, stopped } = self.descent;
        let Adam { first, second, steps } = adam;
        let scalars = [
            best_loss,
            since_best,
            steps,
            step,
            most,
            fit,
            weight,
            self.counted,
            stopped,
            self.failures,
            self.loss,
            0.0,
        ];
        let mut numbers = self.x;
        for part in [self.u, self.scale, first, second, best, self.variance] {
            numbers.extend(part);
        }
        numbers.extend(scalars);
        numbers
    }
}

/// SMILE with the key of its noise.
#[derive(Clone, Debug, PartialEq)]
pub struct SmileMethod {
    /// Settings.
    pub config: Smile,
    /// The key of the noise.
    pub key: NoiseKey,
}

/// What an epoch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Adam.
    Start,
    /// The variance of gradients is counted; the chain moves in plain weights.
    Noise,
    /// The step size is learned in scaled weights.
    Step,
    /// Samples.
    Sample,
}

impl SmileMethod {
    fn phase(&self, epoch: usize) -> Phase {
        let Smile { start_epochs, warm_up_epochs, .. } = self.config;
        let tuned = warm_up_epochs.saturating_sub(start_epochs);
        match epoch {
            e if e < start_epochs => Phase::Start,
            e if e >= warm_up_epochs => Phase::Sample,
            e if e < start_epochs + tuned / 2 => Phase::Noise,
            _ => Phase::Step,
        }
    }

    /// The batches of an epoch: all rows once, in an order of its own.
    fn batches(&self, epoch: u64, fitted: bool) -> impl Iterator<Item = Part> + use<> {
        let batch = self.config.batch.clamp(1, self.config.rows.max(1));
        (0..self.config.rows.max(1)).step_by(batch).map(move |first| Part::Batch {
            epoch,
            first,
            rows: batch,
            fitted,
        })
    }

    /// Begins to move: from the best start, in a random direction.
    fn begin(&self, m: &mut Memory) {
        let d = m.x.len();
        m.descent.take_best(&mut m.x);
        let mut noise = vec![0.0f32; d];
        self.key.normals(u64::MAX >> 16, 0, &mut noise);
        m.u.fill(0.0);
        refresh_beside(&mut m.u, &noise, 1.0, &vec![0.0; d]);
        m.variance.fill(0.0);
        m.counted = 0.0;
        m.fit = StepFit::from(0.01 * (d as f64).sqrt());
    }

    /// From sums to V, and from V to scales: D = 1/√(V B/N + wd/k²).
    ///
    /// Near a mode of a likelihood that fits, V B/N is the curvature of S without its prior, so D is
    /// about the spread of the weights.
    fn scale(&self, m: &mut Memory, energy: &Energy<'_>) {
        let share = self.config.batch.min(self.config.rows) as f64 / self.config.rows.max(1) as f64;
        let mut ratio = 0.0;
        for i in 0..m.x.len() {
            m.variance[i] /= m.counted.max(1.0);
            let prior = energy.decay.at(i) * energy.decay_factor / energy.temperature;
            m.scale[i] = 1.0 / (m.variance[i] * share + prior).max(1e-12).sqrt();
            ratio += 1.0 / (m.scale[i] * m.scale[i]);
        }
        // The direction is one of scaled weights now, and steps are in their units.
        m.fit = StepFit::from(m.fit.step * (ratio / m.x.len() as f64).sqrt());
        self.limit(m);
    }

    /// Mini-batch noise may do its share of the forgetting and no more:
    /// Σ a ≤ share · 2ε/L, with Σ a in proportion to ε².
    fn limit(&self, m: &mut Memory) {
        let of_one: f64 = noise_of_a_move(1.0, &m.scale, &m.variance).iter().sum();
        let length = self.config.persistence * (m.x.len() as f64).sqrt();
        let most = 2.0 * self.config.noise_share / (length * of_one.max(f64::MIN_POSITIVE));
        m.fit.most = m.fit.most.min(most);
        m.fit.step = m.fit.step.min(m.fit.most);
    }

    /// One move on a batch; `number` is that of its noise, `next` another batch.
    ///
    /// x ← x + ½ ε D u,  turn for the time ε along ∇S of the batch,  x ← x + ½ ε D u,  refresh
    fn walk(
        &self,
        m: &mut Memory,
        number: u64,
        parts: [Part; 2],
        phase: Phase,
        work: &mut Work<'_, '_>,
    ) -> Result<()> {
        let (d, step) = (m.x.len() as f64, m.fit.step);
        let tunes = phase != Phase::Sample;
        let (x_before, u_before) = (m.x.clone(), m.u.clone());
        let before = if tunes { work.energy(parts[0], &m.x)? } else { 0.0 };
        drift(m, 0.5 * step);
        let (_, loss) = work.target.at(parts[0], &m.x, &mut work.gradient)?;
        if phase == Phase::Noise {
            work.target.at(parts[1], &m.x, &mut work.other)?;
            for i in 0..m.x.len() {
                m.variance[i] += 0.5 * (work.gradient[i] - work.other[i]).powi(2);
            }
            m.counted += 1.0;
        }
        work.gradient.iter_mut().zip(&m.scale).for_each(|(g, scale)| *g *= scale);
        let gained = turn(&mut m.u, &work.gradient, step);
        drift(m, 0.5 * step);
        let after = if tunes { work.energy(parts[0], &m.x)? } else { 0.0 };
        let error = gained + after - before;
        let finite = error.is_finite() && m.u.iter().chain(&m.x).all(|value| value.is_finite());
        if finite {
            m.loss += loss;
        } else {
            m.x = x_before;
            m.u = u_before;
            m.u.iter_mut().for_each(|u| *u = -*u);
            m.failures += 1.0;
        }
        if tunes {
            m.fit.adapt(finite.then_some(error), self.config.energy_error * d);
        }
        let noise = match phase {
            Phase::Start | Phase::Noise => vec![0.0; m.x.len()],
            Phase::Step | Phase::Sample => noise_of_a_move(step, &m.scale, &m.variance),
        };
        self.key.normals(number, 0, &mut work.noise);
        let length = self.config.persistence * d.sqrt();
        refresh_beside(&mut m.u, &work.noise, step / length, &noise);
        Ok(())
    }
}

/// x ← x + t D u
fn drift(m: &mut Memory, time: f64) {
    for ((x, u), scale) in m.x.iter_mut().zip(&m.u).zip(&m.scale) {
        *x += time * scale * u;
    }
}

/// What a walk needs beside where it stands.
struct Work<'a, 'b> {
    target: &'a mut Energy<'b>,
    gradient: Vec<f64>,
    other: Vec<f64>,
    noise: Vec<f32>,
}

impl Work<'_, '_> {
    /// S of a batch.
    fn energy(&mut self, part: Part, x: &[f64]) -> Result<f64> {
        Ok(self.target.at(part, x, &mut self.other)?.0)
    }
}

impl Walker for SmileMethod {
    fn step(&self, arena: &mut Arena, tick: Tick, target: &mut dyn Target) -> Result<f64> {
        let numbers = arena.take_numbers();
        let Some(mut m) = Memory::read(&numbers) else { return Ok(f64::NAN) };
        let mut energy = Energy {
            target,
            decay: &self.config.decay,
            decay_factor: tick.rates.decay_factor,
            temperature: tick.rates.temperature.powi(2),
        };
        let d = m.x.len();
        if tick.step == 0 {
            m.x = arena.weights().iter().map(|w| f64::from(*w)).collect();
            m.scale.fill(1.0);
            m.descent.best_loss = f64::INFINITY;
        }
        let phase = self.phase(tick.epoch);
        if phase == Phase::Start {
            let parts = self.batches(tick.step, true);
            m.descent.epoch(&mut m.x, parts, self.config.learning_rate, &mut energy)?;
            m.loss = energy.at(Part::All, &m.x, &mut vec![0.0; d])?.1;
        } else {
            let before = tick.epoch.checked_sub(1).map(|epoch| self.phase(epoch));
            if before.is_none_or(|before| before == Phase::Start) {
                self.begin(&mut m);
            }
            if before == Some(Phase::Noise) && phase != Phase::Noise {
                self.scale(&mut m, &energy);
            }
            m.loss = 0.0;
            let mut work = Work {
                target: &mut energy,
                gradient: vec![0.0; d],
                other: vec![0.0; d],
                noise: vec![0.0; d],
            };
            let parts: Vec<Part> = self.batches(tick.step, false).collect();
            for (at, part) in parts.iter().enumerate() {
                let number = tick.step * parts.len() as u64 + at as u64;
                let next = parts[(at + 1) % parts.len()];
                self.walk(&mut m, number, [*part, next], phase, &mut work)?;
            }
            m.loss /= parts.len() as f64;
        }
        let loss = m.loss;
        let weights: Vec<f32> = m.x.iter().map(|x| *x as f32).collect();
        arena.set_weights(&weights)?;
        arena.set_numbers(m.write());
        Ok(loss)
    }
}

impl Method for SmileMethod {
    fn state_buffers(&self) -> usize {
        0
    }

    fn numbers(&self, weights: usize) -> usize {
        VECTORS * weights + SCALARS
    }

    fn adds_noise(&self) -> bool {
        true
    }

    fn start(&self, arena: &mut Arena, _key: NoiseKey) -> Result<()> {
        arena.set_marks(&vec![ALIVE; arena.len()])?;
        Ok(())
    }

    fn walker(&self) -> Option<&dyn Walker> {
        Some(self)
    }

    fn update(&self, _arena: &mut Arena, _tick: Tick) {}

    fn needs_host(&self) -> Option<&'static str> {
        Some("`method.kind = \"smile\"` runs on the CPU only; leave out `--device`")
    }

    fn vitals(&self, arena: &Arena, tick: Tick) -> Vitals {
        let step_size = Memory::read(arena.numbers()).map(|m| m.fit.step);
        let effective_temperature = Some(tick.rates.temperature.powi(2));
        Vitals { effective_temperature, step_size, ..Vitals::default() }
    }
}

/// SMILE as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "smile",
    about: "SMILE: MCLMC on mini-batches from an optimised start, for large tables",
    page: "docs/smile.md",
    reads: &[
        "method.noise_share",
        "method.energy_error",
        "method.start_share",
        "method.learning_rate",
        "method.persistence",
        "prior.scale",
        "prior.noise_sd",
        "prior.noise_row_sd",
        "schedule.temperature",
    ],
    keys: &[key(
        "method.noise_share",
        Kind::NumberAbove(0.0, 1.0),
        "share of what SMILE forgets of a direction that mini-batch noise may do; 0.1",
    )],
    defaults: &[
        (
            When::Always,
            r#"
chains = 4
train.batch = 128
method.noise_share = 0.1
method.energy_error = 5e-4
method.start_share = 0.3
method.learning_rate = 0.01
method.persistence = 1.0
schedule.step_size.shape = "constant"
schedule.temperature.value = "1/sqrt(N)"
train.epochs = 800
train.samples_per_cycle = 25
train.stages = 5
posterior.burn_in = 0.5
"#,
        ),
        (
            When::Table,
            r#"
model.hidden = [50]
model.activation = "tanh"
model.noise = "learned"
prior.sd = 1.2
prior.scale = "fan-in"
prior.noise_sd = 0.2
"#,
        ),
    ],
    check: Some(walker::check),
    network: None,
    kernels: &[],
    build,
};

fn build(setup: &Setup<'_>) -> Result<Arc<dyn Method>> {
    let own = &setup.method.own;
    let warm_up_epochs = setup.first_sample_epoch;
    let share = own.number("start_share").unwrap_or(0.3);
    if setup.network.params().len() < 2 {
        let problem = "needs a network with two weights or more; give model.hidden";
        return Err(Error::config("method.kind", problem));
    }
    let config = Smile {
        batch: setup.batch,
        rows: setup.train_rows,
        noise_share: own.number("noise_share").unwrap_or(0.1),
        energy_error: own.number("energy_error").unwrap_or(5e-4),
        start_epochs: (share * warm_up_epochs as f64) as usize,
        warm_up_epochs,
        persistence: own.number("persistence").unwrap_or(1.0),
        learning_rate: own.number("learning_rate").unwrap_or(0.01),
        decay: Decay::of(setup.prior, setup.network, setup.train_rows),
    };
    Ok(Arc::new(SmileMethod { config, key: setup.key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradient noise and injected noise together have one variance in every direction.
    #[test]
    fn refreshing_leaves_room_for_the_noise_that_is_there() {
        let (scale, variance) = ([1.0, 0.5, 2.0, 1.0], [400.0, 100.0, 25.0, 0.0]);
        let noise = noise_of_a_move(0.03, &scale, &variance);
        // (ε/(d−1))² D² V
        assert!((noise[0] - 1e-4 * 400.0).abs() < 1e-12 && noise[3] == 0.0);
        assert!((noise[1] - 1e-4 * 25.0).abs() < 1e-12 && (noise[2] - 1e-4 * 100.0).abs() < 1e-12);
        let spread = |share: f64| -> Vec<f64> {
            let n = 40_000;
            let key = NoiseKey::new(3, 0, thinfer_engine::noise::Stream::Sampler);
            let mut sums = vec![0.0; 4];
            for at in 0..n {
                let mut z = [0.0; 4];
                key.normals(at, 0, &mut z);
                // Its length is far above that of the noise, and lies in no direction of it.
                let mut u = vec![0.0; 4];
                let far = 1e6;
                u.push(far);
                let mut longer = z.to_vec();
                longer.push(0.0);
                let mut beside = noise.clone();
                beside.push(0.0);
                refresh_beside(&mut u, &longer, share, &beside);
                for i in 0..4 {
                    sums[i] += (u[i] * far).powi(2) / n as f64;
                }
            }
            sums
        };
        // ν² = (e^{2·0.1} − 1)/5 = 0.0443 is above all of the noise, and e^{0.02}/5 is not.
        for (share, level) in [(0.1, 0.2f64.exp_m1() / 5.0), (0.01, noise[0])] {
            for (i, found) in spread(share).iter().enumerate() {
                let want = level - noise[i];
                assert!((found - want).abs() < 0.03 * level, "{share} {i}: {found} {want}");
            }
        }
    }

    #[test]
    fn an_epoch_has_every_batch_once() {
        use Phase::{Noise, Sample, Start, Step};
        let config = Smile {
            batch: 32,
            rows: 100,
            noise_share: 0.1,
            energy_error: 5e-4,
            start_epochs: 3,
            warm_up_epochs: 13,
            persistence: 1.0,
            learning_rate: 0.01,
            decay: Decay::default(),
        };
        let key = NoiseKey::new(3, 0, thinfer_engine::noise::Stream::Sampler);
        let method = SmileMethod { config, key };
        let parts: Vec<Part> = method.batches(7, false).collect();
        assert_eq!(parts.len(), 4);
        assert_eq!(parts[3], Part::Batch { epoch: 7, first: 96, rows: 32, fitted: false });
        let phases: Vec<Phase> = [2, 3, 7, 8, 12, 13].map(|epoch| method.phase(epoch)).into();
        assert_eq!(phases, [Start, Noise, Noise, Step, Step, Sample]);
    }
}
