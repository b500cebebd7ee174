//! thinfer
pub mod config;
pub mod data;
mod error;
pub mod evaluate;
pub mod experiment;
pub mod linear;
pub mod methods;
pub mod metrics;
pub mod model;
pub mod posterior;
pub mod prune;
pub mod reproduce;
pub mod run;
pub mod schedule;
pub mod select;
pub mod train;
pub use error::{Error, Result};
