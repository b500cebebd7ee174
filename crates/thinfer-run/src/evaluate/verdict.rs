//! What to make of an evaluation, in sentences that terminal and report share.

use std::ops::Range;

use super::convergence::{AGREED, Agreement, Convergence, LEAST_SAMPLES};

/// A calibration error that is larger by this is worth a sentence.
const ECE_STEP: f64 = 0.01;

/// The NLL and, for classes, the calibration error of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Mean negative log-likelihood.
    pub nll: Option<f64>,
    /// Expected calibration error.
    pub ece: Option<f64>,
}

impl Convergence {
    /// Stands behind the number of samples in a table: whether they are draws from one
    /// distribution; nothing where they are, and where a method takes no samples.
    pub fn label(&self, samples: bool) -> &'static str {
        match self.agreed() {
            _ if !samples => "",
            Some(true) => "",
            Some(false) => ", not converged",
            None => ", convergence unknown",
        }
    }

    /// R̂ and effective sample sizes in a line, and what to do where they are bad.
    pub fn sentence(&self) -> String {
        let Some(predictions) = self.predictions else {
            return format!(
                "unknown, since {} after the burn-in that share the final mask are too few; at least {LEAST_SAMPLES} are needed (more `schedule.step_size.cycles` or `train.samples_per_cycle`)",
                match (self.samples, self.chains) {
                    (1, 1) => "1 sample".to_owned(),
                    (samples, 1) => format!("{samples} samples"),
                    (samples, chains) => format!("{samples} samples in each of {chains} chains"),
                }
            );
        };
        let mut parts = vec![format!("R-hat {:.2} of predictions", predictions.r_hat)];
        let mut add = |of: &str, found: Option<Agreement>| {
            parts.extend(found.map(|found| format!("{:.2} of {of}", found.r_hat)));
        };
        add("the log-likelihood", self.log_likelihood);
        add("the noise", self.log_sigma);
        let samples = match (self.samples, self.chains) {
            (samples, 1) => format!("{samples} samples"),
            (samples, chains) => format!("{chains} x {samples} samples"),
        };
        let worth = match (predictions.bulk_ess, predictions.tail_ess) {
            (Some(bulk), Some(tail)) => {
                format!("{samples} are worth {bulk:.1} independent draws (tails {tail:.1})")
            }
            _ => format!("{samples}, too few for an effective sample size"),
        };
        let verdict = if self.agreed() == Some(true) {
            String::new()
        } else {
            format!(
                "; not converged, since R-hat is above {AGREED}: raise `train.epochs` with `schedule.step_size.cycles`, or `chains`"
            )
        };
        format!("{}; {worth}{verdict}", parts.join(", "))
    }

    /// Says so where the average is worse than the last samples alone, and which cycles do it.
    pub fn worse_than_last(
        &self,
        posterior: Quality,
        last: Quality,
        cycles: &[Range<usize>],
    ) -> Option<String> {
        let worse = |name: &str, of: fn(Quality) -> Option<f64>, step: f64| {
            let (ours, theirs) = (of(posterior)?, of(last)?);
            (ours > theirs + step).then(|| format!("{name} {ours:.4} against {theirs:.4}"))
        };
        let found: Vec<String> = [worse("NLL", |q| q.nll, 0.0), worse("ECE", |q| q.ece, ECE_STEP)]
            .into_iter()
            .flatten()
            .collect();
        if found.is_empty() || self.traces.iter().all(|t| t.kept.iter().filter(|k| **k).count() < 2)
        {
            return None;
        }
        let culprits = self.below_last(cycles);
        let because = match culprits.last() {
            None => String::new(),
            // Most of what is averaged lags behind, so another burn-in would leave next to nothing.
            Some(_) if 2 * culprits.len() > self.averaged(cycles) => format!(
                ", because of the samples of cycle {}: the chain was still learning, so raise `train.epochs`",
                listed(&culprits)
            ),
            Some(last) => format!(
                ", because of the samples of cycle {}; `--resume --set posterior.burn_in={}` leaves them out without training again",
                listed(&culprits),
                (100.0 * (*last + 1) as f64 / cycles.len() as f64).ceil() / 100.0
            ),
        };
        Some(format!(
            "the posterior scores worse than its last sample alone: {}{because}",
            found.join(", ")
        ))
    }

    /// How many cycles have samples that are averaged.
    fn averaged(&self, cycles: &[Range<usize>]) -> usize {
        let has_one = |cycle: &&Range<usize>| {
            let kept = self.traces.iter().flat_map(|trace| trace.epochs.iter().zip(&trace.kept));
            kept.into_iter().any(|(epoch, kept)| *kept && cycle.contains(epoch))
        };
        cycles.iter().filter(has_one).count()
    }

    /// The cycles before the last, from 0, whose averaged samples have a lower mean log-likelihood
    /// than the last of their chain.
    fn below_last(&self, cycles: &[Range<usize>]) -> Vec<usize> {
        let is_below = |cycle: &Range<usize>| {
            let differences: Vec<f64> = self
                .traces
                .iter()
                .filter_map(|trace| {
                    let last = trace.log_likelihood.last()?;
                    let of_cycle = trace.epochs.iter().zip(&trace.kept).zip(&trace.log_likelihood);
                    let here =
                        of_cycle.filter(|((epoch, kept), _)| **kept && cycle.contains(epoch));
                    Some(here.map(|(_, l)| l - last).collect::<Vec<f64>>())
                })
                .flatten()
                .collect();
            !differences.is_empty() && differences.iter().sum::<f64>() < 0.0
        };
        (0..cycles.len().max(1) - 1).filter(|at| is_below(&cycles[*at])).collect()
    }
}

