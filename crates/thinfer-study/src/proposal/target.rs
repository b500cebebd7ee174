//! The column to predict: which one it could be, and what kind of number it is.

use thinfer_data::table::{Table, Values};
use thinfer_data::{Error, TaskChoice};

/// What a target is usually called.
const USUAL: [&str; 8] =
    ["target", "y", "label", "class", "outcome", "response", "price", "diagnosis"];
/// Columns that are named, at most.
const SHOWN: usize = 12;
/// Whole numbers that may be the names of classes, at most.
const MOST_CODES: usize = 10;
/// Codes of classes are about as frequent as each other: the rarest of so many of the most frequent.
const RAREST: usize = 4;
/// Counts with a larger mean are told from numbers by nothing.
const LARGEST_MEAN: f64 = 100.0;

/// The column that is most likely meant: one of a usual name, or the last.
pub fn usual_target(table: &Table) -> Option<&str> {
    let names = || table.columns.iter().map(|column| column.name.as_str());
    let usual = USUAL.iter().find_map(|word| names().find(|n| n.eq_ignore_ascii_case(word)));
    usual.or(names().next_back())
}

/// How to say that a target is missing: the columns, and the one that is most likely meant.
pub fn no_target(table: &Table) -> Error {
    let names = table.columns.iter().map(|column| format!("`{}`", column.name));
    let shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    let more = match table.columns.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let usual = usual_target(table).unwrap_or("COLUMN");
    Error::config(
        "--target",
        format!(
            "is missing, so it is not known which column of {} to predict. The columns are {shown}{more}; give one, such as `--target {usual}`",
            table.path.display()
        ),
    )
}

/// What kind of target a column of numbers is, and why; nothing where it has no numbers, or only
/// two values, which are classes.
pub(super) fn kind_of_number(values: &Values) -> Option<(TaskChoice, String)> {
    let Values::Number(values) = values else { return None };
    let values: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    let number = |why: &str| Some((TaskChoice::Regression, why.to_owned()));
    let mut codes: Vec<(f64, usize)> = Vec::new();
    for value in &values {
        if let Some((_, count)) = codes.iter_mut().find(|(code, _)| code == value) {
            *count += 1;
        } else if codes.len() <= MOST_CODES {
            codes.push((*value, 1));
        }
    }
    if codes.len() <= 2 {
        return None;
    }
    if values.iter().any(|value| value.fract() != 0.0) {
        return number("a number");
    }
    let (least, most) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(*value), b.max(*value)));
    let consecutive = codes.len() <= MOST_CODES && most - least + 1.0 == codes.len() as f64;
    let frequent = codes.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let rare = codes.iter().map(|(_, count)| *count).min().unwrap_or(0);
    if consecutive && (0.0..=1.0).contains(&least) && rare * RAREST >= frequent {
        let why = format!(
            "the {} numbers {least} to {most}, about equally many of each, taken as classes",
            codes.len()
        );
        return Some((TaskChoice::Classification, why));
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    // A count begins at 0, does not stay far from it, and varies at least about as a Poisson's.
    if least == 0.0 && mean <= LARGEST_MEAN && variance >= 0.7 * mean {
        return Some((TaskChoice::Counts, format!("a count, 0 to {most} with mean {mean:.1}")));
    }
    number("a whole number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_data::table::Column;

    fn kind(values: &[f64]) -> Option<TaskChoice> {
        kind_of_number(&Values::Number(values.to_vec())).map(|(kind, _)| kind)
    }

    #[test]
    fn codes_counts_and_numbers_are_told_apart() {
        let repeated = |values: &[f64], times: usize| values.repeat(times);
        assert_eq!(kind(&repeated(&[0.0, 1.0, 2.0], 20)), Some(TaskChoice::Classification));
        assert_eq!(kind(&repeated(&[1.0, 2.0, 3.0], 20)), Some(TaskChoice::Classification));
        // Ratings of wine are no codes: they begin anywhere, and the extremes are rare.
        let ratings = [repeated(&[5.0, 6.0, 7.0], 30), vec![3.0, 4.0, 8.0]].concat();
        assert_eq!(kind(&ratings), Some(TaskChoice::Regression));
        let visits = [repeated(&[0.0], 40), repeated(&[1.0, 2.0], 12), vec![3.0, 5.0, 9.0]];
        assert_eq!(kind(&visits.concat()), Some(TaskChoice::Counts));
        assert_eq!(kind(&[5.5, 6.0, 7.0]), Some(TaskChoice::Regression));
        let prices = [120_000.0, 250_000.0, 199_000.0, 0.0];
        assert_eq!(kind(&prices), Some(TaskChoice::Regression));
        assert_eq!(kind(&[0.0, 1.0, 1.0]), None, "two values are classes in any case");
        assert_eq!(kind_of_number(&Values::Text(vec![Some("a".into())])), None);
    }

    #[test]
    fn a_missing_target_is_proposed() {
        let table = |names: &[&str]| Table {
            path: "t.csv".into(),
            columns: names
                .iter()
                .map(|name| Column { name: (*name).into(), values: Values::Number(vec![1.0]) })
                .collect(),
        };
        assert_eq!(usual_target(&table(&["a", "Price", "z"])), Some("Price"));
        assert_eq!(usual_target(&table(&["a", "b"])), Some("b"));
        let told = no_target(&table(&["a", "b"])).to_string();
        assert!(
            told.contains("The columns are `a`, `b`; give one, such as `--target b`"),
            "{told}"
        );
        let many: Vec<String> = (0..20).map(|at| format!("c{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(no_target(&table(&many)).to_string().contains("`c11` and 8 more"));
    }
}
