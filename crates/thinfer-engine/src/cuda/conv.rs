//! Convolutions through cuDNN, or a kernel of our own where that is faster: what to use is measured
//! once and remembered on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::cudnn::result;
use cudarc::cudnn::sys::{cudnnBackendNumericalNote_t as Note, cudnnDataType_t as DataType};
use cudarc::driver::CudaSlice;
use cudarc::driver::sys::CUevent_flags;

use super::Precision;
use super::context::{Gpu, locked};
use super::dnn::{self, Desc, Direction, Geometry};
use super::error::{Named, call};
use super::hopper::{Cut, Own};
use super::nvrtc;
use super::selftest::encode;
use crate::error::EngineError;
use crate::noise::{Key, Stream};

/// Engines of one list that are measured before the other list has its turn.
const IN_TURN: usize = 8;
/// Time after which the search measures no more engines.
const SEARCH: Duration = Duration::from_millis(80);
/// The fastest engines, which are measured again before one of them is taken.
const FINALISTS: usize = 3;
/// Runs of an engine that are timed together.
const RUNS: usize = 10;
/// Milliseconds that a single run may seem to take longer than it does, because it is not in a
/// graph.
const LAUNCH: f32 = 0.01;
/// How much slower than the best one an engine may be in a single run before it is given up.
const SLOW: f32 = 1.5;
/// Multiply-adds below which launching takes longer than computing, and engines that are measured
/// then.
const SMALL: usize = 50_000_000;
const FEW: usize = 8;
/// Engines that are measured in haste, and beside kernels of our own where one side has at most so
/// many channels: there the library's are mostly slower.
const HASTY: usize = 3;
const FEW_CHANNELS: usize = 128;
/// Random numbers that fill the buffers, again and again.
const RANDOM: usize = 1 << 20;

/// Held by the run of this process that measures engines.
static MEASURING: Mutex<()> = Mutex::new(());

/// One pass of one convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) direction: Direction,
    pub(crate) geometry: Geometry,
    /// Input channels that the weights have in the flat buffers. The filter has more where it is
    /// padded.
    pub(crate) stored: usize,
    pub(crate) precision: Precision,
    pub(crate) deterministic: bool,
    pub(crate) hasty: bool,
}

impl Problem {
    fn data(&self) -> DataType {
        match self.precision {
            Precision::Bf16 => DataType::CUDNN_DATA_BFLOAT16,
            Precision::Tf32 | Precision::F32 => DataType::CUDNN_DATA_FLOAT,
        }
    }

    /// Bytes of input, filter and output, as cuDNN reads and writes them.
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

/// A pass that is ready to run.
pub(crate) enum Chosen {
    /// An engine of cuDNN, and the bytes that it needs besides its tensors.
    Library(Desc, usize),
    Own(Box<Own>),
}

/// Where a pass reads and writes, in the form that cuDNN wants: made again where addresses change.
#[derive(Default)]
pub(crate) struct Pack(Option<([u64; 4], Desc)>);

impl Pack {
    fn of(&mut self, at: [u64; 4]) -> Result<&Desc, EngineError> {
        let known = self.0.take().filter(|(known, _)| *known == at);
        let [x, w, y, workspace] = at;
        let pack = match known {
            Some((_, pack)) => pack,
            None => dnn::pack([x, w, y], workspace)?,
        };
        Ok(&self.0.insert((at, pack)).1)
    }
}

impl Chosen {
    /// Bytes that it needs besides its tensors.
    pub(crate) fn workspace(&self) -> usize {
        match self {
            Chosen::Library(_, workspace) => *workspace,
            Chosen::Own(own) => own.workspace(),
        }
    }

