//! The column to predict: its task, its classes, its units.

use serde::{Deserialize, Serialize};

use super::levels::{level_values, moments, sort_levels};
use super::{Column, Table, Values, number_text};
use crate::error::{Error, Result};

/// Fewer rows than this cannot be learned from.
const FEWEST_ROWS: usize = 10;
/// More classes than this are a mistake in the choice of the target or of the task.
const MOST_CLASSES: usize = 100;

/// The largest count: f32 has every whole number up to it.
const LARGEST_COUNT: f64 = 16_777_216.0;

/// What is to be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A number.
    Regression,
    /// One of several classes.
    Classification,
}

/// The target as the training rows showed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Target {
    /// A number, standardised by what the training rows have.
    Number {
        /// Their mean.
        mean: f64,
        /// Their standard deviation, with divisor n.
        sd: f64,
    },
    /// A count, as it is.
    Count {
        /// The mean of the training rows.
        mean: f64,
    },
    /// Classes, numbered from 0.
    Classes {
        /// Their names; numbers in numeric order, text in alphabetic order.
        levels: Vec<String>,
    },
}

/// The task a target column suggests: classification for text, truth values and numbers of at most
/// two values, regression for all other numbers.
pub fn infer_task(table: &Table, target: &str) -> Result<Task> {
    let column = target_column(table, target)?;
    let Values::Number(values) = &column.values else { return Ok(Task::Classification) };
    let mut seen: Vec<f64> = Vec::new();
    for value in values.iter().filter(|value| !value.is_nan()) {
        if !seen.contains(value) {
            seen.push(*value);
            if seen.len() > 2 {
                return Ok(Task::Regression);
            }
        }
    }
    Ok(Task::Classification)
}

/// Learns the target from the training `rows` and gives its values there: mean 0 and standard
/// deviation 1 for regression, class numbers for classification.
pub fn learn_target(
    table: &Table,
    target: &str,
    task: Task,
    rows: &[u32],
) -> Result<(Target, Vec<f32>)> {
    let column = target_column(table, target)?;
    if rows.len() < FEWEST_ROWS {
        return Err(Error::Data(format!(
            "{} {} can be used, but at least {FEWEST_ROWS} are needed; add rows, or fill in \
             missing values",
            rows.len(),
            if rows.len() == 1 { "row" } else { "rows" }
        )));
    }
    table.check_has(column, rows)?;
    let learned = match task {
        Task::Regression => learn_number(table, column, rows)?,
        Task::Classification => learn_classes(table, column, rows)?,
    };
    let values = learned.encode(table, target, rows)?;
    Ok((learned, values))
}

impl Target {
    /// A number, learned from `rows` alone, however few there are.
    pub fn number(table: &Table, target: &str, rows: &[u32]) -> Result<Self> {
        learn_number(table, target_column(table, target)?, rows)
    }

    /// A count, learned from `rows` alone.
    pub fn count(table: &Table, target: &str, rows: &[u32]) -> Result<Self> {
        let column = target_column(table, target)?;
        let Values::Number(values) = &column.values else { return Err(text_target(column)) };
        for row in rows {
            table.check_count(column, *row)?;
        }
        let (mean, _) = moments(values, rows);
        if mean == 0.0 {
            return Err(Error::Data(format!(
                "the count `{target}` is 0 in every row, so there is nothing to learn; choose \
                 another with --target"
            )));
        }
        Ok(Target::Count { mean })
    }

    /// The task of the target.
    pub fn task(&self) -> Task {
        match self {
            Target::Number { .. } | Target::Count { .. } => Task::Regression,
            Target::Classes { .. } => Task::Classification,
        }
    }

    /// The names of the classes; none where the target is a number.
    pub fn levels(&self) -> &[String] {
        match self {
            Target::Classes { levels } => levels,
            Target::Number { .. } | Target::Count { .. } => &[],
        }
    }

