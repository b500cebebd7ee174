//! Methods that ask for gradients themselves: several in a step, of all rows.

use std::sync::Arc;

use thinfer_data::{Error, Result};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, EngineError, ExactPlan, Network, Plan, Role};

use super::Tick;
use super::registry::Choices;
use super::settings::{PriorConfig, PriorScale};

/// The share of the rows that [`Part::HeldOut`] has.
const HELD_OUT: f64 = 0.1;
/// With fewer rows none are held out: they would say too little.
const FEWEST_TO_HOLD_OUT: usize = 20;

/// [`PriorConfig::noise_row_sd`], where it is not given.
const NOISE_ROW_SD: f64 = 0.5;

/// Which rows a loss is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    All,
    /// Nine of ten, others in every chain.
    Fitted,
    /// The rest.
    HeldOut,
    /// Some of them, in an order that every epoch has for itself.
    Batch {
        /// The epoch.
        epoch: u64,
        /// Where in the order it begins; beyond its end it begins again.
        first: usize,
        /// How many rows, or fewer at the end of the order.
        rows: usize,
        /// Whether they are of [`Part::Fitted`].
        fitted: bool,
    },
}

/// What a walker walks on.
pub trait Target {
    /// The mean loss of the rows of a part at `x`, without the prior, and its gradient.
    fn mean_loss(&mut self, part: Part, x: &[f64], gradient: &mut [f64]) -> Result<f64>;
}

/// A method that makes a step with as many gradients as it needs.
///
/// One step of such a method is an epoch, whatever `train.batch` says. Everything it keeps from one
/// step to the next is in [`Arena::numbers`], and the first of these are the weights.
pub trait Walker: Send + Sync {
    /// Whether it computes in double precision.
    fn exact(&self) -> bool {
        false
    }

    /// Makes a step and leaves the weights where it ended. Returns the mean loss there.
    fn step(&self, arena: &mut Arena, tick: Tick, target: &mut dyn Target) -> Result<f64>;
}

/// What all walkers refuse.
pub(super) fn check(choices: &Choices<'_>) -> Result<()> {
    if choices.images {
        let name = choices.method.kind.name();
        let problem =
            format!("is \"{name}\", which is for tables; \"sghmc\" samples image networks");
        return Err(Error::config("method.kind", problem));
    }
    Ok(())
}

/// The weight decay of each weight: wdᵢ = 1/(sdᵢ² N).
#[derive(Clone, Debug, PartialEq)]
pub enum Decay {
    /// One for all.
    Same(f64),
    /// In the order of the weights.
    Each(Arc<[f64]>),
}

impl Default for Decay {
    fn default() -> Self {
        Self::Same(0.0)
    }
}

impl Decay {
    /// What a configuration says of the weights of a network, for `rows` training rows.
    pub fn of(prior: &PriorConfig, network: &Network, rows: usize) -> Self {
        let table = network.params();
        let unit = network.loss().noise_unit(table);
        if prior.scale == PriorScale::Same && prior.noise_sd.is_none() && unit.is_none() {
            return Self::Same(prior.weight_decay);
        }
        let of_sd = |sd: f64| 1.0 / (sd * sd * rows.max(1) as f64);
        let mut each = vec![prior.weight_decay; table.len()];
        // A bias follows its weight in the table and counts as one more of that layer.
        let mut fan_in = 1;
        for param in table {
            let decay = &mut each[param.range()];
            match (param.role, prior.noise_sd) {
                (Role::LogScale, Some(sd)) => decay.fill(of_sd(sd)),
                (Role::LogScale, None) => {}
                _ if prior.scale == PriorScale::Same => {}
                (role, _) => {
                    if role.is_weight() {
                        fan_in = param.fan_in();
                    }
                    decay.fill(prior.weight_decay * fan_in as f64);
                }
            }
        }
        if let Some(unit) = unit {
            let fan_in = if prior.scale == PriorScale::Same { 1 } else { unit.weights.len() };
            let sd = prior.noise_row_sd.unwrap_or(NOISE_ROW_SD);
            each[unit.weights].fill(of_sd(sd) * fan_in as f64);
            if let (Some(sd), Some(bias)) = (prior.noise_sd, unit.bias) {
                each[bias] = of_sd(sd);
            }
        }
        Self::Each(each.into())
    }

    /// Of one weight.
    pub fn at(&self, weight: usize) -> f64 {
        match self {
            Self::Same(decay) => *decay,
            Self::Each(decays) => decays.get(weight).copied().unwrap_or(0.0),
        }
    }
}

/// S = −ln p, up to a constant, as walkers see it: `(mean loss + ½ Σ wdᵢ xᵢ²) / k²`.
pub(super) struct Energy<'a> {
    pub(super) target: &'a mut dyn Target,
    pub(super) decay: &'a Decay,
    /// A factor on it.
    pub(super) decay_factor: f64,
    pub(super) temperature: f64,
}

impl Energy<'_> {
    /// S at `x` over the rows of a part, its gradient, and the mean loss without the prior.
    pub(super) fn at(&mut self, part: Part, x: &[f64], gradient: &mut [f64]) -> Result<(f64, f64)> {
        let loss = self.target.mean_loss(part, x, gradient)?;
        let (mut penalty, over) = (0.0, 1.0 / self.temperature);
        for (i, (g, x)) in gradient.iter_mut().zip(x).enumerate() {
            let decay = self.decay.at(i) * self.decay_factor;
            penalty += 0.5 * decay * x * x;
            *g = (*g + decay * x) * over;
        }
        Ok(((loss + penalty) * over, loss))
    }
}

