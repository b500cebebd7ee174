//! Simulated designs: the three examples of the paper and other published ones, at any size, keyed.
//!
//! Each is a [`Design`] in a file of this folder and a line in [`DESIGNS`]. Training, validation and
//! test parts come from separate streams of one seed.

mod bai;
mod friedman;
mod paper;

use serde::{Deserialize, Serialize};
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};

use crate::error::{Error, Result};

pub use bai::BAI;
pub use friedman::FRIEDMAN;
pub use paper::{EXAMPLE1, EXAMPLE2, EXAMPLE3};

/// All designs, in the order in which they are listed.
pub const DESIGNS: &[&Design] = &[&EXAMPLE1, &EXAMPLE2, &EXAMPLE3, &BAI, &FRIEDMAN];

/// What a simulated design says of itself.
pub struct Design {
    /// Its name in a configuration.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Columns as published.
    pub columns: usize,
    /// How many columns matter, which are the first.
    pub relevant: usize,
    /// The target is whether the signal is above this, where it is a class. Otherwise it is the
    /// signal with normal noise of variance 1.
    pub threshold: Option<f32>,
    /// Whether it was published with several formulas.
    pub has_variants: bool,
    /// Writes the inputs of a row, which are a function of key, row and column.
    pub inputs: fn(key: Key, row: u64, x: &mut [f32]),
    /// The noiseless response to the inputs of a row, or what is compared with the threshold.
    pub signal: fn(variant: Variant, x: &[f32]) -> f32,
}

impl PartialEq for Design {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Design {}

impl std::fmt::Debug for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
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

impl Design {
    /// The columns that matter, from 0.
    pub fn relevant(&self) -> Vec<usize> {
        (0..self.relevant).collect()
    }

    /// Whether the target is a class.
    pub fn is_classification(&self) -> bool {
        self.threshold.is_some()
    }

    /// Simulates `rows` rows of `columns` inputs with their targets.
    pub fn simulate(
        &self,
        variant: Variant,
        seed: u64,
        part: Part,
        rows: usize,
        columns: usize,
    ) -> Result<Dataset> {
        let least = self.relevant;
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
        for (row, x) in x.chunks_exact_mut(columns).enumerate() {
            (self.inputs)(inputs, row as u64, x);
        }
        let target = |(row, x): (usize, &[f32])| {
            let signal = (self.signal)(variant, x);
            match self.threshold {
                Some(threshold) => f32::from(u8::from(signal > threshold)),
                None => signal + observation.normal(row as u64, 0),
            }
        };
        let y = x.chunks_exact(columns).enumerate().map(target).collect();
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
            (EXAMPLE1, Variant::Sun, 3.03),
            (EXAMPLE1, Variant::Text, 2.24),
            (EXAMPLE1, Variant::Code, 2.76),
            (EXAMPLE2, Variant::Sun, 25.2),
        ] {
            let data = example.simulate(variant, 1, Part::Train, n, 5).unwrap();
            let signal: Vec<f64> =
                (0..n).map(|r| f64::from((example.signal)(variant, data.input(r)))).collect();
            let got = variance(&signal);
            assert!((got / want - 1.0).abs() < 0.03, "{example:?} {variant:?}: {got}");
            let noise: Vec<f64> =
                (0..n).map(|r| f64::from(data.target(r)[0]) - signal[r]).collect();
            assert!((variance(&noise) - 1.0).abs() < 0.03);
        }
        let data = EXAMPLE3.simulate(Variant::Sun, 1, Part::Train, n, 4).unwrap();
        let ones = data.targets().iter().sum::<f32>() / n as f32;
        assert!((ones - 0.494).abs() < 0.0125, "{ones}");
    }

    #[test]
    fn inputs_have_variance_one_and_correlation_one_half() {
        let n = 40_000;
        let data = EXAMPLE1.simulate(Variant::Sun, 3, Part::Test, n, 6).unwrap();
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
        let make = |seed, part| EXAMPLE1.simulate(Variant::Sun, seed, part, 20, 5).unwrap();
        assert_eq!(make(1, Part::Train), make(1, Part::Train));
        assert_ne!(make(1, Part::Train).inputs(), make(1, Part::Test).inputs());
        assert_ne!(make(1, Part::Train).inputs(), make(2, Part::Train).inputs());
        // A wider simulation has the same relevant columns.
        let wide = EXAMPLE1.simulate(Variant::Sun, 1, Part::Train, 20, 900).unwrap();
        assert_eq!(wide.input(7)[..5], make(1, Part::Train).input(7)[..5]);
    }

    /// Friedman's signal has the variance 23.81, from two million draws with another generator.
    #[test]
    fn uniform_designs_have_their_moments() {
        let n = 40_000;
        for (example, half_width, variance_of_y) in
            [(BAI, 1.0f64, None), (FRIEDMAN, 3f64.sqrt(), Some(23.8))]
        {
            let data = example.simulate(Variant::Sun, 1, Part::Train, n, 7).unwrap();
            for column in [0, 6] {
                let values: Vec<f64> = (0..n).map(|r| f64::from(data.input(r)[column])).collect();
                assert!((variance(&values) / (half_width * half_width / 3.0) - 1.0).abs() < 0.03);
                assert!(values.iter().all(|x| x.abs() <= half_width * 1.000_001));
            }
            let noise: Vec<f64> = (0..n)
                .map(|r| {
                    f64::from(data.target(r)[0] - (example.signal)(Variant::Sun, data.input(r)))
                })
                .collect();
            assert!((variance(&noise) - 1.0).abs() < 0.03);
            if let Some(want) = variance_of_y {
                let signal: Vec<f64> = (0..n)
                    .map(|r| f64::from((example.signal)(Variant::Sun, data.input(r))))
                    .collect();
                assert!((variance(&signal) / want - 1.0).abs() < 0.03, "{}", variance(&signal));
            }
        }
        // Known points: the middle of the cube and a corner.
        let middle = (FRIEDMAN.signal)(Variant::Sun, &[0.0; 5]);
        assert!((middle - (10.0 * (std::f32::consts::PI / 4.0).sin() + 7.5)).abs() < 1e-4);
        let bai = (BAI.signal)(Variant::Sun, &[1.0, 1.0, 0.5, 1.0, -1.0]);
        assert!((bai - (3.5 + 5.0 * 0.5f32.sin() - 2.0)).abs() < 1e-5);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let few = EXAMPLE1.simulate(Variant::Sun, 1, Part::Train, 10, 3).unwrap_err();
        assert!(few.to_string().contains("5 relevant inputs"), "{few}");
        let huge = EXAMPLE1.simulate(Variant::Sun, 1, Part::Train, usize::MAX, 9);
        assert!(matches!(huge, Err(Error::Memory(_))));
    }
}
