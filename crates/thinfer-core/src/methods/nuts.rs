//! The No-U-Turn sampler in double precision: the reference for small networks.

use std::sync::Arc;

use thinfer_data::Result;
use thinfer_engine::Arena;
use thinfer_engine::noise::{Key as NoiseKey, Stream};

use super::registry::{Declaration, When};
use super::walker::{self, Decay, Energy, Part, Target, Walker};
use super::{Method, Tick, Vitals};
use crate::keys::{Kind, key};
use crate::prune::ALIVE;

/// Settings of NUTS.
///
/// Targets exp(−S), S = (mean loss + ½ wd |w|²) / k²; with k = 1/√N the posterior.
///
/// | name | default | range | too large |
/// |---|---|---|---|
/// | `acceptance` | 0.8 | (0, 1) | small steps, long trees |
/// | `most_doublings` | 10 | 1 to 20 | a transition may take 2^`most_doublings` gradients |
#[derive(Clone, Debug, PartialEq)]
pub struct Nuts {
    /// The mean acceptance that the step size is learned for.
    pub acceptance: f64,
    /// Doublings of a trajectory at most.
    pub most_doublings: usize,
    /// The first epoch with a sample; before it step size and scales are learned.
    pub warm_up_epochs: usize,
    /// wd = δ/N
    pub decay: Decay,
}

impl Default for Nuts {
    fn default() -> Self {
        Self { acceptance: 0.8, most_doublings: 10, warm_up_epochs: 1000, decay: Decay::default() }
    }
}

/// A larger error of the energy ends a trajectory.
const DIVERGED: f64 = 1000.0;
/// Dual averaging of the step size (Hoffman & Gelman 2014, section 3.2).
const GAMMA: f64 = 0.05;
const T0: f64 = 10.0;
const KAPPA: f64 = 0.75;
/// Transitions before the scales are first learned, of the first window in which they are, and
/// after the last one: those of Stan.
const FIRST: usize = 75;
const WINDOW: usize = 25;
const LAST: usize = 50;
/// Vectors of the length of the weights, and numbers beside them, that a chain keeps.
const VECTORS: usize = 4;
const SCALARS: usize = 10;

/// What a chain keeps, in [`Arena::numbers`].
struct Memory {
    /// The weights in double precision.
    x: Vec<f64>,
    /// The variance of each weight, as far as it is known.
    variance: Vec<f64>,
    /// Mean, and sum of squared distances from it, of the weights in this window.
    mean: Vec<f64>,
    squares: Vec<f64>,
    counted: f64,
    /// ln ε, what it is drawn to, its average, the mean shortfall of the acceptance, and steps.
    log_step: f64,
    centre: f64,
    average: f64,
    shortfall: f64,
    steps: f64,
    /// Of the transitions that made samples: those that diverged, and the sum of acceptances.
    diverged: f64,
    accepted: f64,
    transitions: f64,
    doublings: f64,
}

impl Memory {
    fn read(numbers: &[f64]) -> Option<Self> {
        let d = numbers.len().checked_sub(SCALARS)? / VECTORS;
        let part = |at: usize| numbers[at * d..(at + 1) * d].to_vec();
        let s = &numbers[VECTORS * d..];
        Some(Self {
            x: part(0),
            variance: part(1),
            mean: part(2),
            squares: part(3),
            counted: s[0],
            log_step: s[1],
            centre: s[2],
            average: s[3],
            shortfall: s[4],
            steps: s[5],
            diverged: s[6],
            accepted: s[7],
            transitions: s[8],
            doublings: s[9],
        })
    }

    fn write(self) -> Vec<f64> {
        let mut numbers = self.x;
        for part in [self.variance, self.mean, self.squares] {
            numbers.extend(part);
        }
        numbers.extend([
            self.counted,
            self.log_step,
            self.centre,
            self.average,
            self.shortfall,
            self.steps,
            self.diverged,
            self.accepted,
            self.transitions,
            self.doublings,
        ]);
        numbers
    }

    /// Begins to learn the step size anew, from `step`.
    fn learn_step(&mut self, step: f64) {
        self.log_step = step.ln();
        self.centre = (10.0 * step).ln();
        (self.average, self.shortfall, self.steps) = (0.0, 0.0, 0.0);
    }

    /// Dual averaging: ln ε ← μ − √t/γ · H̄, and its average.
    fn accept(&mut self, acceptance: f64, wanted: f64) {
        self.steps += 1.0;
        let t = self.steps;
        let share = 1.0 / (t + T0);
        self.shortfall += share * (wanted - acceptance - self.shortfall);
        self.log_step = self.centre - t.sqrt() / GAMMA * self.shortfall;
        let weight = t.powf(-KAPPA);
        self.average = weight * self.log_step + (1.0 - weight) * self.average;
    }

