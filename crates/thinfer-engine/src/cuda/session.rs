//! Training on the device: batch, passes, forward, backward, captured as one graph and replayed.

use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaSlice};

use super::Precision;
use super::batches::{Batches, Slots, Source};
use super::context::{Gpu, Value};
use super::error::Named;
use super::lower::PlanOptions;
use super::plan::{CudaPlan, DeviceIo, check_memory};
use crate::arena::{Arena, Call, Clip, Kernel};
use crate::device_memory::MemoryPlan;
use crate::error::EngineError;
use crate::joined;
use crate::mixture::Draw;
use crate::network::Network;
use crate::noise::CUDA_SOURCE;

pub(super) const LOWER: Kernel =
    kernel(joined!(CUDA_SOURCE, include_str!("kernels/lower.cu")), "lower");
const CLIP_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("kernels/clip.cu"));
const CLIP_PARTIAL: Kernel = kernel(CLIP_SOURCE, "clip_partial");
const CLIP_FACTOR: Kernel = kernel(CLIP_SOURCE, "clip_factor");
pub(super) const ADVANCE: Kernel = kernel(include_str!("kernels/advance.cu"), "advance");

const fn kernel(source: &'static str, entry: &'static str) -> Kernel {
    Kernel { source, entry, defines: &[] }
}

/// Kernels that a session launches besides those of the plan and of the method.
pub(crate) const KERNELS: [Kernel; 4] = [LOWER, CLIP_PARTIAL, CLIP_FACTOR, ADVANCE];

/// Blocks a multiprocessor gets in a pass over flat buffers.
const BLOCKS: usize = 8;

/// What a method does in one step: before the gradient is taken, and with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepCalls {
    /// Passes that write what the network reads.
    pub before: Vec<Call>,
    /// Passes that consume the gradient.
    pub after: Vec<Call>,
}

/// What some steps of an epoch came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The mean loss of each step.
    pub losses: Vec<f32>,
    /// Right answers among all rows, for class labels.
    pub correct: f64,
    /// Steps whose gradient was shortened.
    pub clipped: u64,
}

/// One size of batch: its plan, its buffers and, once captured, its graph.
struct Stage {
    plan: CudaPlan,
    batch: usize,
    input: CudaSlice<u8>,
    targets: CudaSlice<u32>,
    order: CudaSlice<u32>,
    /// The position in `order`, in batches of this stage.
    at: CudaSlice<u32>,
    graph: Option<CudaGraph>,
}

/// A network in training on one GPU, with the buffers of its method.
///
/// A step is one graph: it makes a batch, runs the method's passes, forward and backward, and moves
/// a counter on. Numbers that change from step to step lie in tables that are filled once an epoch.
pub struct Session {
    gpu: Arc<Gpu>,
    batches: Batches,
    /// The full batch, and the smaller one at the end of an epoch where there is one.
    stages: Vec<Stage>,
    weights: CudaSlice<f32>,
    forward: Option<CudaSlice<f32>>,
    low: Option<CudaSlice<u16>>,
    gradient: CudaSlice<f32>,
    state: Vec<CudaSlice<f32>>,
    marks: CudaSlice<u8>,
    stats: CudaSlice<f32>,
    step: CudaSlice<u32>,
    key: CudaSlice<u32>,
    /// What makes random channel scales, and how often each example stands in a batch for them.
    noise: CudaSlice<u32>,
    repeats: usize,
    tally: CudaSlice<f64>,
    losses: CudaSlice<f32>,
    partial: CudaSlice<f64>,
    factor: CudaSlice<f32>,
    clipped: CudaSlice<u32>,
    /// For each weight, the number that keys its noise, where that is not its own.
    origin: Option<CudaSlice<u32>>,
    /// Kernels of a step and their tables; the graphs were captured with these.
    passes: Vec<Pass>,
    steps: usize,
}

struct Pass {
    kernel: Kernel,
    clip: Option<Clip>,
    before: bool,
    words: usize,
    table: CudaSlice<u32>,
}

