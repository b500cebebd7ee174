//! Where a run computes.

use std::fmt;
use std::sync::Arc;

use thinfer_data::Result;
use thinfer_engine::cuda::{Gpu, Precision};

/// Where a run computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// On the cores.
    #[default]
    Cpu,
    /// On the GPU of this number.
    Cuda(usize),
}

/// As it is written on the command line: `cpu`, `cuda:0`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A GPU and how to compute on it.
#[derive(Clone)]
pub struct OnCuda {
    /// The GPU.
    pub gpu: Arc<Gpu>,
    /// The arithmetic of activations and weights.
    pub precision: Precision,
}

impl OnCuda {
    /// The GPU that `device` names, with this precision; none for the CPU.
    pub fn open(device: Device, precision: Precision) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            Device::Cuda(index) => Ok(Some(Self { gpu: Gpu::open(index)?, precision })),
        }
    }
}
