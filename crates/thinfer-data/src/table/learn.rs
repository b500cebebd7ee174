//! What the training rows say of a column: moments, levels, and what stands in for its gaps.

use std::collections::BTreeMap;

use super::dates::{self, Part};
use super::levels::{moments, sort_levels};
use super::notes::{MOST_LEVELS, Notes};
use super::rules::{Missing, Prepare, Rules};
use super::variable::{Gaps, Kind, Variable};
use super::{Column, Table, Values, number_text};
use crate::error::{Error, Result};

/// Text that is different in every row is an identifier when there are more rows than this.
const FEWEST_IDENTIFIERS: usize = 20;

/// Levels that fewer training rows have are pooled.
const FEWEST_OF_A_LEVEL: usize = 5;

/// What becomes of `column`, learned from the training `rows`; nothing where it cannot be used,
/// which is noted.
pub(super) fn learn_variable(
    table: &Table,
    column: &Column,
    rows: &[u32],
    rules: &Rules,
    notes: &mut Notes,
) -> Result<Option<Variable>> {
    let name = &column.name;
    let is_missing = |row: &&u32| column.values.is_missing(**row as usize);
    let gaps = rows.iter().filter(is_missing).count();
    if gaps == rows.len() {
        notes.empty.push(name.clone());
        return Ok(None);
    }
    let full = rules.prepare == Prepare::Full;
    let imputes = rules.missing == Missing::Impute;
    if gaps > 0 && !imputes {
        let first = rows.iter().find(is_missing).copied().unwrap_or_default();
        return Err(table.missing_cell(first, name));
    }
    let of_all: Vec<u32>;
    let present = if gaps == 0 {
        rows
    } else {
        of_all = rows.iter().filter(|row| !is_missing(row)).copied().collect();
        &of_all
    };
    let share = gaps as f64 / rows.len() as f64;
    let with = |fill: f64| imputes.then_some(Gaps { fill, share });
    let found = match &column.values {
        Values::Number(values) => {
            let (mean, sd) = moments(values, present);
            if sd == 0.0 && gaps > 0 {
                // One number or none: like a category of one level.
                let level = vec![(number_text(mean), present.len())];
                Some(levels_of(level, Vec::new(), rows.len(), present.len()))
            } else if sd == 0.0 {
                None
            } else if sd.is_finite() {
                Some((Kind::Number { mean, sd }, median(values, present)))
            } else {
                let problem = format!(
                    "the numbers of column `{name}` are too large to be standardised; rescale them"
                );
                return Err(Error::table(&table.path, problem));
            }
        }
        Values::Text(values) => {
            let cells = || present.iter().filter_map(|row| values[*row as usize].as_deref());
            let date = if full { learn_date(&cells(), name, notes) } else { None };
            if let Some(kind) = date {
                // Dates that are all one have no part that varies.
                (kind.width() > 0).then_some((kind, 0.0))
            } else {
                let mut counts = BTreeMap::new();
                for level in cells() {
                    *counts.entry(level.to_owned()).or_insert(0usize) += 1;
                }
                let kept = rules.keeps(name);
                let differ = counts.len() == present.len() && counts.len() > FEWEST_IDENTIFIERS;
                if differ && !kept {
                    notes.identifiers.push(name.clone());
                    return Ok(None);
                }
                let (levels, pooled) =
                    if full { pool(counts) } else { (counts.into_iter().collect(), Vec::new()) };
                if levels.len() > MOST_LEVELS || levels.is_empty() {
                    let all = levels.len() + pooled.len();
                    notes.too_many_levels.push((name.clone(), all));
                    return Ok(None);
                }
                if levels.len() + pooled.len() > MOST_LEVELS {
                    notes.pooled.push((name.clone(), levels.len(), pooled.len()));
                }
                let varies = levels.len() + pooled.len() > 1 || gaps > 0;
                varies.then(|| levels_of(levels, pooled, rows.len(), present.len()))
            }
        }
    };
    if found.is_none() {
        notes.constant.push(name.clone());
    }
    Ok(found.map(|(kind, fill)| Variable { name: name.clone(), kind, gaps: with(fill) }))
}

/// What becomes of text that is dates; nothing where it is not.
fn learn_date<'a>(
    cells: &(impl Iterator<Item = &'a str> + Clone),
    name: &str,
    notes: &mut Notes,
) -> Option<Kind> {
    let (order, is_open) = dates::order(cells.clone())?;
    let days: Vec<f64> = cells.clone().filter_map(|cell| dates::days(cell, order)).collect();
    let all: Vec<u32> = (0..days.len() as u32).collect();
    let (mut parts, mut means, mut sds) = (Vec::new(), Vec::new(), Vec::new());
    for part in Part::that_vary(&days) {
        let values: Vec<f64> = days.iter().map(|day| part.of(*day)).collect();
        let (mean, sd) = moments(&values, &all);
        if sd > 0.0 {
            parts.push(part);
            means.push(mean);
            sds.push(sd);
        }
    }
    if !parts.is_empty() {
        let example = cells.clone().next().unwrap_or_default().to_owned();
        notes.dates.push((name.to_owned(), order, is_open.then_some(example)));
    }
    Some(Kind::Date { order, parts, means, sds })
}

