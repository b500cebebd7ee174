//! When a chain counts as blown up: one rule for the terminal, the report and whoever else asks.

use thinfer_core::posterior::SampleRule;
use thinfer_core::posterior::Snapshot;
use thinfer_core::train::ChainResult;
use thinfer_engine::Loss;

use super::Behaviour;

/// A loss of this many times the last one shows that the chain had left its mode.
const FACTOR: f64 = 5.0;

/// A final loss closer to 0 than this is no yardstick; with learned noise it can be negative.
const LEAST: f64 = 0.1;

/// Whether a chain blew up, by its `largest` loss after the first tenth of the run and its `last`
/// one.
///
/// It did where one of them is not finite, or where the largest exceeds both five times the last
/// one and the loss of a guess among `classes` (0 for a regression): back at a guess is forgotten,
/// not blown up.
pub fn blew_up(largest: f64, last: f64, classes: usize) -> bool {
    let guess = (classes.max(1) as f64).ln();
    !largest.is_finite()
        || !last.is_finite()
        || largest > (FACTOR * last.abs().max(LEAST)).max(guess)
}

impl Behaviour {
    /// [`blew_up`] for all chains together.
    pub fn blew_up(&self, classes: usize) -> bool {
        blew_up(self.largest_loss, self.final_loss, classes)
    }
}

/// A training loss so far above that of an untrained network, in nats or in multiples of it, is no
/// posterior's.
const ABOVE_UNTRAINED: f64 = 2.0;

/// The mean training loss of a network that answers 0 to everything, as an untrained one nearly
/// does; `None` without rows.
pub fn untrained_loss<T: Copy + Into<f64>>(
    loss: &Loss,
    outputs: usize,
    targets: &[T],
) -> Option<f64> {
    if targets.is_empty() {
        return None;
    }
    Some(match loss {
        Loss::Gaussian { scale } => {
            let sigma = scale.at_start();
            let squares: f64 = targets.iter().map(|y| (*y).into().powi(2)).sum();
            squares / targets.len() as f64 / (2.0 * sigma * sigma) + sigma.ln()
        }
        // What an answer of 0 costs, one row after the other.
        Loss::StudentT { .. } | Loss::Poisson { .. } | Loss::NegativeBinomial { .. } => {
            let cost = |y: &T| loss.of_zero((*y).into());
            targets.iter().map(cost).sum::<f64>() / targets.len() as f64
        }
        Loss::Bernoulli => 2f64.ln(),
        Loss::CrossEntropy { .. } => (outputs as f64).ln(),
    })
}

