//! Plots as pixels: a canvas for plotters with smooth edges and its own letters, so that a picture
//! is the same on every machine.

use std::convert::Infallible;

use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};
use thinfer_data::{Error, Result};
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform,
};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::plots::FONT_FACTOR;

/// Roboto, reduced to the characters of plots; see the folder's README.
const FONT: &[u8] = include_bytes!("../../assets/roboto-subset.ttf");

type Drawn = std::result::Result<(), DrawingErrorKind<Infallible>>;

/// What `draw` draws on white paper of this width and height, as a PNG file.
pub(super) fn png(
    (width, height): (u32, u32),
    draw: impl FnOnce(&DrawingArea<Raster<'_>, Shift>) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut pixels = paper(width, height)?;
    draw(&Raster::on(&mut pixels)?.into_drawing_area())?;
    // The paper is opaque, so nothing is lost with the fourth channel.
    let opaque: Vec<u8> = pixels.data().chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header().map_err(broken)?;
    writer.write_image_data(&opaque).map_err(broken)?;
    writer.finish().map_err(broken)?;
    Ok(file)
}

fn paper(width: u32, height: u32) -> Result<Pixmap> {
    let mut pixels = Pixmap::new(width, height).ok_or_else(|| broken("it is too large"))?;
    pixels.fill(Color::WHITE);
    Ok(pixels)
}

fn broken(problem: impl std::fmt::Display) -> Error {
    Error::Data(format!("a picture could not be drawn ({problem}); please report this"))
}

/// A canvas of pixels.
pub(super) struct Raster<'a> {
    pixels: &'a mut Pixmap,
    font: Face<'static>,
}

impl<'a> Raster<'a> {
    fn on(pixels: &'a mut Pixmap) -> Result<Self> {
        Ok(Self { pixels, font: Face::parse(FONT, 0).map_err(broken)? })
    }

    fn fill(&mut self, path: Option<Path>, color: BackendColor) {
        if let Some(path) = path {
            let paint = paint(color);
            self.pixels.fill_path(&path, &paint, FillRule::Winding, Transform::identity(), None);
        }
    }

    fn stroke(&mut self, path: Option<Path>, color: BackendColor, width: u32) {
        if let Some(path) = path {
            let stroke = Stroke {
                width: width as f32,
                line_cap: LineCap::Round,
                line_join: LineJoin::Round,
                ..Stroke::default()
            };
            self.pixels.stroke_path(&path, &paint(color), &stroke, Transform::identity(), None);
        }
    }

    fn glyphs(&self, text: &str) -> Vec<(GlyphId, f32)> {
        let glyph = |c: char| {
            let id = self.font.glyph_index(c).unwrap_or_default();
            (id, f32::from(self.font.glyph_hor_advance(id).unwrap_or_default()))
        };
        text.chars().map(glyph).collect()
    }
}

fn paint(color: BackendColor) -> Paint<'static> {
    let (r, g, b) = color.rgb;
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(r, g, b, (255.0 * color.alpha).round() as u8);
    paint
}

/// The middle of a pixel.
fn middle((x, y): BackendCoord) -> (f32, f32) {
    (x as f32 + 0.5, y as f32 + 0.5)
}

fn line(points: impl IntoIterator<Item = BackendCoord>) -> PathBuilder {
    let mut path = PathBuilder::new();
    for (at, point) in points.into_iter().enumerate() {
        let (x, y) = middle(point);
        if at == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
    }
    path
}

