//! Table 4 of the paper, run again: independent data sets, the paper's number beside ours.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::data::Bundle;
use crate::error::{Error, Result};
use crate::evaluate::evaluate;
use crate::experiment::chain_specs;
use crate::metrics::Spread;
use crate::run::write_json;
use crate::train::{Observer, Setting, Silent, run_chains};

/// The shipped configurations, which are also what `thinfer train configs/example1.toml` runs.
const CONFIGS: [&str; 3] = [
    include_str!("../../../../configs/example1.toml"),
    include_str!("../../../../configs/example2.toml"),
    include_str!("../../../../configs/example3.toml"),
];

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Row {
    /// EM-MCMC, pruned weights never come back.
    Dfp,
    /// EM-MCMC with feedback.
    Dpf,
}

impl Row {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Row::Dfp => "dfp",
            Row::Dpf => "dpf",
        }
    }
}

/// What the paper prints: MSE, or the share of right classes. FDR and FNDR are 0 in all of them, and
/// the numbers of selected variables are 5, 5 and 4 (Examples 1 and 3 are interchanged in print).
pub fn printed(example: usize, row: Row) -> f64 {
    match (example, row) {
        (1, Row::Dfp) => 1.32,
        (1, Row::Dpf) => 1.29,
        (2, Row::Dfp) => 2.46,
        (2, Row::Dpf) => 2.49,
        (_, Row::Dfp) => 0.947,
        (_, Row::Dpf) => 0.945,
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Examples, 1 to 3.
    pub examples: Vec<usize>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Independent data sets; repeat r has the seed r.
    pub repeats: usize,
    /// `a.b=c` settings on top of the shipped configurations.
    pub overrides: Vec<String>,
}

/// One run on one data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The example.
    pub example: usize,
    /// The row.
    pub method: Row,
    /// The repeat, which is also the seed of data and chain.
    pub repeat: usize,
    /// The fingerprint of the settings, so that results of others are not mixed in.
    pub fingerprint: u32,
    /// Test MSE of the posterior average.
    pub mse: Option<f64>,
    /// Test accuracy of the posterior average.
    pub accuracy: Option<f64>,
    /// Test MSE of the last sample alone.
    pub last_mse: Option<f64>,
    /// Test accuracy of the last sample alone.
    pub last_accuracy: Option<f64>,
    /// Samples in the posterior average.
    pub members: usize,
    /// Share of selected variables that do not matter.
    pub fdr: f64,
    /// Share of variables that matter and were not selected.
    pub fndr: f64,
    /// The selected variables.
    pub selected: Vec<String>,
    /// Whether they are exactly the right ones.
    pub perfect: bool,
    /// The largest mean loss of an epoch after the first tenth of the run.
    pub largest_loss: f64,
    /// The mean loss of the last epoch.
    pub final_loss: f64,
    /// Steps whose gradient was clipped.
    pub clipped_steps: u64,
    /// Wall-clock time on one thread.
    pub seconds: f64,
}

/// One row of the printed table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it; spreads are sample standard deviations")]
pub struct Summary {
    pub example: usize,
    pub method: Row,
    pub repeats: usize,
    pub mse_mean: Option<f64>,
    pub mse_sd: Option<f64>,
    pub accuracy_mean: Option<f64>,
    pub accuracy_sd: Option<f64>,
    pub last_mse_mean: Option<f64>,
    pub last_accuracy_mean: Option<f64>,
    pub fdr_mean: f64,
    pub fndr_mean: f64,
    pub selected_mean: f64,
    pub perfect_repeats: usize,
    pub seconds_mean: f64,
    pub clipped_steps_mean: f64,
    pub largest_loss_max: f64,
    pub printed: f64,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Table4 {
    /// The rows.
    pub rows: Vec<Summary>,
    /// The single runs.
    pub runs: Vec<Outcome>,
    /// Wall-clock time of the call.
    pub seconds: f64,
    /// The version of the program.
    pub thinfer: &'static str,
    /// Cores used.
    pub cores: usize,
    /// The resolved settings of every example, without the seed of the repeat.
    pub configs: BTreeMap<String, Config>,
}

impl Plan {
    /// The configuration of one run.
    pub fn config(&self, example: usize, row: Row, repeat: usize) -> Result<Config> {
        let text = example.checked_sub(1).and_then(|at| CONFIGS.get(at)).ok_or_else(|| {
            Error::config("--examples", format!("is {example}, but must be 1, 2 or 3"))
        })?;
        let mut overrides = vec![
            format!("seed={repeat}"),
            format!("prune.regrow={}", row == Row::Dpf),
            "chains=1".to_owned(),
        ];
        if (example, row) == (2, Row::Dpf) {
            // What DFP prunes is gone, so Example 2 prunes late, at 0.003. With feedback a group can
            // come back, and the threshold has to stand clear of what pushes pruned weights about.
            overrides.push("prune.hard_threshold=0.01".to_owned());
        }
        overrides.extend(self.overrides.iter().cloned());
        Config::parse(text, &overrides)
    }

