//! How long one training step takes, in parts, and how that compares with what the device can do.

mod memory;
mod updates;

use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::Serialize;
use thinfer_core::device::Device;
use thinfer_core::methods::sghmc::{NoiseRule, RhoRule, Sghmc, SghmcMethod};
use thinfer_core::methods::{Method, Rates, Tick, initialize};
use thinfer_core::model::{image_network, name_problem};
use thinfer_data::memory::available_memory;
use thinfer_data::{Error, Result};
use thinfer_engine::augment::Augment;
use thinfer_engine::cuda::{
    self, Gpu, MemoryPlan, PlanOptions, Precision, Session, Source, StepCalls,
};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, Loss, Network, NetworkBuilder, NodeId, Plan, Shape};

use crate::machine::Cpu;
pub use updates::{Update, Updates, updates};

/// What is to be timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// A name that [`image_network`] knows.
    pub model: String,
    /// Images a step.
    pub batch: usize,
    /// The arithmetic on a GPU; the CPU computes in f32.
    pub precision: Precision,
    /// Whether the same run must give the same bits on a GPU; on the CPU it always does.
    pub deterministic: bool,
}

/// Milliseconds of one step; a part that was not measured by itself is missing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Milliseconds {
    /// Gathering, cropping, mirroring and scaling the batch. The CPU does it in the forward pass.
    pub data: Option<f64>,
    /// The forward pass and the loss.
    pub forward: f64,
    /// The way back. On the CPU it is the gradient less the forward pass; where other programs kept
    /// the machine so busy that this is nothing, it was not measured.
    pub backward: Option<f64>,
    /// The method's update (Algorithm 2).
    pub update: Option<f64>,
    /// All of them.
    pub step: f64,
}

/// What the device does at best, measured beside the step, and how much of it the step uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Bytes read and written a second by a copy.
    pub copy_bytes_per_second: f64,
    /// The same of the update, as a part of it.
    pub update_of_copy: Option<f64>,
    /// Floating-point operations a second of a large product: bf16 on a GPU, f32 on the CPU.
    pub matrix_flops: f64,
    /// The same of the products of forward and backward, as a part of it.
    pub gradient_of_matrix: f64,
}

/// What a benchmark found.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// The version of the program.
    pub thinfer: &'static str,
    /// The device as the command line names it.
    pub device: String,
    /// What it is.
    pub device_name: String,
    /// Threads that computed; on a GPU none did.
    pub threads: Option<usize>,
    /// The network.
    pub model: String,
    /// Height, width and channels of an image.
    pub image: [usize; 3],
    /// Its parameters.
    pub parameters: usize,
    /// Images a step.
    pub batch: usize,
    /// The arithmetic.
    pub precision: Precision,
    /// Whether the same run gives the same bits.
    pub deterministic: bool,
    /// The times.
    pub milliseconds: Milliseconds,
    /// How many times longer the gradient took in the middle than at its fastest, on the CPU: far
    /// above 1, the machine was busy with something else.
    pub slowdown: Option<f64>,
    /// Images a second.
    pub images_per_second: f64,
    /// How that compares.
    pub limits: Limits,
    /// Bytes of memory on the device.
    pub memory_bytes: usize,
    /// Where they go, on a GPU.
    pub memory: Option<MemoryPlan>,
    /// Seconds from nothing to the end of the first step; on the CPU, to its first gradient.
    pub startup_seconds: f64,
}

/// Times a step on a device.
pub fn bench(device: Device, options: &Options) -> Result<Bench> {
    let network = network_of(options)?;
    match device {
        Device::Cpu => cpu(&network, options),
        Device::Cuda(index) => on_gpu(index, &network, options),
    }
}

/// The network that is asked for, or what is wrong with its name.
fn network_of(options: &Options) -> Result<Network> {
    let name = &options.model;
    if let Some(problem) = name_problem(name, &[]) {
        return Err(Error::config("--model", format!("`{name}` {problem}")));
    }
    let (shape, classes) = usual_input(name);
    Ok(image_network(name, shape, classes)?)
}

/// The size of images and the number of classes that a network is usually trained on: MNIST,
/// ImageNet or CIFAR-10.
pub(crate) fn usual_input(model: &str) -> (Shape, usize) {
    match model {
        "lenet" => (Shape { height: 28, width: 28, channels: 1 }, 10),
        "resnet18" | "resnet34" | "resnet50" => {
            (Shape { height: 224, width: 224, channels: 3 }, 1000)
        }
        _ => (Shape { height: 32, width: 32, channels: 3 }, 10),
    }
}

