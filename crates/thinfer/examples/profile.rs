//! Where a training step on a GPU spends its time, kernel by kernel.
//!
//! `cargo run --release -p thinfer --example profile -- resnet18-cifar 128`
#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

use std::collections::BTreeMap;

use thinfer::model::image_network;
use thinfer_engine::Shape;
use thinfer_engine::cuda::{Gpu, PlanOptions, Precision, profile_plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or_else(|| "resnet18-cifar".into());
    let batch = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let large = matches!(&model[..], "resnet18" | "resnet34" | "resnet50");
    let side = if large { 224 } else { 32 };
    let shape = Shape { height: side, width: side, channels: 3 };
    let network = image_network(&model, shape, if large { 1000 } else { 10 })?;
    let options = PlanOptions {
        batch,
        precision: Precision::Bf16,
        deterministic: true,
        training: true,
        hasty: false,
    };
    let steps = profile_plan(&Gpu::open(0)?, &network, options)?;

    let mut kinds = BTreeMap::<&str, (f64, usize)>::new();
    for (name, microseconds) in &steps {
        let kind = kinds.entry(name).or_default();
        *kind = (kind.0 + microseconds, kind.1 + 1);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let total: f64 = steps.iter().map(|step| step.1).sum();
    println!("{model}, batch {batch}: {} steps, {total:.0} µs one by one", steps.len());
    for (name, (microseconds, count)) in kinds {
        println!("{microseconds:9.1} µs {count:4} x {:7.2}  {name}", microseconds / count as f64);
    }
    Ok(())
}
