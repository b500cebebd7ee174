//! What a table may mean although its cells say something else. Nothing here changes how a table is
//! read; the user is told, and decides.

use std::collections::BTreeSet;

use super::table::{Table, Values};
use crate::error::{Error, Result};

/// More levels of text than this that begin with a number are measurements, not classes.
const MOST_MEASURED: usize = 20;

/// Whole numbers that may well be the names of classes, at most.
const MOST_CODES: usize = 10;

/// Says so where a target that is taken as a number holds a few whole numbers.
pub(super) fn could_be_classes(table: &Table, target: &str) -> Option<String> {
    let column = table.columns.iter().find(|column| column.name == target)?;
    let Values::Number(values) = &column.values else { return None };
    let mut codes: Vec<f64> = Vec::new();
    for value in values.iter().filter(|value| !value.is_nan()) {
        if value.fract() != 0.0 || codes.len() > MOST_CODES {
            return None;
        }
        if !codes.contains(value) {
            codes.push(*value);
        }
    }
    (codes.len() <= MOST_CODES).then(|| {
        format!(
            "the target `{target}` has {} values, all whole numbers, and is taken as a number; where they are classes, say so with --task classification",
            codes.len()
        )
    })
}

/// Names the columns of text whose cells are all numbers with signs that numbers here do not have,
/// such as `1,234`, `0,5`, `$5` and `5 %`.
pub(super) fn could_be_numbers(table: &Table) -> Option<String> {
    let like = |values: &Values| -> Option<String> {
        let Values::Text(cells) = values else { return None };
        let mut cells = cells.iter().flatten();
        let first = cells.clone().find(|cell| is_dressed(cell))?;
        cells.all(|cell| is_dressed(cell) || cell.parse::<f64>().is_ok()).then(|| first.clone())
    };
    let found = table.columns.iter().filter_map(|column| {
        let first = like(&column.values)?;
        Some(format!("`{}` (\"{first}\")", column.name))
    });
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| {
        format!(
            "read as text, although it looks like numbers: {}; write numbers as 1234.5, without other signs, where they are meant",
            found.join(", ")
        )
    })
}

/// Refuses a target of text whose cells are numbers with other signs (`0,5`, `5 %`), or numbers
/// with a unit that are many (`12.5 kg`): as classes they would be learned one by one.
pub(super) fn numbers_for_classes(table: &Table, target: &str) -> Result<()> {
    let column = table.columns.iter().find(|column| column.name == target);
    let Some(Values::Text(cells)) = column.map(|column| &column.values) else { return Ok(()) };
    let levels: BTreeSet<&String> = cells.iter().flatten().collect();
    let plain = |cell: &str| cell.parse::<f64>().is_ok();
    let signs = levels.iter().any(|cell| is_dressed(cell))
        && levels.iter().all(|cell| is_dressed(cell) || plain(cell));
    let units = levels.len() > MOST_MEASURED && levels.iter().all(|cell| is_measured(cell));
    match levels.first() {
        Some(first) if signs || units => Err(Error::Data(format!(
            "the target `{target}` is text that looks like numbers (\"{first}\"); write numbers as 1234.5, without other signs, or where these are classes, say so with --task classification"
        ))),
        _ => Ok(()),
    }
}

/// Whether a cell is a number with at most a short unit behind it.
fn is_measured(cell: &str) -> bool {
    let bare = cell.trim_start_matches(['$', '€', '£', '+', '-']).trim_start();
    let unit = bare.trim_start_matches(|c: char| c.is_ascii_digit() || ".,' ".contains(c));
    let short =
        unit.chars().count() <= 4 && unit.chars().all(|c| c.is_alphabetic() || "%€°".contains(c));
    bare.starts_with(|c: char| c.is_ascii_digit()) && short
}

/// Whether a cell is a number with a sign of money or percent, with commas between thousands, or
/// with a decimal comma.
fn is_dressed(cell: &str) -> bool {
    let bare = cell.trim_start_matches(['$', '€', '£', '+', '-']).trim_end_matches(['%', '€']);
    let bare = bare.trim();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| {
        digits(text) || text.split_once('.').is_some_and(|(a, b)| digits(a) && digits(b))
    };
    let parts: Vec<&str> = bare.split(',').collect();
    match parts[..] {
        [_] => number(bare) && bare.len() < cell.len() && cell.parse::<f64>().is_err(),
        // A decimal comma, or one between thousands.
        [whole, rest] => digits(whole) && (digits(rest) || rest.len() > 3 && number(rest)),
        [first, ref groups @ .., last] => {
            let group = |text: &&str| text.len() == 3 && digits(text);
            let last = last.split('.').next().unwrap_or_default();
            digits(first) && first.len() <= 3 && groups.iter().all(group) && group(&last)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Column;
    use super::*;

    fn told(cells: &[&str]) -> Option<String> {
        let cell = |text: &&str| (!text.is_empty()).then(|| (*text).to_owned());
        let values = Values::Text(cells.iter().map(cell).collect());
        let columns = vec![Column { name: "x".into(), values }];
        could_be_numbers(&Table { path: "t.csv".into(), columns })
    }

    #[test]
    fn a_target_that_looks_like_numbers_is_no_list_of_classes() {
        let refused = |cells: &[String]| {
            let values = Values::Text(cells.iter().cloned().map(Some).collect());
            let columns = vec![Column { name: "y".into(), values }];
            let table = Table { path: "t.csv".into(), columns };
            numbers_for_classes(&table, "y").map_err(|error| error.to_string())
        };
        let made = |count: usize, cell: &dyn Fn(usize) -> String| -> Vec<String> {
            (0..count).map(cell).collect()
        };
        for cells in [
            made(30, &|i| format!("{i},5")),
            made(3, &|i| format!("{i} %")),
            made(30, &|i| format!("{i}.5 kg")),
            made(30, &|i| format!("1.{i:03},50")),
        ] {
            let told = refused(&cells).unwrap_err();
            assert!(
                told.starts_with("the target `y` is text that looks like numbers (\""),
                "{told}"
            );
            assert!(told.ends_with("say so with --task classification"), "{told}");
        }
        for cells in [
            made(30, &|i| format!("n{i}")),
            made(10, &|i| format!("{i}th")),
            made(30, &|i| format!("2024-01-{i:02}")),
            made(30, &|i| format!("{i}-{}", i + 1)),
        ] {
            assert_eq!(refused(&cells), Ok(()));
        }
    }

    #[test]
    fn numbers_with_other_signs_are_told_of() {
        for cells in [
            &["1,234", "", "12"][..],
            &["1,234,567.5", "-1,000,000"],
            &["0,5", "-1,25"],
            &["$5.20", "$1,200"],
            &["5 %", "12.5%"],
            &["7 €"],
            &["1,5", "3"],
            &["1,000", "999"],
        ] {
            for cells in [cells.to_vec(), cells.iter().rev().copied().collect()] {
                let text = told(&cells).unwrap_or_default();
                assert!(text.contains("looks like numbers: `x` (\""), "{cells:?}: {text}");
            }
        }
        for cells in [
            &["red", "1,5"][..],
            &["1,5", "red"],
            &["1,2,3", "2"],
            &["1-2", "3-4"],
            &["2024-01-05"],
            &["12:30"],
            &["a,b"],
            &["%"],
            &["", ""],
            &["1e5", "2"],
        ] {
            assert_eq!(told(cells), None, "{cells:?}");
        }
    }
}
