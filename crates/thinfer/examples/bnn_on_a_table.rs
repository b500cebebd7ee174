//! Trains a Bayesian neural network on a table and says how good it is.
//!
//! ```sh
//! cargo run --release -p thinfer --example bnn_on_a_table -- TABLE.csv TARGET
//! ```
//!
//! Without arguments it simulates a table.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::sync::atomic::AtomicBool;

use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::evaluate::evaluate;
use thinfer::experiment::chain_specs;
use thinfer::train::{Setting, Silent, run_chains};

fn main() -> thinfer::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let data = match &arguments[..] {
        [path, target] => vec![
            "data.kind=table".to_owned(),
            format!("data.path={path}"),
            format!("data.target={target}"),
        ],
        _ => ["data.kind=friedman", "data.columns=10", "data.train_rows=1000"]
            .map(str::to_owned)
            .to_vec(),
    };
    // Algorithm 2: all weights stay, and the noise of the target is learned.
    let settings = [
        "method.kind=sghmc",
        "method.beta1=0.9",
        "model.hidden=[32]",
        "model.activation=tanh",
        "model.noise=learned",
        "schedule.step_size.value=0.02",
        "schedule.step_size.cycles=10",
        "schedule.temperature.value=1/sqrt(N)",
        "train.epochs=2000",
        "train.batch=100",
        "train.samples_per_cycle=5",
        "chains=2",
    ];
    let all: Vec<String> = data.into_iter().chain(settings.map(str::to_owned)).collect();
    let config = Config::parse("", &all)?;
    let data = Bundle::load(&config.data, config.seed)?;
    let specs = chain_specs(&config, &data)?;
    let network = specs[0].network.clone();
    let stop = AtomicBool::new(false);
    let results = run_chains(specs, &data.train, &Setting::in_memory(&stop, &Silent, 0))?;

    let found = evaluate(&config, &network, &data, &results)?;
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
    println!("{:<24}{:>10}{:>10}{:>10}", "test rows", "MSE", "accuracy", "NLL");
    for (name, scores) in [
        ("posterior", &found.posterior),
        ("last sample", &found.last),
        ("constant", &found.baseline),
    ] {
        let [mse, accuracy, nll] = [scores.mse, scores.accuracy, scores.nll].map(number);
        println!("{name:<24}{mse:>10}{accuracy:>10}{nll:>10}");
    }
    if let Some(agreement) = &found.convergence.predictions {
        let r_hat = agreement.r_hat;
        println!("R-hat of predictions {r_hat:.2}; above 1.1 the chains have not converged");
    }
    Ok(())
}
