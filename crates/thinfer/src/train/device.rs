//! Steps of a chain on a GPU: whole epochs at a time, the host looks on between them.

use std::sync::Arc;

use thinfer_engine::cuda::{Gpu, PlanOptions, Precision, Session, Source, StepCalls, Tally};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset};

use super::chain::ChainSpec;
use crate::error::{Error, Result};
use crate::methods::Tick;

/// A GPU and how to compute on it.
#[derive(Clone)]
pub struct OnCuda {
    /// The GPU.
    pub gpu: Arc<Gpu>,
    /// The arithmetic of activations and weights.
    pub precision: Precision,
}

/// The device side of one chain.
pub(crate) struct CudaChain {
    on: OnCuda,
    session: Option<Session>,
}

// SAFETY: any thread may launch and free a CUDA graph as long as it is one at a time, which `&mut`
// and ownership see to; the bindings make the context current before a launch.
unsafe impl Send for CudaChain {}

impl CudaChain {
    /// Refuses a method that cannot run there.
    pub(crate) fn new(spec: &ChainSpec, on: OnCuda) -> Result<Self> {
        if let Some(reason) = spec.method.needs_host() {
            return Err(Error::Data(reason.to_owned()));
        }
        Ok(Self { on, session: None })
    }

    /// Does the steps of `ticks`, which lie in one epoch and start with its batch `first`.
    pub(crate) fn run(
        &mut self,
        spec: &ChainSpec,
        arena: &mut Arena,
        data: &Dataset,
        first: usize,
        ticks: &[Tick],
    ) -> Result<Tally> {
        let Some(tick) = ticks.first() else { return Ok(Tally::default()) };
        let mut steps = Vec::with_capacity(ticks.len());
        for tick in ticks {
            let before = arena.record(|arena| spec.method.materialize(arena, *tick))?;
            let after = arena.record(|arena| spec.method.update(arena, *tick))?;
            steps.push(StepCalls { before, after });
        }
        if self.session.is_none() {
            let options = PlanOptions {
                batch: spec.batch.min(data.rows()),
                precision: self.on.precision,
                // It costs nothing that could be measured, and a resumed run has the same bits.
                deterministic: true,
                training: true,
            };
            let source = Source::Table(data);
            let session = Session::new(&self.on.gpu, &spec.network, arena, source, options)?;
            self.session = Some(session);
        }
        let Some(session) = &mut self.session else { return Ok(Tally::default()) };
        let key = |stream| Key::new(spec.seed, spec.chain, stream);
        let order = key(Stream::Shuffle).permutation(tick.epoch as u64, data.rows());
        let augment = key(Stream::Augment).kernel_words(tick.epoch as u64);
        session.push(arena)?;
        let tally = session.run(&order, first, &steps, augment)?;
        session.pull(arena)?;
        Ok(tally)
    }
}
