//! From a configuration to chains: data, network, method, schedules.

use std::ops::Range;
use std::sync::Arc;

use thinfer_core::methods::Method;
use thinfer_core::methods::csgmcmc::{Csgmcmc, CsgmcmcMethod};
use thinfer_core::methods::cv_adam::{CvAdam, CvAdamMethod};
use thinfer_core::methods::dpf_lin::{DpfLin, DpfLinMethod};
use thinfer_core::methods::dsr::{Dsr, DsrMethod};
use thinfer_core::methods::em_mcmc::{EmMcmc, EmMcmcMethod};
use thinfer_core::methods::rank1::{Rank1, first_scale};
use thinfer_core::methods::sgd::Sgd;
use thinfer_core::methods::sghmc::{NoiseRule, Sghmc, SghmcMethod};
use thinfer_core::methods::sm::{Sm, SmMethod};
use thinfer_core::methods::sparse::Layers;
use thinfer_core::model::{image_network_with, mlp, rank1};
use thinfer_core::prune::{Channels, HardThreshold, Rule, SoftThreshold, Target, group_network};
use thinfer_core::schedule::Clock;
use thinfer_core::train::{ChainSpec, Freezing, Schedules, Trace};
use thinfer_data::{Bundle, Data, ImageData, Task};
use thinfer_data::{Error, Result};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Law, Loss, Mixture, Network, Shape};

