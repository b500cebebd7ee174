//! Work beside that of others, as several runs of one process have it. Convolutions by kernels of
//! our own while others use the memory: fetches end late and in another order then, and the bits
//! must stay the same. Captures of graphs while others open and close the device.

use std::thread::{self, Builder};

use super::own::{Tensors, geometry, written};
use super::{Check, Extent};
use crate::cuda::Precision;
use crate::cuda::context::Gpu;
use crate::cuda::conv::Problem;
use crate::cuda::dnn::Direction;
use crate::cuda::error::{Named, call};
use crate::cuda::hopper::{Cut, Own};
use crate::error::EngineError;

/// As in `own::CASES`: convolutions of residual networks, with one plane of channels and with
/// several, in two, three and four stages.
const CASES: [[usize; 7]; 5] = [
    [64, 32, 32, 64, 64, 1, 3],
    [64, 32, 32, 32, 48, 1, 3],
    [64, 16, 16, 96, 64, 1, 3],
    [64, 8, 8, 160, 64, 1, 3],
    [64, 32, 32, 64, 128, 2, 3],
];
/// Bytes that are copied beside a convolution: more than the caches have.
const COPIED: usize = 128 << 20;

/// All checks; none where the device is no Hopper.
pub(super) fn crowded(gpu: &Gpu, extent: Extent) -> Result<Vec<Check>, EngineError> {
    let times = if extent == Extent::Quick { 2 } else { 100 };
    let from = gpu.zeros::<u8>(COPIED)?;
    let mut to = gpu.zeros::<u8>(COPIED)?;
    let mut checks = Vec::new();
    for case in CASES {
        let geometry = geometry(case);
        let tensors = Tensors::new(&geometry);
        for direction in [Direction::Forward, Direction::Data, Direction::Filter] {
            let (precision, deterministic, hasty) = (Precision::Bf16, true, false);
            let stored = geometry.filter[1];
            let problem = Problem { direction, geometry, stored, precision, deterministic, hasty };
            for cut in Cut::all(&problem, gpu) {
                let own = Own::new(gpu, &problem, cut)?;
                let workspace = gpu.zeros::<u8>(own.workspace().max(1))?;
                let (buffers, mut places) = tensors.upload(gpu, &problem, 0)?;
                places[3] = gpu.address(&workspace);
                let result = &buffers[written(direction)];
                own.run(&gpu.stream, places)?;
                let alone = gpu.download(result)?;
                let mut other = 0;
                for _ in 0..times {
                    gpu.side.memcpy_dtod(&from, &mut to).named("cuMemcpyDtoD")?;
                    own.run(&gpu.stream, places)?;
                    other += usize::from(gpu.download(result)? != alone);
                }
                let [batch, height, width, inputs, outputs, stride, _] = case;
                let name = format!(
                    "convolution {direction:?} of {batch} of {height}x{width}, {inputs} to {outputs}, stride {stride} \
                     in tiles of {}: other bits beside copies",
                    cut.name()
                );
                checks.push(Check::new(name, precision, other as f64, 0.0));
            }
        }
    }
    gpu.side.synchronize().named("cuStreamSynchronize")?;
    checks.push(captures(gpu, extent)?);
    Ok(checks)
}

/// Captures a copy again and again while another thread opens and closes the device: libraries wait
/// for the whole device then, which must not meet a capture.
fn captures(gpu: &Gpu, extent: Extent) -> Result<Check, EngineError> {
    let opened = if extent == Extent::Quick { 2 } else { 10 };
    let from = gpu.zeros::<u8>(1 << 10)?;
    let mut to = gpu.zeros::<u8>(1 << 10)?;
    let index = gpu.index();
    let lost = thread::scope(|scope| -> Result<usize, EngineError> {
        let opening = Builder::new()
            .name("opening".into())
            .spawn_scoped(scope, move || (0..opened).try_for_each(|_| Gpu::open(index).map(drop)));
        let opening = opening.map_err(|error| call("a second thread", error))?;
        let mut lost = 0;
        while !opening.is_finished() {
            let copy = || gpu.stream.memcpy_dtod(&from, &mut to).named("cuMemcpyDtoD");
            lost += usize::from(gpu.capture(copy).is_err());
        }
        opening.join().map_err(|_| call("a second thread", "it stopped"))??;
        Ok(lost)
    })?;
    let name = "captures that are lost while the device is opened and closed".to_owned();
    Ok(Check::new(name, Precision::Bf16, lost as f64, 0.0))
}
