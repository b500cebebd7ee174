//! Which channels the smaller network has at every node.

use std::cmp::Reverse;

use thinfer_engine::{Family, Network, NodeId, Op};

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
    /// For each node, the first node of those that share its channels.
    streams: Vec<usize>,
    /// The channels that stay where none are added to fill up a multiple, node by node, for streams
    /// that grow.
    needed: Vec<Vec<bool>>,
    /// For each node, where each of its channels stands among those that stay: the smaller, the
    /// sooner.
    ranks: Vec<Vec<Rank>>,
}

/// The first node of a stream that has a channel, and whether branches add to it: first the one
/// that leaves out most.
type Rank = (usize, Vec<bool>);

impl Present {
    /// Works back from the output: a node's channels are those that its readers need.
    pub(super) fn of(network: &Network, keep: &[u8], reach: &Channels, layout: Layout) -> Self {
        let nodes = network.nodes();
        let reads = nodes.iter().enumerate().map(|(at, node)| {
            let Some(weight) = node.op.weight() else { return Vec::new() };
            let kernels = Kernels::of(&network.params()[weight], keep);
            let from = node.inputs[0].0;
            needed_inputs(&kernels, &reach.read[at], &reach.zero[from])
        });
        let numbers = nodes.iter().enumerate().map(|(at, node)| {
            let Family::Weights { weight, window: None, .. } = node.op.family() else {
                return Vec::new();
            };
            let from = node.inputs[0].0;
            let pixels = nodes[from].shape.height * nodes[from].shape.width;
            if pixels == 1 {
                return Vec::new();
            }
            let kernels = Kernels::of(&network.params()[weight], keep);
            needed_inputs(&kernels, &reach.read[at], &reach.zero[from].repeat(pixels))
        });
        let mut present = Self {
            reads: reads.collect(),
            numbers: numbers.collect(),
            nodes: nodes.iter().map(|n| vec![false; n.shape.channels]).collect(),
            streams: streams(network),
            needed: nodes.iter().map(|n| vec![false; n.shape.channels]).collect(),
            ranks: nodes.iter().map(|n| vec![Rank::default(); n.shape.channels]).collect(),
        };
        present.nodes[network.output().0].fill(true);
        // A picture is read as a whole; of a table, columns that nothing reads are not even loaded.
        if nodes[0].shape.height * nodes[0].shape.width > 1 {
            present.nodes[0].fill(true);
        }
        if layout.grows {
            // Channels that fill up a multiple are taken from those that the stream needs anyway,
            // so all of these are found out first.
            let first = present.nodes.clone();
            present.settle(network, reach, Layout { multiple: 1, ..layout });
            present.needed = std::mem::replace(&mut present.nodes, first);
        }
        present.settle(network, reach, layout);
        if layout.grows {
            let branches = branches(network);
            present.rank(&branches, reach);
            branches.iter().for_each(|branch| present.narrow(branch, reach, layout));
        }
        present
    }

    /// Visits all nodes until nothing changes any more.
    fn settle(&mut self, network: &Network, reach: &Channels, layout: Layout) {
        loop {
            let before = self.nodes.clone();
            for at in (1..network.nodes().len()).rev() {
                self.visit(network, reach, layout, at);
            }
            if self.nodes == before {
                return;
            }
        }
    }

