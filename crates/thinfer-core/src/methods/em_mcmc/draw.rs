//! Assignments to spike and slab that are drawn: Gibbs steps between those of Algorithm 2.

use std::sync::Arc;

use thinfer_data::{Error, Result};
use thinfer_engine::{Arena, Chunk, Pass};

use super::super::registry::{Choices, Setup};
use super::super::sghmc::{self, NoiseRule, Sghmc};
use super::super::{Method, Tick};
use super::{AfterFreeze, EmMcmc, EmMcmcMethod};
use crate::prune::{self, Grouping, Groups, HardThreshold, Precisions, SLAB, SoftThreshold};

/// How a group gets into spike or slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// By the mode of its conditional probability: the EM step.
    #[default]
    Mode,
    /// By a draw from it: a Gibbs step.
    Draw,
}

/// How assignments are drawn.
///
/// γ_g ~ Bernoulli(P(γ_g = 1 | w, π))            for every group g, see [`prune::slab_probability`]
/// π   ~ Beta(a + Σγ, b + G − Σγ)                for every layer of G groups, where it is learned
/// w   ← steps of Algorithm 2 with the weight decay of γ
///
/// v   ← v + β₂ Δt²/(1 + β₁) (wd_γ' − wd_γ) w       where γ became γ'
///
/// The last line is why draws may follow each other step by step. A step of Algorithm 2 pulls half
/// before and half after its noise, and the law of w at which v is independent of it is that between
/// the halves. There γ is drawn, so the first half belongs to the γ before: the step pulls by γ'
/// twice, and v gets the difference.
///
/// Targets, at k²N = β₂, the joint posterior of weights, assignments and π under the prior
/// w_g | γ_g ~ N(0, 1/δ_γ)^K, γ_g | π ~ Bernoulli(π), π ~ Beta(a, b).
///
/// Deviation: paper and code take the mode of γ and prune; γ and m are then decisions about one
/// sample, and how long a variable survives says nothing about how probable it is. Deviation: paper
/// and code have one π for all layers. The share of inputs that matter says nothing about the share
/// of hidden units, so each layer has its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// π = P(γ = 1): as it is, or where learning starts.
    pub slab_probability: f64,
    /// a and b of the prior of π, where it is learned.
    pub learned: Option<[f64; 2]>,
    /// How many groups of the first layer are variables, whose probability a sample carries: all of
    /// them or none.
    pub variables: usize,
}

impl Draw {
    /// How many numbers a chain keeps.
    pub(super) fn numbers(&self, layers: usize) -> usize {
        Memory::len(layers, self)
    }

    /// These numbers before the first draw.
    pub(super) fn start(&self, layers: usize) -> Vec<f64> {
        let mut numbers = vec![0.0; self.numbers(layers)];
        let odds = self.slab_probability / (1.0 - self.slab_probability);
        numbers[..layers].fill(odds.ln());
        numbers
    }
}

/// What a chain keeps of its draws, in [`Arena::numbers`]: ln(π/(1−π)) of every layer, the draws of
/// this epoch, and of each variable the sum of its probabilities in them.
struct Memory<'a> {
    log_odds: &'a mut [f64],
    draws: &'a mut f64,
    sums: &'a mut [f64],
}

impl<'a> Memory<'a> {
    /// How many numbers that is.
    fn len(layers: usize, draw: &Draw) -> usize {
        layers + 1 + draw.variables
    }

    fn new(numbers: &'a mut [f64], layers: usize) -> Option<Self> {
        let (log_odds, rest) = numbers.split_at_mut_checked(layers)?;
        let (draws, sums) = rest.split_first_mut()?;
        Some(Self { log_odds, draws, sums })
    }
}

/// v ← v + β₂ Δt²/(1 + β₁) (wd_γ' − wd_γ) w where γ became γ'. The Δt is that of the step before,
/// whose v this is.
struct HalfKick<'a> {
    /// The marks with γ.
    before: &'a [u8],
    /// The factor on w where γ' = 0; the other way it is the negative one.
    into_spike: f32,
}

