//! A run: several chains side by side, in memory or in a folder.
//!
//! Folder layout (see `docs/formats.md`): `config.toml` (resolved), `run.json` (what was run, on
//! what), `chain-0/checkpoint` with `checkpoint.previous` beside it, and
//! `chain-0/snapshot-000499.safetensors` for each posterior sample.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thinfer_data::files::{self, regular};
use thinfer_data::images::Speed;
use thinfer_data::jobs;
use thinfer_data::threads::Threads;
use thinfer_data::{Error, Result};
use thinfer_engine::Network;
use thinfer_engine::cuda::Gpu;

use super::chain::{Chain, ChainSpec, Record};
use super::examples::Examples;
use super::times::{EpochTime, Times, read_times};
use super::trace::Trace;
use super::writer::{Job, Writer};
use crate::device::{Device, OnCuda};
use crate::posterior::{Snapshot, snapshot_from_bytes, snapshot_to_bytes};

/// What a run tells while it works. All methods may be called from several threads.
pub trait Observer: Sync {
    /// A chain has done `step` of `total` steps.
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>);
    /// The records that a chain has: when it begins those of before, then all after each new one.
    fn recorded(&self, _chain: u32, _records: &[Record]) {}
    /// Something that the user should know, such as a damaged file that was passed over.
    fn notice(&self, text: &str);
    /// Something without which a result is read wrongly, such as samples that are missing in it.
    /// Also said to those who want to hear nothing else.
    fn warning(&self, text: &str) {
        self.notice(text);
    }
}

/// An observer that says nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}
    fn notice(&self, _: &str) {}
}

/// How and where a run works.
pub struct Setting<'a> {
    /// The folder of checkpoints and snapshots; `None` keeps everything in memory.
    pub folder: Option<&'a Path>,
    /// Whether to go on from checkpoints that are there.
    pub resume: bool,
    /// The time between checkpoints.
    pub checkpoint_every: Duration,
    /// The steps between checkpoints, besides the time.
    pub checkpoint_steps: Option<u64>,
    /// Set by the user to stop after the current step.
    pub stop: &'a AtomicBool,
    /// Who is told.
    pub observer: &'a dyn Observer,
    /// How many threads to use; 0 is as many as there are cores.
    pub threads: usize,
    /// Where the steps are computed.
    pub device: Device,
    /// Asked after each stage of chains that have some; without it they do all of them.
    pub enough: Option<&'a Enough<'a>>,
}

impl<'a> Setting<'a> {
    /// Nothing is written, and nothing is gone on with.
    pub fn in_memory(stop: &'a AtomicBool, observer: &'a dyn Observer, threads: usize) -> Self {
        Self {
            folder: None,
            resume: false,
            checkpoint_every: Duration::MAX,
            checkpoint_steps: None,
            stop,
            observer,
            threads,
            device: Device::Cpu,
            enough: None,
        }
    }
}

/// What one chain gave.
#[derive(Clone, Debug)]
pub struct ChainResult {
    /// The chain.
    pub chain: u32,
    /// Its history.
    pub records: Vec<Record>,
    /// Its posterior samples.
    pub snapshots: Vec<Snapshot>,
    /// The weights of some channels, where `train.trace` names them.
    pub trace: Trace,
    /// How long its epochs took.
    pub times: Vec<EpochTime>,
    /// Bytes of its buffers and plans.
    pub bytes: usize,
    /// Bytes of them that the method keeps: weights, state and marks.
    pub method_bytes: usize,
}

impl ChainResult {
    /// Of a chain of which nothing is known.
    pub fn blank(chain: u32) -> Self {
        Self {
            chain,
            records: Vec::new(),
            snapshots: Vec::new(),
            trace: Trace::default(),
            times: Vec::new(),
            bytes: 0,
            method_bytes: 0,
        }
    }
}

/// The folder of one chain.
fn chain_folder(run: &Path, chain: u32) -> PathBuf {
    run.join(format!("chain-{chain}"))
}

/// The checkpoint of one chain.
pub fn checkpoint_path(run: &Path, chain: u32) -> PathBuf {
    chain_folder(run, chain).join("checkpoint")
}

/// The file of one snapshot.
pub fn snapshot_path(run: &Path, chain: u32, epoch: usize) -> PathBuf {
    chain_folder(run, chain).join(format!("snapshot-{epoch:06}.safetensors"))
}

