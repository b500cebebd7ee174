//! The points of a plot as data beside it, which the script of the page says when the mouse is near.

use super::page::{Key, escape, number};
use super::plots::{Ink, Mark, Plot};

/// Points of one plot, at most: more are not told apart and make the page large.
const MOST: usize = 300;
/// Lines that are less visible than this are in the background.
const VISIBLE: f64 = 0.5;

/// The points of a mark, with its colour and its shape in the key.
type Points = (Ink, &'static str, Vec<(f64, f64)>);

/// The attributes of the plot's SVG: `data-x` names the horizontal axis, `data-names` has what the
/// points are of, and each line of `data-points` is a point: where it is drawn, of what, and its two
/// values. Empty where the plot has no points that are not said in it.
pub(super) fn attributes(plot: &Plot, keys: &[Key]) -> String {
    if !plot.told.is_empty() {
        let line = |(at, text): &((f64, f64), String)| {
            let (x, y) = plot.pixel(*at)?;
            Some(format!("{x} {y} 0 {}", in_one_line(text)))
        };
        let lines: Vec<String> = plot.told.iter().filter_map(line).collect();
        return format!("data-points=\"{}\" ", escape(&lines.join("\n")));
    }
    if !plot.y.grid {
        // Bars with names say their numbers themselves.
        return String::new();
    }
    let all: Vec<Points> = plot.marks.iter().filter_map(points).collect();
    let count: usize = all.iter().map(|(_, _, points)| points.len()).sum();
    let step = count.div_ceil(MOST).max(1);
    let mut names: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for (ink, shape, points) in &all {
        let of = name(keys, *ink, shape);
        let place = names.iter().position(|name| *name == of).unwrap_or_else(|| {
            names.push(of);
            names.len() - 1
        });
        let last = points.len().saturating_sub(1);
        let shown = (0..points.len()).filter(|at| at % step == 0 || *at == last);
        lines.extend(shown.filter_map(|at| {
            let (x, y) = plot.pixel(points[at])?;
            let (across, up) = points[at];
            Some(format!("{x} {y} {place} {} {}", brief(across), brief(up)))
        }));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "data-x=\"{}\" data-names=\"{}\" data-points=\"{}\" ",
        escape(&in_one_line(&plot.x_name)),
        escape(&names.join("\n")),
        lines.join("\n")
    )
}

/// The points of a mark that is in the foreground.
fn points(mark: &Mark) -> Option<Points> {
    match mark {
        Mark::Line { points, ink: ink @ Ink::Series(_), opacity, .. } if *opacity >= VISIBLE => {
            Some((*ink, "line", points.clone()))
        }
        Mark::Dots { points, ink, .. } => Some((*ink, "dot", points.clone())),
        Mark::Bar { from, to, ink, .. } => Some((*ink, "bar", vec![(0.5 * (from.0 + to.0), to.1)])),
        _ => None,
    }
}

/// What the key says of a colour, and of a shape where several share it.
fn name(keys: &[Key], ink: Ink, shape: &str) -> String {
    let of_ink = || keys.iter().filter(|key| key.ink == ink);
    let key = of_ink().find(|key| key.shape == shape).or_else(|| of_ink().next());
    key.map_or_else(String::new, |key| in_one_line(&key.text))
}

/// Text without line breaks, which part one point from the next.
fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A number without zeros at its end.
fn brief(value: f64) -> String {
    let text = number(value);
    if text.contains('.') && !text.contains('e') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::axis::Axis;
    use super::*;

    fn plot(marks: Vec<Mark>) -> Plot {
        let unit = || Axis::between(0.0, 1.0);
        let mut plot = Plot::new("", unit(), "a \"b\"", unit());
        plot.marks = marks;
        plot
    }

    #[test]
    fn points_have_their_place_their_name_and_their_values() {
        let line = Mark::line(&[(0.0, 0.0), (0.5, 0.25), (1.0, f64::NAN)], Ink::Series(0));
        let dots = Mark::Dots { points: vec![(1.0, 1.0)], ink: Ink::Series(0), radius: 3.0 };
        let faint = Mark::line(&[(0.3, 0.3)], Ink::Series(1)).with(3.0, 0.3);
        let keys = [
            Key::new("line", Ink::Series(0), "<chain>\n0"),
            Key::new("dot", Ink::Series(0), "sampled"),
        ];
        let plot = plot(vec![line, dots, faint]);
        let said = attributes(&plot, &keys);
        // The corners of the plot: 40 at the left, 18 at the right, 10 above and 44 below, doubled.
        let points = "data-points=\"80 472 0 0 0\n582 359 0 0.5 0.25\n1084 20 1 1 1\" ";
        assert!(said.ends_with(points), "{said}");
        let names = "data-x=\"a &quot;b&quot;\" data-names=\"&lt;chain&gt; 0\nsampled\" ";
        assert!(said.starts_with(names), "{said}");
        assert!(plot.svg_with(&keys).unwrap().contains(points));
    }

    #[test]
    fn many_points_are_thinned_and_bars_with_names_have_none() {
        let many: Vec<(f64, f64)> = (0..5000).map(|at| (f64::from(at) / 5000.0, 0.5)).collect();
        let dots = Mark::Dots { points: many, ink: Ink::Text, radius: 1.0 };
        let lines = attributes(&plot(vec![dots]), &[]).matches('\n').count();
        assert!((290..=300).contains(&lines), "{lines}");
        let mut named = plot(vec![Mark::Bar {
            from: (0.0, -0.3),
            to: (0.5, 0.3),
            ink: Ink::Series(0),
            opacity: 1.0,
        }]);
        named.y = Axis::names(&["a".to_owned()]);
        assert_eq!(attributes(&named, &[]), "");
        let mut told = plot(Vec::new());
        told.told = vec![((0.0, 0.0), "run 1: \"a\"\nb".to_owned())];
        assert_eq!(attributes(&told, &[]), "data-points=\"80 472 0 run 1: &quot;a&quot; b\" ");
    }
}
