//! A network compiled for one GPU, batch size and precision.

use std::collections::BTreeSet;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, LaunchConfig, PushKernelArg};

use super::Precision;
use super::context::{Gpu, Slot};
use super::conv::{Chooser, Chosen, Pack, Problem};
use super::dnn::Direction;
use super::error::Named;
use super::linear::{Gemm, Product, WORKSPACE};
use super::lower::{PlanOptions, lower};
use super::nvrtc::source;
use super::step::{Arg, Launch, Place, Program, Space, Step};
use crate::device_memory::MemoryPlan;
use crate::error::EngineError;
use crate::network::Network;

/// Addresses of device buffers that a plan reads and writes; input, weights, low and gradient are
/// aligned to 256 bytes, as every allocation is.
///
/// 0 stands for a buffer that is not there, where that is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// The batch: rows, height, width, [`CudaPlan::input_channels`], in the activation type
    /// (bf16, or f32 for tf32 and f32). Padding channels must be zero.
    pub input: u64,
    /// Class numbers as i32, or f32 values. Only for training.
    pub targets: u64,
    /// The parameters that the network reads, f32.
    pub weights: u64,
    /// The same in bf16. Only for bf16.
    pub low: u64,
    /// Running statistics, f32.
    pub stats: u64,
    /// Receives the gradient, f32. Only for training.
    pub gradient: u64,
    /// Four f64, added to by every batch: mean loss, right answers, batches, batches whose loss is
    /// not finite. Only for training.
    pub tally: u64,
    /// Receives the mean loss of the batch as f32 at `[*step]`, or 0.
    pub losses: u64,
    /// A u32 with the number of the step, or 0 for step 0.
    pub step: u64,
    /// Eight words that make random channel scales ([`Draw`](crate::Draw)). Only where there are
    /// some; `step` then counts the steps of training from them on, or the batches of a prediction.
    pub noise: u64,
}

/// A network compiled for a GPU, a batch size and a precision.
///
/// Buffers are planned once; a call only puts work on the stream, so it can be captured. Run it
/// once before capturing.
pub struct CudaPlan {
    gpu: Arc<Gpu>,
    training: Vec<Bound>,
    forward: usize,
    inference: Vec<Bound>,
    arena: CudaSlice<u8>,
    scratch: CudaSlice<u8>,
    counters: CudaSlice<u32>,
    packed: CudaSlice<u8>,
    packed_gradient: CudaSlice<u8>,
    constants: CudaSlice<u32>,
    workspace: CudaSlice<u8>,
    /// The work space of filter gradients.
    beside: CudaSlice<u8>,
    fork: CudaEvent,
    done: Vec<CudaEvent>,
    memory: MemoryPlan,
    options: PlanOptions,
    output: usize,
    outputs: usize,
    input_channels: usize,
    /// Whether channels have random scales.
    random: bool,
}

/// Multiply-adds from which on a filter gradient fills the GPU by itself. Beside other work it
/// would only make that slower.
const FILLS_THE_GPU: usize = 10_000_000_000;

/// A step with its kernel or library plan.
enum Bound {
    Kernel {
        name: String,
        function: CudaFunction,
        config: LaunchConfig,
        args: Vec<Arg>,
        /// The filter gradient beside which it runs.
        beside: Option<usize>,
    },
    Conv {
        name: String,
        chosen: Arc<Chosen>,
        places: [Place; 3],
        pack: Pack,
        /// The number of a filter gradient, which runs beside the main stream.
        beside: Option<usize>,
    },
    /// Waits for a filter gradient.
    Join(usize),
    Product {
        gemm: Gemm,
        places: [Place; 3],
    },
}

impl Bound {
    fn name(&self) -> String {
        match self {
            Bound::Kernel { name, .. } | Bound::Conv { name, .. } => name.clone(),
            Bound::Product { .. } => "product".into(),
            Bound::Join(_) => "join".into(),
        }
    }
}

