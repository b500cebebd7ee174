//! Samples a density of your own: give its logarithm and its gradient.
//!
//! ```sh
//! cargo run --release -p thinfer --example sample_density
//! ```
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use thinfer::density::{Sampling, sample};
use thinfer::engine::noise::{Key, Stream};
use thinfer::methods::sghmc::{NoiseRule, RhoRule, Sghmc, SghmcMethod};

/// Eight schools (Rubin 1981): the effect of coaching in each, and its standard error.
const EFFECTS: [f64; 8] = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0];
const ERRORS: [f64; 8] = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0];

/// log p(μ, ln τ, z | effects) with school effects μ + τ z, μ ~ N(0, 5²), τ ~ half-Cauchy(5) and
/// z ~ N(0, 1), and its gradient.
fn log_density(w: &[f32], gradient: &mut [f32]) -> f64 {
    let (mu, log_tau) = (f64::from(w[0]), f64::from(w[1]));
    let tau = log_tau.exp();
    let ratio = (tau / 5.0).powi(2);
    let mut value = -mu * mu / 50.0 - (1.0 + ratio).ln() + log_tau;
    let (mut by_mu, mut by_log_tau) = (-mu / 25.0, 1.0 - 2.0 * ratio / (1.0 + ratio));
    for school in 0..EFFECTS.len() {
        let z = f64::from(w[2 + school]);
        let scaled = (EFFECTS[school] - mu - tau * z) / ERRORS[school];
        value -= 0.5 * (scaled * scaled + z * z);
        let slope = scaled / ERRORS[school];
        by_mu += slope;
        by_log_tau += slope * tau * z;
        gradient[2 + school] = (slope * tau - z) as f32;
    }
    gradient[0] = by_mu as f32;
    gradient[1] = by_log_tau as f32;
    value
}

fn main() -> thinfer::Result<()> {
    // Algorithm 2 without a prior of its own: the density has one.
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
    let method = SghmcMethod { config, key: Key::new(1, 0, Stream::Sampler), batch_noise: None };
    let sampling = Sampling { burn_in: 20_000, samples: 20_000, thin: 20, ..Sampling::default() };
    let samples = sample(&method, &[0.0; 10], &sampling, log_density)?;

    let summary = |name: &str, of: &dyn Fn(&[f32]) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(|w| of(w)).collect();
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let at = |share: f64| values[(share * (values.len() - 1) as f64) as usize];
        println!("{name:<10}{mean:>8.2}{:>8.2}{:>8.2}", at(0.05), at(0.95));
    };
    println!("{:<10}{:>8}{:>8}{:>8}", "", "mean", "5 %", "95 %");
    summary("mu", &|w| f64::from(w[0]));
    summary("tau", &|w| f64::from(w[1]).exp());
    for school in 0..EFFECTS.len() {
        let effect = |w: &[f32]| f64::from(w[0]) + f64::from(w[1]).exp() * f64::from(w[2 + school]);
        summary(&format!("school {}", school + 1), &effect);
    }
    Ok(())
}
