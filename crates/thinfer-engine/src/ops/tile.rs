//! Matrix products whose left factor need not lie in memory as a matrix.
//!
//! `c[i][j] = Σ_l a[at(i) + step_a(l)] · b[j + step_b(l)]`: a convolution is such a product of its
//! image, read through windows, and its weights, so no window is ever copied out. Every element
//! is summed in the order of `l`, whatever the size of the tile.

use crate::real::Real;

/// Numbers that a tile may read past the last column of `b`; buffers are that much longer.
pub(crate) const SLACK: usize = 32;
/// Columns are rounded up to a multiple of this.
pub(crate) const LANES: usize = 16;

/// `count` terms of a sum, `a` and `b` apart in the two factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) count: usize,
    pub(crate) a: usize,
    pub(crate) b: usize,
}

impl Level {
    pub(crate) const ONE: Level = Level { count: 1, a: 0, b: 0 };
}

/// The two factors, and the terms of the sum as three nested loops.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, T> {
    pub(crate) a: &'a [T],
    pub(crate) b: &'a [T],
    pub(crate) sum: [Level; 3],
}

impl<T> Product<'_, T> {
    /// How far the sum walks in the two factors.
    fn reach(&self) -> (usize, usize) {
        let walk = |step: fn(&Level) -> usize| -> usize {
            self.sum.iter().map(|level| level.count.saturating_sub(1) * step(level)).sum()
        };
        (walk(|level| level.a), walk(|level| level.b))
    }
}

