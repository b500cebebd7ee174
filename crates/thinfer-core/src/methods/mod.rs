//! The methods. Each is one file: its update above its code, its state, its three hooks, and what a
//! configuration knows of it ([`Declaration`]).
//!
//! A training loop knows a method only through [`Method`]:
//! - [`Method::materialize`] writes the weights that the forward pass uses, where they differ from
//!   the method's own (Algorithm 1 samples them, DPF masks them);
//! - [`Method::update`] consumes the gradient;
//! - [`Method::epoch`] runs before the first step of an epoch (EM, pruning, regrowth).

pub mod batch_noise;
pub mod csgmcmc;
pub mod cv_adam;
mod descent;
pub mod dpf_lin;
pub mod dsr;
pub mod em_mcmc;
pub mod ivon;
pub mod kernels;
mod mask;
pub mod mclmc;
pub mod nuts;
pub mod rank1;
mod registry;
mod settings;
pub mod sgd;
pub mod sghmc;
pub mod sm;
pub mod smile;
pub mod sparse;
pub mod walker;

use thinfer_data::Result;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, ParamTable, Role};

use crate::prune::Course;

pub use batch_noise::{BatchNoise, BatchNoiseRule};
pub use registry::{Choices, Declaration, MethodKind, NAMES, Setup, When};
pub use settings::{MethodConfig, NO_LIMIT, OwnSettings, PriorConfig, PriorScale, PruneConfig};
pub use walker::{Decay, Part, Target, Walker};

/// All methods: those of the paper, then those that it compares with.
pub const METHODS: &[&Declaration] = &[
    &em_mcmc::METHOD,
    &sghmc::METHOD,
    &cv_adam::METHOD,
    &sgd::METHOD,
    &csgmcmc::CSGLD,
    &csgmcmc::CSGHMC,
    &dpf_lin::METHOD,
    &sm::METHOD,
    &dsr::METHOD,
    &rank1::METHOD,
    &ivon::METHOD,
    &mclmc::METHOD,
    &nuts::METHOD,
    &smile::METHOD,
];

/// What the schedules say at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The learning rate `l = Δt²` (C² in the reference code).
    pub step_size: f64,
    /// The step size of the step before, or of this one where it is the first: a momentum with
    /// noise follows the step size, see [`follow`].
    pub step_size_before: f64,
    /// `k`; the sampler targets exp(−L / k²).
    pub temperature: f64,
    /// The rate η of the ρ update.
    pub eta: f64,
    /// A factor on the weight decay of the prior.
    pub decay_factor: f64,
}

/// The smallest step size that a momentum follows. A cosine cycle can end with a step of exactly 0,
/// from which no factor leads back; this one moves no weight either.
const SMALLEST_FOLLOWED: f64 = 1e-24;

/// Δt/Δt₋, the factor on a velocity with noise before a step: Δt = √l of this step, Δt₋ of the one
/// before.
///
/// The velocity has a stationary variance in proportion to Δt², so that v/Δt has a law that does
/// not depend on Δt and is what must go on when Δt changes. Without the factor the energy of large
/// steps heats the samples that are taken at small ones, over a memory of 1/(1−β₁) steps. It is 1
/// where the step size stays, to the bit, and a function of the step alone, so that a resumed run
/// needs nothing more.
pub fn follow(rates: &Rates) -> f64 {
    follow_sizes(rates.step_size, rates.step_size_before)
}

/// The same from the two step sizes.
pub fn follow_sizes(now: f64, before: f64) -> f64 {
    (now.max(SMALLEST_FOLLOWED) / before.max(SMALLEST_FOLLOWED)).sqrt()
}

/// One step of one chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// The step, from 0.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: usize,
    /// The schedules.
    pub rates: Rates,
}

/// What a chain did, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Vitals {
    /// The temperature that the injected noise amounts to, averaged over the weights.
    pub effective_temperature: Option<f64>,
    /// The temperature of the noise of mini-batches, where the method measures it.
    pub batch_temperature: Option<f64>,
    /// Rows that a step read, on average since the last record, where the method chooses them.
    pub rows_a_step: Option<f64>,
    /// Mean and standard deviation of τ over the weights.
    pub tau: Option<(f64, f64)>,
    /// The share of grouped weights whose group is in the spike.
    pub spike_share: f64,
    /// The share of grouped weights that are pruned.
    pub pruned_share: f64,
    /// The step size that the method chose, where it chooses one itself.
    pub step_size: Option<f64>,
    /// λ₂: as given, or under a target the one at which pruning stands, which is the smallest value
    /// of what is still kept.
    pub hard_threshold: Option<f64>,
}

/// A training method: three hooks, and nothing else knows its inside.
pub trait Method: Send + Sync {
    /// Numbers of state a weight besides the weight itself.
    fn state_buffers(&self) -> usize;

    /// Sets weights, state and marks before the first step.
    fn start(&self, arena: &mut Arena, key: Key) -> Result<()>;

    /// Whether [`Method::start`] keeps what the network reads apart from the weights.
    fn has_forward_copy(&self) -> bool {
        false
    }

