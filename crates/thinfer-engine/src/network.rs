use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::mixture::Mixture;
use crate::ops::loss::Loss;
use crate::param::ParamTable;
use crate::shape::{Shape, Window};

mod builder;
mod held;

pub use builder::NetworkBuilder;

/// A node of a network, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub usize);

/// What a node computes from its inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Op {
    /// The row given by the user.
    Input,
    /// `y = W x + b`; numbers of its parameters in the table.
    Linear {
        /// The weights.
        weight: usize,
        /// The bias, where there is one.
        bias: Option<usize>,
    },
    /// A sum over a sliding window; numbers of its parameters in the table.
    Conv2d {
        /// The weights: output, kernel row, kernel column, input.
        weight: usize,
        /// The bias, where there is one.
        bias: Option<usize>,
        /// The kernel.
        window: Window,
    },
    /// `y = scale (x − mean) / √(variance + eps) + shift` by channel: with the mean and variance of
    /// the batch in training, with running ones otherwise.
    BatchNorm {
        /// The scale, a parameter.
        scale: usize,
        /// The shift, a parameter.
        shift: usize,
        /// The running mean, in the table of statistics.
        mean: usize,
        /// The running variance, in the table of statistics.
        variance: usize,
        /// Weight of a new batch in the running statistics.
        momentum: f64,
        /// Added to the variance.
        eps: f64,
    },
    /// The largest value of each window, by channel.
    MaxPool {
        /// The window.
        window: Window,
    },
    /// The mean over all pixels, by channel.
    GlobalAveragePool,
    /// `y = max(x, 0)`.
    Relu,
    /// `y = tanh x`.
    Tanh,
    /// `y = a + b`.
    Add,
    /// Some channels of an image: output channel j is input channel `channels[j]`.
    Select {
        /// Which, each at most once.
        channels: Vec<u32>,
    },
    /// Some numbers of an image as a plain vector: number j of the output is number `places[j]` of the
    /// input, counted row by row, pixel by pixel, channels last.
    Pick {
        /// Which, each at most once.
        places: Vec<u32>,
    },
    /// Channels put into a wider image: input channel j becomes output channel `channels[j]`, and
    /// the others are zero.
    Spread {
        /// Where each goes, no two to one place.
        channels: Vec<u32>,
    },
    /// `y = s x + b` by channel, where s = clip(m + softplus(r) z, ±10) is drawn anew for every row,
    /// channel and pass, from the location m and the pre-scale r of the row's member.
    Vary {
        /// m and r, a parameter.
        posterior: usize,
        /// A bias for each member, where there is one.
        bias: Option<usize>,
        /// The members and the law of z.
        mixture: Mixture,
    },
}

/// One node: a name, an operation, where its inputs come from, and the shape it gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, unique in the network.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// The nodes it reads, all before it.
    pub inputs: Vec<NodeId>,
    /// The shape of one row of its output.
    pub shape: Shape,
}

impl Node {
    /// The list of a [`Op::Select`], [`Op::Pick`] or [`Op::Spread`]; empty for any other node.
    pub fn list(&self) -> &[u32] {
        match &self.op {
            Op::Select { channels } | Op::Spread { channels } => channels,
            Op::Pick { places } => places,
            _ => &[],
        }
    }
}

/// A network as data: nodes in topological order, their parameters, an output and a loss.
///
/// It can only be made through [`NetworkBuilder`] or by deserialising, and both check it, so a
/// `Network` in hand is valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Network {
    nodes: Vec<Node>,
    params: ParamTable,
    stats: ParamTable,
    output: NodeId,
    loss: Loss,
    wanted: held::Wanted,
}

/// A network as it stands in a file, before it is checked.
#[derive(Clone, Serialize, Deserialize)]
struct Unchecked {
    nodes: Vec<Node>,
    params: ParamTable,
    stats: ParamTable,
    output: NodeId,
    loss: Loss,
}

impl From<Network> for Unchecked {
    fn from(n: Network) -> Self {
        Self { nodes: n.nodes, params: n.params, stats: n.stats, output: n.output, loss: n.loss }
    }
}

impl TryFrom<Unchecked> for Network {
    type Error = EngineError;
    /// Builds the network again node by node, so that a file passes the same checks as code does.
    fn try_from(file: Unchecked) -> Result<Self, EngineError> {
        let broken = |node: &str, problem: &str| EngineError::Network {
            node: node.to_owned(),
            problem: problem.to_owned(),
        };
        let Some(first) = file.nodes.first() else {
            return Err(broken("input", "the network has no nodes"));
        };
        let mut builder = NetworkBuilder::image(first.shape);
        for node in file.nodes.iter().skip(1) {
            let input = |at: usize| {
                node.inputs
                    .get(at)
                    .copied()
                    .ok_or_else(|| broken(&node.name, "an input is missing"))
            };
            match &node.op {
                Op::Input => return Err(broken(&node.name, "only the first node is the input")),
                Op::Linear { bias, .. } => {
                    let out = node.shape.checked_len();
                    let out = out.ok_or_else(|| broken(&node.name, "has too many values"))?;
                    builder.linear_with(&node.name, input(0)?, out, bias.is_some())?;
                }
                Op::Conv2d { bias, window, .. } => {
                    let (out, bias) = (node.shape.channels, bias.is_some());
                    builder.conv2d_with(&node.name, input(0)?, out, *window, bias)?;
                }
                Op::BatchNorm { momentum, eps, .. } => {
                    builder.batch_norm_with(&node.name, input(0)?, *momentum, *eps)?;
                }
                Op::MaxPool { window } => drop(builder.max_pool(input(0)?, *window)?),
                Op::GlobalAveragePool => drop(builder.global_average_pool(input(0)?)?),
                Op::Relu => drop(builder.relu(input(0)?)?),
                Op::Tanh => drop(builder.tanh(input(0)?)?),
                Op::Add => drop(builder.add(input(0)?, input(1)?)?),
                Op::Select { channels } => drop(builder.select(input(0)?, channels.clone())?),
                Op::Pick { places } => drop(builder.pick(input(0)?, places.clone())?),
                Op::Spread { channels } => {
                    builder.spread(input(0)?, channels.clone(), node.shape.channels)?;
                }
                Op::Vary { bias, mixture, .. } => {
                    builder.vary(&node.name, input(0)?, *mixture, bias.is_some())?;
                }
            }
        }
        let network = builder.finish(file.output, file.loss.clone())?;
        let same = network.nodes == file.nodes
            && network.params == file.params
            && network.stats == file.stats
            && network.loss == file.loss;
        if !same {
            return Err(broken("output", "nodes, parameters and shapes do not agree"));
        }
        Ok(network)
    }
}

