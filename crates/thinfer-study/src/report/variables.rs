//! Which variables the samples read.

use thinfer_data::Result;
use thinfer_run::evaluate::{Evaluation, Inclusion};

use super::axis::Axis;
use super::of_table::TableRun;
use super::page::{
    Key, Section, count, figure, figures, listed, paragraph, percent, plural, section,
};
use super::plots::{Ink, Mark, Plot};

/// Bars, at most.
const MOST_BARS: usize = 30;
/// Characters of a name beside its bar.
const NAME_WIDTH: usize = 24;
/// Names in a sentence, at most.
const MOST_NAMES: usize = 12;
pub(super) const BAR_HEIGHT: u32 = 22;

/// A variable.
struct Variable<'a> {
    name: &'a str,
    share: f64,
    matters: bool,
}

/// The section about variables.
pub(super) fn section_of(run: &TableRun<'_>, evaluation: &Evaluation) -> Result<Section> {
    match &evaluation.inclusion {
        Some(inclusion) => probabilities(run, inclusion, evaluation.inclusion_difference),
        None => survivals(run, evaluation),
    }
}

/// How probable each variable is, where that was sampled.
fn probabilities(
    run: &TableRun<'_>,
    inclusion: &Inclusion,
    difference: Option<f64>,
) -> Result<Section> {
    let truth = run.data.truth.as_deref();
    let variable = |(at, (name, share)): (usize, (_, f64))| Variable {
        name,
        share,
        matters: truth.is_some_and(|t| t.contains(&at)),
    };
    let mut all: Vec<Variable<'_>> = inclusion.variables().enumerate().map(variable).collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    let selected = all.iter().filter(|v| v.share > 0.5).count();
    let mut html = paragraph(
        "Inclusion is the probability that the weights of the variable are in the slab, given the data \
         and the prior. Variables above one half are selected.",
    );
    let bars: Vec<&Variable<'_>> = all.iter().take(MOST_BARS).collect();
    html.push_str(&figures(&[bar_plot(&bars, truth.is_some(), &PROBABLE)?]));
    let hidden = all.len() - bars.len();
    if hidden > 0 {
        html.push_str(&paragraph(&format!(
            "Not shown: {}, no more probable than these.",
            plural(hidden, "more variable")
        )));
    }
    html.push_str(&paragraph(&format!(
        "{} of {} selected.",
        count(selected),
        plural(all.len(), "variable")
    )));
    if let Some(difference) = difference {
        html.push_str(&paragraph(&format!(
            "Two chains differ by {} at most in the probability of a variable.",
            percent(difference)
        )));
    }
    Ok(section("variables", "Inclusion of variables", html))
}

/// What the bars of a plot show.
struct Shown {
    title: &'static str,
    axis: &'static str,
    most: fn(usize) -> String,
}

const PROBABLE: Shown = Shown {
    title: "Inclusion of the most probable variables",
    axis: "probability",
    most: |n| format!("The most probable {}", plural(n, "variable")),
};

const READ: Shown = Shown {
    title: "Survival of the variables that are read most often",
    axis: "share of samples",
    most: |n| match n {
        MOST_BARS => format!("The {MOST_BARS} variables read most often"),
        n => format!("{} that {} read", plural(n, "variable"), if n == 1 { "is" } else { "are" }),
    },
};

