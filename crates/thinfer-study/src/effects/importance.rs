//! Which variables a posterior needs: the ones without which it predicts unseen rows worse.

use std::collections::BTreeSet;

use thinfer_core::posterior::{Posterior, Snapshot};
use thinfer_data::{Bundle, Result};
use thinfer_run::evaluate::live_variables;

use super::shuffle::shuffle_losses;

/// Rows that are asked, at most.
const ROWS: usize = 500;
/// Samples that are asked, at most.
const SAMPLES: usize = 20;
/// Variables that are shuffled, at most: those with the largest weights.
const VARIABLES: usize = 40;

/// How much a posterior needs a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Importance {
    /// The variable, by its place.
    pub variable: usize,
    /// How much the loss on the test rows grows when its values are shuffled, as a share of the loss
    /// of a constant prediction.
    pub share: f64,
}

/// The variables that some sample reads, the most important first.
pub fn importance(posterior: &Posterior, data: &Bundle, seed: u64) -> Result<Vec<Importance>> {
    let members: Vec<Snapshot> = super::spread(posterior.members.len(), SAMPLES)
        .into_iter()
        .map(|at| posterior.members[at].clone())
        .collect();
    let some = Posterior { network: posterior.network.clone(), members };
    let rows: Vec<u32> =
        super::spread(data.test.rows(), ROWS).into_iter().map(|row| row as u32).collect();
    let test = data.test.take_rows(&rows);
    let live = largest(&some, data);
    let found = shuffle_losses(&some, data, &test, &live, seed, u32::MAX)?;
    let share = |variable: usize| found.mean_increase(variable) / found.baseline_loss().max(1e-300);
    let mut all: Vec<Importance> =
        live.into_iter().map(|variable| Importance { variable, share: share(variable) }).collect();
    all.retain(|of| of.share.is_finite());
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    Ok(all)
}

/// The variables that some sample reads; of very many those whose weights in the first layer are the
/// largest.
fn largest(posterior: &Posterior, data: &Bundle) -> Vec<usize> {
    let live: BTreeSet<usize> = posterior
        .members
        .iter()
        .flat_map(|member| live_variables(&posterior.network, member, &data.groups))
        .collect();
    let mut live: Vec<usize> = live.into_iter().collect();
    let Some(first) = posterior.network.first_weight() else { return live };
    if live.len() > VARIABLES && first.shape[1] == data.groups.len() {
        let mut squares = vec![0.0; data.names.len()];
        for member in &posterior.members {
            for (at, weight) in member.weights[first.range()].iter().enumerate() {
                squares[data.groups[at % data.groups.len()]] += f64::from(*weight).powi(2);
            }
        }
        live.sort_by(|a, b| squares[*b].total_cmp(&squares[*a]));
        live.truncate(VARIABLES);
        live.sort_unstable();
    }
    live
}
