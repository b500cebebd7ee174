//! Parquet where the feature `parquet` is off: refused, with what to do.

use std::io::{self, Write};
use std::path::Path;

use super::{OutColumn, ReadOptions, Reading};
use crate::error::{Error, Result};

/// What is missing, and what to do.
const MISSING: &str = "is a Parquet file, which this build cannot handle; use .csv, or build with the feature `parquet`";

/// Refuses the file at `path`.
pub(super) fn read(path: &Path, _: &ReadOptions, _: Option<u64>) -> Result<Reading> {
    Err(Error::table(path, MISSING))
}

/// Refuses to write.
pub(super) fn write<W: Write + Send>(_: W, _: &[(String, OutColumn)]) -> io::Result<W> {
    Err(io::Error::other(MISSING))
}
