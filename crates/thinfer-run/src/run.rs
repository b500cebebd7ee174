//! A run in a folder: made, trained, gone on with, and opened again.

mod folder;
mod journal;
pub(crate) mod memory;
mod remove;
mod resume;
mod status;
mod test_rows;
mod time_left;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thinfer_core::device::{Device, OnCuda};
use thinfer_core::posterior::{Posterior, SampleRule, Snapshot};
use thinfer_core::train::{
    ChainResult, ChainSpec, Observer, Setting, Silent, division, load_results, load_results_so_far,
    run_chains,
};
use thinfer_data::files::{claim, sealed_json, write_whole};
use thinfer_data::images::Broken;
use thinfer_data::memory::available_memory;
use thinfer_data::{Bundle, Data, Schema};
use thinfer_data::{Error, Result};
use thinfer_engine::augment::Augment;
use thinfer_engine::{Network, Shape};

pub use self::folder::{check_place, info_from_bytes, read_info};
use self::journal::{HISTORY, Journal, ended_by};
pub use self::memory::{ImageWork, MemoryPlan, Work};
use self::remove::remove_run;
pub use self::remove::{CHAINS_WRITER, is_chains_export, remove_samples};
use self::resume::{as_started, check_data};
pub use self::status::{Agreed, Stage, State, Status, read_status, state};
pub use self::test_rows::some_test_rows;
pub use self::time_left::{Left, TimeLeft, in_words};
use crate::config::Config;
use crate::drawing;
use crate::evaluate::{agreement_in_training, blown_up_chains, untrained_loss};
use crate::experiment::{Problem, ProblemInputs, build_network, chain_specs};
use crate::history;
use crate::likelihood::{self, Choice};
pub use thinfer_data::files::Claim;

/// What to do when the folder is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuse.
    New,
    /// Go on with the run in it.
    Resume,
    /// Replace the run in it.
    Force,
}

/// What a run folder says about itself (`run.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The version of the program.
    pub thinfer: String,
    /// The resolved configuration.
    pub config: Config,
    /// The network.
    pub network: Network,
    /// What a row is.
    #[serde(flatten)]
    pub inputs: Inputs,
    /// Rows of the three parts.
    pub rows: (usize, usize, usize),
    /// A number that changes with the training data.
    pub data_fingerprint: u32,
    /// The mean training loss of a network that answers 0; runs of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrained_loss: Option<f64>,
    /// Where the run was started: `cpu`, or a GPU by number and name.
    #[serde(default = "cpu")]
    pub device: String,
    /// Cores of the machine.
    pub cores: usize,
    /// Operating system and processor family.
    pub platform: String,
    /// What the user should know about the data.
    pub notes: Vec<String>,
    /// Images that could not be read, as far as training met them.
    #[serde(default, skip_serializing_if = "Broken::is_empty")]
    pub unreadable: Broken,
}

fn cpu() -> String {
    "cpu".to_owned()
}

/// What a row of the data is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Inputs {
    /// Columns of a table.
    Table(TableInputs),
    /// Pixels.
    Images(ImageInputs),
}

/// How the columns of a table become inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableInputs {
    /// How inputs and target are encoded.
    pub schema: Schema,
    /// The variable that each input column belongs to.
    pub groups: Vec<usize>,
    /// The names of the variables.
    pub names: Vec<String>,
}

/// How images become inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageInputs {
    /// The shape of one.
    pub shape: Shape,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// What is subtracted from each channel.
    pub mean: Vec<f32>,
    /// What each channel is divided by after that.
    pub sd: Vec<f32>,
}

impl Inputs {
    fn of(data: &Data) -> Self {
        match data {
            Data::Table(data) => Self::Table(TableInputs {
                schema: data.schema.clone(),
                groups: data.groups.clone(),
                names: data.names.clone(),
            }),
            Data::Images(data) => Self::Images(ImageInputs {
                shape: data.train.shape(),
                classes: data.classes.clone(),
                mean: data.augment.mean().to_vec(),
                sd: data.augment.sd().to_vec(),
            }),
        }
    }

