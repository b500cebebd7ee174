//! Plots as inline SVG that follows the colour scheme of the page.

use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Circle, Color, DrawingArea, DrawingBackend, IntoDrawingArea, IntoFont,
    PathElement, Polygon, RGBColor, Rectangle, SVGBackend, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thinfer_data::{Error, Result};

use super::axis::Axis;
use super::page::{Key, escape};
use super::points;

/// Points on one line, at most.
const MOST_POINTS: usize = 600;
/// The width of a plot in units of the page.
const WIDTH: u32 = 560;
/// The width of a plot with equal axes, which is high.
const SQUARE: u32 = 480;
/// The widest that the page shows a figure, in its units of text: `figure` in the style sheet.
const FIGURE_REM: f64 = 38.0;
/// Room above the axes and below them.
const TOP: u32 = 10;
const BOTTOM: u32 = 44;
/// Plotters rounds coordinates to whole numbers, so plots are drawn larger than they are shown.
pub(super) const SCALE: u32 = 2;
pub(super) const FONT_SIZE: f64 = 13.0;
/// Plotters divides font sizes by this before it writes them.
pub(super) const FONT_FACTOR: f64 = 1.24;

/// A colour by what it stands for; the page decides what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// As text.
    Text,
    /// As text that is less important.
    Muted,
    /// Lines of a grid.
    Grid,
    /// Different things, from 0.
    Series(u8),
}

/// How many different series colours there are.
pub(super) const SERIES: u8 = 6;

impl Ink {
    const ALL: [Ink; 9] = [
        Ink::Text,
        Ink::Muted,
        Ink::Grid,
        Ink::Series(0),
        Ink::Series(1),
        Ink::Series(2),
        Ink::Series(3),
        Ink::Series(4),
        Ink::Series(5),
    ];

    /// The colour on white paper, as the light scheme of the style sheet has it.
    pub(super) fn on_paper(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(0x1c, 0x21, 0x27),
            Ink::Muted => RGBColor(0x59, 0x63, 0x6e),
            Ink::Grid => RGBColor(0xdf, 0xe3, 0xe8),
            Ink::Series(at) => match at % SERIES {
                0 => RGBColor(0x00, 0x68, 0xa8),
                1 => RGBColor(0xc1, 0x4f, 0x00),
                2 => RGBColor(0x00, 0x80, 0x5c),
                3 => RGBColor(0xa8, 0x47, 0x8b),
                4 => RGBColor(0x8a, 0x6d, 0x00),
                _ => RGBColor(0x5b, 0x5b, 0xd6),
            },
        }
    }

    /// A colour that nothing else has, to be found again in the SVG.
    fn marker(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(1, 0, 1),
            Ink::Muted => RGBColor(1, 0, 2),
            Ink::Grid => RGBColor(1, 0, 3),
            Ink::Series(at) => RGBColor(2, 0, at % SERIES),
        }
    }

    /// The name of the colour in the style sheet.
    pub(super) fn variable(self) -> String {
        match self {
            Ink::Text => "var(--ink)".into(),
            Ink::Muted => "var(--muted)".into(),
            Ink::Grid => "var(--grid)".into(),
            Ink::Series(at) => format!("var(--series{})", at % SERIES + 1),
        }
    }
}

/// Something in a plot, in the units of the data.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// A line; a single point becomes a dot.
    Line { points: Vec<(f64, f64)>, ink: Ink, width: f64, opacity: f64 },
    /// Dots.
    Dots { points: Vec<(f64, f64)>, ink: Ink, radius: f64 },
    /// The area between two lines: x, lower, upper.
    Band { points: Vec<(f64, f64, f64)>, ink: Ink, opacity: f64 },
    /// A rectangle between two corners.
    Bar { from: (f64, f64), to: (f64, f64), ink: Ink, opacity: f64 },
    /// Text, to the right of a point or centred on it.
    Text { at: (f64, f64), text: String, centred: bool },
}