    /// Puts it on the stream, or on the second one, for input, filter, output and workspace `at`
    /// these addresses.
    pub(crate) fn run(
        &self,
        gpu: &Gpu,
        beside: bool,
        at: [u64; 4],
        pack: &mut Pack,
    ) -> Result<(), EngineError> {
        let (dnn, stream) =
            if beside { (&gpu.dnn_side, &gpu.side) } else { (&gpu.dnn, &gpu.stream) };
        match self {
            Chosen::Library(plan, _) => {
                let pack = pack.of(at)?;
                dnn.with(|handle| dnn::execute(handle, plan, pack))
            }
            Chosen::Own(own) => own.run(stream, at),
        }
    }
}

/// An engine: its list, its place in it, and itself.
type Candidate = (usize, usize, Desc);

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
            let [input, filter, output] = problem.bytes();
            // Kernels of our own write filter gradients in f32.
            let filter = filter / problem.precision.bytes() * 4;
            for (most, bytes) in most.iter_mut().zip([input, filter, output]) {
                *most = bytes.max(*most);
            }
        }
        prepare(gpu, problems)?;
        let (free, _) = gpu.memory()?;
        let used: usize = most.iter().sum();
        let workspace = (free.saturating_sub(used) / 4).min(1 << 30);
        Ok(Self {
            gpu,
            known: BTreeMap::new(),
            buffers: [random(gpu, most[0])?, random(gpu, most[1])?, random(gpu, most[2])?],
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
        let recalled = || {
            let text = std::fs::read_to_string(file.as_ref()?).ok()?;
            self.recall(problem, &graph, &Remembered::parse(&text)?).ok()
        };
        if let Some(chosen) = recalled() {
            return Ok(Some(chosen));
        }
        // Runs side by side choose alike: one measures, the others read what it found.
        let _one_at_a_time = locked(&MEASURING);
        if let Some(chosen) = recalled() {
            return Ok(Some(chosen));
        }
        let Some((remembered, chosen)) = self.search(problem, &graph)? else { return Ok(None) };
        if let Some(file) = file {
            nvrtc::store(&file, remembered.text().as_bytes());
        }
        Ok(Some(chosen))
    }

    fn file(&self, problem: &Problem) -> Option<std::path::PathBuf> {
        // With other kernels of our own another choice may be the best.
        let own = (env!("CARGO_PKG_VERSION"), nvrtc::source::HOPPER);
        let key = (problem, self.gpu.name(), result::get_version(), own);
        let name = format!("{:016x}.txt", nvrtc::digest(&key));
        Some(nvrtc::cache_folder()?.join("convolutions").join(name))
    }

    fn recall(
        &self,
        problem: &Problem,
        graph: &Desc,
        from: &Remembered,
    ) -> Result<Chosen, EngineError> {
        let chosen = match from {
            Remembered::Own { cut: name } => {
                let cuts = Cut::all(problem, self.gpu);
                let cut = cuts.into_iter().find(|cut| cut.name() == *name);
                self.own(problem, cut.ok_or_else(|| call("cache", "no such cut"))?)?
            }
            Remembered::Library { list, at, engine: number } => {
                let list = *dnn::LISTS.get(*list).ok_or_else(|| call("cache", "no such list"))?;
                let engines = dnn::engines(graph, list)?;
                let engine = engines.get(*at).ok_or_else(|| call("cache", "no such engine"))?;
                if dnn::describe(engine)?.number != *number {
                    return Err(call("cache", "another engine"));
                }
                self.ready(engine)?
            }
        };
        self.once(&chosen)?;
        Ok(chosen)
    }

    /// Runs it, so that nothing is loaded for the first time while a graph is captured.
    fn once(&self, chosen: &Chosen) -> Result<(), EngineError> {
        chosen.run(self.gpu, false, self.places(), &mut Pack::default())?;
        self.gpu.wait()
    }

    fn own(&self, problem: &Problem, cut: Cut) -> Result<Chosen, EngineError> {
        self.checked(Chosen::Own(Box::new(Own::new(self.gpu, problem, cut)?)))
    }

    fn checked(&self, chosen: Chosen) -> Result<Chosen, EngineError> {
        if chosen.workspace() > self.workspace.len() {
            return Err(call("workspace", "too large"));
        }
        Ok(chosen)
    }

    fn search(
        &self,
        problem: &Problem,
        graph: &Desc,
    ) -> Result<Option<(Remembered, Chosen)>, EngineError> {
        // A list that cuDNN cannot make for this problem is an empty list.
        let list = |list: usize| -> Vec<Candidate> {
            let engines = dnn::engines(graph, dnn::LISTS[list]).unwrap_or_default();
            engines.into_iter().enumerate().map(|(at, engine)| (list, at, engine)).collect()
        };
        let cuts = Cut::all(problem, self.gpu);
        if let (true, Some(cut)) = (problem.hasty, cuts.first())
            && let Ok(own) = self.own(problem, *cut)
            && self.once(&own).is_ok()
        {
            return Ok(Some((Remembered::Own { cut: cut.name() }, own)));
        }
        let narrow = problem.geometry.filter[..2].iter().any(|c| *c <= FEW_CHANNELS);
        let found = if problem.hasty || narrow && !cuts.is_empty() {
            self.fastest(problem, &list(0), HASTY)
        } else if problem.multiply_adds() < SMALL {
            self.fastest(problem, &list(0), FEW)
        } else {
            // Where one guess is bad the other is good, and the best is rarely far down in both.
            self.fastest(problem, &in_turn(list(0), list(1)), usize::MAX)
        };
        let mut found = found.or_else(|| self.fastest(problem, &list(2), usize::MAX));
        let library = found.as_ref().filter(|_| !cuts.is_empty());
        let mut best = library.and_then(|(_, library)| self.again(library));
        for cut in cuts {
            let Ok(own) = self.own(problem, cut) else { continue };
            let Some(time) = self.again(&own) else { continue };
            if best.is_none_or(|best| time < best) {
                best = Some(time);
                found = Some((Remembered::Own { cut: cut.name() }, own));
            }
        }
        // A failed run must not be reported by the next call.
        self.gpu.wait()?;
        Ok(found)
    }

    /// The shorter of two measurements.
    fn again(&self, chosen: &Chosen) -> Option<f32> {
        let time = || self.time(chosen, None).ok().flatten();
        Some(time()?.min(time()?))
    }

    /// The fastest of the first engines that are allowed and run, at most `most` of them.
    fn fastest(
        &self,
        problem: &Problem,
        engines: &[Candidate],
        most: usize,
    ) -> Option<(Remembered, Chosen)> {
        let started = Instant::now();
        let mut seen = BTreeSet::new();
        let mut timed: Vec<(f32, Remembered, Chosen)> = Vec::new();
        for (list, at, engine) in engines {
            let enough = timed.len() >= most || started.elapsed() > SEARCH;
            if enough && !timed.is_empty() {
                break;
            }
            let Ok(about) = dnn::describe(engine) else { continue };
            let number = about.number;
            if !problem.allows(&about.notes) || !seen.insert((number, about.knobs)) {
                continue;
            }
            let least = timed.iter().map(|(time, ..)| *time).min_by(f32::total_cmp);
            let Ok(chosen) = self.ready(engine) else { continue };
            let Ok(Some(time)) = self.time(&chosen, least) else { continue };
            timed.push((
                time,
                Remembered::Library { list: *list, at: *at, engine: number },
                chosen,
            ));
        }
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        timed.truncate(FINALISTS);
        // One measurement among many is easily the shortest by chance.
        if timed.len() > 1 && most > FEW {
            for (sum, _, chosen) in &mut timed {
                *sum += self.time(chosen, None).ok().flatten().unwrap_or(f32::INFINITY);
            }
        }
        let best = timed.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.map(|(_, remembered, chosen)| (remembered, chosen))
    }

    fn ready(&self, engine: &Desc) -> Result<Chosen, EngineError> {
        let (plan, workspace) = self.gpu.dnn.with(|h| dnn::ready(h, engine))?;
        self.checked(Chosen::Library(plan, workspace))
    }

    fn places(&self) -> [u64; 4] {
        let [x, w, y] = &self.buffers;
        [x, w, y, &self.workspace].map(|buffer| self.gpu.address(buffer))
    }

    /// Milliseconds of some runs; `None` where they would clearly take longer than `least`.
    fn time(&self, chosen: &Chosen, least: Option<f32>) -> Result<Option<f32>, EngineError> {
        let (at, mut pack) = (self.places(), Pack::default());
        let mut run = || chosen.run(self.gpu, false, at, &mut pack);
        run()?;
        let once = self.elapsed(&mut run)?;
        if least.is_some_and(|least| RUNS as f32 * (once - LAUNCH) > SLOW * least) {
            return Ok(None);
        }
        // In a graph, as in training: what the host does between launches must not count. An
        // engine that cannot be captured is refused here.
        let graph = self.gpu.capture(|| (0..RUNS).try_for_each(|_| run()))?;
        graph.launch().named("cuGraphLaunch")?;
        self.elapsed(|| graph.launch().named("cuGraphLaunch")).map(Some)
    }

    /// Milliseconds of what `work` puts on the stream.
    fn elapsed(&self, work: impl FnOnce() -> Result<(), EngineError>) -> Result<f32, EngineError> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.gpu.ctx.new_event(flags).named("cuEventCreate")?;
        let end = self.gpu.ctx.new_event(flags).named("cuEventCreate")?;
        start.record(&self.gpu.stream).named("cuEventRecord")?;
        work()?;
        end.record(&self.gpu.stream).named("cuEventRecord")?;
        self.gpu.wait()?;
        start.elapsed_ms(&end).named("cuEventElapsedTime")
    }
}