/// How many of so many chains run side by side on so many threads, and the threads of each; 0
/// threads are as many as there are cores.
pub fn division(chains: usize, threads: usize) -> (usize, usize) {
    let cores = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let side_by_side = chains.min(cores).max(1);
    (side_by_side, (cores / side_by_side).max(1))
}

/// Whether the samples that chains have by now are enough, so that a run in stages may end.
pub type Enough<'a> = dyn Fn(&[&[Snapshot]]) -> Result<bool> + Sync + 'a;

/// Runs all chains to their end, side by side on the cores there are. Chains in stages all do one
/// stage before one of them begins the next, and end together where [`Setting::enough`] says so.
pub fn run_chains<'a>(
    specs: Vec<ChainSpec>,
    data: impl Into<Examples<'a>>,
    setting: &Setting<'_>,
) -> Result<Vec<ChainResult>> {
    let data = data.into();
    let (side_by_side, threads_each) = division(specs.len(), setting.threads);
    // Each chain has its own threads: chains never wait for each other's pieces.
    let own_threads = || Threads::new(threads_each);
    let stages = specs.first().map_or_else(Vec::new, |spec| spec.stage_ends.clone());
    let (Some(enough), [early @ .., _]) = (setting.enough, &stages[..]) else {
        let mut results = jobs::run_with(specs, side_by_side, own_threads, |threads, _, spec| {
            threads.install(|| {
                let mut working = Working::begin(spec, setting)?;
                working.advance(usize::MAX, data, setting)?;
                Ok(working.end())
            })
        })?;
        results.sort_by_key(|result| result.chain);
        return Ok(results);
    };
    let begin = |(): &(), _, spec| Working::begin(spec, setting);
    let mut chains = jobs::run_with(specs, side_by_side, || (), begin)?;
    for end in early.iter().copied().chain([usize::MAX]) {
        chains = jobs::run_with(chains, side_by_side, own_threads, |threads, _, mut chain| {
            threads.install(|| chain.advance(end, data, setting))?;
            Ok(chain)
        })?;
        let samples: Vec<&[Snapshot]> = chains.iter().map(Working::samples).collect();
        // A chain that was resumed may be further: then this question was answered with no.
        if chains.iter().all(|chain| chain.epoch() == end) && enough(&samples)? {
            break;
        }
    }
    let mut results: Vec<ChainResult> = chains.into_iter().map(Working::end).collect();
    results.sort_by_key(|result| result.chain);
    Ok(results)
}

/// A chain at work, with what writes its files.
struct Working {
    chain: Chain,
    store: Store,
    times: Times,
    saved_at: Instant,
    saving: Duration,
    saved_step: u64,
    told_of_decoding: bool,
    told_of_rows: bool,
    /// Records that the observer knows of.
    told_records: usize,
}

impl Working {
    /// A new chain, or the one that is in the folder.
    fn begin(spec: ChainSpec, setting: &Setting<'_>) -> Result<Self> {
        let number = spec.chain;
        let mut chain = match setting.folder {
            Some(folder) if setting.resume => match load_chain(&spec, folder, setting.observer)? {
                Some(Loaded { chain, lost })
                    if chain.is_done() && chain.snapshots().is_empty() && !lost.is_empty() =>
                {
                    return Err(none_left(&chain_folder(folder, number), &lost));
                }
                loaded => loaded.map(|loaded| loaded.chain),
            },
            _ => None,
        }
        .map_or_else(|| Chain::start(spec), Ok)?;
        if let Device::Cuda(index) = setting.device {
            let precision = chain.spec().precision;
            chain.use_cuda(OnCuda { gpu: Gpu::open(index)?, precision })?;
        }
        if let Some(folder) = setting.folder {
            let folder = chain_folder(folder, number);
            fs::create_dir_all(&folder).map_err(|e| Error::file("create", &folder, e))?;
        }
        // Those of a chain that goes on were read from their files.
        let store = Store { writer: Writer::default(), samples: chain.snapshots().len() };
        let own_folder = setting.folder.map(|folder| chain_folder(folder, number));
        setting.observer.recorded(number, chain.records());
        let epoch = chain.spec().clock.epoch(chain.step());
        let times = Times::start(own_folder.as_deref(), epoch, setting.observer);
        Ok(Self {
            store,
            times,
            saved_at: Instant::now(),
            saving: Duration::ZERO,
            saved_step: chain.step(),
            told_of_decoding: false,
            told_of_rows: false,
            told_records: chain.records().len(),
            chain,
        })
    }

