use std::ops::Range;

use crate::arena::Arena;
use crate::dataset::Dataset;
use crate::error::EngineError;
use crate::mixture::Draw;
use crate::network::Network;

mod exact;
mod layers;
mod rows;
#[cfg(test)]
mod tests;
mod turned;

pub use exact::ExactPlan;

/// A network compiled for a largest batch: buffers are planned once, and a step allocates nothing.
///
/// A batch is cut into blocks of rows, and blocks are dealt to lanes. How many lanes there are
/// depends on the network and the batch alone, and lanes are summed in order: the result has the
/// same bits for any number of threads.
pub struct Plan {
    exec: Exec,
    most_rows: usize,
    passes: Passes,
}

/// What a plan has buffers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// Gradients and predictions.
    ForwardAndBack,
    /// Predictions alone.
    Forward,
}

/// Bytes of some buffers of numbers of `size` bytes.
fn bytes_of(lens: &[usize], size: usize) -> u64 {
    let bytes = |len: &usize| (*len as u64).saturating_mul(size as u64);
    lens.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Networks of linear layers go row by row from input to output, the smallest with rows side by
/// side; others need all rows to meet at each batch norm.
enum Exec {
    Turned(turned::Exec<f32>),
    Rows(rows::Exec<f32>),
    Layers(layers::Exec<f32>),
}

/// Which of them runs a network.
enum Kind {
    Turned,
    Rows,
    Layers,
}

impl Kind {
    fn of(network: &Network, most_rows: usize) -> Self {
        if turned::fits(network, most_rows) {
            Kind::Turned
        } else if network.nodes().iter().all(|n| rows::runs(&n.op)) {
            Kind::Rows
        } else {
            Kind::Layers
        }
    }
}

impl Plan {
    /// Plans `network` for batches of up to `most_rows` rows.
    pub fn new(network: &Network, most_rows: usize) -> Result<Self, EngineError> {
        Self::with(network, most_rows, Passes::ForwardAndBack)
    }

    /// The same for predictions alone, which take about half of the memory.
    pub fn for_predictions(network: &Network, most_rows: usize) -> Result<Self, EngineError> {
        Self::with(network, most_rows, Passes::Forward)
    }

    fn with(network: &Network, most_rows: usize, passes: Passes) -> Result<Self, EngineError> {
        let columns = network.input_len();
        let bytes = Self::bytes_of(network, most_rows, passes);
        if most_rows.checked_mul(columns).is_none() || bytes > isize::MAX as u64 {
            return Err(EngineError::Overflow { what: "a batch", rows: most_rows, columns });
        }
        let exec = match Kind::of(network, most_rows) {
            Kind::Turned => Exec::Turned(turned::Exec::new(network, passes)),
            Kind::Rows => Exec::Rows(rows::Exec::new(network, most_rows, passes)),
            Kind::Layers => Exec::Layers(layers::Exec::new(network, most_rows, passes)),
        };
        Ok(Self { exec, most_rows, passes })
    }

    /// Bytes that a plan takes, without taking them; [`u64::MAX`] where they cannot be counted.
    pub fn bytes_of(network: &Network, most_rows: usize, passes: Passes) -> u64 {
        match Kind::of(network, most_rows) {
            Kind::Turned => turned::bytes(network, passes, size_of::<f32>()),
            Kind::Rows => rows::bytes::<f32>(network, most_rows, passes),
            Kind::Layers => layers::bytes(network, most_rows, passes, size_of::<f32>()),
        }
    }

    /// The mean loss over `rows`, once for every member of a mixture, and its gradient in the
    /// arena, whose running statistics move too.
    pub fn gradient(
        &mut self,
        arena: &mut Arena,
        data: &Dataset,
        rows: &[u32],
    ) -> Result<f64, EngineError> {
        let n = self.network().params().len();
        if arena.len() < n {
            let (got, expected) = (arena.len(), n);
            return Err(EngineError::Size { what: "the weights", got, expected });
        }
        // Behind the parameters of the network may stand others, which it does not read.
        let (weights, stats, gradient) = arena.read_and_gradient();
        self.gradient_at(&weights[..n], stats, data, rows, &mut gradient[..n])
    }

    /// The mean loss over `rows` and its gradient, for weights outside an arena. Running statistics
    /// are brought nearer to those of the batch; a network without batch norm has none.
    pub fn gradient_at(
        &mut self,
        weights: &[f32],
        stats: &mut [f32],
        data: &Dataset,
        rows: &[u32],
        gradient: &mut [f32],
    ) -> Result<f64, EngineError> {
        self.check([weights.len(), stats.len()], data, rows, true)?;
        if self.passes == Passes::Forward {
            let what = "the gradient of a plan for predictions";
            return Err(EngineError::Size { what, got: gradient.len(), expected: 0 });
        }
        if gradient.len() != weights.len() {
            let (got, expected) = (gradient.len(), weights.len());
            return Err(EngineError::Size { what: "the gradient", got, expected });
        }
        Ok(match &mut self.exec {
            Exec::Turned(exec) => exec.gradient(weights, data, rows, gradient),
            Exec::Rows(exec) => exec.gradient(weights, data, rows, gradient),
            Exec::Layers(exec) => exec.gradient(weights, stats, data, rows, gradient),
        })
    }

    /// The network's output for `rows`, row by row into `out`. Batch norms use the running
    /// statistics, so that no row depends on another.
    pub fn forward(
        &mut self,
        weights: &[f32],
        stats: &[f32],
        data: &Dataset,
        rows: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), EngineError> {
        let rows: Vec<u32> = rows.map(|r| r as u32).collect();
        let outputs = self.network().output_len();
        if out.len() != rows.len() * outputs {
            return Err(EngineError::Size {
                what: "the output buffer",
                got: out.len(),
                expected: rows.len() * outputs,
            });
        }
        for (rows, out) in rows.chunks(self.most_rows).zip(out.chunks_mut(self.most_rows * outputs))
        {
            self.check([weights.len(), stats.len()], data, rows, false)?;
            match &mut self.exec {
                Exec::Turned(exec) => exec.forward(weights, data, rows, out),
                Exec::Rows(exec) => exec.forward(weights, data, rows, out),
                Exec::Layers(exec) => exec.forward(weights, stats, data, rows, out),
            }
        }
        Ok(())
    }

    /// Tells which input columns have weights other than zero until told otherwise; `None` means
    /// that any may have. Where they are few, the forward pass may read no others.
    pub fn set_live_inputs(&mut self, live: Option<&[usize]>) {
        if let Exec::Rows(exec) = &mut self.exec {
            exec.set_live_inputs(live);
        }
    }

    /// Says what makes the random channel scales of the following passes, where there are any.
    pub fn set_draw(&mut self, draw: Draw) {
        if let Exec::Layers(exec) = &mut self.exec {
            exec.draw = draw;
        }
    }

    /// The network.
    pub fn network(&self) -> &Network {
        match &self.exec {
            Exec::Turned(exec) => &exec.network,
            Exec::Rows(exec) => &exec.network,
            Exec::Layers(exec) => &exec.network,
        }
    }

    /// Bytes that the plan holds.
    pub fn bytes(&self) -> usize {
        Self::bytes_of(self.network(), self.most_rows, self.passes) as usize
    }

    fn check(
        &self,
        [weights, stats]: [usize; 2],
        data: &Dataset,
        rows: &[u32],
        training: bool,
    ) -> Result<(), EngineError> {
        check(self.network(), self.most_rows, [weights, stats], data, rows, training)
    }
}

/// Whether buffers and rows fit a network.
fn check(
    network: &Network,
    most_rows: usize,
    [weights, stats]: [usize; 2],
    data: &Dataset,
    rows: &[u32],
    training: bool,
) -> Result<(), EngineError> {
    let size = |what, got, expected| {
        if got == expected { Ok(()) } else { Err(EngineError::Size { what, got, expected }) }
    };
    size("the weights", weights, network.params().len())?;
    size("the running statistics", stats, network.stats().len())?;
    size("a row of inputs", data.columns(), network.input_len())?;
    if rows.is_empty() || rows.len() > most_rows {
        size("a batch", rows.len(), most_rows)?;
    }
    // The largest of all, because that is found in vectors.
    let row = rows.iter().fold(0, |most, row| most.max(*row)) as usize;
    if row >= data.rows() {
        return Err(EngineError::Row { row, rows: data.rows() });
    }
    if training {
        let expected = network.loss().target_len(network.output_len());
        let got = if data.has_targets() { data.target_columns() } else { 0 };
        size("a row of targets", got, expected)?;
    }
    Ok(())
}
