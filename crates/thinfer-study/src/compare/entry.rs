//! One run in a comparison.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_core::device::Device;
use thinfer_core::train::{Observer, read_times, snapshot_path};
use thinfer_data::files::read_json;
use thinfer_data::{Error, Result};
use thinfer_run::config::{Config, Members};
use thinfer_run::run::{RunInfo, method_bytes, open};

use super::course::Course;

/// The scores of a finished run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evaluated {
    /// Samples in the posterior.
    pub samples: usize,
    /// Share of right classes of the posterior.
    pub accuracy: Option<f64>,
    /// Mean squared error of the posterior.
    pub mse: Option<f64>,
    /// Mean negative log-likelihood.
    pub nll: Option<f64>,
    /// Expected calibration error.
    pub ece: Option<f64>,
    /// Brier score.
    pub brier: Option<f64>,
    /// Share of rows inside their 90 % interval.
    pub coverage90: Option<f64>,
    /// Pruned share of all parameters.
    pub sparsity: f64,
    /// Multiply-adds of a prediction, whole and left: for images without dead channels, for tables
    /// those of the weights that are kept.
    pub multiply_adds: (f64, f64),
    /// Bytes of the network, whole and left, as above.
    pub bytes: (f64, f64),
    /// Selected variables, of a table.
    pub selected: Option<usize>,
    /// The share of them that does not matter, where that is known.
    pub fdr: Option<f64>,
    /// The share of the variables that matter and were not selected.
    pub fndr: Option<f64>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its folder, as it was given.
    pub run: String,
    /// Its method in a word or two.
    pub method: String,
    /// Its network, as a configuration names it.
    pub model: String,
    /// Its seed.
    pub seed: u64,
    /// Its chains.
    pub chains: usize,
    /// Its epochs.
    pub epochs: usize,
    /// Whether all its chains are at their end.
    pub finished: bool,
    /// Epochs that the chain which is least far has done.
    pub epochs_done: usize,
    /// Its scores, where it is finished.
    pub evaluated: Option<Evaluated>,
    /// Seconds of its epochs with the evaluation after them, of the longest chain; none where its
    /// times are not there.
    pub seconds: Option<f64>,
    /// Bytes of weights, state and masks that its method keeps while it trains.
    pub memory_bytes: usize,
    /// Where it was computed.
    pub device: String,
    /// What it went through, as far as its history says.
    #[serde(skip)]
    pub course: Course,
}

impl Entry {
    /// Reads a run, and evaluates it where it is finished and nobody has yet.
    pub(super) fn read(
        folder: &Path,
        info: &RunInfo,
        device: Device,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let config = &info.config;
        let epochs = config.train.epochs;
        let chains = config.chains as u32;
        let times = |chain| read_times(&folder.join(format!("chain-{chain}")), observer);
        let times: Vec<_> = (0..chains).map(times).collect();
        let path = folder.join("evaluation.json");
        // The last epoch always leaves a sample, and an evaluation is only kept of a whole run.
        let at_end = |chain: u32| snapshot_path(folder, chain, epochs - 1).exists();
        let finished = path.exists() || (0..chains).all(at_end);
        let evaluated =
            finished.then(|| evaluated(folder, &path, info, device, observer)).transpose()?;
        let timed = times.iter().map(Vec::len).min().unwrap_or(0);
        let seconds = times.iter().map(|t| t.iter().map(|time| time.seconds).sum::<f64>());
        Ok(Self {
            run: folder.display().to_string(),
            method: method(config),
            model: config.model.name.clone(),
            seed: config.seed,
            chains: config.chains,
            epochs,
            finished,
            epochs_done: if finished { epochs } else { timed.min(epochs) },
            evaluated,
            seconds: seconds.reduce(f64::max).filter(|seconds| *seconds > 0.0),
            memory_bytes: method_bytes(info)?,
            device: info.device.clone(),
            course: Course::read(folder),
        })
    }
}

