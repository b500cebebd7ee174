//! Cuts what is dead out of a masked network: a smaller network, the same function.
//!
//! A channel is dead when it is always zero or when nothing reads it. It is cut at every node;
//! where a layer reads or writes only some channels of a residual stream, or some numbers of a
//! flattened picture, a list of them ([`thinfer_engine::Op::Select`],
//! [`thinfer_engine::Op::Spread`], [`thinfer_engine::Op::Pick`]) stands between the two. What is
//! dead but stays, and why, is in [`leftovers`]. `docs/shrink.md` states the rules.

mod build;
mod check;
mod leftover;
mod present;
mod prove;
mod reach;
mod samples;
mod size;
mod speed;

use thinfer_data::{Error, Result};
use thinfer_engine::{Network, Node, NodeId};

use build::Builder;
pub use check::{Agreement, agreement};
pub use leftover::{Leftover, leftovers};
use present::Present;
pub use prove::{Proof, prove};
use reach::Channels;
pub use samples::shrink_posterior;
pub use size::{Amounts, ImageSize, LayerSize, image_size};
pub use speed::{Saving, Speed};

/// When training goes on with a smaller network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shrinking {
    /// When what it saves until the end of the run is worth more than building it.
    #[default]
    WhereItPays,
    /// Whenever there is less to do.
    Always,
    /// Never: pruned weights are multiplied with zeros to the end.
    Never,
}

/// How a smaller network is laid out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// Channels are kept in multiples of this, with dead ones where needed. Tensor cores like 16.
    pub multiple: usize,
    /// A list of channels is used where at most this share of the channels that are there is read;
    /// above it all are, dead weights included. 1 keeps nothing that a list can leave out.
    pub list_at_most: f64,
    /// Whether the stream that a batch norm's block adds to may have fewer channels than the sum.
    /// Channels are ordered so that those it has are the first ones, which takes no list on a GPU.
    pub grows: bool,
}

impl Layout {
    /// Nothing is kept that can be cut: the smallest network.
    pub const SMALLEST: Self = Self { multiple: 1, list_at_most: 1.0, grows: false };
    /// For the CPU: a list is a copy, so it has to leave out a fifth at least.
    pub const CPU: Self = Self { multiple: 1, list_at_most: 0.8, grows: false };
    /// For tensor cores: on an H200 multiples of 16 without lists were the fastest layout of a
    /// pruned ResNet-18 (`results/shrink`).
    pub const CUDA: Self = Self { multiple: 16, list_at_most: 0.0, grows: true };

    /// Whether a reader that needs `some` of `all` channels reads them all.
    fn reads_all(self, some: usize, all: usize) -> bool {
        some >= all || some as f64 > self.list_at_most * all as f64
    }
}

/// A smaller network, and where its numbers lie in the flat buffers of the larger one.
#[derive(Clone, Debug, PartialEq)]
pub struct Shrunk {
    /// The smaller network.
    pub network: Network,
    /// For each of its parameters' elements, the index in the larger network.
    pub params: Vec<u32>,
    /// The same for its running statistics.
    pub stats: Vec<u32>,
    /// The input columns that it reads; of a picture, all channels.
    pub inputs: Vec<u32>,
    /// For each node of the larger network, what it became.
    became: Vec<Option<NodeId>>,
    /// For each node of the larger network, the channels that stay.
    channels: Vec<Vec<u32>>,
    /// For each node of the larger network, the channels that anything reads.
    read: Vec<Vec<bool>>,
}

impl Shrunk {
    /// All of a network.
    fn whole(network: &Network) -> Self {
        let nodes = network.nodes();
        let channels = |node: &Node| (0..node.shape.channels as u32).collect::<Vec<u32>>();
        Self {
            network: network.clone(),
            params: (0..network.params().len() as u32).collect(),
            stats: (0..network.stats().len() as u32).collect(),
            inputs: channels(&nodes[0]),
            became: (0..nodes.len()).map(|at| Some(NodeId(at))).collect(),
            channels: nodes.iter().map(channels).collect(),
            read: nodes.iter().map(|node| vec![true; node.shape.channels]).collect(),
        }
    }

    /// The elements of a flat buffer of the larger network that the smaller one has.
    pub fn take<T: Copy>(&self, of_params: &[T]) -> Vec<T> {
        self.params.iter().map(|&at| of_params[at as usize]).collect()
    }

    /// The running statistics that the smaller network has.
    pub fn take_stats(&self, stats: &[f32]) -> Vec<f32> {
        self.stats.iter().map(|&at| stats[at as usize]).collect()
    }

    /// The share of the larger network's multiply-adds that is left.
    pub fn work_left(&self, larger: &Network) -> f64 {
        self.network.multiply_adds() as f64 / larger.multiply_adds().max(1) as f64
    }

    /// The node that a node of the larger network became; none where it is gone.
    pub fn became(&self, node: NodeId) -> Option<NodeId> {
        self.became[node.0]
    }

    /// The channels of a node of the larger network that stay.
    pub fn channels(&self, node: NodeId) -> &[u32] {
        &self.channels[node.0]
    }
}

/// The network without what the marks leave dead. `keep` has one mark a parameter, 0 where pruned,
/// and pruned parameters are zero: then both networks are the same function.
///
/// ```
/// use thinfer_core::shrink::{Layout, shrink};
/// use thinfer_engine::{Loss, NetworkBuilder};
///
/// let mut b = NetworkBuilder::new(3);
/// let h = b.linear("fc1", b.input(), 2)?;
/// let h = b.tanh(h)?;
/// let out = b.linear("fc2", h, 1)?;
/// let network = b.finish(out, Loss::gaussian(1.0))?;
/// // fc1 reads inputs 0 and 1 into its first unit alone, and the second has no bias either.
/// let keep = [1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1];
/// let small = shrink(&network, &keep, Layout::SMALLEST)?;
/// assert_eq!((small.inputs, small.params), (vec![0, 1], vec![0, 1, 6, 8, 10]));
/// # Ok::<(), thinfer_core::Error>(())
/// ```
pub fn shrink(network: &Network, keep: &[u8], layout: Layout) -> Result<Shrunk> {
    if keep.len() != network.params().len() {
        return Err(Error::Data(format!(
            "the mask has {} marks for {} parameters; it belongs to another network",
            keep.len(),
            network.params().len()
        )));
    }
    if let Some(node) = network.nodes().iter().find(|n| !n.list().is_empty()) {
        return Err(Error::Data(format!(
            "the network was shrunk before (`{}` is a list of channels); shrink the whole network",
            node.name
        )));
    }
    if network.mixture().is_some() {
        if keep.contains(&0) {
            let problem = "the channels of this network have random scales, so none can be cut out; keep it whole";
            return Err(Error::Data(problem.into()));
        }
        return Ok(Shrunk::whole(network));
    }
    let reach = Channels::of(network, keep);
    let present = Present::of(network, keep, &reach, layout);
    Ok(Builder::new(network, &present, &reach, layout).build()?)
}
