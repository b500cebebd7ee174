//! Algorithm 3: EM-MCMC. Algorithm 2 under a group spike-and-slab prior, pruning while it samples.

use thinfer_data::Result;
use thinfer_engine::Arena;
use thinfer_engine::noise::Key;

use super::mask::{Cut, Mask, masked};
use super::sghmc::{self, Sghmc};
use super::{Method, Tick, Vitals};
use crate::prune::{self, Channels, Course, Groups, HardThreshold, KEEP, SLAB, SoftThreshold};

/// When EM and pruning run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cadence {
    /// Before the first step of each epoch, as the authors' code does.
    #[default]
    Epoch,
    /// After every step, as the paper prints.
    Step,
}

/// The prior of what is left once pruning has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterFreeze {
    /// The EM step goes on: a group may still be in the spike.
    #[default]
    Em,
    /// The mask is the assignment: what is left is in the slab.
    Slab,
}

impl AfterFreeze {
    /// Whether it is what all runs did before there was a choice; those are known by settings without it.
    pub fn is_em(&self) -> bool {
        *self == AfterFreeze::Em
    }
}

/// Settings of Algorithm 3 beyond those of Algorithm 2.
///
/// Prior of a group of K weights: p·N(0, 1/δ₀)^K + (1−p)·N(0, 1/δ₁)^K with δ₀ > δ₁. The EM step
/// assigns each group to spike or slab, which sets its weight decay; a hard rule prunes groups or
/// whole channels.
///
/// | name | symbol | range | too large |
/// |---|---|---|---|
/// | `spike_decay` | wd₀ = δ₀/N | > wd₁ | removes real effects |
/// | `soft_threshold` | λ₁ | > 0 | everything is in the spike |
/// | `hard_threshold` | λ₂ | > 0 | prunes real effects |
/// | `warm_up_epochs` | | ≥ 0 | prunes late or never |
#[derive(Clone, Debug, PartialEq)]
pub struct EmMcmc {
    /// Algorithm 2 under it; its weight decay is the slab's.
    pub sghmc: Sghmc,
    /// wd₀ = δ₀/N
    pub spike_decay: f64,
    /// λ₁
    pub soft_threshold: SoftThreshold,
    /// The threshold λ₂ of the hard rule.
    ///
    /// Deviation: for the L2 rule the paper uses λ₁ here as well; the authors' code has a second,
    /// smaller number.
    /// Deviation: neither paper nor code says how to find λ₂ for a wanted sparsity; it can be found
    /// during the run.
    pub hard_threshold: HardThreshold,
    /// EM and pruning start after this many epochs.
    pub warm_up_epochs: usize,
    /// Pruning stops after this many epochs, so that later samples share one mask.
    pub freeze_after_epochs: Option<usize>,
    /// The prior of what is left from then on.
    ///
    /// Deviation: neither paper nor code ends pruning. Once it has ended, γ is known: what is pruned
    /// was in the spike, and what is left can be held in the slab instead of being assigned again.
    pub after_freeze: AfterFreeze,
    /// When EM and pruning run.
    ///
    /// Deviation: the paper prints them in every iteration, the authors' code runs them with the
    /// first mini-batch of an epoch.
    pub cadence: Cadence,
    /// Whether pruned groups can come back (DPF) or not (DFP).
    ///
    /// Deviation: the authors' code multiplies the weights by the mask in every step, after which
    /// no pruned group can pass the threshold again. With `regrow` the dense weights are kept, the
    /// network reads the masked ones, and the update goes to the dense ones.
    pub regrow: bool,
}

/// Algorithm 3 with its groups and the key of its noise.
#[derive(Clone, Debug, PartialEq)]
pub struct EmMcmcMethod {
    /// Settings.
    pub config: EmMcmc,
    /// The groups of every weight tensor.
    pub groups: Vec<Groups>,
    /// The channels that the concentration rule looks at; without them the L2 rule prunes groups.
    pub channels: Option<Channels>,
    /// The key of the sampler's noise.
    pub key: Key,
}

impl EmMcmcMethod {
    /// How many parameters the hard rule could prune at most.
    pub fn prunable(&self) -> usize {
        let in_groups =
            || self.groups.iter().filter(|g| g.prunable()).map(|g| g.range().len()).sum();
        self.channels.as_ref().map_or_else(in_groups, Channels::prunable)
    }

    /// Whether pruning has ended.
    fn frozen(&self, epoch: usize) -> bool {
        self.config.freeze_after_epochs.is_some_and(|last| epoch > last)
    }

    /// Whether pruned weights are zero: always without feedback, and with it from the epoch on in
    /// which nothing can come back any more.
    fn holds_at_zero(&self, epoch: usize) -> bool {
        !self.config.regrow || self.frozen(epoch)
    }

