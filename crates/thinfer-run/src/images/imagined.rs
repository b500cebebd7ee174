//! A run on images that nobody trained, for tests of evaluations and reports.
#![expect(missing_docs, clippy::unwrap_used, reason = "for tests")]

use thinfer_core::model::image_network;
use thinfer_core::posterior::{SampleRule, Snapshot};
use thinfer_core::train::{ChainResult, Record, Trace};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Network, Shape};

use super::{ForeignImages, ImageResults};

/// Classes.
pub const CLASSES: usize = 3;
/// Test images.
pub const IMAGES: usize = 300;

/// A run that never was: two chains of two cycles with two snapshots each, on a small LeNet;
/// the first cycle of chain 0 has a mask of its own.
pub struct Imagined {
    pub network: Network,
    pub classes: Vec<String>,
    pub labels: Vec<u32>,
    pub results: Vec<ChainResult>,
    pub probabilities: Vec<Vec<f64>>,
    pub foreign: Vec<ForeignImages>,
    pub rule: SampleRule,
}

/// The snapshots that are averaged: two of each chain share its final mask.
pub const KEPT: [usize; 4] = [2, 3, 5, 7];

impl Imagined {
    pub fn results(&self) -> ImageResults<'_> {
        ImageResults {
            network: &self.network,
            classes: &self.classes,
            labels: &self.labels,
            results: &self.results,
            probabilities: &self.probabilities,
            train_images: 1000,
            cycles: &[0..10, 10..20],
            rule: &self.rule,
            blown_up: &[],
            foreign: &self.foreign,
        }
    }
}

pub fn imagined() -> Imagined {
    let shape = Shape { height: 16, width: 16, channels: 1 };
    let network = image_network("lenet", shape, CLASSES).unwrap();
    let parameters = network.params().len();
    let labels: Vec<u32> = (0..IMAGES).map(|i| (i % CLASSES) as u32).collect();
    let snapshot = |chain: u32, epoch: usize| {
        let masked = if chain == 0 && epoch < 10 { 10 } else { 3 * parameters / 4 };
        Snapshot {
            chain,
            epoch,
            weights: vec![0.5; parameters],
            keep: (0..parameters).map(|i| u8::from(i >= masked)).collect(),
            stats: Vec::new(),
            inclusion: Vec::new(),
        }
    };
    let record = |epoch: usize| Record {
        epoch,
        loss: 0.5 + 1.0 / (epoch as f64 + 1.0),
        step_size: 0.5 * (1.0 + (std::f64::consts::PI * (epoch % 10) as f64 / 10.0).cos()),
        temperature: 1e-6,
        effective_temperature: Some(0.9e-6),
        batch_temperature: None,
        rows_a_step: None,
        tau_mean: Some(0.5 + 0.005 * epoch as f64),
        tau_sd: Some(0.0),
        spike_share: 0.3 + 0.02 * epoch as f64,
        work: 1.0,
        frozen: 0.0,
        backward: 1.0,
        pruned_share: 0.04 * epoch as f64,
        live_inputs: 1,
        largest_loss: 0.52 + 1.0 / (epoch as f64 + 1.0),
        clipped_steps: 0,
        sparsity: 0.0375 * epoch as f64,
        test_accuracy: Some(0.9 - 0.5 / (epoch as f64 + 1.0)),
        test_nll: Some(0.3 + 0.5 / (epoch as f64 + 1.0)),
        hard_threshold: None,
    };
    let chain = |chain: u32| ChainResult {
        times: Vec::new(),
        chain,
        records: (0..20).map(record).collect(),
        snapshots: [8, 9, 18, 19].map(|epoch| snapshot(chain, epoch)).to_vec(),
        trace: Trace::default(),
        bytes: 0,
        method_bytes: 0,
    };
    // Logits that know the class, and noise that differs from member to member.
    let table = |member: u64, images: usize, signal: f64| -> Vec<f64> {
        let key = Key::new(3, 0, Stream::Sampler);
        let mut table = Vec::with_capacity(images * CLASSES);
        for image in 0..images {
            let hard = key.normal(1000, image) as f64;
            let logit = |class: usize| {
                let at = image * CLASSES + class;
                let own = f64::from(u8::from(class == image % CLASSES));
                (signal + hard) * own + 0.7 * key.normal(member, at) as f64
            };
            let logits: Vec<f64> = (0..CLASSES).map(logit).collect();
            let sum: f64 = logits.iter().map(|z| z.exp()).sum();
            table.extend(logits.iter().map(|z| z.exp() / sum));
        }
        table
    };
    Imagined {
        network,
        classes: ["circle", "square", "<b>star</b>"].map(str::to_owned).to_vec(),
        labels,
        results: vec![chain(0), chain(1)],
        probabilities: (0..8).map(|member| table(member, IMAGES, 2.0)).collect(),
        foreign: vec![ForeignImages {
            name: "letters".into(),
            probabilities: (0..4).map(|member| table(100 + member, 200, 0.0)).collect(),
        }],
        rule: SampleRule::all(),
    }
}
