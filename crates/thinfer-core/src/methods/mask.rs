//! Masks: the passes that put zeros where a weight is pruned.

use thinfer_engine::{Arena, Chunk, Pass};

use super::kernels::{self, Kernel};
use crate::prune::KEEP;

/// `forward ← mask ⊙ w`
pub(crate) struct Mask;

impl Pass for Mask {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        Some((kernels::MASK, Vec::new()))
    }

    fn apply(&self, chunk: Chunk<'_>) {
        for ((to, w), mark) in chunk.forward.iter_mut().zip(chunk.weights.iter()).zip(chunk.marks) {
            *to = if mark & KEEP != 0 { *w } else { 0.0 };
        }
    }
}

/// `w ← mask ⊙ w`, on the host alone: methods prune between epochs, where the host has the weights.
pub(crate) struct Cut;

impl Pass for Cut {
    fn apply(&self, chunk: Chunk<'_>) {
        // Most runs of weights are kept or pruned as a whole.
        for (weights, marks) in chunk.weights.chunks_mut(64).zip(chunk.marks.chunks(64)) {
            if marks.iter().fold(KEEP, |all, mark| all & mark) == 0 {
                let pairs = weights.iter_mut().zip(marks);
                pairs.for_each(|(w, mark)| *w = if mark & KEEP != 0 { *w } else { 0.0 });
            }
        }
    }
}

/// `mask ⊙ w` as a sample of its own.
pub(crate) fn masked(arena: &Arena) -> Vec<f32> {
    let weights = arena.weights().iter().zip(arena.marks());
    weights.map(|(w, mark)| if mark & KEEP != 0 { *w } else { 0.0 }).collect()
}
