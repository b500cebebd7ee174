//! Evaluations of small runs on tables.

use thinfer_core::model::mlp;
use thinfer_engine::Loss;

use super::*;
use crate::config::Activation;

/// Kept weights that lead nowhere are cut; of a unit that stays, masked ones stay as zeros.
#[test]
fn the_size_of_a_table_network_is_that_of_the_file() {
    let network = mlp(6, &[4], Activation::Tanh, 1, Loss::gaussian(1.0)).unwrap();
    let mut keep = vec![1; network.params().len()];
    let of = |name: &str| network.params().find(name).unwrap().range();
    // Nothing reads unit 1, though its own weights are kept; unit 2 reads a single input.
    keep[of("fc2.weight").start + 1] = 0;
    keep[of("fc1.weight").start + 2 * 6 + 1..][..5].fill(0);
    for unit in 0..4 {
        keep[of("fc1.weight").start + unit * 6 + 5] = 0;
    }
    let sample = Snapshot {
        chain: 0,
        epoch: 0,
        weights: Vec::new(),
        keep,
        stats: Vec::new(),
        inclusion: Vec::new(),
    };
    let found = size(&network, std::slice::from_ref(&sample), &[]).unwrap();
    // Three units of five inputs with their biases and outputs, and the last bias.
    assert_eq!((found.parameters, found.kept), (33, (3 * (5 + 2) + 1) as f64));
    assert_eq!(found.multiply_adds, (28, 18.0));
    assert_eq!((found.inputs, found.units), ((6, 5.0), (4, 3.0)));
    let small = shrink(&network, &sample.keep, Layout::SMALLEST).unwrap();
    assert_eq!(found.kept, small.network.params().len() as f64);
    assert_eq!(found.sparsity, Sparsity::of_counts(1 + 5 + 3, 33));
}

/// A network of five inputs, its data, and a chain with the columns that each of its samples reads.
struct Small {
    config: Config,
    data: Bundle,
    network: Network,
}

impl Small {
    fn new() -> Self {
        let settings = [
            "data.columns=5",
            "data.train_rows=20",
            "data.test_rows=10",
            "posterior.burn_in=0.0",
            "posterior.thin=1",
        ];
        let config = Config::parse("", &settings.map(str::to_owned)).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let network = mlp(5, &[2], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        Self { config, data, network }
    }

    fn chain(&self, chain: u32, weight: f32, samples: &[&[usize]]) -> ChainResult {
        let first = self.network.params().find("fc1.weight").unwrap().range();
        let sample = |(at, columns): (usize, &&[usize])| {
            let keep: Vec<u8> = (0..self.network.params().len())
                .map(|at| u8::from(!first.contains(&at) || columns.contains(&(at % 5))))
                .collect();
            let weights = keep.iter().map(|k| weight * f32::from(*k)).collect();
            Snapshot {
                chain,
                epoch: 8 + at,
                weights,
                keep,
                stats: Vec::new(),
                inclusion: Vec::new(),
            }
        };
        ChainResult {
            chain,
            records: crate::images::imagined::imagined().results[0].records.clone(),
            snapshots: samples.iter().enumerate().map(sample).collect(),
            times: Vec::new(),
            trace: thinfer_core::train::Trace::default(),
            bytes: 0,
            method_bytes: 0,
        }
    }

    fn evaluate(&self, results: &[ChainResult]) -> Result<Evaluation> {
        evaluate(&self.config, &self.network, &self.data, results)
    }
}

/// Survival is counted over all samples of all chains, selection over the last of each chain, and
/// the prediction is of as many samples of each chain that share its last mask.
#[test]
fn survival_counts_samples_and_selection_chains() {
    let small = Small::new();
    let found = small
        .evaluate(&[
            small.chain(0, 0.1, &[&[0, 1, 2, 3, 4], &[0, 1]]),
            small.chain(1, 0.1, &[&[0, 2], &[0, 2]]),
        ])
        .unwrap();
    let shares: Vec<f64> = small.data.names.iter().map(|name| found.survival[name]).collect();
    assert_eq!(shares, [1.0, 0.5, 0.75, 0.25, 0.25]);
    assert_eq!(found.selected, small.data.names[..1]);
    let selection = found.selection.unwrap();
    assert_eq!((selection.fdr, selection.fndr), (0.0, 0.8));
    assert_eq!((found.posterior.members, found.all_samples.members), (2, 4));
}

/// Three samples of one chain would outweigh the one of the other; as many of each are averaged.
#[test]
fn chains_weigh_equally() {
    let small = Small::new();
    let few = small.chain(0, 0.1, &[&[0, 1], &[0]]);
    let many = small.chain(1, 0.3, &[&[0], &[0], &[0]]);
    let alone = |results: &[ChainResult]| {
        let members = results.iter().filter_map(|r| r.snapshots.last().cloned()).collect();
        let last = Posterior { network: small.network.clone(), members };
        last.predict(&small.data.test).unwrap().mean()
    };
    let results = [few, many];
    let members = results.iter().flat_map(|r| r.snapshots.clone()).collect();
    let all = Posterior { network: small.network.clone(), members };
    let kept = all.kept(&small.config.sample_rule());
    assert_eq!(kept.predict(&small.data.test).unwrap().mean(), alone(&results));
}

#[test]
fn a_chain_that_blew_up_is_left_out_and_named() {
    let small = Small::new();
    let fine = small.chain(0, 0.1, &[&[0], &[0]]);
    let mut lost = small.chain(1, 1e20, &[&[0], &[0]]);
    lost.records.iter_mut().for_each(|record| record.loss = 1e9);
    let found = small.evaluate(&[fine.clone(), lost.clone()]).unwrap();
    assert_eq!(found.blown_up, [1]);
    let alone = small.evaluate(&[fine]).unwrap();
    assert!(alone.blown_up.is_empty());
    for (with, without) in [
        (&found.posterior, &alone.posterior),
        (&found.all_samples, &alone.all_samples),
        (&found.last, &alone.last),
    ] {
        assert_eq!(with, without);
    }
    let error = small.evaluate(&[lost]).unwrap_err().to_string();
    assert!(error.contains("the chain blew up") && error.contains("step_size"), "{error}");
}