    /// Counts the weights in (Welford).
    fn count(&mut self) {
        self.counted += 1.0;
        for i in 0..self.x.len() {
            let before = self.x[i] - self.mean[i];
            self.mean[i] += before / self.counted;
            self.squares[i] += before * (self.x[i] - self.mean[i]);
        }
    }

    /// Takes over the variances of a window, a little towards a small common one, as Stan does.
    fn end_window(&mut self) {
        let n = self.counted;
        for (variance, squares) in self.variance.iter_mut().zip(&self.squares) {
            *variance = n / (n + 5.0) * (squares / (n - 1.0).max(1.0)) + 1e-3 * 5.0 / (n + 5.0);
        }
        self.mean.fill(0.0);
        self.squares.fill(0.0);
        self.counted = 0.0;
    }
}

/// Whether the scales are learned in this transition, and whether a window ends with it.
fn window(epoch: usize, warm_up: usize) -> (bool, bool) {
    let (first, last, base) = if warm_up < FIRST + WINDOW + LAST {
        // As Stan shortens them: 15 %, 75 % and 10 %.
        let (first, last) = (warm_up * 15 / 100, warm_up / 10);
        (first, last, warm_up.saturating_sub(first + last))
    } else {
        (FIRST, LAST, WINDOW)
    };
    let end = warm_up - last;
    if epoch < first || epoch >= end {
        return (false, false);
    }
    let (mut from, mut length) = (first, base.max(1));
    loop {
        // A window that leaves no room for one twice as long takes all that is left.
        let to = if from + 3 * length > end { end } else { from + length };
        if epoch < to {
            return (true, epoch + 1 == to);
        }
        (from, length) = (to, 2 * length);
    }
}

/// A place, a momentum, and S with its gradient there.
#[derive(Clone)]
struct Point {
    x: Vec<f64>,
    p: Vec<f64>,
    gradient: Vec<f64>,
    energy: f64,
    loss: f64,
}

/// A part of a trajectory: both ends, what was drawn from it, and what decides whether it goes on.
struct Tree {
    back: Point,
    front: Point,
    drawn: Point,
    /// ln Σ exp(H₀ − H)
    log_weight: f64,
    /// Σ p
    sum: Vec<f64>,
    turned: bool,
    diverged: bool,
    acceptance: f64,
    steps: f64,
}

/// One transition.
struct Trajectory<'a, 'b> {
    energy: &'a mut Energy<'b>,
    variance: &'a [f64],
    step: f64,
    start: f64,
    key: NoiseKey,
    tick: u64,
    uniforms: usize,
}

impl Trajectory<'_, '_> {
    fn uniform(&mut self) -> f64 {
        self.uniforms += 1;
        f64::from(self.key.uniform(self.tick, self.uniforms))
    }

    /// H = S + ½ pᵀ M⁻¹ p, with M⁻¹ the variances.
    fn total(&self, point: &Point) -> f64 {
        let kinetic: f64 = point.p.iter().zip(self.variance).map(|(p, v)| v * p * p).sum();
        point.energy + 0.5 * kinetic
    }

    /// p ← p − ½ε ∇S; x ← x + ε M⁻¹ p; p ← p − ½ε ∇S
    fn leapfrog(&mut self, point: &mut Point, step: f64) -> Result<()> {
        for i in 0..point.x.len() {
            point.p[i] -= 0.5 * step * point.gradient[i];
            point.x[i] += step * self.variance[i] * point.p[i];
        }
        (point.energy, point.loss) = self.energy.at(Part::All, &point.x, &mut point.gradient)?;
        for (p, g) in point.p.iter_mut().zip(&point.gradient) {
            *p -= 0.5 * step * g;
        }
        Ok(())
    }

    /// Whether a trajectory with this sum of momenta has turned: its ends no longer move apart.
    fn turned(&self, back: &[f64], front: &[f64], sum: &[f64]) -> bool {
        let along = |p: &[f64]| -> f64 {
            p.iter().zip(self.variance).zip(sum).map(|((p, v), s)| v * p * s).sum()
        };
        along(back) <= 0.0 || along(front) <= 0.0
    }

