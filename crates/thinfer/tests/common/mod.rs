//! Small pictures for tests of whole image runs.

use std::sync::Arc;

use thinfer::config::Config;
use thinfer::data::{ImageData, ImageSet, Images};
use thinfer::experiment::chain_specs;
use thinfer::train::ChainSpec;
use thinfer_engine::Shape;
use thinfer_engine::augment::Augment;
use thinfer_engine::noise::{Key, Stream};

pub(crate) const SHAPE: Shape = Shape { height: 8, width: 8, channels: 1 };

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

/// Some of them to train and to test on, mirrored at random and cropped with `padding` pixels.
pub(crate) fn data([train, test]: [usize; 2], padding: usize) -> ImageData {
    ImageData {
        train: bars(1, train),
        test: bars(2, test),
        classes: vec!["lies".into(), "stands".into()],
        augment: Augment::new(SHAPE, padding, true, &[0.3], &[0.3]).unwrap(),
        notes: Vec::new(),
        unreadable: thinfer::data::images::Broken::default(),
        fingerprint: 7,
    }
}

/// A chain on a small network with these settings.
pub(crate) fn spec(settings: &[&str], more: &[&str], data: &ImageData) -> ChainSpec {
    let all = ["data.kind=shapes", "model.name=wrn-10-1", "train.batch=40"];
    let all: Vec<String> =
        all.iter().chain(settings).chain(more).map(|s| (*s).to_owned()).collect();
    chain_specs(&Config::parse("", &all).unwrap(), data).unwrap().swap_remove(0)
}
