//! Calibration, risk and coverage, confusions and foreign images.

use thinfer_core::metrics::Detection;
use thinfer_data::Result;
use thinfer_run::images::{ForeignScores, ImageEvaluation};

use super::super::axis::Axis;
use super::super::page::{
    Key, Section, count, element, escape, figure, figures, number, paragraph, percent, remark,
    section, sortable, table,
};
use super::super::plots::{Ink, Mark, Plot};
use super::super::prediction::{MOST_CLASSES, confusion, reliability_diagram};
use super::ImageReport;

/// Confusions and classes in a table, at most.
const MOST_ROWS: usize = 10;
/// Units of a heat map for each class.
const CELL: usize = 10;

/// The sections about predictions.
pub(super) fn sections(report: &ImageReport<'_>) -> Result<Vec<Section>> {
    let evaluation = report.evaluation;
    let calibrated =
        figures(&[reliability_diagram(&evaluation.reliability)?, risk_coverage(evaluation)?]);
    let masses = format!(
        "In 15 bins of equal width the calibration error is {}, in 15 bins that hold equally many \
         images {}.",
        number(evaluation.posterior.ece),
        number(evaluation.posterior.ece_equal_mass)
    );
    let title = "Calibration, and what refusing gains";
    let mut all = vec![
        section("calibration", title, paragraph(&masses) + &calibrated),
        section("confusion", "Confusions", confusions(evaluation)),
    ];
    if !evaluation.foreign.is_empty() {
        all.push(section("foreign", "Foreign images", foreign(evaluation)));
    }
    Ok(all)
}

fn risk_coverage(evaluation: &ImageEvaluation) -> Result<String> {
    let curve = &evaluation.risk_coverage;
    let highest = curve.iter().map(|p| p.1).fold(0.0, f64::max);
    let mut plot = Plot::new(
        "Error among the images that are answered against their share",
        Axis::between(0.0, 1.0),
        "coverage: share of images answered, most certain first",
        Axis::between(0.0, (1.1 * highest).max(0.01)),
    );
    let wrong = 1.0 - evaluation.posterior.accuracy;
    let best: Vec<(f64, f64)> = curve
        .iter()
        .map(|(coverage, _)| (*coverage, (1.0 - (1.0 - wrong) / coverage).max(0.0)))
        .collect();
    plot.marks = vec![
        Mark::line(&best, Ink::Muted).with(1.0, 1.0),
        Mark::line(curve, Ink::Series(0)).with(2.0, 1.0),
    ];
    let keys = [
        Key::new("line", Ink::Series(0), "error among the answered"),
        Key::new("line", Ink::Muted, "the best possible order"),
    ];
    let about = format!(
        "Area under the curve {}, of which {} is above the best possible one.",
        number(evaluation.posterior.aurc),
        number(evaluation.posterior.excess_aurc)
    );
    figure("Risk and coverage", &plot, &keys, &about)
}

fn confusions(evaluation: &ImageEvaluation) -> String {
    let classes = &evaluation.classes;
    let matrix = if evaluation.confusion.is_empty() {
        let text = format!("The confusion matrix of {} classes is left out.", count(classes.len()));
        element("div", &paragraph(&text))
    } else if classes.len() <= MOST_CLASSES {
        confusion(&evaluation.confusion, classes)
    } else {
        heat_map(&evaluation.confusion)
    };
    let rows: Vec<Vec<String>> = evaluation
        .confusions
        .iter()
        .take(MOST_ROWS)
        .map(|c| {
            let what = format!("{} taken for {}", c.truth, c.predicted);
            vec![what, count(c.count), percent(c.share)]
        })
        .collect();
    let frequent = if rows.is_empty() {
        paragraph("Every test image is right.")
    } else {
        element("b", "Most frequent confusions") + &sortable(&["", "Images", "Of the class"], &rows)
    };
    let mut worst: Vec<_> = evaluation.per_class.iter().filter(|c| c.images > 0).collect();
    worst.sort_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let rows: Vec<Vec<String>> = worst
        .iter()
        .take(MOST_ROWS)
        .map(|c| vec![c.name.clone(), count(c.images), percent(c.accuracy)])
        .collect();
    let worst = element("b", "Classes with the lowest accuracy")
        + &sortable(&["", "Images", "Accuracy"], &rows);
    let lists = element("div", &frequent) + &element("div", &worst);
    matrix + &element("div class=\"columns\"", &lists)
}

/// Many classes as a picture: rows are the true classes, columns the predicted ones.
fn heat_map(matrix: &[Vec<usize>]) -> String {
    let side = CELL * matrix.len();
    let mut cells = String::new();
    for (truth, row) in matrix.iter().enumerate() {
        let total = row.iter().sum::<usize>().max(1) as f64;
        for (guess, n) in row.iter().enumerate().filter(|(_, n)| **n > 0) {
            let ink = Ink::Series(u8::from(guess != truth)).variable();
            // Rare confusions are to be seen too.
            let opacity = (*n as f64 / total).sqrt();
            let (x, y) = (CELL * guess, CELL * truth);
            cells += &format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{ink}\" opacity=\"{opacity:.2}\"/>\n"
            );
        }
    }
    let about = format!("Confusion matrix of {} classes", matrix.len());
    let tag = format!(
        "svg class=\"heat\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {side} {side}\" xmlns=\"http://www.w3.org/2000/svg\"",
        escape(&about)
    );
    let parts = [
        element("b", "Confusion matrix"),
        element(&tag, &cells),
        remark(
            "Rows are true classes from the top, columns predicted ones; the stronger the colour, \
             the larger the share of its row. What is off the diagonal is wrong.",
        ),
    ];
    element("div", &parts.concat())
}

fn foreign(evaluation: &ImageEvaluation) -> String {
    let row = |set: &ForeignScores, name: &str, found: Option<Detection>| {
        found.map(|d| {
            vec![
                format!("{}, by {name}", set.name),
                count(set.images),
                number(d.auroc),
                number(d.aupr),
                percent(d.fpr95),
            ]
        })
    };
    let rows: Vec<Vec<String>> = evaluation
        .foreign
        .iter()
        .flat_map(|set| {
            [
                row(set, "largest probability", set.max_probability),
                row(set, "entropy", set.entropy),
                row(set, "mutual information", set.mutual_information),
            ]
        })
        .flatten()
        .collect();
    let head = ["Told from the test images", "Images", "AUROC", "AUPR", "FPR at 95\u{a0}% TPR"];
    table(&head, &rows)
        + &remark(
            "Images of another data set are the positives. AUROC 0.5 is chance; the last column is \
             the share of test images that are taken for foreign where 95\u{a0}% of the foreign \
             ones are found.",
        )
}
