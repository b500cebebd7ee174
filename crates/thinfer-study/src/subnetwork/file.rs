//! Shared samples as one safetensors file; `docs/formats.md` is the specification.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};
use thinfer_core::posterior::{Tensors, to_safetensors};
use thinfer_data::files::{regular, write_whole};
use thinfer_data::{Error, Result};
use thinfer_engine::Network;

use super::{Subnetwork, Taken, picked, tensors};

/// The version of the format.
const VERSION: u32 = 1;
/// The tensor with the checksum of all others and of the description.
const CHECK: &str = "crc32";

/// The description in the file, JSON.
#[derive(Serialize, Deserialize)]
struct About {
    subnetwork: u32,
    thinfer: String,
    network: Network,
    inputs: Vec<u32>,
    samples: Vec<Taken>,
}

impl Subnetwork {
    /// Writes the file, then reads it back and compares it bit by bit; returns its size in bytes.
    pub fn write(&self, path: &Path) -> Result<usize> {
        let bytes = self.to_bytes()?;
        write_whole(path, &bytes)?;
        if Self::read(path)? != *self {
            return Err(Error::Promise(format!(
                "{}: the file is not equal to the samples; delete it, check the disk and write it again",
                path.display()
            )));
        }
        Ok(bytes.len())
    }

    /// Reads what [`Subnetwork::write`] wrote; a file that is damaged is refused.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = regular::read(path).map_err(|e| Error::file("read", path, e))?;
        Self::from_bytes(path, &bytes)
    }

    /// The file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut list: Tensors = Vec::new();
        // Where the next values of this tensor begin among the own values of a sample.
        let mut begin = 0;
        for (param, range) in tensors(&self.network) {
            let name = &param.name;
            let kept = self.kept(&range);
            let live = kept.iter().filter(|kept| **kept).count();
            // What is pruned is zero and not stored.
            let mut shape = param.shape.clone();
            if live < kept.len() {
                list.push(bits(format!("mask.{name}"), &kept));
                shape = vec![live];
            }
            let values = floats(&picked(&self.shared[range.clone()], &kept));
            list.push((format!("shared.{name}"), Dtype::F32, shape.clone(), values));
            let differs = &self.differs[range];
            let count = differs.iter().filter(|differs| **differs).count();
            if count > 0 && count < live {
                list.push(bits(format!("places.{name}"), differs));
                shape = vec![count];
            }
            if count > 0 {
                for (sample, own) in self.own.iter().enumerate() {
                    let values = floats(&own[begin..begin + count]);
                    list.push((own_name(sample, name), Dtype::F32, shape.clone(), values));
                }
            }
            begin += count;
        }
        let about = serde_json::to_value(About {
            subnetwork: VERSION,
            thinfer: env!("CARGO_PKG_VERSION").to_owned(),
            network: self.network.clone(),
            inputs: self.inputs.clone(),
            samples: self.samples.clone(),
        })
        .map_err(|e| Error::Data(format!("the description could not be written: {e}")))?;
        let named = list.iter().map(|(name, _, _, bytes)| (name.as_str(), bytes.as_slice()));
        let check = checksum(&about.to_string(), named);
        list.push((CHECK.to_owned(), Dtype::U32, vec![1], check.to_le_bytes().to_vec()));
        to_safetensors(&list, &about)
    }

    /// Which numbers of a tensor are not pruned; running statistics never are.
    fn kept(&self, range: &Range<usize>) -> Vec<bool> {
        range.clone().map(|at| self.keep.get(at).is_none_or(|keep| *keep != 0)).collect()
    }

    /// Reads what [`Subnetwork::to_bytes`] made; `path` is named in messages.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self> {
        read(bytes).map_err(|what| {
            let advice = "write it again with `thinfer subnetwork RUN --out FILE`";
            Error::store(path, format!("the shared samples cannot be used ({what}); {advice}"))
        })
    }
}

