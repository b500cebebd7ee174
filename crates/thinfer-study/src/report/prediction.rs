//! Predictions against the truth on the test rows.

use thinfer_core::metrics::{self, Pit, ReliabilityBin};
use thinfer_core::posterior::Predictive;
use thinfer_data::Result;
use thinfer_data::table::Target;
use thinfer_run::evaluate::{LEVEL, reliability};

use super::axis::Axis;
use super::of_table::TableRun;
use super::page::{
    Key, Section, count, element, escape, figure, figures, level, number, paragraph, percent,
    plural, remark, section, table, table_head, wide,
};
use super::plots::{Ink, Mark, Plot, SERIES};
use super::variables::shortened;

/// Rows in the plot of intervals, at most.
const MOST_ROWS: usize = 200;
/// Classes in a confusion matrix that is a table, at most.
pub(super) const MOST_CLASSES: usize = 12;
/// Levels of the calibration plot.
const LEVELS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// Half the width, in standard deviations, of the band that chance explains.
const CHANCE: f64 = 1.96;

/// The section about predictions.
pub(super) fn section_of(
    run: &TableRun<'_>,
    predictive: Option<&Predictive>,
    pit: Option<&Pit>,
) -> Result<Section> {
    let html = match predictive {
        Some(predictive @ Predictive::Regression { .. }) => regression(run, predictive, pit)?,
        Some(predictive @ Predictive::Classes { .. }) => classification(run, predictive)?,
        None if run.posterior().members.is_empty() => {
            paragraph("The run has no samples yet, so there is nothing to predict with.")
        }
        None => paragraph("There are no test rows to compare with."),
    };
    Ok(section("prediction", "Predictions on the test rows", html))
}

fn regression(run: &TableRun<'_>, predictive: &Predictive, pit: Option<&Pit>) -> Result<String> {
    let below = predictive.below(run.data.test.targets()).unwrap_or_default();
    let mut all = vec![intervals(run, predictive)?, calibration(&below)?];
    let Some(pit) = pit else { return Ok(figures(&all)) };
    all.push(histogram(pit)?);
    Ok(held(pit) + &figures(&all))
}

/// What central intervals of some levels hold.
fn held(pit: &Pit) -> String {
    let row = |c: &metrics::Coverage| vec![level(c.level), percent(c.share)];
    let rows: Vec<Vec<String>> = pit.coverage.iter().map(row).collect();
    table(&["Central interval", "Test rows inside"], &rows)
}

/// The probability integral transform in bins.
fn histogram(pit: &Pit) -> Result<String> {
    let bins = pit.bins.len().max(1) as f64;
    let (rows, expected) = (pit.rows as f64, pit.rows as f64 / bins);
    let half = CHANCE * (rows * (1.0 - 1.0 / bins) / bins).sqrt();
    let highest = pit.bins.iter().copied().fold(expected + half, f64::max);
    let mut plot = Plot::new(
        "Histogram of the probability integral transform on the test rows",
        Axis::between(0.0, 1.0),
        "where the truth lies in the prediction: P(Y \u{2264} y)",
        Axis::linear([0.0, 1.05 * highest]),
    );
    for (at, count) in pit.bins.iter().enumerate() {
        let (from, to) = ((at as f64 + 0.04) / bins, (at as f64 + 0.96) / bins);
        let (from, to) = ((from, 0.0), (to, *count));
        plot.marks.push(Mark::Bar { from, to, ink: Ink::Series(0), opacity: 0.45 });
    }
    let (low, high) = ((expected - half).max(0.0), expected + half);
    let points = vec![(0.0, low, high), (0.5, low, high), (1.0, low, high)];
    plot.marks.push(Mark::Band { points, ink: Ink::Muted, opacity: 0.2 });
    plot.marks.push(Mark::line(&[(0.0, expected), (1.0, expected)], Ink::Muted).with(1.0, 1.0));
    let keys = [
        Key::new("bar", Ink::Series(0), "test rows"),
        Key::new("area", Ink::Muted, "what chance explains of a bar (95\u{a0}%)"),
    ];
    let about = format!(
        "Level where predictions are calibrated. Bars high at both ends: too narrow. High in the \
         middle: too wide. High at one end: shifted. Largest distance from uniform {}, p {}.",
        number(pit.distance),
        number(pit.p_value)
    );
    figure("Where the truth lies (PIT)", &plot, &keys, &about)
}

