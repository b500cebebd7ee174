//! The head of the page: what was done, what came out, in a sentence and in tables.

use thinfer_core::metrics;
use thinfer_core::posterior::Predictive;
use thinfer_data::Task;
use thinfer_run::config::{Config, DataKind, Preset};
use thinfer_run::evaluate::{Evaluation, Scores};

use super::of_table::TableRun;
use super::page::{
    Section, Tile, count, element, escape, listed, number, number_or_nothing, paragraph, percent,
    percent_or_nothing, plural, quantity, remark, section, table, tiles, verdict,
};
use super::selection::three;
use super::variables::shortened;
use crate::select::Selected;

/// Names in a sentence, at most.
const MOST_NAMES: usize = 12;

/// The title: the data and the method, in the words of the configuration.
pub(super) fn title(config: &Config) -> String {
    format!("{}, {}", data_name(config), config.method.kind.name())
}

fn data_name(config: &Config) -> String {
    let data = &config.data;
    match data.kind {
        DataKind::Table => {
            let path = data.path.as_deref().unwrap_or_default();
            let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
            format!("{} from {file}", data.target.as_deref().unwrap_or_default())
        }
        DataKind::Images => {
            let path = data.path.as_deref().unwrap_or_default().trim_end_matches(['/', '\\']);
            path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()
        }
        kind => kind.name().into(),
    }
}

/// The preset, in the words of the configuration.
pub(super) fn preset_name(preset: Preset) -> &'static str {
    match preset {
        Preset::Exact => "exact",
        Preset::Paper => "paper",
        Preset::ReferenceCode => "reference-code",
    }
}

/// Title, sentence and the few numbers that are looked for first. `warnings` is how many the chains
/// gave rise to.
pub(super) fn head(
    run: &TableRun<'_>,
    evaluation: &Evaluation,
    predictive: Option<&Predictive>,
    selection: Option<&Selected>,
    warnings: usize,
) -> String {
    let title = element("h1", &escape(&title(&run.info.config)));
    let about = element("p class=\"about\"", &escape(&about(run, evaluation)));
    let sentence = element("p class=\"summary\"", &escape(&sentence(run, evaluation, selection)));
    let warnings = match warnings {
        0 => String::new(),
        n => {
            let link = format!("<a href=\"#behaviour\">{}</a>", plural(n, "warning"));
            element("p", &format!("{link} about this run."))
        }
    };
    let verdict = verdict(&evaluation.verdict);
    let tiles = tiles(&numbers(run, evaluation, predictive, selection));
    [title, verdict, about, sentence, warnings, tiles].concat()
}

/// Scores, variables and size in tables.
pub(super) fn key_figures(run: &TableRun<'_>, evaluation: &Evaluation) -> Section {
    let half = |name: &str, table: &str| element("div", &(element("h3", name) + table));
    let variables = half("Variables", &selection(run, evaluation));
    let columns = variables + &half("Size", &size(evaluation));
    let figures = scores(evaluation) + &element("div class=\"columns\"", &columns);
    section("key-figures", "Key figures", figures)
}

/// The numbers that are looked for first.
fn numbers(
    run: &TableRun<'_>,
    evaluation: &Evaluation,
    predictive: Option<&Predictive>,
    selection: Option<&Selected>,
) -> Vec<Tile> {
    let (scores, truth) = (&evaluation.posterior, run.data.test.targets());
    let mean = predictive.map(Predictive::mean);
    let mut all = match evaluation.task {
        Task::Regression => {
            let sd = run.data.schema.target_scale().1;
            let mae = mean.as_ref().and_then(|mean| metrics::mae(mean, truth)).map(|mae| mae * sd);
            let r2 = mean.as_ref().and_then(|mean| metrics::r2(mean, truth));
            let unit = format!("in units of {}", shortened(&run.data.schema.target_name));
            vec![
                Tile::new(
                    number_or_nothing(scores.mse.map(f64::sqrt)),
                    format!("root mean squared error, {unit}"),
                ),
                Tile::new(number_or_nothing(mae), format!("mean absolute error, {unit}")),
                Tile::new(three(r2), "R\u{b2}, share of the variance that is explained"),
                Tile::new(
                    percent_or_nothing(scores.coverage90),
                    "of test rows inside their 90\u{a0}% interval",
                ),
            ]
        }
        Task::Classification => {
            let classes = run.data.classes;
            let auc = mean.as_ref().and_then(|mean| metrics::auc(mean, classes, truth));
            let nats = scores.nll.map(|nll| format!("{} nats", number(nll)));
            vec![
                Tile::new(percent_or_nothing(scores.accuracy), "accuracy"),
                Tile::new(three(auc), "area under the ROC curve"),
                Tile::new(
                    nats.unwrap_or_else(|| number_or_nothing(None)),
                    "log loss of a test row",
                ),
                Tile::new(percent_or_nothing(scores.ece), "calibration error"),
            ]
        }
    };
    let variables = match selection {
        Some(found) => (found.selected.len(), found.variables),
        None => (evaluation.selected.len(), run.data.names.len()),
    };
    all.push(Tile::new(
        format!("{} of {}", count(variables.0), count(variables.1)),
        if selection.is_some() { "variables selected" } else { "variables read" },
    ));
    let left = evaluation.size.kept / evaluation.size.parameters.max(1) as f64;
    if left < 1.0 {
        all.push(Tile::new(percent(left), "of parameters left"));
    }
    let samples = if scores.members == 1 { "posterior sample" } else { "posterior samples" };
    all.push(Tile::new(count(scores.members), samples));
    all
}

