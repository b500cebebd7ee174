//! Training: one chain, its checkpoints, and runs of several chains.

mod chain;
mod container;
mod gradient;

pub use chain::{Chain, ChainSpec, Record, Schedules, Snapshot, live_inputs};
