//! Convolutions by kernels of our own: every cut that a plan would measure is compared, whichever
//! it would choose, and the plain kernels that stand in where a library has none.

use cudarc::driver::CudaSlice;

use super::setting::encode;
use super::{Check, worst};
use crate::cuda::Precision;
use crate::cuda::context::{Gpu, Value};
use crate::cuda::conv::Problem;
use crate::cuda::dnn::{Direction, Geometry};
use crate::cuda::hopper::{Cut, Own};
use crate::cuda::plan::direct_convolution;
use crate::cuda::step::{Arg, Place};
use crate::error::EngineError;
use crate::noise::{Key, Stream};

/// Batch, height, width, inputs, outputs, stride and side of the filter: one image and many, sides
/// of no multiple of eight, tiles that reach beyond the channels, and shapes of real networks.
const CASES: [[usize; 7]; 35] = [
    [1, 1, 1, 32, 16, 1, 3],
    [1, 5, 7, 24, 8, 1, 3],
    [3, 13, 9, 40, 72, 1, 3],
    [5, 4, 4, 64, 64, 1, 3],
    [11, 8, 8, 96, 32, 1, 3],
    [2, 14, 14, 64, 64, 1, 3],
    [2, 16, 16, 80, 160, 1, 3],
    [3, 32, 32, 48, 40, 1, 3],
    [1, 56, 56, 32, 64, 1, 3],
    [1, 8, 8, 8, 24, 1, 3],
    [5, 16, 8, 64, 64, 1, 3],
    [2, 32, 16, 56, 64, 1, 3],
    [2, 32, 32, 16, 72, 1, 3],
    [7, 16, 16, 128, 40, 1, 3],
    [3, 16, 16, 80, 128, 1, 3],
    [41, 8, 8, 208, 96, 1, 3],
    [5, 8, 8, 72, 208, 1, 3],
    [300, 8, 8, 112, 40, 1, 3],
    [9, 32, 32, 88, 32, 1, 3],
    [40, 16, 16, 72, 24, 1, 3],
    [1, 16, 16, 64, 64, 2, 3],
    [1, 32, 32, 8, 24, 2, 3],
    [3, 32, 32, 64, 80, 2, 3],
    [5, 32, 32, 64, 112, 2, 3],
    [2, 32, 32, 40, 72, 2, 3],
    [37, 32, 32, 64, 128, 2, 3],
    [3, 16, 32, 72, 40, 2, 3],
    [7, 16, 16, 128, 136, 2, 3],
    [67, 16, 16, 104, 128, 2, 3],
    [3, 16, 16, 128, 256, 2, 3],
    [1, 16, 16, 64, 64, 2, 1],
    [3, 32, 32, 64, 80, 2, 1],
    [5, 16, 32, 24, 40, 2, 1],
    [7, 16, 16, 128, 256, 2, 1],
    [67, 32, 32, 56, 112, 2, 1],
];

/// Images of few channels are padded to so many, their weights in the flat buffers are not.
const PADDED: usize = 8;
const STORED: usize = 5;

/// The result is rounded to bf16, half a unit of 2⁻⁸; sums are f32 in another order.
const LIMIT: f64 = 4e-3;
/// Filter gradients are f32, and their sums in another order.
const SUMS: f64 = 1e-4;

/// All checks; none where the device is no Hopper.
pub(super) fn own(gpu: &Gpu) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    for case in CASES {
        let [batch, height, width, inputs, outputs, stride, side] = case;
        let geometry = geometry(case);
        for direction in [Direction::Forward, Direction::Data, Direction::Filter] {
            let (precision, deterministic, hasty) = (Precision::Bf16, true, false);
            let stored = if inputs == PADDED { STORED } else { inputs };
            let problem = Problem { direction, geometry, stored, precision, deterministic, hasty };
            let cuts = Cut::all(&problem, gpu);
            if cuts.is_empty() {
                continue;
            }
            let tensors = Tensors::new(&geometry);
            let want = tensors.on_cpu(&problem);
            let limit = if direction == Direction::Filter { SUMS } else { LIMIT };
            for cut in cuts {
                let shape = format!(
                    "{batch} of {height}x{width}, {inputs} to {outputs}, {side}x{side}, stride {stride}"
                );
                let tiles = cut.name();
                let name = format!("convolution {direction:?} of {shape} in tiles of {tiles}");
                let (first, second) = tensors.on_gpu(gpu, &problem, cut)?;
                let apart = if first == second { worst(&first, &want, 0.0) } else { f64::INFINITY };
                checks.push(Check::new(name, Precision::Bf16, apart, limit));
            }
        }
    }
    Ok(checks)
}

pub(super) fn geometry(case: [usize; 7]) -> Geometry {
    let [batch, height, width, inputs, outputs, stride, side] = case;
    Geometry {
        input: [batch, inputs, height, width],
        filter: [outputs, inputs, side, side],
        output: [batch, outputs, height / stride, width / stride],
        stride: [stride, stride],
        padding: [side / 2; 2],
    }
}

