//! The regression of Bai, Song & Cheng, on independent inputs.

use super::Design;

/// Regression on x1-x5 of 200, uniform on (−1, 1): y = 7 x2 / (1 + x1²) + 5 sin(x3 x4) + 2 x5.
pub const BAI: Design = Design {
    name: "bai",
    about: "the regression of Bai, Song & Cheng, on 5 of 200 independent inputs",
    columns: 200,
    relevant: 5,
    threshold: None,
    has_variants: false,
    inputs: |key, row, x| {
        let uniform = |column: usize| key.uniform(row, column) - 0.5;
        x.iter_mut().enumerate().for_each(|(c, x)| *x = 2.0 * uniform(c));
    },
    signal: |_, x| 7.0 * x[1] / (1.0 + x[0] * x[0]) + 5.0 * (x[2] * x[3]).sin() + 2.0 * x[4],
};