    /// The column `target` of `table` at `rows`, in the form this target was learned in. For rows
    /// that were held out, or a new table.
    pub fn encode(&self, table: &Table, target: &str, rows: &[u32]) -> Result<Vec<f32>> {
        let column = target_column(table, target)?;
        table.check_has(column, rows)?;
        match self {
            Target::Number { mean, sd } => {
                let Values::Number(values) = &column.values else {
                    return Err(text_target(column));
                };
                let standardised = |row: &u32| {
                    let value = values[*row as usize];
                    if value.is_nan() {
                        return Err(table.missing_cell(*row, target));
                    }
                    let z = ((value - mean) / sd) as f32;
                    if z.is_finite() { Ok(z) } else { Err(too_large(target)) }
                };
                rows.iter().map(standardised).collect()
            }
            Target::Count { .. } => {
                let Values::Number(values) = &column.values else {
                    return Err(text_target(column));
                };
                let count = |row: &u32| {
                    table.check_count(column, *row)?;
                    Ok(values[*row as usize] as f32)
                };
                rows.iter().map(count).collect()
            }
            Target::Classes { levels } => {
                let classes = classes(column, levels);
                let class = |row: &u32| {
                    let class = classes(*row as usize);
                    let class = class.ok_or_else(|| table.missing_cell(*row, target))?;
                    class.map_err(|value| {
                        Error::Data(format!(
                            "row {}: class `{value}` of `{target}` is not among the training rows; \
                             leave the row out, or train with rows of that class",
                            *row as usize + 1
                        ))
                    })
                };
                rows.iter().map(class).collect()
            }
        }
    }
}

impl Table {
    /// Refuses a cell that is no whole number from 0, or one too large for a count.
    fn check_count(&self, column: &Column, row: u32) -> Result<()> {
        let Values::Number(values) = &column.values else { return Err(text_target(column)) };
        let value = values[row as usize];
        if value.is_nan() {
            return Err(self.missing_cell(row, &column.name));
        }
        if (0.0..=LARGEST_COUNT).contains(&value) && value.fract() == 0.0 {
            return Ok(());
        }
        let problem = format!(
            "row {}: `{}` is {}, but a count is a whole number from 0 to {LARGEST_COUNT}; use \
             --task regression",
            row as usize + 1,
            column.name,
            number_text(value)
        );
        Err(Error::Data(problem))
    }
}

/// Looks up the class of a row: nothing where it is missing, the cell where it is none of `levels`.
fn classes<'a>(
    column: &'a Column,
    levels: &'a [String],
) -> impl Fn(usize) -> Option<std::result::Result<f32, String>> + 'a {
    let numbers = level_values(levels);
    move |row| match &column.values {
        Values::Text(values) => values[row].as_ref().map(|value| {
            let class = levels.iter().position(|level| level == value);
            class.map(|class| class as f32).ok_or_else(|| value.clone())
        }),
        Values::Number(values) => (!values[row].is_nan()).then(|| {
            let class = numbers.iter().position(|level| *level == Some(values[row]));
            class.map(|class| class as f32).ok_or_else(|| number_text(values[row]))
        }),
    }
}

/// The target column, which must exist and have values.
pub(super) fn target_column<'a>(table: &'a Table, target: &str) -> Result<&'a Column> {
    let column = table.column(target).ok_or_else(|| {
        let problem = format!("{} has {}", table.path.display(), table.no_column(target));
        Error::config("--target", problem)
    })?;
    if (0..column.values.len()).all(|row| column.values.is_missing(row)) {
        let problem =
            format!("the target column `{target}` has no values; choose another with --target");
        return Err(Error::table(&table.path, problem));
    }
    Ok(column)
}

fn learn_number(table: &Table, column: &Column, rows: &[u32]) -> Result<Target> {
    let Values::Number(values) = &column.values else {
        return Err(text_target(column));
    };
    if let Some(row) = rows.iter().find(|row| values[**row as usize].is_nan()) {
        return Err(table.missing_cell(*row, &column.name));
    }
    let (mean, sd) = moments(values, rows);
    if sd == 0.0 {
        return Err(Error::Data(format!(
            "the target `{}` is {} in every row, so there is nothing to learn; choose another \
             with --target",
            column.name,
            number_text(mean)
        )));
    }
    if !sd.is_finite() {
        return Err(too_large(&column.name));
    }
    Ok(Target::Number { mean, sd })
}

