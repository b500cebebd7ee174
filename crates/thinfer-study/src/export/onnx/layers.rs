//! The nodes of a network as operations of ONNX, channels first.

use thinfer_core::weights::{Laid, channel_by_channel, laid_out};
use thinfer_data::Result;
use thinfer_engine::{Curve, Family, List, Node, NodeId, Shape, Window};

use super::graph::Graph;
use super::proto::Attribute;
use crate::export::part::Part;

/// A value of the graph: an image (rows, channels, height, width) or a plain vector (rows, length).
#[derive(Clone)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) flat: bool,
}

/// Writes the nodes of `part`'s network that lead from `input` to its output, a plain vector.
/// `prefix` stands before all names.
pub(super) fn layers(graph: &mut Graph, part: &Part, prefix: &str, input: Value) -> Result<String> {
    let network = &part.network;
    let tensors = laid_out(network, &part.weights)?;
    let (params, stats) = tensors.split_at(network.params().iter().len());
    let mut writer = Writer { graph, prefix, params, stats, values: vec![input] };
    for node in network.nodes().iter().skip(1) {
        let shapes: Vec<Shape> =
            node.inputs.iter().map(|from| network.nodes()[from.0].shape).collect();
        let value = writer.node(node, &shapes)?;
        writer.values.push(value);
    }
    let (output, shape) = (network.output(), network.nodes()[network.output().0].shape);
    Ok(writer.in_our_order(output, shape))
}

struct Writer<'a> {
    graph: &'a mut Graph,
    prefix: &'a str,
    params: &'a [Laid],
    stats: &'a [Laid],
    /// The value of every node written so far.
    values: Vec<Value>,
}

