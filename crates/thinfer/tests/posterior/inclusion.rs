//! Inclusion against the enumeration of all subsets of a linear model.

use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::enumeration::{Simulated, SpikeAndSlab};
use thinfer::evaluate::evaluate;
use thinfer::experiment::chain_specs;
use thinfer::prune::SLAB;
use thinfer::train::{Chain, Setting, Silent, run_chains};

/// Standard deviations of 0.5 and 0.05.
const PRIOR: SpikeAndSlab = SpikeAndSlab {
    slab_precision: 4.0,
    spike_precision: 400.0,
    slab_probability: Some(0.3),
    noise: 1.0,
};
const LEARNED: SpikeAndSlab = SpikeAndSlab { slab_probability: None, ..PRIOR };
const COLUMNS: usize = 10;
const ROWS: usize = 100;
const TABLES: u64 = 4;
const EPOCHS: usize = 10_000;

fn table(prior: &SpikeAndSlab, seed: u64) -> Simulated {
    prior.simulate(COLUMNS, ROWS, 0.6, seed).unwrap()
}

fn run(prior: &SpikeAndSlab, seed: u64, simulated: Simulated, more: &[&str]) -> (Config, Bundle) {
    let probability =
        prior.slab_probability.map(|slab| format!("prior.spike_probability={}", 1.0 - slab));
    let own = [
        format!("train.epochs={EPOCHS}"),
        format!("train.samples_per_cycle={}", EPOCHS - 500),
        format!("seed={seed}"),
    ];
    let settings = [
        "data.columns=10",
        "data.train_rows=100",
        "data.validation_rows=10",
        "data.test_rows=10",
        "model.hidden=[]",
        "method.kind=em-mcmc",
        "method.beta1=0.9",
        "method.clip=none",
        "prior.sd=0.5",
        "prior.spike_sd=0.05",
        "prune.warm_up_epochs=200",
        "schedule.step_size.value=0.05",
        "schedule.step_size.shape=constant",
        "schedule.eta.value=0.0",
        "train.batch=100",
        "posterior.burn_in=0.0",
        "chains=2",
    ];
    let usual = settings.iter().chain(more).map(|set| (*set).to_owned());
    let all = usual.chain(own).chain(probability);
    let config = Config::parse("", &all.collect::<Vec<_>>()).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    (config, Bundle { train: simulated.data, ..data })
}

/// What a configuration with `prior.assignment = "draw"` says.
fn drawn(prior: &SpikeAndSlab, seed: u64) -> Vec<f64> {
    let (config, data) = run(prior, seed, table(prior, seed), &["prior.assignment=draw"]);
    let specs = chain_specs(&config, &data).unwrap();
    let network = specs[0].network.clone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let setting = Setting::in_memory(&stop, &Silent, 2);
    let results = run_chains(specs, &data.train, &setting).unwrap();
    let found = evaluate(&config, &network, &data, &results).unwrap();
    let inclusion = found.inclusion.unwrap();
    let selected = data.names.iter().filter(|name| inclusion.get(name).unwrap() > 0.5);
    assert!(found.selected.iter().eq(selected), "{:?}", found.selected);
    assert!(found.survival.values().all(|share| *share == 1.0), "nothing is pruned");
    inclusion.values().to_vec()
}

/// The share of epochs in which the EM step has a variable in the slab.
fn by_mode(prior: &SpikeAndSlab, seed: u64) -> Vec<f64> {
    let more = ["chains=1", "prune.regrow=true", "prune.hard_threshold=1e-9"];
    let (config, data) = run(prior, seed, table(prior, seed), &more);
    let mut chain = Chain::start(chain_specs(&config, &data).unwrap().swap_remove(0)).unwrap();
    let mut slab = vec![0.0; COLUMNS];
    while !chain.is_done() {
        chain.advance(&data.train).unwrap();
        if chain.step() > 500 {
            let marks = &chain.arena().marks()[..COLUMNS];
            slab.iter_mut()
                .zip(marks)
                .for_each(|(sum, mark)| *sum += f64::from(mark & SLAB) / f64::from(SLAB));
        }
    }
    slab.into_iter().map(|sum| sum / (EPOCHS - 500) as f64).collect()
}

/// The root mean square distance to the enumeration, over variables of several tables.
fn distance(prior: &SpikeAndSlab, found: impl Fn(&SpikeAndSlab, u64) -> Vec<f64>) -> f64 {
    let mut sum = 0.0;
    for seed in 1..=TABLES {
        let want = prior.inclusion(&table(prior, seed).data).unwrap();
        let found = found(prior, seed);
        let squares = found.iter().zip(&want).map(|(found, want)| (found - want).powi(2));
        sum += squares.sum::<f64>();
    }
    (sum / (TABLES as usize * COLUMNS) as f64).sqrt()
}

const TARGET: f64 = 0.03;

#[test]
fn drawn_assignments_give_the_inclusion_of_the_enumeration() {
    for prior in [PRIOR, LEARNED] {
        let distance = distance(&prior, drawn);
        assert!(distance <= TARGET, "{distance} for {prior:?}");
    }
}

/// The check above is one that the mode fails.
#[test]
fn the_mode_of_assignments_is_no_probability() {
    let distance = distance(&PRIOR, by_mode);
    assert!(distance > 1.5 * TARGET, "{distance}");
}
