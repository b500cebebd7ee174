//! Data: simulated examples, tables and images.

mod bundle;
mod hints;
pub mod images;
pub mod simulate;
pub mod table;

pub(crate) use bundle::check_holdout;
pub use bundle::{Bundle, Schema};
pub use images::{ImageData, ImageSet, ImageStream, Images, View};
pub use table::Task;
