//! The network's outputs for many rows on the device, with running statistics.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaSlice};

use super::Precision;
use super::batches::{Batches, Slots, Source};
use super::context::{Gpu, Value};
use super::error::Named;
use super::lower::PlanOptions;
use super::plan::{CudaPlan, DeviceIo};
use super::session::{ADVANCE, LOWER, Session};
use crate::error::EngineError;
use crate::mixture::Draw;
use crate::network::Network;

/// Computes the outputs of a network for the rows of one data set, for any weights.
pub struct Inference {
    gpu: Arc<Gpu>,
    plan: CudaPlan,
    batches: Batches,
    rows: usize,
    outputs: usize,
    input: CudaSlice<u8>,
    order: CudaSlice<u32>,
    at: CudaSlice<u32>,
    key: CudaSlice<u32>,
    /// What makes random channel scales.
    noise: CudaSlice<u32>,
    /// Weights, their bf16 copy and statistics of networks that are not in training.
    own: Option<Own>,
    results: CudaSlice<u8>,
    /// A batch with weights at some addresses, from the second time on that they are asked for.
    captured: Captured,
}

/// Where weights, their bf16 copy and statistics lie.
type Places = [u64; 3];

/// What is known of running a batch with weights at some places.
enum Captured {
    Nothing,
    /// It has run with these, so all that it needs is loaded.
    Ran(Places),
    Graph(Places, CudaGraph),
}

// SAFETY: any thread may launch and free a CUDA graph as long as it is one at a time, which `&mut`
// and ownership see to; the bindings make the context current before a launch.
unsafe impl Send for Captured {}

struct Own {
    weights: CudaSlice<f32>,
    low: Option<CudaSlice<u16>>,
    stats: CudaSlice<f32>,
}

impl Inference {
    /// Plans `network` for the rows of `source`, `batch` at a time. Images are not augmented: give
    /// a source without chance.
    pub fn new(
        gpu: &Arc<Gpu>,
        network: &Network,
        source: Source<'_>,
        batch: usize,
        precision: Precision,
    ) -> Result<Self, EngineError> {
        let rows = source.rows();
        let batch = batch.min(rows).max(1);
        let options =
            PlanOptions { batch, precision, deterministic: true, training: false, hasty: true };
        let plan = CudaPlan::new(gpu, network, options)?;
        let shape = network.nodes()[0].shape;
        let pixels = shape.height * shape.width;
        let input = batch * pixels * plan.input_channels() * precision.bytes();
        // The last batch is filled up with its first row.
        let whole = rows.div_ceil(batch) * batch;
        let slots = match source {
            Source::Ring { slots, .. } => slots,
            _ => rows,
        };
        let row = |at: usize| if at < rows { (at % slots) as u32 } else { 0 };
        let order: Vec<u32> = (0..whole).map(row).collect();
        let outputs = network.output_len();
        Ok(Self {
            batches: Batches::new(gpu, network, source, precision)?,
            plan,
            rows,
            outputs,
            input: gpu.zeros(input)?,
            order: gpu.upload(&order)?,
            at: gpu.zeros(1)?,
            key: gpu.zeros(6)?,
            noise: gpu.zeros(8)?,
            own: None,
            results: gpu.zeros(whole * outputs * 4)?,
            captured: Captured::Nothing,
            gpu: gpu.clone(),
        })
    }

    /// Takes the weights and statistics of a network.
    pub fn load(&mut self, weights: &[f32], stats: &[f32]) -> Result<(), EngineError> {
        let gpu = self.gpu.clone();
        if self.own.is_none() {
            let low = self.plan.options().precision == Precision::Bf16;
            self.own = Some(Own {
                weights: gpu.zeros(weights.len())?,
                low: if low { Some(gpu.zeros(weights.len())?) } else { None },
                stats: gpu.zeros(stats.len())?,
            });
        }
        let Some(own) = &mut self.own else { return Ok(()) };
        gpu.write(&mut own.weights, weights)?;
        gpu.write(&mut own.stats, stats)?;
        if let Some(low) = &own.low {
            let function = gpu.function(LOWER.source, LOWER.entry, LOWER.defines)?;
            let mut values: Vec<Value> =
                [gpu.address(&own.weights), 0, gpu.address(low), 0, 0, 0, 0]
                    .map(Value::At)
                    .to_vec();
            values.push(Value::U32(weights.len() as u32));
            values.extend([0, 0, 0].map(Value::At));
            gpu.launch(&function, weights.len().div_ceil(4 * 256), &values)?;
        }
        gpu.wait()
    }

    /// Says what makes the random channel scales of the following outputs, where there are any.
    pub fn set_draw(&mut self, draw: Draw) -> Result<(), EngineError> {
        self.gpu.write(&mut self.noise, &draw.kernel_words())
    }

