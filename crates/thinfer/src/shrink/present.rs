//! Which channels the smaller network has at every node.

use thinfer_engine::{Network, Op};

use super::Layout;
use super::reach::{Channels, Kernels};

/// The channels that stay, node by node. Sets only grow while they are worked out.
pub(super) struct Present {
    /// For each node, for each of its channels, whether it stays.
    pub(super) nodes: Vec<Vec<bool>>,
    /// For each layer of weights, the input channels that it needs; empty for other nodes.
    pub(super) reads: Vec<Vec<bool>>,
    /// For each linear layer that reads a picture, the numbers of it that it needs; empty for other
    /// nodes.
    pub(super) numbers: Vec<Vec<bool>>,
}

impl Present {
    /// Works back from the output: a node's channels are those that its readers need.
    pub(super) fn of(network: &Network, keep: &[u8], reach: &Channels, layout: Layout) -> Self {
        let nodes = network.nodes();
        let reads = nodes.iter().enumerate().map(|(at, node)| match node.op {
            Op::Conv2d { weight, .. } | Op::Linear { weight, .. } => {
                let kernels = Kernels::of(&network.params()[weight], keep);
                let from = node.inputs[0].0;
                needed_inputs(&kernels, &reach.read[at], &reach.zero[from])
            }
            _ => Vec::new(),
        });
        let numbers = nodes.iter().enumerate().map(|(at, node)| match node.op {
            Op::Linear { weight, .. } => {
                let from = node.inputs[0].0;
                let pixels = nodes[from].shape.height * nodes[from].shape.width;
                if pixels == 1 {
                    return Vec::new();
                }
                let kernels = Kernels::of(&network.params()[weight], keep);
                needed_inputs(&kernels, &reach.read[at], &reach.zero[from].repeat(pixels))
            }
            _ => Vec::new(),
        });
        let mut present = Self {
            reads: reads.collect(),
            numbers: numbers.collect(),
            nodes: nodes.iter().map(|n| vec![false; n.shape.channels]).collect(),
        };
        present.nodes[network.output().0].fill(true);
        // A picture is read as a whole; of a table, columns that nothing reads are not even loaded.
        if nodes[0].shape.height * nodes[0].shape.width > 1 {
            present.nodes[0].fill(true);
        }
        loop {
            let before = present.nodes.clone();
            for at in (1..nodes.len()).rev() {
                present.visit(network, reach, layout, at);
            }
            if present.nodes == before {
                return present;
            }
        }
    }

    /// Tells the nodes that `at` reads what it needs of them.
    fn visit(&mut self, network: &Network, reach: &Channels, layout: Layout, at: usize) {
        let nodes = network.nodes();
        let node = &nodes[at];
        if !self.nodes[at].contains(&true) {
            return;
        }
        if at != network.output().0 {
            pad(&mut self.nodes[at], &reach.zero[at], layout.multiple);
        }
        match node.op {
            Op::Conv2d { .. } | Op::Linear { .. } => {
                let from = node.inputs[0].0;
                let mut reads = std::mem::take(&mut self.reads[at]);
                if from != 0 {
                    pad(&mut reads, &reach.zero[from], layout.multiple);
                }
                join(&mut self.nodes[from], &reads);
                self.reads[at] = reads;
            }
            Op::Add => {
                let own = self.nodes[at].clone();
                let parts: Vec<Vec<bool>> =
                    node.inputs.iter().map(|from| without(&own, &reach.zero[from.0])).collect();
                let all_dead = parts.iter().all(|part| !part.contains(&true));
                for (slot, from) in node.inputs.iter().enumerate() {
                    let mut part = parts[slot].clone();
                    pad(&mut part, &reach.zero[from.0], layout.multiple);
                    let whole = layout.reads_all(count(&part), count(&own));
                    if (whole && part.contains(&true)) || (all_dead && slot == 0) {
                        part.clone_from(&own);
                    }
                    join(&mut self.nodes[from.0], &part);
                    if layout.reads_all(count(&own), count(&self.nodes[from.0]))
                        && parts[slot].contains(&true)
                    {
                        let wider = self.nodes[from.0].clone();
                        join(&mut self.nodes[at], &wider);
                    }
                }
            }
            Op::Input => {}
            // Norms, activations and pools work on each channel by itself.
            _ => {
                let from = node.inputs[0].0;
                let own = self.nodes[at].clone();
                join(&mut self.nodes[from], &own);
                if layout.reads_all(count(&own), count(&self.nodes[from])) {
                    let wider = self.nodes[from].clone();
                    join(&mut self.nodes[at], &wider);
                }
            }
        }
    }
}

/// Input channels from which something goes into an output that is read. A layer has at least one
/// input, even where nothing goes in.
fn needed_inputs(kernels: &Kernels, read: &[bool], zero: &[bool]) -> Vec<bool> {
    let mut needed = vec![false; zero.len()];
    for row in kernels.rows().zip(read).filter(|(_, read)| **read).map(|(row, _)| row) {
        for (input, kept) in row.iter().enumerate() {
            needed[input % zero.len()] |= *kept && !zero[input % zero.len()];
        }
    }
    if !needed.contains(&true) {
        let carries = zero.iter().position(|zero| !zero).unwrap_or(0);
        needed[carries] = true;
    }
    needed
}

/// Fills `numbers` of a picture with others of the channels that are `there`, up to a multiple.
pub(super) fn pad_numbers(
    numbers: &[bool],
    there: &[bool],
    zero: &[bool],
    multiple: usize,
) -> Vec<bool> {
    let channel = |at: usize| at % there.len();
    let mut among: Vec<bool> = Vec::new();
    let (mut places, mut silent) = (Vec::new(), Vec::new());
    for (at, on) in numbers.iter().enumerate().filter(|(at, _)| there[channel(*at)]) {
        among.push(*on);
        places.push(at);
        silent.push(zero[channel(at)]);
    }
    pad(&mut among, &silent, multiple);
    let mut padded = vec![false; numbers.len()];
    among.into_iter().zip(places).for_each(|(on, at)| padded[at] = on);
    padded
}

/// Adds channels until there is a multiple of `multiple`, those that are always zero first.
fn pad(channels: &mut [bool], zero: &[bool], multiple: usize) {
    let kept = count(channels);
    if kept == 0 {
        return;
    }
    let mut missing = kept.next_multiple_of(multiple).min(channels.len()) - kept;
    for silent in [true, false] {
        for (on, zero) in channels.iter_mut().zip(zero) {
            if missing > 0 && !*on && *zero == silent {
                *on = true;
                missing -= 1;
            }
        }
    }
}

pub(super) fn count(channels: &[bool]) -> usize {
    channels.iter().filter(|on| **on).count()
}

fn join(to: &mut [bool], from: &[bool]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
}

fn without(channels: &[bool], zero: &[bool]) -> Vec<bool> {
    channels.iter().zip(zero).map(|(on, zero)| *on && !zero).collect()
}