/// Random images with classes in turn.
pub(crate) fn random_batch(network: &Network, rows: usize) -> Result<Dataset> {
    let mut inputs = vec![0.0; rows * network.input_len()];
    Key::new(1, 0, Stream::Inputs).normals(0, 0, &mut inputs);
    let classes = (0..rows).map(|row| (row * 7 % network.output_len()) as f32).collect();
    Ok(Dataset::new(network.input_len(), 1, inputs, classes)?)
}

/// Algorithm 2 with its usual settings.
pub(crate) fn example_method() -> SghmcMethod {
    SghmcMethod {
        config: Sghmc {
            beta1: 0.1,
            beta2: 1.0,
            weight_decay: 2e-4,
            train_rows: 50_000,
            noise: NoiseRule::Exact,
            rho: RhoRule::Exact,
            initial_momentum: 0.0,
            clip: None,
        },
        key: Key::new(1, 0, Stream::Sampler),
        batch_noise: None,
    }
}

/// Floating-point operations of the products of one step: forward, by weights, and by inputs for
/// all layers that do not read the images.
fn step_flops(network: &Network, batch: usize) -> f64 {
    let first = network.nodes().iter().filter(|node| node.inputs.contains(&NodeId(0)));
    let first: usize = first
        .map(|node| {
            let weight = node.op.weight().map_or(0, |weight| network.params()[weight].len());
            weight * node.shape.height * node.shape.width
        })
        .sum();
    2.0 * batch as f64 * (3 * network.multiply_adds() - first) as f64
}

/// Bytes that an update of Algorithm 2 reads and writes: w, v and ρ both ways, gradient and marks,
/// and the bf16 copy where there is one.
fn update_bytes(parameters: usize, precision: Precision) -> f64 {
    let copy = if precision == Precision::Bf16 { 2 } else { 0 };
    ((24 + 4 + 1 + copy) * parameters) as f64
}

fn on_gpu(index: usize, network: &Network, options: &Options) -> Result<Bench> {
    let &Options { batch, precision, deterministic, .. } = options;
    let shape = network.nodes()[0].shape;
    // One batch, which is made again and again.
    let rows = batch;
    // Its bytes, classes and places in the order lie in the memory of the machine, too.
    let an_image = (shape.len() + 8) as u64;
    let of_batch = |batch: usize| an_image.saturating_mul(batch as u64);
    memory::check(network, batch, of_batch, available_memory())?;
    let key = Key::new(1, 0, Stream::Inputs);
    let bytes: Vec<u8> = (0..rows * shape.len()).map(|i| key.below(0, i, 256) as u8).collect();
    let classes: Vec<u32> = (0..rows).map(|row| (row * 7 % network.output_len()) as u32).collect();
    let channels = vec![0.5; shape.channels];
    let augment = Augment::new(shape, shape.height / 8, true, &channels, &channels)?;
    let source = Source::Images { bytes: &bytes, classes: &classes, augment: &augment };

    let started = Instant::now();
    let gpu = Gpu::open(index)?;
    let method = example_method();
    let mut arena = Arena::new(network, method.state_buffers());
    initialize(&mut arena, network.loss(), 1, 0)?;
    method.start(&mut arena, method.key)?;
    let plan = PlanOptions { batch, precision, deterministic, training: true, hasty: false };
    let mut session = Session::new(&gpu, network, &arena, source, plan)?;
    session.push(&arena)?;
    let rates = Rates {
        step_size: 1e-6,
        step_size_before: 1e-6,
        temperature: 1e-3,
        eta: 1e-3,
        decay_factor: 1.0,
    };
    let tick = Tick { step: 0, epoch: 0, rates };
    let after = arena.record(|arena| method.update(arena, tick))?;
    let calls = StepCalls { before: Vec::new(), after };
    let order = Key::new(1, 0, Stream::Shuffle).permutation(0, rows);
    let augmenting = Key::new(1, 0, Stream::Augment).kernel_words(0);
    session.run(&order, 0, std::slice::from_ref(&calls), augmenting)?;
    let startup_seconds = started.elapsed().as_secs_f64();

    let parts = session.time_parts(&calls)?;
    let memory = session.memory_plan();
    let (copy, matrix) = (cuda::copy_bandwidth(&gpu)?, cuda::matrix_rate(&gpu)?);
    let milliseconds = Milliseconds {
        data: Some(parts.data),
        forward: parts.forward,
        backward: Some(parts.backward),
        update: Some(parts.update),
        step: parts.whole,
    };
    let gradient = parts.forward + parts.backward;
    Ok(Bench {
        device: Device::Cuda(index).to_string(),
        device_name: gpu.name().to_owned(),
        threads: None,
        deterministic,
        precision,
        limits: limits(network, batch, precision, &milliseconds, gradient, [copy, matrix]),
        memory_bytes: memory.total(),
        memory: Some(memory),
        startup_seconds,
        ..about(network, options, milliseconds)
    })
}

