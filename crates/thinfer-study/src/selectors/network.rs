//! What the selectors that train a network share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use thinfer_core::posterior::Predictive;
use thinfer_data::{Bundle, Task};
use thinfer_data::{Error, Result};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, Loss, Network, NetworkBuilder, vectorize};
use thinfer_run::config::Activation;

/// Steps between two looks at whether the user wants to stop.
pub(super) const STEPS_A_LOOK: u64 = 64;

/// An error when the user asked to stop.
pub(super) fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted(PathBuf::new())) } else { Ok(()) }
}

/// An error when the loss left the numbers.
pub(super) fn check_loss(loss: f64, what: &str, step: u64) -> Result<()> {
    if loss.is_finite() {
        return Ok(());
    }
    Err(Error::Data(format!(
        "the loss of {what} is not finite at step {step}; lower its learning rate or standardise the inputs"
    )))
}

/// The shape of a perceptron.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) hidden: &'a [usize],
    pub(super) activation: Activation,
    pub(super) bias: bool,
}

/// A perceptron for the data: unit Gaussian noise, one logit for two classes, else a softmax.
///
/// Deviation: SPLBNN's program has a softmax over two outputs for two classes, which is the same
/// model with more weights under the prior; SVBNN's is for regressions alone.
pub(super) fn perceptron(data: &Bundle, shape: Shape<'_>) -> Result<Network> {
    let (outputs, loss) = match (data.task, data.classes) {
        (Task::Regression, _) => (1, Loss::gaussian(1.0)),
        (Task::Classification, 2) => (1, Loss::Bernoulli),
        (Task::Classification, classes) => (classes, Loss::cross_entropy()),
    };
    let mut builder = NetworkBuilder::new(data.train.columns());
    let mut at = builder.input();
    for (layer, &units) in shape.hidden.iter().enumerate() {
        at = builder.linear_with(&format!("fc{}", layer + 1), at, units, shape.bias)?;
        at = match shape.activation {
            Activation::Relu => builder.relu(at)?,
            Activation::Tanh => builder.tanh(at)?,
        };
    }
    let name = format!("fc{}", shape.hidden.len() + 1);
    let out = builder.linear_with(&name, at, outputs, shape.bias)?;
    Ok(builder.finish(out, loss)?)
}

/// Multiply-adds of one row through such a network.
pub(super) fn network_size(columns: usize, hidden: &[usize]) -> f64 {
    let mut size = 0.0;
    let mut from = columns;
    for &units in hidden.iter().chain(&[1]) {
        size += (from * units) as f64;
        from = units;
    }
    size
}

/// Mini-batches without replacement, epoch after epoch, a pure function of the step.
pub(super) struct Batches {
    key: Key,
    batch: usize,
    order: Vec<u32>,
    epoch: Option<u64>,
}

impl Batches {
    pub(super) fn new(rows: usize, batch: usize, seed: u64, start: u32) -> Self {
        let key = Key::new(seed, start, Stream::Shuffle);
        Self { key, batch: batch.clamp(1, rows.max(1)), order: vec![0; rows], epoch: None }
    }

    /// Whole batches of an epoch; the rows left over wait for the next.
    pub(super) fn an_epoch(&self) -> u64 {
        (self.order.len() / self.batch).max(1) as u64
    }

    pub(super) fn rows(&mut self, step: u64) -> &[u32] {
        let (epoch, at) = (step / self.an_epoch(), (step % self.an_epoch()) as usize);
        if self.epoch != Some(epoch) {
            self.order = self.key.permutation(epoch, self.order.len());
            self.epoch = Some(epoch);
        }
        &self.order[at * self.batch..(at + 1) * self.batch]
    }
}

/// Adam (Kingma & Ba 2015) with its usual constants.
///
/// m ← 0.9 m + 0.1 g, v ← 0.999 v + 0.001 g², w ← w − r m̂ / (√v̂ + 1e-8)
#[derive(Clone, Debug)]
pub(super) struct Adam {
    m: Vec<f32>,
    v: Vec<f32>,
}

impl Adam {
    pub(super) fn new(len: usize) -> Self {
        Self { m: vec![0.0; len], v: vec![0.0; len] }
    }

    /// One step; `step` counts from 0.
    pub(super) fn step(&mut self, step: u64, rate: f64, w: &mut [f32], g: &[f32]) {
        let t = (step + 1).min(1_000_000) as i32;
        let first = (rate / (1.0 - 0.9f64.powi(t))) as f32;
        let second = (1.0 / (1.0 - 0.999f64.powi(t))) as f32;
        let (m, v) = (&mut self.m, &mut self.v);
        vectorize(
            #[inline(always)]
            || {
                for (((w, g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
                    *m = 0.9 * *m + 0.1 * *g;
                    *v = 0.999 * *v + 0.001 * *g * *g;
                    *w -= first * *m / ((*v * second).sqrt() + 1e-8);
                }
            },
        );
    }

    /// Keeps what is left of the weights.
    pub(super) fn take(&mut self, kept: &[u32]) {
        let pick = |values: &[f32]| kept.iter().map(|&i| values[i as usize]).collect();
        (self.m, self.v) = (pick(&self.m), pick(&self.v));
    }
}

/// The mean loss of every row of `data`, squared error or minus ln p, with its standard error.
pub(super) fn judged(predictive: &Predictive, data: &Dataset) -> (f64, f64) {
    let truth = data.targets();
    let mean = predictive.mean();
    let losses: Vec<f64> = match predictive {
        Predictive::Regression { .. } => {
            mean.iter().zip(truth).map(|(f, y)| (f - f64::from(*y)).powi(2)).collect()
        }
        Predictive::Classes { classes, .. } => truth
            .iter()
            .enumerate()
            .map(|(row, y)| -mean[row * classes + *y as usize].max(1e-12).ln())
            .collect(),
    };
    let spread = thinfer_core::metrics::Spread::of(&losses);
    (spread.mean, spread.sd / (spread.n.max(1) as f64).sqrt())
}
