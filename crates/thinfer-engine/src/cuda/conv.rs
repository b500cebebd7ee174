//! Convolutions through cuDNN: which engine to use is measured once and remembered on disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::cudnn::result;
use cudarc::cudnn::sys::{cudnnBackendNumericalNote_t as Note, cudnnDataType_t as DataType};
use cudarc::driver::CudaSlice;
use cudarc::driver::sys::CUevent_flags;

use super::Precision;
use super::context::Gpu;
use super::dnn::{self, Desc, Direction, Geometry};
use super::error::{Named, call};
use super::nvrtc;
use crate::error::EngineError;

/// Engines measured for one problem, at most.
const MOST_ENGINES: usize = 8;
/// Time after which the search takes the best engine so far.
const SEARCH: Duration = Duration::from_millis(250);
/// Runs of an engine that are timed.
const RUNS: usize = 10;

/// One pass of one convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) direction: Direction,
    pub(crate) geometry: Geometry,
    pub(crate) precision: Precision,
    pub(crate) deterministic: bool,
}

impl Problem {
    fn data(&self) -> DataType {
        match self.precision {
            Precision::Bf16 => DataType::CUDNN_DATA_BFLOAT16,
            Precision::Tf32 | Precision::F32 => DataType::CUDNN_DATA_FLOAT,
        }
    }

