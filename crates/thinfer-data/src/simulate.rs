//! The three simulated examples of the paper and two more published designs, at any size, keyed.
//!
//! Examples 1 to 3: x_j = (e + z_j)/√2 with e and z_j standard normal, truncated to [−10, 10]
//! (which the generator never leaves), so every pair of inputs has correlation ½. The other two
//! have independent uniform inputs. Training, validation and test parts come from separate streams
//! of one seed.

use serde::{Deserialize, Serialize};
use thinfer_engine::Dataset;
use thinfer_engine::elementary::{exp, tanh};
use thinfer_engine::noise::{Key, Stream};

use crate::error::{Error, Result};

/// Which example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Example {
    /// Regression on x1-x5 of 1,000.
    Example1,
    /// Regression on x1-x5 of 2,000.
    Example2,
    /// Two classes from x1-x4 of 1,000.
    Example3,
    /// The regression of Bai, Song & Cheng on x1-x5 of 200, uniform on (−1, 1).
    Bai,
    /// Friedman's first function (1991) of x1-x5 of 1,000, uniform on (0, 1).
    Friedman,
}

/// Example 1 was published with three formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// Sun, Song & Liang's code: tanh(2 tanh(2x1 − x2)) + 2 tanh(2 tanh(x3 − 2x4) − tanh(2x5)).
    #[default]
    Sun,
    /// The text of Ke & Fan: tanh(2 tanh(2x1 − x2)) + 2 tanh(tanh(x3 − 2x4) − tanh(2x5)).
    Text,
    /// The code of Ke & Fan: tanh(2 tanh(2x1 − x2)) + 2 tanh(tanh(x3 − 2x4)) − tanh(2x5).
    Code,
}

/// Which part of the data; each has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// To learn from.
    Train,
    /// To choose with.
    Validation,
    /// To report on.
    Test,
}

/// √12, which makes a uniform number of unit length one of unit variance.
const UNIFORM_SCALE: f32 = 3.464_101_6;

