//! Algorithm 3: EM-MCMC. Algorithm 2 under a group spike-and-slab prior, pruning while it samples;
//! or with the assignment to spike and slab drawn instead, a sampler of both.

mod draw;

use std::sync::Arc;

use thinfer_data::{Error, Result};
use thinfer_engine::Arena;
use thinfer_engine::noise::Key;

pub use self::draw::{Assignment, Draw};
use super::kernels;
use super::mask::{Cut, Mask, masked};
use super::registry::{Choices, Declaration, Setup, When};
use super::sghmc::{self, Sghmc};
use super::{Method, Tick, Vitals};
use crate::prune::{
    self, Channels, Course, Groups, HardThreshold, KEEP, Rule, SLAB, SoftThreshold, Target,
    group_network,
};

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
    /// Whether it is what all runs did before there was a choice; those are known by settings
    /// without it.
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
    /// Deviation: neither paper nor code ends pruning. Once it has ended, γ is known: what is
    /// pruned was in the spike, and what is left can be held in the slab instead of being assigned
    /// again.
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
    /// Draws instead of EM and pruning, after the warm-up and at the same times.
    pub draw: Option<Draw>,
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
    /// which nothing can come back any more. Where assignments are drawn nothing is pruned.
    fn holds_at_zero(&self, epoch: usize) -> bool {
        self.config.draw.is_none() && (!self.config.regrow || self.frozen(epoch))
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

    fn numbers(&self, _weights: usize) -> usize {
        self.config.draw.as_ref().map_or(0, |draw| draw.numbers(self.groups.len()))
    }

    fn adds_noise(&self) -> bool {
        true
    }

    fn start(&self, arena: &mut Arena, key: Key) -> Result<()> {
        self.config.sghmc.start_state(arena, key)?;
        if let Some(draw) = &self.config.draw {
            arena.set_numbers(draw.start(self.groups.len()));
        }
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
        if let (Some(draw), Cadence::Step) = (&config.draw, config.cadence) {
            // The gradient is that of the data, which γ does not change.
            self.draw(draw, arena, tick);
        }
        let coeffs = config.sghmc.coeffs(tick, config.spike_decay, self.holds_at_zero(tick.epoch));
        let clip = config.sghmc.clip;
        let (key, step) = (self.key, tick.step);
        arena.run(&sghmc::Update { coeffs, key, step, clip, shape: None });
        if config.draw.is_none() && config.cadence == Cadence::Step {
            self.assign(arena, tick.epoch);
        }
    }

    fn epoch(&self, arena: &mut Arena, tick: Tick) {
        match (&self.config.draw, self.config.cadence) {
            (None, Cadence::Epoch) => self.assign(arena, tick.epoch),
            (None, Cadence::Step) => {}
            (Some(draw), cadence) => {
                self.forget_draws(arena);
                if cadence == Cadence::Epoch {
                    self.draw(draw, arena, tick);
                }
            }
        }
    }

    fn reads_state(&self, epoch: usize) -> bool {
        self.writes_state(epoch)
    }

    fn writes_state(&self, epoch: usize) -> bool {
        let draws = self.config.draw.is_some() && self.config.cadence == Cadence::Epoch;
        draws && epoch > self.config.warm_up_epochs
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
        self.config.cadence == Cadence::Epoch && self.config.draw.is_none()
    }

    fn inclusion(&self, arena: &Arena) -> Vec<f32> {
        self.mean_inclusion(arena)
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

/// Algorithm 3 as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "em-mcmc",
    about: "Algorithm 3: samples under a spike-and-slab prior and prunes groups (DFP, DPF)",
    page: "docs/em-mcmc.md",
    reads: &[
        "method.beta1",
        "method.beta2",
        "method.noise",
        "method.rho",
        "method.initial_momentum",
        "method.clip",
        "prior.spike_decay",
        "prior.spike_sd",
        "prior.assignment",
        "prior.learn_probability",
        "prior.group",
        "prior.soft_threshold",
        "prior.spike_probability",
        "prune.regrow",
        "prune.rule",
        "prune.hard_threshold",
        "prune.target",
        "prune.keep_norm",
        "prune.multiple",
        "prune.work_exponent",
        "prune.warm_up_epochs",
        "prune.freeze_after_epochs",
        "prune.freeze_after_cycles",
        "prune.after_freeze",
        "prune.cadence",
        "train.freeze_below",
        "train.freeze_layer_share",
        "schedule.temperature",
        "schedule.eta",
    ],
    keys: &[],
    defaults: &[
        (When::ExactImages, sghmc::IMAGE_CLIP),
        // A sampler: constant steps, as long as they are stable, and τ that stays.
        (
            When::Given("prior.assignment", "draw"),
            "method.beta1 = 0.9\nschedule.step_size.shape = \"constant\"\nschedule.eta.value = 0.0",
        ),
    ],
    check: Some(check),
    network: None,
    kernels: &[kernels::SGHMC_FORWARD],
    build,
};

fn check(choices: &Choices<'_>) -> Result<()> {
    let refuse = |key: &str, problem: String| Err(Error::config(key, problem));
    let prior = choices.prior;
    if prior.assignment == Assignment::Draw {
        return draw::check(choices);
    }
    if prior.learn_probability.is_some() {
        return refuse(
            "prior.learn_probability",
            "is about assignments that are drawn; give prior.assignment = \"draw\" too, or leave it out".into(),
        );
    }
    match (prior.soft_threshold, prior.spike_probability) {
        (None, None) => {
            return refuse(
                "prior.soft_threshold",
                "is missing; give it, or prior.spike_probability to compute it".into(),
            );
        }
        (Some(_), Some(_)) => {
            return refuse(
                "prior.spike_probability",
                "is given together with prior.soft_threshold; give one of them".into(),
            );
        }
        _ => {}
    }
    if prior.spike_decay <= prior.weight_decay {
        return refuse(
            "prior.spike_decay",
            format!(
                "is {}, but must be larger than prior.weight_decay = {}: the spike is the narrow part",
                prior.spike_decay, prior.weight_decay
            ),
        );
    }
    if prior.spike_probability.is_some() && prior.weight_decay == 0.0 {
        return refuse(
            "prior.weight_decay",
            "is 0, so λ₁ cannot be computed from prior.spike_probability; give a positive one"
                .into(),
        );
    }
    if choices.reference_code && choices.prune.regrow {
        return refuse(
            "prune.regrow",
            "is true, but the reference code sets pruned weights to zero in every step and cannot regrow; use preset = \"exact\" or \"paper\"".into(),
        );
    }
    check_pruning(choices)
}

fn check_pruning(choices: &Choices<'_>) -> Result<()> {
    let prune = choices.prune;
    if prune.target.is_some() && prune.hard_threshold.is_some() {
        return Err(Error::config(
            "prune.target",
            "is given together with prune.hard_threshold, which it finds by itself; give one of them",
        ));
    }
    if prune.freeze_after_epochs.is_some() && prune.freeze_after_cycles.is_some() {
        return Err(Error::config(
            "prune.freeze_after_cycles",
            "is given together with prune.freeze_after_epochs; give one of them",
        ));
    }
    if prune.rule != Rule::MeanSquare && !choices.images {
        return Err(Error::config(
            "prune.rule",
            "compares the channels of image networks; use \"mean-square\" for a table",
        ));
    }
    let of_ranges = [
        ("prune.multiple", prune.multiple > 1),
        ("prune.work_exponent", prune.work_exponent > 0.0),
    ];
    for (key, given) in of_ranges {
        if given && prune.rule == Rule::MeanSquare {
            return Err(Error::config(
                key,
                "is about channels, and prune.rule = \"mean-square\" prunes groups of weights; leave it out, or prune image networks by \"range\"",
            ));
        }
    }
    Ok(())
}

fn build(setup: &Setup<'_>) -> Result<Arc<dyn Method>> {
    let (prior, prune, network) = (setup.prior, setup.prune, setup.network);
    let groups = group_network(network, prior.group, setup.columns);
    if prior.assignment == Assignment::Draw {
        return draw::build(setup, groups);
    }
    let n = setup.train_rows as f64;
    let soft_threshold = match (prior.soft_threshold, prior.spike_probability) {
        (None, Some(spike_probability)) => SoftThreshold::Computed {
            spike_precision: prior.spike_decay * n,
            slab_precision: prior.weight_decay * n,
            spike_probability,
        },
        (given, _) => SoftThreshold::Given(given.unwrap_or_default()),
    };
    // Where no hard threshold is given the paper's rule applies: λ₁ for both. A computed λ₁ depends
    // on the group's size; the first layer's inputs decide.
    let first = network.first_weight().map_or(1, |w| w.shape[0]);
    let channels = (prune.rule != Rule::MeanSquare).then(|| {
        Channels::new(network, prune.rule, prune.keep_norm)
            .in_multiples_of(prune.multiple)
            .weighed_by_work(prune.work_exponent)
    });
    let freeze_after_epochs = setup.freeze_after_epochs;
    let hard_threshold = match prune.target {
        Some(share) => {
            let (warm_up, by) = (prune.warm_up_epochs, freeze_after_epochs);
            HardThreshold::Target(Target::new(share, &setup.cycles, warm_up, by)?)
        }
        None => {
            HardThreshold::Given(prune.hard_threshold.unwrap_or_else(|| soft_threshold.of(first)))
        }
    };
    let method = EmMcmcMethod {
        config: EmMcmc {
            sghmc: Sghmc::of(setup),
            spike_decay: prior.spike_decay,
            soft_threshold,
            hard_threshold,
            warm_up_epochs: prune.warm_up_epochs,
            freeze_after_epochs,
            after_freeze: prune.after_freeze,
            cadence: prune.cadence,
            regrow: prune.regrow,
            draw: None,
        },
        groups,
        channels,
        key: setup.key,
    };
    let most = method.prunable() as f64 / network.params().len() as f64;
    if let Some(target) = prune.target.filter(|target| *target > most) {
        let problem = format!(
            "is {target}, but at most {most:.3} of this network's parameters can be pruned; give a smaller one"
        );
        return Err(Error::config("prune.target", problem));
    }
    Ok(Arc::new(method))
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

    pub(super) fn method(regrow: bool, cadence: Cadence) -> (EmMcmcMethod, usize) {
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
            draw: None,
        };
        let groups = group_network(&network, Grouping::Input, None);
        let key = Key::new(1, 0, Stream::Sampler);
        (EmMcmcMethod { config, groups, channels: None, key }, network.params().len())
    }

    pub(super) fn at(epoch: usize) -> Tick {
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

    /// EM and pruning begin with the epoch after the warm-up and pruning ends with the last epoch
    /// that is given; from then on nothing can come back, so that what is pruned is zero with
    /// feedback too.
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
                // The last input was pruned before: without feedback it stays so, though it is
                // large.
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
