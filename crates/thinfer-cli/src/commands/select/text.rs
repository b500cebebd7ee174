//! The result of a selection as text.

use thinfer::data::Task;
use thinfer::effects::Direction;
use thinfer::select::{Effect, Form, Model, ModelScores, Selected};

use crate::text_table::{align, number, percent, seconds};

/// Variables in the text at most; the JSON has all of them.
const SHOWN: usize = 25;
/// Variables of another selector in the text at most.
const OF_OTHERS: usize = 8;

pub(super) fn to_text(result: &Selected) -> String {
    let mut text = format!("{}\n", result.summary);
    if !result.effects.is_empty() {
        text.push_str(&format!("\n{}", effects(result)));
    }
    text.push_str(&format!("\n{}", models(result)));
    if let Some(coverage) = result.heldout.coverage90 {
        text.push_str(&format!("90 % intervals hold {} of the rows\n", percent(coverage)));
    }
    if let Some(advice) = &result.advice {
        text.push_str(&format!("note: {advice}\n"));
    }
    if !result.others.is_empty() {
        text.push_str(&format!("\n{}", others(result)));
    }
    text.push_str(&format!("{} chains, {}\n", result.chains, seconds(result.seconds)));
    text
}

fn effects(result: &Selected) -> String {
    let head = ["variable", "frequency", "direction", "change", "of the error", "z"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(result.effects.iter().take(SHOWN).map(|e| {
        vec![
            e.name.clone(),
            percent(e.frequency),
            direction(e),
            e.change.map_or_else(|| "-".to_owned(), |change| amount(change, result.task)),
            percent(e.relative_effect),
            format!("{:.1}", e.z),
        ]
    }));
    let more = match result.effects.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("and {more} more; --json has all of them\n"),
    };
    let unit = if result.task == Task::Regression { "squared error" } else { "log loss" };
    align(&rows)
        + &more
        + &format!(
            "\
frequency: share of chains that read it and need it on unseen rows, no probability
change: of the mean prediction along the variable, all else as it is
of the error: how much the held-out {unit} grows without it, of a constant's
"
        )
}

/// What more of a variable does, in a word or two.
fn direction(effect: &Effect) -> String {
    match &effect.direction {
        None => "-".to_owned(),
        Some(Direction::Up) => "up".to_owned(),
        Some(Direction::Down) => "down".to_owned(),
        Some(Direction::Curved) => "bends".to_owned(),
        Some(Direction::Levels { highest, .. }) => format!("most: {}", shortened(highest)),
    }
}

/// The beginning of a name that may be long.
fn shortened(name: &str) -> String {
    const MOST: usize = 12;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

/// A change in the target's units, or of a probability.
fn amount(change: f64, task: Task) -> String {
    match task {
        Task::Regression => number(change),
        Task::Classification => percent(change),
    }
}

fn models(result: &Selected) -> String {
    let regression = result.task == Task::Regression;
    let scores: [&str; 3] =
        if regression { ["RMSE", "R²", "MAE"] } else { ["accuracy", "AUC", "log loss"] };
    let mut head = vec![format!("{} held-out rows", result.heldout.rows)];
    head.extend(scores.map(str::to_owned));
    let mut rows = vec![head];
    rows.extend(result.models.iter().map(|of| {
        let cell = |value: Option<f64>, show: fn(f64) -> String| {
            value.map_or_else(|| "-".to_owned(), show)
        };
        let three = |value: f64| format!("{value:.3}");
        let mut cells = vec![name(of, result)];
        cells.extend(if regression {
            [cell(of.rmse, number), cell(of.r2, three), cell(of.mae, number)]
        } else {
            [cell(of.accuracy, percent), cell(of.auc, three), cell(of.log_loss, number)]
        });
        cells
    }));
    align(&rows)
}

/// What a model is called.
fn name(of: &ModelScores, result: &Selected) -> String {
    let regression = result.task == Task::Regression;
    let on = |kind: &str| match of.variables {
        all if all == result.variables => format!("{kind} on all {all}"),
        1 => format!("{kind} on 1 variable"),
        some => format!("{kind} on {some} variables"),
    };
    match of.model {
        Model::Selected => match result.form {
            Form::Hidden => on("Bayesian network"),
            Form::Linear => on("Bayesian linear model"),
        },
        Model::Linear if regression => on("ridge model"),
        Model::Linear => on("logistic model"),
        Model::Lasso => on("lasso"),
        Model::Constant if regression => "the mean".to_owned(),
        Model::Constant => "the most frequent class".to_owned(),
    }
}

fn others(result: &Selected) -> String {
    let head = ["selector", "variables", "held out", "seconds", "which"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(result.others.iter().map(|other| {
        let score = other.mse.map(|m| format!("MSE {}", number(m)));
        let score = score.or_else(|| other.accuracy.map(|a| format!("accuracy {}", percent(a))));
        let mut which = other.selected[..other.selected.len().min(OF_OTHERS)].join(" ");
        if other.selected.len() > OF_OTHERS {
            which.push_str(" …");
        }
        vec![
            other.name.clone(),
            other.selected.len().to_string(),
            score.unwrap_or_default(),
            format!("{:.1}", other.seconds),
            which,
        ]
    }));
    align(&rows)
}
