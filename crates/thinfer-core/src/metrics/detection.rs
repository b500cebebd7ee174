//! How well a score tells what is foreign from what is known.

use serde::Serialize;

/// The share of foreign rows that must be found for [`Detection::fpr95`].
const FOUND: f64 = 0.95;

/// What a threshold on a score can do. Foreign rows are the positives, and a higher score means
/// more foreign.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Detection {
    /// The area under the ROC curve: the probability that a foreign row scores higher than a known
    /// one, ties counted half. 0.5 is chance.
    pub auroc: f64,
    /// The area under the precision-recall curve as the average precision, Σ (Rᵢ − Rᵢ₋₁) Pᵢ over
    /// the distinct scores. Chance is the share of foreign rows.
    pub aupr: f64,
    /// The smallest share of known rows above a threshold that 95 % of the foreign rows reach.
    pub fpr95: f64,
}

/// Compares the scores of known rows with those of foreign ones; `None` where either has none.
pub fn detect(known: &[f64], foreign: &[f64]) -> Option<Detection> {
    if known.is_empty() || foreign.is_empty() {
        return None;
    }
    let mut scores: Vec<(f64, bool)> = known.iter().map(|s| (*s, false)).collect();
    scores.extend(foreign.iter().map(|s| (*s, true)));
    scores.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let (negatives, positives) = (known.len() as f64, foreign.len() as f64);
    let (mut true_positives, mut false_positives) = (0.0, 0.0);
    let (mut pairs, mut precision) = (0.0, 0.0);
    let mut fpr95 = None;
    // Rows of equal score pass a threshold together.
    for step in scores.chunk_by(|a, b| a.0 == b.0) {
        let found = step.iter().filter(|(_, foreign)| *foreign).count() as f64;
        let wrong = step.len() as f64 - found;
        pairs += wrong * (true_positives + 0.5 * found);
        true_positives += found;
        false_positives += wrong;
        precision += found / positives * (true_positives / (true_positives + false_positives));
        if fpr95.is_none() && true_positives >= FOUND * positives {
            fpr95 = Some(false_positives / negatives);
        }
    }
    Some(Detection {
        auroc: pairs / (positives * negatives),
        aupr: precision,
        fpr95: fpr95.unwrap_or(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::golden;
    use super::*;

    /// From scikit-learn 1.9 with `label = arange(60) >= 40`, `score = 1 - confidence`:
    /// `roc_auc_score(label, score)`, `average_precision_score(label, score)`,
    /// `fpr[argmax(tpr >= 0.95)]` of `roc_curve(label, score, drop_intermediate=False)`.
    #[test]
    fn detection_against_scikit_learn() {
        let scores: Vec<f64> = golden::tied().0.iter().map(|c| 1.0 - c).collect();
        let found = detect(&scores[..40], &scores[40..]).unwrap();
        assert!((found.auroc - 0.514375).abs() < 1e-12, "{found:?}");
        assert!((found.aupr - 0.343_623_917_288_447_9).abs() < 1e-12, "{found:?}");
        assert!((found.fpr95 - 0.85).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn ends_and_chance() {
        let perfect = detect(&[0.1, 0.2], &[0.3, 0.4]).unwrap();
        assert_eq!(perfect, Detection { auroc: 1.0, aupr: 1.0, fpr95: 0.0 });
        let reversed = detect(&[0.3, 0.4], &[0.1, 0.2]).unwrap();
        assert_eq!((reversed.auroc, reversed.fpr95), (0.0, 1.0));
        // One score for all: every threshold takes all or nothing.
        let constant = detect(&[0.5; 30], &[0.5; 10]).unwrap();
        assert_eq!(constant, Detection { auroc: 0.5, aupr: 0.25, fpr95: 1.0 });
        assert_eq!(detect(&[], &[1.0]), None);
        assert_eq!(detect(&[1.0], &[]), None);
    }
}
