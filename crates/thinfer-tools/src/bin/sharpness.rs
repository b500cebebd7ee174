//! Largest curvature of the loss at the end of each cycle, against what the next cycle's first
//! step can bear. `results/example2-restarts/` has a table of the kind that this prints:
//!
//! ```sh
//! cargo run --release -p thinfer-tools --bin sharpness -- preset=reference-code data.kind=example2 \
//!     'model.hidden=[6, 4, 3]' prior.weight_decay=5e-4 train.epochs=3000 schedule.step_size.cycles=3
//! ```

use std::io::Write;

use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::experiment::chain_specs;
use thinfer::prune::KEEP;
use thinfer::train::Chain;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, Network, Plan};

/// The largest eigenvalue of the Hessian over live weights, by power iterations on differences of
/// gradients.
fn largest_curvature(
    network: &Network,
    weights: &[f32],
    marks: &[u8],
    data: &Dataset,
) -> thinfer::Result<f64> {
    let rows: Vec<u32> = (0..data.rows() as u32).collect();
    let mut plan = Plan::new(network, rows.len())?;
    let n = weights.len();
    let mut direction = vec![0.0f32; n];
    Key::new(1, 0, Stream::Initial).normals(0, 0, &mut direction);
    let (mut above, mut below) = (vec![0.0f32; n], vec![0.0f32; n]);
    let (mut value, step) = (0.0, 1e-3);
    for _ in 0..25 {
        for (d, mark) in direction.iter_mut().zip(marks) {
            *d = if mark & KEEP == 0 { 0.0 } else { *d };
        }
        let norm = direction.iter().map(|d| f64::from(*d).powi(2)).sum::<f64>().sqrt();
        let scale = (step / norm) as f32;
        let at = |sign: f32| -> Vec<f32> {
            weights.iter().zip(&direction).map(|(w, d)| w + sign * scale * d).collect()
        };
        plan.gradient_at(&at(1.0), &mut [], data, &rows, &mut above)?;
        plan.gradient_at(&at(-1.0), &mut [], data, &rows, &mut below)?;
        for i in 0..n {
            direction[i] = (above[i] - below[i]) / (2.0 * step as f32);
        }
        let live = direction.iter().zip(marks).filter(|(_, mark)| **mark & KEEP != 0);
        value = live.map(|(d, _)| f64::from(*d).powi(2)).sum::<f64>().sqrt();
    }
    Ok(value)
}

fn main() -> thinfer::Result<()> {
    let mut settings: Vec<String> = std::env::args().skip(1).collect();
    settings.push("train.record_every_epochs=1".into());
    let config = Config::parse("", &settings)?;
    let data = Bundle::load(&config.data, config.seed)?;
    let spec = chain_specs(&config, &data)?.swap_remove(0);
    let (network, clock) = (spec.network.clone(), spec.clock);
    let cycle = clock.epochs / config.schedule.step_size.cycles.max(1);
    let top = config.schedule.step_size.schedule(data.train_rows).value;
    let mut chain = Chain::start(spec)?;
    let mut out = std::io::stdout().lock();
    while !chain.is_done() {
        chain.advance(&data.train)?;
        let epoch = clock.epoch(chain.step() - 1);
        let Some(record) = chain.records().last().filter(|_| clock.batch(chain.step()) == 0) else {
            continue;
        };
        let near_restart = epoch % cycle < 3 || epoch % cycle + 2 > cycle;
        let mut line = format!("epoch {epoch}: loss {:.3}", record.loss);
        if epoch % cycle + 1 == cycle {
            let arena = chain.arena();
            let (weights, marks) = (arena.forward(), arena.marks());
            let curvature = largest_curvature(&network, weights, marks, &data.train)?;
            let tau = record.tau_mean.unwrap_or(1.0);
            let limit = 2.0 * (1.0 + config.method.beta1) / (tau * config.method.beta2 * top);
            line.push_str(&format!(
                "; largest curvature {curvature:.0}, the next cycle starts stable below {limit:.0}"
            ));
        }
        if near_restart && writeln!(out, "{line}").is_err() {
            break;
        }
    }
    Ok(())
}
