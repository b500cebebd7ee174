//! Whether the samples of a run agree: R̂ and effective sample sizes of what they predict.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use thinfer_core::metrics;
use thinfer_core::posterior::SampleRule;
use thinfer_core::posterior::Snapshot;

/// Chains agree where R̂ is at most this (Gelman et al., *Bayesian Data Analysis*, 3rd ed., section
/// 11.5).
pub const AGREED: f64 = 1.1;
/// Test rows whose predictions are compared, at most.
const ROWS: usize = 100;
/// The share of rows that may disagree more than what is told.
const TAIL: f64 = 0.05;
/// Samples of a chain that are compared, at most; of more, every so many.
const SAMPLES: usize = 1000;
/// Samples a chain that R̂ needs.
pub const LEAST_SAMPLES: usize = 4;
/// Samples a chain that an effective sample size needs.
const LEAST_FOR_SIZE: usize = 20;

/// How far the samples of one quantity are from draws of one distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Rank-normalised split R̂: 1 where all halves of chains have one distribution.
    pub r_hat: f64,
    /// How many independent draws the samples are worth, in the bulk; absent with fewer than twenty
    /// samples a chain.
    pub bulk_ess: Option<f64>,
    /// The same in the tails.
    pub tail_ess: Option<f64>,
}

impl Agreement {
    /// Whether R̂ is at most this and the samples are worth so many independent draws.
    pub(crate) fn is(&self, r_hat: f64, ess: f64) -> bool {
        self.r_hat <= r_hat && self.bulk_ess.is_none_or(|found| found >= ess)
    }

    fn of(chains: &[Vec<f64>]) -> Option<Self> {
        // Halves that are too short for a correlation would count as independent draws.
        let long_enough = chains.iter().all(|chain| chain.len() >= LEAST_FOR_SIZE);
        let size = |of: fn(&[Vec<f64>]) -> Option<f64>| of(chains).filter(|_| long_enough);
        Some(Self {
            r_hat: metrics::r_hat(chains)?,
            bulk_ess: size(metrics::bulk_ess),
            tail_ess: size(metrics::tail_ess),
        })
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R-hat {:.2} of predictions", self.r_hat)?;
        match self.bulk_ess {
            Some(size) => write!(f, ", {size:.0} independent draws"),
            None => Ok(()),
        }
    }
}

/// What the samples of one chain were like, the burn-in included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleTrace {
    /// The chain.
    pub chain: u32,
    /// The epoch after which each sample was taken, from 0.
    pub epochs: Vec<usize>,
    /// Whether the sample is averaged.
    pub kept: Vec<bool>,
    /// The mean log-likelihood of the test rows, in nats.
    pub log_likelihood: Vec<f64>,
    /// The logarithm of the noise, where it is learned, in the units of the target; where it is
    /// predicted row by row, its mean over test rows.
    pub log_sigma: Option<Vec<f64>>,
}

/// Whether chains, or the halves of one chain, agree on the test rows: after the burn-in, not
/// thinned, and without chains that blew up. A quantity is absent with fewer than four samples a
/// chain, or where it does not vary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Convergence {
    /// Chains that are compared.
    pub chains: usize,
    /// Samples of each of them.
    pub samples: usize,
    /// Of predictions (the mean, or the probability of the true class): at most 5 % of the test
    /// rows have a larger R̂ or a smaller effective sample size.
    pub predictions: Option<Agreement>,
    /// Of the mean log-likelihood of the test rows.
    pub log_likelihood: Option<Agreement>,
    /// Of the logarithm of the noise, where it is learned.
    pub log_sigma: Option<Agreement>,
    /// Every sample.
    pub traces: Vec<SampleTrace>,
}

/// What samples say about the test rows, sample by sample.
pub(crate) struct Sampled<'a> {
    /// The samples, chain by chain.
    pub samples: &'a [&'a Snapshot],
    /// The mean, or the probability of the true class, of [`compared_rows`].
    pub predictions: Vec<Vec<f64>>,
    /// The mean log-likelihood of the rows.
    pub log_likelihood: Vec<f64>,
    /// The logarithm of the noise, where it is learned.
    pub log_sigma: Option<Vec<f64>>,
}

/// The test rows whose predictions are compared, of so many.
pub(crate) fn compared_rows(all: usize) -> impl Iterator<Item = usize> + Clone {
    let rows = all.min(ROWS);
    (0..rows).map(move |row| row * all / rows)
}

impl Convergence {
    pub(crate) fn of(sampled: &Sampled<'_>, rule: &SampleRule) -> Self {
        let kept: Vec<Vec<usize>> = rule
            .after_burn_in(sampled.samples)
            .into_iter()
            .map(|chain| {
                let each = chain.len().div_ceil(SAMPLES).max(1);
                chain
                    .into_iter()
                    .rev()
                    .step_by(each)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .collect()
            })
            .collect();
        let chains_of = |value: &dyn Fn(usize) -> f64| -> Vec<Vec<f64>> {
            kept.iter().map(|chain| chain.iter().map(|at| value(*at)).collect()).collect()
        };
        let agreement = |values: &Vec<f64>| Agreement::of(&chains_of(&|at| values[at]));
        let rows = sampled.predictions.first().map_or(0, Vec::len);
        let of_rows: Vec<Agreement> = (0..rows)
            .filter_map(|row| Agreement::of(&chains_of(&|at| sampled.predictions[at][row])))
            .collect();
        Self {
            chains: kept.len(),
            samples: kept.iter().map(Vec::len).min().unwrap_or(0),
            predictions: worst(&of_rows),
            log_likelihood: agreement(&sampled.log_likelihood),
            log_sigma: sampled.log_sigma.as_ref().and_then(agreement),
            traces: traces(sampled, rule),
        }
    }

