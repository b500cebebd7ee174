//! From columns to a design matrix: numbers are standardised, categories become one column a level.

use serde::{Deserialize, Serialize};

use super::design::{encode_variable, is_pooled, level_of};
use super::learn::learn_variable;
use super::levels::level_values;
use super::notes::Notes;
use super::rules::{Prepare, Rules};
use super::suspects::{is_copy, is_counter};
use super::target::{Task, infer_task};
use super::variable::{Kind, Variable};
use super::{ReadOptions, Table};
use crate::error::{Error, Result};
use crate::memory::{available_memory, check_memory};

/// How the columns of a table become the columns of a design matrix, as learned from training rows.
///
/// It can only be learned or deserialised, and both check it: deviations are positive and finite,
/// and every level has its moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Encoding {
    variables: Vec<Variable>,
    /// Whether commas stood before decimals in the table.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    decimal_commas: bool,
}

/// An encoding as it stands in a file, before it is checked.
#[derive(Deserialize)]
struct Unchecked {
    variables: Vec<Variable>,
    #[serde(default)]
    decimal_commas: bool,
}

impl Encoding {
    /// Learns from the training `rows` of all columns but `target`. Where the rules do not impute,
    /// those rows must be complete; see [`Table::complete_rows`].
    pub fn learn(
        table: &Table,
        target: &str,
        rows: &[u32],
        rules: &Rules,
    ) -> Result<(Self, Notes)> {
        let task = infer_task(table, target)?;
        if rows.is_empty() {
            return Err(Error::table(&table.path, "no rows to learn from; fill in missing values"));
        }
        let (mut variables, mut notes) = (Vec::new(), Notes::default());
        let is_input = |name: &str| name != target && !rules.leaves_out(name);
        let inputs = || table.columns.iter().filter(|column| is_input(&column.name));
        let full = rules.prepare == Prepare::Full;
        let mut counters = Vec::new();
        for column in inputs() {
            table.check_has(column, rows)?;
            if full && !rules.keeps(&column.name) && is_counter(column) {
                counters.push(column);
                continue;
            }
            variables.extend(learn_variable(table, column, rows, rules, &mut notes)?);
        }
        if variables.is_empty() {
            // Better than nothing: they may tell of time.
            for column in counters {
                variables.extend(learn_variable(table, column, rows, rules, &mut notes)?);
            }
        } else {
            notes.counters = counters.into_iter().map(|column| column.name.clone()).collect();
        }
        if full {
            let has_classes = task == Task::Classification;
            let used = |name: &str| variables.iter().any(|variable| variable.name == name);
            let copies = inputs().filter(|column| used(&column.name));
            let copies = copies.filter(|c| is_copy(table, c, target, has_classes, rows));
            notes.copies = copies.map(|column| column.name.clone()).collect();
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
        Ok((Self { variables, decimal_commas: false }, notes))
    }

    /// Numbers of these names that are taken as they are, as simulated data needs it.
    pub fn unscaled(names: &[String]) -> Self {
        let kind = Kind::Number { mean: 0.0, sd: 1.0 };
        let variable = |name: &String| Variable::complete(name, kind.clone());
        Self { variables: names.iter().map(variable).collect(), decimal_commas: false }
    }

    /// Says whether commas stood before decimals in the table, so that others are read like it.
    pub fn set_decimal_commas(&mut self, decimal_commas: bool) {
        self.decimal_commas = decimal_commas;
    }

    /// The same of only the given variables, by their places.
    pub fn with_variables(&self, keep: &[usize]) -> Self {
        let kept = keep.iter().filter_map(|&at| self.variables.get(at).cloned());
        Self { variables: kept.collect(), decimal_commas: self.decimal_commas }
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
        self.variables.iter().map(Variable::width).sum()
    }

    /// The source variable of every design column, by its place in [`Self::names`].
    pub fn groups(&self) -> Vec<usize> {
        let widths = self.variables.iter().map(Variable::width).enumerate();
        widths.flat_map(|(group, width)| std::iter::repeat_n(group, width)).collect()
    }

    /// The names of the design columns: the variable's own, `variable=level`, or `variable is
    /// missing`.
    pub fn design_names(&self) -> Vec<String> {
        self.variables.iter().flat_map(Variable::design_names).collect()
    }

    /// Whether missing cells are filled in, so that every row can be encoded.
    pub fn fills_gaps(&self) -> bool {
        self.variables.iter().all(|variable| variable.gaps.is_some())
    }

    /// How to read a table that is to be encoded: categories and dates are read as text even where
    /// all their cells happen to be numbers.
    pub fn read_options(&self) -> ReadOptions {
        let category = |variable: &&Variable| !matches!(variable.kind, Kind::Number { .. });
        let categorical =
            self.variables.iter().filter(category).map(|variable| variable.name.clone()).collect();
        ReadOptions { categorical, may_be_absent: true, decimal_commas: self.decimal_commas }
    }

    /// The standardised design matrix of `rows`, row by row.
    ///
    /// A level that the training rows did not have is none of the levels. Where gaps are not filled
    /// in, a missing value is an error, so `rows` must be complete in [`Self::names`]; see
    /// [`Table::complete_rows_in`].
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
        for (at, variable) in self.variables.iter().enumerate() {
            if !wanted(at) {
                first += variable.width();
                continue;
            }
            let column = *columns.get(variable.name.as_str()).ok_or_else(|| {
                Error::table(&table.path, format!("has {}", table.no_column(&variable.name)))
            })?;
            table.check_has(column, rows)?;
            encode_variable(table, column, rows, variable, &mut design, (width, first))?;
            first += variable.width();
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
            let Kind::Category { levels, pooled, .. } = &variable.kind else { return None };
            let column = *columns.get(variable.name.as_str()).filter(|_| wanted(at))?;
            let numbers = level_values(levels);
            let unseen: Vec<u32> = rows
                .iter()
                .copied()
                .filter(|row| !column.values.is_missing(*row as usize))
                .filter(|row| level_of(column, *row as usize, levels, &numbers).is_none())
                .filter(|row| !is_pooled(column, *row as usize, pooled))
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

impl TryFrom<Unchecked> for Encoding {
    type Error = Error;

    fn try_from(file: Unchecked) -> Result<Self> {
        file.variables.iter().try_for_each(Variable::check)?;
        Ok(Self { variables: file.variables, decimal_commas: file.decimal_commas })
    }
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
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN, &Rules::plain()).unwrap();
        encoding.encode(new, rows).unwrap_err().to_string()
    }

    #[test]
    fn numbers_are_standardised_and_levels_become_columns_of_one_group() {
        let (encoding, notes) = Encoding::learn(&example(), "y", &TRAIN, &Rules::plain()).unwrap();
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
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN, &Rules::plain()).unwrap();
        assert_eq!(encoding.encode(&example(), &[4]).unwrap(), [5.0, -1.0, -1.0]);
        let unscaled = Encoding::unscaled(&["k".into(), "x".into()]);
        assert_eq!(unscaled.encode(&example(), &[4]).unwrap(), [9.0, 7.0]);
    }

