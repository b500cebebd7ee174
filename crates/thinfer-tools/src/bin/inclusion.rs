//! Inclusion against the exact answer, and its calibration: tables drawn from a spike-and-slab
//! prior, whose subsets are all enumerated. `results/inference/inclusion.md` has what it prints:
//!
//! ```sh
//! cargo run --release -p thinfer-tools --bin inclusion -- results/inference/inclusion.json
//! ```

use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use serde_json::{Value, json};
use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::enumeration::{Simulated, SpikeAndSlab};
use thinfer::evaluate::{Evaluation, evaluate};
use thinfer::experiment::chain_specs;
use thinfer::prune::SLAB;
use thinfer::train::{Chain, Setting, Silent, run_chains};
use thinfer::{Error, Result};

/// Standard deviations of 0.5 and 0.05; neighbouring columns correlate by 0.6.
const PRIOR: SpikeAndSlab = SpikeAndSlab {
    slab_precision: 4.0,
    spike_precision: 400.0,
    slab_probability: None,
    noise: 1.0,
};
const CORRELATION: f64 = 0.6;
const COLUMNS: usize = 10;
const ROWS: usize = 100;
/// Tables whose inclusion is sampled by draws.
const TABLES: u64 = 200;
/// Those of them on which other numbers are looked at besides.
const COMPARED: u64 = 50;
const EPOCHS: usize = 20_000;
const WARM_UP: usize = 500;
const CHAINS: usize = 2;

