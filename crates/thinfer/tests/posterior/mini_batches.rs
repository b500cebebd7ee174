//! The temperature that an evaluation tells, against the one that is measured: Bayesian linear
//! regression with mini-batches, through the whole program.

use std::sync::atomic::AtomicBool;

use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::evaluate::{Measured, Temperature, evaluate};
use thinfer::experiment::chain_specs;
use thinfer::posterior::Snapshot;
use thinfer::train::{Setting, Silent, run_chains};
use thinfer_engine::{Network, Plan};

/// How far the temperature that is told may be from the measured one, besides five standard errors.
const ALLOWED: f64 = 0.3;
const EPOCHS: usize = 3000;

/// The temperature that is told, and the measured one with its standard error: N times twice the
/// mean of L(w) − min L over the samples, a weight.
fn told_and_measured(settings: &[String]) -> (Temperature, Option<Measured>, f64, f64) {
    let common = [
        "data.columns=5",
        "data.validation_rows=10",
        "data.test_rows=10",
        "model.hidden=[]",
        "method.kind=sghmc",
        "method.clip=none",
        "prior.weight_decay=0.02",
        "schedule.eta.value=0",
    ];
    let settings = [&common.map(str::to_owned)[..], settings].concat();
    let config = Config::parse("", &settings).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let specs = chain_specs(&config, &data).unwrap();
    let network = specs[0].network.clone();
    let stop = AtomicBool::new(false);
    let results = run_chains(specs, &data.train, &Setting::in_memory(&stop, &Silent, 1)).unwrap();
    let behaviour = evaluate(&config, &network, &data, &results).unwrap().behaviour;
    let samples = &results[0].snapshots;
    let (mean, error) =
        temperature(&network, &data, config.prior.weight_decay, &samples[samples.len() / 10..]);
    (behaviour.temperature.unwrap(), behaviour.measured, mean, error)
}

/// N times twice the mean of L(w) − min L over samples, a weight, with its standard error.
fn temperature(network: &Network, data: &Bundle, wd: f64, samples: &[Snapshot]) -> (f64, f64) {
    let energies = energies(network, data, wd, samples);
    let scale = 2.0 * data.train.rows() as f64 / network.params().len() as f64;
    let blocks: Vec<f64> = energies
        .chunks_exact(energies.len() / 20)
        .map(|block| scale * block.iter().sum::<f64>() / block.len() as f64)
        .collect();
    let mean = blocks.iter().sum::<f64>() / blocks.len() as f64;
    let var = blocks.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (blocks.len() - 1) as f64;
    (mean, (var / blocks.len() as f64).sqrt())
}

/// Mini-batches neither heat nor cool SMILE by much, though their noise alone is many times that of
/// the posterior.
#[test]
fn smile_recovers_the_posterior_of_a_regression() {
    for (rows, batch, epochs) in [(1000, 32, 3000), (200, 8, 6000)] {
        let samples = epochs - epochs / 10;
        let settings = [
            "data.columns=20".to_owned(),
            format!("data.train_rows={rows}"),
            "data.validation_rows=10".into(),
            "data.test_rows=10".into(),
            "model.hidden=[]".into(),
            "method.kind=smile".into(),
            "method.energy_error=1e-4".into(),
            format!("train.batch={batch}"),
            format!("train.epochs={epochs}"),
            format!("train.samples_per_cycle={samples}"),
            "train.stages=1".into(),
            "prior.weight_decay=0.02".into(),
            "chains=1".into(),
        ];
        let config = Config::parse("", &settings).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let specs = chain_specs(&config, &data).unwrap();
        let network = specs[0].network.clone();
        let stop = AtomicBool::new(false);
        let setting = Setting::in_memory(&stop, &Silent, 1);
        let results = run_chains(specs, &data.train, &setting).unwrap();
        let (measured, error) = temperature(&network, &data, 0.02, &results[0].snapshots);
        let words = format!("{rows} rows, {batch} a move: {measured:.3} ± {error:.3}");
        assert!((measured - 1.0).abs() < 0.05 + 3.0 * error && error < 0.05, "{words}");
    }
}

