//! The figures of the paper, drawn from what runs recorded.

use thinfer_data::Result;

use super::axis::Axis;
use super::drawing::{Panel, Sheet};
use super::plots::{Ink, Mark, Plot};

/// Paths of a panel in an SVG, at most: more make the file large and are not told apart. The PNG
/// has all of them.
const MOST_PATHS: usize = 400;

/// A figure in two forms.
pub struct Drawing {
    /// As SVG.
    pub svg: String,
    /// As a PNG file.
    pub png: Vec<u8>,
}

/// The weights of one channel over the epochs.
pub struct ChannelPaths {
    /// What the channel is called.
    pub title: String,
    /// One path a weight, one value an epoch.
    pub paths: Vec<Vec<f32>>,
}

/// Figure 1: the paths of all weights of some channels, and the step size.
pub fn weight_paths(channels: &[ChannelPaths], step_size: &[(f64, f64)]) -> Result<Drawing> {
    let sheet = |most: usize| {
        let mut panels: Vec<Panel> = channels
            .iter()
            .enumerate()
            .map(|(at, channel)| Panel {
                title: format!("({}) {}", letter(at), channel.title),
                plot: paths_of(channel, most),
            })
            .collect();
        let steps = step_size.iter().map(|p| p.1);
        let mut plot =
            Plot::new("Step size", epochs(step_size.len()), "epoch", Axis::linear(steps));
        plot.marks.push(Mark::line(step_size, Ink::Series(0)));
        let title = format!("({}) step size", letter(panels.len()));
        panels.push(Panel { title, plot });
        Sheet { panels, columns: 3, legend: Vec::new() }
    };
    Ok(Drawing { svg: sheet(MOST_PATHS).svg()?, png: sheet(usize::MAX).png()? })
}

fn letter(at: usize) -> char {
    (b'a'..=b'z').nth(at).map_or('?', char::from)
}

fn epochs(count: usize) -> Axis {
    Axis::whole(1.0, count.max(1) as f64)
}

fn paths_of(channel: &ChannelPaths, most: usize) -> Plot {
    let values = || channel.paths.iter().flatten().map(|w| f64::from(*w));
    let count = channel.paths.first().map_or(0, Vec::len);
    let mut plot = Plot::new(channel.title.clone(), epochs(count), "epoch", Axis::linear(values()));
    // What all weights span stays visible where not all are drawn.
    let span = (0..count).map(|epoch| {
        let at = channel.paths.iter().map(|path| f64::from(path[epoch]));
        let (low, high) =
            at.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), w| (low.min(w), high.max(w)));
        (epoch as f64 + 1.0, low, high)
    });
    plot.marks.push(Mark::Band { points: span.collect(), ink: Ink::Series(0), opacity: 0.12 });
    let shown = channel.paths.len().min(most);
    for at in 0..shown {
        let path = &channel.paths[at * channel.paths.len() / shown];
        let points: Vec<(f64, f64)> =
            path.iter().enumerate().map(|(e, w)| (e as f64 + 1.0, f64::from(*w))).collect();
        let ink = Ink::Series((at % usize::from(super::plots::SERIES)) as u8);
        plot.marks.push(Mark::line(&points, ink).with(0.5, 0.45));
    }
    plot
}

/// What a run went through, one value an epoch that was recorded: epoch from 1, share.
pub struct PruningCourse {
    /// What the run is called.
    pub name: String,
    /// Share of test images that are right.
    pub accuracy: Vec<(f64, f64)>,
    /// Share of grouped weights in the spike.
    pub soft: Vec<(f64, f64)>,
    /// Share of all parameters that are pruned.
    pub sparsity: Vec<(f64, f64)>,
}

