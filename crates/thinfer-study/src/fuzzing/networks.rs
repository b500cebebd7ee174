//! Networks and their weights: descriptions, snapshots, exports, shared samples, files of PyTorch.

use std::path::Path;
use std::sync::OnceLock;

use thinfer_core::model::mlp;
use thinfer_core::posterior::{snapshot_from_bytes, snapshot_to_bytes};
use thinfer_core::weights;
use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, Shape, Window};
use thinfer_run::config::Activation;

use super::{Checked, Outcome, broken};
use crate::export::{self, Architecture};
use crate::subnetwork::{self, Subnetwork};

/// The description of a network: the one of a run folder, or the one of an export.
pub(super) fn network(bytes: &[u8]) -> Checked {
    let reason = match serde_json::from_slice::<Network>(bytes) {
        Ok(network) => {
            described(&network)?;
            let written = serde_json::to_vec(&network)
                .or_else(|error| broken("what was read cannot be written", &error))?;
            return match serde_json::from_slice::<Network>(&written) {
                Ok(again) if again == network => Ok(Outcome::Read),
                Ok(_) => broken("what was written reads otherwise", &network.nodes().len()),
                Err(error) => broken("what was written cannot be read", &error),
            };
        }
        Err(reason) => reason,
    };
    let Ok(about) = serde_json::from_slice::<Architecture>(bytes) else {
        return Ok(Outcome::refused(&reason));
    };
    for place in 0..about.networks.len() {
        match about.network(place) {
            Ok(network) => described(&network)?,
            Err(error) => return Ok(Outcome::refused(&error)),
        }
        about.columns(place);
    }
    Ok(Outcome::Read)
}

/// The sizes of a network can be counted and agree with each other.
fn described(network: &Network) -> std::result::Result<(), String> {
    let (params, stats) = (network.params(), network.stats());
    for table in [params, stats] {
        let mut end = 0;
        for param in table {
            if param.offset != end || param.is_empty() {
                return broken("parameters do not lie one after another", &param.name);
            }
            end = param.range().end;
        }
        if end != table.len() {
            return broken("parameters are not all there", &end);
        }
    }
    if network.input_len() == 0 || network.output_len() == 0 || params.is_empty() {
        return broken("the network is empty", &network.nodes().len());
    }
    let _ = (network.multiply_adds(), network.backward_multiply_adds(), network.repeats());
    Ok(())
}

/// A safetensors file: each of its four kinds, and shared samples under a right checksum as well.
pub(super) fn safetensors(bytes: &[u8]) -> Checked {
    let path = Path::new("w.safetensors");
    let (mut read, mut reason) = (false, String::new());
    for network in small_networks()? {
        match snapshot_from_bytes(network, path, bytes) {
            Ok(snapshot) => {
                read = true;
                let write = |snapshot| {
                    snapshot_to_bytes(network, snapshot)
                        .or_else(|error| broken("a snapshot cannot be written", &error))
                };
                let written = write(&snapshot)?;
                let again = snapshot_from_bytes(network, path, &written)
                    .or_else(|error| broken("a written snapshot cannot be read", &error))?;
                if write(&again)? != written {
                    return broken("a written snapshot reads otherwise", &snapshot.epoch);
                }
            }
            Err(error) => reason = error.to_string(),
        }
        read |= weights::from_bytes(path, network, bytes).is_ok();
    }
    if let Ok((about, samples)) = export::read(path, bytes) {
        read = true;
        for (sample, (network, weights)) in about.samples.iter().zip(&samples) {
            about.columns(sample.network);
            if weights.params.len() != network.params().len() {
                return broken(
                    "an export has other weights than its network",
                    &weights.params.len(),
                );
            }
        }
    }
    read |= shared(path, bytes)?;
    if let Some(sealed) = subnetwork::resealed(bytes) {
        read |= shared(path, &sealed)?;
    }
    if read { Ok(Outcome::Read) } else { Ok(Outcome::refused(&reason)) }
}

fn shared(path: &Path, bytes: &[u8]) -> std::result::Result<bool, String> {
    let Ok(samples) = Subnetwork::from_bytes(path, bytes) else { return Ok(false) };
    let write = |samples: &Subnetwork| {
        samples.to_bytes().or_else(|error| broken("shared samples cannot be written", &error))
    };
    let written = write(&samples)?;
    let again = Subnetwork::from_bytes(path, &written)
        .or_else(|error| broken("written shared samples cannot be read", &error))?;
    if write(&again)? != written {
        return broken("written shared samples read otherwise", &written.len());
    }
    samples.posterior();
    Ok(true)
}

/// A network of a table, and one of images with batch norms.
pub fn small_networks() -> std::result::Result<&'static [Network; 2], String> {
    static NETWORKS: OnceLock<std::result::Result<[Network; 2], String>> = OnceLock::new();
    let made = NETWORKS.get_or_init(|| {
        let images = || {
            let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 1 });
            let h = b.conv2d("conv1", b.input(), 2, Window::square(3, 1, 1))?;
            let h = b.batch_norm("bn1", h)?;
            let h = b.relu(h)?;
            let out = b.linear("fc", h, 2)?;
            b.finish(out, Loss::cross_entropy())
        };
        let table = mlp(3, &[2], Activation::Tanh, 1, Loss::gaussian_learned(1.0));
        let text = |error: EngineError| error.to_string();
        Ok([table.map_err(text)?, images().map_err(text)?])
    });
    made.as_ref().map_err(Clone::clone)
}
