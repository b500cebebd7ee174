//! A run in a folder: made, trained, gone on with, and opened again.

mod folder;
pub(crate) mod memory;
mod remove;
mod resume;
mod test_rows;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thinfer_core::device::{Device, OnCuda};
use thinfer_core::posterior::{Posterior, SampleRule, Snapshot};
use thinfer_core::train::{
    ChainResult, ChainSpec, Observer, Setting, Silent, load_results, run_chains,
};
use thinfer_data::files::{claim, sealed_json, write_whole};
use thinfer_data::images::Broken;
use thinfer_data::memory::available_memory;
use thinfer_data::{Bundle, Data, Schema};
use thinfer_data::{Error, Result};
use thinfer_engine::augment::Augment;
use thinfer_engine::{Network, Shape};

pub use self::folder::info_from_bytes;
pub use self::folder::read_info;
pub use self::memory::{ImageWork, MemoryPlan, Work};
use self::remove::remove_run;
pub use self::remove::{CHAINS_WRITER, is_chains_export, remove_samples};
use self::resume::check_data;
pub use self::test_rows::some_test_rows;
use crate::config::Config;
use crate::drawing;
use crate::evaluate::{agreement_in_training, blown_up_chains, untrained_loss};
use crate::experiment::{Problem, ProblemInputs, build_network, chain_specs};
use crate::likelihood;
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
    train_on(config, || Data::load(&config.data, config.seed), folder, mode, control, threads)
}

/// The same on data that is at hand: `load` gives it, once the folder is known to be free.
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
    let until = |samples: &[&[Snapshot]]| enough(config, &info.network, &data, samples, control);
    let setting = Setting {
        folder: Some(folder),
        resume: before.is_some(),
        checkpoint_every: Duration::from_secs_f64(config.train.checkpoint_seconds),
        checkpoint_steps: config.train.checkpoint_steps,
        stop: control.stop,
        observer: control.observer,
        threads,
        device: control.device,
        enough: Some(&until),
    };
    let results = run_chains(specs, &data, &setting).map_err(Error::while_training)?;
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
    write_whole(&folder.join("history.csv"), history_csv(&results).as_bytes())
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
    let until = |samples: &[&[Snapshot]]| enough(config, &info.network, &data, samples, control);
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
        None => likelihood::choose(config, data)?,
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

/// Whether the samples of a run in stages agree, so that it may end.
fn enough(
    config: &Config,
    network: &Network,
    data: &Data,
    samples: &[&[Snapshot]],
    control: &Control<'_>,
) -> Result<bool> {
    let Some(data) = data.table() else { return Ok(false) };
    let members = samples.concat();
    let posterior = Posterior { network: network.clone(), members };
    let found = agreement_in_training(config, &posterior, data)?;
    let epoch = posterior.members.last().map_or(0, |member| member.epoch + 1);
    let is_enough = found.is_some_and(|found| found.is(config.train.r_hat, config.train.ess));
    if is_enough {
        let told = found.map_or_else(String::new, |found| found.to_string());
        let most = config.train.epochs;
        control.observer.notice(&format!(
            "the samples agree ({told}), so sampling ends after epoch {epoch} of at most {most}"
        ));
    }
    Ok(is_enough)
}

/// Opens a run to look at it; what it has so far is enough.
pub fn open(folder: &Path, observer: &dyn Observer) -> Result<Run> {
    open_on(folder, |config| Data::load(&config.data, config.seed), observer)
}

/// The same on data that is at hand: `load` gives that of a configuration.
pub fn open_on(
    folder: &Path,
    load: impl FnOnce(&Config) -> Result<Data>,
    observer: &dyn Observer,
) -> Result<Run> {
    let info = read_info(folder, observer)?;
    let data = load(&info.config)?;
    if data.fingerprint() != info.data_fingerprint {
        return Err(Error::store(
            folder,
            "the data that the run was trained on has changed; restore it to look at this run",
        ));
    }
    let results = load_results(chain_specs(&info.trained(), &data)?, folder, observer)?;
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

/// The history of all chains as one table.
fn history_csv(results: &[ChainResult]) -> String {
    // Columns of runs that account for mini-batch noise alone.
    let accounts = results.iter().flat_map(|r| &r.records).any(|r| r.rows_a_step.is_some());
    let mut text = String::from(
        "chain,epoch,loss,step_size,temperature,effective_temperature,tau_mean,tau_sd,spike_share,pruned_share,live_inputs,largest_loss,clipped_steps,sparsity,work,frozen,backward,hard_threshold,test_accuracy,test_nll",
    );
    text.push_str(if accounts { ",batch_temperature,rows_a_step\n" } else { "\n" });
    let cell = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    for result in results {
        for r in &result.records {
            text.push_str(&format!(
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                result.chain,
                r.epoch,
                r.loss,
                r.step_size,
                r.temperature,
                cell(r.effective_temperature),
                cell(r.tau_mean),
                cell(r.tau_sd),
                r.spike_share,
                r.pruned_share,
                r.live_inputs,
                r.largest_loss,
                r.clipped_steps,
                r.sparsity,
                r.work,
                r.frozen,
                r.backward,
                cell(r.hard_threshold),
                cell(r.test_accuracy),
                cell(r.test_nll)
            ));
            if accounts {
                text.push_str(&format!(",{},{}", cell(r.batch_temperature), cell(r.rows_a_step)));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests;
