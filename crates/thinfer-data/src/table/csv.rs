//! CSV and tab-separated files.
//!
//! A first pass reads every cell as a number, straight from the bytes of the file, and keeps count
//! of the cells that are none. Only where that shows columns to be text does a second pass read
//! those columns again, so that a table of numbers, the large case, is read once and never held as
//! text.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::infer::{Cell, Pending, classify};
use super::{
    Column, Found, ReadOptions, Table, Values, check_categorical, check_names, check_rows,
    is_missing_text,
};
use crate::error::{Error, Result};
use crate::files::regular;
use crate::memory::check_memory;

/// Bytes looked at to guess how many cells the file holds.
const SAMPLE: u64 = 1 << 16;

/// Reads the file at `path`, which is there and not empty.
pub(super) fn read(
    path: &Path,
    delimiter: u8,
    options: &ReadOptions,
    memory: Option<u64>,
) -> Result<Found> {
    check_size(path, delimiter, memory)?;
    let mut reader = open(path, delimiter)?;
    let names = header(path, delimiter, &mut reader)?;
    let mut pending: Vec<Pending> =
        names.iter().map(|name| Pending::new(options.categorical.contains(name))).collect();
    let mut record = ByteRecord::new();
    let mut rows = 0;
    while reader.read_byte_record(&mut record).map_err(|e| broken(path, e))? {
        rows += 1;
        for (column, cell) in pending.iter_mut().zip(&record) {
            column.push(rows, cell);
        }
    }
    if rows == 0 {
        return Err(Error::table(path, "has a header but no rows; add the data below it"));
    }
    check_rows(path, rows)?;

    let (mut text, mut dressed) = (Vec::new(), Vec::new());
    let mut columns = Vec::with_capacity(names.len());
    for (at, (name, mut column)) in names.into_iter().zip(pending).enumerate() {
        let values = if column.is_text(path, &name, rows)? {
            text.push(at);
            Values::Text(Vec::new())
        } else {
            column.values.shrink_to_fit();
            dressed.extend(column.dressed.map(|cell| (name.clone(), cell)));
            Values::Number(column.values)
        };
        columns.push(Column { name, values });
    }
    let mut table = Table { path: path.to_owned(), columns };
    check_categorical(&table, options)?;
    if !text.is_empty() {
        read_text(&mut table, delimiter, &text, rows, memory)?;
    }
    Ok(Found { table, dressed })
}

/// The second pass: fills the columns `text`.
fn read_text(
    table: &mut Table,
    delimiter: u8,
    text: &[usize],
    rows: usize,
    memory: Option<u64>,
) -> Result<()> {
    let path = table.path.clone();
    // A `String` and a small allocation behind it.
    let bytes =
        (rows as u64).checked_mul(text.len() as u64).and_then(|cells| cells.checked_mul(40));
    check_memory(&format!("the text of {}", path.display()), bytes, memory)?;
    let mut reader = open(&path, delimiter)?;
    let mut cells = vec![Vec::with_capacity(rows); text.len()];
    let mut record = ByteRecord::new();
    let mut row = 0;
    while reader.read_byte_record(&mut record).map_err(|e| broken(&path, e))? {
        row += 1;
        for (column, at) in cells.iter_mut().zip(text) {
            let cell = record.get(*at).unwrap_or_default();
            let cell = std::str::from_utf8(cell).map_err(|_| {
                not_utf8(&path, &format!("row {row}, column `{}`", table.columns[*at].name))
            })?;
            let cell = cell.trim();
            column.push((!is_missing_text(cell.as_bytes())).then(|| cell.to_owned()));
        }
    }
    if row != rows {
        return Err(Error::table(&path, "changed while it was read; try again"));
    }
    for (column, at) in cells.into_iter().zip(text) {
        table.columns[*at].values = Values::Text(column);
    }
    Ok(())
}

fn open(path: &Path, delimiter: u8) -> Result<Reader<File>> {
    let file = regular::open(path).map_err(|e| Error::file("read", path, e))?;
    Ok(ReaderBuilder::new().delimiter(delimiter).buffer_capacity(1 << 18).from_reader(file))
}

