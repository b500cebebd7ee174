//! Runs networks of linear layers, a block of rows at a time.

use std::ops::Range;

use rayon::prelude::*;

use crate::dataset::Dataset;
use crate::network::{Curve, Family, List, Network, NodeId, Op};
use crate::ops::{add, channels, linear, loss, narrow, relu, tanh};
use crate::plan::{Passes, bytes_of};
use crate::real::Real;
use crate::vectorize::vectorize;

/// Values in the widest activation of a block of rows. A block goes through the whole network,
/// forward and backward, before the next one: at 256 KB it stays in the second-level cache, so
/// inputs are read from memory once a step.
const BLOCK_VALUES: usize = 64 << 10;
/// Gradients are summed in at most this many lanes, whatever the number of threads.
const MOST_LANES: usize = 16;
/// All lanes together hold at most this many bytes of gradient.
const LANE_BYTES: usize = 64 << 20;

/// The arithmetic of a plan, in `f32` to run and in `f64` to check gradients.
pub(crate) struct Exec<T> {
    pub(crate) network: Network,
    block_rows: usize,
    lanes: Vec<Lane<T>>,
    narrow: Option<Narrow>,
}

/// The first layer, where it has many inputs and a few outputs: it reads the data set's rows where
/// they lie, and its weights and gradient are packed.
struct Narrow {
    node: usize,
    outputs: usize,
    place: Range<usize>,
    trained: bool,
    packed: Vec<f32>,
    /// The columns with weights other than zero, where they are known to be few.
    live: Option<Vec<u32>>,
}

/// The node of such a first layer, and its weights.
fn narrow_layer<T: Real>(network: &Network) -> Option<(usize, usize)> {
    T::singles(&[])?;
    let mut readers =
        network.nodes().iter().enumerate().filter(|(_, n)| n.inputs.contains(&NodeId(0)));
    let (node, reader) = readers.next()?;
    let Op::Linear { weight, .. } = reader.op else { return None };
    let (inputs, outputs) = (network.input_len(), reader.shape.len());
    let fits = outputs <= narrow::MOST_OUTPUTS && inputs >= narrow::LEAST_INPUTS;
    (fits && readers.next().is_none()).then_some((node, weight))
}

impl Narrow {
    fn of<T: Real>(network: &Network, lengths: &Lengths) -> Option<Self> {
        let (node, weight) = narrow_layer::<T>(network)?;
        Some(Self {
            node,
            outputs: network.nodes()[node].shape.len(),
            place: network.params()[weight].range(),
            trained: network.trains(weight),
            packed: vec![0.0; lengths.packed],
            live: None,
        })
    }

    fn forward(&self, x: narrow::Rows<'_>, weight: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
        match &self.live {
            Some(live) => narrow::forward_columns(x, live, weight, bias, y, self.outputs),
            None => narrow::forward(x, &self.packed, bias, y, self.outputs),
        }
    }
}

/// What one lane needs: the activations of one block and its own gradient sum.
struct Lane<T> {
    values: Vec<Vec<T>>,
    slopes: Vec<Vec<T>>,
    targets: Vec<f32>,
    gradient: Vec<T>,
    /// The gradient of the narrow first layer; empty where there is none.
    packed: Vec<f32>,
    /// Whether `packed` still holds the last step's.
    fresh: bool,
    loss: f64,
}

/// Numbers of each buffer of a lane: what makes them and what counts them read the same.
struct Lengths {
    values: Vec<usize>,
    slopes: Vec<usize>,
    targets: usize,
    gradient: usize,
    /// The weights of the narrow first layer, outside the lanes; 0 where there is none.
    packed: usize,
    /// Their gradient.
    packed_slopes: usize,
}

impl Lengths {
    fn new<T: Real>(network: &Network, most_rows: usize, passes: Passes) -> Self {
        let block = block_rows(network).min(most_rows.max(1));
        let narrow = narrow_layer::<T>(network);
        let buffers = |input: bool, others: bool| -> Vec<usize> {
            let len = |i: usize, n: usize| {
                let there = if i == 0 { input } else { others };
                if there { n * block } else { 0 }
            };
            let nodes = network.nodes().iter().enumerate();
            nodes.map(|(i, node)| len(i, node.shape.len())).collect()
        };
        let trains = passes == Passes::ForwardAndBack;
        let in_training = |len: usize| if trains { len } else { 0 };
        let packed = |(node, _): (usize, usize)| {
            narrow::packed_len(network.nodes()[node].shape.len(), network.input_len())
        };
        Self {
            values: buffers(narrow.is_none(), true),
            slopes: buffers(false, trains),
            targets: in_training(network.loss().target_len(network.output_len()) * block),
            gradient: in_training(network.params().len()),
            packed: narrow.map_or(0, packed),
            packed_slopes: in_training(narrow.map_or(0, packed)),
        }
    }
}

