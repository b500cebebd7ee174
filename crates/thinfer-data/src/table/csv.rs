//! CSV and tab-separated files.
//!
//! A first pass reads every cell as a number, straight from the bytes of the file, and keeps count
//! of the cells that are none. Only where that shows columns to be text does a second pass read
//! those columns again, so that a table of numbers, the large case, is read once and never held as
//! text.

use std::io::{BufReader, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::cell::{Cell, classify};
use super::decide::{Candidate, Decided, Decisions, Hints, decide};
use super::dialect::{self, Decimal, Told};
use super::infer::Pending;
use super::separator::{self, SEPARATORS};
use super::source::Source;
use super::{
    Column, ReadOptions, Reading, Table, Values, check_categorical, check_names, check_rows,
    is_missing_text,
};
use crate::error::{Error, Result};
use crate::memory::check_memory;

#[cfg(test)]
mod tests;

/// Why a text was not read.
enum Failure {
    /// It is not UTF-8, as the error says.
    Encoding(Error),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Reads the text of a table whose cells `usual` separates by the name of its file.
pub(super) fn read(
    source: &Source,
    usual: u8,
    options: &ReadOptions,
    memory: Option<u64>,
) -> Result<Reading> {
    match Text::of(source, usual, memory)?.read(options) {
        Err(Failure::Encoding(error)) => {
            if !source.may_be_windows_1252()? {
                return Err(error);
            }
            let source = source.as_windows_1252();
            let found = Text::of(&source, usual, memory)?.read(options);
            found.map(|found| with_note(found, source.note()))
        }
        other => other.map(|found| with_note(found, source.note())),
    }
    .map_err(|failure| match failure {
        Failure::Encoding(error) | Failure::Other(error) => error,
    })
}

fn with_note(mut found: Reading, note: Option<String>) -> Reading {
    found.notes.splice(0..0, note);
    found
}

/// The text of a table.
struct Text<'a> {
    source: &'a Source,
    separator: u8,
    /// Whether that is not what the name of the file asks for.
    is_unusual: bool,
    memory: Option<u64>,
}

impl<'a> Text<'a> {
    /// Refuses tables that will not fit into memory.
    fn of(source: &'a Source, usual: u8, memory: Option<u64>) -> Result<Self> {
        let (sample, size) = (source.text_sample()?, source.size()?);
        let separator = separator::of(&sample, usual);
        let needed = needed(&sample, size, separator);
        check_memory(&source.path().display().to_string(), needed, memory)?;
        Ok(Self { source, separator, is_unusual: separator != usual, memory })
    }

    fn read(&self, options: &ReadOptions) -> std::result::Result<Reading, Failure> {
        let path = self.source.path();
        let mut reader = self.open()?;
        let names = self.header(&mut reader)?;
        let mut pending: Vec<Pending> =
            names.iter().map(|name| Pending::new(options.categorical.contains(name))).collect();
        let mut record = ByteRecord::new();
        let mut rows = 0;
        while reader.read_byte_record(&mut record).map_err(|e| self.broken(e))? {
            rows += 1;
            for (column, cell) in pending.iter_mut().zip(&record) {
                column.push(rows, cell);
            }
        }
        if rows == 0 {
            return Err(
                Error::table(path, "has a header but no rows; add the data below it").into()
            );
        }
        check_rows(path, rows)?;
        let mut table = Table { path: path.to_owned(), columns: Vec::with_capacity(names.len()) };
        let (mut text, mut maybe) = (Vec::new(), Vec::new());
        let has_points = pending.iter().any(|column| column.has_points);
        let forced: Vec<bool> = pending.iter().map(|column| column.is_forced).collect();
        for (at, (name, mut column)) in names.into_iter().zip(pending).enumerate() {
            let values = if column.is_text(path, &name, rows)? {
                text.push(at);
                Values::Text(Vec::new())
            } else {
                if column.may_be_thousands() {
                    maybe.push(at);
                }
                column.values.shrink_to_fit();
                Values::Number(column.values)
            };
            table.columns.push(Column { name, values });
        }
        check_categorical(&table, options)?;
        let (mut told, mut decimal_commas) = (Vec::new(), false);
        if !text.is_empty() {
            let candidates = self.read_text(&table, &text, rows, &forced)?;
            let commas = self.separator == b';' || options.decimal_commas;
            let hints = Hints { has_points, commas };
            let Decisions { columns, decimal, told: of_text } = decide(path, candidates, hints)?;
            told = of_text;
            for (at, column) in text.iter().zip(columns) {
                table.columns[*at].values = match column {
                    Decided::Numbers(values) => Values::Number(values),
                    Decided::Text(cells) => Values::Text(cells),
                };
            }
            decimal_commas = decimal == Some(Decimal::Comma);
        }
        let expected = options.decimal_commas && !has_points;
        if (decimal_commas || expected) && !maybe.is_empty() {
            told.extend(self.thousands(&mut table, &maybe, rows)?);
        }
        let separated = self.is_unusual.then(|| {
            let by = match self.separator {
                b'\t' => "tabs".to_owned(),
                other => format!("`{}`", char::from(other)),
            };
            format!("cells are separated by {by}")
        });
        let notes = separated.into_iter().chain(dialect::note(&told)).collect();
        Ok(Reading { table, decimal_commas, notes })
    }

    /// Another pass over the columns `wanted`: their cells as text, without blanks around them.
    fn read_text(
        &self,
        table: &Table,
        wanted: &[usize],
        rows: usize,
        forced: &[bool],
    ) -> std::result::Result<Vec<Candidate>, Failure> {
        let path = self.source.path();
        // A `String` and a small allocation behind it.
        let bytes =
            (rows as u64).checked_mul(wanted.len() as u64).and_then(|cells| cells.checked_mul(40));
        check_memory(&format!("the text of {}", path.display()), bytes, self.memory)?;
        let mut reader = self.open()?;
        let mut cells = vec![Vec::with_capacity(rows); wanted.len()];
        let mut record = ByteRecord::new();
        let mut row = 0;
        while reader.read_byte_record(&mut record).map_err(|e| self.broken(e))? {
            row += 1;
            for (column, at) in cells.iter_mut().zip(wanted) {
                let cell = record.get(*at).unwrap_or_default();
                let cell = std::str::from_utf8(cell).map_err(|_| {
                    self.not_utf8(&format!("row {row}, column `{}`", table.columns[*at].name))
                })?;
                let cell = cell.trim();
                column.push((!is_missing_text(cell.as_bytes())).then(|| cell.to_owned()));
            }
        }
        if row != rows {
            return Err(Error::table(path, "changed while it was read; try again").into());
        }
        let candidate = |(at, cells): (&usize, Vec<Option<String>>)| Candidate {
            name: table.columns[*at].name.clone(),
            cells,
            is_forced: forced[*at],
        };
        Ok(wanted.iter().zip(cells).map(candidate).collect())
    }

    /// Reads plain numbers once more in a table with decimal commas: `1.234` is a thousand there,
    /// where all numbers of a column could be.
    fn thousands(
        &self,
        table: &mut Table,
        maybe: &[usize],
        rows: usize,
    ) -> std::result::Result<Vec<Told>, Failure> {
        let mut told = Vec::new();
        let forced = vec![false; table.columns.len()];
        for (at, candidate) in maybe.iter().zip(self.read_text(table, maybe, rows, &forced)?) {
            let Candidate { name, cells, .. } = candidate;
            if dialect::Column::of(&cells).is_open() {
                let decimal = Decimal::Comma;
                let pointed = |cell: &&String| cell.contains('.');
                let cell = cells.iter().flatten().find(pointed).cloned().unwrap_or_default();
                table.columns[*at].values = Values::Number(dialect::numbers(&cells, decimal));
                told.push(Told { name, cell, decimal, is_open: true });
            }
        }
        Ok(told)
    }

    fn open(&self) -> Result<Reader<Box<dyn Read>>> {
        let text = self.source.open()?;
        let mut builder = ReaderBuilder::new();
        Ok(builder.delimiter(self.separator).buffer_capacity(1 << 18).from_reader(text))
    }

    fn header(
        &self,
        reader: &mut Reader<Box<dyn Read>>,
    ) -> std::result::Result<Vec<String>, Failure> {
        let path = self.source.path();
        let record = reader.byte_headers().map_err(|e| self.broken(e))?;
        let mut names = record
            .iter()
            .map(|name| std::str::from_utf8(name).map(|name| name.trim().to_owned()))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|_| self.not_utf8("the header"))?;
        // The csv crate takes one byte order mark away; a file that was converted twice has two.
        if let Some(first) = names.first_mut() {
            let blank = |c: char| c == '\u{feff}' || c.is_whitespace();
            *first = first.trim_start_matches(blank).to_owned();
        }
        check_header(path, &names)?;
        check_names(path, &names)?;
        Ok(names)
    }

    fn not_utf8(&self, place: &str) -> Failure {
        let problem = format!("{place} is not UTF-8 text; save the table as UTF-8");
        Failure::Encoding(Error::table(self.source.path(), problem))
    }

    fn broken(&self, error: csv::Error) -> Error {
        let path = self.source.path();
        match error.into_kind() {
            ErrorKind::Io(error) => self.source.broken(error),
            ErrorKind::UnequalLengths { pos, expected_len, len } => {
                let line = pos.and_then(|pos| self.line_at(pos.byte()).ok());
                let place = line.map_or_else(|| "a line".to_owned(), |line| format!("line {line}"));
                let problem = format!(
                    "{place} has {len} {}, but the header has {expected_len}; look for a missing \
                     or extra separator or quote there",
                    if len == 1 { "cell" } else { "cells" }
                );
                Error::table(path, problem)
            }
            other => {
                Error::table(path, format!("cannot be read ({other:?}); write the table again"))
            }
        }
    }

    /// The line of the first cell at or after `byte`. The reader's own count stands before the
    /// empty lines it skips, and before the second half of `\r\n`.
    fn line_at(&self, byte: u64) -> Result<u64> {
        let mut line = 1;
        for (at, next) in (0..).zip(BufReader::new(self.source.open()?).bytes()) {
            match next.map_err(|e| self.source.broken(e))? {
                b'\n' => line += 1,
                b'\r' => {}
                _ if at >= byte => break,
                _ => {}
            }
        }
        Ok(line)
    }
}