/// Computes `rows x columns` elements; `at` says where a row starts in `a`, and `done` gets row,
/// first column and the sums of each piece of a row.
pub(crate) fn multiply<T: Real>(
    product: Product<'_, T>,
    rows: usize,
    columns: usize,
    at: impl Fn(usize) -> usize,
    done: impl FnMut(usize, usize, &[T]),
) {
    let (reach_a, reach_b) = product.reach();
    if rows == 0 || columns == 0 || product.sum.iter().any(|level| level.count == 0) {
        return;
    }
    let furthest = (0..rows).map(&at).max().unwrap_or(0) + reach_a;
    assert!(furthest < product.a.len(), "a product reaches past its left factor");
    let padded = columns.next_multiple_of(LANES);
    assert!(padded + reach_b <= product.b.len(), "a product reaches past its right factor");
    let job = Job { product, rows, columns, at, done };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512vl") && has!("fma") {
            // SAFETY: the features were detected on the line above.
            return unsafe { with_avx512(job) };
        }
        if has!("avx2") && has!("fma") {
            // SAFETY: the features were detected on the line above.
            return unsafe { with_avx2(job) };
        }
    }
    // Every 64-bit Arm processor multiplies and adds in one instruction.
    if cfg!(target_arch = "aarch64") { job.narrow::<true>() } else { job.narrow::<false>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn with_avx512<T: Real, A: Fn(usize) -> usize, D: FnMut(usize, usize, &[T])>(
    job: Job<'_, T, A, D>,
) {
    job.wide();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<T: Real, A: Fn(usize) -> usize, D: FnMut(usize, usize, &[T])>(job: Job<'_, T, A, D>) {
    job.narrow::<true>();
}

/// A product with everything that its tiles need. Made by `multiply` alone, which checks that no
/// tile reads outside the factors.
struct Job<'a, T, A, D> {
    product: Product<'a, T>,
    rows: usize,
    columns: usize,
    at: A,
    done: D,
}

impl<T: Real, A: Fn(usize) -> usize, D: FnMut(usize, usize, &[T])> Job<'_, T, A, D> {
    /// Tiles for 32 registers of 16 numbers.
    #[inline(always)]
    fn wide(mut self) {
        let mut column = 0;
        while column < self.columns {
            let narrow = self.columns - column <= LANES;
            let mut row = 0;
            while row < self.rows {
                let left = self.rows - row;
                row += match (left, narrow) {
                    (12.., false) => self.tile::<12, { 2 * LANES }, true>(row, column),
                    (8.., false) => self.tile::<8, { 2 * LANES }, true>(row, column),
                    (4.., false) => self.tile::<4, { 2 * LANES }, true>(row, column),
                    (2.., false) => self.tile::<2, { 2 * LANES }, true>(row, column),
                    (_, false) => self.tile::<1, { 2 * LANES }, true>(row, column),
                    (16.., true) => self.tile::<16, LANES, true>(row, column),
                    (8.., true) => self.tile::<8, LANES, true>(row, column),
                    (6.., true) => self.tile::<6, LANES, true>(row, column),
                    (4.., true) => self.tile::<4, LANES, true>(row, column),
                    (2.., true) => self.tile::<2, LANES, true>(row, column),
                    (_, true) => self.tile::<1, LANES, true>(row, column),
                };
            }
            column += if narrow { LANES } else { 2 * LANES };
        }
    }

    /// Tiles for 16 registers of 8 numbers.
    #[inline(always)]
    fn narrow<const FUSED: bool>(mut self) {
        for column in (0..self.columns).step_by(LANES) {
            let mut row = 0;
            while row < self.rows {
                row += match self.rows - row {
                    6.. => self.tile::<6, LANES, FUSED>(row, column),
                    3.. => self.tile::<3, LANES, FUSED>(row, column),
                    _ => self.tile::<1, LANES, FUSED>(row, column),
                };
            }
        }
    }

    /// One tile of `R` rows and `N` columns, its sums in registers; returns `R`.
    #[inline(always)]
    fn tile<const R: usize, const N: usize, const FUSED: bool>(
        &mut self,
        row: usize,
        column: usize,
    ) -> usize {
        let Product { a, b, sum: [images, outer, inner] } = self.product;
        let starts: [usize; R] = std::array::from_fn(|i| (self.at)(row + i));
        let mut sums = [[T::ZERO; N]; R];
        for image in 0..images.count {
            for line in 0..outer.count {
                let mut from_a = image * images.a + line * outer.a;
                let mut from_b = column + image * images.b + line * outer.b;
                for _ in 0..inner.count {
                    // SAFETY: `multiply` asserted that the largest start plus the whole walk lies
                    // in `a`, and that the last padded column plus the whole walk lies in `b`;
                    // `column + N` is never past the padded columns.
                    let values: &[T; N] = unsafe { &*b.as_ptr().add(from_b).cast() };
                    for i in 0..R {
                        // SAFETY: as above.
                        let factor = unsafe { *a.get_unchecked(starts[i] + from_a) };
                        for j in 0..N {
                            sums[i][j] = if FUSED {
                                factor.mul_add(values[j], sums[i][j])
                            } else {
                                factor * values[j] + sums[i][j]
                            };
                        }
                    }
                    from_a += inner.a;
                    from_b += inner.b;
                }
            }
        }
        let columns = N.min(self.columns - column);
        for (i, sums) in sums.iter().enumerate() {
            (self.done)(row + i, column, &sums[..columns]);
        }
        R
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every remainder of rows and columns, against the definition.
    #[test]
    fn equals_the_definition() {
        let a: Vec<f64> = (0..4000).map(|i| f64::from(i * 37 % 101) - 50.0).collect();
        let b: Vec<f64> = (0..4000).map(|i| f64::from(i * 53 % 97) - 48.0).collect();
        let sum = [
            Level { count: 2, a: 500, b: 700 },
            Level { count: 3, a: 11, b: 90 },
            Level { count: 5, a: 1, b: 70 },
        ];
        for rows in 1..30 {
            for columns in [1, 5, 16, 17, 32, 33, 50] {
                let mut got = vec![f64::NAN; rows * columns];
                multiply(
                    Product { a: &a, b: &b, sum },
                    rows,
                    columns,
                    |i| 3 * i,
                    |i, j, sums| {
                        got[i * columns + j..][..sums.len()].copy_from_slice(sums);
                    },
                );
                for i in 0..rows {
                    for j in 0..columns {
                        let mut want = 0.0;
                        for (u, v, w) in (0..30).map(|t| (t / 15, t / 5 % 3, t % 5)) {
                            want +=
                                a[3 * i + u * 500 + v * 11 + w] * b[j + u * 700 + v * 90 + w * 70];
                        }
                        assert_eq!(got[i * columns + j], want, "{rows} x {columns}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "past its right factor")]
    fn short_factors_are_refused() {
        let sum = [Level::ONE, Level::ONE, Level { count: 3, a: 1, b: 16 }];
        let (a, b) = ([0f32; 3], [0f32; 47]);
        multiply(Product { a: &a, b: &b, sum }, 1, 4, |_| 0, |_, _, _| {});
    }
}
