//! A run and its evaluation, as text.

use thinfer::evaluated::Evaluated;
use thinfer::run::Run;

use crate::{beside, frozen, image_summary, summary};

/// An error where chains blew up: what is left is shown, but it is not what was asked for.
pub(crate) fn check(run: &Run, evaluated: &Evaluated) -> anyhow::Result<()> {
    let chains = run.results.len();
    let names: Vec<String> = evaluated.blown_up().iter().map(u32::to_string).collect();
    let which = match &names[..] {
        [] => return Ok(()),
        [one] => format!("chain {one} of {chains} blew up and is"),
        _ => format!("chains {} of {chains} blew up and are", names.join(", ")),
    };
    anyhow::bail!(
        "{which} left out of every average; its loss is in history.csv. Train again with a smaller `schedule.step_size.value`"
    )
}

/// As text; `trained` is how long it took, where that is known.
pub(crate) fn to_text(run: &Run, evaluated: &Evaluated, trained: Option<f64>) -> String {
    let config = &run.info.config;
    let scores = match evaluated {
        Evaluated::Table(found) => summary::to_text(found, config, run.data.classes(), trained),
        Evaluated::Images(found) => image_summary::to_text(found, config, trained),
    };
    beside::cautions(evaluated.verdict()) + &scores + &frozen::to_text(&run.results, config)
}
