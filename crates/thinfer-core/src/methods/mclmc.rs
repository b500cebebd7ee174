//! Microcanonical Langevin Monte Carlo (MCLMC) from an optimised start.

use std::sync::Arc;

use thinfer_data::{Error, Result};
use thinfer_engine::Arena;
use thinfer_engine::noise::Key as NoiseKey;

use super::descent::{Adam, Descent};
use super::registry::{Declaration, When};
use super::walker::{self, Decay, Energy, Part, Target, Walker};
use super::{Method, Tick, Vitals};
use crate::keys::{Kind, key};
use crate::prune::ALIVE;

/// Settings of MCLMC.
///
/// Targets exp(−S), S = (mean loss + ½ wd |w|²) / k²; with k = 1/√N the posterior.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `energy_error` | Var\[E\]/d | 5e-4 | > 0 | biased |
/// | `moves` | | 50 | ≥ 1 | fewer samples for the same work |
/// | `start_share` | | 0.3 | \[0, 0.9\] | starts overfit, if nothing is held out |
/// | `learning_rate` | | 0.01 | > 0 | the start is poor |
#[derive(Clone, Debug, PartialEq)]
pub struct Mclmc {
    /// The variance of the energy of a move, for each dimension.
    pub energy_error: f64,
    /// Moves from one epoch to the next.
    pub moves: usize,
    /// Epochs of Adam before the chain moves.
    pub start_epochs: usize,
    /// The first epoch with a sample; before it step size and scales are learned.
    pub warm_up_epochs: usize,
    /// L/√d: how long a direction is kept, in spreads of the weights.
    pub persistence: f64,
    /// Adam's.
    pub learning_rate: f64,
    /// wd = δ/N
    pub decay: Decay,
}

impl Default for Mclmc {
    fn default() -> Self {
        Self {
            energy_error: 5e-4,
            moves: 50,
            start_epochs: 150,
            warm_up_epochs: 500,
            persistence: 1.0,
            learning_rate: 0.01,
            decay: Decay::default(),
        }
    }
}

/// One ESH update: a unit direction follows the force for a time.
///
/// e = −∇S/|∇S|,  δ = t |∇S| / (d − 1)
/// u ← (u + e (sinh δ + (e·u)(cosh δ − 1))) / (cosh δ + (e·u) sinh δ)
///
/// Returns what the kinetic energy gains, (d − 1) ln(cosh δ + (e·u) sinh δ).
pub fn turn(u: &mut [f64], gradient: &[f64], time: f64) -> f64 {
    let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    let dimensions = u.len() as f64 - 1.0;
    if norm == 0.0 || dimensions == 0.0 {
        return 0.0;
    }
    let along = -u.iter().zip(gradient).map(|(u, g)| u * g).sum::<f64>() / norm;
    let delta = time * norm / dimensions;
    // All divided by e^δ / 2, which would overflow.
    let zeta = (-delta).exp();
    let size = (1.0 + along) + (1.0 - along) * zeta * zeta;
    let (of_u, of_e) = (2.0 * zeta, (1.0 - zeta) * ((1.0 + zeta) + along * (1.0 - zeta)));
    let mut length = 0.0;
    for (u, g) in u.iter_mut().zip(gradient) {
        *u = of_u * *u - of_e * g / norm;
        length += *u * *u;
    }
    // It is `size`, up to rounding.
    let length = length.sqrt();
    u.iter_mut().for_each(|u| *u /= length);
    dimensions * (delta + (0.5 * size).ln())
}

/// A part of the direction is forgotten: u ← (u + ν z) / |u + ν z|, ν = √((e^{2ε/L} − 1)/d).
pub fn refresh(u: &mut [f64], noise: &[f32], share: f64) {
    let nu = ((2.0 * share).exp_m1() / u.len() as f64).sqrt();
    let mut length = 0.0;
    for (u, z) in u.iter_mut().zip(noise) {
        *u += nu * f64::from(*z);
        length += *u * *u;
    }
    let length = length.sqrt();
    u.iter_mut().for_each(|u| *u /= length);
}

/// The times of the minimal-norm splitting of second order (McLachlan 1995): turn, move ½, turn,
/// move ½, turn.
const OUTER: f64 = 0.193_183_327_503_783_6;

/// The fit of the step size: ε ∝ (Var\[E\])^{1/6}, averaged over about so many moves.
const MEMORY: f64 = 150.0;
/// Spread of the logarithm of the energy error at which a move still counts fully.
const TRUST: f64 = 1.5;
/// A step size that is learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepFit {
    /// ε
    pub(super) step: f64,
    /// ε stays below it.
    pub(super) most: f64,
    pub(super) fit: f64,
    pub(super) weight: f64,
}