    /// The nodes that share the channels of a node, itself included.
    fn same(&self, at: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.nodes.len()).filter(move |other| self.streams[*other] == self.streams[at])
    }

    /// Puts the channels of a stream into the order in which its nodes get them, and of those that
    /// a node gets the ones last that the branch adds to which leaves out most, and so on.
    fn rank(&mut self, branches: &[Branch], reach: &Channels) {
        let added = |branch: &Branch| (branch.sum, self.added(branch, reach));
        let mut added: Vec<(usize, Vec<bool>)> = branches.iter().map(added).collect();
        added.sort_by_key(|(sum, added)| Reverse(count(&self.nodes[*sum]) - count(added)));
        let mut ranks = Vec::new();
        for at in 0..self.nodes.len() {
            let same: Vec<usize> = self.same(at).collect();
            let here: Vec<&[bool]> =
                added.iter().filter(|(sum, _)| same.contains(sum)).map(|(_, a)| &a[..]).collect();
            let first = |c: usize| same.iter().copied().find(|other| self.nodes[*other][c]);
            let rank = |c: usize| {
                (first(c).unwrap_or(usize::MAX), here.iter().map(|added| added[c]).collect())
            };
            ranks.push((0..self.nodes[at].len()).map(rank).collect());
        }
        self.ranks = ranks;
    }

    /// The channels of a sum to which its branch adds something.
    fn added(&self, branch: &Branch, reach: &Channels) -> Vec<bool> {
        without(&self.nodes[branch.sum], &reach.zero[branch.norm])
    }

    /// Leaves a branch the last channels of its sum, as many as it takes to have all that it adds
    /// to.
    fn narrow(&mut self, branch: &Branch, reach: &Channels, layout: Layout) {
        let added = self.added(branch, reach);
        let all = self.own(branch.sum);
        let Some(first) = all.iter().position(|c| added[*c as usize]) else { return };
        let first = first / layout.multiple * layout.multiple;
        let mut last = vec![false; added.len()];
        all[first..].iter().for_each(|c| last[*c as usize] = true);
        self.nodes[branch.convolution].clone_from(&last);
        self.nodes[branch.norm] = last;
    }

    /// The channels of a node that stay, in their order.
    pub(super) fn own(&self, node: usize) -> Vec<u32> {
        self.list(node, &self.nodes[node])
    }

    /// The channels of a node that `some` has, in their order.
    pub(super) fn list(&self, node: usize, some: &[bool]) -> Vec<u32> {
        let mut list = list(some);
        list.sort_by_key(|c| &self.ranks[node][*c as usize]);
        list
    }

    /// Tells the nodes that `at` reads what it needs of them.
    fn visit(&mut self, network: &Network, reach: &Channels, layout: Layout, at: usize) {
        let nodes = network.nodes();
        let node = &nodes[at];
        if !self.nodes[at].contains(&true) {
            return;
        }
        if at != network.output().0 && layout.grows {
            // With channels that the stream has elsewhere, so that it gets no more of them.
            let mut all = vec![false; self.nodes[at].len()];
            for other in self.same(at) {
                join(&mut all, &self.needed[other]);
                join(&mut all, &self.nodes[other]);
            }
            pad(&mut self.nodes[at], &all, layout.multiple);
        } else if at != network.output().0 {
            pad(&mut self.nodes[at], &reach.zero[at], layout.multiple);
        }
        match node.op.family() {
            Family::Weights { .. } => {
                let from = node.inputs[0].0;
                let mut reads = std::mem::take(&mut self.reads[at]);
                // Without lists, what a layer reads is all that is there.
                if from != 0 && layout.list_at_most > 0.0 {
                    pad(&mut reads, &reach.zero[from], layout.multiple);
                }
                join(&mut self.nodes[from], &reads);
                self.reads[at] = reads;
            }
            Family::Sum => {
                let own = self.nodes[at].clone();
                let parts: Vec<Vec<bool>> =
                    node.inputs.iter().map(|from| without(&own, &reach.zero[from.0])).collect();
                let all_dead = parts.iter().all(|part| !part.contains(&true));
                for (slot, from) in node.inputs.iter().enumerate() {
                    let mut part = parts[slot].clone();
                    let grows = layout.grows && grows(network, at, slot);
                    if grows {
                        // With channels of the sum, so that it gets no more of them.
                        pad(&mut part, &own, layout.multiple);
                    } else {
                        pad(&mut part, &reach.zero[from.0], layout.multiple);
                    }
                    let whole = !grows && layout.reads_all(count(&part), count(&own));
                    if (whole && part.contains(&true)) || (all_dead && slot == 0) {
                        part.clone_from(&own);
                    }
                    join(&mut self.nodes[from.0], &part);
                    // What the sum reads no list of, it has all of.
                    if (grows || layout.reads_all(count(&own), count(&self.nodes[from.0])))
                        && parts[slot].contains(&true)
                    {
                        let wider = self.nodes[from.0].clone();
                        join(&mut self.nodes[at], &wider);
                    }
                }
            }
            // A network with lists was shrunk before, and is not shrunk again.
            Family::Input | Family::List(..) => {}
            Family::Norm { .. } | Family::Pool(_) | Family::Curve(_) | Family::Scales { .. } => {
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

/// For each node, the first of those that share its channels: nodes that work on each channel by
/// itself share them with what they read.
fn streams(network: &Network) -> Vec<usize> {
    let mut streams: Vec<usize> = (0..network.nodes().len()).collect();
    for (at, node) in network.nodes().iter().enumerate() {
        if !node.op.keeps_channels_apart() {
            continue;
        }
        for from in &node.inputs {
            let (a, b) = (streams[from.0], streams[at]);
            let joined = streams.iter_mut().filter(|stream| [a, b].contains(stream));
            joined.for_each(|stream| *stream = a.min(b));
        }
    }
    streams
}

/// A convolution and its batch norm that nothing reads but a sum, which may have more channels. Its
/// other side is a stream, or the norm of a convolution that does less.
struct Branch {
    convolution: usize,
    norm: usize,
    sum: usize,
}

/// All of a network.
fn branches(network: &Network) -> Vec<Branch> {
    let nodes = network.nodes();
    let mut readers = vec![0; nodes.len()];
    nodes.iter().flat_map(|node| &node.inputs).for_each(|from| readers[from.0] += 1);
    let of = |sum: usize| {
        let alone = |norm: &NodeId| {
            let (norm, is_norm) = (norm.0, matches!(nodes[norm.0].op, Op::BatchNorm { .. }));
            let convolution = nodes[norm].inputs.first().filter(|_| is_norm)?.0;
            let alone = [norm, convolution].iter().all(|node| readers[*node] == 1);
            let convolves = matches!(nodes[convolution].op, Op::Conv2d { .. });
            (alone && convolves).then_some(Branch { convolution, norm, sum })
        };
        let work = |branch: &Branch| network.node_multiply_adds(NodeId(branch.convolution));
        // Of two that do as much, the first.
        nodes[sum].inputs.iter().rev().filter_map(alone).max_by_key(work)
    };
    (0..nodes.len()).filter(|at| nodes[*at].op == Op::Add).filter_map(of).collect()
}

/// Whether one side of a sum is a stream, to which the other adds a batch norm.
fn grows(network: &Network, sum: usize, side: usize) -> bool {
    let inputs = &network.nodes()[sum].inputs;
    let norm = |side: usize| matches!(network.nodes()[inputs[side].0].op, Op::BatchNorm { .. });
    !norm(side) && norm(1 - side)
}

/// The numbers of the channels that are on.
pub(super) fn list(channels: &[bool]) -> Vec<u32> {
    (0..channels.len() as u32).filter(|c| channels[*c as usize]).collect()
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

/// Adds channels until there is a multiple of `multiple`, `these` first: mostly those that are
/// always zero.
fn pad(channels: &mut [bool], these: &[bool], multiple: usize) {
    let kept = count(channels);
    if kept == 0 {
        return;
    }
    let mut missing = kept.next_multiple_of(multiple).min(channels.len()) - kept;
    for first in [true, false] {
        for (on, this) in channels.iter_mut().zip(these) {
            if missing > 0 && !*on && *this == first {
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

#[cfg(test)]
mod tests {
    use thinfer_engine::{Loss, Network, NetworkBuilder, Node, NodeId, Op, Shape, Window};

    use crate::shrink::{Layout, shrink};

    const WIDTH: usize = 12;

    /// A stem of twelve channels and a block for each of `adds`, with all that is not to be `stem`
    /// or in a block's channels pruned; and the nodes of the stem, of the blocks' norms and of
    /// their sums.
    fn residual(stem: &[usize], adds: &[&[usize]]) -> (Network, Vec<u8>, [Vec<NodeId>; 3]) {
        let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 3 });
        let window = Window::square(3, 1, 1);
        let h = b.conv2d("conv1", b.input(), WIDTH, window).unwrap();
        let h = b.batch_norm("bn1", h).unwrap();
        let mut stream = b.relu(h).unwrap();
        let (first, mut norms, mut sums) = (stream, Vec::new(), Vec::new());
        for block in 0..adds.len() {
            let h = b.conv2d(&format!("{block}.conv1"), stream, 4, window).unwrap();
            let h = b.conv2d(&format!("{block}.conv2"), h, WIDTH, window).unwrap();
            norms.push(b.batch_norm(&format!("{block}.bn2"), h).unwrap());
            stream = b.add(norms[block], stream).unwrap();
            sums.push(stream);
        }
        let h = b.global_average_pool(stream).unwrap();
        let out = b.linear("fc", h, 2).unwrap();
        let network = b.finish(out, Loss::cross_entropy()).unwrap();
        let mut keep = vec![1; network.params().len()];
        let mut leave = |layer: &str, norm: &str, alive: &[usize]| {
            for name in
                [format!("{layer}.weight"), format!("{norm}.weight"), format!("{norm}.bias")]
            {
                let param = network.params().find(&name).unwrap();
                let channels = keep[param.range()].chunks_mut(param.len() / WIDTH);
                channels.enumerate().for_each(|(c, marks)| marks.fill(alive.contains(&c).into()));
            }
        };
        leave("conv1", "bn1", stem);
        for (block, alive) in adds.iter().enumerate() {
            leave(&format!("{block}.conv2"), &format!("{block}.bn2"), alive);
        }
        (network, keep, [vec![first], norms, sums])
    }

    #[test]
    fn a_stream_gets_channels_as_it_goes_and_keeps_their_order() {
        let (network, keep, [stem, norms, sums]) = residual(&[1, 5, 9], &[&[0, 5, 7, 9]]);
        let small = shrink(&network, &keep, Layout { multiple: 1, ..Layout::CUDA }).unwrap();
        assert_eq!(small.channels(stem[0]), [1, 5, 9]);
        assert_eq!(small.channels(sums[0]), [1, 5, 9, 0, 7]);
        // The stem is put to the first channels of the sum, and the branch, which does not add to
        // channel 1, to the last.
        let spreads = small.network.nodes().iter().filter(|n| matches!(n.op, Op::Spread { .. }));
        let lists: Vec<&[u32]> = spreads.map(Node::list).collect();
        assert_eq!(lists, [&[1, 2, 3, 4][..], &[0, 1, 2]]);
        assert_eq!(small.channels(norms[0]), [5, 9, 0, 7]);
        // In pairs, it gets channel 1 as well.
        let pairs = shrink(&network, &keep, Layout { multiple: 2, ..Layout::CUDA }).unwrap();
        assert_eq!(pairs.channels(norms[0]), pairs.channels(sums[0]));
        // Without it, all of the stream has all of its channels.
        let even = Layout { multiple: 1, grows: false, ..Layout::CUDA };
        assert_eq!(shrink(&network, &keep, even).unwrap().channels(stem[0]), [0, 1, 5, 7, 9]);
    }

    /// Both add to channels that are there; the first, which leaves out fewer, gets one more, which
    /// lies among its own.
    #[test]
    fn the_branch_that_adds_to_fewest_channels_has_no_others() {
        let all: Vec<usize> = (0..8).collect();
        let (network, keep, [stem, norms, _]) = residual(&all, &[&[0, 1, 2, 6, 7], &[2, 4]]);
        let small = shrink(&network, &keep, Layout { multiple: 1, ..Layout::CUDA }).unwrap();
        assert_eq!(small.channels(stem[0]), [3, 5, 0, 1, 6, 7, 4, 2]);
        assert_eq!(small.channels(norms[0]), [0, 1, 6, 7, 4, 2]);
        assert_eq!(small.channels(norms[1]), [4, 2]);
    }

    /// Whichever side of the sum it is, the convolution that does more is as narrow as what it adds
    /// to.
    #[test]
    fn a_branch_beside_a_shortcut_has_the_channels_that_it_adds_to() {
        for turned in [false, true] {
            let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 3 });
            let h = b.conv2d("conv1", b.input(), WIDTH, Window::square(3, 2, 1)).unwrap();
            let branch = b.batch_norm("bn1", h).unwrap();
            let h = b.conv2d("downsample.0", b.input(), WIDTH, Window::square(1, 2, 0)).unwrap();
            let shortcut = b.batch_norm("downsample.1", h).unwrap();
            let sides = if turned { [shortcut, branch] } else { [branch, shortcut] };
            let sum = b.add(sides[0], sides[1]).unwrap();
            let h = b.global_average_pool(sum).unwrap();
            let out = b.linear("fc", h, 2).unwrap();
            let network = b.finish(out, Loss::cross_entropy()).unwrap();
            let mut keep = vec![1; network.params().len()];
            for (layer, dead) in [("conv1", 4..12), ("bn1", 4..12), ("downsample", 0..2)] {
                let all = network.params().iter().filter(|p| p.name.starts_with(layer));
                for param in all {
                    let channels = keep[param.range()].chunks_mut(param.len() / WIDTH);
                    channels.enumerate().for_each(|(c, marks)| {
                        marks.fill((!dead.contains(&c)).into());
                    });
                }
            }
            let small = shrink(&network, &keep, Layout { multiple: 1, ..Layout::CUDA }).unwrap();
            assert_eq!(small.channels(branch), [0, 1, 2, 3]);
            assert_eq!(small.channels(sum), [4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3]);
            assert_eq!(small.channels(shortcut), small.channels(sum));
        }
    }

    /// What fills up a multiple is taken from channels that the stream has anyway.
    #[test]
    fn a_stream_gets_no_more_channels_than_its_nodes_need_together() {
        let (network, mut keep, [stem, _, sums]) =
            residual(&[0, 1, 2, 3, 4, 9, 10, 11], &[&[0, 1]]);
        // The block reads all of the stream; behind it, only five channels are read.
        let read = network.params().find("fc.weight").unwrap();
        keep[read.range()].iter_mut().enumerate().for_each(|(at, mark)| {
            *mark = (at % WIDTH < 5).into();
        });
        let small = shrink(&network, &keep, Layout { multiple: 4, ..Layout::CUDA }).unwrap();
        assert_eq!(small.channels(stem[0]).len(), 8);
        assert_eq!(small.channels(sums[0]).len(), 8);
    }
}
