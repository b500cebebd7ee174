//! The rows of a batch that one thread takes through the nodes.

use std::ops::Range;

use crate::dataset::Dataset;
use crate::mixture::{Draw, Mixture};
use crate::network::{Family, Network, Node, NodeId, Op};
use crate::ops::batch_norm::{Batch, Sums};
use crate::ops::loss;
use crate::ops::{add, channels, relu, tanh, vary};
use crate::real::Real;

use super::layer::{Layer, Work};
use super::lengths::Lengths;

/// Rows that go through a stretch of nodes together.
pub(crate) const BLOCK_ROWS: usize = 8;

/// What all lanes read.
pub(crate) struct Shared<'a, T> {
    pub(crate) network: &'a Network,
    pub(crate) layers: &'a [Layer],
    pub(crate) weights: &'a [T],
    pub(crate) packed: &'a [Vec<T>],
    pub(crate) norms: &'a [Batch<T>],
    /// The laws of random scales, and what makes them.
    pub(crate) laws: &'a [vary::Laws<T>],
    pub(crate) draw: Draw,
}

impl<T> Shared<'_, T> {
    /// The buffer and the length of a row of an input of a node.
    fn input(&self, node: &Node, slot: usize) -> (usize, usize) {
        let from = node.inputs[slot].0;
        (self.layers[from].buffer, self.network.nodes()[from].shape.len())
    }
}

/// Some rows of a batch: their activations, and their part of the gradient.
pub(crate) struct Lane<T> {
    rows: usize,
    values: Vec<Vec<T>>,
    slopes: Vec<Vec<T>>,
    /// For each max pool, which place of each window was the largest.
    places: Vec<Vec<u32>>,
    pub(crate) sums: Vec<Sums<T>>,
    /// For each node with random scales, those of its rows and their slopes.
    scales: Vec<[Vec<T>; 2]>,
    noise: Vec<f32>,
    /// Whose row each is, and its number; empty where there are no random scales.
    whose: Vec<vary::Row>,
    scratch: Vec<T>,
    targets: Vec<f32>,
    pub(crate) gradient: Vec<T>,
    pub(crate) loss: f64,
}

impl<T: Real> Lane<T> {
    pub(crate) fn new(lengths: &Lengths) -> Self {
        let numbers = |len: &usize| vec![T::ZERO; *len];
        let Lengths { values, slopes, places, sums, scales, .. } = lengths;
        Self {
            rows: 0,
            values: values.iter().map(numbers).collect(),
            slopes: slopes.iter().map(numbers).collect(),
            places: places.iter().map(|len| vec![0; *len]).collect(),
            sums: sums.iter().map(|channels| Sums::new(*channels)).collect(),
            scales: scales.iter().map(|len| [0; 2].map(|_| numbers(len))).collect(),
            noise: vec![0.0; lengths.noise],
            whose: Vec::with_capacity(lengths.whose),
            scratch: vec![T::ZERO; lengths.scratch],
            targets: vec![0.0; lengths.targets],
            gradient: vec![T::ZERO; lengths.gradient],
            loss: 0.0,
        }
    }

