//! `y = max(x, 0)`, with slope 0 at 0.

use crate::real::Real;
use crate::vectorize::vectorize;

pub(crate) fn forward<T: Real>(x: &[T], y: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            for (y, x) in y.iter_mut().zip(x) {
                // Written so that NaN, for which every comparison is false, stays visible.
                *y = if *x <= T::ZERO { T::ZERO } else { *x };
            }
        },
    );
}

/// `dx += dy · 1[y > 0]`
pub(crate) fn backward<T: Real>(y: &[T], dy: &[T], dx: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            for ((dx, dy), y) in dx.iter_mut().zip(dy).zip(y) {
                *dx += if *y > T::ZERO { *dy } else { T::ZERO };
            }
        },
    );
}

/// `y ← max(y, 0)`
pub(crate) fn forward_in_place<T: Real>(y: &mut [T]) {
    for y in y {
        *y = if *y <= T::ZERO { T::ZERO } else { *y };
    }
}

/// `dy ← dy · 1[y > 0]`
pub(crate) fn backward_in_place<T: Real>(y: &[T], dy: &mut [T]) {
    for (dy, y) in dy.iter_mut().zip(y) {
        *dy = if *y > T::ZERO { *dy } else { T::ZERO };
    }
}