impl CudaPlan {
    /// Compiles `network`. Takes seconds the first time on a machine; choices are kept on disk.
    pub fn new(
        gpu: &Arc<Gpu>,
        network: &Network,
        options: PlanOptions,
    ) -> Result<Self, EngineError> {
        check_memory(gpu, network, &options, 0, 0, |_| 0)?;
        Self::unchecked(gpu, network, options)
    }

    /// The same for a caller that has asked [`check_memory`] already.
    pub(super) fn unchecked(
        gpu: &Arc<Gpu>,
        network: &Network,
        options: PlanOptions,
    ) -> Result<Self, EngineError> {
        let program = lower(network, options, gpu.multiprocessors())?;
        gpu.ctx.bind_to_thread().named("cuCtxSetCurrent")?;
        let mut binder = Binder::new(gpu, &program)?;
        let training = binder.bind(&program.training)?;
        let inference = binder.bind(&program.inference)?;
        let (workspace, beside, filters) = (binder.workspace, binder.beside, binder.filters);
        // Measuring needs as much memory as the plan itself: give it back first.
        drop(binder);
        gpu.wait()?;
        let constants =
            if program.constants.is_empty() { vec![0] } else { program.constants.clone() };
        let mut memory = memory_plan(network, &options, &program);
        memory.workspace += workspace + beside;
        let event = || gpu.ctx.new_event(None).named("cuEventCreate");
        let done: Result<Vec<_>, _> = (0..filters).map(|_| event()).collect();
        Ok(Self {
            training,
            forward: program.forward,
            inference,
            arena: gpu.zeros(program.arena)?,
            scratch: gpu.zeros(program.scratch)?,
            counters: gpu.zeros(program.counters)?,
            packed: gpu.zeros(program.packed)?,
            packed_gradient: gpu.zeros(program.packed_gradient)?,
            constants: gpu.upload(&constants)?,
            workspace: gpu.zeros(workspace)?,
            beside: gpu.zeros(beside)?,
            fork: event()?,
            done: done?,
            memory,
            options,
            output: program.output,
            outputs: network.output_len() * options.batch,
            input_channels: program.input_channels,
            random: network.mixture().is_some(),
            gpu: gpu.clone(),
        })
    }

    /// Puts forward, loss and backward on the stream.
    pub fn forward_backward(&mut self, io: &DeviceIo) -> Result<(), EngineError> {
        self.run_training(io, 0, usize::MAX)
    }

    /// Puts forward and loss of training on the stream, for timing.
    pub fn training_forward(&mut self, io: &DeviceIo) -> Result<(), EngineError> {
        self.run_training(io, 0, self.forward)
    }

    /// Puts the way back on the stream, for timing.
    pub fn backward(&mut self, io: &DeviceIo) -> Result<(), EngineError> {
        self.run_training(io, self.forward, usize::MAX)
    }

    fn run_training(&mut self, io: &DeviceIo, from: usize, to: usize) -> Result<(), EngineError> {
        self.check(io, true)?;
        let mut steps = std::mem::take(&mut self.training);
        let to = to.min(steps.len());
        let done = self.run(&mut steps[from..to], io, true);
        self.training = steps;
        done
    }

    /// Puts forward with running statistics on the stream; the result is at [`CudaPlan::output`].
    pub fn forward(&mut self, io: &DeviceIo) -> Result<(), EngineError> {
        self.check(io, false)?;
        let mut steps = std::mem::take(&mut self.inference);
        let done = self.run(&mut steps, io, true);
        self.inference = steps;
        done
    }

    /// The address of the output: batch by outputs, f32.
    pub fn output(&self) -> u64 {
        self.gpu.address(&self.arena) + self.output as u64
    }

    /// Puts a copy of the output into `to`, `first` bytes in, on the stream.
    pub(crate) fn copy_output(
        &self,
        to: &mut CudaSlice<u8>,
        first: usize,
    ) -> Result<(), EngineError> {
        let bytes = self.outputs * 4;
        let from = self.arena.slice(self.output..self.output + bytes);
        let mut to = to.slice_mut(first..first + bytes);
        self.gpu.stream.memcpy_dtod(&from, &mut to).named("cuMemcpyDtoD")
    }

