//! Samples of a posterior in the form in which they are exported: chosen, shrunk, folded.

use std::str::FromStr;

use thinfer_core::metrics::Noise;
use thinfer_core::posterior::{Posterior, Snapshot, sigma_of};
use thinfer_core::shrink::{Layout, shrink};
use thinfer_core::weights::Weights;
use thinfer_data::{Error, Result};
use thinfer_engine::Network;
use thinfer_run::run::RunInfo;

use super::fold::fold_norms;

/// Which samples of a posterior are exported, of those that are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Samples {
    /// All of them.
    #[default]
    All,
    /// The last one.
    Last,
    /// One, counted from 0.
    Number(usize),
}

impl FromStr for Samples {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "all" | "ensemble" => Ok(Samples::All),
            "last" => Ok(Samples::Last),
            _ => text.parse().map(Samples::Number).map_err(|_| {
                "give the number of a sample, counted from 0, or `last`, or `all`".to_owned()
            }),
        }
    }
}

/// How samples are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which.
    pub samples: Samples,
    /// Whether batch norms become part of the layer before them, where there is one.
    pub fold_norms: bool,
    /// Whether the network keeps its full size, with zeros where it was pruned.
    pub dense: bool,
    /// Whether files that are there, or that another program makes in the meantime, are kept and
    /// the export fails.
    pub new_only: bool,
}

/// One sample as it is exported.
pub(super) struct Part {
    /// Its place among the samples of the posterior.
    pub(super) number: usize,
    pub(super) chain: u32,
    pub(super) epoch: usize,
    pub(super) network: Network,
    pub(super) weights: Weights,
    /// The columns of the design matrix that the network reads, ascending; none for images.
    pub(super) inputs: Vec<u32>,
}

impl Part {
    /// What stands before the names of this sample where a file holds several.
    pub(super) fn prefix(&self) -> String {
        format!("sample{:03}.", self.number)
    }

    /// The variance of the observation noise of all rows, in the network's units, or what the
    /// squared scale of a row is multiplied by where it is predicted; 1 where the network has none.
    pub(super) fn noise_variance(&self) -> f64 {
        let sigma = sigma_of(&self.network, &self.weights.params).unwrap_or(1.0);
        // Only a count's variance depends on its mean, and counts are not exported.
        Noise::of(self.network.loss()).map_or(1.0, |noise| noise.variance(0.0, sigma))
    }
}

/// The samples that are asked for, with their places.
pub(super) fn chosen(posterior: &Posterior, samples: Samples) -> Result<Vec<(usize, &Snapshot)>> {
    let count = posterior.members.len();
    let all = || posterior.members.iter().enumerate();
    match samples {
        _ if count == 0 => Err(Error::Data(
            "the run has no posterior samples yet; let it reach the end of its first cycle".into(),
        )),
        Samples::All => Ok(all().collect()),
        Samples::Last => Ok(all().next_back().into_iter().collect()),
        Samples::Number(number) if number < count => Ok(all().skip(number).take(1).collect()),
        Samples::Number(number) => Err(Error::config(
            "--sample",
            format!("there is no sample {number}; the run has {count}, counted from 0"),
        )),
    }
}

/// The chosen samples as they are written.
pub(super) fn parts(
    info: &RunInfo,
    posterior: &Posterior,
    chosen: &[(usize, &Snapshot)],
    options: &Options,
) -> Result<Vec<Part>> {
    let network = &posterior.network;
    let columns = info.inputs.table().map_or(0, |_| network.input_len());
    let columns: Vec<u32> = (0..columns as u32).collect();
    let mut parts = Vec::new();
    for (number, member) in chosen {
        let weights = Weights { params: member.weights.clone(), stats: member.stats.clone() };
        let mut part = Part {
            number: *number,
            chain: member.chain,
            epoch: member.epoch,
            network: network.clone(),
            weights,
            inputs: columns.clone(),
        };
        if !options.dense {
            let small = shrink(network, &member.keep, Layout::SMALLEST)?;
            part.weights = Weights {
                params: small.take(&member.weights),
                stats: small.take_stats(&member.stats),
            };
            if !columns.is_empty() {
                part.inputs.clone_from(&small.inputs);
            }
            part.network = small.network;
        }
        if options.fold_norms {
            (part.network, part.weights) = fold_norms(&part.network, &part.weights)?;
        }
        parts.push(part);
    }
    Ok(parts)
}

/// Mean and standard deviation of the target, which lead from the network's units to the user's.
pub(super) fn target_units(info: &RunInfo) -> (f64, f64) {
    info.inputs.table().map_or((0.0, 1.0), |table| table.schema.target_scale())
}
