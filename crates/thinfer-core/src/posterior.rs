//! Snapshots as a posterior: prediction averages them.

mod kept;
mod snapshot;

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use thinfer_data::{Error, Result};
use thinfer_engine::{Dataset, Loss, Network, Param, ParamTable, Plan, Scale};

use crate::metrics::{Noise, Scales};
pub use kept::{SampleRule, Thin};
pub use snapshot::Snapshot;

/// Rows that go through the network at once when predicting.
const ROWS: usize = 4096;

/// Draws from the posterior of one network.
#[derive(Clone, Debug)]
pub struct Posterior {
    /// The network.
    pub network: Network,
    /// The draws.
    pub members: Vec<Snapshot>,
}

/// What a posterior says about rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Predictive {
    /// A mixture of distributions of a number for each row.
    Regression {
        /// What each member says about a number.
        noise: Noise,
        /// `means[member][row]`
        means: Vec<Vec<f64>>,
        /// The noise standard deviations, or what stands for them in `noise`.
        sigmas: Scales,
    },
    /// Class probabilities.
    Classes {
        /// How many classes.
        classes: usize,
        /// `members[member][row · classes + class]`
        members: Vec<Vec<f64>>,
    },
}

impl Posterior {
    /// The members that a rule keeps.
    pub fn kept(&self, rule: &SampleRule) -> Self {
        let members: Vec<&Snapshot> = self.members.iter().collect();
        let kept = rule.kept(&members).into_iter().map(|at| members[at].clone()).collect();
        Self { network: self.network.clone(), members: kept }
    }

    /// The last member of each chain.
    pub fn last(&self) -> Self {
        let last = |chain| self.members.iter().rev().find(|m| m.chain == chain).cloned();
        let members = self.chains().into_iter().filter_map(last).collect();
        Self { network: self.network.clone(), members }
    }

    /// An error where a weight or running statistic is not a finite number, which names it.
    pub fn check_finite(&self) -> Result<()> {
        let bad = |params: &ParamTable, values: &[f32]| {
            let at = |p: &&Param| values[p.range()].iter().any(|value| !value.is_finite());
            params.iter().find(at).map(|param| param.name.clone())
        };
        for Snapshot { chain, epoch, weights, stats, .. } in &self.members {
            let in_stats = || bad(self.network.stats(), stats);
            if let Some(name) = bad(self.network.params(), weights).or_else(in_stats) {
                return Err(Error::Data(format!(
                    "`{name}` of the sample of chain {chain} and epoch {epoch} has numbers that are not finite, so the run diverged before it; nothing was written. Train again with a smaller `schedule.step_size.value`"
                )));
            }
        }
        Ok(())
    }

    /// The chains that have members, ascending.
    pub fn chains(&self) -> Vec<u32> {
        let mut chains: Vec<u32> = self.members.iter().map(|m| m.chain).collect();
        chains.sort_unstable();
        chains.dedup();
        chains
    }

    /// What the members say about every row of `data`.
    pub fn predict(&self, data: &Dataset) -> Result<Predictive> {
        if self.members.is_empty() {
            return Err(Error::Data(
                "the run has no posterior samples yet; let it reach the end of its first cycle"
                    .into(),
            ));
        }
        let outputs = self.network.output_len();
        let mut plan = Plan::for_predictions(&self.network, rows_at_once(data.rows()))?;
        let mut raw = vec![0.0; data.rows() * outputs];
        let mut each = |member: &Snapshot| -> Result<Vec<f32>> {
            plan.forward(&member.weights, &member.stats, data, 0..data.rows(), &mut raw)?;
            Ok(raw.clone())
        };
        let loss = self.network.loss();
        if let Some(noise) = Noise::of(loss) {
            let mut means = Vec::new();
            let (mut of_members, mut of_rows) = (Vec::new(), Vec::new());
            for member in &self.members {
                let raw = each(member)?;
                if let Some(sigma) = sigma_of(&self.network, &member.weights) {
                    means.push(raw.into_iter().map(|f| mean_of(loss, f)).collect());
                    of_members.push(sigma);
                } else {
                    means.push(raw.iter().step_by(2).map(|f| f64::from(*f)).collect());
                    let logs = raw.iter().skip(1).step_by(2);
                    of_rows.push(logs.map(|log| f64::from(*log).exp()).collect());
                }
            }
            let sigmas = if loss.is_by_row() { Scales::OfRows(of_rows) } else { of_members.into() };
            return Ok(Predictive::Regression { noise, means, sigmas });
        }
        let mut members = Vec::new();
        if *loss == Loss::Bernoulli {
            for member in &self.members {
                let logits = each(member)?;
                let pair = |f: f32| {
                    let one = 1.0 / (1.0 + (-f64::from(f)).exp());
                    [1.0 - one, one]
                };
                members.push(logits.into_iter().flat_map(pair).collect());
            }
            return Ok(Predictive::Classes { classes: 2, members });
        }
        for member in &self.members {
            members.push(each(member)?.chunks_exact(outputs).flat_map(softmax).collect());
        }
        Ok(Predictive::Classes { classes: outputs, members })
    }
}

