//! What variables do to the predictions of a posterior: how much worse it gets without one, and how
//! its prediction changes along one.

mod dependence;
mod importance;
mod shuffle;

pub use dependence::{Dependence, Direction, Place, Response, dependence};
pub use importance::{Importance, importance};
pub(crate) use shuffle::{
    Evidence, critical_value, row_losses, shuffle_losses, untrained_losses, z,
};

/// Places spread evenly over `count`, at most `most` of them.
fn spread(count: usize, most: usize) -> Vec<usize> {
    let shown = count.min(most);
    (0..shown).map(|at| at * count / shown).collect()
}