fn learn_classes(table: &Table, column: &Column, rows: &[u32]) -> Result<Target> {
    let name = &column.name;
    let (mut levels, numeric) = match &column.values {
        Values::Text(values) => {
            let mut seen: Vec<&String> =
                rows.iter().filter_map(|row| values[*row as usize].as_ref()).collect();
            seen.sort_unstable();
            seen.dedup();
            (seen.into_iter().cloned().collect::<Vec<_>>(), false)
        }
        Values::Number(values) => {
            let seen = rows.iter().map(|row| values[*row as usize]).filter(|v| !v.is_nan());
            // Adding 0 makes -0 and 0 one class.
            let mut seen: Vec<f64> = seen.map(|value| value + 0.0).collect();
            seen.sort_unstable_by(f64::total_cmp);
            seen.dedup();
            (seen.into_iter().map(number_text).collect(), true)
        }
    };
    if let Some(row) = rows.iter().find(|row| column.values.is_missing(**row as usize)) {
        return Err(table.missing_cell(*row, name));
    }
    if let [only] = levels.as_slice() {
        return Err(Error::Data(format!(
            "the target `{name}` is `{only}` in every row, so there is only one class; choose \
             another with --target"
        )));
    }
    if levels.len() > MOST_CLASSES {
        let advice = if numeric {
            "use --task regression"
        } else {
            "merge rare classes, or choose another target with --target"
        };
        return Err(Error::Data(format!(
            "the target `{name}` has {} classes, and at most {MOST_CLASSES} are supported; {advice}",
            levels.len()
        )));
    }
    sort_levels(&mut levels);
    Ok(Target::Classes { levels })
}

fn text_target(column: &Column) -> Error {
    let example = match &column.values {
        Values::Text(values) => values.iter().flatten().next().cloned(),
        Values::Number(_) => None,
    };
    Error::Data(format!(
        "the target `{}` is text ({:?}), and regression needs numbers; use --task classification, \
         or choose another with --target",
        column.name,
        example.unwrap_or_default()
    ))
}

