//! Data that thinfer trains on: tables, images and simulated designs.
//!
//! [`Bundle`] holds the rows of a table or of a simulated design, [`ImageData`] holds images, and
//! [`Data`] is either. They come from a [`DataConfig`], the section `data` of a configuration. The
//! crate also has what every crate above it needs: [`Error`], [`files`], [`jobs`] and [`threads`].

mod bundle;
mod cgroup;
mod data;
mod error;
pub mod files;
#[doc(hidden)]
pub mod fuzzed;
mod hints;
pub mod images;
pub mod jobs;
pub mod keys;
pub mod memory;
mod settings;
pub mod simulate;
mod split;
pub mod table;
pub mod threads;

pub use bundle::{Bundle, Schema};
pub use data::Data;
pub use error::{Error, Result};
pub use images::{ImageData, ImageSet, ImageStream, Images, View};
pub use settings::{DataConfig, DataKind, TaskChoice};
pub use split::{Parts, Role, Split, check_holdout, check_split};
pub use table::Task;
