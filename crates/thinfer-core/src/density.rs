//! Samples of any density whose logarithm and gradient you can compute.
//!
//! The methods of this crate know nothing of networks: they move numbers along a gradient. So they
//! sample other models too. [`sample`] is that loop in short. [`walk`] is the one for methods that
//! ask for gradients themselves, NUTS and MCLMC, in double precision.

use thinfer_data::{Error, Result};
use thinfer_engine::Arena;
use thinfer_engine::noise::{Key, Stream};

use crate::methods::{Method, Part, Rates, Target, Tick};

/// How to sample.
///
/// | name | default | range | too large |
/// |---|---|---|---|
/// | `step_size` | 0.01 | > 0 | the chain oscillates and leaves |
/// | `burn_in` | 1000 | | wasted steps |
/// | `samples` | 1000 | ≥ 1 | |
/// | `thin` | 10 | ≥ 1 | wasted steps |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// l = Δt². Below 2 (1 + β₁) / λ for the largest curvature λ of the density.
    pub step_size: f64,
    /// Steps before the first sample.
    pub burn_in: u64,
    /// Samples to take.
    pub samples: usize,
    /// Steps from one sample to the next.
    pub thin: u64,
    /// All noise follows from it.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { step_size: 0.01, burn_in: 1_000, samples: 1_000, thin: 10, seed: 1 }
    }
}

/// Runs one chain of `method` from `start` and returns its samples.
///
/// Targets exp(log_density). `log_density` gets a point and writes the gradient of the logarithm
/// there; it returns the logarithm, up to a constant. The method must add noise, and its own weight
/// decay is one more factor of the density, so it is usually 0.
pub fn sample(
    method: &dyn Method,
    start: &[f32],
    sampling: &Sampling,
    mut log_density: impl FnMut(&[f32], &mut [f32]) -> f64,
) -> Result<Vec<Vec<f32>>> {
    if !method.adds_noise() {
        return Err(Error::Data(
            "the method adds no noise, so it finds a maximum and does not sample; choose another"
                .into(),
        ));
    }
    if method.walker().is_some() {
        return Err(Error::Data(
            "the method asks for gradients itself; sample with `density::walk`".into(),
        ));
    }
    if sampling.step_size.is_nan() || sampling.step_size <= 0.0 || sampling.thin == 0 {
        return Err(Error::Data("`step_size` and `thin` must be above 0; give larger ones".into()));
    }
    let mut arena = Arena::flat(start.len(), method.state_buffers());
    arena.set_weights(start)?;
    method.start(&mut arena, Key::new(sampling.seed, 0, Stream::Sampler))?;
    let rates = rates(sampling.step_size);
    let mut gradient = vec![0.0; start.len()];
    let mut samples = Vec::with_capacity(sampling.samples);
    let mut step = 0;
    while samples.len() < sampling.samples {
        let tick = Tick { step, epoch: 0, rates };
        method.materialize(&mut arena, tick);
        let value = log_density(arena.forward(), &mut gradient);
        if !value.is_finite() || gradient.iter().any(|g| !g.is_finite()) {
            return Err(not_finite(step));
        }
        // Methods go down a loss: minus the logarithm.
        gradient.iter_mut().for_each(|g| *g = -*g);
        arena.set_gradient(&gradient)?;
        method.update(&mut arena, tick);
        step += 1;
        let since = step.saturating_sub(sampling.burn_in);
        if since > 0 && since.is_multiple_of(sampling.thin) {
            samples.push(method.sample(&arena, tick));
        }
    }
    Ok(samples)
}

fn rates(step_size: f64) -> Rates {
    Rates { step_size, step_size_before: step_size, temperature: 1.0, eta: 0.0, decay_factor: 1.0 }
}

fn not_finite(step: u64) -> Error {
    Error::NonFinite {
        what: "the log density or its gradient".into(),
        step,
        epoch: 0,
        chain: 0,
        checkpoint: "nothing is kept of this chain".into(),
    }
}

/// Runs one chain of a method that asks for gradients itself, and returns where it was after each
/// of its steps.
///
/// Targets exp(log_density), as [`sample`] does, in double precision. The steps before the first
/// sample are a setting of the method, its `warm_up_epochs`; so many are left out here. A density
/// that is not finite somewhere is turned away from there, but must be finite at the start.
pub fn walk(
    method: &dyn Method,
    start: &[f64],
    warm_up: usize,
    samples: usize,
    log_density: impl FnMut(&[f64], &mut [f64]) -> f64,
) -> Result<Vec<Vec<f64>>> {
    let Some(walker) = method.walker() else {
        return Err(Error::Data(
            "the method takes the gradients that it is given; sample with `density::sample`".into(),
        ));
    };
    let mut target = Density(log_density);
    let mut gradient = vec![0.0; start.len()];
    let value = target.mean_loss(Part::All, start, &mut gradient)?;
    if !value.is_finite() || gradient.iter().any(|g| !g.is_finite()) {
        return Err(not_finite(0));
    }
    let mut arena = Arena::flat(start.len(), method.state_buffers());
    arena.set_numbers(vec![0.0; method.numbers(start.len())]);
    method.start(&mut arena, Key::new(0, 0, Stream::Sampler))?;
    arena.set_weights(&start.iter().map(|x| *x as f32).collect::<Vec<f32>>())?;
    let mut found = Vec::with_capacity(samples);
    for epoch in 0..warm_up + samples {
        let tick = Tick { step: epoch as u64, epoch, rates: rates(0.0) };
        walker.step(&mut arena, tick, &mut target)?;
        if epoch >= warm_up {
            found.push(arena.numbers()[..start.len()].to_vec());
        }
    }
    Ok(found)
}

