//! Whether the samples of a run can be used: agreement, traces, drift, temperature, calibration.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;
use thinfer_core::metrics::{Pit, ReliabilityBin, ece_by_chance};
use thinfer_core::posterior::Snapshot;

use crate::evaluate::{Agreement, Behaviour, SampleTrace, Verdict};
use crate::evaluated::Evaluated;
use crate::run::Run;

/// Cycles that are told one by one, at most; of more, quarters of the samples.
const MOST_CYCLES: usize = 8;
/// Parts of the samples where cycles are not told.
const PARTS: usize = 4;

/// What is known of the samples of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Whether to believe the run.
    pub verdict: Option<Verdict>,
    /// Whether chains agree on what they predict.
    pub agreement: Agreements,
    /// What the chains did, with their temperature.
    pub behaviour: Behaviour,
    /// The run in parts, in their order.
    pub drift: Vec<Stretch>,
    /// Where the truth lies in what is predicted; of numbers.
    pub pit: Option<Pit>,
    /// How far probabilities are from what happens; of classes.
    pub calibration: Option<ClassCalibration>,
    /// Every sample of every chain.
    pub traces: Vec<ChainTrace>,
}

/// R̂ and effective sample sizes, see [`Convergence`](crate::evaluate::Convergence).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreements {
    /// Chains that are compared.
    pub chains: usize,
    /// Samples of each of them.
    pub samples: usize,
    /// Of predictions.
    pub predictions: Option<Agreement>,
    /// Of the mean log-likelihood of the test rows.
    pub log_likelihood: Option<Agreement>,
    /// Of the logarithm of the noise.
    pub log_sigma: Option<Agreement>,
}

/// A part of a run, mean over chains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Its cycle, from 1, where it is one; else it is a quarter of the samples.
    pub cycle: Option<usize>,
    /// Its first epoch, from 1.
    pub first_epoch: usize,
    /// Its last epoch.
    pub last_epoch: usize,
    /// Samples in it, all chains together.
    pub samples: usize,
    /// Those of them that are compared.
    pub compared: usize,
    /// The mean training loss of its epochs.
    pub loss: Option<f64>,
    /// The mean log-likelihood of the test rows under its samples, one by one.
    pub log_likelihood: Option<f64>,
    /// The noise of its samples, the exponential of the mean logarithm.
    pub noise: Option<f64>,
}

/// How far probabilities of classes are from what happens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassCalibration {
    /// The expected calibration error, 15 bins of equal width.
    pub ece: f64,
    /// What chance alone leaves of it.
    pub by_chance: f64,
    /// The bins.
    pub bins: Vec<ReliabilityBin>,
}

/// The samples of a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainTrace {
    /// Whether each sample is compared with those of other chains: after the burn-in, with the
    /// final mask.
    pub compared: Vec<bool>,
    /// What it was like.
    #[serde(flatten)]
    pub samples: SampleTrace,
}

/// What `evaluated`, the evaluation of `run`, says about its samples.
pub fn diagnose(run: &Run, evaluated: &Evaluated) -> Diagnosis {
    let convergence = evaluated.convergence();
    let compared = compared(run);
    let traces: Vec<ChainTrace> = convergence
        .traces
        .iter()
        .map(|trace| ChainTrace {
            compared: trace
                .epochs
                .iter()
                .map(|epoch| compared.contains(&(trace.chain, *epoch)))
                .collect(),
            samples: trace.clone(),
        })
        .collect();
    let (pit, calibration) = match evaluated {
        Evaluated::Table(found) => {
            (found.pit.clone(), found.posterior.ece.map(|ece| (ece, found.reliability.clone())))
        }
        Evaluated::Images(found) => (None, Some((found.posterior.ece, found.reliability.clone()))),
    };
    Diagnosis {
        verdict: evaluated.verdict().cloned(),
        agreement: Agreements {
            chains: convergence.chains,
            samples: convergence.samples,
            predictions: convergence.predictions,
            log_likelihood: convergence.log_likelihood,
            log_sigma: convergence.log_sigma,
        },
        behaviour: evaluated.behaviour().clone(),
        drift: drift(run, &traces),
        pit,
        calibration: calibration.map(|(ece, bins)| ClassCalibration {
            ece,
            by_chance: ece_by_chance(&bins),
            bins,
        }),
        traces,
    }
}

