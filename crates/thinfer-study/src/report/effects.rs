//! What the variables do: how much worse the model gets without each, and how its prediction changes
//! along the most important ones.

use thinfer_core::posterior::Posterior;
use thinfer_data::{Result, Task};

use super::axis::Axis;
use super::of_table::TableRun;
use super::page::{
    Key, Section, count, element, escape, figure, figures, level, number, paragraph, percent,
    plural, remark, section, sortable,
};
use super::plots::{Ink, Mark, Plot, SERIES};
use super::variables::{BAR_HEIGHT, name_room, shortened};
use crate::effects::{Dependence, Direction, Importance, Place, Response, dependence, importance};
use crate::select::Selected;

/// Variables with a bar, at most.
const MOST_BARS: usize = 20;
/// Variables with a plot of their own, at most.
const MOST_PLOTS: usize = 8;
/// What a band holds of the samples.
const BAND: f64 = 0.9;

/// The section; nothing where there are no samples, or no rows to ask.
pub(super) fn section_of(
    run: &TableRun<'_>,
    selection: Option<&Selected>,
) -> Result<Option<Section>> {
    let posterior = run.posterior();
    if posterior.members.is_empty() || run.data.test.rows() == 0 || run.data.train.rows() == 0 {
        return Ok(None);
    }
    let important = importance(&posterior, run.data, run.info.config.seed)?;
    if important.is_empty() {
        return Ok(None);
    }
    let shown = &important[..important.len().min(MOST_BARS)];
    let error = match run.data.task {
        Task::Regression => "squared error",
        Task::Classification => "log loss",
    };
    let mut html = paragraph(&format!(
        "Without a variable is with its values shuffled over the test rows. The bars are by how much \
         the {error} grows then, as a share of that of a constant prediction."
    ));
    let along = shown
        .iter()
        .map(|of| dependence(&posterior, run.data, of.variable))
        .collect::<Result<Vec<_>>>()?;
    html += &rows(run, shown, &along, selection);
    html += &figures(&[bars(run, shown)?]);
    if important.len() > shown.len() {
        let more = plural(important.len() - shown.len(), "less important variable");
        html += &remark(&format!("{more} not shown."));
    }
    html += &plots(run, &posterior, &along)?;
    Ok(Some(section("effects", "Effects of the variables", html)))
}

/// A line for each variable.
fn rows(
    run: &TableRun<'_>,
    shown: &[Importance],
    along: &[Option<Dependence>],
    selection: Option<&Selected>,
) -> String {
    let mut head = vec!["Variable", "Direction", "Change", "Error without it"];
    if selection.is_some() {
        head.extend(["Frequency", "z"]);
    }
    let row = |(of, along): (&Importance, &Option<Dependence>)| {
        let name = &run.data.names[of.variable];
        let direction = along.as_ref().and_then(Dependence::direction);
        let nothing = || "\u{2013}".to_owned();
        let mut cells = vec![
            name.clone(),
            direction.as_ref().map_or_else(nothing, |(direction, _)| words(direction)),
            direction.as_ref().map_or_else(nothing, |(_, change)| amount(run, *change)),
            signed(of.share),
        ];
        if let Some(selection) = selection {
            let effect = selection.effects.iter().find(|effect| effect.name == *name);
            cells.extend([
                effect.map_or_else(nothing, |effect| percent(rounded(effect.frequency))),
                effect.map_or_else(nothing, |effect| format!("{:.1}", effect.z)),
            ]);
        }
        cells
    };
    let rows: Vec<Vec<String>> = shown.iter().zip(along).map(row).collect();
    let unit = match run.data.task {
        Task::Regression => format!("in units of {}", run.data.schema.target_name),
        Task::Classification => "of a probability, in percentage points".to_owned(),
    };
    let mut about = format!(
        "Change: of the mean prediction along the variable, all else as it is in the rows, {unit}; \
         from the 2.5th to the 97.5th percentile, or from the lowest to the highest."
    );
    if selection.is_some() {
        about += " Frequency: share of chains and samples that read the variable and predict unseen \
                  rows worse without it, no probability; z: how far that is from chance.";
    }
    sortable(&head, &rows) + &remark(&about)
}

fn words(direction: &Direction) -> String {
    match direction {
        Direction::Up => "up".to_owned(),
        Direction::Down => "down".to_owned(),
        Direction::Curved => "bends".to_owned(),
        Direction::Levels { lowest, highest } => {
            format!("{} lowest, {} highest", shortened(lowest), shortened(highest))
        }
    }
}