fn too_large(name: &str) -> Error {
    Error::Data(format!(
        "the numbers of the target `{name}` are too large to be standardised; rescale them"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{table, text};
    use super::*;

    fn one(values: Values) -> (Table, Vec<u32>) {
        let rows = (0..values.len() as u32).collect();
        (table(vec![("y", values)]), rows)
    }

    fn refused(values: Values, task: Task) -> String {
        let (table, rows) = one(values);
        learn_target(&table, "y", task, &rows).unwrap_err().to_string()
    }

    fn count(n: usize) -> Values {
        Values::Number((0..n).map(|i| i as f64).collect())
    }

    #[test]
    fn regression_targets_have_mean_zero_and_deviation_one() {
        let (table, rows) = one(count(12));
        let (target, y) = learn_target(&table, "y", Task::Regression, &rows).unwrap();
        // Mean 5.5, variance (12^2 - 1) / 12.
        assert_eq!(target, Target::Number { mean: 5.5, sd: (143f64 / 12.0).sqrt() });
        assert!(y.iter().sum::<f32>().abs() < 1e-6);
        assert!((y.iter().map(|v| v * v).sum::<f32>() / 12.0 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn counts_stay_as_they_are_and_other_numbers_are_refused() {
        let (t, rows) = one(count(12));
        let target = Target::count(&t, "y", &rows).unwrap();
        assert_eq!(target, Target::Count { mean: 5.5 });
        assert_eq!(target.encode(&t, "y", &[0, 11]).unwrap(), [0.0, 11.0]);
        assert_eq!((target.task(), target.levels().len()), (Task::Regression, 0));
        for bad in [-1.0, 2.5, 1e9] {
            let (t, rows) = one(Values::Number(vec![1.0, bad]));
            let text = Target::count(&t, "y", &rows).unwrap_err().to_string();
            assert!(text.contains("row 2: `y` is") && text.contains("a count is"), "{text}");
            assert_eq!(target.encode(&t, "y", &[1]).unwrap_err().to_string(), text);
        }
        let (t, rows) = one(Values::Number(vec![0.0; 12]));
        let text = Target::count(&t, "y", &rows).unwrap_err().to_string();
        assert!(text.contains("is 0 in every row"), "{text}");
    }

    #[test]
    fn held_out_rows_are_encoded_as_the_training_rows_were() {
        let (table, _) = one(count(20));
        let train: Vec<u32> = (0..10).collect();
        let (target, _) = learn_target(&table, "y", Task::Regression, &train).unwrap();
        let Target::Number { mean, sd } = target else { panic!() };
        assert_eq!(mean, 4.5);
        assert_eq!(target.encode(&table, "y", &[19]).unwrap(), [((19.0 - mean) / sd) as f32]);
    }

    #[test]
    fn classes_are_numbered_in_order() {
        let numbers = [10.0, 9.0, -0.0, 0.0, 10.0, 9.0, 9.0, 9.0, 9.0, 9.0];
        let (t, rows) = one(Values::Number(numbers.to_vec()));
        let (target, y) = learn_target(&t, "y", Task::Classification, &rows).unwrap();
        assert_eq!(target, Target::Classes { levels: vec!["0".into(), "9".into(), "10".into()] });
        assert_eq!(y[..5], [2.0, 1.0, 0.0, 0.0, 2.0]);

        let (t, rows) = one(text(&["b", "a", "c", "a", "a", "a", "a", "a", "a", "a"]));
        let (target, y) = learn_target(&t, "y", Task::Classification, &rows).unwrap();
        assert_eq!(target, Target::Classes { levels: vec!["a".into(), "b".into(), "c".into()] });
        assert_eq!(y[..3], [1.0, 0.0, 2.0]);
        assert!(
            target
                .encode(&one(text(&["d"])).0, "y", &[0])
                .unwrap_err()
                .to_string()
                .contains("row 1: class `d` of `y` is not among the training rows")
        );
    }

    #[test]
    fn the_task_follows_from_the_column() {
        let task = |values| infer_task(&one(values).0, "y").unwrap();
        assert_eq!(task(text(&["a", "b"])), Task::Classification);
        assert_eq!(task(Values::Number(vec![0.0, 1.0, f64::NAN, 1.0])), Task::Classification);
        assert_eq!(task(Values::Number(vec![0.0, 1.0, 2.0])), Task::Regression);
    }

    #[test]
    fn a_target_that_is_not_there_is_refused_with_the_nearest_name() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "price"];
        let t = table(names.iter().map(|name| (*name, count(10))).collect());
        for refused in [
            infer_task(&t, "prize").unwrap_err(),
            learn_target(&t, "prize", Task::Regression, &[]).unwrap_err(),
        ] {
            assert_eq!(refused.exit_code(), 2);
            assert_eq!(
                refused.to_string(),
                "`--target`: t.csv has no column `prize`; did you mean `price`? The columns are \
                 `a`, `b`, `c`, `d`, `e`, `f`, `g`, `h` and 2 more"
            );
        }
        let far = infer_task(&t, "zzz").unwrap_err().to_string();
        assert!(far.contains("no column `zzz`; the columns are `a`"), "{far}");
    }

    #[test]
    fn constant_targets_and_single_classes_are_refused() {
        let constant = refused(Values::Number(vec![3.0; 10]), Task::Regression);
        assert!(constant.starts_with("the target `y` is 3 in every row"), "{constant}");
        for values in [Values::Number(vec![3.0; 10]), text(&["3"; 10])] {
            let single = refused(values, Task::Classification);
            assert!(single.contains("`3` in every row, so there is only one class"), "{single}");
        }
    }

    #[test]
    fn too_few_rows_are_refused_with_both_numbers() {
        let few = refused(count(9), Task::Regression);
        assert!(few.starts_with("9 rows can be used, but at least 10 are needed"), "{few}");
    }

    #[test]
    fn too_many_classes_are_refused() {
        let many = refused(count(101), Task::Classification);
        assert!(
            many.ends_with("has 101 classes, and at most 100 are supported; use --task regression"),
            "{many}"
        );
        let names: Vec<String> = (0..101).map(|i| format!("n{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(refused(text(&names), Task::Classification).contains("merge rare classes"));
    }

    #[test]
    fn empty_targets_and_missing_cells_are_refused() {
        for task in [Task::Regression, Task::Classification] {
            let empty = refused(Values::Number(vec![f64::NAN; 10]), task);
            assert_eq!(
                empty,
                "t.csv: the target column `y` has no values; choose another with --target"
            );
            let mut values = vec![1.0; 10];
            values[3] = f64::NAN;
            values[4] = 2.0;
            let missing = refused(Values::Number(values), task);
            assert!(missing.contains("row 4, column `y`: the value is missing"), "{missing}");
        }
        let refused = infer_task(&one(text(&["", ""])).0, "y").unwrap_err().to_string();
        assert!(refused.contains("has no values"), "{refused}");
    }

    #[test]
    fn text_cannot_be_regressed_on() {
        let text = refused(text(&["low"; 10]), Task::Regression);
        assert!(text.starts_with("the target `y` is text (\"low\"), and regression"), "{text}");
    }

    #[test]
    fn numbers_that_cannot_be_standardised_are_refused() {
        let mut values = vec![1e200; 10];
        values[0] = -1e200;
        let large = refused(Values::Number(values), Task::Regression);
        assert!(large.contains("too large to be standardised; rescale them"), "{large}");
    }

    #[test]
    fn rows_past_the_end_are_refused() {
        let (t, _) = one(count(12));
        let rows: Vec<u32> = (5..15).collect();
        let refused = learn_target(&t, "y", Task::Regression, &rows).unwrap_err().to_string();
        assert_eq!(refused, "t.csv: has no row 15 in column `y`; choose rows up to 12");
    }
}
