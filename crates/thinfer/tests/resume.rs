//! A run that stops anywhere and starts again must not be able to tell.

use std::path::Path;

use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::experiment::chain_specs;
use thinfer::posterior::Snapshot;
use thinfer::train::{Chain, ChainSpec};

fn spec(settings: &[&str]) -> (ChainSpec, Bundle) {
    let thresholds = ["prune.hard_threshold=0.03", "prior.soft_threshold=0.05"];
    let draws = settings.contains(&"prior.assignment=draw");
    let small = [
        "data.columns=12",
        "data.train_rows=90",
        "data.validation_rows=10",
        "data.test_rows=10",
        "train.batch=40",
        "train.epochs=8",
        "train.samples_per_cycle=2",
        "schedule.step_size.cycles=2",
        "schedule.eta.value=50.0",
        "prune.warm_up_epochs=1",
        "prior.spike_decay=0.5",
    ];
    let thresholds = if draws { &[][..] } else { &thresholds[..] };
    let all = small.iter().chain(thresholds).chain(settings);
    let overrides: Vec<String> = all.map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &overrides).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    (chain_specs(&config, &data).unwrap().swap_remove(0), data)
}

fn to_the_end(mut chain: Chain, data: &Bundle) -> Chain {
    while !chain.is_done() {
        chain.advance(&data.train).unwrap();
    }
    chain
}

fn finish(chain: Chain, data: &Bundle) -> (Vec<u8>, Vec<Snapshot>) {
    let chain = to_the_end(chain, data);
    (chain.to_bytes().unwrap(), chain.snapshots().to_vec())
}

/// Cuts at every step; weights, state, masks, history and samples must have the same bits.
fn assert_resumes(settings: &[&str]) {
    let (spec, data) = spec(settings);
    let (whole, samples) = finish(Chain::start(spec.clone()).unwrap(), &data);
    assert_eq!(samples.len(), 4);
    for cut in 0..spec.clock.total_steps() {
        let mut chain = Chain::start(spec.clone()).unwrap();
        while chain.step() < cut {
            chain.advance(&data.train).unwrap();
        }
        let bytes = chain.to_bytes().unwrap();
        let so_far = chain.snapshots().to_vec();
        let again = Chain::from_bytes(spec.clone(), Path::new("memory"), &bytes, |listed| {
            assert_eq!(listed.len(), so_far.len());
            Ok(so_far)
        })
        .unwrap();
        let (resumed, resumed_samples) = finish(again, &data);
        assert!(whole == resumed, "{settings:?}: state differs after a cut at step {cut}");
        assert!(samples == resumed_samples, "{settings:?}: samples differ, cut at step {cut}");
    }
}

#[test]
fn dfp_resumes_to_the_same_bits() {
    assert_resumes(&["prune.regrow=false"]);
    assert_resumes(&["prune.regrow=false", "prune.cadence=step"]);
    assert_resumes(&["prune.regrow=false", "prune.shrink=always"]);
}

const FREEZE: [&str; 4] = [
    "schedule.step_size.cycles=4",
    "train.samples_per_cycle=1",
    "train.freeze_below=0.2",
    "train.freeze_layer_share=0.5",
];

#[test]
fn a_run_that_freezes_resumes_to_the_same_bits() {
    for more in [
        &["prune.shrink=never"][..],
        &["prune.shrink=always"],
        &["prune.regrow=true", "prune.freeze_after_epochs=4", "prune.shrink=always"],
        &["method.kind=sghmc", "method.clip=0.5"],
        // Wide enough for the kernels that read rows in place.
        &["data.columns=70"],
    ] {
        let settings = [&FREEZE[..], more].concat();
        assert_resumes(&settings);
        let (spec, data) = spec(&settings);
        let chain = to_the_end(Chain::start(spec).unwrap(), &data);
        let last = chain.records().last().unwrap();
        assert!(last.frozen > 0.0 && last.backward < 1.0, "{more:?}: {last:?}");
        assert!(chain.records()[3].frozen == 0.0, "the first two cycles train everything");
    }
}

