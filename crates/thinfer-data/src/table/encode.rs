//! From columns to a design matrix: numbers are standardised, categories become one column a level.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::levels::{level_values, moments, sort_levels};
use super::notes::{MOST_LEVELS, Notes};
use super::target::target_column;
use super::{Column, ReadOptions, Table, Values};
use crate::error::{Error, Result};
use crate::memory::{available_memory, check_memory};

/// Text that is different in every row is an identifier when there are more rows than this.
const FEWEST_IDENTIFIERS: usize = 20;

/// How the columns of a table become the columns of a design matrix, as learned from training rows.
///
/// It can only be learned or deserialised, and both check it: deviations are positive and finite,
/// and every level has its moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Encoding {
    variables: Vec<Variable>,
}

/// An encoding as it stands in a file, before it is checked.
#[derive(Deserialize)]
struct Unchecked {
    variables: Vec<Variable>,
}

/// A source column that is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What becomes of a source column. Standard deviations have the divisor n.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// One design column, `(x - mean) / sd`.
    Number {
        /// The mean over the training rows.
        mean: f64,
        /// The standard deviation over the training rows.
        sd: f64,
    },
    /// One design column a level, 1 where the cell is that level and 0 elsewhere, standardised.
    Category {
        /// The levels; numbers in numeric order, text in alphabetic order.
        levels: Vec<String>,
        /// The share of the training rows with each level.
        means: Vec<f64>,
        /// The standard deviation of each design column.
        sds: Vec<f64>,
    },
}

impl Encoding {
    /// Learns from the training `rows` of all columns but `target`. Those rows must be complete;
    /// see [`Table::complete_rows`].
    pub fn learn(table: &Table, target: &str, rows: &[u32]) -> Result<(Self, Notes)> {
        target_column(table, target)?;
        if rows.is_empty() {
            return Err(Error::table(&table.path, "no rows to learn from; fill in missing values"));
        }
        let (mut variables, mut notes) = (Vec::new(), Notes::default());
        for column in table.columns.iter().filter(|column| column.name != target) {
            table.check_has(column, rows)?;
            let kind = learn_kind(table, column, rows, &mut notes)?;
            variables.extend(kind.map(|kind| Variable { name: column.name.clone(), kind }));
        }
        if variables.is_empty() {
            let problem = format!(
                "no column besides `{target}` can be used ({}); add columns that vary",
                if notes.is_empty() {
                    "there is none".to_owned()
                } else {
                    notes.lines().join("; ")
                }
            );
            return Err(Error::table(&table.path, problem));
        }
        Ok((Self { variables }, notes))
    }

    /// Numbers of these names that are taken as they are, as simulated data needs it.
    pub fn unscaled(names: &[String]) -> Self {
        let kind = Kind::Number { mean: 0.0, sd: 1.0 };
        let variable = |name: &String| Variable { name: name.clone(), kind: kind.clone() };
        Self { variables: names.iter().map(variable).collect() }
    }

    /// The same of only the given variables, by their places.
    pub fn with_variables(&self, keep: &[usize]) -> Self {
        let kept = keep.iter().filter_map(|&at| self.variables.get(at).cloned());
        Self { variables: kept.collect() }
    }

    /// The source variables, in the order of the training table.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The names of the source variables.
    pub fn names(&self) -> Vec<String> {
        self.variables.iter().map(|variable| variable.name.clone()).collect()
    }

    /// The number of design columns.
    pub fn width(&self) -> usize {
        self.variables.iter().map(|variable| variable.kind.width()).sum()
    }

    /// The source variable of every design column, by its place in [`Self::names`].
    pub fn groups(&self) -> Vec<usize> {
        let widths = self.variables.iter().map(|variable| variable.kind.width()).enumerate();
        widths.flat_map(|(group, width)| std::iter::repeat_n(group, width)).collect()
    }