impl DrawingBackend for Raster<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.pixels.width(), self.pixels.height())
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        let pixel = Rect::from_xywh(x as f32, y as f32, 1.0, 1.0);
        self.fill(pixel.map(PathBuilder::from_rect), color);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        self.stroke(line([from, to]).finish(), style.color(), style.stroke_width());
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let (low, high) = ((left.min(right), top.min(bottom)), (left.max(right), top.max(bottom)));
        let rect = Rect::from_ltrb(low.0 as f32, low.1 as f32, high.0 as f32, high.1 as f32);
        let path = rect.map(PathBuilder::from_rect);
        if fill {
            self.fill(path, style.color());
        } else {
            self.stroke(path, style.color(), style.stroke_width());
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.stroke(line(path).finish(), style.color(), style.stroke_width());
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let (x, y) = middle(center);
        let path = PathBuilder::from_circle(x, y, radius as f32);
        if fill {
            self.fill(path, style.color());
        } else {
            self.stroke(path, style.color(), style.stroke_width());
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vertices: I,
        style: &S,
    ) -> Drawn {
        let mut outline = line(vertices);
        outline.close();
        self.fill(outline.finish(), style.color());
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Drawn {
        // The size as the SVG has it.
        let scale = (style.size() / FONT_FACTOR) as f32 / f32::from(self.font.units_per_em());
        let glyphs = self.glyphs(text);
        let width = scale * glyphs.iter().map(|g| g.1).sum::<f32>();
        let anchor = style.anchor();
        let mut x = x as f32
            - match anchor.h_pos {
                HPos::Left => 0.0,
                HPos::Center => 0.5 * width,
                HPos::Right => width,
            };
        let height = scale * f32::from(self.font.capital_height().unwrap_or_default());
        let baseline = y as f32
            + match anchor.v_pos {
                VPos::Top => 1.25 * height,
                VPos::Center => 0.5 * height,
                VPos::Bottom => -0.25 * height,
            };
        let mut outline = Outline { path: PathBuilder::new(), scale, x, baseline };
        for (glyph, advance) in glyphs {
            outline.x = x;
            self.font.outline_glyph(glyph, &mut outline);
            x += scale * advance;
        }
        self.fill(outline.path.finish(), style.color());
        Ok(())
    }
}

/// Letters on their way from the font's units, y upwards, to pixels.
struct Outline {
    path: PathBuilder,
    scale: f32,
    x: f32,
    baseline: f32,
}

impl Outline {
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + self.scale * x, self.baseline - self.scale * y)
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.place(x1, y1), self.place(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (x1, y1) = self.place(x1, y1);
        let ((x2, y2), (x, y)) = (self.place(x2, y2), self.place(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::style::{Color as _, IntoFont, RGBColor, ShapeStyle, TextStyle};

    fn dark(pixels: &Pixmap, x: u32, y: u32) -> bool {
        pixels.pixel(x, y).is_some_and(|p| p.red() < 128)
    }

    #[test]
    fn lines_rectangles_and_circles_cover_their_pixels() {
        let mut pixels = paper(100, 50).unwrap();
        let mut raster = Raster::on(&mut pixels).unwrap();
        let black = RGBColor(0, 0, 0).filled();
        raster.draw_line((10, 10), (90, 10), &ShapeStyle { stroke_width: 3, ..black }).unwrap();
        raster.draw_rect((20, 40), (30, 20), &black, true).unwrap();
        raster.draw_circle((60, 30), 5, &black, true).unwrap();
        raster.fill_polygon([(80, 20), (95, 20), (95, 40)], &black).unwrap();
        for (x, y) in [(50, 10), (25, 30), (60, 30), (92, 24)] {
            assert!(dark(&pixels, x, y), "({x}, {y})");
        }
        for (x, y) in [(50, 15), (35, 30), (70, 30), (82, 38)] {
            assert!(!dark(&pixels, x, y), "({x}, {y})");
        }
    }

    #[test]
    fn text_stands_where_its_anchor_says() {
        let columns = |anchor: HPos| -> Vec<u32> {
            let mut pixels = paper(200, 40).unwrap();
            let pos = plotters::style::text_anchor::Pos::new(anchor, VPos::Center);
            let style: TextStyle<'_> =
                ("sans-serif", 30).into_font().color(&RGBColor(0, 0, 0)).pos(pos);
            let mut raster = Raster::on(&mut pixels).unwrap();
            raster.draw_text("1.0e\u{2212}5", &style, (100, 20)).unwrap();
            (0..200).filter(|&x| (0..40).any(|y| dark(&pixels, x, y))).collect()
        };
        let (left, centre, right) =
            (columns(HPos::Left), columns(HPos::Center), columns(HPos::Right));
        assert!(left[0] >= 100 && *right.last().unwrap() <= 101, "{left:?} {right:?}");
        let (first, last) = (centre[0], *centre.last().unwrap());
        assert!((i64::from(first + last) - 200).abs() < 6, "{first} to {last}");
    }

    #[test]
    fn every_character_of_plots_has_a_letter() {
        let mut pixels = paper(1, 1).unwrap();
        let raster = Raster::on(&mut pixels).unwrap();
        for c in "abcXYZ 0123456789.,:()\u{2212}\u{394}\u{3c4}\u{3bb}\u{b2}\u{2013}\u{d7}%".chars()
        {
            assert!(raster.font.glyph_index(c).is_some(), "{c:?}");
        }
    }
}
