//! The largest value of each window, by channel, channels last. The first of equal values counts;
//! NaN counts as the largest, so that it stays visible.

use crate::real::Real;
use crate::real::lanes::{LANES, Lanes, Plain};
use crate::shape::{Shape, Window};

/// Sizes of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxPool {
    pub(crate) from: Shape,
    pub(crate) to: Shape,
    pub(crate) window: Window,
}

impl MaxPool {
    /// Calls `visit` with each output pixel, each place of its window and the input pixel there.
    fn taps(&self, mut visit: impl FnMut(usize, u32, usize)) {
        let Window { size, stride, padding } = self.window;
        for y in 0..self.to.height {
            for x in 0..self.to.width {
                for ky in 0..size[0] {
                    let row = (y * stride[0] + ky).wrapping_sub(padding[0]);
                    for kx in 0..size[1] {
                        let column = (x * stride[1] + kx).wrapping_sub(padding[1]);
                        if row < self.from.height && column < self.from.width {
                            let tap = (ky * size[1] + kx) as u32;
                            visit(y * self.to.width + x, tap, row * self.from.width + column);
                        }
                    }
                }
            }
        }
    }

    /// Whether windows cover every pixel exactly once.
    pub(crate) fn tiles(&self) -> bool {
        let Window { size, stride, padding } = self.window;
        size == stride
            && padding == [0, 0]
            && self.from.height == self.to.height * size[0]
            && self.from.width == self.to.width * size[1]
    }

    /// One or more images; `places` remembers which place of the window was the largest.
    pub(crate) fn forward<T: Real>(&self, x: &[T], y: &mut [T], places: &mut [u32]) {
        let images = y.len() / self.to.len();
        assert!(x.len() >= images * self.from.len(), "a pool has too few inputs");
        assert_eq!(y.len(), places.len(), "a pool has no room for its places");
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was detected on the line above.
            return unsafe { forward_with_avx512(self, x, y, places) };
        }
        // SAFETY: plain lanes need no features.
        unsafe { self.forward_in::<T, Plain<T, false>>(x, y, places) }
    }

    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    unsafe fn forward_in<T: Real, V: Lanes<T>>(&self, x: &[T], y: &mut [T], places: &mut [u32]) {
        let channels = self.from.channels;
        let Window { size, stride, padding } = self.window;
        let outputs = y.chunks_exact_mut(channels).zip(places.chunks_exact_mut(channels));
        for (pixel, (y, places)) in outputs.enumerate() {
            let (row, column) = (pixel / self.to.width, pixel % self.to.width);
            let (image, row) = (row / self.to.height, row % self.to.height);
            let rows = within(row * stride[0], size[0], padding[0], self.from.height);
            let columns = within(column * stride[1], size[1], padding[1], self.from.width);
            let pieces = y.chunks_mut(LANES).zip(places.chunks_mut(LANES));
            for (piece, (y, places)) in pieces.enumerate() {
                let taps = rows.clone().flat_map(|down| {
                    let line = row * stride[0] + down - padding[0];
                    let line = (image * self.from.height + line) * self.from.width;
                    columns.clone().map(move |right| {
                        let at = line + column * stride[1] + right - padding[1];
                        ((down * size[1] + right) as u32, at * channels + piece * LANES)
                    })
                });
                // SAFETY: the caller promises the features. Taps lie inside their image, which
                // `forward` asserted to be there, and `y` holds no more channels than are left.
                unsafe { V::largest(x, taps, y, places) };
            }
        }
    }

    /// `dx ← dy` at the places that were the largest and 0 elsewhere, where windows tile the image.
    pub(crate) fn backward_tiles<T: Real>(&self, places: &[u32], dy: &[T], dx: &mut [T]) {
        let images = dx.len() / self.from.len();
        assert!(self.tiles(), "windows overlap or leave pixels out");
        assert!(dy.len() >= images * self.to.len(), "a pool has too few slopes");
        assert!(places.len() >= dy.len(), "a pool has too few places");
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was detected on the line above.
            return unsafe { backward_with_avx512(self, places, dy, dx) };
        }
        // SAFETY: plain lanes need no features.
        unsafe { self.backward_in::<T, Plain<T, false>>(places, dy, dx) }
    }

    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    unsafe fn backward_in<T: Real, V: Lanes<T>>(&self, places: &[u32], dy: &[T], dx: &mut [T]) {
        let channels = self.from.channels;
        let [height, width] = self.window.size;
        for (line, dx) in dx.chunks_exact_mut(self.from.width * channels).enumerate() {
            let (row, down) = (line / height, line % height);
            for column in 0..self.to.width {
                let from = (row * self.to.width + column) * channels;
                let (dy, places) = (&dy[from..][..channels], &places[from..][..channels]);
                for right in 0..width {
                    let dx = &mut dx[(column * width + right) * channels..][..channels];
                    let tap = (down * width + right) as u32;
                    for first in (0..channels).step_by(LANES) {
                        let last = channels.min(first + LANES);
                        let (dy, places) = (&dy[first..last], &places[first..last]);
                        // SAFETY: the caller promises the features; the slices are of one length.
                        unsafe { V::choose(dy, places, tap, &mut dx[first..last]) };
                    }
                }
            }
        }
    }

    /// `dx += dy` at the places that were the largest.
    pub(crate) fn backward<T: Real>(&self, places: &[u32], dy: &[T], dx: &mut [T]) {
        let channels = self.from.channels;
        let slopes = dy.chunks_exact(self.to.len()).zip(places.chunks_exact(self.to.len()));
        for (dx, (dy, places)) in dx.chunks_exact_mut(self.from.len()).zip(slopes) {
            self.taps(|to, tap, from| {
                let dx = &mut dx[from * channels..][..channels];
                let dy = &dy[to * channels..][..channels];
                let places = &places[to * channels..][..channels];
                for ((dx, dy), place) in dx.iter_mut().zip(dy).zip(places) {
                    *dx += if *place == tap { *dy } else { T::ZERO };
                }
            });
        }
    }
}

