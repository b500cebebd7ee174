//! Steps of a chain on a GPU: whole epochs at a time, the host looks on between them.

use std::sync::Arc;

use thinfer_data::images::{Prefetch, Speed};
use thinfer_data::{Error, Result};
use thinfer_data::{ImageData, Images, View};
use thinfer_engine::cuda::{Compiling, PlanOptions, Session, Source, StepCalls, Tally};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Draw, Network};

use super::chain::ChainSpec;
use super::cut::Cut;
use super::examples::Examples;
use super::freeze::FrozenLayers;
use super::part::Part;
use crate::device::OnCuda;
use crate::methods::Tick;
use crate::shrink::Shrinking;

/// Bytes of images that are decoded at a time, where they are not held in memory; the device has
/// room for twice as many.
const DECODED: usize = 256 << 20;

/// The device side of one chain.
pub(crate) struct CudaChain {
    on: OnCuda,
    session: Option<Session>,
    /// The smaller network that the device has, where it does not have the whole one.
    part: Option<Part>,
    /// Parameters that its plan computes no gradient of.
    held: FrozenLayers,
    /// Whether the device has newer weights or a newer state than the host.
    ahead: Ahead,
    /// Images of this epoch that are decoded while the device is at work.
    decoder: Option<Decoder>,
    /// Kernels that a smaller network will need, compiled while the device is at work.
    compiling: Option<Compiling>,
}

/// The rest of an epoch, decoded ahead.
struct Decoder {
    epoch: usize,
    /// The batch that the next images belong to.
    next: usize,
    images: Prefetch,
}

#[derive(Clone, Copy, Default)]
struct Ahead {
    weights: bool,
    state: bool,
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
        Ok(Self {
            on,
            session: None,
            part: None,
            held: FrozenLayers::default(),
            ahead: Ahead::default(),
            decoder: None,
            compiling: None,
        })
    }

    /// The GPU.
    pub(crate) fn on(&self) -> &OnCuda {
        &self.on
    }

    /// The network in training, once there is one.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// How fast the images of this epoch were decoded, where they are.
    pub(crate) fn decoding(&self) -> Option<Speed> {
        self.decoder.as_ref().map(|decoder| decoder.images.speed())
    }

    /// Does the steps of `ticks`, which lie in one epoch and start with its batch `first`.
    pub(crate) fn run(
        &mut self,
        spec: &ChainSpec,
        arena: &mut Arena,
        (cut, held): (Option<&Cut>, &FrozenLayers),
        data: Examples<'_>,
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
        let chunk = steps_at_once(spec, data);
        let same = match (&self.part, cut) {
            (Some(part), Some(cut)) => Arc::ptr_eq(&part.small, &cut.small),
            (None, None) => true,
            _ => false,
        };
        if !same || self.held != *held {
            self.download_state(arena)?;
            (self.session, self.part) = (None, cut.map(|cut| Part::new(cut, arena)));
            self.held = held.clone();
        }
        let touched = arena.take_touched();
        if touched || self.session.is_none() {
            let writes_state = first == 0 && spec.method.writes_state(tick.epoch);
            self.send(spec, arena, data, (chunk, writes_state))?;
        }
        if self.compiling.is_none() && may_shrink(spec, tick.epoch) {
            let network = self.part.as_ref().map_or(&spec.network, |part| &part.small.network);
            let (gpu, batch) = (&self.on.gpu, spec.batch.min(data.rows()));
            self.compiling = Some(Compiling::ahead(gpu, network, batch, self.on.precision));
        }
        let Some(session) = &mut self.session else { return Ok(Tally::default()) };
        let key = |stream| Key::new(spec.seed, spec.chain, stream);
        let mut order = key(Stream::Shuffle).permutation(tick.epoch as u64, data.rows());
        if let Examples::Images(ImageData { train: Images::Streamed(stream), .. }) = data {
            let (slots, from) = (2 * chunk * spec.batch, first * spec.batch);
            let fits = |d: &Decoder| d.epoch == tick.epoch && d.next == first;
            if !self.decoder.as_ref().is_some_and(fits) {
                let view = View::Random { key: key(Stream::Augment), epoch: tick.epoch as u64 };
                let (stream, rest) = (Arc::clone(stream), order[from..].to_vec());
                let images = Prefetch::new(stream, rest, chunk * spec.batch, view, 0)?;
                self.decoder = Some(Decoder { epoch: tick.epoch, next: first, images });
            }
            if let Some(decoder) = &mut self.decoder
                && let Some(images) = decoder.images.next()?
            {
                let rows = &order[from..from + images.bytes.len() / stream.shape().len()];
                let labels: Vec<u32> =
                    rows.iter().map(|&row| stream.labels()[row as usize]).collect();
                session.fill(from % slots, images.bytes, &labels)?;
                decoder.next = first + ticks.len();
            }
            order.iter_mut().enumerate().for_each(|(at, row)| *row = (at % slots) as u32);
        }
        let augment = key(Stream::Augment).kernel_words(tick.epoch as u64);
        session.set_draw(Draw::of_step(spec.seed, spec.chain, tick.step - first as u64))?;
        self.ahead = Ahead { weights: true, state: true };
        Ok(session.run(&order, first, &steps, augment)?)
    }

    /// Puts what the host has changed on the device, or everything where that is new.
    fn send(
        &mut self,
        spec: &ChainSpec,
        arena: &Arena,
        data: Examples<'_>,
        (chunk, writes_state): (usize, bool),
    ) -> Result<()> {
        let fresh = self.session.is_none();
        if let Some(part) = &mut self.part {
            part.take_from(arena, fresh || writes_state);
        }
        let part = self.part.as_ref();
        let arena = part.map_or(arena, |part| &part.arena);
        if let Some(session) = &mut self.session {
            if writes_state {
                return Ok(session.push(arena)?);
            }
            return Ok(session.push_weights(arena)?);
        }
        let network = part.map_or(&spec.network, |part| &part.small.network);
        let network = &self.held.in_network(network);
        let fewer = match (data, part) {
            (Examples::Table(data), Some(part)) => Some(data.take_columns(&part.columns())),
            _ => None,
        };
        let data = fewer.as_ref().map_or(data, Examples::Table);
        let mut session = open(&self.on, spec, network, arena, data, chunk)?;
        session.push(arena)?;
        self.session = Some(session);
        Ok(())
    }

    /// Brings weights and statistics to the host.
    pub(crate) fn download_weights(&mut self, arena: &mut Arena) -> Result<()> {
        let Some(session) = self.session.as_ref().filter(|_| self.ahead.weights) else {
            return Ok(());
        };
        match &mut self.part {
            Some(part) => {
                session.pull_weights(&mut part.arena)?;
                part.give_weights(arena);
            }
            None => session.pull_weights(arena)?,
        }
        self.ahead.weights = false;
        Ok(())
    }

    /// Brings what only the method reads to the host.
    fn download_state(&mut self, arena: &mut Arena) -> Result<()> {
        let Some(session) = self.session.as_ref().filter(|_| self.ahead.state) else {
            return Ok(());
        };
        match &mut self.part {
            Some(part) => {
                session.pull_state(&mut part.arena)?;
                part.give_state(arena);
            }
            None => session.pull_state(arena)?,
        }
        self.ahead.state = false;
        Ok(())
    }

    /// Brings everything to the host.
    pub(crate) fn synchronise(&mut self, arena: &mut Arena) -> Result<()> {
        self.download_weights(arena)?;
        self.download_state(arena)
    }
}

