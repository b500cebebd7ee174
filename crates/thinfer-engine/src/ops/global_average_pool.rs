//! The mean over all pixels of each image, by channel, channels last.

use crate::real::Real;
use crate::shape::Shape;

/// One or more images.
pub(crate) fn forward<T: Real>(from: Shape, x: &[T], y: &mut [T]) {
    let share = T::of(1.0 / (from.height * from.width) as f64);
    for (x, y) in x.chunks_exact(from.len()).zip(y.chunks_exact_mut(from.channels)) {
        y.fill(T::ZERO);
        for pixel in x.chunks_exact(from.channels) {
            y.iter_mut().zip(pixel).for_each(|(y, x)| *y += *x);
        }
        y.iter_mut().for_each(|y| *y *= share);
    }
}

/// `dx += dy / pixels`
pub(crate) fn backward<T: Real>(from: Shape, dy: &[T], dx: &mut [T]) {
    let share = T::of(1.0 / (from.height * from.width) as f64);
    for (dx, dy) in dx.chunks_exact_mut(from.len()).zip(dy.chunks_exact(from.channels)) {
        for pixel in dx.chunks_exact_mut(from.channels) {
            pixel.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += *dy * share);
        }
    }
}
