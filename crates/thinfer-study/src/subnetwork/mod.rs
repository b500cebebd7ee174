//! Samples that share most of their numbers and keep only those that differ most.
//!
//! [`Samples`] takes the samples of one chain that have one mask, at the size that pruning left,
//! and puts their numbers (weights, biases, norms, running statistics) into an order: what differs
//! most between samples comes first. [`Samples::sharing`] lets every sample keep its own values of
//! the first few; of the others all samples have one value. A [`Subnetwork`] is a file as well
//! ([`Subnetwork::write`]), and [`study()`] measures what sharing costs. `docs/subnetwork.md` has
//! the rule and why it is this one.

mod file;
mod rank;
mod study;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thinfer_core::posterior::Posterior;
use thinfer_core::posterior::Snapshot;
use thinfer_core::shrink::{Layout, shrink_posterior};
use thinfer_data::{Error, Result};
use thinfer_engine::{Network, Param};

pub(crate) use file::resealed;
pub use study::{Row, Study, study};

/// Where a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its chain.
    pub chain: u32,
    /// The epoch after which it was taken, from 0.
    pub epoch: usize,
}

/// The samples of one chain at the size that pruning left, ready to be shared.
#[derive(Clone, Debug)]
pub struct Samples {
    posterior: Posterior,
    inputs: Vec<u32>,
    /// Parameters, then running statistics, of each sample.
    numbers: Vec<Vec<f32>>,
    /// The places where samples differ, those that differ most first.
    order: Vec<usize>,
}

/// Samples that share all numbers but some.
#[derive(Clone, Debug, PartialEq)]
pub struct Subnetwork {
    network: Network,
    inputs: Vec<u32>,
    samples: Vec<Taken>,
    keep: Vec<u8>,
    /// Parameters, then running statistics, of the last sample.
    shared: Vec<f32>,
    /// Which of them differ between samples.
    differs: Vec<bool>,
    /// For each sample but the last, its values there.
    own: Vec<Vec<f32>>,
}

impl Samples {
    /// Takes samples of one chain that share one mask, and cuts out what it leaves dead.
    pub fn of(posterior: &Posterior) -> Result<Self> {
        let Some(last) = posterior.members.last() else {
            return Err(Error::Data(
                "the run has no posterior samples yet; let it reach the end of its first cycle"
                    .into(),
            ));
        };
        if posterior.members.iter().any(|m| m.chain != last.chain || m.keep != last.keep) {
            return Err(Error::Data(
                "the samples come from several chains or have several masks, so they have no numbers to share; take those of one chain that share its final mask".into(),
            ));
        }
        let masked =
            |m: &Snapshot| m.keep.iter().zip(&m.weights).any(|(k, w)| *k == 0 && *w != 0.0);
        if let Some(wrong) = posterior.members.iter().find(|m| masked(m)) {
            return Err(Error::Data(format!(
                "a pruned weight of the sample of epoch {} is not zero, so its mask does not fit it; take the snapshots as the run wrote them",
                wrong.epoch
            )));
        }
        let (small, cut) = shrink_posterior(posterior, Layout::SMALLEST)?;
        let joined = |m: &Snapshot| [m.weights.as_slice(), &m.stats].concat();
        let numbers: Vec<Vec<f32>> = small.members.iter().map(joined).collect();
        let order = rank::order(&small.network, &numbers);
        Ok(Self { posterior: small, inputs: cut.inputs, numbers, order })
    }

    /// The samples in full, at the size that pruning left.
    pub fn posterior(&self) -> &Posterior {
        &self.posterior
    }

    /// The input columns that the network reads; of a picture, all channels.
    pub fn inputs(&self) -> &[u32] {
        &self.inputs
    }

    /// How many numbers a sample has that are not pruned, running statistics among them.
    pub fn live(&self) -> usize {
        let last = &self.posterior.members[self.posterior.members.len() - 1];
        last.keep.iter().filter(|keep| **keep != 0).count() + last.stats.len()
    }

    /// How many running statistics differ; they stand first in the order.
    fn own_stats(&self) -> usize {
        let params = self.posterior.network.params().len();
        self.order.iter().take_while(|place| **place >= params).count()
    }