    /// Waits and copies the output to the host.
    pub fn read_output(&self) -> Result<Vec<f32>, EngineError> {
        let bytes = self.outputs * 4;
        let view = self.arena.slice(self.output..self.output + bytes);
        let raw: Vec<u8> = self.gpu.stream.clone_dtoh(&view).named("cuMemcpyDtoH")?;
        self.gpu.wait()?;
        let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(raw.chunks_exact(4).map(value).collect())
    }

    /// Channels that the batch must have: the network's, padded where that is faster.
    pub fn input_channels(&self) -> usize {
        self.input_channels
    }

    /// How the plan was made.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Where the device memory goes.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.memory
    }

    /// Bytes of device memory that the plan holds.
    pub fn bytes(&self) -> usize {
        self.memory.total() - self.memory.weights - self.memory.state
    }

    fn check(&self, io: &DeviceIo, training: bool) -> Result<(), EngineError> {
        let low = self.options.precision == Precision::Bf16;
        let mut needed = vec![("input", io.input, 256), ("weights", io.weights, 256)];
        if low {
            needed.push(("low", io.low, 256));
        }
        if self.random {
            needed.push(("noise", io.noise, 4));
        }
        if training {
            needed.extend([
                ("targets", io.targets, 4),
                ("gradient", io.gradient, 256),
                ("tally", io.tally, 8),
            ]);
        }
        for (name, address, align) in needed {
            if address == 0 || !address.is_multiple_of(align) {
                return Err(EngineError::Cuda {
                    call: format!("the buffer `{name}`"),
                    problem: format!("is missing or not aligned to {align} bytes"),
                });
            }
        }
        if training && self.training.is_empty() {
            return Err(EngineError::Cuda {
                call: "forward_backward".into(),
                problem: "the plan was made without gradients".into(),
            });
        }
        Ok(())
    }

    fn address(&self, place: Place, io: &DeviceIo) -> u64 {
        let base = match place.space {
            Space::Nothing => return 0,
            Space::Arena => self.gpu.address(&self.arena),
            Space::Scratch => self.gpu.address(&self.scratch),
            Space::Counters => self.gpu.address(&self.counters),
            Space::Packed => self.gpu.address(&self.packed),
            Space::PackedGradient => self.gpu.address(&self.packed_gradient),
            Space::Constants => self.gpu.address(&self.constants),
            Space::Input => io.input,
            Space::Targets => io.targets,
            Space::Weights => io.weights,
            Space::Low => io.low,
            Space::Stats => io.stats,
            Space::Gradient => io.gradient,
            Space::Tally => io.tally,
            Space::Losses => io.losses,
            Space::Step => io.step,
            Space::Noise => io.noise,
        };
        if base == 0 { 0 } else { base + place.offset as u64 }
    }

    /// `overlap`: filter gradients go to the second stream.
    fn run(&self, steps: &mut [Bound], io: &DeviceIo, overlap: bool) -> Result<(), EngineError> {
        self.gpu.ctx.bind_to_thread().named("cuCtxSetCurrent")?;
        let workspace = self.gpu.address(&self.workspace);
        for step in steps {
            self.gpu.launching(step.name());
            match step {
                Bound::Kernel { function, config, args, beside, .. } => {
                    let slots: Vec<Slot> = args.iter().map(|a| self.slot(a, io)).collect();
                    let beside = beside.filter(|_| overlap);
                    let stream = if beside.is_some() { &self.gpu.side } else { &self.gpu.stream };
                    let mut builder = stream.launch_builder(function);
                    for slot in &slots {
                        builder.arg(slot);
                    }
                    // SAFETY: lowering gave the kernel the arguments of its signature and sizes
                    // that stay inside the buffers.
                    unsafe { builder.launch(*config) }.named("cuLaunchKernel")?;
                    if let Some(number) = beside {
                        self.done[number].record(&self.gpu.side).named("cuEventRecord")?;
                    }
                }
                Bound::Conv { chosen, places, pack, beside, .. } => {
                    let [x, w, y] = places.map(|p| self.address(p, io));
                    let workspace =
                        if beside.is_some() { self.gpu.address(&self.beside) } else { workspace };
                    let at = [x, w, y, workspace];
                    if let Some(number) = beside.filter(|_| overlap) {
                        self.fork.record(&self.gpu.stream).named("cuEventRecord")?;
                        self.gpu.side.wait(&self.fork).named("cuStreamWaitEvent")?;
                        chosen.run(&self.gpu, true, at, pack)?;
                        self.done[number].record(&self.gpu.side).named("cuEventRecord")?;
                    } else {
                        chosen.run(&self.gpu, false, at, pack)?;
                    }
                }
                Bound::Join(number) => {
                    if overlap && let Some(done) = self.done.get(*number) {
                        self.gpu.stream.wait(done).named("cuStreamWaitEvent")?;
                    }
                }
                Bound::Product { gemm, places } => {
                    gemm.run(&self.gpu, places.map(|p| self.address(p, io)), workspace)?;
                }
            }
        }
        Ok(())
    }

    /// What each step of training is called, and a way to run it alone, for timing.
    pub(crate) fn each_training_step(
        &mut self,
        io: &DeviceIo,
        mut visit: impl FnMut(
            &str,
            &mut dyn FnMut() -> Result<(), EngineError>,
        ) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.check(io, true)?;
        let mut steps = std::mem::take(&mut self.training);
        let mut done = Ok(());
        for at in 0..steps.len() {
            let name = steps[at].name();
            done = visit(&name, &mut || self.run(&mut steps[at..=at], io, false));
            if done.is_err() {
                break;
            }
        }
        self.training = steps;
        done
    }

    fn slot(&self, arg: &Arg, io: &DeviceIo) -> Slot {
        let mut slot = Slot([0; 8]);
        match arg {
            Arg::At(place) => slot.0[0] = self.address(*place, io),
            Arg::U32(value) => slot.0[0] = u64::from(*value),
            Arg::F32(value) => slot.0[0] = u64::from(value.to_bits()),
            Arg::Words(words) => {
                for (i, word) in words.iter().enumerate() {
                    slot.0[i / 2] |= u64::from(*word) << (32 * (i % 2));
                }
            }
        }
        slot
    }
}

