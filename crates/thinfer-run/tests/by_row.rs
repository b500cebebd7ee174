//! Noise that a network predicts row by row, from the file to the scores.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use thinfer_core::metrics::Scales;
use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_core::train::{Setting, Silent, run_chains};
use thinfer_data::{Bundle, Data};
use thinfer_engine::noise::{Key, Stream};
use thinfer_run::config::Config;
use thinfer_run::evaluate::{Evaluation, evaluate};
use thinfer_run::experiment::{build_network, chain_specs};

const ROWS: usize = 1000;

/// A table of `y = 1.5 x + noise` with the noise of a row, and a column that means nothing. One row
/// in two is for testing.
fn table(folder: &Path, noise: impl Fn(f64) -> f64) -> String {
    let key = Key::new(8, 0, Stream::Observation);
    let mut text = String::from("x,z,y,part\n");
    for row in 0..ROWS {
        let x = 2.0 * f64::from(key.uniform(0, row)) - 1.0;
        let y = 1.5 * x + noise(x) * f64::from(key.normal(2, row));
        let part = if row % 2 == 0 { "train" } else { "test" };
        writeln!(text, "{x},{},{y},{part}", key.normal(1, row)).unwrap();
    }
    let path = folder.join("t.csv");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn config(path: &str, settings: &[&str]) -> Config {
    let data_path = format!("data.path={path}");
    let common = [
        "data.kind=table",
        &data_path,
        "data.target=y",
        "data.split=part",
        "model.hidden=[8]",
        "model.likelihood=normal",
        "method.moves=10",
        "train.epochs=300",
        "train.samples_per_cycle=60",
        "train.stages=1",
        "chains=2",
    ];
    let all: Vec<String> = common.iter().chain(settings).map(|s| (*s).to_owned()).collect();
    Config::parse("", &all).unwrap()
}

/// Short chains of the default method, and what they predict of the test rows.
fn fitted(path: &str, settings: &[&str]) -> (Evaluation, Predictive, Bundle) {
    let config = config(path, settings);
    let Data::Table(data) = Data::load(&config.data, config.seed).unwrap() else { panic!() };
    let network = build_network(&config, &data).unwrap();
    let stop = AtomicBool::new(false);
    let specs = chain_specs(&config, &data).unwrap();
    let results = run_chains(specs, &data.train, &Setting::in_memory(&stop, &Silent, 0)).unwrap();
    let evaluation = evaluate(&config, &network, &data, &results).unwrap();
    let members = results.into_iter().flat_map(|r| r.snapshots).collect();
    let predictive = Posterior { network, members }.predict(&data.test).unwrap();
    (evaluation, predictive, data)
}

/// The share of test rows in their 90 % interval among those of one side, and the mean noise there
/// in the units of the target.
fn on_side(predictive: &Predictive, data: &Bundle, right: bool) -> (f64, f64) {
    let rows: Vec<usize> =
        (0..data.test.rows()).filter(|row| (data.test.input(*row)[0] > 0.0) == right).collect();
    let Predictive::Regression { sigmas, .. } = predictive else { panic!() };
    let (low, high) = predictive.interval(0.9).unwrap();
    let inside = |row: &&usize| {
        let y = f64::from(data.test.targets()[**row]);
        low[**row] <= y && y <= high[**row]
    };
    let held = rows.iter().filter(inside).count() as f64 / rows.len() as f64;
    let logs = rows.iter().map(|row| {
        let scales = sigmas.at_row(*row);
        scales.iter().map(|scale| scale.ln()).sum::<f64>() / scales.len() as f64
    });
    let log = logs.sum::<f64>() / rows.len() as f64;
    (held, log.exp() * data.schema.target_scale().1)
}

/// Noise 0.1 on the left and 0.8 on the right: each is found, and each side has its coverage. One
/// noise for all rows covers too much on one side and too little on the other.
#[test]
fn noise_that_varies_is_recovered_where_it_is_quiet_and_where_it_is_loud() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), |x| if x > 0.0 { 0.8 } else { 0.1 });
    let (one, predictive, data) = fitted(&path, &["model.noise=learned"]);
    let (quiet, loud) = (on_side(&predictive, &data, false).0, on_side(&predictive, &data, true).0);
    assert!(quiet > 0.98 && loud < 0.87, "one noise: {quiet} and {loud}");
    for likelihood in ["model.likelihood=normal", "model.likelihood=student-t"] {
        let settings = ["model.noise=by-row", likelihood, "model.dof=30"];
        let (found, predictive, data) = fitted(&path, &settings);
        let (quiet, quiet_sd) = on_side(&predictive, &data, false);
        let (loud, loud_sd) = on_side(&predictive, &data, true);
        assert!((0.85..0.97).contains(&quiet), "{likelihood}: {quiet}");
        assert!((0.85..0.95).contains(&loud), "{likelihood}: {loud}");
        assert!((0.08..0.16).contains(&quiet_sd), "{likelihood}: {quiet_sd}");
        assert!((0.6..0.95).contains(&loud_sd), "{likelihood}: {loud_sd}");
        let (better, plain) = (found.posterior.nll.unwrap(), one.posterior.nll.unwrap());
        assert!(better < plain - 0.3, "{better} against {plain}");
        assert!(found.pit.unwrap().distance < 0.1);
    }
}

