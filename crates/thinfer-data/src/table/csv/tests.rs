//! Text in every form that people write it in.

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
    let table = plain("x, flag ,c\r\n 1 ,TRUE,red\r\n-2.5e1,false,\"a, b\"\r\n.5,True, blue \n");
    assert_eq!(numbers(&table, "x"), [1.0, -25.0, 0.5]);
    assert_eq!(numbers(&table, "flag"), [1.0, 0.0, 1.0]);
    assert_eq!(texts(&table, "c"), ["red", "a, b", "blue"]);
    assert_eq!(table.rows(), 3);
}

#[test]
fn blanks_of_all_kinds_around_a_cell_do_not_count() {
    let table = plain("x,y,on,c\n\u{a0}5\u{a0},\u{2003},\u{a0}true,\u{a0}red\n6,7,false,blue\n");
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
    let mut options = ReadOptions { categorical: vec!["color".into()], ..ReadOptions::default() };
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

fn noted(name: &str, text: impl AsRef<[u8]>) -> (Table, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    Table::read_noted(&path, &ReadOptions::default()).unwrap()
}

#[test]
fn other_separators_are_read_and_told() {
    for (text, told) in [
        ("a;b\n1;2\n", "cells are separated by `;`"),
        ("a|b\n1|2\n", "cells are separated by `|`"),
        ("a\tb\n1\t2\n", "cells are separated by tabs"),
    ] {
        let (table, notes) = noted("t.csv", text);
        assert_eq!((numbers(&table, "b"), &notes[..]), (vec![2.0], &[told.to_owned()][..]));
    }
    assert_eq!(numbers(&noted("t.txt", "a\tb\n1\t2\n").0, "b"), [2.0]);
    assert_eq!(noted("t.tsv", "a,b\n1,2\n").1, ["cells are separated by `,`"]);
    let refused = message("\"a;b\"\n1\n");
    assert!(refused.starts_with("there is one column, and its name has ';'"), "{refused}");
}

#[test]
fn decimal_commas_are_told_with_an_example_and_thousands_follow_the_table() {
    let (table, notes) = noted("t.csv", "a;b;c;d\n0,5;1.234;1,234;x\n1,25;12.345;7,125;y\n");
    assert_eq!(numbers(&table, "a"), [0.5, 1.25]);
    assert_eq!(numbers(&table, "b"), [1234.0, 12_345.0]);
    assert_eq!(numbers(&table, "c"), [1.234, 7.125]);
    assert_eq!(
        notes,
        [
            "cells are separated by `;`",
            "read as numbers: `a` (\"0,5\" is 0.5), `c` (\"1,234\" is 1.234, though it could be \
             1234), `b` (\"1.234\" is 1234, though it could be 1.234)"
        ]
    );
    // A table like one that a model was trained on has the commas of that one.
    let options = ReadOptions { decimal_commas: true, ..ReadOptions::default() };
    let table = parse("b,c\n1.234,\"1,234\"\n", &options).unwrap();
    assert_eq!((numbers(&table, "b"), numbers(&table, "c")), (vec![1234.0], vec![1.234]));
    // Points before decimals elsewhere: a comma stands between thousands.
    let (table, _) = noted("t.csv", "a;b\n0.5;1,234\n1.25;12,345\n");
    assert_eq!(numbers(&table, "b"), [1234.0, 12_345.0]);
    let (table, notes) = noted("t.csv", "a,b\n\"1,234\",5 %\n999,12.5%\n");
    assert_eq!(
        (numbers(&table, "a"), numbers(&table, "b")),
        (vec![1234.0, 999.0], vec![5.0, 12.5])
    );
    assert_eq!(notes.len(), 1);
}

#[test]
fn dashes_are_missing_among_numbers_and_dates_and_levels_among_text() {
    let table = plain("x,d,c\n1,2024-01-05,red\n-,.,-\n2.5,2024-02-05,blue\n#N/A,--,.\n");
    assert!(numbers(&table, "x")[1].is_nan() && numbers(&table, "x")[3].is_nan());
    assert_eq!(texts(&table, "d"), ["2024-01-05", "-", "2024-02-05", "-"]);
    assert_eq!(table.missing().columns, [("x".to_owned(), 2), ("d".to_owned(), 2)]);
    assert_eq!(texts(&table, "c"), ["red", "-", "blue", "."]);
}

#[test]
fn other_encodings_are_read_where_they_are_text() {
    let (table, notes) = noted("t.csv", b"a,stra\xdfe\n1,2\n3,caf\xe9\n");
    assert_eq!(texts(&table, "straße"), ["2", "café"]);
    assert_eq!(notes, ["read as windows-1252 text, since it is not UTF-8"]);
    let little: Vec<u8> =
        "\u{feff}a;ü\n1;0,5\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = "a;ü\n1;0,5\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (bytes, name) in [(little, "UTF-16LE"), (big, "UTF-16BE")] {
        let (table, notes) = noted("t.csv", bytes);
        assert_eq!(numbers(&table, "ü"), [0.5]);
        assert_eq!(notes[0], format!("read as {name} text, since it is not UTF-8"));
    }
    assert_eq!(
        message(b"a,b\n1,2\n3,caf\xe9\x01\n"),
        "row 2, column `b` is not UTF-8 text; save the table as UTF-8"
    );
    assert!(message(b"caf\xe9\x02,b\n1,2\n").starts_with("the header is not UTF-8"));
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, text).unwrap();
    packer.finish().unwrap()
}

