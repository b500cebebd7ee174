//! Tables: read from CSV and Parquet or made of columns, turned into a design matrix, and written.
//!
//! Rows in messages and reports are counted from 1, the header not included.

mod cell;
mod columns;
mod csv;
mod dates;
mod decide;
mod design;
mod dialect;
mod encode;
mod infer;
mod learn;
mod levels;
mod notes;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;
mod read;
mod rules;
mod separator;
mod source;
mod suspects;
mod target;
mod variable;
mod write;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::memory::available_memory;
pub use columns::IN_MEMORY;
pub use dates::{Order, Part};
pub use encode::{Encoding, Unseen};
pub use notes::Notes;
use read::Format;
pub use read::{ReadOptions, Reading, check_extension, is_standard_input};
pub use rules::{Missing, Prepare, Rules};
pub use target::{Target, Task, infer_task, learn_target};
pub use variable::{Gaps, Kind, Variable};
pub use write::csv_failure;
pub use write::{OutColumn, write_columns, write_csv_to};

/// A table in memory: named columns of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The file it came from.
    pub path: PathBuf,
    /// Its columns, in the order of the file.
    pub columns: Vec<Column>,
}

/// A named column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// Its cells.
    pub values: Values,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Finite numbers; NaN is a missing value. Truth values are 1 and 0.
    Number(Vec<f64>),
    /// Text, without blanks around it; `None` is a missing value.
    Text(Vec<Option<String>>),
}

/// What is missing in a table, for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingReport {
    /// Missing cells.
    pub cells: usize,
    /// Rows with at least one of them.
    pub rows: usize,
    /// The columns they are in and how many there are in each, in the order of the table.
    pub columns: Vec<(String, usize)>,
    /// The first of them in reading order, at most five: row, counted from 1, and column.
    pub first: Vec<(usize, String)>,
    /// Columns without a single value. They are left out of all the other counts, since they say
    /// nothing about single rows and cannot be used anyway.
    pub empty: Vec<String>,
}

impl Values {
    /// How many cells there are, missing ones included.
    pub fn len(&self) -> usize {
        match self {
            Values::Number(values) => values.len(),
            Values::Text(values) => values.len(),
        }
    }

    /// Whether there are no cells at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the cell of `row`, counted from 0, is missing. A row past the end is.
    pub fn is_missing(&self, row: usize) -> bool {
        match self {
            Values::Number(values) => values.get(row).is_none_or(|value| value.is_nan()),
            Values::Text(values) => values.get(row).is_none_or(Option::is_none),
        }
    }
}