/// Bytes of the buffers of a plan.
pub(crate) fn bytes<T: Real>(network: &Network, most_rows: usize, passes: Passes) -> u64 {
    let lengths = Lengths::new::<T>(network, most_rows, passes);
    let size = size_of::<T>();
    let lane = bytes_of(&lengths.values, size)
        + bytes_of(&lengths.slopes, size)
        + bytes_of(&[lengths.gradient], size)
        + bytes_of(&[lengths.targets, lengths.packed_slopes], 4);
    lane * lane_count(network, most_rows) as u64 + bytes_of(&[lengths.packed], 4)
}

/// Whether this plan has the operation.
pub(crate) fn runs(op: &Op) -> bool {
    match op.family() {
        Family::Input
        | Family::Weights { window: None, .. }
        | Family::Curve(_)
        | Family::Sum
        | Family::List(List::Pick, _) => true,
        Family::Weights { window: Some(_), .. }
        | Family::Norm { .. }
        | Family::Pool(_)
        | Family::List(List::Select | List::Spread, _)
        | Family::Scales { .. } => false,
    }
}

impl<T: Real> Exec<T> {
    pub(crate) fn new(network: &Network, most_rows: usize, passes: Passes) -> Self {
        let lengths = Lengths::new::<T>(network, most_rows, passes);
        let narrow = Narrow::of::<T>(network, &lengths);
        let numbers = |lens: &[usize]| lens.iter().map(|len| vec![T::ZERO; *len]).collect();
        let lanes = (0..lane_count(network, most_rows))
            .map(|_| Lane {
                values: numbers(&lengths.values),
                slopes: numbers(&lengths.slopes),
                targets: vec![0.0; lengths.targets],
                gradient: vec![T::ZERO; lengths.gradient],
                packed: vec![0.0; lengths.packed_slopes],
                fresh: true,
                loss: 0.0,
            })
            .collect();
        Self { network: network.clone(), block_rows: block_rows(network), lanes, narrow }
    }

    /// Tells which input columns have weights other than zero; `None` means that any may have.
    /// Where they are few, the forward pass reads no others.
    pub(crate) fn set_live_inputs(&mut self, live: Option<&[usize]>) {
        if let Some(narrow) = &mut self.narrow {
            let few = live.filter(|live| live.len() * 16 <= self.network.input_len());
            narrow.live = few.map(|live| live.iter().map(|&c| c as u32).collect());
        }
    }

    /// Lanes in use for a batch and rows for each: lane `l` takes rows `l·share ..`.
    fn deal(&self, rows: usize) -> (usize, usize) {
        let lanes = lane_count(&self.network, rows).min(self.lanes.len());
        let share = rows.div_ceil(self.block_rows).div_ceil(lanes) * self.block_rows;
        (rows.div_ceil(share), share)
    }

    fn pack(&mut self, weights: &[T]) {
        if let (Some(narrow), Some(weights)) = (&mut self.narrow, T::singles(weights)) {
            narrow::pack(&weights[narrow.place.clone()], narrow.outputs, &mut narrow.packed);
        }
    }

    pub(crate) fn gradient(
        &mut self,
        weights: &[T],
        data: &Dataset,
        rows: &[u32],
        gradient: &mut [T],
    ) -> f64 {
        self.pack(weights);
        let (used, share) = self.deal(rows.len());
        let step = Step {
            network: &self.network,
            narrow: self.narrow.as_ref(),
            weights,
            data,
            scale: T::of(1.0 / rows.len() as f64),
        };
        let block_rows = self.block_rows;
        let work = |(lane, rows): (&mut Lane<T>, &[u32])| {
            step.clear(lane);
            for block in rows.chunks(block_rows) {
                lane.load(data, block, true);
                step.forward(lane, block);
                step.backward(lane, block);
            }
        };
        let lanes = &mut self.lanes[..used];
        if rayon::current_num_threads() == 1 || used == 1 {
            lanes.iter_mut().zip(rows.chunks(share)).for_each(work);
        } else {
            lanes.par_iter_mut().zip(rows.par_chunks(share)).for_each(work);
        }
        self.sum_lanes(used, gradient);
        self.lanes[..used].iter().map(|lane| lane.loss).sum::<f64>() / rows.len() as f64
    }