type Counts = Vec<(String, usize)>;

/// Levels that stay with their counts, and those that are pooled because few rows have them. Where
/// all are rare none is pooled, unless they are too many.
fn pool(counts: BTreeMap<String, usize>) -> (Counts, Vec<String>) {
    let (mut common, mut rare): (Counts, Counts) =
        counts.into_iter().partition(|(_, count)| *count >= FEWEST_OF_A_LEVEL);
    if common.is_empty() && rare.len() <= MOST_LEVELS {
        return (rare, Vec::new());
    }
    if common.len() > MOST_LEVELS {
        // The most frequent ones stay, of equals the first.
        common.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        rare.extend(common.split_off(MOST_LEVELS));
    }
    let mut pooled: Vec<String> = rare.into_iter().map(|(level, _)| level).collect();
    pooled.sort_unstable();
    (common, pooled)
}

/// A category of levels with the rows that have each, and the place of the most frequent one, the
/// first of equals. The other of the rows that are `present` have a level that is pooled.
fn levels_of(counts: Counts, pooled: Vec<String>, rows: usize, present: usize) -> (Kind, f64) {
    let mut levels: Vec<String> = counts.iter().map(|(level, _)| level.clone()).collect();
    sort_levels(&mut levels);
    let counts: BTreeMap<String, usize> = counts.into_iter().collect();
    let count = |level: &String| counts.get(level).copied().unwrap_or_default();
    let most = levels.iter().map(count).max().unwrap_or_default();
    let fill = levels.iter().position(|level| count(level) == most).unwrap_or_default();
    let other = (!pooled.is_empty()).then(|| present - counts.values().sum::<usize>());
    let share = |count: usize| count as f64 / rows as f64;
    let means: Vec<f64> = levels.iter().map(count).chain(other).map(share).collect();
    let sds = means.iter().map(|p| (p * (1.0 - p)).sqrt()).collect();
    (Kind::Category { levels, means, sds, pooled }, fill as f64)
}

