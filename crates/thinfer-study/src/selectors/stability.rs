//! How far a selection can be trusted: repeats of it, and the truth where it is known.

use serde::{Deserialize, Serialize};
use thinfer_core::metrics::Selection;

/// A selection against the truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// |Ŝ|
    pub selected: usize,
    /// |Ŝ \ S| / |Ŝ|, or 0 when nothing was selected.
    pub fdr: f64,
    /// |S \ Ŝ| / |S|
    pub fndr: f64,
    /// |S ∩ Ŝ| / |S|
    pub power: f64,
    /// Whether Ŝ = S.
    pub exact: bool,
}

/// Compares what was selected with what matters.
pub fn quality(selected: &[usize], truth: &[usize]) -> Quality {
    let against = Selection::compare(selected, truth);
    Quality {
        selected: against.selected,
        fdr: against.fdr,
        fndr: against.fndr,
        power: if truth.is_empty() { 0.0 } else { 1.0 - against.fndr },
        exact: against.false_discoveries == 0 && against.missed == 0,
    }
}

/// The share of selections (seeds, data sets, chains) that hold each of `variables` variables.
pub fn inclusion_frequencies<S: AsRef<[usize]>>(selections: &[S], variables: usize) -> Vec<f64> {
    let mut shares = vec![0.0; variables];
    for selection in selections {
        let mut seen: Vec<usize> = selection.as_ref().to_vec();
        seen.sort_unstable();
        seen.dedup();
        for variable in seen.into_iter().filter(|v| *v < variables) {
            shares[variable] += 1.0 / selections.len() as f64;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_frequencies_are_counted() {
        let q = quality(&[0, 1, 9], &[0, 1, 2, 3]);
        assert_eq!((q.selected, q.exact), (3, false));
        assert!((q.fdr - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((q.fndr, q.power), (0.5, 0.5));
        assert!(quality(&[2, 1], &[1, 2]).exact);
        assert_eq!(quality(&[], &[1]).fdr, 0.0);
        let shares = inclusion_frequencies(&[vec![0, 1, 1], vec![1], vec![1, 9], vec![]], 3);
        assert_eq!(shares, [0.25, 0.75, 0.0]);
    }
}
