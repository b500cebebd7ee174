//! thinfer
pub mod data;
mod error;
pub mod methods;
pub mod prune;
pub mod schedule;
pub mod train;
pub use error::{Error, Result};