/// Numbers from 1, neighbours drawn together: `2, 4 to 6`.
fn listed(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let part = |(first, last): &(usize, usize)| match last - first {
        0 => (first + 1).to_string(),
        _ => format!("{} to {}", first + 1, last + 1),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::SampleTrace;

    fn convergence(r_hat: Option<f64>) -> Convergence {
        let agreement = |r_hat| {
            let (bulk_ess, tail_ess) = (Some(7.04), Some(9.0));
            Agreement { r_hat, bulk_ess, tail_ess }
        };
        Convergence {
            chains: 2,
            samples: 6,
            predictions: r_hat.map(agreement),
            log_likelihood: r_hat.map(|_| agreement(1.01)),
            log_sigma: None,
            traces: vec![SampleTrace {
                chain: 0,
                epochs: vec![4, 9, 14, 19],
                kept: vec![true, true, true, true],
                log_likelihood: vec![-0.4, -0.2, -0.05, -0.1],
                log_sigma: None,
            }],
        }
    }

    #[test]
    fn numbers_and_verdict_are_one_line() {
        let good = convergence(Some(1.04));
        assert_eq!(
            good.sentence(),
            "R-hat 1.04 of predictions, 1.01 of the log-likelihood; 2 x 6 samples are worth 7.0 \
             independent draws (tails 9.0)"
        );
        assert_eq!(good.label(true), "");
        let bad = convergence(Some(1.62));
        assert!(
            bad.sentence().contains("not converged, since R-hat is above 1.1: raise"),
            "{}",
            bad.sentence()
        );
        assert_eq!((bad.label(true), bad.label(false)), (", not converged", ""));
        let unknown = convergence(None);
        assert!(unknown.sentence().starts_with("unknown, since 6 samples in each of 2 chains"));
        assert_eq!(unknown.label(true), ", convergence unknown");
    }

    #[test]
    fn an_average_that_is_worse_than_its_last_sample_is_told_with_the_cycles_that_do_it() {
        let found = convergence(None);
        let cycles = [0..5, 5..10, 10..15, 15..20];
        let of = |nll, ece| Quality { nll: Some(nll), ece: Some(ece) };
        let told = found.worse_than_last(of(0.1975, 0.04), of(0.1791, 0.01), &cycles).unwrap();
        assert_eq!(
            told,
            "the posterior scores worse than its last sample alone: NLL 0.1975 against 0.1791, \
             ECE 0.0400 against 0.0100, because of the samples of cycle 1 to 2; `--resume --set \
             posterior.burn_in=0.5` leaves them out without training again"
        );
        let mut climbing = convergence(None);
        climbing.traces[0].log_likelihood = vec![-0.4, -0.3, -0.2, -0.1];
        let told = climbing.worse_than_last(of(0.2, 0.0), of(0.1, 0.0), &cycles).unwrap();
        assert!(
            told.ends_with(
                "of cycle 1 to 3: the chain was still learning, so raise `train.epochs`"
            )
        );
        assert_eq!(listed(&[0, 2, 3, 4, 7]), "1, 3 to 5, 8");
        assert_eq!(found.worse_than_last(of(0.17, 0.015), of(0.1791, 0.01), &cycles), None);
        let calibrated = found.worse_than_last(of(0.17, 0.03), of(0.1791, 0.01), &cycles).unwrap();
        assert!(calibrated.contains("alone: ECE 0.0300 against 0.0100"), "{calibrated}");
    }
}
