//! What the nodes of a network are to a plan, worked out once.

use crate::network::{Curve, Family, List, Network, Node, NodeId};
use crate::ops::Pool;
use crate::ops::conv2d::Conv;
use crate::shape::Shape;

use super::lane::BLOCK_ROWS;

/// What is worked out once for each node.
pub(crate) struct Layer {
    pub(crate) work: Work,
    /// The buffer that holds its values and slopes: its own, or that of the node before a ReLU.
    pub(crate) buffer: usize,
    /// Whether its result is cut off at zero, for the ReLU that follows it in place.
    pub(crate) cut: bool,
    /// Whether it adds to the slope of each of its inputs, or is the first to write it.
    pub(crate) adds: [bool; 2],
}

/// The arithmetic of a node, with the sizes it needs.
pub(crate) enum Work {
    /// Nothing: the input.
    None,
    /// A convolution or a linear layer.
    Conv(Conv),
    Norm,
    /// From the first shape to the second.
    Pool(Pool, [Shape; 2]),
    Relu,
    /// A ReLU that the node before it has done already.
    ReluInPlace,
    Tanh,
    Add,
    /// Numbers by a list out of every `width` of the input.
    Select {
        width: usize,
    },
    Spread,
    /// Random scales; a row's first one of this node, and how many it has in all nodes.
    Vary {
        first: usize,
        of: usize,
    },
}

/// Layers of a network, in the order of its nodes.
pub(crate) fn plan(network: &Network) -> Vec<Layer> {
    let nodes = network.nodes();
    let readers = |id: usize| {
        (0..nodes.len()).filter(move |&reader| nodes[reader].inputs.contains(&NodeId(id)))
    };
    // A node's own result is free to be cut off where nothing else reads it, its own backward pass
    // included.
    let in_place = |at: usize| {
        let from = nodes[at].inputs[0].0;
        let free = match nodes[from].op.family() {
            Family::Weights { .. } | Family::Norm { .. } | Family::Sum => true,
            Family::Input
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::List(..)
            | Family::Scales { .. } => false,
        };
        let relu = nodes[at].op.family() == Family::Curve(Curve::Relu);
        relu && free && readers(from).count() == 1
    };
    let layer = |(at, node): (usize, &Node)| {
        let from = |slot: usize| node.inputs.get(slot).map_or(0, |id| id.0);
        let shape = nodes[from(0)].shape;
        let work = match node.op.family() {
            Family::Input => Work::None,
            Family::Weights { window: None, .. } => {
                Work::Conv(Conv::linear(shape.len(), node.shape.len(), BLOCK_ROWS))
            }
            Family::Weights { window: Some(window), .. } => {
                Work::Conv(Conv::new(shape, node.shape, window, BLOCK_ROWS))
            }
            Family::Norm { .. } => Work::Norm,
            Family::Pool(pool) => Work::Pool(pool, [shape, node.shape]),
            Family::Curve(Curve::Relu) if in_place(at) => Work::ReluInPlace,
            Family::Curve(Curve::Relu) => Work::Relu,
            Family::Curve(Curve::Tanh) => Work::Tanh,
            Family::Sum => Work::Add,
            Family::List(List::Select, _) => Work::Select { width: shape.channels },
            Family::List(List::Pick, _) => Work::Select { width: shape.len() },
            Family::List(List::Spread, _) => Work::Spread,
            Family::Scales { .. } => Work::Vary {
                first: network.scales_before(at),
                of: network.scales_before(nodes.len()),
            },
        };
        let buffer = if matches!(work, Work::ReluInPlace) { from(0) } else { at };
        let cut = at > 0 && readers(at).any(in_place);
        // The last reader comes first on the way back.
        let last = |slot: usize| readers(from(slot)).max() == Some(at);
        let adds = [!last(0), !last(1) || from(0) == from(1)];
        Layer { work, buffer, cut, adds }
    };
    nodes.iter().enumerate().map(layer).collect()
}
