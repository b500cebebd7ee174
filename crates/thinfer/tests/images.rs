//! Networks with convolutions and batch norm, trained on images held in memory.

mod common;

use std::path::Path;

use thinfer::data::ImageData;
use thinfer::images::classify;
use thinfer::posterior::Snapshot;
use thinfer::train::{Chain, ChainSpec};

fn data() -> ImageData {
    common::data([90, 60], 1)
}

fn spec(settings: &[&str], data: &ImageData) -> ChainSpec {
    let small = [
        "train.epochs=6",
        "train.samples_per_cycle=1",
        "schedule.step_size.value=0.2",
        "schedule.step_size.cycles=2",
        "prune.warm_up_epochs=1",
        "prune.hard_threshold=0.5",
        "train.trace=[\"conv1:out:0\"]",
    ];
    common::spec(&small, settings, data)
}

fn finish(mut chain: Chain, data: &ImageData) -> (Vec<u8>, Vec<Snapshot>) {
    while !chain.is_done() {
        chain.advance(data).unwrap();
    }
    (chain.to_bytes().unwrap(), chain.snapshots().to_vec())
}

#[test]
fn a_cut_in_any_step_changes_no_bit() {
    let data = data();
    for settings in [
        &["prune.regrow=false"][..],
        &["prune.regrow=false", "prune.shrink=always"],
        &["prune.regrow=true"],
        &["method.kind=sgd"],
    ] {
        let spec = spec(settings, &data);
        let (whole, samples) = finish(Chain::start(spec.clone()).unwrap(), &data);
        assert_eq!(samples.len(), 2);
        for cut in [1, 4, 9, 13, 17] {
            let mut chain = Chain::start(spec.clone()).unwrap();
            while chain.step() < cut {
                chain.advance(&data).unwrap();
            }
            let (bytes, so_far) = (chain.to_bytes().unwrap(), chain.snapshots().to_vec());
            let found = |_: &[(usize, u32)]| Ok(so_far);
            let again = Chain::from_bytes(spec.clone(), Path::new("memory"), &bytes, found);
            let (resumed, resumed_samples) = finish(again.unwrap(), &data);
            assert!(whole == resumed, "{settings:?}: state differs after a cut at step {cut}");
            assert!(samples == resumed_samples, "{settings:?}: samples differ, cut at {cut}");
        }
    }
}

#[test]
fn training_learns_and_records_say_what_the_snapshots_do() {
    let data = data();
    let spec = spec(&["method.kind=sghmc", "train.epochs=24", "train.batch=30"], &data);
    let network = spec.network.clone();
    let mut chain = Chain::start(spec).unwrap();
    while !chain.is_done() {
        chain.advance(&data).unwrap();
    }
    let last = chain.snapshots().last().unwrap().clone();
    let record = chain.records().last().unwrap();
    assert!(record.test_accuracy.unwrap() > 0.9, "{record:?}");
    assert_ne!(last.stats, vec![0.0; last.stats.len()]);
    let guesses = classify(&network, &[last], &data.test, &data.augment, None).unwrap();
    let right = guesses[0]
        .chunks(2)
        .zip(data.test.labels())
        .filter(|(p, label)| usize::from(p[1] > p[0]) == **label as usize)
        .count();
    assert_eq!(record.test_accuracy.unwrap(), right as f64 / 60.0);
}

#[test]
fn a_snapshot_keeps_running_statistics_in_its_file() {
    let data = data();
    let spec = spec(&["train.epochs=2"], &data);
    let network = spec.network.clone();
    let (_, samples) = finish(Chain::start(spec).unwrap(), &data);
    let bytes = thinfer::posterior::snapshot_to_bytes(&network, &samples[0]).unwrap();
    let read = thinfer::posterior::snapshot_from_bytes(&network, Path::new("s"), &bytes).unwrap();
    assert_eq!(read, samples[0]);
}