#[test]
fn packed_tables_are_read_and_damaged_ones_refused() {
    let bytes = packed(b"a,c\n1,red\n2,blue\n");
    let (table, _) = noted("t.csv.gz", &bytes);
    assert_eq!((numbers(&table, "a"), texts(&table, "c").len()), (vec![1.0, 2.0], 2));
    assert_eq!(numbers(&noted("t.tsv.gz", packed(b"a\tb\n1\t2\n")).0, "b"), [2.0]);
    for (name, bytes, part) in [
        ("t.csv.gz", &bytes[..bytes.len() - 9], "cannot be unpacked as gzip"),
        ("t.csv.gz", b"a,b\n1,2\n", "cannot be unpacked as gzip"),
        ("t.parquet.gz", &bytes, "is packed, and what is in it must be text"),
        ("t.gz", &bytes, "is packed, and what is in it must be text"),
    ] {
        let refused = parse_as(name, bytes, &ReadOptions::default()).unwrap_err().to_string();
        assert!(refused.contains(part), "{name}: {refused}");
    }
    // What is unpacked must fit, not what is packed.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.csv.gz");
    std::fs::write(&path, packed(format!("x\n{}", "1\n".repeat(1 << 20)).as_bytes())).unwrap();
    let refused = Reading::of(&path, &ReadOptions::default(), Some(1 << 20));
    assert!(refused.unwrap_err().to_string().contains("memory"));
}

#[test]
fn the_estimate_follows_the_cells_where_they_are_short() {
    // Two bytes in the file, eight in memory.
    assert_eq!(needed(b"1,0\n0,1\n", 8_000, b','), Some(32_000));
    assert_eq!(needed(b"0.1234567890123456\n", 19_000, b','), Some(22_800));
    assert_eq!(needed(b"1\n", u64::MAX, b','), None);
}

/// How one writes a table.
#[derive(Clone, Debug)]
struct Dialect {
    separator: char,
    comma: bool,
    between: &'static str,
    money: bool,
    ends: &'static str,
    /// 0 to 3: UTF-8, with a mark, UTF-16, Windows-1252.
    encoding: u8,
    packed: bool,
    gap: &'static str,
}

fn dialects() -> impl Strategy<Value = Dialect> {
    let separator = prop::sample::select(vec![',', ';', '\t', '|']);
    let between = prop::sample::select(vec!["", "thousands", " ", "'", "\u{a0}"]);
    let gap = prop::sample::select(vec!["", "NA", "-", "n.a.", "null", "?"]);
    let ends = prop::sample::select(vec!["\n", "\r\n"]);
    let rest = (any::<bool>(), any::<bool>(), 0..4u8, any::<bool>());
    (separator, between, gap, ends, rest).prop_map(
        |(separator, between, gap, ends, (comma, money, encoding, packed))| Dialect {
            separator,
            comma,
            between,
            money,
            ends,
            encoding,
            packed,
            gap,
        },
    )
}

impl Dialect {
    fn number(&self, cents: i64) -> String {
        let whole = (cents.abs() / 100).to_string();
        let (point, comma) = if self.comma { (",", ".") } else { (".", ",") };
        let between = if self.between == "thousands" { comma } else { self.between };
        let mut text = String::new();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                text.push_str(between);
            }
            text.push(digit);
        }
        let sign = if cents < 0 { "-" } else { "" };
        let money = if self.money { " €" } else { "" };
        format!("{sign}{text}{point}{:02}{money}", cents.abs() % 100)
    }

    fn bytes(&self, rows: &[(Option<i64>, usize)]) -> Vec<u8> {
        let levels = ["rot", "grün", "a,b;c|d"];
        let quoted = |cell: &str| format!("\"{cell}\"");
        let mut text = format!("x{0}Größe{0}c{1}", self.separator, self.ends);
        for (value, level) in rows {
            let x = value.map_or(self.gap.to_owned(), |cents| self.number(cents));
            let cells = [quoted(&x), level.to_string(), quoted(levels[*level])];
            text.push_str(&cells.join(&self.separator.to_string()));
            text.push_str(self.ends);
        }
        let bytes = match self.encoding {
            1 => format!("\u{feff}{text}").into_bytes(),
            2 => format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect(),
            3 => encoding_rs::WINDOWS_1252.encode(&text).0.into_owned(),
            _ => text.into_bytes(),
        };
        if self.packed { packed(&bytes) } else { bytes }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_table_in_any_dialect_reads_to_the_same_values(
        dialect in dialects(),
        rows in prop::collection::vec((prop::option::of(-200_000_000i64..200_000_000), 0..3usize), 5..20),
    ) {
        // Two of each level, and a number that says what its comma means.
        let fixed = [(Some(50), 0), (Some(123_456_725), 1), (None, 2), (Some(-5), 2)];
        let rows = [&fixed[..], &rows].concat();
        let name = if dialect.packed { "t.csv.gz" } else { "t.csv" };
        let (table, _) = noted(name, dialect.bytes(&rows));
        let x = numbers(&table, "x");
        for (read, (wanted, _)) in x.iter().zip(&rows) {
            match wanted {
                Some(cents) => prop_assert_eq!(*read, *cents as f64 / 100.0),
                None => prop_assert!(read.is_nan()),
            }
        }
        let levels: Vec<f64> = rows.iter().map(|(_, level)| *level as f64).collect();
        prop_assert_eq!(numbers(&table, "Größe"), levels);
        prop_assert_eq!(&texts(&table, "c")[..3], &["rot", "grün", "a,b;c|d"].map(str::to_owned)[..]);
        prop_assert_eq!(table.columns.len(), 3);
    }

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
