//! Times of a plan by itself, on random data, and what the device can do at best.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;

use super::Precision;
use super::context::Gpu;
use super::dnn::Direction;
use super::error::Named;
use super::linear::{Gemm, Product};
use super::lower::PlanOptions;
use super::memory::MemoryPlan;
use super::plan::{CudaPlan, DeviceIo};
use super::selftest::{Setting, encode};
use crate::error::EngineError;
use crate::network::Network;
use crate::noise::{Key, Stream};

/// Milliseconds of one batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Forward and loss.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
    /// Both in one graph.
    pub both: f64,
    /// Seconds from the network to the plan.
    pub planning: f64,
    /// Where the device memory goes.
    pub memory: MemoryPlan,
}

/// Replays whose mean is one measurement, and measurements of which the median is taken.
const REPLAYS: usize = 20;
const ROUNDS: usize = 7;

/// Bytes that are copied to measure the memory, far more than any cache holds.
const COPIED: usize = 512 << 20;
/// Rows and columns of the matrices that are multiplied.
const SIDE: usize = 8192;

/// Bytes read and written a second by a copy of 512 MiB on the device.
pub fn copy_bandwidth(gpu: &Arc<Gpu>) -> Result<f64, EngineError> {
    let from = gpu.zeros::<u8>(COPIED)?;
    let mut to = gpu.zeros::<u8>(COPIED)?;
    // Not as a graph: there a copy engine does it, which is slower than the multiprocessors.
    let ms = repeat(gpu, || gpu.stream.memcpy_dtod(&from, &mut to).named("cuMemcpyDtoDAsync"))?;
    Ok(2.0 * COPIED as f64 / (1e-3 * ms))
}

/// Floating-point operations a second of a bf16 product of two 8192 x 8192 matrices.
pub fn matrix_rate(gpu: &Arc<Gpu>) -> Result<f64, EngineError> {
    // Random numbers: a device multiplies zeros at less power, and so faster than anything else.
    let mut tile = vec![0.0; SIDE * 16];
    Key::new(1, 0, Stream::Inputs).normals(0, 0, &mut tile);
    let matrix = encode(&tile, Precision::Bf16).repeat(SIDE / 16);
    let (left, right) = (gpu.upload(&matrix)?, gpu.upload(&matrix)?);
    let product = Product {
        direction: Direction::Forward,
        rows: SIDE,
        inputs: SIDE,
        outputs: SIDE,
        precision: Precision::Bf16,
        wide: false,
        alignment: [256; 3],
    };
    let gemm = Gemm::new(gpu, &product)?;
    let (to, workspace) = (gpu.zeros::<u8>(matrix.len())?, gpu.zeros::<u8>(gemm.workspace)?);
    let places = [&left, &right, &to].map(|buffer| gpu.address(buffer));
    let ms = replay(gpu, || gemm.run(gpu, places, gpu.address(&workspace)))?;
    Ok(2.0 * (SIDE as f64).powi(3) / (1e-3 * ms))
}

/// Times forward and backward of a plan in captured graphs.
pub fn time_plan(
    gpu: &Arc<Gpu>,
    network: &Network,
    options: PlanOptions,
) -> Result<Timing, EngineError> {
    let started = std::time::Instant::now();
    let mut timing = Timing::default();
    with_random_batch(gpu, network, options, |plan, io| {
        timing.planning = started.elapsed().as_secs_f64();
        timing.memory = plan.memory_plan();
        timing.both = replay(gpu, || plan.forward_backward(io))?;
        timing.forward = replay(gpu, || plan.training_forward(io))?;
        timing.backward = replay(gpu, || plan.backward(io))?;
        Ok(())
    })?;
    Ok(timing)
}

/// Makes a plan and buffers with random numbers, and gives both to `work`.
fn with_random_batch(
    gpu: &Arc<Gpu>,
    network: &Network,
    options: PlanOptions,
    work: impl FnOnce(&mut CudaPlan, &DeviceIo) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut plan = CudaPlan::new(gpu, network, options)?;
    gpu.wait()?;
    let setting = Setting::new(network, options.batch, options.precision);
    let input = gpu.upload(&setting.batch(network, plan.input_channels(), options.precision))?;
    let targets = gpu.upload(&setting.targets(network))?;
    let weights = gpu.upload(&setting.weights)?;
    let low = gpu.upload(&encode(&setting.weights, Precision::Bf16))?;
    let stats = gpu.zeros::<f32>(setting.stats.len())?;
    let gradient = gpu.zeros::<f32>(setting.weights.len())?;
    let tally = gpu.zeros::<f64>(4)?;
    let io = DeviceIo {
        input: gpu.address(&input),
        targets: gpu.address(&targets),
        weights: gpu.address(&weights),
        low: gpu.address(&low),
        stats: gpu.address(&stats),
        gradient: gpu.address(&gradient),
        tally: gpu.address(&tally),
        losses: 0,
        step: 0,
    };
    work(&mut plan, &io)
}

/// Microseconds of each step of a plan, run by itself in a graph of many repetitions.
pub fn profile_plan(
    gpu: &Arc<Gpu>,
    network: &Network,
    options: PlanOptions,
) -> Result<Vec<(String, f64)>, EngineError> {
    let mut times = Vec::new();
    with_random_batch(gpu, network, options, |plan, io| {
        plan.each_training_step(io, |name, work| {
            let many = || (0..REPLAYS).try_for_each(|_| work());
            times.push((name.to_owned(), replay(gpu, many)? * 1e3 / REPLAYS as f64));
            Ok(())
        })
    })?;
    Ok(times)
}

/// Median milliseconds of a replay of `work` in a graph.
pub(crate) fn replay(
    gpu: &Gpu,
    mut work: impl FnMut() -> Result<(), EngineError>,
) -> Result<f64, EngineError> {
    work()?;
    gpu.wait()?;
    let graph = gpu.capture(&mut work)?;
    graph.upload().named("cuGraphUpload")?;
    repeat(gpu, || graph.launch().named("cuGraphLaunch"))
}

/// Median milliseconds of `work`, which puts something on the stream.
fn repeat(
    gpu: &Gpu,
    mut work: impl FnMut() -> Result<(), EngineError>,
) -> Result<f64, EngineError> {
    work()?;
    gpu.wait()?;
    let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = gpu.ctx.new_event(flags).named("cuEventCreate")?;
        let end = gpu.ctx.new_event(flags).named("cuEventCreate")?;
        start.record(&gpu.stream).named("cuEventRecord")?;
        for _ in 0..REPLAYS {
            work()?;
        }
        end.record(&gpu.stream).named("cuEventRecord")?;
        gpu.wait()?;
        let ms = start.elapsed_ms(&end).named("cuEventElapsedTime")?;
        times.push(f64::from(ms) / REPLAYS as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}
