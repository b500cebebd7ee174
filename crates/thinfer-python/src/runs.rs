//! Runs: trained, loaded, looked at, exported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray4};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use thinfer::config::{Config, TaskChoice};
use thinfer::data::{Bundle, Data, Split};
use thinfer::device::Device;
use thinfer::engine::ParamTable;
use thinfer::evaluated::Evaluated;
use thinfer::export::{self, ChainOptions, Format, Options, Samples};
use thinfer::finish::{Files, Keys, finish};
use thinfer::posterior::{Posterior, Snapshot};
use thinfer::run::{self, Control, Mode, RunInfo, RunObserver};
use thinfer::select::Selected;
use thinfer::train::Silent;
use thinfer::{Error, Result, diagnose, report};

use crate::bytes::{from_bytes, to_bytes};
use crate::device;
use crate::errors::{caught, json, without_gil};
use crate::events::{Listener, listened};
use crate::predictions::{self, Columns, Predicted};
use crate::tables::Table;

/// Training rows that the chains of an estimator are compared on, at most.
const COMPARED_ROWS: usize = 500;

/// A parameter: its name, its shape, and where it begins among all numbers.
type Place = (String, Vec<usize>, usize);

/// A run with the samples that it keeps.
#[pyclass(frozen, module = "thinfer._thinfer")]
pub(crate) struct Run {
    info: RunInfo,
    posterior: Posterior,
    /// The run with its data, from when it is first needed.
    whole: OnceLock<run::Run>,
    /// The data, where it is in no file.
    table: Option<thinfer::data::table::Table>,
    folder: Option<PathBuf>,
    device: Option<String>,
    seconds: f64,
}

/// Trains what a file or settings of the form `key=value` ask for.
#[pyfunction]
#[pyo3(signature = (config, settings, table, folder, mode, threads, device, listener))]
#[expect(clippy::too_many_arguments, reason = "they are given by name, in Python")]
pub(crate) fn train(
    config: Option<PathBuf>,
    settings: Vec<String>,
    table: Option<&Table>,
    folder: Option<PathBuf>,
    mode: &str,
    threads: usize,
    device: Option<String>,
    listener: Bound<'_, PyAny>,
) -> PyResult<Run> {
    let config = caught(|| match &config {
        Some(path) => Config::read(path, &settings),
        None => Config::read_text(Path::new("config"), "", &settings),
    })?;
    let listener = Listener(listener);
    config.notices().iter().try_for_each(|notice| listener.notice(notice))?;
    let mode = match mode {
        "resume" => Mode::Resume,
        "force" => Mode::Force,
        _ => Mode::New,
    };
    let table = caught(|| table.map(Table::take).transpose())?;
    let load = || load_data(&config, table);
    let trained = listened(&listener, |stop, observer| {
        let (on, name) = device::choose(device.as_deref())?;
        let control = Control { stop, observer, device: on, device_name: &name };
        match &folder {
            Some(folder) => {
                run::train_on(&config, load, folder, mode, &control, threads).map(|(run, _)| run)
            }
            None => run::train_in_memory(&config, load()?, &control, threads),
        }
    })?;
    let posterior = trained.posterior();
    let (info, seconds) = (trained.info.clone(), trained.seconds);
    let whole = OnceLock::from(trained);
    Ok(Run { info, posterior, whole, table: None, folder, device, seconds })
}

/// Opens the run in a folder. Its data is loaded when something needs it.
#[pyfunction]
#[pyo3(signature = (folder, table, device, listener))]
pub(crate) fn load(
    folder: PathBuf,
    table: Option<&Table>,
    device: Option<String>,
    listener: Bound<'_, PyAny>,
) -> PyResult<Run> {
    let table = caught(|| table.map(Table::take).transpose())?;
    let listener = Listener(listener);
    let (info, posterior) = listened(&listener, |_, observer: &dyn RunObserver| {
        run::open_posterior(&folder, observer)
    })?;
    let run = Run {
        info,
        posterior,
        whole: OnceLock::new(),
        table,
        folder: Some(folder),
        device,
        seconds: 0.0,
    };
    if run.table.is_some() {
        // A table that is given is compared at once.
        without_gil(listener.0.py(), || run.whole().map(drop))?;
    }
    Ok(run)
}

/// The data of a configuration: that of a table, where one is given.
fn load_data(config: &Config, table: Option<thinfer::data::table::Table>) -> Result<Data> {
    match table {
        Some(table) => Ok(Data::Table(Bundle::of_table(&config.data, table, config.seed)?)),
        None => Data::load(&config.data, config.seed),
    }
}