    /// Every sample keeps its own value of that share of the live numbers that differs most, and,
    /// with any share but 0, of all running statistics; of the others all have the last sample's.
    /// Share 1 gives the samples themselves, share 0 the last one.
    ///
    /// Not the mean: running statistics belong to the weights they were taken with, and the mean of
    /// several networks has none. The last sample keeps its own, and is exact with every share.
    pub fn sharing(&self, share: f64) -> Result<Subnetwork> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::config("share", format!("is {share}; give a share from 0 to 1")));
        }
        let most = match share {
            0.0 => 0,
            _ => ((share * self.live() as f64).ceil() as usize).max(self.own_stats()),
        };
        let mut differs = vec![false; self.numbers[0].len()];
        self.order.iter().take(most).for_each(|&place| differs[place] = true);
        Ok(self.keeping(differs))
    }

    /// Every live number is kept apart, even where all samples agree: full snapshots, in the same
    /// format.
    pub fn full(&self) -> Subnetwork {
        let last = &self.posterior.members[self.posterior.members.len() - 1];
        // A single sample has nobody to differ from.
        let several = self.numbers.len() > 1;
        let mut differs: Vec<bool> = last.keep.iter().map(|keep| several && *keep != 0).collect();
        differs.resize(self.numbers[0].len(), several);
        self.keeping(differs)
    }

    fn keeping(&self, differs: Vec<bool>) -> Subnetwork {
        let (others, last) = self.numbers.split_at(self.numbers.len() - 1);
        let own = others.iter().map(|numbers| picked(numbers, &differs)).collect();
        let members = &self.posterior.members;
        Subnetwork {
            network: self.posterior.network.clone(),
            inputs: self.inputs.clone(),
            samples: members.iter().map(|m| Taken { chain: m.chain, epoch: m.epoch }).collect(),
            keep: members[members.len() - 1].keep.clone(),
            shared: last[0].clone(),
            differs,
            own,
        }
    }
}

impl Subnetwork {
    /// The samples as they predict: their own values where they differ, the shared ones elsewhere.
    pub fn posterior(&self) -> Posterior {
        let member = |(at, taken): (usize, &Taken)| {
            let mut weights = self.shared.clone();
            if let Some(own) = self.own.get(at) {
                let places = weights.iter_mut().zip(&self.differs).filter(|(_, differs)| **differs);
                places.zip(own).for_each(|((number, _), own)| *number = *own);
            }
            let stats = weights.split_off(self.keep.len());
            let keep = self.keep.clone();
            Snapshot {
                chain: taken.chain,
                epoch: taken.epoch,
                weights,
                keep,
                stats,
                inclusion: Vec::new(),
            }
        };
        let members = self.samples.iter().enumerate().map(member).collect();
        Posterior { network: self.network.clone(), members }
    }

    /// The input columns that the network reads; of a picture, all channels.
    pub fn inputs(&self) -> &[u32] {
        &self.inputs
    }

    /// How many numbers differ between samples.
    pub fn differing(&self) -> usize {
        self.differs.iter().filter(|differs| **differs).count()
    }
}

/// The values at the places that are on.
fn picked(numbers: &[f32], on: &[bool]) -> Vec<f32> {
    numbers.iter().zip(on).filter(|(_, on)| **on).map(|(number, _)| *number).collect()
}

