//! Runs of thinfer: a configuration becomes data, networks and chains in a folder, and a folder
//! becomes scores and predictions.

pub mod config;
pub mod diagnose;
mod drawing;
pub mod evaluate;
pub mod evaluated;
pub mod experiment;
pub mod history;
pub mod images;
mod likelihood;
pub mod predict;
pub mod registry;
pub mod run;
mod tensorboard;

pub use thinfer_data::{Error, Result};
