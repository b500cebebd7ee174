//! `y = a + b`

use crate::real::Real;

pub(crate) fn forward<T: Real>(a: &[T], b: &[T], y: &mut [T]) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = *a + *b;
    }
}

/// `dx += dy`, once for each of the two inputs.
pub(crate) fn backward<T: Real>(dy: &[T], dx: &mut [T]) {
    for (dx, dy) in dx.iter_mut().zip(dy) {
        *dx += *dy;
    }
}
