use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

pub(crate) mod lanes;

use self::lanes::{Lanes, Plain};
use crate::elementary;

/// The two number types of the CPU operations: `f32` runs, `f64` checks gradients.
pub(crate) trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + MulAssign
    + Div<Output = Self>
    + Neg<Output = Self>
    + Sum
{
    /// Sixteen numbers where the processor has AVX-512, and where it has AVX2.
    type Wide: Lanes<Self>;
    type Narrow: Lanes<Self>;
    const ZERO: Self;
    const ONE: Self;
    fn of(value: f64) -> Self;
    /// From single precision, which is exact.
    fn of_single(value: f32) -> Self;
    fn wide(self) -> f64;
    fn tanh(self) -> Self;
    /// ln(1 + eˣ)
    fn softplus(self) -> Self;
    /// 1 / (1 + e⁻ˣ)
    fn sigmoid(self) -> Self;
    /// The values themselves where they are single precision, for kernels written for it alone.
    fn singles(values: &[Self]) -> Option<&[f32]>;
    /// The same, to write.
    fn singles_mut(values: &mut [Self]) -> Option<&mut [f32]>;
    fn is_nan(self) -> bool;
    /// `self · a + b`, rounded once; slow where the processor cannot do it.
    fn mul_add(self, a: Self, b: Self) -> Self;
}

impl Real for f32 {
    #[cfg(target_arch = "x86_64")]
    type Wide = std::arch::x86_64::__m512;
    #[cfg(target_arch = "x86_64")]
    type Narrow = [std::arch::x86_64::__m256; 2];
    #[cfg(not(target_arch = "x86_64"))]
    type Wide = Plain<f32, true>;
    #[cfg(not(target_arch = "x86_64"))]
    type Narrow = Plain<f32, true>;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn of_single(value: f32) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        elementary::tanh(self)
    }
    fn softplus(self) -> Self {
        elementary::softplus(self)
    }
    fn sigmoid(self) -> Self {
        elementary::sigmoid(self)
    }
    fn singles(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }
    fn singles_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f32::mul_add(self, a, b)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
}

impl Real for f64 {
    type Wide = Plain<f64, true>;
    type Narrow = Plain<f64, true>;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn of_single(value: f32) -> Self {
        f64::from(value)
    }
    fn wide(self) -> f64 {
        self
    }
    fn tanh(self) -> Self {
        f64::tanh(self)
    }
    fn softplus(self) -> Self {
        self.max(0.0) + (-self.abs()).exp().ln_1p()
    }
    fn sigmoid(self) -> Self {
        1.0 / (1.0 + (-self).exp())
    }
    fn singles(_: &[Self]) -> Option<&[f32]> {
        None
    }
    fn singles_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f64::mul_add(self, a, b)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
}
