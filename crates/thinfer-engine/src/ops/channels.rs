//! Channels taken out of an image, or put into a wider one, channels last; and numbers taken out of
//! a whole image, which is then one pixel.

use crate::real::Real;

/// Output channel j is input channel `list[j]`; `width` is that of the input.
pub(crate) fn select<T: Real>(list: &[u32], width: usize, x: &[T], y: &mut [T]) {
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(list.len())) {
        y.iter_mut().zip(list).for_each(|(y, &from)| *y = x[from as usize]);
    }
}

/// `dx[list[j]] += dy[j]`; `width` is that of `dx`.
pub(crate) fn select_backward<T: Real>(list: &[u32], width: usize, dy: &[T], dx: &mut [T]) {
    for (dx, dy) in dx.chunks_exact_mut(width).zip(dy.chunks_exact(list.len())) {
        dy.iter().zip(list).for_each(|(dy, &to)| dx[to as usize] += *dy);
    }
}

/// Input channel j goes to output channel `list[j]`, the others are zero; `width` is that of `y`.
pub(crate) fn spread<T: Real>(list: &[u32], width: usize, x: &[T], y: &mut [T]) {
    y.fill(T::ZERO);
    select_backward(list, width, x, y);
}

/// `dx[j] += dy[list[j]]`; `width` is that of `dy`.
pub(crate) fn spread_backward<T: Real>(list: &[u32], width: usize, dy: &[T], dx: &mut [T]) {
    for (dy, dx) in dy.chunks_exact(width).zip(dx.chunks_exact_mut(list.len())) {
        dx.iter_mut().zip(list).for_each(|(dx, &from)| *dx += dy[from as usize]);
    }
}
