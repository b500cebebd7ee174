//! Variable selection on a user's own table, with defaults that need no tuning.
//!
//! 1. A test part is held out and never looked at until the end.
//! 2. Several chains of EM-MCMC without regrowth prune inputs, each on all remaining rows but one
//!    fold.
//! 3. Each chain is asked, on the fold it did not see, how much worse it gets when a variable's
//!    values are shuffled. A variable's inclusion is the share of chains and samples whose network
//!    still reads it and has a use for it there. It is selected when its inclusion is above one
//!    half and, all folds together, shuffling it hurts by more than chance allows for as many
//!    variables as the table has.
//! 4. A Bayesian network on the selected variables alone is sampled on all rows but the test part;
//!    its error there stands beside that of a constant and of a linear model on all variables.

mod effect;
mod others;
mod settings;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde::Serialize;
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};

use crate::config::TaskChoice;
use crate::data::table::Table;
use crate::data::{Bundle, Task};
use crate::error::{Error, Result};
use crate::evaluate::{self, Scores, live_variables, score};
use crate::experiment::chain_specs;
use crate::linear::LinearModel;
use crate::posterior::{Posterior, Predictive};
use crate::selectors::Selector;
use crate::train::{Observer, Record, Setting, Snapshot, run_chains};
use effect::{Evidence, critical_value, shuffle_losses};
pub use others::{Other, PathStep};

/// What the user may choose; everything has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Regression, classification, or what the target suggests.
    pub task: TaskChoice,
    /// Chains, which are also the folds.
    pub chains: usize,
    /// Everything random follows from it.
    pub seed: u64,
    /// The share of rows that is held out for the final comparison.
    pub holdout: f64,
    /// Other selectors to put beside the result.
    pub compare: Vec<Selector>,
}

impl Default for Options {
    fn default() -> Self {
        Self { task: TaskChoice::Auto, chains: 4, seed: 1, holdout: 0.2, compare: Vec::new() }
    }
}

/// One selected variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Its name.
    pub name: String,
    /// The share of chains and samples that include it.
    pub inclusion: f64,
    /// How much the error on the test part grows when the variable is shuffled: mean squared error
    /// in the target's units, or mean log loss.
    pub effect: f64,
    /// The same as a share of the error of the constant prediction.
    pub relative_effect: f64,
    /// How far the effect was from chance on rows the chains had not seen, in standard errors.
    pub z: f64,
}

/// Errors on the test part.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Heldout {
    pub rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_mse: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_mse: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage90: Option<f64>,
    pub nll: Option<f64>,
    pub baseline_nll: Option<f64>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selected {
    /// The target.
    pub target: String,
    /// What kind of target it is.
    pub task: Task,
    /// Names of the selected variables, in the order of the table.
    pub selected: Vec<String>,
    /// The selected variables, strongest effect first.
    pub effects: Vec<Effect>,
    /// Every variable's inclusion.
    pub inclusion: BTreeMap<String, f64>,
    /// What other thresholds on the inclusion would select.
    pub path: Vec<PathStep>,
    /// Other selectors on the same rows.
    pub others: Vec<Other>,
    /// Errors on the test part.
    pub heldout: Heldout,
    /// The result in a sentence.
    pub summary: String,
    /// Rows that were used, the test part included.
    pub rows: usize,
    /// Variables that could be selected.
    pub variables: usize,
    /// Chains.
    pub chains: usize,
    /// The seed.
    pub seed: u64,
    /// What the user should know about the table.
    pub notes: Vec<String>,
    /// Wall-clock time without reading the table.
    pub seconds: f64,
    /// The version of the program.
    pub thinfer: &'static str,
}

/// How a selection is run.
pub struct Control<'a> {
    /// Set by the user to stop.
    pub stop: &'a AtomicBool,
    /// Who is told; all work is reported as one bar from 0 to 1000.
    pub observer: &'a dyn Observer,
}

/// Selects variables of `table` for `target`.
pub fn select(
    table: &Table,
    target: &str,
    options: &Options,
    control: &Control<'_>,
) -> Result<Selected> {
    let started = Instant::now();
    let data = Bundle::from_table(table, target, options.task, options.holdout, options.seed)?;
    data.notes.iter().for_each(|note| control.observer.notice(note));
    let known = join(&data.train, &data.validation)?;
    let screen = screen(&data, &known, options, control)?;
    let chosen = screen.chosen();
    let names = |variables: &[usize]| -> Vec<String> {
        variables.iter().map(|&v| data.names[v].clone()).collect()
    };
    let baseline = evaluate::baseline(&data);
    let linear = linear_scores(&data)?;
    let (scores, mut effects) = if chosen.is_empty() {
        (baseline.clone(), Vec::new())
    } else {
        refit(&data, &known, &chosen, &screen, options, control)?
    };
    effects.sort_by(|a, b| b.effect.total_cmp(&a.effect));
    let heldout = Heldout {
        rows: data.test.rows(),
        mse: scores.mse,
        baseline_mse: baseline.mse,
        linear_mse: linear.mse,
        accuracy: scores.accuracy,
        baseline_accuracy: baseline.accuracy,
        linear_accuracy: linear.accuracy,
        coverage90: if chosen.is_empty() { None } else { scores.coverage90 },
        nll: scores.nll,
        baseline_nll: baseline.nll,
    };
    let others = options
        .compare
        .iter()
        .map(|selector| others::fit(selector, &data, options.seed, control.stop))
        .collect::<Result<_>>()?;
    control.observer.progress(0, 1000, 1000, None);
    Ok(Selected {
        path: others::path(&screen, &data.names),
        others,
        target: target.to_owned(),
        task: data.task,
        selected: names(&chosen),
        inclusion: data.names.iter().cloned().zip(screen.inclusion.iter().copied()).collect(),
        summary: summary(&data, &chosen),
        effects,
        heldout,
        rows: known.rows() + data.test.rows(),
        variables: data.names.len(),
        chains: options.chains,
        seed: options.seed,
        notes: data.notes.clone(),
        seconds: started.elapsed().as_secs_f64(),
        thinfer: env!("CARGO_PKG_VERSION"),
    })
}