/// The mean of a number of which a network says `f`: a rate where it counts.
pub fn mean_of(loss: &Loss, f: f32) -> f64 {
    match loss {
        Loss::Poisson { log_mean } | Loss::NegativeBinomial { log_mean, .. } => {
            (f64::from(f) + log_mean).exp()
        }
        _ => f64::from(f),
    }
}

/// The noise of a network with these weights, one for all rows: 1 where it has none, nothing where
/// it is predicted row by row.
pub fn sigma_of(network: &Network, weights: &[f32]) -> Option<f64> {
    Some(match network.loss().scale() {
        Some(Scale::Known(sigma)) => *sigma,
        Some(Scale::Learned { param, .. }) => {
            f64::from(weights[network.params()[*param].offset]).exp()
        }
        Some(Scale::ByRow { .. }) => return None,
        None => 1.0,
    })
}

/// How many of so many rows go through a network at once.
pub fn rows_at_once(rows: usize) -> usize {
    ROWS.min(rows.max(1))
}

/// Class probabilities from the network's outputs for one row.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|f| f64::from(f - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|p| p / sum).collect()
}

impl Predictive {
    /// The mean over members: predictions, or class probabilities row by row.
    pub fn mean(&self) -> Vec<f64> {
        let members = match self {
            Predictive::Regression { means, .. } => means,
            Predictive::Classes { members, .. } => members,
        };
        let mut mean = vec![0.0; members[0].len()];
        for member in members {
            mean.iter_mut().zip(member).for_each(|(sum, value)| *sum += value);
        }
        mean.iter_mut().for_each(|sum| *sum /= members.len() as f64);
        mean
    }

    /// The same of some rows only.
    #[must_use]
    pub fn at_rows(&self, rows: &[usize]) -> Self {
        let pick = |member: &Vec<f64>, width: usize| -> Vec<f64> {
            rows.iter().flat_map(|row| &member[row * width..][..width]).copied().collect()
        };
        match self {
            Predictive::Regression { noise, means, sigmas } => Predictive::Regression {
                noise: *noise,
                means: means.iter().map(|m| pick(m, 1)).collect(),
                sigmas: sigmas.at_rows(rows),
            },
            Predictive::Classes { classes, members } => Predictive::Classes {
                classes: *classes,
                members: members.iter().map(|m| pick(m, *classes)).collect(),
            },
        }
    }

    /// The probability integral transform: P(Y ≤ y) of every row at its true value, uniform where
    /// the prediction is calibrated. Of a count the middle of P(Y < y) and P(Y ≤ y). Regression
    /// only.
    pub fn below<T: Copy + Into<f64>>(&self, truth: &[T]) -> Option<Vec<f64>> {
        let around = self.around(truth)?;
        Some(around.into_iter().map(|(before, at)| 0.5 * (before + at)).collect())
    }

    /// P(Y < y) and P(Y ≤ y) of every row at its true value; they only differ where it is a count.
    /// Regression only.
    pub fn around<T: Copy + Into<f64>>(&self, truth: &[T]) -> Option<Vec<(f64, f64)>> {
        let Predictive::Regression { noise, means, sigmas } = self else { return None };
        let of_row = |(row, y): (usize, &T)| {
            let column: Vec<f64> = means.iter().map(|m| m[row]).collect();
            let scales = sigmas.at_row(row);
            let below = |y: f64| noise.mixture_below(y, &column, &scales);
            let y: f64 = (*y).into();
            let at = below(y);
            (if noise.counts() { below(y - 1.0) } else { at }, at)
        };
        Some(truth.iter().enumerate().map(of_row).collect())
    }

    /// The interval that holds `level` of the predictive mixture, row by row; regression only.
    pub fn interval(&self, level: f64) -> Option<(Vec<f64>, Vec<f64>)> {
        let Predictive::Regression { noise, means, sigmas } = self else { return None };
        let rows = means[0].len();
        let at = |q: f64| -> Vec<f64> {
            (0..rows)
                .map(|row| {
                    let column: Vec<f64> = means.iter().map(|m| m[row]).collect();
                    noise.quantile(&column, &sigmas.at_row(row), q).unwrap_or(f64::NAN)
                })
                .collect()
        };
        Some((at(0.5 - level / 2.0), at(0.5 + level / 2.0)))
    }
}

