//! What a chain leaves after an epoch: a line for the log.

use serde::{Deserialize, Serialize};

/// What a chain looked like at the end of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The epoch, from 0.
    pub epoch: usize,
    /// The mean training loss of the epoch.
    pub loss: f64,
    /// l = Δt² at its last step.
    pub step_size: f64,
    /// k² at its last step, the temperature asked for.
    pub temperature: f64,
    /// The temperature of the injected noise, averaged over weights.
    pub effective_temperature: Option<f64>,
    /// The temperature of the noise of mini-batches, averaged over weights and over the steps since
    /// the last record, where it is measured and that much less is injected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_temperature: Option<f64>,
    /// Rows that a step read on average since the last record, where the method chooses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_a_step: Option<f64>,
    /// Mean of τ over weights.
    pub tau_mean: Option<f64>,
    /// Standard deviation of τ over weights.
    pub tau_sd: Option<f64>,
    /// The share of grouped weights in the spike.
    pub spike_share: f64,
    /// The share of grouped weights that are pruned.
    pub pruned_share: f64,
    /// Inputs that the network still reads.
    pub live_inputs: usize,
    /// The largest mean loss of an epoch since the last record: shows what the chain went through.
    pub largest_loss: f64,
    /// Steps since the last record whose gradient was clipped.
    pub clipped_steps: u64,
    /// The share of all parameters that are pruned.
    #[serde(default)]
    pub sparsity: f64,
    /// The share of the whole network's multiply-adds that a step does.
    #[serde(default = "all_of_it")]
    pub work: f64,
    /// The share of kept parameters that are frozen.
    #[serde(default)]
    pub frozen: f64,
    /// The share of the multiply-adds of the way back, of the network in use, that is done; the
    /// rest is frozen.
    #[serde(default = "all_of_it")]
    pub backward: f64,
    /// λ₂ in force.
    #[serde(default)]
    pub hard_threshold: Option<f64>,
    /// The share of test images that the weights of this epoch get right.
    #[serde(default)]
    pub test_accuracy: Option<f64>,
    /// The mean negative log-likelihood of the test images.
    #[serde(default)]
    pub test_nll: Option<f64>,
}

/// The work of a network that never got smaller, and of a way back that goes through all of it.
fn all_of_it() -> f64 {
    1.0
}