impl StepFit {
    /// Begins with a step.
    pub(super) fn from(step: f64) -> Self {
        Self { step, most: f64::INFINITY, fit: 0.0, weight: 0.0 }
    }

    /// The step at which the energy error has the variance asked for: a weighted mean of what each
    /// move says of it, in which moves far from it count little (Robnik et al. 2023, appendix).
    /// A move that failed has no error.
    pub(super) fn adapt(&mut self, error: Option<f64>, wanted: f64) {
        let Some(error) = error else {
            self.most = 0.8 * self.step;
            self.step = self.step.min(self.most);
            return;
        };
        let xi = error * error / wanted + 1e-8;
        let weight = (-0.5 * (xi.ln() / (6.0 * TRUST)).powi(2)).exp();
        let memory = (MEMORY - 1.0) / (MEMORY + 1.0);
        self.fit = memory * self.fit + weight * xi / self.step.powi(6);
        self.weight = memory * self.weight + weight;
        self.step = (self.fit / self.weight).powf(-1.0 / 6.0).min(self.most);
    }
}

/// Numbers beside those of each weight.
const SCALARS: usize = 16;
/// Vectors of the length of the weights.
const VECTORS: usize = 6;

/// What a chain keeps, in [`Arena::numbers`].
struct Memory {
    /// The weights in double precision.
    x: Vec<f64>,
    /// The direction, in scaled weights.
    u: Vec<f64>,
    /// The scale of each weight.
    scale: Vec<f64>,
    /// The means of its Adam are the sums of the weights and of their squares afterwards.
    descent: Descent,
    fit: StepFit,
    counted: f64,
    /// Energy errors of the sampling moves: sum of squares and count.
    errors: f64,
    moves: f64,
    failures: f64,
    loss: f64,
}

impl Memory {
    fn read(numbers: &[f64]) -> Option<Self> {
        let d = numbers.len().checked_sub(SCALARS)? / VECTORS;
        let mut parts = numbers.chunks_exact(d.max(1)).map(<[f64]>::to_vec);
        let mut next = || parts.next().unwrap_or_default();
        let (x, u, scale, first, second, best) = (next(), next(), next(), next(), next(), next());
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
                stopped: s[11],
            },
            fit: StepFit { step: s[3], most: s[4], fit: s[5], weight: s[6] },
            counted: s[7],
            errors: s[8],
            moves: s[9],
            failures: s[10],
            loss: s[12],
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
            self.errors,
            self.moves,
            self.failures,
            stopped,
            self.loss,
            0.0,
            0.0,
            0.0,
        ];
        let mut numbers = self.x;
        for part in [self.u, self.scale, first, second, best] {
            numbers.extend(part);
        }
        numbers.extend(scalars);
        numbers
    }
}

/// MCLMC with the key of its noise.
#[derive(Clone, Debug, PartialEq)]
pub struct MclmcMethod {
    /// Settings.
    pub config: Mclmc,
    /// The key of the noise.
    pub key: NoiseKey,
}

/// What an epoch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Adam.
    Start,
    /// The step size is learned.
    Step,
    /// The step size and the scales.
    Scales,
    /// The step size again, for these scales.
    Settle,
    /// Samples.
    Sample,
}

impl MclmcMethod {
    fn phase(&self, epoch: usize) -> Phase {
        let Mclmc { start_epochs, warm_up_epochs, .. } = self.config;
        let tuned = warm_up_epochs.saturating_sub(start_epochs);
        match epoch {
            e if e < start_epochs => Phase::Start,
            e if e >= warm_up_epochs => Phase::Sample,
            e if e < start_epochs + tuned * 3 / 10 => Phase::Step,
            e if e < start_epochs + tuned * 7 / 10 => Phase::Scales,
            _ => Phase::Settle,
        }
    }

    /// Begins to move: from the best start, in a random direction.
    fn begin(&self, m: &mut Memory) {
        let d = m.x.len() as f64;
        m.descent.take_best(&mut m.x);
        let mut noise = vec![0.0f32; m.x.len()];
        self.key.normals(u64::MAX >> 16, 0, &mut noise);
        m.u.fill(0.0);
        m.u[0] = 1.0;
        refresh(&mut m.u, &noise, 20.0);
        m.descent.adam.first.fill(0.0);
        m.descent.adam.second.fill(0.0);
        m.fit = StepFit::from(0.01 * d.sqrt());
    }

