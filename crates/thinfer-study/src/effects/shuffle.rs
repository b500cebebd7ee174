//! How much worse a posterior gets on unseen rows when a variable is shuffled.

use thinfer_core::metrics::normal_quantile;
use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_core::shrink::{Layout, shrink_posterior};
use thinfer_data::Bundle;
use thinfer_data::Result;
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};

/// Shuffles a variable this many times and averages.
const SHUFFLES: u64 = 5;

/// Sums over rows of how much each variable matters, and of how much the model beats a constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    rows: usize,
    increase: Vec<f64>,
    increase_squares: Vec<f64>,
    gain: f64,
    gain_squares: f64,
    baseline: f64,
}

impl Evidence {
    pub(crate) fn new(variables: usize) -> Self {
        Self {
            rows: 0,
            increase: vec![0.0; variables],
            increase_squares: vec![0.0; variables],
            gain: 0.0,
            gain_squares: 0.0,
            baseline: 0.0,
        }
    }

    /// Adds what another chain saw on other rows. A variable that the other chain does not read
    /// has an increase of 0 on all of them.
    pub(crate) fn merge(&mut self, other: &Evidence) {
        self.rows += other.rows;
        self.gain += other.gain;
        self.gain_squares += other.gain_squares;
        self.baseline += other.baseline;
        let pairs = self.increase.iter_mut().zip(&other.increase);
        pairs.for_each(|(a, b)| *a += b);
        let pairs = self.increase_squares.iter_mut().zip(&other.increase_squares);
        pairs.for_each(|(a, b)| *a += b);
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Mean increase of the loss, in standard errors.
    pub(crate) fn variable_z(&self, variable: usize) -> f64 {
        z(self.increase[variable], self.increase_squares[variable], self.rows)
    }

    /// Mean gain of the model over the constant, in standard errors.
    pub(crate) fn model_z(&self) -> f64 {
        z(self.gain, self.gain_squares, self.rows)
    }

    /// The gain of the model over the constant, summed over rows.
    pub(crate) fn gain(&self) -> f64 {
        self.gain
    }

    pub(crate) fn mean_increase(&self, variable: usize) -> f64 {
        self.increase[variable] / self.rows.max(1) as f64
    }

    /// The mean loss of the constant prediction.
    pub(crate) fn baseline_loss(&self) -> f64 {
        self.baseline / self.rows.max(1) as f64
    }
}

pub(crate) fn z(sum: f64, squares: f64, rows: usize) -> f64 {
    if rows < 2 {
        return 0.0;
    }
    let n = rows as f64;
    let mean = sum / n;
    let variance = (squares / n - mean * mean).max(0.0) * n / (n - 1.0);
    if variance > 0.0 { mean / (variance / n).sqrt() } else { 0.0 }
}

/// The value that a standardised mean over `rows` rows exceeds with probability 0.05/`variables`
/// by chance: a one-sided t quantile, so that looking at many variables does not invent any.
pub(crate) fn critical_value(variables: usize, rows: usize) -> f64 {
    let z = normal_quantile(1.0 - 0.05 / variables.max(1) as f64);
    // Cornish-Fisher expansion of the t quantile around the normal one.
    let v = rows.saturating_sub(1).max(1) as f64;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / v + second / (v * v)
}

/// The loss of every row: squared error of the mean, or minus the logarithm of the probability.
pub(crate) fn row_losses(predictive: &Predictive, data: &Dataset) -> Vec<f64> {
    let mean = predictive.mean();
    let truth = data.targets();
    match predictive {
        Predictive::Regression { .. } => {
            mean.iter().zip(truth).map(|(f, y)| (f - f64::from(*y)).powi(2)).collect()
        }
        Predictive::Classes { classes, .. } => truth
            .iter()
            .enumerate()
            .map(|(row, y)| -mean[row * classes + *y as usize].max(1e-12).ln())
            .collect(),
    }
}

/// The loss of the constant prediction from `train` on every row of `data`.
pub(crate) fn untrained_losses(train: &Dataset, data: &Dataset, classes: usize) -> Vec<f64> {
    let n = train.rows() as f64;
    if classes == 0 {
        let mean = train.targets().iter().map(|y| f64::from(*y)).sum::<f64>() / n;
        return data.targets().iter().map(|y| (f64::from(*y) - mean).powi(2)).collect();
    }
    let mut share = vec![0.5 / n; classes];
    train.targets().iter().for_each(|y| share[*y as usize] += 1.0 / n);
    data.targets().iter().map(|y| -share[*y as usize].ln()).collect()
}

/// Asks a posterior trained on `bundle` about rows it has not seen.
pub(crate) fn shuffle_losses(
    posterior: &Posterior,
    bundle: &Bundle,
    rows: &Dataset,
    live: &[usize],
    seed: u64,
    chain: u32,
) -> Result<Evidence> {
    let mut evidence = Evidence::new(bundle.names.len());
    let plain = row_losses(&posterior.predict(rows)?, rows);
    let constant = untrained_losses(&bundle.train, rows, bundle.classes);
    evidence.rows = rows.rows();
    evidence.baseline = constant.iter().sum();
    for (model, constant) in plain.iter().zip(&constant) {
        evidence.gain += constant - model;
        evidence.gain_squares += (constant - model).powi(2);
    }
    let key = Key::new(seed, chain, Stream::Permute);
    // Only columns that some sample reads matter; predicting on those alone is much cheaper.
    let (posterior, small) = &shrink_posterior(posterior, Layout::CPU)?;
    let columns: Vec<usize> = small.inputs.iter().map(|c| *c as usize).collect();
    let rows = &rows.take_columns(&columns);
    for &variable in live {
        let mut increase = vec![0.0; rows.rows()];
        for shuffle in 0..SHUFFLES {
            let step = variable as u64 * SHUFFLES + shuffle;
            let order = key.permutation(step, rows.rows());
            let shuffled =
                shuffle_variable(rows, &order, |at| bundle.groups[columns[at]] == variable)?;
            let losses = row_losses(&posterior.predict(&shuffled)?, rows);
            for ((sum, shuffled), plain) in increase.iter_mut().zip(&losses).zip(&plain) {
                *sum += (shuffled - plain) / SHUFFLES as f64;
            }
        }
        evidence.increase[variable] = increase.iter().sum();
        evidence.increase_squares[variable] = increase.iter().map(|d| d * d).sum();
    }
    Ok(evidence)
}

fn shuffle_variable(
    data: &Dataset,
    order: &[u32],
    belongs: impl Fn(usize) -> bool,
) -> Result<Dataset> {
    let columns = data.columns();
    let moved: Vec<usize> = (0..columns).filter(|&c| belongs(c)).collect();
    let mut inputs = data.inputs().to_vec();
    for (row, &from) in order.iter().enumerate() {
        for &column in &moved {
            inputs[row * columns + column] = data.input(from as usize)[column];
        }
    }
    Ok(Dataset::new(columns, 1, inputs, data.targets().to_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles from tables: t with 9, 99 degrees and the normal limit.
    #[test]
    fn critical_values_are_t_quantiles() {
        assert!((critical_value(1, 10) - 1.833).abs() < 0.01);
        assert!((critical_value(1, 100) - 1.660).abs() < 0.002);
        assert!((critical_value(1, 1_000_000) - 1.645).abs() < 0.001);
        assert!((critical_value(1000, 1_000_000) - 3.891).abs() < 0.002);
    }

    #[test]
    fn evidence_of_two_chains_is_that_of_all_rows() {
        let make = |values: &[f64]| {
            let mut e = Evidence::new(1);
            e.rows = values.len();
            e.increase[0] = values.iter().sum();
            e.increase_squares[0] = values.iter().map(|v| v * v).sum();
            e
        };
        let mut a = make(&[1.0, 2.0]);
        a.merge(&make(&[3.0, 6.0]));
        assert_eq!(a, make(&[1.0, 2.0, 3.0, 6.0]));
        // mean 3, sd √(14/3), n 4
        assert!((a.variable_z(0) - 3.0 / (14.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn shuffling_moves_one_variable_and_keeps_rows_together() {
        let data = Dataset::new(3, 1, vec![1., 2., 3., 4., 5., 6.], vec![0., 1.]).unwrap();
        let moved = shuffle_variable(&data, &[1, 0], |c| c != 0).unwrap();
        assert_eq!(moved.inputs(), [1., 5., 6., 4., 2., 3.]);
        assert_eq!(moved.targets(), data.targets());
    }
}