    /// Writes the weights that the forward pass uses.
    fn materialize(&self, _arena: &mut Arena, _tick: Tick) {}

    /// Consumes the gradient.
    fn update(&self, arena: &mut Arena, tick: Tick);

    /// What makes a step instead of [`Method::update`], where one gradient is not enough for it.
    fn walker(&self) -> Option<&dyn Walker> {
        None
    }

    /// How the rows of a step are drawn and their noise is measured, where the method accounts for
    /// it in this step.
    fn batch_noise(&self, _tick: Tick) -> Option<&BatchNoise> {
        None
    }

    /// How many numbers in double precision the method keeps, for so many weights.
    fn numbers(&self, _weights: usize) -> usize {
        0
    }

    /// Runs before the first step of an epoch.
    fn epoch(&self, _arena: &mut Arena, _tick: Tick) {}

    /// Runs after a record was made of the vitals.
    fn recorded(&self, _arena: &mut Arena) {}

    /// Whether [`Method::epoch`] looks at the state buffers in this epoch, which a GPU run then
    /// brings to the host first.
    fn reads_state(&self, _epoch: usize) -> bool {
        false
    }

    /// Whether [`Method::epoch`] changes the state buffers in this epoch, which a GPU run then puts on
    /// the device again; it must read them too.
    fn writes_state(&self, _epoch: usize) -> bool {
        false
    }

    /// Whether a weight that is pruned in this epoch stays zero for the rest of the run, so that
    /// nothing needs to read its input any more.
    fn drops_for_good(&self, _epoch: usize) -> bool {
        false
    }

    /// What pruning is up to at an epoch.
    fn course(&self, _epoch: usize) -> Course {
        Course::Falls
    }

    /// Whether the update adds noise, so that the chain has a temperature.
    fn adds_noise(&self) -> bool {
        false
    }

    /// Why the method cannot run where the host sees weights between epochs only, as on a GPU.
    fn needs_host(&self) -> Option<&'static str> {
        None
    }

    /// Whether the network reads zeros where a weight is pruned for now (masked weights).
    fn masks(&self) -> bool {
        false
    }

    /// The weights of one posterior sample, as the network would use them.
    fn sample(&self, arena: &Arena, _tick: Tick) -> Vec<f32> {
        arena.forward().to_vec()
    }

    /// Whether [`Method::sample`] looks at the state buffers, which a GPU run then brings to the
    /// host first.
    fn sample_reads_state(&self) -> bool {
        false
    }

    /// The probability of each variable of a table that its weights are in the slab, the mean over
    /// the draws of the epoch so far; empty where that is not drawn.
    fn inclusion(&self, _arena: &Arena) -> Vec<f32> {
        Vec::new()
    }

    /// What the chain is doing, as far as weights and marks tell.
    fn vitals(&self, arena: &Arena, tick: Tick) -> Vitals;

    /// [`Method::vitals`] with what the state buffers tell, which a GPU run does not bring to the
    /// host after every epoch.
    fn vitals_of_state(&self, _arena: &Arena, _tick: Tick, vitals: Vitals) -> Vitals {
        vitals
    }
}

/// PyTorch's default initialisation: U(−1/√fan_in, 1/√fan_in) for weights and biases alike, keyed.
/// A learned noise scale starts at the value that its loss states.
pub fn initialize(
    arena: &mut Arena,
    loss: &thinfer_engine::Loss,
    seed: u64,
    chain: u32,
) -> Result<()> {
    let key = Key::new(seed, chain, Stream::Initial);
    let weights = initial_weights(arena.table(), loss, key);
    arena.set_weights(&weights)?;
    Ok(())
}

fn initial_weights(table: &ParamTable, loss: &thinfer_engine::Loss, key: Key) -> Vec<f32> {
    use thinfer_engine::Scale;
    let mut weights = vec![0.0; table.len()];
    let mut fan_in = 1;
    for param in table {
        match param.role {
            Role::LogScale => {
                if let Some(Scale::Learned { start, .. }) = loss.scale() {
                    weights[param.offset] = start.ln() as f32;
                }
            }
            Role::NormScale => weights[param.range()].fill(1.0),
            Role::NormShift | Role::RunningMean | Role::RunningVariance => {}
            // Locations of one, and pre-scales that make almost no noise: the plain network.
            Role::RandomScale => {
                for pair in weights[param.range()].chunks_exact_mut(2) {
                    pair.copy_from_slice(&[1.0, -10.0]);
                }
            }
            Role::LinearWeight | Role::ConvWeight | Role::Bias => {
                // A bias follows its weight in the table and takes that layer's bound.
                if param.role.is_weight() {
                    fan_in = param.fan_in();
                }
                let bound = 1.0 / (fan_in as f32).sqrt();
                for i in param.range() {
                    weights[i] = (2.0 * key.uniform(0, i) - 1.0) * bound;
                }
            }
        }
    }
    // All rows begin with the noise that the loss states.
    if let (Some(unit), Some(scale)) = (loss.noise_unit(table), loss.scale()) {
        weights[unit.weights].fill(0.0);
        if let Some(bias) = unit.bias {
            weights[bias] = scale.at_start().ln() as f32;
        }
    }
    weights
}
