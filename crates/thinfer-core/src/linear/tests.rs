//! Linear models against known results.

use thinfer_engine::noise::{Key, Stream};

use super::*;

/// Standard normal inputs, and targets that `target` makes of a row and a normal number.
fn simulate(
    seed: u64,
    rows: usize,
    columns: usize,
    target: impl Fn(&[f32], f32) -> f32,
) -> Dataset {
    let mut inputs = vec![0.0; rows * columns];
    Key::new(seed, 0, Stream::Inputs).normals(0, 0, &mut inputs);
    let noise = Key::new(seed, 0, Stream::Observation);
    let targets = inputs
        .chunks_exact(columns)
        .enumerate()
        .map(|(i, x)| target(x, noise.normal(0, i)))
        .collect();
    Dataset::new(columns, 1, inputs, targets).unwrap()
}

fn class(positive: bool) -> f32 {
    f32::from(u8::from(positive))
}

/// Three classes along two directions.
fn three_classes(x: &[f32], e: f32) -> f32 {
    if x[0] + e > 0.5 { 2.0 } else { class(x[1] - e > 0.0) }
}

/// The largest entry of the gradient of the logistic objective, from its definition.
fn worst_gradient(model: &LinearModel, train: &Dataset, classes: usize) -> f64 {
    let probabilities = model.predict(train);
    let rows = train.rows();
    let outputs = model.bias().len();
    let mut worst = 0.0f64;
    for k in 0..outputs {
        let class = if outputs == 1 { 1 } else { k };
        let residual = |i: usize| {
            let hot = f64::from(u8::from(train.target(i)[0] as usize == class));
            (probabilities[i * classes + class] - hot) / rows as f64
        };
        for j in 0..train.columns() {
            let loss: f64 = (0..rows).map(|i| residual(i) * train.input(i)[j] as f64).sum();
            let weight = model.weights()[k * train.columns() + j];
            worst = worst.max((loss + model.penalty() * weight).abs());
        }
        worst = worst.max((0..rows).map(residual).sum::<f64>().abs());
    }
    worst
}

/// One input: w = Σ(x − x̄)(y − ȳ) / (Σ(x − x̄)² + nλ), b = ȳ − w x̄. Here x̄ = 3, ȳ = 5, the
/// sums are 12 and 8.
#[test]
fn one_input_has_the_closed_form() {
    let train = Dataset::new(1, 1, vec![1.0, 3.0, 3.0, 5.0], vec![2.0, 4.0, 6.0, 8.0]).unwrap();
    let model = LinearModel::ridge(&train, &train).unwrap();
    let want = 12.0 / (8.0 + 4.0 * model.penalty());
    assert!((model.weights()[0] - want).abs() < 1e-12);
    assert!((model.bias()[0] - (5.0 - 3.0 * want)).abs() < 1e-12);
    // The mean eigenvalue is 8/4, and on the training rows less penalty is better.
    assert!((model.penalty() / 2e-5 - 1.0).abs() < 1e-12);
    assert_eq!(model.classes(), None);
}

#[test]
fn known_coefficients_are_recovered() {
    let truth = [2.0, -1.0, 0.0, 0.5, 0.0];
    let target =
        |x: &[f32], e: f32| 3.0 + x.iter().zip(truth).map(|(x, b)| x * b).sum::<f32>() + 0.1 * e;
    let (train, valid) = (simulate(1, 600, 5, target), simulate(2, 200, 5, target));
    let model = LinearModel::ridge(&train, &valid).unwrap();
    // Five standard errors of 0.1/√600.
    for (got, want) in model.weights().iter().zip(truth) {
        assert!((got - want as f64).abs() < 0.0205, "{got} is not {want}");
    }
    assert!((model.bias()[0] - 3.0).abs() < 0.0205);
}

