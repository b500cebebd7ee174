//! Screening on designs whose variables are known.

use std::sync::atomic::AtomicBool;

use thinfer_core::train::Silent;
use thinfer_data::table::{Column, Rules, Table, Values};
use thinfer_run::config::TaskChoice;

use super::*;

#[test]
fn a_variable_is_chosen_above_one_half_and_above_chance() {
    let screen = Screen {
        form: Form::Linear,
        frequency: vec![0.45, 0.5, 0.55, 1.0, 1.0],
        z: vec![9.0, 9.0, 9.0, 2.9, 3.1],
        critical: 3.0,
        found_anything: true,
    };
    assert_eq!(screen.chosen(), [2, 4]);
    assert!(Screen { found_anything: false, ..screen }.chosen().is_empty());
}

#[test]
fn chance_is_that_of_as_many_variables_as_there_are() {
    let fold = || FoldResult { frequency: vec![1.0; 200], evidence: Evidence::new(200) };
    let (_, screen) = Screen::of(Form::Linear, &[fold(), fold()], 200);
    assert_eq!(screen.critical, critical_value(200, 0));
    assert!(screen.critical > critical_value(1, 0));
}

/// On the fold the target has the other sign: what a chain learned is worth less than nothing
/// there, while on the rows that it learned from it is worth a lot.
#[test]
fn evidence_is_that_of_rows_that_the_chain_has_not_seen() {
    let rows = 60;
    let key = Key::new(3, 0, Stream::Inputs);
    let column = |name: &str, values| Column { name: name.into(), values: Values::Number(values) };
    let x: Vec<f64> = (0..rows).map(|row| f64::from(key.normal(0, row))).collect();
    let y = x.iter().map(|x| 2.0 * x).collect();
    let table = Table { path: "t.csv".into(), columns: vec![column("x", x), column("y", y)] };
    let data =
        Bundle::from_table(&table, "y", TaskChoice::Regression, 0.2, &Rules::plain(), 1).unwrap();
    let (train, fold): (Vec<u32>, Vec<u32>) = (0..data.train.rows() as u32).partition(|r| *r >= 12);
    let mut targets = data.train.targets().to_vec();
    fold.iter().for_each(|row| targets[*row as usize] *= -1.0);
    let known = Dataset::new(1, 1, data.train.inputs().to_vec(), targets).unwrap();
    let (stop, options) = (AtomicBool::new(false), Options::default());
    let setting = Setting::in_memory(&stop, &Silent, 1);
    let scale = Scale { noise: 0.1, curvature: 1.0 };
    let form = (Form::Linear, scale);
    let rows = (&train[..], &fold[..]);
    let found = screen_fold(&data, &known, form, 0, rows, &options, &setting).unwrap();
    assert_eq!(found.evidence.rows(), fold.len());
    assert!(found.evidence.model_z() < 0.0, "{}", found.evidence.model_z());
    // What does harm there is no use, though the network reads it.
    assert_eq!(found.frequency, [0.0]);
}