/// Looks at the beginning of the file: refuses encodings other than UTF-8 that can be told, and
/// tables that will not fit into memory.
fn check_size(path: &Path, delimiter: u8, memory: Option<u64>) -> Result<()> {
    let unreadable = |e| Error::file("read", path, e);
    let file = regular::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let mut sample = Vec::new();
    file.take(SAMPLE).read_to_end(&mut sample).map_err(unreadable)?;
    if sample.starts_with(&[0xFF, 0xFE]) || sample.starts_with(&[0xFE, 0xFF]) {
        return Err(not_utf8(path, "the file"));
    }
    check_memory(&path.display().to_string(), needed(&sample, size, delimiter), memory)
}

/// Bytes a file of `size` bytes that begins with `sample` takes as numbers. Long cells take about
/// what they take in the file, short ones eight bytes each.
fn needed(sample: &[u8], size: u64, delimiter: u8) -> Option<u64> {
    let cells = sample.iter().filter(|byte| **byte == delimiter || **byte == b'\n').count() as f64;
    let numbers = 8.0 * cells * (size as f64 / sample.len().max(1) as f64);
    let bytes = numbers.max(1.2 * size as f64);
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

fn header(path: &Path, delimiter: u8, reader: &mut Reader<File>) -> Result<Vec<String>> {
    let record = reader.byte_headers().map_err(|e| broken(path, e))?;
    let mut names = record
        .iter()
        .map(|name| std::str::from_utf8(name).map(|name| name.trim().to_owned()))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|_| not_utf8(path, "the header"))?;
    // The csv crate takes one byte order mark away; a file that was converted twice has two.
    if let Some(first) = names.first_mut() {
        let blank = |c: char| c == '\u{feff}' || c.is_whitespace();
        *first = first.trim_start_matches(blank).to_owned();
    }
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
    if let [only] = names.as_slice()
        && let Some(other) = [';', '\t', ',', '|'].into_iter().find(|c| only.contains(*c))
    {
        let wanted = if delimiter == b',' { "`,`" } else { "tabs" };
        let problem = format!(
            "the columns seem to be separated by {other:?}; separate them by {wanted}, or use \
             .csv for commas and .tsv for tabs"
        );
        return Err(Error::table(path, problem));
    }
    check_names(path, &names)?;
    Ok(names)
}

fn not_utf8(path: &Path, place: &str) -> Error {
    Error::table(path, format!("{place} is not UTF-8 text; save the table as UTF-8"))
}

fn broken(path: &Path, error: csv::Error) -> Error {
    match error.into_kind() {
        ErrorKind::Io(source) => Error::file("read", path, source),
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.and_then(|pos| line_at(path, pos.byte()).ok());
            let place = line.map_or_else(|| "a line".to_owned(), |line| format!("line {line}"));
            let problem = format!(
                "{place} has {len} {}, but the header has {expected_len}; look for a missing or \
                 extra separator or quote there",
                if len == 1 { "cell" } else { "cells" }
            );
            Error::table(path, problem)
        }
        other => Error::table(path, format!("cannot be read ({other:?}); write the table again")),
    }
}

