//! One chain: a state that steps, and that can be put into a file between any two steps.

mod checkpoint;
mod record;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thinfer_data::images::Speed;
use thinfer_data::images::image_rows;
use thinfer_data::{Error, Result};
use thinfer_data::{ImageData, View};
use thinfer_engine::cuda::{Precision, Session};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Draw, Network, Role};

pub use self::record::Record;
use super::cut::{Ahead, Cut};
use super::device::{self, CudaChain};
use super::examples::Examples;
use super::freeze::{Freezing, FrozenLayers, frozen_share};
use super::shuffle::Shuffle;
use super::stepper::Stepper;
use super::trace::Trace;
use crate::classify::Classifier;
use crate::device::OnCuda;
use crate::methods::{Method, Rates, Tick, initialize};
use crate::metrics;
use crate::posterior::Snapshot;
use crate::prune::{Course, KEEP, count};
use crate::schedule::{Clock, Schedule};
use crate::shrink::Shrinking;

/// Weights that a thread looks through at a time.
const PIECE: usize = 1 << 16;
/// Every how many epochs a GPU run looks at what the method keeps.
const STATE_EVERY: usize = 10;

/// The four schedules of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedules {
    /// l = Δt²
    pub step_size: Schedule,
    /// k
    pub temperature: Schedule,
    /// η
    pub eta: Schedule,
    /// A factor on the weight decay.
    pub weight_decay: Schedule,
}

impl Schedules {
    /// All of them at one step.
    pub fn at(&self, step: u64, clock: Clock) -> Rates {
        Rates {
            step_size: self.step_size.at(step, clock),
            step_size_before: self.step_size.at(step.saturating_sub(1), clock),
            temperature: self.temperature.at(step, clock),
            eta: self.eta.at(step, clock),
            decay_factor: self.weight_decay.at(step, clock),
        }
    }
}

/// Everything about a chain that does not change.
#[derive(Clone)]
pub struct ChainSpec {
    /// The network.
    pub network: Network,
    /// The method.
    pub method: Arc<dyn Method>,
    /// The schedules.
    pub schedules: Schedules,
    /// Steps and epochs.
    pub clock: Clock,
    /// Rows a step.
    pub batch: usize,
    /// The seed.
    pub seed: u64,
    /// The number of the chain.
    pub chain: u32,
    /// The epochs after which a snapshot is taken.
    pub sample_epochs: Vec<usize>,
    /// The epochs after which the chain may be asked whether its samples are enough; empty where it
    /// always does all of its epochs. The last is the end.
    pub stage_ends: Vec<usize>,
    /// Every how many epochs a record is made.
    pub record_every: usize,
    /// Every how many epochs the test images are scored.
    pub evaluate_every: usize,
    /// When to go on with a smaller network, where pruning is for good.
    pub shrink: Shrinking,
    /// When weights are frozen that have settled, where they are.
    pub freeze: Option<Arc<Freezing>>,
    /// The arithmetic on a GPU.
    pub precision: Precision,
    /// The channels whose weights are kept at the end of every epoch, of no epochs yet.
    pub trace: Trace,
    /// What the run is, so that a checkpoint of another one is not mistaken for its own.
    pub fingerprint: u32,
}

/// A chain at some step.
pub struct Chain {
    spec: ChainSpec,
    arena: Arena,
    /// Made with the first step that the cores do.
    stepper: Option<Stepper>,
    cuda: Option<CudaChain>,
    /// The smaller network in use, where there is one.
    cut: Option<Cut>,
    /// How many weights were kept when a smaller one was last thought about, and what pruning was
    /// up to.
    considered: Option<(usize, Course)>,
    /// Parameters that are frozen whole.
    held: FrozenLayers,
    /// The weights at the end of the last cycle, where weights may be frozen; empty before the
    /// first.
    cycle_end: Vec<f32>,
    /// Scores test images; made when first needed.
    judge: Option<Classifier>,
    step: u64,
    shuffle: Shuffle,
    /// All rows, to draw from where the rows of a step do not follow the order of an epoch.
    all_rows: Vec<u32>,
    loss_sum: f64,
    /// The largest mean loss of an epoch since the last record, if any ended.
    largest_loss: Option<f64>,
    clipped_steps: u64,
    /// Whether the steps of an epoch are done and what belongs to its end is not: the user stopped
    /// while its test images were scored.
    epoch_is_open: bool,
    records: Vec<Record>,
    snapshots: Vec<Snapshot>,
    trace: Trace,
}

/// Set by nobody.
static NEVER: AtomicBool = AtomicBool::new(false);

