//! Several runs as one HTML file: a table, and plots of what one thing costs in another.

use thinfer_data::Result;
use thinfer_data::memory::human_bytes;

use super::axis::Axis;
use super::curves;
use super::page::{
    Key, count, document, element, escape, figure, figures, listed, number, number_or_nothing,
    paragraph, percent, percent_or_nothing, plural, quantity, remark, section, sortable, table,
};
use super::plots::{Ink, Mark, Plot, SERIES};
use crate::compare::{self, Comparison, Differing, Entry, Evaluated, Group, OverSeeds, Subject};

/// Keys by which a group is told from others, at most.
const MOST_KEYS: usize = 2;

/// A quantity of a run, where it is known.
type Value = fn(&Entry) -> Option<f64>;

/// The comparison as the text of an HTML file.
pub fn html(comparison: &Comparison) -> Result<String> {
    let title = format!("{}, {}", comparison.data, plural(comparison.runs.len(), "run"));
    let head = element("h1", &escape(&title))
        + &element("p class=\"summary\"", &escape(&sentence(comparison)));
    let mut sections = Vec::new();
    sections.extend(over_seeds(comparison).map(|html| section("seeds", "Over seeds", html)));
    sections.push(section("runs", "Runs", runs(comparison)));
    if !comparison.differences.is_empty() {
        let title = "Differences of the configurations";
        sections.push(section("differences", title, differences(comparison)));
    }
    sections.push(section("trade-offs", "What one thing costs in another", plots(comparison)?));
    let curves = curves::plots(comparison)?;
    sections.extend(curves.map(|html| section("curves", "Curves over each other", html)));
    sections.push(section("costs", "Size and cost", costs(comparison)));
    Ok(document(&format!("{title} \u{2013} thinfer"), &head, &sections))
}

fn sentence(comparison: &Comparison) -> String {
    let finished = comparison.runs.iter().filter(|run| run.finished).count();
    let unfinished = match comparison.runs.len() - finished {
        0 => String::new(),
        n => {
            format!(" {} not finished and only listed.", if n == 1 { "One is" } else { "Some are" })
        }
    };
    if comparison.front.is_empty() {
        return format!("None of the runs can be compared yet.{unfinished}");
    }
    let mut front = comparison.front.clone();
    front.sort_unstable();
    let names: Vec<String> = front.iter().map(|at| (at + 1).to_string()).collect();
    let score = if comparison.is_error() { "error" } else { "accuracy" };
    let which = if names.len() == 1 { "run" } else { "runs" };
    format!(
        "Of {} no other one beats {which} {} in both {score} and sparsity.{unfinished}",
        plural(finished, "finished run"),
        names.join(", ")
    )
}

/// What a run is called here: its number, and its folder as far as it takes to tell runs apart.
fn name(comparison: &Comparison, at: usize) -> String {
    let last = |run: &Entry| run.run.trim_end_matches(['/', '\\']).to_owned();
    let short = |run: &Entry| last(run).rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let run = &comparison.runs[at];
    let alike = comparison.runs.iter().filter(|other| short(other) == short(run)).count();
    let folder = if alike == 1 { short(run) } else { last(run) };
    format!("{}: {folder}", at + 1)
}

/// What a group is called here: its only run, or its method and the numbers of its runs.
pub(super) fn group_name(comparison: &Comparison, group: &Group) -> String {
    if let [only] = group.runs[..] {
        return name(comparison, only);
    }
    let numbers: Vec<String> = group.runs.iter().map(|run| (run + 1).to_string()).collect();
    let first = group.runs.first().copied().unwrap_or(0);
    let mut words = vec![comparison.runs[first].method.clone()];
    // Where the method says too little, what else differs.
    let telling = |of: &&Differing| !of.is_seed() && of.key != "method.kind";
    let more = comparison.differences.iter().filter(telling).take(MOST_KEYS);
    words.extend(more.map(|of| format!("{} {}", of.key, of.values[first])));
    format!("{}: {}", numbers.join(", "), words.join(", "))
}

/// A score over seeds: its name, its heading, and how it is shown.
type Column = (&'static str, &'static str, fn(f64) -> String);

