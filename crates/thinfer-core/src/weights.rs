//! One set of weights and running statistics as a safetensors file that PyTorch loads strictly.
//!
//! Names are those of the network, which are torchvision's for residual networks. Layouts are
//! PyTorch's: convolutions output, input, row, column; a linear layer that reads an image has its
//! columns channel by channel, where the network itself has them pixel by pixel. Every batch norm
//! has its `num_batches_tracked` as well; reading does not need it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use thinfer_data::files::{regular, write_whole};
use thinfer_data::{Error, Result};
use thinfer_engine::{Network, Op, Param, Shape};

use crate::posterior::Tensors;

/// A set of weights and the running statistics that belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The parameters, in the order of [`Network::params`].
    pub params: Vec<f32>,
    /// The running statistics, in the order of [`Network::stats`].
    pub stats: Vec<f32>,
}

/// Writes a file for PyTorch.
pub fn write(path: &Path, network: &Network, weights: &Weights) -> Result<()> {
    write_whole(path, &to_bytes(network, weights)?)
}

/// Reads a file of PyTorch or of [`write()`]. Missing, unknown and misshapen tensors are all named.
pub fn read(path: &Path, network: &Network) -> Result<Weights> {
    let bytes = regular::read(path).map_err(|e| Error::file("read", path, e))?;
    from_bytes(path, network, &bytes)
}

/// How the inner axes of a tensor lie: here pixel by pixel, in PyTorch channel by channel.
#[derive(Clone, Copy)]
struct Inner {
    pixels: usize,
    channels: usize,
}

impl Inner {
    /// For each place in a row of PyTorch's tensor the place in ours.
    fn places(self) -> impl Iterator<Item = usize> {
        (0..self.channels).flat_map(move |c| (0..self.pixels).map(move |p| p * self.channels + c))
    }
}

/// Places of numbers of an image, counted pixel by pixel, as PyTorch counts them.
pub fn channel_by_channel(places: &[u32], image: Shape) -> Vec<u32> {
    let (channels, pixels) = (image.channels as u32, (image.height * image.width) as u32);
    places.iter().map(|place| place % channels * pixels + place / channels).collect()
}

/// Places of numbers of an image, counted channel by channel, as the engine counts them.
pub fn pixel_by_pixel(places: &[u32], image: Shape) -> Vec<u32> {
    let (channels, pixels) = (image.channels as u32, (image.height * image.width) as u32);
    places.iter().map(|place| place % pixels * channels + place / pixels).collect()
}

/// One tensor of the file: where it belongs, and how it differs.
struct Entry<'a> {
    param: &'a Param,
    inner: Inner,
    shape: Vec<usize>,
    statistic: bool,
}

impl Entry<'_> {
    /// Our values in PyTorch's order.
    fn in_pytorch<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let rows = values.chunks_exact(self.inner.pixels * self.inner.channels);
        rows.flat_map(|row| self.inner.places().map(|at| row[at])).collect()
    }
}

fn entries(network: &Network) -> Vec<Entry<'_>> {
    let mut inner: BTreeMap<usize, Inner> = BTreeMap::new();
    for node in network.nodes() {
        if let Op::Linear { weight, .. } = node.op {
            let from = network.nodes()[node.inputs[0].0].shape;
            let pixels = from.height * from.width;
            inner.insert(weight, Inner { pixels, channels: from.channels });
        }
    }
    let plain = |param: &Param| Inner { pixels: 1, channels: param.fan_in() };
    let params = network.params().iter().enumerate().map(|(at, param)| {
        let (inner, shape) = if let [out, rows, columns, channels] = param.shape[..] {
            (Inner { pixels: rows * columns, channels }, vec![out, channels, rows, columns])
        } else {
            (inner.get(&at).copied().unwrap_or_else(|| plain(param)), param.shape.clone())
        };
        Entry { param, inner, shape, statistic: false }
    });
    let stats = network.stats().iter().map(|param| Entry {
        param,
        inner: plain(param),
        shape: param.shape.clone(),
        statistic: true,
    });
    params.chain(stats).collect()
}

/// The names of PyTorch's step counters, one a batch norm.
fn counters(network: &Network) -> impl Iterator<Item = String> {
    let norms = network.stats().iter().filter_map(|p| p.name.strip_suffix(".running_mean"));
    norms.map(|norm| format!("{norm}.num_batches_tracked"))
}

/// A parameter or statistic as PyTorch has it.
pub struct Laid {
    /// Its name in PyTorch.
    pub name: String,
    /// Its shape there.
    pub shape: Vec<usize>,
    /// Its numbers in that order.
    pub values: Vec<f32>,
}

impl Laid {
    /// Its numbers as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }
}