    /// Takes its rows of the data, and begins a new gradient if `targets` are wanted.
    pub(crate) fn load(&mut self, data: &Dataset, rows: &[u32], targets: bool) {
        self.rows = rows.len();
        for (to, &row) in self.values[0].chunks_exact_mut(data.columns()).zip(rows) {
            let from = data.input(row as usize);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of_single(*from));
        }
        if targets {
            let width = data.target_columns();
            for (to, &row) in self.targets.chunks_exact_mut(width).zip(rows) {
                to.copy_from_slice(data.target(row as usize));
            }
            self.gradient.fill(T::ZERO);
            self.loss = 0.0;
        }
    }

    /// Tells whose rows it has: in training those from `first` on of a batch, one for each member
    /// in turn, otherwise all of the member that `draw` names.
    pub(crate) fn number(
        &mut self,
        mixture: Option<Mixture>,
        draw: Draw,
        first: Option<usize>,
        rows: &[u32],
    ) {
        let Some(mixture) = mixture else { return };
        self.whose.clear();
        self.whose.extend(rows.iter().enumerate().map(|(at, row)| match first {
            Some(first) => vary::Row { member: (first + at) % mixture.members, number: first + at },
            None => vary::Row { member: draw.member, number: draw.first_row + *row as usize },
        }));
    }

    /// What the network gives for its rows.
    pub(crate) fn output(&self, shared: &Shared<'_, T>) -> &[T] {
        let output = shared.network.output().0;
        &self.values[shared.layers[output].buffer][..self.rows * shared.network.output_len()]
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let rows = self.rows;
        (0..rows).step_by(BLOCK_ROWS).map(move |first| first..rows.min(first + BLOCK_ROWS))
    }

    pub(crate) fn forward(&mut self, shared: &Shared<'_, T>, nodes: Range<usize>) {
        for rows in self.blocks() {
            for at in nodes.clone() {
                self.node_forward(shared, at, rows.clone());
            }
        }
    }

    fn node_forward(&mut self, shared: &Shared<'_, T>, at: usize, rows: Range<usize>) {
        let (node, layer) = (&shared.network.nodes()[at], &shared.layers[at]);
        let (before, rest) = self.values.split_at_mut(at);
        let value = |slot: usize| {
            let (buffer, len) = shared.input(node, slot);
            &before[buffer][rows.start * len..rows.end * len]
        };
        let len = node.shape.len();
        let own = rows.start * len..rows.end * len;
        if matches!(layer.work, Work::None | Work::ReluInPlace) {
            return;
        }
        let y = &mut rest[0][own.clone()];
        match &layer.work {
            Work::Conv(conv) => {
                let Family::Weights { bias, .. } = node.op.family() else { return };
                let offset = |bias: usize| shared.network.params()[bias].offset;
                let bias = bias.map(|bias| &shared.weights[offset(bias)..]);
                let packed = &shared.packed[at];
                conv.forward(value(0), packed, bias, layer.cut, y, &mut self.scratch);
            }
            Work::Norm => shared.norms[at].forward(value(0), layer.cut, y),
            Work::Pool(pool, shapes) => {
                let places = self.places[at].get_mut(own).unwrap_or_default();
                pool.forward(*shapes, value(0), y, places);
            }
            Work::Relu => relu::forward(value(0), y),
            Work::Tanh => tanh::forward(value(0), y),
            Work::Add => {
                add::forward(value(0), value(1), y);
                if layer.cut {
                    relu::forward_in_place(y);
                }
            }
            Work::Select { width } => channels::select(node.list(), *width, value(0), y),
            Work::Spread => channels::spread(node.list(), node.shape.channels, value(0), y),
            Work::Vary { first, of } => {
                let Op::Vary { bias, mixture, .. } = node.op else { return };
                let bias = bias.map(|bias| &shared.weights[shared.network.params()[bias].range()]);
                let (x, channels) = (value(0), node.shape.channels);
                let [scales, slopes] = &mut self.scales[at];
                for (within, row) in rows.clone().enumerate() {
                    let mut whose = self.whose[row];
                    whose.number = whose.number * of + first;
                    let place = row * channels..(row + 1) * channels;
                    let (s, slope) = (&mut scales[place.clone()], &mut slopes[place]);
                    let noise = &mut self.noise[..channels];
                    vary::draw(
                        (mixture.law, &shared.draw),
                        &shared.laws[at],
                        whose,
                        noise,
                        s,
                        slope,
                    );
                    let bias = bias.map(|bias| &bias[whose.member * channels..][..channels]);
                    let own = within * len..(within + 1) * len;
                    vary::forward(s, bias, &x[own.clone()], &mut y[own]);
                }
            }
            Work::None | Work::ReluInPlace => {}
        }
    }

    /// Loss of its rows, and the slope of the output.
    pub(crate) fn loss(&mut self, shared: &Shared<'_, T>, scale: T) {
        let network = shared.network;
        let outputs = network.output_len();
        let len = self.rows * outputs;
        let buffer = shared.layers[network.output().0].buffer;
        let log_sigma = network.loss().scale_param().map(|param| network.params()[param].offset);
        let (total, dscale) = loss::gradient(
            network.loss(),
            log_sigma.map(|at| shared.weights[at]),
            &self.values[buffer][..len],
            &self.targets,
            outputs,
            scale,
            &mut self.slopes[buffer][..len],
        );
        self.loss = total;
        if let Some(at) = log_sigma {
            self.gradient[at] = T::of(dscale) * scale;
        }
    }

    /// Moments of what the batch norm `at` reads.
    pub(crate) fn take_moments(&mut self, shared: &Shared<'_, T>, at: usize) {
        let (buffer, len) = shared.input(&shared.network.nodes()[at], 0);
        self.sums[at].take_moments(&self.values[buffer][..self.rows * len]);
    }

    /// Back through nodes, up to the batch norm that begins them, of which it takes the sums.
    pub(crate) fn backward(&mut self, shared: &Shared<'_, T>, nodes: Range<usize>) {
        let wanted = |at: usize| shared.network.wants_slope(NodeId(at));
        for rows in self.blocks() {
            for at in nodes.clone().rev().filter(|at| wanted(*at)) {
                self.node_backward(shared, at, rows.clone());
            }
        }
        let node = &shared.network.nodes()[nodes.start];
        if matches!(shared.layers[nodes.start].work, Work::Norm) && wanted(nodes.start) {
            let (from, len) = shared.input(node, 0);
            let x = &self.values[from][..self.rows * len];
            let dy = &self.slopes[nodes.start][..self.rows * len];
            self.sums[nodes.start].take_slopes(&shared.norms[nodes.start], x, dy);
        }
    }

    /// Back through the batch norm `at`, whose sums over the whole batch are known.
    pub(crate) fn norm_backward(&mut self, shared: &Shared<'_, T>, at: usize) {
        let node = &shared.network.nodes()[at];
        if !shared.network.wants_slope(node.inputs[0]) {
            return;
        }
        let (from, len) = shared.input(node, 0);
        let (before, rest) = self.slopes.split_at_mut(at);
        let (x, dy) = (&self.values[from][..self.rows * len], &rest[0][..self.rows * len]);
        let dx = &mut before[from][..self.rows * len];
        shared.norms[at].backward(x, dy, dx, shared.layers[at].adds[0]);
    }

    fn node_backward(&mut self, shared: &Shared<'_, T>, at: usize, rows: Range<usize>) {
        let (node, layer) = (&shared.network.nodes()[at], &shared.layers[at]);
        let len = node.shape.len();
        let own = rows.start * len..rows.end * len;
        if matches!(layer.work, Work::None | Work::Norm) {
            return;
        }
        let y = &self.values[layer.buffer][own.clone()];
        if matches!(layer.work, Work::ReluInPlace) {
            relu::backward_in_place(y, &mut self.slopes[layer.buffer][own]);
            return;
        }
        let (before, rest) = self.slopes.split_at_mut(at);
        let dy = &rest[0][own.clone()];
        if let Work::Conv(conv) = &layer.work {
            let Family::Weights { weight, bias, .. } = node.op.family() else { return };
            let params = shared.network.params();
            let (buffer, len) = shared.input(node, 0);
            let x = &self.values[buffer][rows.start * len..];
            if shared.network.trains(weight) {
                let dw = &mut self.gradient[params[weight].range()];
                conv.weight_gradient(x, dy, dw, &mut self.scratch);
            }
            if let Some(bias) = bias.filter(|bias| shared.network.trains(*bias)) {
                conv.bias_gradient(dy, &mut self.gradient[params[bias].range()]);
            }
            if shared.network.wants_slope(node.inputs[0]) {
                let weight = &shared.weights[params[weight].offset..];
                let dx = &mut before[buffer][rows.start * len..rows.end * len];
                conv.input_gradient(dy, weight, dx, layer.adds[0], &mut self.scratch);
            }
            return;
        }
        if let Op::Vary { posterior, bias, .. } = node.op {
            let params = shared.network.params();
            let (buffer, _) = shared.input(node, 0);
            let channels = node.shape.channels;
            let [scales, slopes] = &self.scales[at];
            for (within, row) in rows.clone().enumerate() {
                let member = self.whose[row].member;
                let place = row * channels..(row + 1) * channels;
                let (s, slope) = (&scales[place.clone()], &slopes[place]);
                let dy = &dy[within * len..(within + 1) * len];
                let own = row * len..(row + 1) * len;
                let x = &self.values[buffer][own.clone()];
                let of_member = |param: usize, len: usize| {
                    let first = params[param].offset + member * len;
                    first..first + len
                };
                let sums = &mut self.gradient[of_member(posterior, 2 * channels)];
                vary::gradient(s, slope, x, dy, &mut self.scratch, sums);
                if let Some(bias) = bias {
                    vary::bias_gradient(dy, &mut self.gradient[of_member(bias, channels)]);
                }
                if shared.network.wants_slope(node.inputs[0]) {
                    vary::backward(s, dy, &mut before[buffer][own], layer.adds[0]);
                }
            }
            return;
        }
        for slot in 0..node.inputs.len() {
            if !shared.network.wants_slope(node.inputs[slot]) {
                continue;
            }
            let (buffer, len) = shared.input(node, slot);
            let dx = &mut before[buffer][rows.start * len..rows.end * len];
            if let Work::Pool(pool, shapes) = &layer.work {
                let places = self.places[at].get(own.clone()).unwrap_or_default();
                pool.backward(*shapes, places, dy, dx, layer.adds[slot]);
                continue;
            }
            if !layer.adds[slot] {
                dx.fill(T::ZERO);
            }
            match &layer.work {
                Work::Relu => relu::backward(y, dy, dx),
                Work::Tanh => tanh::backward(y, dy, dx),
                Work::Add => add::backward(dy, dx),
                Work::Select { width } => {
                    channels::select_backward(node.list(), *width, dy, dx);
                }
                Work::Spread => {
                    channels::spread_backward(node.list(), node.shape.channels, dy, dx);
                }
                Work::None
                | Work::Conv(_)
                | Work::Norm
                | Work::Pool(..)
                | Work::ReluInPlace
                | Work::Vary { .. } => {}
            }
        }
    }
}