/// Learns from all rows of a table, and keeps the samples and nothing of the table. Gives the run
/// and what is known of its samples, as JSON.
#[pyfunction]
#[pyo3(signature = (settings, table, threads, listener))]
pub(crate) fn fit(
    settings: Vec<String>,
    table: &Table,
    threads: usize,
    listener: Bound<'_, PyAny>,
) -> PyResult<(Run, String)> {
    let config = caught(|| Config::read_text(Path::new("settings"), "", &settings))?;
    let table = caught(|| table.take())?;
    let listener = Listener(listener);
    let (trained, diagnosis) = listened(&listener, |stop, observer| {
        let target = config.data.target.clone().unwrap_or_default();
        let task: TaskChoice = config.data.task;
        let rules = config.data.rules();
        let data = Bundle::from_split(&table, &target, task, &Split::All, &rules, config.seed)?;
        drop(table);
        let control = Control { stop, observer, device: Device::Cpu, device_name: "cpu" };
        let mut run = run::train_in_memory(&config, Data::Table(data), &control, threads)?;
        // No row is held out, so the chains are compared on some that they learned from.
        if let Data::Table(data) = &mut run.data {
            let rows = data.train.rows();
            let some = rows.min(COMPARED_ROWS);
            let some: Vec<u32> = (0..some).map(|row| (row * rows / some) as u32).collect();
            data.test = data.train.take_rows(&some);
        }
        let evaluated = run.evaluate(&[], Device::Cpu)?;
        let diagnosis = json(&diagnosis(&evaluated))?;
        Ok((run, diagnosis))
    })?;
    let run = Run {
        posterior: trained.posterior(),
        seconds: trained.seconds,
        info: trained.info,
        whole: OnceLock::new(),
        table: None,
        folder: None,
        device: None,
    };
    Ok((run, diagnosis))
}

/// What is known of samples without rows that were held out.
fn diagnosis(evaluated: &Evaluated) -> serde_json::Value {
    let found = evaluated.convergence();
    let table = evaluated.table();
    serde_json::json!({
        "chains": found.chains,
        "samples": found.samples,
        "predictions": found.predictions,
        "log_likelihood": found.log_likelihood,
        "log_sigma": found.log_sigma,
        "blown_up": evaluated.blown_up(),
        "selected": table.map(|table| &table.selected),
        "size": table.map(|table| &table.size),
    })
}

impl Run {
    /// The run with its data.
    fn whole(&self) -> Result<&run::Run> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let Some(folder) = &self.folder else {
            let problem = "the run has no folder and kept no data, so this cannot be computed; train with out=, and load the run from there";
            return Err(Error::Data(problem.into()));
        };
        let load = |config: &Config| load_data(config, self.table.clone());
        let whole = run::open_on(folder, load, &Silent)?;
        Ok(self.whole.get_or_init(|| whole))
    }

    /// Where images are predicted; tables are on the CPU.
    fn on(&self) -> Result<Device> {
        match self.info.inputs.image() {
            Some(_) => device::choose(self.device.as_deref()).map(|(device, _)| device),
            None => Ok(Device::Cpu),
        }
    }

    fn evaluated(&self) -> Result<(&run::Run, Evaluated)> {
        let whole = self.whole()?;
        let evaluated = whole.evaluate(&[], self.on()?)?;
        Ok((whole, evaluated))
    }

    /// All numbers of a kind, sample by sample.
    fn numbers<'py>(
        &self,
        py: Python<'py>,
        of: &ParamTable,
        values: impl Fn(&Snapshot) -> &[f32],
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Vec<Place>)> {
        let members = &self.posterior.members;
        let all: Vec<f32> = members.iter().flat_map(|member| values(member).to_vec()).collect();
        let array = PyArray1::from_vec(py, all).reshape([members.len(), of.len()])?;
        let places = of.iter().map(|p| (p.name.clone(), p.shape.clone(), p.offset)).collect();
        Ok((array, places))
    }
}