#[test]
fn dpf_resumes_to_the_same_bits() {
    assert_resumes(&["prune.regrow=true"]);
    assert_resumes(&["prune.regrow=true", "prune.freeze_after_epochs=4"]);
    assert_resumes(&["prune.regrow=true", "prune.freeze_after_epochs=4", "prune.shrink=always"]);
    // Wide enough for the kernels that read rows in place.
    assert_resumes(&["prune.regrow=true", "data.columns=70", "prune.hard_threshold=0.2"]);
}

#[test]
fn presets_resume_to_the_same_bits() {
    assert_resumes(&["preset=paper"]);
    assert_resumes(&["preset=reference-code"]);
}

#[test]
fn algorithm_2_resumes_to_the_same_bits() {
    assert_resumes(&["method.kind=sghmc", "method.clip=0.5"]);
    assert_resumes(&["method.kind=sghmc", "model.noise=learned", "method.noise=paper"]);
}

/// A line without noise, whose learned standard deviation falls until losses are negative.
#[test]
fn negative_losses_resume_to_the_same_bits_and_are_told_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("line.csv");
    let rows: Vec<String> = (0..60).map(|row| format!("{row},{}", 3 * row)).collect();
    std::fs::write(&path, format!("x,y\n{}\n", rows.join("\n"))).unwrap();
    let data = format!("data.path={}", path.display());
    let settings = [
        "data.kind=table",
        &data,
        "data.target=y",
        "model.hidden=[]",
        "model.noise=learned",
        "method.kind=sgd",
        "schedule.step_size.value=0.01",
        "schedule.step_size.shape=constant",
        "train.samples_per_cycle=4",
        "train.epochs=40",
        "train.record_every_epochs=5",
    ];
    assert_resumes(&settings);
    let (spec, data) = spec(&settings);
    let chain = to_the_end(Chain::start(spec).unwrap(), &data);
    let last = chain.records().last().unwrap();
    assert!(last.loss < 0.0, "the test needs negative losses: {}", last.loss);
    assert!(last.loss <= last.largest_loss && last.largest_loss < 0.0, "{last:?}");
}

#[test]
fn algorithm_1_resumes_to_the_same_bits() {
    assert_resumes(&["method.kind=cv-adam"]);
    assert_resumes(&["method.kind=cv-adam", "method.alpha=0.05"]);
    assert_resumes(&["method.kind=ivon", "method.curvature_memory=0.9"]);
}

/// The warm-up is 4 epochs, so that the cuts lie in all of its phases.
#[test]
fn walkers_resume_to_the_same_bits() {
    let walks = ["schedule.step_size.cycles=1", "train.samples_per_cycle=4", "train.stages=1"];
    let mclmc = ["method.kind=mclmc", "method.moves=3"];
    assert_resumes(&[&walks[..], &mclmc].concat());
    let stages = ["train.samples_per_cycle=2", "train.stages=2"];
    assert_resumes(&[&walks[..], &mclmc, &stages].concat());
    assert_resumes(&[&walks[..], &["method.kind=nuts", "method.most_doublings=3"]].concat());
    let smile = ["method.kind=smile", "train.batch=7"];
    assert_resumes(&[&walks[..], &smile].concat());
}

#[test]
fn draws_resume_to_the_same_bits() {
    let draws = [
        "prior.assignment=draw",
        "prior.spike_decay=0.05",
        "prior.weight_decay=0.01",
        "schedule.step_size.shape=cyclical",
    ];
    for more in [
        &["prune.cadence=epoch"][..],
        &["prune.cadence=step"],
        &["prior.spike_probability=0.5", "prior.learn_probability=true", "prior.group=weight"],
        &["prior.spike_probability=0.3", "model.hidden=[]"],
    ] {
        let settings = [&draws[..], more].concat();
        assert_resumes(&settings);
        let (spec, data) = spec(&settings);
        let (_, samples) = finish(Chain::start(spec).unwrap(), &data);
        let by_input = !more.contains(&"prior.group=weight");
        let carried = samples.iter().map(|sample| sample.inclusion.len());
        assert!(carried.eq([if by_input { 12 } else { 0 }; 4]), "{more:?}");
    }
}