/// Refuses headers that are no names.
fn check_header(path: &std::path::Path, names: &[String]) -> Result<()> {
    if names.is_empty() || names.iter().all(String::is_empty) {
        return Err(Error::table(path, "has no header; name the columns in the first line"));
    }
    // Whole numbers can be names (`0`, `1`, ..., or years); `-0.3` cannot be meant as one.
    let is_data = |name: &String| matches!(classify(name.as_bytes()), Cell::Number(_));
    let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    if names.iter().all(is_data) && !names.iter().all(is_name) {
        let problem =
            "the first line holds numbers, not names; add a header that names the columns";
        return Err(Error::table(path, problem));
    }
    if names.iter().any(|name| name.contains('\0')) {
        return Err(Error::table(path, "is not text; save the table as UTF-8 text"));
    }
    if let [only] = names
        && let Some(other) = SEPARATORS.map(char::from).into_iter().find(|c| only.contains(*c))
    {
        let problem = format!(
            "there is one column, and its name has {other:?}, which may be meant to separate \
             columns; write the header without quotes, or give the column another name"
        );
        return Err(Error::table(path, problem));
    }
    Ok(())
}

/// Bytes a file of `size` bytes that begins with `sample` takes as numbers. Long cells take about
/// what they take in the file, short ones eight bytes each.
fn needed(sample: &[u8], size: u64, delimiter: u8) -> Option<u64> {
    let cells = sample.iter().filter(|byte| **byte == delimiter || **byte == b'\n').count() as f64;
    let numbers = 8.0 * cells * (size as f64 / sample.len().max(1) as f64);
    let bytes = numbers.max(1.2 * size as f64);
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}