/// A sum of shares without what rounding leaves at its end.
fn rounded(share: f64) -> f64 {
    (share * 1e9).round() / 1e9
}

/// A share with its sign, where it is below 0.
fn signed(share: f64) -> String {
    if share < 0.0 { format!("\u{2212}{}", percent(-share)) } else { percent(share) }
}

fn amount(run: &TableRun<'_>, change: f64) -> String {
    match run.data.task {
        Task::Regression => number(change),
        Task::Classification => signed(change),
    }
}

/// How much worse the model gets without each variable.
fn bars(run: &TableRun<'_>, shown: &[Importance]) -> Result<String> {
    let names: Vec<String> =
        shown.iter().map(|of| shortened(&run.data.names[of.variable])).collect();
    let shares = || shown.iter().map(|of| of.share);
    let highest = shares().fold(0.0, f64::max);
    let lowest = shares().fold(0.0, f64::min);
    let span = (highest - lowest).max(1e-6);
    let x = Axis::between(lowest - 0.02 * span, highest + 0.02 * span).in_percent();
    let mut plot =
        Plot::new("Growth of the error without each variable", x, "growth of the error", {
            Axis::names(&names)
        });
    plot.left = name_room(&names);
    plot.right = 72;
    plot.height = 56 + BAR_HEIGHT * shown.len() as u32;
    for (at, of) in shown.iter().enumerate() {
        let y = -(at as f64);
        let (from, to) = ((0.0, y - 0.34), (of.share, y + 0.34));
        plot.marks.push(Mark::Bar { from, to, ink: Ink::Series(0), opacity: 1.0 });
        let at = (of.share.max(0.0), y);
        plot.marks.push(Mark::Text { at, text: signed(of.share), centred: false });
    }
    figure("Growth of the error without each variable", &plot, &[], "")
}

/// The mean prediction along the most important variables.
fn plots(
    run: &TableRun<'_>,
    posterior: &Posterior,
    along: &[Option<Dependence>],
) -> Result<String> {
    let drawn: Vec<&Dependence> = along.iter().flatten().take(MOST_PLOTS).collect();
    if drawn.is_empty() {
        return Ok(String::new());
    }
    let all = drawn.iter().map(|found| plot_of(run, found)).collect::<Result<Vec<_>>>()?;
    let samples = match posterior.members.len() {
        1 => "There is a single sample, so there is no band.".to_owned(),
        many => format!("The band holds {} of {}.", level(BAND), plural(many, "sample")),
    };
    Ok(element("h3", &escape("How the prediction depends on them"))
        + &paragraph(&format!(
            "The mean prediction over training rows where the variable has each value and all else \
             stays as it is (partial dependence). {samples} It is what the model does, and no cause."
        ))
        + &figures(&all))
}

fn plot_of(run: &TableRun<'_>, found: &Dependence) -> Result<String> {
    let name = &run.data.names[found.variable];
    let level_names: Option<Vec<String>> = found
        .places
        .iter()
        .map(|place| match place {
            Place::Level(level) => Some(shortened(level)),
            Place::Number(_) => None,
        })
        .collect();
    let shown = &found.responses[..found.responses.len().min(usize::from(SERIES))];
    let title = format!("{} along {name}", target_of(run, found));
    let plot = match level_names {
        Some(levels) => of_category(run, &title, &levels, shown),
        None => of_number(run, &title, found, shown),
    };
    let mut keys: Vec<Key> = Vec::new();
    if let [only] = shown {
        let several = only.points.iter().any(|point| point.1 < point.2);
        let (mean, band, ink) =
            if plot.y.grid { ("line", "area", Ink::Series(0)) } else { ("bar", "line", Ink::Text) };
        keys.push(Key::new(mean, Ink::Series(0), "mean of the samples"));
        if several {
            keys.push(Key::new(band, ink, format!("{} of them", level(BAND))));
        }
    } else {
        keys.extend(shown.iter().enumerate().map(|(at, response)| {
            Key::new("line", Ink::Series(at as u8), class_name(run, response))
        }));
    }
    let hidden = found.responses.len() - shown.len();
    let about = match hidden {
        0 if !plot.y.grid && run.data.task == Task::Regression => {
            "Bars begin at the mean of the levels.".to_owned()
        }
        0 => String::new(),
        more => format!("{} more classes are not shown.", count(more)),
    };
    figure(&title, &plot, &keys, &about)
}

