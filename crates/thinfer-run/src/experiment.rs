//! From a configuration to chains: data, network, method, schedules.

use std::ops::Range;
use std::sync::Arc;

use thinfer_core::methods::{Method, Setup};
use thinfer_core::model::{image_network_with, mlp};
use thinfer_core::prune::group_network;
use thinfer_core::schedule::Clock;
use thinfer_core::train::{ChainSpec, Freezing, Schedules, Trace};
use thinfer_data::{Bundle, Data, ImageData, Task};
use thinfer_data::{Error, Result};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Loss, Network, Scale, Shape};

use crate::config::{Config, Likelihood, Members, ModelConfig, NoiseModel, PruneConfig};
use crate::drawing;

/// Records in a history, at most about this many.
const RECORDS: usize = 500;
/// Samples of a chain, at most: each is a file of its own, and all are held in memory.
const MOST_SAMPLES: usize = 100_000;
/// The share of a layer's kept weights that have to settle before it is frozen whole.
const LAYER_SHARE: f64 = 0.9;

/// What networks and methods need to know about data.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// N, the number of training rows.
    pub train_rows: usize,
    /// A number that changes with the training data.
    pub fingerprint: u32,
    /// What a row is.
    pub inputs: ProblemInputs<'a>,
}

/// What a row is.
#[derive(Clone, Copy, Debug)]
pub enum ProblemInputs<'a> {
    /// Numbers.
    Table {
        /// What is predicted.
        task: Task,
        /// How many classes, or 0.
        classes: usize,
        /// The mean of the training rows, where the target is a count.
        count_mean: Option<f64>,
        /// The variable that each column belongs to.
        groups: &'a [usize],
    },
    /// An image.
    Image {
        /// Its shape.
        shape: Shape,
        /// How many classes.
        classes: usize,
    },
}

impl<'a> From<&'a Bundle> for Problem<'a> {
    fn from(data: &'a Bundle) -> Self {
        let inputs = ProblemInputs::Table {
            task: data.task,
            classes: data.classes,
            count_mean: data.schema.count_mean(),
            groups: &data.groups,
        };
        Self { train_rows: data.train_rows, fingerprint: data.fingerprint, inputs }
    }
}

impl From<&ImageData> for Problem<'_> {
    fn from(data: &ImageData) -> Self {
        let inputs =
            ProblemInputs::Image { shape: data.train.shape(), classes: data.classes.len() };
        Self { train_rows: data.train.rows(), fingerprint: data.fingerprint, inputs }
    }
}

impl<'a> From<&'a Data> for Problem<'a> {
    fn from(data: &'a Data) -> Self {
        match data {
            Data::Table(data) => data.into(),
            Data::Images(data) => data.into(),
        }
    }
}

/// The network that a configuration asks for, on some data.
pub fn build_network<'a>(config: &Config, data: impl Into<Problem<'a>>) -> Result<Network> {
    let network = plain_network(config, data.into())?;
    let method = &config.method;
    match method.kind.declaration().network {
        Some(change) => change(method, &network),
        None => Ok(network),
    }
}

/// The same without the random scales of a Rank-1 BNN.
pub fn plain_network(config: &Config, data: Problem<'_>) -> Result<Network> {
    let model = &config.model;
    let (columns, outputs, loss) = match data.inputs {
        ProblemInputs::Image { shape, classes } => {
            let loss = Loss::CrossEntropy { smoothing: model.label_smoothing };
            if model.name != "mlp" {
                return Ok(image_network_with(&model.name, shape, classes, loss)?);
            }
            (shape.len(), classes, loss)
        }
        ProblemInputs::Table { .. } if model.name != "mlp" => {
            let problem = format!("is {}, but a table needs `mlp`", model.name);
            return Err(Error::config("model.name", problem));
        }
        ProblemInputs::Table { task: Task::Regression, count_mean, groups, .. } => {
            let loss = number_loss(model, count_mean)?;
            (groups.len(), if loss.is_by_row() { 2 } else { 1 }, loss)
        }
        ProblemInputs::Table { classes: 2, groups, .. } => (groups.len(), 1, Loss::Bernoulli),
        ProblemInputs::Table { classes, groups, .. } => {
            let loss = Loss::CrossEntropy { smoothing: model.label_smoothing };
            (groups.len(), classes, loss)
        }
    };
    Ok(mlp(columns, &model.hidden, model.activation, outputs, loss)?)
}