#[test]
fn sgd_resumes_to_the_same_bits() {
    assert_resumes(&["method.kind=sgd"]);
}

#[test]
fn cyclical_samplers_resume_to_the_same_bits() {
    assert_resumes(&["method.kind=csgld", "method.sampling_epochs=2"]);
    assert_resumes(&["method.kind=csghmc", "method.clip=0.5"]);
}

/// What was seen of mini-batch noise decides how many rows a step reads: cuts lie before and after
/// the batch grew, and inside epochs.
#[test]
fn measured_batch_noise_resumes_to_the_same_bits() {
    let account = ["method.batch_noise=account", "train.batch=7", "schedule.step_size.value=0.1"];
    for kind in [
        &["method.kind=sghmc", "method.beta1=0.8"][..],
        &["method.kind=csghmc", "method.clip=0.5", "method.beta1=0.8"],
        &["method.kind=csgld", "method.sampling_epochs=2"],
    ] {
        let settings = [&account[..], kind].concat();
        assert_resumes(&settings);
        let (spec, data) = spec(&settings);
        let chain = to_the_end(Chain::start(spec).unwrap(), &data);
        let rows: Vec<f64> = chain.records().iter().filter_map(|r| r.rows_a_step).collect();
        let grew = rows.iter().any(|rows| *rows > 14.0);
        assert!(grew && rows.len() > 3, "{kind:?}: {rows:?}");
    }
}

#[test]
fn sparse_methods_resume_to_the_same_bits() {
    let sparse = ["prune.target=0.6", "train.samples_per_cycle=2", "prune.rate=0.3"];
    for kind in ["method.kind=dpf-lin", "method.kind=sm", "method.kind=dsr"] {
        assert_resumes(&[&[kind], &sparse[..]].concat());
    }
}

#[test]
fn schedules_resume_to_the_same_bits() {
    assert_resumes(&[
        "schedule.temperature.warm_up_epochs=3",
        "schedule.eta.shape=steps",
        "schedule.eta.at_epochs=[2, 5]",
        "schedule.weight_decay.shape=cyclical",
        "schedule.weight_decay.cycles=2",
    ]);
}

#[test]
fn the_runs_above_prune_and_differ_between_presets() {
    let run = |settings: &[&str]| {
        let (spec, data) = spec(settings);
        finish(Chain::start(spec).unwrap(), &data)
    };
    let (exact, samples) = run(&[]);
    assert!(samples[3].keep.contains(&0), "the resume tests must cross a pruning step");
    let (spec, data) = spec(&["prune.shrink=always"]);
    let chain = to_the_end(Chain::start(spec).unwrap(), &data);
    let work: Vec<f64> = chain.records().iter().map(|r| r.work).collect();
    assert!(work[0] == 1.0 && work[7] < 0.9, "the resume tests must cross a cut: {work:?}");
    let (paper, _) = run(&["preset=paper"]);
    let (code, _) = run(&["preset=reference-code"]);
    assert!(exact != paper && exact != code && paper != code);
}

#[test]
fn a_checkpoint_of_another_configuration_is_refused() {
    let (spec, _) = spec(&[]);
    let bytes = Chain::start(spec.clone()).unwrap().to_bytes().unwrap();
    let other = ChainSpec { fingerprint: spec.fingerprint ^ 1, ..spec };
    let error = Chain::from_bytes(other, Path::new("c"), &bytes, |_| Ok(Vec::new()));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("another configuration"), "{error}");
}

