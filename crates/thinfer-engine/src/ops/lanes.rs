//! Sixteen numbers side by side, as the vector unit holds them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m512, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
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
    unsafe fn put(self, to: &mut [f32], add: bool) {
        let mask = (u32::MAX >> (2 * LANES - to.len().min(LANES))) as u16;
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

#[inline(always)]
fn put<T: Real>(values: &[T; LANES], to: &mut [T], add: bool) {
    if add {
        to.iter_mut().zip(values).for_each(|(to, value)| *to += *value);
    } else {
        to.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
    }
}
