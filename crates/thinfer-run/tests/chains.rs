//! Chains as a configuration makes them: frozen weights, stopped evaluations, refused settings.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use thinfer_core::methods::{Rates, Tick};
use thinfer_core::prune::{FIXED, KEEP};
use thinfer_core::train::{Chain, ChainSpec, Examples, FrozenLayers};
use thinfer_data::images::image_rows;
use thinfer_data::{Error, ImageData, View};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Plan, Shape};
use thinfer_run::config::Config;
use thinfer_run::experiment::{Problem, ProblemInputs, build_method, build_network, chain_specs};

fn pictures(settings: &[&str]) -> (ChainSpec, ImageData) {
    let small = [
        "data.kind=shapes",
        "data.train_rows=90",
        "data.test_rows=20",
        "train.batch=40",
        "train.epochs=6",
        "train.samples_per_cycle=1",
        "train.freeze_layer_share=0.5",
        "schedule.step_size.value=0.01",
        "schedule.step_size.cycles=3",
        "prune.shrink=never",
        "prune.warm_up_epochs=0",
        "prune.freeze_after_epochs=5",
        "prune.target=0.3",
    ];
    let all: Vec<String> = small.iter().chain(settings).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &all).unwrap();
    let data = ImageData::load(&config.data, config.seed).unwrap();
    (chain_specs(&config, &data).unwrap().swap_remove(0), data)
}

/// Every step after a freeze, once as the chain does it and once with all gradients, of which the
/// update alone leaves out the frozen ones: weights, state and statistics have the same bits.
fn follow(spec: &ChainSpec, data: &ImageData) {
    let mut chain = Chain::start(spec.clone()).unwrap();
    while chain.step() < 4 * spec.clock.steps_per_epoch {
        chain.advance(data).unwrap();
    }
    let marks = chain.arena().marks().to_vec();
    let start = chain.arena().weights().to_vec();
    let held = FrozenLayers::of(&spec.network, &marks);
    let left = held.backward_left(&spec.network);
    assert!(held != FrozenLayers::default() && left < 0.9, "{left}: {held:?}");
    assert!(marks.iter().any(|mark| mark & FIXED == 0), "everything is frozen");
    let key = |stream| Key::new(spec.seed, spec.chain, stream);
    let mut plan = Plan::new(&spec.network, spec.batch).unwrap();
    while !chain.is_done() {
        let (step, clock) = (chain.step(), spec.clock);
        let (epoch, batch) = (clock.epoch(step), clock.batch(step));
        let rates: Rates = spec.schedules.at(step, clock);
        let tick = Tick { step, epoch, rates };
        let mut arena = chain.arena().clone();
        if batch == 0 {
            spec.method.epoch(&mut arena, tick);
        }
        let order = key(Stream::Shuffle).permutation(epoch as u64, data.train.rows());
        let rows = &order[batch * spec.batch..((batch + 1) * spec.batch).min(order.len())];
        let view = View::Random { key: key(Stream::Augment), epoch: epoch as u64 };
        let made = image_rows(&data.train, &data.augment, view, rows).unwrap();
        let numbers: Vec<u32> = (0..rows.len() as u32).collect();
        spec.method.materialize(&mut arena, tick);
        plan.gradient(&mut arena, &made, &numbers).unwrap();
        spec.method.update(&mut arena, tick);

        chain.advance(Examples::from(data)).unwrap();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let all = |a: &Arena| [a.weights(), a.state(0), a.state(1), a.stats()].map(bits);
        assert!(all(&arena) == all(chain.arena()), "step {step}");
    }
    let now = chain.arena();
    for (i, mark) in marks.iter().enumerate().filter(|(_, mark)| **mark & FIXED != 0) {
        let pruned = now.marks()[i] & KEEP == 0 && now.weights()[i] == 0.0;
        let same = now.weights()[i].to_bits() == start[i].to_bits();
        assert!(same || (pruned && mark & KEEP != 0), "weight {i} moved");
    }
    let last = chain.records().last().unwrap();
    assert!(last.frozen > 0.0 && last.backward == left, "{last:?}");
    assert_eq!((chain.records()[0].frozen, chain.records()[0].backward), (0.0, 1.0));
}

