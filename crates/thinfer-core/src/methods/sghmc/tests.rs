//! The step of Algorithm 2 against numbers worked out by hand, and its limits.

use super::*;

/// The mean of each ρ update over ε = ±1, which has the moments of ε that count. The last step
/// moved w by s τ ε, so the gradient is g₀ + H s τ ε and E[ε g] = s τ H.
#[test]
fn the_mean_of_the_rho_update_is_the_slope_of_the_elbo() {
    let (n, wd, h, g0, w) = (50.0f64, 0.02f64, 3.0f64, 0.7f64, -1.5f64);
    let (beta1, dt, k, eta) = (0.4f64, 0.3f64, 0.5f64, 0.1f64);
    let alpha = k * dt.powf(1.5);
    for (rho_before, noise) in
        [(-1.2f64, NoiseRule::Exact), (0.8, NoiseRule::Exact), (0.3, NoiseRule::Paper)]
    {
        let tau = 1.0 / (1.0 + (-rho_before).exp());
        let s = match noise {
            NoiseRule::Exact => k * dt * (2.0 * (1.0 - beta1) / tau).sqrt(),
            NoiseRule::Paper => (2.0 + 2.0 * beta1 * beta1).sqrt() * k * dt.powf(1.5),
        };
        // −(1/N) dF/dτ of the negative ELBO F, and what program and paper make of it.
        let exact = 1.0 / (n * tau) - alpha * alpha * tau * (wd + h);
        let code = 1.0 / (n * tau) - alpha * alpha * tau * wd - alpha * s * tau * h;
        let printed = 1.0 / tau - alpha * alpha * (wd * n) * tau - alpha * s * tau * h;
        for (rho, want) in
            [(RhoRule::Exact, exact), (RhoRule::Code, code), (RhoRule::Printed, printed)]
        {
            let c = Coeffs {
                beta1: beta1 as f32,
                memory: beta1 as f32,
                beta2: 1.0,
                dt: dt as f32,
                k: k as f32,
                eta: eta as f32,
                n: n as f32,
                slab_decay: wd as f32,
                spike_decay: wd as f32,
                noise,
                rho,
                freeze: false,
            };
            let after = |eps: f64| {
                let g = (g0 + h * s * tau * eps) as f32;
                let tau = Tau::from_rho(rho_before as f32);
                let next = rho_step(&c, rho_before as f32, tau, w as f32, g, wd as f32, eps as f32);
                f64::from(next) - rho_before
            };
            let mean = 0.5 * (after(1.0) + after(-1.0));
            assert!((mean - eta * want).abs() < 1e-6, "{rho:?}, {noise:?}: {mean} {want}");
            // Half of the difference is the noise of one draw: the printed form has wd w in it.
            let weight = if rho == RhoRule::Exact { alpha * alpha / s } else { alpha };
            let prior = if rho == RhoRule::Printed { wd * w } else { 0.0 };
            let odd = 0.5 * (after(1.0) - after(-1.0));
            assert!((odd + eta * weight * (g0 + prior)).abs() < 1e-6, "{rho:?}: {odd}");
        }
    }
}

/// The limit is on the gradient of live weights that are trained: what pruned and frozen ones have
/// does not shorten it, and all of it is shortened by the same factor.
#[test]
fn the_limit_looks_at_live_weights_alone() {
    use crate::methods::Rates;
    let config = Sghmc {
        beta1: 0.0,
        beta2: 1.0,
        weight_decay: 0.0,
        train_rows: 10,
        noise: NoiseRule::Exact,
        rho: RhoRule::Exact,
        initial_momentum: 0.0,
        clip: Some(1.0),
    };
    let method = SghmcMethod { config, key: Key::new(1, 0, Stream::Sampler), batch_noise: None };
    let rates = Rates {
        step_size: 0.5,
        step_size_before: 0.5,
        temperature: 0.0,
        eta: 0.0,
        decay_factor: 1.0,
    };
    let moved = |g: [f32; 4]| {
        let mut arena = Arena::flat(4, 2);
        method.start(&mut arena, method.key).unwrap();
        arena.set_marks(&[ALIVE, ALIVE, SLAB, ALIVE | FIXED]).unwrap();
        arena.set_gradient(&g).unwrap();
        method.update(&mut arena, Tick { step: 0, epoch: 0, rates });
        arena.weights().to_vec()
    };
    // τ Δt² = ¼. The norm of (3, −4) is 5.
    let got = moved([3.0, -4.0, 100.0, 100.0]);
    let want = [-0.25 * 0.6, 0.25 * 0.8, -0.25 * 20.0, 0.0];
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
    // Short enough.
    let got = moved([0.3, -0.4, 100.0, 100.0]);
    let want = [-0.25 * 0.3, 0.25 * 0.4, -25.0, 0.0];
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
}

/// v follows the step size with the exact noise. The first step has none before it, and a step of
/// exactly 0 neither stops v for good nor lets it explode: v/Δt is the same after a restart.
#[test]
fn the_velocity_follows_the_step_size() {
    use crate::methods::Rates;
    use crate::schedule::{Clock, Schedule};
    use crate::train::Schedules;
    let config = Sghmc {
        beta1: 0.5,
        beta2: 1.0,
        weight_decay: 0.0,
        train_rows: 10,
        noise: NoiseRule::Exact,
        rho: RhoRule::Exact,
        initial_momentum: 0.0,
        clip: None,
    };
    let memory = |config: Sghmc, before: f64, now: f64| {
        let rates = Rates {
            step_size: now,
            step_size_before: before,
            temperature: 0.1,
            eta: 0.0,
            decay_factor: 1.0,
        };
        f64::from(config.coeffs(Tick { step: 3, epoch: 0, rates }, 0.0, false).memory)
    };
    assert_eq!(memory(config, 0.16, 0.04), 0.25);
    assert_eq!(memory(config, 0.3, 0.3), 0.5);
    assert_eq!(memory(Sghmc { noise: NoiseRule::Paper, ..config }, 0.16, 0.04), 0.5);
    let there_and_back = memory(config, 0.25, 0.0) * memory(config, 0.0, 0.25);
    assert!((there_and_back - 0.25).abs() < 1e-6, "{there_and_back}");

    let constant = Schedule::constant(1.0);
    let schedules = Schedules {
        step_size: Schedule { warm_up_epochs: 3.0, ..Schedule::cyclical(0.2, 2) },
        temperature: constant.clone(),
        eta: constant.clone(),
        weight_decay: constant,
    };
    let clock = Clock { steps_per_epoch: 5, epochs: 9 };
    assert_eq!(follow(&schedules.at(0, clock)), 1.0);
    for step in 1..clock.total_steps() {
        let ratio = schedules.at(step, clock).step_size / schedules.at(step - 1, clock).step_size;
        assert_eq!(follow(&schedules.at(step, clock)), ratio.sqrt(), "step {step}");
    }
}
