//! One run on one data set.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thinfer_core::train::{Setting, Silent, run_chains};
use thinfer_data::Bundle;
use thinfer_data::threads::Threads;
use thinfer_data::{Error, Result};
use thinfer_run::config::Config;
use thinfer_run::evaluate::{evaluate, score};
use thinfer_run::experiment::chain_specs;

use super::example::Example;
use super::plan::{Job, Plan};
use super::row::Row;
use super::scored::Scored;
use crate::selectors::{PathPoint, Quality, Selector, quality, threshold_path};

/// One run on one data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The design.
    pub example: Example,
    /// The row.
    pub method: Row,
    /// The repeat, which is also the seed of data and method.
    pub repeat: u64,
    /// The fingerprint of the settings, so that results of others are not mixed in.
    pub fingerprint: u32,
    /// Test MSE of the prediction, for EM-MCMC the posterior average.
    pub mse: Option<f64>,
    /// Test accuracy of the prediction.
    pub accuracy: Option<f64>,
    /// Test MSE of the last sample alone; EM-MCMC only.
    pub last_mse: Option<f64>,
    /// Test accuracy of the last sample alone; EM-MCMC only.
    pub last_accuracy: Option<f64>,
    /// Networks that were averaged; 0 for a linear model.
    pub members: usize,
    /// Share of selected variables that do not matter.
    pub fdr: f64,
    /// Share of variables that matter and were not selected.
    pub fndr: f64,
    /// Share of variables that matter and were selected.
    pub power: f64,
    /// The selected variables.
    pub selected: Vec<String>,
    /// Whether they are exactly the right ones.
    pub perfect: bool,
    /// What other thresholds or penalties would have selected, against the truth.
    pub path: Vec<PathQuality>,
    /// What the selector chose on its way.
    pub chosen: BTreeMap<String, f64>,
    /// The largest mean loss of an epoch after the first tenth of the run; EM-MCMC only.
    pub largest_loss: Option<f64>,
    /// The mean loss of the last epoch; EM-MCMC only.
    pub final_loss: Option<f64>,
    /// Steps whose gradient was clipped; EM-MCMC only.
    pub clipped_steps: Option<u64>,
    /// Wall-clock time on one thread.
    pub seconds: f64,
}

/// A point of a path, against the truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathQuality {
    /// The threshold or the penalty.
    pub at: f64,
    /// How many variables it selects.
    pub selected: usize,
    /// The loss by which the selector judges it.
    pub loss: Option<f64>,
    /// Share of false ones, where the point lists its columns.
    pub fdr: Option<f64>,
    /// Share of the true ones that it has.
    pub power: Option<f64>,
}

fn path_quality(path: &[PathPoint], truth: &[usize]) -> Vec<PathQuality> {
    path.iter()
        .map(|point| {
            let quality = point.columns.as_ref().map(|columns| quality(columns, truth));
            PathQuality {
                at: point.at,
                selected: point.selected,
                loss: point.loss,
                fdr: quality.map(|q| q.fdr),
                power: quality.map(|q| q.power),
            }
        })
        .collect()
}

impl Plan {
    /// Runs one job on one thread.
    pub(super) fn run(&self, job: Job, stop: &AtomicBool) -> Result<Outcome> {
        let config = self.config(job.example, job.row, job.repeat)?;
        let data = Bundle::load(&config.data, config.seed)?;
        let truth = data
            .truth
            .clone()
            .ok_or_else(|| Error::Data("the variables that matter are not known".into()))?;
        let mut outcome = match self.selector(job.example, job.row)? {
            Some(selector) => run_selector(&selector, &config, &data, &truth, job, stop)?,
            None => run_em_mcmc(&config, &data, &truth, job, stop)?,
        };
        outcome.fingerprint = self.fingerprint(job)?;
        Ok(outcome)
    }
}

fn outcome(job: Job, names: &[String], selected: &[usize], truth: &[usize]) -> Outcome {
    let Quality { fdr, fndr, power, exact, .. } = quality(selected, truth);
    Outcome {
        example: job.example,
        method: job.row,
        repeat: job.repeat,
        fingerprint: 0,
        mse: None,
        accuracy: None,
        last_mse: None,
        last_accuracy: None,
        members: 0,
        fdr,
        fndr,
        power,
        selected: selected.iter().map(|&v| names[v].clone()).collect(),
        perfect: exact,
        path: Vec::new(),
        chosen: BTreeMap::new(),
        largest_loss: None,
        final_loss: None,
        clipped_steps: None,
        seconds: 0.0,
    }
}

fn run_selector(
    selector: &Selector,
    config: &Config,
    data: &Bundle,
    truth: &[usize],
    job: Job,
    stop: &AtomicBool,
) -> Result<Outcome> {
    // Runs go side by side, one a core, so none of them may take the others' threads.
    let alone = Threads::new(1);
    let found = alone.install(|| selector.fit(data, config.seed, stop))?;
    let predictive = alone.install(|| found.predictor.predict(&data.test))?;
    let scores = score(&predictive, &data.test, data.schema.target_scale());
    Ok(Outcome {
        mse: scores.mse,
        accuracy: scores.accuracy,
        members: scores.members,
        path: path_quality(&found.path, truth),
        chosen: found.chosen,
        seconds: found.seconds,
        ..outcome(job, &data.names, &found.columns, truth)
    })
}

fn run_em_mcmc(
    config: &Config,
    data: &Bundle,
    truth: &[usize],
    job: Job,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let mut specs = chain_specs(config, data)?;
    let network = specs[0].network.clone();
    let scored = Scored::watch(config, &mut specs[0])?;
    let started = Instant::now();
    let setting = Setting::in_memory(stop, &Silent, 1);
    let results = run_chains(specs, &data.train, &setting)?;
    let seconds = started.elapsed().as_secs_f64();
    let evaluation = evaluate(config, &network, data, &results)?;
    let number = |name: &String| data.names.iter().position(|n| n == name);
    let selected: Vec<usize> = evaluation.selected.iter().filter_map(number).collect();
    Ok(Outcome {
        mse: evaluation.posterior.mse,
        accuracy: evaluation.posterior.accuracy,
        last_mse: evaluation.last.mse,
        last_accuracy: evaluation.last.accuracy,
        members: evaluation.posterior.members,
        path: path_quality(&threshold_path(&scored.scores()), truth),
        largest_loss: Some(evaluation.behaviour.largest_loss),
        final_loss: Some(evaluation.behaviour.final_loss),
        clipped_steps: Some(evaluation.behaviour.clipped_steps),
        seconds,
        ..outcome(job, &data.names, &selected, truth)
    })
}