impl Table {
    /// Reads a table; the extension says what it is: `.csv`, `.tsv` or `.txt`, each also with `.gz`
    /// behind it, `.parquet` or `.pq`. The path `-` is standard input.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_with(path, &ReadOptions::default())
    }

    /// Reads a table with options.
    pub fn read_with(path: &Path, options: &ReadOptions) -> Result<Self> {
        Self::read_noted(path, options).map(|(table, _)| table)
    }

    /// Reads a table with options, and says what the user should know about how it was read.
    pub fn read_noted(path: &Path, options: &ReadOptions) -> Result<(Self, Vec<String>)> {
        let Reading { table, notes, .. } = Reading::of(path, options, available_memory())?;
        Ok((table, notes))
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// What is missing in the columns that have values at all.
    pub fn missing(&self) -> MissingReport {
        let (empty, filled): (Vec<_>, Vec<_>) = self.columns.iter().partition(|c| self.is_void(c));
        let empty = empty.into_iter().map(|column| column.name.clone()).collect();
        MissingReport { empty, ..self.report(&filled) }
    }

    /// What is missing in the columns `names`; absent columns are passed over.
    pub fn missing_in(&self, names: &[String]) -> MissingReport {
        self.report(&self.chosen(names))
    }

    /// The rows without a missing value in the columns that have values at all, counted from 0.
    pub fn complete_rows(&self) -> Vec<u32> {
        self.complete(&self.columns.iter().filter(|c| !self.is_void(c)).collect::<Vec<_>>())
    }

    /// The rows without a missing value in the columns `names`, counted from 0; absent columns are
    /// passed over.
    pub fn complete_rows_in(&self, names: &[String]) -> Vec<u32> {
        self.complete(&self.chosen(names))
    }

    fn is_void(&self, column: &Column) -> bool {
        (0..self.rows()).all(|row| column.values.is_missing(row))
    }

    fn chosen(&self, names: &[String]) -> Vec<&Column> {
        let columns = self.by_name();
        names.iter().filter_map(|name| columns.get(name.as_str()).copied()).collect()
    }

    /// The columns by name, for looking up many of them.
    fn by_name(&self) -> HashMap<&str, &Column> {
        self.columns.iter().map(|column| (column.name.as_str(), column)).collect()
    }

    fn complete(&self, columns: &[&Column]) -> Vec<u32> {
        let incomplete = self.incomplete(columns);
        (0u32..).zip(incomplete).filter(|(_, missing)| !missing).map(|(row, _)| row).collect()
    }

    fn incomplete(&self, columns: &[&Column]) -> Vec<bool> {
        let mut rows = vec![false; self.rows()];
        for column in columns {
            for (row, missing) in rows.iter_mut().enumerate() {
                *missing |= column.values.is_missing(row);
            }
        }
        rows
    }

    fn report(&self, columns: &[&Column]) -> MissingReport {
        const SHOWN: usize = 5;
        let mut report = MissingReport::default();
        let mut first = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let missing = || (0..self.rows()).filter(|row| column.values.is_missing(*row));
            let count = missing().count();
            if count > 0 {
                report.cells += count;
                report.columns.push((column.name.clone(), count));
                first.extend(missing().take(SHOWN).map(|row| (row + 1, at)));
            }
        }
        first.sort_unstable();
        first.truncate(SHOWN);
        report.first = first.into_iter().map(|(row, at)| (row, columns[at].name.clone())).collect();
        report.rows = self.incomplete(columns).into_iter().filter(|missing| *missing).count();
        report
    }

    /// How to say that a column is not there, with the nearest name or some that are.
    pub fn no_column(&self, name: &str) -> String {
        const SHOWN: usize = 8;
        let nearest = self
            .columns
            .iter()
            .map(|c| (strsim::jaro_winkler(&c.name.to_lowercase(), &name.to_lowercase()), &c.name))
            .filter(|(similarity, _)| *similarity >= 0.75)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, near)| near);
        let lead = nearest.map_or_else(
            || "the columns are".to_owned(),
            |near| format!("did you mean `{near}`? The columns are"),
        );
        let shown = quoted(self.columns.iter().take(SHOWN).map(|column| column.name.as_str()));
        let more = match self.columns.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("no column `{name}`; {lead} {shown}{more}")
    }

    /// Refuses rows that `column` does not have.
    fn check_has(&self, column: &Column, rows: &[u32]) -> Result<()> {
        match rows.iter().max() {
            Some(last) if *last as usize >= column.values.len() => {
                let problem = format!(
                    "has no row {} in column `{}`; choose rows up to {}",
                    *last as usize + 1,
                    column.name,
                    column.values.len()
                );
                Err(Error::table(&self.path, problem))
            }
            _ => Ok(()),
        }
    }

    /// How to say that a cell that is needed is missing.
    fn missing_cell(&self, row: u32, name: &str) -> Error {
        let problem = format!(
            "row {}, column `{name}`: the value is missing; fill it in or leave the row out",
            row as usize + 1
        );
        Error::table(&self.path, problem)
    }
}

/// Refuses columns without a name, names that occur twice, and tables without columns.
fn check_names(path: &Path, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Err(Error::table(path, "has no columns; write the table again"));
    }
    if let Some(at) = names.iter().position(String::is_empty) {
        let problem = format!(
            "column {} has no name; name it in the header, or write the table without its row \
             labels (`index=False` in pandas)",
            at + 1
        );
        return Err(Error::table(path, problem));
    }
    let (mut seen, mut twice) = (HashSet::new(), Vec::new());
    for name in names {
        if !seen.insert(name) && !twice.contains(&name.as_str()) {
            twice.push(name);
        }
    }
    if twice.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "the names {} occur more than once in the header; give every column its own name",
        quoted(twice.into_iter().take(8))
    );
    Err(Error::table(path, problem))
}

/// Refuses names in `categorical` that are not columns.
fn check_categorical(table: &Table, options: &ReadOptions) -> Result<()> {
    let absent = options.categorical.iter().find(|name| table.column(name).is_none());
    match absent {
        Some(name) if !options.may_be_absent => {
            let problem = format!("{} has {}", table.path.display(), table.no_column(name));
            Err(Error::config("--categorical", problem))
        }
        _ => Ok(()),
    }
}

/// Refuses more rows than a `u32` can count.
fn check_rows(path: &Path, rows: usize) -> Result<()> {
    if rows > u32::MAX as usize {
        let problem = format!("has {rows} rows; use at most {}", u32::MAX);
        return Err(Error::table(path, problem));
    }
    Ok(())
}

/// How to say that a cell is infinite, which no standardisation survives.
fn infinite_cell(path: &Path, row: usize, name: &str, cell: &str) -> Error {
    let problem =
        format!("row {row}, column `{name}`: `{cell}` is not finite; correct or empty the cell");
    Error::table(path, problem)
}