/// Figure 2: test accuracy, soft-mask share and sparsity of some runs.
pub fn pruning_courses(runs: &[PruningCourse]) -> Result<Drawing> {
    let panel = |title: &str, of: fn(&PruningCourse) -> &Vec<(f64, f64)>, shares: bool| {
        let last = runs.iter().flat_map(of).map(|p| p.0).fold(1.0, f64::max);
        let heights: Vec<f64> = runs.iter().flat_map(of).map(|p| p.1).collect();
        let axis = if shares { Axis::between(0.0, 1.0) } else { Axis::linear(heights) };
        let mut plot = Plot::new(title, Axis::whole(1.0, last), "epoch", axis);
        for (at, run) in runs.iter().enumerate() {
            plot.marks.push(Mark::line(of(run), Ink::Series(at as u8)).with(1.5, 0.9));
        }
        Panel { title: title.to_owned(), plot }
    };
    let sheet = Sheet {
        panels: vec![
            panel("Test accuracy", |r| &r.accuracy, false),
            panel("Share of weights in the spike (soft mask)", |r| &r.soft, true),
            panel("Sparsity", |r| &r.sparsity, true),
        ],
        columns: 3,
        legend: runs
            .iter()
            .enumerate()
            .map(|(at, run)| (Ink::Series(at as u8), run.name.clone()))
            .collect(),
    };
    Ok(Drawing { svg: sheet.svg()?, png: sheet.png()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(weights: usize, epochs: usize) -> Vec<Vec<f32>> {
        let value = |w: usize, e: usize| {
            let start = (w as f32 * 0.7).sin();
            start * (-(e as f32) / 40.0).exp() + 0.02 * ((w * e) as f32 * 0.37).sin()
        };
        (0..weights).map(|w| (0..epochs).map(|e| value(w, e)).collect()).collect()
    }

    fn is_png(bytes: &[u8]) -> (u32, u32) {
        let reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        (reader.info().width, reader.info().height)
    }

    #[test]
    fn figure_1_has_a_panel_for_each_channel_and_the_step_size() {
        let channels: Vec<ChannelPaths> = ["conv1, input channel 3", "conv2, output channel <1>"]
            .iter()
            .map(|title| ChannelPaths { title: (*title).to_owned(), paths: paths(500, 30) })
            .collect();
        let steps: Vec<(f64, f64)> =
            (1..=30).map(|e| (f64::from(e), 0.5 * (1.0 + (0.2 * f64::from(e)).cos()))).collect();
        let figure = weight_paths(&channels, &steps).unwrap();
        for part in
            ["(a) conv1, input channel 3", "(b) conv2, output channel &lt;1&gt;", "(c) step size"]
        {
            assert!(figure.svg.contains(part), "{part}");
        }
        let lines = figure.svg.matches("<polyline").count();
        assert!((2 * MOST_PATHS..2 * MOST_PATHS + 100).contains(&lines), "{lines}");
        assert!(
            figure.svg.starts_with("<svg width=\"1140\" height=\"300\" "),
            "{}",
            &figure.svg[..60]
        );
        assert_eq!(is_png(&figure.png), (2280, 600));
    }

    #[test]
    fn figure_2_compares_runs() {
        let course = |name: &str, end: f64| {
            let line = |top: f64| -> Vec<(f64, f64)> {
                (1..=40).map(|e| (f64::from(e), top * f64::from(e) / 40.0)).collect()
            };
            PruningCourse {
                name: name.into(),
                accuracy: line(0.9),
                soft: line(0.7),
                sparsity: line(end),
            }
        };
        let figure = pruning_courses(&[course("DFP", 0.9), course("DPF", 0.88)]).unwrap();
        for part in ["DFP", "DPF", "Test accuracy", "soft mask", "Sparsity"] {
            assert!(figure.svg.contains(part), "{part}");
        }
        assert!(is_png(&figure.png).0 > 2000);
    }

    /// Words of a drawn SVG with their place: x, y, text.
    fn words(svg: &str) -> Vec<(f64, f64, String)> {
        let number = |element: &str, name: &str| -> f64 {
            let from = element.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
            let rest = &element[from..];
            rest[..rest.find('"').unwrap()].parse().unwrap()
        };
        let one = |element: &str| {
            let (open, rest) = element.split_once('>').unwrap();
            let text = rest.split("</text>").next().unwrap().trim().to_owned();
            (number(open, "x"), number(open, "y"), text)
        };
        svg.split("<text").skip(1).map(one).collect()
    }

    #[test]
    fn the_legend_of_figure_2_stays_in_the_picture() {
        let line = vec![(1.0, 0.1), (2.0, 0.5)];
        for count in [2, 4, 7] {
            let name = |run: usize| match run {
                3 => format!("SM: sparse momentum ({}3)", "a-long-folder/".repeat(20)),
                _ => format!("DFP: what is pruned stays pruned (dfp-of-seed-{run})"),
            };
            let runs: Vec<PruningCourse> = (0..count)
                .map(|run| PruningCourse {
                    name: name(run),
                    accuracy: line.clone(),
                    soft: line.clone(),
                    sparsity: line.clone(),
                })
                .collect();
            let figure = pruning_courses(&runs).unwrap();
            // The drawing has twice the size that it is shown with.
            let (wide, high) = is_png(&figure.png);
            let drawn = words(&figure.svg);
            let entries: Vec<_> = drawn.iter().filter(|(.., text)| text.contains(": ")).collect();
            assert_eq!(entries.len(), count);
            // As wide as letters of a wide font, 0.6 of their height of 26, are on average.
            let end = |(x, _, text): &(f64, f64, String)| x + 15.6 * text.chars().count() as f64;
            for (at, entry) in entries.iter().enumerate() {
                assert!(end(entry) <= f64::from(wide), "{count}: {entry:?}");
                assert!(entry.2.ends_with(&format!("{at})")), "{entry:?}");
                if let Some(next) = entries.get(at + 1) {
                    assert!(next.1 > entry.1 || next.0 > end(entry), "{entry:?} {next:?}");
                }
            }
            let lowest = entries.last().unwrap().1;
            let title = drawn.iter().find(|(.., text)| text == "Sparsity").unwrap();
            assert!(title.1 > lowest && title.1 < f64::from(high), "{title:?} {lowest}");
        }
    }

    #[test]
    fn nothing_recorded_is_still_a_figure() {
        assert!(weight_paths(&[], &[]).is_ok());
        let empty = ChannelPaths { title: "none".into(), paths: Vec::new() };
        assert!(weight_paths(&[empty], &[(1.0, 1.0)]).is_ok());
        assert!(pruning_courses(&[]).is_ok());
    }
}