    /// How images become inputs, where a row is one.
    pub fn image(&self) -> Option<&ImageInputs> {
        match self {
            Inputs::Images(images) => Some(images),
            Inputs::Table(_) => None,
        }
    }

    /// How a table becomes inputs, where a row is one of a table.
    pub fn table(&self) -> Option<&TableInputs> {
        match self {
            Inputs::Table(table) => Some(table),
            Inputs::Images(_) => None,
        }
    }
}

impl RunInfo {
    /// The chains that blew up.
    pub fn blown_up(&self, results: &[ChainResult]) -> Vec<u32> {
        blown_up_chains(results, &self.config.sample_rule(), self.untrained_loss)
    }

    /// Which samples of these chains are kept.
    pub fn sample_rule(&self, results: &[ChainResult]) -> SampleRule {
        self.config.sample_rule().without(&self.blown_up(results))
    }

    /// The posterior of these chains: the samples that the run keeps.
    pub fn posterior(&self, results: &[ChainResult]) -> Posterior {
        let members = results.iter().flat_map(|r| r.snapshots.clone()).collect();
        let all = Posterior { network: self.network.clone(), members };
        all.kept(&self.sample_rule(results))
    }

    /// The configuration with what was chosen when the run began.
    fn trained(&self) -> Config {
        likelihood::as_trained(&self.config, &self.network)
    }

    /// How a table becomes inputs, or that this run has images.
    pub fn table(&self) -> Result<&TableInputs> {
        let problem = "the run was trained on images, not on a table";
        self.inputs.table().ok_or_else(|| Error::Data(problem.into()))
    }

    /// How images become inputs, or that this run has a table.
    pub fn images(&self) -> Result<&ImageInputs> {
        let problem = "the run was trained on a table, not on images";
        self.inputs.image().ok_or_else(|| Error::Data(problem.into()))
    }
}

impl ImageInputs {
    /// How an image of a test set becomes inputs.
    pub fn augment(&self) -> Result<Augment> {
        Ok(Augment::new(self.shape, 0, false, &self.mean, &self.sd)?)
    }
}

/// A finished or reopened run.
pub struct Run {
    /// What it says about itself.
    pub info: RunInfo,
    /// Its data, which alone says whether it is on a table or on images.
    pub data: Data,
    /// What its chains found.
    pub results: Vec<ChainResult>,
    /// How long this call trained.
    pub seconds: f64,
}

impl Run {
    /// The posterior: the samples that the run keeps.
    pub fn posterior(&self) -> Posterior {
        self.info.posterior(&self.results)
    }

    /// The GPU that `device` names, as this run computes on it; tables are predicted on the CPU.
    pub fn on(&self, device: Device) -> Result<Option<OnCuda>> {
        match self.data.images() {
            Some(_) => OnCuda::open(device, self.info.config.train.precision.into()),
            None => Ok(None),
        }
    }
}

/// What a run in a folder tells while it works.
pub trait RunObserver: Observer {
    /// It is about to train: what it is, and the bytes of memory it will need.
    fn begins(&self, _info: &RunInfo, _bytes: u64) {}
}

impl RunObserver for Silent {}

/// How to run.
pub struct Control<'a> {
    /// Set by the user to stop after the current step.
    pub stop: &'a AtomicBool,
    /// Who is told.
    pub observer: &'a dyn RunObserver,
    /// Where to compute.
    pub device: Device,
    /// The same in words.
    pub device_name: &'a str,
}

/// Trains what a configuration asks for, in a folder.
pub fn train(config: &Config, folder: &Path, mode: Mode, control: &Control<'_>) -> Result<Run> {
    train_and_hold(config, folder, mode, control, 0).map(|(run, _)| run)
}

