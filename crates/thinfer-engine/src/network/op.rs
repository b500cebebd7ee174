//! The operations of networks, and what every other part asks of them.
//!
//! An operation belongs to one [`Family`], whose members differ in arithmetic alone. Other code
//! matches on the family without a wildcard, so a new family makes the compiler ask everywhere, and
//! a new member of one makes it ask here.

use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::mixture::Mixture;
use crate::network::{NetworkBuilder, NodeId};
use crate::ops::Pool;
use crate::shape::Window;

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
    /// The mean of each window, by channel; zeros of the padding count.
    AveragePool {
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
    /// Some numbers of an image as a plain vector: number j of the output is number `places[j]` of
    /// the input, counted row by row, pixel by pixel, channels last.
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
    /// `y = s x + b` by channel, where s = clip(m + softplus(r) z, ±10) is drawn anew for every
    /// row, channel and pass, from the location m and the pre-scale r of the row's member.
    Vary {
        /// m and r, a parameter.
        posterior: usize,
        /// A bias for each member, where there is one.
        bias: Option<usize>,
        /// The members and the law of z.
        mixture: Mixture,
    },
}

/// What operations have in common that work alike on channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family<'a> {
    /// The row given by the user.
    Input,
    /// Every output reads every input channel: a convolution, or a linear layer.
    Weights {
        /// The weights.
        weight: usize,
        /// The bias, where there is one.
        bias: Option<usize>,
        /// The kernel of a convolution; a linear layer has none.
        window: Option<Window>,
    },
    /// A batch norm. Its shift fills channels that are zero.
    Norm {
        /// The scale.
        scale: usize,
        /// The shift.
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
    /// Windows of each channel by itself. Channels that are zero stay zero.
    Pool(Pool),
    /// A function of each number by itself. Zero stays zero.
    Curve(Curve),
    /// The sum of two nodes, channel by channel.
    Sum,
    /// Numbers put to other places.
    List(List, &'a [u32]),
    /// Random scales of each channel by itself. A bias fills channels that are zero.
    Scales {
        /// The law of the scales.
        posterior: usize,
        /// A bias for each member, where there is one.
        bias: Option<usize>,
        /// The members and the law of the scales.
        mixture: Mixture,
    },
}

/// The functions of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// `max(x, 0)`
    Relu,
    /// `tanh x`
    Tanh,
}

/// What the list of a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The channels to read.
    Select,
    /// The numbers to read.
    Pick,
    /// Where channels go.
    Spread,
}

impl Op {
    /// Its family.
    pub fn family(&self) -> Family<'_> {
        match *self {
            Op::Input => Family::Input,
            Op::Linear { weight, bias } => Family::Weights { weight, bias, window: None },
            Op::Conv2d { weight, bias, window } => {
                Family::Weights { weight, bias, window: Some(window) }
            }
            Op::BatchNorm { scale, shift, mean, variance, momentum, eps } => {
                Family::Norm { scale, shift, mean, variance, momentum, eps }
            }
            Op::MaxPool { window } => Family::Pool(Pool::Max(window)),
            Op::AveragePool { window } => Family::Pool(Pool::Average(window)),
            Op::GlobalAveragePool => Family::Pool(Pool::Whole),
            Op::Relu => Family::Curve(Curve::Relu),
            Op::Tanh => Family::Curve(Curve::Tanh),
            Op::Add => Family::Sum,
            Op::Select { ref channels } => Family::List(List::Select, channels),
            Op::Pick { ref places } => Family::List(List::Pick, places),
            Op::Spread { ref channels } => Family::List(List::Spread, channels),
            Op::Vary { posterior, bias, mixture } => Family::Scales { posterior, bias, mixture },
        }
    }

    /// The number of the weights of a convolution or a linear layer.
    pub fn weight(&self) -> Option<usize> {
        match self.family() {
            Family::Weights { weight, .. } => Some(weight),
            Family::Input
            | Family::Norm { .. }
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::Sum
            | Family::List(..)
            | Family::Scales { .. } => None,
        }
    }

    /// Numbers of the parameters that the node has in the table, in its order.
    pub fn params(&self) -> Vec<usize> {
        match self.family() {
            Family::Weights { weight: first, bias, .. }
            | Family::Scales { posterior: first, bias, .. } => {
                [Some(first), bias].into_iter().flatten().collect()
            }
            Family::Norm { scale, shift, .. } => vec![scale, shift],
            Family::Input | Family::Pool(_) | Family::Curve(_) | Family::Sum | Family::List(..) => {
                Vec::new()
            }
        }
    }

    /// The list of a [`Op::Select`], [`Op::Pick`] or [`Op::Spread`]; empty for any other.
    pub fn list(&self) -> &[u32] {
        match self.family() {
            Family::List(_, list) => list,
            Family::Input
            | Family::Weights { .. }
            | Family::Norm { .. }
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::Sum
            | Family::Scales { .. } => &[],
        }
    }

    /// Whether channel c of the result is made of channel c of what the node reads, and of no
    /// other.
    pub fn keeps_channels_apart(&self) -> bool {
        match self.family() {
            Family::Input | Family::Weights { .. } | Family::List(..) => false,
            Family::Norm { .. }
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::Sum
            | Family::Scales { .. } => true,
        }
    }

    /// Whether a row's result depends on the other rows of its batch in training.
    pub fn needs_rows_together(&self) -> bool {
        match self.family() {
            Family::Norm { .. } => true,
            Family::Input
            | Family::Weights { .. }
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::Sum
            | Family::List(..)
            | Family::Scales { .. } => false,
        }
    }
}

impl Curve {
    /// What names of nodes begin with.
    pub(super) fn word(self) -> &'static str {
        match self {
            Curve::Relu => "relu",
            Curve::Tanh => "tanh",
        }
    }
}

impl List {
    /// For each of `written` channels of the result, the channel of `read` that is put there; none
    /// where it is zero. A number of an image counts as one of its channel.
    pub fn sources(self, list: &[u32], read: usize, written: usize) -> Vec<Option<usize>> {
        match self {
            List::Select => list.iter().map(|channel| Some(*channel as usize)).collect(),
            List::Pick => list.iter().map(|place| Some(*place as usize % read)).collect(),
            List::Spread => {
                let mut sources = vec![None; written];
                list.iter().enumerate().for_each(|(from, to)| sources[*to as usize] = Some(from));
                sources
            }
        }
    }
}

/// Operations without parameters that read one node.
impl NetworkBuilder {
    /// The largest value of each window.
    pub fn max_pool(&mut self, from: NodeId, window: Window) -> Result<NodeId, EngineError> {
        self.pool(Op::MaxPool { window }, Pool::Max(window), from)
    }

    /// The mean of each window, in which zeros of the padding count.
    pub fn average_pool(&mut self, from: NodeId, window: Window) -> Result<NodeId, EngineError> {
        self.pool(Op::AveragePool { window }, Pool::Average(window), from)
    }

    /// The mean over all pixels, a plain vector.
    pub fn global_average_pool(&mut self, from: NodeId) -> Result<NodeId, EngineError> {
        self.pool(Op::GlobalAveragePool, Pool::Whole, from)
    }

    /// The positive part of `from`.
    pub fn relu(&mut self, from: NodeId) -> Result<NodeId, EngineError> {
        self.curve(Op::Relu, Curve::Relu, from)
    }

    /// The hyperbolic tangent of `from`.
    pub fn tanh(&mut self, from: NodeId) -> Result<NodeId, EngineError> {
        self.curve(Op::Tanh, Curve::Tanh, from)
    }
}
