//! The settings of the two stages, from nothing but the size of the table.

use thinfer_engine::Dataset;

use super::Options;
use crate::config::Config;
use crate::data::{Bundle, Task};
use crate::error::Result;
use crate::train::Snapshot;

/// Steps of a screening chain, three cycles of them.
const SCREEN_STEPS: usize = 7500;
/// Steps before a screening chain begins to prune.
const WARM_UP_STEPS: usize = 2000;
/// Steps of a chain on the selected variables.
const REFIT_STEPS: usize = 12_000;
/// Prior precision of a weight whose group is in the slab.
const SLAB_PRECISION: f64 = 10.0;
/// Prior precision of a weight whose group is in the spike.
const SPIKE_PRECISION: f64 = 400.0;
/// Rows a step, at most.
const BATCH: usize = 1024;

/// Snapshots of the last two of three cycles: pruning has settled by then.
pub(super) fn settled(snapshots: &[Snapshot]) -> &[Snapshot] {
    &snapshots[snapshots.len() / 3..]
}

fn epochs(rows: usize, steps: usize) -> usize {
    let per_epoch = rows.div_ceil(BATCH.min(rows));
    steps.div_ceil(per_epoch)
}

/// A step that is stable for these inputs: the first layer sees the largest eigenvalue of their
/// covariance, found by a few power iterations.
fn stable_step(data: &Dataset) -> f64 {
    (15.0 / largest_eigenvalue(data)).clamp(0.01, 0.1)
}

fn largest_eigenvalue(data: &Dataset) -> f64 {
    let (rows, columns) = (data.rows().min(2000), data.columns());
    let mut direction = vec![1.0 / (columns as f64).sqrt(); columns];
    let mut value = 1.0;
    for _ in 0..6 {
        let mut next = vec![0.0; columns];
        for row in 0..rows {
            let x = data.input(row);
            let along: f64 = x.iter().zip(&direction).map(|(x, d)| f64::from(*x) * d).sum();
            next.iter_mut().zip(x).for_each(|(n, x)| *n += along * f64::from(*x) / rows as f64);
        }
        value = next.iter().map(|n| n * n).sum::<f64>().sqrt();
        if value <= 0.0 {
            return 1.0;
        }
        direction = next.into_iter().map(|n| n / value).collect();
    }
    value.max(1.0)
}

/// EM-MCMC without regrowth, cold until the inputs are pruned.
pub(super) fn screening(train: &Dataset, task: Task, options: &Options) -> Result<Config> {
    let rows = train.rows();
    let (epochs, warm_up) = (epochs(rows, SCREEN_STEPS), epochs(rows, WARM_UP_STEPS));
    // The log loss of a class is flatter than a squared error.
    let faster = if task == Task::Classification { 3.0 } else { 1.0 };
    let settings = [
        format!("seed={}", options.seed),
        format!("chains={}", options.chains.max(2)),
        "model.hidden=[6, 4]".into(),
        "method.beta1=0.9".into(),
        "method.clip=10.0".into(),
        // Precisions that do not depend on the number of rows: few rows, more prior.
        format!("prior.weight_decay={}", SLAB_PRECISION / rows as f64),
        format!("prior.spike_decay={}", SPIKE_PRECISION / rows as f64),
        "prior.soft_threshold=1e-2".into(),
        "prune.hard_threshold=1e-3".into(),
        format!("prune.warm_up_epochs={warm_up}"),
        format!("schedule.step_size.value={}", stable_step(train) * faster),
        "schedule.step_size.cycles=3".into(),
        format!("schedule.temperature.warm_up_epochs={epochs}.0"),
        format!("train.epochs={epochs}"),
        format!("train.batch={}", BATCH.min(rows)),
        "train.samples_per_cycle=3".into(),
    ];
    Config::parse("", &settings)
}

/// Algorithm 2 at the temperature of the posterior on a wider network.
pub(super) fn refitting(data: &Bundle, options: &Options) -> Result<Config> {
    let rows = data.train_rows;
    let settings = [
        format!("seed={}", options.seed),
        format!("chains={}", options.chains),
        "method.kind=sghmc".into(),
        "model.hidden=[20, 10]".into(),
        "model.activation=tanh".into(),
        "model.noise=learned".into(),
        "model.noise_sigma=0.7".into(),
        "method.beta1=0.9".into(),
        "method.clip=10.0".into(),
        format!("prior.weight_decay={}", 1.0 / rows as f64),
        "schedule.step_size.value=0.02".into(),
        "schedule.step_size.cycles=3".into(),
        format!("train.epochs={}", epochs(rows, REFIT_STEPS)),
        format!("train.batch={}", BATCH.min(rows)),
        "train.samples_per_cycle=5".into(),
    ];
    Config::parse("", &settings)
}
