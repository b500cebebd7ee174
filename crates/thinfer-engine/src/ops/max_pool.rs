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
            || self.forward_in_lanes(x, y, places),
        );
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