impl Chain {
    /// A chain at step 0.
    pub fn start(spec: ChainSpec) -> Result<Self> {
        let mut arena = Arena::new(&spec.network, spec.method.state_buffers());
        arena.set_numbers(vec![0.0; spec.method.numbers(arena.len())]);
        initialize(&mut arena, spec.network.loss(), spec.seed, spec.chain)?;
        let key = Key::new(spec.seed, spec.chain, Stream::Sampler);
        spec.method.start(&mut arena, key)?;
        Ok(Self {
            trace: spec.trace.clone(),
            spec,
            arena,
            stepper: None,
            cuda: None,
            cut: None,
            considered: None,
            held: FrozenLayers::default(),
            cycle_end: Vec::new(),
            judge: None,
            step: 0,
            shuffle: Shuffle::default(),
            all_rows: Vec::new(),
            loss_sum: 0.0,
            largest_loss: None,
            clipped_steps: 0,
            epoch_is_open: false,
            records: Vec::new(),
            snapshots: Vec::new(),
        })
    }

    /// The step that comes next.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Whether all steps are done.
    pub fn is_done(&self) -> bool {
        self.step >= self.spec.clock.total_steps() && !self.epoch_is_open
    }

    /// Whether all of an epoch is done and nothing of the next.
    pub fn is_between_epochs(&self) -> bool {
        self.step.is_multiple_of(self.spec.clock.steps_per_epoch) && !self.epoch_is_open
    }

    /// Gives back what the next step can make again.
    pub fn rest(&mut self) {
        self.stepper = None;
    }

    /// The records so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The snapshots so far.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// What does not change.
    pub fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// The chain's buffers.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes the chain apart.
    pub fn into_results(self) -> (Vec<Record>, Vec<Snapshot>, Trace) {
        (self.records, self.snapshots, self.trace)
    }

    /// The network in training on a GPU, once there is one.
    pub fn session(&self) -> Option<&Session> {
        self.cuda.as_ref().and_then(CudaChain::session)
    }

    /// Bytes held by buffers and plans.
    pub fn bytes(&self) -> usize {
        let plan = self.stepper.as_ref().map_or(0, Stepper::bytes);
        self.arena.method_bytes() + self.arena.work_bytes() + plan
    }

    /// Does the following steps on a GPU.
    pub fn use_cuda(&mut self, on: OnCuda) -> Result<()> {
        self.cuda = Some(CudaChain::new(&self.spec, on)?);
        if let Some(cut) = self.cut.take() {
            self.cut = Some(cut.laid_out_for(&self.spec.network, true)?);
        }
        Ok(())
    }

    /// At the start of an epoch, after pruning: goes on with a smaller network where that pays.
    fn reconsider(&mut self, epoch: usize, rows: usize, on_cuda: bool) -> Result<()> {
        let spec = &self.spec;
        if !spec.method.drops_for_good(epoch) {
            return Ok(());
        }
        let course = spec.method.course(epoch);
        // With the marks of before and less of the run ahead, what did not pay pays even less.
        let now = Some((count(self.arena.marks(), KEEP), course));
        if self.considered == now {
            return Ok(());
        }
        self.considered = now;
        let epochs = spec.clock.epochs - epoch;
        let (when, batch) = (spec.shrink, spec.batch);
        let ahead = Ahead { when, rows, epochs, batch, on_cuda, course };
        let next = Cut::next(&spec.network, self.arena.marks(), self.cut.as_ref(), ahead)?;
        if let Some(cut) = next {
            (self.cut, self.stepper, self.judge) = (Some(cut), None, None);
        }
        Ok(())
    }

    fn tick(&self, step: u64) -> Tick {
        let clock = self.spec.clock;
        Tick { step, epoch: clock.epoch(step), rates: self.spec.schedules.at(step, clock) }
    }

