//! Training: one chain, its checkpoints, and runs of several chains.

mod chain;
pub mod container;
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

pub use chain::{Chain, ChainSpec, Record, Schedules, live_inputs};
pub use examples::Examples;
pub use freeze::{Freezing, FrozenLayers, Phase, phases};
pub use run::division;
pub use run::{
    ChainResult, Enough, Observer, Setting, Silent, checkpoint_path, load_results,
    load_results_so_far, run_chains, snapshot_path,
};
pub use shuffle::orders_ahead;
pub use times::EpochTime;
pub use times::read_times;
pub use trace::{Channel, Side, Trace};
