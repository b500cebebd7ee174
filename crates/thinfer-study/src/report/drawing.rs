//! Several plots on one white sheet, as SVG and as PNG.

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, DrawingBackend, IntoDrawingArea, IntoFont, SVGBackend, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor};
use thinfer_data::{Error, Result};

use super::plots::{FONT_FACTOR, FONT_SIZE, Ink, Plot, SCALE};
use super::raster::png;

/// The size of one panel in units of a page.
const PANEL: (u32, u32) = (380, 270);
/// Room for a title above each panel.
const TITLE: u32 = 30;
/// Room for a line of the legend above all panels.
const LEGEND: u32 = 34;
/// Where a line of the legend begins, and what stays free at its end.
const LEGEND_SIDES: (u32, u32) = (44, 16);
/// From the start of a sample of colour to its words, and from these to the next one.
const SAMPLE: u32 = 28;
const GAP: u32 = 32;
/// The width of a letter, generously: the viewer of an SVG chooses the font.
const LETTER: u32 = 8;

/// A plot with a title.
pub(super) struct Panel {
    /// What it shows.
    pub title: String,
    /// The plot.
    pub plot: Plot,
}

/// Panels side by side.
pub(super) struct Sheet {
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
    /// What colours mean, where they mean something.
    pub legend: Vec<(Ink, String)>,
}

impl Sheet {
    fn size(&self) -> (u32, u32) {
        let columns = self.columns.max(1) as u32;
        let rows = (self.panels.len() as u32).div_ceil(columns);
        let lines = self.legend_places().last().map_or(0, |last| last.line + 1);
        (SCALE * PANEL.0 * columns, SCALE * ((PANEL.1 + TITLE) * rows + LEGEND * lines))
    }

    /// Where the entries of the legend go: one after another, in as many lines as they need.
    fn legend_places(&self) -> Vec<Entry> {
        let (start, free) = LEGEND_SIDES;
        let end = (PANEL.0 * self.columns.max(1) as u32).saturating_sub(free);
        let most = (end.saturating_sub(start + SAMPLE) / LETTER) as usize;
        let (mut x, mut line) = (start, 0);
        let mut places = Vec::new();
        for (ink, words) in &self.legend {
            let words = shortened(words, most);
            let width = SAMPLE + LETTER * words.chars().count() as u32;
            if x > start && x + width > end {
                (x, line) = (start, line + 1);
            }
            places.push(Entry { ink: *ink, words, x, line });
            x += width + GAP;
        }
        places
    }

    /// The sheet as SVG.
    pub(super) fn svg(&self) -> Result<String> {
        let (width, height) = self.size();
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        self.draw(&root)?;
        root.present().map_err(|e| broken(&e))?;
        drop(root);
        // Drawn larger than it is, as plotters rounds to whole numbers.
        let drawn = format!("<svg width=\"{width}\" height=\"{height}\" ");
        let shown = format!("<svg width=\"{}\" height=\"{}\" ", width / SCALE, height / SCALE);
        Ok(svg.replacen(&drawn, &shown, 1))
    }

    /// The sheet as a PNG file.
    pub(super) fn png(&self) -> Result<Vec<u8>> {
        png(self.size(), |root| self.draw(root))
    }

    fn draw<DB: DrawingBackend>(&self, root: &DrawingArea<DB, Shift>) -> Result<()>
    where
        DB::ErrorType: 'static,
    {
        root.fill(&WHITE).map_err(|e| broken(&e))?;
        let columns = self.columns.max(1);
        let text = |ink: Ink, size: f64| {
            let size = size * FONT_FACTOR * f64::from(SCALE);
            ("sans-serif", size).into_font().color(&ink.on_paper())
        };
        let scaled = |x: u32| (SCALE * x) as i32;
        let left = Pos::new(HPos::Left, VPos::Center);
        let mut top = 0;
        for Entry { ink, words, x, line } in self.legend_places() {
            let y = scaled(LEGEND * line + LEGEND / 2);
            let sample = [(scaled(x), y), (scaled(x + SAMPLE - 6), y)];
            let style = ink.on_paper().stroke_width(3 * SCALE);
            root.draw(&plotters::element::PathElement::new(sample, style))
                .map_err(|e| broken(&e))?;
            let style = text(Ink::Text, FONT_SIZE).pos(left);
            root.draw_text(&words, &style, (scaled(x + SAMPLE), y)).map_err(|e| broken(&e))?;
            top = LEGEND * (line + 1);
        }
        for (at, panel) in self.panels.iter().enumerate() {
            let (row, column) = ((at / columns) as u32, (at % columns) as u32);
            let (x, y) = (PANEL.0 * column, top + (PANEL.1 + TITLE) * row);
            let style = text(Ink::Text, FONT_SIZE + 1.0).pos(left);
            let place = (scaled(x + 14), scaled(y + TITLE / 2 + 4));
            root.draw_text(&panel.title, &style, place).map_err(|e| broken(&e))?;
            let area = root
                .clone()
                .shrink((SCALE * x, SCALE * (y + TITLE)), (SCALE * PANEL.0, SCALE * PANEL.1));
            let palette: fn(Ink) -> RGBColor = Ink::on_paper;
            panel.plot.draw_on(&area, palette).map_err(|e| broken(e.as_ref()))?;
        }
        Ok(())
    }
}

/// An entry of the legend and its place.
struct Entry {
    ink: Ink,
    words: String,
    x: u32,
    line: u32,
}

/// At most `most` letters: the beginning and the end, which tell entries apart.
fn shortened(words: &str, most: usize) -> String {
    let letters: Vec<char> = words.chars().collect();
    if letters.len() <= most {
        return words.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (start, end) = letters.split_at(kept / 2);
    let end = &end[end.len() - (kept - kept / 2)..];
    start.iter().chain(&['\u{2026}']).chain(end).collect()
}

fn broken(problem: &(impl std::fmt::Display + ?Sized)) -> Error {
    Error::Data(format!("a figure could not be drawn ({problem}); please report this"))
}
