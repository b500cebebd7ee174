//! 3x3 convolutions by kernels of our own for Hopper, used where cuDNN is measured to be slower. A block fetches a
//! pixel once and reads it for all nine taps.

mod filter;
mod narrow;

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUfunction_attribute as Attribute, CUtensorMap, CUtensorMapDataType as DataType,
    CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
    CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Swizzle, cuTensorMapEncodeTiled,
};
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr};

use super::Precision;
use super::context::Gpu;
use super::conv::Problem;
use super::dnn::{Direction, Geometry};
use super::error::Named;
use super::nvrtc::source;
use crate::error::EngineError;

/// Bytes of shared memory that a block may have, less what barriers take.
const MEMORY: usize = 225 << 10;
/// Stages are aligned to the pattern in which shared memory is swizzled.
const ALIGNED: usize = 1024;

/// How a pass is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Filter(filter::Cut),
    Narrow(narrow::Cut),
}

impl Cut {
    /// Those worth measuring, the likeliest first; none where no kernel can do it.
    pub(crate) fn all(problem: &Problem, gpu: &Gpu) -> Vec<Cut> {
        if !gpu.is_hopper() || !fits(problem) {
            return Vec::new();
        }
        let multiprocessors = gpu.multiprocessors() as usize;
        let mut cuts = Cut::of(problem, multiprocessors);
        cuts.truncate(if problem.hasty { 1 } else { cuts.len() });
        cuts
    }

    fn of(problem: &Problem, multiprocessors: usize) -> Vec<Cut> {
        let geometry = &problem.geometry;
        match problem.direction {
            Direction::Filter => {
                filter::Cut::all(geometry, multiprocessors).into_iter().map(Cut::Filter).collect()
            }
            Direction::Forward | Direction::Data => {
                let cuts = narrow::Cut::all(geometry, problem.direction, multiprocessors);
                cuts.into_iter().map(Cut::Narrow).collect()
            }
        }
    }

    /// What a cut is remembered by: unlike that of any other for the same problem, and one word.
    pub(crate) fn name(&self) -> String {
        match self {
            Cut::Filter(cut) => cut.name(),
            Cut::Narrow(cut) => cut.name(),
        }
    }

    /// The kernel, and what it is compiled with.
    pub(crate) fn kernel(&self) -> (&'static str, Vec<String>) {
        match self {
            Cut::Filter(cut) => (source::FILTER, cut.defines()),
            Cut::Narrow(cut) => (source::NARROW, cut.defines()),
        }
    }
}

/// Whether it is a problem for these kernels. Fetching wants channels in multiples of 16 bytes.
fn fits(problem: &Problem) -> bool {
    let g = &problem.geometry;
    problem.precision == Precision::Bf16
        && g.filter[2..] == [3, 3]
        && (g.stride, g.padding) == ([1, 1], [1, 1])
        && g.filter[..2].iter().all(|channels| channels.is_multiple_of(8))
}

/// A pass that is ready to run.
pub(crate) enum Own {
    Filter(filter::Filter),
    Narrow(narrow::Narrow),
}

impl Own {
    pub(crate) fn new(gpu: &Gpu, geometry: Geometry, cut: Cut) -> Result<Self, EngineError> {
        let (source, defines) = cut.kernel();
        let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
        let function = |entry: &str| gpu.function(source, entry, &defines);
        Ok(match cut {
            Cut::Filter(cut) => Own::Filter(filter::Filter::new(function, geometry, cut)?),
            Cut::Narrow(cut) => Own::Narrow(narrow::Narrow::new(function, geometry, cut)?),
        })
    }

    /// Bytes that a run needs besides its tensors.
    pub(crate) fn workspace(&self) -> usize {
        match self {
            Own::Filter(filter) => filter.workspace(),
            Own::Narrow(_) => 0,
        }
    }

    /// Puts it on a stream, for input, filter, output and workspace at these addresses.
    pub(crate) fn run(&self, stream: &CudaStream, at: [u64; 4]) -> Result<(), EngineError> {
        match self {
            Own::Filter(filter) => filter.run(stream, at),
            Own::Narrow(narrow) => narrow.run(stream, at),
        }
    }
}

/// Lets blocks of a kernel have so much shared memory.
fn allow_memory(function: &CudaFunction, bytes: usize) -> Result<(), EngineError> {
    let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function.set_attribute(attribute, bytes as i32).named("cuFuncSetAttribute")
}