    fn jobs(&self) -> Vec<(usize, Row, usize)> {
        // Longest first, so that the cores finish together.
        let mut jobs = Vec::new();
        for example in [2, 1, 3].into_iter().filter(|e| self.examples.contains(e)) {
            for row in [Row::Dpf, Row::Dfp].into_iter().filter(|r| self.rows.contains(r)) {
                jobs.extend((1..=self.repeats).map(|repeat| (example, row, repeat)));
            }
        }
        jobs
    }
}

/// Runs the plan, one run a core. With a folder every finished run is kept there, and runs that are
/// there already are not done again.
pub fn table4(
    plan: &Plan,
    folder: Option<&Path>,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Table4> {
    let started = Instant::now();
    let jobs = plan.jobs();
    for example in &plan.examples {
        plan.config(*example, Row::Dfp, 1)?;
    }
    if let Some(folder) = folder {
        let runs = folder.join("runs");
        std::fs::create_dir_all(&runs).map_err(|e| Error::file("create", &runs, e))?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes = Mutex::new(Vec::new());
    let failed = AtomicBool::new(false);
    let work = || -> Result<()> {
        while let Some(&(example, row, repeat)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let outcome = keep(plan, example, row, repeat, folder, stop)
                .inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            let finished = done.fetch_add(1, Ordering::Relaxed) + 1;
            observer.progress(0, finished as u64, jobs.len() as u64, None);
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.push(outcome);
            }
        }
        Ok(())
    };
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(jobs.len())).map(|_| scope.spawn(work)).collect();
        let join = |w: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect()
    });
    for result in results {
        match (result, folder) {
            (Err(Error::Interrupted(_)), Some(folder)) => {
                return Err(Error::Interrupted(folder.to_owned()));
            }
            (other, _) => other?,
        }
    }
    let mut runs = outcomes.into_inner().unwrap_or_default();
    runs.sort_by_key(|o: &Outcome| (o.example, o.method, o.repeat));
    let configs = plan
        .examples
        .iter()
        .map(|&e| Ok((format!("example{e}"), plan.config(e, Row::Dfp, 1)?)))
        .collect::<Result<_>>()?;
    let table = Table4 {
        rows: summarise(&runs),
        runs,
        seconds: started.elapsed().as_secs_f64(),
        thinfer: env!("CARGO_PKG_VERSION"),
        cores,
        configs,
    };
    if let Some(folder) = folder {
        write_json(&folder.join("table4.json"), &table)?;
    }
    Ok(table)
}

/// One run, taken from the folder where it is already there.
fn keep(
    plan: &Plan,
    example: usize,
    row: Row,
    repeat: usize,
    folder: Option<&Path>,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let config = plan.config(example, row, repeat)?;
    let path = folder
        .map(|f| f.join("runs").join(format!("example{example}-{}-{repeat:02}.json", row.name())));
    if let Some(path) = &path
        && let Ok(text) = std::fs::read_to_string(path)
        && let Ok(outcome) = serde_json::from_str::<Outcome>(&text)
        && outcome.fingerprint == config.fingerprint()?
    {
        return Ok(outcome);
    }
    let outcome = run_one(&config, example, row, repeat, stop)?;
    if let Some(path) = &path {
        write_json(path, &outcome)?;
    }
    Ok(outcome)
}