/// All parameters in the order of [`Network::params`], then all statistics in theirs.
pub fn laid_out(network: &Network, weights: &Weights) -> Result<Vec<Laid>> {
    let lengths = [network.params().len(), network.stats().len()];
    if [weights.params.len(), weights.stats.len()] != lengths {
        return Err(Error::Data("the weights do not belong to this network".into()));
    }
    let laid = |entry: Entry<'_>| {
        let from = if entry.statistic { &weights.stats } else { &weights.params };
        let values = entry.in_pytorch(&from[entry.param.range()]);
        Laid { name: entry.param.name.clone(), shape: entry.shape, values }
    };
    Ok(entries(network).into_iter().map(laid).collect())
}

/// Masks of weights, one byte an element, laid out like the weights they belong to; of biases and
/// norms only where something is pruned.
pub fn laid_out_masks(network: &Network, keep: &[u8]) -> Tensors {
    let masks = entries(network).into_iter().filter(|entry| !entry.statistic).filter_map(|entry| {
        let mask = &keep[entry.param.range()];
        let told = entry.param.role.is_weight() || mask.contains(&0);
        let name = format!("mask/{}", entry.param.name);
        told.then(|| (name, Dtype::U8, entry.shape.clone(), entry.in_pytorch(mask)))
    });
    masks.collect()
}

/// The tensors of a file: [`laid_out`] and the step counters of batch norms.
pub fn tensors(network: &Network, weights: &Weights) -> Result<Tensors> {
    let laid = laid_out(network, weights)?.into_iter();
    let mut tensors: Tensors = laid
        .map(|tensor| {
            let bytes = tensor.bytes();
            (tensor.name, Dtype::F32, tensor.shape, bytes)
        })
        .collect();
    tensors.extend(counters(network).map(|name| (name, Dtype::I64, vec![], vec![0; 8])));
    Ok(tensors)
}

fn to_bytes(network: &Network, weights: &Weights) -> Result<Vec<u8>> {
    let broken = |e: safetensors::SafeTensorError| {
        Error::Data(format!("the weights could not be written: {e}"))
    };
    let tensors = tensors(network, weights)?;
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), bytes)?))
        })
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(broken)?;
    // Some loaders ask for this entry before they hand tensors to PyTorch.
    let metadata = [("format".to_owned(), "pt".to_owned())].into_iter().collect();
    safetensors::serialize(views, Some(metadata)).map_err(broken)
}

/// Reads the bytes of a file; `path` is named in messages.
pub fn from_bytes(path: &Path, network: &Network, bytes: &[u8]) -> Result<Weights> {
    let file = open(path, bytes)?;
    let (weights, extra) = from_tensors(path, network, &file, "")?;
    if extra.is_empty() {
        return Ok(weights);
    }
    Err(unfit(path, &format!("not in the network: {}", extra.join(", "))))
}

/// The tensors of a file's bytes.
pub fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|e| {
        Error::store(path, format!("is not a whole safetensors file ({e}); write it again"))
    })
}

/// The weights whose names start with `prefix`, and the names under it that are not the network's.
pub fn from_tensors(
    path: &Path,
    network: &Network,
    file: &SafeTensors<'_>,
    prefix: &str,
) -> Result<(Weights, Vec<String>)> {
    let (mut missing, mut wrong) = (Vec::new(), Vec::new());
    let mut extra: BTreeSet<&str> =
        file.names().into_iter().filter_map(|name| name.strip_prefix(prefix)).collect();
    for name in counters(network) {
        extra.remove(name.as_str());
    }
    let mut found = Vec::new();
    for entry in entries(network) {
        let name = &entry.param.name;
        extra.remove(name.as_str());
        let Ok(tensor) = file.tensor(&format!("{prefix}{name}")) else {
            missing.push(format!("`{name}`"));
            continue;
        };
        if tensor.shape() != entry.shape {
            wrong.push(format!("`{name}` is {:?} instead of {:?}", tensor.shape(), entry.shape));
            continue;
        }
        if is_number(tensor.dtype()) {
            found.push((entry, tensor));
        } else {
            wrong.push(format!("`{name}` has numbers of type {:?}", tensor.dtype()));
        }
    }
    let extra: Vec<String> = extra.into_iter().map(|name| format!("`{name}`")).collect();
    if missing.is_empty() && wrong.is_empty() {
        return Ok((filled(network, &found), extra));
    }
    let problems: Vec<String> =
        [("missing", missing), ("not in the network", extra), ("wrong", wrong)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
    Err(unfit(path, &problems.join("; ")))
}

/// Weights from tensors that are known to fit: a network that only claims to be large takes no
/// memory before that.
fn filled(network: &Network, found: &[(Entry<'_>, TensorView<'_>)]) -> Weights {
    let mut weights = Weights {
        params: vec![0.0; network.params().len()],
        stats: vec![0.0; network.stats().len()],
    };
    for (entry, tensor) in found {
        let values = numbers(tensor).unwrap_or_default();
        let to = if entry.statistic { &mut weights.stats } else { &mut weights.params };
        let row = entry.inner.pixels * entry.inner.channels;
        let rows = to[entry.param.range()].chunks_exact_mut(row).zip(values.chunks_exact(row));
        for (to, from) in rows {
            entry.inner.places().zip(from).for_each(|(at, value)| to[at] = *value);
        }
    }
    weights
}

fn unfit(path: &Path, problems: &str) -> Error {
    Error::store(
        path,
        format!("does not fit the network ({problems}); choose the network it was made from"),
    )
}

/// Whether [`numbers`] knows a type.
fn is_number(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F64 | Dtype::BF16)
}

