//! Which reader a table gets: by the ending of its file, or for standard input.

use std::path::Path;

use super::source::Source;
use super::{Table, columns, csv, parquet};
use crate::error::{Error, Result};

/// How a table is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Columns that are text whatever their cells look like.
    pub categorical: Vec<String>,
    /// Whether a name in `categorical` may be absent from the table. False refuses such a name.
    pub may_be_absent: bool,
    /// Whether commas stand before decimals where the table leaves that open.
    pub decimal_commas: bool,
}

/// A table that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The table.
    pub table: Table,
    /// Whether its columns show that commas stand before decimals.
    pub decimal_commas: bool,
    /// What the user should know about how it was read.
    pub notes: Vec<String>,
}

impl Reading {
    /// Reads a table with options in so much memory, where it is known.
    pub fn of(path: &Path, options: &ReadOptions, memory: Option<u64>) -> Result<Self> {
        if is_standard_input(path) {
            return csv::read(&Source::standard_input(memory)?, b',', options, memory);
        }
        if let Some(error) = columns::not_in_a_file(path) {
            return Err(error);
        }
        let file = std::fs::metadata(path).map_err(|e| Error::file("read", path, e))?;
        if file.is_dir() {
            let problem = format!("is a folder; give the path of a table ({READABLE})");
            return Err(Error::table(path, problem));
        }
        let (format, is_packed) = Format::to_read(path)?;
        if file.len() == 0 {
            return Err(Error::table(path, "is empty; write the table again"));
        }
        match format {
            Format::Csv(usual) => {
                csv::read(&Source::file(path, is_packed)?, usual, options, memory)
            }
            Format::Parquet => parquet::read(path, options, memory),
        }
    }
}

/// Refuses a file whose ending says of no kind of table that can be written.
pub fn check_extension(path: &Path) -> Result<()> {
    Format::of(path).map(drop)
}

/// Whether a path stands for standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

const SUPPORTED: &str = ".csv, .tsv, .parquet or .pq";
const READABLE: &str = ".csv, .tsv, .txt, also with .gz, .parquet or .pq";

/// What a file holds, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Text with this byte between cells.
    Csv(u8),
    Parquet,
}

impl Format {
    /// Of a file to write.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let extension = extension(path);
        match extension.as_deref() {
            Some("csv") => Ok(Format::Csv(b',')),
            Some("tsv") => Ok(Format::Csv(b'\t')),
            Some("parquet" | "pq") => Ok(Format::Parquet),
            other => Err(unknown(path, other, SUPPORTED)),
        }
    }

    /// Of a file to read, and whether it is packed.
    fn to_read(path: &Path) -> Result<(Self, bool)> {
        let extension = extension(path);
        if extension.as_deref() == Some("gz") {
            let inner = Path::new(path.file_stem().unwrap_or_default());
            if let Ok((format @ Format::Csv(_), false)) = Self::to_read(inner) {
                return Ok((format, true));
            }
            let problem = "is packed, and what is in it must be text; name it .csv.gz, .tsv.gz or .txt.gz, or unpack it";
            return Err(Error::table(path, problem));
        }
        match extension.as_deref() {
            Some("txt") => Ok((Format::Csv(b'\t'), false)),
            Some("csv" | "tsv" | "parquet" | "pq") => Ok((Self::of(path)?, false)),
            other => Err(unknown(path, other, READABLE)),
        }
    }
}

/// The extension of a path in small letters.
fn extension(path: &Path) -> Option<String> {
    path.extension().map(|extension| extension.to_string_lossy().to_lowercase())
}

fn unknown(path: &Path, extension: Option<&str>, known: &str) -> Error {
    let problem = match extension {
        Some(other) => format!("`.{other}` files are not supported; use {known}"),
        None => format!("has no extension that says what it is; use {known}"),
    };
    Error::table(path, problem)
}
