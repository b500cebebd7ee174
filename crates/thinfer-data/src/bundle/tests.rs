//! Tables and simulated designs, split and standardised.

use super::super::table::{Column, Missing, Values};
use super::*;
use crate::settings::DataKind;

fn split(rows: u32, holdout: f64) -> Result<Bundle> {
    let column = |name: &str, of: fn(f64) -> f64| Column {
        name: name.into(),
        values: Values::Number((0..rows).map(|row| of(f64::from(row))).collect()),
    };
    let columns = vec![column("x", |r| r), column("y", |r| (0.7 * r).sin())];
    let table = Table { path: "t.csv".into(), columns };
    Bundle::from_table(&table, "y", TaskChoice::Auto, holdout, &Rules::plain(), 1)
}

#[test]
fn the_share_that_is_held_out_is_the_one_asked_for_or_told() {
    for (holdout, held_out) in [(0.2, 20), (1.0 / 3.0, 33), (0.02, 2)] {
        let data = split(100, holdout).unwrap();
        let parts = [&data.test, &data.validation, &data.train].map(Dataset::rows);
        assert_eq!(parts, [held_out, held_out, 100 - 2 * held_out], "{holdout}");
        assert_eq!(data.notes, [""; 0], "{holdout}");
    }
    let few = split(100, 0.001).unwrap();
    assert_eq!((few.test.rows(), few.notes.len()), (2, 1));
    assert!(few.notes[0].contains("0.001 of 100 rows would be 0, so 2"), "{}", few.notes[0]);
    for holdout in [0.0, 0.34, 0.5, f64::NAN] {
        let error = split(100, holdout).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with("`data.holdout`: is "), "{error}");
    }
}
#[test]
fn a_few_whole_numbers_may_be_classes_and_that_is_told() {
    let notes = |of: fn(u32) -> f64, task| {
        let column = |name: &str, values| Column { name: name.into(), values };
        let x = Values::Number((0..60).map(f64::from).collect());
        let y = Values::Number((0..60).map(of).collect());
        let columns = vec![column("x", x), column("y", y)];
        let table = Table { path: "t.csv".into(), columns };
        Bundle::from_table(&table, "y", task, 0.2, &Rules::plain(), 1).unwrap().notes
    };
    let told = notes(|row| f64::from(row % 3), TaskChoice::Auto);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("has 3 values") && told[0].contains("--task class"), "{told:?}");
    assert_eq!(keys_for_options(&told[0]).matches("data.task = classification").count(), 1);
    for (of, task) in [
        ((|row| f64::from(row % 3)) as fn(u32) -> f64, TaskChoice::Regression),
        (|row| f64::from(row % 3), TaskChoice::Classification),
        (|row| f64::from(row % 2), TaskChoice::Auto),
        (|row| f64::from(row % 3) / 2.0, TaskChoice::Auto),
        (|row| f64::from(row % 11), TaskChoice::Auto),
    ] {
        assert_eq!(notes(of, task), [""; 0]);
    }
}

#[test]
fn a_configuration_is_told_its_keys_and_not_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let rows: Vec<String> =
        (0..20).map(|row| format!("{row},{}\n", 0.5 * f64::from(row))).collect();
    let rows = rows.concat();
    std::fs::write(&path, format!("x,y\n{rows}")).unwrap();
    let refused = |target: &str, task| {
        let (path, target) = (path.to_str().unwrap().to_owned(), target.to_owned());
        let (path, target) = (Some(path), Some(target));
        let data =
            DataConfig { kind: DataKind::Table, path, target, task, ..DataConfig::default() };
        Bundle::load(&data, 1).unwrap_err().to_string()
    };
    let text = refused("z", TaskChoice::Auto);
    assert!(text.starts_with("`data.target`: ") && text.contains("no column `z`"), "{text}");
    std::fs::write(&path, format!("x,y\n{}", rows.replace(',', ",a"))).unwrap();
    let text = refused("y", TaskChoice::Regression);
    assert!(text.contains("data.task = classification") && !text.contains("--"), "{text}");
}

