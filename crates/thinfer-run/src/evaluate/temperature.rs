//! The temperature of the chains: what their noise injects, what mini-batches add, and whether
//! clipping leaves it a meaning.
//!
//! Mini-batch noise is estimated when a run is evaluated, from a few small batches of training rows
//! at the last sample of a chain. It needs nothing that the run would have to store, and changes no
//! bit of it. A run that accounted for it has measured it in every step.

use serde::Serialize;
use thinfer_core::methods::follow_sizes;
use thinfer_core::methods::sghmc::NoiseRule;
use thinfer_core::posterior::Snapshot;
use thinfer_core::schedule::Clock;
use thinfer_core::train::{ChainResult, Examples, Record};
use thinfer_data::Result;
use thinfer_data::View;
use thinfer_data::images::image_rows;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Network, Passes, Plan};

use super::response::{MOST_STEPS, Response};
use crate::config::Config;

/// A larger share of clipped steps changes what a chain samples from.
pub const MOST_CLIPPED: f64 = 0.01;
/// Chains that are looked at, at most.
const MOST_CHAINS: usize = 4;
/// Batches of rows of a table, and rows in each, at most.
const TABLE_BATCHES: usize = 64;
const TABLE_BATCH: usize = 64;
/// The same for images, whose gradients cost more.
const IMAGE_BATCHES: usize = 8;
const IMAGE_BATCH: usize = 16;
/// Multiply-adds of a forward pass over all images that are looked at, about.
const IMAGE_WORK: usize = 50_000_000_000;
/// Numbers in all gradients that are held at once, about.
const MOST_NUMBERS: usize = 1 << 25;
/// Batches at least, whatever they cost.
const FEWEST_BATCHES: usize = 4;
/// Rounds of Jacobi's rotations at most, and what is left beside the diagonal then.
const SWEEPS: usize = 30;
const SMALL: f64 = 1e-9;

/// The temperature of the chains at their samples, in units of 1/N: 1 is the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Temperature {
    /// k² N, what was asked for.
    pub asked_for: f64,
    /// Of the injected noise, averaged over weights and chains.
    pub injected: f64,
    /// What the noise of mini-batches adds, estimated at the last sample of a chain; 0 with full
    /// batches. Where it is accounted for: what it has in the steps of the last record, which is
    /// missing in `injected`.
    pub minibatch: f64,
    /// Rows that a step of the last record read on average, where mini-batch noise is accounted
    /// for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_a_step: Option<f64>,
    /// The sum of both.
    pub total: f64,
    /// The share of the sampling steps whose gradient was clipped. Sampling steps are those of the
    /// records in which a sample was taken.
    pub clipped_sampling_share: f64,
    /// Whether clipping leaves the numbers above a meaning: not where it acted in more than 1 % of
    /// the sampling steps.
    pub valid: bool,
}

