//! Tables: what is read is whole, and is the same after it was written and read again.

use std::path::Path;

use thinfer_data::table::{Column, OutColumn, ReadOptions, Reading, Table, Values, write_columns};

use super::{Checked, Outcome, broken, file};

/// Memory that a table may take here.
const MEMORY: u64 = 8 << 20;

/// What a packed file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A CSV file, packed or not, and where it has tabs a file with tabs between its cells.
pub(super) fn csv(bytes: &[u8]) -> Checked {
    if bytes.starts_with(&GZIP) {
        return table("t.csv.gz", bytes);
    }
    let outcome = table("t.csv", bytes)?;
    if bytes.contains(&b'\t') && table("t.tsv", bytes)? == Outcome::Read {
        return Ok(Outcome::Read);
    }
    Ok(outcome)
}

/// A Parquet file.
pub(super) fn parquet(bytes: &[u8]) -> Checked {
    table("t.parquet", bytes)
}

fn table(name: &str, bytes: &[u8]) -> Checked {
    let path = file(name, bytes)?;
    let table = match read(&path, &[]) {
        Ok(table) => table,
        Err(reason) => return Ok(Outcome::refused(&reason)),
    };
    check(&table)?;
    // As text, the first column may be refused, but what is read of the others stays.
    if let Ok(forced) = read(&path, &[table.columns[0].name.clone()]) {
        let sizes = (forced.columns.len(), forced.rows());
        if sizes != (table.columns.len(), table.rows()) || !same(&forced, &table, 1) {
            return broken("a column of text changes the others", &format!("{forced:?}"));
        }
        if !matches!(forced.columns[0].values, Values::Text(_)) {
            return broken("a column of text is none", &format!("{forced:?}"));
        }
    }
    let again = path.with_file_name(format!("again-{}", name.trim_end_matches(".gz")));
    write_columns(&again, &out(&table), true)
        .or_else(|error| broken("what was read cannot be written", &error))?;
    match read(&again, &[]) {
        Ok(other) if same(&table, &other, 0) => Ok(Outcome::Read),
        Ok(other) => broken("what was written reads otherwise", &format!("{table:?} {other:?}")),
        Err(error) => broken("what was written cannot be read", &error),
    }
}

fn read(path: &Path, categorical: &[String]) -> thinfer_data::Result<Table> {
    let categorical = categorical.to_vec();
    let options = ReadOptions { categorical, ..ReadOptions::default() };
    Reading::of(path, &options, Some(MEMORY)).map(|reading| reading.table)
}

/// Columns of equal length with names, and finite numbers.
fn check(table: &Table) -> std::result::Result<(), String> {
    let rows = table.rows();
    let whole = |column: &Column| {
        let finite = match &column.values {
            Values::Number(values) => values.iter().all(|value| !value.is_infinite()),
            Values::Text(_) => true,
        };
        finite && column.values.len() == rows && !column.name.is_empty()
    };
    if rows == 0 || table.columns.is_empty() || !table.columns.iter().all(whole) {
        return broken("the table is not whole", &format!("{table:?}"));
    }
    let (complete, report) = (table.complete_rows(), table.missing());
    if complete.len() + report.rows != rows {
        return broken("rows are neither complete nor incomplete", &format!("{table:?}"));
    }
    Ok(())
}

/// Whether two tables agree from a column on; missing numbers agree.
fn same(one: &Table, other: &Table, first: usize) -> bool {
    let cells = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    let columns = |(a, b): (&Column, &Column)| {
        let values = match (&a.values, &b.values) {
            (Values::Number(a), Values::Number(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(cells)
            }
            (a, b) => a == b,
        };
        a.name == b.name && values
    };
    one.columns.len() == other.columns.len()
        && one.columns.iter().zip(&other.columns).skip(first).all(columns)
}

fn out(table: &Table) -> Vec<(String, OutColumn)> {
    let values = |values: &Values| match values {
        Values::Number(values) => OutColumn::Number(values.clone()),
        Values::Text(values) => {
            OutColumn::Text(values.iter().map(|text| text.clone().unwrap_or_default()).collect())
        }
    };
    table.columns.iter().map(|column| (column.name.clone(), values(&column.values))).collect()
}
