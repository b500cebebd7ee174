//! Parquet files: flat columns of numbers, truth values, text and decimals.

mod headers;
mod pages;
mod schema;
mod write;

use std::cell::Cell;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use self::headers::{has_footer, largest_page};
use self::pages::Pages;
use self::schema::{Stored, kinds, needed};
use super::dialect;
use super::{
    Column, ReadOptions, Reading, Table, Values, check_categorical, check_rows, infinite_cell,
    is_missing_text, number_text,
};
use crate::error::{Error, Result};
use crate::files::regular;
use crate::memory::check_memory;

pub(super) use self::write::write;

/// Values decoded at once.
const BATCH: usize = 8192;

/// Reads the file at `path`, which is there and not empty.
pub(super) fn read(path: &Path, options: &ReadOptions, memory: Option<u64>) -> Result<Reading> {
    // The parquet crate asserts some of what it finds in a file (negative offsets, a dictionary
    // that is announced and absent), and a damaged file must not end the program.
    std::panic::catch_unwind(|| read_sound(path, options, memory)).unwrap_or_else(|_| {
        Err(Error::table(path, "cannot be read as Parquet (damaged); write the table again"))
    })
}

fn read_sound(path: &Path, options: &ReadOptions, memory: Option<u64>) -> Result<Reading> {
    let file = regular::open(path).map_err(|e| Error::file("read", path, e))?;
    if !has_footer(&mut BufReader::new(&file)) {
        let problem = "cannot be read as Parquet (it does not end like it); write the table again";
        return Err(Error::table(path, problem));
    }
    let reader = SerializedFileReader::new(file).map_err(|e| broken(path, &e))?;
    let meta = reader.metadata();
    let kinds = kinds(path, meta)?;
    let rows = rows(path, meta)?;
    let bytes = needed(rows as u64, &kinds);
    check_memory(&path.display().to_string(), bytes, memory)?;
    check_pages(path, meta, memory)?;

    let schema = meta.file_metadata().schema_descr();
    let room = Room { rows, memory, text: Cell::new(0) };
    let (mut columns, mut told) = (Vec::with_capacity(kinds.len()), Vec::new());
    for (at, kind) in kinds.iter().enumerate() {
        let descriptor = schema.column(at);
        let name = descriptor.name();
        let mut cells = match kind {
            Stored::Text => Values::Text(Vec::new()),
            _ => Values::Number(Vec::new()),
        };
        for group in 0..reader.num_row_groups() {
            let inner =
                reader.get_row_group(group).and_then(|group| group.get_column_page_reader(at));
            let inner = inner.map_err(|e| broken(path, &e))?;
            let pages = Pages { inner, optional: descriptor.max_def_level() > 0, rows };
            let chunk = get_column_reader(Arc::clone(&descriptor), Box::new(pages));
            append(path, *kind, &descriptor, chunk, &room, &mut cells)?;
        }
        if cells.len() != rows {
            let problem = format!(
                "column `{name}` has {} cells where {rows} are announced; write the table again",
                cells.len()
            );
            return Err(Error::table(path, problem));
        }
        let forced = options.categorical.iter().any(|wanted| wanted == name);
        let values = match cells {
            cells @ (Values::Text(_) | Values::Number(_)) if forced => as_text(cells, *kind),
            Values::Text(cells) => people(name, cells, &mut told),
            numbers @ Values::Number(_) => numbers,
        };
        columns.push(Column { name: name.to_owned(), values });
    }
    let table = Table { path: path.to_owned(), columns };
    check_categorical(&table, options)?;
    let decimal_commas = told.iter().any(|told| told.decimal == dialect::Decimal::Comma);
    let notes = dialect::note(&told).into_iter().collect();
    Ok(Reading { table, decimal_commas, notes })
}