/// What was found out about one table: a number for each variable, by its name.
struct Found {
    seed: u64,
    in_slab: Vec<bool>,
    exact: Vec<f64>,
    by: Vec<(&'static str, Vec<f64>)>,
    difference: f64,
}

fn config(seed: u64, more: &[&str]) -> Result<Config> {
    let own = [
        format!("prune.warm_up_epochs={}", WARM_UP / 2),
        format!("train.epochs={EPOCHS}"),
        format!("train.samples_per_cycle={}", EPOCHS - WARM_UP),
        format!("chains={CHAINS}"),
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
        "schedule.step_size.value=0.05",
        "schedule.step_size.shape=constant",
        "schedule.eta.value=0.0",
        "train.batch=100",
        "posterior.burn_in=0.0",
    ];
    let all = settings.iter().chain(more).map(|set| (*set).to_owned()).chain(own);
    Config::parse("", &all.collect::<Vec<String>>())
}

fn bundle(config: &Config, simulated: &Simulated) -> Result<Bundle> {
    let data = Bundle::load(&config.data, config.seed)?;
    Ok(Bundle { train: simulated.data.clone(), ..data })
}

fn run(seed: u64, simulated: &Simulated, more: &[&str]) -> Result<(Bundle, Evaluation)> {
    let config = config(seed, more)?;
    let data = bundle(&config, simulated)?;
    let specs = chain_specs(&config, &data)?;
    let network = specs.first().map(|spec| spec.network.clone());
    let network = network.ok_or_else(|| Error::Data("there is no chain".into()))?;
    let stop = AtomicBool::new(false);
    let results = run_chains(specs, &data.train, &Setting::in_memory(&stop, &Silent, 1))?;
    let found = evaluate(&config, &network, &data, &results)?;
    Ok((data, found))
}

/// How many samples read each variable.
fn survival(seed: u64, simulated: &Simulated, more: &[&str]) -> Result<Vec<f64>> {
    let (data, found) = run(seed, simulated, more)?;
    Ok(data.names.iter().map(|name| found.survival.get(name).copied().unwrap_or(0.0)).collect())
}

/// The share of epochs in which the EM step has each variable in the slab, where nothing is pruned.
fn mode(seed: u64, simulated: &Simulated) -> Result<Vec<f64>> {
    let more = ["prior.spike_probability=0.5", "prune.regrow=true", "prune.hard_threshold=1e-9"];
    let config = config(seed, &more)?;
    let data = bundle(&config, simulated)?;
    let mut slab = vec![0.0; COLUMNS];
    for spec in chain_specs(&config, &data)? {
        let mut chain = Chain::start(spec)?;
        while !chain.is_done() {
            chain.advance(&data.train)?;
            if chain.step() > WARM_UP as u64 {
                let marks = chain.arena().marks();
                slab.iter_mut()
                    .zip(marks)
                    .for_each(|(sum, mark)| *sum += f64::from(mark / SLAB % 2));
            }
        }
    }
    let epochs = (CHAINS * (EPOCHS - WARM_UP)) as f64;
    Ok(slab.into_iter().map(|sum| sum / epochs).collect())
}

fn table(seed: u64) -> Result<Found> {
    let simulated = PRIOR.simulate(COLUMNS, ROWS, CORRELATION, seed)?;
    let exact = PRIOR.inclusion(&simulated.data)?;
    let (_, drawn) = run(seed, &simulated, &["prior.assignment=draw"])?;
    let difference = drawn.inclusion_difference.unwrap_or(0.0);
    let values = drawn.inclusion.map_or_else(Vec::new, |found| found.values().to_vec());
    let mut by = vec![("draw", values)];
    if seed <= COMPARED {
        let half = "prior.spike_probability=0.5";
        by.push(("mode", mode(seed, &simulated)?));
        by.push(("DFP survival", survival(seed, &simulated, &[half])?));
        by.push(("DPF survival", survival(seed, &simulated, &[half, "prune.regrow=true"])?));
    }
    Ok(Found { seed, in_slab: simulated.in_slab, exact, by, difference })
}

/// The root mean square distance to the exact probability, over tables that have the number.
fn distance(found: &[Found], of: &str) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for table in found {
        for (_, values) in table.by.iter().filter(|(name, _)| *name == of) {
            sum += values.iter().zip(&table.exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            count += values.len() as f64;
        }
    }
    (sum / count).sqrt()
}

/// Of the variables in each fifth of the probabilities: how many there are, their mean probability,
/// and the share that is real.
fn calibration(found: &[Found], of: &str) -> Vec<(usize, f64, f64)> {
    let mut bins = vec![(0usize, 0.0, 0.0); 5];
    for table in found {
        for (_, values) in table.by.iter().filter(|(name, _)| *name == of) {
            for (p, real) in values.iter().zip(&table.in_slab) {
                let bin = &mut bins[((5.0 * p) as usize).min(4)];
                bin.0 += 1;
                bin.1 += p;
                bin.2 += f64::from(*real);
            }
        }
    }
    let mean = |(count, p, real): (usize, f64, f64)| {
        let n = count.max(1) as f64;
        (count, p / n, real / n)
    };
    bins.into_iter().map(mean).collect()
}

fn main() -> Result<()> {
    let found: Vec<Found> =
        (1..=TABLES).into_par_iter().map(table).collect::<Result<Vec<Found>>>()?;
    let names = ["draw", "mode", "DFP survival", "DPF survival"];
    let mut summary = serde_json::Map::new();
    for of in names {
        let bins: Vec<Value> = calibration(&found, of)
            .into_iter()
            .map(|(count, mean, real)| json!({"variables": count, "mean": mean, "real": real}))
            .collect();
        let compared = &found[..COMPARED as usize];
        let of_first = distance(compared, of);
        summary.insert(of.into(), json!({"rms_first_tables": of_first, "calibration": bins}));
    }
    let worst = found.iter().map(|table| table.difference).fold(0.0, f64::max);
    let tables: Vec<Value> = found
        .iter()
        .map(|table| {
            let by: serde_json::Map<String, Value> =
                table.by.iter().map(|(name, values)| ((*name).to_owned(), json!(values))).collect();
            json!({"seed": table.seed, "in_slab": table.in_slab, "exact": table.exact, "by": by})
        })
        .collect();
    let all = json!({
        "columns": COLUMNS, "rows": ROWS, "correlation": CORRELATION, "epochs": EPOCHS,
        "chains": CHAINS, "slab_sd": 0.5, "spike_sd": 0.05, "noise": 1.0,
        "rms_of_draws": distance(&found, "draw"), "largest_difference_of_chains": worst,
        "first_tables": COMPARED, "summary": summary, "tables": tables,
    });
    let text = serde_json::to_string(&all)
        .map_err(|e| Error::Data(format!("the numbers cannot be written: {e}")))?;
    match std::env::args().nth(1) {
        Some(path) => thinfer::run::write_text(path.as_ref(), &(text + "\n")),
        None => Err(Error::Data("give the path of a file to write".into())),
    }
}
