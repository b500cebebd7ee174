//! What came out: a sentence, the numbers that matter, and every snapshot.

use thinfer_run::images::{Amounts, ImageEvaluation, ImageScores};

use super::super::page::{
    Section, Tile, count, element, escape, number, paragraph, percent, plural, remark, section,
    sortable, table, verdict,
};
use super::super::summary::{preset_name, title};
use super::ImageReport;

/// Title, sentence and the few numbers that are looked for first. `warnings` is how many the run
/// gave rise to.
pub(super) fn head(report: &ImageReport<'_>, warnings: usize) -> String {
    let title = element("h1", &escape(&title(report.config)));
    let about = element("p class=\"about\"", &escape(&about(report)));
    let sentence = element("p class=\"summary\"", &escape(&sentence(report.evaluation)));
    let warnings = match warnings {
        0 => String::new(),
        n => {
            let link = format!("<a href=\"#behaviour\">{}</a>", plural(n, "warning"));
            element("p", &format!("{link} about this run."))
        }
    };
    let verdict = report.evaluation.verdict.as_ref().map_or_else(String::new, verdict);
    [title, verdict, about, sentence, warnings, tiles(report.evaluation)].concat()
}

/// Scores and sizes in tables.
pub(super) fn key_figures(evaluation: &ImageEvaluation) -> Section {
    section("key-figures", "Key figures", scores(evaluation) + &size(evaluation))
}

fn about(report: &ImageReport<'_>) -> String {
    let (config, shape) = (report.config, report.shape);
    let (train, test) = report.evaluation.images;
    format!(
        "{} training and {} test images of {} classes, {}\u{d7}{}{}; network {}; preset {}; {}, {}.",
        count(train),
        count(test),
        count(report.evaluation.classes.len()),
        shape.height,
        shape.width,
        if shape.channels == 1 { " grey" } else { " in colour" },
        config.model.name,
        preset_name(config.preset),
        plural(config.chains, "chain"),
        plural(config.train.epochs, "epoch"),
    )
}

fn sentence(evaluation: &ImageEvaluation) -> String {
    let scores = &evaluation.posterior;
    let size = evaluation.sizes.first();
    let pruned = size.map_or(0.0, |s| s.sparsity.value());
    let network = if pruned > 0.0 {
        format!("A network with {} of its parameters pruned", percent(pruned))
    } else {
        "A network with all of its parameters".to_owned()
    };
    let samples = match scores.members {
        1 => "with a single posterior sample".to_owned(),
        many => format!("as an average of {}", plural(many, "posterior sample")),
    };
    format!(
        "{network} reaches held-out accuracy {} (\u{b1}\u{a0}{}) {samples}, with NLL {} and a \
         calibration error of {}.",
        percent(scores.accuracy),
        percent(standard_error(evaluation)),
        number(scores.nll),
        number(scores.ece),
    )
}

/// The standard error of the accuracy that the number of test images allows.
fn standard_error(evaluation: &ImageEvaluation) -> f64 {
    let p = evaluation.posterior.accuracy;
    (p * (1.0 - p) / evaluation.images.1.max(1) as f64).sqrt()
}

fn tiles(evaluation: &ImageEvaluation) -> String {
    let scores = &evaluation.posterior;
    let mut all = vec![
        Tile::new(percent(scores.accuracy), "accuracy"),
        Tile::new(format!("{} nats", number(scores.nll)), "negative log-likelihood an image"),
        Tile::new(percent(scores.ece), "calibration error"),
    ];
    if let Some(size) = evaluation.sizes.first() {
        all.push(Tile::new(percent(size.sparsity.value()), "of parameters pruned"));
        all.push(Tile::new(left(size.multiply_adds), "of multiply-adds left"));
    }
    let samples = if scores.members == 1 { "posterior sample" } else { "posterior samples" };
    all.push(Tile::new(count(scores.members), samples));
    super::super::page::tiles(&all)
}

/// The share that whole channels leave.
fn left(amounts: Amounts) -> String {
    percent(amounts.channels as f64 / amounts.whole.max(1) as f64)
}