    /// The outputs of all rows for the weights that were loaded, row by row.
    pub fn outputs(&mut self) -> Result<Vec<f32>, EngineError> {
        self.outputs_of(0..self.rows)
    }

    /// The outputs of some rows, which start with a whole batch.
    pub fn outputs_of(&mut self, rows: Range<usize>) -> Result<Vec<f32>, EngineError> {
        let gpu = &self.gpu;
        let at = match &self.own {
            Some(own) => [
                gpu.address(&own.weights),
                own.low.as_ref().map_or(0, |low| gpu.address(low)),
                gpu.address(&own.stats),
            ],
            None => [0; 3],
        };
        self.run(at, rows)
    }

    /// The outputs of all rows for the weights that a session trains.
    pub fn outputs_in(&mut self, session: &Session) -> Result<Vec<f32>, EngineError> {
        self.outputs_of_in(session, 0..self.rows)
    }

    /// The outputs of some rows, which start with a whole batch, for the weights that a session
    /// trains.
    pub fn outputs_of_in(
        &mut self,
        session: &Session,
        rows: Range<usize>,
    ) -> Result<Vec<f32>, EngineError> {
        self.run(session.weights_at(), rows)
    }

    /// Puts the work for all rows, with the weights that a session trains, on the device and does
    /// not wait for it: [`Inference::finish`] does.
    pub fn start_in(&mut self, session: &Session) -> Result<(), EngineError> {
        self.start(session.weights_at(), 0..self.rows)
    }

    /// The outputs of what was started.
    pub fn finish(&self) -> Result<Vec<f32>, EngineError> {
        self.results_of(0..self.rows)
    }

    /// Puts images into the slots from `first` on, for a [`Source::Ring`].
    pub fn fill(&mut self, first: usize, bytes: &[u8], classes: &[u32]) -> Result<(), EngineError> {
        self.batches.fill(&self.gpu, first, bytes, classes)
    }

    fn run(&mut self, from: Places, rows: Range<usize>) -> Result<Vec<f32>, EngineError> {
        self.start(from, rows.clone())?;
        self.results_of(rows)
    }

    fn start(&mut self, from: Places, rows: Range<usize>) -> Result<(), EngineError> {
        let done = self.enqueue_rows(from, rows);
        done.map_err(|error| self.gpu.explain(error))
    }

    fn enqueue_rows(&mut self, from: Places, rows: Range<usize>) -> Result<(), EngineError> {
        let gpu = self.gpu.clone();
        gpu.launching(format!("outputs for the rows {} to {}", rows.start, rows.end));
        let batch = self.plan.options().batch;
        if !rows.start.is_multiple_of(batch) || rows.end > self.rows {
            let (got, expected) = (rows.start, rows.start / batch * batch);
            return Err(EngineError::Size { what: "the first row", got, expected });
        }
        let first = rows.start / batch;
        gpu.write(&mut self.at, &[first as u32])?;
        if matches!(&self.captured, Captured::Ran(places) if *places == from) {
            let graph = gpu.capture(|| self.enqueue(from))?;
            self.captured = Captured::Graph(from, graph);
        }
        for number in first..rows.end.div_ceil(batch) {
            match &self.captured {
                Captured::Graph(places, graph) if *places == from => {
                    graph.launch().named("cuGraphLaunch")?;
                }
                _ => {
                    self.enqueue(from)?;
                    self.captured = Captured::Ran(from);
                }
            }
            self.plan.copy_output(&mut self.results, number * batch * self.outputs * 4)?;
        }
        Ok(())
    }

    /// Waits for outputs and brings them to the host.
    fn results_of(&self, rows: Range<usize>) -> Result<Vec<f32>, EngineError> {
        let width = self.outputs * 4;
        let mut bytes = vec![0; rows.len() * width];
        let read = self.gpu.read_from(&self.results, rows.start * width, &mut bytes);
        read.map_err(|error| self.gpu.explain(error))?;
        let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(bytes.chunks_exact(4).map(value).collect())
    }

    /// Puts the next batch on the stream.
    fn enqueue(&mut self, [weights, low, stats]: Places) -> Result<(), EngineError> {
        let gpu = self.gpu.clone();
        let io = DeviceIo {
            input: gpu.address(&self.input),
            weights,
            low,
            stats,
            step: gpu.address(&self.at),
            noise: gpu.address(&self.noise),
            ..DeviceIo::default()
        };
        let slots = Slots {
            batch: self.plan.options().batch,
            channels: self.plan.input_channels(),
            order: gpu.address(&self.order),
            step: gpu.address(&self.at),
            key: gpu.address(&self.key),
            input: io.input,
            targets: 0,
        };
        self.batches.gather(&gpu, slots)?;
        self.plan.forward(&io)?;
        let advance = gpu.function(ADVANCE.source, ADVANCE.entry, ADVANCE.defines)?;
        gpu.launch_small(&advance, 1, &[Value::At(gpu.address(&self.at))])
    }
}