    /// From the spread of the weights to their scales.
    fn scale(m: &mut Memory) {
        let n = m.counted.max(1.0);
        let mut ratio = 0.0;
        for i in 0..m.x.len() {
            let mean = m.descent.adam.first[i] / n;
            let variance = (m.descent.adam.second[i] / n - mean * mean).max(0.0);
            // As Stan does: a little towards a small common scale, where there is little to go by.
            let variance = n / (n + 5.0) * variance + 1e-3 * 5.0 / (n + 5.0);
            m.scale[i] = variance.sqrt();
            ratio += 1.0 / variance;
        }
        // The direction is one of scaled weights now, and steps are in their units.
        m.fit = StepFit::from(m.fit.step * (ratio / m.x.len() as f64).sqrt());
    }

    /// One move; `noise` is its number.
    fn walk(
        &self,
        m: &mut Memory,
        noise: u64,
        phase: Phase,
        work: &mut Work<'_, '_>,
    ) -> Result<()> {
        let d = m.x.len() as f64;
        work.before.0.copy_from_slice(&m.x);
        work.before.1.copy_from_slice(&m.u);
        work.before.2.copy_from_slice(&work.gradient);
        let (before, step) = (work.energy, m.fit.step);
        let mut gained = turn(&mut m.u, &work.gradient, OUTER * step);
        for last in [false, true] {
            for i in 0..m.x.len() {
                m.x[i] += 0.5 * step * m.scale[i] * m.u[i];
            }
            work.evaluate(m)?;
            let time = if last { OUTER } else { 1.0 - 2.0 * OUTER };
            gained += turn(&mut m.u, &work.gradient, time * step);
        }
        let error = gained + work.energy - before;
        let failed = !error.is_finite() || m.u.iter().any(|u| !u.is_finite());
        if failed {
            m.x.copy_from_slice(&work.before.0);
            m.u.iter_mut().zip(&work.before.1).for_each(|(u, before)| *u = -before);
            work.gradient.copy_from_slice(&work.before.2);
            work.energy = before;
            m.failures += 1.0;
        }
        if phase != Phase::Sample {
            m.fit.adapt((!failed).then_some(error), self.config.energy_error * d);
        } else if !failed {
            m.errors += error * error;
            m.moves += 1.0;
        }
        self.key.normals(noise, 0, work.noise);
        refresh(&mut m.u, work.noise, step / (self.config.persistence * length(d, phase)));
        if phase == Phase::Scales {
            for i in 0..m.x.len() {
                m.descent.adam.first[i] += m.x[i];
                m.descent.adam.second[i] += m.x[i] * m.x[i];
            }
            m.counted += 1.0;
        }
        Ok(())
    }
}

/// L, after how long a direction is forgotten: √d in scaled weights, whose spread is about one.
/// Before scales are known, weights are taken to spread by a third.
fn length(dimensions: f64, phase: Phase) -> f64 {
    let scaled = !matches!(phase, Phase::Step | Phase::Scales);
    if scaled { dimensions.sqrt() } else { dimensions.sqrt() / 3.0 }
}

/// Where a walk stands, and room for what it needs.
struct Work<'a, 'b> {
    target: &'a mut Energy<'b>,
    energy: f64,
    loss: f64,
    gradient: Vec<f64>,
    before: (Vec<f64>, Vec<f64>, Vec<f64>),
    noise: &'a mut [f32],
}

impl Work<'_, '_> {
    /// S at x, and its gradient in scaled weights.
    fn evaluate(&mut self, m: &Memory) -> Result<()> {
        (self.energy, self.loss) = self.target.at(Part::All, &m.x, &mut self.gradient)?;
        self.gradient.iter_mut().zip(&m.scale).for_each(|(g, scale)| *g *= scale);
        Ok(())
    }
}

