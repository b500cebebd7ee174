//! Runs networks whose rows meet at batch norms, or whose images have windows.

use rayon::prelude::*;

use crate::dataset::Dataset;
use crate::mixture::Draw;
use crate::network::{Network, NodeId, Op};
use crate::ops::batch_norm::{Affine, Batch};
use crate::ops::tile::SLACK;
use crate::ops::vary::Laws;
use crate::param::ParamTable;
use crate::plan::{Passes, bytes_of};
use crate::real::Real;

mod lane;
mod layer;
mod lengths;
#[cfg(test)]
mod tests;

use lane::{BLOCK_ROWS, Lane, Shared};
use layer::{Layer, Work};
use lengths::Lengths;

/// Gradients are summed in at most this many lanes, whatever the number of threads.
const MOST_LANES: usize = 16;
/// All lanes together hold at most this many bytes of gradient.
const LANE_BYTES: usize = 512 << 20;
/// Gradient elements that a task sums over all lanes.
const CHUNK: usize = 4096;

/// Runs networks with convolutions, pooling and batch norm, in `f32` to run and in `f64` to check
/// gradients.
///
/// A lane holds some rows of the batch and all their activations. Between two batch norms, lanes
/// have nothing to tell each other: each takes a few rows at a time through all nodes, which keeps
/// them in the second-level cache. At a batch norm they meet, and their sums are put together in
/// order.
pub(crate) struct Exec<T> {
    pub(crate) network: Network,
    layers: Vec<Layer>,
    /// First nodes of the stretches between batch norms, and one past the last node.
    cuts: Vec<usize>,
    /// All weights, with slack at the end.
    weights: Vec<T>,
    /// The weights of each layer in the order in which its forward pass reads them.
    packed: Vec<Vec<T>>,
    norms: Vec<Batch<T>>,
    /// The laws of random scales, and what makes them.
    laws: Vec<Laws<T>>,
    pub(crate) draw: Draw,
    lanes: Vec<Lane<T>>,
}

impl<T: Real> Exec<T> {
    /// For batches of up to `most_rows` examples, which members of a mixture see once each.
    pub(crate) fn new(network: &Network, most_rows: usize, passes: Passes) -> Self {
        let Sizes { layers, lanes, lane, packed, weights } = Sizes::new(network, most_rows, passes);
        let mut cuts = vec![1];
        let meets = |at: &usize| network.nodes()[*at].op.needs_rows_together();
        cuts.extend((1..layers.len()).filter(meets));
        cuts.push(layers.len());
        let norms = network.nodes().iter().map(|node| match node.op {
            Op::BatchNorm { .. } => Batch::new(node.shape.channels),
            _ => Batch::default(),
        });
        Self {
            network: network.clone(),
            cuts,
            weights: vec![T::ZERO; weights],
            packed: packed.iter().map(|len| vec![T::ZERO; *len]).collect(),
            norms: norms.collect(),
            laws: network.nodes().iter().map(|_| Laws::default()).collect(),
            draw: Draw::default(),
            lanes: (0..lanes).map(|_| Lane::new(&lane)).collect(),
            layers,
        }
    }

    /// How many lanes a batch takes, and rows a lane.
    fn deal(&self, rows: usize) -> (usize, usize) {
        let share = rows.div_ceil(lane_count(&self.network, rows).min(self.lanes.len()));
        (rows.div_ceil(share), share)
    }

    fn take_weights(&mut self, weights: &[T]) {
        self.weights[..weights.len()].copy_from_slice(weights);
        let (params, weights) = (self.network.params(), &self.weights);
        let pairs = self.packed.par_iter_mut().zip(self.layers.par_iter());
        pairs.zip(self.network.nodes().par_iter()).for_each(|((packed, layer), node)| {
            if let (Work::Conv(conv), Some(weight)) = (&layer.work, node.op.weight()) {
                conv.pack(&weights[params[weight].range()], packed);
            }
        });
        for (laws, node) in self.laws.iter_mut().zip(self.network.nodes()) {
            if let Op::Vary { posterior, .. } = node.op {
                laws.take(&weights[params[posterior].range()]);
            }
        }
    }

