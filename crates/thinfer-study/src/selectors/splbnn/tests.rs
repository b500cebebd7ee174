//! The spike-and-slab network on small designs.

use super::*;
use crate::selectors::network::judged;
use crate::selectors::testing::bundle;

fn quick() -> Splbnn {
    Splbnn {
        hidden: vec![4],
        rate: 0.05,
        batch: 100,
        inclusion: 1e-4,
        spike_variance: 1e-3,
        slab_variance: 0.3,
        steps: 3000,
        fine_tune_steps: 1000,
        rounds: 2,
        starts: 2,
        ..Splbnn::default()
    }
}

/// The thresholds that methods.md 10.2 states for the three examples.
#[test]
fn thresholds_are_the_published_ones() {
    for (spike, slab, want) in [(5e-4, 1e-2, 0.1170), (1e-4, 1e-2, 0.0528), (1e-4, 1.0, 0.0568)] {
        let s = Splbnn { spike_variance: spike, slab_variance: slab, ..Splbnn::default() };
        assert!((s.threshold().unwrap() - want).abs() < 1e-4, "{:?}", s.threshold());
    }
}

#[test]
fn the_slope_is_the_derivative_of_the_energy() {
    let prior = Splbnn::default().mixture().unwrap();
    for w in [-0.5, -0.11, -0.01, 0.02, 0.117, 0.13, 1.5] {
        let h = 1e-6;
        let difference = (prior.energy(w + h) - prior.energy(w - h)) / (2.0 * h);
        assert!((difference - prior.slope(w)).abs() < 1e-3 * (1.0 + difference.abs()), "{w}");
    }
    let (mut w, g, n, rate) = ([0.05f32, -0.3], [0.1f32, 0.2], 100.0, 0.01);
    let want: Vec<f64> = w
        .iter()
        .zip(&g)
        .map(|(w, g)| f64::from(*w) - rate * (f64::from(*g) + prior.slope(f64::from(*w)) / n))
        .collect();
    step(&prior, n, rate, &mut w, &g, &[1.0, 1.0]);
    for (got, want) in w.iter().zip(want) {
        assert!((f64::from(*got) - want).abs() < 1e-6);
    }
    step(&prior, n, rate, &mut w, &g, &[0.0, 1.0]);
    assert!(w[0] == 0.0 && w[1] != 0.0);
}

