//! The operations, each with its forward and backward pass.
//!
//! Every function works on a block of rows. Backward functions add to the gradient they are given,
//! so that a node read by several others collects from all of them; those that can also overwrite
//! it say so.

pub(crate) mod add;
pub(crate) mod average_pool;
pub(crate) mod batch_norm;
pub(crate) mod channels;
pub(crate) mod conv2d;
pub(crate) mod global_average_pool;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod max_pool;
pub(crate) mod narrow;
pub(crate) mod relu;
pub(crate) mod tanh;
pub(crate) mod tile;
pub(crate) mod tiny;
pub(crate) mod vary;

use crate::real::Real;
use crate::shape::{Shape, Window};
use average_pool::AveragePool;
use max_pool::MaxPool;

/// The operations that make one number of a window of each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pool {
    /// The largest.
    Max(Window),
    /// The mean, in which zeros of the padding count.
    Average(Window),
    /// The mean over all pixels.
    Whole,
}

/// What a pool is in ONNX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Onnx {
    /// The name of the operation.
    pub name: &'static str,
    /// The window, where there is one.
    pub window: Option<Window>,
    /// Other attributes.
    pub integers: &'static [(&'static str, i64)],
}

/// The kernels of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    pub(crate) forward: &'static str,
    pub(crate) backward: &'static str,
    /// The most pixels of a window, where the way back needs to know which of them was taken: then
    /// a byte a number is kept.
    pub(crate) keeps: Option<usize>,
    /// The window, where the kernels are told its sizes; else the number of pixels and of channels.
    pub(crate) window: Option<Window>,
}

/// The source of all kernels of pools.
pub(crate) const POOL_KERNELS: &str = concat!(
    include_str!("../cuda/kernels/common.cuh"),
    include_str!("../cuda/kernels/pool.cu"),
    include_str!("average_pool/average_pool.cu")
);

impl Pool {
    /// What names of nodes begin with.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Pool::Max(_) => "maxpool",
            Pool::Average(_) | Pool::Whole => "avgpool",
        }
    }

    /// The shape it gives, or what is wrong with its window.
    pub(crate) fn shape(self, from: Shape) -> Result<Shape, String> {
        match self {
            Pool::Max(window) | Pool::Average(window) => {
                let [height, width] = window.over(from)?;
                Ok(Shape { height, width, ..from })
            }
            Pool::Whole => Ok(Shape::vector(from.channels)),
        }
    }

    /// The window of which it takes the largest number, where it does.
    pub(crate) fn maximum(self) -> Option<Window> {
        match self {
            Pool::Max(window) => Some(window),
            Pool::Average(_) | Pool::Whole => None,
        }
    }

    /// What it is in ONNX.
    pub fn onnx(self) -> Onnx {
        match self {
            Pool::Max(window) => Onnx { name: "MaxPool", window: Some(window), integers: &[] },
            Pool::Average(window) => average_pool::onnx(window),
            Pool::Whole => Onnx { name: "GlobalAveragePool", window: None, integers: &[] },
        }
    }

    pub(crate) fn kernels(self) -> Kernels {
        match self {
            Pool::Max(window) => Kernels {
                forward: "max_forward",
                backward: "max_backward",
                keeps: Some(254),
                window: Some(window),
            },
            Pool::Average(window) => average_pool::kernels(window),
            Pool::Whole => Kernels {
                forward: "mean_forward",
                backward: "mean_backward",
                keeps: None,
                window: None,
            },
        }
    }

    /// One or more images; `places` remembers what [`Kernels::keeps`] asks for.
    pub(crate) fn forward<T: Real>(
        self,
        [from, to]: [Shape; 2],
        x: &[T],
        y: &mut [T],
        places: &mut [u32],
    ) {
        match self {
            Pool::Max(window) => MaxPool { from, to, window }.forward(x, y, places),
            Pool::Average(window) => AveragePool { from, to, window }.forward(x, y),
            Pool::Whole => global_average_pool::forward(from, x, y),
        }
    }

    /// The way back, which adds to `dx` or overwrites it.
    pub(crate) fn backward<T: Real>(
        self,
        [from, to]: [Shape; 2],
        places: &[u32],
        dy: &[T],
        dx: &mut [T],
        adds: bool,
    ) {
        if let Pool::Max(window) = self {
            let pool = MaxPool { from, to, window };
            if !adds && pool.tiles() {
                return pool.backward_tiles(places, dy, dx);
            }
        }
        if !adds {
            dx.fill(T::ZERO);
        }
        match self {
            Pool::Max(window) => MaxPool { from, to, window }.backward(places, dy, dx),
            Pool::Average(window) => AveragePool { from, to, window }.backward(dy, dx),
            Pool::Whole => global_average_pool::backward(from, dy, dx),
        }
    }
}