    /// Does one step, or on a GPU the rest of an epoch or as much of it as is decoded at a time.
    pub fn advance<'a>(&mut self, data: impl Into<Examples<'a>>) -> Result<()> {
        self.advance_until(data.into(), &NEVER)
    }

    /// The same, but stops with [`Error::Interrupted`] while it scores test images where `stop` is
    /// set. The state can then be put into a file, and the next call goes on with the scoring.
    pub fn advance_until(&mut self, data: Examples<'_>, stop: &AtomicBool) -> Result<()> {
        if let Some(mut cuda) = self.cuda.take() {
            let done = self.advance_on(&mut cuda, data, stop);
            self.cuda = Some(cuda);
            return done;
        }
        if self.epoch_is_open {
            return self.end_epoch(data, None, stop);
        }
        let clock = self.spec.clock;
        let (epoch, batch) = (clock.epoch(self.step), clock.batch(self.step));
        let tick = self.tick(self.step);
        let method = Arc::clone(&self.spec.method);
        if batch == 0 {
            method.epoch(&mut self.arena, tick);
            self.loss_sum = 0.0;
            self.reconsider(epoch, data.rows(), false)?;
        }
        if self.stepper.is_none() {
            let (spec, cut, held) = (&self.spec, self.cut.as_ref(), &self.held);
            self.stepper = Some(match spec.method.walker() {
                Some(walker) => Stepper::walking(spec, walker, data.rows())?,
                None => Stepper::new(&spec.network, spec.batch, cut, held, &self.arena)?,
            });
        }
        let Some(stepper) = &mut self.stepper else { return Ok(()) };
        let key = Key::new(self.spec.seed, self.spec.chain, Stream::Shuffle);
        // Also after a resume in the middle of an epoch: order and columns follow from step and
        // masks.
        if self.shuffle.begins(epoch) {
            let only_masks = self.spec.shrink == Shrinking::Never && method.drops_for_good(epoch);
            if let (Examples::Table(_), true) =
                (data, method.masks() && stepper.is_whole() && !only_masks)
            {
                stepper.read_columns(&live_inputs(&self.spec.network, self.arena.marks()));
            }
        }
        let drawn;
        let rows = if let Some(noise) = method.batch_noise(tick) {
            drawn = noise.draw(&self.arena, tick, key, &mut self.all_rows);
            &drawn[..]
        } else {
            let first = batch * self.spec.batch;
            let order = self.shuffle.of(key, epoch, data.rows());
            &order[first..(first + self.spec.batch).min(order.len())]
        };
        let (made, numbers);
        let (table, rows) = match data {
            Examples::Table(data) => (data, rows),
            Examples::Images(images) => {
                let key = Key::new(self.spec.seed, self.spec.chain, Stream::Augment);
                let view = View::Random { key, epoch: epoch as u64 };
                made = image_rows(&images.train, &images.augment, view, rows)?;
                numbers = (0..rows.len() as u32).collect::<Vec<u32>>();
                (&made, &numbers[..])
            }
        };
        stepper.set_draw(Draw::of_step(self.spec.seed, self.spec.chain, self.step));
        let done = stepper.step(&mut self.arena, &*method, tick, table, rows)?;
        let loss = done.loss;
        if !loss.is_finite() {
            return Err(self.not_finite("the loss".into(), epoch));
        }
        self.clipped_steps += done.clipped;
        self.loss_sum += loss;
        self.step += 1;
        if clock.batch(self.step) == 0 {
            self.end_epoch(data, None, stop)?;
        }
        Ok(())
    }

    fn advance_on(
        &mut self,
        cuda: &mut CudaChain,
        data: Examples<'_>,
        stop: &AtomicBool,
    ) -> Result<()> {
        if self.epoch_is_open {
            return self.end_epoch(data, Some(cuda), stop);
        }
        let clock = self.spec.clock;
        let first = clock.batch(self.step);
        let rest = clock.steps_per_epoch - first as u64;
        let end = self.step + rest.min(device::steps_at_once(&self.spec, data) as u64);
        let ticks: Vec<Tick> = (self.step..end).map(|step| self.tick(step)).collect();
        let [tick, ..] = ticks[..] else { return Ok(()) };
        if first == 0 {
            if self.spec.method.reads_state(tick.epoch) {
                cuda.synchronise(&mut self.arena)?;
            }
            self.spec.method.epoch(&mut self.arena, tick);
            self.loss_sum = 0.0;
            self.reconsider(tick.epoch, data.rows(), true)?;
        }
        let used = (self.cut.as_ref(), &self.held);
        let tally = cuda.run(&self.spec, &mut self.arena, used, data, first, &ticks)?;
        if let Some(at) = tally.losses.iter().position(|loss| !loss.is_finite()) {
            self.step += at as u64;
            return Err(self.not_finite("the loss".into(), tick.epoch));
        }
        self.loss_sum += tally.losses.iter().map(|loss| f64::from(*loss)).sum::<f64>();
        self.clipped_steps += tally.clipped;
        self.step = end;
        if clock.batch(self.step) == 0 {
            self.end_epoch(data, Some(cuda), stop)?;
        }
        Ok(())
    }

    /// How fast the images of this epoch are decoded, where a GPU waits for them.
    pub fn decoding(&self) -> Option<Speed> {
        self.cuda.as_ref().and_then(CudaChain::decoding)
    }

    /// Brings everything that a checkpoint holds to the host.
    pub fn synchronise(&mut self) -> Result<()> {
        match &mut self.cuda {
            Some(cuda) => cuda.synchronise(&mut self.arena),
            None => Ok(()),
        }
    }

    /// What belongs to the end of the epoch of the last step. Nothing of the chain changes before
    /// all that can be stopped is done.
    fn end_epoch(
        &mut self,
        data: Examples<'_>,
        mut cuda: Option<&mut CudaChain>,
        stop: &AtomicBool,
    ) -> Result<()> {
        self.epoch_is_open = true;
        let tick = self.tick(self.step - 1);
        let epoch = tick.epoch;
        let (epochs, sampled) = (self.spec.clock.epochs, self.spec.sample_epochs.contains(&epoch));
        let last = epoch + 1 == epochs;
        let recorded = (epoch + 1).is_multiple_of(self.spec.record_every) || last;
        let scored = recorded && ((epoch + 1).is_multiple_of(self.spec.evaluate_every) || last);
        let judged_on = match data {
            Examples::Images(images) if scored => Some(images),
            _ => None,
        };
        // The device scores while the host fetches the weights and looks at them.
        if let (Some(images), Some(cuda)) = (judged_on, cuda.as_deref()) {
            self.begin_judging(images, cuda)?;
        }
        // What the method keeps to itself is large and looked at now and then only.
        let mut state_is_here = true;
        if let Some(cuda) = cuda.as_deref_mut() {
            cuda.download_weights(&mut self.arena)?;
            state_is_here = (epoch + 1).is_multiple_of(STATE_EVERY)
                || sampled
                || last
                || scored && self.spec.method.sample_reads_state();
            if state_is_here {
                cuda.synchronise(&mut self.arena)?;
            }
        }
        let broken = |weights: &[f32]| weights.iter().any(|w| !w.is_finite());
        let weights = self.arena.weights();
        if weights.par_chunks(PIECE).any(broken)
            && let Some(at) = weights.iter().position(|w| !w.is_finite())
        {
            let owner = self.arena.table().owner(at).map_or("", |p| p.name.as_str());
            return Err(self.not_finite(format!("the parameter `{owner}`"), epoch));
        }
        let judged = match judged_on {
            Some(images) => Some(self.judge(tick, images, cuda.as_deref(), stop)?),
            None => None,
        };
        self.trace.record(self.arena.weights());
        let loss = self.loss_sum / self.spec.clock.steps_per_epoch as f64;
        let largest_loss = self.largest_loss.map_or(loss, |before| before.max(loss));
        self.largest_loss = Some(largest_loss);
        if recorded {
            let spec = &self.spec;
            let mut vitals = spec.method.vitals(&self.arena, tick);
            if state_is_here {
                vitals = spec.method.vitals_of_state(&self.arena, tick, vitals);
            }
            let mut record = Record {
                epoch,
                loss,
                step_size: vitals.step_size.unwrap_or(tick.rates.step_size),
                temperature: tick.rates.temperature.powi(2),
                effective_temperature: vitals.effective_temperature,
                batch_temperature: vitals.batch_temperature,
                rows_a_step: vitals.rows_a_step,
                tau_mean: vitals.tau.map(|t| t.0),
                tau_sd: vitals.tau.map(|t| t.1),
                spike_share: vitals.spike_share,
                pruned_share: vitals.pruned_share,
                live_inputs: live_inputs(&spec.network, self.arena.marks()).len(),
                largest_loss,
                clipped_steps: self.clipped_steps,
                sparsity: sparsity(self.arena.marks()),
                work: self.cut.as_ref().map_or(1.0, |cut| cut.small.work_left(&spec.network)),
                frozen: frozen_share(self.arena.marks()),
                backward: self.held.backward_left(
                    self.cut.as_ref().map_or(&spec.network, |cut| &cut.small.network),
                ),
                hard_threshold: vitals.hard_threshold,
                test_accuracy: None,
                test_nll: None,
            };
            if let Some((accuracy, nll)) = judged {
                (record.test_accuracy, record.test_nll) = (Some(accuracy), Some(nll));
            }
            self.records.push(record);
            self.spec.method.recorded(&mut self.arena);
            self.largest_loss = None;
            self.clipped_steps = 0;
        }
        if sampled {
            self.snapshots.push(Snapshot {
                chain: self.spec.chain,
                epoch,
                weights: self.spec.method.sample(&self.arena, tick),
                keep: self.arena.marks().iter().map(|m| m & KEEP).collect(),
                stats: self.arena.stats().to_vec(),
                inclusion: self.spec.method.inclusion(&self.arena),
            });
        }
        self.end_cycle(epoch);
        self.epoch_is_open = false;
        Ok(())
    }

    /// At the end of a cycle that another follows: freezes what has settled.
    fn end_cycle(&mut self, epoch: usize) {
        let freeze = self.spec.freeze.as_ref().filter(|freeze| freeze.cycle_ends.contains(&epoch));
        let Some(freeze) = freeze else { return };
        if !self.cycle_end.is_empty() {
            freeze.freeze(&self.spec.network, &self.cycle_end, &mut self.arena);
            self.hold();
        }
        self.cycle_end = self.arena.weights().to_vec();
    }

    /// Takes over from the marks which parameters are frozen whole.
    fn hold(&mut self) {
        let held = FrozenLayers::of(&self.spec.network, self.arena.marks());
        if held != self.held {
            (self.held, self.stepper) = (held, None);
        }
    }

    /// What scores the test images, for the network in use.
    fn classifier(&self, images: &ImageData, cuda: Option<&CudaChain>) -> Result<Classifier> {
        let on = cuda.map(CudaChain::on);
        let small = self.cut.as_ref().map(|cut| &cut.small.network);
        let network = small.unwrap_or(&self.spec.network);
        Classifier::new(network, &images.test, &images.augment, on)
    }

    /// The network in training, where the weights that it reads are those of a sample: they need
    /// not be brought to the device.
    fn judged_in_place<'a>(&self, cuda: &'a CudaChain) -> Option<&'a Session> {
        cuda.session().filter(|_| !self.arena.has_forward())
    }

    /// Puts the work of [`Chain::judge`] on the device, where all is there.
    fn begin_judging(&mut self, images: &ImageData, cuda: &CudaChain) -> Result<()> {
        let Some(session) = self.judged_in_place(cuda) else { return Ok(()) };
        let mut judge = match self.judge.take() {
            Some(judge) => judge,
            None => self.classifier(images, Some(cuda))?,
        };
        judge.begin_in(session)?;
        self.judge = Some(judge);
        Ok(())
    }

    /// Accuracy and negative log-likelihood of the test images, for the weights as they are.
    fn judge(
        &mut self,
        tick: Tick,
        images: &ImageData,
        cuda: Option<&CudaChain>,
        stop: &AtomicBool,
    ) -> Result<(f64, f64)> {
        if self.judge.is_none() {
            self.judge = Some(self.classifier(images, cuda)?);
        }
        let session = cuda.and_then(|cuda| self.judged_in_place(cuda));
        let Some(judge) = &mut self.judge else { return Ok((f64::NAN, f64::NAN)) };
        let guesses = if let Some(session) = session {
            judge.probabilities_in(session)?
        } else {
            let weights = self.spec.method.sample(&self.arena, tick);
            match &self.cut {
                Some(Cut { small, .. }) => {
                    let stats = small.take_stats(self.arena.stats());
                    judge.probabilities_until(&small.take(&weights), &stats, stop)?
                }
                None => judge.probabilities_until(&weights, self.arena.stats(), stop)?,
            }
        };
        let truth: Vec<f32> = images.test.labels().iter().map(|&label| label as f32).collect();
        let classes = images.classes.len();
        let accuracy = metrics::accuracy_from_probabilities(&guesses, classes, &truth);
        let nll = metrics::negative_log_likelihood_classes(&guesses, classes, &truth);
        Ok((accuracy.unwrap_or(f64::NAN), nll.unwrap_or(f64::NAN)))
    }

    fn not_finite(&self, what: String, epoch: usize) -> Error {
        let (step, chain) = (self.step, self.spec.chain);
        Error::NonFinite {
            what,
            step,
            epoch,
            chain,
            checkpoint: "no checkpoint was written".into(),
        }
    }
}

/// The share of parameters that are pruned.
fn sparsity(marks: &[u8]) -> f64 {
    (marks.len() - count(marks, KEEP)) as f64 / marks.len().max(1) as f64
}

/// The input columns that some kept weight still reads.
pub fn live_inputs(network: &Network, marks: &[u8]) -> Vec<usize> {
    let first = network.first_weight().filter(|weight| weight.role == Role::LinearWeight);
    let Some(weight) = first else { return (0..network.input_len()).collect() };
    let columns = weight.shape[1];
    let mut live = vec![false; columns];
    for row in marks[weight.range()].chunks_exact(columns) {
        for (live, mark) in live.iter_mut().zip(row) {
            *live |= mark & KEEP != 0;
        }
    }
    (0..columns).filter(|&c| live[c]).collect()
}