/// Gives steps their kernels and library plans.
struct Binder<'a> {
    gpu: &'a Gpu,
    chooser: Chooser<'a>,
    workspace: usize,
    beside: usize,
    filters: usize,
    /// Filter gradients that run beside the main stream, not as plain kernels on it.
    really_beside: BTreeSet<usize>,
    /// Filter gradients that are written into the flat gradient, so that nothing has to be moved
    /// there.
    flat: BTreeSet<usize>,
}

impl<'a> Binder<'a> {
    fn new(gpu: &'a Gpu, program: &Program) -> Result<Self, EngineError> {
        let steps = program.training.iter().chain(&program.inference);
        let problems: BTreeSet<Problem> = steps
            .filter_map(|s| match s {
                Step::Conv(problem, _) | Step::Filter(problem, ..) => Some(*problem),
                _ => None,
            })
            .collect();
        let problems: Vec<Problem> = problems.into_iter().collect();
        let kernels = program.training.iter().chain(&program.inference).filter_map(|s| match s {
            Step::Kernel(launch) => Some((launch.source, &launch.defines[..])),
            _ => None,
        });
        gpu.prepare(kernels)?;
        Ok(Self {
            gpu,
            chooser: Chooser::new(gpu, &problems)?,
            workspace: WORKSPACE,
            beside: 0,
            filters: 0,
            really_beside: BTreeSet::new(),
            flat: BTreeSet::new(),
        })
    }

