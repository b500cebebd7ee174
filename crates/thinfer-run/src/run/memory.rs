//! The memory plan of a run: what it will hold at its largest, known before it starts.

use thinfer_core::classify::{self, largest};
use thinfer_core::device::Device;
use thinfer_core::methods::Tick;
use thinfer_core::posterior;
use thinfer_core::train::{ChainSpec, Examples, division, orders_ahead};
use thinfer_data::memory::{human_bytes, resident_memory};
use thinfer_data::{Error, Result};
use thinfer_data::{ImageData, Images};
use thinfer_engine::{Network, Passes, Plan, Shape};

use crate::config::{Config, DataKind};
use crate::evaluate::temperature_bytes;
use crate::experiment::{Problem, ProblemInputs, chain_specs};

/// What the program holds without data, where the system does not say what it has.
const PROGRAM: u64 = 16 << 20;
/// What everything else takes: stacks of threads, records, pages of the report.
const BESIDE: u64 = 6 << 20;
/// Sides of images that advice names are multiples of this.
const SIDES: usize = 32;

/// What a run will hold at its largest, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What the process holds already: the program and the data.
    pub held: u64,
    /// What the chains at work hold besides, with their samples.
    pub training: u64,
    /// What the evaluation after them holds besides, with their samples.
    pub evaluation: u64,
}

/// What a memory plan needs to know besides the chains.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Where the steps are computed.
    pub device: Device,
    /// Threads for all chains; 0 is as many as there are cores.
    pub threads: usize,
    /// Rows to learn from.
    pub train_rows: usize,
    /// Rows to be scored on.
    pub test_rows: usize,
    /// What a row is, where it is an image.
    pub image: Option<ImageWork>,
}

/// What a memory plan needs to know of images.
#[derive(Clone, Copy, Debug)]
pub struct ImageWork {
    /// The shape of one.
    pub shape: Shape,
    /// Whether they are decoded when they are needed.
    pub streamed: bool,
    /// Bytes that a thread takes to decode one.
    pub decoding: u64,
}

impl Work {
    /// For some data, of which `test_rows` are scored.
    pub fn of(data: Examples<'_>, test_rows: usize, device: Device, threads: usize) -> Self {
        let image = match data {
            Examples::Table(_) => None,
            Examples::Images(images) => Some(ImageWork::of(images)),
        };
        Self { device, threads, train_rows: data.rows(), test_rows, image }
    }
}

impl ImageWork {
    fn of(data: &ImageData) -> Self {
        let decoding = |images: &Images| match images {
            Images::Held(_) => 0,
            Images::Streamed(stream) => stream.decoding_bytes(),
        };
        Self {
            shape: data.train.shape(),
            streamed: matches!(data.train, Images::Streamed(_)),
            decoding: decoding(&data.train).max(decoding(&data.test)),
        }
    }

    /// Bytes of a batch as the network reads it, and of its pixels where they are decoded for it.
    fn batch(&self, rows: usize) -> u64 {
        let bytes = if self.streamed { 5 } else { 4 };
        (self.shape.len() as u64).saturating_mul(bytes).saturating_mul(rows as u64)
    }
}

impl MemoryPlan {
    /// The plan of chains on data that is loaded.
    pub fn new(specs: &[ChainSpec], work: &Work) -> Self {
        let held = resident_memory().unwrap_or(PROGRAM) + BESIDE;
        let Some(spec) = specs.first() else { return Self { held, training: 0, evaluation: 0 } };
        let (side_by_side, threads) = division(specs.len(), work.threads);
        let samples = samples_bytes(spec).saturating_mul(specs.len() as u64);
        let training = chain_bytes(spec, work, threads).saturating_mul(side_by_side as u64);
        Self {
            held,
            training: training.saturating_add(samples),
            evaluation: evaluation_bytes(spec, specs.len(), work).saturating_add(samples),
        }
    }

    /// What is still to be taken.
    pub fn ahead(&self) -> u64 {
        self.training.max(self.evaluation)
    }

    /// The largest that the process will be.
    pub fn total(&self) -> u64 {
        self.held.saturating_add(self.ahead())
    }
}