    /// The names of the design columns: the variable's own, or `variable=level`.
    pub fn design_names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.width());
        for Variable { name, kind } in &self.variables {
            match kind {
                Kind::Number { .. } => names.push(name.clone()),
                Kind::Category { levels, .. } => {
                    names.extend(levels.iter().map(|level| format!("{name}={level}")));
                }
            }
        }
        names
    }

    /// How to read a table that is to be encoded: categories are read as text even where all
    /// their cells happen to be numbers.
    pub fn read_options(&self) -> ReadOptions {
        let category = |variable: &&Variable| matches!(variable.kind, Kind::Category { .. });
        let categorical =
            self.variables.iter().filter(category).map(|variable| variable.name.clone()).collect();
        ReadOptions { categorical, may_be_absent: true }
    }

    /// The standardised design matrix of `rows`, row by row.
    ///
    /// A level that the training rows did not have is none of the levels. A missing value is an
    /// error, so `rows` must be complete in [`Self::names`]; see [`Table::complete_rows_in`].
    pub fn encode(&self, table: &Table, rows: &[u32]) -> Result<Vec<f32>> {
        self.encode_some(table, rows, |_| true)
    }

    /// The same with 0 in the columns of the variables that are not `wanted`, by their place in
    /// [`Self::names`]. Their cells are not looked at, and the table may lack them.
    pub fn encode_some(
        &self,
        table: &Table,
        rows: &[u32],
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<f32>> {
        let width = self.width();
        let cells = rows.len().checked_mul(width);
        let bytes = cells.and_then(|cells| (cells as u64).checked_mul(4));
        check_memory("the design matrix", bytes, available_memory())?;
        let mut design = vec![0.0; cells.unwrap_or_default()];
        let columns = table.by_name();
        let mut first = 0;
        for (at, Variable { name, kind }) in self.variables.iter().enumerate() {
            if !wanted(at) {
                first += kind.width();
                continue;
            }
            let column = *columns.get(name.as_str()).ok_or_else(|| {
                Error::table(&table.path, format!("has {}", table.no_column(name)))
            })?;
            table.check_has(column, rows)?;
            let places = design.chunks_exact_mut(width).map(|row| &mut row[first..]);
            match kind {
                Kind::Number { mean, sd } => {
                    encode_number(table, column, rows, (*mean, *sd), places)?;
                }
                Kind::Category { levels, means, sds } => {
                    encode_category(table, column, rows, levels, (means, sds), places)?;
                }
            }
            first += kind.width();
        }
        Ok(design)
    }

    /// The categories in which some of `rows` have a level that the training rows did not have,
    /// among the variables that are `wanted`.
    pub fn unseen(
        &self,
        table: &Table,
        rows: &[u32],
        wanted: impl Fn(usize) -> bool,
    ) -> Vec<Unseen> {
        let columns = table.by_name();
        let of = |(at, variable): (usize, &Variable)| {
            let Kind::Category { levels, .. } = &variable.kind else { return None };
            let column = *columns.get(variable.name.as_str()).filter(|_| wanted(at))?;
            let numbers = level_values(levels);
            let unseen: Vec<u32> = rows
                .iter()
                .copied()
                .filter(|row| !column.values.is_missing(*row as usize))
                .filter(|row| level_of(column, *row as usize, levels, &numbers).is_none())
                .collect();
            (!unseen.is_empty()).then(|| Unseen { name: variable.name.clone(), rows: unseen })
        };
        self.variables.iter().enumerate().filter_map(of).collect()
    }
}

/// A category with levels that are new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// The variable.
    pub name: String,
    /// The rows with such a level, counted from 0.
    pub rows: Vec<u32>,
}