    fn grow(&mut self, from: &Point, depth: usize, forward: bool) -> Result<Tree> {
        if depth == 0 {
            let mut point = from.clone();
            self.leapfrog(&mut point, if forward { self.step } else { -self.step })?;
            let error = self.start - self.total(&point);
            let error = if error.is_nan() { f64::NEG_INFINITY } else { error };
            return Ok(Tree {
                back: point.clone(),
                front: point.clone(),
                log_weight: error,
                sum: point.p.clone(),
                drawn: point,
                turned: false,
                diverged: error < -DIVERGED,
                acceptance: error.exp().min(1.0),
                steps: 1.0,
            });
        }
        let near = self.grow(from, depth - 1, forward)?;
        if near.turned || near.diverged {
            return Ok(near);
        }
        let end = if forward { &near.front } else { &near.back };
        let far = self.grow(&end.clone(), depth - 1, forward)?;
        let take = self.uniform().ln() < far.log_weight - log_sum(near.log_weight, far.log_weight);
        Ok(self.join(near, far, forward, take))
    }

    /// Two neighbouring parts as one. `far` lies in the direction of growth.
    fn join(&self, near: Tree, far: Tree, forward: bool, take_far: bool) -> Tree {
        let (first, last) = if forward { (&near, &far) } else { (&far, &near) };
        let sum: Vec<f64> = near.sum.iter().zip(&far.sum).map(|(a, b)| a + b).collect();
        // Also where the parts meet: a trajectory may turn across the seam alone.
        let extended = |part: &Tree, p: &[f64]| -> Vec<f64> {
            part.sum.iter().zip(p).map(|(a, b)| a + b).collect()
        };
        let turned = self.turned(&first.back.p, &last.front.p, &sum)
            || self.turned(&first.back.p, &last.back.p, &extended(first, &last.back.p))
            || self.turned(&first.front.p, &last.front.p, &extended(last, &first.front.p));
        Tree {
            log_weight: log_sum(near.log_weight, far.log_weight),
            turned: turned || far.turned,
            diverged: far.diverged,
            acceptance: near.acceptance + far.acceptance,
            steps: near.steps + far.steps,
            sum,
            drawn: if take_far { far.drawn } else { near.drawn },
            back: if forward { near.back } else { far.back },
            front: if forward { far.front } else { near.front },
        }
    }
}

fn log_sum(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    if most == f64::NEG_INFINITY { most } else { most + ((a - most).exp() + (b - most).exp()).ln() }
}

/// NUTS with the key of its randomness.
#[derive(Clone, Debug, PartialEq)]
pub struct NutsMethod {
    /// Settings.
    pub config: Nuts,
    /// The key.
    pub key: NoiseKey,
}

impl NutsMethod {
    /// A step size of which a single leapfrog step is accepted with a probability near ½.
    fn first_step(&self, at: &Point, energy: &mut Energy<'_>, variance: &[f64]) -> Result<f64> {
        let mut step = 0.1;
        let mut rises = None;
        for _ in 0..50 {
            let mut way = Trajectory {
                energy,
                variance,
                step,
                start: 0.0,
                key: self.key,
                tick: 0,
                uniforms: 0,
            };
            let (before, mut point) = (way.total(at), at.clone());
            way.leapfrog(&mut point, step)?;
            let accepted = before - way.total(&point) > 0.5f64.ln();
            if *rises.get_or_insert(accepted) != accepted {
                break;
            }
            step *= if accepted { 2.0 } else { 0.5 };
        }
        Ok(step)
    }

    /// A trajectory that doubles until it turns, and a draw from it.
    fn transition(
        &self,
        m: &Memory,
        start: Point,
        tick: u64,
        energy: &mut Energy<'_>,
    ) -> Result<(Tree, usize)> {
        let mut way = Trajectory {
            energy,
            variance: &m.variance,
            step: m.log_step.exp(),
            start: 0.0,
            key: self.key,
            tick,
            uniforms: 0,
        };
        way.start = way.total(&start);
        let mut tree = Tree {
            back: start.clone(),
            front: start.clone(),
            log_weight: 0.0,
            sum: start.p.clone(),
            drawn: start,
            turned: false,
            diverged: false,
            acceptance: 0.0,
            steps: 0.0,
        };
        let mut depth = 0;
        while depth < self.config.most_doublings && !tree.turned && !tree.diverged {
            let forward = way.uniform() < 0.5;
            let end = if forward { tree.front.clone() } else { tree.back.clone() };
            let far = way.grow(&end, depth, forward)?;
            depth += 1;
            if far.turned || far.diverged {
                tree.acceptance += far.acceptance;
                tree.steps += far.steps;
                tree.diverged = far.diverged;
                break;
            }
            // The new half is preferred, which keeps the target and moves farther.
            let take = way.uniform().ln() < far.log_weight - tree.log_weight;
            tree = way.join(tree, far, forward, take);
        }
        Ok((tree, depth))
    }
}

