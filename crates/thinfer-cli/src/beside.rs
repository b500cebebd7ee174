//! What is said of a run before its scores, and what a constant and a linear model score beside it.

use thinfer::evaluate::{Beside, PlainScores, Verdict};

use crate::text_table::{align, number, percent};

/// What the user has to know before the scores, a line each.
pub(crate) fn cautions(verdict: Option<&Verdict>) -> String {
    let all = verdict.map_or(&[][..], |verdict| &verdict.cautions);
    let lines: String = all.iter().map(|caution| sentence(caution)).collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

/// A line that begins with a capital and ends with a point.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    format!("{}{}.\n", first.collect::<String>(), letters.as_str())
}

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
