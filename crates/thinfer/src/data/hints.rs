//! What a table may mean although its cells say something else. Nothing here changes how a table is
//! read; the user is told, and decides.

use super::table::{Table, Values};

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

/// Names the columns of text whose cells are all numbers with signs that numbers here do not have, such
/// as `1,234`, `0,5`, `$5` and `5 %`.
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

/// Whether a cell is a number with a sign of money or percent, with commas between thousands, or with a
/// decimal comma.
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
