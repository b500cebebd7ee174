//! Results as CSV or Parquet. A file is either there and whole, or not there.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{Format, check_names, number_text, parquet};
use crate::error::{Error, Result};
use crate::files::Draft;

/// A column to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum OutColumn {
    /// Numbers. NaN becomes an empty cell in CSV and stays NaN in Parquet; infinities are refused.
    Number(Vec<f64>),
    /// Text.
    Text(Vec<String>),
}

impl OutColumn {
    /// How many cells there are.
    pub fn len(&self) -> usize {
        match self {
            OutColumn::Number(values) => values.len(),
            OutColumn::Text(values) => values.len(),
        }
    }

    /// Whether there are no cells at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Writes `columns` to `path`, as CSV or Parquet by the extension.
///
/// Nobody ever sees half a table. A file that is there is replaced only with `overwrite`.
pub fn write_columns(path: &Path, columns: &[(String, OutColumn)], overwrite: bool) -> Result<()> {
    let format = Format::of(path)?;
    check_columns(path, columns)?;
    if path.is_dir() {
        return Err(Error::table(path, "is a folder; choose another path with --out"));
    }
    if !overwrite && path.symlink_metadata().is_ok() {
        let problem = "already exists; choose another path with --out or pass --force";
        return Err(Error::table(path, problem));
    }
    let draft = Draft::begin(path)?;
    match format {
        Format::Csv(delimiter) => write_csv_to(draft.file(), delimiter, columns).map(drop),
        Format::Parquet => parquet::write(draft.file(), columns).map(drop),
    }
    .map_err(|e| Error::file("write", path, e))?;
    if overwrite { draft.replace() } else { draft.create() }
}

/// Refuses columns that differ in length, names that occur twice, and infinite numbers.
fn check_columns(path: &Path, columns: &[(String, OutColumn)]) -> Result<()> {
    check_names(path, &columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())?;
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    for (name, column) in columns {
        if column.len() != rows {
            let problem = format!(
                "column `{name}` has {} cells, but `{}` has {rows}; columns must be equally long",
                column.len(),
                columns[0].0
            );
            return Err(Error::table(path, problem));
        }
        if let OutColumn::Number(values) = column
            && let Some(row) = values.iter().position(|value| value.is_infinite())
        {
            let problem = format!(
                "row {}, column `{name}`: {} cannot be written; only finite numbers can",
                row + 1,
                values[row]
            );
            return Err(Error::table(path, problem));
        }
    }
    Ok(())
}

/// Writes `columns`, which must be equally long, as CSV with `delimiter` between cells, and gives
/// the writer back.
pub fn write_csv_to<W: Write>(
    to: W,
    delimiter: u8,
    columns: &[(String, OutColumn)],
) -> io::Result<W> {
    csv_text(to, delimiter, columns).map_err(csv_failure)
}

/// What went wrong while CSV was written. The conversion of the csv crate loses the kind, and with
/// it the advice for a full disk and the reader who has seen enough.
pub fn csv_failure(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn csv_text<W: Write>(to: W, delimiter: u8, columns: &[(String, OutColumn)]) -> csv::Result<W> {
    let buffer = BufWriter::with_capacity(1 << 16, to);
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(buffer);
    writer.write_record(columns.iter().map(|(name, _)| name))?;
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    for row in 0..rows {
        for (_, column) in columns {
            match column {
                OutColumn::Number(values) if values[row].is_nan() => writer.write_field("")?,
                OutColumn::Number(values) => writer.write_field(number_text(values[row]))?,
                OutColumn::Text(values) => writer.write_field(&values[row])?,
            }
        }
        writer.write_record(None::<&[u8]>)?;
    }
    let mut buffer = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    buffer.flush()?;
    Ok(buffer.into_inner().map_err(io::IntoInnerError::into_error)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::super::{Table, Values};
    use super::*;

    fn example() -> Vec<(String, OutColumn)> {
        vec![
            ("mean".into(), OutColumn::Number(vec![0.1, f64::NAN, -1e-300])),
            ("a, \"b\"".into(), OutColumn::Text(vec!["x,y".into(), "\"q\"".into(), "ü\nz".into()])),
        ]
    }

    fn entries(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        fs::read_dir(folder).unwrap().map(|e| name(e).into_string().unwrap()).collect()
    }

    fn refused(file: &str, columns: &[(String, OutColumn)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let refused = write_columns(&folder.path().join(file), columns, false).unwrap_err();
        assert!(entries(folder.path()).is_empty());
        refused.to_string()
    }

    #[test]
    fn what_is_written_reads_back_and_nothing_else_is_left() {
        for name in ["t.csv", "t.tsv", "t.parquet", "t.PQ"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            write_columns(&path, &example(), false).unwrap();
            assert_eq!(entries(folder.path()), [name]);
            let table = Table::read(&path).unwrap();
            assert_eq!(table.columns[1].name, "a, \"b\"");
            let Values::Number(mean) = &table.columns[0].values else { panic!("{name}") };
            assert_eq!((mean[0], mean[1].is_nan(), mean[2]), (0.1, true, -1e-300), "{name}");
            let text = ["x,y", "\"q\"", "ü\nz"].map(|text| Some(text.to_owned()));
            assert_eq!(table.columns[1].values, Values::Text(text.to_vec()), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_there_is_kept_unless_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.csv", "t.parquet"] {
            let path = folder.path().join(name);
            fs::write(&path, "old").unwrap();
            let refused = write_columns(&path, &example(), false).unwrap_err().to_string();
            assert!(
                refused.ends_with("already exists; choose another path with --out or pass --force"),
                "{refused}"
            );
            assert_eq!(fs::read(&path).unwrap(), b"old");
            write_columns(&path, &example(), true).unwrap();
            assert_eq!(Table::read(&path).unwrap().rows(), 3);
        }
    }

    #[test]
    fn a_table_without_rows_has_its_header() {
        let folder = tempfile::tempdir().unwrap();
        let columns = [("x".to_owned(), OutColumn::Number(Vec::new()))];
        assert!(columns[0].1.is_empty());
        for name in ["t.csv", "t.parquet"] {
            let path = folder.path().join(name);
            write_columns(&path, &columns, false).unwrap();
            assert!(Table::read(&path).unwrap_err().to_string().contains("but no rows"));
        }
    }

    #[test]
    fn columns_that_cannot_be_written_are_refused() {
        let number = |name: &str, values: &[f64]| (name.into(), OutColumn::Number(values.to_vec()));
        let uneven = refused("t.csv", &[number("x", &[1.0]), number("y", &[])]);
        assert!(uneven.contains("column `y` has 0 cells, but `x` has 1"), "{uneven}");
        let infinite = refused("t.csv", &[number("x", &[1.0, f64::INFINITY])]);
        assert!(infinite.contains("row 2, column `x`: inf cannot be written"), "{infinite}");
        let twice = refused("t.csv", &[number("x", &[1.0]), number("x", &[1.0])]);
        assert!(twice.contains("the names `x` occur more than once"), "{twice}");
        assert!(refused("t.csv", &[]).contains("has no columns"));
        let other = refused("t.json", &[number("x", &[1.0])]);
        assert!(other.contains("`.json` files are not supported; use .csv"), "{other}");
    }

    #[test]
    fn paths_that_cannot_be_written_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent").join("t.csv");
        let absent = write_columns(&path, &example(), false).unwrap_err().to_string();
        assert!(absent.starts_with("could not write "), "{absent}");
        let path = folder.path().join("folder.csv");
        fs::create_dir(&path).unwrap();
        let taken = write_columns(&path, &example(), true).unwrap_err().to_string();
        assert!(taken.contains("is a folder; choose another path with --out"), "{taken}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_leaves_no_half_table() {
        let Ok(full) = File::options().write(true).open("/dev/full") else { return };
        let columns = [("x".to_owned(), OutColumn::Number(vec![0.5; 100_000]))];
        let failed = write_csv_to(full.try_clone().unwrap(), b',', &columns).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
        let failed = parquet::write(full, &columns).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    }
}