/// A column of text as numbers, where all cells are numbers and some are written as people do it;
/// as the file says otherwise.
fn people(name: &str, cells: Vec<Option<String>>, told: &mut Vec<dialect::Told>) -> Values {
    let look = dialect::Column::of(&cells);
    let (Some(decimal), Some(cell)) = (look.decimal(dialect::Decimal::Point), look.dressed())
    else {
        return Values::Text(cells);
    };
    let (name, cell, is_open) = (name.to_owned(), cell.to_owned(), look.is_open());
    told.push(dialect::Told { name, cell, decimal, is_open });
    Values::Number(dialect::numbers(&cells, decimal))
}

/// Refuses what are no pages, and pages that would not fit into memory once they are unpacked.
fn check_pages(path: &Path, meta: &ParquetMetaData, memory: Option<u64>) -> Result<()> {
    let file = File::open(path).map_err(|e| Error::file("read", path, e))?;
    let mut file = BufReader::with_capacity(1 << 12, file);
    for chunk in meta.row_groups().iter().flat_map(RowGroupMetaData::columns) {
        let (start, len) = chunk.byte_range();
        let Some(largest) = largest_page(&mut file, start, len) else {
            let problem = format!(
                "cannot be read as Parquet (the pages of column `{}` are damaged); write the table again",
                chunk.column_path()
            );
            return Err(Error::table(path, problem));
        };
        if memory.is_some_and(|memory| largest > memory) {
            let what = format!("a page of column `{}` of {}", chunk.column_path(), path.display());
            check_memory(&what, Some(largest), memory)?;
        }
    }
    Ok(())
}

fn rows(path: &Path, meta: &ParquetMetaData) -> Result<usize> {
    let damaged = || Error::table(path, "its count of rows is damaged; write the table again");
    let rows = usize::try_from(meta.file_metadata().num_rows()).map_err(|_| damaged())?;
    if rows == 0 {
        return Err(Error::table(path, "has columns but no rows; write the table with its data"));
    }
    check_rows(path, rows)?;
    Ok(rows)
}

/// What a column may hold. A few bytes of a file can stand for any number of cells, and for any
/// number of copies of a long text.
struct Room {
    rows: usize,
    memory: Option<u64>,
    /// Bytes of text so far, of all columns.
    text: Cell<u64>,
}

impl Room {
    /// Refuses one cell more than there are rows.
    fn check_cells(&self, path: &Path, name: &str, cells: usize) -> Result<()> {
        if cells < self.rows {
            return Ok(());
        }
        let rows = self.rows;
        let problem = format!(
            "column `{name}` has more cells than the {rows} that are announced; write the table again"
        );
        Err(Error::table(path, problem))
    }

    /// Refuses more text than fits into memory.
    fn take_text(&self, path: &Path, name: &str, bytes: u64) -> Result<()> {
        let text = self.text.get().saturating_add(bytes);
        self.text.set(text);
        if self.memory.is_none_or(|memory| text <= memory) {
            return Ok(());
        }
        let what = format!("the text of {} up to column `{name}`", path.display());
        check_memory(&what, Some(text), self.memory)
    }
}

