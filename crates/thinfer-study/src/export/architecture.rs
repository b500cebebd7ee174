//! The JSON description that goes with a safetensors file: enough to build the network elsewhere.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thinfer_core::weights::{channel_by_channel, pixel_by_pixel};
use thinfer_data::table::{Target, Variable};
use thinfer_data::{Error, Result};
use thinfer_engine::{Loss, Network, NetworkBuilder, Node, NodeId, Op, Scale, Shape, Window};
use thinfer_run::run::{Inputs, RunInfo};

use super::part::Part;

/// The version of the description.
const FORMAT: u32 = 1;

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Architecture {
    /// The version of this description.
    pub format: u32,
    /// The version of the program.
    pub thinfer: String,
    /// What a row is.
    pub input: Input,
    /// What the networks answer.
    pub output: Output,
    /// The networks; samples of one mask share one. Left out of ONNX files, which are one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Layers>,
    /// The samples, in the order of the file.
    pub samples: Vec<Sample>,
    /// The configuration of the run, as TOML.
    pub config: String,
}

/// What a row is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Input {
    /// Pixels from 0 to 1, of which a network reads `(x − mean) / sd`.
    Image {
        /// Channels, height and width.
        shape: [usize; 3],
        /// What is subtracted from each channel.
        mean: Vec<f32>,
        /// What each channel is divided by after that.
        sd: Vec<f32>,
    },
    /// Columns, of which a network reads `(x − mean) / sd`; a category has one column a level, 1
    /// where the cell is that level and 0 elsewhere.
    Table {
        /// The variables; those of which no network reads anything are left out, except at the full
        /// size.
        variables: Vec<Variable>,
        /// The names of all columns that come of them.
        columns: Vec<String>,
        /// The numbers of these columns among all that the run had; empty where they are all there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        numbers: Vec<u32>,
    },
}

/// What the networks answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Output {
    /// One logit a class; probabilities are their softmax.
    Classes {
        /// The names of the classes.
        classes: Vec<String>,
    },
    /// One logit, of the second class; its probability is the logistic function of it.
    Binary {
        /// The names of both classes.
        classes: Vec<String>,
    },
    /// A standardised number; the user's is `mean + sd · y`.
    Number {
        /// The name of the target.
        name: String,
        /// Its mean over the training rows.
        mean: f64,
        /// Its standard deviation over the training rows.
        sd: f64,
        /// The standard deviation of its noise, in units of `sd`; null where it was learned, then
        /// it is e to the tensor `noise.log_sigma`, or where it is predicted row by row.
        noise_sd: Option<f64>,
        /// Whether the network gives two numbers, and the noise of a row is e to the second.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        noise_by_row: bool,
        /// The degrees of freedom where the noise is Student's t; `noise_sd` is its scale then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noise_dof: Option<f64>,
    },
}

/// One network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layers {
    /// The columns of the description that it reads, in its order; empty for images.
    pub inputs: Vec<u32>,
    /// Its nodes, each after those it reads; the last one is the output.
    pub layers: Vec<Layer>,
}

/// One node of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Its name, which is also that of its tensors.
    pub name: String,
    /// What it computes.
    #[serde(flatten)]
    pub op: LayerOp,
    /// The nodes it reads.
    pub inputs: Vec<String>,
    /// Channels, height and width of what it gives.
    pub shape: [usize; 3],
}