impl Session {
    /// Plans `network` for an epoch over `source` in batches of `options.batch`, with the buffers
    /// that `arena` has. The buffers are empty until [`Session::push`].
    pub fn new(
        gpu: &Arc<Gpu>,
        network: &Network,
        arena: &Arena,
        source: Source<'_>,
        options: PlanOptions,
    ) -> Result<Self, EngineError> {
        // A network with members sees every example once for each of them.
        let repeats = network.repeats();
        let rows = source.rows() * repeats;
        let options = PlanOptions { batch: options.batch * repeats, ..options };
        let n = arena.len();
        let low = options.precision == Precision::Bf16;
        let steps = rows.div_ceil(options.batch);
        let blocks = BLOCKS * gpu.multiprocessors() as usize;
        let state: Result<Vec<_>, _> = (0..arena.state_buffers()).map(|_| gpu.zeros(n)).collect();
        let mut session = Self {
            batches: Batches::new(gpu, network, source, options.precision)?,
            stages: Vec::new(),
            weights: gpu.zeros(n)?,
            forward: if arena.has_forward() { Some(gpu.zeros(n)?) } else { None },
            low: if low { Some(gpu.zeros(n)?) } else { None },
            gradient: gpu.zeros(n)?,
            state: state?,
            marks: gpu.zeros(n)?,
            stats: gpu.zeros(arena.stats().len())?,
            step: gpu.zeros(1)?,
            key: gpu.zeros(6)?,
            noise: gpu.zeros(8)?,
            repeats,
            tally: gpu.zeros(4)?,
            losses: gpu.zeros(steps)?,
            partial: gpu.zeros(blocks)?,
            factor: gpu.zeros(1)?,
            clipped: gpu.zeros(1)?,
            origin: arena.origin().map(|origin| gpu.upload(origin)).transpose()?,
            passes: Vec::new(),
            steps,
            gpu: gpu.clone(),
        };
        session.plan_stages(network, options, rows)?;
        Ok(session)
    }

    /// Plans the full batch and the smaller one at the end of an epoch. All other buffers are
    /// allocated by now, so what is free is what the plans may take.
    fn plan_stages(
        &mut self,
        network: &Network,
        options: PlanOptions,
        rows: usize,
    ) -> Result<(), EngineError> {
        let rest = |batch: usize| if batch <= rows { rows % batch } else { 0 };
        let first = PlanOptions { batch: options.batch.min(rows), ..options };
        let weight = 4 + 4 + if self.low.is_some() { 2 } else { 0 };
        let held = self.weights.len() * weight + 4 * self.stats.len();
        let state = self.state_bytes();
        check_memory(&self.gpu, network, &first, state, held + state, rest)?;
        for (batch, order) in
            [options.batch, rows % options.batch].into_iter().zip([rows, rows % options.batch])
        {
            if batch > 0 && batch <= rows {
                // The rest of an epoch is a single step.
                let hasty = options.hasty || !self.stages.is_empty();
                let options = PlanOptions { batch, hasty, ..options };
                self.stages.push(Stage::new(&self.gpu, network, options, order)?);
            }
        }
        Ok(())
    }

