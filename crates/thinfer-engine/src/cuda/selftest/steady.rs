//! Values that keep a network away from its kinks.
//!
//! Rounding that moves a value over the kink of a ReLU, or past its neighbour in a maximum, moves
//! its whole gradient, and no tight limit can be held. Here nearly every unit in front of a ReLU is
//! clearly on or off, and the numbers under a window of max pooling are clearly apart.

use crate::network::{Curve, Family, List, Network, Node, NodeId, Op};
use crate::noise::{Key, Stream};
use crate::shape::Window;

/// How far from zero the units in front of a ReLU are, as a part of how far they reach around their
/// mean.
const CLEAR: f64 = 1.2;
/// How many standard deviations a sum of many numbers reaches.
const REACH: f64 = 3.2;
/// The weight that leads in every channel of a convolution: what the channel gives is then bounded
/// as what it reads is, which a sum of many numbers is not. Small enough that a tanh behind it
/// keeps levels apart.
const LEAD: f32 = 0.5;
/// What is left of its other weights, and in front of a maximum.
const REST: f32 = 0.1;
const REST_BEFORE_MAXIMUM: f32 = 0.004;
/// What is left of the scales of norms in front of a maximum, where a tanh may follow.
const SCALE: f32 = 0.5;
/// Levels that the pixels of a square of `SIDE` by `SIDE` take, each once, and how far they are
/// apart.
const SIDE: usize = 4;
const APART: f32 = 0.2;
/// The standard deviation of what is added to the levels.
const BESIDE: f32 = 0.02;

/// A channel, roughly.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    mean: f64,
    sd: f64,
    /// How far it is from its mean at most.
    reach: f64,
}

/// Whether rounding can move a value over a kink.
pub(super) fn has_kinks(network: &Network) -> bool {
    network.nodes().iter().any(|n| n.op == Op::Relu || maximum(n).is_some())
}

/// The window of which a node takes the maximum.
fn maximum(node: &Node) -> Option<Window> {
    if let Family::Pool(pool) = node.op.family() { pool.maximum() } else { None }
}

fn key(seed: u64) -> Key {
    Key::new(seed, 0, Stream::Mask)
}

/// Moves biases and shifts in front of every ReLU so that half of the channels are on and half are
/// off, and lets one weight lead in every channel of a convolution.
pub(super) fn settle(network: &Network, weights: &mut [f32]) {
    let pooled = in_front_of_maxima(network);
    let mut known: Vec<Vec<Moments>> = Vec::new();
    for (at, node) in network.nodes().iter().enumerate() {
        match node.op {
            Op::Conv2d { .. } => {
                let rest = if pooled[at] { REST_BEFORE_MAXIMUM } else { REST };
                lead(network, at, &known, rest, weights);
            }
            Op::BatchNorm { scale, .. } if pooled[at] => {
                let scales = &mut weights[network.params()[scale].range()];
                scales.iter_mut().for_each(|scale| *scale *= SCALE);
            }
            Op::Linear { weight, .. } if at == network.output().0 => {
                let values = &mut weights[network.params()[weight].range()];
                balance(&known[node.inputs[0].0], values);
            }
            Op::Relu => {
                let from = node.inputs[0].0;
                let order = key(1).permutation(at as u64, node.shape.channels);
                for (channel, handle) in handles(network, from).into_iter().enumerate() {
                    let Some(handle) = handle else { continue };
                    let Moments { mean, reach, .. } = known[from][channel];
                    let sign = if order[channel].is_multiple_of(2) { 1.0 } else { -1.0 };
                    weights[handle] += (sign * CLEAR * reach - mean) as f32;
                }
                known.clear();
            }
            _ => {}
        }
        while known.len() <= at {
            let next = moments(network, &network.nodes()[known.len()], &known, weights);
            known.push(next);
        }
    }
}

