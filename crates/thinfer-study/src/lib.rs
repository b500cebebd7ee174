//! Studies with thinfer: variable selection, the tables and figures of the paper, comparisons,
//! reports and exports; and whether a machine computes what it should, and how fast.

pub mod bench;
pub mod compare;
pub mod effects;
pub mod enumeration;
pub mod export;
pub mod finish;
pub mod folds;
#[doc(hidden)]
pub mod fuzzing;
pub mod machine;
pub mod proposal;
pub mod report;
pub mod reproduce;
pub mod select;
pub mod selectors;
pub mod selftest;
pub mod subnetwork;
pub mod watch;

pub use thinfer_core::linear;
pub use thinfer_data::{Error, Result};
