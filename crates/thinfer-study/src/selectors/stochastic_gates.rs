//! Stochastic gates (Yamada, Lindenbaum, Negahban & Kluger, ICML 2020): a noisy gate before every
//! input, trained together with the network.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thinfer_core::metrics::erfc;
use thinfer_data::Bundle;
use thinfer_data::{Error, Result};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, Network, Param, Plan};
use thinfer_run::config::Activation;

use super::found::{Found, PathPoint, Predictor};
use super::network::{
    Adam, Batches, STEPS_A_LOOK, Shape, check_loss, check_stop, judged, network_size, perceptron,
};
use super::{ABOVE_0, LAYERS, has_units, require};

/// A gate that is open with less probability than this is closed for good.
///
/// Deviation: in the publication it stays. Only the penalty moves such a gate, and further down.
const NEVER: f64 = 1e-5;
/// The gated part is made smaller when this share of it is closed.
const WORTHWHILE: f64 = 0.8;

/// Trains `f(x ⊙ z)` with gates `zⱼ = min(1, max(0, μⱼ + σ εⱼ))`, ε standard normal and new in
/// every step, on
///
/// mean loss + λ/p Σⱼ P(zⱼ > 0), P(zⱼ > 0) = Φ(μⱼ/σ),
///
/// by Adam.
///
/// Deviation: the publication prints λ Σⱼ P(zⱼ > 0). The mean in place of the sum is what its
/// program has as we know it, and makes a λ mean the same for any number of columns.
///
/// Deviation: the publication trains every λ on all columns; here each has those that the one
/// before left, which makes a path cheap.
///
/// Deviation: the squared error is halved, as the loss of Gaussian noise, so λ counts twice as
/// much.
///
/// Without noise, `zⱼ = min(1, max(0, μⱼ))`; a column is selected where it is above 0.
/// Penalties are run from the smallest on, each anew on the columns that the one before has not
/// closed; the largest is taken whose validation loss is within one standard error of the least.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `hidden` | | 20, 10 (tanh) | | slower |
/// | `penalties` | λ | 1, 2, 4, 8, 16 | > 0 | columns that matter are closed |
/// | `start` | μ at the start | 0.5 | (0, 1) | gates close late |
/// | `sigma` | σ | 0.5 | > 0 | nothing is learned |
/// | `epochs` | | 300 | ≥ 1 | slower |
/// | `batch` | | 256 | ≥ 1 | fewer steps |
/// | `rate` | | 3e-3, to 0 along a cosine | > 0 | unstable |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see the table")]
pub struct StochasticGates {
    pub hidden: Vec<usize>,
    pub penalties: Vec<f64>,
    pub start: f64,
    pub sigma: f64,
    pub epochs: usize,
    pub batch: usize,
    pub rate: f64,
}

impl Default for StochasticGates {
    fn default() -> Self {
        Self {
            hidden: vec![20, 10],
            penalties: vec![1.0, 2.0, 4.0, 8.0, 16.0],
            start: 0.5,
            sigma: 0.5,
            epochs: 300,
            batch: 256,
            rate: 3e-3,
        }
    }
}

/// P(μ + σ ε > 0)
fn open_probability(mu: f64, sigma: f64) -> f64 {
    0.5 * erfc(-mu / (sigma * std::f64::consts::SQRT_2))
}

/// d/dμ of it: the normal density of −μ/σ, over σ.
fn open_slope(mu: f32, sigma: f32) -> f32 {
    let z = mu / sigma;
    (-0.5 * z * z).exp() / (sigma * (2.0 * std::f32::consts::PI).sqrt())
}

/// The weights and gates of the columns that can still be open.
struct Run {
    /// Columns of the table.
    inputs: usize,
    network: Network,
    plan: Plan,
    data: Dataset,
    /// The column of the table that each gate belongs to.
    columns: Vec<usize>,
    weights: Vec<f32>,
    mu: Vec<f32>,
    weight_adam: Adam,
    gate_adam: Adam,
}

impl StochasticGates {
    pub(super) fn multiply_adds(&self, rows: usize, columns: usize) -> f64 {
        // The first penalty closes most gates, and what is closed is not read again.
        let row = 2.0 * network_size(columns, &self.hidden);
        let penalties = 1.0 + 0.1 * self.penalties.len().saturating_sub(1) as f64;
        row * penalties * (rows * self.epochs) as f64
    }