/// ln σ = −1 + 0.8 x, by the reference sampler on a linear network: the slope and the level are
/// found, and the samples have the temperature of the posterior.
#[test]
fn noise_that_grows_evenly_is_sampled_at_its_temperature() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), |x| (-1.0 + 0.8 * x).exp());
    let settings = [
        "method.kind=nuts",
        "model.noise=by-row",
        "model.hidden=[]",
        "method.most_doublings=5",
        "prior.sd=2",
        "prior.noise_row_sd=1",
        "train.samples_per_cycle=150",
    ];
    let (found, predictive, data) = fitted(&path, &settings);
    let measured = found.behaviour.measured.unwrap();
    assert!((measured.value - 1.0).abs() < 4.0 * measured.error + 0.1, "{measured:?}");
    let Predictive::Regression { sigmas: Scales::OfRows(sigmas), .. } = &predictive else {
        panic!()
    };
    let sd = data.schema.target_scale().1;
    let mean =
        |row: usize| sigmas.iter().map(|of| (sd * of[row]).ln()).sum::<f64>() / sigmas.len() as f64;
    let at = |row: usize| f64::from(data.test.input(row)[0]);
    let row = |right: bool| {
        let all = 0..data.test.rows();
        let order = |a: &usize, b: &usize| at(*a).total_cmp(&at(*b));
        if right { all.max_by(order).unwrap() } else { all.min_by(order).unwrap() }
    };
    let (left, right) = (mean(row(false)), mean(row(true)));
    assert!((left + 1.8).abs() < 0.2 && (right + 0.2).abs() < 0.2, "{left} and {right}");
    assert!(found.convergence.log_sigma.is_some());
}

/// Where all rows have one noise, predicting it costs next to nothing.
#[test]
fn one_noise_is_predicted_as_well_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), |_| 0.4);
    let (one, ..) = fitted(&path, &["model.noise=learned"]);
    let (by_row, predictive, data) = fitted(&path, &["model.noise=by-row"]);
    let (nll, plain) = (by_row.posterior.nll.unwrap(), one.posterior.nll.unwrap());
    assert!(nll < plain + 0.01, "{nll} against {plain}");
    for right in [false, true] {
        let (held, sd) = on_side(&predictive, &data, right);
        assert!((0.85..0.95).contains(&held) && (0.36..0.44).contains(&sd), "{held} {sd}");
    }
}

#[test]
fn counts_have_no_noise_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let text = (0..60).fold("x,y,part\n".to_owned(), |text, row| {
        let part = if row < 50 { "train" } else { "test" };
        format!("{text}{row},{},{part}\n", row % 7)
    });
    let path = folder.path().join("counts.csv");
    std::fs::write(&path, text).unwrap();
    let settings = ["data.task=counts", "model.noise=by-row", "model.likelihood=negative-binomial"];
    let config = config(&path.display().to_string(), &settings);
    let data = Data::load(&config.data, config.seed).unwrap();
    let error = build_network(&config, &data).unwrap_err().to_string();
    assert!(error.contains("model.noise") && error.contains("give \"learned\""), "{error}");
}
