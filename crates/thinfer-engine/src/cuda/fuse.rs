//! Which nodes run together: a batch norm takes the sum and the ReLU behind it, and the sum in
//! front of it, into its own passes; a sum takes the channels that are put into it, and its ReLU.

use crate::network::{Network, NodeId, Op};

/// Nodes that run together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unit {
    /// One node.
    Plain(usize),
    /// A batch norm and what follows it.
    Norm(Norm),
    /// Channels that are put into a sum.
    Join(Join),
}

/// `out = relu(spread(x) + other)`, where the ReLU may be missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Join {
    /// The node that puts the channels to their places.
    pub(crate) spread: usize,
    /// The other side of the sum.
    pub(crate) other: usize,
    pub(crate) relu: bool,
    /// The node whose value leaves the unit.
    pub(crate) out: usize,
}

/// `out = relu(norm(x) + other)`, where the sum and the ReLU may be missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Norm {
    /// The batch norm.
    pub(crate) node: usize,
    /// The node that puts it to the last channels of the sum, of which the others are the other
    /// side alone.
    pub(crate) spread: Option<usize>,
    pub(crate) other: Other,
    pub(crate) relu: bool,
    /// The node whose value leaves the unit.
    pub(crate) out: usize,
    /// Whether the input is a sum that the pass over statistics makes on its way.
    pub(crate) sums: bool,
}

/// The other side of a residual sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Other {
    None,
    /// A node's value.
    Value(usize),
    /// A batch norm that only this sum reads.
    Norm(usize),
    /// The value that a node puts to the first channels of the sum; the others are zero.
    Part(usize),
}

impl Unit {
    /// The node whose value leaves the unit.
    pub(crate) fn out(&self) -> usize {
        match self {
            Unit::Plain(node) => *node,
            Unit::Norm(unit) => unit.out,
            Unit::Join(unit) => unit.out,
        }
    }
}

/// The nodes that read each node.
pub(crate) fn readers(network: &Network) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); network.nodes().len()];
    for (at, node) in network.nodes().iter().enumerate() {
        for input in &node.inputs {
            readers[input.0].push(at);
        }
    }
    readers
}

/// The units of a network in an order in which they can run. `whole`: whether a norm of so many
/// channels sums and passes in one kernel.
pub(crate) fn units(network: &Network, whole: impl Fn(usize) -> bool) -> Vec<Unit> {
    let nodes = network.nodes();
    let readers = readers(network);
    let is_norm = |at: usize| matches!(nodes[at].op, Op::BatchNorm { .. });
    let only_reader = |at: usize| match readers[at][..] {
        [reader] => Some(reader),
        _ => None,
    };
    // Whether a node puts channels side by side into a sum, from this one on. Kernels read eight
    // channels at once.
    let is_part = |at: usize, from: usize| {
        let Op::Spread { channels } = &nodes[at].op else { return false };
        let beside = channels.iter().zip(from..).all(|(to, at)| at == *to as usize);
        let eights = [from, channels.len()].iter().all(|n| n.is_multiple_of(8));
        beside && eights && whole(nodes[at].shape.channels)
    };
    let is_last = |at: &usize| {
        let Op::Spread { channels } = &nodes[*at].op else { return false };
        is_part(*at, nodes[*at].shape.channels - channels.len())
    };
    // Whether a node puts a norm that nothing else reads to the last channels of a sum: that norm
    // makes the sum.
    let is_last_norm = |at: usize| {
        let of = |norm: &NodeId| is_norm(norm.0) && only_reader(norm.0) == Some(at);
        is_last(&at) && nodes[at].inputs.first().is_some_and(of)
    };
    let mut taken = vec![false; nodes.len()];
    let mut units = Vec::new();
    for at in 1..nodes.len() {
        if taken[at] || !is_norm(at) {
            continue;
        }
        let mut unit =
            Norm { node: at, spread: None, other: Other::None, relu: false, out: at, sums: false };
        let spread = only_reader(at).filter(is_last);
        let end = spread.unwrap_or(at);
        if let Some(add) = only_reader(end).filter(|r| nodes[*r].op == Op::Add) {
            let [a, b] = [nodes[add].inputs[0].0, nodes[add].inputs[1].0];
            let other = if a == end { b } else { a };
            let alone = only_reader(other) == Some(add) && !taken[other];
            if spread.is_none() && alone && is_last_norm(other) {
                continue;
            }
            let beside = match alone {
                true if is_norm(other) => Other::Norm(other),
                true if is_part(other, 0) => Other::Part(other),
                _ => Other::Value(other),
            };
            if !taken[add] && other != end {
                taken[add] = true;
                taken[other] |= matches!(beside, Other::Norm(_) | Other::Part(_));
                taken[end] = true;
                (unit.spread, unit.other, unit.out) = (spread, beside, add);
            }
        }
        if let Some(relu) = only_reader(unit.out).filter(|r| nodes[*r].op == Op::Relu) {
            unit.relu = true;
            unit.out = relu;
            taken[relu] = true;
        }
        taken[at] = true;
        units.push(Unit::Norm(unit));
    }
    for at in 1..nodes.len() {
        let Some(add) = only_reader(at).filter(|r| nodes[*r].op == Op::Add) else { continue };
        let other = nodes[add].inputs.iter().map(|i| i.0).find(|i| *i != at);
        let (false, Op::Spread { .. }, Some(other)) = (taken[add], &nodes[at].op, other) else {
            continue;
        };
        let relu = only_reader(add).filter(|r| nodes[*r].op == Op::Relu);
        (taken[at], taken[add]) = (true, true);
        if let Some(relu) = relu {
            taken[relu] = true;
        }
        let out = relu.unwrap_or(add);
        units.push(Unit::Join(Join { spread: at, other, relu: relu.is_some(), out }));
    }
    units.extend((1..nodes.len()).filter(|at| !taken[*at]).map(Unit::Plain));
    units.sort_by_key(Unit::out);
    fuse_sums(network, &mut units);
    units
}

/// A sum whose first reader is a batch norm is made by that norm.
fn fuse_sums(network: &Network, units: &mut [Unit]) {
    let nodes = network.nodes();
    let reads = |unit: &Unit, node: usize| {
        let of = |at: usize| nodes[at].inputs.contains(&NodeId(node));
        match unit {
            Unit::Plain(at) => of(*at),
            Unit::Join(join) => of(join.spread) || join.other == node,
            Unit::Norm(n) => {
                of(n.node)
                    || n.other == Other::Value(node)
                    || matches!(n.other, Other::Norm(other) | Other::Part(other) if of(other))
            }
        }
    };
    for at in 0..units.len() {
        let Unit::Plain(add) = units[at] else { continue };
        if nodes[add].op != Op::Add {
            continue;
        }
        let first = (at + 1..units.len()).find(|later| reads(&units[*later], add));
        if let Some(Unit::Norm(norm)) = first.map(|later| &mut units[later])
            && nodes[norm.node].inputs[0].0 == add
        {
            norm.sums = true;
        }
    }
}

/// The sums that a batch norm makes.
pub(crate) fn summed(network: &Network, units: &[Unit]) -> Vec<bool> {
    let mut summed = vec![false; network.nodes().len()];
    for unit in units {
        if let Unit::Norm(norm) = unit
            && norm.sums
        {
            summed[network.nodes()[norm.node].inputs[0].0] = true;
        }
    }
    summed
}