    /// See [`Selector::check`](super::Selector::check).
    pub(super) fn check(&self) -> Result<()> {
        let penalties =
            !self.penalties.is_empty() && self.penalties.iter().all(|l| *l > 0.0 && l.is_finite());
        require(
            "stochastic-gates",
            &[
                ("hidden", has_units(&self.hidden), LAYERS),
                ("penalties", penalties, "must have one, and all must be above 0"),
                ("start", self.start > 0.0 && self.start < 1.0, "must lie between 0 and 1"),
                ("sigma", self.sigma > 0.0, ABOVE_0),
                ("rate", self.rate > 0.0, ABOVE_0),
                ("epochs", self.epochs > 0, ABOVE_0),
                ("batch", self.batch > 0, ABOVE_0),
            ],
        )
    }

    /// See [`Selector::fit`](super::Selector::fit).
    pub fn fit(&self, data: &Bundle, seed: u64, stop: &AtomicBool) -> Result<Found> {
        self.check()?;
        let started = Instant::now();
        let mut penalties = self.penalties.clone();
        penalties.sort_by(f64::total_cmp);
        let shape = Shape { hidden: &self.hidden, activation: Activation::Tanh, bias: true };
        let whole = perceptron(data, shape)?;
        let mut columns: Vec<usize> = (0..whole.input_len()).collect();
        let mut points = Vec::new();
        for &penalty in &penalties {
            let mut run = Run::start(&whole, &data.train, &columns, self, seed)?;
            self.train(&mut run, penalty, seed, stop)?;
            columns.clone_from(&run.columns);
            let gates = run.gates(&whole);
            let predictor = Predictor::single(whole.clone(), run.whole_weights(&whole));
            let loss = judged(&predictor.predict(&data.validation)?, &data.validation);
            let open = (0..gates.len()).filter(|&j| gates[j] > 0.0).collect();
            points.push((PathPoint::new(penalty, open, Some(loss)), predictor, gates));
        }
        let path: Vec<PathPoint> = points.iter().map(|p| p.0.clone()).collect();
        let taken = within_one_standard_error(&path);
        let (point, predictor, gates) = points.swap_remove(taken);
        Ok(Found {
            columns: (0..gates.len()).filter(|&j| gates[j] > 0.0).collect(),
            scores: gates,
            path,
            predictor,
            chosen: BTreeMap::from([
                ("penalty".to_owned(), point.at),
                ("validation_loss".to_owned(), point.loss.unwrap_or(f64::INFINITY)),
            ]),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Trains with one λ.
    fn train(&self, run: &mut Run, penalty: f64, seed: u64, stop: &AtomicBool) -> Result<()> {
        let mut batches = Batches::new(run.data.rows(), self.batch, seed, 0);
        let batch = self.batch.min(run.data.rows());
        let noise = Key::new(seed, 0, Stream::Sampler);
        let steps = batches.an_epoch() * self.epochs as u64;
        let pull = run.pull(penalty);
        let mut eps = vec![0.0; run.inputs];
        for step in 0..steps {
            if step % STEPS_A_LOOK == 0 {
                check_stop(stop)?;
            }
            if step % batches.an_epoch() == 0 {
                run.drop_closed(self.sigma, batch)?;
            }
            let along = step as f64 / steps as f64;
            let rate = 0.5 * self.rate * (1.0 + (std::f64::consts::PI * along).cos());
            noise.normals(step, 0, &mut eps);
            let loss = run.step(step, rate, self.sigma as f32, pull, &eps, batches.rows(step))?;
            check_loss(loss, "stochastic gates", step)?;
        }
        Ok(())
    }
}

/// The last point, which has the largest penalty, whose loss is within one standard error of the
/// least.
fn within_one_standard_error(path: &[PathPoint]) -> usize {
    let loss = |at: usize| path[at].loss.unwrap_or(f64::INFINITY);
    let best = (0..path.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b))).unwrap_or(0);
    let limit = loss(best) + path.get(best).and_then(|point| point.loss_se).unwrap_or(0.0);
    (0..path.len()).rfind(|&at| loss(at) <= limit).unwrap_or(best)
}

fn first(network: &Network) -> Result<&Param> {
    network.first_weight().ok_or_else(|| Error::Data("the network has no first layer".into()))
}

/// Multiplies column j of the first layer by `gates[j]`.
fn gated(weights: &[f32], layer: &Param, gates: &[f32]) -> Vec<f32> {
    let mut weights = weights.to_vec();
    for row in weights[layer.range()].chunks_exact_mut(gates.len()) {
        row.iter_mut().zip(gates).for_each(|(w, z)| *w *= z);
    }
    weights
}

impl Run {
    /// Fresh weights and gates for some columns; the weights are those that a fresh whole network
    /// would have there.
    fn start(
        whole: &Network,
        train: &Dataset,
        columns: &[usize],
        settings: &StochasticGates,
        seed: u64,
    ) -> Result<Self> {
        let mut arena = Arena::new(whole, 0);
        thinfer_core::methods::initialize(&mut arena, whole.loss(), seed, 0)?;
        let all = columns.len() == whole.input_len();
        let part = if all { None } else { whole.with_inputs(columns) };
        let (network, data, weights) = match part {
            None => (whole.clone(), train.clone(), arena.weights().to_vec()),
            Some((network, map)) => {
                let weights = map.iter().map(|&i| arena.weights()[i as usize]).collect();
                (network, train.take_columns(columns), weights)
            }
        };
        Ok(Self {
            inputs: whole.input_len(),
            plan: Plan::new(&network, settings.batch.min(train.rows()))?,
            data,
            columns: columns.to_vec(),
            mu: vec![settings.start as f32; columns.len()],
            weight_adam: Adam::new(network.params().len()),
            gate_adam: Adam::new(columns.len()),
            weights,
            network,
        })
    }

