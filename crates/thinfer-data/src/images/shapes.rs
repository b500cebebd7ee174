//! A generated set of small grey images in ten classes, so that a network of convolutions can be
//! tried without downloading anything.
//!
//! Each image is one figure at a random place, size and angle, squeezed along one axis, brighter or
//! darker than a background with a slope, under noise. Every pixel is a pure function of the seed
//! and the row.

use rayon::prelude::*;
use thinfer_engine::Shape;
use thinfer_engine::noise::{Key, Stream};

use super::{ImageData, ImageSet, Look};
use crate::error::Result;
use crate::memory::{available_memory, check_memory};
use crate::settings::DataConfig;

const SIDE: usize = 28;
const CLASSES: [&str; 10] =
    ["disc", "ring", "square", "frame", "triangle", "cross", "star", "crescent", "bar", "angle"];

pub(super) fn load(data: &DataConfig, seed: u64) -> Result<ImageData> {
    let bytes = (data.train_rows as u64)
        .checked_add(data.test_rows as u64)
        .and_then(|rows| rows.checked_mul((SIDE * SIDE) as u64));
    check_memory("the generated images", bytes, available_memory())?;
    let look = Look {
        mean: &[0.5],
        sd: &[0.24],
        padding: 2,
        flip: true,
        classes: CLASSES.map(str::to_owned).to_vec(),
    };
    let seed = data.seed_in(seed);
    let (train, test) = (generate(seed, 0, data.train_rows)?, generate(seed, 1, data.test_rows)?);
    look.held(data, train, test, Vec::new())
}

/// Images of one part; parts of one seed have nothing in common.
fn generate(seed: u64, part: u32, rows: usize) -> Result<ImageSet> {
    let shape = Shape { height: SIDE, width: SIDE, channels: 1 };
    let chance = Key::new(seed, part, Stream::Inputs);
    let labels: Vec<u32> =
        (0..rows).map(|row| chance.below(row as u64, CLASS, CLASSES.len()) as u32).collect();
    let mut bytes = vec![0; rows * shape.len()];
    bytes.par_chunks_mut(shape.len()).zip(&labels).enumerate().for_each(|(row, (image, class))| {
        let mut noise = [0.0; SIDE * SIDE];
        Key { stream: Stream::Observation, ..chance }.normals(row as u64, 0, &mut noise);
        Figure::draw(chance, row as u64, *class).paint(&noise, image);
    });
    ImageSet::new(shape, bytes, labels)
}

/// The index of the number that decides on the class; a figure takes those from 1 on.
const CLASS: usize = 0;

/// One image before its noise.
struct Figure {
    class: u32,
    /// Pixels from the centre to the outermost point.
    radius: f32,
    centre: [f32; 2],
    /// Cosine and sine of its angle.
    turn: [f32; 2],
    /// How far the figure is squeezed along its second axis.
    squeeze: f32,
    /// Half the width of outlines, in units of the radius.
    stroke: f32,
    /// Grey of the background at its middle, and its slope a pixel.
    ground: [f32; 3],
    /// Grey of the figure above that of the background.
    contrast: f32,
    /// Standard deviation of the noise.
    noise: f32,
}

impl Figure {
    fn draw(chance: Key, row: u64, class: u32) -> Self {
        let between = |index: usize, low: f32, high: f32| {
            low + (high - low) * chance.uniform(row, CLASS + index)
        };
        let radius = between(1, 6.5, 11.0);
        // The figure may touch the border but not leave the image.
        let room = (SIDE as f32 / 2.0 - radius).max(0.0);
        let angle = between(4, 0.0, std::f32::consts::TAU);
        let sign = if between(8, 0.0, 1.0) < 0.5 { -1.0 } else { 1.0 };
        let contrast = between(9, 65.0, 170.0);
        Self {
            class,
            radius,
            centre: [2, 3].map(|index| SIDE as f32 / 2.0 + between(index, -room, room)),
            turn: [angle.cos(), angle.sin()],
            squeeze: between(5, 0.75, 1.0),
            stroke: between(6, 0.7, 1.3) / radius,
            ground: [127.5 - sign * contrast / 2.0, between(10, -2.0, 2.0), between(11, -2.0, 2.0)],
            contrast: sign * contrast,
            noise: between(7, 6.0, 20.0),
        }
    }

    fn paint(&self, noise: &[f32], image: &mut [u8]) {
        let middle = SIDE as f32 / 2.0;
        for (at, (pixel, noise)) in image.iter_mut().zip(noise).enumerate() {
            let (x, y) = ((at % SIDE) as f32 + 0.5, (at / SIDE) as f32 + 0.5);
            let ground =
                self.ground[0] + self.ground[1] * (x - middle) + self.ground[2] * (y - middle);
            let (dx, dy) = (x - self.centre[0], y - self.centre[1]);
            let along = (dx * self.turn[0] + dy * self.turn[1]) / self.radius;
            let across = (dy * self.turn[0] - dx * self.turn[1]) / (self.radius * self.squeeze);
            // A pixel on the edge is partly covered: that is what makes the edge smooth.
            let distance = self.radius * self.distance(along, across);
            let covered = (0.5 - distance).clamp(0.0, 1.0);
            let grey = ground + covered * self.contrast + self.noise * noise;
            *pixel = grey.round().clamp(0.0, 255.0) as u8;
        }
    }

