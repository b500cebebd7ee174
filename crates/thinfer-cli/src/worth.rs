//! What a run is worth, whatever it was trained on.

use serde_json::{Value, json};
use thinfer::evaluate::{Evaluation, evaluate, score};
use thinfer::images::classify;
use thinfer::posterior::Predictive;
use thinfer::run::{ImageRun, Trained};
use thinfer::train::OnCuda;
use thinfer_engine::Dataset;

use crate::device::Chosen;
use crate::summary;
use crate::text_table::{number, percent, seconds};

/// The evaluation of a run.
pub(crate) enum Worth {
    /// On a table.
    Table(Box<Evaluation>),
    /// On images.
    Images(Value),
}

impl Worth {
    /// Evaluates a run.
    pub(crate) fn of(run: &Trained, chosen: &Chosen) -> anyhow::Result<Self> {
        Ok(match run {
            Trained::Table(run) => {
                let evaluation = evaluate(&run.info.network, &run.data, &run.results)?;
                Worth::Table(Box::new(evaluation))
            }
            Trained::Images(run) => Worth::Images(images(run, chosen)?),
        })
    }

    /// As JSON.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        Ok(match self {
            Worth::Table(evaluation) => serde_json::to_value(evaluation)?,
            Worth::Images(value) => value.clone(),
        })
    }

    /// As text; `trained` is how long it took, where that is known.
    pub(crate) fn text(&self, trained: Option<f64>) -> String {
        match self {
            Worth::Table(evaluation) => summary::to_text(evaluation, trained),
            Worth::Images(value) => {
                let line = |name: &str| {
                    let scores = &value[name];
                    let get = |key: &str| scores[key].as_f64().unwrap_or(f64::NAN);
                    format!(
                        "{name}: {} members, accuracy {}, NLL {}, ECE {}\n",
                        scores["members"],
                        percent(get("accuracy")),
                        number(get("nll")),
                        number(get("ece"))
                    )
                };
                let mut text = line("posterior") + &line("all_samples") + &line("last");
                text.push_str(&format!("sparsity {}", value["sparsity"]));
                if let Some(trained) = trained {
                    text.push_str(&format!(", trained in {}", seconds(trained)));
                }
                text
            }
        }
    }

    /// The report of the run.
    pub(crate) fn report(&self, run: &Trained) -> anyhow::Result<Option<String>> {
        match (self, run) {
            (Worth::Table(evaluation), Trained::Table(run)) => {
                Ok(Some(thinfer::report::html(run, evaluation)?))
            }
            _ => Ok(None),
        }
    }
}

fn images(run: &ImageRun, chosen: &Chosen) -> anyhow::Result<Value> {
    let on = OnCuda::open(chosen.device, &run.info.config)?;
    let members: Vec<_> = run.results.iter().flat_map(|r| r.snapshots.clone()).collect();
    let data = &run.data;
    let all = classify(&run.info.network, &members, &data.test, &data.augment, on.as_ref())?;
    let truth = data.test.labels().iter().map(|&l| l as f32).collect();
    let truth = Dataset::new(1, 1, vec![0.0; data.test.rows()], truth)?;
    let classes = data.classes.len();
    let scores = |members: Vec<Vec<f64>>| {
        score(&Predictive::Classes { classes, members }, &truth, (0.0, 1.0))
    };
    let last = members.last().map(|m| m.keep.clone()).unwrap_or_default();
    let shared: Vec<Vec<f64>> =
        all.iter().zip(&members).filter(|(_, m)| m.keep == last).map(|(p, _)| p.clone()).collect();
    let gone = last.iter().filter(|k| **k == 0).count();
    Ok(json!({
        "posterior": scores(shared),
        "last": scores(vec![all[all.len() - 1].clone()]),
        "all_samples": scores(all),
        "sparsity": gone as f64 / last.len().max(1) as f64,
    }))
}