impl Pass for HalfKick<'_> {
    fn apply(&self, mut chunk: Chunk<'_>) {
        let Some(v) = chunk.state.get_mut(sghmc::VELOCITY) else { return };
        let before = &self.before[chunk.first..];
        for (((v, w), now), before) in
            v.iter_mut().zip(chunk.weights.iter()).zip(chunk.marks).zip(before)
        {
            if (before ^ now) & SLAB != 0 {
                let kick = if now & SLAB == 0 { self.into_spike } else { -self.into_spike };
                *v += kick * *w;
            }
        }
    }
}

impl EmMcmcMethod {
    /// Draws γ of every group given the weights, and π of every layer given γ.
    pub(super) fn draw(&self, draw: &Draw, arena: &mut Arena, tick: Tick) {
        let config = &self.config;
        if tick.epoch <= config.warm_up_epochs {
            return;
        }
        let scale = config.sghmc.train_rows as f64 * tick.rates.decay_factor;
        let precisions = Precisions {
            slab: config.sghmc.weight_decay * scale,
            spike: config.spike_decay * scale,
        };
        let mut numbers = arena.take_numbers();
        let before = arena.marks().to_vec();
        if let Some(memory) = Memory::new(&mut numbers, self.groups.len()) {
            let (weights, marks) = arena.weights_and_marks();
            let mut first = 0;
            for (layer, groups) in self.groups.iter().enumerate() {
                let log_odds = &mut memory.log_odds[layer];
                let p = prune::slab_probabilities(groups, weights, precisions, *log_odds);
                let slab = prune::draw_groups(groups, &p, self.key, tick.step, first, marks);
                if layer == 0 {
                    memory.sums.iter_mut().zip(&p).for_each(|(sum, p)| *sum += p);
                }
                if let Some([a, b]) = draw.learned {
                    let beta = [a + slab as f64, b + (p.len() - slab) as f64];
                    *log_odds = prune::draw_log_odds(beta, self.key, tick.step, layer);
                }
                first += p.len();
            }
            *memory.draws += 1.0;
        }
        arena.set_numbers(numbers);
        let step_size = config.sghmc.beta2 * tick.rates.step_size_before;
        let decay = (config.spike_decay - config.sghmc.weight_decay) * tick.rates.decay_factor;
        let into_spike = (step_size / (1.0 + config.sghmc.beta1) * decay) as f32;
        arena.run(&HalfKick { before: &before, into_spike });
    }

    /// The probabilities of an epoch are those of its own draws.
    pub(super) fn forget_draws(&self, arena: &mut Arena) {
        let mut numbers = arena.take_numbers();
        if let Some(memory) = Memory::new(&mut numbers, self.groups.len()) {
            *memory.draws = 0.0;
            memory.sums.fill(0.0);
        }
        arena.set_numbers(numbers);
    }

    /// Of each variable, the mean probability of the slab in the draws of this epoch; empty before the
    /// first.
    pub(super) fn mean_inclusion(&self, arena: &Arena) -> Vec<f32> {
        let (layers, numbers) = (self.groups.len(), arena.numbers());
        if self.config.draw.is_none() || numbers.len() <= layers || numbers[layers] == 0.0 {
            return Vec::new();
        }
        numbers[layers + 1..].iter().map(|sum| (sum / numbers[layers]) as f32).collect()
    }
}

