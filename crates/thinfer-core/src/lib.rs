//! Bayes for thinfer: methods that sample and prune, what they prune, and what their samples say.
//!
//! A [`methods::Method`] updates weights and state; [`train`] runs chains of it; [`posterior`]
//! averages their samples; [`prune`] and [`shrink`] make networks sparse and small; [`metrics`]
//! scores. Nothing here knows of configuration files or of run folders.

pub mod classify;
pub mod density;
pub mod device;
pub mod keys;
pub mod linear;
pub mod methods;
pub mod metrics;
pub mod model;
pub mod posterior;
pub mod prune;
pub mod schedule;
pub mod shrink;
pub mod train;
pub mod weights;

pub use thinfer_data::{Error, Result};
