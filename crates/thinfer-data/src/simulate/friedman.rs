//! Friedman's first function, on independent inputs.

use super::Design;

/// √12, which makes a uniform number of unit length one of unit variance.
const UNIFORM_SCALE: f32 = 3.464_101_6;

/// Friedman's first function (1991) of x1-x5 of 1,000, uniform on (0, 1):
/// y = 10 sin(π x1 x2) + 20 (x3 − ½)² + 10 x4 + 5 x5.
pub const FRIEDMAN: Design = Design {
    name: "friedman",
    about: "Friedman's first function, on 5 of 1,000 independent inputs",
    columns: 1000,
    relevant: 5,
    threshold: None,
    has_variants: false,
    // Standardised, as any table of a user is: a network on 1,000 inputs of mean ½ would first have
    // to learn to subtract it.
    inputs: |key, row, x| {
        let uniform = |column: usize| key.uniform(row, column) - 0.5;
        x.iter_mut().enumerate().for_each(|(c, x)| *x = UNIFORM_SCALE * uniform(c));
    },
    signal: |_, x| {
        let u = |column: usize| x[column] / UNIFORM_SCALE + 0.5;
        10.0 * (std::f32::consts::PI * u(0) * u(1)).sin()
            + 20.0 * (u(2) - 0.5).powi(2)
            + 10.0 * u(3)
            + 5.0 * u(4)
    },
};
