//! What a column of text cells is: numbers, truth values or text.

use std::path::Path;

use super::cell::{Cell, classify};
use super::dialect::{Decimal, is_number};
use super::infinite_cell;
use crate::error::Result;

/// A column during the first pass. Cells that are numbers only touch `values`.
#[derive(Default)]
pub(super) struct Pending {
    /// Numbers, truth values as 1 and 0, and NaN for everything else.
    pub(super) values: Vec<f64>,
    missing: usize,
    truths: usize,
    texts: usize,
    /// Whether a number shows that its point stands before decimals.
    pub(super) has_points: bool,
    /// The first cell that is infinite.
    infinite: Option<(usize, String)>,
    /// Whether the user said that this is text.
    pub(super) is_forced: bool,
}

impl Pending {
    /// A column without cells; `is_forced` when the user said that it is text.
    pub(super) fn new(is_forced: bool) -> Self {
        Self { is_forced, ..Self::default() }
    }

    #[inline]
    pub(super) fn push(&mut self, row: usize, cell: &[u8]) {
        let cell = cell.trim_ascii();
        match classify(cell) {
            Cell::Number(value) => {
                if value.fract() != 0.0 && !self.has_points {
                    self.has_points =
                        str::from_utf8(cell).is_ok_and(|cell| !is_number(cell, Decimal::Comma));
                }
                if !self.is_forced {
                    self.values.push(value);
                }
            }
            other if !self.is_forced => self.push_other(row, cell, &other),
            _ => {}
        }
    }

    #[cold]
    fn push_other(&mut self, row: usize, cell: &[u8], class: &Cell) {
        let mut value = f64::NAN;
        // Other blanks than ASCII's, such as those of spreadsheets, are no part of a cell either.
        let cell = str::from_utf8(cell).map_or(cell, |text| text.trim().as_bytes());
        let class = if *class == Cell::Text { &classify(cell) } else { class };
        match class {
            Cell::Number(number) => value = *number,
            Cell::Missing => self.missing += 1,
            Cell::Infinite => {
                let text = || (row, String::from_utf8_lossy(cell).into_owned());
                self.infinite.get_or_insert_with(text);
            }
            Cell::Truth(truth) => {
                self.truths += 1;
                value = f64::from(u8::from(*truth));
            }
            Cell::Text => self.texts += 1,
        }
        self.values.push(value);
    }

    /// Whether the column must be read again as text: it has cells that are no plain numbers, and
    /// not truth values alone. Refuses numbers that are not finite.
    pub(super) fn is_text(&self, path: &Path, name: &str, rows: usize) -> Result<bool> {
        let present = rows - self.missing;
        let others = self.truths + self.texts;
        if self.is_forced || (others > 0 && self.truths < present) {
            return Ok(true);
        }
        match &self.infinite {
            Some((row, cell)) => Err(infinite_cell(path, *row, name, cell)),
            None => Ok(false),
        }
    }

    /// Whether all numbers could be thousands: below 1000, and some of them broken.
    pub(super) fn may_be_thousands(&self) -> bool {
        let there = || self.values.iter().filter(|value| !value.is_nan());
        self.truths == 0
            && there().all(|value| value.abs() < 1000.0)
            && there().any(|value| value.fract() != 0.0)
    }
}

pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_cells_are_shortened_in_messages() {
        assert_eq!(shortened("abc"), "abc");
        assert_eq!(shortened(&"ü".repeat(50)), "ü".repeat(40) + "…");
    }
}