/// The line of the first cell at or after `byte`. The reader's own count stands before the empty
/// lines it skips, and before the second half of `\r\n`.
fn line_at(path: &Path, byte: u64) -> std::io::Result<u64> {
    let mut line = 1;
    for (at, next) in (0..).zip(BufReader::new(regular::open(path)?).bytes()) {
        match next? {
            b'\n' => line += 1,
            b'\r' => {}
            _ if at >= byte => break,
            _ => {}
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Table> {
        parse_as("t.csv", text, options)
    }

    fn parse_as(name: &str, text: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Table> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Table::read_with(&path, options)
    }

    fn plain(text: impl AsRef<[u8]>) -> Table {
        parse(text, &ReadOptions::default()).unwrap()
    }

    fn message(text: impl AsRef<[u8]>) -> String {
        let refused = parse(text, &ReadOptions::default()).unwrap_err();
        assert!(matches!(refused, Error::Table { .. }), "{refused:?}");
        refused.to_string().split_once("t.csv: ").unwrap().1.to_owned()
    }

    fn numbers(table: &Table, name: &str) -> Vec<f64> {
        match &table.column(name).unwrap().values {
            Values::Number(values) => values.clone(),
            Values::Text(_) => panic!("`{name}` is text"),
        }
    }

    fn texts(table: &Table, name: &str) -> Vec<String> {
        match &table.column(name).unwrap().values {
            Values::Number(_) => panic!("`{name}` is numbers"),
            Values::Text(values) => {
                values.iter().map(|v| v.clone().unwrap_or_else(|| "-".into())).collect()
            }
        }
    }

    #[test]
    fn columns_are_numbers_truth_values_or_text() {
        let table =
            plain("x, flag ,c\r\n 1 ,TRUE,red\r\n-2.5e1,false,\"a, b\"\r\n.5,True, blue \n");
        assert_eq!(numbers(&table, "x"), [1.0, -25.0, 0.5]);
        assert_eq!(numbers(&table, "flag"), [1.0, 0.0, 1.0]);
        assert_eq!(texts(&table, "c"), ["red", "a, b", "blue"]);
        assert_eq!(table.rows(), 3);
    }

    #[test]
    fn blanks_of_all_kinds_around_a_cell_do_not_count() {
        let table =
            plain("x,y,on,c\n\u{a0}5\u{a0},\u{2003},\u{a0}true,\u{a0}red\n6,7,false,blue\n");
        assert_eq!(numbers(&table, "x"), [5.0, 6.0]);
        assert!(numbers(&table, "y")[0].is_nan());
        assert_eq!(numbers(&table, "on"), [1.0, 0.0]);
        assert_eq!(texts(&table, "c"), ["red", "blue"]);
    }

    #[test]
    fn tabs_separate_in_tsv_and_a_byte_order_mark_is_no_part_of_a_name() {
        let table = parse_as("t.tsv", "a\tb\n1\tx,y\n", &ReadOptions::default()).unwrap();
        assert_eq!(texts(&table, "b"), ["x,y"]);
        assert_eq!(numbers(&plain("\u{feff}a,b\n1,2\n"), "a"), [1.0]);
        assert_eq!(numbers(&plain("\u{feff}\u{feff}a,b\n1,2\n"), "a"), [1.0]);
    }

    #[test]
    fn missing_cells_are_nan_in_numbers_and_none_in_text() {
        let table = plain("x,c,void\n1,red,\n,NA,nan\n n/a ,?,NULL\nNaN,None,?\n");
        assert_eq!(numbers(&table, "x")[0], 1.0);
        assert!(numbers(&table, "x")[1..].iter().all(|v| v.is_nan()));
        assert_eq!(texts(&table, "c"), ["red", "-", "-", "-"]);
        assert!(numbers(&table, "void").iter().all(|v| v.is_nan()));
    }

    #[test]
    fn a_few_odd_cells_among_numbers_are_refused_with_examples() {
        let text = String::from("x,y\n") + &"0,39\n".repeat(40) + "1,abc\n2,true\n3,1.2.3\n4,x\n";
        assert_eq!(
            message(&text),
            "column `y` holds numbers, but 4 cells are not (row 41: \"abc\", row 42: \"true\", \
             row 43: \"1.2.3\"); correct or empty them, or pass `--categorical y` if the column \
             is a category"
        );
        let forced = ReadOptions { categorical: vec!["y".into()], ..ReadOptions::default() };
        let table = parse(&text, &forced).unwrap();
        assert_eq!(texts(&table, "y")[39..], ["39", "abc", "true", "1.2.3", "x"]);
    }

    #[test]
    fn below_nine_in_ten_numbers_the_column_is_text_as_it_stands() {
        let table = plain("c\n01\n2.0\n3\n4\n5\n6\n7\n8\nA\n");
        assert_eq!(texts(&table, "c"), ["01", "2.0", "3", "4", "5", "6", "7", "8", "A"]);
        let one_in_ten = message("c\n1\n2\n3\n4\n5\n6\n7\n8\n9\nA\n");
        assert!(one_in_ten.contains("1 cell is not (row 10: \"A\")"), "{one_in_ten}");
    }

    #[test]
    fn unknown_categorical_columns_are_refused_unless_they_may_be_absent() {
        let mut options = ReadOptions { categorical: vec!["color".into()], may_be_absent: false };
        let refused = parse("colour,x\n1,2\n", &options).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        let refused = refused.to_string();
        assert!(refused.starts_with("`--categorical`: "), "{refused}");
        assert!(refused.contains("no column `color`; did you mean `colour`?"), "{refused}");
        options.may_be_absent = true;
        parse("colour,x\n1,2\n", &options).unwrap();
    }

    #[test]
    fn infinite_numbers_are_refused_with_row_and_column() {
        for cell in ["inf", "-Infinity", "+INF", "1e999"] {
            assert_eq!(
                message(format!("x,y\n1,2\n3,{cell}\n")),
                format!("row 2, column `y`: `{cell}` is not finite; correct or empty the cell")
            );
        }
        assert_eq!(texts(&plain("c\ninf\nsup\nmax\n"), "c"), ["inf", "sup", "max"]);
    }

    #[test]
    fn ragged_rows_are_refused_with_line_and_counts() {
        assert_eq!(
            message("a,b,c\n1,2,3\n\n4,5\n"),
            "line 4 has 2 cells, but the header has 3; look for a missing or extra separator or \
             quote there"
        );
        let windows = message("a,b,c\r\n1,2,3\r\n4,5\r\n");
        assert!(windows.starts_with("line 3 has 2 cells"), "{windows}");
        let long = message("a,b\n1,\"x\ny\"\n4,5,6\n");
        assert!(long.starts_with("line 4 has 3 cells, but the header has 2"), "{long}");
    }

    #[test]
    fn headers_must_be_names_and_each_name_used_once() {
        assert_eq!(
            message("a,b,a,b,c,a\n1,2,3,4,5,6\n"),
            "the names `a`, `b` occur more than once in the header; give every column its own name"
        );
        let unnamed = message(",a,b\n1,2,3\n");
        assert!(unnamed.starts_with("column 1 has no name; name it in the header"), "{unnamed}");
        let data = message("0.5,1,2\n0.1,3,4\n");
        assert!(data.starts_with("the first line holds numbers, not names"), "{data}");
        assert_eq!(numbers(&plain("0,1\n5,6\n"), "1"), [6.0]);
        assert!(message(" \n").contains("has no header"));
        assert!(message("\n\n").contains("has no header"));
    }

    #[test]
    fn files_without_rows_are_refused() {
        assert_eq!(message("a,b\n"), "has a header but no rows; add the data below it");
        assert_eq!(message("a,b"), "has a header but no rows; add the data below it");
    }

    #[test]
    fn other_separators_are_pointed_out() {
        let refused = message("a;b;c\n1;2;3\n");
        assert!(refused.contains("separated by ';'; separate them by `,`"), "{refused}");
        let refused = parse_as("t.tsv", "a,b\n1,2\n", &ReadOptions::default()).unwrap_err();
        assert!(refused.to_string().contains("separated by ','; separate them by tabs"));
    }

    #[test]
    fn other_encodings_are_refused_with_the_place() {
        assert_eq!(
            message(b"a,b\n1,2\n3,caf\xe9\n"),
            "row 2, column `b` is not UTF-8 text; save the table as UTF-8"
        );
        assert!(message(b"caf\xe9,b\n1,2\n").starts_with("the header is not UTF-8"));
        assert!(message(b"\xff\xfea\0,\0b\0\n\0").starts_with("the file is not UTF-8"));
    }

    #[test]
    fn the_estimate_follows_the_cells_where_they_are_short() {
        // Two bytes in the file, eight in memory.
        assert_eq!(needed(b"1,0\n0,1\n", 8_000, b','), Some(32_000));
        assert_eq!(needed(b"0.1234567890123456\n", 19_000, b','), Some(22_800));
        assert_eq!(needed(b"1\n", u64::MAX, b','), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_finite_number_survives(values in prop::collection::vec(
            prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, 1..20)) {
            let text = values.iter().fold(String::from("x\n"), |t, v| t + &format!("{v:e}\n"));
            prop_assert_eq!(numbers(&plain(text), "x"), values);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(bytes, &ReadOptions::default());
        }
    }
}