    #[test]
    fn what_is_not_wanted_is_not_looked_at() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN, &Rules::plain()).unwrap();
        let mut new = example();
        new.columns.retain(|column| column.name != "x");
        let only_colour = encoding.encode_some(&new, &[0], |at| at == 1).unwrap();
        assert_eq!(only_colour, [0.0, -1.0, 1.0]);
        new.columns[1].values = text(&["", "", "", "", ""]);
        assert_eq!(encoding.encode_some(&new, &[0], |_| false).unwrap(), [0.0; 3]);
    }

    #[test]
    fn levels_that_are_new_are_found() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN, &Rules::plain()).unwrap();
        let all = [0, 1, 2, 3, 4];
        let found = encoding.unseen(&example(), &all, |_| true);
        assert_eq!(found, [Unseen { name: "c".into(), rows: vec![4] }]);
        assert!(encoding.unseen(&example(), &all, |at| at == 0).is_empty());
        assert!(encoding.unseen(&example(), &TRAIN, |_| true).is_empty());
    }

    #[test]
    fn an_encoding_survives_a_file_and_a_damaged_one_is_refused() {
        let (encoding, _) = Encoding::learn(&example(), "y", &TRAIN, &Rules::plain()).unwrap();
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
        let (encoding, notes) = Encoding::learn(&t, "y", &rows, &Rules::plain()).unwrap();
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
        let (encoding, notes) = Encoding::learn(&t, "y", &rows[..20], &Rules::plain()).unwrap();
        assert_eq!((encoding.names().len(), notes.identifiers.len()), (3, 0));
    }

    #[test]
    fn nothing_to_learn_from_is_refused() {
        let t = table(vec![("x", number(&[1.0, 1.0])), ("y", number(&[1.0, 2.0]))]);
        let none = Encoding::learn(&t, "y", &[0, 1], &Rules::plain()).unwrap_err().to_string();
        let expected = "no column besides `y` can be used (not used, the same value in every";
        assert!(none.contains(expected), "{none}");
        let none = Encoding::learn(&t, "y", &[], &Rules::plain()).unwrap_err().to_string();
        assert!(none.contains("no rows to learn from"), "{none}");
        let none = Encoding::learn(&t, "z", &[0], &Rules::plain()).unwrap_err().to_string();
        assert!(none.starts_with("`--target`: t.csv has no column `z`"), "{none}");
    }

    #[test]
    fn missing_training_cells_and_huge_numbers_are_refused() {
        let mut t = example();
        t.columns[0].values = number(&[1.0, f64::NAN, 2.0, 3.0, 4.0]);
        let missing = Encoding::learn(&t, "y", &TRAIN, &Rules::plain()).unwrap_err().to_string();
        assert!(missing.contains("row 2, column `x`: the value is missing"), "{missing}");
        t.columns[0].values = number(&[1e300, -1e300, 2.0, 3.0, 4.0]);
        let huge = Encoding::learn(&t, "y", &TRAIN, &Rules::plain()).unwrap_err().to_string();
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
        let (encoding, _) = Encoding::learn(&t, "y", &TRAIN, &Rules::plain()).unwrap();
        assert_eq!(encoding.design_names(), ["c=9", "c=10", "flag=false", "flag=true"]);
        assert_eq!(encoding.read_options().categorical, ["c", "flag"]);
        let new = table(vec![("c", number(&[9.0])), ("flag", number(&[1.0]))]);
        assert_eq!(encoding.encode(&new, &[0]).unwrap(), [1.0, -1.0, -1.0, 1.0]);
    }
}