    fn bind(&mut self, steps: &[Step]) -> Result<Vec<Bound>, EngineError> {
        let mut bound = Vec::with_capacity(steps.len());
        for step in steps {
            if !matches!(step, Step::Beside(number, _) if self.flat.contains(number)) {
                bound.push(self.bind_one(step)?);
            }
        }
        Ok(bound)
    }

    fn bind_one(&mut self, step: &Step) -> Result<Bound, EngineError> {
        match step {
            Step::Kernel(launch) => self.kernel(launch, None),
            Step::Beside(number, launch) => {
                let number = Some(*number).filter(|n| self.really_beside.contains(n));
                self.kernel(launch, number)
            }
            Step::Join(number) => {
                // The last one that ran beside: those before it in the queue are done then, too.
                let number = self.really_beside.range(..=*number).next_back();
                Ok(Bound::Join(number.copied().unwrap_or(usize::MAX)))
            }
            Step::Conv(problem, places) => self.convolution(problem, *places, None),
            Step::Filter(problem, places, flat) => self.convolution(problem, *places, Some(*flat)),
            Step::Product(product, places) => match Gemm::new(self.gpu, product) {
                Ok(gemm) => Ok(Bound::Product { gemm, places: *places }),
                Err(_) => self.kernel(&direct_product(product, *places), None),
            },
        }
    }

    /// `flat`: where a filter gradient lies in the flat gradient.
    fn convolution(
        &mut self,
        problem: &Problem,
        mut places: [Place; 3],
        flat: Option<Place>,
    ) -> Result<Bound, EngineError> {
        let number = self.filters;
        self.filters += usize::from(flat.is_some());
        let Some(chosen) = self.chooser.choose(*problem)? else {
            return self.kernel(&direct_convolution(problem, places), None);
        };
        if let (Chosen::Own(_), Some(flat)) = (&*chosen, flat) {
            places[1] = flat;
            self.flat.insert(number);
        }
        let small = problem.multiply_adds() < FILLS_THE_GPU;
        let beside = (flat.is_some() && small).then_some(number);
        if beside.is_some() {
            self.beside = self.beside.max(chosen.workspace());
            self.really_beside.insert(number);
        } else {
            self.workspace = self.workspace.max(chosen.workspace());
        }
        let g = &problem.geometry;
        let [height, width, channels] = [g.input[2], g.input[3], g.input[1]];
        let name = format!(
            "convolution {:?} {height}x{width}x{channels} -> {} by {}x{} stride {}",
            problem.direction, g.output[1], g.filter[2], g.filter[3], g.stride[0]
        );
        Ok(Bound::Conv { name, chosen, places, pack: Pack::default(), beside })
    }

    fn kernel(&self, launch: &Launch, beside: Option<usize>) -> Result<Bound, EngineError> {
        let function = self.gpu.function(launch.source, launch.entry, &launch.defines)?;
        let config = LaunchConfig {
            grid_dim: (launch.grid[0], launch.grid[1], 1),
            block_dim: (launch.block, 1, 1),
            shared_mem_bytes: 0,
        };
        let [x, y] = launch.grid;
        let name =
            format!("{} {} {x}x{y}x{}", launch.entry, launch.defines.join(" "), launch.block);
        Ok(Bound::Kernel { name, function, config, args: launch.args.clone(), beside })
    }
}

/// The plain kernel for a convolution that cuDNN has no engine for.
pub(super) fn direct_convolution(problem: &Problem, places: [Place; 3]) -> Launch {
    let g = &problem.geometry;
    let words = [
        g.input[0],
        g.input[2],
        g.input[3],
        g.input[1],
        g.output[2],
        g.output[3],
        g.output[1],
        g.filter[2],
        g.filter[3],
        g.stride[0],
        g.stride[1],
        g.padding[0],
        g.padding[1],
    ];
    direct(problem.direction, problem.precision, false, words, places)
}

