//! The largest value of each window, by channel, channels last. The first of equal values counts;
//! NaN counts as the largest, so that it stays visible.

use crate::network::{Shape, Window};
use crate::real::Real;

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

    /// One or more images; `places` remembers which place of the window was the largest.
    pub(crate) fn forward<T: Real>(&self, x: &[T], y: &mut [T], places: &mut [u32]) {
        let channels = self.from.channels;
        let images = x.chunks_exact(self.from.len());
        let outputs = y.chunks_exact_mut(self.to.len()).zip(places.chunks_exact_mut(self.to.len()));
        for (x, (y, places)) in images.zip(outputs) {
            let mut last = usize::MAX;
            self.taps(|to, tap, from| {
                let x = &x[from * channels..][..channels];
                let y = &mut y[to * channels..][..channels];
                let places = &mut places[to * channels..][..channels];
                if to != last {
                    y.copy_from_slice(x);
                    places.fill(tap);
                    last = to;
                    return;
                }
                for ((y, place), x) in y.iter_mut().zip(places).zip(x) {
                    // False for a smaller or equal `x`, and for anything once `y` is NaN.
                    let larger = !(*x <= *y) && *y == *y;
                    *y = if larger { *x } else { *y };
                    *place = if larger { tap } else { *place };
                }
            });
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