/// Chains do not share anything, so running them side by side changes no bit, whatever the number
/// of threads.
#[test]
fn threads_do_not_change_results() {
    use std::sync::atomic::AtomicBool;
    use thinfer::train::{Setting, Silent, run_chains};
    let overrides: Vec<String> = [
        "data.columns=30",
        "data.train_rows=500",
        "train.epochs=6",
        "train.batch=200",
        "chains=3",
        "schedule.step_size.cycles=2",
    ]
    .map(str::to_owned)
    .to_vec();
    let config = Config::parse("", &overrides).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let stop = AtomicBool::new(false);
    let run = |threads: usize| {
        let setting = Setting::in_memory(&stop, &Silent, threads);
        let specs = chain_specs(&config, &data).unwrap();
        let results = run_chains(specs, &data.train, &setting).unwrap();
        results.into_iter().map(|r| r.snapshots).collect::<Vec<_>>()
    };
    let one = run(1);
    assert_ne!(one[0][0].weights, one[1][0].weights, "chains are different chains");
    for threads in [2, 3, 8] {
        assert_eq!(one, run(threads), "{threads} threads");
    }
}

/// A run in stages ends after the stage whose samples are enough, with the bits that a longer run
/// has there, and a run that was cut anywhere asks again and ends at the same place.
#[test]
fn a_run_in_stages_ends_where_its_samples_are_enough() {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;
    use thinfer::train::{Setting, Silent, run_chains};

    let overrides = [
        "data.columns=6",
        "data.train_rows=60",
        "data.validation_rows=10",
        "data.test_rows=10",
        "method.kind=mclmc",
        "method.moves=2",
        "chains=3",
        "train.epochs=38",
        "train.samples_per_cycle=4",
        "train.stages=4",
    ]
    .map(str::to_owned);
    let config = Config::parse("", &overrides).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let specs = || chain_specs(&config, &data).unwrap();
    // 6 epochs of warm-up, and 4, 8, 16 and 32 of samples.
    assert_eq!(specs()[0].stage_ends, [10, 14, 22, 38]);
    let never = AtomicBool::new(false);
    let whole = run_chains(specs(), &data.train, &Setting::in_memory(&never, &Silent, 2)).unwrap();
    assert_eq!(whole[0].snapshots.len(), 16);

    let asked = Mutex::new(Vec::new());
    let enough = |samples: &[&[Snapshot]]| {
        let counts: Vec<usize> = samples.iter().map(|chain| chain.len()).collect();
        assert_eq!(counts, [counts[0]; 3], "all chains are at the same place");
        asked.lock().unwrap().push(counts[0]);
        Ok(counts[0] == 12)
    };
    let setting = Setting { enough: Some(&enough), ..Setting::in_memory(&never, &Silent, 2) };
    let short = run_chains(specs(), &data.train, &setting).unwrap();
    assert_eq!(*asked.lock().unwrap(), [4, 8, 12]);
    for (short, whole) in short.iter().zip(&whole) {
        assert_eq!(short.snapshots, whole.snapshots[..12]);
    }

    // Stopped where it was asked for the first time, then one question later each time.
    let folder = tempfile::tempdir().unwrap();
    let mut rounds = 0;
    let resumed = loop {
        let stop = AtomicBool::new(false);
        let left = AtomicUsize::new(rounds + 1);
        let enough = |samples: &[&[Snapshot]]| {
            stop.store(left.fetch_sub(1, Ordering::Relaxed) == 1, Ordering::Relaxed);
            Ok(samples[0].len() == 12)
        };
        let setting = Setting {
            folder: Some(folder.path()),
            resume: rounds > 0,
            checkpoint_every: Duration::MAX,
            enough: Some(&enough),
            ..Setting::in_memory(&stop, &Silent, 2)
        };
        match run_chains(specs(), &data.train, &setting) {
            Ok(resumed) => break resumed,
            Err(thinfer::Error::Interrupted(_)) => rounds += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(rounds, 2, "it was stopped after the first stage and after the second");
    for (resumed, whole) in resumed.iter().zip(&whole) {
        assert_eq!(resumed.snapshots, whole.snapshots[..12]);
    }
}
