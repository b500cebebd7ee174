//! The evaluation of a run: scores on held-out rows, selected variables, size, and what the chains
//! did.

mod believe;
mod beside;
mod blow_up;
mod convergence;
mod inclusion;
mod measured;
mod response;
mod temperature;
mod verdict;

use std::collections::BTreeMap;

use serde::Serialize;
use thinfer_core::metrics::{self, Noise, Pit, ReliabilityBin, Selection, Sparsity};
use thinfer_core::posterior::Snapshot;
use thinfer_core::posterior::{Posterior, Predictive, SampleRule};
use thinfer_core::shrink::{Layout, shrink};
use thinfer_core::train::{ChainResult, live_inputs};
use thinfer_data::{Bundle, Task};
use thinfer_data::{Error, Result};
use thinfer_engine::{Dataset, Network, NodeId, Op};

use crate::config::{Config, DataKind};
pub use believe::{Belief, Verdict, has_ended};
pub(crate) use believe::{Calibrated, Evidence};
pub use beside::{Beside, PlainScores};
pub use blow_up::{blew_up, blown_up_chains, untrained_loss};
pub use convergence::{AGREED, Agreement, Convergence, LEAST_SAMPLES, SampleTrace};
pub(crate) use convergence::{Sampled, compared_rows};
pub use inclusion::Inclusion;
pub use measured::Measured;
pub use temperature::{MOST_CLIPPED, Temperature};
pub(crate) use temperature::{bytes as temperature_bytes, temperature};
pub use verdict::Quality;

/// The level of predictive intervals in reports.
pub const LEVEL: f64 = 0.9;

/// Scores of one prediction, in the user's units; `null` where it does not apply.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Posterior samples that were averaged.
    pub members: usize,
    /// Mean squared error.
    pub mse: Option<f64>,
    /// Share of right classes.
    pub accuracy: Option<f64>,
    /// Mean negative log-likelihood of the predictive mixture.
    pub nll: Option<f64>,
    /// Share of rows inside their 90 % interval.
    pub coverage90: Option<f64>,
    /// Expected calibration error, 15 bins of equal width.
    pub ece: Option<f64>,
    /// Brier score.
    pub brier: Option<f64>,
}

/// How large the network is and how much of it is left.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Size {
    /// All parameters.
    pub parameters: usize,
    /// Parameters of the smaller network that `thinfer shrink` writes, mean over chains.
    pub kept: f64,
    /// Pruned share of all parameters.
    pub sparsity: Sparsity,
    /// Pruned share of the weights, without biases.
    pub weight_sparsity: Sparsity,
    /// Multiply-adds a row, of the whole network and of the smaller one.
    pub multiply_adds: (usize, f64),
    /// Input columns, all and those that the smaller network reads.
    pub inputs: (usize, f64),
    /// Hidden units of the whole network and of the smaller one.
    pub units: (usize, f64),
    /// Bytes of the method's own state a weight: weights, velocity, ρ and one byte of masks.
    pub state_bytes_per_weight: f64,
}

/// What the chains did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Behaviour {
    /// The temperature of the injected noise alone, in the last record, times N.
    pub effective_temperature_times_n: Option<f64>,
    /// The temperature asked for, times N.
    pub temperature_times_n: f64,
    /// What is known about the temperature of the samples; `None` where the method adds no noise,
    /// or where the training data was not at hand.
    pub temperature: Option<Temperature>,
    /// The temperature of the samples as they are; of tables alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Mean of τ over weights at the end.
    pub tau_mean: Option<f64>,
    /// Standard deviation of τ over weights at the end.
    pub tau_sd: Option<f64>,
    /// Mean over rows of the standard deviation between members: 0 means the samples are copies.
    pub disagreement: Option<f64>,
    /// Steps whose gradient was clipped, all chains together.
    pub clipped_steps: u64,
    /// The largest mean loss of an epoch after the first tenth of the run, and that epoch's
    /// neighbourhood: a chain that left its mode shows here even when it came back.
    pub largest_loss: f64,
    /// The mean loss of the last epoch, mean over chains.
    pub final_loss: f64,
}