    /// Sums the lanes in order.
    fn sum_lanes(&mut self, used: usize, gradient: &mut [T]) {
        let (first, others) = self.lanes[..used].split_at_mut(1);
        let first = &mut first[0];
        let packed = self.narrow.as_ref().map_or(0..0, |n| n.place.clone());
        for range in [0..packed.start, packed.end..gradient.len()] {
            gradient[range.clone()].copy_from_slice(&first.gradient[range.clone()]);
            for lane in &*others {
                add_to(&mut gradient[range.clone()], &lane.gradient[range.clone()]);
            }
        }
        let narrow = self.narrow.as_ref().filter(|narrow| narrow.trained);
        if let (Some(narrow), Some(gradient)) = (narrow, T::singles_mut(gradient)) {
            // In pieces, because the other threads would fall asleep over the sum; the order in
            // which lanes are added is the same for every piece.
            let piece = (first.packed.len() / 4).next_multiple_of(16).max(1024);
            first.packed.par_chunks_mut(piece).enumerate().for_each(|(at, sum)| {
                let range = at * piece..at * piece + sum.len();
                for lane in &*others {
                    add_to(sum, &lane.packed[range.clone()]);
                }
            });
            narrow::unpack(&first.packed, narrow.outputs, &mut gradient[packed]);
        }
    }

    pub(crate) fn forward(&mut self, weights: &[T], data: &Dataset, rows: &[u32], out: &mut [T]) {
        self.pack(weights);
        let (used, share) = self.deal(rows.len());
        let block_rows = self.block_rows;
        let (network, outputs) = (&self.network, self.network.output_len());
        let narrow = self.narrow.as_ref();
        let step = Step { network, narrow, weights, data, scale: T::ONE };
        self.lanes[..used]
            .par_iter_mut()
            .zip(rows.par_chunks(share))
            .zip(out.par_chunks_mut(share * outputs))
            .for_each(|((lane, rows), out)| {
                let blocks = rows.chunks(block_rows).zip(out.chunks_mut(block_rows * outputs));
                for (block, out) in blocks {
                    lane.load(data, block, false);
                    step.forward(lane, block);
                    out.copy_from_slice(&lane.values[network.output().0][..out.len()]);
                }
            });
    }
}

fn add_to<T: Real>(sum: &mut [T], values: &[T]) {
    vectorize(
        #[inline(always)]
        || sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value),
    );
}

/// Rows of a block: many for narrow networks, where calls would cost more than arithmetic.
fn block_rows(network: &Network) -> usize {
    let widest = network.nodes().iter().map(|n| n.shape.len()).max().unwrap_or(1);
    (BLOCK_VALUES / widest.max(1)).clamp(32, 256)
}

fn lane_count(network: &Network, rows: usize) -> usize {
    let by_memory = LANE_BYTES / (4 * network.params().len().max(1));
    rows.div_ceil(block_rows(network)).clamp(1, MOST_LANES.min(by_memory.max(1)))
}

impl<T: Real> Lane<T> {
    /// Copies a block's targets, and its inputs unless the first layer reads them where they lie.
    fn load(&mut self, data: &Dataset, rows: &[u32], targets: bool) {
        let columns = data.columns();
        for (to, &row) in self.values[0].chunks_exact_mut(columns).zip(rows) {
            load_row(to, data.input(row as usize));
        }
        if targets {
            let width = data.target_columns();
            for (to, &row) in self.targets.chunks_exact_mut(width).zip(rows) {
                to.copy_from_slice(data.target(row as usize));
            }
        }
    }
}

/// What all lanes of a step share.
struct Step<'a, T> {
    network: &'a Network,
    narrow: Option<&'a Narrow>,
    weights: &'a [T],
    data: &'a Dataset,
    scale: T,
}