/// Bytes of so many channels that lie together in shared memory.
fn together(channels: usize) -> usize {
    [128, 64].into_iter().find(|bytes| (2 * channels).is_multiple_of(*bytes)).unwrap_or(32)
}

/// A tensor as the fetching hardware knows it.
#[repr(transparent)]
struct Map(CUtensorMap);

// SAFETY: plain numbers, of the size and alignment that the kernel's parameter has.
unsafe impl DeviceRepr for Map {}

impl Map {
    /// A batch of `[images, channels, height, width]` with channels last, of which `together` bytes of
    /// channels and so many columns, rows and images are fetched at once.
    fn pixels(
        address: u64,
        [images, channels, height, width]: [usize; 4],
        together: usize,
        [columns, rows, fetched]: [usize; 3],
    ) -> Result<Self, EngineError> {
        let sizes = [channels, width, height, images];
        Self::new(address, sizes, [together / 2, columns, rows, fetched], together)
    }

    /// A filter of `[outputs, inputs, 3, 3]` with inputs last, of which so many inputs and outputs of one tap are
    /// fetched at once.
    fn filter(
        address: u64,
        [outputs, inputs, high, wide]: [usize; 4],
        fetched: [usize; 2],
    ) -> Result<Self, EngineError> {
        let sizes = [inputs, high * wide, outputs];
        Self::new(address, sizes, [fetched[0], 1, fetched[1]], 2 * fetched[0])
    }

    /// `sizes` and the size of a box, the innermost axis first.
    fn new<const N: usize>(
        address: u64,
        sizes: [usize; N],
        fetched: [usize; N],
        together: usize,
    ) -> Result<Self, EngineError> {
        let mut map = CUtensorMap { opaque: [0; 16] };
        let sizes = sizes.map(|size| size as u64);
        // Bytes from one to the next along each axis but the first.
        let mut strides = [2; N];
        for axis in 1..N {
            strides[axis] = strides[axis - 1] * sizes[axis - 1];
        }
        let fetched = fetched.map(|size| size as u32);
        let swizzle = match together {
            128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        };
        // SAFETY: all arrays have as many numbers as the tensor has axes, or one fewer, and live until the
        // call returns. The address is only written down.
        let status = unsafe {
            cuTensorMapEncodeTiled(
                &raw mut map,
                DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                N as u32,
                address as *mut c_void,
                sizes.as_ptr(),
                strides[1..].as_ptr(),
                fetched.as_ptr(),
                [1u32; N].as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        status.result().named("cuTensorMapEncodeTiled")?;
        Ok(Self(map))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn geometry(batch: usize, inputs: usize, outputs: usize, side: usize) -> Geometry {
        Geometry {
            input: [batch, inputs, side, side],
            filter: [outputs, inputs, 3, 3],
            output: [batch, outputs, side, side],
            stride: [1, 1],
            padding: [1, 1],
        }
    }

    fn problem(direction: Direction, geometry: Geometry) -> Problem {
        let precision = Precision::Bf16;
        Problem { direction, geometry, precision, deterministic: true, hasty: false }
    }

    /// Kernels of some networks and what they are compiled with, for a test that compiles them.
    pub(in crate::cuda) fn examples() -> Vec<(&'static str, Vec<String>)> {
        let shapes = [(128, 32), (64, 16), (64, 8), (64, 4), (2, 56), (3, 7)];
        let channels = [(64, 64), (32, 48), (48, 32), (160, 160), (16, 160), (208, 96), (112, 40)];
        let directions = [Direction::Forward, Direction::Data, Direction::Filter];
        let mut kernels: Vec<_> = shapes
            .into_iter()
            .flat_map(|shape| channels.map(|channels| (shape, channels)))
            .flat_map(|((batch, side), (inputs, outputs))| {
                directions.map(|to| problem(to, geometry(batch, inputs, outputs, side)))
            })
            .flat_map(|problem| Cut::of(&problem, 132))
            .map(|cut| cut.kernel())
            .collect();
        kernels.sort();
        kernels.dedup();
        kernels
    }

    #[test]
    fn other_convolutions_are_left_to_the_library() {
        let fitting = problem(Direction::Forward, geometry(4, 64, 64, 32));
        assert!(fits(&fitting));
        let mut others = [fitting; 5];
        others[0].geometry.stride = [2, 2];
        others[1].geometry.padding = [0, 0];
        others[2].geometry.filter = [64, 64, 1, 1];
        others[3].geometry = geometry(4, 60, 64, 32);
        others[4].precision = Precision::Tf32;
        assert!(others.iter().all(|problem| !fits(problem)));
    }
}