#[test]
fn primal_and_dual_agree() {
    for (rows, columns) in [(40, 12), (12, 40), (70, 70)] {
        let target = |x: &[f32], e: f32| 1.0 + x[0] - 2.0 * x[3] + 0.5 * e;
        let (train, valid) = (simulate(3, rows, columns, target), simulate(4, 50, columns, target));
        let primal = LinearModel::ridge_in(Form::Primal, &train, &valid).unwrap();
        let dual = LinearModel::ridge_in(Form::Dual, &train, &valid).unwrap();
        assert!((primal.penalty() / dual.penalty() - 1.0).abs() < 1e-12);
        let numbers = |model: &LinearModel| [model.weights(), model.bias()].concat();
        for (a, b) in numbers(&primal).iter().zip(&numbers(&dual)) {
            assert!((a - b).abs() < 1e-9, "{rows}x{columns}: {a} and {b}");
        }
    }
}

#[test]
fn constant_and_duplicate_columns_do_no_harm() {
    let base = simulate(5, 60, 2, |x, e| class(x[0] + 0.5 * e > 0.0));
    let inputs = (0..60).flat_map(|i| [base.input(i)[0], 0.0, base.input(i)[0], 7.5]).collect();
    let data = Dataset::new(4, 1, inputs, base.targets().to_vec()).unwrap();
    let ridge = LinearModel::ridge(&data, &data).unwrap();
    let logistic = LinearModel::logistic(&data, &data, 2).unwrap();
    for model in [ridge, logistic] {
        let w = model.weights();
        assert!(w.iter().chain(model.bias()).all(|w| w.is_finite()));
        assert!(w[0] > 0.0 && (w[0] - w[2]).abs() < 1e-6 * w[0], "{w:?}");
        assert_eq!(w[1], 0.0);
        assert!(w[3].abs() < 1e-9, "{w:?}");
    }
}

#[test]
fn inputs_that_never_change_leave_the_mean() {
    let data = Dataset::new(2, 1, vec![0.0; 6], vec![1.0, 2.0, 6.0]).unwrap();
    let model = LinearModel::ridge(&data, &data).unwrap();
    assert_eq!(model.weights(), [0.0, 0.0]);
    assert_eq!(model.predict(&data), [3.0, 3.0, 3.0]);
}

#[test]
fn noise_gets_a_large_penalty() {
    let (train, valid) = (simulate(6, 50, 30, |_, e| e), simulate(7, 500, 30, |_, e| e));
    assert!(LinearModel::ridge(&train, &valid).unwrap().penalty() > 1.0);
    let coin = |_: &[f32], e: f32| class(e > 0.0);
    let (train, valid) = (simulate(6, 50, 30, coin), simulate(7, 500, 30, coin));
    assert!(LinearModel::logistic(&train, &valid, 2).unwrap().penalty() > 0.1);
}

/// x = ±1 equally often, and a share q of the rows with y = [x > 0]: by symmetry b = 0, and w
/// solves σ(w) − q + λ w = 0.
#[test]
fn two_points_have_the_known_logit() {
    let (inputs, targets): (Vec<f32>, Vec<f32>) = (0..40)
        .map(|i| {
            let x = if i % 2 == 0 { 1.0 } else { -1.0 };
            (x, class((x > 0.0) == (i / 2 % 10 < 8)))
        })
        .unzip();
    let data = Dataset::new(1, 1, inputs, targets).unwrap();
    let model = LinearModel::logistic(&data, &data, 2).unwrap();
    let w = model.weights()[0];
    let left = 1.0 / (1.0 + (-w).exp()) - 0.8 + model.penalty() * w;
    assert!(left.abs() < 1e-6 && model.bias()[0].abs() < 1e-6, "{model:?}");
    assert!((w - 4.0f64.ln()).abs() < 1e-3, "the penalty is small, so σ(w) is nearly 0.8");
    assert_eq!(model.classes(), Some(2));
}

