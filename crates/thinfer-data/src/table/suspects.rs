//! Columns that only name the rows, and columns that are the target once more.

use std::collections::BTreeMap;

use super::{Column, Table, Values};

/// Fewer rows than this do not show that a column counts them, or copies another.
const FEWEST_ROWS: usize = 20;

/// The least square of a correlation with the target that is one with a copy of it.
const COPY: f64 = 0.99999;

/// The least share of rows whose class a level or a number says, of a copy of the target.
const PURE: f64 = 0.999;

/// The fewest training rows of each level of a copy of a class.
const FEWEST_OF_A_LEVEL: usize = 5;

/// Words in the names of columns that name rows.
const NAMES: [&str; 9] =
    ["id", "ids", "uuid", "guid", "index", "idx", "rownames", "rownum", "unnamed"];

/// Whether a column of numbers counts or names the rows: whole numbers, different in every row,
/// that leave none out or whose column is called like an identifier.
pub(super) fn is_counter(column: &Column) -> bool {
    let Values::Number(values) = &column.values else { return false };
    let whole = |value: &f64| value.fract() == 0.0 && value.abs() < 9e15;
    if values.len() < FEWEST_ROWS || !values.iter().all(whole) {
        return false;
    }
    let mut sorted = values.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return false;
    }
    let span = sorted[sorted.len() - 1] - sorted[0] + 1.0;
    span == sorted.len() as f64 || is_called_like_one(&column.name)
}

/// Whether one of the words of a name says that it is an identifier: `id`, `customer_id`, `CustomerID`.
fn is_called_like_one(name: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_small) {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase();
    }
    words.iter().any(|word| NAMES.contains(&word.as_str()))
}

/// Whether a column says almost exactly what the target is in the training `rows`: the target in
/// other units, or a code of its classes. `has_classes` where the target is classes.
pub(super) fn is_copy(
    table: &Table,
    column: &Column,
    target: &str,
    has_classes: bool,
    rows: &[u32],
) -> bool {
    let Some(target) = table.column(target) else { return false };
    let there = |row: &&u32| {
        let at = **row as usize;
        !column.values.is_missing(at) && !target.values.is_missing(at)
    };
    let rows: Vec<usize> = rows.iter().filter(there).map(|row| *row as usize).collect();
    if rows.len() < FEWEST_ROWS {
        return false;
    }
    match (&column.values, &target.values) {
        (Values::Number(x), Values::Number(y)) if !has_classes => {
            let at = |values: &[f64]| rows.iter().map(|row| values[*row]).collect::<Vec<f64>>();
            let (x, y) = (at(x), at(y));
            correlation(&x, &y).powi(2) > COPY
                || (distinct(&x) > FEWEST_ROWS
                    && correlation(&ranks(&x), &ranks(&y)).powi(2) > COPY)
        }
        (Values::Text(_) | Values::Number(_), _) if has_classes => {
            says_class(column, target, &rows)
        }
        _ => false,
    }
}

/// Whether the levels of a column, none of them rare, each go with one class.
fn says_class(column: &Column, target: &Column, rows: &[usize]) -> bool {
    let mut counts: BTreeMap<Cell<'_>, BTreeMap<Cell<'_>, usize>> = BTreeMap::new();
    for row in rows {
        let classes = counts.entry(Cell::of(column, *row)).or_default();
        *classes.entry(Cell::of(target, *row)).or_default() += 1;
    }
    let often =
        |classes: &BTreeMap<Cell<'_>, usize>| classes.values().sum::<usize>() >= FEWEST_OF_A_LEVEL;
    let most = |classes: &BTreeMap<Cell<'_>, usize>| classes.values().max().copied().unwrap_or(0);
    let pure: usize = counts.values().map(most).sum();
    counts.len() > 1 && counts.values().all(often) && pure as f64 >= PURE * rows.len() as f64
}

/// A cell that can be sorted.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Cell<'a> {
    Text(&'a str),
    Number(u64),
}

impl<'a> Cell<'a> {
    fn of(column: &'a Column, row: usize) -> Self {
        match &column.values {
            Values::Text(values) => Cell::Text(values[row].as_deref().unwrap_or_default()),
            // Adding 0 makes -0 and 0 one.
            Values::Number(values) => Cell::Number((values[row] + 0.0).to_bits()),
        }
    }
}

fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mx, my) = (mean(x), mean(y));
    let product =
        |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(x, y)| f(x - mx, y - my)).sum::<f64>();
    let size = (product(&|x, _| x * x) * product(&|_, y| y * y)).sqrt();
    if size > 0.0 { product(&|x, y| x * y) / size } else { 0.0 }
}

fn distinct(values: &[f64]) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.dedup();
    sorted.len()
}

/// The places of values in their order; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let equal = |at: &usize| values[*at] == values[order[from]];
        let count = order[from..].iter().take_while(|at| equal(at)).count().max(1);
        let rank = from as f64 + (count - 1) as f64 / 2.0;
        order[from..from + count].iter().for_each(|at| ranks[*at] = rank);
        from += count;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::super::tests::{number, table, text};
    use super::*;

    fn column(name: &str, values: Values) -> Column {
        Column { name: name.into(), values }
    }

    fn made(of: impl Fn(usize) -> f64) -> Values {
        Values::Number((0..60).map(of).collect())
    }

    #[test]
    fn columns_that_count_or_name_the_rows_are_found() {
        let counts = |name: &str, values| is_counter(&column(name, values));
        assert!(counts("x", made(|row| row as f64 + 1.0)));
        assert!(counts("x", made(|row| ((row * 7) % 60) as f64)), "in any order");
        assert!(counts("CustomerID", made(|row| (row * row) as f64)));
        assert!(counts("Unnamed: 0", made(|row| (3 * row) as f64)));
        assert!(!counts("population", made(|row| (row * row) as f64)));
        assert!(!counts("id", made(|row| (row / 2) as f64)), "not different in every row");
        assert!(!counts("id", made(|row| row as f64 + 0.5)));
        assert!(!counts("id", number(&[1.0, 2.0, 3.0])), "too few rows");
        for (name, is) in [("idea", false), ("user_id", true), ("uuid", true), ("valid", false)] {
            assert_eq!(is_called_like_one(name), is, "{name}");
        }
    }

    #[test]
    fn the_target_in_other_units_or_words_is_found() {
        let y = |row: usize| ((row * 37) % 61) as f64;
        let class = |row: usize| ["no", "yes"][usize::from(y(row) > 30.0)];
        let words: Vec<&str> = (0..60).map(class).collect();
        let t = table(vec![
            ("y", made(y)),
            ("class", text(&words)),
            ("pounds", made(|row| 2.2046 * y(row) + 1.0)),
            ("log", made(|row| y(row).ln_1p())),
            ("near", made(|row| y(row) + (row % 7) as f64)),
            ("code", made(|row| f64::from(u8::from(y(row) > 30.0)))),
            ("unique", made(|row| y(row) * 1.5)),
            ("nearly", made(|row| f64::from(u8::from(y(row) > 33.0)))),
        ]);
        let rows: Vec<u32> = (0..60).collect();
        let copies = |target: &str, has_classes| -> Vec<&str> {
            let others = t.columns.iter().filter(|column| column.name != target);
            let is = |column: &&Column| is_copy(&t, column, target, has_classes, &rows);
            others.filter(is).map(|column| column.name.as_str()).collect()
        };
        assert_eq!(copies("y", false), ["pounds", "log", "unique"]);
        assert_eq!(copies("class", true), ["code"]);
    }
}