fn run_one(
    config: &Config,
    example: usize,
    row: Row,
    repeat: usize,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let data = Bundle::load(config)?;
    let specs = chain_specs(config, &data)?;
    let network = specs[0].network.clone();
    let started = Instant::now();
    let setting = Setting::in_memory(stop, &Silent, 1);
    let results = run_chains(specs, &data.train, &setting)?;
    let seconds = started.elapsed().as_secs_f64();
    let evaluation = evaluate(&network, &data, &results)?;
    let selection = evaluation
        .selection
        .ok_or_else(|| Error::Data("the variables that matter are not known".into()))?;
    Ok(Outcome {
        example,
        method: row,
        repeat,
        fingerprint: config.fingerprint()?,
        mse: evaluation.posterior.mse,
        accuracy: evaluation.posterior.accuracy,
        last_mse: evaluation.last.mse,
        last_accuracy: evaluation.last.accuracy,
        members: evaluation.posterior.members,
        fdr: selection.fdr,
        fndr: selection.fndr,
        perfect: selection.false_discoveries == 0 && selection.missed == 0,
        selected: evaluation.selected,
        largest_loss: evaluation.behaviour.largest_loss,
        final_loss: evaluation.behaviour.final_loss,
        clipped_steps: evaluation.behaviour.clipped_steps,
        seconds,
    })
}

fn summarise(runs: &[Outcome]) -> Vec<Summary> {
    let mut groups: BTreeMap<(usize, Row), Vec<&Outcome>> = BTreeMap::new();
    for run in runs {
        groups.entry((run.example, run.method)).or_default().push(run);
    }
    groups
        .into_iter()
        .map(|((example, method), runs)| {
            let spread = |value: fn(&Outcome) -> Option<f64>| -> Option<Spread> {
                let values: Option<Vec<f64>> = runs.iter().map(|r| value(r)).collect();
                values.map(|v| Spread::of(&v))
            };
            let mean = |value: fn(&Outcome) -> f64| {
                runs.iter().map(|r| value(r)).sum::<f64>() / runs.len() as f64
            };
            let (mse, accuracy) = (spread(|r| r.mse), spread(|r| r.accuracy));
            Summary {
                example,
                method,
                repeats: runs.len(),
                mse_mean: mse.as_ref().map(|s| s.mean),
                mse_sd: mse.map(|s| s.sd),
                accuracy_mean: accuracy.as_ref().map(|s| s.mean),
                accuracy_sd: accuracy.map(|s| s.sd),
                last_mse_mean: spread(|r| r.last_mse).map(|s| s.mean),
                last_accuracy_mean: spread(|r| r.last_accuracy).map(|s| s.mean),
                fdr_mean: mean(|r| r.fdr),
                fndr_mean: mean(|r| r.fndr),
                selected_mean: mean(|r| r.selected.len() as f64),
                perfect_repeats: runs.iter().filter(|r| r.perfect).count(),
                seconds_mean: mean(|r| r.seconds),
                clipped_steps_mean: mean(|r| r.clipped_steps as f64),
                largest_loss_max: runs.iter().map(|r| r.largest_loss).fold(0.0, f64::max),
                printed: printed(example, method),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Plan {
        let overrides = [
            "train.epochs=12",
            "schedule.step_size.cycles=2",
            "data.columns=8",
            "data.train_rows=200",
            "data.validation_rows=20",
            "data.test_rows=50",
            "prune.warm_up_epochs=2",
        ];
        Plan {
            examples: vec![1, 3],
            rows: vec![Row::Dfp, Row::Dpf],
            repeats: 2,
            overrides: overrides.map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn a_small_table_has_every_row_and_goes_on_where_it_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let table = table4(&small(), Some(folder.path()), &stop, &Silent).unwrap();
        let rows: Vec<(usize, Row)> = table.rows.iter().map(|r| (r.example, r.method)).collect();
        assert_eq!(rows, [(1, Row::Dfp), (1, Row::Dpf), (3, Row::Dfp), (3, Row::Dpf)]);
        assert!(table.rows.iter().all(|r| r.repeats == 2));
        assert!(table.rows[0].mse_mean.is_some() && table.rows[0].accuracy_mean.is_none());
        assert!(table.rows[2].mse_mean.is_none() && table.rows[2].accuracy_mean.is_some());
        let again = table4(&small(), Some(folder.path()), &stop, &Silent).unwrap();
        assert_eq!(again.runs, table.runs, "finished runs are taken as they are");
    }

    #[test]
    fn an_interrupt_is_an_interrupt() {
        let stop = AtomicBool::new(true);
        let error = table4(&small(), None, &stop, &Silent).unwrap_err();
        assert_eq!(error.exit_code(), 130);
    }

    #[test]
    fn only_three_examples_exist() {
        let plan = Plan { examples: vec![4], ..small() };
        let error = table4(&plan, None, &AtomicBool::new(false), &Silent).unwrap_err();
        assert!(error.to_string().contains("must be 1, 2 or 3"), "{error}");
    }
}
