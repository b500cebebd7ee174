//! How large an image network is and how much of it a mask leaves.

use serde::Serialize;
use thinfer_data::Result;
use thinfer_engine::{Family, Network, NodeId, Param};

use super::reach::{Channels, Kernels};
use super::{Layout, shrink};
use crate::metrics::Sparsity;

/// A quantity of the whole network and of what is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Of the whole network.
    pub whole: usize,
    /// Of the kernels, one for each pair of channels, that are not all masked: what a program that
    /// skips single kernels has to do.
    pub kernels: usize,
    /// Of the smaller dense network without dead channels that `thinfer shrink` writes: what every
    /// program has to do.
    pub channels: usize,
}

/// One layer of weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerSize {
    /// Its name.
    pub name: String,
    /// Input channels that carry something and that some kept weight reads; of a linear layer,
    /// inputs.
    pub live_inputs: usize,
    /// All input channels.
    pub inputs: usize,
    /// Output channels that the smaller network computes: something reads them, and a kernel, a
    /// bias or the shift of a norm fills them.
    pub live_outputs: usize,
    /// All output channels.
    pub outputs: usize,
    /// Weights that are not masked.
    pub kept: usize,
    /// All weights.
    pub weights: usize,
    /// Multiply-adds an image.
    pub multiply_adds: Amounts,
}

/// The size of a network under a mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageSize {
    /// All parameters.
    pub parameters: usize,
    /// Parameters that are not masked.
    pub kept: usize,
    /// Masked share of all parameters: biases, norms and the classifier count, as Ke & Fan do it.
    pub sparsity: Sparsity,
    /// Masked share of the weights of convolutions and linear layers, as most others do it.
    pub weight_sparsity: Sparsity,
    /// Multiply-adds an image.
    pub multiply_adds: Amounts,
    /// Bytes of parameters and running statistics, four a number.
    pub bytes: Amounts,
    /// Layers of weights, from input to output.
    pub layers: Vec<LayerSize>,
}

impl ImageSize {
    /// Says where nothing is left of a layer: only pruning that works on channels sees to it that
    /// the network stays connected.
    pub fn emptied(&self) -> Option<String> {
        let empty = self.layers.iter().filter(|layer| layer.kept == 0);
        let names: Vec<&str> = empty.map(|layer| layer.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "nothing is left of {}, through which nothing goes any more; lower `prune.target`, or name it in `prune.dense_layers` where the method has that",
                names.join(", ")
            )
        })
    }
}

/// The size of `network` where the parameters with `keep` = 0 are zero. What dead channels leave is
/// measured on the smaller network itself, so that it is what a file of it holds.
///
/// A channel is dead when it is always zero or when nothing reads it. It is always zero when its
/// kernels from channels that are not are masked and no bias or norm fills it again, so a pruned
/// channel that keeps its norm shift is not dead. Nothing reads it when all kernels that would are
/// masked or lead only to channels that nothing reads; in a residual network every block counts.
pub fn image_size(network: &Network, keep: &[u8]) -> Result<ImageSize> {
    let small = shrink(network, keep, Layout::SMALLEST)?;
    let channels = Channels::of(network, keep);
    let mut layers = Vec::new();
    let mut numbers = 0;
    for (at, node) in network.nodes().iter().enumerate() {
        match node.op.family() {
            Family::Weights { weight, bias, .. } => {
                let weight = &network.params()[weight];
                let mut layer = channels.layer(network, NodeId(at), weight, keep);
                numbers += layer.multiply_adds.kernels / (node.shape.height * node.shape.width);
                let left = small.became(NodeId(at)).map(|id| small.network.node_multiply_adds(id));
                layer.multiply_adds.channels = left.unwrap_or(0);
                layer.live_outputs = left.map_or(0, |_| small.channels(NodeId(at)).len());
                layers.push(layer);
                if let Some(bias) = bias {
                    let marks = &keep[network.params()[bias].range()];
                    let read = &channels.read[at];
                    let biases = marks.iter().zip(read).filter(|(k, read)| **k != 0 && **read);
                    numbers += biases.count();
                }
            }
            Family::Norm { .. } => {
                // Scale, shift, running mean and running variance.
                numbers += 4 * (0..node.shape.channels).filter(|&c| channels.lives(at, c)).count();
            }
            Family::Scales { posterior, bias, .. } => {
                // Locations, pre-scales and biases of all members; none is ever pruned.
                let params = network.params();
                let own = params[posterior].len() + bias.map_or(0, |bias| params[bias].len());
                numbers += own;
            }
            Family::Input | Family::Pool(_) | Family::Curve(_) | Family::Sum | Family::List(..) => {
            }
        }
    }
    let (parameters, stats) = (keep.len(), network.stats().len());
    let kept = kept(keep);
    let (weights, kept_weights) =
        layers.iter().fold((0, 0), |(all, kept), l| (all + l.weights, kept + l.kept));
    let total = |of: fn(&Amounts) -> usize| layers.iter().map(|l| of(&l.multiply_adds)).sum();
    let left = small.network.params().len() + small.network.stats().len();
    Ok(ImageSize {
        parameters,
        kept,
        sparsity: Sparsity::of_counts(parameters - kept, parameters),
        weight_sparsity: Sparsity::of_counts(weights - kept_weights, weights),
        multiply_adds: Amounts {
            whole: total(|a| a.whole),
            kernels: total(|a| a.kernels),
            channels: total(|a| a.channels),
        },
        bytes: Amounts {
            whole: 4 * (parameters + stats),
            kernels: 4 * numbers,
            channels: 4 * left,
        },
        layers,
    })
}