/// Everything `thinfer eval` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// `regression` or `classification`.
    pub task: Task,
    /// Rows of the three parts.
    pub rows: (usize, usize, usize),
    /// The posterior: the average of the samples that the run keeps, see [`SampleRule`].
    pub posterior: Scores,
    /// The average of all samples, burn-in, near-copies and earlier masks included.
    pub all_samples: Scores,
    /// The last sample of each chain alone, averaged over chains' scores.
    pub last: Scores,
    /// The mean (regression) or the majority class (classification) of the training rows.
    pub baseline: Scores,
    /// The posterior beside a constant and a linear model, of tables that users give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// Variables in the final network of more than half of the chains; where assignments are drawn,
    /// those with an inclusion above one half.
    pub selected: Vec<String>,
    /// Where assignments are drawn: the probability of each variable that its weights are in the
    /// slab, given the data. It is the mean of P(γ = 1 | w, π) over the samples after the burn-in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusion: Option<Inclusion>,
    /// The largest difference between the probabilities that two chains give one variable. Chains
    /// that have mixed agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusion_difference: Option<f64>,
    /// The share of all samples, over chains, whose network reads the variable. It says how long
    /// the variable survived pruning and is no probability: without regrowth it falls with the
    /// length of the run.
    pub survival: BTreeMap<String, f64>,
    /// Against the truth, where it is known.
    pub selection: Option<Selection>,
    /// Size.
    pub size: Size,
    /// Behaviour.
    pub behaviour: Behaviour,
    /// Whether the samples agree.
    pub convergence: Convergence,
    /// Chains that blew up and are left out of every average.
    pub blown_up: Vec<u32>,
    /// Where the truth of the test rows lies in what the posterior predicts; of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<Pit>,
    /// The reliability diagram of the posterior, in bins of equal width; of classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reliability: Vec<ReliabilityBin>,
    /// Whether to believe all this.
    pub verdict: Verdict,
}

impl Behaviour {
    /// Whether the method takes samples, so that they can have converged.
    pub fn adds_noise(&self) -> bool {
        self.effective_temperature_times_n.is_some()
    }
}

impl From<&Scores> for Quality {
    fn from(scores: &Scores) -> Self {
        Self { nll: scores.nll, ece: scores.ece }
    }
}

/// Scores a predictive distribution against the targets of `data`.
pub fn score(predictive: &Predictive, data: &Dataset, scale: (f64, f64)) -> Scores {
    let truth = data.targets();
    let (_, sd) = scale;
    match predictive {
        Predictive::Regression { noise, means, sigmas } => {
            let interval = predictive.interval(LEVEL);
            Scores {
                members: means.len(),
                mse: metrics::mse(&predictive.mean(), truth).map(|m| m * sd * sd),
                accuracy: None,
                nll: noise.nll(means, sigmas, truth).map(|l| l + sd.ln()),
                coverage90: interval
                    .and_then(|(low, high)| metrics::interval_coverage(&low, &high, truth)),
                ece: None,
                brier: None,
            }
        }
        Predictive::Classes { classes, members } => {
            let (mean, classes) = (predictive.mean(), *classes);
            Scores {
                members: members.len(),
                mse: None,
                accuracy: metrics::accuracy_from_probabilities(&mean, classes, truth),
                nll: metrics::negative_log_likelihood_classes(&mean, classes, truth),
                coverage90: None,
                ece: metrics::ece(&mean, classes, truth, metrics::ECE_BINS).map(|c| c.ece),
                brier: metrics::brier(&mean, classes, truth),
            }
        }
    }
}

/// The bins of a reliability diagram; classification only.
pub fn reliability(predictive: &Predictive, data: &Dataset) -> Vec<ReliabilityBin> {
    let Predictive::Classes { classes, .. } = predictive else { return Vec::new() };
    let calibration = metrics::ece(&predictive.mean(), *classes, data.targets(), metrics::ECE_BINS);
    calibration.map(|c| c.bins).unwrap_or_default()
}

/// The constant that predicts no worse than a posterior, where it does.
fn no_better_than(task: Task, posterior: &Scores, constant: &Scores) -> Option<&'static str> {
    let (worse, name) = match task {
        Task::Regression => (posterior.mse? >= constant.mse?, "the mean of the training rows"),
        Task::Classification => {
            (posterior.accuracy? <= constant.accuracy?, "the most frequent class")
        }
    };
    worse.then_some(name)
}