    /// Bytes of input, filter and output.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        let value = self.precision.bytes();
        let g = &self.geometry;
        [g.input, g.filter, g.output].map(|s| s.iter().product::<usize>() * value)
    }

    pub(crate) fn multiply_adds(&self) -> usize {
        let g = &self.geometry;
        let pixels = g.output[0] * g.output[2] * g.output[3];
        pixels * g.filter.iter().product::<usize>()
    }

    /// Whether an engine with these notes may be used.
    fn allows(&self, notes: &[u32]) -> bool {
        let has = |note: Note| notes.contains(&(note as u32));
        let exact = self.precision == Precision::F32;
        !(self.deterministic && has(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            || exact && has(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
            || has(Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            || self.precision != Precision::Bf16
                && has(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
    }
}

/// An engine ready to run.
pub(crate) struct Chosen {
    plan: Desc,
    pub(crate) workspace: usize,
}

impl Chosen {
    pub(crate) fn run(&self, gpu: &Gpu, pack: &Desc) -> Result<(), EngineError> {
        gpu.dnn.with(|handle| dnn::execute(handle, &self.plan, pack))
    }

    /// The same on the second stream.
    pub(crate) fn run_beside(&self, gpu: &Gpu, pack: &Desc) -> Result<(), EngineError> {
        gpu.dnn_side.with(|handle| dnn::execute(handle, &self.plan, pack))
    }
}

/// Chooses engines; holds the buffers that measuring needs.
pub(crate) struct Chooser<'a> {
    gpu: &'a Gpu,
    known: BTreeMap<Problem, Option<Arc<Chosen>>>,
    buffers: [CudaSlice<u8>; 3],
    workspace: CudaSlice<u8>,
}

impl<'a> Chooser<'a> {
    /// `problems`: all that will be asked for.
    pub(crate) fn new(gpu: &'a Gpu, problems: &[Problem]) -> Result<Self, EngineError> {
        let mut most = [1; 3];
        for problem in problems {
            for (most, bytes) in most.iter_mut().zip(problem.bytes()) {
                *most = bytes.max(*most);
            }
        }
        let (free, _) = gpu.memory()?;
        let used: usize = most.iter().sum();
        let workspace = (free.saturating_sub(used) / 4).min(1 << 30);
        Ok(Self {
            gpu,
            known: BTreeMap::new(),
            buffers: [gpu.zeros(most[0])?, gpu.zeros(most[1])?, gpu.zeros(most[2])?],
            workspace: gpu.zeros(if problems.is_empty() { 1 } else { workspace })?,
        })
    }

    /// The engine for a problem; `None` where cuDNN has none that is allowed.
    pub(crate) fn choose(&mut self, problem: Problem) -> Result<Option<Arc<Chosen>>, EngineError> {
        if let Some(known) = self.known.get(&problem) {
            return Ok(known.clone());
        }
        let chosen = self.find(&problem)?.map(Arc::new);
        self.known.insert(problem, chosen.clone());
        Ok(chosen)
    }

    fn find(&self, problem: &Problem) -> Result<Option<Chosen>, EngineError> {
        let graph = self
            .gpu
            .dnn
            .with(|h| dnn::graph(h, &problem.geometry, problem.direction, problem.data()))?;
        let file = self.file(problem);
        if let Some(text) = file.as_ref().and_then(|f| std::fs::read_to_string(f).ok())
            && let Some(remembered) = Remembered::parse(&text)
            && let Ok(chosen) = self.recall(&graph, &remembered)
        {
            return Ok(Some(chosen));
        }
        let Some((remembered, chosen)) = self.search(problem, &graph)? else { return Ok(None) };
        if let Some(file) = file {
            nvrtc::store(&file, remembered.text().as_bytes());
        }
        Ok(Some(chosen))
    }

    fn file(&self, problem: &Problem) -> Option<std::path::PathBuf> {
        let key = (problem, self.gpu.name(), result::get_version(), env!("CARGO_PKG_VERSION"));
        let name = format!("{:016x}.txt", nvrtc::digest(&key));
        Some(nvrtc::cache_folder()?.join("convolutions").join(name))
    }

    fn recall(&self, graph: &Desc, from: &Remembered) -> Result<Chosen, EngineError> {
        let list = *dnn::LISTS.get(from.list).ok_or_else(|| call("cache", "no such list"))?;
        let engines = dnn::engines(graph, list)?;
        let engine = engines.get(from.at).ok_or_else(|| call("cache", "no such engine"))?;
        if dnn::describe(engine)?.0 != from.engine {
            return Err(call("cache", "another engine"));
        }
        let chosen = self.ready(engine)?;
        // Once, so that nothing is loaded for the first time while a graph is captured.
        chosen.run(self.gpu, &self.pack()?)?;
        self.gpu.wait()?;
        Ok(chosen)
    }

    fn search(
        &self,
        problem: &Problem,
        graph: &Desc,
    ) -> Result<Option<(Remembered, Chosen)>, EngineError> {
        let started = Instant::now();
        let mut best: Option<(f32, Remembered, Chosen)> = None;
        let mut tried = 0;
        for (list, mode) in dnn::LISTS.into_iter().enumerate() {
            // A list that cuDNN cannot make for this problem is an empty list.
            let engines = dnn::engines(graph, mode).unwrap_or_default();
            for (at, engine) in engines.iter().enumerate() {
                if tried >= MOST_ENGINES || (best.is_some() && started.elapsed() > SEARCH) {
                    break;
                }
                let Ok((number, notes)) = dnn::describe(engine) else { continue };
                if !problem.allows(&notes) {
                    continue;
                }
                let Ok(chosen) = self.ready(engine) else { continue };
                let Ok(time) = self.time(&chosen) else { continue };
                tried += 1;
                if best.as_ref().is_none_or(|(least, ..)| time < *least) {
                    best = Some((time, Remembered { list, at, engine: number }, chosen));
                }
            }
            if best.is_some() {
                break;
            }
        }
        // A failed run must not be reported by the next call.
        self.gpu.wait()?;
        Ok(best.map(|(_, remembered, chosen)| (remembered, chosen)))
    }

    fn ready(&self, engine: &Desc) -> Result<Chosen, EngineError> {
        let (plan, workspace) = self.gpu.dnn.with(|h| dnn::ready(h, engine))?;
        if workspace > self.workspace.len() {
            return Err(call("workspace", "too large"));
        }
        Ok(Chosen { plan, workspace })
    }

    fn pack(&self) -> Result<Desc, EngineError> {
        let [x, w, y] = &self.buffers;
        let places = [self.gpu.address(x), self.gpu.address(w), self.gpu.address(y)];
        dnn::pack(places, self.gpu.address(&self.workspace))
    }

    /// Milliseconds of some runs.
    fn time(&self, chosen: &Chosen) -> Result<f32, EngineError> {
        let pack = self.pack()?;
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.gpu.ctx.new_event(flags).named("cuEventCreate")?;
        let end = self.gpu.ctx.new_event(flags).named("cuEventCreate")?;
        chosen.run(self.gpu, &pack)?;
        self.gpu.wait()?;
        // In a graph, as in training: what the host does between launches must not count. An
        // engine that cannot be captured is refused here.
        let graph = self.gpu.capture(|| (0..RUNS).try_for_each(|_| chosen.run(self.gpu, &pack)))?;
        graph.launch().named("cuGraphLaunch")?;
        start.record(&self.gpu.stream).named("cuEventRecord")?;
        graph.launch().named("cuGraphLaunch")?;
        end.record(&self.gpu.stream).named("cuEventRecord")?;
        self.gpu.wait()?;
        start.elapsed_ms(&end).named("cuEventElapsedTime")
    }
}

/// Where the chosen engine stands in cuDNN's lists.
struct Remembered {
    list: usize,
    at: usize,
    engine: i64,
}

impl Remembered {
    fn text(&self) -> String {
        format!("{} {} {}\n", self.list, self.at, self.engine)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split_whitespace();
        let list = parts.next()?.parse().ok()?;
        let at = parts.next()?.parse().ok()?;
        let engine = parts.next()?.parse().ok()?;
        Some(Self { list, at, engine })
    }
}
