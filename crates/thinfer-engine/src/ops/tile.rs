//! Matrix products whose left factor need not lie in memory as a matrix.
//!
//! `c[i][j] = Σ_l a[at(i) + step_a(l)] · b[j + step_b(l)]`: a convolution is such a product of its
//! image, read through windows, and its weights, so no window is ever copied out. Every element
//! is summed in the order of `l`, whatever the size of the tile.

use crate::real::Real;
use crate::real::lanes::{LANES, Lanes, Plain};

/// Numbers that a tile may read past the last column of `b`; buffers are that much longer.
pub(crate) const SLACK: usize = 32;

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

/// What becomes of the sums.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a, T> {
    /// Where each sum starts from, by column, with slack at the end; nothing for zero.
    pub(crate) start: Option<&'a [T]>,
    /// Whether sums below zero become zero.
    pub(crate) positive: bool,
    /// Whether the result is added to what is there.
    pub(crate) add: bool,
}

impl<T> Finish<'_, T> {
    /// Adds plain sums to what is there.
    pub(crate) const ADD: Self = Finish { start: None, positive: false, add: true };
}

/// Computes `rows x columns` elements. `at` says where a row starts in `a` and in `to`.
pub(crate) fn multiply<T: Real>(
    product: Product<'_, T>,
    rows: usize,
    columns: usize,
    at: impl Fn(usize) -> (usize, usize),
    finish: Finish<'_, T>,
    to: &mut [T],
) {
    let (reach_a, reach_b) = product.reach();
    if rows == 0 || columns == 0 || product.sum.iter().any(|level| level.count == 0) {
        return;
    }
    let furthest = (0..rows).map(|row| at(row).0).max().unwrap_or(0) + reach_a;
    assert!(furthest < product.a.len(), "a product reaches past its left factor");
    let padded = columns.next_multiple_of(LANES);
    assert!(padded + reach_b <= product.b.len(), "a product reaches past its right factor");
    if let Some(start) = finish.start {
        assert!(padded <= start.len(), "a product begins with too few numbers");
    }
    let job = Job { product, rows, columns, at, finish, to };
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
    // SAFETY: plain lanes need no features. Every 64-bit Arm processor has fused products.
    unsafe {
        if cfg!(target_arch = "aarch64") {
            job.narrow::<Plain<T, true>>();
        } else {
            job.narrow::<Plain<T, false>>();
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn with_avx512<T: Real, A: Fn(usize) -> (usize, usize)>(job: Job<'_, T, A>) {
    // SAFETY: this function has the features.
    unsafe { job.wide::<T::Wide>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<T: Real, A: Fn(usize) -> (usize, usize)>(job: Job<'_, T, A>) {
    // SAFETY: this function has the features.
    unsafe { job.narrow::<T::Narrow>() }
}

/// A product with everything that its tiles need. Made by `multiply` alone, which checks that no
/// tile reads outside the factors.
struct Job<'a, T, A> {
    product: Product<'a, T>,
    rows: usize,
    columns: usize,
    at: A,
    finish: Finish<'a, T>,
    to: &'a mut [T],
}

impl<T: Real, A: Fn(usize) -> (usize, usize)> Job<'_, T, A> {
    /// Tiles for 32 registers of 16 numbers.
    ///
    /// # Safety
    /// For this and the others: the processor has the features of `V`.
    #[inline(always)]
    unsafe fn wide<V: Lanes<T>>(mut self) {
        let mut column = 0;
        while column < self.columns {
            let narrow = self.columns - column <= LANES;
            let mut row = 0;
            while row < self.rows {
                // SAFETY: the caller promises the features, and the tile lies in the product.
                row += unsafe {
                    match (self.rows - row, narrow) {
                        (12.., false) => self.tile::<V, 12, 2>(row, column),
                        (8.., false) => self.tile::<V, 8, 2>(row, column),
                        (4.., false) => self.tile::<V, 4, 2>(row, column),
                        (2.., false) => self.tile::<V, 2, 2>(row, column),
                        (_, false) => self.tile::<V, 1, 2>(row, column),
                        (14.., true) => self.tile::<V, 14, 1>(row, column),
                        (8.., true) => self.tile::<V, 8, 1>(row, column),
                        (6.., true) => self.tile::<V, 6, 1>(row, column),
                        (4.., true) => self.tile::<V, 4, 1>(row, column),
                        (2.., true) => self.tile::<V, 2, 1>(row, column),
                        (_, true) => self.tile::<V, 1, 1>(row, column),
                    }
                };
            }
            column += if narrow { LANES } else { 2 * LANES };
        }
    }

    /// Tiles for 16 registers of 8 numbers.
    ///
    /// # Safety
    /// See `wide`.
    #[inline(always)]
    unsafe fn narrow<V: Lanes<T>>(mut self) {
        for column in (0..self.columns).step_by(LANES) {
            let mut row = 0;
            while row < self.rows {
                // SAFETY: the caller promises the features, and the tile lies in the product.
                row += unsafe {
                    match self.rows - row {
                        6.. => self.tile::<V, 6, 1>(row, column),
                        3.. => self.tile::<V, 3, 1>(row, column),
                        _ => self.tile::<V, 1, 1>(row, column),
                    }
                };
            }
        }
    }

    /// One tile of `R` rows and `N` times sixteen columns, its sums in registers; returns `R`.
    ///
    /// # Safety
    /// See `wide`; `row + R` is not past the rows, nor the last column past the padded columns.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const R: usize, const N: usize>(
        &mut self,
        row: usize,
        column: usize,
    ) -> usize {
        let Product { a, b, sum: [images, outer, inner] } = self.product;
        let places: [(usize, usize); R] = std::array::from_fn(|i| (self.at)(row + i));
        // SAFETY: `multiply` asserted that every start lies in `a`.
        let starts = places.map(|(from, _)| unsafe { a.as_ptr().add(from) });
        // SAFETY: `multiply` asserted that every start plus the whole walk lies in `a`, that the
        // last padded column plus the whole walk lies in `b`, and that sums start from as many
        // numbers as there are padded columns.
        let sums = unsafe {
            let mut first = [V::zero(); N];
            if let Some(start) = self.finish.start {
                for j in 0..N {
                    first[j] = V::load(start.as_ptr().add(column + j * LANES));
                }
            }
            let mut sums = [first; R];
            for image in 0..images.count {
                for line in 0..outer.count {
                    let from_a = image * images.a + line * outer.a;
                    let from_b = column + image * images.b + line * outer.b;
                    for term in 0..inner.count {
                        let from_a = from_a + term * inner.a;
                        let from_b = b.as_ptr().add(from_b + term * inner.b);
                        let mut values = [V::zero(); N];
                        for j in 0..N {
                            values[j] = V::load(from_b.add(j * LANES));
                        }
                        for i in 0..R {
                            let factor = *starts[i].add(from_a);
                            for j in 0..N {
                                sums[i][j] = sums[i][j].add_product(factor, values[j]);
                            }
                        }
                    }
                }
            }
            sums
        };
        for i in 0..R {
            for j in 0..N {
                let first = column + j * LANES;
                let to = &mut self.to[places[i].1 + first..];
                let count = LANES.min(self.columns - first);
                // SAFETY: the caller promises the features.
                unsafe {
                    let sums =
                        if self.finish.positive { sums[i][j].positive() } else { sums[i][j] };
                    sums.put(&mut to[..count], self.finish.add);
                }
            }
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
                let product = Product { a: &a, b: &b, sum };
                let finish = Finish { start: Some(&b), positive: rows % 2 == 0, add: false };
                multiply(product, rows, columns, |i| (3 * i, columns * i), finish, &mut got);
                for i in 0..rows {
                    for j in 0..columns {
                        let mut want = b[j];
                        for (u, v, w) in (0..30).map(|t| (t / 15, t / 5 % 3, t % 5)) {
                            want +=
                                a[3 * i + u * 500 + v * 11 + w] * b[j + u * 700 + v * 90 + w * 70];
                        }
                        if rows % 2 == 0 {
                            want = want.max(0.0);
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
        multiply(Product { a: &a, b: &b, sum }, 1, 4, |_| (0, 0), Finish::ADD, &mut [0.0; 4]);
    }
}
