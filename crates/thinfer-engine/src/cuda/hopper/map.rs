//! Tensors as the fetching hardware knows them.

use std::ffi::c_void;

use cudarc::driver::DeviceRepr;
use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Promotion,
    CUtensorMapSwizzle as Swizzle, cuTensorMapEncodeTiled,
};

use crate::cuda::error::Named;
use crate::error::EngineError;

/// A tensor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Map(CUtensorMap);

// SAFETY: plain numbers, of the size and alignment that the kernel's parameter has.
unsafe impl DeviceRepr for Map {}

/// Every second row and column of a batch: from the even or odd row and the even or odd column on,
/// columns first.
#[repr(transparent)]
pub(super) struct Phases([Map; 4]);

// SAFETY: as a map, four times.
unsafe impl DeviceRepr for Phases {}

impl Phases {
    /// Of a batch of `[images, channels, height, width]` with channels last and even sides. Of 64
    /// channels of an image `side` even rows and columns are fetched at once, and one more of odd
    /// ones.
    pub(super) fn new(
        address: u64,
        [images, channels, height, width]: [usize; 4],
        side: usize,
    ) -> Result<Self, EngineError> {
        let phase = |row: usize, column: usize| {
            let pixel = 2 * channels;
            let first = address + (pixel * (row * width + column)) as u64;
            let strides = [2, 2 * pixel, 2 * pixel * width, pixel * width * height];
            let fetched = [64, side + column, side + row, 1];
            Map::new(first, [channels, width / 2, height / 2, images], strides, fetched, 128)
        };
        Ok(Self([phase(0, 0)?, phase(0, 1)?, phase(1, 0)?, phase(1, 1)?]))
    }
}

impl Map {
    /// A batch of `[images, channels, height, width]` with channels last, of which `together` bytes
    /// of channels and so many columns, rows and images are fetched at once.
    pub(super) fn pixels(
        address: u64,
        [images, channels, height, width]: [usize; 4],
        together: usize,
        [columns, rows, fetched]: [usize; 3],
    ) -> Result<Self, EngineError> {
        let sizes = [channels, width, height, images];
        Self::new(address, sizes, dense(sizes), [together / 2, columns, rows, fetched], together)
    }

    /// A filter of `[outputs, inputs, 3, 3]` with inputs last, of which so many inputs and outputs
    /// of one tap are fetched at once.
    pub(super) fn filter(
        address: u64,
        [outputs, inputs, high, wide]: [usize; 4],
        fetched: [usize; 2],
    ) -> Result<Self, EngineError> {
        let sizes = [inputs, high * wide, outputs];
        Self::new(address, sizes, dense(sizes), [fetched[0], 1, fetched[1]], 2 * fetched[0])
    }

    /// `sizes`, bytes from one to the next, and the size of a box, the innermost axis first.
    fn new<const N: usize>(
        address: u64,
        sizes: [usize; N],
        strides: [usize; N],
        fetched: [usize; N],
        together: usize,
    ) -> Result<Self, EngineError> {
        let mut map = CUtensorMap { opaque: [0; 16] };
        let [sizes, strides] = [sizes, strides].map(|axes| axes.map(|size| size as u64));
        let fetched = fetched.map(|size| size as u32);
        let swizzle = match together {
            128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        };
        // SAFETY: all arrays have as many numbers as the tensor has axes, or one fewer, and live
        // until the call returns. The address is only written down.
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

/// Bytes from one to the next along each axis of a tensor without gaps.
fn dense<const N: usize>(sizes: [usize; N]) -> [usize; N] {
    let mut strides = [2; N];
    for axis in 1..N {
        strides[axis] = strides[axis - 1] * sizes[axis - 1];
    }
    strides
}