/// What a node computes, in the words of PyTorch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum LayerOp {
    /// What the user gives.
    Input,
    /// A linear layer; an image is read channel by channel.
    Linear {
        /// Whether there is a bias.
        bias: bool,
    },
    /// A convolution.
    Conv2d {
        /// Whether there is a bias.
        bias: bool,
        /// The size of its kernel.
        kernel: [usize; 2],
        /// How far it moves.
        stride: [usize; 2],
        /// Zeros on each side.
        padding: [usize; 2],
    },
    /// Batch norm with running statistics.
    BatchNorm {
        /// Added to the variance.
        eps: f64,
    },
    /// The largest value of each window.
    MaxPool {
        /// The size of the window.
        kernel: [usize; 2],
        /// How far it moves.
        stride: [usize; 2],
        /// Pixels on each side that do not count.
        padding: [usize; 2],
    },
    /// The mean of each window.
    AveragePool {
        /// The size of the window.
        kernel: [usize; 2],
        /// How far it moves.
        stride: [usize; 2],
        /// Zeros on each side, which count.
        padding: [usize; 2],
    },
    /// The mean over all pixels.
    GlobalAveragePool,
    /// The positive part.
    Relu,
    /// The hyperbolic tangent.
    Tanh,
    /// The sum of two nodes.
    Add,
    /// Channel j of the output is channel `channels[j]` of the input.
    Select {
        /// The list.
        channels: Vec<u32>,
    },
    /// Number j of the output, a plain vector, is number `places[j]` of the input, counted channel
    /// by channel.
    Pick {
        /// The list.
        places: Vec<u32>,
    },
    /// Channel j of the input becomes channel `channels[j]` of the output; the others are zero.
    Spread {
        /// The list.
        channels: Vec<u32>,
    },
}

/// One sample of the posterior.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What stands before the names of its tensors.
    pub prefix: String,
    /// Its network, by place.
    pub network: usize,
    /// The chain that drew it.
    pub chain: u32,
    /// The epoch at whose end it was drawn.
    pub epoch: usize,
}

impl Architecture {
    /// Describes samples; the networks as well where `networks` says so.
    pub(super) fn new(info: &RunInfo, parts: &[Part], networks: bool) -> Result<Self> {
        let mut different: Vec<&Part> = Vec::new();
        let mut samples = Vec::new();
        for part in parts {
            let same = |other: &&Part| other.network == part.network && other.inputs == part.inputs;
            let network = different.iter().position(same).unwrap_or_else(|| {
                different.push(part);
                different.len() - 1
            });
            let prefix = if parts.len() == 1 { String::new() } else { part.prefix() };
            samples.push(Sample { prefix, network, chain: part.chain, epoch: part.epoch });
        }
        let input = input(info, parts);
        let layers = |part: &&Part| -> Result<Layers> {
            let all = part.network.nodes().iter().map(|n| layer(&part.network, n));
            let inputs = part.inputs.iter().map(|&number| input.place(number)).collect();
            Ok(Layers { inputs, layers: all.collect::<Result<_>>()? })
        };
        let described = different.iter().filter(|_| networks).map(layers);
        Ok(Self {
            format: FORMAT,
            thinfer: info.thinfer.clone(),
            networks: described.collect::<Result<_>>()?,
            input: input.clone(),
            output: output(info),
            samples,
            config: info.config.to_toml()?,
        })
    }

    /// The columns that the network at `place` reads, by their numbers among all that the run had.
    pub fn columns(&self, place: usize) -> Vec<u32> {
        let inputs = self.networks.get(place).map_or(&[][..], |layers| &layers.inputs);
        match &self.input {
            Input::Table { numbers, .. } if !numbers.is_empty() => {
                inputs.iter().filter_map(|at| numbers.get(*at as usize)).copied().collect()
            }
            _ => inputs.to_vec(),
        }
    }

