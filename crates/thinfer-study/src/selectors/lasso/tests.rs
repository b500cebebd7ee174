//! The lasso against known results.

use super::*;
use crate::selectors::testing::{bundle, classes};

fn rows(data: &Dataset, columns: &[usize]) -> Vec<Vec<f64>> {
    (0..data.rows())
        .map(|r| columns.iter().map(|&c| f64::from(data.input(r)[c])).collect())
        .collect()
}

/// Columns of a Hadamard matrix are orthogonal, so each coefficient is a soft-thresholded mean.
#[test]
fn orthogonal_columns_are_soft_thresholded() {
    let sign = |row: usize, column: usize| {
        if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0f32 }
    };
    let inputs: Vec<f32> = (0..8).flat_map(|r| (1..4).map(move |c| sign(r, c))).collect();
    let y: Vec<f64> =
        (0..8).map(|r| 3.0 + 2.0 * f64::from(sign(r, 1)) - 0.5 * f64::from(sign(r, 2))).collect();
    let data = Dataset::new(3, 1, inputs, y.iter().map(|y| *y as f32).collect()).unwrap();
    let x = Columns::new(&data);
    let mut fit = Fit::new(&x, &y, Family::Gaussian, vec![1.0; 8]);
    assert!((fit.largest_penalty() - 2.0).abs() < 1e-6);
    for (lambda, want) in [(1.9, [0.1, 0.0, 0.0]), (0.7, [1.3, 0.0, 0.0]), (0.2, [1.8, -0.3, 0.0])]
    {
        fit.solve(lambda, 2.0);
        for (b, w) in fit.beta.iter().zip(want) {
            assert!((b - w).abs() < 1e-6, "{lambda}: {:?}", fit.beta);
        }
        assert!((fit.intercept - 3.0).abs() < 1e-6);
    }
}

/// At the optimum |∂loss/∂βⱼ| ≤ λ, with equality and the opposite sign where βⱼ ≠ 0.
#[test]
fn the_conditions_of_the_optimum_hold() {
    for family in [Family::Gaussian, Family::Bernoulli] {
        let data = match family {
            Family::Gaussian => bundle(1, 300, 20, |x, e| x[0] + x[1] - 2.0 * x[2] + e),
            Family::Bernoulli => classes(1, 300, 20, |x, e| x[0] - 2.0 * x[2] + e > 0.2),
        };
        let x = Columns::new(&data.train);
        let y: Vec<f64> = data.train.targets().iter().map(|y| f64::from(*y)).collect();
        let mut fit = Fit::new(&x, &y, family, vec![1.0; 300]);
        let mut last = fit.largest_penalty();
        for lambda in [0.3, 0.1, 0.02] {
            fit.solve(lambda, last);
            last = lambda;
            let model = LassoModel::of(&fit, &x);
            let residual: Vec<f64> = rows(&data.train, &model.columns())
                .iter()
                .zip(&y)
                .map(|(x, y)| {
                    let terms = model.coefficients.iter().zip(x).map(|(c, x)| c.1 * x);
                    let eta = model.intercept + terms.sum::<f64>();
                    y - if family == Family::Gaussian { eta } else { sigmoid(eta) }
                })
                .collect();
            assert!(residual.iter().sum::<f64>().abs() / 300.0 < 1e-3);
            for j in 0..20 {
                let gradient = x.dot(j, &residual) / 300.0;
                if fit.beta[j] == 0.0 {
                    assert!(gradient.abs() < lambda * 1.01, "{family:?} {lambda} {j}: {gradient}");
                } else {
                    let want = lambda.copysign(fit.beta[j]);
                    assert!((gradient - want).abs() < 0.01 * lambda, "{family:?} {lambda} {j}");
                }
            }
        }
        assert!(fit.beta[2] < 0.0 && fit.beta[0] > 0.0);
    }
}

#[test]
fn the_one_standard_error_rule_finds_the_columns_of_a_linear_target() {
    let stop = AtomicBool::new(false);
    let data = bundle(2, 400, 30, |x, e| 2.0 * x[0] - x[1] + x[4] + 0.5 * e);
    let found = Lasso::default().fit(&data, 1, &stop).unwrap();
    assert_eq!(found.columns, [0, 1, 4]);
    assert!(found.chosen["selected_minimum"] >= 3.0);
    assert!(found.chosen["penalty_minimum"] <= found.chosen["penalty"]);
    assert!(found.scores[0] > found.scores[7]);
    assert!(found.path.is_sorted_by(|a, b| a.at < b.at));
    assert_eq!(found.path.last().unwrap().selected, 0);
    let minimum = Lasso { rule: Rule::Minimum, ..Lasso::default() };
    let wider = minimum.fit(&data, 1, &stop).unwrap();
    assert_eq!(wider.columns.len() as f64, found.chosen["selected_minimum"]);

    let data = classes(3, 600, 20, |x, e| 3.0 * x[1] - 3.0 * x[2] + e > 0.0);
    let found = Lasso::default().fit(&data, 1, &stop).unwrap();
    assert_eq!(found.columns, [1, 2]);
    let Predictive::Classes { members, .. } = found.predictor.predict(&data.test).unwrap() else {
        panic!("classes")
    };
    let right = members[0]
        .chunks_exact(2)
        .zip(data.test.targets())
        .filter(|(p, y)| (p[1] > 0.5) == (**y > 0.5))
        .count();
    assert!(right as f64 > 0.85 * data.test.rows() as f64, "{right}");
}

#[test]
fn noise_selects_nothing_and_a_constant_column_never_comes_in() {
    let data = bundle(4, 200, 10, |_, e| e);
    let found = Lasso::default().fit(&data, 1, &AtomicBool::new(false)).unwrap();
    assert!(found.columns.is_empty(), "{:?}", found.columns);
    let mut inputs = data.train.inputs().to_vec();
    inputs.chunks_exact_mut(10).for_each(|row| row[3] = 7.0);
    let mut data = data;
    data.train = Dataset::new(10, 1, inputs, data.train.targets().to_vec()).unwrap();
    let lasso = Lasso { rule: Rule::Minimum, ..Lasso::default() };
    let found = lasso.fit(&data, 1, &AtomicBool::new(false)).unwrap();
    assert_eq!(found.scores[3], 0.0);
    assert!(found.path.iter().all(|p| p.loss.unwrap().is_finite()));
}

#[test]
fn what_it_cannot_do_is_refused() {
    let stop = AtomicBool::new(false);
    let mut three = classes(5, 50, 4, |x, _| x[0] > 0.0);
    three.classes = 3;
    let error = Lasso::default().fit(&three, 1, &stop).unwrap_err().to_string();
    assert!(error.contains("tells 2 classes apart"), "{error}");
    let data = bundle(5, 50, 4, |x, _| x[0]);
    let error = Lasso { folds: 1, ..Lasso::default() }.fit(&data, 1, &stop).unwrap_err();
    assert!(error.to_string().contains("from 2"), "{error}");
    let error = Lasso::default().fit(&data, 1, &AtomicBool::new(true)).unwrap_err();
    assert_eq!(error.exit_code(), 130);
}
