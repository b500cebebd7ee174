//! Random channel scales, a fresh one for every row and channel: y = s x + b.
//!
//! s = clip(m + softplus(r) z, ±10), where m and r belong to the row's member.

use crate::mixture::{Draw, Law};
use crate::real::Real;

/// The law of every member's scales: what m, softplus(r) and its slope are, member by channel.
#[derive(Default)]
pub(crate) struct Laws<T> {
    location: Vec<T>,
    scale: Vec<T>,
    slope: Vec<T>,
}

impl<T: Real> Laws<T> {
    /// From m and r, which lie side by side.
    pub(crate) fn take(&mut self, posterior: &[T]) {
        let pairs = || posterior.chunks_exact(2);
        self.location.clear();
        self.scale.clear();
        self.slope.clear();
        self.location.extend(pairs().map(|pair| pair[0]));
        self.scale.extend(pairs().map(|pair| pair[1].softplus()));
        self.slope.extend(pairs().map(|pair| pair[1].sigmoid()));
    }
}

/// Whose scales a row gets, and the number of its first random number.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) member: usize,
    pub(crate) number: usize,
}

/// Draws the scales of one row, and their slopes with respect to r. What is cut off has no slope.
pub(crate) fn draw<T: Real>(
    (law, from): (Law, &Draw),
    laws: &Laws<T>,
    row: Row,
    noise: &mut [f32],
    s: &mut [T],
    slope: &mut [T],
) {
    match law {
        Law::Gaussian => from.key.normals(from.step, row.number, noise),
        Law::Cauchy => from.key.cauchys(from.step, row.number, noise),
    }
    let (most, least) = (T::of(Law::FARTHEST), T::of(-Law::FARTHEST));
    let first = row.member * noise.len();
    for (c, z) in noise.iter().enumerate() {
        let (at, z) = (first + c, T::of_single(*z));
        let free = laws.location[at] + laws.scale[at] * z;
        let cut = free >= most || free <= least;
        s[c] = if !cut {
            free
        } else if free > T::ZERO {
            most
        } else {
            least
        };
        slope[c] = if cut { T::ZERO } else { z * laws.slope[at] };
    }
}

/// One row: pixels by channels.
pub(crate) fn forward<T: Real>(s: &[T], bias: Option<&[T]>, x: &[T], y: &mut [T]) {
    for (x, y) in x.chunks_exact(s.len()).zip(y.chunks_exact_mut(s.len())) {
        y.iter_mut().zip(x).zip(s).for_each(|((y, x), s)| *y = *x * *s);
        if let Some(bias) = bias {
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += *b);
        }
    }
}

/// `dx += s dy` for one row; without `adds`, what `dx` held is overwritten.
pub(crate) fn backward<T: Real>(s: &[T], dy: &[T], dx: &mut [T], adds: bool) {
    for (dx, dy) in dx.chunks_exact_mut(s.len()).zip(dy.chunks_exact(s.len())) {
        for ((dx, dy), s) in dx.iter_mut().zip(dy).zip(s) {
            *dx = if adds { *dx + *s * *dy } else { *s * *dy };
        }
    }
}

/// Adds one row's part to the gradient of its member: `posterior` has m and r side by side.
pub(crate) fn gradient<T: Real>(
    s: &[T],
    slope: &[T],
    x: &[T],
    dy: &[T],
    sums: &mut [T],
    posterior: &mut [T],
) {
    let sums = &mut sums[..s.len()];
    sums.fill(T::ZERO);
    for (x, dy) in x.chunks_exact(s.len()).zip(dy.chunks_exact(s.len())) {
        sums.iter_mut().zip(x).zip(dy).for_each(|((sum, x), dy)| *sum += *x * *dy);
    }
    let (most, least) = (T::of(Law::FARTHEST), T::of(-Law::FARTHEST));
    for (c, pair) in posterior.chunks_exact_mut(2).enumerate() {
        let cut = s[c] >= most || s[c] <= least;
        pair[0] += if cut { T::ZERO } else { sums[c] };
        pair[1] += sums[c] * slope[c];
    }
}

/// Adds one row's part to the gradient of its member's bias.
pub(crate) fn bias_gradient<T: Real>(dy: &[T], bias: &mut [T]) {
    for dy in dy.chunks_exact(bias.len()) {
        bias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += *dy);
    }
}
