//! Prints what the CUDA self test finds, and the times of a ResNet-18 and of a WRN-28-10.
//!
//! `cargo run --release -p thinfer-engine --example cuda_check`
#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

use thinfer_engine::cuda::{Gpu, PlanOptions, Precision, probe, profile_plan, selftest, time_plan};
use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, NodeId, Shape, Window};

fn main() -> Result<(), EngineError> {
    let report = probe();
    for library in &report.libraries {
        let found = library.found.as_deref().unwrap_or("nothing");
        println!("{}: {found} (needed {})", library.name, library.needed);
    }
    let gpu = Gpu::open(0)?;
    println!("{} {}", gpu.name(), gpu.arch());
    if std::env::args().nth(1).as_deref() == Some("profile") {
        for (name, network) in [("resnet18", resnet18()?), ("wrn-28-10", wrn(28, 10)?)] {
            let options = PlanOptions {
                batch: 128,
                precision: Precision::Bf16,
                deterministic: false,
                training: true,
            };
            let steps = profile_plan(&gpu, &network, options)?;
            let mut sums = std::collections::BTreeMap::<String, (f64, usize)>::new();
            for (step, us) in &steps {
                let sum = sums.entry(step.clone()).or_default();
                *sum = (sum.0 + us, sum.1 + 1);
            }
            let mut sums: Vec<_> = sums.into_iter().collect();
            sums.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
            let total: f64 = steps.iter().map(|s| s.1).sum();
            println!("{name}: {} steps, {total:.0} us one by one", steps.len());
            for (step, (us, count)) in sums {
                println!("{us:9.1} us {count:4} x {:7.2}  {step}", us / count as f64);
            }
        }
        return Ok(());
    }
    if std::env::args().nth(1).as_deref() != Some("time") {
        let checks = selftest(&gpu)?;
        for c in &checks {
            let mark = if c.passed { "ok  " } else { "FAIL" };
            println!("{mark} {:?} {:.2e} of {:.0e}  {}", c.precision, c.worst, c.limit, c.name);
        }
        let failed = checks.iter().filter(|c| !c.passed).count();
        println!("{} checks, {failed} failed", checks.len());
    }
    for (name, network, batch) in [
        ("resnet18", resnet18()?, 128),
        ("resnet18", resnet18()?, 512),
        ("wrn-28-10", wrn(28, 10)?, 128),
    ] {
        for (precision, deterministic) in
            [(Precision::Bf16, false), (Precision::Bf16, true), (Precision::Tf32, false)]
        {
            let options = PlanOptions { batch, precision, deterministic, training: true };
            let t = time_plan(&gpu, &network, options)?;
            println!(
                "{name} {batch} {precision:?} deterministic {deterministic}: {:.3} ms (forward {:.3} \
                 backward {:.3}), planned in {:.2} s",
                t.both, t.forward, t.backward, t.planning
            );
        }
    }
    Ok(())
}

fn resnet18() -> Result<Network, EngineError> {
    let mut b = NetworkBuilder::image(Shape { height: 32, width: 32, channels: 3 });
    let h = b.conv2d("conv1", b.input(), 64, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let mut h = b.relu(h)?;
    for (stage, channels) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            h = basic(&mut b, &format!("layer{}.{block}", stage + 1), h, channels, stride)?;
        }
    }
    let h = b.global_average_pool(h)?;
    let out = b.linear("fc", h, 10)?;
    b.finish(out, Loss::cross_entropy())
}

fn basic(
    b: &mut NetworkBuilder,
    name: &str,
    from: NodeId,
    channels: usize,
    stride: usize,
) -> Result<NodeId, EngineError> {
    let h = b.conv2d(&format!("{name}.conv1"), from, channels, Window::square(3, stride, 1))?;
    let h = b.batch_norm(&format!("{name}.bn1"), h)?;
    let h = b.relu(h)?;
    let h = b.conv2d(&format!("{name}.conv2"), h, channels, Window::square(3, 1, 1))?;
    let h = b.batch_norm(&format!("{name}.bn2"), h)?;
    let shortcut = if stride == 1 {
        from
    } else {
        let window = Window::square(1, stride, 0);
        let s = b.conv2d(&format!("{name}.downsample.0"), from, channels, window)?;
        b.batch_norm(&format!("{name}.downsample.1"), s)?
    };
    let h = b.add(h, shortcut)?;
    b.relu(h)
}

fn wrn(depth: usize, width: usize) -> Result<Network, EngineError> {
    let mut b = NetworkBuilder::image(Shape { height: 32, width: 32, channels: 3 });
    let mut h = b.conv2d("conv1", b.input(), 16, Window::square(3, 1, 1))?;
    for (stage, channels) in [16 * width, 32 * width, 64 * width].into_iter().enumerate() {
        for block in 0..(depth - 4) / 6 {
            let name = format!("block{}.{block}", stage + 1);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let o = b.batch_norm(&format!("{name}.bn1"), h)?;
            let o = b.relu(o)?;
            let window = Window::square(3, stride, 1);
            let c = b.conv2d(&format!("{name}.conv1"), o, channels, window)?;
            let c = b.batch_norm(&format!("{name}.bn2"), c)?;
            let c = b.relu(c)?;
            let c = b.conv2d(&format!("{name}.conv2"), c, channels, Window::square(3, 1, 1))?;
            let shortcut = if block == 0 {
                b.conv2d(&format!("{name}.shortcut"), o, channels, Window::square(1, stride, 0))?
            } else {
                h
            };
            h = b.add(c, shortcut)?;
        }
    }
    let h = b.batch_norm("bn", h)?;
    let h = b.relu(h)?;
    let h = b.global_average_pool(h)?;
    let out = b.linear("fc", h, 10)?;
    b.finish(out, Loss::cross_entropy())
}