    /// The network at `place`, built from its description alone.
    pub fn network(&self, place: usize) -> Result<Network> {
        let broken = |what: &str| {
            Error::Data(format!("the description of the network is damaged ({what}); export again"))
        };
        let layers = &self.networks.get(place).ok_or_else(|| broken("it is missing"))?.layers;
        let Some(first) = layers.first() else { return Err(broken("it has no layers")) };
        let shape = |[channels, height, width]: [usize; 3]| Shape { height, width, channels };
        let mut builder = NetworkBuilder::image(shape(first.shape));
        let mut places: Vec<NodeId> = vec![builder.input()];
        for layer in layers.iter().skip(1) {
            let from = |name: &String| {
                layers[..places.len()].iter().position(|l| l.name == *name).map(NodeId)
            };
            let inputs: Option<Vec<NodeId>> = layer.inputs.iter().map(from).collect();
            let inputs = inputs.ok_or_else(|| broken(&layer.name))?;
            let read = inputs.first().map(|from| shape(layers[from.0].shape));
            let op = layer.op.in_network(read).ok_or_else(|| broken(&layer.name))?;
            let (name, shape) = (layer.name.clone(), shape(layer.shape));
            let node = Node { name, op, inputs, shape };
            places.push(builder.like(&node, &node.inputs)?);
        }
        let output = places[places.len() - 1];
        let network = builder.finish(output, self.loss())?;
        let other = |(node, layer): &(&Node, &Layer)| node.shape != shape(layer.shape);
        match network.nodes().iter().zip(layers).find(other) {
            Some((_, layer)) => Err(broken(&layer.name)),
            None => Ok(network),
        }
    }

    fn loss(&self) -> Loss {
        match self.output {
            Output::Classes { .. } => Loss::cross_entropy(),
            Output::Binary { .. } => Loss::Bernoulli,
            Output::Number { noise_sd, noise_by_row, noise_dof, .. } => {
                let learned = if noise_by_row {
                    Scale::ByRow { start: 1.0 }
                } else {
                    Scale::Learned { start: 1.0, param: 0 }
                };
                let scale = noise_sd.map_or(learned, Scale::Known);
                match noise_dof {
                    None => Loss::Gaussian { scale },
                    Some(dof) => Loss::StudentT { scale, dof },
                }
            }
        }
    }
}

impl Input {
    /// The place in this description of a column by its number among all that the run had.
    fn place(&self, number: u32) -> u32 {
        match self {
            Input::Table { numbers, .. } if !numbers.is_empty() => {
                numbers.partition_point(|other| *other < number) as u32
            }
            _ => number,
        }
    }
}

/// Describes what `parts` read: a variable without a column that any of them reads would only make
/// the file large.
fn input(info: &RunInfo, parts: &[Part]) -> Input {
    match &info.inputs {
        Inputs::Images(images) => Input::Image {
            shape: channels_first(images.shape),
            mean: images.mean.clone(),
            sd: images.sd.clone(),
        },
        Inputs::Table(table) => {
            let encoding = &table.schema.encoding;
            let read: BTreeSet<u32> = parts.iter().flat_map(|part| &part.inputs).copied().collect();
            let (mut variables, mut numbers, mut first) = (Vec::new(), Vec::new(), 0);
            for variable in encoding.variables() {
                let own = first..first + variable.width() as u32;
                first = own.end;
                if read.range(own.clone()).next().is_some() {
                    variables.push(variable.clone());
                    numbers.extend(own);
                }
            }
            let names = encoding.design_names();
            let columns = numbers.iter().map(|at| names[*at as usize].clone()).collect();
            if numbers.len() == names.len() {
                numbers.clear();
            }
            Input::Table { variables, columns, numbers }
        }
    }
}

fn output(info: &RunInfo) -> Output {
    let classes = match &info.inputs {
        Inputs::Images(images) => images.classes.clone(),
        Inputs::Table(table) => match &table.schema.target {
            Target::Classes { levels } => levels.clone(),
            Target::Count { .. } => Vec::new(),
            Target::Number { mean, sd } => {
                return Output::Number {
                    name: table.schema.target_name.clone(),
                    mean: *mean,
                    sd: *sd,
                    noise_dof: match info.network.loss() {
                        Loss::StudentT { dof, .. } => Some(*dof),
                        _ => None,
                    },
                    noise_by_row: info.network.loss().is_by_row(),
                    noise_sd: match info.network.loss() {
                        loss if let Some(Scale::Known(sigma)) = loss.scale() => Some(*sigma),
                        _ => None,
                    },
                };
            }
        },
    };
    match info.network.loss() {
        Loss::Bernoulli => Output::Binary { classes },
        _ => Output::Classes { classes },
    }
}

