//! Sixteen numbers side by side, as the vector unit holds them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m512, _CMP_NLE_UQ, _CMP_ORD_Q, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_cmp_ps_mask,
    _mm512_cmpeq_epi32_mask, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_mov_epi32,
    _mm512_mask_mov_ps, _mm512_mask_storeu_epi32, _mm512_mask_storeu_ps, _mm512_maskz_loadu_epi32,
    _mm512_maskz_loadu_ps, _mm512_max_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
};

use crate::real::Real;

/// How many numbers [`Lanes`] hold.
pub(crate) const LANES: usize = 16;

/// Sixteen numbers.
pub(crate) trait Lanes<T>: Copy {
    /// # Safety
    /// For this and the others: the processor has the features of the type, and `from` has sixteen
    /// numbers.
    unsafe fn zero() -> Self;
    /// Sixteen neighbours.
    ///
    /// # Safety
    /// See `zero`.
    unsafe fn load(from: *const T) -> Self;
    /// `self + factor · values`
    ///
    /// # Safety
    /// See `zero`.
    unsafe fn add_product(self, factor: T, values: Self) -> Self;
    /// `self + a · b`
    ///
    /// # Safety
    /// See `zero`.
    unsafe fn add_products(self, a: Self, b: Self) -> Self;
    /// Writes as many numbers as `to` has, sixteen at most; adds them if `add` is set.
    ///
    /// # Safety
    /// See `zero`.
    unsafe fn put(self, to: &mut [T], add: bool);
    /// The larger of each number and zero; NaN stays.
    ///
    /// # Safety
    /// See `zero`.
    unsafe fn positive(self) -> Self;

    /// The largest of the numbers at several starts in `x`, and which start it was: as many
    /// neighbours as `y` has, sixteen at most. The first of equal values counts, NaN is largest.
    ///
    /// # Safety
    /// See `zero`; `x` has as many numbers as `y` after each start.
    #[inline(always)]
    unsafe fn largest(
        x: &[T],
        starts: impl Iterator<Item = (u32, usize)> + Clone,
        y: &mut [T],
        places: &mut [u32],
    ) where
        T: Real,
    {
        for (lane, (y, place)) in y.iter_mut().zip(places).enumerate() {
            *place = u32::MAX;
            for (at, start) in starts.clone() {
                let new = x[start + lane];
                if *place == u32::MAX || !(new <= *y || y.is_nan()) {
                    (*y, *place) = (new, at);
                }
            }
        }
    }

    /// `to ← from` where `places` is `at`, 0 elsewhere: as many as `to` has, sixteen at most.
    ///
    /// # Safety
    /// See `zero`; `from` and `places` have as many numbers as `to`.
    #[inline(always)]
    unsafe fn choose(from: &[T], places: &[u32], at: u32, to: &mut [T])
    where
        T: Real,
    {
        for ((to, from), place) in to.iter_mut().zip(from).zip(places) {
            *to = if *place == at { *from } else { T::ZERO };
        }
    }
}

/// Something to do with lanes of any kind.
pub(crate) trait Work<T> {
    /// Does it.
    ///
    /// # Safety
    /// The processor has the features of `L`.
    unsafe fn run<L: Lanes<T>>(self);
}

