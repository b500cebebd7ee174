//! Samples as a safetensors file with PyTorch's names and layouts, and read from one.

use std::collections::BTreeSet;
use std::path::Path;

use thinfer_core::posterior::Snapshot;
use thinfer_core::posterior::{Tensors, to_safetensors};
use thinfer_core::weights::{self, Weights, laid_out_masks};
use thinfer_data::{Error, Result};
use thinfer_engine::Network;

use super::architecture::Architecture;
use super::part::Part;

/// The bytes of a file with `parts`, and how many tensors are in it. `masks` are written along
/// where they are given, one snapshot a part.
pub(super) fn to_bytes(
    parts: &[Part],
    masks: &[&Snapshot],
    about: &Architecture,
) -> Result<(Vec<u8>, usize)> {
    let mut tensors: Tensors = Vec::new();
    for (at, (part, sample)) in parts.iter().zip(&about.samples).enumerate() {
        let mut own = weights::tensors(&part.network, &part.weights)?;
        if let Some(member) = masks.get(at) {
            own.extend(laid_out_masks(&part.network, &member.keep));
        }
        own.iter_mut().for_each(|(name, ..)| name.insert_str(0, &sample.prefix));
        tensors.extend(own);
    }
    let about = serde_json::to_value(about)
        .map_err(|e| Error::Data(format!("the description could not be written: {e}")))?;
    Ok((to_safetensors(&tensors, &about)?, tensors.len()))
}

/// What a file holds: the samples with their networks, built from what the file says alone.
pub fn read(path: &Path, bytes: &[u8]) -> Result<(Architecture, Vec<(Network, Weights)>)> {
    let damaged = |what: String| {
        Error::store(path, format!("was not written by `thinfer export` ({what}); export again"))
    };
    let (_, metadata) =
        safetensors::SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
    let text = metadata.metadata().as_ref().and_then(|entries| entries.get("thinfer"));
    let text = text.ok_or_else(|| damaged("it has no entry `thinfer`".into()))?;
    let about: Architecture = serde_json::from_str(text).map_err(|e| damaged(e.to_string()))?;
    let file = weights::open(path, bytes)?;
    let networks: Vec<Network> =
        (0..about.networks.len()).map(|at| about.network(at)).collect::<Result<_>>()?;
    let mut samples = Vec::new();
    let prefixes: BTreeSet<&str> = about.samples.iter().map(|s| s.prefix.as_str()).collect();
    if prefixes.len() != about.samples.len() {
        return Err(damaged("two samples have the same tensors".into()));
    }
    for sample in &about.samples {
        let network = networks.get(sample.network);
        let network = network.ok_or_else(|| damaged("a network is missing".into()))?;
        let (weights, extra) = weights::from_tensors(path, network, &file, &sample.prefix)?;
        if let Some(name) = extra.iter().find(|name| !name.starts_with("`mask/")) {
            return Err(damaged(format!("{name} is not in the network")));
        }
        samples.push((network.clone(), weights));
    }
    Ok((about, samples))
}