/// The plain kernels, which no plan needs where the libraries have an engine.
pub(super) fn plain(gpu: &Gpu) -> Result<Vec<Check>, EngineError> {
    let geometry = geometry([3, 13, 9, 5, 7, 1, 3]);
    let tensors = Tensors::new(&geometry);
    let mut checks = Vec::new();
    for direction in [Direction::Forward, Direction::Data, Direction::Filter] {
        let (precision, deterministic, hasty) = (Precision::Bf16, true, false);
        let stored = geometry.filter[1];
        let problem = Problem { direction, geometry, stored, precision, deterministic, hasty };
        let (buffers, [x, w, y, _]) = tensors.upload(gpu, &problem, 0)?;
        let launch = direct_convolution(&problem, [Place::NOTHING; 3]);
        let function = gpu.function(launch.source, launch.entry, &launch.defines)?;
        let mut values = [x, w, y].map(Value::At).to_vec();
        values.extend(launch.args.into_iter().filter_map(|arg| match arg {
            Arg::Words(words) => Some(Value::Words(words)),
            _ => None,
        }));
        gpu.launch(&function, launch.grid[0] as usize, &values)?;
        let got = decode(&gpu.download(&buffers[written(direction)])?);
        let name = format!("plain convolution {direction:?}");
        let apart = worst(&got, &tensors.on_cpu(&problem), 0.0);
        checks.push(Check::new(name, precision, apart, LIMIT));
    }
    Ok(checks)
}

/// bf16 as f32.
fn decode(bytes: &[u8]) -> Vec<f32> {
    let value = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
    bytes.chunks_exact(2).map(value).collect()
}

/// Input, filter and output, or gradients in their place.
pub(super) struct Tensors([Vec<f32>; 3]);

/// Which of them a pass writes.
pub(super) fn written(direction: Direction) -> usize {
    match direction {
        Direction::Data => 0,
        Direction::Filter => 1,
        Direction::Forward => 2,
    }
}

impl Tensors {
    /// Random numbers that bf16 has.
    pub(super) fn new(geometry: &Geometry) -> Self {
        let numbers = |seed: u64, size: [usize; 4]| {
            let mut values = vec![0.0; size.iter().product()];
            Key::new(seed, 0, Stream::Inputs).normals(0, 0, &mut values);
            values.iter_mut().for_each(|v| *v = f32::from_bits(v.to_bits() & 0xffff_0000));
            values
        };
        Self([numbers(1, geometry.input), numbers(2, geometry.filter), numbers(3, geometry.output)])
    }

    /// By the definition, one product after the other.
    fn on_cpu(&self, problem: &Problem) -> Vec<f32> {
        let Self([x, w, y]) = self;
        let Problem { direction, geometry, stored, .. } = *problem;
        let [_, inputs, height, width] = geometry.input;
        let [images, outputs, high, wide] = geometry.output;
        let ([stride, _], [padding, _]) = (geometry.stride, geometry.padding);
        let [.., side, _] = geometry.filter;
        let mut result = vec![0f64; self.0[written(direction)].len()];
        for at in 0..images * high * wide {
            let (image, row, column) = (at / wide / high, at / wide % high, at % wide);
            for tap in 0..side * side {
                let (down, right) = (row * stride + tap / side, column * stride + tap % side);
                let inside = |at: usize, size: usize| (padding..padding + size).contains(&at);
                if !inside(down, height) || !inside(right, width) {
                    continue;
                }
                let from = (image * height + down - padding) * width + right - padding;
                for o in 0..outputs {
                    let (y_at, w_at, x_at) =
                        (at * outputs + o, (o * side * side + tap) * inputs, from * inputs);
                    for i in 0..inputs {
                        let (x, w, y) = (x[x_at + i], w[w_at + i], y[y_at]);
                        let (to, a, b) = match direction {
                            Direction::Forward => (y_at, x, w),
                            Direction::Data => (x_at + i, y, w),
                            Direction::Filter => (w_at + i, y, x),
                        };
                        result[to] += f64::from(a) * f64::from(b);
                    }
                }
            }
        }
        let kept = |at: usize| direction != Direction::Filter || at % inputs < stored;
        result.into_iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, v)| v as f32).collect()
    }

    /// On the device, and where they lie there. What the pass writes is poisoned, so that an
    /// element which is not written shows, and begins so many bytes into its buffer.
    pub(super) fn upload(
        &self,
        gpu: &Gpu,
        problem: &Problem,
        before: usize,
    ) -> Result<(Vec<CudaSlice<u8>>, [u64; 4]), EngineError> {
        let written = written(problem.direction);
        let len = self.0[written].len();
        // Of filter gradients f32 is written, and what the weights have.
        let wide = 4 * len / problem.geometry.filter[1] * problem.stored;
        let bytes = if problem.direction == Direction::Filter { wide } else { 2 * len };
        let mut buffers = Vec::new();
        let mut places = [0; 4];
        for (at, values) in self.0.iter().enumerate() {
            let poison = || vec![0xff; before + bytes];
            let bytes = if at == written { poison() } else { encode(values, Precision::Bf16) };
            buffers.push(gpu.upload(&bytes)?);
            places[at] = gpu.address(&buffers[at]);
        }
        places[written] += before as u64;
        Ok((buffers, places))
    }

    /// Twice, a filter gradient the second time at an address that is not aligned: the bits must be
    /// the same.
    fn on_gpu(
        &self,
        gpu: &Gpu,
        problem: &Problem,
        cut: Cut,
    ) -> Result<(Vec<f32>, Vec<f32>), EngineError> {
        let own = Own::new(gpu, problem, cut)?;
        let workspace = gpu.zeros::<u8>(own.workspace().max(1))?;
        let filter = problem.direction == Direction::Filter;
        let once = |before: usize| -> Result<Vec<f32>, EngineError> {
            let (buffers, mut places) = self.upload(gpu, problem, before)?;
            places[3] = gpu.address(&workspace);
            own.run(&gpu.stream, places)?;
            gpu.wait()?;
            let bytes = gpu.download(&buffers[written(problem.direction)])?;
            let wide = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            let all_wide = || bytes[before..].chunks_exact(4).map(wide).collect();
            Ok(if filter { all_wide() } else { decode(&bytes) })
        };
        Ok((once(0)?, once(if filter { 4 } else { 0 })?))
    }
}