/// Intervals, means and truth of some rows, sorted by mean, in the user's units.
fn intervals(run: &TableRun<'_>, predictive: &Predictive) -> Result<String> {
    let (shift, scale) = run.data.schema.target_scale();
    let own = |v: f64| shift + scale * v;
    let rows = run.data.test.rows();
    let mean = predictive.mean();
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|a, b| mean[*a].total_cmp(&mean[*b]));
    let shown = rows.min(MOST_ROWS);
    let picked: Vec<usize> = (0..shown).map(|i| order[i * rows / shown]).collect();
    let (lower, upper) = predictive.at_rows(&picked).interval(LEVEL).unwrap_or_default();

    let x = |i: usize| i as f64 + 1.0;
    let (mut band, mut line) = (Vec::new(), Vec::new());
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for (i, &row) in picked.iter().enumerate() {
        let truth = f64::from(run.data.test.targets()[row]);
        band.push((x(i), own(lower[i]), own(upper[i])));
        line.push((x(i), own(mean[row])));
        let covered = lower[i] <= truth && truth <= upper[i];
        if covered { &mut inside } else { &mut outside }.push((x(i), own(truth)));
    }
    let heights = band.iter().flat_map(|b| [b.1, b.2]);
    let heights = heights.chain(inside.iter().chain(&outside).chain(&line).map(|p| p.1));
    let mut plot = Plot::new(
        "Predictive intervals, means and true values of test rows",
        Axis::whole(1.0, shown as f64),
        "test rows, sorted by predicted mean",
        Axis::linear(heights.collect::<Vec<_>>()),
    );
    let summary = format!(
        "{} of {} shown lie outside; a {} interval leaves out {} of them on average.",
        count(outside.len()),
        plural(shown, "row"),
        level(LEVEL),
        level(1.0 - LEVEL)
    );
    plot.marks = vec![
        Mark::Band { points: band, ink: Ink::Series(0), opacity: 0.2 },
        Mark::line(&line, Ink::Series(0)),
        Mark::Dots { points: inside, ink: Ink::Text, radius: 1.5 },
        Mark::Dots { points: outside, ink: Ink::Series(1), radius: 2.5 },
    ];
    let keys = [
        Key::new("area", Ink::Series(0), format!("{} interval", level(LEVEL))),
        Key::new("line", Ink::Series(0), "predicted mean"),
        Key::new("dot", Ink::Text, "true value"),
        Key::new("dot", Ink::Series(1), "true value, outside"),
    ];
    let choice = if shown < rows {
        format!("{} of {} rows, evenly by rank. ", count(shown), count(rows))
    } else {
        String::new()
    };
    let title = format!("{}, predicted and true", run.data.schema.target_name);
    figure(&title, &plot, &keys, &(choice + &summary))
}

/// Nominal level against observed coverage. `below` is the predictive distribution function at
/// each true value: it lies in the interval of level p exactly where |F − 1/2| ≤ p/2.
fn calibration(below: &[f64]) -> Result<String> {
    let known: Vec<f64> = below.iter().copied().filter(|f| f.is_finite()).collect();
    let n = known.len().max(1) as f64;
    let covered =
        |level: f64| known.iter().filter(|f| (**f - 0.5).abs() <= level / 2.0).count() as f64 / n;
    let points: Vec<(f64, f64)> = LEVELS.map(|level| (level, covered(level))).to_vec();
    let mut plot = Plot::new(
        "Nominal level of predictive intervals against observed coverage",
        Axis::between(0.0, 1.0),
        "nominal level",
        Axis::between(0.0, 1.0),
    )
    .with_equal_axes();
    let band = (0..=50).map(|i| f64::from(i) / 50.0).map(|p| {
        let half = CHANCE * (p * (1.0 - p) / n).sqrt();
        (p, (p - half).max(0.0), (p + half).min(1.0))
    });
    plot.marks = vec![
        Mark::Band { points: band.collect(), ink: Ink::Muted, opacity: 0.2 },
        Mark::line(&[(0.0, 0.0), (1.0, 1.0)], Ink::Muted).with(1.0, 1.0),
        Mark::line(&points, Ink::Series(0)),
        Mark::Dots { points, ink: Ink::Series(0), radius: 3.0 },
    ];
    let keys = [
        Key::new("line", Ink::Series(0), "observed coverage"),
        Key::new("area", Ink::Muted, "what chance explains (95\u{a0}%)"),
    ];
    let about = "Above the diagonal the intervals are too wide, below it too narrow.";
    figure("Calibration of intervals", &plot, &keys, about)
}

