//! Images as bytes, cropped, mirrored and normalised on their way into a batch.
//!
//! What happens to an image is a pure function of (seed, chain, epoch, row), the same here and in
//! `gather.cu`, so neither the order of a batch nor the device changes it.

use crate::error::EngineError;
use crate::noise::{Key, Stream};
use crate::shape::Shape;

/// The kernels that make batches from a data set on the device: `gather_images` and `gather_table`.
pub const CUDA_SOURCE: &str =
    crate::joined!(crate::noise::CUDA_SOURCE, include_str!("cuda/kernels/gather.cu"));

/// Channels that the kernel's table of means has room for.
const MOST_CHANNELS: usize = 4;

/// How images of one shape become inputs: a random crop out of the image with a border of zeros,
/// mirrored or not, then `(byte / 255 − mean) / sd` by channel.
///
/// A pixel of the border is byte 0 and is normalised like any other, as with torchvision's
/// `RandomCrop(size, padding)` before `ToTensor` and `Normalize`.
#[derive(Clone, Debug, PartialEq)]
pub struct Augment {
    shape: Shape,
    padding: usize,
    flip: bool,
    mean: Vec<f32>,
    sd: Vec<f32>,
    /// The value of every byte in every channel.
    table: Vec<[f32; 256]>,
}

/// What happens to one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// First row of the crop in the padded image.
    pub down: usize,
    /// First column of the crop in the padded image.
    pub right: usize,
    /// Whether the crop is mirrored left to right.
    pub mirrored: bool,
}

impl Augment {
    /// Checks the numbers. `padding` 0 and `flip` false only normalise, as for test images.
    pub fn new(
        shape: Shape,
        padding: usize,
        flip: bool,
        mean: &[f32],
        sd: &[f32],
    ) -> Result<Self, EngineError> {
        for (what, values) in [("the channel means", mean), ("the channel deviations", sd)] {
            if values.len() != shape.channels {
                let (got, expected) = (values.len(), shape.channels);
                return Err(EngineError::Size { what, got, expected });
            }
        }
        let empty = shape.checked_len().is_none_or(|len| len == 0);
        let problem = if empty || shape.channels > MOST_CHANNELS {
            "holds images; they need pixels and between 1 and 4 channels"
        } else if padding >= shape.height.min(shape.width) {
            "is padded by a whole image or more; some crops would be empty"
        } else if sd.iter().any(|sd| !sd.is_normal() || *sd < 0.0) {
            "is divided by a deviation that is not a positive number"
        } else {
            let (mean, sd) = (mean.to_vec(), sd.to_vec());
            let table = table(&mean, &sd);
            return Ok(Self { shape, padding, flip, mean, sd, table });
        };
        Err(EngineError::Network { node: "input".into(), problem: problem.into() })
    }

    /// The shape of the images.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What is subtracted from each channel.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// What each channel is divided by.
    pub fn sd(&self) -> &[f32] {
        &self.sd
    }

    /// The same normalisation without crops and mirroring, for evaluation.
    pub fn without_chance(&self) -> Self {
        Self { padding: 0, flip: false, ..self.clone() }
    }

    /// What happens to image `row` in `epoch`. The stream of `key` does not matter.
    pub fn choice(&self, key: Key, epoch: u64, row: u32) -> Choice {
        let words = Key { stream: Stream::Augment, ..key }.words(epoch, row);
        let positions = 2 * self.padding as u64 + 1;
        let below = |word: u32| ((word as u64 * positions) >> 32) as usize;
        Choice {
            down: below(words[0]),
            right: below(words[1]),
            mirrored: self.flip && words[2] >> 31 == 1,
        }
    }

    /// Writes one image, rows of pixels with channels last, as `choice` says.
    pub fn image(&self, bytes: &[u8], choice: Choice, out: &mut [f32]) -> Result<(), EngineError> {
        let (len, Shape { height, width, channels }) = (self.shape.len(), self.shape);
        for (what, got) in [("an image", bytes.len()), ("an input row", out.len())] {
            if got != len {
                return Err(EngineError::Size { what, got, expected: len });
            }
        }
        for (at, pixel) in out.chunks_exact_mut(channels).enumerate() {
            let (y, x) = (at / width, at % width);
            let x = if choice.mirrored { width - 1 - x } else { x };
            // Positions in the padded image; the image starts at `padding`.
            let y = (y + choice.down).wrapping_sub(self.padding);
            let x = (x + choice.right).wrapping_sub(self.padding);
            let inside = y < height && x < width;
            for (c, value) in pixel.iter_mut().enumerate() {
                let byte = if inside { bytes[(y * width + x) * channels + c] } else { 0 };
                *value = self.table[c][byte as usize];
            }
        }
        Ok(())
    }

    /// The settings as `gather_images` reads them, the struct `ImageBatch` word by word.
    /// `out_channels` may be more than the image has; the rest are zeros.
    pub fn kernel_words(&self, batch: usize, out_channels: usize) -> [u32; 15] {
        let mut words = [0; 15];
        let Shape { height, width, channels } = self.shape;
        let whole = [batch, height, width, channels, out_channels, self.padding];
        words[..6].iter_mut().zip(whole).for_each(|(word, value)| *word = value as u32);
        words[6] = u32::from(self.flip);
        for c in 0..channels {
            words[7 + c] = self.mean[c].to_bits();
            words[7 + MOST_CHANNELS + c] = self.sd[c].to_bits();
        }
        words
    }
}