/// Decodes one column chunk onto the end of `cells`.
fn append(
    path: &Path,
    kind: Stored,
    descriptor: &ColumnDescriptor,
    chunk: ColumnReader,
    room: &Room,
    cells: &mut Values,
) -> Result<()> {
    let name = descriptor.name();
    let optional = descriptor.max_def_level() > 0;
    let scale = |value: f64| match kind {
        Stored::Decimal(scale) => value / 10f64.powi(scale),
        _ => value,
    };
    let unsigned = kind == Stored::Unsigned;
    match cells {
        Values::Number(numbers) => {
            let mut push = |value: Option<f64>| {
                room.check_cells(path, name, numbers.len())?;
                let value = value.unwrap_or(f64::NAN);
                if value.is_infinite() {
                    let cell = value.to_string();
                    return Err(infinite_cell(path, numbers.len() + 1, name, &cell));
                }
                numbers.push(value);
                Ok(())
            };
            match chunk {
                ColumnReader::BoolColumnReader(chunk) => {
                    each(path, chunk, optional, |v| push(v.map(|v| f64::from(u8::from(*v)))))
                }
                ColumnReader::Int32ColumnReader(chunk) => each(path, chunk, optional, |v| {
                    push(v.map(|v| scale(if unsigned { *v as u32 as f64 } else { *v as f64 })))
                }),
                ColumnReader::Int64ColumnReader(chunk) => each(path, chunk, optional, |v| {
                    push(v.map(|v| scale(if unsigned { *v as u64 as f64 } else { *v as f64 })))
                }),
                ColumnReader::FloatColumnReader(chunk) => {
                    each(path, chunk, optional, |v| push(v.map(|v| *v as f64)))
                }
                ColumnReader::DoubleColumnReader(chunk) => {
                    each(path, chunk, optional, |v| push(v.copied()))
                }
                ColumnReader::ByteArrayColumnReader(chunk) => {
                    each(path, chunk, optional, |v| push(v.map(|v| scale(big_endian(v.data())))))
                }
                ColumnReader::FixedLenByteArrayColumnReader(chunk) => {
                    each(path, chunk, optional, |v| push(v.map(|v| scale(big_endian(v.data())))))
                }
                ColumnReader::Int96ColumnReader(_) => Err(mixed(path, name)),
            }
        }
        Values::Text(texts) => match chunk {
            ColumnReader::ByteArrayColumnReader(chunk) => each(path, chunk, optional, |value| {
                room.check_cells(path, name, texts.len())?;
                let bytes = value.map_or(&[][..], |value| value.data());
                let Ok(text) = std::str::from_utf8(bytes) else {
                    let problem = format!(
                        "row {}, column `{name}` is not UTF-8 text; drop the column or convert it",
                        texts.len() + 1
                    );
                    return Err(Error::table(path, problem));
                };
                let text = text.trim();
                room.take_text(path, name, text.len() as u64)?;
                texts.push((!is_missing_text(text.as_bytes())).then(|| text.to_owned()));
                Ok(())
            }),
            _ => Err(mixed(path, name)),
        },
    }
}

/// Calls `take` with every cell of a chunk, `None` for null.
fn each<T: DataType>(
    path: &Path,
    mut chunk: ColumnReaderImpl<T>,
    optional: bool,
    mut take: impl FnMut(Option<&T::T>) -> Result<()>,
) -> Result<()> {
    let (mut values, mut levels) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    loop {
        values.clear();
        levels.clear();
        let (records, _, _) = chunk
            .read_records(BATCH, Some(&mut levels), None, &mut values)
            .map_err(|e| broken(path, &e))?;
        if records == 0 {
            return Ok(());
        }
        let mut present = values.iter();
        if optional {
            for level in &levels {
                take(if *level == 0 { None } else { present.next() })?;
            }
        } else {
            present.try_for_each(|value| take(Some(value)))?;
        }
    }
}

/// A whole number in two's complement, most significant byte first.
fn big_endian(bytes: &[u8]) -> f64 {
    let Some(first) = bytes.first() else { return 0.0 };
    let sign = if first & 0x80 == 0 { 0 } else { -1 };
    if bytes.len() <= 16 {
        return bytes.iter().fold(sign, |whole: i128, byte| whole << 8 | i128::from(*byte)) as f64;
    }
    bytes.iter().fold(sign as f64, |whole, byte| whole * 256.0 + f64::from(*byte))
}

/// A column the user wants as text.
fn as_text(cells: Values, kind: Stored) -> Values {
    match cells {
        Values::Text(texts) => Values::Text(texts),
        Values::Number(numbers) => {
            let text = |value: f64| match kind {
                Stored::Truth => if value == 0.0 { "false" } else { "true" }.to_owned(),
                _ => number_text(value),
            };
            Values::Text(numbers.into_iter().map(|v| (!v.is_nan()).then(|| text(v))).collect())
        }
    }
}

