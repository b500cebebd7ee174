use super::{Passes, check, layers};
use crate::dataset::Dataset;
use crate::error::EngineError;
use crate::mixture::Draw;
use crate::network::Network;

/// A plan in double precision, for comparisons: slow, and as exact as the machine allows.
pub struct ExactPlan {
    exec: layers::Exec<f64>,
    most_rows: usize,
}

impl ExactPlan {
    /// Plans `network` for batches of up to `most_rows` rows.
    pub fn new(network: &Network, most_rows: usize) -> Result<Self, EngineError> {
        let columns = network.input_len();
        if most_rows.checked_mul(columns).is_none() {
            return Err(EngineError::Overflow { what: "a batch", rows: most_rows, columns });
        }
        let exec = layers::Exec::new(network, most_rows, Passes::ForwardAndBack);
        Ok(Self { exec, most_rows })
    }

    /// Says what makes the random channel scales of the following passes, where there are any.
    pub fn set_draw(&mut self, draw: Draw) {
        self.exec.draw = draw;
    }

    /// The network's output for `rows`, row by row, with running statistics.
    pub fn forward(
        &mut self,
        weights: &[f64],
        stats: &[f64],
        data: &Dataset,
        rows: &[u32],
    ) -> Result<Vec<f64>, EngineError> {
        let network = &self.exec.network;
        check(network, self.most_rows, [weights.len(), stats.len()], data, rows, false)?;
        let mut out = vec![0.0; rows.len() * network.output_len()];
        self.exec.forward(weights, stats, data, rows, &mut out);
        Ok(out)
    }

    /// The mean loss over `rows` and its gradient; running statistics move.
    pub fn gradient(
        &mut self,
        weights: &[f64],
        stats: &mut [f64],
        data: &Dataset,
        rows: &[u32],
        gradient: &mut [f64],
    ) -> Result<f64, EngineError> {
        let network = &self.exec.network;
        check(network, self.most_rows, [weights.len(), stats.len()], data, rows, true)?;
        if gradient.len() != weights.len() {
            let (got, expected) = (gradient.len(), weights.len());
            return Err(EngineError::Size { what: "the gradient", got, expected });
        }
        Ok(self.exec.gradient(weights, stats, data, rows, gradient))
    }
}