fn classification(run: &TableRun<'_>, predictive: &Predictive) -> Result<String> {
    let bins = reliability(predictive, &run.data.test);
    let diagram = reliability_diagram(&bins)?;
    let Predictive::Classes { classes, .. } = predictive else { return Ok(figures(&[diagram])) };
    let matrix = metrics::confusion(&predictive.mean(), *classes, run.data.test.targets());
    let levels: Vec<String> = match &run.data.schema.target {
        Target::Classes { levels } => levels.clone(),
        Target::Number { .. } | Target::Count { .. } => {
            (0..*classes).map(|k| k.to_string()).collect()
        }
    };
    let mut all = vec![diagram];
    all.extend(roc_curves(&predictive.mean(), *classes, run.data.test.targets(), &levels)?);
    all.push(confusion(&matrix, &levels));
    Ok(figures(&all))
}

/// The ROC curve of the second of two classes, or of each of more against the others.
fn roc_curves(
    mean: &[f64],
    classes: usize,
    truth: &[f32],
    levels: &[String],
) -> Result<Option<String>> {
    let shown = if classes == 2 { 1..2 } else { 0..classes.min(usize::from(SERIES)) };
    let curves: Vec<(usize, metrics::Roc)> = shown
        .filter_map(|class| Some((class, metrics::roc(mean, classes, truth, class)?)))
        .collect();
    if curves.is_empty() {
        return Ok(None);
    }
    let unit = || Axis::between(0.0, 1.0);
    let about = "Share of a class that is found against the share of the others taken for it";
    let mut plot = Plot::new(about, unit(), "share of the others above the threshold", unit())
        .with_equal_axes();
    plot.marks.push(Mark::line(&[(0.0, 0.0), (1.0, 1.0)], Ink::Muted).with(1.0, 1.0));
    let mut keys = Vec::new();
    for (at, (class, roc)) in curves.iter().enumerate() {
        let ink = Ink::Series(at as u8);
        plot.marks.push(Mark::line(&roc.points, ink).with(2.0, 1.0));
        let name = levels.get(*class).map_or_else(|| class.to_string(), |name| shortened(name));
        keys.push(Key::new("line", ink, format!("{name}, AUC {:.3}", roc.auc)));
    }
    keys.push(Key::new("line", Ink::Muted, "chance"));
    let hidden = classes.saturating_sub(usize::from(SERIES));
    let about = if classes > 2 && hidden > 0 {
        format!(
            "Of {} classes the first {SERIES} are shown, each against all others.",
            count(classes)
        )
    } else if classes > 2 {
        "Each class against all others.".to_owned()
    } else {
        String::new()
    };
    figure("ROC: share of the class above the threshold", &plot, &keys, &about).map(Some)
}

/// Confidence against the share that is right, bin by bin.
pub(super) fn reliability_diagram(bins: &[ReliabilityBin]) -> Result<String> {
    let filled: Vec<&ReliabilityBin> = bins.iter().filter(|b| b.count > 0).collect();
    let mut plot = Plot::new(
        "Confidence of predictions against the share that is right",
        Axis::between(0.0, 1.0),
        "confidence: the probability of the most likely class",
        Axis::between(0.0, 1.1),
    )
    .with_equal_axes();
    // Room above 1 for the counts.
    plot.y.labels.retain(|l| l.0 <= 1.0);
    for bin in &filled {
        let gap = 0.04 * (bin.upper - bin.lower);
        let (from, to) = ((bin.lower + gap, 0.0), (bin.upper - gap, bin.accuracy));
        plot.marks.push(Mark::Bar { from, to, ink: Ink::Series(0), opacity: 0.45 });
        let at = (0.5 * (bin.lower + bin.upper), 1.05);
        plot.marks.push(Mark::Text { at, text: compact(bin.count), centred: true });
    }
    plot.marks.push(Mark::line(&[(0.0, 0.0), (1.0, 1.0)], Ink::Muted).with(1.0, 1.0));
    let points: Vec<(f64, f64)> = filled.iter().map(|b| (b.confidence, b.accuracy)).collect();
    plot.marks.push(Mark::Dots { points, ink: Ink::Series(1), radius: 3.0 });
    let keys = [
        Key::new("area", Ink::Series(0), "share that is right"),
        Key::new("dot", Ink::Series(1), "at the mean confidence of the bin"),
    ];
    let about = "Numbers at the top count the rows of each bin. Below the diagonal the network is \
                  too sure, above it not sure enough.";
    figure("Reliability", &plot, &keys, about)
}

