//! Elementary functions in `f32` from additions, multiplications and bit operations only.
//!
//! The system's `exp` and `ln` differ between machines and cannot be vectorised by the compiler.
//! These give the same bits on every machine (no fused multiply-add is used), and a loop over them
//! becomes vector code. Each states its worst error, which the tests check against `f64`.

/// √2 as used to centre the mantissa in [`ln`].
const SQRT_2: f32 = std::f32::consts::SQRT_2;
/// ln 2 split so that `exponent * LN2_HIGH` is exact.
const LN2_HIGH: f32 = 0.693359375;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// 1.5 · 2²³: sums with it are whole numbers.
const ROUND: f32 = 12_582_912.0;

/// Natural logarithm of a positive normal number; relative error below 2e-7 away from 1, absolute
/// error below 1e-7 near it.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 126;
    let mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000); // in [0.5, 1)
    let below = mantissa < SQRT_2 * 0.5;
    let m = if below { mantissa + mantissa - 1.0 } else { mantissa - 1.0 };
    let e = (if below { exponent - 1 } else { exponent }) as f32;
    let z = m * m;
    let mut p = 7.037_683_6e-2;
    p = p * m - 1.151_461_03e-1;
    p = p * m + 1.167_699_87e-1;
    p = p * m - 1.242_014_08e-1;
    p = p * m + 1.424_932_28e-1;
    p = p * m - 1.666_805_77e-1;
    p = p * m + 2.000_071_48e-1;
    p = p * m - 2.499_999_4e-1;
    p = p * m + 3.333_333_1e-1;
    let mut y = p * m * z;
    y += e * LN2_LOW;
    y -= 0.5 * z;
    m + y + e * LN2_HIGH
}

/// Exponential; relative error below 3e-7 on [-87, 88], clamped to the ends of that range outside.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // A comparison with NaN is false, so NaN passes through both selections.
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };
    let scaled = x * std::f32::consts::LOG2_E;
    // Adding and removing 1.5 * 2^23 rounds to the nearest whole number, which is in the last bits of
    // the sum. Rust's conversion to whole numbers also looks for NaN, one number at a time.
    let shifted = scaled + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    y * f32::from_bits(power)
}

/// 1 / (1 + e⁻ˣ); absolute error below 2e-7.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// ln(1 + eˣ); relative error below 4e-6.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let e = exp(-x.abs());
    // 1 + e loses the digits of a small e, the series does not.
    let series = e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - 0.25 * e)));
    let tail = if e >= 0.03 { ln(1.0 + e) } else { series };
    if x > 0.0 { x + tail } else { tail }
}

/// ln(p / (1 − p)), the inverse of [`sigmoid`].
#[inline(always)]
pub fn logit(p: f32) -> f32 {
    ln(p) - ln(1.0 - p)
}

/// Hyperbolic tangent; absolute error below 3e-7.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_908_8e-2;
    p = p * z - 5.373_971e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328e-1;
    let small = p * z * x + x;
    let large = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    let large = if x < 0.0 { -large } else { large };
    if a < 0.625 { small } else { large }
}

/// sin and cos of a full turn times `word / 2³²`, shifted by an eighth of a turn; absolute error
/// below 2e-7. The shift does not matter to a uniform angle.
#[inline(always)]
pub fn sin_cos_turn(word: u32) -> (f32, f32) {
    let quadrant = word >> 30;
    let within = (word & 0x3fff_ffff) as i32 - (1 << 29);
    let a = within as f32 * (std::f32::consts::FRAC_PI_2 / (1u32 << 30) as f32); // in [-π/4, π/4)
    let z = a * a;
    let mut s = -1.951_529_6e-4;
    s = s * z + 8.332_161e-3;
    s = s * z - 1.666_665_5e-1;
    let s = s * z * a + a;
    let mut c = 2.443_315_7e-5;
    c = c * z - 1.388_731_6e-3;
    c = c * z + 4.166_664_6e-2;
    let c = c * z * z - 0.5 * z + 1.0;
    let (s, c) = if quadrant & 1 == 1 { (c, -s) } else { (s, c) };
    if quadrant & 2 == 2 { (-s, -c) } else { (s, c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest |got − want| / max(|want|, `floor`) over a grid.
    fn worst(
        range: (f64, f64),
        floor: f64,
        got: impl Fn(f32) -> f32,
        want: impl Fn(f64) -> f64,
    ) -> f64 {
        (0..=200_000)
            .map(|i| {
                let x = (range.0 + (range.1 - range.0) * i as f64 / 200_000.0) as f32;
                let want = want(x as f64);
                (got(x) as f64 - want).abs() / want.abs().max(floor)
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn errors_are_as_stated() {
        assert!(worst((1e-10, 1.0), 0.5, ln, f64::ln) < 2e-7);
        assert!(worst((1.0, 1e6), 0.5, ln, f64::ln) < 2e-7);
        assert!(worst((-87.0, 88.0), 1e-300, exp, f64::exp) < 3e-7);
        assert!(worst((-30.0, 30.0), 1.0, sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 2e-7);
        assert!(worst((-10.0, 10.0), 1.0, tanh, f64::tanh) < 3e-7);
        let softplus_f64 = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        assert!(worst((-80.0, 30.0), 1e-300, softplus, softplus_f64) < 4e-6);
        assert!(worst((-10.0, 10.0), 1.0, |x| logit(sigmoid(x)), |x| x) < 2e-3);
    }

    #[test]
    fn angles_cover_the_circle() {
        for i in 0..100_000u64 {
            let word = (i * 42_949) as u32;
            let angle = (word as f64 / 4_294_967_296.0 - 0.125) * std::f64::consts::TAU;
            let (s, c) = sin_cos_turn(word);
            assert!((s as f64 - angle.sin()).abs() < 2e-7, "sin at word {word}");
            assert!((c as f64 - angle.cos()).abs() < 2e-7, "cos at word {word}");
        }
    }

    #[test]
    fn not_a_number_stays_one() {
        assert!(exp(f32::NAN).is_nan());
        assert!(sigmoid(f32::NAN).is_nan());
        assert!(tanh(f32::NAN).is_nan());
        assert!(softplus(f32::NAN).is_nan());
    }
}