/// gᵀHg < 1e-12 bounds the gradient by about 1e-6 times the root of the curvature.
#[test]
fn the_gradient_vanishes_at_the_optimum() {
    for (rows, columns) in [(300, 6), (30, 50)] {
        let binary = |x: &[f32], e: f32| class(x[0] - x[1] + e > 0.3);
        let (train, valid) =
            (simulate(8, rows, columns, binary), simulate(9, 100, columns, binary));
        let model = LinearModel::logistic(&train, &valid, 2).unwrap();
        assert!(worst_gradient(&model, &train, 2) < 2e-6);
        let (train, valid) =
            (simulate(8, rows, columns, three_classes), simulate(9, 100, columns, three_classes));
        let model = LinearModel::logistic(&train, &valid, 3).unwrap();
        assert!(worst_gradient(&model, &train, 3) < 2e-6);
        assert_eq!(model.weights().len(), 3 * columns);
        for p in model.predict(&valid).chunks_exact(3) {
            assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }
}

#[test]
fn separable_data_stays_finite() {
    for (rows, columns) in [(8, 1), (8, 20), (200, 3)] {
        for classes in [2, 3] {
            let target = |x: &[f32], _: f32| {
                if classes == 2 { class(x[0] > 0.0) } else { 1.0 + x[0].clamp(-1.0, 1.0).round() }
            };
            let train = simulate(10, rows, columns, target);
            // Validation on the same rows asks for the smallest penalty.
            let model = LinearModel::logistic(&train, &train, classes).unwrap();
            assert!(model.weights().iter().chain(model.bias()).all(|w| w.is_finite()));
            assert!(worst_gradient(&model, &train, classes) < 1e-4);
            let right = model
                .predict(&train)
                .chunks_exact(classes)
                .zip(train.targets())
                .filter(|(p, y)| p[**y as usize] > 0.5)
                .count();
            assert!(right * 10 >= rows * 9, "{right} of {rows}, {columns}, {classes}");
        }
    }
}

#[test]
fn a_class_without_rows_stays_finite() {
    let train = simulate(11, 20, 2, |_, _| 1.0);
    for classes in [2, 3] {
        let model = LinearModel::logistic(&train, &train, classes).unwrap();
        let p = model.predict(&train);
        assert!(p.iter().all(|p| p.is_finite()));
        assert!(p.chunks_exact(classes).all(|p| p[1] > 0.99));
    }
}

#[test]
fn one_row_is_enough() {
    let data = Dataset::new(3, 1, vec![1.0, 2.0, 3.0], vec![4.0]).unwrap();
    assert_eq!(LinearModel::ridge(&data, &data).unwrap().predict(&data), [4.0]);
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let fit = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let target = |x: &[f32], e: f32| x[0] + x[5] + e;
            let (train, valid) = (simulate(12, 400, 90, target), simulate(13, 77, 90, target));
            let ridge = LinearModel::ridge(&train, &valid).unwrap();
            let (train, valid) =
                (simulate(12, 400, 90, three_classes), simulate(13, 77, 90, three_classes));
            let logistic = LinearModel::logistic(&train, &valid, 3).unwrap();
            (ridge.predict(&valid), ridge, logistic.predict(&valid), logistic)
        })
    };
    let one = fit(1);
    assert!(one == fit(2) && one == fit(5));
}

#[test]
fn a_row_is_predicted_alike_alone_and_in_company() {
    let target = |x: &[f32], e: f32| x[0] + e;
    let data = simulate(14, 30, 21, target);
    let model = LinearModel::ridge(&data, &data).unwrap();
    let all = model.predict(&data);
    for row in 0..30 {
        assert_eq!(model.predict(&data.take_rows(&[row]))[0], all[row as usize]);
    }
}

#[test]
fn data_that_cannot_be_used_is_refused() {
    let data = |columns, inputs: Vec<f32>, targets: Vec<f32>| {
        Dataset::new(columns, 1, inputs, targets).unwrap()
    };
    let good = data(1, vec![0.0, 1.0], vec![0.0, 1.0]);
    let cases = [
        (data(2, vec![0.0, 1.0], vec![0.0]), "not 2 and 1"),
        (data(1, vec![], vec![]), "no training rows"),
        (data(1, vec![0.0], vec![]), "have 0; choose one"),
        (data(1, vec![0.0, f32::NAN], vec![0.0, 1.0]), "input 0 of training row 1"),
        (data(1, vec![0.0], vec![f32::INFINITY]), "the target of training row 0"),
        (good.take_columns(&[]), "not 0 and 1"),
    ];
    for (train, want) in cases {
        let error = LinearModel::ridge(&train, &good).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    for (target, classes, want) in
        [(2.0, 2, "is 2, not"), (-1.0, 2, "is -1"), (0.5, 3, "is 0.5"), (0.0, 1, "at least 2")]
    {
        let train = data(1, vec![0.0], vec![target]);
        let error = LinearModel::logistic(&train, &good, classes).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}