/// Whether text without blanks around it stands for a missing value.
fn is_missing_text(cell: &[u8]) -> bool {
    match cell.len() {
        0 => true,
        1 => cell == b"?",
        2 => cell.eq_ignore_ascii_case(b"na"),
        3 => cell.eq_ignore_ascii_case(b"nan") || cell.eq_ignore_ascii_case(b"n/a"),
        4 => cell.eq_ignore_ascii_case(b"null") || cell.eq_ignore_ascii_case(b"none"),
        _ => false,
    }
}

/// The shortest text that reads back as the same number.
fn number_text(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-5..1e16).contains(&size) {
        format!("{}", value + 0.0)
    } else {
        format!("{value:e}")
    }
}

/// Names in backticks, with commas between them.
fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn table(columns: Vec<(&str, Values)>) -> Table {
        let column = |(name, values): (&str, Values)| Column { name: name.into(), values };
        Table { path: "t.csv".into(), columns: columns.into_iter().map(column).collect() }
    }

    pub(super) fn number(values: &[f64]) -> Values {
        Values::Number(values.to_vec())
    }

    /// Text in which an empty cell is a missing one.
    pub(super) fn text(cells: &[&str]) -> Values {
        Values::Text(cells.iter().map(|c| (!c.is_empty()).then(|| (*c).to_owned())).collect())
    }

    fn message(file: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        Table::read(&path).unwrap_err().to_string()
    }

    fn example() -> Table {
        table(vec![
            ("x", number(&[1.0, f64::NAN, 3.0, f64::NAN])),
            ("void", number(&[f64::NAN; 4])),
            ("c", text(&["a", "", "c", "d"])),
        ])
    }

    #[test]
    fn unknown_extensions_are_refused_with_the_known_ones() {
        let refused = message("a.xlsx", "x");
        let expected =
            "`.xlsx` files are not supported; use .csv, .tsv, .txt, also with .gz, .parquet or .pq";
        assert!(refused.ends_with(expected), "{refused}");
        let refused = message("a", "x");
        assert!(refused.contains("has no extension"), "{refused}");
    }

    #[test]
    fn missing_files_folders_and_empty_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Table::read(&folder.path().join("no.csv")).unwrap_err().to_string();
        assert!(refused.starts_with("could not read "), "{refused}");
        assert!(refused.ends_with("Check the path"), "{refused}");
        let refused = Table::read(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("is a folder; give the path of a table"), "{refused}");
        for name in ["a.csv", "a.tsv", "a.parquet"] {
            let refused = message(name, "");
            assert!(refused.ends_with("is empty; write the table again"), "{refused}");
        }
    }

    #[test]
    fn missing_cells_are_counted_and_the_first_are_named() {
        let table = example();
        let report = table.missing();
        assert_eq!((report.cells, report.rows), (3, 2));
        assert_eq!(report.columns, [("x".to_owned(), 2), ("c".to_owned(), 1)]);
        let first = [(2, "x".to_owned()), (2, "c".to_owned()), (4, "x".to_owned())];
        assert_eq!(report.first, first);
        assert_eq!(report.empty, ["void"]);
        assert_eq!(table.complete_rows(), [0, 2]);
    }

    #[test]
    fn only_the_named_columns_count_when_they_are_named() {
        let table = example();
        assert_eq!(table.complete_rows_in(&["c".into()]), [0, 2, 3]);
        assert_eq!(table.missing_in(&["c".into(), "absent".into()]).cells, 1);
        // A named column without values leaves no row, since the caller needs it.
        assert_eq!(table.complete_rows_in(&["void".into()]), [0u32; 0]);
    }

    #[test]
    fn at_most_five_missing_cells_are_named() {
        let mut values = [f64::NAN; 10];
        values[9] = 1.0;
        let report = table(vec![("x", number(&values))]).missing();
        assert_eq!((report.cells, report.first.len()), (9, 5));
    }

    #[test]
    fn numbers_are_written_so_that_they_read_back() {
        for value in [0.0, -0.0, 1.0, 0.1, -2.5e-7, 1e300, f64::MIN_POSITIVE, 1.0 / 3.0, 1e16] {
            assert_eq!(number_text(value).parse::<f64>().unwrap(), value);
        }
        assert_eq!(number_text(3.0), "3");
        assert_eq!(number_text(-0.0), "0");
        assert_eq!(number_text(1e300), "1e300");
    }

    #[test]
    fn the_usual_spellings_of_missing_are_known() {
        for cell in ["", "NA", "na", "N/A", "NaN", "nan", "null", "NULL", "None", "none", "?"] {
            assert!(is_missing_text(cell.as_bytes()), "{cell}");
        }
        for cell in ["0", "-", "nano", "nil", "??", "a"] {
            assert!(!is_missing_text(cell.as_bytes()), "{cell}");
        }
    }
}
