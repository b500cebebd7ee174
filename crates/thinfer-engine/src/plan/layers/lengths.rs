//! How long the buffers of a lane are: what makes them and what counts them read the same numbers.

use crate::network::{Network, Node};
use crate::ops::tile::SLACK;
use crate::ops::vary;
use crate::plan::{Passes, bytes_of};

use super::layer::{Layer, Work};

/// Numbers of each buffer of a lane, node by node where there is one for each.
pub(crate) struct Lengths {
    pub(crate) values: Vec<usize>,
    pub(crate) slopes: Vec<usize>,
    pub(crate) places: Vec<usize>,
    /// Channels of each batch norm.
    pub(crate) sums: Vec<usize>,
    /// Of the two buffers of each node with random scales.
    pub(crate) scales: Vec<usize>,
    pub(crate) noise: usize,
    pub(crate) whose: usize,
    pub(crate) scratch: usize,
    pub(crate) targets: usize,
    pub(crate) gradient: usize,
}

impl Lengths {
    /// For a lane of up to `most_rows` rows. What cannot be counted is [`usize::MAX`].
    pub(crate) fn new(
        network: &Network,
        layers: &[Layer],
        most_rows: usize,
        passes: Passes,
    ) -> Self {
        let nodes = || network.nodes().iter().zip(layers).enumerate();
        let rows_of = |len: usize| most_rows.saturating_mul(len);
        let trains = passes == Passes::ForwardAndBack;
        let buffer = |at: usize, node: &Node, layer: &Layer| {
            let own = layer.buffer == at;
            if own { rows_of(node.shape.len()).saturating_add(SLACK) } else { 0 }
        };
        let values: Vec<usize> =
            nodes().map(|(at, (node, layer))| buffer(at, node, layer)).collect();
        let slopes = values.iter().enumerate();
        let slopes = slopes.map(|(at, len)| if trains && at > 0 { *len } else { 0 }).collect();
        let each = |len: &dyn Fn(&Node, &Layer) -> usize| -> Vec<usize> {
            nodes().map(|(_, (node, layer))| len(node, layer)).collect()
        };
        let varied = each(&|node, layer| match layer.work {
            Work::Vary { .. } => node.shape.channels,
            _ => 0,
        });
        let widest = varied.iter().copied().max().unwrap_or(0);
        let scratch = each(&|_, layer| match &layer.work {
            Work::Conv(conv) => conv.scratch_len(),
            _ => 0,
        });
        let target = network.loss().target_len(network.output_len());
        Self {
            values,
            slopes,
            places: each(&|node, layer| match layer.work {
                Work::Pool(pool, _) if pool.kernels().keeps.is_some() => rows_of(node.shape.len()),
                _ => 0,
            }),
            sums: each(&|node, layer| match layer.work {
                Work::Norm if trains => node.shape.channels,
                _ => 0,
            }),
            scales: varied.iter().map(|channels| rows_of(*channels)).collect(),
            noise: widest,
            whose: if network.mixture().is_some() { most_rows } else { 0 },
            scratch: scratch.into_iter().max().unwrap_or(0).max(widest),
            targets: if trains { rows_of(target) } else { 0 },
            gradient: if trains { network.params().len() } else { 0 },
        }
    }

    /// Bytes of a lane of numbers of `size` bytes.
    pub(crate) fn bytes(&self, size: usize) -> u64 {
        let numbers = [&self.values, &self.slopes, &self.sums, &self.sums]
            .into_iter()
            .chain([&self.scales, &self.scales])
            .map(|lens| bytes_of(lens, size))
            .fold(bytes_of(&[self.scratch, self.gradient], size), u64::saturating_add);
        numbers
            .saturating_add(bytes_of(&self.places, 4))
            .saturating_add(bytes_of(&[self.noise, self.targets], 4))
            .saturating_add(bytes_of(&[self.whose], size_of::<vary::Row>()))
    }
}