    /// Goes on until the run has so many epochs, or is done.
    fn advance(&mut self, epochs: usize, data: Examples<'_>, setting: &Setting<'_>) -> Result<()> {
        let clock = self.chain.spec().clock;
        let (number, total) = (self.chain.spec().chain, clock.total_steps());
        let mut told_at = Instant::now();
        while !self.is_at(epochs) {
            if setting.stop.load(Ordering::Relaxed) {
                let folder = setting.folder.unwrap_or(Path::new("memory"));
                if setting.folder.is_some() {
                    self.store.save(&mut self.chain, &mut self.times, folder)?;
                    self.store.writer.finish()?;
                }
                return Err(Error::Interrupted(folder.to_owned()));
            }
            let advanced = match self.chain.advance_until(data, setting.stop) {
                // The flag is set, and above it is looked at.
                Err(Error::Interrupted(_)) => continue,
                advanced => advanced,
            };
            advanced.map_err(|error| {
                // Why it stopped is more important than whether the disk was full besides.
                let _ = self.store.writer.finish();
                name_checkpoint(error, setting.folder, number)
            })?;
            let epoch_is_over = self.chain.step().is_multiple_of(clock.steps_per_epoch);
            if epoch_is_over {
                self.times.end(clock.epoch(self.chain.step() - 1));
            }
            if self.chain.records().len() > self.told_records {
                self.told_records = self.chain.records().len();
                setting.observer.recorded(number, self.chain.records());
            }
            let speed = self.chain.decoding().filter(|_| epoch_is_over && !self.told_of_decoding);
            if let Some(speed) = speed {
                setting.observer.notice(&decoding_note(speed));
                self.told_of_decoding = true;
            }
            let note = rows_note(&self.chain).filter(|_| number == 0 && !self.told_of_rows);
            if let Some(note) = note {
                setting.observer.notice(&note);
                self.told_of_rows = true;
            }
            if told_at.elapsed() > Duration::from_millis(100) || self.chain.is_done() {
                let (step, record) = (self.chain.step(), self.chain.records().last());
                setting.observer.progress(number, step, total, record);
                told_at = Instant::now();
            }
            if let Some(folder) = setting.folder {
                let steps = self.chain.step() - self.saved_step;
                let due = setting.checkpoint_steps.is_some_and(|every| steps >= every);
                let pause = pause(setting.checkpoint_every, self.saving);
                if due || self.is_at(epochs) || self.saved_at.elapsed() >= pause {
                    let began = Instant::now();
                    self.store.save(&mut self.chain, &mut self.times, folder)?;
                    self.saving = began.elapsed();
                    (self.saved_at, self.saved_step) = (Instant::now(), self.chain.step());
                }
            }
        }
        if !self.chain.is_done() {
            // Other chains need the room until this one goes on.
            self.chain.rest();
        }
        self.store.writer.finish()
    }

    /// How many epochs are done.
    fn epoch(&self) -> usize {
        let clock = self.chain.spec().clock;
        (self.chain.step() / clock.steps_per_epoch) as usize
    }

    fn is_at(&self, epochs: usize) -> bool {
        self.chain.is_done() || self.chain.is_between_epochs() && self.epoch() >= epochs
    }

    fn samples(&self) -> &[Snapshot] {
        self.chain.snapshots()
    }

    fn end(self) -> ChainResult {
        result_of(self.chain, self.times.into_times())
    }
}

/// A run spends at most about one part in so many on its checkpoints.
const SAVING: u32 = 50;

/// The time to the next checkpoint: longer than asked for where writing the last one took long.
fn pause(asked_for: Duration, last: Duration) -> Duration {
    asked_for.max(last.saturating_mul(SAVING))
}

/// Waiting for more than this share of the time is worth a word of advice.
const LONG_WAIT: f64 = 0.2;

fn decoding_note(speed: Speed) -> String {
    let (rate, waited) = (speed.images_per_second, 100.0 * speed.waited);
    let advice = if speed.waited > LONG_WAIT {
        "; decoding is the bottleneck: more cores, or images stored at a smaller size, would make training faster"
    } else {
        ""
    };
    format!(
        "{rate:.0} images a second are decoded and trained on, and the GPU waits for them {waited:.0} % of the time{advice}"
    )
}

