//! The buffers of a smaller network, beside those of the whole one.

use std::sync::Arc;

use thinfer_engine::Arena;

use super::cut::Cut;
use crate::shrink::Shrunk;

/// A smaller network with buffers of its size, which are a part of those of the whole network.
pub(crate) struct Part {
    pub(crate) small: Arc<Shrunk>,
    /// Its weights, and behind them weights that nothing reads but that are not pruned, and so
    /// still move.
    pub(crate) arena: Arena,
}

impl Part {
    /// Room for the part of `whole` that a cut leaves; empty until [`Part::take_from`].
    pub(crate) fn new(cut: &Cut, whole: &Arena) -> Self {
        let small = Arc::clone(&cut.small);
        let mut arena = Arena::part(&small.network, cut.origin(), whole.state_buffers());
        if whole.has_forward() {
            arena.separate_forward();
        }
        Self { small, arena }
    }

    /// Takes weights, marks and statistics over, and with `all` the method's state.
    pub(crate) fn take_from(&mut self, whole: &Arena, all: bool) {
        self.arena.take_from(whole, &self.small.stats, all);
    }

    /// Puts weights and statistics back.
    pub(crate) fn give_weights(&self, whole: &mut Arena) {
        self.arena.give_weights(whole, &self.small.stats);
    }

    /// Puts the method's state back.
    pub(crate) fn give_state(&self, whole: &mut Arena) {
        self.arena.give_state(whole);
    }

    /// The columns of a table that are still read.
    pub(crate) fn columns(&self) -> Vec<usize> {
        self.small.inputs.iter().map(|c| *c as usize).collect()
    }
}