/// Chain and epoch of the samples that are compared.
fn compared(run: &Run) -> BTreeSet<(u32, usize)> {
    let samples: Vec<&Snapshot> = run.results.iter().flat_map(|r| &r.snapshots).collect();
    let kept = run.info.sample_rule(&run.results).after_burn_in(&samples);
    kept.into_iter().flatten().map(|at| (samples[at].chain, samples[at].epoch)).collect()
}

/// Cycles, where there are several and not too many; else quarters of the samples.
fn parts(cycles: &[Range<usize>], traces: &[ChainTrace]) -> Vec<(Option<usize>, Range<usize>)> {
    if (2..=MOST_CYCLES).contains(&cycles.len()) {
        return (1..).map(Some).zip(cycles.iter().cloned()).collect();
    }
    let longest = traces.iter().map(|trace| &trace.samples.epochs).max_by_key(|e| e.len());
    let epochs = longest.map_or(&[][..], Vec::as_slice);
    let parts = epochs.len().min(PARTS);
    let mut from = epochs.first().copied().unwrap_or(0);
    let part = |part: usize| {
        let end = epochs[(part + 1) * epochs.len() / parts - 1] + 1;
        let range = from..end;
        from = end;
        (None, range)
    };
    (0..parts).map(part).collect()
}

fn drift(run: &Run, traces: &[ChainTrace]) -> Vec<Stretch> {
    let is_usable = |chain: u32| traces.iter().any(|trace| trace.samples.chain == chain);
    let stretch = |(cycle, epochs): (Option<usize>, Range<usize>)| {
        let records = run.results.iter().filter(|result| is_usable(result.chain));
        let records = records.flat_map(|result| &result.records);
        let losses = records.filter(|r| epochs.contains(&r.epoch)).map(|r| r.loss);
        let (mut likelihoods, mut sigmas, mut compared) = (Vec::new(), Vec::new(), 0);
        for trace in traces {
            let here = |at: &usize| epochs.contains(&trace.samples.epochs[*at]);
            for at in (0..trace.samples.epochs.len()).filter(here) {
                likelihoods.push(trace.samples.log_likelihood[at]);
                sigmas.extend(trace.samples.log_sigma.as_ref().map(|sigma| sigma[at]));
                compared += usize::from(trace.compared[at]);
            }
        }
        Stretch {
            cycle,
            first_epoch: epochs.start + 1,
            last_epoch: epochs.end,
            samples: likelihoods.len(),
            compared,
            loss: mean(&losses.collect::<Vec<_>>()),
            log_likelihood: mean(&likelihoods),
            noise: mean(&sigmas).map(f64::exp),
        }
    };
    let all = parts(&run.info.config.cycles(), traces).into_iter().map(stretch);
    // A run that is not finished has not been there yet.
    all.filter(|part| part.samples > 0 || part.loss.is_some()).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(chain: u32, epochs: &[usize]) -> ChainTrace {
        ChainTrace {
            compared: vec![true; epochs.len()],
            samples: SampleTrace {
                chain,
                epochs: epochs.to_vec(),
                kept: vec![true; epochs.len()],
                log_likelihood: vec![0.0; epochs.len()],
                log_sigma: None,
            },
        }
    }

    #[test]
    fn a_run_has_cycles_or_quarters() {
        let cycles = [0..10, 10..20];
        assert_eq!(parts(&cycles, &[]), [(Some(1), 0..10), (Some(2), 10..20)]);
        let one = 0..20;
        let one = std::slice::from_ref(&one);
        let epochs: Vec<usize> = (10..20).collect();
        let quarters = parts(one, &[trace(0, &[10]), trace(1, &epochs)]);
        assert_eq!(
            quarters,
            [(None, 10..12), (None, 12..15), (None, 15..17), (None, 17..20)],
            "of the longest chain, together all of them"
        );
        assert_eq!(parts(one, &[trace(0, &[3, 9])]), [(None, 3..4), (None, 4..10)]);
        assert!(parts(one, &[]).is_empty());
        let many: Vec<Range<usize>> = (0..20).map(|at| at..at + 1).collect();
        assert_eq!(parts(&many, &[trace(1, &epochs)]).len(), 4);
    }
}