/// The likelihood of a number, or of a count with this mean.
fn number_loss(model: &ModelConfig, count_mean: Option<f64>) -> Result<Loss> {
    let scale = match model.noise {
        NoiseModel::Known => Scale::Known(model.noise_sigma),
        NoiseModel::Learned => Scale::Learned { start: model.noise_sigma, param: 0 },
        NoiseModel::ByRow => Scale::ByRow { start: model.noise_sigma },
    };
    if count_mean.is_some() && model.noise == NoiseModel::ByRow {
        let problem = "is \"by-row\", but data.task is \"counts\", whose variance follows their mean; give \"learned\"";
        return Err(Error::config("model.noise", problem));
    }
    let refuse = |problem: &str| Err(Error::config("model.likelihood", problem));
    Ok(match (model.likelihood, count_mean) {
        // What was left to the rows is chosen before; without them it is the plainer one.
        (None | Some(Likelihood::Normal | Likelihood::ByValidation), None) => {
            Loss::Gaussian { scale }
        }
        (Some(Likelihood::StudentT), None) => Loss::StudentT { scale, dof: model.dof },
        (Some(Likelihood::Poisson), Some(mean)) => Loss::Poisson { log_mean: mean.ln() },
        (None | Some(Likelihood::NegativeBinomial | Likelihood::ByValidation), Some(mean)) => {
            Loss::NegativeBinomial { log_mean: mean.ln(), scale }
        }
        (Some(_), None) => return refuse("is one of counts; give data.task = \"counts\" too"),
        (Some(_), Some(_)) => {
            return refuse(
                "is one of numbers, but data.task is \"counts\"; give \"poisson\" or \
                 \"negative-binomial\"",
            );
        }
    })
}

/// The method that a configuration asks for.
pub fn build_method<'a>(
    config: &Config,
    data: impl Into<Problem<'a>>,
    network: &Network,
    chain: u32,
) -> Result<Arc<dyn Method>> {
    let data = data.into();
    // Columns of one variable live and die together; pixels have no such bond.
    let columns = match data.inputs {
        ProblemInputs::Table { groups, .. } => Some(groups),
        ProblemInputs::Image { .. } => None,
    };
    let train_rows = data.train_rows;
    let cycles = config.schedule.step_size.schedule(train_rows).cycles(config.train.epochs);
    let freeze_after_epochs = freeze_after_epochs(&config.prune, &cycles)?;
    let setup = Setup {
        method: &config.method,
        prior: &config.prior.for_rows(train_rows),
        prune: &config.prune,
        network,
        columns,
        train_rows,
        chains: config.chains,
        batch: config.train.batch,
        epochs: config.train.epochs,
        cycles,
        first_sample_epoch: config.sample_epochs().first().copied().unwrap_or(0),
        freeze_after_epochs,
        key: Key::new(config.seed, chain, Stream::Sampler),
    };
    (config.method.kind.declaration().build)(&setup)
}

/// The last epoch in which the mask may change.
pub fn freeze_after_epochs(prune: &PruneConfig, cycles: &[Range<usize>]) -> Result<Option<usize>> {
    let Some(count) = prune.freeze_after_cycles else { return Ok(prune.freeze_after_epochs) };
    let Some(cycle) = cycles.get(count - 1) else {
        let problem = format!("is {count}, but the run has {} cycles", cycles.len());
        return Err(Error::config("prune.freeze_after_cycles", problem));
    };
    Ok(Some(cycle.end.saturating_sub(1)))
}