/// How long each variable survived pruning.
fn survivals(run: &TableRun<'_>, evaluation: &Evaluation) -> Result<Section> {
    let truth = run.data.truth.as_deref();
    let mut all: Vec<Variable<'_>> = run
        .data
        .names
        .iter()
        .enumerate()
        .map(|(at, name)| Variable {
            name,
            // Sums of 1/n: off by rounding, and that must not decide the order.
            share: (evaluation.survival.get(name).copied().unwrap_or_default() * 1e9).round() / 1e9,
            matters: truth.is_some_and(|t| t.contains(&at)),
        })
        .collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));

    let never = all.iter().filter(|v| v.share == 0.0).count();
    let always = all.iter().filter(|v| v.share == 1.0).count();
    let bars: Vec<&Variable<'_>> = all.iter().filter(|v| v.share > 0.0).take(MOST_BARS).collect();
    let mut html = paragraph(
        "Survival is the share of all samples, over all chains, whose network reads the variable. It is \
         no probability: where pruned variables cannot come back it falls with the length of the run.",
    );
    let lost: Vec<String> =
        all.iter().filter(|v| v.matters && v.share == 0.0).map(|v| v.name.to_owned()).collect();
    if bars.is_empty() {
        html.push_str(&paragraph("No sample reads any variable: every input was pruned."));
    } else if always == all.len() && always > 1 {
        let all = plural(always, "variable");
        html.push_str(&paragraph(&format!("Every sample reads all {all}: survival is 1.")));
    } else {
        html.push_str(&figures(&[bar_plot(&bars, truth.is_some(), &READ)?]));
        let hidden = all.len() - never - bars.len();
        if hidden > 0 {
            html.push_str(&paragraph(&format!(
                "Not shown: {} with a smaller or equal survival above 0.",
                plural(hidden, "more variable")
            )));
        }
    }
    html.push_str(&paragraph(&match never {
        0 => "Every variable survived in some sample.".to_owned(),
        1 => format!("1 of {} survived in no sample.", plural(all.len(), "variable")),
        n => format!("{} of {} survived in no sample.", count(n), plural(all.len(), "variable")),
    }));
    if !lost.is_empty() {
        html.push_str(&paragraph(&format!(
            "Variables that matter and survived in no sample: {}.",
            listed(&lost, MOST_NAMES)
        )));
    }
    Ok(section("variables", "Survival of variables", html))
}

fn bar_plot(bars: &[&Variable<'_>], truth_known: bool, shown: &Shown) -> Result<String> {
    let names: Vec<String> = bars.iter().map(|v| shortened(v.name)).collect();
    let mut plot = Plot::new(shown.title, Axis::between(0.0, 1.0), shown.axis, Axis::names(&names));
    plot.left = name_room(&names);
    plot.right = if truth_known { 120 } else { 64 };
    plot.height = 56 + BAR_HEIGHT * bars.len() as u32;
    for (at, variable) in bars.iter().enumerate() {
        let y = -(at as f64);
        let ink = Ink::Series(u8::from(truth_known && !variable.matters));
        let to = (variable.share, y + 0.34);
        plot.marks.push(Mark::Bar { from: (0.0, y - 0.34), to, ink, opacity: 1.0 });
        let share = percent(variable.share);
        let text = if variable.matters { format!("{share} matters") } else { share };
        plot.marks.push(Mark::Text { at: (variable.share, y), text, centred: false });
    }
    let keys = if truth_known {
        vec![
            Key::new("bar", Ink::Series(0), "matters (known, as the data is simulated)"),
            Key::new("bar", Ink::Series(1), "does not matter"),
        ]
    } else {
        Vec::new()
    };
    figure(&(shown.most)(bars.len()), &plot, &keys, "")
}

/// The room that names take up at the left of a plot.
pub(super) fn name_room(names: &[String]) -> u32 {
    20 + 8 * names.iter().map(|name| width(name)).max().unwrap_or(0) as u32
}

/// How many columns a name takes up; East Asian characters take two.
fn width(name: &str) -> usize {
    name.chars().map(|c| if c >= '\u{2e80}' { 2 } else { 1 }).sum()
}

/// A name that fits beside a bar.
pub(super) fn shortened(name: &str) -> String {
    // Line breaks and the like would be drawn as several lines, or not at all.
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if width(&name) <= NAME_WIDTH {
        return name;
    }
    let mut short = String::new();
    for c in name.chars() {
        if width(&short) + width(c.encode_utf8(&mut [0; 4])) + 1 > NAME_WIDTH {
            break;
        }
        short.push(c);
    }
    short.push('\u{2026}');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_to_their_room() {
        assert_eq!(shortened("x1"), "x1");
        assert_eq!(shortened(&"a".repeat(24)), "a".repeat(24));
        assert_eq!(shortened(&"a".repeat(25)), format!("{}\u{2026}", "a".repeat(23)));
        assert_eq!(shortened(&"\u{6f22}".repeat(20)), format!("{}\u{2026}", "\u{6f22}".repeat(11)));
        assert_eq!(shortened("two\nlines"), "two lines");
    }

    #[test]
    fn bars_name_what_matters_without_colour() {
        let yes = Variable { name: "<b>age</b>", share: 1.0, matters: true };
        let no = Variable { name: "noise", share: 0.25, matters: false };
        let html = bar_plot(&[&yes, &no], true, &READ).unwrap();
        assert!(html.contains("100.0\u{a0}% matters") && html.contains("25.0\u{a0}%\n"), "{html}");
        assert!(html.contains("&lt;b&gt;age&lt;/b&gt;") && !html.contains("<b>age"), "{html}");
    }
}