fn channels_first(shape: Shape) -> [usize; 3] {
    [shape.channels, shape.height, shape.width]
}

impl LayerOp {
    /// The operation of a node, whose parameters have no numbers yet, from the shape of what it
    /// reads. Nothing where that is damaged.
    fn in_network(&self, read: Option<Shape>) -> Option<Op> {
        let bias = |there: &bool| there.then_some(0);
        Some(match self {
            LayerOp::Input => Op::Input,
            LayerOp::Linear { bias: there } => Op::Linear { weight: 0, bias: bias(there) },
            LayerOp::Conv2d { bias: there, kernel, stride, padding } => {
                let window = Window { size: *kernel, stride: *stride, padding: *padding };
                Op::Conv2d { weight: 0, bias: bias(there), window }
            }
            LayerOp::BatchNorm { eps } => {
                // The weight of a new batch, which only training asks for.
                let (momentum, eps) = (0.1, *eps);
                Op::BatchNorm { scale: 0, shift: 0, mean: 0, variance: 0, momentum, eps }
            }
            LayerOp::MaxPool { kernel, stride, padding } => {
                Op::MaxPool { window: Window { size: *kernel, stride: *stride, padding: *padding } }
            }
            LayerOp::AveragePool { kernel, stride, padding } => {
                let window = Window { size: *kernel, stride: *stride, padding: *padding };
                Op::AveragePool { window }
            }
            LayerOp::GlobalAveragePool => Op::GlobalAveragePool,
            LayerOp::Relu => Op::Relu,
            LayerOp::Tanh => Op::Tanh,
            LayerOp::Add => Op::Add,
            LayerOp::Select { channels } => Op::Select { channels: channels.clone() },
            LayerOp::Pick { places } => {
                // Places are worked out by its sides; the true shape is compared later.
                let read = read.filter(|read| read.checked_len().is_some_and(|len| len > 0))?;
                Op::Pick { places: pixel_by_pixel(places, read) }
            }
            LayerOp::Spread { channels } => Op::Spread { channels: channels.clone() },
        })
    }
}

fn layer(network: &Network, node: &Node) -> Result<Layer> {
    let op = match &node.op {
        Op::Input => LayerOp::Input,
        Op::Linear { bias, .. } => LayerOp::Linear { bias: bias.is_some() },
        Op::Conv2d { bias, window, .. } => LayerOp::Conv2d {
            bias: bias.is_some(),
            kernel: window.size,
            stride: window.stride,
            padding: window.padding,
        },
        Op::BatchNorm { eps, .. } => LayerOp::BatchNorm { eps: *eps },
        Op::MaxPool { window } => {
            LayerOp::MaxPool { kernel: window.size, stride: window.stride, padding: window.padding }
        }
        Op::AveragePool { window } => LayerOp::AveragePool {
            kernel: window.size,
            stride: window.stride,
            padding: window.padding,
        },
        Op::GlobalAveragePool => LayerOp::GlobalAveragePool,
        Op::Relu => LayerOp::Relu,
        Op::Tanh => LayerOp::Tanh,
        Op::Add => LayerOp::Add,
        Op::Select { channels } => LayerOp::Select { channels: channels.clone() },
        Op::Pick { places } => {
            let read = network.nodes()[node.inputs[0].0].shape;
            LayerOp::Pick { places: channel_by_channel(places, read) }
        }
        Op::Spread { channels } => LayerOp::Spread { channels: channels.clone() },
        Op::Vary { .. } => return Err(super::has_random_scales(&node.name)),
    };
    let name = |id: &NodeId| network.nodes()[id.0].name.clone();
    let inputs = node.inputs.iter().map(name).collect();
    Ok(Layer { name: node.name.clone(), op, inputs, shape: channels_first(node.shape) })
}