/// The method of a run as people speak of it.
fn method(config: &Config) -> String {
    let name = match (config.method.kind.name(), config.prune.regrow) {
        ("em-mcmc", false) => "em-mcmc, DFP",
        ("em-mcmc", true) => "em-mcmc, DPF",
        (name, _) => name,
    };
    if config.train.members == Members::Last && config.chains > 1 {
        format!("{name}, ensemble")
    } else {
        name.to_owned()
    }
}

fn evaluated(
    folder: &Path,
    path: &Path,
    info: &RunInfo,
    device: Device,
    observer: &dyn Observer,
) -> Result<Evaluated> {
    let run = folder.display();
    let advice =
        format!("write it again with `thinfer eval {run} --out {run}/evaluation.json --force`");
    let damaged = |problem: serde_json::Error| {
        Error::store(path, format!("cannot be read: {problem}; {advice}"))
    };
    let json = if let Some(kept) = read_json(path, &advice)? {
        kept
    } else {
        let found = open(folder, observer)?.evaluate(&[], device)?;
        serde_json::to_value(found).map_err(damaged)?
    };
    if info.images().is_ok() {
        serde_json::from_value::<OfImages>(json).map(Evaluated::from).map_err(damaged)
    } else {
        serde_json::from_value::<OfTable>(json).map(Evaluated::from).map_err(damaged)
    }
}

/// What is read of the evaluation of a run on images.
#[derive(Deserialize)]
struct OfImages {
    posterior: ImageScores,
    sizes: Vec<ImageSize>,
}

#[derive(Deserialize)]
struct ImageScores {
    members: usize,
    accuracy: f64,
    nll: f64,
    brier: f64,
    ece: f64,
}

#[derive(Deserialize)]
struct ImageSize {
    sparsity: f64,
    multiply_adds: Amounts,
    bytes: Amounts,
}

#[derive(Deserialize)]
struct Amounts {
    whole: f64,
    channels: f64,
}

impl From<OfImages> for Evaluated {
    fn from(OfImages { posterior, sizes }: OfImages) -> Self {
        // Chains are pruned each in its own way.
        let mean = |value: fn(&ImageSize) -> f64| {
            sizes.iter().map(value).sum::<f64>() / sizes.len().max(1) as f64
        };
        Self {
            samples: posterior.members,
            accuracy: Some(posterior.accuracy),
            nll: Some(posterior.nll),
            ece: Some(posterior.ece),
            brier: Some(posterior.brier),
            sparsity: mean(|s| s.sparsity),
            multiply_adds: (mean(|s| s.multiply_adds.whole), mean(|s| s.multiply_adds.channels)),
            bytes: (mean(|s| s.bytes.whole), mean(|s| s.bytes.channels)),
            ..Self::default()
        }
    }
}

/// What is read of the evaluation of a run on a table.
#[derive(Deserialize)]
struct OfTable {
    posterior: TableScores,
    selected: Vec<String>,
    selection: Option<Selection>,
    size: TableSize,
}

#[derive(Deserialize)]
struct TableScores {
    members: usize,
    mse: Option<f64>,
    accuracy: Option<f64>,
    nll: Option<f64>,
    coverage90: Option<f64>,
    ece: Option<f64>,
    brier: Option<f64>,
}

#[derive(Deserialize)]
struct Selection {
    fdr: f64,
    fndr: f64,
}

#[derive(Deserialize)]
struct TableSize {
    parameters: f64,
    kept: f64,
    sparsity: f64,
    multiply_adds: (f64, f64),
}

impl From<OfTable> for Evaluated {
    fn from(OfTable { posterior, selected, selection, size }: OfTable) -> Self {
        Self {
            samples: posterior.members,
            accuracy: posterior.accuracy,
            mse: posterior.mse,
            nll: posterior.nll,
            ece: posterior.ece,
            brier: posterior.brier,
            coverage90: posterior.coverage90,
            sparsity: size.sparsity,
            multiply_adds: size.multiply_adds,
            bytes: (4.0 * size.parameters, 4.0 * size.kept),
            selected: Some(selected.len()),
            fdr: selection.as_ref().map(|s| s.fdr),
            fndr: selection.map(|s| s.fndr),
        }
    }
}