/// Refuses what would keep a chain that draws its assignments from being a sampler.
pub(super) fn check(choices: &Choices<'_>) -> Result<()> {
    let (prior, prune) = (choices.prior, choices.prune);
    let drawn = "but prior.assignment = \"draw\"";
    if choices.method.noise != NoiseRule::Exact {
        let problem = format!(
            "is \"paper\", {drawn} is for the temperature of the posterior; use \"exact\", which is that of preset = \"exact\""
        );
        return Err(Error::config("method.noise", problem));
    }
    let prunes = [
        ("prune.hard_threshold", prune.hard_threshold.is_some()),
        ("prune.target", prune.target.is_some()),
        ("prune.regrow", prune.regrow),
        ("prune.freeze_after_epochs", prune.freeze_after_epochs.is_some()),
        ("prune.freeze_after_cycles", prune.freeze_after_cycles.is_some()),
        ("prune.after_freeze", !prune.after_freeze.is_em()),
        ("prune.multiple", prune.multiple > 1),
        ("prune.work_exponent", prune.work_exponent > 0.0),
    ];
    if let Some((key, _)) = prunes.iter().find(|(_, given)| *given) {
        let problem = format!(
            "is about pruning, {drawn} prunes nothing: a pruned weight is no draw from the posterior; leave it out, or use prior.assignment = \"mode\""
        );
        return Err(Error::config(*key, problem));
    }
    if prior.soft_threshold.is_some() {
        let problem = format!(
            "decides by the mode, {drawn} draws from a probability; give prior.spike_probability instead, or let it be learned"
        );
        return Err(Error::config("prior.soft_threshold", problem));
    }
    if prior.weight_decay == 0.0 && prior.sd.is_none() {
        let problem = format!(
            "is 0, {drawn} compares the densities of slab and spike; give a positive one, or prior.sd"
        );
        return Err(Error::config("prior.weight_decay", problem));
    }
    match (prior.sd, prior.spike_sd) {
        (Some(slab), Some(spike)) if spike >= slab => Err(too_wide(&format!("prior.sd = {slab}"))),
        (None, None) if prior.spike_decay <= prior.weight_decay => {
            let problem = format!(
                "is {}, but must be larger than prior.weight_decay = {}: the spike is the narrow part",
                prior.spike_decay, prior.weight_decay
            );
            Err(Error::config("prior.spike_decay", problem))
        }
        // Known with the number of rows.
        _ => Ok(()),
    }
}

/// A spike as wide as the slab.
fn too_wide(slab: &str) -> Error {
    let problem = format!("must be smaller than {slab}: the spike is the narrow part");
    Error::config("prior.spike_sd", problem)
}

/// A method that draws.
pub(super) fn build(setup: &Setup<'_>, groups: Vec<Groups>) -> Result<Arc<dyn Method>> {
    let prior = setup.prior;
    if prior.spike_decay <= prior.weight_decay {
        let sd = 1.0 / (prior.weight_decay * setup.train_rows as f64).sqrt();
        return Err(too_wide(&format!("the {sd:.3} of the slab on {} rows", setup.train_rows)));
    }
    let by_input = matches!(prior.group, Grouping::Input | Grouping::Kernel);
    let variables = setup.columns.filter(|_| by_input).and(groups.first()).map_or(0, Groups::count);
    let learned = prior.learn_probability.unwrap_or(prior.spike_probability.is_none());
    let draw = Draw {
        slab_probability: 1.0 - prior.spike_probability.unwrap_or(0.5),
        // Uniform: how many groups matter is as probable as any other number.
        learned: learned.then_some([1.0, 1.0]),
        variables,
    };
    let config = EmMcmc {
        sghmc: Sghmc::of(setup),
        spike_decay: prior.spike_decay,
        // Neither is looked at.
        soft_threshold: SoftThreshold::Given(0.0),
        hard_threshold: HardThreshold::Given(0.0),
        warm_up_epochs: setup.prune.warm_up_epochs,
        freeze_after_epochs: None,
        after_freeze: AfterFreeze::Em,
        cadence: setup.prune.cadence,
        regrow: false,
        draw: Some(draw),
    };
    Ok(Arc::new(EmMcmcMethod { config, groups, channels: None, key: setup.key }))
}

#[cfg(test)]
mod tests {
    use super::super::Cadence;
    use super::super::tests::{at, method};
    use super::*;
    use crate::prune::{ALIVE, KEEP};

    /// A chain that draws, with inputs of P(slab) 0, 0.36 and 1 in its first layer.
    fn drawing(cadence: Cadence, learned: bool) -> (EmMcmcMethod, Arena) {
        let (mut method, n) = method(false, cadence);
        method.config.spike_decay = 1.0;
        method.config.draw = Some(Draw {
            slab_probability: 0.5,
            learned: learned.then_some([1.0, 1.0]),
            variables: 3,
        });
        let mut arena = Arena::flat(n, 2);
        method.start(&mut arena, method.key).unwrap();
        let mut weights = vec![1.0; n];
        weights[..6].copy_from_slice(&[0.0, 0.254, 1.0, 0.0, -0.254, -1.0]);
        arena.set_weights(&weights).unwrap();
        (method, arena)
    }