/// A snapshot as a safetensors file: every parameter and running statistic under its name, masks
/// under `mask/name`.
pub fn snapshot_to_bytes(network: &Network, snapshot: &Snapshot) -> Result<Vec<u8>> {
    let info = serde_json::json!({ "chain": snapshot.chain, "epoch": snapshot.epoch });
    let mut tensors = named_tensors(network, &[("", snapshot)]);
    if !snapshot.inclusion.is_empty() {
        let bytes = snapshot.inclusion.iter().flat_map(|p| p.to_le_bytes()).collect();
        let shape = vec![snapshot.inclusion.len()];
        tensors.push((INCLUSION.to_owned(), Dtype::F32, shape, bytes));
    }
    to_safetensors(&tensors, &info)
}

/// The tensor of [`Snapshot::inclusion`] in a file. No parameter is called so: theirs have a dot.
const INCLUSION: &str = "inclusion";

/// Tensors by name, as raw little-endian bytes.
pub type Tensors = Vec<(String, Dtype, Vec<usize>, Vec<u8>)>;

/// Every parameter and mask of some snapshots, each under a prefix.
pub fn named_tensors(network: &Network, members: &[(&str, &Snapshot)]) -> Tensors {
    let mut tensors = Vec::new();
    for (prefix, member) in members {
        for param in network.params() {
            let values = &member.weights[param.range()];
            let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let name = format!("{prefix}{}", param.name);
            tensors.push((name, Dtype::F32, param.shape.clone(), bytes));
            let mask = member.keep[param.range()].to_vec();
            if param.role.is_weight() || mask.contains(&0) {
                let name = format!("{prefix}mask/{}", param.name);
                tensors.push((name, Dtype::U8, param.shape.clone(), mask));
            }
        }
        for stat in network.stats() {
            let values = &member.stats[stat.range()];
            let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let name = format!("{prefix}{}", stat.name);
            tensors.push((name, Dtype::F32, stat.shape.clone(), bytes));
        }
    }
    tensors
}

/// A safetensors file with one metadata entry, `thinfer`.
pub fn to_safetensors(tensors: &Tensors, info: &serde_json::Value) -> Result<Vec<u8>> {
    let broken = |e: safetensors::SafeTensorError| {
        Error::Data(format!("the tensors could not be written: {e}"))
    };
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), bytes)?))
        })
        .collect::<std::result::Result<_, _>>()
        .map_err(broken)?;
    // One entry only: the file format does not fix the order of several.
    let metadata = [("thinfer".to_owned(), info.to_string())].into_iter().collect();
    safetensors::serialize(views, Some(metadata)).map_err(broken)
}

