//! Dynamic forward freeze: weights whose groups have settled are not trained any more.
//!
//! At the end of a cycle a group is compared with what it was at the end of the cycle before. What
//! has settled is marked [`FIXED`] and stays as it is: no gradient, no prior, no noise. A layer of
//! which nearly all has settled is frozen whole, and then its gradient is not even computed; where
//! everything from the input up to a layer is frozen, the way back ends there. Marks are the only
//! memory of it besides the weights of the last cycle's end, and both are in a checkpoint.

use std::ops::Range;

use thinfer_engine::{Arena, Network};

use super::run::ChainResult;
use crate::prune::{FIXED, Groups, KEEP, count, live_groups};

/// When weights are frozen.
#[derive(Clone, Debug, PartialEq)]
pub struct Freezing {
    /// A group has settled when from the end of a cycle to the end of the next it has moved by less
    /// than this part of its length.
    pub below: f64,
    /// A layer is frozen whole when at least this share of its kept weights has settled.
    pub layer_share: f64,
    /// The groups.
    pub groups: Vec<Groups>,
    /// The last epoch of every cycle but the last one.
    pub cycle_ends: Vec<usize>,
}

impl Freezing {
    /// Marks what has settled since `before`. What is frozen stays frozen.
    pub(super) fn freeze(&self, network: &Network, before: &[f32], arena: &mut Arena) {
        let moved: Vec<f32> = arena.weights().iter().zip(before).map(|(w, b)| w - b).collect();
        let (_, marks) = arena.weights_and_marks();
        let frozen: Vec<u8> = marks.iter().map(|mark| mark & FIXED).collect();
        for groups in &self.groups {
            let pairs = groups.mean_squares(&moved).into_iter().zip(groups.mean_squares(before));
            let near = pairs.map(|(apart, length)| apart < self.below * self.below * length);
            let live = live_groups(groups, marks);
            let settled: Vec<bool> = near.zip(live).map(|(near, live)| near && live).collect();
            groups.mark(&settled, FIXED, true, marks);
        }
        marks.iter_mut().zip(frozen).for_each(|(mark, frozen)| *mark |= frozen);
        self.freeze_layers(network, marks);
    }

    /// Freezes layers of weights by their share, with their biases, and a norm with what it reads.
    fn freeze_layers(&self, network: &Network, marks: &mut [u8]) {
        let mut still: Vec<bool> = Vec::with_capacity(network.nodes().len());
        for node in network.nodes() {
            let own = match node.op.weight() {
                Some(weight) => self.settled(&marks[network.params()[weight].range()]),
                None => node.inputs.iter().all(|from| still[from.0]),
            };
            for param in node.op.params().into_iter().filter(|_| own) {
                marks[network.params()[param].range()].iter_mut().for_each(|mark| *mark |= FIXED);
            }
            still.push(own);
        }
    }

    fn settled(&self, marks: &[u8]) -> bool {
        let (kept, settled) = kept_and_frozen(marks);
        // Of a layer of which nothing is kept, nothing is known.
        kept > 0 && settled as f64 >= self.layer_share * kept as f64
    }
}

/// How many weights are kept, and how many of them are frozen.
fn kept_and_frozen(marks: &[u8]) -> (usize, usize) {
    (count(marks, KEEP), count(marks, KEEP | FIXED))
}

/// The share of kept parameters that are frozen.
pub(super) fn frozen_share(marks: &[u8]) -> f64 {
    let (kept, frozen) = kept_and_frozen(marks);
    frozen as f64 / kept.max(1) as f64
}

/// Parameters of which every element is frozen, by name: those of a smaller network are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenLayers(Vec<String>);

impl FrozenLayers {
    /// Those that the marks of the whole network say.
    pub fn of(network: &Network, marks: &[u8]) -> Self {
        let frozen = |range| -> bool {
            let marks: &[u8] = &marks[range];
            marks.iter().all(|mark| mark & FIXED != 0)
        };
        let names = network.params().iter().filter(|param| frozen(param.range()));
        Self(names.map(|param| param.name.clone()).collect())
    }

    /// A network, or one that was cut out of it, with these parameters held.
    pub(super) fn in_network(&self, network: &Network) -> Network {
        network.holding(|param| self.0.contains(&param.name))
    }

    /// The share of the multiply-adds of a network's way back that is left.
    pub fn backward_left(&self, network: &Network) -> f64 {
        if self.0.is_empty() {
            return 1.0;
        }
        let left = self.in_network(network).backward_multiply_adds();
        left as f64 / network.backward_multiply_adds().max(1) as f64
    }
}

/// What was frozen in one cycle of a chain, and how long its epochs took.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The epochs, from 0.
    pub epochs: Range<usize>,
    /// The share of kept parameters that are frozen.
    pub frozen: f64,
    /// The share of the multiply-adds of the way back that is done.
    pub backward: f64,
    /// The median time of an epoch, where times are known.
    pub seconds: Option<f64>,
}