fn cpu(network: &Network, options: &Options) -> Result<Bench> {
    let batch = options.batch;
    let of_batch = |batch: usize| memory::cpu_batch(network, batch);
    memory::check(network, batch, of_batch, available_memory())?;

    let data = random_batch(network, batch)?;
    let rows: Vec<u32> = (0..batch as u32).collect();
    let started = Instant::now();
    let method = example_method();
    let mut arena = Arena::new(network, method.state_buffers());
    initialize(&mut arena, network.loss(), 1, 0)?;
    method.start(&mut arena, method.key)?;
    let mut plan = Plan::new(network, batch)?;
    plan.gradient(&mut arena, &data, &rows)?;
    let startup_seconds = started.elapsed().as_secs_f64();

    let times = repeated(|| Ok(plan.gradient(&mut arena, &data, &rows).map(drop)?))?;
    let (gradient, slowdown) = (middle(&times), middle(&times) / fastest(&times));
    let mut out = vec![0.0; batch * network.output_len()];
    let forward = middle(&repeated(|| {
        Ok(plan.forward(arena.weights(), arena.stats(), &data, 0..batch, &mut out)?)
    })?);
    // The passes above leave a gradient, so what the update does is what it does in a run.
    let rates = Rates {
        step_size: 1e-6,
        step_size_before: 1e-6,
        temperature: 1e-3,
        eta: 1e-3,
        decay_factor: 1.0,
    };
    let mut step = 0;
    let update = middle(&repeated(|| {
        step += 1;
        method.update(&mut arena, Tick { step, epoch: 0, rates });
        Ok(())
    })?);
    let milliseconds = Milliseconds {
        data: None,
        forward,
        backward: way_back(gradient, forward),
        update: Some(update),
        step: gradient + update,
    };
    let rates = [cpu_copy()?, cpu_products()?];
    Ok(Bench {
        threads: Some(rayon::current_num_threads()),
        slowdown: Some(slowdown),
        limits: limits(network, batch, Precision::F32, &milliseconds, gradient, rates),
        memory_bytes: plan.bytes() + arena.method_bytes() + arena.work_bytes(),
        startup_seconds,
        ..about(network, options, milliseconds)
    })
}

/// What is the same on all devices; the rest as on the CPU.
fn about(network: &Network, options: &Options, milliseconds: Milliseconds) -> Bench {
    let image = network.nodes()[0].shape;
    Bench {
        thinfer: env!("CARGO_PKG_VERSION"),
        device: Device::Cpu.to_string(),
        device_name: Cpu::here().name,
        threads: None,
        model: options.model.clone(),
        image: [image.height, image.width, image.channels],
        parameters: network.params().len(),
        batch: options.batch,
        precision: Precision::F32,
        deterministic: true,
        milliseconds,
        slowdown: None,
        images_per_second: options.batch as f64 / (1e-3 * milliseconds.step),
        limits: Limits {
            copy_bytes_per_second: 0.0,
            update_of_copy: None,
            matrix_flops: 0.0,
            gradient_of_matrix: 0.0,
        },
        memory_bytes: 0,
        memory: None,
        startup_seconds: 0.0,
    }
}