/// Bounded inputs for a network with convolutions. Where it takes maxima, the pixels that lead
/// within any `SIDE` by `SIDE` outputs of the layers in front of the first one have levels that are
/// clearly apart.
pub(super) fn levels(network: &Network, noise: &mut [f32]) {
    let nodes = network.nodes();
    if !nodes.iter().any(|n| matches!(n.op, Op::Conv2d { .. })) {
        return;
    }
    let first = nodes.iter().position(|n| maximum(n).is_some());
    let mut stride = [1, 1];
    for node in &nodes[..first.unwrap_or(0)] {
        if let Op::Conv2d { window, .. } = node.op {
            stride = [stride[0] * window.stride[0], stride[1] * window.stride[1]];
        }
    }
    let shape = nodes[0].shape;
    for (example, image) in noise.chunks_exact_mut(shape.len()).enumerate() {
        for channel in 0..shape.channels {
            let step = (example * shape.channels + channel) as u64;
            let order = key(2).permutation(step, SIDE * SIDE);
            for (at, pixel) in image.chunks_exact_mut(shape.channels).enumerate() {
                let (row, column) = (at / shape.width / stride[0], at % shape.width / stride[1]);
                let level = match first {
                    Some(_) => order[row % SIDE * SIDE + column % SIDE] as usize,
                    None => key(4).below(step, at, SIDE * SIDE),
                };
                let middle = (SIDE * SIDE - 1) as f32 / 2.0;
                pixel[channel] = APART * (level as f32 - middle) + BESIDE * pixel[channel];
            }
        }
    }
}

/// Which nodes have results that reach a maximum.
fn in_front_of_maxima(network: &Network) -> Vec<bool> {
    let nodes = network.nodes();
    let mut reaches = vec![false; nodes.len()];
    for (at, node) in nodes.iter().enumerate().rev() {
        if reaches[at] || maximum(node).is_some() {
            node.inputs.iter().for_each(|from| reaches[from.0] = true);
        }
    }
    reaches
}

/// One weight of every output leads, of a channel that varies and of a place that is never in the
/// padding.
fn lead(network: &Network, at: usize, known: &[Vec<Moments>], rest: f32, weights: &mut [f32]) {
    let node = &network.nodes()[at];
    let Op::Conv2d { weight, window, .. } = node.op else { return };
    let inputs = &known[node.inputs[0].0];
    let most = inputs.iter().fold(0.0, |most: f64, m| most.max(m.sd));
    let varied: Vec<usize> = (0..inputs.len()).filter(|&c| inputs[c].sd >= 0.4 * most).collect();
    let values = &mut weights[network.params()[weight].range()];
    let len = values.len() / node.shape.channels;
    for (out, row) in values.chunks_exact_mut(len).enumerate() {
        row.iter_mut().for_each(|w| *w *= rest);
        let draw = |index: usize, bound: usize| key(3).below(at as u64, 4 * out + index, bound);
        let [r, c] = [0, 1].map(|axis| {
            let (size, padding) = (window.size[axis], window.padding[axis]);
            padding + draw(axis, size.saturating_sub(2 * padding).max(1))
        });
        // Every channel leads somewhere, or nothing would come back to it.
        let channel = varied[(out + draw(2, 2)) % varied.len()];
        row[(r * window.size[1] + c) * inputs.len() + channel] =
            if draw(3, 2) == 0 { LEAD } else { -LEAD };
    }
}

/// Weights of channels that are on come in pairs that cancel their means: else the means would rule
/// the classes, and little would be left for a gradient to say.
fn balance(inputs: &[Moments], weights: &mut [f32]) {
    let on: Vec<usize> = (0..inputs.len()).filter(|&c| inputs[c].mean > inputs[c].sd).collect();
    for place in weights.chunks_exact_mut(inputs.len()) {
        for pair in on.chunks_exact(2) {
            let (a, b) = (pair[0], pair[1]);
            place[b] = -place[a] * (inputs[a].mean / inputs[b].mean) as f32;
        }
    }
}

/// For each channel of a node, the parameter that shifts it alone.
fn handles(network: &Network, at: usize) -> Vec<Option<usize>> {
    let node = &network.nodes()[at];
    let all = |param: usize| network.params()[param].range().map(Some).collect();
    let none = vec![None; node.shape.channels];
    match node.op.family() {
        Family::Norm { shift, .. } => all(shift),
        Family::Weights { bias, .. } => bias.map_or(none, all),
        Family::Sum => {
            // The later one: what is in front of the earlier may have its sign already.
            let [early, late] = [0, 1].map(|slot| node.inputs[slot]);
            let of = |node: NodeId| handles(network, node.0);
            let pairs = of(early.max(late)).into_iter().zip(of(early.min(late)));
            pairs.map(|(late, early)| late.or(early)).collect()
        }
        Family::List(List::Spread, list) => {
            let from = handles(network, node.inputs[0].0);
            let sources = List::Spread.sources(list, from.len(), node.shape.channels);
            sources.into_iter().map(|source| source.and_then(|at| from[at])).collect()
        }
        Family::Input
        | Family::Pool(_)
        | Family::Curve(_)
        | Family::List(List::Select | List::Pick, _)
        | Family::Scales { .. } => none,
    }
}

