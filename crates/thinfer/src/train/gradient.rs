//! The gradient of a chain on the cores, on the whole network or on the part that pruning leaves.

use std::sync::Arc;

use thinfer_engine::{Arena, Dataset, Network, Plan};

use super::cut::Cut;
use crate::error::Result;
use crate::shrink::Shrunk;

/// Computes gradients on the whole network or on a smaller one that is the same function.
///
/// The gradient of a parameter that the smaller network does not have is reported as zero, which it
/// is, or which does not matter because the parameter is held at zero.
pub(crate) struct GradientPlan {
    plan: Plan,
    part: Option<Part>,
}

struct Part {
    small: Arc<Shrunk>,
    /// The columns of a table that are still read, copied out of it.
    data: Option<Dataset>,
    weights: Vec<f32>,
    stats: Vec<f32>,
    gradient: Vec<f32>,
}

impl GradientPlan {
    pub(crate) fn new(network: &Network, batch: usize, cut: Option<&Cut>) -> Result<Self> {
        let Some(cut) = cut else {
            return Ok(Self { plan: Plan::new(network, batch)?, part: None });
        };
        let small = Arc::clone(&cut.small);
        let plan = Plan::new(&small.network, batch)?;
        let (n, stats) = (small.params.len(), small.stats.len());
        let part = Part {
            small,
            data: None,
            weights: vec![0.0; n],
            stats: vec![0.0; stats],
            gradient: vec![0.0; n],
        };
        Ok(Self { plan, part: Some(part) })
    }

    /// Whether all of the network is in use.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// Tells which input columns the masked weights read. The gradient of the others is needed all
    /// the same, since they may come back, but the forward pass need not look at them.
    pub(crate) fn read_columns(&mut self, columns: &[usize]) {
        self.plan.set_live_inputs(Some(columns));
    }

    /// The mean loss over `rows`, with its gradient in the arena.
    pub(crate) fn gradient(
        &mut self,
        arena: &mut Arena,
        data: &Dataset,
        rows: &[u32],
    ) -> Result<f64> {
        let Some(part) = &mut self.part else {
            return Ok(self.plan.gradient(arena, data, rows)?);
        };
        let data = if part.small.inputs.len() < data.columns()
            && part.small.network.input_len() < data.columns()
        {
            let columns = || part.small.inputs.iter().map(|&c| c as usize).collect::<Vec<_>>();
            &*part.data.get_or_insert_with(|| data.take_columns(&columns()))
        } else {
            data
        };
        let pick = |to: &mut [f32], from: &[f32], at: &[u32]| {
            to.iter_mut().zip(at).for_each(|(to, at)| *to = from[*at as usize]);
        };
        pick(&mut part.weights, arena.forward(), &part.small.params);
        pick(&mut part.stats, arena.stats(), &part.small.stats);
        let (weights, stats, gradient) = (&part.weights, &mut part.stats, &mut part.gradient);
        let loss = self.plan.gradient_at(weights, stats, data, rows, gradient)?;
        arena.scatter_stats(&part.small.stats, &part.stats);
        arena.scatter_gradient(&part.small.params, &part.gradient)?;
        Ok(loss)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let part = self.part.as_ref().map_or(0, |part| {
            let data = part.data.as_ref().map_or(0, Dataset::bytes);
            4 * (2 * part.weights.len() + part.stats.len()) + data
        });
        self.plan.bytes() + part
    }
}