    /// λ/p for the p columns of the table, however many of them are left.
    fn pull(&self, penalty: f64) -> f32 {
        (penalty / self.inputs as f64) as f32
    }

    /// The gate of every column of the table, without noise.
    fn gates(&self, whole: &Network) -> Vec<f64> {
        let mut gates = vec![0.0; whole.input_len()];
        for (mu, &column) in self.mu.iter().zip(&self.columns) {
            gates[column] = f64::from(mu.clamp(0.0, 1.0));
        }
        gates
    }

    /// One step of Adam on weights and gate means.
    fn step(
        &mut self,
        step: u64,
        rate: f64,
        sigma: f32,
        pull: f32,
        eps: &[f32],
        rows: &[u32],
    ) -> Result<f64> {
        let (loss, weights, gates) = self.gradients(sigma, pull, eps, rows)?;
        self.weight_adam.step(step, rate, &mut self.weights, &weights);
        self.gate_adam.step(step, rate, &mut self.mu, &gates);
        Ok(loss)
    }

    /// The loss, and its gradient with the penalty's by weights and by gate means.
    ///
    /// With W the first layer, the network reads W diag(z), so ∂/∂W = G diag(z) and
    /// ∂/∂zⱼ = Σᵢ Wᵢⱼ Gᵢⱼ for the gradient G of W diag(z); a clipped gate has no slope.
    fn gradients(
        &mut self,
        sigma: f32,
        pull: f32,
        eps: &[f32],
        rows: &[u32],
    ) -> Result<(f64, Vec<f32>, Vec<f32>)> {
        let layer = first(&self.network)?;
        let raw: Vec<f32> =
            self.mu.iter().zip(&self.columns).map(|(mu, &c)| mu + sigma * eps[c]).collect();
        let gates: Vec<f32> = raw.iter().map(|z| z.clamp(0.0, 1.0)).collect();
        let used = gated(&self.weights, layer, &gates);
        let mut gradient = vec![0.0; used.len()];
        let loss = self.plan.gradient_at(&used, &mut [], &self.data, rows, &mut gradient)?;
        let mut gate_gradient = vec![0.0; gates.len()];
        let units = self.weights[layer.range()].chunks_exact(gates.len());
        for (w, g) in units.zip(gradient[layer.range()].chunks_exact_mut(gates.len())) {
            for (((w, g), z), total) in w.iter().zip(g).zip(&gates).zip(&mut gate_gradient) {
                *total += w * *g;
                *g *= z;
            }
        }
        for ((total, z), mu) in gate_gradient.iter_mut().zip(&raw).zip(&self.mu) {
            let inside = f32::from(u8::from(*z > 0.0 && *z < 1.0));
            *total = *total * inside + pull * open_slope(*mu, sigma);
        }
        Ok((loss, gradient, gate_gradient))
    }