/// The plain kernel for a product that cuBLASLt refuses: a convolution over one pixel.
fn direct_product(p: &Product, places: [Place; 3]) -> Launch {
    let words = [p.rows, 1, 1, p.inputs, 1, 1, p.outputs, 1, 1, 1, 1, 0, 0];
    let [left, right, to] = places;
    // Products name left and right; convolutions input, filter and output.
    let places = match p.direction {
        Direction::Forward => [right, left, to],
        Direction::Data => [to, left, right],
        Direction::Filter => [left, to, right],
    };
    direct(p.direction, p.precision, p.wide, words, places)
}

fn direct(
    direction: Direction,
    precision: Precision,
    wide: bool,
    words: [usize; 13],
    places: [Place; 3],
) -> Launch {
    let [images, height, width, channels, out_height, out_width, out, kh, kw, ..] = words;
    let (entry, threads) = match direction {
        Direction::Forward => ("direct_forward", images * out_height * out_width * out),
        Direction::Data => ("direct_data", images * height * width * channels),
        Direction::Filter => ("direct_filter", 32 * out * kh * kw * channels),
    };
    let mut defines = Vec::new();
    if precision == Precision::Bf16 {
        defines.push("ACT_BF16");
    }
    if wide {
        defines.push("OUT_F32");
    }
    let mut args = places.map(Arg::At).to_vec();
    args.push(Arg::Words(words.iter().map(|w| *w as u32).collect()));
    let blocks = threads.div_ceil(256).clamp(1, 1 << 16) as u32;
    Launch { source: source::DIRECT, entry, defines, grid: [blocks, 1], block: 256, args }
}

/// The memory of a lowered network, without the libraries' work space.
fn memory_plan(network: &Network, options: &PlanOptions, program: &Program) -> MemoryPlan {
    let low = if options.precision == Precision::Bf16 { 2 } else { 0 };
    let gradient = if options.training { 4 } else { 0 };
    MemoryPlan {
        weights: network.params().len() * (4 + low + gradient) + network.stats().len() * 4,
        state: 0,
        activations: program.activations,
        gradients: program.arena - program.activations,
        workspace: program.scratch
            + program.packed
            + program.packed_gradient
            + 4 * (program.counters + program.constants.len()),
    }
}

/// Stops with the memory plan and the largest batch that fits where this one does not.
///
/// `state` bytes of a method belong to the plan, and `held` bytes of it are allocated already.
/// `rest` says which smaller batch is planned besides a batch; 0 for none.
pub(super) fn check_memory(
    gpu: &Gpu,
    network: &Network,
    options: &PlanOptions,
    state: usize,
    held: usize,
    rest: impl Fn(usize) -> usize,
) -> Result<(), EngineError> {
    let free = gpu.memory()?.0 + held;
    let one = |batch: usize| -> Result<MemoryPlan, EngineError> {
        let options = PlanOptions { batch, ..*options };
        let program = lower(network, options, gpu.multiprocessors())?;
        let mut plan = memory_plan(network, &options, &program);
        plan.workspace += WORKSPACE;
        Ok(plan)
    };
    let all = |batch: usize| -> Result<MemoryPlan, EngineError> {
        let mut plan = MemoryPlan { state, ..one(batch)? };
        if let rest @ 1.. = rest(batch) {
            let MemoryPlan { activations, gradients, workspace, .. } = one(rest)?;
            plan.activations += activations;
            plan.gradients += gradients;
            plan.workspace += workspace;
        }
        Ok(plan)
    };
    let plan = all(options.batch)?;
    if plan.total() <= free {
        return Ok(());
    }
    let fits = |batch: usize| all(batch).is_ok_and(|plan| plan.total() <= free);
    let largest_batch = largest_below(options.batch, fits);
    Err(EngineError::DeviceMemory { plan, free, batch: options.batch, largest_batch })
}

/// The largest batch below `batch` that fits, where smaller ones fit as well; 0 where none does.
fn largest_below(batch: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut failing) = (0, batch);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_batch_that_fits_is_found() {
        for limit in 0..40 {
            assert_eq!(largest_below(40, |batch| batch <= limit), limit);
        }
        assert_eq!(largest_below(1, |_| true), 0);
    }
}