/// Whether the chain may go on with a smaller network after this epoch.
fn may_shrink(spec: &ChainSpec, epoch: usize) -> bool {
    let mut later = epoch + 1..spec.clock.epochs;
    spec.shrink != Shrinking::Never && later.any(|epoch| spec.method.drops_for_good(epoch))
}

/// How many steps are done in one go: all of an epoch, unless images are decoded on the way.
pub(crate) fn steps_at_once(spec: &ChainSpec, data: Examples<'_>) -> usize {
    match data {
        Examples::Images(ImageData { train: Images::Streamed(stream), .. }) => {
            let most = DECODED / (stream.shape().len() * spec.batch).max(1);
            most.clamp(1, spec.clock.steps_per_epoch as usize)
        }
        _ => usize::MAX,
    }
}

fn open(
    on: &OnCuda,
    spec: &ChainSpec,
    network: &Network,
    arena: &Arena,
    data: Examples<'_>,
    chunk: usize,
) -> Result<Session> {
    let options = PlanOptions {
        batch: spec.batch.min(data.rows()),
        precision: on.precision,
        // It costs nothing that could be measured, and a resumed run has the same bits.
        deterministic: true,
        training: true,
        // A smaller network has to pay for its plan: the whole search takes seconds and saves 1 or
        // 2 % of a step (`results/shrink`).
        hasty: arena.origin().is_some(),
    };
    let source = match data {
        Examples::Table(data) => Source::Table(data),
        Examples::Images(ImageData { train, augment, .. }) => match train {
            Images::Held(set) => {
                Source::Images { bytes: set.bytes(), classes: set.labels(), augment }
            }
            Images::Streamed(stream) => {
                Source::Ring { rows: stream.labels().len(), slots: 2 * chunk * spec.batch, augment }
            }
        },
    };
    Ok(Session::new(&on.gpu, network, arena, source, options)?)
}