/// When weights are frozen, where a configuration asks for it.
fn freezing(
    config: &Config,
    data: Problem<'_>,
    network: &Network,
    cycles: &[Range<usize>],
) -> Result<Option<Freezing>> {
    let Some(below) = config.train.freeze_below else { return Ok(None) };
    // Two ends are compared, and something has to be left to train.
    let [ends @ .., _] = cycles else { return Ok(None) };
    if ends.len() < 2 {
        let problem = format!(
            "compares the ends of two cycles and saves time in a third, but the run has {}; give schedule.step_size.cycles of 3 or more",
            cycles.len()
        );
        return Err(Error::config("train.freeze_below", problem));
    }
    let columns = match data.inputs {
        ProblemInputs::Table { groups, .. } => Some(groups),
        ProblemInputs::Image { .. } => None,
    };
    Ok(Some(Freezing {
        below,
        layer_share: config.train.freeze_layer_share.unwrap_or(LAYER_SHARE),
        groups: group_network(network, config.prior.group, columns),
        cycle_ends: ends.iter().map(|cycle| cycle.end.saturating_sub(1)).collect(),
    }))
}

/// Refuses more samples than can be kept.
fn check_samples(config: &Config) -> Result<()> {
    if config.train.members == Members::Last {
        return Ok(());
    }
    let (cycles, each) = (config.cycles(), config.train.samples_per_cycle);
    let (count, advice) = match config.stages() {
        Some(stages) => (each.saturating_mul(stages.count), "train.stages"),
        None => (cycles.iter().map(|c| c.len().min(each)).sum(), "schedule.step_size.cycles"),
    };
    if count <= MOST_SAMPLES {
        return Ok(());
    }
    let problem = format!(
        "is {each}, which makes {count} samples a chain in {} cycles, and at most {MOST_SAMPLES} can be kept; give a smaller one, or fewer {advice}",
        cycles.len()
    );
    Err(Error::config("train.samples_per_cycle", problem))
}

/// Every how many epochs a record is made.
pub(crate) fn record_every(config: &Config) -> usize {
    let train = &config.train;
    train.record_every_epochs.unwrap_or(train.epochs.div_ceil(RECORDS)).max(1)
}

/// The chains that a configuration asks for.
pub fn chain_specs<'a>(config: &Config, data: impl Into<Problem<'a>>) -> Result<Vec<ChainSpec>> {
    let data = data.into();
    check_samples(config)?;
    let network = build_network(config, data)?;
    let rows = data.train_rows;
    drawing::check(config, rows)?;
    // A method that asks for gradients itself takes all rows at once.
    let walks = build_method(config, data, &network, 0)?.walker().is_some();
    let batch = if walks { rows } else { config.train.batch.min(rows) };
    let clock = Clock { steps_per_epoch: rows.div_ceil(batch) as u64, epochs: config.train.epochs };
    if clock.epochs as u64 > u64::MAX / clock.steps_per_epoch {
        return Err(Error::config("train.epochs", "times the steps of an epoch is too large"));
    }
    let schedules = Schedules {
        step_size: config.schedule.step_size.schedule(rows),
        temperature: config.schedule.temperature.schedule(rows),
        eta: config.schedule.eta.schedule(rows),
        weight_decay: config.schedule.weight_decay.schedule(rows),
    };
    let cycles = schedules.step_size.cycles(clock.epochs);
    if cycles.len() > clock.epochs {
        let problem = format!(
            "is {}, but there are only {} epochs; give fewer cycles or more train.epochs",
            cycles.len(),
            clock.epochs
        );
        return Err(Error::config("schedule.step_size.cycles", problem));
    }
    let sample_epochs = config.sample_epochs();
    let record_every = record_every(config);
    let fingerprint = config.training_fingerprint()? ^ data.fingerprint;
    let trace = Trace::new(&network, &config.train.trace)?;
    let freeze = freezing(config, data, &network, &cycles)?.map(Arc::new);
    (0..config.chains as u32)
        .map(|chain| {
            Ok(ChainSpec {
                method: build_method(config, data, &network, chain)?,
                network: network.clone(),
                schedules: schedules.clone(),
                clock,
                batch,
                seed: config.seed,
                chain,
                sample_epochs: sample_epochs.clone(),
                stage_ends: config.stages().map_or_else(Vec::new, |stages| stages.ends()),
                record_every,
                evaluate_every: config.train.evaluate_every_epochs,
                precision: config.train.precision.into(),
                shrink: config.prune.shrink,
                freeze: freeze.clone(),
                trace: trace.clone(),
                fingerprint,
            })
        })
        .collect()
}