/// What is said where the steps of the last record read more rows than a batch has.
fn rows_note(chain: &Chain) -> Option<String> {
    let (record, batch) = (chain.records().last()?, chain.spec().batch);
    let rows = record.rows_a_step.filter(|rows| *rows > batch as f64)?;
    Some(format!(
        "the noise of batches of {batch} rows is too large to be taken out of the injected noise, so \
         steps read more rows where it is: {rows:.0} on average up to epoch {}; smaller steps or a \
         smaller `method.beta1` need fewer, and `method.batch_noise = \"ignore\"` keeps the batch",
        record.epoch
    ))
}

/// Puts the place of the last good state into a message about a run that went wrong.
fn name_checkpoint(error: Error, folder: Option<&Path>, chain: u32) -> Error {
    match (error, folder) {
        (Error::NonFinite { what, step, epoch, chain: number, .. }, Some(folder)) => {
            let path = checkpoint_path(folder, chain);
            let checkpoint = if path.exists() {
                format!("the last good checkpoint is {}", path.display())
            } else {
                "no checkpoint was written yet".to_owned()
            };
            Error::NonFinite { what, step, epoch, chain: number, checkpoint }
        }
        (error, _) => error,
    }
}

/// Where the files of a chain go.
struct Store {
    writer: Writer,
    /// Samples that have been given to it, or were on disk.
    samples: usize,
}

impl Store {
    /// Gives the writer the samples that it has not got yet, then the checkpoint that lists them.
    fn save(&mut self, chain: &mut Chain, times: &mut Times, folder: &Path) -> Result<()> {
        chain.synchronise()?;
        let spec = chain.spec();
        for snapshot in &chain.snapshots()[self.samples..] {
            let path = snapshot_path(folder, spec.chain, snapshot.epoch);
            let bytes = snapshot_to_bytes(&spec.network, snapshot)?;
            self.writer.write(Job { path, bytes, keeps_previous: false })?;
        }
        self.samples = chain.snapshots().len();
        let path = checkpoint_path(folder, spec.chain);
        self.writer.write(Job { path, bytes: chain.to_bytes()?, keeps_previous: true })?;
        times.file().map_or(Ok(()), |file| self.writer.write(file))
    }
}

/// A chain, and why samples of it could not be read.
struct Loaded {
    chain: Chain,
    lost: Vec<Error>,
}

/// The newest state of a chain that can be read; `None` where it never got to a checkpoint. The one
/// before it is taken where it misses fewer samples: going on from there takes them again.
fn load_chain(spec: &ChainSpec, folder: &Path, observer: &dyn Observer) -> Result<Option<Loaded>> {
    let newest = checkpoint_path(folder, spec.chain);
    let mut damaged = None;
    let mut best: Option<(PathBuf, Loaded)> = None;
    for path in [newest.clone(), files::previous(&newest)] {
        let bytes = match regular::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::file("read", &path, e)),
        };
        let mut lost = Vec::new();
        let find = |listed: &[(usize, u32)]| {
            let mut found = Vec::new();
            for &(epoch, sum) in listed {
                match load_snapshot(&spec.network, folder, spec.chain, epoch, sum) {
                    Ok(snapshot) => found.push(snapshot),
                    Err(error) if is_lost(&error) => lost.push(error),
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        };
        match Chain::from_bytes(spec.clone(), &path, &bytes, find) {
            Ok(chain) => {
                let fewer = best.as_ref().is_none_or(|(_, best)| lost.len() < best.lost.len());
                if fewer {
                    if let Some((_, newer)) = best {
                        damaged = newer.lost.into_iter().next_back();
                    }
                    best = Some((path, Loaded { chain, lost }));
                }
                if best.as_ref().is_some_and(|(_, best)| best.lost.is_empty()) {
                    break;
                }
            }
            // One that is older than a state that was found is of no importance.
            Err(error) if best.is_none() => damaged = Some(error),
            Err(_) => {}
        }
    }
    match (best, damaged) {
        (Some((path, loaded)), damaged) => {
            if let Some(error) = damaged {
                let (from, step) = (path.display(), loaded.chain.step());
                observer.warning(&format!("{error}; going on from {from}, step {step}"));
            }
            for error in &loaded.lost {
                observer.warning(&format!(
                    "{error}; this sample is left out, since no checkpoint from before it is there to take it again. Put back a copy of the file, or start the run again with --force, to have it"
                ));
            }
            remove_later_snapshots(&loaded.chain, folder);
            Ok(Some(loaded))
        }
        (None, None) => Ok(None),
        (None, Some(error)) => Err(Error::store(
            &newest,
            format!(
                "neither this checkpoint nor the one before it can be used ({error}); start the run again with --force"
            ),
        )),
    }
}

