//! The first stage: chains that prune, each asked on the fold it has not seen.

use std::sync::atomic::{AtomicUsize, Ordering};

use thinfer_core::posterior::Posterior;
use thinfer_core::train::{Observer, Record, Setting, run_chains};
use thinfer_data::Result;
use thinfer_data::{Bundle, jobs};
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};
use thinfer_run::evaluate::live_variables;
use thinfer_run::experiment::chain_specs;

use super::linear::Scale;
use super::settings::{self, Form};
use super::{Control, Options};
use crate::effects::{Evidence, critical_value, shuffle_losses};

/// What the screening chains say about every variable.
pub(super) struct Screen {
    pub(super) form: Form,
    pub(super) frequency: Vec<f64>,
    pub(super) z: Vec<f64>,
    pub(super) critical: f64,
    pub(super) found_anything: bool,
}

impl Screen {
    pub(super) fn chosen(&self) -> Vec<usize> {
        if !self.found_anything {
            return Vec::new();
        }
        let strong = |v: &usize| self.frequency[*v] > 0.5 && self.z[*v] > self.critical;
        (0..self.frequency.len()).filter(strong).collect()
    }

    /// What the chains of one form say together.
    fn of(form: Form, folds: &[FoldResult], variables: usize) -> (f64, Self) {
        let mut frequency = vec![0.0; variables];
        let mut evidence = Evidence::new(variables);
        for fold in folds {
            for (sum, share) in frequency.iter_mut().zip(&fold.frequency) {
                *sum += share / folds.len() as f64;
            }
            evidence.merge(&fold.evidence);
        }
        let rows = evidence.rows();
        let screen = Self {
            form,
            frequency,
            z: (0..variables).map(|v| evidence.variable_z(v)).collect(),
            critical: critical_value(variables, rows),
            found_anything: evidence.model_z() > critical_value(1, rows),
        };
        (evidence.gain(), screen)
    }
}

/// What one chain says, asked on its own fold.
struct FoldResult {
    /// Share of its samples that include each variable.
    frequency: Vec<f64>,
    evidence: Evidence,
}

/// Screens with both forms and believes the one that predicts the folds better, all of them
/// together: hidden units cost precision where a sum of effects is all there is.
pub(super) fn screen(
    data: &Bundle,
    known: &Dataset,
    scale: Scale,
    options: &Options,
    control: &Control<'_>,
) -> Result<Screen> {
    let folds = options.chains.max(2);
    let order = Key::new(options.seed, 1, Stream::Split).permutation(0, known.rows());
    let total = AtomicUsize::new(0);
    let work = |job: usize| -> Result<FoldResult> {
        let (form, chain) = (Form::ALL[job / folds], job % folds);
        let observer = Share {
            observer: control.observer,
            total: &total,
            from: 0,
            span: 700,
            last: AtomicUsize::new(0),
            chains: Form::ALL.len() * folds,
        };
        let inside = |at: &usize| at * folds / order.len() == chain;
        let pick = |keep: bool| -> Vec<u32> {
            (0..order.len()).filter(|at| inside(at) == keep).map(|at| order[at]).collect()
        };
        let setting = Setting::in_memory(control.stop, &observer, 1);
        let rows = (&pick(false)[..], &pick(true)[..]);
        screen_fold(data, known, (form, scale), chain, rows, options, &setting)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all = (0..Form::ALL.len() * folds).collect();
    let results = jobs::run(all, cores, |_, job| work(job))?;
    let (hidden, linear) = results.split_at(folds);
    let (hidden_gain, hidden) = Screen::of(Form::Hidden, hidden, data.names.len());
    let (linear_gain, linear) = Screen::of(Form::Linear, linear, data.names.len());
    Ok(if linear_gain > hidden_gain { linear } else { hidden })
}

/// Reports the progress of several chains as one.
pub(super) struct Share<'a> {
    pub(super) observer: &'a dyn Observer,
    pub(super) total: &'a AtomicUsize,
    pub(super) from: u64,
    pub(super) span: u64,
    pub(super) last: AtomicUsize,
    pub(super) chains: usize,
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
    fn warning(&self, text: &str) {
        self.observer.warning(text);
    }
}

fn screen_fold(
    data: &Bundle,
    known: &Dataset,
    (form, scale): (Form, Scale),
    chain: usize,
    (train, fold): (&[u32], &[u32]),
    options: &Options,
    setting: &Setting<'_>,
) -> Result<FoldResult> {
    let part = known.take_rows(train);
    let config = settings::screening(form, &part, data, scale, options)?;
    let part = Bundle { train_rows: part.rows(), train: part, ..shell(data) };
    let spec = chain_specs(&config, &part)?.swap_remove(chain.min(config.chains - 1));
    let network = spec.network.clone();
    let result = run_chains(vec![spec], &part.train, setting)?.swap_remove(0);
    let kept = settings::after_burn_in(&result.snapshots);
    let mut frequency = vec![0.0; data.names.len()];
    for snapshot in kept {
        for variable in live_variables(&network, snapshot, &data.groups) {
            frequency[variable] += 1.0 / kept.len() as f64;
        }
    }
    let posterior = Posterior { network, members: kept.to_vec() };
    let fold = known.take_rows(fold);
    let live: Vec<usize> = (0..frequency.len()).filter(|&v| frequency[v] > 0.0).collect();
    let evidence = shuffle_losses(&posterior, &part, &fold, &live, options.seed, chain as u32)?;
    // A network can keep a variable that is of no use to it; that is no use. Whether the
    // use is more than chance is asked of all folds together, since one fold may be small.
    for variable in live {
        if evidence.variable_z(variable) <= 0.0 {
            frequency[variable] = 0.0;
        }
    }
    Ok(FoldResult { frequency, evidence })
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

#[cfg(test)]
mod tests;