    /// Whether predictions agree; `None` where that cannot be told.
    pub fn agreed(&self) -> Option<bool> {
        self.predictions.map(|found| found.r_hat <= AGREED)
    }
}

/// What 95 % of rows are better than.
fn worst(rows: &[Agreement]) -> Option<Agreement> {
    let at = |value: fn(&Agreement) -> Option<f64>, q: f64| {
        let mut values: Vec<f64> = rows.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then(|| metrics::quantile_of_sorted(&values, q))
    };
    Some(Agreement {
        r_hat: at(|row| Some(row.r_hat), 1.0 - TAIL)?,
        bulk_ess: at(|row| row.bulk_ess, TAIL),
        tail_ess: at(|row| row.tail_ess, TAIL),
    })
}

fn traces(sampled: &Sampled<'_>, rule: &SampleRule) -> Vec<SampleTrace> {
    let kept: BTreeSet<usize> = rule.kept(sampled.samples).into_iter().collect();
    let mut traces: Vec<SampleTrace> = Vec::new();
    for (at, sample) in sampled.samples.iter().enumerate() {
        if traces.last().is_none_or(|trace| trace.chain != sample.chain) {
            traces.push(SampleTrace {
                chain: sample.chain,
                epochs: Vec::new(),
                kept: Vec::new(),
                log_likelihood: Vec::new(),
                log_sigma: sampled.log_sigma.as_ref().map(|_| Vec::new()),
            });
        }
        if let Some(trace) = traces.last_mut() {
            trace.epochs.push(sample.epoch);
            trace.kept.push(kept.contains(&at));
            trace.log_likelihood.push(sampled.log_likelihood[at]);
            if let (Some(to), Some(from)) = (&mut trace.log_sigma, &sampled.log_sigma) {
                to.push(from[at]);
            }
        }
    }
    traces
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_core::posterior::Thin;
    use thinfer_engine::noise::{Key, Stream};

    fn samples(chains: u32, epochs: usize) -> Vec<Snapshot> {
        let of = |chain| {
            (0..epochs).map(move |epoch| Snapshot {
                chain,
                epoch,
                weights: Vec::new(),
                keep: vec![1],
                stats: Vec::new(),
                inclusion: Vec::new(),
            })
        };
        (0..chains).flat_map(of).collect()
    }

    /// Three rows; `shift` moves what the chains say apart, in the burn-in by much more.
    fn found(chains: u32, epochs: usize, shift: f64, burn_in: f64) -> Convergence {
        let samples = samples(chains, epochs);
        let samples: Vec<&Snapshot> = samples.iter().collect();
        let value = |sample: &Snapshot, row: usize| {
            let key = Key::new(5, sample.chain, Stream::Sampler);
            let early = if sample.epoch < epochs / 2 { 20.0 } else { 1.0 };
            let apart = shift * early * f64::from(sample.chain);
            f64::from(key.normal(row as u64, sample.epoch)) + apart
        };
        let predictions: Vec<Vec<f64>> =
            samples.iter().map(|s| (0..3).map(|row| value(s, row)).collect()).collect();
        let log_likelihood = samples.iter().map(|s| value(s, 7)).collect();
        let log_sigma = Some(samples.iter().map(|s| value(s, 8)).collect());
        let sampled = Sampled { samples: &samples, predictions, log_likelihood, log_sigma };
        let all: Vec<usize> = (0..epochs).collect();
        let whole = 0..epochs;
        let whole = std::slice::from_ref(&whole);
        Convergence::of(&sampled, &SampleRule::new(whole, &all, burn_in, Thin::Every(5)))
    }

    #[test]
    fn chains_of_one_distribution_agree_and_others_do_not() {
        let same = found(4, 100, 0.0, 0.5);
        assert_eq!((same.agreed(), same.chains, same.samples), (Some(true), 4, 50));
        let predictions = same.predictions.unwrap();
        assert!(predictions.bulk_ess.unwrap() > 100.0, "{predictions:?}");
        assert!(predictions.tail_ess.unwrap() > 50.0, "{predictions:?}");
        let apart = found(4, 100, 1.0, 0.5);
        assert_eq!(apart.agreed(), Some(false));
        assert!(apart.log_sigma.unwrap().r_hat > 1.2 && apart.log_likelihood.unwrap().r_hat > 1.2);
        // What lies apart in the burn-in alone does not count.
        assert_eq!(found(4, 100, 0.002, 0.5).agreed(), Some(true));
        assert!(
            found(4, 100, 0.05, 0.0).predictions.unwrap().r_hat > same.predictions.unwrap().r_hat
        );
    }

    #[test]
    fn one_chain_is_compared_with_itself_and_three_samples_tell_nothing() {
        assert_eq!(found(1, 200, 0.0, 0.5).agreed(), Some(true));
        let few = found(2, 3, 0.0, 0.0);
        assert_eq!((few.agreed(), few.samples, few.log_sigma), (None, 3, None));
        let short = found(2, 12, 0.0, 0.0).predictions.unwrap();
        assert_eq!((short.bulk_ess, short.tail_ess), (None, None), "they would be about 24");
    }

    #[test]
    fn a_trace_has_every_sample_and_says_which_are_averaged() {
        let found = found(2, 20, 0.0, 0.5);
        assert_eq!(found.traces.len(), 2);
        let trace = &found.traces[1];
        assert_eq!((trace.chain, trace.epochs.len(), trace.log_likelihood.len()), (1, 20, 20));
        let kept: Vec<usize> = (0..20).filter(|at| trace.kept[*at]).collect();
        assert_eq!(kept, [14, 19]);
    }
}