impl Network {
    /// The nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The parameters.
    pub fn params(&self) -> &ParamTable {
        &self.params
    }

    /// Running statistics of batch norms, which are kept but not trained.
    pub fn stats(&self) -> &ParamTable {
        &self.stats
    }

    /// Whether a row's output depends on the other rows of its batch in training.
    pub fn couples_rows(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.op, Op::BatchNorm { .. }))
    }

    /// The members that share this network, where its channels have random scales.
    pub fn mixture(&self) -> Option<Mixture> {
        self.nodes.iter().find_map(|node| match node.op {
            Op::Vary { mixture, .. } => Some(mixture),
            _ => None,
        })
    }

    /// How often an example stands in a batch of training: once for every member.
    pub fn repeats(&self) -> usize {
        self.mixture().map_or(1, |mixture| mixture.members)
    }

    /// How many random scales a row has in the nodes before `at`: their numbers key the noise.
    pub(crate) fn scales_before(&self, at: usize) -> usize {
        let varies = |node: &&Node| matches!(node.op, Op::Vary { .. });
        self.nodes[..at].iter().filter(varies).map(|node| node.shape.channels).sum()
    }

    /// The node whose value is the network's output.
    pub fn output(&self) -> NodeId {
        self.output
    }

    /// Numbers a row of output.
    pub fn output_len(&self) -> usize {
        self.nodes[self.output.0].shape.len()
    }

    /// Numbers a row of input.
    pub fn input_len(&self) -> usize {
        self.nodes[0].shape.len()
    }

    /// The loss at its head.
    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// The weights of the layer that reads the input, whose columns are the input variables.
    pub fn first_weight(&self) -> Option<&crate::Param> {
        self.nodes.iter().find_map(|node| match node.op {
            Op::Linear { weight, .. } if node.inputs == [NodeId(0)] => Some(&self.params[weight]),
            _ => None,
        })
    }

    /// The same network without the input columns that are not in `keep`, and for each of its
    /// parameters' elements the index it has in this network.
    ///
    /// Where the dropped columns have only zero weights, both networks are the same function. The
    /// input must be read by linear layers alone; otherwise `None`.
    pub fn with_inputs(&self, keep: &[usize]) -> Option<(Network, Vec<u32>)> {
        let readers = self.nodes.iter().filter(|n| n.inputs.contains(&NodeId(0)));
        let mut linear = readers.map(|n| matches!(n.op, Op::Linear { .. }));
        if keep.is_empty() || keep.iter().any(|&c| c >= self.input_len()) || !linear.all(|l| l) {
            return None;
        }
        let mut small = Unchecked::from(self.clone());
        small.nodes[0].shape = Shape::vector(keep.len());
        let narrowed: Vec<usize> = small
            .nodes
            .iter()
            .filter(|n| n.inputs == [NodeId(0)])
            .filter_map(|n| match n.op {
                Op::Linear { weight, .. } => Some(weight),
                _ => None,
            })
            .collect();
        let mut params = ParamTable::default();
        let mut map = Vec::new();
        for (at, param) in self.params.iter().enumerate() {
            if narrowed.contains(&at) {
                let (out, inputs) = (param.shape[0], param.shape[1]);
                params.push(param.name.clone(), vec![out, keep.len()], param.role);
                let index = |o: usize, c: &usize| (param.offset + o * inputs + c) as u32;
                map.extend((0..out).flat_map(|o| keep.iter().map(move |c| index(o, c))));
            } else {
                params.push(param.name.clone(), param.shape.clone(), param.role);
                map.extend(param.range().map(|i| i as u32));
            }
        }
        small.params = params;
        Network::try_from(small).ok().map(|network| (network, map))
    }

    /// Multiply-adds of one row through the network.
    pub fn multiply_adds(&self) -> usize {
        let each = (0..self.nodes.len()).map(|at| self.node_multiply_adds(NodeId(at)));
        each.fold(0, usize::saturating_add)
    }

    /// Multiply-adds of one row through a node.
    pub fn node_multiply_adds(&self, node: NodeId) -> usize {
        let node = &self.nodes[node.0];
        match node.op {
            Op::Linear { weight, .. } => self.params[weight].len(),
            Op::Conv2d { weight, .. } => {
                self.params[weight].len().saturating_mul(node.shape.height * node.shape.width)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
