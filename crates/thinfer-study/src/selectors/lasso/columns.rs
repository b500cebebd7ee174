//! Inputs column by column, which is how coordinate descent reads them.

use thinfer_engine::{Dataset, vectorize};

/// Columns of mean 0 and standard deviation 1. One that never changes is all zeros.
pub(super) struct Columns {
    rows: usize,
    values: Vec<f32>,
    pub(super) means: Vec<f64>,
    pub(super) scales: Vec<f64>,
}

/// Rows that are turned round at once, so that both sides stay in the cache.
const BLOCK: usize = 64;

impl Columns {
    pub(super) fn new(data: &Dataset) -> Self {
        let (rows, columns) = (data.rows(), data.columns());
        let mut values = vec![0.0; rows * columns];
        for first in (0..rows).step_by(BLOCK) {
            for j in 0..columns {
                for row in first..rows.min(first + BLOCK) {
                    values[j * rows + row] = data.inputs()[row * columns + j];
                }
            }
        }
        let (mut means, mut scales) = (Vec::new(), Vec::new());
        for column in values.chunks_exact_mut(rows.max(1)) {
            let n = rows as f64;
            let mean = column.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let square = column.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
            let sd = square.sqrt();
            let factor = if sd > 1e-12 * (1.0 + mean.abs()) { 1.0 / sd } else { 0.0 };
            column.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * factor) as f32);
            means.push(mean);
            scales.push(factor);
        }
        Self { rows, values, means, scales }
    }

    pub(super) fn columns(&self) -> usize {
        self.means.len()
    }

    fn column(&self, j: usize) -> &[f32] {
        &self.values[j * self.rows..(j + 1) * self.rows]
    }

    /// Σᵢ xᵢⱼ fᵢ, with the sums of 16 lanes side by side.
    pub(super) fn dot(&self, j: usize, factors: &[f64]) -> f64 {
        let x = self.column(j);
        vectorize(
            #[inline(always)]
            || {
                let (x_lanes, x_rest) = x.as_chunks::<16>();
                let (f_lanes, f_rest) = factors.as_chunks::<16>();
                let mut sums = [0.0; 16];
                for (x, f) in x_lanes.iter().zip(f_lanes) {
                    for lane in 0..16 {
                        sums[lane] += f64::from(x[lane]) * f[lane];
                    }
                }
                let rest: f64 = x_rest.iter().zip(f_rest).map(|(x, f)| f64::from(*x) * f).sum();
                sums.iter().sum::<f64>() + rest
            },
        )
    }

    /// Σᵢ wᵢ xᵢⱼ²
    pub(super) fn square(&self, j: usize, weights: &[f64]) -> f64 {
        let pairs = self.column(j).iter().zip(weights);
        pairs.map(|(x, w)| f64::from(*x) * f64::from(*x) * w).sum()
    }

    /// ηᵢ ← ηᵢ + δ xᵢⱼ, rᵢ ← rᵢ − δ wᵢ xᵢⱼ
    pub(super) fn shift(
        &self,
        j: usize,
        delta: f64,
        weights: &[f64],
        eta: &mut [f64],
        residual: &mut [f64],
    ) {
        let x = self.column(j);
        vectorize(
            #[inline(always)]
            || {
                for (((x, w), eta), r) in x.iter().zip(weights).zip(eta).zip(residual) {
                    let step = delta * f64::from(*x);
                    *eta += step;
                    *r -= w * step;
                }
            },
        );
    }
}