fn cells(scores: &ImageScores) -> Vec<String> {
    let first = [count(scores.members), percent(scores.accuracy)];
    first.into_iter().chain(scores.named().into_iter().map(|score| number(score.value))).collect()
}

fn scores(evaluation: &ImageEvaluation) -> String {
    let row = |name: String, scores: &ImageScores| {
        [name].into_iter().chain(cells(scores)).collect::<Vec<_>>()
    };
    let label = evaluation.convergence.label(evaluation.behaviour.adds_noise());
    let mut rows = vec![
        row(format!("Posterior{label}"), &evaluation.posterior),
        row("All samples".into(), &evaluation.all_samples),
        row("Last sample alone".into(), &evaluation.last),
    ];
    if evaluation.cycles.len() > 1 {
        let cycles = evaluation.cycles.iter();
        rows.extend(cycles.map(|c| row(format!("Cycle {}", c.cycle + 1), &c.scores)));
    }
    let named = evaluation.posterior.named();
    let head: Vec<&str> = ["On the test images", "Samples", "Accuracy"]
        .into_iter()
        .chain(named.iter().map(|score| score.name))
        .collect();
    table(&head, &rows)
        + &remark(
            "The posterior averages the samples after the burn-in that share their chain's final mask, \
             so it is one sparse network with several sets of weights; \u{201c}all samples\u{201d} averages \
             the others too; the last sample alone is that of each chain, its \
             scores averaged over chains. ECE has 15 bins. AURC is the mean error over all shares \
             of images that are answered, most certain first. Mutual information, in nats, is how \
             much the samples disagree.",
        )
}

fn size(evaluation: &ImageEvaluation) -> String {
    let Some(size) = evaluation.sizes.first() else { return String::new() };
    let row = |name: &str, amounts: Amounts, show: fn(usize) -> String| {
        vec![
            name.to_owned(),
            show(amounts.whole),
            show(amounts.kernels),
            show(amounts.channels),
            left(amounts),
        ]
    };
    let head = ["", "Whole network", "Kernels left", "Dead channels cut", "Left"];
    let rows = [
        row("Multiply-adds an image", size.multiply_adds, count),
        row("Bytes of 32-bit numbers", size.bytes, count),
    ];
    let several = match evaluation.sizes.len() {
        1 => "",
        _ => " Of the first chain; the masks of the others differ.",
    };
    let text = format!(
        "{} of {} parameters are pruned ({}); of the weights of convolutions and linear layers \
         {}.{several}",
        count(size.parameters - size.kept),
        count(size.parameters),
        percent(size.sparsity.value()),
        percent(size.weight_sparsity.value())
    );
    element("h3", "Size")
        + &paragraph(&text)
        + &table(&head, &rows)
        + &remark(
            "\u{201c}Kernels left\u{201d} counts every pair of channels whose kernel is not all pruned and \
             which lies on a way from the data to the output; \u{201c}dead channels cut\u{201d} is the smaller dense network without the channels that \
             are always zero or that nothing reads.",
        )
}

/// The table of snapshots.
pub(super) fn snapshots(evaluation: &ImageEvaluation) -> Section {
    let head = [
        "Epoch",
        "Chain",
        "Cycle",
        "Accuracy",
        "NLL",
        "ECE",
        "Sparsity",
        "Sparsity of weights",
        "Multiply-adds left",
        "Final mask",
        "Averaged",
    ];
    let rows: Vec<Vec<String>> = evaluation
        .snapshots
        .iter()
        .map(|s| {
            vec![
                count(s.epoch + 1),
                s.chain.to_string(),
                count(s.cycle + 1),
                percent(s.scores.accuracy),
                number(s.scores.nll),
                number(s.scores.ece),
                percent(s.sparsity.value()),
                percent(s.weight_sparsity.value()),
                left(s.multiply_adds),
                if s.final_mask { "yes" } else { "no" }.to_owned(),
                if s.kept { "yes" } else { "no" }.to_owned(),
            ]
        })
        .collect();
    let html = sortable(&head, &rows)
        + &remark(
            "Each snapshot by itself. Those that are averaged make up the posterior: with the final \
             mask, after the burn-in, and as many of each chain.",
        );
    section("snapshots", "Snapshots", html)
}
