//! Tables made of columns in memory, which are in no file.

use std::path::{Path, PathBuf};

use super::{Column, Table, Values, check_names, check_rows, infinite_cell, is_missing_text};
use crate::error::{Error, Result};

/// What stands for the path of a table that is in no file: in messages, and as `data.path`.
pub const IN_MEMORY: &str = "table in memory";

impl Table {
    /// A table of columns that are in memory.
    ///
    /// Numbers are finite, and NaN is a missing value. Text loses the blanks around it, and what
    /// stands for a missing value in a file (`NA`, `?`, nothing) does here.
    pub fn from_columns(columns: Vec<Column>) -> Result<Self> {
        let path = PathBuf::from(IN_MEMORY);
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        check_names(&path, &names)?;
        let mut table = Table { path, columns };
        check_rows(&table.path, table.rows())?;
        if table.rows() == 0 {
            return Err(Error::table(&table.path, "has no rows; give at least one"));
        }
        let rows = table.rows();
        for column in &mut table.columns {
            if column.values.len() != rows {
                let problem = format!(
                    "column `{}` has {} rows, but `{}` has {rows}; give columns of equal length",
                    column.name,
                    column.values.len(),
                    names[0]
                );
                return Err(Error::table(&table.path, problem));
            }
            check(&table.path, column)?;
        }
        Ok(table)
    }
}

/// Refuses cells that are infinite, and brings text into the form that readers of files give it.
fn check(path: &Path, column: &mut Column) -> Result<()> {
    match &mut column.values {
        Values::Number(cells) => match cells.iter().position(|cell| cell.is_infinite()) {
            Some(at) => Err(infinite_cell(path, at + 1, &column.name, &cells[at].to_string())),
            None => Ok(()),
        },
        Values::Text(cells) => {
            for cell in cells {
                let Some(text) = cell else { continue };
                let trimmed = text.trim();
                if is_missing_text(trimmed.as_bytes()) {
                    *cell = None;
                } else if trimmed.len() < text.len() {
                    *cell = Some(trimmed.to_owned());
                }
            }
            Ok(())
        }
    }
}

/// How to say that a table in memory is asked for and cannot be read.
pub(super) fn not_in_a_file(path: &Path) -> Option<Error> {
    (path == Path::new(IN_MEMORY)).then(|| {
        let problem = "is what the run was trained on, and no file has it; give the same table \
                       again, or use what needs none of it: predictions, samples, exports of networks";
        Error::table(path, problem)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{number, text};
    use super::*;

    fn made(columns: Vec<(&str, Values)>) -> Result<Table> {
        let column = |(name, values): (&str, Values)| Column { name: name.into(), values };
        Table::from_columns(columns.into_iter().map(column).collect())
    }

    fn refused(columns: Vec<(&str, Values)>) -> String {
        made(columns).unwrap_err().to_string()
    }

    #[test]
    fn columns_are_the_table_that_a_file_of_them_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "x,kind\n1.5, red \n,NA\n-2,blue\n").unwrap();
        let cells = [Some(" red "), Some("NA"), Some("blue")].map(|c| c.map(str::to_owned));
        let columns =
            vec![("x", number(&[1.5, f64::NAN, -2.0])), ("kind", Values::Text(cells.to_vec()))];
        let (read, made) = (Table::read(&path).unwrap(), made(columns).unwrap());
        assert_eq!(made.column("kind"), read.column("kind"));
        let numbers = |table: &Table| match &table.column("x").unwrap().values {
            Values::Number(cells) => cells.iter().map(|cell| cell.to_bits()).collect::<Vec<_>>(),
            Values::Text(_) => panic!("numbers"),
        };
        assert_eq!(numbers(&made), numbers(&read));
    }

    #[test]
    fn columns_that_make_no_table_are_refused() {
        assert!(refused(vec![]).contains("has no columns"));
        assert!(refused(vec![("x", number(&[]))]).contains("has no rows"));
        let twice = refused(vec![("x", number(&[1.0])), ("x", number(&[2.0]))]);
        assert!(twice.contains("the names `x` occur more than once"), "{twice}");
        let short = refused(vec![("x", number(&[1.0, 2.0])), ("y", text(&["a"]))]);
        assert_eq!(
            short,
            "table in memory: column `y` has 1 rows, but `x` has 2; give columns of equal length"
        );
        let infinite = refused(vec![("x", number(&[1.0, f64::NEG_INFINITY]))]);
        assert!(infinite.contains("row 2, column `x`: `-inf` is not finite"), "{infinite}");
    }

    #[test]
    fn a_table_in_memory_is_read_from_no_file() {
        let error = Table::read(Path::new(IN_MEMORY)).unwrap_err().to_string();
        assert!(error.contains("give the same table again"), "{error}");
    }
}