impl Example {
    /// All of them.
    pub const ALL: [Example; 5] =
        [Example::Example1, Example::Example2, Example::Example3, Example::Bai, Example::Friedman];

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Example::Example1 => "example1",
            Example::Example2 => "example2",
            Example::Example3 => "example3",
            Example::Bai => "bai",
            Example::Friedman => "friedman",
        }
    }

    /// The columns that matter, from 0.
    pub fn relevant(self) -> Vec<usize> {
        if self == Example::Example3 { (0..4).collect() } else { (0..5).collect() }
    }

    /// Columns as published.
    pub fn columns(self) -> usize {
        match self {
            Example::Example1 | Example::Example3 | Example::Friedman => 1000,
            Example::Example2 => 2000,
            Example::Bai => 200,
        }
    }

    /// Whether the target is a class.
    pub fn is_classification(self) -> bool {
        self == Example::Example3
    }

    /// The noiseless response, or the quantity that is compared with 3 (Example 3), of a row as
    /// [`Example::simulate`] gives it.
    pub fn signal(self, variant: Variant, x: &[f32]) -> f32 {
        match self {
            Example::Example1 => {
                let first = tanh(2.0 * tanh(2.0 * x[0] - x[1]));
                let inner = tanh(x[2] - 2.0 * x[3]);
                let last = tanh(2.0 * x[4]);
                match variant {
                    Variant::Sun => first + 2.0 * tanh(2.0 * inner - last),
                    Variant::Text => first + 2.0 * tanh(inner - last),
                    Variant::Code => first + 2.0 * tanh(inner) - last,
                }
            }
            Example::Example2 => {
                5.0 * x[1] / (1.0 + x[0] * x[0]) + 5.0 * (x[2] * x[3]).sin() + 2.0 * x[4]
            }
            Example::Example3 => exp(x[0]) + x[1] * x[1] + 5.0 * (x[2] * x[3]).sin(),
            Example::Bai => {
                7.0 * x[1] / (1.0 + x[0] * x[0]) + 5.0 * (x[2] * x[3]).sin() + 2.0 * x[4]
            }
            Example::Friedman => {
                let u = |column: usize| x[column] / UNIFORM_SCALE + 0.5;
                10.0 * (std::f32::consts::PI * u(0) * u(1)).sin()
                    + 20.0 * (u(2) - 0.5).powi(2)
                    + 10.0 * u(3)
                    + 5.0 * u(4)
            }
        }
    }

    /// Simulates `rows` rows of `columns` inputs with their targets.
    pub fn simulate(
        self,
        variant: Variant,
        seed: u64,
        part: Part,
        rows: usize,
        columns: usize,
    ) -> Result<Dataset> {
        let least = self.relevant().len();
        if columns < least {
            let problem = format!("is {columns}, but this example has {least} relevant inputs");
            return Err(Error::config("data.columns", problem));
        }
        let Some(cells) = rows.checked_mul(columns).filter(|c| c.checked_mul(4).is_some()) else {
            let text = format!("{rows} rows of {columns} columns cannot be addressed");
            return Err(Error::Memory(text));
        };
        let inputs = Key::new(seed, part as u32, Stream::Inputs);
        let observation = Key::new(seed, part as u32, Stream::Observation);
        let mut x = vec![0.0; cells];
        let mut z = vec![0.0; columns + 1];
        for (row, x) in x.chunks_exact_mut(columns).enumerate() {
            let uniform = |column: usize| inputs.uniform(row as u64, column) - 0.5;
            match self {
                Example::Example1 | Example::Example2 | Example::Example3 => {
                    inputs.normals(row as u64, 0, &mut z);
                    for (x, z_j) in x.iter_mut().zip(&z[1..]) {
                        *x = (z[0] + z_j) * std::f32::consts::FRAC_1_SQRT_2;
                    }
                }
                Example::Bai => {
                    x.iter_mut().enumerate().for_each(|(c, x)| *x = 2.0 * uniform(c));
                }
                // Standardised, as any table of a user is: a network on 1,000 inputs of mean ½
                // would first have to learn to subtract it.
                Example::Friedman => {
                    x.iter_mut().enumerate().for_each(|(c, x)| *x = UNIFORM_SCALE * uniform(c));
                }
            }
        }
        let y = x
            .chunks_exact(columns)
            .enumerate()
            .map(|(row, x)| {
                let signal = self.signal(variant, x);
                if self.is_classification() {
                    f32::from(u8::from(signal > 3.0))
                } else {
                    signal + observation.normal(row as u64, 0)
                }
            })
            .collect();
        Ok(Dataset::new(columns, 1, x, y)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variance(values: &[f64]) -> f64 {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
    }

    /// Signal variances of methods.md 10.1: 3.03, 2.24, 2.76 and 25.2; P(y = 1) = 0.494.
    #[test]
    fn signals_have_the_known_variances() {
        let n = 40_000;
        for (example, variant, want) in [
            (Example::Example1, Variant::Sun, 3.03),
            (Example::Example1, Variant::Text, 2.24),
            (Example::Example1, Variant::Code, 2.76),
            (Example::Example2, Variant::Sun, 25.2),
        ] {
            let data = example.simulate(variant, 1, Part::Train, n, 5).unwrap();
            let signal: Vec<f64> =
                (0..n).map(|r| f64::from(example.signal(variant, data.input(r)))).collect();
            let got = variance(&signal);
            assert!((got / want - 1.0).abs() < 0.03, "{example:?} {variant:?}: {got}");
            let noise: Vec<f64> =
                (0..n).map(|r| f64::from(data.target(r)[0]) - signal[r]).collect();
            assert!((variance(&noise) - 1.0).abs() < 0.03);
        }
        let data = Example::Example3.simulate(Variant::Sun, 1, Part::Train, n, 4).unwrap();
        let ones = data.targets().iter().sum::<f32>() / n as f32;
        assert!((ones - 0.494).abs() < 0.0125, "{ones}");
    }

    #[test]
    fn inputs_have_variance_one_and_correlation_one_half() {
        let n = 40_000;
        let data = Example::Example1.simulate(Variant::Sun, 3, Part::Test, n, 6).unwrap();
        let column = |c: usize| (0..n).map(move |r| (r, c));
        let moment = |a: usize, b: usize| {
            let pairs = column(a).zip(column(b));
            let product = |((r, a), (_, b)): ((usize, usize), (usize, usize))| {
                f64::from(data.input(r)[a]) * f64::from(data.input(r)[b])
            };
            pairs.map(product).sum::<f64>() / n as f64
        };
        assert!((moment(0, 0) - 1.0).abs() < 0.03);
        assert!((moment(0, 1) - 0.5).abs() < 0.03);
        assert!((moment(2, 5) - 0.5).abs() < 0.03);
    }

    #[test]
    fn parts_and_seeds_differ_and_repeat() {
        let make =
            |seed, part| Example::Example1.simulate(Variant::Sun, seed, part, 20, 5).unwrap();
        assert_eq!(make(1, Part::Train), make(1, Part::Train));
        assert_ne!(make(1, Part::Train).inputs(), make(1, Part::Test).inputs());
        assert_ne!(make(1, Part::Train).inputs(), make(2, Part::Train).inputs());
        // A wider simulation has the same relevant columns.
        let wide = Example::Example1.simulate(Variant::Sun, 1, Part::Train, 20, 900).unwrap();
        assert_eq!(wide.input(7)[..5], make(1, Part::Train).input(7)[..5]);
    }

    /// Friedman's signal has the variance 23.81, from two million draws with another generator.
    #[test]
    fn uniform_designs_have_their_moments() {
        let n = 40_000;
        for (example, half_width, variance_of_y) in
            [(Example::Bai, 1.0f64, None), (Example::Friedman, 3f64.sqrt(), Some(23.8))]
        {
            let data = example.simulate(Variant::Sun, 1, Part::Train, n, 7).unwrap();
            for column in [0, 6] {
                let values: Vec<f64> = (0..n).map(|r| f64::from(data.input(r)[column])).collect();
                assert!((variance(&values) / (half_width * half_width / 3.0) - 1.0).abs() < 0.03);
                assert!(values.iter().all(|x| x.abs() <= half_width * 1.000_001));
            }
            let noise: Vec<f64> = (0..n)
                .map(|r| f64::from(data.target(r)[0] - example.signal(Variant::Sun, data.input(r))))
                .collect();
            assert!((variance(&noise) - 1.0).abs() < 0.03);
            if let Some(want) = variance_of_y {
                let signal: Vec<f64> = (0..n)
                    .map(|r| f64::from(example.signal(Variant::Sun, data.input(r))))
                    .collect();
                assert!((variance(&signal) / want - 1.0).abs() < 0.03, "{}", variance(&signal));
            }
        }
        // Known points: the middle of the cube and a corner.
        let middle = Example::Friedman.signal(Variant::Sun, &[0.0; 5]);
        assert!((middle - (10.0 * (std::f32::consts::PI / 4.0).sin() + 7.5)).abs() < 1e-4);
        let bai = Example::Bai.signal(Variant::Sun, &[1.0, 1.0, 0.5, 1.0, -1.0]);
        assert!((bai - (3.5 + 5.0 * 0.5f32.sin() - 2.0)).abs() < 1e-5);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let few = Example::Example1.simulate(Variant::Sun, 1, Part::Train, 10, 3).unwrap_err();
        assert!(few.to_string().contains("5 relevant inputs"), "{few}");
        let huge = Example::Example1.simulate(Variant::Sun, 1, Part::Train, usize::MAX, 9);
        assert!(matches!(huge, Err(Error::Memory(_))));
    }
}