#[test]
fn a_skipped_way_back_changes_nothing_else() {
    for settings in [
        &["model.name=lenet", "train.freeze_below=0.05", "method.clip=0.5"][..],
        &["model.name=wrn-10-1", "train.freeze_below=0.05"],
        &["model.name=wrn-10-1", "train.freeze_below=0.05", "method.kind=sghmc"],
        &["model.name=wrn-10-1", "train.freeze_below=0.05", "prune.regrow=true"],
    ] {
        let (spec, data) = pictures(settings);
        follow(&spec, &data);
    }
}

#[test]
fn a_run_that_cannot_freeze_is_refused() {
    let refused = |more: &[&str]| {
        let all: Vec<String> = more.iter().map(|s| (*s).to_owned()).collect();
        let config = Config::parse("", &all)?;
        let data = ImageData::load(&config.data, config.seed)?;
        chain_specs(&config, &data).map(|_| ())
    };
    let images = ["data.kind=shapes", "data.train_rows=20", "data.test_rows=10"];
    let two = ["train.freeze_below=0.1", "schedule.step_size.cycles=2"];
    let error = refused(&[&images[..], &two].concat()).unwrap_err().to_string();
    assert!(error.contains("3 or more"), "{error}");
    let sgd = ["train.freeze_below=0.1", "method.kind=sgd"];
    let error = refused(&[&images[..], &sgd].concat()).unwrap_err().to_string();
    assert!(error.contains("Algorithms 2 and 3"), "{error}");
}

/// The steps of an epoch are done, and the user stops while its test images are scored.
#[test]
fn a_chain_that_is_stopped_while_it_scores_goes_on_to_the_same_bits() {
    let set = [
        "data.kind=shapes",
        "data.train_rows=40",
        "data.test_rows=20",
        "model.name=lenet",
        "train.epochs=3",
        "train.batch=20",
        "train.samples_per_cycle=1",
        "schedule.step_size.cycles=1",
        "prune.warm_up_epochs=1",
    ];
    let config = Config::parse("", &set.map(str::to_owned)).unwrap();
    let data = ImageData::load(&config.data, config.seed).unwrap();
    let spec = chain_specs(&config, &data).unwrap().swap_remove(0);
    let mut whole = Chain::start(spec.clone()).unwrap();
    while !whole.is_done() {
        whole.advance(&data).unwrap();
    }
    let stop = AtomicBool::new(true);
    let mut chain = Chain::start(spec.clone()).unwrap();
    let mut stopped = 0;
    while !chain.is_done() {
        match chain.advance_until((&data).into(), &stop) {
            Ok(()) => {}
            Err(Error::Interrupted(_)) => {
                stopped += 1;
                assert!(!chain.is_done() && chain.records().len() + 1 == stopped);
                let bytes = chain.to_bytes().unwrap();
                let so_far = chain.snapshots().to_vec();
                let found = |_: &[(usize, u32)]| Ok(so_far);
                chain = Chain::from_bytes(spec.clone(), Path::new("x"), &bytes, found).unwrap();
                chain.advance(&data).unwrap();
                assert_eq!(chain.records().len(), stopped, "that was the scoring alone");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(stopped, 3);
    assert_eq!(chain.records(), whole.records());
    assert!(chain.to_bytes().unwrap() == whole.to_bytes().unwrap());
}

/// A run that ends before the mask is final would miss its target.
#[test]
fn a_target_that_is_not_reached_within_the_run_is_refused() {
    let build = |more: &[&str]| {
        let mut set = vec!["data.kind=shapes", "model.name=lenet", "method.kind=dpf-lin"];
        set.push("prune.target=0.8");
        set.extend(more);
        let set: Vec<String> = set.into_iter().map(str::to_owned).collect();
        let config = Config::parse("", &set).unwrap();
        let shape = Shape { height: 28, width: 28, channels: 1 };
        let inputs = ProblemInputs::Image { shape, classes: 10 };
        let problem = Problem { train_rows: 64, fingerprint: 0, inputs };
        let network = build_network(&config, problem).unwrap();
        build_method(&config, problem, &network, 0).map(|_| ())
    };
    assert!(build(&["train.epochs=8"]).is_ok() && build(&["train.epochs=2"]).is_ok());
    assert!(build(&["train.epochs=8", "prune.freeze_after_epochs=7"]).is_ok());
    for wrong in [
        &["train.epochs=1"][..],
        &["train.epochs=8", "prune.freeze_after_epochs=8"],
        &["train.epochs=8", "prune.freeze_after_epochs=20"],
    ] {
        let error = build(wrong).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("prune.freeze_after_epochs"), "{error}");
    }
}