/// Reads what [`snapshot_to_bytes`] wrote, checking names and shapes against the network.
pub fn snapshot_from_bytes(network: &Network, path: &Path, bytes: &[u8]) -> Result<Snapshot> {
    let damaged = |what: String| {
        // Whoever reads it knows whether it can be taken again, or left out.
        Error::store(path, format!("the snapshot cannot be used ({what})"))
    };
    let (_, metadata) =
        safetensors::SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
    let info: serde_json::Value = metadata
        .metadata()
        .as_ref()
        .and_then(|m| m.get("thinfer"))
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| damaged("it was not written by thinfer".into()))?;
    let number =
        |name: &str| info[name].as_u64().ok_or_else(|| damaged(format!("`{name}` is missing")));
    let file = safetensors::SafeTensors::deserialize(bytes).map_err(|e| damaged(e.to_string()))?;
    let n = network.params().len();
    let (mut weights, mut keep) = (vec![0.0; n], vec![1u8; n]);
    let floats = |param: &Param, into: &mut [f32]| -> Result<()> {
        let tensor = file.tensor(&param.name).map_err(|e| damaged(e.to_string()))?;
        if tensor.shape() != param.shape || tensor.dtype() != Dtype::F32 {
            return Err(damaged(format!("`{}` has another shape", param.name)));
        }
        for (to, b) in into[param.range()].iter_mut().zip(tensor.data().chunks_exact(4)) {
            *to = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
        Ok(())
    };
    let mut stats = vec![0.0; network.stats().len()];
    network.stats().iter().try_for_each(|stat| floats(stat, &mut stats))?;
    for param in network.params() {
        floats(param, &mut weights)?;
        let name = format!("mask/{}", param.name);
        // Of a weight there is always a mask, of biases and norms where something is pruned.
        let listed = file.names().contains(&name.as_str());
        if param.role.is_weight() || listed {
            let mask = file.tensor(&name).map_err(|e| damaged(e.to_string()))?;
            if mask.shape() != param.shape || mask.dtype() != Dtype::U8 {
                return Err(damaged(format!("the mask of `{}` has another shape", param.name)));
            }
            keep[param.range()].copy_from_slice(mask.data());
        }
    }
    let mut inclusion = Vec::new();
    // Only where it is drawn, and never in older files.
    if file.names().contains(&INCLUSION) {
        let tensor = file.tensor(INCLUSION).map_err(|e| damaged(e.to_string()))?;
        let is_list = matches!(tensor.shape(), [count] if *count <= network.input_len());
        if !is_list || tensor.dtype() != Dtype::F32 {
            return Err(damaged(format!("`{INCLUSION}` has another shape")));
        }
        let (numbers, _) = tensor.data().as_chunks::<4>();
        inclusion.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        if !inclusion.iter().all(|p| (0.0..=1.0).contains(p)) {
            return Err(damaged(format!("`{INCLUSION}` has numbers that are no probabilities")));
        }
    }
    let (chain, epoch) = (number("chain")? as u32, number("epoch")? as usize);
    Ok(Snapshot { chain, epoch, weights, keep, stats, inclusion })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Activation;
    use crate::model::mlp;

    fn member(chain: u32, epoch: usize, network: &Network, scale: f32) -> Snapshot {
        let n = network.params().len();
        let weights = (0..n).map(|i| scale * (i as f32 - 3.0)).collect();
        let keep = vec![1; n];
        Snapshot { chain, epoch, weights, keep, stats: Vec::new(), inclusion: Vec::new() }
    }

    fn data() -> Dataset {
        Dataset::new(2, 1, vec![1.0, 2.0, -1.0, 0.5], vec![]).unwrap()
    }

    #[test]
    fn a_snapshot_survives_a_file() {
        let network = mlp(2, &[3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let mut snapshot = member(2, 17, &network, 0.1);
        snapshot.keep[1] = 0;
        // A bias that went with its unit.
        let bias = network.params().find("fc1.bias").unwrap().offset;
        snapshot.keep[bias] = 0;
        let bytes = snapshot_to_bytes(&network, &snapshot).unwrap();
        let path = Path::new("s");
        assert_eq!(snapshot_from_bytes(&network, path, &bytes).unwrap(), snapshot);
        assert_eq!(bytes, snapshot_to_bytes(&network, &snapshot).unwrap());
        let other = mlp(3, &[3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let error = snapshot_from_bytes(&other, path, &bytes).unwrap_err().to_string();
        assert!(error.contains("`fc1.weight` has another shape"), "{error}");
        assert!(snapshot_from_bytes(&network, path, &bytes[..bytes.len() / 2]).is_err());
    }

    #[test]
    fn probabilities_of_inputs_survive_a_file_and_others_are_refused() {
        let network = mlp(2, &[3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let (plain, path) = (member(0, 1, &network, 0.1), Path::new("s"));
        let with = |inclusion: &[f32]| Snapshot { inclusion: inclusion.to_vec(), ..plain.clone() };
        let round = |snapshot: &Snapshot| {
            snapshot_from_bytes(&network, path, &snapshot_to_bytes(&network, snapshot)?)
        };
        let drawn = with(&[0.25, 1.0]);
        assert_eq!(round(&drawn).unwrap(), drawn);
        assert_ne!(drawn.checksum(), plain.checksum());
        for wrong in [&[0.5, 0.5, 0.5][..], &[0.5, 1.5], &[f32::NAN, 0.0]] {
            let error = round(&with(wrong)).unwrap_err().to_string();
            assert!(error.contains("`inclusion` has"), "{error}");
        }
    }

    #[test]
    fn prediction_averages_probabilities_not_logits() {
        let network = mlp(2, &[], Activation::Relu, 1, Loss::Bernoulli).unwrap();
        let members = vec![member(0, 0, &network, 0.1), member(0, 1, &network, -2.0)];
        let posterior = Posterior { network, members };
        let Predictive::Classes { classes, members } = posterior.predict(&data()).unwrap() else {
            panic!("a Bernoulli network predicts classes");
        };
        assert_eq!(classes, 2);
        let mean = posterior.predict(&data()).unwrap().mean();
        for (i, value) in mean.iter().enumerate() {
            assert!((value - 0.5 * (members[0][i] + members[1][i])).abs() < 1e-12);
        }
        assert!((mean[0] + mean[1] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_interval_of_one_member_is_the_normal_one() {
        let network = mlp(2, &[], Activation::Relu, 1, Loss::gaussian(2.0)).unwrap();
        let members = vec![member(0, 0, &network, 0.0)];
        let posterior = Posterior { network, members };
        let (lower, upper) = posterior.predict(&data()).unwrap().interval(0.9).unwrap();
        assert!((upper[0] - 2.0 * 1.644_853_627).abs() < 1e-5, "{}", upper[0]);
        assert!((lower[1] + 2.0 * 1.644_853_627).abs() < 1e-5);
    }

    #[test]
    fn an_empty_posterior_says_so() {
        let network = mlp(2, &[], Activation::Relu, 1, Loss::gaussian(2.0)).unwrap();
        let error = Posterior { network, members: vec![] }.predict(&data()).unwrap_err();
        assert!(error.to_string().contains("no posterior samples yet"));
    }
}