/// What was frozen in each of the cycles that a chain has finished or begun; nothing where that is
/// nothing. Weights are frozen between cycles.
pub fn phases(result: &ChainResult, cycles: &[Range<usize>]) -> Vec<Phase> {
    let of = |cycle: &Range<usize>| {
        let record = result.records.iter().rev().find(|record| cycle.contains(&record.epoch))?;
        let times = result.times.iter().filter(|time| cycle.contains(&time.epoch));
        let mut seconds: Vec<f64> = times.map(|time| time.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        Some(Phase {
            epochs: cycle.clone(),
            frozen: record.frozen,
            backward: record.backward,
            seconds: seconds.get(seconds.len() / 2).copied(),
        })
    };
    let all: Vec<Phase> = cycles.iter().filter_map(of).collect();
    if all.iter().any(|phase| phase.frozen > 0.0) { all } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prune::{ALIVE, Grouping, group_network};
    use thinfer_engine::{Loss, NetworkBuilder, Shape, Window};

    /// conv1 2 -> 3 with norm, conv2 3 -> 3 with norm around which the stream goes, fc.
    fn network() -> Network {
        let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 2 });
        let h = b.conv2d_with("conv1", b.input(), 3, Window::square(1, 1, 0), true).unwrap();
        let h = b.batch_norm("bn1", h).unwrap();
        let r = b.conv2d("conv2", h, 3, Window::square(1, 1, 0)).unwrap();
        let r = b.batch_norm("bn2", r).unwrap();
        let h = b.add(h, r).unwrap();
        let h = b.batch_norm("bn3", h).unwrap();
        let h = b.global_average_pool(h).unwrap();
        let out = b.linear("fc", h, 2).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    fn freezing(network: &Network, below: f64, layer_share: f64) -> Freezing {
        let groups = group_network(network, Grouping::Kernel, None);
        Freezing { below, layer_share, groups, cycle_ends: vec![1, 3] }
    }

    fn frozen(network: &Network, marks: &[u8], name: &str) -> usize {
        let range = network.params().find(name).unwrap().range();
        marks[range].iter().filter(|mark| **mark & FIXED != 0).count()
    }

    #[test]
    fn groups_settle_one_by_one_and_layers_by_their_share() {
        let network = network();
        let n = network.params().len();
        let mut arena = Arena::new(&network, 0);
        let before: Vec<f32> = (0..n).map(|i| 1.0 + 0.1 * i as f32).collect();
        // All of conv1 but one kernel moves by 4 %, that one and all else by 6 %.
        let mut weights: Vec<f32> = before.iter().map(|w| 1.06 * w).collect();
        let conv1 = network.params().find("conv1.weight").unwrap().range();
        for i in conv1.clone().skip(1) {
            weights[i] = 1.04 * before[i];
        }
        arena.set_weights(&weights).unwrap();
        arena.set_marks(&vec![ALIVE; n]).unwrap();
        let mut strict = arena.clone();
        freezing(&network, 0.05, 0.9).freeze(&network, &before, &mut strict);
        assert_eq!(frozen(&network, strict.marks(), "conv1.weight"), 5);
        assert_eq!(strict.marks().iter().filter(|mark| **mark & FIXED != 0).count(), 5);
        assert_eq!(FrozenLayers::of(&network, strict.marks()), FrozenLayers::default());

        // With a smaller share the layer goes whole, with its bias and the norm behind it, but not
        // the norm that reads the sum.
        freezing(&network, 0.05, 0.8).freeze(&network, &before, &mut arena);
        let names = ["conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias"];
        assert_eq!(
            FrozenLayers::of(&network, arena.marks()),
            FrozenLayers(names.map(str::to_owned).to_vec())
        );
        let held = FrozenLayers::of(&network, arena.marks()).in_network(&network);
        let left = held.backward_multiply_adds() as f64 / network.backward_multiply_adds() as f64;
        assert_eq!(FrozenLayers::of(&network, arena.marks()).backward_left(&network), left);
        assert!(left < 0.6, "{left}");

        // It stays frozen whatever comes, and a pruned group has not settled.
        let conv2 = network.params().find("conv2.weight").unwrap().range();
        let mut marks = arena.marks().to_vec();
        marks[conv2.start] &= !KEEP;
        marks[conv1.start] &= !KEEP;
        arena.set_marks(&marks).unwrap();
        weights = weights.iter().map(|w| 2.0 * w).collect();
        let settled = weights.clone();
        arena.set_weights(&weights).unwrap();
        freezing(&network, 0.05, 0.9).freeze(&network, &settled, &mut arena);
        assert_eq!(frozen(&network, arena.marks(), "conv1.weight"), 6);
        // Nothing moved, so everything kept has settled, and with it the whole of each layer.
        assert!(arena.marks().iter().all(|mark| mark & FIXED != 0));
        assert_eq!(frozen_share(arena.marks()), 1.0);
    }
}