/// A density as the loss of a walker.
struct Density<F>(F);

impl<F: FnMut(&[f64], &mut [f64]) -> f64> Target for Density<F> {
    fn mean_loss(&mut self, _part: Part, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let value = (self.0)(x, gradient);
        gradient.iter_mut().for_each(|g| *g = -*g);
        Ok(-value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::nuts::{Nuts, NutsMethod};
    use crate::methods::sgd::Sgd;
    use crate::methods::sghmc::{NoiseRule, RhoRule, Sghmc, SghmcMethod};

    fn sghmc() -> SghmcMethod {
        let config = Sghmc {
            beta1: 0.9,
            beta2: 1.0,
            weight_decay: 0.0,
            train_rows: 1,
            noise: NoiseRule::Exact,
            rho: RhoRule::Exact,
            initial_momentum: 0.0,
            clip: None,
        };
        SghmcMethod { config, key: Key::new(1, 0, Stream::Sampler), batch_noise: None }
    }

    /// A normal law with mean (1, −2), standard deviations 1 and 0.5 and correlation 0.6.
    fn log_normal(w: &[f32], gradient: &mut [f32]) -> f64 {
        let (a, b) = (f64::from(w[0]) - 1.0, (f64::from(w[1]) + 2.0) / 0.5);
        let rest = 1.0 - 0.6f64.powi(2);
        gradient[0] = (-(a - 0.6 * b) / rest) as f32;
        gradient[1] = (-(b - 0.6 * a) / rest / 0.5) as f32;
        -0.5 * (a * a - 1.2 * a * b + b * b) / rest
    }

    #[test]
    fn mean_and_covariance_are_those_of_the_density() {
        let sampling = Sampling { samples: 20_000, ..Sampling::default() };
        let found = sample(&sghmc(), &[0.0, 0.0], &sampling, log_normal).unwrap();
        let n = found.len() as f64;
        let mean = [0, 1].map(|i| found.iter().map(|w| f64::from(w[i])).sum::<f64>() / n);
        let covariance = |i: usize, j: usize| {
            let of = |w: &Vec<f32>| (f64::from(w[i]) - mean[i]) * (f64::from(w[j]) - mean[j]);
            found.iter().map(of).sum::<f64>() / n
        };
        let near = |found: f64, right: f64, by: f64| {
            assert!((found - right).abs() < by, "{found} is not {right}");
        };
        near(mean[0], 1.0, 0.06);
        near(mean[1], -2.0, 0.03);
        near(covariance(0, 0), 1.0, 0.08);
        near(covariance(1, 1), 0.25, 0.02);
        near(covariance(0, 1), 0.3, 0.03);
    }

    #[test]
    fn what_cannot_sample_is_refused() {
        let sgd = Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: false };
        let refused = |method: &dyn Method, sampling: Sampling| {
            sample(method, &[0.0, 0.0], &sampling, log_normal).unwrap_err().to_string()
        };
        assert!(refused(&sgd, Sampling::default()).contains("adds no noise"));
        let none = Sampling { thin: 0, ..Sampling::default() };
        assert!(refused(&sghmc(), none).contains("must be above 0"));
        let walker = NutsMethod { config: Nuts::default(), key: Key::new(1, 0, Stream::Sampler) };
        assert!(refused(&walker, Sampling::default()).contains("density::walk"));
        let flat = |_: &[f64], gradient: &mut [f64]| {
            gradient.fill(f64::INFINITY);
            0.0
        };
        let error = walk(&walker, &[0.0], 5, 5, flat).unwrap_err().to_string();
        assert!(error.contains("is not finite at step 0"), "{error}");
        let error = walk(&sghmc(), &[0.0], 5, 5, flat).unwrap_err().to_string();
        assert!(error.contains("density::sample"), "{error}");
        let unbounded = |_: &[f32], gradient: &mut [f32]| {
            gradient.fill(f32::NAN);
            0.0
        };
        let error = sample(&sghmc(), &[0.0], &Sampling::default(), unbounded).unwrap_err();
        assert!(error.to_string().contains("is not finite at step 0"), "{error}");
    }
}
