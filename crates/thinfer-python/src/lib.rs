//! The engine as a Python module: `thinfer._thinfer`, under the Python sources in `python/thinfer`.
//!
//! What is here moves data and errors across the boundary and nothing else. Whatever takes long
//! runs without the GIL.

#![expect(clippy::needless_pass_by_value, reason = "Python hands its arguments over")]

mod bytes;
mod device;
mod errors;
mod events;
mod predictions;
mod runs;
mod sampling;
mod selection;
mod tables;

/// The engine of the package `thinfer`.
#[pyo3::pymodule]
mod _thinfer {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::errors::hit_a_bug;
    #[pymodule_export]
    use super::predictions::Predicted;
    #[pymodule_export]
    use super::runs::{Run, fit, load, train};
    #[pymodule_export]
    use super::sampling::sample;
    #[pymodule_export]
    use super::selection::select;
    #[pymodule_export]
    use super::tables::Table;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::errors::keep_panics_quiet();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("IN_MEMORY", thinfer::data::table::IN_MEMORY)
    }
}