impl Walker for MclmcMethod {
    fn step(&self, arena: &mut Arena, tick: Tick, target: &mut dyn Target) -> Result<f64> {
        let numbers = arena.take_numbers();
        let Some(mut m) = Memory::read(&numbers) else { return Ok(f64::NAN) };
        let mut energy = Energy {
            target,
            decay: &self.config.decay,
            decay_factor: tick.rates.decay_factor,
            temperature: tick.rates.temperature.powi(2),
        };
        if tick.step == 0 {
            m.x = arena.weights().iter().map(|w| f64::from(*w)).collect();
            m.scale.fill(1.0);
            m.descent.best_loss = f64::INFINITY;
        }
        let phase = self.phase(tick.epoch);
        if phase == Phase::Start {
            let parts = std::iter::repeat_n(Part::Fitted, self.config.moves);
            m.descent.epoch(&mut m.x, parts, self.config.learning_rate, &mut energy)?;
            let mut gradient = vec![0.0; m.x.len()];
            m.loss = energy.at(Part::All, &m.x, &mut gradient)?.1;
        } else {
            let before = tick.epoch.checked_sub(1).map(|epoch| self.phase(epoch));
            if before.is_none_or(|before| before == Phase::Start) {
                self.begin(&mut m);
            }
            if before == Some(Phase::Scales) && phase != Phase::Scales {
                Self::scale(&mut m);
            }
            let d = m.x.len();
            let mut noise = vec![0.0; d];
            let mut work = Work {
                target: &mut energy,
                energy: 0.0,
                loss: 0.0,
                gradient: vec![0.0; d],
                before: (vec![0.0; d], vec![0.0; d], vec![0.0; d]),
                noise: &mut noise,
            };
            work.evaluate(&m)?;
            for at in 0..self.config.moves as u64 {
                let noise = tick.step * self.config.moves as u64 + at;
                self.walk(&mut m, noise, phase, &mut work)?;
            }
            m.loss = work.loss;
        }
        let loss = m.loss;
        let weights: Vec<f32> = m.x.iter().map(|x| *x as f32).collect();
        arena.set_weights(&weights)?;
        arena.set_numbers(m.write());
        Ok(loss)
    }
}

impl Method for MclmcMethod {
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
        Some("`method.kind = \"mclmc\"` runs on the CPU only; leave out `--device`")
    }

    fn vitals(&self, arena: &Arena, tick: Tick) -> Vitals {
        let step_size = Memory::read(arena.numbers()).map(|m| m.fit.step);
        let effective_temperature = Some(tick.rates.temperature.powi(2));
        Vitals { effective_temperature, step_size, ..Vitals::default() }
    }
}

/// MCLMC as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "mclmc",
    about: "MCLMC: microcanonical Langevin Monte Carlo from an optimised start, for tables",
    page: "docs/mclmc.md",
    reads: &[
        "method.energy_error",
        "method.moves",
        "method.budget_seconds",
        "method.start_share",
        "method.learning_rate",
        "method.persistence",
        "prior.scale",
        "prior.noise_sd",
        "prior.noise_row_sd",
        "schedule.temperature",
    ],
    keys: &[
        key(
            "method.energy_error",
            Kind::NumberAbove(0.0, 1.0),
            "variance of the energy of a move of MCLMC, for each weight; 5e-4",
        ),
        key(
            "method.moves",
            Kind::Integer(1, 1_000_000),
            "moves of MCLMC in an epoch; absent: as many as the budget allows, 5 to 200",
        ),
        key(
            "method.budget_seconds",
            Kind::NumberAbove(0.0, 1e7),
            "seconds that all epochs of MCLMC may take on two cores, about; 120, for tables 100. It \
             says how many moves an epoch has, whatever the machine",
        ),
        key(
            "method.start_share",
            Kind::Number(0.0, 0.9),
            "share of the warm-up of MCLMC in which Adam looks for a start; 0.3",
        ),
        key(
            "method.persistence",
            Kind::NumberAbove(0.0, 1e6),
            "how long MCLMC keeps a direction, in spreads of the weights; 1",
        ),
        key(
            "method.learning_rate",
            Kind::NumberAbove(0.0, 10.0),
            "learning rate of the Adam before MCLMC; 0.01",
        ),
    ],
    defaults: &[
        (
            When::Always,
            r#"
chains = 4
method.energy_error = 5e-4
method.budget_seconds = 120.0
method.start_share = 0.3
method.learning_rate = 0.01
method.persistence = 1.0
schedule.step_size.shape = "constant"
schedule.temperature.value = "1/sqrt(N)"
train.epochs = 4000
train.samples_per_cycle = 100
train.stages = 6
posterior.burn_in = 0.5
"#,
        ),
        (
            When::Table,
            r#"
model.hidden = [50]
model.activation = "tanh"
model.noise = "learned"
model.likelihood = "by-validation"
method.budget_seconds = 100.0
train.samples_per_cycle = 200
train.stages = 5
train.r_hat = 1.015
train.ess = 400.0
prior.sd = 2.5
prior.scale = "fan-in"
prior.noise_sd = 0.2
"#,
        ),
    ],
    check: Some(walker::check),
    network: None,
    kernels: &[],
    build: |setup| {
        let own = &setup.method.own;
        let warm_up_epochs = setup.first_sample_epoch;
        let share = own.number("start_share").unwrap_or(0.3);
        let config = Mclmc {
            energy_error: own.number("energy_error").unwrap_or(5e-4),
            moves: own.whole("moves").unwrap_or_else(|| {
                affordable(
                    own.number("budget_seconds"),
                    Size {
                        multiply_adds: setup.network.multiply_adds(),
                        rows: setup.train_rows,
                        chains: setup.chains,
                        epochs: setup.epochs,
                    },
                )
            }),
            start_epochs: (share * warm_up_epochs as f64) as usize,
            warm_up_epochs,
            persistence: own.number("persistence").unwrap_or(1.0),
            learning_rate: own.number("learning_rate").unwrap_or(0.01),
            decay: Decay::of(setup.prior, setup.network, setup.train_rows),
        };
        if setup.network.params().len() < 2 {
            let problem = "needs a network with two weights or more; give model.hidden";
            return Err(Error::config("method.kind", problem));
        }
        Ok(Arc::new(MclmcMethod { config, key: setup.key }))
    },
};

