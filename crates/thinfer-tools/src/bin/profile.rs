//! Where a training step on a GPU spends its time, kernel by kernel; and, with a snapshot of a
//! pruned run, that of the smaller network in several layouts.
//!
//! `cargo run --release -p thinfer-tools --bin profile -- resnet18-cifar 128 [SNAPSHOT]`
#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use thinfer::model::image_network;
use thinfer::posterior::snapshot_from_bytes;
use thinfer::shrink::{Layout, shrink};
use thinfer_engine::cuda::{Gpu, PlanOptions, Precision, profile_plan};
use thinfer_engine::{Network, Op, Shape};

type Failure = Box<dyn std::error::Error>;

const LAYOUTS: &[(usize, bool)] = &[(8, true), (16, true)];

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or_else(|| "resnet18-cifar".into());
    let batch = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let large = matches!(&model[..], "resnet18" | "resnet34" | "resnet50");
    let side = if large { 224 } else { 32 };
    let shape = Shape { height: side, width: side, channels: 3 };
    let network = image_network(&model, shape, if large { 1000 } else { 10 })?;
    let gpu = Gpu::open(0);
    let profile = |name: &str, network: &Network, hasty: bool| -> Result<(), Failure> {
        let options = PlanOptions {
            batch,
            precision: Precision::Bf16,
            deterministic: true,
            training: true,
            hasty,
        };
        let lists =
            |node: &thinfer_engine::Node| matches!(node.op, Op::Select { .. } | Op::Spread { .. });
        let lists = network.nodes().iter().filter(|node| lists(node)).count();
        println!("{name}: {} multiply-adds, {lists} lists", network.multiply_adds());
        let Ok(gpu) = &gpu else { return Ok(()) };
        let started = Instant::now();
        let (whole, steps) = profile_plan(gpu, network, options)?;
        let seconds = started.elapsed().as_secs_f64();
        let total: f64 = steps.iter().map(|step| step.1).sum();
        println!(
            "  {whole:.3} ms a step, {} parts, {total:.0} µs one by one, ready in {seconds:.1} s",
            steps.len()
        );
        let mut kinds = BTreeMap::<&str, (f64, usize)>::new();
        for (name, microseconds) in &steps {
            let kind = kinds.entry(name).or_default();
            *kind = (kind.0 + microseconds, kind.1 + 1);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
        for (name, (microseconds, count)) in kinds {
            let each = microseconds / count as f64;
            println!("  {microseconds:9.1} µs {count:4} x {each:7.2}  {name}");
        }
        Ok(())
    };
    profile(&format!("{model}, batch {batch}"), &network, false)?;
    if let Some(path) = arguments.next() {
        let sample = snapshot_from_bytes(&network, Path::new(&path), &std::fs::read(&path)?)?;
        for (multiple, grows) in LAYOUTS.iter().copied() {
            let layout = Layout { multiple, list_at_most: 0.0, grows };
            let small = shrink(&network, &sample.keep, layout)?.network;
            for hasty in [false, true] {
                let name =
                    format!("multiples of {multiple}, streams that grow {grows}, hasty {hasty}");
                profile(&name, &small, hasty)?;
            }
        }
    }
    Ok(())
}