impl Mark {
    /// A line through at most as many points as can be told apart.
    pub(super) fn line(points: &[(f64, f64)], ink: Ink) -> Self {
        Mark::Line { points: thinned(points, MOST_POINTS), ink, width: 1.5, opacity: 1.0 }
    }

    /// The same, less visible or thinner.
    pub(super) fn with(self, new_width: f64, new_opacity: f64) -> Self {
        match self {
            Mark::Line { points, ink, .. } => {
                Mark::Line { points, ink, width: new_width, opacity: new_opacity }
            }
            other => other,
        }
    }
}

/// A plot.
pub(super) struct Plot {
    /// What it shows, for those who cannot see it.
    pub about: String,
    /// The horizontal axis.
    pub x: Axis,
    /// What it measures.
    pub x_name: String,
    /// The vertical axis.
    pub y: Axis,
    /// What is in it, from back to front.
    pub marks: Vec<Mark>,
    /// What places say when the mouse is near; empty where the marks speak for themselves.
    pub told: Vec<((f64, f64), String)>,
    /// The width in units of the page.
    width: u32,
    /// The height in units of the page.
    pub height: u32,
    /// The room for labels at the left.
    pub left: u32,
    /// The room at the right.
    pub right: u32,
}

impl Plot {
    /// A plot of the usual size.
    pub(super) fn new(
        about: impl Into<String>,
        x: Axis,
        x_name: impl Into<String>,
        y: Axis,
    ) -> Self {
        let longest = y.labels.iter().map(|l| l.1.chars().count()).max().unwrap_or(0) as u32;
        let left = (16 + 8 * longest).max(40);
        Self {
            about: about.into(),
            x,
            x_name: x_name.into(),
            y,
            marks: Vec::new(),
            told: Vec::new(),
            width: WIDTH,
            height: 280,
            left,
            right: 18,
        }
    }

    /// The same with a unit as long on one axis as on the other, so that a diagonal has 45 degrees.
    pub(super) fn with_equal_axes(mut self) -> Self {
        self.width = SQUARE;
        let across = f64::from(self.width - self.left - self.right) / (self.x.high - self.x.low);
        self.height = (across * (self.y.high - self.y.low)).round() as u32 + TOP + BOTTOM;
        self
    }

    /// Where a place of the data lies in the SVG.
    pub(super) fn pixel(&self, (x, y): (f64, f64)) -> Option<(i64, i64)> {
        let share = |axis: &Axis, value: f64| {
            let share = (axis.place(value) - axis.low) / (axis.high - axis.low);
            (-0.01..=1.01).contains(&share).then_some(share)
        };
        let (across, up) = (share(&self.x, x)?, share(&self.y, y)?);
        let wide = f64::from(self.width - self.left - self.right);
        let high = f64::from(self.height - TOP - BOTTOM);
        let x = f64::from(self.left) + wide * across;
        let y = f64::from(TOP) + high * (1.0 - up);
        let scale = f64::from(SCALE);
        Some(((scale * x).round() as i64, (scale * y).round() as i64))
    }

    /// The plot as SVG, whose points the script of the page can tell by these keys.
    pub(super) fn svg_with(&self, keys: &[Key]) -> Result<String> {
        let named = format!("<svg {}", points::attributes(self, keys));
        Ok(self.svg()?.replacen("<svg ", &named, 1))
    }