/// What a constant prediction from the training rows is worth on the test rows.
pub fn baseline(data: &Bundle) -> Scores {
    let n = data.train.rows() as f64;
    let rows = data.test.rows();
    let predictive = match data.task {
        Task::Regression => {
            let mean = data.train.targets().iter().map(|y| f64::from(*y)).sum::<f64>() / n;
            let spread = data.train.targets().iter().map(|y| (f64::from(*y) - mean).powi(2));
            let sigma = (spread.sum::<f64>() / n).sqrt();
            let means = vec![vec![mean; rows]];
            if data.schema.count_mean().is_some() {
                // A count that varies more than a Poisson's, where it does.
                let excess = (sigma * sigma - mean).max(0.0) / (mean * mean);
                let scale = excess.sqrt().max(1e-3);
                let sigmas = vec![scale].into();
                Predictive::Regression { noise: Noise::NegativeBinomial, means, sigmas }
            } else {
                Predictive::Regression { noise: Noise::Normal, means, sigmas: vec![sigma].into() }
            }
        }
        Task::Classification => {
            let mut counts = vec![0.0; data.classes];
            data.train.targets().iter().for_each(|y| counts[*y as usize] += 1.0 / n);
            let member = (0..rows).flat_map(|_| counts.iter().copied()).collect();
            Predictive::Classes { classes: data.classes, members: vec![member] }
        }
    };
    Scores { members: 0, ..score(&predictive, &data.test, data.schema.target_scale()) }
}

/// The variables whose columns a snapshot still reads.
pub fn live_variables(network: &Network, snapshot: &Snapshot, groups: &[usize]) -> Vec<usize> {
    let mut variables: Vec<usize> =
        live_inputs(network, &snapshot.keep).into_iter().map(|c| groups[c]).collect();
    variables.dedup();
    variables
}

/// Evaluates what some chains found; the configuration says which samples are averaged.
pub fn evaluate(
    config: &Config,
    network: &Network,
    data: &Bundle,
    results: &[ChainResult],
) -> Result<Evaluation> {
    let rule = config.sample_rule();
    let outputs = network.output_len();
    let untrained = untrained_loss(network.loss(), outputs, data.train.targets());
    let blown_up = blown_up_chains(results, &rule, untrained);
    check_chains(results.len(), &blown_up)?;
    let rule = rule.without(&blown_up);
    let usable: Vec<&ChainResult> =
        results.iter().filter(|r| !blown_up.contains(&r.chain)).collect();
    let members: Vec<Snapshot> = usable.iter().flat_map(|r| r.snapshots.clone()).collect();
    let all = Posterior { network: network.clone(), members };
    let kept = all.kept(&rule);
    let scale = data.schema.target_scale();
    let predictive = kept.predict(&data.test)?;
    let of_all = all.predict(&data.test)?;
    let last = all.last();
    let chains = last.members.len() as f64;

    let mut survival = vec![0.0; data.names.len()];
    for chain in all.chains() {
        let of_chain: Vec<&Snapshot> = all.members.iter().filter(|m| m.chain == chain).collect();
        let mut counts = vec![0usize; data.names.len()];
        for member in &of_chain {
            for variable in live_variables(network, member, &data.groups) {
                counts[variable] += 1;
            }
        }
        let shares = counts.iter().map(|count| *count as f64 / of_chain.len() as f64);
        survival.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }
    survival.iter_mut().for_each(|sum| *sum /= chains.max(1.0));
    let mut votes = vec![0.0; data.names.len()];
    for member in &last.members {
        for variable in live_variables(network, member, &data.groups) {
            votes[variable] += 1.0;
        }
    }
    let seen = behaviour(results, disagreement(&predictive, scale), data.train.rows());
    let temperature = temperature(config, network, (&data.train).into(), results)?;
    let samples: Vec<&Snapshot> = all.members.iter().collect();
    let after_burn_in = rule.after_burn_in(&samples);
    let chains: Vec<Vec<&Snapshot>> =
        after_burn_in.iter().map(|chain| chain.iter().map(|&at| samples[at]).collect()).collect();
    let measured = measured::measured(config, network, &data.train, &chains)?;
    let inclusion = Inclusion::of(&data.names, &chains);
    let of_half = last.members.len() as f64 / 2.0;
    let selected: Vec<usize> = (0..votes.len())
        .filter(|&v| inclusion.as_ref().map_or(votes[v] > of_half, |found| found.selects(v)))
        .collect();
    let behaviour = Behaviour { temperature, measured, ..seen };
    let convergence = convergence(&all, &of_all, &data.test, scale.1, &rule);
    let posterior = score(&predictive, &data.test, scale);
    let (baseline, last_scores) = (baseline(data), mean_scores(&last, data)?);
    let pit = predictive.around(data.test.targets()).and_then(|around| metrics::pit(&around));
    let reliability = reliability(&predictive, &data.test);
    let of_user = config.data.kind == DataKind::Table;
    let beside = of_user.then(|| Beside::of(&predictive, data, config.seed));
    let size = size(network, &last.members, results)?;
    let verdict = Verdict::of(&Evidence {
        config,
        results,
        blown_up: &blown_up,
        convergence: &convergence,
        behaviour: &behaviour,
        members: posterior.members,
        no_better_than: no_better_than(data.task, &posterior, &baseline),
        beside: beside.as_ref(),
        nearest_mean: None,
        prunes_nothing: size.sparsity.value() == 0.0,
        pit: pit.as_ref(),
        counts: data.schema.count_mean().is_some(),
        calibrated: posterior
            .ece
            .map(|ece| Calibrated { ece, by_chance: metrics::ece_by_chance(&reliability) }),
        qualities: [(&posterior).into(), (&last_scores).into()],
    });
    Ok(Evaluation {
        task: data.task,
        rows: (data.train.rows(), data.validation.rows(), data.test.rows()),
        posterior,
        all_samples: score(&of_all, &data.test, scale),
        last: last_scores,
        baseline,
        beside,
        selection: data.truth.as_ref().map(|truth| Selection::compare(&selected, truth)),
        selected: selected.iter().map(|&v| data.names[v].clone()).collect(),
        survival: data.names.iter().cloned().zip(survival).collect(),
        inclusion_difference: inclusion.as_ref().and_then(|found| found.difference),
        inclusion,
        size,
        behaviour,
        convergence,
        blown_up,
        pit,
        reliability,
        verdict,
    })
}

