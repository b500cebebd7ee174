//! What a column of text cells is: numbers, truth values or text.

use std::path::Path;

use super::dressed::dressed_number;
use super::{infinite_cell, is_missing_text};
use crate::error::{Error, Result};

/// Cells shown of a column that is neither numbers nor text.
const EXAMPLES: usize = 3;

/// A column during the first pass. Cells that are numbers only touch `values`.
#[derive(Default)]
pub(super) struct Pending {
    /// Numbers, truth values as 1 and 0, and NaN for everything else.
    pub(super) values: Vec<f64>,
    missing: usize,
    truths: usize,
    texts: usize,
    /// The first cells that are not numbers.
    examples: Vec<(usize, String)>,
    /// The first cell that is a number with a sign of money or commas between thousands.
    pub(super) dressed: Option<String>,
    /// The first cell that is infinite.
    infinite: Option<(usize, String)>,
    /// Whether the user said that this is text.
    forced: bool,
}

impl Pending {
    /// A column without cells; `forced` when the user said that it is text.
    pub(super) fn new(forced: bool) -> Self {
        Self { forced, ..Self::default() }
    }

    #[inline]
    pub(super) fn push(&mut self, row: usize, cell: &[u8]) {
        if self.forced {
            return;
        }
        let cell = cell.trim_ascii();
        match classify(cell) {
            Cell::Number(value) => self.values.push(value),
            other => self.push_other(row, cell, &other),
        }
    }

    #[cold]
    fn push_other(&mut self, row: usize, cell: &[u8], class: &Cell) {
        let mut value = f64::NAN;
        // Other blanks than ASCII's, such as those of spreadsheets, are no part of a cell either.
        let cell = str::from_utf8(cell).map_or(cell, |text| text.trim().as_bytes());
        let class = if *class == Cell::Text { &classify(cell) } else { class };
        let text = || (row, String::from_utf8_lossy(cell).into_owned());
        if *class == Cell::Text
            && let Some(number) = std::str::from_utf8(cell).ok().and_then(dressed_number)
        {
            self.dressed.get_or_insert_with(|| text().1);
            self.values.push(number);
            return;
        }
        match class {
            Cell::Number(number) => value = *number,
            Cell::Missing => self.missing += 1,
            Cell::Infinite => {
                self.infinite.get_or_insert_with(text);
            }
            Cell::Truth(truth) => {
                self.truths += 1;
                value = f64::from(u8::from(*truth));
            }
            Cell::Text => self.texts += 1,
        }
        if matches!(class, Cell::Truth(_) | Cell::Text) && self.examples.len() < EXAMPLES {
            self.examples.push(text());
        }
        self.values.push(value);
    }

    /// Whether the column is text. Refuses numbers with a few other cells among them, which are
    /// mistakes more often than categories, and numbers that are not finite.
    pub(super) fn is_text(&self, path: &Path, name: &str, rows: usize) -> Result<bool> {
        if self.forced {
            return Ok(true);
        }
        let present = rows - self.missing;
        let others = self.truths + self.texts;
        let numbers = present - others;
        // Truth values alone are a column of numbers; among numbers they are as odd as text.
        if others > 0 && (self.truths < present) {
            if numbers * 10 < present * 9 {
                return Ok(true);
            }
            let cells = if others == 1 { "cell is" } else { "cells are" };
            let examples: Vec<String> = self
                .examples
                .iter()
                .map(|(row, text)| format!("row {row}: {:?}", shortened(text)))
                .collect();
            let problem = format!(
                "column `{name}` holds numbers, but {others} {cells} not ({}); correct or empty \
                 them, or pass `--categorical {name}` if the column is a category",
                examples.join(", ")
            );
            return Err(Error::table(path, problem));
        }
        match &self.infinite {
            Some((row, cell)) => Err(infinite_cell(path, *row, name, cell)),
            None => Ok(false),
        }
    }
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}

/// What a cell is by itself.
#[derive(Debug, PartialEq)]
pub(super) enum Cell {
    Number(f64),
    Infinite,
    Missing,
    Truth(bool),
    Text,
}

#[inline]
pub(super) fn classify(cell: &[u8]) -> Cell {
    let starts_like_a_number = matches!(cell.first(), Some(b'0'..=b'9' | b'.' | b'+' | b'-'));
    if starts_like_a_number
        && let Ok(text) = std::str::from_utf8(cell)
        && let Ok(value) = text.parse::<f64>()
    {
        return if value.is_finite() {
            Cell::Number(value)
        } else if value.is_nan() {
            Cell::Missing
        } else {
            Cell::Infinite
        };
    }
    if is_missing_text(cell) {
        Cell::Missing
    } else if cell.eq_ignore_ascii_case(b"inf") || cell.eq_ignore_ascii_case(b"infinity") {
        Cell::Infinite
    } else if cell.eq_ignore_ascii_case(b"true") || cell.eq_ignore_ascii_case(b"false") {
        Cell::Truth(cell.len() == 4)
    } else {
        Cell::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_what_they_look_like() {
        for (cell, class) in [
            ("-1.5e3", Cell::Number(-1500.0)),
            (".5", Cell::Number(0.5)),
            ("+7.", Cell::Number(7.0)),
            ("-nan", Cell::Missing),
            ("-inf", Cell::Infinite),
            ("Infinity", Cell::Infinite),
            ("1e999", Cell::Infinite),
            ("TRUE", Cell::Truth(true)),
            ("false", Cell::Truth(false)),
            ("1,5", Cell::Text),
            ("-", Cell::Text),
            ("2020-01-01", Cell::Text),
            ("0x10", Cell::Text),
        ] {
            assert_eq!(classify(cell.as_bytes()), class, "{cell}");
        }
        assert_eq!(classify(b"1\xff"), Cell::Text);
    }

    #[test]
    fn long_cells_are_shortened_in_messages() {
        assert_eq!(shortened("abc"), "abc");
        assert_eq!(shortened(&"ü".repeat(50)), "ü".repeat(40) + "…");
    }
}
