//! The exact inclusion of a small linear model under a spike-and-slab prior, by going through all
//! subsets: the answer that chains which draw their assignments are measured against.

use thinfer_data::{Error, Result};
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};

/// Variables that can be enumerated; 2^20 subsets take a minute.
const MOST: usize = 20;

/// A linear model of a number, y = b + wᵀx + σ ε.
///
/// w_j | γ_j ~ N(0, 1/δ₁) if γ_j = 1, N(0, 1/δ₀) if not;  γ_j ~ Bernoulli(π);  b ~ N(0, 1/δ₁)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpikeAndSlab {
    /// δ₁
    pub slab_precision: f64,
    /// δ₀
    pub spike_precision: f64,
    /// π, or nothing where it is uniform between 0 and 1.
    pub slab_probability: Option<f64>,
    /// σ
    pub noise: f64,
}

/// A table that was drawn from the prior.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Inputs and target.
    pub data: Dataset,
    /// γ
    pub in_slab: Vec<bool>,
}

impl SpikeAndSlab {
    /// P(γ_j = 1 | data) for every variable.
    ///
    /// With A_γ = XᵀX/σ² + diag(δ) and c = Xᵀy/σ² the marginal likelihood of a subset is, up to
    /// what all have in common, ½ Σ ln δ − ½ ln |A_γ| + ½ cᵀA_γ⁻¹c.
    pub fn inclusion(&self, data: &Dataset) -> Result<Vec<f64>> {
        let p = data.columns();
        if p > MOST {
            let problem = format!("{p} variables have too many subsets; give at most {MOST}");
            return Err(Error::Data(problem));
        }
        let row = |at: usize| data.input(at).iter().map(|x| f64::from(*x)).chain([1.0]);
        let (n, variance) = (p + 1, self.noise * self.noise);
        let (mut gram, mut moment) = (vec![0.0; n * n], vec![0.0; n]);
        for (at, y) in data.targets().iter().enumerate() {
            let x: Vec<f64> = row(at).collect();
            for i in 0..n {
                moment[i] += x[i] * f64::from(*y) / variance;
                for j in 0..n {
                    gram[i * n + j] += x[i] * x[j] / variance;
                }
            }
        }
        let mut weights: Vec<f64> = Vec::with_capacity(1 << p);
        for subset in 0..1usize << p {
            // The bias has the slab's prior.
            let slab = |j: usize| j == p || subset >> j & 1 == 1;
            let precision =
                |j: usize| if slab(j) { self.slab_precision } else { self.spike_precision };
            let (log_det, square) = solve(&gram, &moment, precision);
            let prior: f64 = (0..n).map(|j| precision(j).ln()).sum();
            let size = subset.count_ones() as usize;
            weights.push(0.5 * (prior - log_det + square) + self.log_prior(size, p));
        }
        let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut total, mut included) = (0.0, vec![0.0; p]);
        for (subset, weight) in weights.into_iter().enumerate() {
            let weight = (weight - most).exp();
            total += weight;
            for (j, sum) in included.iter_mut().enumerate() {
                *sum += if subset >> j & 1 == 1 { weight } else { 0.0 };
            }
        }
        included.iter_mut().for_each(|sum| *sum /= total);
        Ok(included)
    }

    /// ln P(γ) of a subset of so many of p variables: π^s (1−π)^{p−s}, or its mean over a uniform
    /// π, B(1 + s, 1 + p − s).
    fn log_prior(&self, size: usize, p: usize) -> f64 {
        let log_factorial = |n: usize| (1..=n).map(|k| (k as f64).ln()).sum::<f64>();
        let rest = p - size;
        match self.slab_probability {
            Some(pi) => size as f64 * pi.ln() + rest as f64 * (1.0 - pi).ln(),
            None => log_factorial(size) + log_factorial(rest) - log_factorial(p + 1),
        }
    }

    /// A table from the prior, whose neighbouring columns have this correlation.
    pub fn simulate(
        &self,
        columns: usize,
        rows: usize,
        correlation: f64,
        seed: u64,
    ) -> Result<Simulated> {
        let key = |stream| Key::new(seed, 0, stream);
        let uniform = |at: usize| f64::from(key(Stream::Assignment).uniform(0, at));
        let pi = self.slab_probability.unwrap_or_else(|| uniform(columns));
        let in_slab: Vec<bool> = (0..columns).map(|j| uniform(j) < pi).collect();
        let mut drawn = vec![0.0; columns + 1];
        key(Stream::Initial).normals(0, 0, &mut drawn);
        for (j, w) in drawn.iter_mut().enumerate() {
            let slab = in_slab.get(j).is_none_or(|slab| *slab);
            let precision = if slab { self.slab_precision } else { self.spike_precision };
            *w /= precision.sqrt() as f32;
        }
        let (mut inputs, mut targets) = (vec![0.0; columns * rows], vec![0.0; rows]);
        key(Stream::Inputs).normals(0, 0, &mut inputs);
        key(Stream::Observation).normals(0, 0, &mut targets);
        let own = (1.0 - correlation * correlation).sqrt() as f32;
        for (x, y) in inputs.chunks_exact_mut(columns).zip(&mut targets) {
            for j in 1..columns {
                x[j] = correlation as f32 * x[j - 1] + own * x[j];
            }
            let sum: f32 = x.iter().zip(&drawn).map(|(x, w)| x * w).sum();
            *y = sum + drawn[columns] + self.noise as f32 * *y;
        }
        Ok(Simulated { data: Dataset::new(columns, 1, inputs, targets)?, in_slab })
    }
}

