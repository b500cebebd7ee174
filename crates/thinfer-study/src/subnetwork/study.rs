//! What sharing costs: size and scores of shared samples beside the full ones.

use serde::Serialize;
use thinfer_core::device::{Device, OnCuda};
use thinfer_core::metrics;
use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_data::{Data, Error, ImageData, Result};
use thinfer_engine::Dataset;
use thinfer_run::evaluate::{Scores, score};
use thinfer_run::images::classify;
use thinfer_run::run::Run;

use super::{Samples, Subnetwork};

/// One way to keep the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The share of live numbers that every sample has for itself.
    pub share: f64,
    /// How many numbers that are.
    pub differing: usize,
    /// Bytes of the file.
    pub bytes: usize,
    /// The same as a share of the bytes of full snapshots.
    pub of_full: f64,
    /// How far its predictions are from those of the full ensemble, mean over test rows or images:
    /// of classes half the sum of the differences of their probabilities, in a regression the
    /// absolute difference of the predictive means, in the user's units.
    pub from_full: f64,
    /// Scores of the ensemble on the test rows or images.
    pub scores: Scores,
}

/// Size and scores of some shares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// The chain whose samples these are.
    pub chain: u32,
    /// How many samples there are.
    pub samples: usize,
    /// Numbers of one sample at the size that pruning left: parameters and running statistics.
    pub numbers: usize,
    /// Those of them that are not pruned.
    pub live: usize,
    /// Those of them that are not the same in all samples.
    pub varying: usize,
    /// Numbers of one sample of the whole network.
    pub whole_numbers: usize,
    /// Full snapshots: nothing is shared.
    pub full: Row,
    /// The last sample alone.
    pub last: Row,
    /// Each share.
    pub shares: Vec<Row>,
}

/// Measures `shares` on the test rows or images of a run, for the samples of one chain, the first
/// unless said otherwise; of a run on images on `device`.
pub fn study(
    run: &Run,
    chain: Option<u32>,
    shares: &[f64],
    device: Device,
) -> Result<(Samples, Study)> {
    let on = run.on(device)?;
    let posterior = of_chain(run, chain)?;
    let samples = Samples::of(&posterior)?;
    let test = Test::of(run, &samples, on.as_ref());
    let full = samples.full().to_bytes()?.len();
    let wanted = test.predict(samples.posterior())?.mean();
    let row = |share: f64, kept: Subnetwork| -> Result<Row> {
        let bytes = kept.to_bytes()?.len();
        let predictive = test.predict(&kept.posterior())?;
        Ok(Row {
            share,
            differing: kept.differing(),
            bytes,
            of_full: bytes as f64 / full as f64,
            from_full: test.distance(&predictive.mean(), &wanted),
            scores: test.scores(&predictive, kept.samples.len()),
        })
    };
    let measured = Study {
        chain: posterior.members[0].chain,
        samples: posterior.members.len(),
        numbers: samples.numbers[0].len(),
        live: samples.live(),
        varying: samples.order.len(),
        whole_numbers: posterior.network.params().len() + posterior.network.stats().len(),
        full: row(1.0, samples.full())?,
        last: row(0.0, Samples::of(&posterior.last())?.sharing(0.0)?)?,
        shares: shares
            .iter()
            .map(|&share| row(share, samples.sharing(share)?))
            .collect::<Result<_>>()?,
    };
    Ok((samples, measured))
}

/// The samples of one chain that share its final mask.
fn of_chain(run: &Run, chain: Option<u32>) -> Result<Posterior> {
    let mut posterior = run.posterior();
    let chains = posterior.chains();
    let wanted = chain.or(chains.first().copied()).unwrap_or(0);
    if !chains.is_empty() && !chains.contains(&wanted) {
        let known = chains.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let problem = format!("is {wanted}, but the chains with samples are {known}");
        return Err(Error::config("--chain", problem));
    }
    posterior.members.retain(|member| member.chain == wanted);
    Ok(posterior)
}

/// What the samples are scored on.
enum Test<'a> {
    Table { rows: Dataset, scale: (f64, f64) },
    Images { data: &'a ImageData, on: Option<&'a OnCuda> },
}

impl<'a> Test<'a> {
    fn of(run: &'a Run, samples: &Samples, on: Option<&'a OnCuda>) -> Self {
        match &run.data {
            Data::Table(data) => {
                let columns: Vec<usize> = samples.inputs().iter().map(|c| *c as usize).collect();
                let rows = data.test.take_columns(&columns);
                Test::Table { rows, scale: data.schema.target_scale() }
            }
            Data::Images(data) => Test::Images { data, on },
        }
    }

    fn predict(&self, posterior: &Posterior) -> Result<Predictive> {
        match self {
            Test::Table { rows, .. } => posterior.predict(rows),
            Test::Images { data, on } => {
                let (network, augment) = (&posterior.network, &data.augment);
                let members = classify(network, &posterior.members, &data.test, augment, *on)?;
                Ok(Predictive::Classes { classes: data.classes.len(), members })
            }
        }
    }

    /// See [`Row::from_full`]; both are means over samples.
    fn distance(&self, one: &[f64], other: &[f64]) -> f64 {
        let sum: f64 = one.iter().zip(other).map(|(a, b)| (a - b).abs()).sum();
        match self {
            // One number a row.
            Test::Table { rows, scale } if one.len() == rows.rows() => {
                sum * scale.1 / rows.rows() as f64
            }
            Test::Table { rows, .. } => 0.5 * sum / rows.rows().max(1) as f64,
            Test::Images { data, .. } => 0.5 * sum / data.test.rows().max(1) as f64,
        }
    }

    fn scores(&self, predictive: &Predictive, members: usize) -> Scores {
        let data = match self {
            Test::Table { rows, scale } => return score(predictive, rows, *scale),
            Test::Images { data, .. } => data,
        };
        let (mean, truth) = (predictive.mean(), data.test.labels());
        let classes = data.classes.len();
        Scores {
            members,
            mse: None,
            accuracy: metrics::accuracy_from_probabilities(&mean, classes, truth),
            nll: metrics::negative_log_likelihood_classes(&mean, classes, truth),
            coverage90: None,
            ece: metrics::ece(&mean, classes, truth, metrics::ECE_BINS).map(|c| c.ece),
            brier: metrics::brier(&mean, classes, truth),
        }
    }
}