/// Whether a file is damaged or gone for good: one that may not be read today may be read tomorrow.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::File { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        error => matches!(error, Error::Store { .. }),
    }
}

/// Why a folder whose samples are all lost is of no use.
fn none_left(folder: &Path, lost: &[Error]) -> Error {
    let first = lost.first().map_or(String::new(), |error| format!(" ({error})"));
    Error::store(
        folder,
        format!(
            "no sample can be read{first}; put back a copy of one, or start the run again with --force"
        ),
    )
}

/// Snapshots after the checkpoint will be taken again; what stands there may be damaged.
fn remove_later_snapshots(chain: &Chain, folder: &Path) {
    let spec = chain.spec();
    for &epoch in &spec.sample_epochs {
        if (epoch as u64 + 1) * spec.clock.steps_per_epoch > chain.step() {
            let _ = fs::remove_file(snapshot_path(folder, spec.chain, epoch));
        }
    }
}

fn load_snapshot(
    network: &Network,
    folder: &Path,
    chain: u32,
    epoch: usize,
    checksum: u32,
) -> Result<Snapshot> {
    let path = snapshot_path(folder, chain, epoch);
    let bytes = regular::read(&path).map_err(|e| Error::file("read", &path, e))?;
    let snapshot = snapshot_from_bytes(network, &path, &bytes)?;
    if snapshot.checksum() != checksum {
        return Err(Error::store(&path, "the snapshot is damaged (its checksum is wrong)"));
    }
    Ok(snapshot)
}

fn result_of(chain: Chain, times: Vec<EpochTime>) -> ChainResult {
    let (number, bytes) = (chain.spec().chain, chain.bytes());
    let method_bytes = chain.arena().method_bytes();
    let (records, snapshots, trace) = chain.into_results();
    ChainResult { chain: number, records, snapshots, trace, times, bytes, method_bytes }
}

/// Reads what a run has so far, without going on with it.
pub fn load_results(
    specs: Vec<ChainSpec>,
    folder: &Path,
    observer: &dyn Observer,
) -> Result<Vec<ChainResult>> {
    let results = load_results_so_far(specs, folder, observer)?;
    if results.is_empty() {
        return Err(Error::store(
            folder,
            "holds no checkpoint; it was stopped before the first one, so train it again with --force",
        ));
    }
    Ok(results)
}

/// The same of a run that may not have come to its first checkpoint: chains without one are not
/// there.
pub fn load_results_so_far(
    specs: Vec<ChainSpec>,
    folder: &Path,
    observer: &dyn Observer,
) -> Result<Vec<ChainResult>> {
    let (mut results, mut lost): (Vec<ChainResult>, _) = (Vec::new(), Vec::new());
    for spec in specs {
        if let Some(Loaded { chain, lost: missed }) = load_chain_read_only(&spec, folder, observer)?
        {
            lost.extend(missed);
            let times = read_times(&chain_folder(folder, spec.chain), observer);
            results.push(result_of(chain, times));
        }
    }
    if !lost.is_empty() && results.iter().all(|result| result.snapshots.is_empty()) {
        return Err(none_left(folder, &lost));
    }
    Ok(results)
}

fn load_chain_read_only(
    spec: &ChainSpec,
    folder: &Path,
    observer: &dyn Observer,
) -> Result<Option<Loaded>> {
    // Later snapshots are only removed when the chain goes on; here no epoch counts as later.
    let spec = ChainSpec { sample_epochs: Vec::new(), ..spec.clone() };
    load_chain(&spec, folder, observer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_that_take_long_are_written_less_often() {
        let second = Duration::from_secs(1);
        assert_eq!(pause(30 * second, second / 10), 30 * second);
        assert_eq!(pause(30 * second, 3 * second), 150 * second);
        assert_eq!(pause(Duration::MAX, second), Duration::MAX);
        assert_eq!(pause(second, Duration::MAX), Duration::MAX);
    }
}
