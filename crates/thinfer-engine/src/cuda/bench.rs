//! Times of a plan's steps, on random data, and what the device can do at best.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;

use super::Precision;
use super::context::Gpu;
use super::dnn::Direction;
use super::error::Named;
use super::linear::{Gemm, Product};
use super::lower::PlanOptions;
use super::plan::CudaPlan;
use super::selftest::{Manner, Setting, encode};
use crate::error::EngineError;
use crate::network::Network;
use crate::noise::{Key, Stream};

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
    // Not as a graph: a copy in one ran at two thirds of this speed on an H200.
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

/// Milliseconds of forward and backward pass together, and microseconds of each step of a plan, run
/// by itself in a graph of many repetitions.
pub fn profile_plan(
    gpu: &Arc<Gpu>,
    network: &Network,
    options: PlanOptions,
) -> Result<(f64, Vec<(String, f64)>), EngineError> {
    let mut plan = CudaPlan::new(gpu, network, options)?;
    let setting = Setting::new(network, options.batch, options.precision, Manner::Usual);
    let buffers = setting.upload(gpu, network, &plan)?;
    let whole = replay(gpu, || plan.forward_backward(&buffers.io(gpu)))?;
    let mut times = Vec::new();
    plan.each_training_step(&buffers.io(gpu), |name, work| {
        let many = || (0..REPLAYS).try_for_each(|_| work());
        times.push((name.to_owned(), replay(gpu, many)? * 1e3 / REPLAYS as f64));
        Ok(())
    })?;
    Ok((whole, times))
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