    /// The signed distance from the figure's edge, negative inside, for a figure of radius 1.
    fn distance(&self, x: f32, y: f32) -> f32 {
        let cuboid = |x: f32, y: f32, w: f32, h: f32| (x.abs() - w).max(y.abs() - h);
        let length = x.hypot(y);
        match self.class {
            0 => length - 0.95,
            1 => (length - 0.85).abs() - self.stroke,
            2 => cuboid(x, y, 0.7, 0.7),
            3 => cuboid(x, y, 0.65, 0.65).abs() - self.stroke,
            4 => [(0.0, 1.0), (0.866, -0.5), (-0.866, -0.5)]
                .map(|(a, b)| a * x + b * y - 0.5)
                .into_iter()
                .fold(f32::MIN, f32::max),
            5 => cuboid(x, y, 0.95, 0.25).min(cuboid(x, y, 0.25, 0.95)),
            6 => star(x, y),
            7 => (length - 0.95).max(0.85 - (x - 0.55).hypot(y)),
            8 => cuboid(x, y, 0.95, 0.25),
            _ => cuboid(x + 0.45, y, 0.25, 0.7).min(cuboid(x, y + 0.45, 0.7, 0.25)),
        }
    }
}

/// The distance from a star with five points, folded into half of one point.
fn star(x: f32, y: f32) -> f32 {
    const POINT: f32 = std::f32::consts::TAU / 5.0;
    let angle = y.atan2(x);
    let folded = (angle - POINT * (angle / POINT).round()).abs();
    let (px, py) = (x.hypot(y) * folded.cos(), x.hypot(y) * folded.sin());
    // The edge from the outer corner (1, 0) to the inner corner at half a point's angle.
    let (ix, iy) = (0.45 * (POINT / 2.0).cos(), 0.45 * (POINT / 2.0).sin());
    let (ex, ey) = (ix - 1.0, iy);
    ((px - 1.0) * -ey + py * ex) / -ex.hypot(ey)
}

#[cfg(test)]
mod tests {
    use super::super::testing::held;
    use super::*;
    use crate::settings::DataKind;

    fn config(train: usize) -> DataConfig {
        let kind = DataKind::Shapes;
        DataConfig { kind, train_rows: train, test_rows: 500, ..DataConfig::default() }
    }

    #[test]
    fn an_image_depends_on_seed_part_and_row_alone() {
        let (few, many) = (load(&config(200), 1).unwrap(), load(&config(300), 1).unwrap());
        let (few, many) = (held(&few.train), held(&many.train));
        assert_eq!(few.bytes(), &many.bytes()[..few.bytes().len()]);
        assert_eq!(few.labels(), &many.labels()[..200]);
        let other = load(&config(200), 2).unwrap();
        assert_ne!(few.bytes(), held(&other.train).bytes());
        assert_ne!(few.image(0), held(&load(&config(200), 1).unwrap().test).image(0));
    }

    #[test]
    fn classes_are_balanced_and_pixels_have_the_stated_mean_and_deviation() {
        let data = load(&config(5000), 3).unwrap();
        let set = held(&data.train);
        for class in 0..10 {
            let count = set.labels().iter().filter(|label| **label == class).count() as f64;
            // Five standard deviations of a binomial with p = 0.1.
            assert!((count - 500.0).abs() < 5.0 * 450f64.sqrt(), "class {class}: {count}");
        }
        let n = set.bytes().len() as f64;
        let mean = set.bytes().iter().map(|b| f64::from(*b) / 255.0).sum::<f64>() / n;
        let square = set.bytes().iter().map(|b| (f64::from(*b) / 255.0).powi(2)).sum::<f64>() / n;
        let sd = (square - mean * mean).sqrt();
        assert!((mean - 0.5).abs() < 0.02 && (sd - 0.24).abs() < 0.02, "{mean} {sd}");
    }

    #[test]
    fn figures_of_one_class_differ_and_areas_are_those_of_the_figures() {
        let chance = Key::new(1, 0, Stream::Inputs);
        let area = |class: u32| {
            let figure = Figure { squeeze: 1.0, ..Figure::draw(chance, 7, class) };
            let steps = 400;
            let inside = (0..steps * steps).filter(|at| {
                let coordinate = |i: usize| 3.0 * (i as f32 + 0.5) / steps as f32 - 1.5;
                figure.distance(coordinate(at % steps), coordinate(at / steps)) < 0.0
            });
            inside.count() as f32 * (3.0 / steps as f32).powi(2)
        };
        let five = 5.0 * (std::f32::consts::TAU / 10.0).sin() * 0.45;
        for (class, expected) in
            [(0, std::f32::consts::PI * 0.9025), (2, 1.96), (4, 1.299), (6, five), (8, 0.95)]
        {
            let area = area(class);
            assert!((area - expected).abs() < 0.02, "{}: {area}", CLASSES[class as usize]);
        }
    }
}