fn summary(data: &Bundle, chosen: &[usize]) -> String {
    let target = &data.schema.target_name;
    if chosen.is_empty() {
        format!(
            "nothing was found: no variable tells more about `{target}` than chance would on rows that were not used for training"
        )
    } else {
        format!("{} of {} variables matter for `{target}`", chosen.len(), data.names.len())
    }
}

fn join(a: &Dataset, b: &Dataset) -> Result<Dataset> {
    let glue = |x: &[f32], y: &[f32]| x.iter().chain(y).copied().collect();
    let inputs = glue(a.inputs(), b.inputs());
    Ok(Dataset::new(a.columns(), 1, inputs, glue(a.targets(), b.targets()))?)
}

/// What the screening chains say about every variable.
struct Screen {
    inclusion: Vec<f64>,
    z: Vec<f64>,
    critical: f64,
    found_anything: bool,
}

impl Screen {
    fn chosen(&self) -> Vec<usize> {
        if !self.found_anything {
            return Vec::new();
        }
        let strong = |v: &usize| self.inclusion[*v] > 0.5 && self.z[*v] > self.critical;
        (0..self.inclusion.len()).filter(strong).collect()
    }
}

/// What one chain says, asked on its own fold.
struct FoldResult {
    /// Share of its samples that include each variable.
    inclusion: Vec<f64>,
    evidence: Evidence,
}

fn screen(
    data: &Bundle,
    known: &Dataset,
    options: &Options,
    control: &Control<'_>,
) -> Result<Screen> {
    let folds = options.chains.max(2);
    let order = Key::new(options.seed, 1, Stream::Split).permutation(0, known.rows());
    let total = AtomicUsize::new(0);
    let work = |chain: usize| -> Result<FoldResult> {
        let observer = Share {
            observer: control.observer,
            total: &total,
            from: 0,
            span: 700,
            last: AtomicUsize::new(0),
            chains: folds,
        };
        let inside = |at: &usize| at * folds / order.len() == chain;
        let pick = |keep: bool| -> Vec<u32> {
            (0..order.len()).filter(|at| inside(at) == keep).map(|at| order[at]).collect()
        };
        let setting = Setting::in_memory(control.stop, &observer, 1);
        screen_fold(data, known, chain, (&pick(false), &pick(true)), options, &setting)
    };
    let results = side_by_side(folds, work)?;
    let variables = data.names.len();
    let mut inclusion = vec![0.0; variables];
    for result in &results {
        inclusion.iter_mut().zip(&result.inclusion).for_each(|(sum, i)| *sum += i / folds as f64);
    }
    let evidence = results.into_iter().fold(Evidence::new(variables), |mut all, result| {
        all.merge(result.evidence);
        all
    });
    let z = (0..variables).map(|v| evidence.variable_z(v)).collect();
    let rows = evidence.rows();
    Ok(Screen {
        inclusion,
        z,
        critical: critical_value(variables, rows),
        found_anything: evidence.model_z() > critical_value(1, rows),
    })
}

