//! The posterior as one safetensors file, for other programs.
//!
//! Sample i has its parameters under `sample000.NAME` and their masks, one byte a weight, under
//! `sample000.mask/NAME`. One metadata entry, `thinfer`, is JSON: the network, the variables, how
//! columns are encoded, chain and epoch of each sample, and the configuration as TOML.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::json;

use crate::error::{Error, Result};
use crate::posterior::{Posterior, Tensors, named_tensors, to_safetensors};
use crate::run::RunInfo;
use crate::train::container::write_whole;

/// What an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Posterior samples.
    pub samples: usize,
    /// Tensors, masks included.
    pub tensors: usize,
    /// Bytes of the file.
    pub bytes: usize,
}

/// Writes `posterior` to `path`, then reads the file back and compares it bit by bit.
pub fn safetensors(info: &RunInfo, posterior: &Posterior, path: &Path) -> Result<Exported> {
    let tensors = tensors(posterior)?;
    let bytes = to_safetensors(&tensors, &describe(info, posterior)?)?;
    write_whole(path, &bytes)?;
    let written = fs::read(path).map_err(|e| Error::file("read back", path, e))?;
    verify(path, &tensors, &written)?;
    let samples = posterior.members.len();
    Ok(Exported { samples, tensors: tensors.len(), bytes: bytes.len() })
}

fn tensors(posterior: &Posterior) -> Result<Tensors> {
    if posterior.members.is_empty() {
        let text = "the run has no posterior samples yet; let it reach the end of its first cycle";
        return Err(Error::Data(text.into()));
    }
    let prefixes: Vec<String> =
        (0..posterior.members.len()).map(|sample| format!("sample{sample:03}.")).collect();
    let members: Vec<_> = prefixes.iter().map(String::as_str).zip(&posterior.members).collect();
    Ok(named_tensors(&posterior.network, &members))
}

fn describe(info: &RunInfo, posterior: &Posterior) -> Result<serde_json::Value> {
    let samples: Vec<_> = posterior
        .members
        .iter()
        .map(|member| json!({ "chain": member.chain, "epoch": member.epoch }))
        .collect();
    let mut about = serde_json::to_value(&info.inputs)
        .map_err(|e| Error::Data(format!("the description could not be written: {e}")))?;
    about["thinfer"] = json!(info.thinfer);
    about["network"] = json!(info.network);
    about["samples"] = json!(samples);
    about["config"] = json!(info.config.to_toml()?);
    Ok(about)
}

/// Compares a file with what it should hold: every tensor there, no other, and the same bits.
fn verify(path: &Path, expected: &Tensors, written: &[u8]) -> Result<()> {
    let broken = |what: String| {
        Error::Promise(format!(
            "{}: the exported file is not equal to the posterior ({what}); delete it, check the disk and export again",
            path.display()
        ))
    };
    let file = SafeTensors::deserialize(written).map_err(|e| broken(e.to_string()))?;
    if file.len() != expected.len() {
        let count = format!("{} tensors instead of {}", file.len(), expected.len());
        return Err(broken(count));
    }
    for (name, dtype, shape, bytes) in expected {
        let tensor = file.tensor(name).map_err(|e| broken(e.to_string()))?;
        if tensor.dtype() != *dtype || tensor.shape() != shape || tensor.data() != bytes {
            return Err(broken(format!("`{name}` differs")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Activation;
    use crate::model::mlp;
    use crate::train::Snapshot;
    use thinfer_engine::Loss;

    fn posterior() -> Posterior {
        let network = mlp(2, &[3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let n = network.params().len();
        let member = |chain: u32| Snapshot {
            chain,
            epoch: 7,
            weights: (0..n).map(|i| i as f32 - chain as f32).collect(),
            keep: (0..n).map(|i| u8::from(i != 2)).collect(),
            stats: Vec::new(),
        };
        let members = vec![member(0), member(1)];
        Posterior { network, members }
    }

    #[test]
    fn every_parameter_and_mask_has_its_name() {
        let tensors = tensors(&posterior()).unwrap();
        let names: Vec<&str> = tensors.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            &names[..6],
            [
                "sample000.fc1.weight",
                "sample000.mask/fc1.weight",
                "sample000.fc1.bias",
                "sample000.fc2.weight",
                "sample000.mask/fc2.weight",
                "sample000.fc2.bias"
            ]
        );
        assert!(names[6..].iter().all(|name| name.starts_with("sample001.")));
    }

    #[test]
    fn a_single_wrong_bit_breaks_the_promise() {
        let tensors = tensors(&posterior()).unwrap();
        let mut bytes = to_safetensors(&tensors, &json!({})).unwrap();
        let path = Path::new("p.safetensors");
        verify(path, &tensors, &bytes).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let error = verify(path, &tensors, &bytes).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("differs); delete it"), "{error}");
        bytes.truncate(bytes.len() / 2);
        assert_eq!(verify(path, &tensors, &bytes).unwrap_err().exit_code(), 3);
    }

    #[test]
    fn nothing_is_not_exported() {
        let empty = Posterior { members: Vec::new(), ..posterior() };
        assert!(tensors(&empty).unwrap_err().to_string().contains("no posterior samples yet"));
    }
}
