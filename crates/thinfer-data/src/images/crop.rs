//! Which part of an image is shown, and its size.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use thinfer_engine::noise::{Key, Stream};

/// A rectangle of an image, mirrored or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crop {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) mirrored: bool,
}

/// Share of the area of a random crop, and its width over its height, as torchvision's
/// `RandomResizedCrop` has them.
const AREA: (f64, f64) = (0.08, 1.0);
const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// Random numbers of one image in one epoch.
const CHANCES: usize = 64;

impl Crop {
    /// A random crop of image `row` in `epoch`: up to ten rectangles are drawn until one fits, and
    /// the largest in the middle is taken otherwise. The stream of `key` does not matter.
    pub(super) fn random(
        width: usize,
        height: usize,
        flip: bool,
        key: Key,
        epoch: u64,
        row: u32,
    ) -> Self {
        let key = Key { stream: Stream::Augment, ..key };
        let index = (row as usize).wrapping_mul(CHANCES);
        let chance = |at: usize| f64::from(key.uniform(epoch, index.wrapping_add(at)));
        let between = |at: usize, (low, high): (f64, f64)| low + (high - low) * chance(at);
        let mirrored = flip && chance(0) < 0.5;
        let area = (width * height) as f64;
        for attempt in 0..10 {
            let part = area * between(3 + 2 * attempt, AREA);
            let ratio = between(4 + 2 * attempt, (RATIO.0.ln(), RATIO.1.ln())).exp();
            let w = (part * ratio).sqrt().round() as usize;
            let h = (part / ratio).sqrt().round() as usize;
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                let place = |at: usize, room: usize| (chance(at) * (room + 1) as f64) as usize;
                let (left, top) = (place(1, width - w), place(2, height - h));
                return Self { left, top, width: w, height: h, mirrored };
            }
        }
        let ratio = width as f64 / height as f64;
        let (w, h) = if ratio < RATIO.0 {
            (width, (width as f64 / RATIO.0).round() as usize)
        } else if ratio > RATIO.1 {
            ((height as f64 * RATIO.1).round() as usize, height)
        } else {
            (width, height)
        };
        let (w, h) = (w.clamp(1, width), h.clamp(1, height));
        Self { left: (width - w) / 2, top: (height - h) / 2, width: w, height: h, mirrored }
    }

    /// All of an image.
    pub(super) fn whole(width: usize, height: usize) -> Self {
        Self { left: 0, top: 0, width, height, mirrored: false }
    }

    /// What is looked at in evaluation: the square in the middle of an image whose shorter side
    /// would be `size · 256 / 224`, and all of an image that has the network's size already.
    pub(super) fn centre(width: usize, height: usize, size: usize) -> Self {
        if (width, height) == (size, size) {
            return Self::whole(width, height);
        }
        let side = ((width.min(height) * 224) as f64 / 256.0).round().max(1.0) as usize;
        let (left, top) = ((width - side) / 2, (height - side) / 2);
        Self { left, top, width: side, height: side, mirrored: false }
    }

    /// Writes the part as `size` x `size` pixels: bilinear, and smoothed where it shrinks. `pixels`
    /// are rows of `width` of red, green and blue, and reach down to the end of the part.
    pub(super) fn resize(
        self,
        pixels: &[u8],
        width: usize,
        size: usize,
        resizer: &mut Resizer,
        out: &mut [u8],
    ) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot be resized ({error})");
        let rows = pixels.len() / (3 * width.max(1));
        let source = TypedImageRef::<U8x3>::from_buffer(width as u32, rows as u32, pixels)
            .map_err(|e| failed(&e))?;
        let [left, top, w, h] = [self.left, self.top, self.width, self.height].map(|v| v as u32);
        let part = TypedCroppedImage::new(source, left, top, w, h).map_err(|e| failed(&e))?;
        let mut shown = TypedImage::<U8x3>::from_buffer(size as u32, size as u32, out)
            .map_err(|e| failed(&e))?;
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        resizer.resize_typed(&part, &mut shown, &options).map_err(|e| failed(&e))?;
        if self.mirrored {
            for row in out.chunks_exact_mut(3 * size) {
                mirror(row);
            }
        }
        Ok(())
    }
}

