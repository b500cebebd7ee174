//! Linear layers with a handful of inputs and outputs.
//!
//! A general product spends more time on being called than on such a layer. Here a block of rows at
//! a time is turned, so that vectors hold one input of many rows.

use super::linear::Size;
use crate::real::Real;
use crate::vectorize::vectorize;

/// Layers with more inputs or outputs are left to the general product.
const MOST: usize = 8;
/// Rows that are turned together: enough that turned values have left the store buffer when they
/// are read as vectors.
const ROWS: usize = 64;
/// Sums that a dot product keeps apart.
const LANES: usize = 16;

type Turned<T> = [[T; ROWS]; MOST];

pub(crate) fn fits(size: Size) -> bool {
    size.inputs <= MOST && size.outputs <= MOST
}

/// Rows of `width` numbers as `width` vectors; zeros where rows are missing.
#[inline(always)]
fn turn<T: Real>(rows: &[T], width: usize) -> Turned<T> {
    let mut turned = [[T::ZERO; ROWS]; MOST];
    for (r, row) in rows.chunks_exact(width).enumerate() {
        for (to, value) in turned.iter_mut().zip(row) {
            to[r] = *value;
        }
    }
    turned
}

/// `sum += factor · values`
#[inline(always)]
fn add_scaled<T: Real>(sum: &mut [T; ROWS], factor: T, values: &[T; ROWS]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * *value;
    }
}

/// `y ← x Wᵀ + b`
pub(crate) fn forward<T: Real>(size: Size, x: &[T], weight: &[T], bias: Option<&[T]>, y: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            let blocks = x.chunks(ROWS * size.inputs).zip(y.chunks_mut(ROWS * size.outputs));
            for (x, y) in blocks {
                let x = turn(x, size.inputs);
                for (o, weight) in weight.chunks_exact(size.inputs).enumerate() {
                    let mut sum = [bias.map_or(T::ZERO, |bias| bias[o]); ROWS];
                    for (w, x) in weight.iter().zip(&x) {
                        add_scaled(&mut sum, *w, x);
                    }
                    for (y, sum) in y.chunks_exact_mut(size.outputs).zip(sum) {
                        y[o] = sum;
                    }
                }
            }
        },
    );
}

/// `Σ_r a_r b_r`, in a fixed order.
#[inline(always)]
fn dot<T: Real>(a: &[T; ROWS], b: &[T; ROWS]) -> T {
    let mut sums = [T::ZERO; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    let mut half = [T::ZERO; LANES / 2];
    for l in 0..LANES / 2 {
        half[l] = sums[l] + sums[l + LANES / 2];
    }
    let quarter = [half[0] + half[4], half[1] + half[5], half[2] + half[6], half[3] + half[7]];
    (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
}

/// `dW += dyᵀ x`
pub(crate) fn weight_gradient<T: Real>(size: Size, x: &[T], dy: &[T], dw: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            let blocks = x.chunks(ROWS * size.inputs).zip(dy.chunks(ROWS * size.outputs));
            for (x, dy) in blocks {
                let (x, dy) = (turn(x, size.inputs), turn(dy, size.outputs));
                for (dw, dy) in dw.chunks_exact_mut(size.inputs).zip(&dy) {
                    for (dw, x) in dw.iter_mut().zip(&x) {
                        *dw += dot(dy, x);
                    }
                }
            }
        },
    );
}

/// `dx += dy W`
pub(crate) fn input_gradient<T: Real>(size: Size, dy: &[T], weight: &[T], dx: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            let blocks = dy.chunks(ROWS * size.outputs).zip(dx.chunks_mut(ROWS * size.inputs));
            for (dy, dx) in blocks {
                let dy = turn(dy, size.outputs);
                for i in 0..size.inputs {
                    let mut sum = [T::ZERO; ROWS];
                    for (weight, dy) in weight.chunks_exact(size.inputs).zip(&dy) {
                        add_scaled(&mut sum, weight[i], dy);
                    }
                    for (dx, sum) in dx.chunks_exact_mut(size.inputs).zip(sum) {
                        dx[i] += sum;
                    }
                }
            }
        },
    );
}
