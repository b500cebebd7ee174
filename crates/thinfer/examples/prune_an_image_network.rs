//! Trains LeNet-5 on generated figures, prunes most of it on the way, cuts out what is dead and
//! proves that the smaller network is the same function.
//!
//! ```sh
//! cargo run --release -p thinfer --example prune_an_image_network
//! ```
#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

use std::sync::atomic::AtomicBool;

use thinfer::classify::classify;
use thinfer::config::Config;
use thinfer::data::ImageData;
use thinfer::experiment::chain_specs;
use thinfer::posterior::Posterior;
use thinfer::shrink::{Layout, image_size, prove, shrink_posterior};
use thinfer::train::{Setting, Silent, run_chains};

fn main() -> thinfer::Result<()> {
    let settings = [
        "data.kind=shapes",
        "data.train_rows=2000",
        "data.test_rows=500",
        "model.name=lenet",
        "method.beta1=0.5",
        "method.clip=5",
        "prior.weight_decay=1e-4",
        "prior.soft_threshold=3e-4",
        "prune.target=0.7",
        "prune.warm_up_epochs=5",
        "prune.freeze_after_cycles=1",
        "schedule.step_size.value=0.1",
        "schedule.step_size.cycles=2",
        "train.epochs=30",
        "train.batch=32",
    ];
    let config = Config::parse("", &settings.map(str::to_owned))?;
    let data = ImageData::load(&config.data, config.seed)?;
    let specs = chain_specs(&config, &data)?;
    let network = specs[0].network.clone();
    let stop = AtomicBool::new(false);
    let results = run_chains(specs, &data, &Setting::in_memory(&stop, &Silent, 0))?;
    let last = &results[0].snapshots[results[0].snapshots.len() - 1];

    let size = image_size(&network, &last.keep)?;
    println!("{} of {} parameters left", size.kept, size.parameters);
    let work = size.multiply_adds;
    println!("{} of {} multiply-adds an image in the smaller network", work.channels, work.whole);

    // The same samples in a smaller network, and the proof that they say the same.
    let posterior = Posterior { network: network.clone(), members: vec![last.clone()] };
    let proof = prove(&posterior, None)?;
    println!("largest difference on random images {:.1e}", proof.largest_difference);
    let (small, _) = shrink_posterior(&posterior, Layout::SMALLEST)?;
    println!("{} numbers to store instead of {}", small.network.params().len(), size.parameters);

    let probabilities = classify(&network, [last], &data.test, &data.augment, None)?;
    let classes = data.classes.len();
    let right =
        probabilities[0].chunks_exact(classes).zip(data.test.labels()).filter(|(p, label)| {
            let best = p.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.is_some_and(|(class, _)| class == **label as usize)
        });
    println!(
        "{:.1} % of test images right",
        100.0 * right.count() as f64 / data.test.rows() as f64
    );
    Ok(())
}
