use crate::network::{Network, Node, NodeId, Op};
use crate::ops::conv2d::Conv;
use crate::ops::max_pool::MaxPool;

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
    MaxPool(MaxPool),
    AveragePool,
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
        let free = matches!(
            nodes[from].op,
            Op::Linear { .. } | Op::Conv2d { .. } | Op::BatchNorm { .. } | Op::Add
        );
        matches!(nodes[at].op, Op::Relu) && free && readers(from).count() == 1
    };
    let layer = |(at, node): (usize, &Node)| {
        let from = |slot: usize| node.inputs.get(slot).map_or(0, |id| id.0);
        let shape = nodes[from(0)].shape;
        let work = match node.op {
            Op::Input => Work::None,
            Op::Linear { .. } => {
                Work::Conv(Conv::linear(shape.len(), node.shape.len(), BLOCK_ROWS))
            }
            Op::Conv2d { window, .. } => {
                Work::Conv(Conv::new(shape, node.shape, window, BLOCK_ROWS))
            }
            Op::BatchNorm { .. } => Work::Norm,
            Op::MaxPool { window } => {
                Work::MaxPool(MaxPool { from: shape, to: node.shape, window })
            }
            Op::GlobalAveragePool => Work::AveragePool,
            Op::Relu if in_place(at) => Work::ReluInPlace,
            Op::Relu => Work::Relu,
            Op::Tanh => Work::Tanh,
            Op::Add => Work::Add,
            Op::Select { .. } => Work::Select { width: shape.channels },
            Op::Pick { .. } => Work::Select { width: shape.len() },
            Op::Spread { .. } => Work::Spread,
            Op::Vary { .. } => Work::Vary {
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
