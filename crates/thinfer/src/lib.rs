//! Trains a Bayesian neural network and thins it, in the same run.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use thinfer::config::Config;
//! use thinfer::data::Bundle;
//! use thinfer::evaluate::evaluate;
//! use thinfer::experiment::chain_specs;
//! use thinfer::train::{Setting, Silent, run_chains};
//!
//! let settings = ["data.columns=8", "data.train_rows=200", "train.epochs=12"];
//! let config = Config::parse("", &settings.map(str::to_owned))?;
//! let data = Bundle::load(&config)?;
//! let specs = chain_specs(&config, &data)?;
//! let network = specs[0].network.clone();
//! let stop = AtomicBool::new(false);
//! let setting = Setting::in_memory(&stop, &Silent, 1);
//! let results = run_chains(specs, &data.train, &setting)?;
//! let evaluation = evaluate(&config, &network, &data, &results)?;
//! assert!(evaluation.posterior.mse.is_some());
//! # Ok::<(), thinfer::Error>(())
//! ```
//!
//! The way of the data, one direction only: [`config`] → [`data`] → [`model`] → [`experiment`]
//! (network, method, schedules) → [`train`] (chains of a [`methods::Method`]) → [`posterior`] →
//! [`evaluate`], [`report`], [`export`]. [`run`] puts it into a folder, [`mod@compare`] puts
//! folders beside each other, [`select`] and [`reproduce`] are whole studies; [`selftest`] and
//! [`mod@bench`] check and time the machine.

pub mod bench;
pub mod compare;
pub mod config;
pub mod data;
mod error;
pub mod evaluate;
pub mod experiment;
pub mod export;
mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod images;
pub mod linear;
pub mod machine;
pub mod methods;
pub mod metrics;
pub mod model;
pub mod posterior;
pub mod predict;
pub mod prune;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod schedule;
pub mod select;
pub mod selectors;
pub mod selftest;
pub mod shrink;
pub mod subnetwork;
pub mod threads;
pub mod train;
pub mod weights;

pub use error::{Error, Result};
