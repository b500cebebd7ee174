//! `y = tanh x`

use crate::real::Real;
use crate::vectorize::vectorize;

pub(crate) fn forward<T: Real>(x: &[T], y: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            for (y, x) in y.iter_mut().zip(x) {
                *y = x.tanh();
            }
        },
    );
}

/// `dx += dy (1 − y²)`
pub(crate) fn backward<T: Real>(y: &[T], dy: &[T], dx: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            for ((dx, dy), y) in dx.iter_mut().zip(dy).zip(y) {
                *dx += *dy * (T::ONE - *y * *y);
            }
        },
    );
}
