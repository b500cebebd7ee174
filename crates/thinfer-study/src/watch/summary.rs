//! What the page says of a run in one line.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_core::train::{Record, Silent, read_times};
use thinfer_data::files::read_json;
use thinfer_run::config::Config;
use thinfer_run::run::{Left, RunInfo, State, Status};

/// One run in the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    /// By which its curves are asked for.
    pub(super) id: String,
    /// Changes when its curves do.
    pub(super) version: String,
    pub(super) name: String,
    about: String,
    pub(super) state: &'static str,
    message: Option<String>,
    epoch: usize,
    epochs: usize,
    done: Option<f64>,
    seconds: Option<f64>,
    left: Option<Left>,
    loss: Option<f64>,
    metric: Option<Metric>,
    pruned: Option<f64>,
    temperature: Option<f64>,
    rhat: Option<f64>,
}

/// A score on test rows or images.
#[derive(Clone, Copy, Debug, Serialize)]
struct Metric {
    name: &'static str,
    value: f64,
    percent: bool,
}

/// What is read of an evaluation, of either kind of data.
#[derive(Deserialize)]
struct Evaluated {
    posterior: Scores,
    #[serde(default)]
    convergence: Option<Convergence>,
}

#[derive(Deserialize)]
struct Scores {
    mse: Option<f64>,
    accuracy: Option<f64>,
    nll: Option<f64>,
}

#[derive(Deserialize)]
struct Convergence {
    predictions: Option<Predictions>,
}

#[derive(Deserialize)]
struct Predictions {
    r_hat: Option<f64>,
}

/// What is known of a run.
pub(super) struct Known<'a> {
    pub(super) folder: &'a Path,
    pub(super) info: &'a RunInfo,
    pub(super) chains: &'a [(u32, Vec<Record>)],
    pub(super) status: Option<&'a Status>,
    pub(super) state: State,
}

impl Summary {
    /// Of a run whose `run.json` cannot be read.
    pub(super) fn unreadable(id: String, name: String, message: String) -> Self {
        Self {
            version: String::new(),
            about: String::new(),
            state: "unreadable",
            message: Some(message),
            epoch: 0,
            epochs: 0,
            done: None,
            seconds: None,
            left: None,
            loss: None,
            metric: None,
            pruned: None,
            temperature: None,
            rhat: None,
            id,
            name,
        }
    }

    pub(super) fn of(id: String, version: String, name: String, run: &Known<'_>) -> Self {
        let Known { folder, info, chains, status, state } = *run;
        let config = &info.config;
        let last: Vec<&Record> = chains.iter().filter_map(|(_, records)| records.last()).collect();
        let mean = |value: &dyn Fn(&Record) -> Option<f64>| {
            let values: Vec<f64> = last.iter().filter_map(|record| value(record)).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (!values.is_empty() && mean.is_finite()).then_some(mean)
        };
        // The chain that is least far; one that has no record yet is at its start.
        let epochs_done = if last.len() < config.chains && state == State::Running {
            0
        } else {
            last.iter().map(|record| record.epoch + 1).min().unwrap_or(0)
        };
        let evaluated = (state == State::Finished).then(|| evaluation(folder)).flatten();
        let agreed = status.and_then(|status| status.agreed.last());
        let rhat = evaluated.as_ref().and_then(Evaluated::r_hat);
        let in_training = || {
            let value = mean(&|record| record.test_accuracy)?;
            Some(Metric { name: "accuracy", value, percent: true })
        };
        let rows = info.rows.0 as f64;
        Self {
            id,
            version,
            name,
            about: about(config),
            state: word(state),
            message: message(status, state),
            epoch: epochs_done,
            epochs: config.train.epochs,
            done: status.map(|status| status.done),
            seconds: seconds(folder, config, status, state),
            left: status.and_then(|status| status.left),
            loss: mean(&|record| Some(record.loss)),
            metric: evaluated.as_ref().and_then(Evaluated::metric).or_else(in_training),
            pruned: mean(&|record| Some(record.sparsity)),
            temperature: mean(&|record| record.effective_temperature.map(|t| t * rows)),
            rhat: rhat.or(agreed.map(|agreed| agreed.r_hat)),
        }
    }
}

impl Evaluated {
    fn metric(&self) -> Option<Metric> {
        let Scores { mse, accuracy, nll } = self.posterior;
        let of = |name, percent| move |value| Metric { name, value, percent };
        let found = accuracy.map(of("accuracy", true)).or(mse.map(of("MSE", false)));
        found.or(nll.map(of("NLL", false)))
    }

    fn r_hat(&self) -> Option<f64> {
        self.convergence.as_ref()?.predictions.as_ref()?.r_hat
    }
}

/// The evaluation of a run. The page shows a run without one; `compare` says what is wrong with it.
fn evaluation(folder: &Path) -> Option<Evaluated> {
    read_json(&folder.join("evaluation.json"), "").ok().flatten()
}

fn word(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Evaluating => "evaluating",
        State::Finished => "finished",
        State::Stopped => "stopped",
        State::Failed => "failed",
    }
}

fn about(config: &Config) -> String {
    let chains = config.chains;
    let plural = if chains == 1 { "" } else { "s" };
    format!(
        "{} on {}, {chains} chain{plural}, seed {}",
        config.method.kind.name(),
        config.data.kind.name(),
        config.seed
    )
}

/// What a run that is not at work needs.
fn message(status: Option<&Status>, state: State) -> Option<String> {
    match state {
        State::Failed => status.and_then(|status| status.message.clone()),
        State::Stopped => Some("go on with `thinfer train … --resume`".into()),
        State::Running | State::Evaluating | State::Finished => None,
    }
}

/// How long a run has trained: by its own word while it does, by the times of its epochs after.
fn seconds(folder: &Path, config: &Config, status: Option<&Status>, state: State) -> Option<f64> {
    if state == State::Running {
        return status.map(|status| status.seconds);
    }
    let of_chain = |chain: usize| {
        let times = read_times(&folder.join(format!("chain-{chain}")), &Silent);
        times.iter().map(|time| time.seconds).sum::<f64>()
    };
    let longest = (0..config.chains).map(of_chain).fold(0.0, f64::max);
    (longest > 0.0).then_some(longest)
}