#[pymethods]
impl Run {
    /// Weights of all samples, with the place of each parameter among them.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyArray2<f32>>, Vec<Place>)> {
        self.numbers(py, self.info.network.params(), |member| &member.weights)
    }

    /// The same of running means and variances.
    fn statistics<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Vec<Place>)> {
        self.numbers(py, self.info.network.stats(), |member| &member.stats)
    }

    /// Chain and epoch of each sample.
    fn origins(&self) -> (Vec<u32>, Vec<usize>) {
        self.posterior.members.iter().map(|member| (member.chain, member.epoch)).unzip()
    }

    /// `run.json`.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        without_gil(py, || json(&self.info))
    }

    /// The configuration as TOML.
    fn config(&self) -> PyResult<String> {
        caught(|| self.info.config.to_toml())
    }

    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The names of the classes, or none.
    #[getter]
    fn classes(&self) -> Vec<String> {
        match &self.info.inputs {
            run::Inputs::Table(table) => table.schema.target.levels().to_vec(),
            run::Inputs::Images(images) => images.classes.clone(),
        }
    }

    /// The columns that are read, in the order of the table, or none.
    #[getter]
    fn variables(&self) -> Vec<String> {
        self.info.inputs.table().map(|table| table.names.clone()).unwrap_or_default()
    }

    /// The columns of `thinfer predict`, notes, and scores as JSON where the table has the target.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        table: &Table,
    ) -> PyResult<(Bound<'py, PyDict>, Vec<String>, Option<String>)> {
        let (found, scores) = without_gil(py, || {
            let found = table
                .with(|table| thinfer::predict::predict(&self.info, &self.posterior, table))?;
            let scores = found.scores.as_ref().map(json).transpose()?;
            Ok((found, scores))
        })?;
        Ok((Columns(found.columns()).to_python(py)?, found.notes, scores))
    }

    /// What every sample says of every row.
    fn predictive(&self, py: Python<'_>, table: &Table) -> PyResult<Predicted> {
        without_gil(py, || {
            table.with(|table| predictions::of_table(&self.info, &self.posterior, table))
        })
    }

    /// Class probabilities of images (rows, height, width, channels).
    fn predict_images<'py>(
        &self,
        py: Python<'py>,
        images: PyReadonlyArray4<'_, u8>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let images = images.as_array();
        let shape = images.dim();
        let bytes: Vec<u8> = images.iter().copied().collect();
        let (rows, found) = without_gil(py, || {
            let on = self.on()?;
            predictions::of_images(&self.info, &self.posterior, shape, bytes, on)
        })?;
        let classes = found.len() / rows.max(1);
        PyArray1::from_vec(py, found).reshape([rows, classes])
    }

    /// `thinfer eval --json`.
    fn evaluate(&self, py: Python<'_>) -> PyResult<String> {
        without_gil(py, || json(&self.evaluated()?.1))
    }

    /// `thinfer diagnose --json`.
    fn diagnose(&self, py: Python<'_>) -> PyResult<String> {
        without_gil(py, || {
            let (whole, evaluated) = self.evaluated()?;
            json(&diagnose::diagnose(whole, &evaluated))
        })
    }

    /// The report as HTML.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        without_gil(py, || {
            let (whole, evaluated) = self.evaluated()?;
            let selection = self.folder.as_deref().map(Selected::read).transpose()?.flatten();
            report::of_run(whole, &evaluated, selection.as_ref())
        })
    }

    /// Writes evaluation and report into the folder of the run, as the program does.
    fn finish(&self, py: Python<'_>) -> PyResult<PathBuf> {
        without_gil(py, || {
            let (whole, evaluated) = self.evaluated()?;
            let Some(folder) = &self.folder else {
                return Err(Error::Data("the run has no folder; give a path".into()));
            };
            let Files { report, .. } = finish(whole, &evaluated, folder, Keys::Sorted)?;
            Ok(report)
        })
    }

    /// Writes samples for PyTorch or ONNX. Gives the files, the largest difference, and notices.
    fn export(
        &self,
        py: Python<'_>,
        path: PathBuf,
        format: &str,
        sample: &str,
        force: bool,
    ) -> PyResult<(Vec<PathBuf>, f64, Vec<String>)> {
        let format = if format == "onnx" { Format::Onnx } else { Format::Safetensors };
        without_gil(py, || {
            let samples: Samples = sample
                .parse()
                .map_err(|problem| Error::config("sample", format!("is {sample}; {problem}")))?;
            let options = Options { samples, new_only: !force, ..Options::default() };
            let exported = export::export(&self.info, &self.posterior, format, &options, &path)?;
            Ok((exported.files, exported.difference, exported.notices))
        })
    }

    /// Writes all chains for ArviZ.
    fn export_chains(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
        without_gil(py, || {
            let whole = self.whole()?;
            let exported =
                export::export_chains(whole, &ChainOptions::default(), self.on()?, &path)?;
            Ok(exported.notices)
        })
    }

    /// The posterior as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = without_gil(py, || to_bytes(&self.info, &self.posterior, self.seconds))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The run of such bytes. It has no folder and no data.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let (info, posterior, seconds) = without_gil(py, || from_bytes(bytes))?;
        let whole = OnceLock::new();
        Ok(Self { info, posterior, whole, table: None, folder: None, device: None, seconds })
    }

    /// How many samples there are.
    fn __len__(&self) -> usize {
        self.posterior.members.len()
    }

    /// Chains that samples are from.
    #[getter]
    fn chains(&self) -> usize {
        self.posterior.members.iter().map(|m| m.chain).collect::<BTreeSet<u32>>().len()
    }
}
