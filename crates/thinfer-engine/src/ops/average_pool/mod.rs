//! The mean of each window, by channel, channels last. Pixels of the padding are zeros that count.

use super::{Kernels, Onnx};
use crate::real::Real;
use crate::shape::{Shape, Window};

/// What it is in ONNX.
pub(super) fn onnx(window: Window) -> Onnx {
    Onnx { name: "AveragePool", window: Some(window), integers: &[("count_include_pad", 1)] }
}

/// The kernels of `average_pool.cu`.
pub(super) fn kernels(window: Window) -> Kernels {
    let (forward, backward) = ("average_forward", "average_backward");
    Kernels { forward, backward, keeps: None, window: Some(window) }
}

/// Sizes of one layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AveragePool {
    pub(super) from: Shape,
    pub(super) to: Shape,
    pub(super) window: Window,
}

impl AveragePool {
    /// Calls `visit` with each output pixel and each pixel of the image in its window.
    fn taps(&self, mut visit: impl FnMut(usize, usize)) {
        let Window { size, stride, padding } = self.window;
        for y in 0..self.to.height {
            for x in 0..self.to.width {
                for row in (0..size[0]).map(|down| (y * stride[0] + down).wrapping_sub(padding[0]))
                {
                    for right in 0..size[1] {
                        let column = (x * stride[1] + right).wrapping_sub(padding[1]);
                        if row < self.from.height && column < self.from.width {
                            visit(y * self.to.width + x, row * self.from.width + column);
                        }
                    }
                }
            }
        }
    }

    fn share<T: Real>(&self) -> T {
        T::of(1.0 / (self.window.size[0] * self.window.size[1]) as f64)
    }

    /// `y = Σ x / pixels` over the window, for one or more images.
    pub(super) fn forward<T: Real>(&self, x: &[T], y: &mut [T]) {
        let (channels, share) = (self.from.channels, self.share::<T>());
        for (x, y) in x.chunks_exact(self.from.len()).zip(y.chunks_exact_mut(self.to.len())) {
            y.fill(T::ZERO);
            self.taps(|to, from| {
                let x = &x[from * channels..][..channels];
                y[to * channels..][..channels].iter_mut().zip(x).for_each(|(y, x)| *y += *x);
            });
            y.iter_mut().for_each(|y| *y *= share);
        }
    }

    /// `dx += dy / pixels` for every pixel of the window.
    pub(super) fn backward<T: Real>(&self, dy: &[T], dx: &mut [T]) {
        let (channels, share) = (self.from.channels, self.share::<T>());
        for (dx, dy) in dx.chunks_exact_mut(self.from.len()).zip(dy.chunks_exact(self.to.len())) {
            self.taps(|to, from| {
                let dy = &dy[to * channels..][..channels];
                let dx = &mut dx[from * channels..][..channels];
                dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += *dy * share);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [1 2; 3 4] by windows of two that move by one and are padded by one: the corners see one
    /// pixel and three zeros.
    #[test]
    fn worked_case() {
        let shape = |side| Shape { height: side, width: side, channels: 1 };
        let pool = AveragePool { from: shape(2), to: shape(3), window: Window::square(2, 1, 1) };
        let (mut y, mut dx) = ([9.0f64; 9], [1.0; 4]);
        pool.forward(&[1.0, 2.0, 3.0, 4.0], &mut y);
        assert_eq!(y, [0.25, 0.75, 0.5, 1.0, 2.5, 1.5, 0.75, 1.75, 1.0]);
        pool.backward(&[4.0, 8.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 12.0], &mut dx);
        assert_eq!(dx, [5.0, 4.0, 2.0, 5.0]);
    }

    /// Windows that tile the image and do not mix channels or images.
    #[test]
    fn images_and_channels_stay_apart() {
        let from = Shape { height: 2, width: 2, channels: 2 };
        let pool = AveragePool { from, to: Shape::vector(2), window: Window::square(2, 2, 0) };
        let x: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let mut y = [0.0; 4];
        pool.forward(&x, &mut y);
        assert_eq!(y, [3.0, 4.0, 11.0, 12.0]);
    }
}
