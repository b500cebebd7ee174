//! SM: sparse momentum (Dettmers & Zettlemoyer, 2019). SGD on a sparse network whose live weights
//! move to where the momentum is largest, once an epoch.

use std::sync::Arc;

use rayon::prelude::*;
use thinfer_data::Result;
use thinfer_engine::Arena;
use thinfer_engine::noise::Key;

use super::kernels;
use super::mask::Cut;
use super::registry::{Declaration, When};
use super::sgd::{BUFFER, Pruned, Sgd, Update};
use super::sparse::{self, Layers, apportion, sizes_at, smallest};
use super::{Method, Tick, Vitals};
use crate::prune::KEEP;

/// The prune rate at the end of the run.
const LAST_RATE: f64 = 0.005;
/// A layer less sparse than this loses no more than its sparsity, where its momentum is large.
const NEARLY_DENSE: f64 = 0.2;
/// The share of a layer's zeros that may grow.
const ROOM: f64 = 0.99;

/// Settings of sparse momentum.
///
/// Minimises `L(w) = mean loss + ½ wd |w|²` over networks with a fixed number of live weights.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `rate` | p₀ | 0.5 | (0, 1) | forgets what was learned |
/// | `epochs` | | | ≥ 1 | |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sm {
    /// The steps between redistributions.
    pub sgd: Sgd,
    /// p₀: the share of a layer's live weights that goes at the start of the run.
    pub rate: f64,
    /// Epochs in the run.
    pub epochs: usize,
    /// The last epoch in which the mask may change.
    pub freeze_after_epochs: Option<usize>,
}

/// p at the start of an epoch: a cosine from p₀ to 0.005.
///
/// p = 0.005 + ½ (p₀ − 0.005) (1 + cos(π t / T))
pub fn prune_rate(first: f64, epoch: usize, epochs: usize) -> f64 {
    let phase = std::f64::consts::PI * epoch as f64 / epochs.max(1) as f64;
    LAST_RATE + 0.5 * (first - LAST_RATE) * (1.0 + phase.cos())
}

/// s: each layer's mean |momentum| over its live weights, as a share of all layers'.
pub fn momentum_shares(layers: &Layers, momentum: &[f32], marks: &[u8]) -> Vec<f64> {
    let mean = |range: &std::ops::Range<usize>| {
        let live = sizes_at(range, momentum, marks, true);
        live.iter().map(|(size, _)| f64::from(*size)).sum::<f64>() / live.len().max(1) as f64
    };
    let means: Vec<f64> = layers.ranges().par_iter().map(mean).collect();
    let sum: f64 = means.iter().sum();
    if sum > 0.0 {
        means.iter().map(|mean| mean / sum).collect()
    } else {
        vec![1.0 / means.len().max(1) as f64; means.len()]
    }
}

/// How many live weights each layer loses: ⌈p nnz⌉, with p at most the layer's sparsity where it is
/// nearly dense and its momentum above the average.
///
/// Deviation: where this is 0 the authors' program drops live weights that are exactly zero; here
/// nothing goes. And one weight of a layer always stays, or the network would be cut in two.
pub fn losses(rate: f64, shares: &[f64], live: &[usize], sizes: &[usize]) -> Vec<usize> {
    let average = 1.0 / shares.len().max(1) as f64;
    let of_layer = |at: usize| {
        let sparsity = 1.0 - live[at] as f64 / sizes[at].max(1) as f64;
        let protected = sparsity < NEARLY_DENSE && shares[at] > average;
        let rate = if protected { rate.min(sparsity) } else { rate };
        ((rate * live[at] as f64).ceil() as usize).min(live[at].saturating_sub(1))
    };
    (0..live.len()).map(of_layer).collect()
}

/// How many weights grow in each layer: `total` in proportion to the momentum, at most 99 % of a
/// layer's zeros; what is over goes to all layers alike, until nothing is.
///
/// Deviation: the authors' program rounds every layer by itself, lets the number of live weights
/// drift and corrects it by a running adjustment. Here the parts add up, so the number stays.
pub fn growth(total: usize, shares: &[f64], zeros: &[usize]) -> Vec<usize> {
    let mut caps: Vec<usize> = zeros.iter().map(|&n| (ROOM * n as f64) as usize).collect();
    if caps.iter().sum::<usize>() < total {
        caps = zeros.to_vec();
    }
    let mut parts: Vec<f64> = shares.iter().map(|share| share * total as f64).collect();
    for _ in 0..1000 {
        let mut over = 0.0;
        for (part, &cap) in parts.iter_mut().zip(&caps) {
            over += (*part - cap as f64).max(0.0);
            *part = part.min(cap as f64);
        }
        if over < 0.5 {
            break;
        }
        let each = over / parts.len() as f64;
        parts.iter_mut().for_each(|part| *part += each);
    }
    apportion(total, &parts, &caps)
}

/// Prunes the live weights of least magnitude, `losses` of each layer.
pub fn prune(layers: &Layers, losses: &[usize], weights: &[f32], marks: &mut [u8]) {
    let gone: Vec<Vec<u32>> = {
        let marks = &*marks;
        let pairs = layers.ranges().par_iter().zip(losses);
        pairs.map(|(range, &n)| smallest(sizes_at(range, weights, marks, true), n)).collect()
    };
    gone.iter().flatten().for_each(|&at| marks[at as usize] &= !KEEP);
}

