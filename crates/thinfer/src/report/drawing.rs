//! Several plots on one white sheet, as SVG and as PNG.

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, DrawingBackend, IntoDrawingArea, IntoFont, SVGBackend, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor};

use super::plots::{FONT_FACTOR, FONT_SIZE, Ink, Plot, SCALE};
use super::raster::png;
use crate::error::{Error, Result};

/// The size of one panel in units of a page.
const PANEL: (u32, u32) = (380, 270);
/// Room for a title above each panel.
const TITLE: u32 = 30;
/// Room for a legend above all panels.
const LEGEND: u32 = 34;

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
        let top = if self.legend.is_empty() { 0 } else { LEGEND };
        (SCALE * PANEL.0 * columns, SCALE * ((PANEL.1 + TITLE) * rows + top))
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
        if !self.legend.is_empty() {
            let mut x = 44;
            for (ink, words) in &self.legend {
                let y = scaled(LEGEND / 2);
                let line = [(scaled(x), y), (scaled(x + 22), y)];
                let style = ink.on_paper().stroke_width(3 * SCALE);
                root.draw(&plotters::element::PathElement::new(line, style))
                    .map_err(|e| broken(&e))?;
                let style = text(Ink::Text, FONT_SIZE).pos(left);
                root.draw_text(words, &style, (scaled(x + 28), y)).map_err(|e| broken(&e))?;
                x += 60 + 7 * words.chars().count() as u32;
            }
            top = LEGEND;
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

fn broken(problem: &(impl std::fmt::Display + ?Sized)) -> Error {
    Error::Data(format!("a figure could not be drawn ({problem}); please report this"))
}