fn weights_of(network: &Network) -> u64 {
    network.params().len() as u64
}

/// Bytes of weights, state, marks and numbers that the method of a chain keeps.
pub(super) fn method_bytes(spec: &ChainSpec) -> u64 {
    let weights = weights_of(&spec.network);
    let numbers = 8 * spec.method.numbers(spec.network.params().len()) as u64;
    weights.saturating_mul(4 * (1 + spec.method.state_buffers() as u64) + 1).saturating_add(numbers)
}

/// Whether steps account for mini-batch noise, so that they may read up to all rows.
fn accounts(spec: &ChainSpec) -> bool {
    let clock = spec.clock;
    // The last step is one with noise, if any is.
    let step = clock.total_steps().saturating_sub(1);
    let rates = spec.schedules.at(step, clock);
    spec.method.batch_noise(Tick { step, epoch: clock.epoch(step), rates }).is_some()
}

/// All samples of a chain with their masks.
fn samples_bytes(spec: &ChainSpec) -> u64 {
    let one = 5 * weights_of(&spec.network) + 4 * spec.network.stats().len() as u64;
    one.saturating_mul(spec.sample_epochs.len() as u64)
}

/// One chain at work, without its samples.
fn chain_bytes(spec: &ChainSpec, work: &Work, threads: usize) -> u64 {
    let (network, weights) = (&spec.network, weights_of(&spec.network));
    let copies = 1 + u64::from(spec.method.has_forward_copy()) + u64::from(spec.freeze.is_some());
    let kept = method_bytes(spec) + 4 * network.stats().len() as u64;
    let arena = kept + 4 * weights * copies;
    let on_cpu = work.device == Device::Cpu;
    let batch = spec.batch.min(work.train_rows).max(1);
    let orders = 1 + if on_cpu && threads > 1 { orders_ahead(work.train_rows) } else { 0 };
    let order = 4 * (orders as u64).saturating_mul(work.train_rows as u64);
    // A sample is written out of a copy. While it waits to be written, a checkpoint is made.
    let sample = 5 * weights;
    let files = sample + kept.max(sample);
    let mut step = 0;
    let mut plans = 0;
    if on_cpu {
        plans = Plan::bytes_of(network, spec.batch, Passes::ForwardAndBack);
        if accounts(spec) {
            // Halves of up to all rows, and the rows that are drawn.
            let half = Plan::bytes_of(network, work.train_rows.div_ceil(2), Passes::ForwardAndBack);
            plans = plans.saturating_add(half).saturating_add(8 * work.train_rows as u64);
        }
    }
    if let Some(image) = &work.image {
        let judged = if on_cpu { judging_bytes(network, work) } else { Judging::default() };
        plans = plans.saturating_add(judged.plan);
        let made = if on_cpu { image.batch(batch) } else { 0 };
        step = made.saturating_add(judged.images).saturating_add(4 * weights);
        step = step.saturating_add(image.decoding.saturating_mul(threads as u64));
    }
    arena.saturating_add(order).saturating_add(plans).saturating_add(step.max(files))
}

#[derive(Clone, Copy, Default)]
struct Judging {
    plan: u64,
    images: u64,
}

/// What scores the test images on the cores.
fn judging_bytes(network: &Network, work: &Work) -> Judging {
    let Some(image) = &work.image else { return Judging::default() };
    let rows = classify::rows_at_once(network, work.test_rows);
    Judging {
        plan: Plan::bytes_of(network, rows, Passes::Forward),
        images: image.batch(rows).saturating_add(table_bytes(network, work)),
    }
}

/// The probabilities of one member for all test rows.
fn table_bytes(network: &Network, work: &Work) -> u64 {
    8 * (network.output_len() as u64).saturating_mul(work.test_rows as u64)
}