/// Compiles own kernels that will be measured.
fn prepare(gpu: &Gpu, problems: &[Problem]) -> Result<(), EngineError> {
    let cuts = problems.iter().flat_map(|problem| Cut::all(problem, gpu));
    let kernels: Vec<(&'static str, Vec<String>)> = cuts.map(|cut| cut.kernel()).collect();
    let kernels: Vec<(&'static str, Vec<&str>)> = kernels
        .iter()
        .map(|(source, defines)| (*source, defines.iter().map(String::as_str).collect()))
        .collect();
    gpu.prepare(kernels.iter().map(|(source, defines)| (*source, &defines[..])))
}

/// A buffer of random numbers, which a device multiplies at more power, and so slower, than zeros.
fn random(gpu: &Gpu, bytes: usize) -> Result<CudaSlice<u8>, EngineError> {
    let mut values = vec![0.0; RANDOM.min(bytes.div_ceil(2))];
    Key::new(1, 0, Stream::Inputs).normals(0, 0, &mut values);
    // As bf16: read as f32, two neighbours are a normal number as well.
    let from = gpu.upload(&encode(&values, Precision::Bf16))?;
    let mut to = gpu.zeros(bytes)?;
    for first in (0..bytes).step_by(from.len()) {
        let len = from.len().min(bytes - first);
        let mut part = to.slice_mut(first..first + len);
        gpu.stream.memcpy_dtod(&from.slice(..len), &mut part).named("cuMemcpyDtoDAsync")?;
    }
    gpu.wait()?;
    Ok(to)
}

/// Some of the first list, some of the second, and so on.
fn in_turn<T>(first: Vec<T>, second: Vec<T>) -> Vec<T> {
    let mut lists = [first.into_iter(), second.into_iter()];
    let mut all = Vec::new();
    while lists.iter().any(|list| list.len() > 0) {
        for list in &mut lists {
            all.extend(list.take(IN_TURN));
        }
    }
    all
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remembered {
    /// An engine, by where it stands in cuDNN's lists.
    Library { list: usize, at: usize, engine: i64 },
    /// Our own kernel, by what its cut is called.
    Own { cut: String },
}

impl Remembered {
    fn text(&self) -> String {
        match self {
            Remembered::Library { list, at, engine } => format!("{list} {at} {engine}\n"),
            Remembered::Own { cut } => format!("own {cut}\n"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        match parts[..] {
            ["own", cut] => Some(Self::Own { cut: cut.to_owned() }),
            [list, at, engine] => Some(Self::Library {
                list: list.parse().ok()?,
                at: at.parse().ok()?,
                engine: engine.parse().ok()?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_turns_and_none_is_cut_short() {
        let all = in_turn((0..10).collect(), (100..118).collect());
        assert_eq!(all[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(all[8..16], [100, 101, 102, 103, 104, 105, 106, 107]);
        assert_eq!(all[16..19], [8, 9, 108]);
        assert_eq!(all.len(), 28);
        assert_eq!(in_turn(Vec::<u8>::new(), vec![1]), [1]);
    }
    #[test]
    fn what_was_chosen_is_read_as_it_was_written() {
        for it in [
            Remembered::Library { list: 1, at: 12, engine: -3 },
            Remembered::Own { cut: "80t".into() },
        ] {
            assert_eq!(Remembered::parse(&it.text()), Some(it));
        }
        for text in ["", "own", "own 80 t", "1 2", "1 2 3 4"] {
            assert_eq!(Remembered::parse(text), None, "{text}");
        }
    }
}
