//! Data: simulated examples and tables.

mod bundle;
pub mod simulate;
pub mod table;

pub use bundle::{Bundle, Schema};
pub use table::Task;