/// A count in at most four characters.
fn compact(n: usize) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..10_000 => format!("{:.1}k", n as f64 / 1e3),
        10_000..1_000_000 => format!("{}k", n / 1_000),
        _ => format!("{}M", n / 1_000_000),
    }
}

/// Rows are the true classes, columns the predicted ones.
pub(super) fn confusion(matrix: &[Vec<usize>], levels: &[String]) -> String {
    let classes = matrix.len();
    if classes > MOST_CLASSES {
        let text = format!("The confusion matrix of {} classes is left out.", count(classes));
        return element("div", &paragraph(&text));
    }
    let name = |k: usize| levels.get(k).map_or_else(|| k.to_string(), Clone::clone);
    let head: Vec<String> =
        ["true \\ predicted".to_owned()].into_iter().chain((0..classes).map(name)).collect();
    let row = |(truth, counts): (usize, &Vec<usize>)| {
        let total = counts.iter().sum::<usize>().max(1) as f64;
        let cell = |(guess, n): (usize, &usize)| {
            let ink = Ink::Series(u8::from(guess != truth)).variable();
            let strength = 50.0 * *n as f64 / total;
            let shade = format!("color-mix(in srgb, {ink} {strength:.0}%, transparent)");
            element(&format!("td style=\"background: {shade}\""), &count(*n))
        };
        let cells: Vec<String> = counts.iter().enumerate().map(cell).collect();
        element("tr", &(element("th scope=\"row\"", &escape(&name(truth))) + &cells.concat()))
    };
    let rows: Vec<String> = matrix.iter().enumerate().map(row).collect();
    let body = table_head(&head) + &element("tbody", &rows.concat());
    let parts = [
        element("b", "Confusion matrix"),
        wide(&element("table class=\"confusion\"", &body)),
        remark("The stronger the colour, the larger the share of its row."),
    ];
    element("div", &parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        let all = [0, 999, 1_234, 9_949, 12_345, 999_999, 5_000_000].map(compact);
        assert_eq!(all, ["0", "999", "1.2k", "9.9k", "12k", "999k", "5M"]);
    }

    #[test]
    fn a_confusion_matrix_escapes_its_classes() {
        let levels = ["<b>a</b>".to_owned(), "c&d".into(), "e".into()];
        let html = confusion(&[vec![5, 0, 1], vec![0, 7, 0], vec![0, 0, 0]], &levels);
        assert!(html.contains("&lt;b&gt;a&lt;/b&gt;") && html.contains("c&amp;d"), "{html}");
        assert_eq!(html.matches("<td ").count(), 9);
        assert!(confusion(&vec![vec![0; 13]; 13], &[]).contains("13 classes is left out"));
    }

    #[test]
    fn a_histogram_has_a_bar_for_each_bin() {
        let values: Vec<(f64, f64)> =
            (0..50).map(|at| f64::from(at) / 50.0).map(|u| (u, u)).collect();
        let pit = metrics::pit(&values).unwrap();
        let html = histogram(&pit).unwrap();
        assert!(html.contains("Where the truth lies") && html.contains("</svg>"), "{html}");
        assert!(html.contains("Largest distance from uniform 0.02"), "{html}");
        assert_eq!(held(&pit).matches("<tr>").count(), 5);
        let one = metrics::pit(&[(0.3, 0.3)]).unwrap();
        assert!(histogram(&one).unwrap().contains("</svg>"));
    }

    #[test]
    fn plots_of_nothing_and_of_nan_are_drawn() {
        assert!(calibration(&[]).unwrap().contains("</svg>"));
        assert!(calibration(&[f64::NAN, 0.5]).unwrap().contains("</svg>"));
        assert!(reliability_diagram(&[]).unwrap().contains("</svg>"));
        let sure = ReliabilityBin {
            lower: 14.0 / 15.0,
            upper: 1.0,
            confidence: 1.0,
            accuracy: 1.0,
            count: 2000,
        };
        assert!(reliability_diagram(&[sure]).unwrap().contains("2.0k"));
    }
}
