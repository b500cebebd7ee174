//! Training: one chain, its checkpoints, and runs of several chains.

use std::fmt;

mod chain;
pub(crate) mod container;
mod cut;
mod device;
mod examples;
mod freeze;
mod part;
mod run;
mod shuffle;
mod stepper;
mod times;
mod trace;
mod writer;

pub use chain::{Chain, ChainSpec, Record, Schedules, Snapshot, live_inputs};
pub use cut::Shrinking;
pub use device::OnCuda;
pub use examples::Examples;
pub(crate) use examples::image_rows;
pub use freeze::{Freezing, Phase, phases};
pub(crate) use run::division;
pub use run::{
    ChainResult, Observer, Setting, Silent, checkpoint_path, load_results, run_chains,
    snapshot_path,
};
pub(crate) use shuffle::orders_ahead;
pub use times::EpochTime;
pub(crate) use times::read_times;
pub use trace::{Channel, Side, Trace};

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