/// ln |A| and cᵀA⁻¹c of A = G + diag(δ), by its Cholesky factor.
fn solve(gram: &[f64], moment: &[f64], precision: impl Fn(usize) -> f64) -> (f64, f64) {
    let n = moment.len();
    let (mut factor, mut half) = (gram.to_vec(), moment.to_vec());
    let (mut log_det, mut square) = (0.0, 0.0);
    for j in 0..n {
        let mut pivot = factor[j * n + j] + precision(j);
        for k in 0..j {
            pivot -= factor[j * n + k].powi(2);
            half[j] -= factor[j * n + k] * half[k];
        }
        let root = pivot.sqrt();
        half[j] /= root;
        factor[j * n + j] = root;
        for i in j + 1..n {
            for k in 0..j {
                factor[i * n + j] -= factor[i * n + k] * factor[j * n + k];
            }
            factor[i * n + j] /= root;
        }
        log_det += 2.0 * root.ln();
        square += half[j] * half[j];
    }
    (log_det, square)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: SpikeAndSlab = SpikeAndSlab {
        slab_precision: 1.0,
        spike_precision: 100.0,
        slab_probability: Some(0.3),
        noise: 0.5,
    };

    /// ```python
    /// import itertools, numpy as np
    /// x = np.array([[1, 0.5], [-1, 0.25], [0.5, -2], [0, 1]]); y = np.array([1, -0.75, 0.25, 0.5])
    /// full = np.column_stack([x, np.ones(4)])
    /// for prior in [lambda s: 0.3 ** s * 0.7 ** (2 - s), lambda s: [1/3, 1/6, 1/3][s]]:
    ///     found, total = np.zeros(2), 0
    ///     for g in itertools.product([0, 1], repeat=2):
    ///         c = 0.25 * np.eye(4) + full @ np.diag([1 if k else 0.01 for k in g] + [1]) @ full.T
    ///         m = np.exp(-0.5 * y @ np.linalg.solve(c, y)) / np.sqrt(np.linalg.det(c))
    ///         total += m * prior(sum(g)); found += m * prior(sum(g)) * np.array(g)
    ///     print([repr(v) for v in found / total])
    /// ```
    #[test]
    fn subsets_weigh_what_their_marginal_likelihood_says() {
        let inputs = vec![1.0, 0.5, -1.0, 0.25, 0.5, -2.0, 0.0, 1.0];
        let data = Dataset::new(2, 1, inputs, vec![1.0, -0.75, 0.25, 0.5]).unwrap();
        for (model, want) in
            [(MODEL, FIXED), (SpikeAndSlab { slab_probability: None, ..MODEL }, UNIFORM)]
        {
            let found = model.inclusion(&data).unwrap();
            for (found, want) in found.iter().zip(want) {
                assert!((found - want).abs() < 1e-12, "{found} against {want}");
            }
        }
    }

    const FIXED: [f64; 2] = [0.604_544_028_700_839_5, 0.107_294_352_978_928];
    const UNIFORM: [f64; 2] = [0.713_942_072_132_942_3, 0.300_877_950_836_391_6];

    #[test]
    fn a_table_has_the_moments_of_its_model() {
        let Simulated { data, in_slab } = MODEL.simulate(10, 4000, 0.6, 3).unwrap();
        assert!(in_slab.contains(&true) && in_slab.contains(&false));
        let product = |a: usize, b: usize| -> f64 {
            let of = |row: usize| f64::from(data.input(row)[a]) * f64::from(data.input(row)[b]);
            (0..4000).map(of).sum::<f64>() / 4000.0
        };
        assert!((product(4, 4) - 1.0).abs() < 0.1 && (product(4, 5) - 0.6).abs() < 0.1);
        assert!((product(4, 6) - 0.36).abs() < 0.1);
        // So many rows leave no doubt about a large weight.
        let found = MODEL.inclusion(&MODEL.simulate(10, 4000, 0.6, 3).unwrap().data).unwrap();
        let right = found.iter().zip(&in_slab).filter(|(p, slab)| (**p > 0.5) == **slab).count();
        assert!(right >= 9, "{found:?} {in_slab:?}");
        assert!(MODEL.inclusion(&MODEL.simulate(21, 2, 0.0, 1).unwrap().data).is_err());
    }
}