/// An error where every chain of a run blew up.
pub(crate) fn check_chains(chains: usize, blown_up: &[u32]) -> Result<()> {
    if chains == 0 || blown_up.len() < chains {
        return Ok(());
    }
    let which = if chains == 1 { "the chain".to_owned() } else { format!("all {chains} chains") };
    Err(Error::BlownUp(format!(
        "{which} blew up: the training loss is not finite or far above that of an untrained network, so there is nothing to average. history.csv in the folder of the run shows when; train again with a smaller `schedule.step_size.value`"
    )))
}

/// How far predictions of training rows agree.
pub(crate) fn agreement_in_training(
    config: &Config,
    all: &Posterior,
    data: &Bundle,
) -> Result<Option<Agreement>> {
    let chosen: Vec<u32> = compared_rows(data.train.rows()).map(|row| row as u32).collect();
    let rows = data.train.take_rows(&chosen);
    let predictive = all.predict(&rows)?;
    let rule = config.sample_rule();
    Ok(convergence(all, &predictive, &rows, 1.0, &rule).predictions)
}

/// Whether samples agree on some rows, whose target has this standard deviation in its own units.
fn convergence(
    all: &Posterior,
    predictive: &Predictive,
    rows: &Dataset,
    sd: f64,
    rule: &SampleRule,
) -> Convergence {
    let samples: Vec<&Snapshot> = all.members.iter().collect();
    let truth = rows.targets();
    let rows = compared_rows(truth.len());
    let sampled = match predictive {
        Predictive::Regression { noise, means, sigmas } => {
            let one = |(member, f): (usize, &Vec<f64>)| {
                let nll = noise.nll(std::slice::from_ref(f), &sigmas.of_member(member), truth);
                nll.map_or(f64::NAN, |nll| -nll - sd.ln())
            };
            let loss = all.network.loss();
            let learned = loss.scale_param().is_some() || loss.is_by_row();
            let log = |member| sigmas.mean_log(member) + sd.ln();
            let logs = || (0..sigmas.members()).map(log).collect();
            Sampled {
                samples: &samples,
                predictions: means
                    .iter()
                    .map(|f| rows.clone().map(|row| f[row]).collect())
                    .collect(),
                log_likelihood: means.iter().enumerate().map(one).collect(),
                log_sigma: learned.then(logs),
            }
        }
        Predictive::Classes { classes, members } => {
            let one = |member: &Vec<f64>| {
                metrics::negative_log_likelihood_classes(member, *classes, truth)
                    .map_or(f64::NAN, |nll| -nll)
            };
            let of_truth = |member: &Vec<f64>| {
                let all = metrics::of_truth(member, *classes, truth);
                rows.clone().map(|row| all[row]).collect()
            };
            Sampled {
                samples: &samples,
                predictions: members.iter().map(of_truth).collect(),
                log_likelihood: members.iter().map(one).collect(),
                log_sigma: None,
            }
        }
    };
    Convergence::of(&sampled, rule)
}

/// The mean of the scores of single members.
fn mean_scores(posterior: &Posterior, data: &Bundle) -> Result<Scores> {
    let mut each = Vec::new();
    for member in &posterior.members {
        let one = Posterior { network: posterior.network.clone(), members: vec![member.clone()] };
        each.push(score(&one.predict(&data.test)?, &data.test, data.schema.target_scale()));
    }
    let mean = |value: fn(&Scores) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> = each.iter().map(value).collect();
        values.filter(|v| !v.is_empty()).map(|v| v.iter().sum::<f64>() / v.len() as f64)
    };
    Ok(Scores {
        members: 1,
        mse: mean(|s| s.mse),
        accuracy: mean(|s| s.accuracy),
        nll: mean(|s| s.nll),
        coverage90: mean(|s| s.coverage90),
        ece: mean(|s| s.ece),
        brier: mean(|s| s.brier),
    })
}

