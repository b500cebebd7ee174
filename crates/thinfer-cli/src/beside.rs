//! What a constant and a linear model score beside a run.

use thinfer::evaluate::{Beside, PlainScores};

use crate::text_table::{align, number, percent};

/// The scores of the posterior beside those of simple predictions.
pub(crate) fn to_text(beside: &Beside) -> String {
    let classes = beside.posterior.accuracy.is_some();
    let heads: &[&str] =
        if classes { &["accuracy", "AUC", "log loss"] } else { &["RMSE", "R2", "MAE"] };
    let row = |name: &str, scores: &PlainScores| -> Vec<String> {
        let told = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let cells = if classes {
            let accuracy = scores.accuracy.map_or_else(|| "-".to_owned(), percent);
            [accuracy, told(scores.auc), told(scores.log_loss)]
        } else {
            [told(scores.rmse), told(scores.r2), told(scores.mae)]
        };
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let head = std::iter::once("beside others").chain(heads.iter().copied());
    let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    rows.push(row("posterior", &beside.posterior));
    rows.extend(beside.linear.as_ref().map(|linear| row("linear model on all columns", linear)));
    rows.push(row("constant", &beside.constant));
    align(&rows)
}