/// The temperature of chains that add noise; `None` where they do not, or have no sample yet.
pub(crate) fn temperature(
    config: &Config,
    network: &Network,
    examples: Examples<'_>,
    results: &[ChainResult],
) -> Result<Option<Temperature>> {
    let ends = results.iter().filter_map(|r| Some((r.records.last()?, r.snapshots.last()?)));
    let ends: Vec<(&Record, &Snapshot)> = ends.collect();
    let injected: Option<Vec<f64>> = ends.iter().map(|(r, _)| r.effective_temperature).collect();
    let Some(injected) = injected.filter(|all| !all.is_empty()) else { return Ok(None) };
    let rows = examples.rows();
    let n = rows as f64;
    let batch = config.train.batch.min(rows).max(1);
    let clock = Clock { steps_per_epoch: rows.div_ceil(batch) as u64, epochs: config.train.epochs };
    let mut heats = Vec::new();
    for (record, sample) in ends.iter().take(MOST_CHAINS) {
        if let Some(measured) = record.batch_temperature {
            heats.push(n * measured);
            continue;
        }
        let Some(response) = response(config, record, clock, (sample.epoch, rows)) else {
            return Ok(None);
        };
        let (variances, kept) = row_variances(config, network, examples, sample)?;
        let decay = config.prior.for_rows(rows).weight_decay;
        let heat = variances
            .iter()
            .fold(0.0, |sum, variance| sum + variance * response.temperature(variance + decay));
        heats.push(n * heat / kept.max(1) as f64);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let asked: Vec<f64> = ends.iter().map(|(record, _)| record.temperature).collect();
    let (injected, minibatch) = (n * mean(&injected), mean(&heats));
    let rows_a_step: Option<Vec<f64>> = ends.iter().map(|(r, _)| r.rows_a_step).collect();
    let clipped_sampling_share = clipped_share(results, clock);
    Ok(Some(Temperature {
        asked_for: n * mean(&asked),
        injected,
        minibatch,
        total: injected + minibatch,
        rows_a_step: rows_a_step.map(|rows| mean(&rows)),
        clipped_sampling_share,
        valid: clipped_sampling_share <= MOST_CLIPPED,
    }))
}

/// How the sampler of a configuration answers to noise, up to the end of an epoch of a run on some
/// rows.
fn response(
    config: &Config,
    record: &Record,
    clock: Clock,
    (epoch, rows): (usize, usize),
) -> Option<Response> {
    let method = &config.method;
    let (beta1, beta2, tau) = match method.kind.name() {
        "sghmc" | "em-mcmc" => (method.beta1, method.beta2, record.tau_mean?),
        "csghmc" => (method.beta1, 1.0, 1.0),
        "csgld" => (0.0, 1.0, 1.0),
        _ => return None,
    };
    let end = (epoch as u64 + 1) * clock.steps_per_epoch;
    let schedules = config.schedule.step_size.schedule(rows);
    let at = |step: u64| {
        let (size, before) =
            (schedules.at(step, clock), schedules.at(step.saturating_sub(1), clock));
        let follows = method.noise == NoiseRule::Exact;
        (size, if follows { follow_sizes(size, before) } else { 1.0 })
    };
    let steps = (end.saturating_sub(MOST_STEPS)..end).rev().map(at).collect();
    let batch = config.train.batch.min(rows).max(1);
    Some(Response { steps, rows, batch, beta1, beta2, tau })
}

/// The share of steps that were clipped, in the records in which a sample was taken.
fn clipped_share(results: &[ChainResult], clock: Clock) -> f64 {
    let (mut clipped, mut steps) = (0, 0);
    for result in results {
        let mut first = 0;
        for record in &result.records {
            let epochs = first..record.epoch + 1;
            first = epochs.end;
            if result.snapshots.iter().any(|sample| epochs.contains(&sample.epoch)) {
                clipped += record.clipped_steps;
                steps += epochs.len() as u64 * clock.steps_per_epoch;
            }
        }
    }
    clipped as f64 / steps.max(1) as f64
}

/// How many batches are looked at, and how many rows each has.
struct Batches {
    count: usize,
    size: usize,
}

impl Batches {
    /// On so many rows, for steps of `batch` and a sample with `kept` weights.
    fn of(network: &Network, images: bool, rows: usize, batch: usize, kept: usize) -> Self {
        let (most, largest) = if images {
            let work = network.multiply_adds().max(1) * IMAGE_BATCH;
            (IMAGE_BATCHES.min(IMAGE_WORK / work), IMAGE_BATCH)
        } else {
            (TABLE_BATCHES, TABLE_BATCH)
        };
        let held = MOST_NUMBERS / kept.max(1);
        let count = most.min(held).max(FEWEST_BATCHES).min(rows / 2).max(1);
        Self { count, size: (rows / count).clamp(1, largest.min(batch).max(1)) }
    }
}

/// Bytes that the estimate takes for a sample of which nothing is pruned, on images of `image`
/// bytes each once they are numbers, or on a table where that is absent.
pub(crate) fn bytes(network: &Network, image: Option<u64>, rows: usize, batch: usize) -> u64 {
    if batch >= rows || rows < 4 {
        return 0;
    }
    let weights = network.params().len();
    let Batches { count, size } = Batches::of(network, image.is_some(), rows, batch, weights);
    // Every gradient, one more as it is made, and the numbers of the kept weights.
    let gradients = 4 * weights as u64 * (count as u64 + 1) + 8 * weights as u64;
    let plan = Plan::bytes_of(network, size, Passes::ForwardAndBack);
    gradients
        .saturating_add(plan)
        .saturating_add(4 * rows as u64)
        .saturating_add(image.unwrap_or(0).saturating_mul(size as u64))
}

/// The variances of a row's gradient along its principal directions, over the kept weights of a
/// sample, and how many weights that are. Directions that the few batches do not show have none.
///
/// At the mode of a likelihood that fits, such a variance is also the curvature of the mean loss.
fn row_variances(
    config: &Config,
    network: &Network,
    examples: Examples<'_>,
    sample: &Snapshot,
) -> Result<(Vec<f64>, usize)> {
    let rows = examples.rows();
    let kept: Vec<usize> = (0..sample.keep.len()).filter(|&at| sample.keep[at] != 0).collect();
    if config.train.batch >= rows || rows < 4 {
        return Ok((Vec::new(), kept.len()));
    }
    let images = matches!(examples, Examples::Images(_));
    let Batches { count: batches, size } =
        Batches::of(network, images, rows, config.train.batch, kept.len());
    // The order that the epoch after the last one would have.
    let next = config.train.epochs as u64;
    let order = Key::new(config.seed, sample.chain, Stream::Shuffle).permutation(next, rows);
    let mut plan = Plan::new(network, size)?;
    let mut stats = sample.stats.clone();
    let mut gradient = vec![0.0; sample.weights.len()];
    let mut gradients: Vec<Vec<f32>> = Vec::new();
    for rows in order.chunks_exact(size).take(batches) {
        match examples {
            Examples::Table(table) => {
                plan.gradient_at(&sample.weights, &mut stats, table, rows, &mut gradient)?;
            }
            Examples::Images(images) => {
                let key = Key::new(config.seed, sample.chain, Stream::Augment);
                let view = View::Random { key, epoch: next };
                let made = image_rows(&images.train, &images.augment, view, rows)?;
                let all: Vec<u32> = (0..rows.len() as u32).collect();
                plan.gradient_at(&sample.weights, &mut stats, &made, &all, &mut gradient)?;
            }
        }
        gradients.push(kept.iter().map(|&at| gradient[at]).collect());
    }
    // The mean of so many rows varies by so much less than a row.
    let scale = size as f64 / (gradients.len() as f64 - 1.0).max(1.0);
    let variances = eigenvalues(centred_products(&gradients));
    // Rounding can leave a zero below 0; what is not a number stays so.
    let positive = |value: &f64| if *value < 0.0 { 0.0 } else { scale * value };
    Ok((variances.iter().map(positive).collect(), kept.len()))
}

/// The products of vectors less their mean, each with each. Their eigenvalues are those of the
/// scatter matrix.
fn centred_products(vectors: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let count = vectors.len();
    let product = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let mut all = vec![vec![0.0; count]; count];
    for i in 0..count {
        for j in 0..=i {
            all[i][j] = product(&vectors[i], &vectors[j]);
            all[j][i] = all[i][j];
        }
    }
    let means: Vec<f64> = all.iter().map(|row| row.iter().sum::<f64>() / count as f64).collect();
    let mean = means.iter().sum::<f64>() / count.max(1) as f64;
    for i in 0..count {
        for j in 0..count {
            all[i][j] += mean - means[i] - means[j];
        }
    }
    all
}

/// The eigenvalues of a symmetric matrix, by Jacobi's rotations.
fn eigenvalues(mut a: Vec<Vec<f64>>) -> Vec<f64> {
    let n = a.len();
    let trace: f64 = (0..n).map(|i| a[i][i].abs()).sum();
    for _ in 0..SWEEPS {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j].abs()).sum();
        // Also where it is not a number.
        if off <= SMALL * trace || off.is_nan() {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] == 0.0 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for k in 0..n {
                    let (x, y) = (a[k][p], a[k][q]);
                    (a[k][p], a[k][q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[p][k], a[q][k]);
                    (a[p][k], a[q][k]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    (0..n).map(|i| a[i][i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three gradients whose mean is (1, 1): scatter matrix ((2, 1), (1, 2)).
    #[test]
    fn principal_variances_are_those_of_the_scatter_matrix() {
        let vectors = [vec![2.0, 1.0], vec![0.0, 0.0], vec![1.0, 2.0]];
        let mut found = eigenvalues(centred_products(&vectors));
        found.sort_by(f64::total_cmp);
        let right = found.iter().zip([0.0, 1.0, 3.0]).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(right, "{found:?}");
        assert!(eigenvalues(Vec::new()).is_empty());
        assert!(eigenvalues(vec![vec![f64::NAN; 2]; 2]).iter().all(|value| value.is_nan()));
    }

    /// Of 20 records, one an epoch, those of epochs 8, 9, 18 and 19 have a sample.
    #[test]
    fn clipped_steps_count_where_samples_were_taken() {
        let mut results = crate::images::imagined::imagined().results;
        results.truncate(1);
        let clock = Clock { steps_per_epoch: 10, epochs: 20 };
        results[0].records[3].clipped_steps = 10;
        assert_eq!(clipped_share(&results, clock), 0.0);
        results[0].records[18].clipped_steps = 6;
        assert_eq!(clipped_share(&results, clock), 6.0 / 40.0);
        // A record that stands for several epochs.
        results[0].records.drain(5..18);
        assert_eq!(clipped_share(&results, clock), 6.0 / (14.0 * 10.0 + 10.0));
        results[0].snapshots.clear();
        assert_eq!(clipped_share(&results, clock), 0.0);
    }
}