/// Mean and standard deviation of what runs score that differ only in the seed; nothing where no
/// two do.
fn over_seeds(comparison: &Comparison) -> Option<String> {
    let scores: &[Column] = if comparison.is_error() {
        &[("mse", "MSE", number), ("nll", "NLL", number)]
    } else {
        &[("accuracy", "Accuracy", percent), ("nll", "NLL", number), ("ece", "ECE", number)]
    };
    let last: &[Column] = &[("sparsity", "Pruned", percent), ("seconds", "Seconds", number)];
    let several: Vec<&Group> =
        comparison.groups.iter().filter(|group| group.runs.len() > 1).collect();
    if several.is_empty() {
        return None;
    }
    let mut head = vec!["Runs", "Seeds"];
    head.extend(scores.iter().chain(last).map(|(_, title, _)| *title));
    let row = |group: &&Group| {
        let seeds: Vec<String> =
            group.runs.iter().map(|run| comparison.runs[*run].seed.to_string()).collect();
        let mut cells = vec![group_name(comparison, group), listed(&seeds, 6)];
        cells.extend(scores.iter().chain(last).map(|(name, _, show)| {
            group.score(name).map_or_else(
                || number_or_nothing(None),
                |of| match of.sd {
                    Some(sd) => format!("{} \u{b1} {}", show(of.mean), show(sd)),
                    None => show(of.mean),
                },
            )
        }));
        cells
    };
    let mut about = "Mean \u{b1} standard deviation over finished runs that differ in nothing but \
                     the seed."
        .to_owned();
    if comparison.split_by_seed {
        about += " The rows of the table are divided by the seed, so each run is tested on rows of \
                  its own.";
    }
    Some(sortable(&head, &several.iter().map(row).collect::<Vec<_>>()) + &remark(&about))
}

/// The keys that have not the same value in all groups; the seeds stand with the runs.
fn differences(comparison: &Comparison) -> String {
    let first = |group: &Group| group.runs.first().copied().unwrap_or(0);
    let names: Vec<String> =
        comparison.groups.iter().map(|group| group_name(comparison, group)).collect();
    let mut head = vec!["Key"];
    head.extend(names.iter().map(String::as_str));
    let row = |of: &Differing| -> Option<Vec<String>> {
        let mut cells: Vec<String> =
            comparison.groups.iter().map(|group| of.values[first(group)].clone()).collect();
        let differs = cells.windows(2).any(|pair| pair[0] != pair[1]);
        cells.insert(0, of.key.clone());
        (differs && !of.is_seed()).then_some(cells)
    };
    let rows: Vec<Vec<String>> = comparison.differences.iter().filter_map(row).collect();
    if rows.is_empty() {
        return paragraph("The runs differ in nothing but the seed.");
    }
    table(&head, &rows) + &remark("All other keys have the same value in all runs.")
}

fn runs(comparison: &Comparison) -> String {
    let numbers = comparison.subject == Some(Subject::Numbers);
    let selects = comparison.subject.is_some_and(|subject| subject != Subject::Images);
    let mut head = vec!["Run", "Method", "Seed", "Samples"];
    head.extend(if numbers {
        &["MSE", "NLL", "In 90\u{a0}% interval"][..]
    } else {
        &["Accuracy", "NLL", "ECE", "Brier"]
    });
    if selects {
        head.extend(["Selected", "FDR", "FNDR"]);
    }
    head.extend(["Pruned", "Front"]);
    let row = |(at, run): (usize, &Entry)| -> Vec<String> {
        let mut cells = vec![name(comparison, at), run.method.clone(), run.seed.to_string()];
        let Some(found) = &run.evaluated else {
            let (done, all) = (count(run.epochs_done), count(run.epochs));
            cells.push(format!("unfinished, {done} of {all} epochs"));
            return cells;
        };
        cells.push(count(found.samples));
        if numbers {
            cells.extend([
                number_or_nothing(found.mse),
                number_or_nothing(found.nll),
                percent_or_nothing(found.coverage90),
            ]);
        } else {
            cells.extend([
                percent_or_nothing(found.accuracy),
                number_or_nothing(found.nll),
                number_or_nothing(found.ece),
                number_or_nothing(found.brier),
            ]);
        }
        if selects {
            let selected = found.selected.map_or_else(|| "\u{2013}".to_owned(), count);
            let [fdr, fndr] = [found.fdr, found.fndr].map(percent_or_nothing);
            cells.extend([selected, fdr, fndr]);
        }
        let front = if comparison.front.contains(&at) { "yes" } else { "" };
        cells.extend([percent(found.sparsity), front.to_owned()]);
        cells
    };
    let rows: Vec<Vec<String>> = comparison.runs.iter().enumerate().map(row).collect();
    sortable(&head, &rows)
        + &remark(
            "Scores are of the posterior, the average of the samples after the burn-in that share \
             their chain's final mask, on the same test data. Pruned: of all parameters. Front: no other run is better \
             in both the score and the sparsity.",
        )
}