/// The same on so many threads of the CPU, where other runs need the others; 0 is all of them.
/// Nobody else trains in the folder until the claim is dropped, so that what is found out about the
/// run can be written beside it.
pub fn train_and_hold(
    config: &Config,
    folder: &Path,
    mode: Mode,
    control: &Control<'_>,
    threads: usize,
) -> Result<(Run, Claim)> {
    // Before the data, which may take long to load.
    let there = folder::look(config, folder, mode, &Silent)?;
    let config = &there.as_ref().map_or_else(|| config.clone(), |t| as_started(t, config));
    train_on(config, || Data::load(&config.data, config.seed), folder, mode, control, threads)
}

/// The same on data that is at hand: `load` gives it, once the folder is known to be free. It must be
/// what the configuration asks for.
pub fn train_on(
    config: &Config,
    load: impl FnOnce() -> Result<Data>,
    folder: &Path,
    mode: Mode,
    control: &Control<'_>,
    threads: usize,
) -> Result<(Run, Claim)> {
    let there = folder::look(config, folder, mode, &Silent)?;
    let data = load()?;
    let (specs, mut info) = prepare(config, &data, there.as_ref(), control, threads)?;
    let notice = |note: &String| control.observer.notice(note);
    fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
    let claimed = claim(folder)?;
    // Another program may have trained here while the data was loaded.
    let mut before = folder::look(config, folder, mode, control.observer)?;
    folder::clean(folder);
    if let Some(before) = &mut before {
        check_data(before, &info, folder, control.observer)?;
        if before.config.posterior != config.posterior {
            before.config.posterior = config.posterior.clone();
            folder::write_start(folder, before)?;
        }
        folder::restore_config(folder, before)?;
    } else {
        if mode == Mode::Force {
            remove_run(folder)?;
        }
        folder::write_start(folder, &info)?;
    }
    let started = Instant::now();
    let (side_by_side, _) = division(specs.len(), threads);
    let left = TimeLeft::of_run(&info, side_by_side);
    let events = config.train.tensorboard.then_some(info.rows.0);
    let journal = Journal::begin(folder, control.observer, left, before.is_some(), events);
    let until = |samples: &[&[Snapshot]]| {
        enough(config, &info.network, &data, samples, &journal, Some(&journal))
    };
    let setting = Setting {
        folder: Some(folder),
        resume: before.is_some(),
        checkpoint_every: Duration::from_secs_f64(config.train.checkpoint_seconds),
        checkpoint_steps: config.train.checkpoint_steps,
        stop: control.stop,
        observer: &journal,
        threads,
        device: control.device,
        enough: Some(&until),
    };
    let results = match run_chains(specs, &data, &setting).map_err(Error::while_training) {
        Ok(results) => results,
        Err(error) => {
            let (stage, message) = ended_by(&error);
            // Why the run ended is more important than whether that could be written down.
            let _ = journal.end(stage, message);
            return Err(error);
        }
    };
    let mut broken = data.broken();
    if broken.train.len() > info.unreadable.train.len() {
        Broken { test: Vec::new(), ..broken.clone() }.notes().iter().for_each(notice);
    }
    let mut stored = before.unwrap_or_else(|| info.clone());
    // A run that has nothing left to do meets no images.
    broken.add_train(stored.unreadable.train.clone());
    if broken != stored.unreadable {
        stored.unreadable = broken.clone();
        folder::write_info(folder, &stored)?;
    }
    info.unreadable = broken;
    let records = results.iter().map(|result| (result.chain, &result.records[..]));
    journal.end(Stage::Trained, None).map_err(Error::while_training)?;
    write_whole(&folder.join(HISTORY), history::to_text(records).as_bytes())
        .map_err(Error::while_training)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((Run { info, data, results, seconds }, claimed))
}

/// Trains on data that is at hand and writes nothing, so that a run that is stopped is lost.
pub fn train_in_memory(
    config: &Config,
    data: Data,
    control: &Control<'_>,
    threads: usize,
) -> Result<Run> {
    let (specs, mut info) = prepare(config, &data, None, control, threads)?;
    let started = Instant::now();
    let until = |samples: &[&[Snapshot]]| {
        enough(config, &info.network, &data, samples, control.observer, None)
    };
    let in_memory = Setting::in_memory(control.stop, control.observer, threads);
    let setting = Setting { device: control.device, enough: Some(&until), ..in_memory };
    let results = run_chains(specs, &data, &setting)?;
    info.unreadable = data.broken();
    Ok(Run { info, data, results, seconds: started.elapsed().as_secs_f64() })
}