impl Writer<'_> {
    fn node(&mut self, node: &Node, shapes: &[Shape]) -> Result<Value> {
        let name = format!("{}{}", self.prefix, node.name);
        let from = node.inputs[0];
        Ok(match node.op.family() {
            // A network has one input, its first node.
            Family::Input => self.values[0].clone(),
            Family::Weights { weight, bias, window: None } => {
                let x = self.flat(from);
                let inputs = self.with_constants(x, &[Some(weight), bias]);
                self.put(&name, "Gemm", &inputs, vec![Attribute::int("transB", 1)], true)
            }
            Family::Weights { weight, bias, window: Some(window) } => {
                let x = self.image(from);
                let inputs = self.with_constants(x, &[Some(weight), bias]);
                self.put(&name, "Conv", &inputs, sliding(window), false)
            }
            Family::Norm { scale, shift, mean, variance, eps, .. } => {
                let Value { name: x, flat } = self.values[from.0].clone();
                let mut inputs = self.with_constants(x, &[Some(scale), Some(shift)]);
                for at in [mean, variance] {
                    inputs.push(self.constant(&self.stats[at]));
                }
                let eps = vec![Attribute::float("epsilon", eps as f32)];
                self.put(&name, "BatchNormalization", &inputs, eps, flat)
            }
            Family::Pool(pool) => {
                let pool = pool.onnx();
                if pool.window.is_none() && self.values[from.0].flat {
                    return Ok(self.values[from.0].clone());
                }
                let mut attributes = pool.window.map_or_else(Vec::new, sliding);
                let more = pool.integers.iter().map(|(name, value)| Attribute::int(name, *value));
                attributes.extend(more);
                let x = self.image(from);
                self.put(&name, pool.name, &[x], attributes, false)
            }
            Family::Curve(Curve::Relu) => self.elementwise(&name, "Relu", from),
            Family::Curve(Curve::Tanh) => self.elementwise(&name, "Tanh", from),
            Family::Sum => {
                let [a, b] = [from, node.inputs[1]].map(|id| self.values[id.0].clone());
                // A vector and an image of one pixel are the same to us, and not to ONNX.
                let flat = a.flat || b.flat;
                let inputs = if flat {
                    [self.flat(from), self.flat(node.inputs[1])]
                } else {
                    [a.name, b.name]
                };
                self.put(&name, "Add", &inputs, Vec::new(), flat)
            }
            Family::List(List::Select, channels) => {
                let value = self.values[from.0].clone();
                let places: Vec<i64> = channels.iter().map(|c| i64::from(*c)).collect();
                self.gather(&name, value, &places)
            }
            Family::List(List::Pick, places) => {
                let x = self.flat(from);
                let places = channel_by_channel(places, shapes[0]);
                let places: Vec<i64> = places.into_iter().map(i64::from).collect();
                self.gather(&name, Value { name: x, flat: true }, &places)
            }
            Family::List(List::Spread, channels) => {
                let Value { name: x, flat } = self.values[from.0].clone();
                // One channel of zeros behind the others, from which all unnamed places read.
                let zeros = shapes[0].channels as i64;
                let axes = if flat { 2 } else { 4 };
                let mut pads = vec![0; 2 * axes];
                pads[axes + 1] = 1;
                let pads = self.graph.integers(&format!("{name}/pads"), &pads);
                let padded =
                    self.put(&format!("{name}/padded"), "Pad", &[x, pads], Vec::new(), flat);
                let mut places = vec![zeros; node.shape.channels];
                (0..).zip(channels).for_each(|(from, to)| places[*to as usize] = from);
                self.gather(&name, padded, &places)
            }
            Family::Scales { .. } => return Err(crate::export::has_random_scales(&node.name)),
        })
    }

    /// Channels of a value, in the order of `places`.
    fn gather(&mut self, name: &str, value: Value, places: &[i64]) -> Value {
        let places = self.graph.integers(&format!("{name}/channels"), places);
        let axis = vec![Attribute::int("axis", 1)];
        self.put(name, "Gather", &[value.name, places], axis, value.flat)
    }

    fn elementwise(&mut self, name: &str, op: &str, from: NodeId) -> Value {
        let Value { name: x, flat } = self.values[from.0].clone();
        self.put(name, op, &[x], Vec::new(), flat)
    }

    fn put(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[String],
        attributes: Vec<Attribute>,
        flat: bool,
    ) -> Value {
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        Value { name: self.graph.node(name, op, &inputs, attributes), flat }
    }

    /// A value followed by the parameters that are there.
    fn with_constants(&mut self, value: String, params: &[Option<usize>]) -> Vec<String> {
        let mut inputs = vec![value];
        for at in params.iter().flatten() {
            inputs.push(self.constant(&self.params[*at]));
        }
        inputs
    }

    fn constant(&mut self, tensor: &Laid) -> String {
        let name = format!("{}{}", self.prefix, tensor.name);
        self.graph.floats(&name, &tensor.shape, &tensor.values)
    }

    /// The value as a plain vector, channel by channel: the order of the weights that read it.
    fn flat(&mut self, id: NodeId) -> String {
        let Value { name, flat } = self.values[id.0].clone();
        if flat {
            return name;
        }
        self.graph.node(&format!("{name}/flat"), "Flatten", &[&name], Vec::new())
    }

    /// The value as an image, of one pixel where it is a plain vector.
    fn image(&mut self, id: NodeId) -> String {
        let Value { name, flat } = self.values[id.0].clone();
        if !flat {
            return name;
        }
        let axes = self.graph.integers(&format!("{name}/axes"), &[2, 3]);
        self.graph.node(&format!("{name}/image"), "Unsqueeze", &[&name, &axes], Vec::new())
    }

    /// The value as a plain vector, pixel by pixel as the engine has it.
    fn in_our_order(&mut self, id: NodeId, shape: Shape) -> String {
        let Value { name, flat } = self.values[id.0].clone();
        if flat || shape.height * shape.width == 1 {
            return self.flat(id);
        }
        let order = vec![Attribute::ints("perm", &[0, 2, 3, 1])];
        let pixels = self.graph.node(&format!("{name}/pixels"), "Transpose", &[&name], order);
        self.graph.node(&format!("{name}/flat"), "Flatten", &[&pixels], Vec::new())
    }
}

fn sliding(window: Window) -> Vec<Attribute> {
    let of = |pair: [usize; 2]| pair.map(|n| n as i64);
    let [top, left] = of(window.padding);
    vec![
        Attribute::ints("kernel_shape", &of(window.size)),
        Attribute::ints("strides", &of(window.stride)),
        Attribute::ints("pads", &[top, left, top, left]),
    ]
}