/// What the evaluation holds besides the samples of all chains.
fn evaluation_bytes(spec: &ChainSpec, chains: usize, work: &Work) -> u64 {
    let network = &spec.network;
    let views = network.mixture().map_or(1, |mixture| mixture.members * mixture.draws);
    let members = (chains * spec.sample_epochs.len()) as u64;
    let tables = table_bytes(network, work).saturating_mul(members).saturating_mul(views as u64);
    let on_cpu = work.device == Device::Cpu;
    let (held, plan) = match &work.image {
        Some(_) if !on_cpu => (0, 0),
        Some(_) => {
            let Judging { plan, images } = judging_bytes(network, work);
            (0, plan.saturating_add(images))
        }
        // All samples are copied, those that are averaged once more, and the last of each chain,
        // which are scored one by one and cut down.
        None => {
            let rows = posterior::rows_at_once(work.test_rows);
            let copies = samples_bytes(spec).saturating_mul(2 * chains as u64);
            let last = (5 * (chains as u64 + 1) + 8) * weights_of(network);
            (copies + last, Plan::bytes_of(network, rows, Passes::Forward))
        }
    };
    // The temperature is estimated on the cores, when the plan of the scores is gone.
    let image = work.image.as_ref().map(|image| image.batch(1));
    let temperature = if spec.method.adds_noise() {
        temperature_bytes(network, image, work.train_rows, spec.batch)
    } else {
        0
    };
    held.saturating_add(plan.max(temperature)).saturating_add(tables)
}

/// Stops before the run where it does not fit, and says what would.
pub(super) fn check(
    plan: &MemoryPlan,
    specs: &[ChainSpec],
    work: &Work,
    config: &Config,
    available: Option<u64>,
) -> Result<()> {
    let (Some(available), Some(spec)) = (available, specs.first()) else { return Ok(()) };
    if plan.ahead() <= available {
        return Ok(());
    }
    let fits = |specs: &[ChainSpec], work: &Work| MemoryPlan::new(specs, work).ahead() <= available;
    let mut advice = Vec::new();
    let smaller_batch = |batch: usize| {
        let spec = ChainSpec { batch, ..spec.clone() };
        fits(&vec![spec; specs.len()], work)
    };
    if let Some(batch) = largest(spec.batch.saturating_sub(1), smaller_batch) {
        advice.push(format!("`train.batch` to {batch}"));
    }
    if let (Some(image), DataKind::Images) = (work.image, config.data.kind) {
        let at_size = |units: usize| smaller_images(specs, work, image, config, units * SIDES);
        let side = config.data.image_size.saturating_sub(1) / SIDES;
        if let Some(units) = largest(side, |units| at_size(units).is_ok_and(|(s, w)| fits(&s, &w)))
        {
            advice.push(format!("`data.image_size` to {}", units * SIDES));
        }
    }
    if let Some(chains) = largest(specs.len().saturating_sub(1), |n| fits(&specs[..n], work)) {
        advice.push(format!("`chains` to {chains}"));
    }
    let advice = if advice.is_empty() {
        "choose a smaller network, take fewer samples, or use a machine with more memory".into()
    } else {
        format!("lower {}", advice.join(", or "))
    };
    let (weights, batch) = (weights_of(&spec.network), spec.batch);
    let samples = spec.sample_epochs.len();
    Err(Error::Memory(format!(
        "a run of {} chains with {weights} weights, batches of {batch} and {samples} samples a chain needs about {} of memory besides its data, but only {} are available; {advice}",
        specs.len(),
        human_bytes(plan.ahead()),
        human_bytes(available)
    )))
}

/// The same chains on images of another size.
fn smaller_images(
    specs: &[ChainSpec],
    work: &Work,
    image: ImageWork,
    config: &Config,
    size: usize,
) -> Result<(Vec<ChainSpec>, Work)> {
    let shape = Shape { height: size, width: size, ..image.shape };
    let classes = specs.first().map_or(0, |spec| spec.network.output_len());
    let inputs = ProblemInputs::Image { shape, classes };
    let problem = Problem { train_rows: work.train_rows, fingerprint: 0, inputs };
    let work = Work { image: Some(ImageWork { shape, ..image }), ..*work };
    Ok((chain_specs(config, problem)?, work))
}

#[cfg(test)]
mod tests;