/// The chains of a run on some data, and what it will say about itself, which the observer is told.
fn prepare(
    config: &Config,
    data: &Data,
    there: Option<&RunInfo>,
    control: &Control<'_>,
    threads: usize,
) -> Result<(Vec<ChainSpec>, RunInfo)> {
    let (resolved, choice) = match there {
        Some(there) => (likelihood::as_trained(config, &there.network), None),
        None => chosen(config, data, control)?,
    };
    let specs = chain_specs(&resolved, data)?;
    let info = describe(config, data, &specs, control)?;
    let work = Work::of(data.into(), info.rows.2, control.device, threads);
    let plan = MemoryPlan::new(&specs, &work);
    memory::check(&plan, &specs, &work, config, available_memory())?;
    control.observer.begins(&info, plan.total());
    let notice = |note: &String| control.observer.notice(note);
    let of_draws = drawing::notes(config, info.rows.0);
    data.notes().iter().chain(&info.unreadable.notes()).chain(&of_draws).for_each(notice);
    choice.iter().for_each(|choice| control.observer.notice(&choice.to_string()));
    Ok((specs, info))
}

/// The configuration with the likelihood that rows held out speak for, after saying that this takes
/// its time.
fn chosen(config: &Config, data: &Data, control: &Control<'_>) -> Result<(Config, Option<Choice>)> {
    if likelihood::asks(config, data).is_some() {
        control.observer.notice("comparing likelihoods on rows that are held out");
    }
    likelihood::choose(config, data, control.stop)
}

/// Whether the samples of a run in stages agree, so that it may end.
fn enough(
    config: &Config,
    network: &Network,
    data: &Data,
    samples: &[&[Snapshot]],
    observer: &dyn Observer,
    journal: Option<&Journal<'_>>,
) -> Result<bool> {
    let Some(data) = data.table() else { return Ok(false) };
    let members = samples.concat();
    let posterior = Posterior { network: network.clone(), members };
    let found = agreement_in_training(config, &posterior, data)?;
    let epoch = posterior.members.last().map_or(0, |member| member.epoch + 1);
    if let (Some(found), Some(journal)) = (&found, journal) {
        journal.agreement(epoch, found);
    }
    let is_enough = found.is_some_and(|found| found.is(config.train.r_hat, config.train.ess));
    if is_enough {
        let told = found.map_or_else(String::new, |found| found.to_string());
        let most = config.train.epochs;
        observer.notice(&format!(
            "the samples agree ({told}), so sampling ends after epoch {epoch} of at most {most}"
        ));
    }
    Ok(is_enough)
}

/// Opens a run to look at it; what it has so far is enough.
pub fn open(folder: &Path, observer: &dyn Observer) -> Result<Run> {
    open_with(folder, load_data, observer, load_results)
}

/// The same on data that is at hand: `load` gives that of a configuration.
pub fn open_on(
    folder: &Path,
    load: impl FnOnce(&Config) -> Result<Data>,
    observer: &dyn Observer,
) -> Result<Run> {
    open_with(folder, load, observer, load_results)
}

fn load_data(config: &Config) -> Result<Data> {
    Data::load(&config.data, config.seed)
}

/// The same at any moment: a run that trains may not have come to its first checkpoint, and its
/// records are those of its table, which is further than its checkpoints.
pub fn open_so_far(folder: &Path, observer: &dyn Observer) -> Result<Run> {
    let mut run = open_with(folder, load_data, observer, load_results_so_far)?;
    let text = fs::read_to_string(folder.join(HISTORY)).unwrap_or_default();
    for (chain, records) in history::parse(&text).unwrap_or_default() {
        match run.results.iter_mut().find(|result| result.chain == chain) {
            Some(known) if known.records.len() < records.len() => known.records = records,
            Some(_) => {}
            None => run.results.push(ChainResult { records, ..ChainResult::blank(chain) }),
        }
    }
    run.results.sort_by_key(|result| result.chain);
    Ok(run)
}

