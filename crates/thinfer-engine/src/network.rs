use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::mixture::Mixture;
use crate::ops::loss::Loss;
use crate::param::ParamTable;

mod builder;
mod held;

pub use builder::NetworkBuilder;

/// The shape of one row of activations, channels last. A plain vector is 1 x 1 x channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
    /// Channels, or the length of a plain vector.
    pub channels: usize,
}

impl Shape {
    /// A plain vector.
    pub fn vector(channels: usize) -> Self {
        Self { height: 1, width: 1, channels }
    }

    /// How many numbers a row holds.
    pub fn len(self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether a row holds nothing.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A node of a network, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub usize);

/// A window that slides over rows and columns of pixels; `[rows, columns]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its size.
    pub size: [usize; 2],
    /// How far it moves.
    pub stride: [usize; 2],
    /// Pixels added on each side: zeros for a convolution, nothing for a maximum.
    pub padding: [usize; 2],
}

impl Window {
    /// A square window.
    pub fn square(size: usize, stride: usize, padding: usize) -> Self {
        Self { size: [size; 2], stride: [stride; 2], padding: [padding; 2] }
    }

    /// The image that the window's positions form, or what is wrong with it.
    fn over(self, from: Shape) -> Result<[usize; 2], String> {
        if self.size.contains(&0) || self.stride.contains(&0) {
            return Err("has a window of size or stride 0; both must be at least 1".into());
        }
        if (0..2).any(|axis| self.padding[axis] >= self.size[axis]) {
            return Err(
                "is padded by a whole window or more; some outputs would see nothing".into()
            );
        }
        let mut to = [0; 2];
        for (axis, pixels) in [from.height, from.width].into_iter().enumerate() {
            let padded = pixels + 2 * self.padding[axis];
            if padded < self.size[axis] {
                let size = self.size[axis];
                return Err(format!("has a window of {size} pixels over an image of {padded}"));
            }
            to[axis] = (padded - self.size[axis]) / self.stride[axis] + 1;
        }
        Ok(to)
    }
}

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
                    builder.linear_with(&node.name, input(0)?, node.shape.len(), bias.is_some())?;
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
        (0..self.nodes.len()).map(|at| self.node_multiply_adds(NodeId(at))).sum()
    }

    /// Multiply-adds of one row through a node.
    pub fn node_multiply_adds(&self, node: NodeId) -> usize {
        let node = &self.nodes[node.0];
        match node.op {
            Op::Linear { weight, .. } => self.params[weight].len(),
            Op::Conv2d { weight, .. } => {
                self.params[weight].len() * node.shape.height * node.shape.width
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixture::Law;

    fn residual() -> Network {
        let mut b = NetworkBuilder::new(4);
        let h = b.linear("fc1", b.input(), 3).unwrap();
        let h = b.relu(h).unwrap();
        let r = b.linear_with("fc2", h, 3, false).unwrap();
        let h = b.add(h, r).unwrap();
        let h = b.tanh(h).unwrap();
        let out = b.linear("fc3", h, 1).unwrap();
        b.finish(out, Loss::gaussian_learned(1.0)).unwrap()
    }

    #[test]
    fn parameters_lie_one_after_another() {
        let network = residual();
        let names: Vec<&str> = network.params().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            names,
            ["fc1.weight", "fc1.bias", "fc2.weight", "fc3.weight", "fc3.bias", "noise.log_sigma"]
        );
        let mut end = 0;
        for p in network.params() {
            assert_eq!(p.offset, end);
            end = p.range().end;
        }
        assert_eq!(network.params().len(), 12 + 3 + 9 + 3 + 1 + 1);
        assert_eq!(network.first_weight().unwrap().name, "fc1.weight");
    }

    fn convolutional() -> Network {
        let mut b = NetworkBuilder::image(Shape { height: 9, width: 8, channels: 3 });
        let h = b.conv2d("conv1", b.input(), 4, Window::square(3, 2, 1)).unwrap();
        let h = b.batch_norm("bn1", h).unwrap();
        let h = b.relu(h).unwrap();
        let h = b.max_pool(h, Window::square(3, 2, 1)).unwrap();
        let h = b.conv2d_with("conv2", h, 5, Window::square(1, 1, 0), true).unwrap();
        let h = b.global_average_pool(h).unwrap();
        let out = b.linear("fc", h, 2).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    #[test]
    fn windows_give_the_shapes_of_pytorch() {
        let network = convolutional();
        let sizes: Vec<[usize; 3]> = network
            .nodes()
            .iter()
            .map(|n| [n.shape.height, n.shape.width, n.shape.channels])
            .collect();
        assert_eq!(sizes[1], [5, 4, 4]);
        assert_eq!(sizes[4], [3, 2, 4]);
        assert_eq!(sizes[5], [3, 2, 5]);
        assert_eq!(sizes[6], [1, 1, 5]);
        assert_eq!(network.multiply_adds(), 20 * 4 * 27 + 6 * 5 * 4 + 10);
        assert!(network.couples_rows());
        let stats: Vec<&str> = network.stats().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(stats, ["bn1.running_mean", "bn1.running_var"]);
    }

    #[test]
    fn impossible_windows_are_refused_with_the_reason() {
        let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 1 });
        for (window, reason) in [
            (Window::square(7, 1, 0), "window of 7 pixels over an image of 4"),
            (Window::square(3, 0, 0), "stride 0"),
            (Window::square(2, 1, 2), "whole window"),
        ] {
            let error = b.conv2d("conv", NodeId(0), 1, window).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            let error = b.max_pool(NodeId(0), window).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(b.batch_norm_with("bn", NodeId(0), 1.5, 1e-5).is_err());
        assert!(b.batch_norm_with("bn", NodeId(0), 0.1, 0.0).is_err());
    }

    fn indexed() -> Network {
        let mut b = NetworkBuilder::image(Shape { height: 5, width: 4, channels: 4 });
        let h = b.select(b.input(), vec![3, 1]).unwrap();
        let h = b.conv2d("conv1", h, 2, Window::square(3, 1, 1)).unwrap();
        let h = b.spread(h, vec![2, 0], 4).unwrap();
        let h = b.add(h, b.input()).unwrap();
        let out = b.linear("fc", h, 2).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    #[test]
    fn lists_of_channels_must_fit() {
        let mut b = NetworkBuilder::image(Shape { height: 2, width: 2, channels: 3 });
        for list in [vec![], vec![0, 0], vec![3]] {
            assert!(b.select(NodeId(0), list.clone()).is_err(), "{list:?}");
            assert!(b.spread(NodeId(0), list.clone(), 3).is_err(), "{list:?}");
        }
        assert!(b.spread(NodeId(0), vec![0, 1], 5).is_err());
        assert!(b.spread(NodeId(0), vec![4, 0, 1], 5).is_ok());
    }

    fn varied() -> Network {
        let mixture = Mixture { members: 3, law: Law::Cauchy, draws: 2 };
        let mut b = NetworkBuilder::image(Shape { height: 5, width: 4, channels: 4 });
        let h = b.vary("conv1.in", b.input(), mixture, false).unwrap();
        let h = b.conv2d("conv1", h, 2, Window::square(3, 1, 1)).unwrap();
        let out = b.vary("conv1.out", h, mixture, true).unwrap();
        let out = b.global_average_pool(out).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    #[test]
    fn members_are_those_of_one_mixture() {
        let network = varied();
        assert_eq!((network.repeats(), residual().repeats()), (3, 1));
        assert_eq!(network.scales_before(network.nodes().len()), 4 + 2);
        let shape = |name: &str| network.params().find(name).map(|p| p.shape.clone());
        assert_eq!(shape("conv1.in.posterior"), Some(vec![3, 4, 2]));
        assert_eq!(shape("conv1.out.bias"), Some(vec![3, 2]));
        let mut b = NetworkBuilder::new(2);
        let of = |members| Mixture { members, law: Law::Gaussian, draws: 1 };
        assert!(b.vary("a", NodeId(0), of(0), false).is_err());
        let h = b.vary("a", NodeId(0), of(2), false).unwrap();
        let error = b.vary("b", h, of(3), false).unwrap_err().to_string();
        assert!(error.contains("other members"), "{error}");
    }

    #[test]
    fn a_network_survives_a_file() {
        for network in [residual(), convolutional(), indexed(), varied()] {
            let text = serde_json::to_string(&network).unwrap();
            assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
        }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let text = serde_json::to_string(&residual()).unwrap();
        for (from, to) in [
            (r#""shape":[3,4]"#, r#""shape":[3,5]"#),
            (r#""output":6"#, r#""output":3"#),
            (r#""offset":12"#, r#""offset":13"#),
            (r#""inputs":[1]"#, r#""inputs":[77]"#),
        ] {
            assert!(text.contains(from), "{from} is not in {text}");
            let damaged = text.replacen(from, to, 1);
            assert!(serde_json::from_str::<Network>(&damaged).is_err(), "{to} was accepted");
        }
    }

    #[test]
    fn dropped_inputs_leave_the_rest_in_place() {
        let network = residual();
        let (small, map) = network.with_inputs(&[3, 1]).unwrap();
        assert_eq!(small.input_len(), 2);
        assert_eq!(small.params().len(), network.params().len() - 6);
        assert_eq!(map[..6], [3, 1, 7, 5, 11, 9]);
        assert_eq!(map[6..], (12..29).collect::<Vec<u32>>());
        assert!(network.with_inputs(&[4]).is_none());
        let mut b = NetworkBuilder::new(2);
        let h = b.tanh(b.input()).unwrap();
        let out = b.linear("fc", h, 1).unwrap();
        assert!(b.finish(out, Loss::gaussian(1.0)).unwrap().with_inputs(&[0]).is_none());
    }

    #[test]
    fn wrong_networks_are_refused_with_the_reason() {
        let mut b = NetworkBuilder::new(4);
        let h = b.linear("fc1", b.input(), 3).unwrap();
        let wide = b.linear("fc2", b.input(), 2).unwrap();
        assert!(b.add(h, wide).unwrap_err().to_string().contains("adds 3 and 2"));
        assert!(b.linear("fc1", h, 3).unwrap_err().to_string().contains("name is taken"));
        assert!(b.linear("fc9", h, 0).unwrap_err().to_string().contains("no outputs"));
        assert!(b.linear("fc9", NodeId(50), 1).unwrap_err().to_string().contains("reads node 50"));
        let loose = b.clone().finish(h, Loss::gaussian(1.0)).unwrap_err().to_string();
        assert!(loose.contains("`fc2`") && loose.contains("loose ends"), "{loose}");
        let empty = NetworkBuilder::new(0).linear("fc1", NodeId(0), 1).unwrap_err().to_string();
        assert!(empty.contains("no values"), "{empty}");
        let huge = NetworkBuilder::new(usize::MAX / 2).linear("fc1", NodeId(0), 8).unwrap_err();
        assert!(matches!(huge, EngineError::Overflow { .. }));
    }
}
