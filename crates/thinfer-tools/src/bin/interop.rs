//! Logits of an image network for `tests/interop/check.py`, and weights for PyTorch to load.
//!
//! `interop export|logits NETWORK SIZE CHANNELS CLASSES WEIGHTS INPUTS LOGITS`: `export` first
//! makes weights and running statistics and writes them to WEIGHTS; `logits` reads them from there.
//! INPUTS and LOGITS are bare little-endian f32, images row by row with channels last.

use std::error::Error;
use std::path::Path;

use thinfer::methods::initialize;
use thinfer::model::image_network;
use thinfer::weights::{self, Weights};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, Network, Plan, Role, Shape};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, name, size, channels, classes, file, inputs, logits] = &arguments[..] else {
        return Err(
            "usage: interop export|logits NETWORK SIZE CHANNELS CLASSES WEIGHTS INPUTS LOGITS"
                .into(),
        );
    };
    let size = size.parse()?;
    let input = Shape { height: size, width: size, channels: channels.parse()? };
    let network = image_network(name, input, classes.parse()?)?;
    let file = Path::new(file);
    let weights = if command == "export" {
        let weights = made(&network)?;
        weights::write(file, &network, &weights)?;
        weights
    } else {
        weights::read(file, &network)?
    };
    let bytes = std::fs::read(inputs)?;
    let values = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let data = Dataset::new(network.input_len(), 0, values, Vec::new())?;
    let mut out = vec![0.0; data.rows() * network.output_len()];
    let mut plan = Plan::new(&network, 4)?;
    plan.forward(&weights.params, &weights.stats, &data, 0..data.rows(), &mut out)?;
    std::fs::write(logits, out.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    Ok(())
}

/// Weights as at the start of a run, with scales, shifts and statistics that are all different, so
/// that an exchanged tensor shows.
fn made(network: &Network) -> Result<Weights, Box<dyn Error>> {
    let mut arena = Arena::new(network, 0);
    initialize(&mut arena, network.loss(), 1, 0)?;
    let mut params = arena.weights().to_vec();
    let key = Key::new(1, 0, Stream::Inputs);
    for param in network.params() {
        if matches!(param.role, Role::NormScale | Role::NormShift) {
            param.range().for_each(|i| params[i] += 0.2 * key.normal(0, i));
        }
    }
    let mut stats = vec![0.0; network.stats().len()];
    for param in network.stats() {
        for i in param.range() {
            stats[i] = match param.role {
                Role::RunningMean => 0.2 * key.normal(1, i),
                _ => 0.5 + key.uniform(2, i),
            };
        }
    }
    Ok(Weights { params, stats })
}