/// The numbers of a tensor, from any of the types that training leaves behind.
fn numbers(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = tensor.data();
    match tensor.dtype() {
        Dtype::F32 => Some(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        Dtype::F64 => {
            Some(bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect())
        }
        Dtype::BF16 => Some(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16))
                .collect(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image_network;
    use thinfer_engine::Shape;

    fn small() -> (Network, Weights) {
        let network =
            image_network("wrn-10-1", Shape { height: 8, width: 8, channels: 3 }, 4).unwrap();
        (network.clone(), counted(&network))
    }

    fn counted(network: &Network) -> Weights {
        let count = |n: usize, from: f32| (0..n).map(|i| from + i as f32).collect();
        Weights {
            params: count(network.params().len(), 0.0),
            stats: count(network.stats().len(), -5e4),
        }
    }

    #[test]
    fn a_file_gives_back_the_weights() {
        let (network, weights) = small();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        write(&path, &network, &weights).unwrap();
        assert_eq!(read(&path, &network).unwrap(), weights);
        let lenet =
            image_network("lenet", Shape { height: 28, width: 28, channels: 1 }, 10).unwrap();
        write(&path, &lenet, &counted(&lenet)).unwrap();
        assert_eq!(read(&path, &lenet).unwrap(), counted(&lenet));
    }

    #[test]
    fn layouts_are_those_of_pytorch() {
        let lenet =
            image_network("lenet", Shape { height: 28, width: 28, channels: 1 }, 10).unwrap();
        let bytes = to_bytes(&lenet, &counted(&lenet)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let value = |name: &str, at: usize| numbers(&file.tensor(name).unwrap()).unwrap()[at];
        let offset = |name: &str| lenet.params().find(name).unwrap().offset as f32;
        assert_eq!(file.tensor("conv2.weight").unwrap().shape(), [16, 6, 5, 5]);
        // Output 3, input 2, row 1, column 4.
        let ours = ((3 * 5 + 1) * 5 + 4) * 6 + 2;
        assert_eq!(
            value("conv2.weight", ((3 * 6 + 2) * 5 + 1) * 5 + 4),
            offset("conv2.weight") + ours as f32
        );
        // Output 7 reads channel 11 of pixel 13 out of 5 x 5.
        let ours = 7 * 400 + 13 * 16 + 11;
        assert_eq!(value("fc1.weight", 7 * 400 + 11 * 25 + 13), offset("fc1.weight") + ours as f32);
        assert_eq!(value("fc2.weight", 121), offset("fc2.weight") + 121.0);
    }

    #[test]
    fn counters_of_batch_norms_are_written_and_not_needed() {
        let (network, weights) = small();
        let bytes = to_bytes(&network, &weights).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let counter = file.tensor("layer1.0.bn2.num_batches_tracked").unwrap();
        assert_eq!((counter.dtype(), counter.shape()), (Dtype::I64, &[][..]));
        let kept = file.tensors().into_iter().filter(|(n, _)| !n.ends_with("tracked"));
        let without = safetensors::serialize(kept, None).unwrap();
        assert_eq!(from_bytes(Path::new("w"), &network, &without).unwrap(), weights);
    }

    #[test]
    fn a_file_of_another_network_is_refused_with_every_name() {
        let (network, weights) = small();
        let bytes = to_bytes(&network, &weights).unwrap();
        let input = Shape { height: 8, width: 8, channels: 3 };
        let deeper = image_network("wrn-16-1", input, 5).unwrap();
        let error = from_bytes(Path::new("w"), &deeper, &bytes).unwrap_err().to_string();
        for part in ["missing: `layer1.1.bn1.weight`", "`fc.weight` is [4, 64] instead of [5, 64]"]
        {
            assert!(error.contains(part), "{error}");
        }
        let deep = to_bytes(&deeper, &counted(&deeper)).unwrap();
        let error = from_bytes(Path::new("w"), &network, &deep).unwrap_err().to_string();
        assert!(error.contains("not in the network: `layer1.1.bn1.bias`"), "{error}");
        assert!(from_bytes(Path::new("w"), &network, &bytes[..500]).is_err());
    }
}