/// Does something with the widest lanes that the processor has.
pub(crate) fn with_lanes<T: Real>(work: impl Work<T>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512vl") && has!("fma") {
            // SAFETY: the features were detected on the line above.
            return unsafe { with_avx512::<T>(work) };
        }
        if has!("avx2") && has!("fma") {
            // SAFETY: the features were detected on the line above.
            return unsafe { with_avx2::<T>(work) };
        }
    }
    // SAFETY: plain lanes need no features. Every 64-bit Arm processor has fused products.
    unsafe {
        if cfg!(target_arch = "aarch64") {
            work.run::<Plain<T, true>>();
        } else {
            work.run::<Plain<T, false>>();
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn with_avx512<T: Real>(work: impl Work<T>) {
    // SAFETY: this function has the features.
    unsafe { work.run::<T::Wide>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<T: Real>(work: impl Work<T>) {
    // SAFETY: this function has the features.
    unsafe { work.run::<T::Narrow>() }
}

/// For any processor; `FUSED` where it multiplies and adds in one instruction.
#[derive(Clone, Copy)]
pub(crate) struct Plain<T, const FUSED: bool>([T; LANES]);

impl<T: Real, const FUSED: bool> Lanes<T> for Plain<T, FUSED> {
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([T::ZERO; LANES])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller promises sixteen numbers.
        Self(unsafe { *from.cast() })
    }
    #[inline(always)]
    unsafe fn add_product(mut self, factor: T, values: Self) -> Self {
        for (sum, value) in self.0.iter_mut().zip(values.0) {
            *sum = if FUSED { factor.mul_add(value, *sum) } else { factor * value + *sum };
        }
        self
    }
    #[inline(always)]
    unsafe fn add_products(mut self, a: Self, b: Self) -> Self {
        for ((sum, a), b) in self.0.iter_mut().zip(a.0).zip(b.0) {
            *sum = if FUSED { a.mul_add(b, *sum) } else { a * b + *sum };
        }
        self
    }
    #[inline(always)]
    unsafe fn put(self, to: &mut [T], add: bool) {
        put(&self.0, to, add);
    }
    #[inline(always)]
    unsafe fn positive(mut self) -> Self {
        self.0.iter_mut().for_each(|v| *v = if *v <= T::ZERO { T::ZERO } else { *v });
        self
    }
}

// SAFETY, here and in the next block: callers promise the features of the type and, where a
// pointer is given, sixteen numbers behind it.
#[cfg(target_arch = "x86_64")]
impl Lanes<f32> for __m512 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn add_product(self, factor: f32, values: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(_mm512_set1_ps(factor), values, self) }
    }
    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, self) }
    }
    #[inline(always)]
    unsafe fn put(self, to: &mut [f32], add: bool) {
        let mask = first_lanes(to.len());
        // SAFETY: see above; masked lanes are neither read nor written.
        unsafe {
            let old = if add { _mm512_maskz_loadu_ps(mask, to.as_ptr()) } else { Self::zero() };
            _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, _mm512_add_ps(old, self));
        }
    }
    #[inline(always)]
    unsafe fn positive(self) -> Self {
        // SAFETY: see above. The second operand is the result where one of them is NaN.
        unsafe { _mm512_max_ps(Self::zero(), self) }
    }
    #[inline(always)]
    unsafe fn largest(
        x: &[f32],
        starts: impl Iterator<Item = (u32, usize)> + Clone,
        y: &mut [f32],
        places: &mut [u32],
    ) {
        let mask = first_lanes(y.len());
        // SAFETY: see above; the caller promises `x`, and masked lanes are not touched.
        unsafe {
            let (mut best, mut place) = (Self::zero(), _mm512_set1_epi32(-1));
            let mut none = u16::MAX;
            for (at, start) in starts {
                let new = _mm512_maskz_loadu_ps(mask, x.as_ptr().add(start));
                // Not less or equal, or not comparable; and the best is a number.
                let larger = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(new, best)
                    & _mm512_cmp_ps_mask::<_CMP_ORD_Q>(best, best)
                    | none;
                best = _mm512_mask_mov_ps(best, larger, new);
                place = _mm512_mask_mov_epi32(place, larger, _mm512_set1_epi32(at as i32));
                none = 0;
            }
            _mm512_mask_storeu_ps(y.as_mut_ptr(), mask, best);
            _mm512_mask_storeu_epi32(places.as_mut_ptr().cast(), mask, place);
        }
    }
    #[inline(always)]
    unsafe fn choose(from: &[f32], places: &[u32], at: u32, to: &mut [f32]) {
        let mask = first_lanes(to.len());
        // SAFETY: see above; the caller promises the lengths, and masked lanes are not touched.
        unsafe {
            let place = _mm512_maskz_loadu_epi32(mask, places.as_ptr().cast());
            let here = _mm512_cmpeq_epi32_mask(place, _mm512_set1_epi32(at as i32)) & mask;
            _mm512_mask_storeu_ps(
                to.as_mut_ptr(),
                mask,
                _mm512_maskz_loadu_ps(here, from.as_ptr()),
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes<f32> for [__m256; 2] {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        unsafe { [_mm256_setzero_ps(); 2] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(LANES / 2))] }
    }
    #[inline(always)]
    unsafe fn add_product(self, factor: f32, values: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let factor = _mm256_set1_ps(factor);
            [
                _mm256_fmadd_ps(factor, values[0], self[0]),
                _mm256_fmadd_ps(factor, values[1], self[1]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], self[0]), _mm256_fmadd_ps(a[1], b[1], self[1])] }
    }
    #[inline(always)]
    unsafe fn put(self, to: &mut [f32], add: bool) {
        let mut values = [0.0; LANES];
        // SAFETY: see above; `values` has sixteen numbers.
        unsafe {
            _mm256_storeu_ps(values.as_mut_ptr(), self[0]);
            _mm256_storeu_ps(values.as_mut_ptr().add(LANES / 2), self[1]);
        }
        put(&values, to, add);
    }
    #[inline(always)]
    unsafe fn positive(self) -> Self {
        // SAFETY: see above. The second operand is the result where one of them is NaN.
        self.map(|v| unsafe { _mm256_max_ps(_mm256_setzero_ps(), v) })
    }
}

/// A mask of the first `count` lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_lanes(count: usize) -> u16 {
    (u32::MAX >> (2 * LANES - count.min(LANES))) as u16
}

#[inline(always)]
fn put<T: Real>(values: &[T; LANES], to: &mut [T], add: bool) {
    if add {
        to.iter_mut().zip(values).for_each(|(to, value)| *to += *value);
    } else {
        to.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
    }
}
