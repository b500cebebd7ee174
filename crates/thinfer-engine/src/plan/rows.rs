use std::ops::Range;

use rayon::prelude::*;

use crate::dataset::Dataset;
use crate::network::{Network, NodeId, Op};
use crate::ops::{add, channels, linear, loss, narrow, relu, tanh};
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

impl Narrow {
    fn of<T: Real>(network: &Network) -> Option<Self> {
        T::singles(&[])?;
        let mut readers =
            network.nodes().iter().enumerate().filter(|(_, n)| n.inputs.contains(&NodeId(0)));
        let (node, reader) = readers.next()?;
        let Op::Linear { weight, .. } = reader.op else { return None };
        let (inputs, outputs) = (network.input_len(), reader.shape.len());
        let fits = outputs <= narrow::MOST_OUTPUTS && inputs >= narrow::LEAST_INPUTS;
        (fits && readers.next().is_none()).then(|| Self {
            node,
            outputs,
            place: network.params()[weight].range(),
            trained: network.trains(weight),
            packed: vec![0.0; narrow::packed_len(outputs, inputs)],
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

impl<T> Lane<T> {
    fn bytes(&self) -> usize {
        let activations: usize = self.values.iter().chain(&self.slopes).map(Vec::len).sum();
        size_of::<T>() * (activations + self.gradient.len())
            + 4 * (self.targets.len() + self.packed.len())
    }
}

/// Whether an operation works row by row.
pub(crate) fn runs(op: &Op) -> bool {
    use Op::{Add, Input, Linear, Pick, Relu, Tanh};
    matches!(op, Input | Linear { .. } | Relu | Tanh | Add | Pick { .. })
}

impl<T: Real> Exec<T> {
    pub(crate) fn new(network: &Network, most_rows: usize) -> Self {
        let lanes = lane_count(network, most_rows);
        let block_rows = block_rows(network);
        let block = block_rows.min(most_rows.max(1));
        let narrow = Narrow::of::<T>(network);
        let packed = narrow.as_ref().map_or(0, |n| n.packed.len());
        let buffers = |skip_input: bool| -> Vec<Vec<T>> {
            let len = |i: usize, n: usize| if skip_input && i == 0 { 0 } else { n * block };
            let nodes = network.nodes().iter().enumerate();
            nodes.map(|(i, node)| vec![T::ZERO; len(i, node.shape.len())]).collect()
        };
        let targets = network.loss().target_len(network.output_len()) * block;
        let lanes = (0..lanes)
            .map(|_| Lane {
                values: buffers(narrow.is_some()),
                slopes: buffers(true),
                targets: vec![0.0; targets],
                gradient: vec![T::ZERO; network.params().len()],
                packed: vec![0.0; packed],
                fresh: true,
                loss: 0.0,
            })
            .collect();
        Self { network: network.clone(), block_rows, lanes, narrow }
    }

    /// Bytes of all buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.lanes.iter().map(Lane::bytes).sum()
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
            // In pieces, because the other threads would fall asleep over the sum; the order in which
            // lanes are added is the same for every piece.
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
            match node.op {
                Op::Linear { weight, bias } => {
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
                Op::Pick { .. } => {
                    let width = network.nodes()[node.inputs[0].0].shape.len();
                    channels::select(node.list(), width, value(node.inputs[0]), y);
                }
                Op::Relu => relu::forward(value(node.inputs[0]), y),
                Op::Tanh => tanh::forward(value(node.inputs[0]), y),
                Op::Add => add::forward(value(node.inputs[0]), value(node.inputs[1]), y),
                _ => {}
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
        let scale_param = match network.loss() {
            loss::Loss::Gaussian { scale: loss::Scale::Learned { param, .. } } => {
                Some(network.params()[*param].offset)
            }
            _ => None,
        };
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
            match node.op {
                Op::Linear { weight, bias } => {
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
                Op::Pick { .. } if network.wants_slope(node.inputs[0]) => {
                    let from = node.inputs[0];
                    let (width, dx) = (network.nodes()[from.0].shape.len(), &mut before[from.0]);
                    channels::select_backward(node.list(), width, dy, &mut dx[..len(from)]);
                }
                Op::Relu | Op::Tanh | Op::Add => {
                    let y = &lane.values[at][..rows * node.shape.len()];
                    for &from in node.inputs.iter().filter(|from| network.wants_slope(**from)) {
                        let dx = &mut before[from.0][..len(from)];
                        match node.op {
                            Op::Relu => relu::backward(y, dy, dx),
                            Op::Tanh => tanh::backward(y, dy, dx),
                            _ => add::backward(dy, dx),
                        }
                    }
                }
                _ => {}
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
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::error::EngineError;
    use crate::network::NetworkBuilder;
    use crate::noise::{Key, Stream};
    use crate::ops::loss::Loss;
    use crate::plan::Plan;

    fn random(n: usize, seed: u64, scale: f32) -> Vec<f32> {
        let mut values = vec![0.0; n];
        Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
        values.iter_mut().for_each(|v| *v *= scale);
        values
    }

    fn data(network: &Network, rows: usize) -> Dataset {
        let (p, q) = (network.input_len(), network.output_len());
        let width = network.loss().target_len(q);
        let targets = (0..rows * width)
            .map(|i| match network.loss() {
                Loss::Gaussian { .. } => Key::new(9, 0, Stream::Observation).normal(0, i),
                Loss::Bernoulli => (i % 2) as f32,
                Loss::CrossEntropy { .. } => (i % q) as f32,
            })
            .collect();
        Dataset::new(p, width, random(rows * p, 5, 1.0), targets).unwrap()
    }

    /// |analytic − central difference| ≤ 1e-7 (|gradient| + 1) for every parameter, in f64.
    fn check_gradient(network: &Network, rows: usize) {
        let data = data(network, rows);
        let order: Vec<u32> = (0..rows as u32).rev().collect();
        let mut exec = Exec::<f64>::new(network, rows);
        let n = network.params().len();
        let mut w: Vec<f64> = random(n, 1, 0.5).into_iter().map(f64::from).collect();
        let (mut gradient, mut scratch) = (vec![0.0; n], vec![0.0; n]);
        exec.gradient(&w, &data, &order, &mut gradient);
        for i in 0..n {
            let h = 1e-6;
            let middle = w[i];
            w[i] = middle + h;
            let above = exec.gradient(&w, &data, &order, &mut scratch);
            w[i] = middle - h;
            let below = exec.gradient(&w, &data, &order, &mut scratch);
            w[i] = middle;
            let numeric = (above - below) / (2.0 * h);
            let name = &network.params().owner(i).unwrap().name;
            assert!(
                (gradient[i] - numeric).abs() <= 1e-7 * (numeric.abs() + 1.0),
                "{name}[{i}]: {} against {numeric}",
                gradient[i]
            );
        }
    }

    fn one_layer(inputs: usize, outputs: usize, loss: Loss) -> Network {
        let mut b = NetworkBuilder::new(inputs);
        let out = b.linear("fc", b.input(), outputs).unwrap();
        b.finish(out, loss).unwrap()
    }

    fn mlp(activation: &str, widths: &[usize], outputs: usize, loss: Loss) -> Network {
        let mut b = NetworkBuilder::new(7);
        let mut h = b.input();
        for (i, width) in widths.iter().enumerate() {
            h = b.linear(&format!("fc{i}"), h, *width).unwrap();
            h = if activation == "relu" { b.relu(h).unwrap() } else { b.tanh(h).unwrap() };
        }
        let out = b.linear("out", h, outputs).unwrap();
        b.finish(out, loss).unwrap()
    }

    fn residual(loss: Loss, outputs: usize) -> Network {
        let mut b = NetworkBuilder::new(5);
        let h = b.linear("fc1", b.input(), 4).unwrap();
        let a = b.tanh(h).unwrap();
        let r = b.linear_with("fc2", a, 4, false).unwrap();
        let s = b.add(a, r).unwrap();
        let twice = b.add(s, s).unwrap();
        let out = b.linear("fc3", twice, outputs).unwrap();
        b.finish(out, loss).unwrap()
    }

    #[test]
    fn every_loss_has_the_right_gradient() {
        check_gradient(&one_layer(3, 2, Loss::gaussian(0.7)), 5);
        check_gradient(&one_layer(3, 2, Loss::gaussian_learned(0.7)), 5);
        check_gradient(&one_layer(4, 1, Loss::Bernoulli), 6);
        check_gradient(&one_layer(4, 3, Loss::cross_entropy()), 6);
    }

    #[test]
    fn whole_networks_have_the_right_gradient() {
        check_gradient(&mlp("tanh", &[5, 3], 1, Loss::gaussian(1.0)), 70);
        check_gradient(&mlp("relu", &[6, 4, 3], 1, Loss::Bernoulli), 33);
        check_gradient(&mlp("relu", &[6, 4], 4, Loss::cross_entropy()), 1);
        check_gradient(&residual(Loss::gaussian_learned(1.0), 1), 40);
        check_gradient(&residual(Loss::cross_entropy(), 3), 40);
        let mut b = NetworkBuilder::new(6);
        let h = b.linear("fc1", b.input(), 40).unwrap();
        let h = b.tanh(h).unwrap();
        let h = b.pick(h, vec![39, 0, 11]).unwrap();
        let r = b.pick(b.input(), vec![2, 5, 1]).unwrap();
        let h = b.add(h, r).unwrap();
        let out = b.linear("fc2", h, 2).unwrap();
        check_gradient(&b.finish(out, Loss::gaussian(1.0)).unwrap(), 37);
    }

    /// Wide enough in the input for the kernels of a narrow first layer.
    fn wide() -> Network {
        let mut b = NetworkBuilder::new(150);
        let h = b.linear("fc1", b.input(), 5).unwrap();
        let h = b.tanh(h).unwrap();
        let out = b.linear("fc2", h, 1).unwrap();
        b.finish(out, Loss::gaussian(1.0)).unwrap()
    }

    #[test]
    fn columns_known_to_be_dead_change_no_gradient() {
        let network = wide();
        let data = data(&network, 100);
        let rows: Vec<u32> = (0..100).collect();
        let mut w = random(network.params().len(), 1, 0.5);
        let live = [3, 149];
        for (i, w) in w[..750].iter_mut().enumerate() {
            if !live.contains(&(i % 150)) {
                *w = 0.0;
            }
        }
        let mut exec = Exec::<f32>::new(&network, 100);
        let (mut all, mut some) = (vec![0.0; w.len()], vec![0.0; w.len()]);
        exec.gradient(&w, &data, &rows, &mut all);
        exec.set_live_inputs(Some(&live));
        exec.gradient(&w, &data, &rows, &mut some);
        assert!(all.iter().zip(&some).all(|(a, b)| (a - b).abs() < 1e-5));
        assert!(some[0] != 0.0, "a dead column has a gradient too");
    }

    #[test]
    fn single_precision_follows_double() {
        for network in [mlp("tanh", &[5, 3], 1, Loss::gaussian(1.0)), wide()] {
            follows_double(&network);
        }
    }

    fn follows_double(network: &Network) {
        let data = data(network, 100);
        let rows: Vec<u32> = (0..100).collect();
        let w = random(network.params().len(), 1, 0.5);
        let wide: Vec<f64> = w.iter().map(|v| *v as f64).collect();
        let (mut g32, mut g64) = (vec![0.0f32; w.len()], vec![0.0f64; w.len()]);
        let l32 = Exec::<f32>::new(network, 100).gradient(&w, &data, &rows, &mut g32);
        let l64 = Exec::<f64>::new(network, 100).gradient(&wide, &data, &rows, &mut g64);
        assert!((l32 - l64).abs() < 1e-5);
        for (a, b) in g32.iter().zip(&g64) {
            assert!((*a as f64 - b).abs() < 1e-5, "{a} against {b}");
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        for network in [mlp("relu", &[6, 4], 1, Loss::gaussian(1.0)), wide()] {
            same_bits(&network);
        }
    }

    fn same_bits(network: &Network) {
        let data = data(network, 1000);
        let rows: Vec<u32> = Key::new(1, 0, Stream::Shuffle).permutation(0, 1000);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut arena = Arena::new(network, 0);
                arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
                let mut plan = Plan::new(network, 1000).unwrap();
                let loss = plan.gradient(&mut arena, &data, &rows).unwrap();
                let mut out = vec![0.0; 1000];
                plan.forward(arena.weights(), &[], &data, 0..1000, &mut out).unwrap();
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                (loss.to_bits(), bits(arena.gradient()), bits(&out))
            })
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            assert_eq!(one, run(threads), "{threads} threads");
        }
    }

    #[test]
    fn a_smaller_batch_in_a_larger_plan_is_the_same() {
        let network = mlp("relu", &[6], 1, Loss::gaussian(1.0));
        let data = data(&network, 200);
        let rows: Vec<u32> = (0..77).collect();
        let mut gradients = Vec::new();
        for most in [77, 200] {
            let mut arena = Arena::new(&network, 0);
            arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
            Plan::new(&network, most).unwrap().gradient(&mut arena, &data, &rows).unwrap();
            gradients.push(arena.gradient().to_vec());
        }
        assert_eq!(gradients[0], gradients[1]);
    }

    #[test]
    fn bad_batches_are_refused() {
        let network = one_layer(3, 1, Loss::gaussian(1.0));
        let data = data(&network, 4);
        let mut arena = Arena::new(&network, 0);
        let mut plan = Plan::new(&network, 4).unwrap();
        let far = plan.gradient(&mut arena, &data, &[0, 9]).unwrap_err();
        assert_eq!(far, EngineError::Row { row: 9, rows: 4 });
        assert!(plan.gradient(&mut arena, &data, &[0; 5]).is_err());
        let narrow = Dataset::new(2, 1, vec![0.0; 8], vec![0.0; 4]).unwrap();
        assert!(plan.gradient(&mut arena, &narrow, &[0]).is_err());
        let blind = Dataset::new(3, 1, vec![0.0; 12], Vec::new()).unwrap();
        assert!(plan.gradient(&mut arena, &blind, &[0]).is_err());
    }
}
