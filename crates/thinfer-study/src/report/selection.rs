//! How the variables of a run were selected, and what rivals of its model are worth.

use thinfer_data::Task;

use super::page::{
    Section, count, listed, number_or_nothing, paragraph, percent, percent_or_nothing, remark,
    section, sortable,
};
use crate::select::{Form, Model, ModelScores, Selected};

/// Names in a sentence, at most.
const MOST_NAMES: usize = 12;

/// The section about the selection.
pub(super) fn section_of(selected: &Selected) -> Section {
    let mut html = paragraph(&format!("{}.", selected.summary));
    html += &models(selected);
    if let Some(advice) = &selected.advice {
        html += &paragraph(&format!("Note: {advice}."));
    }
    let mut near: Vec<(&String, &f64)> = selected
        .frequency
        .iter()
        .filter(|(name, share)| **share > 0.0 && !selected.selected.contains(name))
        .collect();
    near.sort_by(|a, b| b.1.total_cmp(a.1));
    if !near.is_empty() {
        let near: Vec<String> =
            near.iter().map(|(name, share)| format!("{name} ({})", percent(**share))).collect();
        html += &paragraph(&format!(
            "Not selected, though some chain had a use for them (frequency): {}.",
            listed(&near, MOST_NAMES)
        ));
    }
    html += &remark(&format!(
        "Selected by {} chains in both forms, each asked on rows that it had not seen; the form \
         `{}` predicted them better. The held-out rows were looked at for these scores alone.",
        selected.chains,
        match selected.form {
            Form::Hidden => "hidden units",
            Form::Linear => "linear",
        }
    ));
    section("selection", "Selection, and what others are worth", html)
}

fn models(selected: &Selected) -> String {
    let regression = selected.task == Task::Regression;
    let rows = format!("On {} held-out rows", count(selected.heldout.rows));
    let head = if regression {
        [rows.as_str(), "Variables", "RMSE", "R\u{b2}", "MAE"]
    } else {
        [rows.as_str(), "Variables", "Accuracy", "AUC", "Log loss"]
    };
    let row = |of: &ModelScores| {
        let mut cells = vec![name(of, selected).to_owned(), count(of.variables)];
        cells.extend(if regression {
            [number_or_nothing(of.rmse), three(of.r2), number_or_nothing(of.mae)]
        } else {
            [percent_or_nothing(of.accuracy), three(of.auc), number_or_nothing(of.log_loss)]
        });
        cells
    };
    sortable(&head, &selected.models.iter().map(row).collect::<Vec<_>>())
}

/// A share of a variance or an area, with three decimals.
pub(super) fn three(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(
        || "\u{2013}".to_owned(),
        |value| format!("{value:.3}").replace('-', "\u{2212}"),
    )
}

fn name(of: &ModelScores, selected: &Selected) -> &'static str {
    match (of.model, selected.task, selected.form) {
        (Model::Selected, _, Form::Hidden) => "This network",
        (Model::Selected, _, Form::Linear) => "This Bayesian linear model",
        (Model::Linear, Task::Regression, _) => "Ridge model on all variables",
        (Model::Linear, Task::Classification, _) => "Logistic model on all variables",
        (Model::Lasso, ..) => "Lasso",
        (Model::Constant, Task::Regression, _) => "The mean",
        (Model::Constant, Task::Classification, _) => "The most frequent class",
    }
}