/// Each channel of a node, from those of the nodes before it, as if all numbers were independent.
fn moments(
    network: &Network,
    node: &Node,
    known: &[Vec<Moments>],
    weights: &[f32],
) -> Vec<Moments> {
    let of = |slot: usize| &known[node.inputs[slot].0];
    let each = |change: &dyn Fn(&Moments) -> Moments| of(0).iter().map(change).collect();
    let values = |param: usize| &weights[network.params()[param].range()];
    match node.op.family() {
        Family::Input => {
            let reach = f64::from(APART) * (SIDE * SIDE) as f64 / 2.0;
            vec![Moments { mean: 0.0, sd: 1.0, reach }; node.shape.channels]
        }
        Family::Weights { weight, bias, .. } => {
            let (values, from) = (values(weight), of(0));
            let rows = values.chunks_exact(values.len() / node.shape.channels).enumerate();
            rows.map(|(out, row)| {
                let bias = bias.map(|bias| weights[network.params()[bias].offset + out]);
                // Channels are the innermost axis of images and of kernels alike.
                sum(bias.map_or(0.0, f64::from), row.iter().zip(from.iter().cycle()))
            })
            .collect()
        }
        Family::Norm { scale, shift, .. } => {
            let pairs = values(shift).iter().zip(values(scale)).zip(of(0));
            pairs
                .map(|((shift, scale), from)| {
                    let (mean, sd) = (f64::from(*shift), f64::from(scale.abs()));
                    Moments { mean, sd, reach: sd * from.reach / from.sd.max(1e-9) }
                })
                .collect()
        }
        Family::Curve(Curve::Relu) => each(&|m| if m.mean > 0.0 { *m } else { Moments::default() }),
        Family::Curve(Curve::Tanh) => {
            each(&|m| Moments { mean: m.mean.tanh(), sd: m.sd.min(0.7), reach: m.reach.min(1.0) })
        }
        Family::Pool(pool) => {
            let Some(window) = pool.maximum() else { return of(0).clone() };
            // Of many levels the maximum is one of the highest.
            let (sd, reach) =
                if window.size[0] * window.size[1] > 4 { (0.35, 0.8) } else { (0.7, 1.0) };
            each(&|m| Moments { mean: m.mean + m.sd, sd: sd * m.sd, reach: reach * m.reach })
        }
        Family::Sum => {
            let pairs = of(0).iter().zip(of(1));
            pairs
                .map(|(a, b)| Moments {
                    mean: a.mean + b.mean,
                    sd: a.sd.hypot(b.sd),
                    reach: a.reach + b.reach,
                })
                .collect()
        }
        Family::List(kind, list) => {
            let sources = kind.sources(list, of(0).len(), node.shape.channels);
            let from = |source: Option<usize>| source.map_or(Moments::default(), |at| of(0)[at]);
            sources.into_iter().map(from).collect()
        }
        Family::Scales { .. } => of(0).clone(),
    }
}

/// A weighted sum: the largest term reaches as far as it does, all others together as a normal
/// number.
fn sum<'a>(bias: f64, terms: impl Iterator<Item = (&'a f32, &'a Moments)>) -> Moments {
    let (mut mean, mut variance, mut largest) = (bias, 0.0, (0.0, 0.0));
    for (w, from) in terms {
        let (w, spread) = (f64::from(*w), f64::from(w.abs()) * from.sd);
        mean += w * from.mean;
        variance += spread * spread;
        if spread > largest.0 {
            largest = (spread, w.abs() * from.reach);
        }
    }
    let rest = (variance - largest.0 * largest.0).max(0.0).sqrt();
    Moments { mean, sd: variance.sqrt(), reach: largest.1 + REACH * rest }
}
