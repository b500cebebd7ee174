//! What a selector gives back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thinfer_core::posterior::Snapshot;
use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_data::Result;
use thinfer_engine::{Dataset, Network};

use super::lasso::LassoModel;

/// Columns of a path point that are written down; a denser one only says how many there are.
const LISTED: usize = 40;

/// What a selector found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The selected input columns, ascending.
    pub columns: Vec<usize>,
    /// How strongly each input column is in, in the selector's own unit; larger is stronger.
    pub scores: Vec<f64>,
    /// What other thresholds or penalties would have selected, from the densest to the sparsest.
    pub path: Vec<PathPoint>,
    /// Predicts from rows with all columns.
    pub predictor: Predictor,
    /// What the selector chose on its way, by name.
    pub chosen: BTreeMap<String, f64>,
    /// Wall-clock time.
    pub seconds: f64,
}

/// One threshold or penalty, with what it selects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathPoint {
    /// The threshold or the penalty.
    pub at: f64,
    /// How many input columns it selects.
    pub selected: usize,
    /// Which, where they are at most 40.
    pub columns: Option<Vec<usize>>,
    /// The loss by which the selector judges it, where there is one.
    pub loss: Option<f64>,
    /// The standard error of that loss.
    pub loss_se: Option<f64>,
}

impl PathPoint {
    pub(super) fn new(at: f64, columns: Vec<usize>, loss: Option<(f64, f64)>) -> Self {
        Self {
            at,
            selected: columns.len(),
            columns: (columns.len() <= LISTED).then_some(columns),
            loss: loss.map(|l| l.0),
            loss_se: loss.map(|l| l.1),
        }
    }
}

/// The selections of every threshold on `scores` at which the selection changes, up to 41 columns
/// and so many more points towards all of them that the whole path is seen.
pub(crate) fn threshold_path(scores: &[f64]) -> Vec<PathPoint> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let mut points = Vec::new();
    let mut count = scores.len();
    while count > 0 {
        // The threshold just below the weakest column that it lets in.
        let weakest = scores[order[count - 1]];
        let next = order.get(count).map(|&c| scores[c]);
        if next.is_none_or(|next| next < weakest) {
            let mut columns = order[..count].to_vec();
            columns.sort_unstable();
            points.push(PathPoint::new(weakest, columns, None));
        }
        count = if count > LISTED + 1 { (count / 2).max(LISTED + 1) } else { count - 1 };
    }
    points
}

/// A fitted predictor.
#[derive(Clone, Debug)]
pub enum Predictor {
    /// A sparse linear model.
    Linear(LassoModel),
    /// Networks whose predictions are averaged.
    Network(Posterior),
}

impl Predictor {
    /// One network with these weights, which are its own mask: what is exactly zero is pruned.
    pub(super) fn single(network: Network, weights: Vec<f32>) -> Self {
        let keep = weights.iter().map(|w| u8::from(*w != 0.0)).collect();
        let member = Snapshot {
            chain: 0,
            epoch: 0,
            weights,
            keep,
            stats: Vec::new(),
            inclusion: Vec::new(),
        };
        Predictor::Network(Posterior { network, members: vec![member] })
    }

    /// What it says about rows that have the columns of the training rows.
    pub fn predict(&self, data: &Dataset) -> Result<Predictive> {
        match self {
            Predictor::Linear(model) => Ok(model.predict(data)),
            Predictor::Network(posterior) => posterior.predict(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_falls_from_everything_to_the_strongest() {
        let path = threshold_path(&[0.5, 3.0, 0.0, 3.0, 1.0]);
        let columns: Vec<Vec<usize>> = path.iter().map(|p| p.columns.clone().unwrap()).collect();
        assert_eq!(columns, [vec![0, 1, 2, 3, 4], vec![0, 1, 3, 4], vec![1, 3, 4], vec![1, 3]]);
        assert_eq!(path.iter().map(|p| p.at).collect::<Vec<_>>(), [0.0, 0.5, 1.0, 3.0]);
    }

    #[test]
    fn a_wide_path_is_short() {
        let scores: Vec<f64> = (0..5000).map(f64::from).collect();
        let path = threshold_path(&scores);
        assert_eq!((path[0].selected, path.last().unwrap().selected), (5000, 1));
        assert!(path.len() < 60 && path[0].columns.is_none(), "{}", path.len());
        assert!(path.is_sorted_by(|a, b| a.selected > b.selected && a.at < b.at));
    }
}
