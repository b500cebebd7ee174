//! The same networks on the CPU and on a GPU: outputs, losses, gradients and running statistics.

use std::sync::Arc;

use cudarc::driver::CudaSlice;

use super::Precision;
use super::context::Gpu;
use super::lower::PlanOptions;
use super::networks::{Case, cases};
use super::plan::{CudaPlan, DeviceIo};
use crate::arena::Arena;
use crate::dataset::Dataset;
use crate::error::EngineError;
use crate::mixture::Draw;
use crate::network::{Network, Op};
use crate::noise::{Key, Stream};
use crate::ops::loss::Loss;
use crate::param::{Param, Role};
use crate::plan::Plan;

/// One line of the self test.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// In which arithmetic.
    pub precision: Precision,
    /// The largest difference, as a part of the largest value of the same tensor.
    pub worst: f64,
    /// What is allowed.
    pub limit: f64,
    /// Whether `worst` is within `limit`.
    pub passed: bool,
}

/// f32: what different orders of summation give. tf32 rounds operands to 11 bits (5e-4) and bf16
/// everything between layers to 8 bits (4e-3), and a handful of layers stand behind one another.
fn limit(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-4,
        Precision::Tf32 => 5e-3,
        Precision::Bf16 => 2e-2,
    }
}

/// Gradients of a network with kinks may differ by this many times what rounding noise on its weights
/// and inputs does to them on the CPU alone.
///
/// A value that rounding moves over the kink of a ReLU, or past its neighbour in a maximum, moves
/// its whole gradient, so no fixed limit is right for all networks. The GPU rounds after every layer,
/// the measured noise is that of the first: hence a factor.
const ROUNDINGS: f64 = 3.0;

/// Compares every operation and whole networks with the CPU, in every precision.
pub fn selftest(gpu: &Arc<Gpu>) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        for case in cases()? {
            checks.extend(compare(gpu, &case, precision)?);
        }
    }
    Ok(checks)
}

