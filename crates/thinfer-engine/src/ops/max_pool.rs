//! The largest value of each window, by channel, channels last. The first of equal values counts;
//! NaN counts as the largest, so that it stays visible.

use crate::network::{Shape, Window};
use crate::real::Real;
use crate::vectorize::vectorize;

/// Channels that are worked on together.
const LANES: usize = 8;

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
        vectorize(
            #[inline(always)]
            || {
                if self.window == Window::square(2, 2, 0) {
                    self.forward_of_four(x, y, places);
                } else {
                    self.forward_in_lanes(x, y, places);
                }
            },
        );
    }

    /// The commonest window, in a form that compilers turn into vector instructions.
    #[inline(always)]
    fn forward_of_four<T: Real>(&self, x: &[T], y: &mut [T], places: &mut [u32]) {
        let channels = self.from.channels;
        let line = self.from.width * channels;
        for row in 0..y.len() / (self.to.width * channels) {
            let (image, row_of_image) = (row / self.to.height, row % self.to.height);
            let first = image * self.from.len() + 2 * row_of_image * line;
            for column in 0..self.to.width {
                let from = first + 2 * column * channels;
                let to = (row * self.to.width + column) * channels;
                let mut channel = 0;
                while channel < channels {
                    let (from, to) = (from + channel, to + channel);
                    let starts = [from, from + channels, from + line, from + line + channels];
                    if to + LANES <= y.len() && starts[3] + LANES <= x.len() {
                        largest_of_four::<T, LANES>(x, starts, &mut y[to..], &mut places[to..]);
                        channel += LANES;
                    } else {
                        largest_of_four::<T, 1>(x, starts, &mut y[to..], &mut places[to..]);
                        channel += 1;
                    }
                }
            }
        }
    }

    /// Works on eight channels at once. Where fewer are left, the others belong to the pixel after
    /// this one, which is written later; only at the end of all images are they done singly.
    #[inline(always)]
    fn forward_in_lanes<T: Real>(&self, x: &[T], y: &mut [T], places: &mut [u32]) {
        let channels = self.from.channels;
        let Window { size, stride, padding } = self.window;
        let images = y.len() / self.to.len();
        for image in 0..images {
            for row in 0..self.to.height {
                let rows = within(row * stride[0], size[0], padding[0], self.from.height);
                for column in 0..self.to.width {
                    let columns = within(column * stride[1], size[1], padding[1], self.from.width);
                    let to = ((image * self.to.height + row) * self.to.width + column) * channels;
                    let from = |down: usize, right: usize| {
                        let line = row * stride[0] + down - padding[0];
                        let at = column * stride[1] + right - padding[1];
                        ((image * self.from.height + line) * self.from.width + at) * channels
                    };
                    let last = from(rows.end - 1, columns.end - 1);
                    let mut channel = 0;
                    while channel < channels {
                        let at = to + channel;
                        let taps = || {
                            rows.clone().flat_map(|down| columns.clone().map(move |r| (down, r)))
                        };
                        let taps = taps().map(|(down, right)| {
                            (down * size[1] + right, from(down, right) + channel)
                        });
                        if at + LANES <= y.len() && last + channel + LANES <= x.len() {
                            largest::<T, LANES>(x, taps, &mut y[at..], &mut places[at..]);
                            channel += LANES;
                        } else {
                            largest::<T, 1>(x, taps, &mut y[at..], &mut places[at..]);
                            channel += 1;
                        }
                    }
                }
            }
        }
    }

    /// `dx ← dy` at the places that were the largest and 0 elsewhere, where windows tile the image.
    pub(crate) fn backward_tiles<T: Real>(&self, places: &[u32], dy: &[T], dx: &mut [T]) {
        vectorize(
            #[inline(always)]
            || self.backward_in_lanes(places, dy, dx),
        );
    }

    /// Writes in the order of memory, eight channels at once, as `forward_in_lanes` does.
    #[inline(always)]
    fn backward_in_lanes<T: Real>(&self, places: &[u32], dy: &[T], dx: &mut [T]) {
        let channels = self.from.channels;
        let [height, width] = self.window.size;
        for line in 0..dx.len() / (self.from.width * channels) {
            let (row, down) = (line / height, line % height);
            for at in 0..self.from.width {
                let (column, right) = (at / width, at % width);
                let tap = (down * width + right) as u32;
                let from = (row * self.to.width + column) * channels;
                let to = (line * self.from.width + at) * channels;
                let mut channel = 0;
                while channel < channels {
                    let (from, to) = (from + channel, to + channel);
                    if from + LANES <= dy.len() && to + LANES <= dx.len() {
                        let mut slope = [T::ZERO; LANES];
                        let (dy, places) = (&dy[from..][..LANES], &places[from..][..LANES]);
                        for lane in 0..LANES {
                            slope[lane] = if places[lane] == tap { dy[lane] } else { T::ZERO };
                        }
                        dx[to..][..LANES].copy_from_slice(&slope);
                        channel += LANES;
                    } else {
                        dx[to] = if places[from] == tap { dy[from] } else { T::ZERO };
                        channel += 1;
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

/// The largest of the numbers at all `taps`, for `W` channels.
#[inline(always)]
fn largest<T: Real, const W: usize>(
    x: &[T],
    taps: impl Iterator<Item = (usize, usize)>,
    y: &mut [T],
    places: &mut [u32],
) {
    let mut best = [T::ZERO; W];
    let mut place = [u32::MAX; W];
    for (tap, from) in taps {
        let x = &x[from..from + W];
        for lane in 0..W {
            // NaN is larger than all but another NaN.
            let (new, old) = (x[lane], best[lane]);
            let keep = (new <= old || old.is_nan()) && place[lane] != u32::MAX;
            best[lane] = if keep { old } else { new };
            place[lane] = if keep { place[lane] } else { tap as u32 };
        }
    }
    y[..W].copy_from_slice(&best);
    places[..W].copy_from_slice(&place);
}

#[inline(always)]
fn largest_of_four<T: Real, const W: usize>(
    x: &[T],
    starts: [usize; 4],
    y: &mut [T],
    places: &mut [u32],
) {
    let [a, b, c, d] = starts.map(|start| &x[start..start + W]);
    let (y, places) = (&mut y[..W], &mut places[..W]);
    for lane in 0..W {
        let (mut best, mut place) = (a[lane], 0);
        for (tap, new) in [(1, b[lane]), (2, c[lane]), (3, d[lane])] {
            let keep = new <= best || best.is_nan();
            best = if keep { best } else { new };
            place = if keep { place } else { tap };
        }
        y[lane] = best;
        places[lane] = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [1 5 5; 2 4 0; 7 7 1] by windows of two that move by one, then in the two fast ways: the
    /// first of equal values counts.
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
        for channels in [1, 3, 6, 8, 11, 16] {
            for (side, window) in [(4, Window::square(2, 2, 0)), (6, Window::square(3, 3, 0))] {
                let to = Shape { height: 2, width: 2, channels };
                let from = Shape { height: side, width: side, channels };
                let pool = MaxPool { from, to, window };
                assert!(pool.tiles());
                let x: Vec<f64> = (0..2 * from.len()).map(|i| ((i * 7919) % 1009) as f64).collect();
                let n = 2 * to.len();
                let (mut y, mut places) = (vec![0.0; n], vec![9; n]);
                pool.forward(&x, &mut y, &mut places);
                let dy: Vec<f64> = (1..=n).map(|i| i as f64).collect();
                let (mut one, mut two) = (vec![0.0; x.len()], vec![f64::NAN; x.len()]);
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
            x[1] = f64::NAN;
            let (mut y, mut places) = ([0.0], [9]);
            pool.forward(&x, &mut y, &mut places);
            assert!(y[0].is_nan() && places == [1]);
        }
    }
}
