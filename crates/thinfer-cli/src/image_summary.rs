//! The evaluation of a run on images, as text.

use thinfer::config::Config;
use thinfer::images::{Amounts, ForeignScores, ImageEvaluation, ImageScores};
use thinfer::metrics::Detection;

use crate::summary::{incidents, temperature};
use crate::text_table::{align, number, percent, seconds};

/// Snapshots and confusions in the text at most; the JSON has all of them.
const SHOWN: usize = 12;
/// Confusions that are named.
const CONFUSIONS: usize = 3;

/// The evaluation of a run as text; `trained` is how long it took, where that is known.
pub(crate) fn to_text(
    evaluation: &ImageEvaluation,
    config: &Config,
    trained: Option<f64>,
) -> String {
    let method = config.method.kind;
    let parts = [
        scores(evaluation),
        snapshots(evaluation),
        foreign(&evaluation.foreign),
        facts(evaluation, trained),
        incidents(&evaluation.behaviour, evaluation.classes.len(), method),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn scores(evaluation: &ImageEvaluation) -> String {
    let samples = |scores: &ImageScores| match scores.members {
        1 => "1 sample".to_owned(),
        many => format!("{many} samples"),
    };
    let row = |name: String, s: &ImageScores| {
        let scores = s.named().into_iter().map(|score| number(score.value));
        [name, percent(s.accuracy)].into_iter().chain(scores).collect::<Vec<_>>()
    };
    let title = [format!("{} test images", evaluation.images.1), "accuracy".to_owned()];
    let head = evaluation.posterior.named().into_iter().map(|score| score.short.to_owned());
    let mut rows = vec![title.into_iter().chain(head).collect::<Vec<_>>()];
    rows.push(row(
        format!(
            "posterior ({}{})",
            samples(&evaluation.posterior),
            evaluation.convergence.label(evaluation.behaviour.adds_noise())
        ),
        &evaluation.posterior,
    ));
    if evaluation.all_samples.members != evaluation.posterior.members {
        let name = format!("with earlier masks ({})", samples(&evaluation.all_samples));
        rows.push(row(name, &evaluation.all_samples));
    }
    rows.push(row("last sample alone".into(), &evaluation.last));
    if evaluation.cycles.len() > 1 {
        for cycle in &evaluation.cycles {
            let name = format!("cycle {} ({})", cycle.cycle + 1, samples(&cycle.scores));
            rows.push(row(name, &cycle.scores));
        }
    }
    align(&rows)
}

/// The share that is left when dead channels are cut.
fn left(amounts: Amounts) -> String {
    percent(amounts.channels as f64 / amounts.whole.max(1) as f64)
}

fn snapshots(evaluation: &ImageEvaluation) -> String {
    let head = ["epoch", "chain", "accuracy", "NLL", "ECE", "sparsity", "multiply-adds", "mask"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let all = &evaluation.snapshots;
    for s in all.iter().skip(all.len().saturating_sub(SHOWN)) {
        rows.push(vec![
            (s.epoch + 1).to_string(),
            s.chain.to_string(),
            percent(s.scores.accuracy),
            number(s.scores.nll),
            number(s.scores.ece),
            percent(s.sparsity.value()),
            left(s.multiply_adds),
            match (s.kept, s.final_mask) {
                (true, _) => "final",
                (false, true) => "final, not averaged",
                (false, false) => "earlier",
            }
            .to_owned(),
        ]);
    }
    let more = match all.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("and {more} earlier snapshots; --json has all of them\n"),
    };
    align(&rows) + &more
}

fn foreign(sets: &[ForeignScores]) -> String {
    if sets.is_empty() {
        return String::new();
    }
    let head = ["told from the test images", "images", "AUROC", "AUPR", "FPR at 95 % TPR"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let row = |set: &ForeignScores, by: &str, found: Option<Detection>| {
        found.map(|d| {
            let name = format!("{}, by {by}", set.name);
            vec![name, set.images.to_string(), number(d.auroc), number(d.aupr), percent(d.fpr95)]
        })
    };
    for set in sets {
        rows.extend(row(set, "largest probability", set.max_probability));
        rows.extend(row(set, "entropy", set.entropy));
        rows.extend(row(set, "mutual information", set.mutual_information));
    }
    align(&rows)
}

fn facts(evaluation: &ImageEvaluation, trained: Option<f64>) -> String {
    let mut lines = Vec::new();
    let several = evaluation.sizes.len() > 1;
    for (chain, size) in evaluation.sizes.iter().enumerate().take(if several { SHOWN } else { 1 }) {
        let of = if several { format!(" of chain {chain}") } else { String::new() };
        lines.push(format!(
            "size{of}: {} of {} parameters left, {} pruned ({} of convolution and linear weights)",
            size.kept,
            size.parameters,
            percent(size.sparsity.value()),
            percent(size.weight_sparsity.value())
        ));
        let (macs, bytes) = (size.multiply_adds, size.bytes);
        lines.push(format!(
            "without dead channels: {} of {} multiply-adds an image ({}), {} of {} bytes ({})",
            macs.channels,
            macs.whole,
            left(macs),
            bytes.channels,
            bytes.whole,
            left(bytes)
        ));
        lines.extend(size.emptied());
    }
    let confused: Vec<String> = evaluation
        .confusions
        .iter()
        .take(CONFUSIONS)
        .map(|c| format!("{} for {} ({})", c.truth, c.predicted, c.count))
        .collect();
    if !confused.is_empty() {
        lines.push(format!("most often taken: {}", confused.join(", ")));
    }
    lines.push(temperature(&evaluation.behaviour));
    if evaluation.behaviour.adds_noise() {
        lines.push(format!("convergence: {}", evaluation.convergence.sentence()));
    }
    if let Some(trained) = trained {
        lines.push(format!("time: {}", seconds(trained)));
    }
    lines.extend(evaluation.unreadable.notes());
    lines.join("\n") + "\n"
}