fn kept(marks: &[u8]) -> usize {
    marks.iter().filter(|mark| **mark != 0).count()
}

impl Channels {
    fn lives(&self, node: usize, channel: usize) -> bool {
        self.read[node][channel] && !self.zero[node][channel]
    }

    /// All but what the smaller network has.
    fn layer(&self, network: &Network, id: NodeId, weight: &Param, keep: &[u8]) -> LayerSize {
        let node = &network.nodes()[id.0];
        let kernels = Kernels::of(weight, keep);
        let (source, read) = (&self.zero[node.inputs[0].0], &self.read[id.0]);
        let mut live_inputs = vec![false; kernels.inputs];
        let mut live_kernels = 0;
        for row in kernels.rows().zip(read).filter(|(_, read)| **read).map(|r| r.0) {
            for (input, kept) in row.iter().enumerate() {
                if *kept && !source[input % source.len()] {
                    live_inputs[input] = true;
                    live_kernels += 1;
                }
            }
        }
        let live_inputs = live_inputs.iter().filter(|live| **live).count();
        let outputs = weight.shape[0];
        let window = weight.len() / (outputs * kernels.inputs).max(1);
        let work = window * node.shape.height * node.shape.width;
        LayerSize {
            name: node.name.clone(),
            live_inputs,
            inputs: kernels.inputs,
            live_outputs: 0,
            outputs,
            kept: kept(&keep[weight.range()]),
            weights: weight.len(),
            multiply_adds: Amounts {
                whole: work * outputs * kernels.inputs,
                kernels: work * live_kernels,
                channels: 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image_network;
    use crate::weights::{Weights, tensors};
    use safetensors::Dtype;
    use thinfer_engine::noise::{Key, Stream};
    use thinfer_engine::{Loss, NetworkBuilder, Shape, Window};

    /// Two convolutions with norms and an identity around the second: 2 -> 3 -> 3 channels on 4x4.
    fn residual() -> Network {
        let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 2 });
        let h = b.conv2d("conv1", b.input(), 3, Window::square(3, 1, 1)).unwrap();
        let h = b.batch_norm("bn1", h).unwrap();
        let h = b.relu(h).unwrap();
        let r = b.conv2d("conv2", h, 3, Window::square(3, 1, 1)).unwrap();
        let r = b.batch_norm("bn2", r).unwrap();
        let h = b.add(h, r).unwrap();
        let h = b.relu(h).unwrap();
        let h = b.global_average_pool(h).unwrap();
        let out = b.linear("fc", h, 2).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    /// Masks elements of a parameter: all whose output (axis 0) or input (last axis) is `channel`.
    fn mask(
        network: &Network,
        keep: &mut [u8],
        name: &str,
        output: Option<usize>,
        input: Option<usize>,
    ) {
        let param = network.params().find(name).unwrap();
        let inputs = *param.shape.last().unwrap();
        for (at, mark) in keep[param.range()].iter_mut().enumerate() {
            let matches = |wanted: Option<usize>, found: usize| wanted.is_none_or(|w| w == found);
            if matches(output, at / param.fan_in().max(1)) && matches(input, at % inputs) {
                *mark = 0;
            }
        }
    }

    #[test]
    fn a_whole_network_is_whole() {
        for (name, input) in [
            ("resnet18-cifar", Shape { height: 32, width: 32, channels: 3 }),
            ("wrn-10-1", Shape { height: 32, width: 32, channels: 3 }),
            ("lenet", Shape { height: 28, width: 28, channels: 1 }),
        ] {
            let network = image_network(name, input, 10).unwrap();
            let size = image_size(&network, &vec![1; network.params().len()]).unwrap();
            assert_eq!((size.sparsity.value(), size.weight_sparsity.value()), (0.0, 0.0));
            let macs = network.multiply_adds();
            let all = Amounts { whole: macs, kernels: macs, channels: macs };
            assert_eq!(size.multiply_adds, all, "{name}");
            let bytes = 4 * (network.params().len() + network.stats().len());
            assert_eq!(size.bytes, Amounts { whole: bytes, kernels: bytes, channels: bytes });
            assert!(
                size.layers
                    .iter()
                    .all(|l| l.live_inputs == l.inputs && l.live_outputs == l.outputs)
            );
        }
    }

    /// Channel 1 of the stream: its row of `conv1` with norm, its row of `conv2` with norm.
    #[test]
    fn a_residual_channel_dies_when_every_block_agrees() {
        let network = residual();
        let mut keep = vec![1; network.params().len()];
        mask(&network, &mut keep, "conv1.weight", Some(1), None);
        for name in ["bn1.weight", "bn1.bias"] {
            mask(&network, &mut keep, name, Some(1), None);
        }
        let half = image_size(&network, &keep).unwrap();
        let live = |size: &ImageSize| -> Vec<[usize; 2]> {
            size.layers.iter().map(|l| [l.live_inputs, l.live_outputs]).collect()
        };
        // conv2 reads two channels of the stream, but still writes all three.
        assert_eq!(live(&half), [[2, 2], [2, 3], [3, 2]]);
        mask(&network, &mut keep, "conv2.weight", Some(1), None);
        for name in ["bn2.weight", "bn2.bias"] {
            mask(&network, &mut keep, name, Some(1), None);
        }
        let whole = image_size(&network, &keep).unwrap();
        assert_eq!(live(&whole), [[2, 2], [2, 2], [2, 2]]);
        assert_eq!(whole.multiply_adds.channels, 16 * 9 * (4 + 4) + 4);
        // Weights, then the classifier's biases, then four numbers of two channels in two norms.
        assert_eq!(whole.bytes.channels, 4 * (9 * (4 + 4) + 4 + 2 + 16));
        assert_eq!(whole.kept, network.params().len() - 18 - 27 - 4);
    }

    #[test]
    fn a_layer_of_which_nothing_is_left_is_named() {
        let network = residual();
        let mut keep = vec![1; network.params().len()];
        assert_eq!(image_size(&network, &keep).unwrap().emptied(), None);
        let weight = network.params().find("conv2.weight").unwrap().range();
        keep[weight.clone()].fill(0);
        let said = image_size(&network, &keep).unwrap().emptied().unwrap();
        assert!(said.starts_with("nothing is left of conv2,"), "{said}");
        keep[weight.start] = 1;
        assert_eq!(image_size(&network, &keep).unwrap().emptied(), None);
    }

    #[test]
    fn a_norm_that_stays_keeps_its_channel_alive() {
        let network = residual();
        let mut keep = vec![1; network.params().len()];
        mask(&network, &mut keep, "conv1.weight", Some(1), None);
        let size = image_size(&network, &keep).unwrap();
        assert_eq!([size.layers[0].live_outputs, size.layers[1].live_inputs], [3, 3]);
    }

    #[test]
    fn what_nothing_reads_is_dead_upstream() {
        let network = residual();
        let mut keep = vec![1; network.params().len()];
        mask(&network, &mut keep, "conv2.weight", None, Some(2));
        // The identity still reads channel 2.
        assert_eq!(image_size(&network, &keep).unwrap().layers[0].live_outputs, 3);
        mask(&network, &mut keep, "fc.weight", None, Some(2));
        let size = image_size(&network, &keep).unwrap();
        let live: Vec<[usize; 2]> =
            size.layers.iter().map(|l| [l.live_inputs, l.live_outputs]).collect();
        assert_eq!(live, [[2, 2], [2, 2], [2, 2]]);
    }

    #[test]
    fn single_kernels_count_apart_from_channels() {
        let network = residual();
        let mut keep = vec![1; network.params().len()];
        mask(&network, &mut keep, "conv2.weight", Some(0), Some(1));
        let size = image_size(&network, &keep).unwrap();
        assert_eq!(size.multiply_adds.channels, network.multiply_adds());
        assert_eq!(size.multiply_adds.kernels, network.multiply_adds() - 16 * 9);
        // Half a kernel is a kernel.
        let start = network.params().find("conv2.weight").unwrap().offset;
        keep[start + 1] = 1;
        assert_eq!(
            image_size(&network, &keep).unwrap().multiply_adds.kernels,
            network.multiply_adds()
        );
        assert_eq!(image_size(&network, &keep).unwrap().kept, network.params().len() - 8);
    }

    /// LeNet flattens 5x5x16: a channel of `conv2` is read through 25 inputs of `fc1`.
    #[test]
    fn flattened_channels_are_followed() {
        let network =
            image_network("lenet", Shape { height: 28, width: 28, channels: 1 }, 10).unwrap();
        let mut keep = vec![1; network.params().len()];
        mask(&network, &mut keep, "conv2.weight", Some(3), None);
        mask(&network, &mut keep, "conv2.bias", Some(3), None);
        let size = image_size(&network, &keep).unwrap();
        assert_eq!([size.layers[1].live_outputs, size.layers[2].live_inputs], [15, 375]);
    }

    /// The smaller network still has a layer that gives the classes, with one input.
    #[test]
    fn next_to_nothing_is_left_of_nothing() {
        let network = residual();
        let size = image_size(&network, &vec![0; network.params().len()]).unwrap();
        assert_eq!(size.sparsity.value(), 1.0);
        assert_eq!((size.multiply_adds.kernels, size.bytes.kernels), (0, 0));
        let small = shrink(&network, &vec![0; network.params().len()], Layout::SMALLEST).unwrap();
        assert_eq!(size.multiply_adds.channels, small.network.multiply_adds());
        assert!(size.multiply_adds.channels < network.multiply_adds() / 5);
    }

    /// Single inputs of a flattened picture, a channel that a bias keeps, an output that nothing
    /// feeds: the numbers of the report are those of the file.
    #[test]
    fn the_size_is_that_of_the_file() {
        let shape = Shape { height: 28, width: 28, channels: 1 };
        for name in ["lenet", "convnet", "wrn-10-1"] {
            let network = image_network(name, shape, 10).unwrap();
            for seed in 0..4 {
                let key = Key::new(seed, 0, Stream::Initial);
                let mut keep = vec![1; network.params().len()];
                for (number, param) in network.params().iter().enumerate() {
                    let (row, inputs) = (param.fan_in().max(1), *param.shape.last().unwrap());
                    for (at, mark) in keep[param.range()].iter_mut().enumerate() {
                        let gone = |of: usize, place: usize| {
                            key.below(2 * number as u64 + of as u64, place, 10) < 4
                        };
                        let weight = param.role.is_weight() && gone(0, at % inputs);
                        *mark = u8::from(!(weight || gone(1, at / row)));
                    }
                }
                let size = image_size(&network, &keep).unwrap();
                let small = shrink(&network, &keep, Layout::SMALLEST).unwrap();
                let weights = Weights {
                    params: vec![0.5; small.network.params().len()],
                    stats: vec![0.5; small.network.stats().len()],
                };
                let tensors = tensors(&small.network, &weights).unwrap();
                // Besides them PyTorch has a counter of steps for each norm.
                let floats = tensors.iter().filter(|tensor| tensor.1 == Dtype::F32);
                let bytes: usize = floats.map(|tensor| tensor.3.len()).sum();
                assert_eq!(size.bytes.channels, bytes, "{name}");
                assert_eq!(size.multiply_adds.channels, small.network.multiply_adds(), "{name}");
            }
        }
    }
}