/// Revives the pruned weights of largest |momentum|, `gains` of each layer; those that were pruned
/// just now are among them.
pub fn grow(layers: &Layers, gains: &[usize], momentum: &[f32], marks: &mut [u8]) {
    let come: Vec<Vec<u32>> = {
        let marks = &*marks;
        let pairs = layers.ranges().par_iter().zip(gains);
        let largest = |(range, &n): (&std::ops::Range<usize>, &usize)| {
            let mut zeros = sizes_at(range, momentum, marks, false);
            zeros.iter_mut().for_each(|(size, _)| *size = -*size);
            smallest(zeros, n)
        };
        pairs.map(largest).collect()
    };
    come.iter().flatten().for_each(|&at| marks[at as usize] |= KEEP);
}

/// Sparse momentum on the layers of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct SmMethod {
    /// Settings.
    pub config: Sm,
    /// What may be pruned.
    pub layers: Layers,
    /// How many weights are pruned, at any time.
    pub pruned: usize,
}

impl SmMethod {
    fn may_change(&self, epoch: usize) -> bool {
        epoch > 0 && self.config.freeze_after_epochs.is_none_or(|last| epoch <= last)
    }
}

impl Method for SmMethod {
    fn state_buffers(&self) -> usize {
        1
    }

    /// Deviation: in the authors' program each weight lives with a fixed probability; here the
    /// number in each layer is exact.
    fn start(&self, arena: &mut Arena, key: Key) -> Result<()> {
        self.layers.start(self.pruned, arena, key)
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        let coeffs = self.config.sgd.coeffs(tick);
        arena.run(&Update { coeffs, pruned: Some(Pruned::KeepsMomentum) });
    }

    fn epoch(&self, arena: &mut Arena, tick: Tick) {
        if !self.may_change(tick.epoch) {
            return;
        }
        let (layers, config) = (&self.layers, &self.config);
        let momentum = arena.state(BUFFER).to_vec();
        let shares = momentum_shares(layers, &momentum, arena.marks());
        let (live, sizes) = (layers.live(arena.marks()), layers.sizes());
        let rate = prune_rate(config.rate, tick.epoch, config.epochs);
        let losses = losses(rate, &shares, &live, &sizes);
        let (weights, marks) = arena.weights_and_marks();
        prune(layers, &losses, weights, marks);
        // What grows starts at zero, also where it was pruned just now.
        arena.run(&Cut);
        let (_, marks) = arena.weights_and_marks();
        let zeros: Vec<usize> =
            (0..live.len()).map(|at| sizes[at] - live[at] + losses[at]).collect();
        let gains = growth(losses.iter().sum(), &shares, &zeros);
        grow(layers, &gains, &momentum, marks);
    }

    fn reads_state(&self, epoch: usize) -> bool {
        self.may_change(epoch)
    }

    fn masks(&self) -> bool {
        true
    }

    fn vitals(&self, arena: &Arena, _tick: Tick) -> Vitals {
        Vitals { pruned_share: self.layers.pruned_share(arena.marks()), ..Vitals::default() }
    }
}

/// SM as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "sm",
    about: "SM, sparse momentum: sparse from the start, weights grow where momentum is large",
    page: "docs/sm.md",
    reads: sparse::READS,
    keys: &[],
    defaults: &[
        (When::Always, sparse::DEFAULTS),
        (
            When::Images,
            r#"
schedule.step_size = { value = 0.1, shape = "steps", at_epochs = [80, 160] }
train.batch = 128
"#,
        ),
    ],
    check: None,
    network: None,
    kernels: &[kernels::SGD_MASKED],
    build: |setup| {
        let (layers, pruned) = Layers::of(setup)?;
        let config = Sm {
            sgd: Sgd::of(setup),
            rate: setup.prune.rate,
            epochs: setup.epochs,
            freeze_after_epochs: setup.freeze_after_epochs,
        };
        Ok(Arc::new(SmMethod { config, layers, pruned }))
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_from_the_first_to_the_last() {
        assert_eq!(prune_rate(0.5, 0, 200), 0.5);
        assert!((prune_rate(0.5, 100, 200) - 0.2525).abs() < 1e-12);
        assert!((prune_rate(0.5, 200, 200) - 0.005).abs() < 1e-12);
    }

    #[test]
    fn shares_are_of_the_mean_momentum_of_live_weights() {
        let layers = Layers::at(vec![0..3, 3..5, 5..6]);
        let momentum = [1.0, -3.0, 50.0, 6.0, 70.0, 9.0];
        // Means 2, 6 and none; what pruned weights have does not count.
        let marks = [KEEP, KEEP, 0, KEEP, 0, 0];
        assert_eq!(momentum_shares(&layers, &momentum, &marks), [0.25, 0.75, 0.0]);
        // Nothing moves yet: all alike.
        assert_eq!(momentum_shares(&layers, &[0.0; 6], &marks), [1.0 / 3.0; 3]);
    }

    #[test]
    fn a_nearly_dense_layer_with_large_momentum_loses_little() {
        // Sparsity 0.1, 0.1 and 0.5; average share 1/3.
        let got = losses(0.4, &[0.6, 0.1, 0.3], &[90, 90, 50], &[100, 100, 100]);
        assert_eq!(got, [9, 36, 20]);
    }

    #[test]
    fn what_is_over_goes_to_all_alike() {
        // The first layer would get 40, but only 9 of its 10 zeros may grow.
        assert_eq!(growth(50, &[0.8, 0.1, 0.1], &[10, 100, 100]), [9, 21, 20]);
        // No room by the rule of 99 %: all zeros may grow.
        assert_eq!(growth(3, &[1.0], &[3]), [3]);
    }
}