/// The middle of `values` at `rows`; of two in the middle, half way between them.
fn median(values: &[f64], rows: &[u32]) -> f64 {
    let mut sorted: Vec<f64> = rows.iter().map(|row| values[*row as usize]).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => sorted[n / 2 - 1] + (sorted[n / 2] - sorted[n / 2 - 1]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Encoding;
    use super::super::tests::{number, table, text};
    use super::*;

    const ALL: [u32; 5] = [0, 1, 2, 3, 4];

    fn learned(values: Values) -> Option<Variable> {
        let t = table(vec![("x", values), ("z", number(&[1.0, 2.0, 3.0, 4.0, 5.0]))]);
        let (encoding, _) = Encoding::learn(&t, "z", &ALL, &Rules::default()).ok()?;
        encoding.variables().first().cloned()
    }

    #[test]
    fn the_median_stands_in_for_a_number_and_an_input_says_where() {
        let nan = f64::NAN;
        let x = learned(number(&[1.0, nan, 9.0, 2.0, 4.0])).unwrap();
        assert_eq!(x.gaps, Some(Gaps { fill: 3.0, share: 0.2 }));
        assert_eq!((x.width(), x.design_names()), (2, vec!["x".into(), "x is missing".into()]));
        let Kind::Number { mean, .. } = x.kind else { panic!() };
        assert_eq!(mean, 4.0, "of the cells that are there");
        // A table without gaps has no such input, and still knows what to do with one.
        let x = learned(number(&[1.0, 7.0, 9.0, 2.0, 4.0])).unwrap();
        assert_eq!((x.gaps.clone(), x.width()), (Some(Gaps { fill: 4.0, share: 0.0 }), 1));
    }

    #[test]
    fn a_missing_category_is_none_of_the_levels_and_the_most_frequent_one_stands_in() {
        let x = learned(text(&["b", "a", "b", "", "c"])).unwrap();
        assert_eq!(x.gaps, Some(Gaps { fill: 1.0, share: 0.2 }));
        assert_eq!(x.design_names(), ["x=a", "x=b", "x=c", "x is missing"]);
        let Kind::Category { means, .. } = &x.kind else { panic!() };
        assert_eq!(means, &[0.2, 0.4, 0.2]);
    }

    #[test]
    fn a_value_that_is_there_or_not_is_a_variable() {
        let nan = f64::NAN;
        for values in [text(&["yes", "", "", "yes", ""]), number(&[1.0, nan, nan, 1.0, nan])] {
            let x = learned(values).unwrap();
            assert_eq!((x.width(), x.gaps), (2, Some(Gaps { fill: 0.0, share: 0.6 })));
        }
    }

    #[test]
    fn rare_levels_are_one_column_and_so_are_levels_beyond_the_fiftieth() {
        let of = |cells: &[String]| {
            let y = (0..cells.len()).map(|row| row as f64).collect();
            let x = Values::Text(cells.iter().cloned().map(Some).collect());
            let t =
                table(vec![("x", x), ("y", Values::Number(y)), ("z", number(&vec![1.0; 5000]))]);
            let rows: Vec<u32> = (0..cells.len() as u32).collect();
            let (encoding, notes) = Encoding::learn(&t, "y", &rows, &Rules::default()).ok()?;
            Some((encoding.variables()[0].clone(), notes, encoding.encode(&t, &rows).unwrap()))
        };
        let mut cells = vec!["a".to_owned(); 10];
        cells.extend(["b"; 6].map(str::to_owned));
        cells.extend(["c", "d", "d", "e"].map(str::to_owned));
        let (x, notes, design) = of(&cells).unwrap();
        assert_eq!(x.design_names(), ["x=a", "x=b", "x is another"]);
        let Kind::Category { means, pooled, .. } = &x.kind else { panic!() };
        assert_eq!(
            (&means[..], &pooled[..]),
            (&[0.5, 0.3, 0.2][..], &["c", "d", "e"].map(str::to_owned)[..])
        );
        assert_eq!((design[2], design[3 * 16 + 2]), (-0.5, 2.0));
        assert!(notes.pooled.is_empty());
        // Sixty levels of six rows each, and then of four.
        let many =
            |each: usize| (0..60 * each).map(|row| format!("n{}", row % 60)).collect::<Vec<_>>();
        let (x, notes, _) = of(&many(6)).unwrap();
        assert_eq!((x.width(), notes.pooled), (51, vec![("x".to_owned(), 50, 10)]));
        assert!(of(&many(4)).is_none(), "no other column");
        // Few rows: all levels are rare, and stay.
        let few: Vec<String> = (0..12).map(|row| format!("n{}", row % 4)).collect();
        assert_eq!(of(&few).unwrap().0.width(), 4);
    }

    #[test]
    fn dates_become_days_and_parts_of_the_calendar_of_one_variable() {
        let dates: Vec<String> = (1..=28).map(|day| format!("{day}.2.2024")).collect();
        let mut cells: Vec<&str> = dates.iter().map(String::as_str).collect();
        cells[3] = "";
        let y: Vec<f64> = (0..28).map(f64::from).collect();
        let t = table(vec![("sold", text(&cells)), ("y", number(&y))]);
        let rows: Vec<u32> = (0..28).collect();
        let (encoding, notes) = Encoding::learn(&t, "y", &rows, &Rules::default()).unwrap();
        assert_eq!(
            encoding.design_names(),
            [
                "sold (days)",
                "sold (sine of the week)",
                "sold (cosine of the week)",
                "sold (weekend)",
                "sold is missing"
            ]
        );
        assert_eq!(encoding.groups(), [0; 5]);
        assert_eq!(notes.lines(), ["read as dates: `sold` (day first)"]);
        let design = encoding.encode(&t, &rows).unwrap();
        assert!(design[0] < -1.5 && design[5 * 27] > 1.5);
        assert_eq!(design[5 * 3..5 * 3 + 4], [0.0; 4], "at the means");
        // As a category where columns are taken as they stand: here text that is never the same.
        let plain = Rules { prepare: Prepare::Plain, ..Rules::default() };
        assert!(Encoding::learn(&t, "y", &rows, &plain).is_err());
        let odd = table(vec![("sold", text(&["soon"])), ("y", number(&[1.0]))]);
        let refused = encoding.encode(&odd, &[0]).unwrap_err().to_string();
        assert!(refused.contains("row 1, column `sold`: \"soon\" is no date"), "{refused}");
    }

    #[test]
    fn rules_that_do_not_impute_refuse_gaps_in_the_training_rows() {
        let gap = number(&[1.0, f64::NAN, 3.0, 4.0, 5.0]);
        let t = table(vec![("x", gap), ("z", number(&[1.0, 2.0, 3.0, 4.0, 5.0]))]);
        for missing in [Missing::DropRows, Missing::Refuse] {
            let rules = Rules { missing, ..Rules::default() };
            let refused = Encoding::learn(&t, "z", &ALL, &rules).unwrap_err().to_string();
            assert!(refused.contains("row 2, column `x`: the value is missing"), "{refused}");
            let (encoding, _) = Encoding::learn(&t, "z", &[0, 2, 3], &rules).unwrap();
            assert_eq!(encoding.variables()[0].gaps, None);
        }
    }
}