/// One linear weight under a nearly Gaussian prior: the evidence is that of a conjugate
/// regression, ln N(y; 0, I + s xxᵀ), up to the constants that are left out.
#[test]
fn the_evidence_of_a_linear_model_is_exact() {
    let data = bundle(1, 50, 1, |x, e| 2.0 * x[0] + e);
    let mut builder = thinfer_engine::NetworkBuilder::new(1);
    let out = builder.linear_with("fc1", builder.input(), 1, false).unwrap();
    let network = builder.finish(out, thinfer_engine::Loss::gaussian(1.0)).unwrap();
    let s = Splbnn {
        inclusion: 1.0 - 1e-12,
        spike_variance: 1e-9,
        slab_variance: 4.0,
        ..Splbnn::default()
    };
    let prior = s.mixture().unwrap();
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for row in 0..50 {
        let (x, y) = (f64::from(data.train.input(row)[0]), f64::from(data.train.target(row)[0]));
        (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
    }
    let mode = xy / (xx + 0.25);
    let (got, kept) = log_evidence(&network, &prior, &[mode], &data.train).unwrap();
    // ln ∫ exp(−½Σ(y−wx)²) N(w; 0, 4) dw, with 1/√2π of the prior left out.
    let by_hand = -0.5 * (yy - xy * mode) - 0.5 * 4.0f64.ln()
        + 0.5 * (2.0 * std::f64::consts::PI).ln()
        - 0.5 * (xx + 0.25).ln();
    assert_eq!(kept, 1);
    assert!((got - by_hand).abs() < 1e-6, "{got} {by_hand}");
}

#[test]
fn weights_that_nothing_holds_become_zero() {
    let prior = Splbnn::default().mixture().unwrap();
    let mut w = [1e-37f32; 3];
    for _ in 0..20_000 {
        step(&prior, 1000.0, 0.005, &mut w, &[0.0; 3], &[1.0; 3]);
        assert!(w.iter().all(|w| *w == 0.0 || w.is_normal()), "{w:?}");
    }
    assert_eq!(w, [0.0; 3]);
}

#[test]
fn a_start_that_is_not_sparse_has_no_evidence() {
    let mut b = thinfer_engine::NetworkBuilder::new(MOST_KEPT + 1);
    let out = b.linear_with("fc", b.input(), 1, false).unwrap();
    let network = b.finish(out, thinfer_engine::Loss::gaussian(1.0)).unwrap();
    let columns = MOST_KEPT + 1;
    let data = Dataset::new(columns, 1, vec![0.5; 2 * columns], vec![1.0, 2.0]).unwrap();
    let prior = Splbnn::default().mixture().unwrap();
    let found = log_evidence(&network, &prior, &vec![0.1; columns], &data).unwrap();
    assert_eq!(found, (f64::NEG_INFINITY, columns));
}

#[test]
fn it_finds_the_columns_of_a_smooth_function() {
    let data = bundle(2, 800, 15, |x, e| 2.0 * (x[0] - x[2]).tanh() + 0.5 * e);
    let found = quick().fit(&data, 1, &AtomicBool::new(false)).unwrap();
    assert_eq!(found.columns, [0, 2]);
    let evidence = |start: &str| found.chosen[&format!("log_evidence_{start}")];
    let best = if evidence("1") > evidence("0") { 1.0 } else { 0.0 };
    assert_eq!(found.chosen["start"], best, "{:?}", found.chosen);
    let (loss, _) = judged(&found.predictor.predict(&data.test).unwrap(), &data.test);
    assert!(loss < 0.5, "{loss}");
    let again = quick().fit(&data, 1, &AtomicBool::new(false)).unwrap();
    assert_eq!(again.scores, found.scores);
    assert_eq!(quick().fit(&data, 1, &AtomicBool::new(true)).unwrap_err().exit_code(), 130);
}

/// What the threshold removes stays away while the rest is tuned, biases included.
#[test]
fn fine_tuning_moves_only_what_the_threshold_left() {
    let data = bundle(2, 400, 8, |x, e| 2.0 * (x[0] - x[2]).tanh() + 0.5 * e);
    let after = |fine_tune_steps: u64| {
        let s = Splbnn { bias: true, steps: 800, fine_tune_steps, rounds: 1, ..quick() };
        let shape = Shape { hidden: &s.hidden, activation: s.activation, bias: s.bias };
        let network = perceptron(&data, shape).unwrap();
        let (prior, threshold) = (s.mixture().unwrap(), s.threshold().unwrap());
        let stop = AtomicBool::new(false);
        s.one_start(&network, &prior, threshold, &data, (1, 0), &stop).unwrap()
    };
    let (cut, tuned) = (after(0), after(300));
    let pairs = || cut.weights.iter().zip(&tuned.weights);
    assert!(pairs().all(|(cut, tuned)| *cut != 0.0 || *tuned == 0.0));
    let (gone, moved) = (pairs().filter(|p| *p.0 == 0.0), pairs().filter(|p| p.0 != p.1));
    assert!(gone.count() > 5 && moved.count() > 5);
    let loud = |w: &&f32| f64::from(w.abs()) > quick().threshold().unwrap();
    assert_eq!(cut.weights.iter().filter(loud).count(), cut.kept);
    assert_eq!(cut.scores, tuned.scores, "the first stage is the same");
}

#[test]
fn pure_noise_leaves_nothing() {
    let data = bundle(3, 300, 6, |_, e| e);
    let s = Splbnn { starts: 1, slab_variance: 0.02, ..quick() };
    let found = s.fit(&data, 1, &AtomicBool::new(false)).unwrap();
    assert!(found.columns.is_empty(), "{:?}", found.columns);
    assert!(found.chosen["log_evidence_0"].is_finite());
}