    /// Whether an epoch before this one has done all that is left to do once pruning has ended.
    fn settled(&self, epoch: usize) -> bool {
        let since = epoch.checked_sub(1).is_some_and(|before| self.frozen(before));
        since && self.config.after_freeze == AfterFreeze::Slab
    }

    /// One EM step and one pruning step over all groups.
    fn assign(&self, arena: &mut Arena, epoch: usize) {
        let config = &self.config;
        if epoch <= config.warm_up_epochs || self.settled(epoch) {
            return;
        }
        let (weights, marks) = arena.weights_and_marks();
        if self.frozen(epoch) && config.after_freeze == AfterFreeze::Slab {
            marks.iter_mut().filter(|mark| **mark & KEEP != 0).for_each(|mark| *mark |= SLAB);
        } else {
            for groups in &self.groups {
                prune::em_step(groups, weights, config.soft_threshold, marks);
            }
        }
        let goal = config.hard_threshold.goal(epoch).filter(|_| !self.frozen(epoch));
        match (goal, &self.channels) {
            (Some(goal), Some(channels)) => channels.prune(weights, goal, config.regrow, marks),
            (Some(goal), None) => {
                prune::prune_groups(&self.groups, weights, goal, config.regrow, marks);
            }
            (None, _) => {}
        }
        if self.holds_at_zero(epoch) {
            arena.run(&Cut);
        }
    }

    /// The share of grouped weights without a bit.
    fn share(&self, arena: &Arena, bit: u8) -> f64 {
        let (mut without, mut all) = (0, 0);
        for groups in &self.groups {
            let marks = &arena.marks()[groups.range()];
            all += marks.len();
            without += marks.len() - prune::count(marks, bit);
        }
        without as f64 / all.max(1) as f64
    }

    /// λ₂, or under a target the smallest value of what is still kept.
    fn hard_threshold(&self, arena: &Arena) -> Option<f64> {
        match (&self.config.hard_threshold, &self.channels) {
            (HardThreshold::Given(threshold), _) => Some(*threshold),
            (_, Some(channels)) => channels.narrowest(arena.weights(), arena.marks()),
            (_, None) => prune::smallest_group(&self.groups, arena.weights(), arena.marks()),
        }
    }
}

impl Method for EmMcmcMethod {
    fn state_buffers(&self) -> usize {
        2
    }

    fn adds_noise(&self) -> bool {
        true
    }

    fn start(&self, arena: &mut Arena, key: Key) -> Result<()> {
        self.config.sghmc.start_state(arena, key)?;
        if self.config.regrow {
            arena.separate_forward();
        }
        Ok(())
    }

    fn has_forward_copy(&self) -> bool {
        self.config.regrow
    }

    fn materialize(&self, arena: &mut Arena, _tick: Tick) {
        if self.config.regrow {
            arena.run(&Mask);
        }
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        let config = &self.config;
        let coeffs = config.sghmc.coeffs(tick, config.spike_decay, self.holds_at_zero(tick.epoch));
        let clip = config.sghmc.clip;
        arena.run(&sghmc::Update { coeffs, key: self.key, step: tick.step, clip });
        if config.cadence == Cadence::Step {
            self.assign(arena, tick.epoch);
        }
    }

    fn epoch(&self, arena: &mut Arena, tick: Tick) {
        if self.config.cadence == Cadence::Epoch {
            self.assign(arena, tick.epoch);
        }
    }

    fn drops_for_good(&self, epoch: usize) -> bool {
        self.config.cadence == Cadence::Epoch && self.holds_at_zero(epoch)
    }

    fn course(&self, epoch: usize) -> Course {
        if self.frozen(epoch) { Course::Ended } else { self.config.hard_threshold.course(epoch) }
    }

