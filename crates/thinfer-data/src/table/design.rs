//! The columns of a design matrix that come of one variable.

use super::dates::{self, Order, Part};
use super::dialect::is_dash;
use super::levels::level_values;
use super::variable::{Gaps, Kind, Variable};
use super::{Column, Table, Values, number_text};
use crate::error::{Error, Result};

/// Fills the columns of a variable, from `first` on, of a design that is `width` wide.
pub(super) fn encode_variable(
    table: &Table,
    column: &Column,
    rows: &[u32],
    variable: &Variable,
    design: &mut [f32],
    (width, first): (usize, usize),
) -> Result<()> {
    let last = first + variable.width();
    let places = design.chunks_exact_mut(width).map(|row| &mut row[first..last]);
    let gaps = variable.gaps.as_ref();
    match &variable.kind {
        Kind::Number { mean, sd } => {
            encode_number(table, column, rows, (*mean, *sd), gaps, places)?;
        }
        Kind::Category { levels, means, sds, .. } => {
            encode_category(table, column, rows, levels, (means, sds), gaps, places)?;
        }
        Kind::Date { order, parts, means, sds } => {
            let moments = (&means[..], &sds[..]);
            encode_date(table, column, rows, (*order, parts), moments, gaps.is_some(), places)?;
        }
    }
    if let Some(gaps) = gaps.filter(|_| variable.flags_gaps()) {
        let [there, missing] = gaps.flag();
        for (row, place) in rows.iter().zip(design.chunks_exact_mut(width)) {
            place[last - 1] = if column.values.is_missing(*row as usize) { missing } else { there };
        }
    }
    Ok(())
}

fn encode_number<'a>(
    table: &Table,
    column: &Column,
    rows: &[u32],
    (mean, sd): (f64, f64),
    gaps: Option<&Gaps>,
    places: impl Iterator<Item = &'a mut [f32]>,
) -> Result<()> {
    let name = &column.name;
    let values = match &column.values {
        Values::Number(values) => values,
        Values::Text(values) => {
            let row = |row: &&u32| values[**row as usize].is_some();
            let Some(row) = rows.iter().find(row) else {
                let Some(gaps) = gaps else {
                    return rows.first().map_or(Ok(()), |row| Err(table.missing_cell(*row, name)));
                };
                let fill = ((gaps.fill - mean) / sd) as f32;
                places.take(rows.len()).for_each(|place| place[0] = fill);
                return Ok(());
            };
            let problem = format!(
                "column `{name}` holds text (row {}: {:?}), but the model was trained on numbers \
                 there; correct those cells",
                *row as usize + 1,
                values[*row as usize].as_deref().unwrap_or_default()
            );
            return Err(Error::table(&table.path, problem));
        }
    };
    for (row, place) in rows.iter().zip(places) {
        let mut value = values[*row as usize];
        if let (true, Some(gaps)) = (value.is_nan(), gaps) {
            value = gaps.fill;
        }
        let z = ((value - mean) / sd) as f32;
        if !z.is_finite() {
            if value.is_nan() {
                return Err(table.missing_cell(*row, name));
            }
            let problem = format!(
                "row {}, column `{name}`: {value:e} is too far from the training rows (mean \
                 {mean:e}, standard deviation {sd:e}); correct the cell or leave the row out",
                *row as usize + 1
            );
            return Err(Error::table(&table.path, problem));
        }
        place[0] = z;
    }
    Ok(())
}

fn encode_category<'a>(
    table: &Table,
    column: &Column,
    rows: &[u32],
    levels: &[String],
    (means, sds): (&[f64], &[f64]),
    gaps: Option<&Gaps>,
    places: impl Iterator<Item = &'a mut [f32]>,
) -> Result<()> {
    let standardised = |value: f64| -> Vec<f32> {
        means.iter().zip(sds).map(|(mean, sd)| ((value - mean) / sd) as f32).collect()
    };
    let (absent, present) = (standardised(0.0), standardised(1.0));
    let numbers = level_values(levels);
    for (row, place) in rows.iter().zip(places) {
        let at = *row as usize;
        let level = match (column.values.is_missing(at), gaps) {
            (false, _) => level_of(column, at, levels, &numbers),
            (true, Some(gaps)) => (gaps.share == 0.0).then_some(gaps.fill as usize),
            (true, None) => return Err(table.missing_cell(*row, &column.name)),
        };
        place[..absent.len()].copy_from_slice(&absent);
        // The place behind the levels, where there is one, is that of all others.
        let other = || (!column.values.is_missing(at)).then_some(levels.len());
        if let Some(place_of) = level.or_else(other).filter(|place| *place < absent.len()) {
            place[place_of] = present[place_of];
        }
    }
    Ok(())
}

fn encode_date<'a>(
    table: &Table,
    column: &Column,
    rows: &[u32],
    (order, parts): (Order, &[Part]),
    (means, sds): (&[f64], &[f64]),
    fills: bool,
    places: impl Iterator<Item = &'a mut [f32]>,
) -> Result<()> {
    let name = &column.name;
    for (row, place) in rows.iter().zip(places) {
        let cell = match &column.values {
            Values::Text(values) => values[*row as usize].as_deref(),
            Values::Number(values) if values[*row as usize].is_nan() => None,
            Values::Number(values) => {
                let cell = number_text(values[*row as usize]);
                return Err(no_date(table, *row, name, &cell, order));
            }
        };
        let Some(cell) = cell.filter(|cell| !(fills && is_dash(cell))) else {
            if !fills {
                return Err(table.missing_cell(*row, name));
            }
            place[..parts.len()].fill(0.0);
            continue;
        };
        let days = dates::days(cell, order).or_else(|| dates::days(cell, Order::YearFirst));
        let days = days.ok_or_else(|| no_date(table, *row, name, cell, order))?;
        for (at, part) in parts.iter().enumerate() {
            place[at] = ((part.of(days) - means[at]) / sds[at]) as f32;
        }
    }
    Ok(())
}

/// How to say that a cell is no date.
fn no_date(table: &Table, row: u32, name: &str, cell: &str, order: Order) -> Error {
    let problem = format!(
        "row {}, column `{name}`: {cell:?} is no date, {}, as the training rows have them; correct \
         or empty the cell",
        row as usize + 1,
        order.words()
    );
    Error::table(&table.path, problem)
}

/// The place of a cell among the levels; `numbers` are those that the levels stand for.
pub(super) fn level_of(
    column: &Column,
    row: usize,
    levels: &[String],
    numbers: &[Option<f64>],
) -> Option<usize> {
    match &column.values {
        Values::Text(values) => levels.iter().position(|level| Some(level) == values[row].as_ref()),
        // A table in which only the levels that are numbers occur.
        Values::Number(values) => numbers.iter().position(|level| *level == Some(values[row])),
    }
}

/// Whether a cell has a level that is among the rare ones, which are in alphabetic order.
pub(super) fn is_pooled(column: &Column, row: usize, pooled: &[String]) -> bool {
    match &column.values {
        Values::Text(values) => {
            values[row].as_ref().is_some_and(|level| pooled.binary_search(level).is_ok())
        }
        Values::Number(values) => pooled.binary_search(&number_text(values[row])).is_ok(),
    }
}