/// How the results of chains are read.
type Load = fn(Vec<ChainSpec>, &Path, &dyn Observer) -> Result<Vec<ChainResult>>;

fn open_with(
    folder: &Path,
    load: impl FnOnce(&Config) -> Result<Data>,
    observer: &dyn Observer,
    results_of: Load,
) -> Result<Run> {
    let info = read_info(folder, observer)?;
    let data = load(&info.config)?;
    if data.fingerprint() != info.data_fingerprint {
        return Err(Error::store(
            folder,
            "the data that the run was trained on has changed; restore it to look at this run",
        ));
    }
    let results = results_of(chain_specs(&info.trained(), &data)?, folder, observer)?;
    Ok(Run { info, data, results, seconds: 0.0 })
}

/// Opens only what the chains of a run found: its training data is not needed.
pub fn open_results(folder: &Path, observer: &dyn Observer) -> Result<(RunInfo, Vec<ChainResult>)> {
    let info = read_info(folder, observer)?;
    let results = load_results(bare_specs(&info)?, folder, observer)?;
    Ok((info, results))
}

/// Opens only the posterior of a run: its training data is not needed.
pub fn open_posterior(folder: &Path, observer: &dyn Observer) -> Result<(RunInfo, Posterior)> {
    let (info, results) = open_results(folder, observer)?;
    for chain in info.blown_up(&results) {
        observer.warning(&format!("chain {chain} blew up and is left out"));
    }
    let posterior = info.posterior(&results);
    Ok((info, posterior))
}

/// Bytes of weights, state and masks that the method of a run keeps, all chains together.
pub fn method_bytes(info: &RunInfo) -> Result<usize> {
    // What `Arena::method_bytes` counts, without the memory for it.
    Ok(bare_specs(info)?.iter().map(|spec| memory::method_bytes(spec) as usize).sum())
}

/// Chains that can be loaded but not trained, made without the data.
fn bare_specs(info: &RunInfo) -> Result<Vec<ChainSpec>> {
    let (train_rows, fingerprint) = (info.rows.0, info.data_fingerprint);
    match &info.inputs {
        Inputs::Table(TableInputs { schema, groups, names }) => {
            let data = Bundle::stand_in(schema, groups, names, train_rows, fingerprint)?;
            chain_specs(&info.trained(), &data)
        }
        Inputs::Images(ImageInputs { shape, classes, .. }) => {
            let inputs = ProblemInputs::Image { shape: *shape, classes: classes.len() };
            chain_specs(&info.trained(), Problem { train_rows, fingerprint, inputs })
        }
    }
}

fn describe(
    config: &Config,
    data: &Data,
    specs: &[ChainSpec],
    control: &Control<'_>,
) -> Result<RunInfo> {
    let network = match specs.first() {
        Some(spec) => spec.network.clone(),
        None => build_network(config, data)?,
    };
    Ok(RunInfo {
        thinfer: env!("CARGO_PKG_VERSION").to_owned(),
        config: config.clone(),
        inputs: Inputs::of(data),
        rows: data.rows(),
        data_fingerprint: data.fingerprint(),
        untrained_loss: untrained_loss_on(&network, data),
        network,
        device: control.device_name.to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        notes: data.notes().to_vec(),
        unreadable: data.broken(),
    })
}

/// The mean training loss of a network that answers 0.
fn untrained_loss_on(network: &Network, data: &Data) -> Option<f64> {
    let (loss, outputs) = (network.loss(), network.output_len());
    match data {
        Data::Table(data) => untrained_loss(loss, outputs, data.train.targets()),
        Data::Images(data) => untrained_loss(loss, outputs, data.train.labels()),
    }
}

/// Writes a value as JSON, whole or not at all, with a checksum as the last member of the object.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    write_whole(path, &sealed_json(value)?)
}

/// Writes text, whole or not at all.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    write_whole(path, text.as_bytes())
}

#[cfg(test)]
mod tests;
