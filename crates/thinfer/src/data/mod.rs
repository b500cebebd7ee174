//! Data: simulated examples and tables.

pub mod simulate;