    fn needs_host(&self) -> Option<&'static str> {
        (self.config.cadence == Cadence::Step).then_some(
            "`prune.cadence = \"step\"` looks at the weights after every step, which a GPU run does \
             not; set it to \"epoch\" or run with `--device cpu`",
        )
    }

    fn masks(&self) -> bool {
        self.config.cadence == Cadence::Epoch
    }

    fn sample(&self, arena: &Arena, _tick: Tick) -> Vec<f32> {
        masked(arena)
    }

    fn vitals(&self, arena: &Arena, _tick: Tick) -> Vitals {
        let pruned_share = self.share(arena, KEEP);
        Vitals {
            spike_share: self.share(arena, SLAB),
            pruned_share,
            hard_threshold: self.hard_threshold(arena).filter(|_| pruned_share > 0.0),
            ..Vitals::default()
        }
    }

    fn vitals_of_state(&self, arena: &Arena, tick: Tick, vitals: Vitals) -> Vitals {
        self.config.sghmc.vitals_with(arena, tick, self.config.spike_decay, vitals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Rates, sghmc};
    use crate::model::Activation;
    use crate::model::mlp;
    use crate::prune::{ALIVE, Grouping, group_network};
    use thinfer_engine::Loss;
    use thinfer_engine::noise::Stream;

    fn method(regrow: bool, cadence: Cadence) -> (EmMcmcMethod, usize) {
        let network = mlp(3, &[2], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let sghmc = Sghmc {
            beta1: 0.1,
            beta2: 1.0,
            weight_decay: 1e-3,
            train_rows: 100,
            noise: sghmc::NoiseRule::Exact,
            rho: sghmc::RhoRule::Exact,
            initial_momentum: 0.0,
            clip: None,
        };
        let config = EmMcmc {
            sghmc,
            spike_decay: 0.1,
            soft_threshold: SoftThreshold::Given(0.04),
            hard_threshold: HardThreshold::Given(0.01),
            warm_up_epochs: 2,
            freeze_after_epochs: Some(4),
            after_freeze: AfterFreeze::Em,
            cadence,
            regrow,
        };
        let groups = group_network(&network, Grouping::Input, None);
        let key = Key::new(1, 0, Stream::Sampler);
        (EmMcmcMethod { config, groups, channels: None, key }, network.params().len())
    }

    fn at(epoch: usize) -> Tick {
        let rates = Rates {
            step_size: 0.0,
            step_size_before: 0.0,
            temperature: 0.0,
            eta: 0.0,
            decay_factor: 1.0,
        };
        Tick { step: epoch as u64, epoch, rates }
    }

    /// Inputs of mean square 0.0025 (pruned), 0.0225 (in the spike) and 1.
    const FIRST: [f32; 6] = [0.05, 0.15, 1.0, -0.05, -0.15, -1.0];

    /// EM and pruning begin with the epoch after the warm-up and pruning ends with the last epoch that is
    /// given; from then on nothing can come back, so that what is pruned is zero with feedback too.
    #[test]
    fn epochs_decide_what_is_assigned_pruned_and_held_at_zero() {
        for (regrow, cadence) in [
            (false, Cadence::Epoch),
            (true, Cadence::Epoch),
            (false, Cadence::Step),
            (true, Cadence::Step),
        ] {
            let (method, n) = method(regrow, cadence);
            for epoch in 0..7 {
                let mut arena = Arena::flat(n, 2);
                method.start(&mut arena, method.key).unwrap();
                let mut weights = vec![1.0; n];
                weights[..6].copy_from_slice(&FIRST);
                arena.set_weights(&weights).unwrap();
                // The last input was pruned before: without feedback it stays so, though it is large.
                let mut marks = vec![ALIVE; n];
                (marks[2], marks[5]) = (SLAB, SLAB);
                arena.set_marks(&marks).unwrap();
                arena.set_gradient(&vec![0.0; n]).unwrap();
                match cadence {
                    Cadence::Epoch => method.epoch(&mut arena, at(epoch)),
                    Cadence::Step => method.update(&mut arena, at(epoch)),
                }
                let (assigned, frozen) = (epoch > 2, epoch > 4);
                let prunes = assigned && !frozen;
                let held = !regrow || frozen;
                let back = regrow && prunes;
                // Where the input is held at zero when EM looks, it is in the spike.
                let slab_of_last = if cadence == Cadence::Step && held { 0 } else { SLAB };
                let last = if assigned { slab_of_last } else { SLAB } | if back { KEEP } else { 0 };
                let want = [
                    if assigned { 0 } else { SLAB } | if prunes { 0 } else { KEEP },
                    KEEP | if assigned { 0 } else { SLAB },
                    last,
                ];
                let name = format!("epoch {epoch}, regrow {regrow}, {cadence:?}");
                assert_eq!(arena.marks()[..3], want, "{name}");
                let zero = |at: usize| arena.weights()[at] == 0.0;
                assert_eq!(zero(0), prunes && held, "{name}: what is pruned now");
                if assigned {
                    assert_eq!(zero(2), held, "{name}: what was pruned before");
                }
                if back && cadence == Cadence::Epoch {
                    // Of 8 weights in groups the first two inputs have 2 each.
                    let vitals = method.vitals(&arena, at(epoch));
                    assert_eq!((vitals.spike_share, vitals.pruned_share), (0.5, 0.25));
                    assert_eq!(vitals.hard_threshold, Some(0.01));
                }
            }
        }
    }
}