fn mixed(path: &Path, name: &str) -> Error {
    let problem = format!("column `{name}` is not stored as its type says; write the table again");
    Error::table(path, problem)
}

fn broken(path: &Path, error: &ParquetError) -> Error {
    let problem = format!("cannot be read as Parquet ({error}); write the table again");
    Error::table(path, problem)
}

#[cfg(test)]
mod tests {
    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::ByteArray;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::super::tests::text;
    use super::*;

    /// Writes a file with two row groups of three rows. Nullable columns have a null in the middle;
    /// with `odd` there are infinite numbers and bytes that are not text.
    fn file(schema: &str, odd: bool) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("t.parquet")).unwrap();
        let schema = parse_message_type(&format!("message m {{ {schema} }}")).unwrap();
        let null = schema.get_fields().iter().any(|field| field.is_optional());
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
        let levels: Option<&[i16]> = if null { Some(&[1, 0, 1]) } else { None };
        let n = if null { 2 } else { 3 };
        for base in [0, 10] {
            let mut rows = writer.next_row_group().unwrap();
            while let Some(mut column) = rows.next_column().unwrap() {
                macro_rules! write {
                    ($column:expr, $values:expr) => {
                        $column.write_batch(&$values[..n], levels, None).unwrap()
                    };
                }
                let written = match column.untyped() {
                    ColumnWriter::BoolColumnWriter(c) => write!(c, [true, false, true]),
                    ColumnWriter::Int32ColumnWriter(c) => write!(c, [base + 1, base - 2, base + 3]),
                    ColumnWriter::Int64ColumnWriter(c) => write!(c, [base as i64 + 125, -250, 3]),
                    ColumnWriter::Int96ColumnWriter(_) => unreachable!(),
                    ColumnWriter::FloatColumnWriter(c) => write!(c, [0.5f32, -1.5, 2.5]),
                    ColumnWriter::DoubleColumnWriter(c) => {
                        write!(c, [0.1, if odd { f64::NEG_INFINITY } else { f64::NAN }, 0.3])
                    }
                    ColumnWriter::ByteArrayColumnWriter(c) => {
                        let last = if odd { &b"\xff"[..] } else { b"blue" };
                        let cells = [b"red", &b" NA "[..], last];
                        write!(c, cells.map(|cell| ByteArray::from(cell.to_vec())))
                    }
                    ColumnWriter::FixedLenByteArrayColumnWriter(c) => {
                        let cells = [[0x00, 0x7d], [0xff, 0x06], [0x00, 0x01]];
                        write!(c, cells.map(|cell| ByteArray::from(cell.to_vec()).into()))
                    }
                };
                assert_eq!(written, n);
                column.close().unwrap();
            }
            rows.close().unwrap();
        }
        writer.close().unwrap();
        folder
    }

    fn table(schema: &str, options: &ReadOptions) -> Result<Table> {
        Table::read_with(&file(schema, false).path().join("t.parquet"), options)
    }

    fn column(schema: &str) -> Values {
        table(schema, &ReadOptions::default()).unwrap().columns[0].values.clone()
    }

    #[test]
    fn numbers_of_all_kinds_become_numbers() {
        let number = |schema: &str| match column(schema) {
            Values::Number(values) => values,
            Values::Text(_) => panic!("{schema} is text"),
        };
        assert_eq!(number("required int32 x;"), [1.0, -2.0, 3.0, 11.0, 8.0, 13.0]);
        assert_eq!(number("required int64 x;"), [125.0, -250.0, 3.0, 135.0, -250.0, 3.0]);
        assert_eq!(number("required float x;")[..3], [0.5, -1.5, 2.5]);
        assert_eq!(number("required double x;")[0], 0.1);
        assert!(number("required double x;")[1].is_nan());
        assert_eq!(number("required boolean x;")[..3], [1.0, 0.0, 1.0]);
        assert_eq!(number("required int64 x (decimal(9, 2));")[..3], [1.25, -2.5, 0.03]);
        let fixed = "required fixed_len_byte_array(2) x (decimal(4, 2));";
        assert_eq!(number(fixed)[..3], [1.25, -2.5, 0.01]);
        assert_eq!(number("required int32 x (integer(32, false));")[1], 4_294_967_294.0);
    }

    #[test]
    fn nulls_are_missing() {
        let Values::Number(values) = column("optional int32 x;") else { panic!() };
        assert_eq!((values[0], values[1].is_nan(), values[2]), (1.0, true, -2.0));
        assert_eq!(values.len(), 6);
        let expected = text(&["red", "", "", "red", "", ""]);
        assert_eq!(column("optional binary c (string);"), expected);
    }

    #[test]
    fn text_is_text_and_marks_of_missing_values_are_known() {
        let expected = text(&["red", "", "blue", "red", "", "blue"]);
        assert_eq!(column("required binary c (string);"), expected);
        assert_eq!(column("required binary c (utf8);"), expected);
        assert_eq!(column("required binary c;"), expected);
    }

    #[test]
    fn numbers_can_be_read_as_categories() {
        let options =
            ReadOptions { categorical: vec!["x".into(), "b".into()], ..ReadOptions::default() };
        let table = table("required int32 x; required boolean b;", &options).unwrap();
        assert_eq!(table.columns[0].values, text(&["1", "-2", "3", "11", "8", "13"]));
        let truths = text(&["true", "false", "true", "true", "false", "true"]);
        assert_eq!(table.columns[1].values, truths);
        let refused = super::tests::table("required int32 y;", &options).unwrap_err().to_string();
        assert!(refused.starts_with("`--categorical`: "), "{refused}");
    }

    #[test]
    fn cells_that_cannot_be_used_are_refused_with_row_and_column() {
        for (schema, problem) in [
            ("required double x;", "row 2, column `x`: `-inf` is not finite"),
            ("required binary x (string);", "row 3, column `x` is not UTF-8 text"),
        ] {
            let folder = file(schema, true);
            let refused = Table::read(&folder.path().join("t.parquet")).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn no_more_is_taken_than_the_rows_and_the_memory_allow() {
        let path = Path::new("t.parquet");
        let room = Room { rows: 3, memory: Some(1000), text: Cell::new(0) };
        room.check_cells(path, "x", 2).unwrap();
        room.take_text(path, "x", 1000).unwrap();
        let many = room.check_cells(path, "x", 3).unwrap_err().to_string();
        assert!(many.contains("column `x` has more cells than the 3 that are announced"), "{many}");
        let long = room.take_text(path, "x", 1).unwrap_err().to_string();
        assert!(long.contains("up to column `x` needs about 1001 bytes of memory"), "{long}");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        std::fs::write(&path, "PAR1 nothing of the kind PAR1").unwrap();
        let refused = Table::read(&path).unwrap_err().to_string();
        assert!(refused.contains("cannot be read as Parquet ("), "{refused}");
        assert!(refused.ends_with("write the table again"), "{refused}");

        let whole = std::fs::read(file("required int32 x;", false).path().join("t.parquet"));
        let whole = whole.unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(Table::read(&path).is_err());
    }

    #[test]
    fn no_damage_makes_the_reader_panic() {
        let folder = file("required double x; required binary c (string);", false);
        let path = folder.path().join("t.parquet");
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            std::fs::write(&path, &damaged).unwrap();
            let _ = Table::read(&path);
        }
    }

    #[test]
    fn decimals_longer_than_a_machine_word_keep_sign_and_size() {
        assert_eq!(big_endian(&[0xff; 20]), -1.0);
        assert_eq!(big_endian(&[]), 0.0);
        let mut large = [0; 17];
        large[0] = 1;
        assert_eq!(big_endian(&large), 2f64.powi(128));
    }
}
