//! One run of one row.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_core::train::ChainResult;
use thinfer_data::{Error, Result};
use thinfer_run::run::{Control, Mode, remove_samples, train_and_hold, write_json};

use super::plan::Job;
use crate::finish::{Keys, finish};

/// One run of one row: what is kept of it, and what the table is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The network, as in the names of configurations.
    pub network: String,
    /// The method, as in the names of configurations.
    pub method: String,
    /// The target, in per cent of all parameters.
    pub percent: Option<u32>,
    /// The data that it was trained on, as a configuration names it: a setting can change it.
    pub data: String,
    /// The network that was trained, as a configuration names it.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// Epochs of the run.
    pub epochs: usize,
    /// Whether the schedule was scaled down to them: such a run is no run of the paper's table.
    pub short: bool,
    /// Images a step.
    pub batch: usize,
    /// The fingerprint of the settings, so that results of others are not mixed in.
    pub fingerprint: u32,
    /// Test accuracy of the posterior: the average of the samples that share the final mask.
    pub accuracy: f64,
    /// Its mean negative log-likelihood.
    pub nll: f64,
    /// Its expected calibration error.
    pub ece: f64,
    /// Its Brier score.
    pub brier: f64,
    /// Samples in it.
    pub members: usize,
    /// Test accuracy of the average of all samples, masks of all ages.
    pub all_samples_accuracy: f64,
    /// Test accuracy of the last sample alone.
    pub last_accuracy: f64,
    /// Pruned share of all parameters.
    pub sparsity: f64,
    /// Pruned share of the weights of convolutions and linear layers.
    pub weight_sparsity: f64,
    /// Multiply-adds an image without dead channels, as a share of the whole network's.
    pub multiply_adds_left: f64,
    /// Seconds of training, evaluation after the epochs included; of the longest chain.
    pub seconds: f64,
    /// Runs that were at work at the same time.
    pub jobs: usize,
    /// Where it was computed.
    pub device: String,
    /// The version of the program.
    pub thinfer: String,
}

/// How a run is done.
pub(super) struct Doing<'a> {
    pub(super) out: &'a Path,
    pub(super) jobs: usize,
    /// Threads of the CPU; 0 is all.
    pub(super) threads: usize,
    /// Whether checkpoints and samples go when the result is written.
    pub(super) discard_samples: bool,
}

/// Trains, or goes on with, one run in its folder, evaluates it and writes the result.
pub(super) fn run(job: &Job, doing: &Doing<'_>, control: &Control<'_>) -> Result<Outcome> {
    let folder = job.folder(doing.out);
    let config = &job.config;
    let (run, _until_the_end) =
        train_and_hold(config, &folder, Mode::Resume, control, doing.threads)?;
    let evaluated = run.evaluate(&[], control.device)?;
    let Some(found) = evaluated.images() else {
        return Err(Error::store(&folder, "is a run on a table; the row is about images"));
    };
    finish(&run, &evaluated, &folder, Keys::Declared)?;
    let size = found.sizes.first();
    let left = size.map_or(1.0, |size| {
        size.multiply_adds.channels as f64 / size.multiply_adds.whole.max(1) as f64
    });
    let outcome = Outcome {
        network: job.row.network.to_owned(),
        method: job.row.method.to_owned(),
        percent: job.row.percent,
        data: config.data.kind.name().to_owned(),
        model: config.model.name.clone(),
        seed: job.seed,
        epochs: config.train.epochs,
        short: job.short,
        batch: config.train.batch,
        fingerprint: job.fingerprint,
        accuracy: found.posterior.accuracy,
        nll: found.posterior.nll,
        ece: found.posterior.ece,
        brier: found.posterior.brier,
        members: found.posterior.members,
        all_samples_accuracy: found.all_samples.accuracy,
        last_accuracy: found.last.accuracy,
        sparsity: size.map_or(0.0, |size| size.sparsity.value()),
        weight_sparsity: size.map_or(0.0, |size| size.weight_sparsity.value()),
        multiply_adds_left: left,
        seconds: seconds(&run.results),
        jobs: doing.jobs,
        device: control.device_name.to_owned(),
        thinfer: env!("CARGO_PKG_VERSION").to_owned(),
    };
    write_json(&job.file(doing.out), &outcome)?;
    if doing.discard_samples {
        remove_samples(&folder)?;
    }
    Ok(outcome)
}

/// The time of the epochs, also of those before an interruption.
fn seconds(results: &[ChainResult]) -> f64 {
    let chain = |result: &ChainResult| result.times.iter().map(|time| time.seconds).sum::<f64>();
    results.iter().map(chain).fold(0.0, f64::max)
}