/// Rounds to bf16, to the nearest and ties to even, as the GPU does.
fn round_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Values as they lie on the device in a precision.
pub(super) fn encode(values: &[f32], precision: Precision) -> Vec<u8> {
    match precision {
        Precision::Bf16 => values.iter().flat_map(|v| round_bf16(*v).to_le_bytes()).collect(),
        Precision::Tf32 | Precision::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// What both devices get.
pub(super) struct Setting {
    weights: Vec<f32>,
    stats: Vec<f32>,
    inputs: Vec<f32>,
    targets: Vec<f32>,
}

impl Setting {
    /// Random weights of the usual size and random data; what bf16 would round is rounded for
    /// both, so that only the arithmetic differs.
    pub(super) fn new(network: &Network, batch: usize, precision: Precision) -> Self {
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
                if precision == Precision::Bf16 && param.role.is_weight() {
                    *value = widen_bf16(round_bf16(*value));
                }
            }
            if param.role == Role::RandomScale {
                // Locations near one, and pre-scales that softplus makes a third.
                for pair in weights[param.range()].chunks_exact_mut(2) {
                    (pair[0], pair[1]) = (1.0 + pair[0], pair[1] - 1.0);
                }
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
        let mut inputs = random(batch * network.input_len(), 3);
        if precision == Precision::Bf16 {
            inputs.iter_mut().for_each(|v| *v = widen_bf16(round_bf16(*v)));
        }
        let outputs = network.output_len();
        let noise = random(batch * outputs, 4);
        let targets = (0..batch * network.loss().target_len(outputs))
            .map(|i| match network.loss() {
                Loss::Gaussian { .. } => noise[i],
                Loss::Bernoulli => (i % 2) as f32,
                Loss::CrossEntropy { .. } => (i * 7 % outputs) as f32,
            })
            .collect();
        Self { weights, stats, inputs, targets }
    }

    /// The same with every example once for each member, as a plan for a GPU reads it.
    fn repeated(&self, network: &Network) -> Self {
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
pub(super) struct Buffers {
    input: CudaSlice<u8>,
    targets: CudaSlice<u8>,
    weights: CudaSlice<f32>,
    low: CudaSlice<u8>,
    stats: CudaSlice<f32>,
    gradient: CudaSlice<f32>,
    tally: CudaSlice<f64>,
    noise: CudaSlice<u32>,
}

impl Setting {
    pub(super) fn upload(
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
    pub(super) fn io(&self, gpu: &Gpu) -> DeviceIo {
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
fn training_draw() -> Draw {
    Draw::of_step(5, 1, (1 << 32) + 7)
}

fn predicted() -> Draw {
    Draw { member: 1, first_row: 3, ..Draw::of_step(6, 0, 2) }
}

/// What a device made of a setting.
struct Outcome {
    loss: f64,
    gradient: Vec<f32>,
    stats: Vec<f32>,
    inference: Vec<f32>,
}

fn on_cpu(network: &Network, setting: &Setting, batch: usize) -> Result<Outcome, EngineError> {
    let width = network.loss().target_len(network.output_len());
    let data = |setting: &Setting| {
        let (inputs, targets) = (setting.inputs.clone(), setting.targets.clone());
        Dataset::new(network.input_len(), width, inputs, targets)
    };
    let (data, all) = (data(setting)?, data(&setting.repeated(network))?);
    let mut arena = Arena::new(network, 0);
    arena.set_weights(&setting.weights)?;
    arena.set_stats(&setting.stats)?;
    let mut plan = Plan::new(network, batch)?;
    let mut inference = vec![0.0; all.rows() * network.output_len()];
    plan.set_draw(predicted());
    plan.forward(&setting.weights, &setting.stats, &all, 0..all.rows(), &mut inference)?;
    plan.set_draw(training_draw());
    let rows: Vec<u32> = (0..batch as u32).collect();
    let loss = plan.gradient(&mut arena, &data, &rows)?;
    let (gradient, stats) = (arena.gradient().to_vec(), arena.stats().to_vec());
    Ok(Outcome { loss, gradient, stats, inference })
}

/// Runs twice; the second time must give the same bits.
fn on_gpu(
    gpu: &Arc<Gpu>,
    network: &Network,
    setting: &Setting,
    options: PlanOptions,
) -> Result<(Outcome, bool), EngineError> {
    let options = PlanOptions { batch: options.batch * network.repeats(), ..options };
    let mut plan = CudaPlan::new(gpu, network, options)?;
    let mut buffers = setting.repeated(network).upload(gpu, network, &plan)?;
    let io = buffers.io(gpu);
    gpu.write(&mut buffers.noise, &predicted().kernel_words())?;
    plan.forward(&io)?;
    let inference = plan.read_output()?;
    gpu.write(&mut buffers.noise, &training_draw().kernel_words())?;
    plan.forward_backward(&io)?;
    let first = gpu.download(&buffers.gradient)?;
    let loss = gpu.download(&buffers.tally)?[0];
    let mut after = gpu.download(&buffers.stats)?;
    after.truncate(setting.stats.len());
    plan.forward_backward(&io)?;
    let second = gpu.download(&buffers.gradient)?;
    let same = first.iter().zip(&second).all(|(a, b)| a.to_bits() == b.to_bits());
    Ok((Outcome { loss, gradient: first, stats: after, inference }, same))
}

/// The largest difference as a part of the largest value, or of `floor` where that is larger.
fn worst(got: &[f32], expected: &[f32], floor: f64) -> f64 {
    let largest = expected.iter().fold(floor, |m, v| m.max(f64::from(v.abs())));
    let difference = |(a, b): (&f32, &f32)| {
        let d = f64::from((a - b).abs());
        if d.is_finite() { d } else { f64::INFINITY }
    };
    got.iter().zip(expected).map(difference).fold(0.0, f64::max) / largest.max(f64::MIN_POSITIVE)
}

/// The norm of the difference as a part of the norm, or of that of a constant `floor`.
fn distance(got: &[f32], expected: &[f32], floor: f64) -> f64 {
    let (mut apart, mut norm) = (0.0, 0.0);
    for (a, b) in got.iter().zip(expected) {
        apart += f64::from(a - b).powi(2);
        norm += f64::from(*b).powi(2);
    }
    let ratio = (apart / f64::max(norm, floor * floor * got.len() as f64)).sqrt();
    if ratio.is_finite() { ratio } else { f64::INFINITY }
}

/// How far rounding noise moves the gradient on the CPU: the worst tensor of some draws.
fn sensitivity(
    case: &Case,
    setting: &Setting,
    precision: Precision,
    expected: &Outcome,
) -> Result<f64, EngineError> {
    // Half a unit in the last place of bf16, and of tf32.
    let size = if precision == Precision::Bf16 { 2f32.powi(-9) } else { 2f32.powi(-12) };
    let network = &case.network;
    let floor = gradient_floor(expected);
    let mut most: f64 = 0.0;
    for draw in 0..4 {
        let noisy = |values: &[f32], seed: u64| -> Vec<f32> {
            let mut noise = vec![0.0; values.len()];
            Key::new(seed, 0, Stream::Observation).normals(draw, 0, &mut noise);
            values.iter().zip(noise).map(|(value, noise)| value * (1.0 + size * noise)).collect()
        };
        let setting = Setting {
            weights: noisy(&setting.weights, 5),
            stats: setting.stats.clone(),
            inputs: noisy(&setting.inputs, 6),
            targets: setting.targets.clone(),
        };
        let moved = on_cpu(network, &setting, case.batch)?;
        for (_, param) in trained(network) {
            let range = param.range();
            let (a, b) = (&moved.gradient[range.clone()], &expected.gradient[range]);
            most = most.max(distance(a, b, floor));
        }
    }
    Ok(most)
}

/// A bias in front of a batch norm has no gradient but rounding, so a tensor is measured against a
/// part of the largest gradient at least.
fn gradient_floor(expected: &Outcome) -> f64 {
    1e-2 * expected.gradient.iter().fold(0.0, |m: f64, v| m.max(f64::from(v.abs())))
}

/// The parameters whose gradient means something, with their numbers.
fn trained(network: &Network) -> impl Iterator<Item = (usize, &Param)> {
    network.params().iter().enumerate().filter(|(number, _)| network.trains(*number))
}

fn compare(gpu: &Arc<Gpu>, case: &Case, precision: Precision) -> Result<Vec<Check>, EngineError> {
    let Case { name, network, batch } = case;
    let setting = Setting::new(network, *batch, precision);
    let expected = on_cpu(network, &setting, *batch)?;
    let deterministic = true;
    let options =
        PlanOptions { batch: *batch, precision, deterministic, training: true, hasty: false };
    let (got, same) = on_gpu(gpu, network, &setting, options)?;
    let limit = limit(precision);
    let check = |what: &str, worst: f64, limit: f64| Check {
        name: format!("{name}: {what}"),
        precision,
        worst,
        limit,
        passed: worst <= limit,
    };
    let loss = (got.loss - expected.loss).abs() / expected.loss.abs().max(1e-3);
    let mut checks = vec![
        check("inference", worst(&got.inference, &expected.inference, 0.0), limit),
        check("loss", if loss.is_finite() { loss } else { f64::INFINITY }, limit),
    ];
    let kinks = network.nodes().iter().any(|n| matches!(n.op, Op::Relu | Op::MaxPool { .. }));
    let kinks = kinks && precision != Precision::F32;
    let gradient_limit = if kinks {
        limit.max(ROUNDINGS * sensitivity(case, &setting, precision, &expected)?)
    } else {
        limit
    };
    let measure = if kinks { distance } else { worst };
    let (gradient_floor, mut most) = (gradient_floor(&expected), (0.0, ""));
    for (_, param) in trained(network) {
        let (got, expected) = (&got.gradient[param.range()], &expected.gradient[param.range()]);
        let w = measure(got, expected, gradient_floor);
        if w >= most.0 {
            most = (w, &param.name);
        }
    }
    checks.push(check(&format!("gradient (worst {})", most.1), most.0, gradient_limit));
    if !setting.stats.is_empty() {
        checks.push(check("running statistics", worst(&got.stats, &expected.stats, 0.0), limit));
    }
    checks.push(check("same bits twice", f64::from(u8::from(!same)), 0.0));
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why networks with kinks need a limit of their own.
    #[test]
    fn rounding_moves_gradients_of_networks_with_kinks_much_further() {
        let moved = |name: &str| {
            let case = cases().unwrap().into_iter().find(|case| case.name == name).unwrap();
            let setting = Setting::new(&case.network, case.batch, Precision::Bf16);
            let expected = on_cpu(&case.network, &setting, case.batch).unwrap();
            sensitivity(&case, &setting, Precision::Bf16, &expected).unwrap()
        };
        assert!(moved("smooth residual network") < 0.02);
        assert!(moved("residual network") > 0.1);
        assert!(moved("lenet") > 0.1);
    }
}