/// `gradient` is the time of forward and backward together, in milliseconds.
fn limits(
    network: &Network,
    batch: usize,
    precision: Precision,
    times: &Milliseconds,
    gradient: f64,
    [copy, matrix]: [f64; 2],
) -> Limits {
    let rate = |work: f64, ms: f64| work / (1e-3 * ms);
    let bytes = update_bytes(network.params().len(), precision);
    Limits {
        copy_bytes_per_second: copy,
        update_of_copy: times.update.map(|ms| rate(bytes, ms) / copy),
        matrix_flops: matrix,
        gradient_of_matrix: rate(step_flops(network, batch), gradient) / matrix,
    }
}

/// Enough repetitions for a median, no more time than this where they take long.
const MOST: usize = 51;
const LEAST: usize = 3;
const PATIENCE: Duration = Duration::from_secs(2);

/// The time of the way back, of which only the sum with the forward pass can be timed; nothing
/// where noise makes the sum the smaller one.
fn way_back(gradient: f64, forward: f64) -> Option<f64> {
    (gradient > forward).then_some(gradient - forward)
}

/// The times of some repetitions in milliseconds, ascending, after one that does not count.
fn repeated(mut work: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    work()?;
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < LEAST || (times.len() < MOST && started.elapsed() < PATIENCE) {
        let begun = Instant::now();
        work()?;
        times.push(1e3 * begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The median of times in order.
fn middle(times: &[f64]) -> f64 {
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The shortest of times in order: what a device can do, whatever else it has to do.
fn fastest(times: &[f64]) -> f64 {
    times.first().copied().unwrap_or(f64::NAN)
}

/// Bytes read and written a second by a copy on all threads, of more than caches hold.
fn cpu_copy() -> Result<f64> {
    const NUMBERS: usize = 32 << 20;
    const PIECE: usize = 1 << 16;
    let from = vec![1f32; NUMBERS];
    let mut to = vec![0f32; NUMBERS];
    let times = repeated(|| {
        let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
        pieces.for_each(|(to, from)| to.copy_from_slice(from));
        Ok(())
    })?;
    Ok(8.0 * NUMBERS as f64 / (1e-3 * fastest(&times)))
}

/// Floating-point operations a second of a linear layer of the engine, 1024 x 1024 on 1024 rows.
fn cpu_products() -> Result<f64> {
    const SIDE: usize = 1024;
    let mut builder = NetworkBuilder::new(SIDE);
    let out = builder.linear("fc", builder.input(), SIDE)?;
    let network = builder.finish(out, Loss::cross_entropy())?;
    let data = random_batch(&network, SIDE)?;
    let mut arena = Arena::new(&network, 0);
    initialize(&mut arena, network.loss(), 1, 0)?;
    let mut plan = Plan::new(&network, SIDE)?;
    let mut out = vec![0.0; SIDE * SIDE];
    let times = repeated(|| Ok(plan.forward(arena.weights(), &[], &data, 0..SIDE, &mut out)?))?;
    Ok(2.0 * (SIDE as f64).powi(3) / (1e-3 * fastest(&times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_as_it_is_done() {
        let mut b = NetworkBuilder::new(10);
        let hidden = b.linear("fc1", b.input(), 20).unwrap();
        let hidden = b.tanh(hidden).unwrap();
        let out = b.linear("fc2", hidden, 5).unwrap();
        let network = b.finish(out, Loss::cross_entropy()).unwrap();
        // Forward 200 + 100, by weights 200 + 100, by inputs 100.
        assert_eq!(step_flops(&network, 3), 2.0 * 3.0 * 700.0);
        assert_eq!(update_bytes(100, Precision::Bf16), 3100.0);
        assert_eq!(update_bytes(100, Precision::F32), 2900.0);
    }

    /// On a busy machine the forward pass can take longer than the gradient that has it in it.
    #[test]
    fn a_part_that_noise_hides_was_not_measured() {
        assert_eq!(way_back(5.0, 2.0), Some(3.0));
        assert_eq!((way_back(2.0, 2.0), way_back(2.0, 5.0)), (None, None));
        assert_eq!((middle(&[1.0, 2.0, 9.0]), fastest(&[1.0, 2.0, 9.0])), (2.0, 1.0));
        assert!(middle(&[]).is_nan() && fastest(&[]).is_nan());
    }

    #[test]
    fn an_unknown_network_is_a_mistake_in_the_command() {
        let options = Options {
            model: "resnet19".into(),
            batch: 1,
            precision: Precision::F32,
            deterministic: false,
        };
        let error = bench(Device::Cpu, &options).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("known are convnet"), "{error}");
    }
}