    /// Bytes of the method's buffers.
    fn state_bytes(&self) -> usize {
        self.weights.len() * (4 * self.state.len() + 1)
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Where the device memory of the full batch goes, the method's buffers included.
    pub fn memory_plan(&self) -> MemoryPlan {
        let mut memory = self.stages[0].plan.memory_plan();
        memory.state = self.state_bytes();
        memory
    }

    /// Copies weights, state, marks and statistics to the device.
    pub fn push(&mut self, arena: &Arena) -> Result<(), EngineError> {
        let gpu = &self.gpu;
        gpu.write(&mut self.weights, arena.weights())?;
        for (at, state) in self.state.iter_mut().enumerate() {
            gpu.write(state, arena.state(at))?;
        }
        gpu.write(&mut self.marks, arena.marks())?;
        gpu.write(&mut self.stats, arena.stats())?;
        if let Some(forward) = &mut self.forward {
            gpu.write(forward, arena.forward())?;
        }
        if self.low.is_some() {
            self.launch_pass(&LOWER, 0, 0)?;
        }
        self.gpu.wait()
    }

    /// Copies weights and marks alone to the device: what pruning between epochs changes.
    pub fn push_weights(&mut self, arena: &Arena) -> Result<(), EngineError> {
        self.gpu.write(&mut self.weights, arena.weights())?;
        self.gpu.write(&mut self.marks, arena.marks())?;
        if self.low.is_some() {
            self.launch_pass(&LOWER, 0, 0)?;
        }
        self.gpu.wait()
    }

    /// Copies weights, state and statistics back, beside work that only reads them: steps are over
    /// when they have been run. Marks do not change on the device.
    pub fn pull(&self, arena: &mut Arena) -> Result<(), EngineError> {
        self.pull_weights(arena)?;
        self.pull_state(arena)
    }

    /// Copies weights and statistics back.
    pub fn pull_weights(&self, arena: &mut Arena) -> Result<(), EngineError> {
        let (weights, stats) = arena.trained_mut();
        let weights = self.gpu.read_beside(&self.weights, weights);
        let both = weights.and_then(|()| self.gpu.read_beside(&self.stats, stats));
        both.map_err(|error| self.gpu.explain(error))
    }

    /// Copies back what only the method reads: its state, and what the network last read where that
    /// is a copy.
    pub fn pull_state(&self, arena: &mut Arena) -> Result<(), EngineError> {
        for (at, state) in self.state.iter().enumerate() {
            self.gpu.read_beside(state, arena.state_mut(at))?;
        }
        if let (Some(from), Some(to)) = (&self.forward, arena.forward_mut()) {
            self.gpu.read_beside(from, to)?;
        }
        Ok(())
    }

    /// Says what makes the random channel scales of step 0 of the epoch, where there are any; those
    /// of the following steps come from the steps after it.
    pub fn set_draw(&mut self, draw: Draw) -> Result<(), EngineError> {
        self.gpu.write(&mut self.noise, &draw.kernel_words())
    }

    /// Puts images into the slots from `first` on, for a [`Source::Ring`].
    pub fn fill(&mut self, first: usize, bytes: &[u8], classes: &[u32]) -> Result<(), EngineError> {
        self.batches.fill(&self.gpu, first, bytes, classes)
    }

    /// Where the network's weights, their bf16 copy and the running statistics lie.
    pub(crate) fn weights_at(&self) -> [u64; 3] {
        let gpu = &self.gpu;
        [
            gpu.address(self.forward.as_ref().unwrap_or(&self.weights)),
            self.low.as_ref().map_or(0, |low| gpu.address(low)),
            gpu.address(&self.stats),
        ]
    }

    /// The gradient of the last step, for comparisons.
    pub fn gradient(&self) -> Result<Vec<f32>, EngineError> {
        self.gpu.download(&self.gradient)
    }

    /// The bf16 copy of what the network reads, where it reads one, for comparisons.
    pub fn low(&self) -> Result<Option<Vec<u16>>, EngineError> {
        self.low.as_ref().map(|low| self.gpu.download(low)).transpose()
    }

    /// Does the steps `first ..` of an epoch. `order` has all rows of it; `key` is that of the
    /// crops and mirrorings. The host waits once, at the end.
    pub fn run(
        &mut self,
        order: &[u32],
        first: usize,
        steps: &[StepCalls],
        key: [u32; 6],
    ) -> Result<Tally, EngineError> {
        let done = self.run_steps(order, first, steps, key);
        done.map_err(|error| self.gpu.explain(error))
    }

    fn run_steps(
        &mut self,
        order: &[u32],
        first: usize,
        steps: &[StepCalls],
        key: [u32; 6],
    ) -> Result<Tally, EngineError> {
        let last = first + steps.len();
        if last > self.steps {
            let (got, expected) = (last, self.steps);
            return Err(EngineError::Size { what: "the steps of an epoch", got, expected });
        }
        let Some(calls) = steps.first() else { return Ok(Tally::default()) };
        self.prepare(calls)?;
        self.fill_tables(first, steps)?;
        let repeat = |row: &u32| std::iter::repeat_n(*row, self.repeats);
        let order: Vec<u32> = order.iter().flat_map(repeat).collect();
        let order = &order[..];
        let gpu = self.gpu.clone();
        let whole = order.len() / self.stages[0].batch;
        let rest = whole * self.stages[0].batch;
        for (stage, (rows, at)) in self.stages.iter_mut().zip([(order, first), (&order[rest..], 0)])
        {
            if rows.len() != stage.order.len() {
                let (got, expected) = (rows.len(), stage.order.len());
                return Err(EngineError::Size { what: "the order of an epoch", got, expected });
            }
            gpu.write(&mut stage.order, rows)?;
            gpu.write(&mut stage.at, &[at as u32])?;
        }
        gpu.write(&mut self.step, &[first as u32])?;
        gpu.write(&mut self.key, &key)?;
        gpu.write(&mut self.tally, &[0.0; 4])?;
        gpu.write(&mut self.clipped, &[0])?;
        let batch = self.stages[0].batch;
        gpu.launching(format!("steps {first} to {last} of an epoch, {batch} examples each"));
        for step in first..last {
            let stage = usize::from(step >= whole);
            let graph = self.stages[stage].graph.as_ref();
            let graph = graph.ok_or_else(|| missing("a captured step"))?;
            graph.launch().named("cuGraphLaunch")?;
        }
        let losses = gpu.download(&self.losses)?;
        let tally = gpu.download(&self.tally)?;
        let clipped = gpu.download(&self.clipped)?;
        Ok(Tally {
            losses: losses[first..last].to_vec(),
            correct: tally[1],
            clipped: u64::from(clipped[0]),
        })
    }

    /// Captures the graphs for these passes, unless they were captured already.
    fn prepare(&mut self, calls: &StepCalls) -> Result<(), EngineError> {
        let all = || {
            let before = calls.before.iter().map(|call| (true, call));
            before.chain(calls.after.iter().map(|call| (false, call)))
        };
        let same = self.passes.len() == all().count()
            && self.passes.iter().zip(all()).all(|(pass, (before, call))| {
                pass.before == before
                    && pass.kernel == call.kernel
                    && pass.clip == call.clip
                    && pass.words == call.scalars.len()
            });
        if same && self.stages.iter().all(|stage| stage.graph.is_some()) {
            return Ok(());
        }
        self.passes.clear();
        for (before, call) in all() {
            let words = call.scalars.len();
            let table = self.gpu.zeros(words * self.steps)?;
            let (kernel, clip) = (call.kernel, call.clip);
            self.passes.push(Pass { kernel, clip, before, words, table });
        }
        // The first run of a plan loads its kernels, which a capture must not do. It also changes
        // the statistics, so they are kept.
        let stats = self.gpu.download(&self.stats)?;
        for stage in 0..self.stages.len() {
            self.load_kernels()?;
            let io = self.io(stage);
            self.gather(stage)?;
            self.stages[stage].plan.forward_backward(&io)?;
            self.gpu.wait()?;
            let gpu = self.gpu.clone();
            let graph = gpu.capture(|| self.enqueue(stage))?;
            graph.upload().named("cuGraphUpload")?;
            self.stages[stage].graph = Some(graph);
        }
        self.gpu.write(&mut self.stats, &stats)
    }

    fn load_kernels(&self) -> Result<(), EngineError> {
        for kernel in [CLIP_PARTIAL, CLIP_FACTOR, ADVANCE] {
            self.gpu.function(kernel.source, kernel.entry, kernel.defines)?;
        }
        for Pass { kernel, .. } in &self.passes {
            self.gpu.function(kernel.source, kernel.entry, kernel.defines)?;
        }
        Ok(())
    }

    fn fill_tables(&mut self, first: usize, steps: &[StepCalls]) -> Result<(), EngineError> {
        for at in 0..self.passes.len() {
            let words = self.passes[at].words;
            let mut table = vec![0; words * self.steps];
            for (row, calls) in steps.iter().enumerate() {
                let call = calls.before.iter().chain(&calls.after).nth(at);
                let call = call.filter(|call| {
                    call.kernel == self.passes[at].kernel && call.scalars.len() == words
                });
                let call =
                    call.ok_or_else(|| missing("a pass that all steps of an epoch share"))?;
                table[(first + row) * words..][..words].copy_from_slice(&call.scalars);
            }
            if words > 0 {
                self.gpu.write(&mut self.passes[at].table, &table)?;
            }
        }
        Ok(())
    }

    fn io(&self, stage: usize) -> DeviceIo {
        let (gpu, stage) = (&self.gpu, &self.stages[stage]);
        DeviceIo {
            input: gpu.address(&stage.input),
            targets: gpu.address(&stage.targets),
            weights: gpu.address(self.forward.as_ref().unwrap_or(&self.weights)),
            low: self.low.as_ref().map_or(0, |low| gpu.address(low)),
            stats: gpu.address(&self.stats),
            gradient: gpu.address(&self.gradient),
            tally: gpu.address(&self.tally),
            losses: gpu.address(&self.losses),
            step: gpu.address(&self.step),
            noise: gpu.address(&self.noise),
        }
    }

    fn gather(&self, stage: usize) -> Result<(), EngineError> {
        let (gpu, stage) = (&self.gpu, &self.stages[stage]);
        let slots = Slots {
            batch: stage.batch,
            channels: stage.plan.input_channels(),
            order: gpu.address(&stage.order),
            step: gpu.address(&stage.at),
            key: gpu.address(&self.key),
            input: gpu.address(&stage.input),
            targets: gpu.address(&stage.targets),
        };
        self.batches.gather(gpu, slots)
    }

    /// Puts one step on the stream.
    fn enqueue(&mut self, stage: usize) -> Result<(), EngineError> {
        self.gather(stage)?;
        for at in 0..self.passes.len() {
            if self.passes[at].before {
                self.enqueue_pass(at)?;
            }
        }
        let io = self.io(stage);
        self.stages[stage].plan.forward_backward(&io)?;
        for at in 0..self.passes.len() {
            if !self.passes[at].before {
                self.enqueue_pass(at)?;
            }
        }
        let gpu = &self.gpu;
        let advance = gpu.function(ADVANCE.source, ADVANCE.entry, ADVANCE.defines)?;
        for counter in [&self.step, &self.stages[stage].at] {
            gpu.launch_small(&advance, 1, &[Value::At(gpu.address(counter))])?;
        }
        Ok(())
    }

    fn enqueue_pass(&self, at: usize) -> Result<(), EngineError> {
        let pass = &self.passes[at];
        let gpu = &self.gpu;
        let mut factor = 0;
        if let Some(clip) = pass.clip {
            use Value::{At, F64, U32};
            let blocks = self.partial.len();
            let partial = At(gpu.address(&self.partial));
            let marks = At(gpu.address(&self.marks));
            let n = U32(self.weights.len() as u32);
            let [among, except] = [clip.among, clip.except].map(|bits| U32(u32::from(bits)));
            factor = gpu.address(&self.factor);
            let first = gpu.function(CLIP_PARTIAL.source, CLIP_PARTIAL.entry, &[])?;
            let gradient = At(gpu.address(&self.gradient));
            let values = [gradient, marks, n, partial.clone(), among, except];
            gpu.launch(&first, blocks, &values)?;
            let second = gpu.function(CLIP_FACTOR.source, CLIP_FACTOR.entry, &[])?;
            let clipped = At(gpu.address(&self.clipped));
            let values = [partial, U32(blocks as u32), F64(clip.most), At(factor), clipped];
            gpu.launch(&second, 1, &values)?;
        }
        self.launch_pass(&pass.kernel, gpu.address(&pass.table), factor)
    }

    /// Launches a kernel with the signature that all passes share.
    fn launch_pass(&self, kernel: &Kernel, table: u64, factor: u64) -> Result<(), EngineError> {
        let gpu = &self.gpu;
        let function = gpu.function(kernel.source, kernel.entry, kernel.defines)?;
        let state = |at: usize| self.state.get(at).map_or(0, |state| gpu.address(state));
        let mut values: Vec<Value> = [
            gpu.address(&self.weights),
            self.forward.as_ref().map_or(0, |forward| gpu.address(forward)),
            self.low.as_ref().map_or(0, |low| gpu.address(low)),
            gpu.address(&self.gradient),
            state(0),
            state(1),
            gpu.address(&self.marks),
        ]
        .map(Value::At)
        .to_vec();
        values.push(Value::U32(self.weights.len() as u32));
        let origin = self.origin.as_ref().map_or(0, |origin| gpu.address(origin));
        values.extend([table, gpu.address(&self.step), factor, origin].map(Value::At));
        let most = BLOCKS * gpu.multiprocessors() as usize;
        gpu.launch(&function, self.weights.len().div_ceil(4 * 256).clamp(1, most), &values)
    }

    /// Milliseconds of the parts of a full step, each replayed as a graph of its own.
    pub fn time_parts(&mut self, calls: &StepCalls) -> Result<Parts, EngineError> {
        self.prepare(calls)?;
        self.fill_tables(0, std::slice::from_ref(calls))?;
        let gpu = self.gpu.clone();
        gpu.write(&mut self.step, &[0])?;
        for stage in &mut self.stages {
            gpu.write(&mut stage.at, &[0])?;
        }
        let data = super::bench::replay(&gpu, || self.gather(0))?;
        let update = super::bench::replay(&gpu, || {
            (0..self.passes.len()).try_for_each(|at| self.enqueue_pass(at))
        })?;
        let io = self.io(0);
        let plan = &mut self.stages[0].plan;
        let forward = super::bench::replay(&gpu, || plan.training_forward(&io))?;
        let backward = super::bench::replay(&gpu, || plan.backward(&io))?;
        // All steps read the same rows here, and counters of their own move on; the work is the
        // same.
        let counters = gpu.zeros::<u32>(2)?;
        let advance = gpu.function(ADVANCE.source, ADVANCE.entry, ADVANCE.defines)?;
        let whole = super::bench::replay(&gpu, || {
            self.gather(0)?;
            (0..self.passes.len())
                .filter(|at| self.passes[*at].before)
                .try_for_each(|at| self.enqueue_pass(at))?;
            self.stages[0].plan.forward_backward(&io)?;
            (0..self.passes.len())
                .filter(|at| !self.passes[*at].before)
                .try_for_each(|at| self.enqueue_pass(at))?;
            [0, 4].into_iter().try_for_each(|at| {
                gpu.launch_small(&advance, 1, &[Value::At(gpu.address(&counters) + at)])
            })
        })?;
        Ok(Parts { data, forward, backward, update, whole })
    }
}

/// Milliseconds of a step and of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Making the batch.
    pub data: f64,
    /// Forward and loss.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
    /// The method's passes.
    pub update: f64,
    /// All of it in one graph.
    pub whole: f64,
}

impl Stage {
    fn new(
        gpu: &Arc<Gpu>,
        network: &Network,
        options: PlanOptions,
        order: usize,
    ) -> Result<Self, EngineError> {
        let plan = CudaPlan::unchecked(gpu, network, options)?;
        let shape = network.nodes()[0].shape;
        let pixels = shape.height * shape.width;
        let input = options.batch * pixels * plan.input_channels() * options.precision.bytes();
        let targets = options.batch * network.loss().target_len(network.output_len());
        Ok(Self {
            plan,
            batch: options.batch,
            input: gpu.zeros(input)?,
            targets: gpu.zeros(targets)?,
            order: gpu.zeros(order)?,
            at: gpu.zeros(1)?,
            graph: None,
        })
    }
}

fn missing(what: &str) -> EngineError {
    EngineError::Cuda { call: "a training step".into(), problem: format!("lacks {what}") }
}
