//! What a run is worth, whatever it was trained on.

use serde_json::Value;
use thinfer::data::Images;
use thinfer::device::OnCuda;
use thinfer::evaluate::Evaluation;
use thinfer::images::{Judged, judge};
use thinfer::run::{ImageRun, Run, Trained};

use crate::device::Chosen;
use crate::{frozen, image_summary, summary};

/// A run and its evaluation.
pub(crate) enum Worth<'a> {
    /// On a table.
    Table(&'a Run, Box<Evaluation>),
    /// On images.
    Images(&'a ImageRun, Box<Judged>),
}

impl<'a> Worth<'a> {
    /// Evaluates a run; one on images also against other images, by name.
    pub(crate) fn of(
        run: &'a Trained,
        foreign: &[(String, Images)],
        chosen: &Chosen,
    ) -> anyhow::Result<Self> {
        Ok(match run {
            Trained::Table(run) => {
                let evaluation = run.evaluate()?;
                Worth::Table(run, Box::new(evaluation))
            }
            Trained::Images(run) => {
                let on = OnCuda::open(chosen.device, run.info.config.train.precision.into())?;
                Worth::Images(run, Box::new(judge(run, foreign, on.as_ref())?))
            }
        })
    }

    /// An error where chains blew up: what is left is shown, but it is not what was asked for.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (blown_up, chains) = match self {
            Worth::Table(run, evaluation) => (&evaluation.blown_up, run.results.len()),
            Worth::Images(run, judged) => (&judged.evaluation.blown_up, run.results.len()),
        };
        let names: Vec<String> = blown_up.iter().map(u32::to_string).collect();
        let which = match &names[..] {
            [] => return Ok(()),
            [one] => format!("chain {one} of {chains} blew up and is"),
            _ => format!("chains {} of {chains} blew up and are", names.join(", ")),
        };
        anyhow::bail!(
            "{which} left out of every average; its loss is in history.csv. Train again with a smaller `schedule.step_size.value`"
        )
    }

    /// As JSON.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        Ok(match self {
            Worth::Table(_, evaluation) => serde_json::to_value(evaluation)?,
            Worth::Images(_, judged) => serde_json::to_value(&judged.evaluation)?,
        })
    }

    /// As text; `trained` is how long it took, where that is known.
    pub(crate) fn text(&self, trained: Option<f64>) -> String {
        match self {
            Worth::Table(run, evaluation) => {
                summary::to_text(evaluation, &run.info.config, run.data.classes, trained)
                    + &frozen::to_text(&run.results, &run.info.config)
            }
            Worth::Images(run, judged) => {
                image_summary::to_text(&judged.evaluation, &run.info.config, trained)
                    + &frozen::to_text(&run.results, &run.info.config)
            }
        }
    }

    /// The report of the run, as the text of an HTML file.
    pub(crate) fn report(&self) -> anyhow::Result<String> {
        Ok(match self {
            Worth::Table(run, evaluation) => thinfer::report::html(run, evaluation)?,
            Worth::Images(run, judged) => thinfer::report::images::of_run(run, judged)?,
        })
    }
}