/// The same, with what is wrong as text.
fn read(bytes: &[u8]) -> std::result::Result<Subnetwork, String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let text = header.metadata().as_ref().and_then(|entries| entries.get("thinfer"));
    let text = text.ok_or("it was not written by thinfer")?;
    let about: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    match about["subnetwork"].as_u64() {
        None => return Err("it holds something else".into()),
        Some(version) if version != u64::from(VERSION) => {
            return Err(format!("its format is {version} instead of {VERSION}"));
        }
        Some(_) => {}
    }
    let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let mut left: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    let check = left.remove(CHECK).ok_or("it has no checksum")?;
    let named = left.iter().map(|(name, tensor)| (name.as_str(), tensor.data()));
    if check.data() != checksum(text, named).to_le_bytes() {
        return Err("its checksum is wrong: it was changed or cut".into());
    }
    let about: About = serde_json::from_value(about).map_err(|e| e.to_string())?;
    if about.samples.is_empty() || about.inputs.len() != about.network.nodes()[0].shape.channels {
        return Err("its description contradicts itself".into());
    }

    let others = about.samples.len() - 1;
    let (mut shared, mut keep, mut differs) = (Vec::new(), Vec::new(), Vec::new());
    let mut own = vec![Vec::new(); others];
    let params = about.network.params().len();
    for (param, range) in tensors(&about.network) {
        let name = &param.name;
        let mut marks = |kind: &str| -> std::result::Result<Option<Vec<bool>>, String> {
            let (name, bytes) = (format!("{kind}.{name}"), param.len().div_ceil(8));
            let packed = take(&mut left, &name, Dtype::U8, &[bytes])?;
            packed.map(|packed| unpacked(&name, packed.data(), param.len())).transpose()
        };
        let (mask, places) = (marks("mask")?, marks("places")?);
        if mask.is_some() && range.start >= params {
            return Err(format!("`{name}` is a running statistic and cannot be pruned"));
        }
        let mut shape = param.shape.clone();
        if let Some(mask) = &mask {
            shape = vec![mask.iter().filter(|kept| **kept).count()];
        }
        let mut values = needed(&mut left, &format!("shared.{name}"), &shape)?.into_iter();
        // Only now it is known that the tensor has as many numbers as the network says.
        let kept = mask.unwrap_or_else(|| vec![true; param.len()]);
        shared.extend(
            kept.iter().map(|kept| if *kept { values.next() } else { None }.unwrap_or(0.0)),
        );
        let apart = match places {
            Some(places) => {
                shape = vec![places.iter().filter(|differs| **differs).count()];
                places
            }
            // Without a list all that is live differs, or nothing.
            None if left.contains_key(&own_name(0, name)) => kept.clone(),
            None => vec![false; param.len()],
        };
        if apart.iter().zip(&kept).any(|(differs, kept)| *differs && !kept) {
            return Err(format!("`places.{name}` has places that are pruned"));
        }
        if apart.contains(&true) {
            for (sample, own) in own.iter_mut().enumerate() {
                own.extend(needed(&mut left, &own_name(sample, name), &shape)?);
            }
        }
        differs.extend(apart);
        if range.start < params {
            keep.extend(kept.into_iter().map(u8::from));
        }
    }
    if let Some(name) = left.keys().next() {
        return Err(format!("`{name}` does not belong to its network"));
    }
    let About { network, inputs, samples, .. } = about;
    Ok(Subnetwork { network, inputs, samples, keep, shared, differs, own })
}

/// The file with the right checksum, so that damage is met behind it; nothing where it is no file
/// of shared samples.
pub(crate) fn resealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, header) = SafeTensors::read_metadata(bytes).ok()?;
    let text = header.metadata().as_ref()?.get("thinfer")?;
    let about = serde_json::from_str(text).ok()?;
    let file = SafeTensors::deserialize(bytes).ok()?;
    let mut list: Tensors = Vec::new();
    for (name, tensor) in file.tensors().into_iter().filter(|(name, _)| name != CHECK) {
        list.push((name, tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()));
    }
    let named = list.iter().map(|(name, _, _, bytes)| (name.as_str(), bytes.as_slice()));
    let check = checksum(&serde_json::Value::to_string(&about), named);
    list.push((CHECK.to_owned(), Dtype::U32, vec![1], check.to_le_bytes().to_vec()));
    to_safetensors(&list, &about).ok()
}

fn own_name(sample: usize, name: &str) -> String {
    format!("sample{sample:03}.{name}")
}

/// Takes a tensor out of those that are left; fails where it has another type or shape.
fn take<'a>(
    left: &mut BTreeMap<String, TensorView<'a>>,
    name: &str,
    dtype: Dtype,
    shape: &[usize],
) -> std::result::Result<Option<TensorView<'a>>, String> {
    let found = left.remove(name);
    match &found {
        Some(tensor) if tensor.dtype() != dtype || tensor.shape() != shape => {
            Err(format!("`{name}` has another type or shape"))
        }
        _ => Ok(found),
    }
}

