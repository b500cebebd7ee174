//! What is gained when a network may refuse to answer.

use serde::Serialize;

/// The error among the rows that are answered, as more and more of them are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RiskCoverage {
    /// The share of wrong rows among the 1, 2, …, n most confident ones. Among rows of equal
    /// confidence the order is chance, and this is its expectation.
    pub risks: Vec<f64>,
    /// The area under the curve: the mean of `risks` (Geifman & El-Yaniv, NeurIPS 2017).
    pub aurc: f64,
    /// The area above that of an order that knows which rows are wrong (Geifman, Uziel & El-Yaniv,
    /// ICLR 2019, with the exact optimum of n rows in place of its limit).
    pub excess: f64,
}

/// The risk-coverage curve of rows with a confidence each; `None` without rows.
pub fn risk_coverage(confidences: &[f64], right: &[bool]) -> Option<RiskCoverage> {
    assert_eq!(confidences.len(), right.len(), "one confidence a row");
    let rows = right.len();
    if rows == 0 {
        return None;
    }
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_unstable_by(|a, b| confidences[*b].total_cmp(&confidences[*a]));
    let mut risks = Vec::with_capacity(rows);
    let mut wrong = 0.0;
    for equals in order.chunk_by(|a, b| confidences[*a] == confidences[*b]) {
        let more = equals.iter().filter(|row| !right[**row]).count() as f64;
        for taken in 1..=equals.len() {
            let expected = wrong + more * (taken as f64 / equals.len() as f64);
            risks.push(expected / (risks.len() + 1) as f64);
        }
        wrong += more;
    }
    let mean = |sum: f64| sum / rows as f64;
    let first_wrong = rows - wrong as usize;
    let best = |answered: usize| answered.saturating_sub(first_wrong) as f64 / answered as f64;
    let aurc = mean(risks.iter().sum());
    let excess = aurc - mean((1..=rows).map(best).sum());
    Some(RiskCoverage { risks, aurc, excess })
}

#[cfg(test)]
mod tests {
    use super::super::confidences;
    use super::super::tests::golden;
    use super::*;

    /// From numpy 2.4: `order = argsort(-confidence)`,
    /// `mean(cumsum(~right[order]) / arange(1, n + 1))`, less the same with `right` sorted.
    #[test]
    fn areas_against_numpy() {
        let (members, truth) = golden::members();
        let mean = golden::mean(&members);
        let (confidence, right) = confidences(&mean, golden::CLASSES, &truth);
        let found = risk_coverage(&confidence, &right).unwrap();
        assert!((found.aurc - 0.399_127_205_871_382_84).abs() < 1e-12, "{}", found.aurc);
        let excess = 0.399_127_205_871_382_84 - 0.169_528_635_907_071_32;
        assert!((found.excess - excess).abs() < 1e-12, "{}", found.excess);
        assert_eq!(found.risks.len(), golden::ROWS);
    }

    /// The mean over 100,000 random orders of tied rows, from numpy as above: sd below 1e-4.
    #[test]
    fn ties_count_as_the_mean_over_their_orders() {
        let (confidence, right) = golden::tied();
        let found = risk_coverage(&confidence, &right).unwrap();
        assert!((found.aurc - 0.127_281_5).abs() < 2e-4, "{}", found.aurc);
    }

    #[test]
    fn by_hand() {
        // Right, wrong, right: 0, 1/2, 1/3; in the best order 0, 0, 1/3.
        let found = risk_coverage(&[0.9, 0.8, 0.7], &[true, false, true]).unwrap();
        assert_eq!(found.risks, [0.0, 0.5, 1.0 / 3.0]);
        assert!((found.aurc - 5.0 / 18.0).abs() < 1e-15);
        assert!((found.excess - 1.0 / 6.0).abs() < 1e-15);
        let tied = risk_coverage(&[0.5, 0.5], &[true, false]).unwrap();
        assert_eq!(tied.risks, [0.5, 0.5]);
        let perfect = risk_coverage(&[0.9, 0.1], &[true, false]).unwrap();
        assert_eq!(perfect.excess, 0.0);
        assert_eq!(risk_coverage(&[], &[]), None);
    }
}
