//! A network as data: nodes in topological order, with their parameters, an output and a loss.

use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::mixture::Mixture;
use crate::ops::loss::Loss;
use crate::param::ParamTable;
use crate::shape::Shape;

mod builder;
mod held;
mod op;

pub use builder::NetworkBuilder;
pub use op::{Curve, Family, List, Op};

/// A node of a network, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub usize);

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
        self.op.list()
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
            builder.like(node, &node.inputs)?;
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

    /// Builds a network again node by node, so that the result passes the same checks as a new one
    /// and its parameters are numbered anew. `make` gets every node but the input, with what its
    /// inputs became, and adds what takes its place; [`NetworkBuilder::like`] adds the same again.
    pub fn map<E: From<EngineError>>(
        &self,
        mut make: impl FnMut(&mut NetworkBuilder, NodeId, &[NodeId]) -> Result<NodeId, E>,
    ) -> Result<Network, E> {
        let mut builder = NetworkBuilder::image(self.nodes[0].shape);
        let mut became = vec![builder.input()];
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            let inputs: Vec<NodeId> = node.inputs.iter().map(|from| became[from.0]).collect();
            became.push(make(&mut builder, NodeId(at), &inputs)?);
        }
        Ok(builder.finish(became[self.output.0], self.loss.clone())?)
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
        self.nodes.iter().any(|n| n.op.needs_rows_together())
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
        let weight = node.op.weight().map_or(0, |weight| self.params[weight].len());
        weight.saturating_mul(node.shape.height * node.shape.width)
    }
}

#[cfg(test)]
mod tests;