/// The rows of each part, and the room for a gradient.
pub(crate) struct Gradients {
    all: Vec<u32>,
    fitted: Vec<u32>,
    held_out: Vec<u32>,
    /// The order of an epoch, of all rows or of those that are fitted.
    order: Option<((u64, bool), Vec<u32>)>,
    /// The key of these orders.
    key: Key,
    exact: Option<ExactPlan>,
    weights: Vec<f32>,
    gradient: Vec<f32>,
    stats: Vec<f32>,
}

impl Gradients {
    /// Brings rows into the order of an epoch.
    fn arrange(&mut self, epoch: u64, fitted: bool) {
        let asked = (epoch, fitted);
        if self.order.as_ref().is_some_and(|(there, _)| *there == asked) {
            return;
        }
        let of = if fitted { &self.fitted } else { &self.all };
        let order = self.key.permutation(epoch, of.len());
        self.order = Some((asked, order.into_iter().map(|at| of[at as usize]).collect()));
    }

    pub(crate) fn new(
        seed: u64,
        chain: u32,
        walker: &dyn Walker,
        rows: usize,
        network: &Network,
    ) -> Result<Self> {
        let n = network.params().len();
        let held_out = match rows {
            0..FEWEST_TO_HOLD_OUT => 0,
            _ => (HELD_OUT * rows as f64) as usize,
        };
        let order = Key::new(seed, chain, Stream::Split).permutation(0, rows);
        let (held_out, fitted) = order.split_at(held_out);
        let exact = walker.exact().then(|| ExactPlan::new(network, rows)).transpose()?;
        Ok(Self {
            all: (0..rows as u32).collect(),
            fitted: fitted.to_vec(),
            held_out: held_out.to_vec(),
            order: None,
            key: Key::new(seed, chain, Stream::Shuffle),
            exact,
            weights: vec![0.0; n],
            gradient: vec![0.0; n],
            stats: vec![0.0; network.stats().len()],
        })
    }
}

/// The loss of a network on rows of a table.
pub(crate) struct NetworkTarget<'a> {
    pub(crate) plan: &'a mut Plan,
    pub(crate) gradients: &'a mut Gradients,
    pub(crate) data: &'a Dataset,
}

impl Target for NetworkTarget<'_> {
    fn mean_loss(&mut self, part: Part, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        if let Part::Batch { epoch, fitted, .. } = part {
            self.gradients.arrange(epoch, fitted);
        }
        let Gradients {
            all, fitted, held_out, order, exact, weights, gradient: single, stats, ..
        } = &mut *self.gradients;
        let rows = match part {
            Part::Batch { first, rows, .. } => {
                let order = order.as_ref().map_or(&all[..], |(_, order)| order);
                let first = first % order.len().max(1);
                &order[first..(first + rows).min(order.len())]
            }
            Part::HeldOut if !held_out.is_empty() => held_out,
            Part::Fitted => fitted,
            Part::All | Part::HeldOut => all,
        };
        if let Some(exact) = exact {
            return Ok(exact.gradient(x, &mut [], self.data, rows, gradient)?);
        }
        if gradient.len() != single.len() || x.len() != weights.len() {
            let (got, expected) = (gradient.len(), single.len());
            return Err(EngineError::Size { what: "the gradient", got, expected }.into());
        }
        weights.iter_mut().zip(x).for_each(|(to, from)| *to = *from as f32);
        let loss = self.plan.gradient_at(weights, stats, self.data, rows, single)?;
        gradient.iter_mut().zip(&*single).for_each(|(to, from)| *to = f64::from(*from));
        Ok(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::em_mcmc::Assignment;
    use crate::model::{Activation, mlp};
    use crate::prune::Grouping;
    use thinfer_engine::{Loss, Scale};

    /// 1/(sd² N): of the weights of ln σ times their number, of its bias once.
    #[test]
    fn the_prior_of_noise_by_row_is_its_own() {
        let loss = Loss::Gaussian { scale: Scale::ByRow { start: 1.0 } };
        let network = mlp(2, &[4], Activation::Tanh, 2, loss).unwrap();
        let same = PriorConfig {
            weight_decay: 0.25,
            sd: None,
            scale: PriorScale::Same,
            noise_sd: None,
            noise_row_sd: None,
            spike_decay: 1.0,
            spike_sd: None,
            assignment: Assignment::Mode,
            learn_probability: None,
            group: Grouping::Weight,
            soft_threshold: None,
            spike_probability: None,
        };
        let fan_in = PriorConfig {
            scale: PriorScale::FanIn,
            noise_sd: Some(0.2),
            noise_row_sd: Some(0.1),
            ..same.clone()
        };
        // fc1: 8 weights and 4 biases; fc2: 4 weights of f, 4 of ln σ, and 2 biases.
        let (at, close) =
            (Decay::of(&fan_in, &network, 100), |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12);
        assert!(close(at.at(0), 0.5) && close(at.at(12), 1.0) && close(at.at(20), 1.0));
        assert!(close(at.at(16), 4.0) && close(at.at(19), 4.0) && close(at.at(21), 0.25));
        let at = Decay::of(&same, &network, 100);
        assert!(close(at.at(12), 0.25) && close(at.at(16), 0.04) && close(at.at(21), 0.25));
    }
}