use crate::config::{Config, Members, MethodKind, NoiseModel, PruneConfig};

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
        let inputs =
            ProblemInputs::Table { task: data.task, classes: data.classes, groups: &data.groups };
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
    if method.kind != MethodKind::Rank1 {
        return Ok(network);
    }
    Ok(rank1(
        &network,
        Mixture {
            members: method.members.unwrap_or(1),
            law: method.posterior.unwrap_or(Law::Gaussian),
            draws: method.draws.unwrap_or(1),
        },
    )?)
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
        ProblemInputs::Table { task: Task::Regression, groups, .. } => {
            let loss = match model.noise {
                NoiseModel::Known => Loss::gaussian(model.noise_sigma),
                NoiseModel::Learned => Loss::gaussian_learned(model.noise_sigma),
            };
            (groups.len(), 1, loss)
        }
        ProblemInputs::Table { classes: 2, groups, .. } => (groups.len(), 1, Loss::Bernoulli),
        ProblemInputs::Table { classes, groups, .. } => {
            let loss = Loss::CrossEntropy { smoothing: model.label_smoothing };
            (groups.len(), classes, loss)
        }
    };
    Ok(mlp(columns, &model.hidden, model.activation, outputs, loss)?)
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
    let key = Key::new(config.seed, chain, Stream::Sampler);
    let (method, prior, prune) = (&config.method, &config.prior, &config.prune);
    let train_rows = data.train_rows;
    let sghmc = Sghmc {
        beta1: method.beta1,
        beta2: method.beta2,
        weight_decay: prior.weight_decay,
        train_rows,
        noise: method.noise,
        rho: method.rho,
        initial_momentum: method.initial_momentum,
        clip: method.clip,
    };
    let sgd = Sgd {
        momentum: method.momentum,
        weight_decay: prior.weight_decay,
        nesterov: method.nesterov,
    };
    let cycles = config.schedule.step_size.schedule(train_rows).cycles(config.train.epochs);
    let freeze_after_epochs = freeze_after_epochs(prune, &cycles)?;
    Ok(match method.kind {
        MethodKind::Sgd => Arc::new(sgd),
        MethodKind::Rank1 => {
            let steps = train_rows.div_ceil(config.train.batch.min(train_rows).max(1));
            let law = method.posterior.unwrap_or(Law::Gaussian);
            Arc::new(Rank1 {
                momentum: method.momentum,
                weight_decay: prior.weight_decay,
                train_rows,
                law,
                prior_sd: method.prior_sd.unwrap_or(0.1),
                kl_steps: method.kl_epochs.unwrap_or(1.0) * steps as f64,
                random_sign: method.random_sign.unwrap_or(0.5),
                first_scale: method.first_scale.unwrap_or_else(|| first_scale(law)),
            })
        }
        MethodKind::Csgld | MethodKind::Csghmc => Arc::new(CsgmcmcMethod {
            config: Csgmcmc {
                momentum: if method.kind == MethodKind::Csgld { 0.0 } else { method.beta1 },
                weight_decay: prior.weight_decay,
                sampling_epochs: method.sampling_epochs,
                clip: method.clip,
                follow: method.noise == NoiseRule::Exact,
            },
            cycles,
            key,
        }),
        MethodKind::DpfLin | MethodKind::Sm | MethodKind::Dsr => {
            let layers = Layers::new(network, &prune.dense_layers)?;
            let target = prune.target.unwrap_or_default();
            let pruned = layers.budget(target, network.params().len())?;
            let (rate, epochs) = (prune.rate, config.train.epochs);
            match method.kind {
                MethodKind::DpfLin => {
                    let last_epoch = freeze_after_epochs.unwrap_or(epochs * 3 / 4).max(1);
                    if last_epoch >= epochs {
                        let problem = format!(
                            "is reached in epoch {last_epoch}, counted from 0, but the run has {epochs}; give more train.epochs or an earlier end of pruning (prune.freeze_after_epochs)"
                        );
                        return Err(Error::config("prune.target", problem));
                    }
                    let config = DpfLin { sgd, pruned, last_epoch };
                    Arc::new(DpfLinMethod { config, layers })
                }
                MethodKind::Sm => {
                    let config = Sm { sgd, rate, epochs, freeze_after_epochs };
                    Arc::new(SmMethod { config, layers, pruned })
                }
                _ => {
                    // The authors stop after epoch 190 of 200.
                    let freeze_after_epochs = freeze_after_epochs.unwrap_or(epochs * 19 / 20);
                    let config = Dsr { sgd, rate, freeze_after_epochs };
                    Arc::new(DsrMethod { config, layers, pruned, key })
                }
            }
        }
        MethodKind::CvAdam => Arc::new(CvAdamMethod {
            config: CvAdam {
                beta1: method.beta1,
                beta2: method.beta2,
                weight_decay: prior.weight_decay,
                train_rows,
                alpha: method.alpha,
            },
            key,
        }),
        MethodKind::Sghmc => Arc::new(SghmcMethod { config: sghmc, key }),
        MethodKind::EmMcmc => {
            let n = train_rows as f64;
            let soft_threshold = match (prior.soft_threshold, prior.spike_probability) {
                (None, Some(spike_probability)) => SoftThreshold::Computed {
                    spike_precision: prior.spike_decay * n,
                    slab_precision: prior.weight_decay * n,
                    spike_probability,
                },
                (given, _) => SoftThreshold::Given(given.unwrap_or_default()),
            };
            // Where no hard threshold is given the paper's rule applies: λ₁ for both. A computed
            // λ₁ depends on the group's size; the first layer's inputs decide.
            let first = network.first_weight().map_or(1, |w| w.shape[0]);
            let channels = (prune.rule != Rule::MeanSquare).then(|| {
                Channels::new(network, prune.rule, prune.keep_norm)
                    .in_multiples_of(prune.multiple)
                    .weighed_by_work(prune.work_exponent)
            });
            let hard_threshold = match prune.target {
                Some(share) => {
                    let (warm_up, by) = (prune.warm_up_epochs, freeze_after_epochs);
                    HardThreshold::Target(Target::new(share, &cycles, warm_up, by)?)
                }
                None => HardThreshold::Given(
                    prune.hard_threshold.unwrap_or_else(|| soft_threshold.of(first)),
                ),
            };
            let method = EmMcmcMethod {
                config: EmMcmc {
                    sghmc,
                    spike_decay: prior.spike_decay,
                    soft_threshold,
                    hard_threshold,
                    warm_up_epochs: prune.warm_up_epochs,
                    freeze_after_epochs,
                    after_freeze: prune.after_freeze,
                    cadence: prune.cadence,
                    regrow: prune.regrow,
                },
                groups: group_network(network, prior.group, columns),
                channels,
                key,
            };
            let most = method.prunable() as f64 / network.params().len() as f64;
            if let Some(target) = prune.target.filter(|target| *target > most) {
                let problem = format!(
                    "is {target}, but at most {most:.3} of this network's parameters can be pruned; give a smaller one"
                );
                return Err(Error::config("prune.target", problem));
            }
            Arc::new(method)
        }
    })
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

/// The chains that a configuration asks for.
pub fn chain_specs<'a>(config: &Config, data: impl Into<Problem<'a>>) -> Result<Vec<ChainSpec>> {
    let data = data.into();
    let network = build_network(config, data)?;
    let rows = data.train_rows;
    let batch = config.train.batch.min(rows);
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
    if config.train.members == Members::Snapshots {
        let each = config.train.samples_per_cycle;
        let count: usize = cycles.iter().map(|cycle| cycle.len().min(each)).sum();
        if count > MOST_SAMPLES {
            let problem = format!(
                "is {each}, which makes {count} samples a chain in {} cycles, and at most {MOST_SAMPLES} can be kept; give a smaller one, or fewer schedule.step_size.cycles",
                cycles.len()
            );
            return Err(Error::config("train.samples_per_cycle", problem));
        }
    }
    let sample_epochs = config.sample_epochs();
    let record_every =
        config.train.record_every_epochs.unwrap_or(clock.epochs.div_ceil(RECORDS)).max(1);
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
