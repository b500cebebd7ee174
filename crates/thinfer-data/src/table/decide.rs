//! What columns are that are not plain numbers: numbers in the dialect of people, dates, or text.

use std::path::Path;

use super::dates;
use super::dialect::{self, Decimal, Told, is_dash, is_number};
use super::infer::shortened;
use crate::error::{Error, Result};

/// Cells shown of a column that is neither numbers nor text.
const EXAMPLES: usize = 3;

/// A column of text in question.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) cells: Vec<Option<String>>,
    /// Whether the user said that it is text.
    pub(super) is_forced: bool,
}

/// What a column is.
pub(super) enum Decided {
    Numbers(Vec<f64>),
    Text(Vec<Option<String>>),
}

/// What the rest of the table says of commas.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// Whether a column of plain numbers has decimal points.
    pub(super) has_points: bool,
    /// Whether commas are expected before decimals: semicolons separate the cells, or the table
    /// that a model was trained on had them.
    pub(super) commas: bool,
}

/// What all candidates of a table are, what a comma means in the table where its columns say it,
/// and what to tell.
pub(super) struct Decisions {
    pub(super) columns: Vec<Decided>,
    pub(super) decimal: Option<Decimal>,
    pub(super) told: Vec<Told>,
}

/// Decides over all candidates of the table at `path`.
pub(super) fn decide(path: &Path, all: Vec<Candidate>, hints: Hints) -> Result<Decisions> {
    let looks: Vec<dialect::Column> = all.iter().map(|c| dialect::Column::of(&c.cells)).collect();
    let says = |decimal| looks.iter().any(|look| look.says() == Some(decimal));
    let decimal = match (says(Decimal::Comma), says(Decimal::Point) || hints.has_points) {
        (true, false) => Some(Decimal::Comma),
        (false, true) => Some(Decimal::Point),
        _ => None,
    };
    let of_separator = if hints.commas { Decimal::Comma } else { Decimal::Point };
    let usually = decimal.unwrap_or(of_separator);
    let (mut columns, mut told) = (Vec::new(), Vec::new());
    for (candidate, look) in all.into_iter().zip(&looks) {
        let Candidate { name, cells, is_forced } = candidate;
        if is_forced {
            columns.push(Decided::Text(cells));
            continue;
        }
        // What programs write, with dashes where nothing is known, has points unless the table says
        // otherwise.
        let plain = look.dressed().is_none();
        let here = if plain { decimal.unwrap_or(Decimal::Point) } else { usually };
        if let Some(decimal) = look.decimal(here) {
            let numbers = dialect::numbers(&cells, decimal);
            if let Some(cell) = look.dressed() {
                let is_open = look.is_open();
                told.push(Told { name, cell: cell.to_owned(), decimal, is_open });
            }
            columns.push(Decided::Numbers(numbers));
            continue;
        }
        check_odd(path, &name, &cells, look)?;
        columns.push(Decided::Text(without_dashes_of_dates(cells)));
    }
    Ok(Decisions { columns, decimal, told })
}

/// A dash among dates is a missing one.
fn without_dashes_of_dates(mut cells: Vec<Option<String>>) -> Vec<Option<String>> {
    let is_gap = |cell: &Option<String>| cell.as_deref().is_some_and(is_dash);
    if cells.iter().any(is_gap)
        && dates::order(cells.iter().flatten().map(String::as_str)).is_some()
    {
        cells.iter_mut().filter(|cell| is_gap(cell)).for_each(|cell| *cell = None);
    }
    cells
}

/// Refuses numbers with a few other cells among them, which are mistakes more often than
/// categories.
fn check_odd(
    path: &Path,
    name: &str,
    cells: &[Option<String>],
    look: &dialect::Column,
) -> Result<()> {
    let (numbers, decimal) = look.most();
    let others = look.present - numbers;
    if others == 0 || numbers * 10 < look.present * 9 {
        return Ok(());
    }
    let is_odd = |cell: &str| !is_dash(cell) && !is_number(cell, decimal);
    let odd = cells.iter().zip(1..).filter_map(|(cell, row)| {
        let cell = cell.as_deref().filter(|cell| is_odd(cell))?;
        Some(format!("row {row}: {:?}", shortened(cell)))
    });
    let problem = format!(
        "column `{name}` holds numbers, but {others} {} not ({}); correct or empty them, or pass \
         `--categorical {name}` if the column is a category",
        if others == 1 { "cell is" } else { "cells are" },
        odd.take(EXAMPLES).collect::<Vec<_>>().join(", ")
    );
    Err(Error::table(path, problem))
}
