//! The three examples of the paper.
//!
//! x_j = (e + z_j)/√2 with e and z_j standard normal, truncated to [−10, 10] (which the generator
//! never leaves), so every pair of inputs has correlation ½.

use thinfer_engine::elementary::{exp, tanh};
use thinfer_engine::noise::Key;

use super::{Design, Variant};

/// Regression on x1-x5 of 1,000.
pub const EXAMPLE1: Design = Design {
    name: "example1",
    about: "Example 1 of the paper: a regression on 5 of 1,000 correlated inputs",
    columns: 1000,
    relevant: 5,
    threshold: None,
    has_variants: true,
    inputs: correlated,
    signal: |variant, x| {
        let first = tanh(2.0 * tanh(2.0 * x[0] - x[1]));
        let inner = tanh(x[2] - 2.0 * x[3]);
        let last = tanh(2.0 * x[4]);
        match variant {
            Variant::Sun => first + 2.0 * tanh(2.0 * inner - last),
            Variant::Text => first + 2.0 * tanh(inner - last),
            Variant::Code => first + 2.0 * tanh(inner) - last,
        }
    },
};

/// Regression on x1-x5 of 2,000: y = 5 x2 / (1 + x1²) + 5 sin(x3 x4) + 2 x5.
pub const EXAMPLE2: Design = Design {
    name: "example2",
    about: "Example 2 of the paper: a regression on 5 of 2,000 correlated inputs",
    columns: 2000,
    relevant: 5,
    threshold: None,
    has_variants: false,
    inputs: correlated,
    signal: |_, x| 5.0 * x[1] / (1.0 + x[0] * x[0]) + 5.0 * (x[2] * x[3]).sin() + 2.0 * x[4],
};

/// Two classes from x1-x4 of 1,000: whether exp(x1) + x2² + 5 sin(x3 x4) is above 3.
pub const EXAMPLE3: Design = Design {
    name: "example3",
    about: "Example 3 of the paper: two classes from 4 of 1,000 correlated inputs",
    columns: 1000,
    relevant: 4,
    threshold: Some(3.0),
    has_variants: false,
    inputs: correlated,
    signal: |_, x| exp(x[0]) + x[1] * x[1] + 5.0 * (x[2] * x[3]).sin(),
};

fn correlated(key: Key, row: u64, x: &mut [f32]) {
    let mut z = vec![0.0; x.len() + 1];
    key.normals(row, 0, &mut z);
    for (x, z_j) in x.iter_mut().zip(&z[1..]) {
        *x = (z[0] + z_j) * std::f32::consts::FRAC_1_SQRT_2;
    }
}