fn table(mean: &[f32], sd: &[f32]) -> Vec<[f32; 256]> {
    let channel =
        |(mean, sd): (&f32, &f32)| std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / sd);
    mean.iter().zip(sd).map(channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cifar() -> Augment {
        let shape = Shape { height: 32, width: 32, channels: 3 };
        Augment::new(shape, 4, true, &[0.4914, 0.4822, 0.4465], &[0.2023, 0.1994, 0.2010]).unwrap()
    }

    fn key() -> Key {
        Key::new(5, 1, Stream::Sampler)
    }

    #[test]
    fn shifts_are_uniform_and_half_the_images_are_mirrored() {
        let (augment, n) = (cifar(), 90_000u32);
        let mut counts = [[0f64; 9]; 2];
        let (mut mirrored, mut product) = (0f64, 0f64);
        for row in 0..n {
            let choice = augment.choice(key(), 3, row);
            counts[0][choice.down] += 1.0;
            counts[1][choice.right] += 1.0;
            mirrored += f64::from(u8::from(choice.mirrored));
            product += (choice.down as f64 - 4.0) * (choice.right as f64 - 4.0);
        }
        let expected = f64::from(n) / 9.0;
        for count in counts.as_flattened() {
            assert!((count - expected).abs() < 5.0 * (expected * 8.0 / 9.0).sqrt(), "{counts:?}");
        }
        assert!((mirrored - f64::from(n) / 2.0).abs() < 5.0 * (f64::from(n) / 4.0).sqrt());
        // Each shift has variance 20/3, so their product has (20/3)².
        assert!(product.abs() < 5.0 * 20.0 / 3.0 * f64::from(n).sqrt());
    }

    #[test]
    fn choices_depend_on_epoch_row_and_chain_alone() {
        let augment = cifar();
        let many = |key: Key, epoch| -> Vec<Choice> {
            (0..64).map(|row| augment.choice(key, epoch, row)).collect()
        };
        assert_eq!(many(key(), 2), many(Key { stream: Stream::Initial, ..key() }, 2));
        assert_ne!(many(key(), 2), many(key(), 3));
        assert_ne!(many(key(), 2), many(Key { chain: 2, ..key() }, 2));
    }

    #[test]
    fn the_border_is_a_black_pixel_after_normalisation() {
        let augment = cifar();
        let bytes: Vec<u8> = (0..32 * 32 * 3).map(|i| (i * 7 % 255 + 1) as u8).collect();
        let mut out = vec![0.0; bytes.len()];
        let corner = Choice { down: 0, right: 8, mirrored: false };
        augment.image(&bytes, corner, &mut out).unwrap();
        let black = |c: usize| -[0.4914f32, 0.4822, 0.4465][c] / [0.2023f32, 0.1994, 0.2010][c];
        for (y, x, c) in [(0, 0, 0), (3, 31, 1), (10, 28, 2), (31, 31, 0)] {
            assert_eq!(out[(y * 32 + x) * 3 + c], black(c), "{y} {x}");
        }
        let byte = bytes[(6 * 32 + 9) * 3 + 2] as f32;
        assert_eq!(out[(10 * 32 + 5) * 3 + 2], (byte / 255.0 - 0.4465) / 0.2010);
        let mut mirror = vec![0.0; bytes.len()];
        augment.image(&bytes, Choice { mirrored: true, ..corner }, &mut mirror).unwrap();
        for (y, x, c) in [(0, 3, 1), (12, 30, 0), (31, 0, 2)] {
            assert_eq!(mirror[(y * 32 + x) * 3 + c], out[(y * 32 + 31 - x) * 3 + c]);
        }
    }

    #[test]
    fn evaluation_leaves_pixels_in_place() {
        let augment = cifar().without_chance();
        let choice = augment.choice(key(), 9, 100);
        assert_eq!(choice, Choice { down: 0, right: 0, mirrored: false });
        let bytes = vec![255; 3072];
        let mut out = vec![0.0; 3072];
        augment.image(&bytes, choice, &mut out).unwrap();
        assert!(out.chunks(3).all(|p| p[0] == (1.0 - 0.4914) / 0.2023));
    }

    #[test]
    fn unusable_settings_are_refused() {
        let shape = Shape { height: 4, width: 4, channels: 2 };
        let new = |padding, mean: &[f32], sd: &[f32]| Augment::new(shape, padding, true, mean, sd);
        assert!(new(1, &[0.0; 2], &[1.0; 2]).is_ok());
        assert!(new(4, &[0.0; 2], &[1.0; 2]).unwrap_err().to_string().contains("whole image"));
        assert!(new(1, &[0.0; 3], &[1.0; 2]).unwrap_err().to_string().contains("3 values"));
        assert!(new(1, &[0.0; 2], &[1.0, 0.0]).unwrap_err().to_string().contains("positive"));
        let ok = new(1, &[0.0; 2], &[1.0; 2]).unwrap();
        let choice = ok.choice(key(), 0, 0);
        assert!(ok.image(&[0; 31], choice, &mut [0.0; 32]).is_err());
    }
}