/// Every tensor of a network and where its numbers lie: parameters, then running statistics.
fn tensors(network: &Network) -> impl Iterator<Item = (&Param, Range<usize>)> {
    let params = network.params().len();
    let moved = move |range: Range<usize>| range.start + params..range.end + params;
    let stats = network.stats().iter().map(move |stat| (stat, moved(stat.range())));
    network.params().iter().map(|param| (param, param.range())).chain(stats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_core::model::{image_network, mlp};
    use thinfer_engine::noise::{Key, Stream};
    use thinfer_engine::{Dataset, Loss, Shape};
    use thinfer_run::config::Activation;

    const SAMPLES: usize = 4;

    /// Samples of a random network around one point, zero where `keep` is.
    fn around(network: Network, keep: &[u8]) -> Posterior {
        let normals = |key: u64, count: usize| {
            let mut values = vec![0.0; count];
            Key::new(key, 0, Stream::Initial).normals(0, 0, &mut values);
            values
        };
        let (params, stats) = (network.params().len(), network.stats().len());
        let centre = normals(1, params + stats);
        let member = |sample: usize| {
            let noise = normals(2 + sample as u64, params + stats);
            let number = |(centre, noise): (&f32, &f32)| 0.5 * centre + 0.1 * noise;
            let mut weights: Vec<f32> = centre.iter().zip(&noise).map(number).collect();
            // Among the statistics there are variances.
            let stats = weights.split_off(params).into_iter().map(|s| s.abs() + 0.5).collect();
            weights.iter_mut().zip(keep).for_each(|(weight, keep)| *weight *= f32::from(*keep));
            Snapshot {
                chain: 0,
                epoch: 10 + sample,
                weights,
                keep: keep.to_vec(),
                stats,
                inclusion: Vec::new(),
            }
        };
        let members = (0..SAMPLES).map(member).collect();
        Posterior { network, members }
    }

    /// Three inputs, five hidden units; one unit is pruned, and one weight of another.
    pub(super) fn table() -> Posterior {
        let network = mlp(3, &[5], Activation::Tanh, 1, Loss::gaussian(1.0)).unwrap();
        let mut keep = vec![1; network.params().len()];
        let offset = |name: &str| network.params().find(name).unwrap().offset;
        let unit = [0, 1, 2].map(|input| offset("fc1.weight") + 3 * 2 + input);
        for at in unit.into_iter().chain([offset("fc1.bias") + 2, offset("fc2.weight") + 2, 1]) {
            keep[at] = 0;
        }
        around(network, &keep)
    }

    /// With batch norms, and two masked kernels in a layer that stays.
    fn pictures() -> Posterior {
        let shape = Shape { height: 8, width: 8, channels: 2 };
        let network = image_network("convnet", shape, 3).unwrap();
        let mut keep = vec![1; network.params().len()];
        keep[5] = 0;
        keep[8] = 0;
        assert!(!network.stats().is_empty());
        around(network, &keep)
    }

    fn rows(network: &Network) -> Dataset {
        let mut inputs = vec![0.0; 6 * network.input_len()];
        Key::new(9, 0, Stream::Inputs).normals(0, 0, &mut inputs);
        Dataset::new(network.input_len(), 1, inputs, vec![]).unwrap()
    }

    #[test]
    fn with_share_1_every_sample_predicts_the_same_bits() {
        for posterior in [table(), pictures()] {
            let samples = Samples::of(&posterior).unwrap();
            let data = rows(&samples.posterior().network);
            let wanted = samples.posterior().predict(&data).unwrap();
            for kept in [samples.sharing(1.0).unwrap(), samples.full()] {
                assert_eq!(kept.posterior().members, samples.posterior().members);
                assert_eq!(kept.posterior().predict(&data).unwrap(), wanted);
            }
            let less = samples.sharing(0.3).unwrap().posterior().predict(&data).unwrap();
            assert_ne!(less, wanted);
        }
    }

    #[test]
    fn with_share_0_there_is_the_last_network() {
        let samples = Samples::of(&pictures()).unwrap();
        let kept = samples.sharing(0.0).unwrap();
        assert_eq!(kept.differing(), 0);
        let members = kept.posterior().members;
        assert_eq!(members.len(), SAMPLES);
        assert_eq!(members.iter().map(|m| m.epoch).collect::<Vec<_>>(), [10, 11, 12, 13]);
        let last = &samples.posterior().members[SAMPLES - 1];
        for member in &members {
            assert_eq!((&member.weights, &member.stats), (&last.weights, &last.stats));
        }
    }

    #[test]
    fn more_share_stores_more_and_keeps_what_was_apart() {
        let samples = Samples::of(&pictures()).unwrap();
        let shares = [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0];
        let kept = shares.map(|share| samples.sharing(share).unwrap());
        for (kept, share) in kept.iter().zip(shares) {
            let least = if share > 0.0 { samples.posterior().network.stats().len() } else { 0 };
            let asked = (share * samples.live() as f64).ceil() as usize;
            assert_eq!(kept.differing(), asked.max(least));
        }
        for pair in kept.windows(2) {
            let last = |kept: &Subnetwork| kept.posterior().members[SAMPLES - 1].clone();
            assert_eq!(last(&pair[0]), last(&pair[1]));
            let both = pair[0].differs.iter().zip(&pair[1].differs);
            assert!(both.into_iter().all(|(less, more)| *more || !less));
            let bytes = |kept: &Subnetwork| kept.to_bytes().unwrap().len();
            let less = pair[0].differing() < pair[1].differing();
            assert_eq!(bytes(&pair[0]) < bytes(&pair[1]), less);
        }
        let full = samples.full().to_bytes().unwrap().len();
        assert!(kept[4].to_bytes().unwrap().len() < full);
    }

    #[test]
    fn what_pruning_cut_is_not_stored() {
        let posterior = table();
        let samples = Samples::of(&posterior).unwrap();
        // The unit had three weights, a bias and an output; the single weight stays as a zero.
        assert_eq!(samples.numbers[0].len(), posterior.network.params().len() - 5);
        assert_eq!(samples.live(), samples.numbers[0].len() - 1);
        assert_eq!(samples.order.len(), samples.live());
    }

    #[test]
    fn numbers_that_all_samples_have_are_stored_once() {
        let mut posterior = table();
        let bias = posterior.network.params().find("fc1.bias").unwrap().range();
        posterior.members.iter_mut().for_each(|m| m.weights[bias.start + 1] = 0.25);
        let samples = Samples::of(&posterior).unwrap();
        let kept = samples.sharing(1.0).unwrap();
        assert_eq!(kept.differing(), samples.live() - 1);
        assert_eq!(kept.posterior().members, samples.posterior().members);
    }

    #[test]
    fn samples_that_do_not_belong_together_are_refused() {
        let problem = |change: fn(&mut Posterior)| {
            let mut posterior = table();
            change(&mut posterior);
            Samples::of(&posterior).unwrap_err().to_string()
        };
        let text = problem(|p| p.members[1].chain = 1);
        assert!(text.contains("several chains"), "{text}");
        let text = problem(|p| {
            p.members[0].keep[0] = 0;
            p.members[0].weights[0] = 0.0;
        });
        assert!(text.contains("several masks"), "{text}");
        let text = problem(|p| p.members[2].weights[1] = 0.5);
        assert!(text.contains("epoch 12 is not zero"), "{text}");
        assert!(problem(|p| p.members.clear()).contains("no posterior samples yet"));
        let samples = Samples::of(&table()).unwrap();
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(samples.sharing(wrong).unwrap_err().to_string().contains("from 0 to 1"));
        }
    }
}
