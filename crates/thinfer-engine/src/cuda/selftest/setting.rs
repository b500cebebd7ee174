//! What both devices get: weights, statistics and a batch, and the same on the device.

use cudarc::driver::CudaSlice;

use super::steady;
use crate::cuda::Precision;
use crate::cuda::context::Gpu;
use crate::cuda::plan::{CudaPlan, DeviceIo};
use crate::error::EngineError;
use crate::mixture::Draw;
use crate::network::Network;
use crate::noise::{Key, Stream};
use crate::ops::loss::Loss;
use crate::param::Role;

/// Rounds to bf16, to the nearest and ties to even, as the GPU does.
fn round_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Values as they lie on the device in a precision.
pub(in crate::cuda) fn encode(values: &[f32], precision: Precision) -> Vec<u8> {
    match precision {
        Precision::Bf16 => values.iter().flat_map(|v| round_bf16(*v).to_le_bytes()).collect(),
        Precision::Tf32 | Precision::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// What both devices get.
#[derive(Clone)]
pub(in crate::cuda) struct Setting {
    pub(super) weights: Vec<f32>,
    pub(super) stats: Vec<f32>,
    pub(super) inputs: Vec<f32>,
    pub(super) targets: Vec<f32>,
}

/// Which values a network gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum Manner {
    /// Of the usual size and law.
    Usual,
    /// Chosen so that rounding hardly moves anything over a kink.
    Steady,
}

impl Setting {
    /// Random weights of the usual size and random data; what bf16 would round is rounded for
    /// both, so that only the arithmetic differs.
    pub(in crate::cuda) fn new(
        network: &Network,
        batch: usize,
        precision: Precision,
        manner: Manner,
    ) -> Self {
        let random = |n: usize, seed: u64| {
            let mut values = vec![0.0; n];
            Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
            values
        };
        let mut weights = random(network.params().len(), 1);
        for param in network.params() {
            let (base, scale) = match param.role {
                Role::ConvWeight | Role::LinearWeight => {
                    (0.0, (2.0 / param.fan_in() as f32).sqrt())
                }
                Role::NormScale => (1.0, 0.2),
                _ => (0.0, 0.2),
            };
            for value in &mut weights[param.range()] {
                *value = base + scale * *value;
            }
            if param.role == Role::RandomScale {
                // Locations near one, and pre-scales that softplus makes a third.
                for pair in weights[param.range()].chunks_exact_mut(2) {
                    (pair[0], pair[1]) = (1.0 + pair[0], pair[1] - 1.0);
                }
            }
        }
        let mut inputs = random(batch * network.input_len(), 3);
        if manner == Manner::Steady {
            steady::settle(network, &mut weights);
            steady::levels(network, &mut inputs);
        }
        if precision == Precision::Bf16 {
            let round = |value: &mut f32| *value = widen_bf16(round_bf16(*value));
            inputs.iter_mut().for_each(round);
            for param in network.params().iter().filter(|param| param.role.is_weight()) {
                weights[param.range()].iter_mut().for_each(round);
            }
        }
        let mut stats = random(network.stats().len(), 2);
        for param in network.stats() {
            for value in &mut stats[param.range()] {
                *value = if param.role == Role::RunningVariance {
                    1.0 + 0.2 * value.abs()
                } else {
                    0.2 * *value
                };
            }
        }
        let outputs = network.output_len();
        let noise = random(batch * outputs, 4);
        let targets = (0..batch * network.loss().target_len(outputs))
            .map(|i| {
                let number = match network.loss() {
                    // Few classes, or what all rows together say about biases would cancel.
                    Loss::CrossEntropy { .. } if manner == Manner::Steady => i % 3,
                    Loss::CrossEntropy { .. } => i * 7,
                    _ => i,
                };
                network.loss().some_target(outputs, number, noise[i])
            })
            .collect();
        Self { weights, stats, inputs, targets }
    }

    /// The same with every example once for each member, as a plan for a GPU reads it.
    pub(super) fn repeated(&self, network: &Network) -> Self {
        let repeat = |values: &[f32], width: usize| -> Vec<f32> {
            values.chunks_exact(width).flat_map(|row| row.repeat(network.repeats())).collect()
        };
        let width = network.loss().target_len(network.output_len());
        Self {
            weights: self.weights.clone(),
            stats: self.stats.clone(),
            inputs: repeat(&self.inputs, network.input_len()),
            targets: repeat(&self.targets, width),
        }
    }

    /// The batch as the plan wants it, with padded channels.
    fn batch(&self, network: &Network, channels: usize, precision: Precision) -> Vec<u8> {
        let own = network.nodes()[0].shape.channels;
        if own == channels {
            return encode(&self.inputs, precision);
        }
        let mut padded = Vec::with_capacity(self.inputs.len() / own * channels);
        for pixel in self.inputs.chunks_exact(own) {
            padded.extend_from_slice(pixel);
            padded.resize(padded.len() + channels - own, 0.0);
        }
        encode(&padded, precision)
    }

    fn targets(&self, network: &Network) -> Vec<u8> {
        let classes = matches!(network.loss(), Loss::CrossEntropy { .. });
        let bytes = |v: &f32| if classes { (*v as i32).to_le_bytes() } else { v.to_le_bytes() };
        self.targets.iter().flat_map(bytes).collect()
    }
}

/// A setting on the device.
pub(in crate::cuda) struct Buffers {
    input: CudaSlice<u8>,
    targets: CudaSlice<u8>,
    weights: CudaSlice<f32>,
    low: CudaSlice<u8>,
    pub(super) stats: CudaSlice<f32>,
    pub(super) gradient: CudaSlice<f32>,
    pub(super) tally: CudaSlice<f64>,
    pub(super) noise: CudaSlice<u32>,
}

impl Setting {
    pub(in crate::cuda) fn upload(
        &self,
        gpu: &Gpu,
        network: &Network,
        plan: &CudaPlan,
    ) -> Result<Buffers, EngineError> {
        let batch = self.batch(network, plan.input_channels(), plan.options().precision);
        Ok(Buffers {
            input: gpu.upload(&batch)?,
            targets: gpu.upload(&self.targets(network))?,
            weights: gpu.upload(&self.weights)?,
            low: gpu.upload(&encode(&self.weights, Precision::Bf16))?,
            stats: gpu.upload(if self.stats.is_empty() { &[0.0] } else { &self.stats[..] })?,
            // Poisoned, so that an element which is not written shows.
            gradient: gpu.upload(&vec![f32::NAN; network.params().len()])?,
            tally: gpu.zeros(4)?,
            noise: gpu.upload(&training_draw().kernel_words())?,
        })
    }
}

impl Buffers {
    pub(in crate::cuda) fn io(&self, gpu: &Gpu) -> DeviceIo {
        DeviceIo {
            input: gpu.address(&self.input),
            targets: gpu.address(&self.targets),
            weights: gpu.address(&self.weights),
            low: gpu.address(&self.low),
            stats: gpu.address(&self.stats),
            gradient: gpu.address(&self.gradient),
            tally: gpu.address(&self.tally),
            losses: 0,
            step: 0,
            noise: gpu.address(&self.noise),
        }
    }
}

/// What makes the random scales of training and of inference.
pub(super) fn training_draw() -> Draw {
    Draw::of_step(5, 1, (1 << 32) + 7)
}

pub(super) fn predicted() -> Draw {
    Draw { member: 1, first_row: 3, ..Draw::of_step(6, 0, 2) }
}