/// The part of a window, `size` long and beginning `padding` before `start`, that lies in an image.
#[inline(always)]
fn within(start: usize, size: usize, padding: usize, pixels: usize) -> std::ops::Range<usize> {
    padding.saturating_sub(start)..size.min(pixels + padding - start)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn forward_with_avx512<T: Real>(pool: &MaxPool, x: &[T], y: &mut [T], places: &mut [u32]) {
    // SAFETY: this function has the feature.
    unsafe { pool.forward_in::<T, T::Wide>(x, y, places) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn backward_with_avx512<T: Real>(pool: &MaxPool, places: &[u32], dy: &[T], dx: &mut [T]) {
    // SAFETY: this function has the feature.
    unsafe { pool.backward_in::<T, T::Wide>(places, dy, dx) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [1 5 5; 2 4 0; 7 7 1] by windows of two that move by one, the first of equal values
    /// counts.
    #[test]
    fn worked_case() {
        let shape = |side| Shape { height: side, width: side, channels: 1 };
        let pool = MaxPool { from: shape(3), to: shape(2), window: Window::square(2, 1, 0) };
        let x = [1f64, 5.0, 5.0, 2.0, 4.0, 0.0, 7.0, 7.0, 1.0];
        let (mut y, mut places, mut dx) = ([0.0; 4], [9; 4], [0.0; 9]);
        pool.forward(&x, &mut y, &mut places);
        assert_eq!((y, places), ([5.0, 5.0, 7.0, 7.0], [1, 0, 2, 2]));
        pool.backward(&places, &[1.0, 2.0, 4.0, 8.0], &mut dx);
        assert_eq!(dx, [0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 4.0, 8.0, 0.0]);
        assert!(!pool.tiles());
    }

    /// Any number of channels, two images: against the definition, and both ways back.
    #[test]
    fn lanes_do_not_mix_channels() {
        for channels in [1, 3, 6, 16, 19] {
            for (side, window) in [(4, Window::square(2, 2, 0)), (6, Window::square(3, 3, 0))] {
                let to = Shape { height: 2, width: 2, channels };
                let from = Shape { height: side, width: side, channels };
                let pool = MaxPool { from, to, window };
                assert!(pool.tiles());
                let x: Vec<f64> = (0..2 * from.len()).map(|i| ((i * 7919) % 1009) as f64).collect();
                let n = 2 * to.len();
                let (mut y, mut places) = (vec![0.0; n], vec![9; n]);
                pool.forward(&x, &mut y, &mut places);
                let dy: Vec<f32> = (1..=n).map(|i| i as f32).collect();
                let (mut one, mut two) = (vec![0.0; x.len()], vec![f32::NAN; x.len()]);
                pool.backward(&places, &dy, &mut one);
                pool.backward_tiles(&places, &dy, &mut two);
                assert_eq!(one, two);
                for image in 0..2 {
                    pool.taps(|out, tap, pixel| {
                        for c in 0..channels {
                            let at = image * to.len() + out * channels + c;
                            let value = x[image * from.len() + pixel * channels + c];
                            assert!(value <= y[at]);
                            assert_eq!(value == y[at], places[at] == tap);
                        }
                    });
                }
            }
        }
    }

    #[test]
    fn not_a_number_is_the_largest() {
        for size in [2, 3] {
            let from = Shape { height: size, width: size, channels: 1 };
            let window = Window::square(size, size, 0);
            let pool = MaxPool { from, to: Shape::vector(1), window };
            let mut x = vec![1.0; size * size];
            x[1] = f32::NAN;
            let (mut y, mut places) = ([0.0], [9]);
            pool.forward(&x, &mut y, &mut places);
            assert!(y[0].is_nan() && places == [1]);
        }
    }
}