/// L(w) − min L of each sample, where L is the mean loss of all rows and the prior.
fn energies(network: &Network, data: &Bundle, wd: f64, samples: &[Snapshot]) -> Vec<f64> {
    let rows: Vec<u32> = (0..data.train.rows() as u32).collect();
    let mut plan = Plan::new(network, rows.len()).unwrap();
    let mut gradient = vec![0.0; network.params().len()];
    let mut loss = |weights: &[f32], gradient: &mut [f32]| {
        let loss = plan.gradient_at(weights, &mut [], &data.train, &rows, gradient).unwrap();
        let prior = weights.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>();
        gradient.iter_mut().zip(weights).for_each(|(g, w)| *g += wd as f32 * w);
        loss + 0.5 * wd * prior
    };
    let mut weights = vec![0.0; gradient.len()];
    let mut least = f64::INFINITY;
    // Columns correlate, so the largest curvature grows with their number.
    let (steps, rate) = (200 * network.input_len(), 1.5 / network.input_len() as f32);
    for _ in 0..steps {
        least = least.min(loss(&weights, &mut gradient));
        weights.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= rate * g);
    }
    samples.iter().map(|sample| loss(&sample.weights, &mut gradient) - least).collect()
}

/// Trains on `rows` rows, `batch` a step, with step size l and β₁; with constant steps and a sample
/// every epoch where `more` says nothing of cycles. Compares the two temperatures.
fn check(rows: usize, batch: usize, step_size: f64, beta1: f64, more: &[&str]) -> Temperature {
    let mut settings = vec![
        format!("data.train_rows={rows}"),
        format!("train.batch={batch}"),
        format!("schedule.step_size.value={step_size}"),
        format!("method.beta1={beta1}"),
        format!("train.epochs={EPOCHS}"),
    ];
    if more.iter().all(|setting| !setting.contains("cycles")) {
        settings.push("schedule.step_size.shape=constant".into());
        settings.push(format!("train.samples_per_cycle={EPOCHS}"));
    }
    settings.extend(more.iter().map(|setting| (*setting).to_owned()));
    let (told, virial, measured, error) = told_and_measured(&settings);
    let words = format!(
        "{rows} rows, {batch} a step, l {step_size}, β₁ {beta1}, {more:?}: told {:.3} + {:.3} = {:.3}, by the virial {virial:?}, measured {measured:.3} ± {error:.3}",
        told.injected, told.minibatch, told.total
    );
    // Of a quadratic loss both forms are the same number; they look at different samples.
    let virial = virial.unwrap();
    let both = error.hypot(virial.error);
    assert!(
        (virial.value - measured).abs() < 5.0 * both && virial.error < 0.3 * measured,
        "{words}"
    );
    assert!((told.total - measured).abs() < ALLOWED * measured + 5.0 * error, "{words}");
    assert!(told.valid && told.clipped_sampling_share == 0.0 && told.asked_for > 0.99);
    told
}

/// Where mini-batches heat a chain most, and where they hardly do.
#[test]
fn the_told_temperature_is_near_the_measured_one() {
    assert!(check(200, 8, 0.05, 0.9, &[]).total > 4.0);
    assert!(check(1000, 32, 0.05, 0.9, &[]).total > 4.0);
    check(200, 8, 0.05, 0.1, &[]);
    check(1000, 32, 0.05, 0.1, &[]);
    check(200, 8, 0.01, 0.9, &[]);
    check(1000, 32, 0.01, 0.9, &[]);
    // The last step of an epoch has 8 rows.
    check(200, 32, 0.05, 0.9, &[]);
}

#[test]
fn other_samplers_tell_their_temperature_too() {
    assert!(check(200, 8, 0.025, 0.9, &["method.kind=csghmc"]).total > 4.0);
    check(200, 8, 0.025, 0.1, &["method.kind=csgld"]);
    // The printed noise is too warm by itself with so much memory.
    assert!(check(200, 8, 0.05, 0.9, &["method.noise=paper"]).injected > 1.9);
}

/// The end of a cycle forgets the heat of its large steps.
#[test]
fn a_cycle_is_told_as_cool_as_it_is() {
    let more = ["schedule.step_size.cycles=300", "train.samples_per_cycle=1"];
    assert!(check(200, 8, 0.05, 0.9, &more).minibatch < 0.5);
}

#[test]
fn full_batches_add_nothing() {
    let told = check(200, 200, 0.05, 0.9, &[]);
    assert_eq!((told.minibatch, told.total), (0.0, told.injected));
}

/// A chain whose every step is clipped is far from the temperature asked for, and is not told to be
/// there.
#[test]
fn clipped_steps_have_no_temperature() {
    let settings = [
        "data.train_rows=200",
        "train.batch=200",
        "method.clip=0.01",
        "schedule.step_size.shape=constant",
        "schedule.step_size.value=0.05",
        "train.epochs=3000",
        "train.samples_per_cycle=1000",
    ];
    let (told, _, measured, _) = told_and_measured(&settings.map(str::to_owned));
    assert!(measured > 2.0, "{measured}");
    assert!(!told.valid && told.clipped_sampling_share > 0.9, "{told:?}");
}