/// The numbers of a tensor that has to be there.
fn needed(
    left: &mut BTreeMap<String, TensorView<'_>>,
    name: &str,
    shape: &[usize],
) -> std::result::Result<Vec<f32>, String> {
    let found = take(left, name, Dtype::F32, shape)?.ok_or(format!("`{name}` is missing"))?;
    Ok(found.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

/// Of the description and of all tensors in the order of their names, names included.
fn checksum<'a>(text: &str, tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(text.as_bytes());
    let ordered: BTreeMap<&str, &[u8]> = tensors.collect();
    for (name, bytes) in ordered {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    hasher.finalize()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One bit a number, the lowest bit first.
fn bits(name: String, on: &[bool]) -> (String, Dtype, Vec<usize>, Vec<u8>) {
    let byte = |eight: &[bool]| {
        eight.iter().enumerate().fold(0, |byte, (at, on)| byte | u8::from(*on) << at)
    };
    let bytes: Vec<u8> = on.chunks(8).map(byte).collect();
    (name, Dtype::U8, vec![bytes.len()], bytes)
}

fn unpacked(name: &str, bytes: &[u8], count: usize) -> std::result::Result<Vec<bool>, String> {
    let mut on: Vec<bool> =
        bytes.iter().flat_map(|byte| (0..8).map(move |at| byte >> at & 1 == 1)).collect();
    if on.drain(count..).any(|on| on) {
        return Err(format!("`{name}` marks places that are not there"));
    }
    Ok(on)
}

#[cfg(test)]
mod tests {
    use super::super::{Samples, tests};
    use super::*;
    use thinfer_core::posterior::snapshot_to_bytes;

    fn kept(share: f64) -> Subnetwork {
        Samples::of(&tests::table()).unwrap().sharing(share).unwrap()
    }

    #[test]
    fn a_file_gives_back_the_samples() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.safetensors");
        let samples = Samples::of(&tests::table()).unwrap();
        let shares = [0.0, 0.2, 0.5, 1.0].map(|share| samples.sharing(share).unwrap());
        for kept in shares.into_iter().chain([samples.full()]) {
            let bytes = kept.write(&path).unwrap();
            assert_eq!(bytes as u64, std::fs::metadata(&path).unwrap().len());
            let read = Subnetwork::read(&path).unwrap();
            assert_eq!(read, kept);
            assert_eq!(read.posterior().members, kept.posterior().members);
        }
        let mut one = tests::table();
        one.members.truncate(1);
        let alone = Samples::of(&one).unwrap().full();
        alone.write(&path).unwrap();
        assert_eq!(Subnetwork::read(&path).unwrap(), alone);
    }

    #[test]
    fn only_what_differs_is_there_more_than_once() {
        let kept = kept(0.4);
        let bytes = kept.to_bytes().unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let stored = |kind: &str| -> usize {
            let tensors = file.tensors().into_iter().filter(|(name, _)| name.starts_with(kind));
            tensors.map(|(_, tensor)| tensor.data().len()).sum()
        };
        assert_eq!(stored("shared."), 4 * (kept.shared.len() - 1));
        assert_eq!(stored("sample"), 3 * 4 * kept.differing());
        assert!(kept.differing() > 0 && stored("places.") <= 2 + 1 + 1 + 1);
        // Four units by three inputs, one of them masked.
        let mask = file.tensor("mask.fc1.weight").unwrap();
        assert_eq!((mask.shape(), mask.data()), (&[2][..], &[0b1111_1101, 0b1111][..]));
        assert_eq!(file.tensor("shared.fc1.weight").unwrap().shape(), [11]);
        assert_eq!(file.tensor("shared.fc2.weight").unwrap().shape(), [1, 4]);
    }

    #[test]
    fn damage_is_refused_or_does_no_harm() {
        let kept = kept(0.4);
        let bytes = kept.to_bytes().unwrap();
        let path = Path::new("s");
        let mut refused = 0;
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            match Subnetwork::from_bytes(path, &damaged) {
                Err(_) => refused += 1,
                // Blanks of the header.
                Ok(read) => assert_eq!(read, kept, "byte {at}"),
            }
        }
        assert!(refused + 20 > bytes.len(), "{refused} of {}", bytes.len());
        for end in (0..bytes.len()).step_by(7) {
            assert!(Subnetwork::from_bytes(path, &bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn other_files_are_refused() {
        let posterior = tests::table();
        let bytes = snapshot_to_bytes(&posterior.network, &posterior.members[0]).unwrap();
        let error = Subnetwork::from_bytes(Path::new("s"), &bytes).unwrap_err().to_string();
        assert!(error.contains("it holds something else); write it again"), "{error}");
    }
}