    /// The plot as SVG.
    fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|problem| {
            Error::Data(format!(
                "the plot `{}` could not be drawn ({problem}); please report this",
                self.about
            ))
        })?;
        Ok(self.themed(&svg))
    }

    fn draw(&self, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let size = (self.width * SCALE, self.height * SCALE);
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        self.draw_on(&root, Ink::marker)?;
        root.present()?;
        Ok(())
    }

    /// Draws the plot on an area of any kind and size, in the colours of `palette`.
    pub(super) fn draw_on<DB: DrawingBackend>(
        &self,
        root: &DrawingArea<DB, Shift>,
        palette: fn(Ink) -> RGBColor,
    ) -> std::result::Result<(), Box<dyn std::error::Error>>
    where
        DB::ErrorType: 'static,
    {
        let text = |ink: Ink, size: f64| {
            let size = size * FONT_FACTOR * f64::from(SCALE);
            ("sans-serif", size).into_font().color(&palette(ink))
        };
        let mut chart = ChartBuilder::on(root)
            .margin_top(TOP * SCALE)
            .margin_right(self.right * SCALE)
            .x_label_area_size(BOTTOM * SCALE)
            .y_label_area_size(self.left * SCALE)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        let mut mesh = chart.configure_mesh();
        mesh.label_style(text(Ink::Muted, FONT_SIZE))
            .axis_desc_style(text(Ink::Muted, FONT_SIZE))
            .axis_style(palette(Ink::Muted).stroke_width(SCALE))
            .bold_line_style(palette(Ink::Grid).stroke_width(SCALE))
            .light_line_style(palette(Ink::Grid).mix(0.0))
            .set_all_tick_mark_size(4 * SCALE);
        if !self.x_name.is_empty() {
            mesh.x_desc(self.x_name.as_str());
        }
        if !self.x.grid {
            mesh.disable_x_mesh();
        }
        if !self.y.grid {
            mesh.disable_y_mesh();
        }
        mesh.draw()?;

        let place = |(x, y): (f64, f64)| {
            let at = (self.x.place(x), self.y.place(y));
            (at.0.is_finite() && at.1.is_finite()).then_some(at)
        };
        for mark in &self.marks {
            match mark {
                Mark::Line { points, ink, width, opacity } => {
                    let width = (width * f64::from(SCALE)).round().max(1.0) as u32;
                    let style = palette(*ink).mix(*opacity).stroke_width(width);
                    let path: Vec<(f64, f64)> = points.iter().copied().filter_map(place).collect();
                    match path.as_slice() {
                        [] => {}
                        [only] => {
                            let dot = Circle::new(*only, 2 * width, style.filled());
                            chart.draw_series([dot])?;
                        }
                        _ => drop(chart.draw_series([PathElement::new(path, style)])?),
                    }
                }
                Mark::Dots { points, ink, radius } => {
                    let radius = (radius * f64::from(SCALE)).round() as i32;
                    let dots = points.iter().copied().filter_map(place);
                    let style = palette(*ink).filled();
                    chart.draw_series(dots.map(|at| Circle::new(at, radius, style)))?;
                }
                Mark::Band { points, ink, opacity } => {
                    let lower = points.iter().filter_map(|p| place((p.0, p.1)));
                    let upper = points.iter().rev().filter_map(|p| place((p.0, p.2)));
                    let outline: Vec<(f64, f64)> = lower.chain(upper).collect();
                    if outline.len() > 2 {
                        let area = Polygon::new(outline, palette(*ink).mix(*opacity));
                        chart.draw_series([area])?;
                    }
                }
                Mark::Bar { from, to, ink, opacity } => {
                    if let (Some(from), Some(to)) = (place(*from), place(*to)) {
                        let style = palette(*ink).mix(*opacity).filled();
                        chart.draw_series([Rectangle::new([from, to], style)])?;
                    }
                }
                Mark::Text { at, text: words, centred } => {
                    let horizontal = if *centred { HPos::Center } else { HPos::Left };
                    let style = text(Ink::Text, FONT_SIZE - 1.0);
                    let style = style.pos(Pos::new(horizontal, VPos::Center));
                    let words = if *centred { words.clone() } else { format!("\u{2002}{words}") };
                    if let Some(at) = place(*at) {
                        chart.draw_series([Text::new(words, at, style)])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts the page's colours in the place of the markers, and lets the page decide on the size.
    fn themed(&self, svg: &str) -> String {
        let mut text = svg.to_owned();
        for ink in Ink::ALL {
            let RGBColor(r, g, b) = ink.marker();
            // With the quotes: text that looks like a colour is escaped and has none.
            let marker = format!("\"#{r:02X}{g:02X}{b:02X}\"");
            text = text.replace(&marker, &format!("\"{}\"", ink.variable()));
        }
        let (width, height) = (self.width * SCALE, self.height * SCALE);
        let fixed = format!("<svg width=\"{width}\" height=\"{height}\" ");
        let mut named = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&self.about));
        if self.width < WIDTH {
            // Its letters are as large as those of other plots.
            let widest = FIGURE_REM * f64::from(self.width) / f64::from(WIDTH);
            named += &format!("style=\"max-width: {widest:.1}rem\" ");
        }
        text.replacen(&fixed, &named, 1)
    }
}

/// At most `most` points of a line: of each stretch the lowest and the highest, so that a single
/// spike among thousands of epochs stays visible.
fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let stretches = (most / 2).max(1);
    let mut kept = Vec::with_capacity(2 * stretches);
    for stretch in 0..stretches {
        let range = stretch * points.len() / stretches..(stretch + 1) * points.len() / stretches;
        let by_height = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
        let finite = || range.clone().filter(|&at| points[at].1.is_finite());
        if let (Some(low), Some(high)) = (finite().min_by(by_height), finite().max_by(by_height)) {
            kept.push(points[low.min(high)]);
            if low != high {
                kept.push(points[low.max(high)]);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(marks: Vec<Mark>) -> String {
        let axes = (Axis::between(0.0, 1.0), Axis::between(0.0, 1.0));
        let mut plot = Plot::new("a \"b\" <c>", axes.0, "x", axes.1);
        plot.marks = marks;
        plot.svg().unwrap()
    }

    #[test]
    fn colours_are_those_of_the_page() {
        let svg = plot(vec![
            Mark::line(&[(0.0, 0.0), (1.0, 1.0)], Ink::Series(0)),
            Mark::Text { at: (0.5, 0.5), text: "#010001 <b>".into(), centred: true },
        ]);
        assert!(svg.contains("stroke=\"var(--series1)\""), "{svg}");
        assert!(svg.contains("#010001 &lt;b&gt;"), "{svg}");
        assert!(!svg.contains("\"#"), "a colour is not themed: {svg}");
        assert!(svg.starts_with("<svg role=\"img\" aria-label=\"a &quot;b&quot; &lt;c&gt;\" "));
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let svg = plot(vec![
            Mark::line(&[(0.0, f64::NAN), (f64::INFINITY, 1.0)], Ink::Text),
            Mark::line(&[], Ink::Text),
            Mark::Band { points: vec![(0.1, f64::NAN, 0.3)], ink: Ink::Text, opacity: 0.2 },
        ]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let one = plot(vec![Mark::line(&[(0.5, 0.5)], Ink::Series(1))]);
        assert!(one.contains("<circle"), "a single point is a dot");
    }

    /// The corners of a square in the data are those of a square in the picture.
    #[test]
    fn equal_axes_have_equal_units() {
        let (x, y) = (Axis::between(0.0, 1.0), Axis::between(0.0, 1.1));
        let mut plot = Plot::new("", x, "x", y).with_equal_axes();
        plot.marks.push(Mark::Bar {
            from: (0.0, 0.0),
            to: (1.0, 1.0),
            ink: Ink::Series(0),
            opacity: 0.5,
        });
        let svg = plot.svg().unwrap();
        let bar = svg.lines().find(|l| l.contains("<rect") && l.contains("series1")).unwrap();
        let side = |name: &str| -> f64 {
            let (_, rest) = bar.split_once(&format!(" {name}=\"")).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        assert!((side("width") - side("height")).abs() <= 2.0, "{bar}");
        assert!(svg.contains("style=\"max-width: 32.6rem\""), "{svg}");
    }

    #[test]
    fn long_lines_keep_their_spikes() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|i| (i as f64, 1.0)).collect();
        points[5003].1 = 50.0;
        points[7001].1 = f64::NAN;
        let kept = thinned(&points, 600);
        assert!(kept.len() <= 600 && kept.len() > 250, "{}", kept.len());
        assert!(kept.contains(&(5003.0, 50.0)));
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thinned(&points[..5], 600), points[..5]);
    }
}
