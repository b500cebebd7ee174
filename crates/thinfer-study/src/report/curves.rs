//! The curves of several runs over each other: those of one group as their mean, with a band.

use std::collections::BTreeMap;

use thinfer_data::Result;

use super::axis::Axis;
use super::chains::{WIDE, heights};
use super::comparison::group_name;
use super::page::{Key, figure, figures, paragraph};
use super::plots::{Ink, Mark, Plot, SERIES};
use crate::compare::{Comparison, Course, Curve, Group};

/// Groups in one plot, at most: more are not told apart.
const MOST: usize = 12;

/// What is drawn: a title, the curve of a run, and whether it is a share.
type Shown = (&'static str, fn(&Course) -> &Curve, bool);

const SHOWN: [Shown; 3] = [
    ("Training loss", |course| &course.loss, false),
    ("Test accuracy", |course| &course.test_accuracy, true),
    ("Share of all parameters pruned", |course| &course.sparsity, true),
];

/// The plots; nothing where no run has a history.
pub(super) fn plots(comparison: &Comparison) -> Result<Option<String>> {
    let all = SHOWN.iter().map(|shown| plot_of(comparison, shown)).collect::<Result<Vec<_>>>()?;
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() {
        return Ok(None);
    }
    let about = "A line is a run, or the mean of the runs that differ only in the seed; the band \
                 around it is one standard deviation wide to each side.";
    Ok(Some(paragraph(about) + &figures(&all)))
}

fn plot_of(comparison: &Comparison, (title, of, share): &Shown) -> Result<Option<String>> {
    let drawn: Vec<(usize, Vec<Spread>)> = comparison
        .groups
        .iter()
        .enumerate()
        .map(|(at, group)| (at, spread(comparison, group, *of)))
        .filter(|(_, points)| points.iter().any(|point| point.mean != 0.0))
        .take(MOST)
        .collect();
    if drawn.is_empty() {
        return Ok(None);
    }
    let points = || drawn.iter().flat_map(|(_, points)| points);
    let last = points().map(|point| point.epoch).fold(1.0, f64::max);
    let first = points().map(|point| point.epoch).fold(last, f64::min);
    let ends: Curve =
        points().flat_map(|p| [(p.epoch, p.mean - p.sd), (p.epoch, p.mean + p.sd)]).collect();
    let mut axis = if *share {
        Axis::linear(heights([&ends]))
    } else {
        Axis::spanning(&heights([&ends]), WIDE)
    };
    if *share {
        axis = Axis::between(axis.low.max(0.0), axis.high.min(1.0).max(axis.low.max(0.0) + 1e-3));
    }
    let mut plot =
        Plot::new(format!("{title} over epochs"), Axis::whole(first.min(1.0), last), "epoch", axis);
    plot.right = 26;
    let mut keys = Vec::new();
    for (place, (at, points)) in drawn.iter().enumerate() {
        let ink = Ink::Series((place % usize::from(SERIES)) as u8);
        if points.iter().any(|point| point.sd > 0.0) {
            let band = points.iter().map(|p| (p.epoch, p.mean - p.sd, p.mean + p.sd)).collect();
            plot.marks.push(Mark::Band { points: band, ink, opacity: 0.18 });
        }
        let line: Curve = points.iter().map(|point| (point.epoch, point.mean)).collect();
        // Groups that share a colour are told apart by their width.
        let width = if place < usize::from(SERIES) { 1.5 } else { 3.0 };
        plot.marks.push(Mark::line(&line, ink).with(width, 0.9));
        keys.push(Key::new("line", ink, group_name(comparison, &comparison.groups[*at])));
    }
    let hidden = comparison.groups.len().saturating_sub(MOST);
    let about = match hidden {
        0 => String::new(),
        more => format!("{more} more are not drawn."),
    };
    figure(title, &plot, &keys, &about).map(Some)
}

/// Mean and standard deviation over the runs of a group, after an epoch.
struct Spread {
    epoch: f64,
    mean: f64,
    sd: f64,
}

/// Epochs that all runs of a group that are that far have recorded.
fn spread(comparison: &Comparison, group: &Group, of: fn(&Course) -> &Curve) -> Vec<Spread> {
    let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for &run in &group.runs {
        for (epoch, value) in of(&comparison.runs[run].course) {
            all.entry(*epoch as u64).or_default().push(*value);
        }
    }
    let most = all.values().map(Vec::len).max().unwrap_or(0);
    all.into_iter()
        .filter(|(_, values)| values.len() == most)
        .map(|(epoch, values)| {
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            let sd = if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
            Spread { epoch: epoch as f64, mean, sd }
        })
        .collect()
}