/// Runs `jobs` jobs on the cores there are; results in order.
fn side_by_side<T: Send>(jobs: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..cores.min(jobs) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    let result = work(job);
                    if let Ok(mut results) = results.lock() {
                        results.push((job, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(job, _)| *job);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Reports the progress of several chains as one.
struct Share<'a> {
    observer: &'a dyn Observer,
    total: &'a AtomicUsize,
    from: u64,
    span: u64,
    last: AtomicUsize,
    chains: usize,
}

impl Observer for Share<'_> {
    fn progress(&self, _: u32, step: u64, total: u64, record: Option<&Record>) {
        let here = (step * self.span / total.max(1)) as usize;
        let before = self.last.swap(here, Ordering::Relaxed);
        let sum = self.total.fetch_add(here - before.min(here), Ordering::Relaxed);
        let done = self.from + (sum / self.chains) as u64;
        self.observer.progress(0, done.min(1000), 1000, record);
    }
    fn notice(&self, text: &str) {
        self.observer.notice(text);
    }
}

fn screen_fold(
    data: &Bundle,
    known: &Dataset,
    chain: usize,
    (train, fold): (&[u32], &[u32]),
    options: &Options,
    setting: &Setting<'_>,
) -> Result<FoldResult> {
    let part = known.take_rows(train);
    let config = settings::screening(&part, data.task, options)?;
    let part = Bundle { train_rows: part.rows(), train: part, ..shell(data) };
    let spec = chain_specs(&config, &part)?.swap_remove(chain.min(config.chains - 1));
    let network = spec.network.clone();
    let result = run_chains(vec![spec], &part.train, setting)?.swap_remove(0);
    let settled = settings::settled(&result.snapshots);
    let mut inclusion = vec![0.0; data.names.len()];
    for snapshot in settled {
        for variable in live_variables(&network, snapshot, &data.groups) {
            inclusion[variable] += 1.0 / settled.len() as f64;
        }
    }
    let posterior = Posterior { network, members: settled.to_vec() };
    let fold = known.take_rows(fold);
    let live: Vec<usize> = (0..inclusion.len()).filter(|&v| inclusion[v] > 0.0).collect();
    let evidence = shuffle_losses(&posterior, &part, &fold, &live, options.seed, chain as u32)?;
    // A network can keep a variable that is of no use to it; that is not an inclusion.
    let useful = critical_value(1, evidence.rows());
    for variable in live {
        if evidence.variable_z(variable) <= useful {
            inclusion[variable] = 0.0;
        }
    }
    Ok(FoldResult { inclusion, evidence })
}

/// The bundle without its rows.
fn shell(data: &Bundle) -> Bundle {
    let empty = data.test.take_rows(&[]);
    Bundle {
        train: empty.clone(),
        validation: empty.clone(),
        test: empty,
        groups: data.groups.clone(),
        names: data.names.clone(),
        schema: data.schema.clone(),
        notes: Vec::new(),
        truth: None,
        task: data.task,
        classes: data.classes,
        fingerprint: data.fingerprint,
        train_rows: 0,
    }
}

fn refit(
    data: &Bundle,
    known: &Dataset,
    chosen: &[usize],
    screen: &Screen,
    options: &Options,
    control: &Control<'_>,
) -> Result<(Scores, Vec<Effect>)> {
    let whole = Bundle { train: known.clone(), train_rows: known.rows(), ..data.clone() };
    let small = whole.with_variables(chosen);
    let config = settings::refitting(&small, options)?;
    let specs = chain_specs(&config, &small)?;
    let network = specs[0].network.clone();
    let total = AtomicUsize::new(0);
    let observer = Share {
        observer: control.observer,
        total: &total,
        from: 700,
        span: 280,
        last: AtomicUsize::new(0),
        chains: 1,
    };
    let setting = Setting::in_memory(control.stop, &observer, 0);
    let results = run_chains(specs, &small.train, &setting)?;
    let members: Vec<Snapshot> = results.into_iter().flat_map(|r| r.snapshots).collect();
    let posterior = Posterior { network, members };
    let scale = data.schema.target_scale();
    let scores = score(&posterior.predict(&small.test)?, &small.test, scale);
    let live: Vec<usize> = (0..chosen.len()).collect();
    let seed = options.seed;
    let evidence = shuffle_losses(&posterior, &small, &small.test, &live, seed, u32::MAX)?;
    let unit = if data.task == Task::Regression { scale.1 * scale.1 } else { 1.0 };
    let effects = chosen
        .iter()
        .enumerate()
        .map(|(at, &variable)| Effect {
            name: data.names[variable].clone(),
            inclusion: screen.inclusion[variable],
            effect: evidence.mean_increase(at) * unit,
            relative_effect: evidence.mean_increase(at) / evidence.baseline_loss().max(1e-300),
            z: screen.z[variable],
        })
        .collect();
    Ok((scores, effects))
}

fn linear_scores(data: &Bundle) -> Result<Scores> {
    let scale = data.schema.target_scale();
    let (train, validation) = (&data.train, &data.validation);
    let predictive = match data.task {
        Task::Regression => {
            let means = LinearModel::ridge(train, validation)?.predict(&data.test);
            Predictive::Regression { means: vec![means], sigmas: vec![1.0] }
        }
        Task::Classification => {
            let model = LinearModel::logistic(train, validation, data.classes)?;
            let members = vec![model.predict(&data.test)];
            Predictive::Classes { classes: data.classes, members }
        }
    };
    Ok(score(&predictive, &data.test, scale))
}

/// Says what to do where a selection cannot even begin.
pub fn check_options(options: &Options) -> Result<()> {
    if options.chains == 0 || options.chains > 1000 {
        let problem = format!("is {}, but must be from 1 to 1000", options.chains);
        return Err(Error::config("--chains", problem));
    }
    if !(options.holdout > 0.0 && options.holdout <= 0.5) {
        let problem = format!("is {}, but must be above 0 and at most 0.5", options.holdout);
        return Err(Error::config("--holdout", problem));
    }
    Ok(())
}
