//! A run that goes on with a smaller network follows the run that multiplies by masks.

use thinfer::config::Config;
use thinfer::data::{Bundle, ImageData};
use thinfer::experiment::chain_specs;
use thinfer::posterior::{Posterior, Predictive, SampleRule};
use thinfer::prune::{FIXED, KEEP};
use thinfer::shrink::{Layout, shrink_posterior};
use thinfer::train::{Chain, Examples};

fn chain<'a>(
    settings: &[&str],
    shrink: &str,
    data: impl Into<thinfer::experiment::Problem<'a>>,
) -> Chain {
    let shrink = format!("prune.shrink={shrink}");
    let overrides: Vec<String> = settings.iter().map(|s| (*s).to_owned()).chain([shrink]).collect();
    let config = Config::parse("", &overrides).unwrap();
    Chain::start(chain_specs(&config, data).unwrap().swap_remove(0)).unwrap()
}

/// Steps both chains side by side and compares weights, ρ, velocities and marks after every step.
/// Returns the share of the work that the smaller one still had to do in the end.
fn follow(masked: Chain, cut: Chain, data: Examples<'_>, tolerance: f32) -> f64 {
    follow_to(masked, cut, data, tolerance).0
}

/// The same, and the share of parameters that were frozen in the end.
fn follow_to(mut masked: Chain, mut cut: Chain, data: Examples<'_>, tolerance: f32) -> (f64, f64) {
    while !masked.is_done() {
        masked.advance(data).unwrap();
        cut.advance(data).unwrap();
        let (a, b) = (masked.arena(), cut.arena());
        let marks = |m: &u8| m & (KEEP | FIXED);
        assert!(a.marks().iter().map(marks).eq(b.marks().iter().map(marks)), "masks part");
        let pairs =
            [(a.weights(), b.weights()), (a.state(0), b.state(0)), (a.state(1), b.state(1))];
        for (what, (a, b)) in ["weights", "velocities", "rho"].iter().zip(pairs) {
            let scale = a.iter().fold(0.1f32, |most, v| most.max(v.abs()));
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                // Velocity and rho of a pruned weight mean nothing any more.
                let counts = masked.arena().marks()[i] & KEEP != 0;
                assert!(
                    !counts || (a - b).abs() <= tolerance * scale,
                    "{what} {i} after step {}: {a} against {b}",
                    masked.step()
                );
            }
        }
    }
    assert_eq!(masked.records().last().unwrap().work, 1.0);
    let last = cut.records().last().unwrap();
    (last.work, last.frozen)
}

#[test]
fn a_table_run_follows_the_masked_one() {
    let settings = [
        "data.columns=30",
        "data.train_rows=200",
        "data.validation_rows=10",
        "data.test_rows=10",
        "train.batch=64",
        "train.epochs=12",
        "schedule.step_size.cycles=2",
        "prune.warm_up_epochs=1",
        "prune.hard_threshold=0.02",
        "prior.soft_threshold=0.05",
    ];
    let config = Config::parse("", &settings.map(str::to_owned)).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let masked = chain(&settings, "never", &data);
    let cut = chain(&settings, "always", &data);
    let work = follow(masked, cut, (&data.train).into(), 2e-4);
    assert!(work < 0.7, "{work}");
}

fn pictures() -> (Vec<&'static str>, ImageData) {
    let settings = vec![
        "data.kind=shapes",
        "data.train_rows=120",
        "data.test_rows=40",
        "train.batch=40",
        "train.epochs=6",
        "train.samples_per_cycle=1",
        "schedule.step_size.value=0.05",
        "schedule.step_size.cycles=2",
        "prune.warm_up_epochs=0",
        "prune.target=0.6",
        "prune.freeze_after_epochs=3",
    ];
    let overrides: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &overrides).unwrap();
    let data = ImageData::load(&config.data, config.seed).unwrap();
    (settings, data)
}

#[test]
fn a_picture_run_follows_the_masked_one() {
    let (mut settings, data) = pictures();
    for model in ["model.name=lenet", "model.name=wrn-10-1"] {
        settings.push(model);
        let masked = chain(&settings, "never", &data);
        let cut = chain(&settings, "always", &data);
        let work = follow(masked, cut, (&data).into(), 2e-2);
        assert!(work < 0.99, "{model}: {work}");
        settings.pop();
    }
}

#[test]
fn a_picture_run_that_freezes_follows_the_masked_one() {
    let (mut settings, data) = pictures();
    settings.extend(["schedule.step_size.value=0.01", "schedule.step_size.cycles=3"]);
    settings.extend(["train.freeze_below=0.05", "train.freeze_layer_share=0.5"]);
    for model in ["model.name=lenet", "model.name=wrn-10-1"] {
        settings.push(model);
        let masked = chain(&settings, "never", &data);
        let cut = chain(&settings, "always", &data);
        let (work, frozen) = follow_to(masked, cut, (&data).into(), 2e-2);
        assert!(work < 0.99 && frozen > 0.0, "{model}: {work} {frozen}");
        settings.pop();
    }
}

/// Samples of the first cycle are denser than those of the second; together they predict the same
/// from the smaller network.
#[test]
fn samples_of_different_sizes_predict_as_before() {
    let settings = [
        "data.columns=20",
        "data.train_rows=150",
        "data.validation_rows=10",
        "data.test_rows=30",
        "train.batch=50",
        "train.epochs=12",
        "train.samples_per_cycle=2",
        "schedule.step_size.cycles=3",
        "prune.warm_up_epochs=4",
        "prune.hard_threshold=0.03",
        "prior.soft_threshold=0.05",
    ];
    let config = Config::parse("", &settings.map(str::to_owned)).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let mut chain = chain(&settings, "always", &data);
    while !chain.is_done() {
        chain.advance(&data.train).unwrap();
    }
    let members = chain.snapshots().to_vec();
    let kept = |at: usize| members[at].keep.iter().filter(|k| **k != 0).count();
    assert!(kept(0) > kept(members.len() - 1));
    let all = Posterior { network: chain.spec().network.clone(), members };
    for posterior in [all.clone(), all.kept(&SampleRule::all())] {
        let (small, cut) = shrink_posterior(&posterior, Layout::SMALLEST).unwrap();
        let columns: Vec<usize> = cut.inputs.iter().map(|c| *c as usize).collect();
        let (Predictive::Regression { means: a, .. }, Predictive::Regression { means: b, .. }) = (
            posterior.predict(&data.test).unwrap(),
            small.predict(&data.test.take_columns(&columns)).unwrap(),
        ) else {
            panic!("a regression");
        };
        for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
            assert!((a - b).abs() < 1e-5 * (1.0 + a.abs()), "{a} against {b}");
        }
    }
    let (last, _) = shrink_posterior(&all.last(), Layout::SMALLEST).unwrap();
    assert!(last.network.params().len() < all.network.params().len());
}