/// Turns a row of pixels round.
fn mirror(row: &mut [u8]) {
    let pixels = row.as_chunks_mut::<3>().0;
    pixels.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new(3, 0, Stream::Sampler)
    }

    fn many(width: usize, height: usize, n: u32) -> Vec<Crop> {
        (0..n).map(|row| Crop::random(width, height, true, key(), 2, row)).collect()
    }

    #[test]
    fn crops_are_inside_and_have_the_shapes_that_were_asked_for() {
        for (width, height) in [(500, 375), (375, 500), (64, 64), (20, 300), (1, 1)] {
            for crop in many(width, height, 500) {
                assert!(crop.left + crop.width <= width && crop.top + crop.height <= height);
                assert!(crop.width > 0 && crop.height > 0);
            }
        }
        let n = 20_000;
        let crops = many(1000, 1000, n);
        let mean = |of: &dyn Fn(&Crop) -> f64| crops.iter().map(of).sum::<f64>() / f64::from(n);
        // torchvision's `RandomResizedCrop.get_params` has 0.476 with a standard error of 0.0016.
        let area = mean(&|c| (c.width * c.height) as f64 / 1e6);
        assert!((area - 0.476).abs() < 5.0 * 0.0016 * 2f64.sqrt(), "{area}");
        let ratio = mean(&|c| (c.width as f64 / c.height as f64).ln());
        assert!(ratio.abs() < 5.0 * 0.166 / f64::from(n).sqrt(), "{ratio}");
        let side = mean(&|c| c.left as f64 - (1000 - c.width - c.left) as f64);
        assert!(side.abs() < 5.0 * 350.0 / f64::from(n).sqrt(), "{side}");
        let mirrored = mean(&|c| f64::from(u8::from(c.mirrored)));
        assert!((mirrored - 0.5).abs() < 5.0 * 0.5 / f64::from(n).sqrt());
        assert!(crops.iter().all(|c| (0.7..1.4).contains(&(c.width as f64 / c.height as f64))));
    }

    #[test]
    fn a_crop_depends_on_key_epoch_and_row_alone() {
        let one = |key, epoch, row| Crop::random(500, 375, true, key, epoch, row);
        assert_eq!(one(key(), 1, 7), one(Key { stream: Stream::Initial, ..key() }, 1, 7));
        assert_ne!(one(key(), 1, 7), one(key(), 2, 7));
        assert_ne!(one(key(), 1, 7), one(key(), 1, 8));
        assert_ne!(one(key(), 1, 7), one(Key { chain: 1, ..key() }, 1, 7));
        let unmirrored = |row| Crop::random(500, 375, false, key(), 1, row).mirrored;
        assert!(!(0..50).any(unmirrored));
    }

    #[test]
    fn long_images_give_the_middle() {
        let crop = Crop::random(10, 1000, false, key(), 0, 0);
        assert_eq!((crop.width, crop.left), (10, 0));
        assert!(crop.height <= 14 && crop.top > 400, "{crop:?}");
        let centre = Crop { left: 78, top: 16, width: 224, height: 224, mirrored: false };
        assert_eq!(Crop::centre(380, 256, 224), centre);
        assert_eq!(Crop::centre(224, 224, 224), Crop::whole(224, 224));
        assert_ne!(Crop::centre(224, 224, 112), Crop::whole(224, 224));
    }

    /// Pillow 13: `Image.fromarray(a).crop((l, t, l + w, t + h)).resize((3, 3), Image.BILINEAR)`
    /// of `a[y, x, c] = (37 x + 59 y + 83 c) % 256`, 8 rows of 9 pixels.
    #[test]
    fn pixels_are_those_of_pillow() {
        let source: Vec<u8> = (0..8 * 9 * 3)
            .map(|at| ((at / 3 % 9) * 37 + (at / 27) * 59 + (at % 3) * 83) as u8)
            .collect();
        let shrunk = [
            111, 171, 107, 158, 127, 107, 107, 96, 166, 164, 110, 120, 103, 130, 147, 125, 142,
            122, 95, 149, 138, 141, 144, 87, 138, 98, 134,
        ];
        let grown = [
            229, 56, 139, 120, 75, 158, 10, 93, 176, 32, 115, 198, 51, 134, 217, 69, 152, 235, 91,
            174, 1, 110, 193, 20, 128, 211, 38,
        ];
        for ([left, top, width, height], expected) in
            [([1, 0, 7, 6], shrunk), ([3, 2, 2, 3], grown)]
        {
            let crop = Crop { left, top, width, height, mirrored: false };
            let mut out = [0; 27];
            crop.resize(&source, 9, 3, &mut Resizer::new(), &mut out).unwrap();
            for (got, expected) in out.iter().zip(expected) {
                assert!(got.abs_diff(expected) <= 1, "{out:?}");
            }
            let mut mirrored = [0; 27];
            let crop = Crop { mirrored: true, ..crop };
            crop.resize(&source, 9, 3, &mut Resizer::new(), &mut mirrored).unwrap();
            for (at, byte) in mirrored.iter().enumerate() {
                let (row, x, c) = (at / 9, at % 9 / 3, at % 3);
                assert_eq!(*byte, out[9 * row + 3 * (2 - x) + c]);
            }
        }
    }
}