fn costs(comparison: &Comparison) -> String {
    let head = ["Run", "Network", "Multiply-adds", "Bytes", "Seconds", "Memory", "Device"];
    let row = |(at, run): (usize, &Entry)| -> Vec<String> {
        let left = |amounts: fn(&Evaluated) -> (f64, f64), show: fn(f64) -> String| {
            run.evaluated.as_ref().map_or_else(
                || "\u{2013}".to_owned(),
                |found| {
                    let (whole, left) = amounts(found);
                    let of_all = if whole > 0.0 { left / whole } else { 1.0 };
                    format!("{}, {}", show(left), percent(of_all))
                },
            )
        };
        vec![
            name(comparison, at),
            run.model.clone(),
            left(|found| found.multiply_adds, quantity),
            left(|found| found.bytes, |bytes| human_bytes(bytes as u64)),
            number_or_nothing(run.seconds),
            human_bytes(run.memory_bytes as u64),
            run.device.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = comparison.runs.iter().enumerate().map(row).collect();
    let left = match comparison.subject {
        Some(Subject::Images) => "of the smaller network without dead channels",
        _ => "of the weights that are kept",
    };
    sortable(&head, &rows)
        + &remark(&format!(
            "Multiply-adds of a prediction and bytes: {left}, and their share of the whole network. \
             Seconds: of all epochs with the evaluation after them. Memory: weights, state and masks \
             that the method keeps while it trains, of all chains."
        ))
}

/// One plot.
struct Trade {
    title: &'static str,
    x: (compare::Axis, Value),
    x_name: &'static str,
    y: (compare::Axis, Value),
    /// Whether y is a share.
    y_share: bool,
    about: &'static str,
}

fn plots(comparison: &Comparison) -> Result<String> {
    use compare::Axis::{LessIsBetter, MoreIsBetter};
    let sparsity: (compare::Axis, Value) =
        (MoreIsBetter, |run| Some(run.evaluated.as_ref()?.sparsity));
    let seconds: (compare::Axis, Value) = (LessIsBetter, |run| run.seconds);
    let memory: (compare::Axis, Value) =
        (LessIsBetter, |run| Some(run.memory_bytes as f64 / f64::from(1 << 20)));
    let nll: (compare::Axis, Value) = (LessIsBetter, |run| run.evaluated.as_ref()?.nll);
    let ece: (compare::Axis, Value) = (LessIsBetter, |run| run.evaluated.as_ref()?.ece);
    let (score, pruned) = (comparison.score(), "share of all parameters pruned");
    let names = if comparison.is_error() {
        ["MSE against sparsity", "MSE against time", "MSE against memory"]
    } else {
        ["Accuracy against sparsity", "Accuracy against time", "Accuracy against memory"]
    };
    let trade = |title, x, x_name, y, y_share, about| Trade { title, x, x_name, y, y_share, about };
    let shares = !comparison.is_error();
    let devices: Vec<&str> = comparison.runs.iter().map(|run| run.device.as_str()).collect();
    let mixed = devices.windows(2).any(|pair| pair[0] != pair[1]);
    let time = if mixed { "The runs were computed on different devices." } else { "" };
    let all = [
        trade(names[0], sparsity, pruned, score, shares, ""),
        trade("NLL against sparsity", sparsity, pruned, nll, false, ""),
        trade("ECE against sparsity", sparsity, pruned, ece, true, ""),
        trade(names[1], seconds, "seconds of training", score, shares, time),
        trade(
            names[2],
            memory,
            "MiB of weights, state and masks",
            score,
            shares,
            "What the method keeps; activations are the same for all methods of one network.",
        ),
    ];
    let drawn = all.iter().map(|trade| trade.figure(comparison)).collect::<Result<Vec<_>>>()?;
    let drawn: Vec<String> = drawn.into_iter().flatten().collect();
    let html = figures(&drawn);
    Ok(html
        + &remark(
            "A dot is a run, with its number in the table. The line is the Pareto front: a run on it \
             is not beaten by any other in both things at once. A cross is the mean of runs that \
             differ only in the seed, and a standard deviation to each side.",
        ))
}

impl Trade {
    /// Nothing where no run has both.
    fn figure(&self, comparison: &Comparison) -> Result<Option<String>> {
        let point = |run: &Entry| Some((self.x.1(run)?, self.y.1(run)?));
        let points: Vec<Option<(f64, f64)>> =
            comparison.runs.iter().map(|run| point(run).filter(|_| run.finished)).collect();
        let known: Vec<(f64, f64)> = points.iter().flatten().copied().collect();
        if known.is_empty() {
            return Ok(None);
        }
        let bars: Vec<Mark> =
            comparison.groups.iter().flat_map(|group| error_bars(group, &points)).collect();
        let ends = || {
            let of = |bar: &Mark| match bar {
                Mark::Line { points, .. } => points.clone(),
                _ => Vec::new(),
            };
            bars.iter().flat_map(of).chain(known.iter().copied())
        };
        let x = Axis::linear(ends().map(|p| p.0));
        let mut y = Axis::linear(ends().map(|p| p.1));
        if self.y_share {
            y = Axis::between(y.low, y.high.min(1.0).max(y.low + 1e-3));
        }
        let mut plot = Plot::new(self.title, x, self.x_name, y);
        // Room for the number of the last run.
        plot.right = 34;
        let front: Vec<(f64, f64)> =
            comparison.front_of(self.x, self.y).into_iter().filter_map(|at| points[at]).collect();
        plot.marks.push(Mark::line(&stairs(&front, self.x.0), Ink::Muted).with(1.5, 0.8));
        let mut methods: Vec<&str> = Vec::new();
        let mut keys = Vec::new();
        for (at, run) in comparison.runs.iter().enumerate() {
            let Some(place) = points[at] else { continue };
            let colour = methods.iter().position(|m| *m == run.method).unwrap_or_else(|| {
                methods.push(&run.method);
                methods.len() - 1
            });
            let ink = Ink::Series((colour % usize::from(SERIES)) as u8);
            if keys.len() < methods.len() {
                keys.push(Key::new("dot", ink, run.method.clone()));
            }
            plot.marks.push(Mark::Dots { points: vec![place], ink, radius: 4.0 });
            plot.marks.push(Mark::Text { at: place, text: (at + 1).to_string(), centred: false });
            let (x, y) = (number(place.0), number(place.1));
            let told = format!("{}: {} {x}, {y}", name(comparison, at), self.x_name);
            plot.told.push((place, told));
        }
        plot.marks.extend(bars);
        keys.push(Key::new("line", Ink::Muted, "Pareto front"));
        let about = if methods.len() > usize::from(SERIES) {
            format!("{} Methods share colours: see the numbers.", self.about)
        } else {
            self.about.to_owned()
        };
        figure(self.title, &plot, &keys, about.trim()).map(Some)
    }
}

/// A cross through the mean of a group, one standard deviation long to each side.
fn error_bars(group: &Group, points: &[Option<(f64, f64)>]) -> Vec<Mark> {
    let known: Vec<(f64, f64)> = group.runs.iter().filter_map(|run| points[*run]).collect();
    let of = |values: Vec<f64>| OverSeeds::of("", &values).and_then(|of| Some((of.mean, of.sd?)));
    let across = of(known.iter().map(|p| p.0).collect());
    let up = of(known.iter().map(|p| p.1).collect());
    let (Some((x, dx)), Some((y, dy))) = (across, up) else { return Vec::new() };
    [[(x - dx, y), (x + dx, y)], [(x, y - dy), (x, y + dy)]]
        .map(|line| Mark::line(&line, Ink::Text).with(1.5, 0.9))
        .to_vec()
}

/// The front as stairs: between two of its runs there is nothing better than one of them.
fn stairs(front: &[(f64, f64)], x: compare::Axis) -> Vec<(f64, f64)> {
    let mut line: Vec<(f64, f64)> = Vec::new();
    for &point in front {
        if let Some(&last) = line.last() {
            line.push(match x {
                compare::Axis::MoreIsBetter => (last.0, point.1),
                compare::Axis::LessIsBetter => (point.0, last.1),
            });
        }
        line.push(point);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_tags, without_script};
    use super::*;
    use crate::compare::Course;

    fn run(name: &str, method: &str, accuracy: f64, sparsity: f64) -> Entry {
        Entry {
            run: name.to_owned(),
            method: method.to_owned(),
            model: "lenet".to_owned(),
            seed: 1,
            chains: 1,
            epochs: 20,
            finished: true,
            epochs_done: 20,
            evaluated: Some(Evaluated {
                samples: 3,
                accuracy: Some(accuracy),
                nll: Some(1.0 - accuracy),
                ece: Some(0.02),
                brier: Some(0.1),
                sparsity,
                multiply_adds: (1000.0, 1000.0 * (1.0 - sparsity)),
                bytes: (4096.0, 4096.0 * (1.0 - sparsity)),
                ..Evaluated::default()
            }),
            seconds: Some(60.0 * accuracy),
            memory_bytes: 13 << 20,
            device: "cpu".to_owned(),
            course: Course { loss: vec![(1.0, 2.0), (20.0, 1.0)], ..Course::default() },
        }
    }

    fn comparison(runs: Vec<Entry>) -> Comparison {
        let data = "shapes".to_owned();
        let group = |run: usize| Group { runs: vec![run], scores: Vec::new() };
        let mut all = Comparison {
            data,
            subject: Some(Subject::Images),
            groups: (0..runs.len()).map(group).collect(),
            runs,
            front: Vec::new(),
            differences: Vec::new(),
            split_by_seed: false,
        };
        let sparsity: Value = |run| Some(run.evaluated.as_ref()?.sparsity);
        all.front = all.front_of((compare::Axis::MoreIsBetter, sparsity), all.score());
        all
    }

    #[test]
    fn a_page_has_the_table_the_plots_and_the_front() {
        let mut unfinished = run("runs/<late>", "dsr", 0.9, 0.9);
        (unfinished.finished, unfinished.epochs_done, unfinished.evaluated) = (false, 7, None);
        let all = comparison(vec![
            run("runs/sgd", "sgd", 0.95, 0.0),
            run("runs/dfp", "em-mcmc, DFP", 0.94, 0.9),
            run("runs/sm", "sm", 0.90, 0.9),
            unfinished,
        ]);
        assert_eq!(all.front, [0, 1]);
        let page = html(&all).unwrap();
        check_tags(&page);
        for part in [
            "<h1>shapes, 4 runs</h1>",
            "Of 3 finished runs no other one beats runs 1, 2 in both accuracy and sparsity",
            "One is not finished",
            "4: &lt;late&gt;",
            "unfinished, 7 of 20 epochs",
            "em-mcmc, DFP",
            "409 bytes, 10",
            "13.0 MiB",
            "Accuracy against sparsity",
            "NLL against sparsity",
            "ECE against sparsity",
            "Accuracy against time",
            "Accuracy against memory",
            "Pareto front",
            "Curves over each other",
            "Training loss",
        ] {
            assert!(page.contains(part), "`{part}` is missing");
        }
        let page = without_script(&page);
        assert!(!page.contains("NaN") && !page.contains("<late>"));
    }

    #[test]
    fn runs_that_are_not_finished_have_a_page_without_plots() {
        let mut only = run("runs/a", "sgd", 0.9, 0.0);
        (only.finished, only.epochs_done, only.evaluated) = (false, 0, None);
        let page = html(&comparison(vec![only])).unwrap();
        check_tags(&page);
        assert!(page.contains("None of the runs can be compared yet") && !page.contains("against"));
    }

    #[test]
    fn the_front_has_steps_on_the_side_that_nothing_reaches() {
        let front = [(0.0, 0.95), (0.9, 0.93)];
        assert_eq!(
            stairs(&front, compare::Axis::MoreIsBetter),
            [(0.0, 0.95), (0.0, 0.93), (0.9, 0.93)]
        );
        assert_eq!(
            stairs(&[(10.0, 0.8), (20.0, 0.9)], compare::Axis::LessIsBetter),
            [(10.0, 0.8), (20.0, 0.8), (20.0, 0.9)]
        );
    }
}