impl Walker for NutsMethod {
    fn exact(&self) -> bool {
        true
    }

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
            m.variance.fill(1.0);
        }
        let d = m.x.len();
        let mut noise = vec![0.0; d];
        let momentum = NoiseKey { stream: Stream::Momentum, ..self.key };
        momentum.normals(tick.step, 0, &mut noise);
        let mut start = Point {
            x: m.x.clone(),
            p: noise.iter().zip(&m.variance).map(|(z, v)| f64::from(*z) / v.sqrt()).collect(),
            gradient: vec![0.0; d],
            energy: 0.0,
            loss: 0.0,
        };
        (start.energy, start.loss) = energy.at(Part::All, &start.x, &mut start.gradient)?;
        let warm_up = self.config.warm_up_epochs;
        if tick.step == 0 {
            let step = self.first_step(&start, &mut energy, &m.variance)?;
            m.learn_step(step);
        }
        let (tree, doublings) = self.transition(&m, start, tick.step, &mut energy)?;
        let acceptance = tree.acceptance / tree.steps.max(1.0);
        let loss = tree.drawn.loss;
        m.x = tree.drawn.x;
        if tick.epoch < warm_up {
            m.accept(acceptance, self.config.acceptance);
            let (counts, ends) = window(tick.epoch, warm_up);
            if counts {
                m.count();
            }
            if ends {
                m.end_window();
                let step = m.log_step.exp();
                m.learn_step(step);
            }
            if tick.epoch + 1 == warm_up {
                m.log_step = m.average;
            }
        } else {
            m.transitions += 1.0;
            m.accepted += acceptance;
            m.diverged += f64::from(u8::from(tree.diverged));
            m.doublings += doublings as f64;
        }
        let weights: Vec<f32> = m.x.iter().map(|x| *x as f32).collect();
        arena.set_weights(&weights)?;
        arena.set_numbers(m.write());
        Ok(loss)
    }
}

impl Method for NutsMethod {
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
        Some("`method.kind = \"nuts\"` runs on the CPU only; leave out `--device`")
    }

    fn vitals(&self, arena: &Arena, tick: Tick) -> Vitals {
        let step_size = Memory::read(arena.numbers()).map(|m| m.log_step.exp());
        let effective_temperature = Some(tick.rates.temperature.powi(2));
        Vitals { effective_temperature, step_size, ..Vitals::default() }
    }
}

/// NUTS as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "nuts",
    about: "NUTS: the No-U-Turn sampler in double precision, the reference for small tables",
    page: "docs/nuts.md",
    reads: &[
        "method.acceptance",
        "method.most_doublings",
        "prior.scale",
        "prior.noise_sd",
        "prior.noise_row_sd",
        "schedule.temperature",
    ],
    keys: &[
        key(
            "method.acceptance",
            Kind::NumberBelow(0.0, 1.0),
            "mean acceptance that NUTS chooses its step size for; 0.8",
        ),
        key(
            "method.most_doublings",
            Kind::Integer(1, 20),
            "doublings of a trajectory of NUTS, at most; 10",
        ),
    ],
    defaults: &[(
        When::Always,
        r#"
method.acceptance = 0.8
method.most_doublings = 10
schedule.step_size.shape = "constant"
schedule.temperature.value = "1/sqrt(N)"
train.epochs = 2000
train.samples_per_cycle = 1000
posterior.burn_in = 0.0
"#,
    )],
    check: Some(walker::check),
    network: None,
    kernels: &[],
    build: |setup| {
        let own = &setup.method.own;
        let config = Nuts {
            acceptance: own.number("acceptance").unwrap_or(0.8),
            most_doublings: own.whole("most_doublings").unwrap_or(10),
            warm_up_epochs: setup.first_sample_epoch,
            decay: Decay::of(setup.prior, setup.network, setup.train_rows),
        };
        Ok(Arc::new(NutsMethod { config, key: setup.key }))
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_stan() {
        let ends = |warm_up: usize| -> Vec<usize> {
            (0..warm_up).filter(|epoch| window(*epoch, warm_up).1).collect()
        };
        // Stan's manual: 75, then 25, 50, 100, 200, 500 and 50 of 1,000.
        assert_eq!(ends(1000), [99, 149, 249, 449, 949]);
        assert_eq!(ends(150), [99]);
        assert_eq!(ends(100), [89], "shortened to 15, 75 and 10");
        assert!(!window(60, 1000).0 && window(75, 1000).0 && !window(950, 1000).0);
        assert!(ends(0).is_empty() && ends(1).len() <= 1);
    }
}