fn about(run: &TableRun<'_>, evaluation: &Evaluation) -> String {
    let config = &run.info.config;
    let (train, validation, test) = evaluation.rows;
    let preset = preset_name(config.preset);
    let mut layers = vec![run.info.network.input_len()];
    layers.extend(&config.model.hidden);
    layers.push(run.info.network.output_len());
    let layers: Vec<String> = layers.iter().map(usize::to_string).collect();
    format!(
        "{} training, {} validation and {} test rows; network {}; preset {preset}; {}, {}.",
        count(train),
        count(validation),
        count(test),
        layers.join("-"),
        plural(config.chains, "chain"),
        plural(config.train.epochs, "epoch"),
    )
}

/// What came out, in a sentence.
fn sentence(run: &TableRun<'_>, evaluation: &Evaluation, selection: Option<&Selected>) -> String {
    let variables = selection.map_or(run.data.names.len(), |found| found.variables);
    let selected = selection.map_or(&evaluation.selected, |found| &found.selected);
    let kind = run.info.config.method.kind;
    let chosen = if selection.is_none() && kind.name() != "em-mcmc" && !kind.is_sparse() {
        let name = kind.name();
        format!("All {} are used, as {name} selects none", plural(variables, "variable"))
    } else if selected.is_empty() {
        format!("None of the {} was selected", plural(variables, "variable"))
    } else {
        format!(
            "{} of {} {} selected: {}",
            count(selected.len()),
            plural(variables, "variable"),
            if selected.len() == 1 { "was" } else { "were" },
            listed(selected, MOST_NAMES)
        )
    };
    let (ours, constant) = (&evaluation.posterior, &evaluation.baseline);
    let scores = match evaluation.task {
        Task::Regression => format!(
            "held-out MSE {} (90\u{a0}% interval coverage {}) against {} for the mean",
            number_or_nothing(ours.mse),
            percent_or_nothing(ours.coverage90),
            number_or_nothing(constant.mse)
        ),
        Task::Classification => format!(
            "held-out accuracy {} (calibration error {}) against {} for the most frequent class",
            percent_or_nothing(ours.accuracy),
            number_or_nothing(ours.ece),
            percent_or_nothing(constant.accuracy)
        ),
    };
    format!("{chosen}; {scores}.")
}

fn scores(evaluation: &Evaluation) -> String {
    let regression = evaluation.task == Task::Regression;
    let head: &[&str] = if regression {
        &["On the test rows", "Samples", "MSE", "NLL", "In 90\u{a0}% interval"]
    } else {
        &["On the test rows", "Samples", "Accuracy", "NLL", "ECE", "Brier"]
    };
    let row = |name: &str, s: &Scores| {
        let members = if s.members == 0 { "\u{2013}".into() } else { count(s.members) };
        let mut cells = vec![name.to_owned(), members];
        if regression {
            cells.extend([
                number_or_nothing(s.mse),
                number_or_nothing(s.nll),
                percent_or_nothing(s.coverage90),
            ]);
        } else {
            cells.extend([
                percent_or_nothing(s.accuracy),
                number_or_nothing(s.nll),
                number_or_nothing(s.ece),
                number_or_nothing(s.brier),
            ]);
        }
        cells
    };
    let label = evaluation.convergence.label(evaluation.behaviour.adds_noise());
    let posterior = format!("Posterior{label}");
    let constant =
        if regression { "Baseline: the mean" } else { "Baseline: the most frequent class" };
    let mut html = table(
        head,
        &[
            row(&posterior, &evaluation.posterior),
            row("All samples", &evaluation.all_samples),
            row("Last iterate", &evaluation.last),
            row(constant, &evaluation.baseline),
        ],
    );
    html.push_str(&remark(
        "The posterior averages the samples after the burn-in that share their chain's final mask, \
         as many of each chain; \u{201c}all samples\u{201d} averages the others too; the last iterate \
         is the last sample of each chain alone, its scores averaged over chains.",
    ));
    html
}

fn selection(run: &TableRun<'_>, evaluation: &Evaluation) -> String {
    let variables = run.data.names.len();
    let selected = evaluation.selected.len();
    let mut rows = vec![
        vec!["Variables".to_owned(), count(variables)],
        vec!["Selected".to_owned(), count(selected)],
    ];
    let Some(found) = &evaluation.selection else {
        return table(&[], &rows)
            + &paragraph("Which variables matter is not known for this data.");
    };
    let truth = run.data.truth.as_ref().map_or(0, Vec::len);
    rows.extend([
        vec!["Variables that matter".to_owned(), count(truth)],
        vec!["False discoveries".to_owned(), count(found.false_discoveries)],
        vec!["Missed".to_owned(), count(found.missed)],
        vec!["FDR, false of the selected".to_owned(), percent(found.fdr)],
        vec!["FNDR, missed of those that matter".to_owned(), percent(found.fndr)],
    ]);
    table(&[], &rows)
}

fn size(evaluation: &Evaluation) -> String {
    let size = &evaluation.size;
    let row = |name: &str, (whole, left): (usize, f64)| {
        let share = percent(left / whole.max(1) as f64);
        vec![name.to_owned(), count(whole), quantity(left), share]
    };
    let rows = [
        row("Parameters", (size.parameters, size.kept)),
        row("Bytes of 32-bit numbers", (4 * size.parameters, 4.0 * size.kept)),
        row("Multiply-adds a row", size.multiply_adds),
        row("Input columns", size.inputs),
        row("Hidden units", size.units),
    ];
    let text = format!(
        "{} of all parameters are pruned, of the weights without biases {}.",
        percent(size.sparsity.value()),
        percent(size.weight_sparsity.value())
    );
    table(&["", "Whole network", "Cut down", "Left"], &rows)
        + &paragraph(&text)
        + &remark(
            "Cut down is the smaller network that thinfer shrink writes, without what is dead: the \
             same function. It is that of the last sample, mean over chains.",
        )
}