impl<T: Real> Step<'_, T> {
    fn clear(&self, lane: &mut Lane<T>) {
        let packed = self.narrow.map_or(0..0, |n| n.place.clone());
        lane.gradient[..packed.start].fill(T::ZERO);
        lane.gradient[packed.end..].fill(T::ZERO);
        lane.fresh = true;
        lane.loss = 0.0;
    }

    fn rows<'a>(&'a self, order: &'a [u32]) -> narrow::Rows<'a> {
        narrow::Rows { inputs: self.data.inputs(), columns: self.data.columns(), order }
    }

    fn forward(&self, lane: &mut Lane<T>, block: &[u32]) {
        let (network, weights, rows) = (self.network, self.weights, block.len());
        for (at, node) in network.nodes().iter().enumerate().skip(1) {
            let (before, rest) = lane.values.split_at_mut(at);
            let y = &mut rest[0][..rows * node.shape.len()];
            let value = |id: NodeId| &before[id.0][..rows * network.nodes()[id.0].shape.len()];
            match node.op.family() {
                Family::Weights { weight, bias, window: None } => {
                    let size = linear_size(network, at, rows);
                    let bias = bias.map(|b| &weights[network.params()[b].range()]);
                    let weight = &weights[network.params()[weight].range()];
                    if let Some(narrow) = self.narrow.filter(|n| n.node == at) {
                        let bias = bias.and_then(T::singles);
                        if let (Some(weight), Some(y)) = (T::singles(weight), T::singles_mut(y)) {
                            narrow.forward(self.rows(block), weight, bias, y);
                        }
                        continue;
                    }
                    linear::forward(size, value(node.inputs[0]), weight, bias, y);
                }
                Family::List(List::Pick, _) => {
                    let width = network.nodes()[node.inputs[0].0].shape.len();
                    channels::select(node.list(), width, value(node.inputs[0]), y);
                }
                Family::Curve(Curve::Relu) => relu::forward(value(node.inputs[0]), y),
                Family::Curve(Curve::Tanh) => tanh::forward(value(node.inputs[0]), y),
                Family::Sum => add::forward(value(node.inputs[0]), value(node.inputs[1]), y),
                // [`runs`] sends networks with these elsewhere.
                Family::Input
                | Family::Weights { window: Some(_), .. }
                | Family::Norm { .. }
                | Family::Pool(_)
                | Family::List(List::Select | List::Spread, _)
                | Family::Scales { .. } => {}
            }
        }
    }

    fn backward(&self, lane: &mut Lane<T>, block: &[u32]) {
        let (network, weights, rows) = (self.network, self.weights, block.len());
        for slopes in &mut lane.slopes {
            slopes.fill(T::ZERO);
        }
        let out = network.output().0;
        let outputs = network.output_len();
        let scale_param = network.loss().scale_param().map(|param| network.params()[param].offset);
        let (total, dscale) = loss::gradient(
            network.loss(),
            scale_param.map(|at| weights[at]),
            &lane.values[out][..rows * outputs],
            &lane.targets,
            outputs,
            self.scale,
            &mut lane.slopes[out][..rows * outputs],
        );
        lane.loss += total;
        if let Some(at) = scale_param {
            lane.gradient[at] += T::of(dscale) * self.scale;
        }
        for (at, node) in network.nodes().iter().enumerate().skip(1).rev() {
            if !network.wants_slope(NodeId(at)) {
                continue;
            }
            let (before, rest) = lane.slopes.split_at_mut(at);
            let dy = &rest[0][..rows * node.shape.len()];
            let len = |id: NodeId| rows * network.nodes()[id.0].shape.len();
            match node.op.family() {
                Family::Weights { weight, bias, window: None } => {
                    let size = linear_size(network, at, rows);
                    let from = node.inputs[0];
                    let range = network.params()[weight].range();
                    let narrow = self.narrow.filter(|n| n.node == at);
                    if network.trains(weight) {
                        if let (Some(narrow), Some(dy)) = (narrow, T::singles(dy)) {
                            let packed = &mut lane.packed;
                            let (rows, fresh) = (self.rows(block), lane.fresh);
                            narrow::weight_gradient(rows, dy, fresh, packed, narrow.outputs);
                            lane.fresh = false;
                        } else {
                            let x = &lane.values[from.0][..len(from)];
                            let dw = &mut lane.gradient[range.clone()];
                            linear::weight_gradient(size, x, dy, dw);
                        }
                    }
                    if let Some(bias) = bias.filter(|bias| network.trains(*bias)) {
                        let range = network.params()[bias].range();
                        linear::bias_gradient(size, dy, &mut lane.gradient[range]);
                    }
                    if network.wants_slope(from) {
                        let dx = &mut before[from.0][..len(from)];
                        linear::input_gradient(size, dy, &weights[range], dx);
                    }
                }
                Family::List(List::Pick, _) if network.wants_slope(node.inputs[0]) => {
                    let from = node.inputs[0];
                    let (width, dx) = (network.nodes()[from.0].shape.len(), &mut before[from.0]);
                    channels::select_backward(node.list(), width, dy, &mut dx[..len(from)]);
                }
                family @ (Family::Curve(_) | Family::Sum) => {
                    let y = &lane.values[at][..rows * node.shape.len()];
                    for &from in node.inputs.iter().filter(|from| network.wants_slope(**from)) {
                        let dx = &mut before[from.0][..len(from)];
                        match family {
                            Family::Curve(Curve::Relu) => relu::backward(y, dy, dx),
                            Family::Curve(Curve::Tanh) => tanh::backward(y, dy, dx),
                            _ => add::backward(dy, dx),
                        }
                    }
                }
                // [`runs`] sends networks with these elsewhere.
                Family::Input
                | Family::Weights { window: Some(_), .. }
                | Family::Norm { .. }
                | Family::Pool(_)
                | Family::List(..)
                | Family::Scales { .. } => {}
            }
        }
    }
}

fn load_row<T: Real>(to: &mut [T], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::of_single(*from);
    }
}

fn linear_size(network: &Network, at: usize, rows: usize) -> linear::Size {
    let node = &network.nodes()[at];
    let inputs = network.nodes()[node.inputs[0].0].shape.len();
    linear::Size { rows, inputs, outputs: node.shape.len() }
}

#[cfg(test)]
mod tests;