/// Were a held-out row among those that are learned from, the training rows would not have mean 0
/// and variance 1.
#[test]
fn inputs_and_target_are_standardised_by_the_training_rows_alone() {
    let data = split(100, 1.0 / 3.0).unwrap();
    let mut wrong = Vec::new();
    for (name, values) in [("x", data.train.inputs()), ("y", data.train.targets())] {
        let mean_of = |power: i32| {
            values.iter().map(|v| f64::from(*v).powi(power)).sum::<f64>() / values.len() as f64
        };
        let (mean, square) = (mean_of(1), mean_of(2));
        if mean.abs() > 1e-6 || (square - 1.0).abs() > 1e-6 {
            wrong.push(format!("{name}: mean {mean:.3}, mean square {square:.3}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Numbers, a category and the target, in which each third cell of the inputs is missing.
fn with_gaps() -> Table {
    let keeps = |row: usize, column: usize| !(row * 7 + column * 5).is_multiple_of(3);
    let number = |column: usize| {
        let value = |row: usize| ((row * (column + 3)) % 17) as f64;
        let cell = |row| if keeps(row, column) { value(row) } else { f64::NAN };
        Values::Number((0..100).map(cell).collect())
    };
    let level = |row: usize| ["red", "green", "blue"][row % 3].to_owned();
    let text = (0..100).map(|row| keeps(row, 2).then(|| level(row))).collect();
    let target = Values::Number((0..100).map(|row| f64::from(row * 13 % 29)).collect());
    let columns = [("a", number(0)), ("b", number(1)), ("c", Values::Text(text)), ("y", target)];
    let column = |(name, values): (&str, Values)| Column { name: name.into(), values };
    Table { path: "t.csv".into(), columns: columns.into_iter().map(column).collect() }
}

fn by(table: &Table, missing: Missing) -> Result<Bundle> {
    let rules = Rules { missing, ..Rules::default() };
    Bundle::from_table(table, "y", TaskChoice::Auto, 0.2, &rules, 1)
}

#[test]
fn gaps_are_filled_in_and_no_row_is_lost() {
    let table = with_gaps();
    let data = by(&table, Missing::Impute).unwrap();
    let rows = [&data.train, &data.validation, &data.test].map(Dataset::rows);
    assert_eq!(rows, [60, 20, 20]);
    assert_eq!((data.names.len(), &data.groups[..]), (3, &[0, 0, 1, 1, 2, 2, 2][..]));
    assert!(data.train.inputs().iter().chain(data.test.inputs()).all(|v| v.is_finite()));
    let told = &data.notes[0];
    assert!(told.starts_with("100 missing cells in 100 of 100 rows are filled in"), "{told}");
    assert!(keys_for_options(told).contains("`data.missing = drop-rows` leaves"), "{told}");
    let dropped = by(&table, Missing::DropRows).unwrap_err().to_string();
    assert!(dropped.contains("has 0 usable rows of 100"), "{dropped}");
    let refused = by(&table, Missing::Refuse).unwrap_err().to_string();
    assert!(refused.contains("has 100 missing cells in 100 of 100 rows"), "{refused}");
}

/// What stands in for a gap comes from the rows that are learned from: cells of other rows change
/// nothing of it.
#[test]
fn held_out_rows_do_not_say_what_stands_in_for_a_gap() {
    let table = with_gaps();
    let split = Split::Fold { fold: 1, of: 5 };
    let load = |table: &Table| {
        let rules = Rules::default();
        Bundle::from_split(table, "y", TaskChoice::Auto, &split, &rules, 1).unwrap()
    };
    let before = load(&table);
    let usable: Vec<u32> = (0..100).collect();
    let held_out = split.divide(&table.path, &usable, 1).unwrap().test;
    let mut other = table;
    for column in &mut other.columns[..3] {
        for row in held_out.iter().map(|row| *row as usize) {
            match &mut column.values {
                Values::Number(values) => values[row] = 1e6,
                Values::Text(values) => values[row] = Some("pink".into()),
            }
        }
    }
    let after = load(&other);
    assert_eq!(after.schema.encoding, before.schema.encoding);
    assert_eq!(after.train.inputs(), before.train.inputs());
    assert_ne!(after.test.inputs(), before.test.inputs());
}

#[test]
fn a_row_without_a_target_is_left_out_and_told() {
    let mut table = with_gaps();
    let Values::Number(y) = &mut table.columns[3].values else { panic!() };
    y[4] = f64::NAN;
    y[70] = f64::NAN;
    let data = by(&table, Missing::Impute).unwrap();
    assert_eq!(data.train.rows() + data.validation.rows() + data.test.rows(), 98);
    assert_eq!(
        data.notes[0],
        "2 of 100 rows are not used, without a value of the target `y`: row 5, 71"
    );
}

#[test]
fn columns_can_be_left_out_and_must_be_there() {
    let table = with_gaps();
    let load = |keep: &[&str], leave_out: &[&str]| {
        let [keep, leave_out] =
            [keep, leave_out].map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let rules = Rules { keep, leave_out, ..Rules::default() };
        Bundle::from_table(&table, "y", TaskChoice::Auto, 0.2, &rules, 1)
    };
    assert_eq!(load(&[], &["b"]).unwrap().names, ["a", "c"]);
    for (keep, leave_out, text) in [
        (&["d"][..], &[][..], "`--keep`: t.csv has no column `d`"),
        (&[], &["cc"], "`--leave-out`: t.csv has no column `cc`"),
        (&[], &["y"], "`--leave-out`: names the target"),
    ] {
        let refused = load(keep, leave_out).unwrap_err().to_string();
        assert!(refused.starts_with(text), "{refused}");
    }
}

/// What `select` keeps in a run: the same rows, fewer columns, more to learn from.
#[test]
fn a_configuration_chooses_columns_and_joins_the_validation_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut text = String::from("a,code,b,y\n");
    for row in 0..60 {
        text.push_str(&format!("{},{},{},{}\n", row * 7 % 31, row % 3, row * 5 % 17, row * row));
    }
    std::fs::write(&path, text).unwrap();
    let config = DataConfig {
        kind: DataKind::Table,
        path: Some(path.display().to_string()),
        target: Some("y".into()),
        categorical: vec!["code".into()],
        ..DataConfig::default()
    };
    let whole = Bundle::load(&config, 1).unwrap();
    assert_eq!((whole.names.len(), whole.groups.len(), whole.train.rows()), (3, 5, 36));
    let only = |names: &[&str]| {
        let only = names.iter().map(|name| (*name).to_owned()).collect();
        Bundle::load(&DataConfig { only, join_validation: true, ..config.clone() }, 1)
    };
    let few = only(&["b", "code"]).unwrap();
    assert_eq!(few.names, ["code", "b"]);
    assert_eq!((few.groups.clone(), few.schema.encoding.names()), (vec![0, 0, 0, 1], few.names));
    assert_eq!([few.train.rows(), few.train_rows, few.validation.rows()], [48, 48, 0]);
    let test = whole.test.take_columns(&[1, 2, 3, 4]);
    assert_eq!((few.test.inputs(), few.test.targets()), (test.inputs(), test.targets()));
    let of = whole.validation.take_columns(&[1, 2, 3, 4]);
    assert_eq!(few.train.input(36), of.input(0));
    assert_ne!(few.fingerprint, whole.fingerprint);
    for (names, words) in [
        (&["cod"][..], "no column `cod`; did you mean `code`?"),
        (&["y"], "names `y`, which is the target"),
    ] {
        let error = only(names).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with("`data.only`: "), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}
