//! Networks on NVIDIA GPUs: cuDNN and cuBLASLt for the large products, own kernels for the rest.
//!
//! All libraries are opened at run time, so this builds and starts on machines without CUDA.

mod backward;
mod batches;
mod bench;
mod compiling;
mod context;
mod conv;
mod dnn;
mod error;
mod fault;
mod fuse;
mod hopper;
mod inference;
mod launch;
mod linear;
mod lower;
mod memory;
pub(crate) mod networks;
mod norm;
mod nvrtc;
mod plan;
mod pool;
mod probe;
mod selftest;
mod session;
mod step;
mod vary;
mod weights;

pub use crate::device_memory::MemoryPlan;
pub use batches::Source;
pub use bench::{copy_bandwidth, matrix_rate, profile_plan};
pub use compiling::Compiling;
pub use context::Gpu;
pub use inference::Inference;
pub use lower::PlanOptions;
pub use nvrtc::{cache_folder, try_compile};
pub use plan::{CudaPlan, DeviceIo};
pub use probe::{Device, Library, Report, probe};
pub use selftest::{Check, Extent, kernels_that_ran, selftest};
pub use session::{Parts, Session, StepCalls, Tally};

/// The arithmetic of activations, weights and their gradients on a GPU. Sums, statistics and
/// everything a method keeps are f32 in all of them.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// bf16 in memory, tensor cores.
    #[default]
    Bf16,
    /// f32 in memory, tensor cores that read 10 bits of the mantissa.
    Tf32,
    /// f32 throughout, no tensor cores.
    F32,
}

#[cfg(test)]
mod tests;

impl Precision {
    /// Its name, as options and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Bf16 => "bf16",
            Precision::Tf32 => "tf32",
            Precision::F32 => "f32",
        }
    }

    /// Bytes of one activation.
    pub fn bytes(self) -> usize {
        if self == Precision::Bf16 { 2 } else { 4 }
    }
}