    /// Leaves columns out whose gate is as good as never open. A closed gate neither learns nor
    /// lets anything be learned, so this changes next to nothing and makes a step many times
    /// faster.
    fn drop_closed(&mut self, sigma: f64, batch: usize) -> Result<()> {
        let open: Vec<usize> = (0..self.mu.len())
            .filter(|&j| open_probability(f64::from(self.mu[j]), sigma) >= NEVER)
            .collect();
        let few = (open.len() as f64) < WORTHWHILE * self.mu.len() as f64;
        let Some((network, kept)) = self.network.with_inputs(&open).filter(|_| few) else {
            return Ok(());
        };
        let gates: Vec<u32> = open.iter().map(|&j| j as u32).collect();
        self.plan = Plan::new(&network, batch)?;
        self.data = self.data.take_columns(&open);
        self.columns = open.iter().map(|&j| self.columns[j]).collect();
        self.mu = open.iter().map(|&j| self.mu[j]).collect();
        self.weights = kept.iter().map(|&i| self.weights[i as usize]).collect();
        self.weight_adam.take(&kept);
        self.gate_adam.take(&gates);
        self.network = network;
        Ok(())
    }

    /// The weights of the whole network, gates multiplied in.
    fn whole_weights(&self, whole: &Network) -> Vec<f32> {
        let mut weights = vec![0.0; whole.params().len()];
        let gates: Vec<f32> = self.mu.iter().map(|mu| mu.clamp(0.0, 1.0)).collect();
        let map = if self.columns.len() == whole.input_len() {
            (0..weights.len() as u32).collect()
        } else {
            whole.with_inputs(&self.columns).map(|(_, map)| map).unwrap_or_default()
        };
        if let Some(layer) = self.network.first_weight() {
            let used = gated(&self.weights, layer, &gates);
            used.iter().zip(&map).for_each(|(w, &at)| weights[at as usize] = *w);
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selectors::testing::{bundle, classes};

    fn quick() -> StochasticGates {
        StochasticGates {
            hidden: vec![8],
            penalties: vec![0.3, 3.0],
            epochs: 60,
            batch: 50,
            rate: 0.01,
            ..StochasticGates::default()
        }
    }

    #[test]
    fn the_slope_of_the_penalty_is_its_derivative() {
        for mu in [-1.2f64, -0.3, 0.0, 0.5, 2.0] {
            let h = 1e-5;
            let difference =
                (open_probability(mu + h, 0.5) - open_probability(mu - h, 0.5)) / (2.0 * h);
            assert!((difference - f64::from(open_slope(mu as f32, 0.5))).abs() < 1e-5);
        }
    }

    /// Against differences of the loss and of the penalty, with open, half open and closed gates.
    #[test]
    fn gradients_are_derivatives_of_loss_and_penalty() {
        let data = bundle(5, 40, 5, |x, e| x[0] - 2.0 * x[1] * x[2] + 0.1 * e);
        let gates = quick();
        let shape = Shape { hidden: &gates.hidden, activation: Activation::Tanh, bias: true };
        let whole = perceptron(&data, shape).unwrap();
        let all: Vec<usize> = (0..5).collect();
        let mut run = Run::start(&whole, &data.train, &all, &gates, 1).unwrap();
        run.mu = vec![0.5, 0.3, 0.9, 0.4, -0.2];
        run.weights.iter_mut().for_each(|w| *w *= 3.0);
        // Gates at 0.6, 0.2, above 1, below 0 and at 0.05.
        let (sigma, pull, eps) = (0.5f32, 0.4f32, [0.2f32, -0.2, 1.0, -2.0, 0.5]);
        let rows: Vec<u32> = (0..40).collect();
        let (_, by_weight, by_gate) = run.gradients(sigma, pull, &eps, &rows).unwrap();
        let objective = |run: &mut Run| {
            let (loss, ..) = run.gradients(sigma, pull, &eps, &rows).unwrap();
            let open = |mu: &f32| open_probability(f64::from(*mu), f64::from(sigma));
            loss + f64::from(pull) * run.mu.iter().map(open).sum::<f64>()
        };
        let h = 1e-2f32;
        let mut moved = |change: &dyn Fn(&mut Run, f32)| {
            change(&mut run, h);
            let above = objective(&mut run);
            change(&mut run, -2.0 * h);
            let below = objective(&mut run);
            change(&mut run, h);
            (above - below) / f64::from(2.0 * h)
        };
        for at in 0..5 {
            let want = moved(&|run, step| run.mu[at] += step);
            assert!((f64::from(by_gate[at]) - want).abs() < 2e-3, "gate {at}: {by_gate:?} {want}");
        }
        for at in (0..by_weight.len()).step_by(3) {
            let want = moved(&|run, step| run.weights[at] += step);
            assert!((f64::from(by_weight[at]) - want).abs() < 2e-3, "{at}: {by_weight:?} {want}");
        }
    }

    #[test]
    fn gates_close_on_columns_that_do_not_matter() {
        let data = bundle(1, 600, 25, |x, e| 2.0 * (2.0 * x[0]).tanh() - x[3] + 0.3 * e);
        let found = quick().fit(&data, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(found.columns, [0, 3]);
        assert_eq!(found.path.len(), 2);
        assert!(found.scores[0] > 0.0 && found.scores[1] == 0.0);
        let (loss, _) = judged(&found.predictor.predict(&data.test).unwrap(), &data.test);
        assert!(loss < 0.3, "{loss}");

        let data = classes(2, 600, 15, |x, e| 3.0 * x[1] - 3.0 * x[4] + 0.3 * e > 0.0);
        let gates = StochasticGates { penalties: vec![0.1, 0.5], ..quick() };
        let found = gates.fit(&data, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(found.columns, [1, 4]);
    }

    #[test]
    fn the_largest_penalty_within_one_standard_error_is_taken() {
        let path = |losses: &[(f64, f64)]| -> Vec<PathPoint> {
            let point = |(at, loss): (usize, &(f64, f64))| {
                PathPoint::new(at as f64, Vec::new(), Some(*loss))
            };
            losses.iter().enumerate().map(point).collect()
        };
        // The least is 1.0 ± 0.2; the error of the others does not count.
        let losses = [(1.3, 9.0), (1.0, 0.2), (1.25, 9.0), (1.2, 0.0), (1.21, 9.0)];
        assert_eq!(within_one_standard_error(&path(&losses)), 3);
        assert_eq!(within_one_standard_error(&path(&losses[..3])), 1);
        assert_eq!(within_one_standard_error(&path(&losses[..1])), 0);
    }

    /// Leaving closed gates out must not change what is learned from the rest.
    #[test]
    fn a_smaller_run_is_the_same_network() {
        let data = bundle(3, 100, 12, |x, _| x[0]);
        let gates = quick();
        let shape = Shape { hidden: &gates.hidden, activation: Activation::Tanh, bias: true };
        let whole = perceptron(&data, shape).unwrap();
        let all: Vec<usize> = (0..12).collect();
        let mut run = Run::start(&whole, &data.train, &all, &gates, 1).unwrap();
        run.mu = (0..12).map(|j| if j % 3 == 0 { 0.5 } else { -9.0 }).collect();
        let before = run.whole_weights(&whole);
        run.drop_closed(0.5, 50).unwrap();
        assert_eq!(run.columns, [0, 3, 6, 9]);
        assert_eq!(run.pull(3.0), 0.25);
        assert_eq!(run.whole_weights(&whole), before);
        // A fresh start on these columns has the weights that they had in the whole network.
        let fresh = Run::start(&whole, &data.train, &run.columns, &gates, 1).unwrap();
        assert_eq!(fresh.weights, run.weights);
    }

    #[test]
    fn settings_that_cannot_be_run_with_are_refused() {
        for (gates, name) in [
            (StochasticGates { start: 0.0, ..quick() }, "start"),
            (StochasticGates { start: 1.0, ..quick() }, "start"),
            (StochasticGates { start: f64::NAN, ..quick() }, "start"),
            (StochasticGates { sigma: 0.0, ..quick() }, "sigma"),
            (StochasticGates { penalties: vec![], ..quick() }, "penalties"),
            (StochasticGates { penalties: vec![1.0, -1.0], ..quick() }, "penalties"),
        ] {
            let error = gates.check().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(&format!("stochastic-gates.{name}")), "{error}");
        }
        assert!(quick().check().is_ok());
    }

    #[test]
    fn it_repeats_and_stops() {
        let data = bundle(4, 100, 6, |x, e| x[0] + e);
        let gates = StochasticGates { epochs: 3, ..quick() };
        let fit = || gates.fit(&data, 7, &AtomicBool::new(false)).unwrap();
        assert_eq!(fit().scores, fit().scores);
        assert_eq!(gates.fit(&data, 7, &AtomicBool::new(true)).unwrap_err().exit_code(), 130);
    }
}