    /// Runs `work` on every lane that has rows.
    fn each_lane(&mut self, used: usize, work: impl Fn(&Shared<'_, T>, &mut Lane<T>) + Sync) {
        let shared = Shared {
            network: &self.network,
            layers: &self.layers,
            weights: &self.weights,
            packed: &self.packed,
            norms: &self.norms,
            laws: &self.laws,
            draw: self.draw,
        };
        self.lanes[..used].par_iter_mut().for_each(|lane| work(&shared, lane));
    }

    pub(crate) fn gradient(
        &mut self,
        weights: &[T],
        stats: &mut [T],
        data: &Dataset,
        rows: &[u32],
        gradient: &mut [T],
    ) -> f64 {
        let (mixture, draw, repeats) = (self.network.mixture(), self.draw, self.network.repeats());
        let repeated: Vec<u32>;
        let rows = if repeats > 1 {
            repeated = rows.iter().flat_map(|row| std::iter::repeat_n(*row, repeats)).collect();
            &repeated
        } else {
            rows
        };
        self.take_weights(weights);
        let (used, share) = self.deal(rows.len());
        let scale = T::of(1.0 / rows.len() as f64);
        let last = self.cuts.len() - 2;
        for stretch in 0..=last {
            if stretch > 0 {
                self.collect_moments(self.cuts[stretch], used, stats);
            }
            let nodes = self.cuts[stretch]..self.cuts[stretch + 1];
            if stretch == 0 {
                let lanes = self.lanes[..used].par_iter_mut();
                lanes.zip(rows.par_chunks(share)).enumerate().for_each(|(at, (lane, rows))| {
                    lane.load(data, rows, true);
                    lane.number(mixture, draw, Some(at * share), rows);
                });
            }
            self.each_lane(used, |shared, lane| {
                lane.forward(shared, nodes.clone());
                if stretch < last {
                    lane.take_moments(shared, nodes.end);
                } else {
                    lane.loss(shared, scale);
                    lane.backward(shared, nodes.clone());
                }
            });
        }
        for stretch in (0..last).rev() {
            let nodes = self.cuts[stretch]..self.cuts[stretch + 1];
            // Up to the norm, everything may be held.
            if (nodes.start..=nodes.end).all(|at| !self.network.wants_slope(NodeId(at))) {
                continue;
            }
            self.collect_slopes(nodes.end, used);
            self.each_lane(used, |shared, lane| {
                lane.norm_backward(shared, nodes.end);
                lane.backward(shared, nodes.clone());
            });
        }
        let lanes = &self.lanes[..used];
        gradient.par_chunks_mut(CHUNK).enumerate().for_each(|(at, sum)| {
            let part = at * CHUNK..at * CHUNK + sum.len();
            sum.copy_from_slice(&lanes[0].gradient[part.clone()]);
            for lane in &lanes[1..] {
                let values = &lane.gradient[part.clone()];
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
            }
        });
        lanes.iter().map(|lane| lane.loss).sum::<f64>() / rows.len() as f64
    }

    pub(crate) fn forward(
        &mut self,
        weights: &[T],
        stats: &[T],
        data: &Dataset,
        rows: &[u32],
        out: &mut [T],
    ) {
        self.take_weights(weights);
        let (params, table) = (self.network.params(), self.network.stats());
        for (norm, node) in self.norms.iter_mut().zip(self.network.nodes()) {
            if let Op::BatchNorm { mean, variance, .. } = node.op {
                let running = [&stats[table[mean].range()], &stats[table[variance].range()]];
                norm.recall(affine(&node.op, params, &self.weights), running);
            }
        }
        let (mixture, draw) = (self.network.mixture(), self.draw);
        let (used, share) = self.deal(rows.len());
        let outputs = self.network.output_len();
        let shared = Shared {
            network: &self.network,
            layers: &self.layers,
            weights: &self.weights,
            packed: &self.packed,
            norms: &self.norms,
            laws: &self.laws,
            draw: self.draw,
        };
        let lanes = self.lanes[..used].par_iter_mut().zip(rows.par_chunks(share));
        lanes.zip(out.par_chunks_mut(share * outputs)).for_each(|((lane, rows), out)| {
            lane.load(data, rows, false);
            lane.number(mixture, draw, None, rows);
            lane.forward(&shared, 1..shared.layers.len());
            out.copy_from_slice(lane.output(&shared));
        });
    }

    fn collect_moments(&mut self, at: usize, used: usize, stats: &mut [T]) {
        let op = &self.network.nodes()[at].op;
        let Op::BatchNorm { mean, variance, momentum, .. } = *op else { return };
        let table = self.network.stats();
        let (mean, variance) = (table[mean].range(), table[variance].range());
        let (before, rest) = stats.split_at_mut(variance.start);
        let running = [&mut before[mean], &mut rest[..variance.len()]];
        let lanes = self.lanes[..used].iter().map(|lane| &lane.sums[at]);
        let affine = affine(op, self.network.params(), &self.weights);
        self.norms[at].collect(&lanes, affine, momentum, running);
    }

    fn collect_slopes(&mut self, at: usize, used: usize) {
        let Op::BatchNorm { scale, shift, .. } = self.network.nodes()[at].op else { return };
        if !self.network.wants_slope(NodeId(at)) {
            return;
        }
        let params = self.network.params();
        let (scale, shift) = (params[scale].range(), params[shift].range());
        // The gradient of a batch norm belongs to the whole batch; the first lane carries it.
        let mut first = std::mem::take(&mut self.lanes[0].gradient);
        let (before, rest) = first.split_at_mut(shift.start);
        let lanes = self.lanes[..used].iter().map(|lane| &lane.sums[at]);
        self.norms[at].collect_slopes(&lanes, &mut before[scale], &mut rest[..shift.len()]);
        self.lanes[0].gradient = first;
    }
}

/// How long the buffers of a plan are.
struct Sizes {
    layers: Vec<Layer>,
    lanes: usize,
    lane: Lengths,
    /// Packed weights of each layer.
    packed: Vec<usize>,
    weights: usize,
}

impl Sizes {
    /// For batches of up to `most_rows` examples.
    fn new(network: &Network, most_rows: usize, passes: Passes) -> Self {
        let most_rows = most_rows.saturating_mul(network.repeats());
        let layers = layer::plan(network);
        let lanes = lane_count(network, most_rows);
        // A smaller batch may give a lane a whole block where this one gives it less.
        let lane_rows = most_rows.div_ceil(lanes).max(BLOCK_ROWS).min(most_rows.max(1));
        let packed = |layer: &Layer| match &layer.work {
            Work::Conv(conv) => conv.packed_len(),
            _ => 0,
        };
        Self {
            lanes,
            lane: Lengths::new(network, &layers, lane_rows, passes),
            packed: layers.iter().map(packed).collect(),
            weights: network.params().len() + SLACK,
            layers,
        }
    }
}

/// Bytes of the buffers of a plan whose numbers have `size` bytes. Those of batch norms, a few for
/// each channel, are left out.
pub(crate) fn bytes(network: &Network, most_rows: usize, passes: Passes, size: usize) -> u64 {
    let Sizes { layers, lanes, lane, packed, weights } = Sizes::new(network, most_rows, passes);
    let tables = layers.iter().map(|layer| match &layer.work {
        Work::Conv(conv) => conv.table_len(),
        _ => 0,
    });
    let shared = bytes_of(&packed, size) + bytes_of(&[weights], size);
    let tables = bytes_of(&[tables.sum()], 4);
    lane.bytes(size).saturating_mul(lanes as u64).saturating_add(shared + tables)
}

/// Rows are dealt in blocks: many lanes let many threads work, few rows a lane waste none.
fn lane_count(network: &Network, rows: usize) -> usize {
    let by_memory = LANE_BYTES / (4 * network.params().len().max(1));
    rows.div_ceil(BLOCK_ROWS).clamp(1, MOST_LANES.min(by_memory.max(1)))
}

/// The parameters of a batch norm; of another node, none.
fn affine<'a, T>(op: &Op, params: &ParamTable, weights: &'a [T]) -> Affine<'a, T> {
    match *op {
        Op::BatchNorm { scale, shift, eps, .. } => Affine {
            scale: &weights[params[scale].range()],
            shift: &weights[params[shift].range()],
            eps,
        },
        _ => Affine { scale: &[], shift: &[], eps: 0.0 },
    }
}
