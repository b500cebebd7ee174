//! The settings of the two stages, from nothing but the size of the table and the noise of its
//! target.
//!
//! A standardised target whose noise has the variance s² is sampled with the loss (y − f)²/2 at the
//! temperature s²/N and with weight decays δ s²/N. That is the posterior of noise s² and prior
//! precisions δ, with steps that are as stable as for s² = 1. Leaving out s² would take the prior
//! for 1/s² times as strong, and then weak effects beside strong ones are pruned.

use serde::{Deserialize, Serialize};
use thinfer_core::posterior::Snapshot;
use thinfer_data::Result;
use thinfer_data::{Bundle, DataConfig, Task};
use thinfer_engine::Dataset;
use thinfer_run::config::Config;

use super::Options;
use super::linear::Scale;

/// Steps of a screening chain, three cycles of them.
const SCREEN_STEPS: usize = 7500;
/// Steps before a screening chain begins to prune.
const WARM_UP_STEPS: usize = 2000;
/// Time that the model on the selected variables may take on two cores, about.
const REFIT_SECONDS: f64 = 20.0;
/// Prior precision δ₁ of a weight of a network with hidden units whose group is in the slab.
const SLAB_PRECISION: f64 = 10.0;
/// Prior precision δ₀ of a weight of a network with hidden units whose group is in the spike.
const SPIKE_PRECISION: f64 = 400.0;
/// The spike's weight decay at most: more is no stable step.
const LARGEST_DECAY: f64 = 10.0;
/// The spike's weight decay of the linear form, as a share of the curvature of the loss.
const LINEAR_SPIKE: f64 = 0.5;
/// Rows a step, at most.
const BATCH: usize = 1024;

/// What the function may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A network with hidden units.
    Hidden,
    /// A sum of effects.
    Linear,
}

impl Form {
    pub(super) const ALL: [Form; 2] = [Form::Hidden, Form::Linear];
}

/// Snapshots of the last two of three cycles: pruning is done by then.
pub(super) fn after_burn_in(snapshots: &[Snapshot]) -> &[Snapshot] {
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

/// λ of the linear form, on the square of a weight. The largest of p weights that are nothing but
/// noise has the square 2 ln(p) T/(N c); half of that is kept, since the test on unseen rows
/// decides.
fn linear_threshold(variables: usize, rows: usize, scale: Scale) -> f64 {
    (variables.max(3) as f64).ln() * scale.noise / (rows as f64 * scale.curvature)
}

/// EM-MCMC without regrowth, cold until the inputs are pruned.
pub(super) fn screening(
    form: Form,
    train: &Dataset,
    data: &Bundle,
    scale: Scale,
    options: &Options,
) -> Result<Config> {
    let rows = train.rows();
    let n = rows as f64;
    let (epochs, warm_up) = (epochs(rows, SCREEN_STEPS), epochs(rows, WARM_UP_STEPS));
    // The log loss of a class is flatter than a squared error.
    let faster = if data.task == Task::Classification { 3.0 } else { 1.0 };
    let mut settings = vec![
        format!("seed={}", options.seed),
        format!("chains={}", options.chains.max(2)),
        "method.beta1=0.9".into(),
        "method.clip=10.0".into(),
        format!("prune.warm_up_epochs={warm_up}"),
        format!("schedule.step_size.value={}", stable_step(train) * faster),
        "schedule.step_size.cycles=3".into(),
        format!("schedule.temperature.value={}", (scale.noise / n).sqrt()),
        format!("schedule.temperature.warm_up_epochs={epochs}.0"),
        format!("train.epochs={epochs}"),
        format!("train.batch={}", BATCH.min(rows)),
        "train.samples_per_cycle=3".into(),
    ];
    match form {
        Form::Hidden => {
            let spike = (SPIKE_PRECISION * scale.noise / n).min(LARGEST_DECAY);
            settings.extend([
                "model.hidden=[6, 4]".into(),
                // Precisions that do not depend on the number of rows: few rows, more prior.
                format!("prior.weight_decay={}", spike * SLAB_PRECISION / SPIKE_PRECISION),
                format!("prior.spike_decay={spike}"),
                "prior.soft_threshold=1e-2".into(),
                "prune.hard_threshold=1e-3".into(),
            ]);
        }
        Form::Linear => {
            let threshold = linear_threshold(data.names.len(), rows, scale);
            let spike = LINEAR_SPIKE * scale.curvature;
            let slab = scale.noise * scale.curvature / n;
            settings.extend([
                "model.hidden=[]".into(),
                format!("prior.weight_decay={}", slab.min(0.5 * spike)),
                format!("prior.spike_decay={spike}"),
                format!("prior.soft_threshold={threshold}"),
                // A weight that wanders at the temperature of the posterior and is looked at after
                // every step goes below any threshold once, and would never come back: pruning ends
                // with the first cycle, while the chain is cold.
                "prune.freeze_after_cycles=1".into(),
            ]);
        }
    }
    Config::parse("", &settings)
}

/// The model on the selected variables: what a table has by default, and without hidden units in the
/// linear form. Rows say of `data` which table, which columns and which rows.
pub(super) fn refitting(form: Form, data: DataConfig, options: &Options) -> Result<Config> {
    let mut settings = vec![
        format!("seed={}", options.seed),
        "data.kind=table".into(),
        // What is known of the data takes the place of these.
        "data.path=table".into(),
        "data.target=target".into(),
        format!("chains={}", options.chains),
        format!("method.budget_seconds={REFIT_SECONDS}"),
    ];
    if form == Form::Linear {
        settings.push("model.hidden=[]".into());
    }
    let config = Config::parse("", &settings)?;
    Ok(Config { data, ..config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linear_threshold_is_in_units_of_the_variance_of_a_weight() {
        let at = |noise, curvature| linear_threshold(20, 400, Scale { noise, curvature });
        assert!((at(1.0, 1.0) - 20f64.ln() / 400.0).abs() < 1e-15);
        assert!((at(0.25, 1.0) - at(1.0, 1.0) / 4.0).abs() < 1e-15);
        assert!((at(1.0, 0.25) - at(1.0, 1.0) * 4.0).abs() < 1e-15);
    }
}