/// Multiply-adds of a second on two cores, about.
pub const SPEED: f64 = 2e10;

/// What the length of a run follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Multiply-adds of a prediction.
    pub multiply_adds: usize,
    /// Training rows.
    pub rows: usize,
    /// Chains.
    pub chains: usize,
    /// Epochs of each.
    pub epochs: usize,
}

/// The moves in an epoch for which a run takes its budget of seconds, if all of its epochs are
/// needed. It is a function of the settings and of the size of the table, so that every machine has
/// the same run.
pub fn affordable(budget: Option<f64>, size: Size) -> usize {
    // A gradient costs about three times what a prediction does, and a move has two.
    let row = 3.0 * size.multiply_adds as f64;
    let move_of_all = 2.0 * row * size.rows as f64 * size.chains as f64;
    let moves = budget.unwrap_or(BUDGET) * SPEED / f64::max(move_of_all * size.epochs as f64, 1.0);
    (moves as usize).clamp(FEWEST_MOVES, MOST_MOVES)
}

/// Seconds, where none are given.
const BUDGET: f64 = 120.0;
/// With fewer, epochs are too short to forget a sample; with more, a run ends later than it must.
const FEWEST_MOVES: usize = 5;
const MOST_MOVES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// With the formula as it stands, and a time so long that it would overflow in it.
    #[test]
    fn a_turn_is_the_formula_and_bears_long_times() {
        let gradient = [0.3, -1.2, 0.5];
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let before = [0.6, 0.0, 0.8];
        let time = 0.7;
        let delta: f64 = time * norm / 2.0;
        let along = -before.iter().zip(&gradient).map(|(u, g)| u * g).sum::<f64>() / norm;
        let size = delta.cosh() + along * delta.sinh();
        let mut u = before;
        let gained = turn(&mut u, &gradient, time);
        for i in 0..3 {
            let e = -gradient[i] / norm;
            let want = (before[i] + e * (delta.sinh() + along * (delta.cosh() - 1.0))) / size;
            assert!((u[i] - want).abs() < 1e-12, "{} {want}", u[i]);
        }
        assert!((gained - 2.0 * size.ln()).abs() < 1e-12);
        // There and back again.
        assert!((gained + turn(&mut u, &gradient, -time)).abs() < 1e-12);
        assert!(u.iter().zip(&before).all(|(a, b)| (a - b).abs() < 1e-12));
        let gained = turn(&mut u, &gradient, 1e6);
        assert!(gained.is_finite() && u.iter().all(|u| u.is_finite()));
        assert!((u[1] - 1.2 / norm).abs() < 1e-9, "in the end it is the direction of the force");
    }

    #[test]
    fn a_direction_is_forgotten_by_the_share_asked_for() {
        let key = NoiseKey::new(1, 0, thinfer_engine::noise::Stream::Sampler);
        let (d, share) = (2000, 0.25);
        let mut kept = 0.0;
        for at in 0..50 {
            let mut noise = vec![0.0; d];
            key.normals(at, 0, &mut noise);
            let mut u = vec![0.0; d];
            u[0] = 1.0;
            refresh(&mut u, &noise, share);
            kept += u[0] / 50.0;
            assert!((u.iter().map(|u| u * u).sum::<f64>() - 1.0).abs() < 1e-12);
        }
        // 1/√(1 + ν² d) = e^{−ε/L}.
        assert!((kept - (-share).exp()).abs() < 0.01, "{kept}");
    }
}
