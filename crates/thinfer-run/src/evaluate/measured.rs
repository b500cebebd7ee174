//! The temperature of the samples of a table, measured from the samples themselves.

use serde::Serialize;
use thinfer_core::methods::Decay;
use thinfer_core::posterior::Snapshot;
use thinfer_data::Result;
use thinfer_engine::{Dataset, Network, Plan};

use crate::config::Config;

/// Samples of a chain that are looked at, at most, and at least.
const MOST_SAMPLES: usize = 100;
const FEWEST_SAMPLES: usize = 8;
/// Multiply-adds of all gradients, at most: a few seconds of two cores.
const MOST_WORK: f64 = 3e10;
/// Methods whose samples have one prior for a weight, whatever the mask says.
const ONE_PRIOR: [&str; 5] = ["sghmc", "csghmc", "csgld", "mclmc", "nuts"];

/// A measured temperature, in units of 1/N: 1 is the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The mean over samples and chains.
    pub value: f64,
    /// Its standard error, from the halves of the chains.
    pub error: f64,
}

/// The configurational temperature of samples of a table, chain by chain; `None` where a sample
/// does not say its prior, or where there are too few samples, or gradients would take too long.
///
/// For any density exp(−U/T) and any constant c, the mean of (w − c)·∇U is d T, with d the number
/// of weights. U is N times the mean loss with its prior, so T is 1 for the posterior. c is the mean
/// of the other samples of the chain, which keeps the error small.
pub(super) fn measured(
    config: &Config,
    network: &Network,
    data: &Dataset,
    chains: &[Vec<&Snapshot>],
) -> Result<Option<Measured>> {
    let one_prior = ONE_PRIOR.contains(&config.method.kind.name());
    if !one_prior || config.train.freeze_below.is_some() || chains.is_empty() {
        return Ok(None);
    }
    let rows = data.rows();
    let gradient = 3.0 * network.multiply_adds() as f64 * rows as f64;
    let affordable = (MOST_WORK / gradient.max(1.0) / chains.len() as f64) as usize;
    let most = affordable.min(MOST_SAMPLES);
    let fewest = chains.iter().map(Vec::len).min().unwrap_or(0).min(most);
    if fewest < FEWEST_SAMPLES {
        return Ok(None);
    }
    let decay = Decay::of(&config.prior.for_rows(rows), network, rows);
    let decay_factor = decay_factor(config);
    let all: Vec<u32> = (0..rows as u32).collect();
    let mut plan = Plan::new(network, rows)?;
    let mut halves = Vec::new();
    for chain in chains {
        let chosen: Vec<&Snapshot> =
            (1..=fewest).map(|at| chain[at * chain.len() / fewest - 1]).collect();
        let mut temperatures = Vec::with_capacity(chosen.len());
        let mut sums = vec![0.0; network.params().len()];
        for sample in &chosen {
            sums.iter_mut().zip(&sample.weights).for_each(|(sum, w)| *sum += f64::from(*w));
        }
        for sample in &chosen {
            let mut gradient = vec![0.0; sample.weights.len()];
            let mut stats = sample.stats.clone();
            plan.gradient_at(&sample.weights, &mut stats, data, &all, &mut gradient)?;
            let (mut sum, mut d) = (0.0, 0);
            for (i, w) in sample.weights.iter().enumerate().filter(|(i, _)| sample.keep[*i] != 0) {
                let w = f64::from(*w);
                let centre = (sums[i] - w) / (chosen.len() - 1) as f64;
                let slope = f64::from(gradient[i]) + decay_factor * decay.at(i) * w;
                sum += (w - centre) * slope;
                d += 1;
            }
            temperatures.push(rows as f64 * sum / f64::from(d.max(1)));
        }
        let (first, second) = temperatures.split_at(temperatures.len() / 2);
        halves.extend([first, second].map(mean));
    }
    let value = mean(&halves);
    let spread = halves.iter().map(|half| (half - value).powi(2)).sum::<f64>();
    let n = halves.len() as f64;
    Ok(Some(Measured { value, error: (spread / (n - 1.0) / n).sqrt() }))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The factor on the weight decay at the end of the run.
fn decay_factor(config: &Config) -> f64 {
    use thinfer_core::schedule::Clock;
    let clock = Clock { steps_per_epoch: 1, epochs: config.train.epochs };
    let schedule = config.schedule.weight_decay.schedule(1);
    schedule.at(clock.total_steps().saturating_sub(1), clock)
}