fn size(network: &Network, last: &[Snapshot], results: &[ChainResult]) -> Result<Size> {
    let parameters = network.params().len();
    let chains = last.len().max(1);
    let kept: usize =
        last.iter().map(|s| s.keep.iter().map(|k| usize::from(*k)).sum::<usize>()).sum();
    let weights: Vec<_> = network.params().iter().filter(|p| p.role.is_weight()).collect();
    let total: usize = weights.iter().map(|p| p.len()).sum();
    let kept_weights: usize = last
        .iter()
        .flat_map(|s| weights.iter().map(|p| &s.keep[p.range()]))
        .map(|keep| keep.iter().map(|k| usize::from(*k)).sum::<usize>())
        .sum();
    let method_bytes: usize = results.iter().map(|r| r.method_bytes).sum();
    let hidden: Vec<NodeId> = (0..network.nodes().len())
        .map(NodeId)
        .filter(|id| *id != network.output())
        .filter(|id| matches!(network.nodes()[id.0].op, Op::Linear { .. }))
        .collect();
    let units = hidden.iter().map(|id| network.nodes()[id.0].shape.channels).sum();
    // Marks alone say too much or too little: a kept weight may read or feed something dead, and a
    // pruned one may stay in a layer as a zero.
    let mut left = [0usize; 4];
    for sample in last {
        let small = shrink(network, &sample.keep, Layout::SMALLEST)?;
        left[0] += small.network.params().len();
        left[1] += small.network.multiply_adds();
        left[2] += small.inputs.len();
        left[3] += hidden.iter().map(|id| small.channels(*id).len()).sum::<usize>();
    }
    let [left, macs, inputs, used] = left.map(|total| total as f64 / chains as f64);
    Ok(Size {
        parameters,
        kept: left,
        sparsity: Sparsity::of_counts(parameters * chains - kept, parameters * chains),
        weight_sparsity: Sparsity::of_counts(total * chains - kept_weights, total * chains),
        multiply_adds: (network.multiply_adds(), macs),
        inputs: (network.input_len(), inputs),
        units: (units, used),
        state_bytes_per_weight: method_bytes as f64 / (parameters * results.len()).max(1) as f64,
    })
}

/// How far members lie apart, in the user's units or as probabilities.
fn disagreement(predictive: &Predictive, scale: (f64, f64)) -> Option<f64> {
    match predictive {
        Predictive::Regression { means, .. } => metrics::disagreement(means).map(|d| d * scale.1),
        Predictive::Classes { members, .. } => metrics::disagreement(members),
    }
}

/// What chains on `n` training rows did, as their records tell it.
pub(crate) fn behaviour(results: &[ChainResult], disagreement: Option<f64>, n: usize) -> Behaviour {
    let n = n as f64;
    let last: Vec<_> = results.iter().filter_map(|r| r.records.last()).collect();
    let count = last.len().max(1) as f64;
    let mean = |value: fn(&thinfer_core::train::Record) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> = last.iter().map(|r| value(r)).collect();
        values.filter(|v| !v.is_empty()).map(|v| v.iter().sum::<f64>() / v.len() as f64)
    };
    let largest = results
        .iter()
        .flat_map(|r| {
            let end = r.records.last().map_or(0, |record| record.epoch);
            r.records.iter().filter(move |record| record.epoch * 10 > end || record.epoch == end)
        })
        .map(|record| record.largest_loss)
        .reduce(f64::max);
    Behaviour {
        effective_temperature_times_n: mean(|r| r.effective_temperature).map(|t| t * n),
        temperature_times_n: last.iter().map(|r| r.temperature).sum::<f64>() / count * n,
        temperature: None,
        measured: None,
        tau_mean: mean(|r| r.tau_mean),
        tau_sd: mean(|r| r.tau_sd),
        disagreement,
        clipped_steps: results.iter().flat_map(|r| &r.records).map(|r| r.clipped_steps).sum(),
        // A loss may be negative; 0 stands only where there is none at all.
        largest_loss: largest.unwrap_or_default(),
        final_loss: last.iter().map(|r| r.loss).sum::<f64>() / count,
    }
}

#[cfg(test)]
mod tests;
