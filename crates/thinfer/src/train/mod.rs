//! Training: one chain, its checkpoints, and runs of several chains.

mod chain;
pub(crate) mod container;
mod device;
mod gradient;
mod run;

pub use chain::{Chain, ChainSpec, Record, Schedules, Snapshot, live_inputs};
pub use device::OnCuda;
pub use run::{
    ChainResult, Observer, Setting, Silent, checkpoint_path, load_results, run_chains,
    snapshot_path,
};