/// The place of a cell among the levels; `numbers` are those that the levels stand for.
fn level_of(
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

impl Kind {
    /// The number of design columns.
    pub fn width(&self) -> usize {
        match self {
            Kind::Number { .. } => 1,
            Kind::Category { levels, .. } => levels.len(),
        }
    }
}

impl TryFrom<Unchecked> for Encoding {
    type Error = Error;

    fn try_from(file: Unchecked) -> Result<Self> {
        let sound = |mean: f64, sd: f64| mean.is_finite() && sd.is_finite() && sd > 0.0;
        for Variable { name, kind } in &file.variables {
            let good = match kind {
                Kind::Number { mean, sd } => sound(*mean, *sd),
                Kind::Category { levels, means, sds } => {
                    !levels.is_empty()
                        && levels.len() == means.len()
                        && levels.len() == sds.len()
                        && means.iter().zip(sds).all(|(mean, sd)| sound(*mean, *sd))
                }
            };
            if !good {
                return Err(Error::Data(format!(
                    "the encoding of `{name}` is damaged; train the model again"
                )));
            }
        }
        Ok(Self { variables: file.variables })
    }
}

fn learn_kind(
    table: &Table,
    column: &Column,
    rows: &[u32],
    notes: &mut Notes,
) -> Result<Option<Kind>> {
    let name = &column.name;
    let mut missing = rows.iter().filter(|row| column.values.is_missing(**row as usize));
    if let Some(first) = missing.next() {
        if missing.count() + 1 < rows.len() {
            return Err(table.missing_cell(*first, name));
        }
        notes.empty.push(name.clone());
        return Ok(None);
    }
    match &column.values {
        Values::Number(values) => {
            let (mean, sd) = moments(values, rows);
            if sd == 0.0 {
                notes.constant.push(name.clone());
                return Ok(None);
            }
            if !sd.is_finite() {
                let problem = format!(
                    "the numbers of column `{name}` are too large to be standardised; rescale them"
                );
                return Err(Error::table(&table.path, problem));
            }
            Ok(Some(Kind::Number { mean, sd }))
        }
        Values::Text(values) => {
            let mut counts = BTreeMap::new();
            for level in rows.iter().filter_map(|row| values[*row as usize].as_ref()) {
                *counts.entry(level).or_insert(0usize) += 1;
            }
            if counts.len() == 1 {
                notes.constant.push(name.clone());
            } else if counts.len() == rows.len() && counts.len() > FEWEST_IDENTIFIERS {
                notes.identifiers.push(name.clone());
            } else if counts.len() > MOST_LEVELS {
                notes.too_many_levels.push((name.clone(), counts.len()));
            } else {
                let mut levels: Vec<String> = counts.keys().map(|level| (*level).clone()).collect();
                sort_levels(&mut levels);
                let share = |level: &String| counts[level] as f64 / rows.len() as f64;
                let means: Vec<f64> = levels.iter().map(share).collect();
                let sds = means.iter().map(|p| (p * (1.0 - p)).sqrt()).collect();
                return Ok(Some(Kind::Category { levels, means, sds }));
            }
            Ok(None)
        }
    }
}

fn encode_number<'a>(
    table: &Table,
    column: &Column,
    rows: &[u32],
    (mean, sd): (f64, f64),
    places: impl Iterator<Item = &'a mut [f32]>,
) -> Result<()> {
    let name = &column.name;
    let values = match &column.values {
        Values::Number(values) => values,
        Values::Text(values) => {
            let row = |row: &&u32| values[**row as usize].is_some();
            let Some(row) = rows.iter().find(row) else {
                return rows.first().map_or(Ok(()), |row| Err(table.missing_cell(*row, name)));
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
        let value = values[*row as usize];
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
    places: impl Iterator<Item = &'a mut [f32]>,
) -> Result<()> {
    let standardised = |value: f64| -> Vec<f32> {
        means.iter().zip(sds).map(|(mean, sd)| ((value - mean) / sd) as f32).collect()
    };
    let (absent, present) = (standardised(0.0), standardised(1.0));
    let numbers = level_values(levels);
    for (row, place) in rows.iter().zip(places) {
        let at = *row as usize;
        if column.values.is_missing(at) {
            return Err(table.missing_cell(*row, &column.name));
        }
        let level = level_of(column, at, levels, &numbers);
        place[..absent.len()].copy_from_slice(&absent);
        if let Some(level) = level {
            place[level] = present[level];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{number, table, text};
    use super::*;

    /// The last row has what the training rows do not.
    fn example() -> Table {
        table(vec![
            ("x", number(&[1.0, 3.0, 1.0, 3.0, 7.0])),
            ("y", number(&[1.0, 2.0, 3.0, 4.0, 5.0])),
            ("c", text(&["red", "blue", "red", "blue", "green"])),
            ("k", number(&[2.0, 2.0, 2.0, 2.0, 9.0])),
        ])
    }

    const TRAIN: [u32; 4] = [0, 1, 2, 3];

    fn refused(new: &Table, rows: &[u32]) -> String {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN).unwrap();
        encoding.encode(new, rows).unwrap_err().to_string()
    }

    #[test]
    fn numbers_are_standardised_and_levels_become_columns_of_one_group() {
        let (encoding, notes) = Encoding::learn(&example(), "y", &TRAIN).unwrap();
        assert_eq!(encoding.names(), ["x", "c"]);
        assert_eq!(encoding.groups(), [0, 1, 1]);
        assert_eq!(encoding.design_names(), ["x", "c=blue", "c=red"]);
        assert_eq!(notes, Notes { constant: vec!["k".into()], ..Notes::default() });
        let design = encoding.encode(&example(), &[0, 1]).unwrap();
        assert_eq!(design, [-1.0, -1.0, 1.0, 1.0, 1.0, -1.0]);
        let design = encoding.encode(&example(), &TRAIN).unwrap();
        for column in 0..3 {
            let column = || design.chunks_exact(3).map(|row| row[column]);
            assert_eq!(column().sum::<f32>(), 0.0);
            assert_eq!(column().map(|v| v * v).sum::<f32>(), 4.0);
        }
    }

    #[test]
    fn unknown_levels_are_none_of_the_levels_and_unscaled_numbers_stay() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN).unwrap();
        assert_eq!(encoding.encode(&example(), &[4]).unwrap(), [5.0, -1.0, -1.0]);
        let unscaled = Encoding::unscaled(&["k".into(), "x".into()]);
        assert_eq!(unscaled.encode(&example(), &[4]).unwrap(), [9.0, 7.0]);
    }

    #[test]
    fn what_is_not_wanted_is_not_looked_at() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN).unwrap();
        let mut new = example();
        new.columns.retain(|column| column.name != "x");
        let only_colour = encoding.encode_some(&new, &[0], |at| at == 1).unwrap();
        assert_eq!(only_colour, [0.0, -1.0, 1.0]);
        new.columns[1].values = text(&["", "", "", "", ""]);
        assert_eq!(encoding.encode_some(&new, &[0], |_| false).unwrap(), [0.0; 3]);
    }

    #[test]
    fn levels_that_are_new_are_found() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN).unwrap();
        let all = [0, 1, 2, 3, 4];
        let found = encoding.unseen(&example(), &all, |_| true);
        assert_eq!(found, [Unseen { name: "c".into(), rows: vec![4] }]);
        assert!(encoding.unseen(&example(), &all, |at| at == 0).is_empty());
        assert!(encoding.unseen(&example(), &TRAIN, |_| true).is_empty());
    }

    #[test]
    fn an_encoding_survives_a_file_and_a_damaged_one_is_refused() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN).unwrap();
        let file = serde_json::to_string(&encoding).unwrap();
        assert_eq!(serde_json::from_str::<Encoding>(&file).unwrap(), encoding);
        let damaged = file.replace("\"sds\":[0.5,0.5]", "\"sds\":[0.5]");
        assert_ne!(damaged, file);
        let refused = serde_json::from_str::<Encoding>(&damaged).unwrap_err().to_string();
        assert!(refused.contains("the encoding of `c` is damaged"), "{refused}");
    }

    #[test]
    fn columns_that_cannot_be_used_are_noted() {
        let labels: Vec<String> = (0..120).map(|i| format!("n{i}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let halves: Vec<&str> = (0..120).map(|i| labels[i / 2]).collect();
        let count: Vec<f64> = (0..120).map(f64::from).collect();
        let t = table(vec![
            ("id", text(&labels)),
            ("street", text(&halves)),
            ("same", text(&["s"; 120])),
            ("void", number(&[f64::NAN; 120])),
            ("x", number(&count)),
            ("y", number(&count)),
        ]);
        let rows: Vec<u32> = (0..120).collect();
        let (encoding, notes) = Encoding::learn(&t, "y", &rows).unwrap();
        assert_eq!(encoding.names(), ["x"]);
        assert_eq!(
            notes.lines(),
            [
                "not used, the same value in every training row: `same`",
                "not used, no values: `void`",
                "not used, text that is different in every row, like an identifier: `id`",
                "not used, text with 60 levels, more than 50: `street`",
            ]
        );
        // Twenty different names in twenty rows may still be a category.
        let (encoding, notes) = Encoding::learn(&t, "y", &rows[..20]).unwrap();
        assert_eq!((encoding.names().len(), notes.identifiers.len()), (3, 0));
    }

    #[test]
    fn nothing_to_learn_from_is_refused() {
        let t = table(vec![("x", number(&[1.0, 1.0])), ("y", number(&[1.0, 2.0]))]);
        let none = Encoding::learn(&t, "y", &[0, 1]).unwrap_err().to_string();
        let expected = "no column besides `y` can be used (not used, the same value in every";
        assert!(none.contains(expected), "{none}");
        let none = Encoding::learn(&t, "y", &[]).unwrap_err().to_string();
        assert!(none.contains("no rows to learn from"), "{none}");
        let none = Encoding::learn(&t, "z", &[0]).unwrap_err().to_string();
        assert!(none.starts_with("`--target`: t.csv has no column `z`"), "{none}");
    }

    #[test]
    fn missing_training_cells_and_huge_numbers_are_refused() {
        let mut t = example();
        t.columns[0].values = number(&[1.0, f64::NAN, 2.0, 3.0, 4.0]);
        let missing = Encoding::learn(&t, "y", &TRAIN).unwrap_err().to_string();
        assert!(missing.contains("row 2, column `x`: the value is missing"), "{missing}");
        t.columns[0].values = number(&[1e300, -1e300, 2.0, 3.0, 4.0]);
        let huge = Encoding::learn(&t, "y", &TRAIN).unwrap_err().to_string();
        assert!(huge.contains("column `x` are too large to be standardised"), "{huge}");
    }

    #[test]
    fn a_new_table_without_a_column_is_refused_with_the_nearest_name() {
        let new =
            table(vec![("x", number(&[1.0])), ("C ol", number(&[1.0])), ("cc", text(&["a"]))]);
        assert_eq!(
            refused(&new, &[0]),
            "t.csv: has no column `c`; did you mean `cc`? The columns are `x`, `C ol`, `cc`"
        );
    }

    #[test]
    fn text_where_numbers_are_expected_is_refused_with_an_example() {
        let mut new = example();
        new.columns[0].values = text(&["", "low", "", "", ""]);
        assert_eq!(
            refused(&new, &TRAIN),
            "t.csv: column `x` holds text (row 2: \"low\"), but the model was trained on numbers \
             there; correct those cells"
        );
        assert!(refused(&new, &[0]).contains("row 1, column `x`: the value is missing"));
    }

    #[test]
    fn new_cells_that_are_missing_or_too_large_are_refused_with_their_place() {
        let mut new = example();
        new.columns[0].values = number(&[1.0, f64::NAN, 1e300, 3.0, 4.0]);
        new.columns[2].values = text(&["red", "red", "red", "", "red"]);
        assert!(refused(&new, &[0, 1]).contains("row 2, column `x`: the value is missing"));
        assert!(refused(&new, &[0, 3]).contains("row 4, column `c`: the value is missing"));
        let far = refused(&new, &[2]);
        assert!(far.contains("row 3, column `x`: 1e300 is too far from the training"), "{far}");
        assert!(refused(&new, &[5]).contains("has no row 6 in column `x`"));
    }

    #[test]
    fn categories_of_numbers_are_matched_by_value() {
        let t = table(vec![
            ("c", text(&["10", "9", "10", "9"])),
            ("flag", text(&["true", "false", "true", "false"])),
            ("y", number(&[1.0, 2.0, 3.0, 4.0])),
        ]);
        let (encoding, _) = Encoding::learn(&t, "y", &TRAIN).unwrap();
        assert_eq!(encoding.design_names(), ["c=9", "c=10", "flag=false", "flag=true"]);
        assert_eq!(encoding.read_options().categorical, ["c", "flag"]);
        let new = table(vec![("c", number(&[9.0])), ("flag", number(&[1.0]))]);
        assert_eq!(encoding.encode(&new, &[0]).unwrap(), [1.0, -1.0, -1.0, 1.0]);
    }
}
