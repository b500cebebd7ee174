//! The error function.

use statrs::function::erf::erfc_inv;

/// Chebyshev coefficients of exp(x²) erfc(x) / t in 2t − 1, where t = 2 / (2 + x) and x ≥ 0; the
/// first that is left out is 6e-14. Made with mpmath 1.3:
///
/// ```text
/// from mpmath import *; mp.dps = 40; M = 200
/// y = [cos(pi * (k + mpf(1) / 2) / M) for k in range(M)]
/// x = [4 / (y + 1) - 2 for y in y]       # t = (y + 1) / 2; for x > 50 by the asymptotic series
/// g = [exp(x * x) * erfc(x) * (2 + x) / 2 for x in x]
/// c = [2 * sum(g * cos(pi * j * (k + mpf(1) / 2) / M) for k, g in enumerate(g)) / M for j in range(19)]
/// c[0] /= 2
/// ```
const ERFC: [f64; 19] = [
    0.577_033_738_616_469_7,
    0.355_436_921_270_498_5,
    0.065_095_158_828_786_52,
    0.003_671_142_395_836_639,
    -0.001_112_844_743_352_632_5,
    -0.000_160_758_299_153_780_8,
    0.000_032_780_315_741_731_37,
    5.442_441_645_505_016e-6,
    -1.515_466_555_317_148_2e-6,
    -1.429_760_818_116_986_5e-7,
    8.234_608_827_419_493e-8,
    -1.296_284_685_230_656_3e-9,
    -4.154_721_631_015_198e-9,
    6.347_058_278_362_811e-10,
    1.432_082_271_225_622_4e-10,
    -6.160_390_105_204_586e-11,
    2.061_213_855_472_169_6e-12,
    3.571_493_148_847_704_4e-12,
    -8.586_422_843_251_796e-13,
];

/// 1 − erf(x), with a relative error below 1e-12 for −26 ≤ x ≤ 26.
pub fn erfc(x: f64) -> f64 {
    let size = x.abs();
    let t = 2.0 / (2.0 + size);
    // Clenshaw's recurrence.
    let y = 2.0 * t - 1.0;
    let (mut b1, mut b2) = (0.0, 0.0);
    for c in ERFC.iter().skip(1).rev() {
        (b1, b2) = (2.0 * y * b1 - b2 + c, b1);
    }
    let tail = t * (-size * size).exp() * (y * b1 - b2 + ERFC[0]);
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// The error function 2/√π ∫₀ˣ exp(−t²) dt, with an absolute error below 1e-12.
pub fn erf(x: f64) -> f64 {
    1.0 - erfc(x)
}

/// The normal quantile, at most 10 standard deviations from the mean.
pub fn normal_quantile(p: f64) -> f64 {
    (-std::f64::consts::SQRT_2 * erfc_inv(2.0 * p)).clamp(-10.0, 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the error function, whose own error is below 1e-12.
    #[test]
    fn a_normal_quantile_is_where_its_share_lies_below() {
        for p in [1e-9, 0.001, 0.1, 0.3, 0.5, 0.77, 0.975, 0.999_99] {
            let z = normal_quantile(p);
            let below = 0.5 * erfc(-z / std::f64::consts::SQRT_2);
            assert!((below - p).abs() < 1e-12, "{p}: {z}");
        }
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (-10.0, 10.0));
    }
}
