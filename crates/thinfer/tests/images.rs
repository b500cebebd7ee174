//! Networks with convolutions and batch norm, trained on images held in memory.

use std::path::Path;
use std::sync::Arc;

use thinfer::config::Config;
use thinfer::data::{ImageData, ImageSet, Images};
use thinfer::experiment::chain_specs;
use thinfer::images::classify;
use thinfer::train::{Chain, ChainSpec, Snapshot};
use thinfer_engine::Shape;
use thinfer_engine::augment::Augment;
use thinfer_engine::noise::{Key, Stream};

const SHAPE: Shape = Shape { height: 8, width: 8, channels: 1 };

/// A bright bar that lies (class 0) or stands (class 1) somewhere in noise.
fn bars(seed: u64, rows: usize) -> Images {
    let key = Key::new(seed, 0, Stream::Inputs);
    let mut bytes = Vec::new();
    let labels: Vec<u32> = (0..rows).map(|row| (row % 2) as u32).collect();
    for (row, label) in labels.iter().enumerate() {
        let at = key.below(1, row, 8);
        for pixel in 0..SHAPE.len() {
            let (y, x) = (pixel / 8, pixel % 8);
            let on = if *label == 0 { y == at } else { x == at };
            let noise = key.below(2, row * SHAPE.len() + pixel, 100) as u8;
            bytes.push(if on { 150 + noise } else { noise });
        }
    }
    Images::Held(Arc::new(ImageSet::new(SHAPE, bytes, labels).unwrap()))
}

fn data() -> ImageData {
    ImageData {
        train: bars(1, 90),
        test: bars(2, 60),
        classes: vec!["lies".into(), "stands".into()],
        augment: Augment::new(SHAPE, 1, true, &[0.3], &[0.3]).unwrap(),
        notes: Vec::new(),
        fingerprint: 7,
    }
}

fn spec(settings: &[&str], data: &ImageData) -> ChainSpec {
    let small = [
        "data.kind=shapes",
        "model.name=wrn-10-1",
        "train.batch=40",
        "train.epochs=6",
        "train.samples_per_cycle=1",
        "schedule.step_size.value=0.2",
        "schedule.step_size.cycles=2",
        "prune.warm_up_epochs=1",
        "prune.hard_threshold=0.5",
        "train.trace=[\"conv1:out:0\"]",
    ];
    let overrides: Vec<String> = small.iter().chain(settings).map(|s| (*s).to_owned()).collect();
    chain_specs(&Config::parse("", &overrides).unwrap(), data).unwrap().swap_remove(0)
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