/// The chains that blew up while samples were taken that the rule keeps: their training loss was
/// not finite, or far above that of an untrained network. Runs of older versions do not know the
/// latter.
pub fn blown_up_chains(
    results: &[ChainResult],
    rule: &SampleRule,
    untrained_loss: Option<f64>,
) -> Vec<u32> {
    let limit = untrained_loss.map(|c| c + ABOVE_UNTRAINED * c.abs().max(1.0));
    let lost = |loss: f64| !loss.is_finite() || limit.is_some_and(|limit| loss > limit);
    let blew_up = |result: &&ChainResult| {
        let samples: Vec<&Snapshot> = result.snapshots.iter().collect();
        let first = rule.kept(&samples).first().map(|at| samples[*at].epoch);
        let since = |epoch: usize| first.is_some_and(|first| epoch >= first);
        result.records.iter().any(|r| since(r.epoch) && (lost(r.loss) || lost(r.largest_loss)))
    };
    results.iter().filter(blew_up).map(|result| result.chain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_core::train::Trace;

    /// Against the engine's loss of a network whose weights are all 0.
    #[test]
    fn the_loss_of_an_untrained_network_is_that_of_the_engine() {
        use crate::config::Activation;
        use thinfer_core::model::mlp;
        use thinfer_engine::{Arena, Dataset, Plan, Scale};
        let of_engine = |loss: Loss, outputs: usize, targets: &[f32]| -> (f64, f64) {
            let network = mlp(1, &[2], Activation::Tanh, outputs, loss).unwrap();
            let rows = targets.len();
            let data = Dataset::new(1, 1, vec![0.5; rows], targets.to_vec()).unwrap();
            let mut arena = Arena::new(&network, 0);
            if let Loss::Gaussian { scale: Scale::Learned { param, start } } = network.loss() {
                let mut weights = arena.weights().to_vec();
                weights[network.params()[*param].offset] = start.ln() as f32;
                arena.set_weights(&weights).unwrap();
            }
            if let Some(unit) = network.loss().noise_unit(network.params()) {
                let mut weights = arena.weights().to_vec();
                let start = network.loss().scale().unwrap().at_start();
                weights[unit.bias.unwrap()] = start.ln() as f32;
                arena.set_weights(&weights).unwrap();
            }
            let order: Vec<u32> = (0..rows as u32).collect();
            let mut plan = Plan::new(&network, rows).unwrap();
            let want = plan.gradient(&mut arena, &data, &order).unwrap();
            (untrained_loss(network.loss(), network.output_len(), targets).unwrap(), want)
        };
        let scale = Scale::ByRow { start: 0.5 };
        for (loss, outputs, targets) in [
            (Loss::Gaussian { scale }, 2, [2.0, 6.0, 1.0]),
            (Loss::StudentT { scale, dof: 4.0 }, 2, [2.0, 6.0, 1.0]),
            (Loss::gaussian(2.0), 1, [1.0, 3.0, -0.5]),
            (Loss::gaussian_learned(0.5), 1, [2.0, 6.0, 1.0]),
            (Loss::Bernoulli, 1, [0.0, 1.0, 1.0]),
            (Loss::cross_entropy(), 4, [0.0, 1.0, 3.0]),
        ] {
            let (got, want) = of_engine(loss.clone(), outputs, &targets);
            assert!((got - want).abs() < 1e-6 * want.abs().max(1.0), "{loss:?}: {got}, not {want}");
        }
        assert_eq!(untrained_loss::<f32>(&Loss::Bernoulli, 1, &[]), None);
    }

    /// A chain with one record an epoch and samples after some of them.
    fn chain(chain: u32, losses: &[f64], sampled: &[usize]) -> ChainResult {
        let record = crate::images::imagined::imagined().results[0].records[0].clone();
        let records = losses.iter().enumerate().map(|(epoch, &loss)| thinfer_core::train::Record {
            epoch,
            loss,
            largest_loss: loss,
            ..record.clone()
        });
        let sample = |epoch: &usize| Snapshot {
            chain,
            epoch: *epoch,
            weights: Vec::new(),
            keep: vec![1],
            stats: Vec::new(),
            inclusion: Vec::new(),
        };
        ChainResult {
            chain,
            records: records.collect(),
            snapshots: sampled.iter().map(sample).collect(),
            times: Vec::new(),
            trace: Trace::default(),
            bytes: 0,
            method_bytes: 0,
        }
    }

    #[test]
    fn chains_that_blew_up_where_samples_count_are_named() {
        let fine = chain(0, &[900.0, 0.6, 0.4, 0.3], &[1, 3]);
        let lost = chain(1, &[0.5, 0.5, 0.5, 520.0], &[1, 3]);
        let back = chain(2, &[0.5, 0.5, 520.0, 0.5], &[1, 3]);
        let broken = chain(3, &[0.5, 0.5, 0.5, f64::NAN], &[1, 3]);
        let results = [fine, lost, back, broken];
        let all = SampleRule::all();
        assert_eq!(blown_up_chains(&results, &all, Some(0.5)), [1, 2, 3]);
        // The second one of two samples is all that counts, and by then one chain had come back.
        let late =
            SampleRule::new(&[0..2, 2..4], &[1, 3], 0.5, thinfer_core::posterior::Thin::Every(1));
        assert_eq!(blown_up_chains(&results, &late, Some(0.5)), [1, 3]);
        assert_eq!(blown_up_chains(&results, &late, None), [3]);
        assert_eq!(blown_up_chains(&results, &late, Some(200.0)), [3]);
    }

    #[test]
    fn a_loss_far_above_the_last_one_and_above_a_guess_is_a_blow_up() {
        // Example 3: the report called this a blow-up, the terminal did not.
        assert!(!blew_up(0.5133, 0.11, 2));
        assert!(!blew_up(0.68, 0.05, 2));
        assert!(blew_up(0.75, 0.05, 2));
        // A regression has no guess.
        assert!(blew_up(0.68, 0.05, 0));
        assert!(!blew_up(6.2, 1.25, 0));
        assert!(blew_up(6.3, 1.25, 0));
        // Seven is no more than a guess among 1,100 classes.
        assert!(!blew_up(7.0, 1.25, 1100));
        assert!(blew_up(7.0, 1.25, 10));
    }

    #[test]
    fn a_loss_near_zero_or_below_is_no_yardstick() {
        assert!(!blew_up(0.4, 1e-9, 0));
        assert!(!blew_up(-1.0, -2.0, 0));
        assert!(blew_up(11.0, -2.0, 0));
        assert!(!blew_up(0.0, 0.0, 0), "a run without records");
    }

    #[test]
    fn a_loss_that_is_not_finite_is_a_blow_up() {
        for (largest, last) in [(f64::INFINITY, 1.0), (f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert!(blew_up(largest, last, 10));
        }
    }
}
