//! Likelihoods of a table's target, from the file to the scores: outliers and counts.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use thinfer_core::metrics::{Noise, Scales};
use thinfer_core::posterior::Predictive;
use thinfer_core::train::{Setting, Silent, run_chains};
use thinfer_data::{Bundle, Data};
use thinfer_engine::noise::{Key, Stream};
use thinfer_run::config::Config;
use thinfer_run::evaluate::{Evaluation, evaluate};
use thinfer_run::experiment::{build_network, chain_specs};

const ROWS: usize = 600;

fn table(folder: &Path, y: impl Fn(usize, f64) -> f64) -> String {
    let key = Key::new(5, 0, Stream::Observation);
    let mut text = String::from("x,z,y\n");
    for row in 0..ROWS {
        let (x, z) = (f64::from(key.normal(0, row)), key.normal(1, row));
        writeln!(text, "{x},{z},{}", y(row, x)).unwrap();
    }
    let path = folder.join("t.csv");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// A linear model under Algorithm 2, and what it predicts of the test rows.
fn fitted(path: &str, settings: &[&str]) -> (Evaluation, Predictive, Bundle) {
    let data_path = format!("data.path={path}");
    let common = [
        "data.kind=table",
        &data_path,
        "data.target=y",
        "model.hidden=[]",
        "model.noise=learned",
        "method.kind=sghmc",
        "method.clip=none",
        "prior.weight_decay=0.001",
        "schedule.step_size.value=0.01",
        "schedule.step_size.cycles=10",
        "train.epochs=300",
        "train.batch=120",
    ];
    let all: Vec<String> = common.iter().chain(settings).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &all).unwrap();
    let Data::Table(data) = Data::load(&config.data, config.seed).unwrap() else { panic!() };
    let network = build_network(&config, &data).unwrap();
    let stop = AtomicBool::new(false);
    let setting = Setting::in_memory(&stop, &Silent, 1);
    let specs = chain_specs(&config, &data).unwrap();
    let results = run_chains(specs, &data.train, &setting).unwrap();
    let evaluation = evaluate(&config, &network, &data, &results).unwrap();
    let members = results.into_iter().flat_map(|r| r.snapshots).collect();
    let posterior = thinfer_core::posterior::Posterior { network, members };
    let predictive = posterior.predict(&data.test).unwrap();
    (evaluation, predictive, data)
}

/// One row in ten is off by thirty times the noise.
#[test]
fn outliers_pull_a_normal_likelihood_and_not_students_t() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::new(6, 0, Stream::Observation);
    let path = table(folder.path(), |row, x| {
        let off = if row % 10 == 0 { 10.0 * f64::from(key.normal(1, row)) } else { 0.0 };
        2.0 * x + 0.3 * f64::from(key.normal(0, row)) + off
    });
    let (normal, ..) = fitted(&path, &[]);
    let robust = ["model.likelihood=student-t", "model.dof=3"];
    let (student, predictive, data) = fitted(&path, &robust);
    let (plain, better) = (normal.posterior.nll.unwrap(), student.posterior.nll.unwrap());
    assert!(better < plain - 0.5, "{better} against {plain}");
    let coverage = student.posterior.coverage90.unwrap();
    assert!((0.82..0.98).contains(&coverage), "{coverage}");
    let below = predictive.below(data.test.targets()).unwrap();
    let mean = below.iter().sum::<f64>() / below.len() as f64;
    assert!((mean - 0.5).abs() < 0.1, "{mean}");
}

/// Rates e^{1 + x/2}, once as they are and once times a gamma variable of variance 1/2.
#[test]
fn counts_have_rates_and_their_extra_variance_is_learned() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::new(7, 0, Stream::Observation);
    let rate = |x: f64| (1.0 + 0.5 * x).exp();
    // The first count whose probability so far reaches a uniform number.
    let draw = |row: usize, rate: f64, noise: Noise, spread: f64| {
        noise.quantile(&[rate], &[spread], f64::from(key.uniform(0, row)).max(1e-6)).unwrap()
    };
    let plain = table(folder.path(), |row, x| draw(row, rate(x), Noise::Poisson, 1.0));
    let (found, predictive, _) = fitted(&plain, &["data.task=counts", "model.likelihood=poisson"]);
    assert!(found.posterior.nll.unwrap() < found.baseline.nll.unwrap() - 0.05);
    assert!(found.posterior.mse.unwrap() < found.baseline.mse.unwrap());
    let Predictive::Regression { noise, means, .. } = predictive else { panic!() };
    assert_eq!(noise, Noise::Poisson);
    assert!(means.iter().flatten().all(|rate| *rate > 0.0));

    let spread = 0.5f64.sqrt();
    let wild = table(folder.path(), |row, x| draw(row, rate(x), Noise::NegativeBinomial, spread));
    let (found, predictive, data) = fitted(&wild, &["data.task=counts"]);
    let Predictive::Regression { noise, sigmas, .. } = &predictive else { panic!() };
    assert_eq!(*noise, Noise::NegativeBinomial);
    let Scales::OfMembers(sigmas) = sigmas else { panic!() };
    let late = &sigmas[sigmas.len() / 2..];
    let learned = late.iter().sum::<f64>() / late.len() as f64;
    assert!((learned - spread).abs() < 0.15, "{learned}");
    let poisson = fitted(&wild, &["data.task=counts", "model.likelihood=poisson"]).0;
    assert!(found.posterior.nll.unwrap() < poisson.posterior.nll.unwrap() - 0.1);
    let coverage = found.posterior.coverage90.unwrap();
    // A count cannot be cut finer: the interval holds a little more than it says.
    assert!((0.85..=1.0).contains(&coverage), "{coverage}");
    assert_eq!(data.schema.target_scale(), (0.0, 1.0));
}

#[test]
fn a_likelihood_that_does_not_fit_the_task_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), |_, x| x);
    let refused = |settings: &[&str]| {
        let data_path = format!("data.path={path}");
        let mut all = vec!["data.kind=table".to_owned(), data_path, "data.target=y".to_owned()];
        all.extend(settings.iter().map(|s| (*s).to_owned()));
        let config = Config::parse("", &all).unwrap();
        let data = match Data::load(&config.data, config.seed) {
            Err(error) => return error.to_string(),
            Ok(data) => data,
        };
        build_network(&config, &data).unwrap_err().to_string()
    };
    let text = refused(&["model.likelihood=poisson"]);
    assert!(text.contains("model.likelihood") && text.contains("data.task = \"counts\""), "{text}");
    let text = refused(&["data.task=counts"]);
    assert!(text.contains("a count is a whole number"), "{text}");
}
