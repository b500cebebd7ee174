//! NUTS and MCLMC against posteriors that are known.

use thinfer::density::walk;
use thinfer::methods::mclmc::{Mclmc, MclmcMethod};
use thinfer::methods::nuts::{Nuts, NutsMethod};
use thinfer::methods::{Decay, Method};
use thinfer_engine::noise::{Key, Stream};

use super::{Target, assert_close};

/// Correlated, with standard deviations from 0.2 to 2, and a prior beside the likelihood.
fn gaussian() -> Target {
    let d = 6;
    let scales: Vec<f64> = (0..d).map(|i| 0.2 * 10.0f64.powf(f64::from(i) / 5.0)).collect();
    let cell = |i: usize, j: usize| {
        let base = if i == j { 1.0 } else { -0.15 };
        base / (scales[i] * scales[j])
    };
    Target {
        h: (0..scales.len()).map(|i| (0..scales.len()).map(|j| cell(i, j)).collect()).collect(),
        b: vec![1.0, -2.0, 0.5, 0.0, 3.0, -1.0],
        wd: 0.1,
        tau: vec![1.0; scales.len()],
    }
}

fn log_density(target: &Target) -> impl FnMut(&[f64], &mut [f64]) -> f64 + '_ {
    |x, gradient| {
        let mut value = 0.0;
        for (i, g) in gradient.iter_mut().enumerate() {
            let product: f64 = target.h[i].iter().zip(x).map(|(h, x)| h * x).sum();
            *g = target.b[i] - product;
            value += x[i] * (target.b[i] - 0.5 * product);
        }
        value
    }
}

/// Mean and covariance over chains from different keys, with their standard errors.
fn assert_recovers(method: &dyn Fn(u32) -> Box<dyn Method>, warm_up: usize, samples: usize) {
    const CHAINS: u32 = 12;
    let target = gaussian();
    let (mean, covariance) = target.mean_and_inverse();
    let d = mean.len();
    let chains: Vec<Vec<Vec<f64>>> = (0..CHAINS)
        .map(|chain| {
            walk(&*method(chain), &vec![0.0; d], warm_up, samples, log_density(&target)).unwrap()
        })
        .collect();
    let over_chains = |of: &dyn Fn(&[f64]) -> f64| {
        let means: Vec<f64> = chains
            .iter()
            .map(|chain| chain.iter().map(|x| of(x)).sum::<f64>() / chain.len() as f64)
            .collect();
        let n = means.len() as f64;
        let mean = means.iter().sum::<f64>() / n;
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, (variance / n).sqrt())
    };
    for i in 0..d {
        assert_close(&format!("mean {i}"), over_chains(&|x| x[i]), mean[i]);
        for j in 0..d {
            let product = |x: &[f64]| (x[i] - mean[i]) * (x[j] - mean[j]);
            assert_close(&format!("covariance {i},{j}"), over_chains(&product), covariance[i][j]);
        }
    }
}

#[test]
fn nuts_recovers_a_normal_law() {
    let config = Nuts { decay: Decay::Same(0.1), warm_up_epochs: 300, ..Nuts::default() };
    let method = |chain| -> Box<dyn Method> {
        Box::new(NutsMethod { config: config.clone(), key: Key::new(7, chain, Stream::Sampler) })
    };
    assert_recovers(&method, 300, 2500);
}

/// With an energy error so small that its bias is below the Monte-Carlo error.
#[test]
fn mclmc_recovers_a_normal_law() {
    let config = Mclmc {
        decay: Decay::Same(0.1),
        warm_up_epochs: 400,
        start_epochs: 40,
        moves: 40,
        energy_error: 2e-6,
        ..Mclmc::default()
    };
    let method = |chain| -> Box<dyn Method> {
        Box::new(MclmcMethod { config: config.clone(), key: Key::new(7, chain, Stream::Sampler) })
    };
    assert_recovers(&method, 400, 1500);
}