    #[test]
    fn after_the_warm_up_assignments_are_drawn_and_samples_carry_the_mean_probability() {
        for cadence in [Cadence::Epoch, Cadence::Step] {
            let (method, mut arena) = drawing(cadence, false);
            method.epoch(&mut arena, at(2));
            method.update(&mut arena, at(2));
            assert!(arena.marks().iter().all(|mark| *mark == ALIVE), "warm-up");
            assert!(method.inclusion(&arena).is_empty());
            let mut slabs = [0; 3];
            for step in 3..203 {
                method.epoch(&mut arena, at(step));
                // The step size is 0, so that weights stay.
                method.update(&mut arena, at(step));
                slabs.iter_mut().zip(arena.marks()).for_each(|(n, mark)| *n += mark >> 1 & 1);
                assert!(arena.marks().iter().all(|mark| mark & KEEP != 0), "nothing is pruned");
            }
            assert!(slabs[0] < 10 && slabs[2] == 200, "{slabs:?}");
            // δ₁ = 0.1, δ₀ = 100, |w|² = 0.129: ln 0.001 + 49.95 · 0.129 = −0.464.
            let p = method.inclusion(&arena);
            assert!((p[1] - 0.386).abs() < 0.001 && p[0] < 0.0011 && p[2] == 1.0, "{p:?}");
            assert!((f64::from(slabs[1]) / 200.0 - 0.386).abs() < 0.12, "{slabs:?}");
            assert!(!method.drops_for_good(9) && !method.masks());
        }
    }

    /// Without it `tests/posterior/inclusion.rs` fails.
    #[test]
    fn a_velocity_gets_the_rest_of_half_a_step_where_its_group_changes_sides() {
        let (method, mut arena) = drawing(Cadence::Epoch, false);
        // The first input goes into the spike and the others stay, as all of their weights say.
        let mut weights = arena.weights().to_vec();
        (weights[0], weights[3], weights[1], weights[4]) = (0.01, -0.02, 1.0, 1.0);
        arena.set_weights(&weights).unwrap();
        arena.set_state(sghmc::VELOCITY, &vec![0.5; weights.len()]).unwrap();
        let mut tick = at(7);
        tick.rates.step_size_before = 0.2;
        method.epoch(&mut arena, tick);
        assert_eq!(arena.marks()[..4], [KEEP, ALIVE, ALIVE, KEEP]);
        // Δt² = 0.2, β₁ = 0.1, wd₀ − wd₁ = 1 − 0.001.
        let kick = 0.2 / 1.1 * 0.999;
        let v = arena.state(sghmc::VELOCITY);
        assert!((v[0] - (0.5 + kick * 0.01)).abs() < 1e-6, "{v:?}");
        assert!((v[3] - (0.5 - kick * 0.02)).abs() < 1e-6, "{v:?}");
        assert_eq!((v[1], v[2]), (0.5, 0.5));
        // And back.
        (weights[0], weights[3]) = (1.0, 1.0);
        arena.set_weights(&weights).unwrap();
        tick.step += 1;
        method.epoch(&mut arena, tick);
        let v = arena.state(sghmc::VELOCITY);
        assert!((v[0] - (0.5 + kick * 0.01 - kick)).abs() < 1e-6, "{v:?}");
        assert!(method.writes_state(7) && method.reads_state(7) && !method.writes_state(2));
    }

    /// Each layer learns its own share: three inputs, of which one is surely in the slab, one surely
    /// not and one at times, and two hidden units that both are.
    #[test]
    fn every_layer_learns_how_probable_its_slab_is() {
        let (method, mut arena) = drawing(Cadence::Epoch, true);
        let (mut mean, steps) = ([0.0; 2], 4000);
        for step in 3..3 + steps {
            method.epoch(&mut arena, at(step));
            for (mean, odds) in mean.iter_mut().zip(arena.numbers()) {
                *mean += 1.0 / (1.0 + (-odds).exp()) / steps as f64;
            }
        }
        // Given γ: (1 + Σγ)/(2 + 3), between 0.4 and 0.6, and (1 + 2)/(2 + 2).
        assert!((0.42..0.58).contains(&mean[0]), "{mean:?}");
        assert!((mean[1] - 0.75).abs() < 0.02, "{mean:?}");
    }
}
