//! Loss, accuracy, pruning and step size over the epochs.

use thinfer_data::Result;

use super::super::axis::Axis;
use super::super::behaviour::clipping;
use super::super::chains::{Chains, Course, WIDE, heights};
use super::super::frozen;
use super::super::page::{Key, Section, figure, figures, paragraph, percent, section};
use super::super::plots::{Ink, Mark, Plot};
use super::ImageReport;

/// The section about the course of the run.
pub(super) fn section_of(report: &ImageReport<'_>) -> Result<Section> {
    let chains = Chains::new(report.results);
    if chains.are_blank() {
        let text = "The run has no history yet: it stopped before its first record.";
        return Ok(section("course", "The course of the run", paragraph(text)));
    }
    let mut all = vec![loss(&chains)?];
    all.extend(accuracy(&chains)?);
    all.extend(pruning(&chains)?);
    all.extend(trade(report, &chains)?);
    all.push(step_size(&chains, report)?);
    all.extend(seconds(&chains)?);
    let clipped = clipping(report.results, report.config, report.evaluation.images.0);
    let frozen = frozen::of_chains(report.results, report.config);
    let html = figures(&all) + &paragraph(&clipped) + &frozen;
    Ok(section("course", "The course of the run", html))
}

fn loss(chains: &Chains<'_>) -> Result<String> {
    let train = chains.courses(|r| Some(r.loss));
    let test = chains.courses(|r| r.test_nll);
    let tested = test.iter().any(|course| !course.is_empty());
    let axis = Axis::spanning(&heights(train.iter().chain(&test)), WIDE);
    let mut plot = chains.plot("Training loss and test NLL over epochs", axis);
    for (at, course) in test.iter().enumerate() {
        plot.marks.push(Mark::line(course, chains.ink(at)).with(3.0, 0.35));
    }
    plot.marks.extend(chains.lines(&train));
    let mut keys = chains.keys();
    if tested {
        keys.push(Key::new("faint", chains.ink(0), "NLL of the test images"));
    }
    figure("Training loss", &plot, &keys, "")
}

fn accuracy(chains: &Chains<'_>) -> Result<Option<String>> {
    let courses = chains.courses(|r| r.test_accuracy);
    if courses.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let mut plot = chains.plot("Test accuracy over epochs", Axis::linear(heights(&courses)));
    // No share is above 1.
    plot.y = Axis::between(plot.y.low, plot.y.high.min(1.0).max(plot.y.low + 1e-3));
    plot.marks = chains.lines(&courses);
    let about = "Of the weights as they are at the end of an epoch, not of an average.";
    figure("Test accuracy", &plot, &chains.keys(), about).map(Some)
}

fn pruning(chains: &Chains<'_>) -> Result<Option<String>> {
    let pruned = chains.courses(|r| Some(r.sparsity));
    let spike = chains.courses(|r| Some(r.spike_share));
    if heights(pruned.iter().chain(&spike)).iter().all(|share| *share == 0.0) {
        return Ok(None);
    }
    let mut plot = chains.plot("Sparsity and soft-mask share over epochs", Axis::between(0.0, 1.0));
    let draw = |courses: &[Course], ink: Ink, width: f64, opacity: f64| -> Vec<Mark> {
        let line =
            |course: &Course| Mark::line(course, ink).with(width, opacity * chains.opacity());
        courses.iter().map(line).collect()
    };
    plot.marks = draw(&spike, Ink::Series(1), 4.0, 0.5);
    plot.marks.extend(draw(&pruned, Ink::Series(0), 1.5, 1.0));
    let keys = [
        Key::new("line", Ink::Series(0), "sparsity, share of all parameters pruned"),
        Key::new("faint", Ink::Series(1), "soft mask, share of grouped weights in the spike"),
    ];
    figure("Sparsity and soft mask", &plot, &keys, "").map(Some)
}

/// How long epochs took, which shows where a run went on with a smaller network.
fn seconds(chains: &Chains<'_>) -> Result<Option<String>> {
    let courses = chains.times();
    let all = heights(&courses);
    let Some(longest) = all.iter().copied().reduce(f64::max) else { return Ok(None) };
    let mut plot = chains.plot("Seconds of every epoch", Axis::between(0.0, 1.05 * longest));
    plot.marks = chains.lines(&courses);
    let work = chains.courses(|r| Some(r.work));
    let least = heights(&work).into_iter().fold(1.0, f64::min);
    let about = if least < 1.0 {
        format!(
            "At the end a step does {} of the multiply-adds of the whole network.",
            percent(least)
        )
    } else {
        "Every step does all the multiply-adds of the network.".to_owned()
    };
    figure("Seconds an epoch", &plot, &chains.keys(), &about).map(Some)
}

/// Test accuracy against sparsity, epoch by epoch.
fn trade(report: &ImageReport<'_>, chains: &Chains<'_>) -> Result<Option<String>> {
    let courses: Vec<Course> = report
        .results
        .iter()
        .map(|result| {
            let tested = result.records.iter().filter(|r| r.sparsity > 0.0);
            tested.filter_map(|r| r.test_accuracy.map(|a| (r.sparsity, a))).collect()
        })
        .collect();
    if courses.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let mut plot = Plot::new(
        "Test accuracy against sparsity",
        Axis::between(0.0, 1.0),
        "share of all parameters pruned",
        Axis::linear(heights(&courses)),
    );
    plot.y = Axis::between(plot.y.low, plot.y.high.min(1.0).max(plot.y.low + 1e-3));
    for (at, course) in courses.iter().enumerate() {
        let ink = chains.ink(at);
        plot.marks.push(Mark::line(course, ink).with(1.0, 0.4));
        plot.marks.push(Mark::Dots { points: course.clone(), ink, radius: 2.0 });
    }
    let about = "A dot is an epoch. Pruned weights are zero, so the accuracy is that of the smaller network.";
    figure("Accuracy against sparsity", &plot, &chains.keys(), about).map(Some)
}

fn step_size(chains: &Chains<'_>, report: &ImageReport<'_>) -> Result<String> {
    let courses = chains.courses(|r| Some(r.step_size));
    let mut plot = chains.plot("Step size over epochs", Axis::linear(heights(&courses)));
    let mut keys = vec![Key::new("line", Ink::Series(0), "step size l = \u{394}t\u{b2}")];
    // All chains follow one schedule; the longest shows all of it.
    if let Some(course) = courses.iter().max_by_key(|course| course.len()) {
        plot.marks.push(Mark::line(course, Ink::Series(0)));
    }
    let points = chains.sampled(report.config, report.evaluation.images.0);
    if !points.is_empty() {
        plot.marks.push(Mark::Dots { points, ink: Ink::Series(1), radius: 3.0 });
        keys.push(Key::new("dot", Ink::Series(1), "a sample was taken"));
    }
    figure("Step size", &plot, &keys, "")
}