/// What is predicted: the target, or the probability of a class of it.
fn target_of(run: &TableRun<'_>, found: &Dependence) -> String {
    let target = &run.data.schema.target_name;
    match &found.responses[..] {
        [only] if only.class.is_some() => format!("P({target} = {})", class_name(run, only)),
        [_] => target.clone(),
        _ => format!("Probabilities of {target}"),
    }
}

fn class_name(run: &TableRun<'_>, response: &Response) -> String {
    let level = response.class.and_then(|class| run.data.schema.target.levels().get(class));
    level.map_or_else(String::new, |level| shortened(level))
}

/// The axis of a prediction: a probability from 0 to 1 where it fills much of it.
fn heights(run: &TableRun<'_>, shown: &[Response]) -> Axis {
    let all = || shown.iter().flat_map(|of| &of.points).flat_map(|p| [p.0, p.1, p.2]);
    let axis = Axis::linear(all());
    if run.data.task == Task::Classification {
        let (low, high) = (axis.low.max(0.0), axis.high.min(1.0));
        return Axis::between(low, high.max(low + 1e-3));
    }
    axis
}

fn of_number(run: &TableRun<'_>, title: &str, found: &Dependence, shown: &[Response]) -> Plot {
    let values: Vec<f64> = found
        .places
        .iter()
        .filter_map(|place| match place {
            Place::Number(value) => Some(*value),
            Place::Level(_) => None,
        })
        .collect();
    let (low, high) = match (values.first(), values.last()) {
        (Some(low), Some(high)) if low < high => (*low, *high),
        _ => (0.0, 1.0),
    };
    let room = 0.02 * (high - low);
    let x = Axis::between(low - room, high + room);
    let mut plot = Plot::new(title, x, "", heights(run, shown));
    plot.x_name = shortened(&run.data.names[found.variable]);
    for (at, response) in shown.iter().enumerate() {
        let ink = Ink::Series(at as u8);
        let places = || values.iter().zip(&response.points);
        let band = places().map(|(x, (_, low, high))| (*x, *low, *high)).collect();
        let opacity = if shown.len() == 1 { 0.2 } else { 0.08 };
        plot.marks.push(Mark::Band { points: band, ink, opacity });
        let line: Vec<(f64, f64)> = places().map(|(x, (mean, ..))| (*x, *mean)).collect();
        plot.marks.push(Mark::line(&line, ink).with(2.0, 1.0));
    }
    // Deciles as short lines: where the rows are.
    let (bottom, top) = (plot.y.low, plot.y.low + 0.025 * (plot.y.high - plot.y.low));
    for decile in found.deciles.iter().filter(|decile| (low..=high).contains(*decile)) {
        let line = [(*decile, bottom), (*decile, top)];
        plot.marks.push(Mark::line(&line, Ink::Text).with(1.0, 0.7));
    }
    plot
}

/// Bars for levels, from the mean of the levels, or from 0 where they are probabilities; the line
/// over the end is the band.
fn of_category(run: &TableRun<'_>, title: &str, levels: &[String], shown: &[Response]) -> Plot {
    let axis = heights(run, shown);
    let name = match run.data.task {
        Task::Regression => shortened(&run.data.schema.target_name),
        Task::Classification => "probability".to_owned(),
    };
    let means = || shown.iter().flat_map(|of| &of.points).map(|point| point.0);
    let (bottom, start) = match run.data.task {
        Task::Regression => (axis.low, means().sum::<f64>() / means().count().max(1) as f64),
        Task::Classification => (0.0, 0.0),
    };
    let mut plot = Plot::new(title, Axis::between(bottom, axis.high), "", Axis::names(levels));
    plot.x_name = name;
    plot.left = name_room(levels);
    plot.height = 56 + (BAR_HEIGHT + 6) * levels.len() as u32;
    let (inks, width) = (shown.len().max(1) as f64, 0.72);
    for (at, response) in shown.iter().enumerate() {
        let ink = Ink::Series(at as u8);
        for (level, (mean, low, high)) in response.points.iter().enumerate() {
            let above = -(level as f64) + width / 2.0 - at as f64 * width / inks;
            let below = above - 0.92 * width / inks;
            let (from, to) = ((start, below), (*mean, above));
            plot.marks.push(Mark::Bar { from, to, ink, opacity: 0.75 });
            let middle = 0.5 * (above + below);
            let line = [(*low, middle), (*high, middle)];
            plot.marks.push(Mark::line(&line, Ink::Text).with(1.5, 1.0));
        }
    }
    plot
}
