//! The truth of the samplers: known posteriors, recovered within Monte-Carlo error.
//!
//! One check serves every sampler. A Gaussian target L(w) = ½ wᵀHw − bᵀw + ½ wd |w|² is sampled by
//! thousands of independent copies at once (noise is keyed by the index, so copies that lie side by
//! side in one arena are independent). Means and second moments are averaged over time in each
//! copy; their spread over copies gives the Monte-Carlo error, and the check allows five of them.

use thinfer::methods::csgmcmc::{Csgmcmc, CsgmcmcMethod};
use thinfer::methods::cv_adam::{self, CvAdam, CvAdamMethod};
use thinfer::methods::em_mcmc::{AfterFreeze, Cadence, EmMcmc, EmMcmcMethod};
use thinfer::methods::ivon::{Ivon, IvonMethod};
use thinfer::methods::sgd::{self};
use thinfer::methods::sghmc::{
    self, Coeffs, Gradient, NoiseRule, RHO, RhoRule, Sghmc, SghmcMethod, Tau, rho_step,
};
use thinfer::methods::{Method, Rates, Tick};
use thinfer::prune::{Grouping, HardThreshold, SoftThreshold, group_network};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, elementary};

#[path = "posterior/batch_noise.rs"]
mod batch_noise;
#[cfg(feature = "report")]
#[path = "posterior/inclusion.rs"]
mod inclusion;
#[path = "posterior/mini_batches.rs"]
mod mini_batches;
#[path = "posterior/moving_steps.rs"]
mod moving_steps;
#[path = "posterior/walkers.rs"]
mod walkers;

/// A Gaussian target in a few dimensions.
#[derive(Clone)]
struct Target {
    h: Vec<Vec<f64>>,
    b: Vec<f64>,
    wd: f64,
    tau: Vec<f64>,
}

impl Target {
    fn one(lambda: f64, tau: f64) -> Self {
        Self { h: vec![vec![lambda]], b: vec![0.0], wd: 0.0, tau: vec![tau] }
    }

    fn dim(&self) -> usize {
        self.b.len()
    }

    /// (H + wd I)⁻¹ b and the inverse itself, by Gauss-Jordan.
    fn mean_and_inverse(&self) -> (Vec<f64>, Vec<Vec<f64>>) {
        let d = self.dim();
        let mut a = self.h.clone();
        let mut inverse = vec![vec![0.0; d]; d];
        for i in 0..d {
            a[i][i] += self.wd;
            inverse[i][i] = 1.0;
        }
        for i in 0..d {
            let pivot = a[i][i];
            for j in 0..d {
                a[i][j] /= pivot;
                inverse[i][j] /= pivot;
            }
            for r in (0..d).filter(|&r| r != i) {
                let factor = a[r][i];
                for j in 0..d {
                    a[r][j] -= factor * a[i][j];
                    inverse[r][j] -= factor * inverse[i][j];
                }
            }
        }
        let mean = (0..d).map(|i| (0..d).map(|j| inverse[i][j] * self.b[j]).sum()).collect();
        (mean, inverse)
    }
}

/// What was measured: mean and covariance with their standard errors.
struct Measured {
    mean: Vec<(f64, f64)>,
    covariance: Vec<Vec<(f64, f64)>>,
}

struct Length {
    copies: usize,
    burn: u64,
    steps: u64,
}

fn measure(method: &dyn Method, target: &Target, rates: Rates, length: &Length) -> Measured {
    let d = target.dim();
    let n = length.copies * d;
    let mut arena = Arena::flat(n, method.state_buffers());
    method.start(&mut arena, Key::new(5, 0, Stream::Sampler)).unwrap();
    let (centre, _) = target.mean_and_inverse();
    if method.state_buffers() == 2 {
        let rho: Vec<f32> =
            (0..n).map(|i| (target.tau[i % d] / (1.0 - target.tau[i % d])).ln() as f32).collect();
        arena.set_state(RHO, &rho).unwrap();
    }
    let (mut sums, mut squares) = (vec![0.0; n], vec![0.0; n * d]);
    let mut gradient = vec![0.0f32; n];
    for step in 0..length.burn + length.steps {
        let tick = Tick { step, epoch: 0, rates };
        method.materialize(&mut arena, tick);
        let w = arena.forward();
        for copy in 0..length.copies {
            let w = &w[copy * d..(copy + 1) * d];
            for i in 0..d {
                let product: f64 = (0..d).map(|j| target.h[i][j] * f64::from(w[j])).sum();
                gradient[copy * d + i] = (product - target.b[i]) as f32;
            }
        }
        arena.set_gradient(&gradient).unwrap();
        method.update(&mut arena, tick);
        if step >= length.burn {
            let sample = method.sample(&arena, tick);
            for copy in 0..length.copies {
                for i in 0..d {
                    let x = f64::from(sample[copy * d + i]) - centre[i];
                    sums[copy * d + i] += x;
                    for j in 0..d {
                        let y = f64::from(sample[copy * d + j]) - centre[j];
                        squares[(copy * d + i) * d + j] += x * y;
                    }
                }
            }
        }
    }
    let steps = length.steps as f64;
    let over_copies = |value: &dyn Fn(usize) -> f64| {
        let values: Vec<f64> = (0..length.copies).map(|c| value(c) / steps).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, (var / values.len() as f64).sqrt())
    };
    Measured {
        mean: (0..d)
            .map(|i| {
                let (mean, error) = over_copies(&|c| sums[c * d + i]);
                (mean + centre[i], error)
            })
            .collect(),
        covariance: (0..d)
            .map(|i| (0..d).map(|j| over_copies(&|c| squares[(c * d + i) * d + j])).collect())
            .collect(),
    }
}

/// The exact stationary covariance of the linear recursion v ← β v − β₂Δt²(H w) + s ε,
/// w ← w + τ v, by iterating the covariance equation.
fn stationary(target: &Target, beta1: f64, dt: f64, noise: &dyn Fn(f64) -> f64) -> Vec<Vec<f64>> {
    let d = target.dim();
    let m = 2 * d;
    let mut a = vec![vec![0.0; m]; m];
    let mut q = vec![vec![0.0; m]; m];
    for i in 0..d {
        a[i][i] = beta1;
        a[d + i][i] = target.tau[i] * beta1;
        a[d + i][d + i] = 1.0;
        for j in 0..d {
            let h = target.h[i][j] + if i == j { target.wd } else { 0.0 };
            a[i][d + j] -= dt * dt * h;
            a[d + i][d + j] -= target.tau[i] * dt * dt * h;
        }
        let s = noise(target.tau[i]);
        q[i][i] = s * s;
        q[i][d + i] = s * s * target.tau[i];
        q[d + i][i] = q[i][d + i];
        q[d + i][d + i] = (s * target.tau[i]).powi(2);
    }
    let product = |x: &[Vec<f64>], y: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let cell = |i: usize, j: usize| (0..m).map(|k| x[i][k] * y[k][j]).sum();
        (0..m).map(|i| (0..m).map(|j| cell(i, j)).collect()).collect()
    };
    let transpose = |x: &[Vec<f64>]| -> Vec<Vec<f64>> {
        (0..m).map(|i| (0..m).map(|j| x[j][i]).collect()).collect()
    };
    // Doubling: S = Σ AᵏQAᵏᵀ with the number of terms squared each round.
    let (mut s, mut power) = (q, a);
    for _ in 0..40 {
        let more = product(&product(&power, &s), &transpose(&power));
        for i in 0..m {
            for j in 0..m {
                s[i][j] += more[i][j];
            }
        }
        power = product(&power, &power);
    }
    (0..d).map(|i| (0..d).map(|j| s[d + i][d + j]).collect()).collect()
}

fn assert_close(what: &str, got: (f64, f64), want: f64) {
    let allowed = 5.0 * got.1 + 1e-4 * want.abs();
    assert!((got.0 - want).abs() < allowed, "{what}: {} ± {} against {want}", got.0, got.1);
}

fn assert_posterior(measured: &Measured, mean: &[f64], covariance: &[Vec<f64>]) {
    for i in 0..mean.len() {
        assert_close(&format!("mean {i}"), measured.mean[i], mean[i]);
        for j in 0..mean.len() {
            assert_close(
                &format!("covariance {i},{j}"),
                measured.covariance[i][j],
                covariance[i][j],
            );
        }
    }
}

fn sghmc(beta1: f64, noise: NoiseRule, wd: f64) -> Sghmc {
    Sghmc {
        beta1,
        beta2: 1.0,
        weight_decay: wd,
        train_rows: 1000,
        noise,
        rho: RhoRule::Exact,
        initial_momentum: 0.0,
        clip: None,
    }
}

fn method(config: Sghmc) -> SghmcMethod {
    SghmcMethod { config, key: Key::new(5, 0, Stream::Sampler), batch_noise: None }
}

fn rates(k: f64, dt: f64) -> Rates {
    Rates {
        step_size: dt * dt,
        step_size_before: dt * dt,
        temperature: k,
        eta: 0.0,
        decay_factor: 1.0,
    }
}

fn paper_scale(k: f64, dt: f64, beta1: f64) -> impl Fn(f64) -> f64 {
    move |_| (2.0 + 2.0 * beta1 * beta1).sqrt() * k * dt.powf(1.5)
}

fn exact_scale(k: f64, dt: f64, beta1: f64) -> impl Fn(f64) -> f64 {
    move |tau| k * dt * (2.0 * (1.0 - beta1) / tau).sqrt()
}

/// The table of methods.md section 11: k, Δt, β₁, τ, λ, Var/(k²/λ) of the paper's noise, of the
/// exact noise.
const ROWS: [(f64, f64, f64, f64, f64, f64, f64); 9] = [
    (1.0, 0.1, 0.1, 0.5, 1.0, 0.0562, 0.994),
    (1.0, 0.3, 0.1, 0.5, 1.0, 0.1718, 1.019),
    (1.0, 1.0, 0.1, 0.5, 1.0, 0.7261, 1.294),
    (0.01, 1.0, 0.1, 0.63, 0.1, 0.7278, 1.028),
    (1.0, 0.3, 0.1, 1.0, 1.0, 0.3510, 1.042),
    (1.0, 0.3, 0.9, 0.5, 1.0, 2.748, 1.012),
    (1.0, 0.1, 0.9, 0.5, 1.0, 0.906, 0.999),
    (1.0, 0.1, 0.9, 1.0, 1.0, 1.815, 1.002),
    (1.0, 0.3, 0.97, 0.5, 1.0, 9.817, 1.012),
];

/// τ = 1 needs ρ = ∞; this is as near as the table's digits can see.
fn near_one(tau: f64) -> f64 {
    tau.min(0.999_99)
}

#[test]
fn the_published_table_of_temperatures_holds() {
    for (k, dt, beta1, tau, lambda, paper, exact) in ROWS {
        let target = Target::one(lambda, near_one(tau));
        let unit = k * k / lambda;
        let formula = |noise: &dyn Fn(f64) -> f64| stationary(&target, beta1, dt, noise)[0][0];
        let printed = formula(&paper_scale(k, dt, beta1)) / unit;
        assert!((printed / paper - 1.0).abs() < 1e-3, "paper {printed} against {paper}");
        let corrected = formula(&exact_scale(k, dt, beta1)) / unit;
        // The table's last column was measured; its Monte-Carlo error is about 1 %.
        assert!((corrected / exact - 1.0).abs() < 0.012, "exact {corrected} against {exact}");
        // Mixing needs about 1/(τ Δt² λ/(1−β₁)) steps.
        let relax = ((1.0 - beta1) / (tau * dt * dt * lambda)).ceil() as u64 + 20;
        let length = Length { copies: 4000, burn: 8 * relax, steps: 4 * relax };
        for (noise, want) in [(NoiseRule::Paper, printed), (NoiseRule::Exact, corrected)] {
            let got = measure(&method(sghmc(beta1, noise, 0.0)), &target, rates(k, dt), &length);
            assert_posterior(&got, &[0.0], &[vec![want * unit]]);
        }
    }
}

/// T_eff = k² (1+β₁²) τ Δt / (1−β₁) for the paper's noise, k² for the exact one, times the
/// step-size factor 2(1+β₁)/(2(1+β₁) − τΔt²λ).
#[test]
fn the_reported_temperature_is_the_one_of_the_formula() {
    for (k, dt, beta1, tau, lambda, ..) in ROWS {
        let tau = near_one(tau);
        let coeffs = |noise, beta2: f32| Coeffs {
            beta1: beta1 as f32,
            memory: beta1 as f32,
            beta2,
            dt: dt as f32,
            k: k as f32,
            eta: 0.0,
            n: 1.0,
            slab_decay: 0.0,
            spike_decay: 0.0,
            noise,
            rho: RhoRule::Exact,
            freeze: false,
        };
        let factor = 2.0 * (1.0 + beta1) / (2.0 * (1.0 + beta1) - tau * dt * dt * lambda);
        let target = Target::one(lambda, tau);
        let formula = k * k * (1.0 + beta1 * beta1) * tau * dt / (1.0 - beta1);
        let reported = coeffs(NoiseRule::Paper, 1.0).effective_temperature(Tau::new(tau as f32));
        assert!((reported / formula - 1.0).abs() < 1e-5, "{reported} against {formula}");
        let variance = stationary(&target, beta1, dt, &paper_scale(k, dt, beta1))[0][0];
        assert!((variance * lambda / (formula * factor) - 1.0).abs() < 1e-6);
        let reported = coeffs(NoiseRule::Exact, 1.0).effective_temperature(Tau::new(tau as f32));
        assert!((reported / (k * k) - 1.0).abs() < 1e-5);
        let reported = coeffs(NoiseRule::Exact, 0.25).effective_temperature(Tau::new(tau as f32));
        assert!((reported / (4.0 * k * k) - 1.0).abs() < 1e-5, "k²/β₂");
        let variance = stationary(&target, beta1, dt, &exact_scale(k, dt, beta1))[0][0];
        assert!((variance * lambda / (k * k * factor) - 1.0).abs() < 1e-6);
    }
}

/// Table B: with fixed friction h = (1−β₁)/Δt the paper's noise tends to T = 2k²τ/h.
#[test]
fn the_continuous_limit_of_the_paper_depends_on_friction_and_tau() {
    for (h, tau, want) in
        [(1.0, 0.5, 0.987), (1.0, 1.0, 1.970), (2.0, 1.0, 0.974), (3.0, 0.5, 0.320)]
    {
        let (dt, tau) = (0.0125, near_one(tau));
        let beta1 = 1.0 - h * dt;
        let got = stationary(&Target::one(1.0, tau), beta1, dt, &paper_scale(1.0, dt, beta1))[0][0];
        assert!((got / want - 1.0).abs() < 0.012, "h {h}, τ {tau}: {got} against {want}");
    }
}

/// Table C: two dimensions, unequal τ. The exact noise recovers the target; the paper's does not.
#[test]
fn unequal_tau_in_two_dimensions() {
    let target = Target {
        h: vec![vec![2.0, 0.9], vec![0.9, 1.0]],
        b: vec![1.0, -0.5],
        wd: 0.0,
        tau: vec![0.9, 0.2],
    };
    let (k, dt, beta1) = (1.0, 0.2, 0.9);
    let (mean, inverse) = target.mean_and_inverse();
    let length = Length { copies: 4000, burn: 400, steps: 200 };
    for (noise, scale, table) in [
        (
            NoiseRule::Exact,
            Box::new(exact_scale(k, dt, beta1)) as Box<dyn Fn(f64) -> f64>,
            [0.849, -0.757, 1.684],
        ),
        (NoiseRule::Paper, Box::new(paper_scale(k, dt, beta1)), [1.830, -0.581, 1.427]),
    ] {
        let want = stationary(&target, beta1, dt, &scale);
        for (value, table) in [want[0][0], want[0][1], want[1][1]].iter().zip(table) {
            assert!((value / table - 1.0).abs() < 0.012, "{value} against {table}");
        }
        let got = measure(&method(sghmc(beta1, noise, 0.0)), &target, rates(k, dt), &length);
        assert_posterior(&got, &mean, &want);
        if noise == NoiseRule::Exact {
            // Within the step-size factor, here at most 2 %, of the posterior itself.
            for i in 0..2 {
                for j in 0..2 {
                    let ratio = got.covariance[i][j].0 / inverse[i][j];
                    assert!((ratio - 1.0).abs() < 0.03, "{i},{j}: {ratio}");
                }
            }
        }
    }
}

/// Bayesian linear regression: X (N × 3), unit noise, prior N(0, 1/δ). The posterior is
/// N((XᵀX + δ)⁻¹Xᵀy, (XᵀX + δ)⁻¹).
fn regression(n: usize, delta: f64, tau: [f64; 3]) -> Target {
    let mut x = vec![0.0; 3 * n];
    Key::new(1, 0, Stream::Inputs).normals(0, 0, &mut x);
    let mut e = vec![0.0; n];
    Key::new(1, 0, Stream::Observation).normals(0, 0, &mut e);
    let row = |r: usize, i: usize| {
        f64::from(x[3 * r + i]) + if i == 2 { f64::from(x[3 * r]) } else { 0.0 }
    };
    let y = |r: usize| row(r, 0) - 2.0 * row(r, 1) + 0.5 * row(r, 2) + f64::from(e[r]);
    let mean = |value: &dyn Fn(usize) -> f64| (0..n).map(value).sum::<f64>() / n as f64;
    Target {
        h: (0..3).map(|i| (0..3).map(|j| mean(&|r| row(r, i) * row(r, j))).collect()).collect(),
        b: (0..3).map(|i| mean(&|r| row(r, i) * y(r))).collect(),
        wd: delta / n as f64,
        tau: tau.to_vec(),
    }
}

fn assert_regression_posterior(method: &dyn Method, target: &Target, n: usize, dt: f64) {
    let (mean, inverse) = target.mean_and_inverse();
    let k = 1.0 / (n as f64).sqrt();
    let length = Length { copies: 3000, burn: 3500, steps: 500 };
    let got = measure(method, target, rates(k, dt), &length);
    for i in 0..3 {
        assert_close("posterior mean", got.mean[i], mean[i]);
        for j in 0..3 {
            // 1 % for the step-size factor, besides the Monte-Carlo error.
            let (value, error) = got.covariance[i][j];
            let want = inverse[i][j] / n as f64;
            let scale = (inverse[i][i] * inverse[j][j]).sqrt() / n as f64;
            let allowed = 5.0 * error + 0.01 * scale;
            assert!((value - want).abs() < allowed, "{i},{j}: {value} ± {error} against {want}");
        }
    }
}

#[test]
fn algorithm_2_recovers_the_posterior_of_a_linear_regression() {
    let n = 200;
    let target = regression(n, 4.0, [0.5, 0.8, 0.3]);
    for beta1 in [0.1, 0.9] {
        let config = sghmc(beta1, NoiseRule::Exact, target.wd);
        assert_regression_posterior(&method(config), &target, n, 0.12);
    }
}

fn csgmcmc(momentum: f64, weight_decay: f64) -> CsgmcmcMethod {
    let config =
        Csgmcmc { momentum, weight_decay, sampling_epochs: Some(1), clip: None, follow: true };
    let cycles = std::iter::once(0..1).collect();
    CsgmcmcMethod { config, cycles, key: Key::new(5, 0, Stream::Sampler), batch_noise: None }
}

/// methods.md section 1: Var(w) = T/λ times 2(1+β) / (2(1+β) − lr λ), at any step and friction.
#[test]
fn csgld_and_csghmc_have_the_variance_of_the_formula() {
    for (beta, dt, lambda, k) in
        [(0.0, 0.3, 1.0, 1.0), (0.0, 1.0, 0.8, 0.1), (0.1, 0.7, 1.0, 1.0), (0.9, 0.3, 2.0, 0.5)]
    {
        let lr: f64 = dt * dt;
        let factor = 2.0 * (1.0 + beta) / (2.0 * (1.0 + beta) - lr * lambda);
        let want = k * k / lambda * factor;
        let relax = ((1.0 - beta) / (lr * lambda)).ceil() as u64 + 20;
        let length = Length { copies: 4000, burn: 8 * relax, steps: 4 * relax };
        let got = measure(&csgmcmc(beta, 0.0), &Target::one(lambda, 0.5), rates(k, dt), &length);
        assert_posterior(&got, &[0.0], &[vec![want]]);
    }
}

#[test]
fn csgld_and_csghmc_recover_the_posterior_of_a_linear_regression() {
    let n = 200;
    let target = regression(n, 4.0, [0.5; 3]);
    for beta in [0.0, 0.1, 0.9] {
        let method = csgmcmc(beta, target.wd);
        assert_eq!(method.state_buffers(), usize::from(beta > 0.0));
        assert_regression_posterior(&method, &target, n, 0.08);
    }
}

/// Algorithm 3 with every group in the slab is Algorithm 2, and in the spike it samples the
/// posterior under the spike's prior.
#[test]
fn algorithm_3_recovers_the_posterior_under_slab_and_spike() {
    let n = 200;
    for (delta, spike) in [(4.0, false), (400.0, true)] {
        let target = regression(n, delta, [0.5; 3]);
        let slab_decay = 4.0 / n as f64;
        let copies = 3000;
        let config = EmMcmc {
            sghmc: sghmc(0.1, NoiseRule::Exact, slab_decay),
            spike_decay: 400.0 / n as f64,
            soft_threshold: SoftThreshold::Given(if spike { 1e9 } else { 1e-30 }),
            hard_threshold: HardThreshold::Given(1e-30),
            warm_up_epochs: 0,
            freeze_after_epochs: None,
            after_freeze: AfterFreeze::Em,
            cadence: Cadence::Step,
            regrow: false,
            draw: None,
        };
        let mut network = thinfer_engine::NetworkBuilder::new(3 * copies);
        let out = network.linear_with("w", network.input(), 1, false).unwrap();
        let network = network.finish(out, thinfer_engine::Loss::gaussian(1.0)).unwrap();
        let groups = group_network(&network, Grouping::Weight, None);
        let key = Key::new(5, 0, Stream::Sampler);
        let inner = EmMcmcMethod { config, groups, channels: None, key };
        assert_regression_posterior(&FromEpochOne(inner), &target, n, 0.1);
    }
}

/// Shows the method epoch 1 instead of 0, so that EM is past its warm-up from the first step.
struct FromEpochOne(EmMcmcMethod);

impl Method for FromEpochOne {
    fn state_buffers(&self) -> usize {
        self.0.state_buffers()
    }
    fn start(&self, arena: &mut Arena, key: Key) -> thinfer::Result<()> {
        self.0.start(arena, key)
    }
    fn update(&self, arena: &mut Arena, tick: Tick) {
        self.0.update(arena, Tick { epoch: 1, ..tick });
    }
    fn vitals(&self, arena: &Arena, tick: Tick) -> thinfer::methods::Vitals {
        self.0.vitals(arena, tick)
    }
}

/// IVON finds N(m, k²/(H + wd)): with k = 1/√N the mean-field posterior, as in Table G.
#[test]
fn ivon_recovers_the_mean_field_variance() {
    let (n, delta, centre) = (1000.0f64, 1.0, 0.7);
    let copies = 2000;
    let config = Ivon { beta1: 0.9, beta2: 0.99, first_curvature: 0.5, weight_decay: delta / n };
    for h in [0.1, 1.0, 10.0] {
        let method = IvonMethod { config, key: Key::new(3, 0, Stream::Sampler) };
        let mut arena = Arena::flat(copies, method.state_buffers());
        method.start(&mut arena, method.key).unwrap();
        let rates = rates(1.0 / n.sqrt(), 0.02f64.sqrt());
        let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
        // The minimum of ½ h (w − c)² + ½ wd w².
        let mean = h * centre / (h + delta / n);
        for step in 0..4000 {
            let tick = Tick { step, epoch: 0, rates };
            method.materialize(&mut arena, tick);
            let pull = |w: &f32| (h * (f64::from(*w) - centre)) as f32;
            let g: Vec<f32> = arena.forward().iter().map(pull).collect();
            arena.set_gradient(&g).unwrap();
            method.update(&mut arena, tick);
            if step >= 2000 && step % 10 == 0 {
                for w in method.sample(&arena, tick) {
                    sum += f64::from(w) - mean;
                    squares += (f64::from(w) - mean).powi(2);
                }
                count += copies as f64;
            }
        }
        let want = 1.0 / (n * h + delta).sqrt();
        let sigma = (squares / count).sqrt();
        assert!((sigma / want - 1.0).abs() < 0.02, "H {h}: σ {sigma} against {want}");
        assert!((sum / count).abs() < 0.02 * want, "H {h}: mean off by {}", sum / count);
    }
}

/// Table G: the ρ update finds the mean-field standard deviation 1/√(N H + δ) with α = 0.3,
/// N = 1000, δ = 1; the printed form saturates at α.
#[test]
fn the_rho_update_recovers_the_mean_field_variance() {
    let (alpha, n, delta) = (0.3, 1000.0, 1.0);
    let copies = 2000;
    let config = CvAdam {
        beta1: 0.1,
        beta2: 1.0,
        weight_decay: delta / n,
        train_rows: n as usize,
        alpha: Some(alpha),
    };
    for (h, want) in [(0.1, 0.0995), (1.0, 0.0316), (10.0, 0.0100)] {
        let method = CvAdamMethod { config, key: Key::new(3, 0, Stream::Sampler) };
        let mut arena = Arena::flat(copies, 2);
        method.start(&mut arena, method.key).unwrap();
        let rates = Rates {
            step_size: 0.02 / h,
            step_size_before: 0.02 / h,
            temperature: 1.0,
            eta: 1.0,
            decay_factor: 1.0,
        };
        let (mut total, mut count) = (0.0, 0.0);
        for step in 0..6000 {
            let tick = Tick { step, epoch: 0, rates };
            method.materialize(&mut arena, tick);
            let g: Vec<f32> = arena.forward().iter().map(|w| h as f32 * w).collect();
            arena.set_gradient(&g).unwrap();
            method.update(&mut arena, tick);
            if step >= 4000 && step % 10 == 0 {
                let tau = arena.state(cv_adam::RHO).iter().map(|r| elementary::sigmoid(*r));
                total += tau.map(|t| f64::from(t).powi(2)).sum::<f64>() / copies as f64;
                count += 1.0;
            }
        }
        let sigma = alpha * (total / count).sqrt();
        assert!((sigma / want - 1.0).abs() < 0.02, "H {h}: σ {sigma} against {want}");
    }
    // The printed update, with the same α = k Δt^{3/2}.
    let coeffs = Coeffs {
        beta1: 0.1,
        memory: 0.1,
        beta2: 1.0,
        dt: 1.0,
        k: alpha as f32,
        eta: 0.01,
        n: n as f32,
        slab_decay: (delta / n) as f32,
        spike_decay: (delta / n) as f32,
        noise: NoiseRule::Paper,
        rho: RhoRule::Printed,
        freeze: false,
    };
    let key = Key::new(3, 0, Stream::Sampler);
    let mut rho = 0.0f32;
    for step in 0..200_000 {
        let (tau, eps) = (elementary::sigmoid(rho), key.normal(step, 0));
        let w = alpha as f32 * tau * eps;
        rho = rho_step(&coeffs, rho, Tau::new(tau), 0.0, 10.0 * w, coeffs.slab_decay, eps);
    }
    let saturated = alpha * f64::from(elementary::sigmoid(rho));
    assert!(saturated > 0.27, "the printed form gives {saturated}, not the saturated 0.300");
}

/// Section 11.F: with the settings for CIFAR τ drifts to 0.634 whatever the curvature.
#[test]
fn tau_drifts_whatever_the_curvature() {
    let n = 50_000.0f64;
    let steps = 200 * 782;
    for h in [1e-3, 1.0] {
        let mut coeffs = Coeffs {
            beta1: 0.1,
            memory: 0.1,
            beta2: 1.0,
            dt: 1.0,
            k: (1.0 / n) as f32,
            eta: 0.1,
            n: n as f32,
            slab_decay: 5e-4,
            spike_decay: 5e-4,
            noise: NoiseRule::Paper,
            rho: RhoRule::Code,
            freeze: false,
        };
        let key = Key::new(1, 0, Stream::Sampler);
        let (mut w, mut v, mut rho) = ([0.0f32], [0.0f32], [0.0f32]);
        for step in 0..steps {
            let phase = (step % (steps / 4)) as f64 / (steps / 4) as f64;
            coeffs.dt = (0.5 * ((std::f64::consts::PI * phase).cos() + 1.0)).sqrt() as f32;
            let (before, now) = (key.normal(step, 0), key.normal(step + 1, 0));
            let g = [h as f32 * w[0]];
            sghmc::step(
                &coeffs,
                &mut w,
                &mut v,
                &mut rho,
                Gradient { values: &g, factor: 1.0 },
                &[3],
                &[before],
                &[now],
            );
        }
        let tau = elementary::sigmoid(rho[0]);
        assert!((tau - 0.6343).abs() < 0.002, "H {h}: τ {tau}");
    }
}

/// Without noise and with τ frozen the step is SGD with momentum: v = −β₂ Δt² buf, lr = τ β₂ Δt².
/// With Δt, β₂ and τ powers of two even the bits agree.
#[test]
fn without_noise_the_sampler_is_sgd_with_momentum() {
    for beta2 in [1.0, 0.5] {
        let config = Sghmc { beta2, ..sghmc(0.9, NoiseRule::Exact, 1e-3) };
        let (mut arena, n) = (Arena::flat(64, 2), 64);
        let method = method(config);
        method.start(&mut arena, method.key).unwrap();
        let mut w = vec![0.0f32; n];
        Key::new(2, 0, Stream::Initial).normals(0, 0, &mut w);
        arena.set_weights(&w).unwrap();
        let mut buf = vec![0.0f32; n];
        for step in 0..200 {
            let slope = |(i, w): (usize, &f32)| (1.0 + i as f32) * 0.05 * w;
            let g: Vec<f32> = w.iter().enumerate().map(slope).collect();
            let rate = 0.5 * 0.0625 * beta2 as f32;
            let c = sgd::Coeffs { momentum: 0.9, decay: 1e-3, rate, nesterov: false };
            sgd::step(&c, &mut w, &mut buf, &g);
            arena.set_gradient(&g).unwrap();
            method.update(&mut arena, Tick { step, epoch: 0, rates: rates(0.0, 0.25) });
            assert_eq!(arena.weights(), w, "step {step}, β₂ {beta2}");
        }
    }
}

/// With the printed sign `w − τ v` the step climbs (section 11): 200 steps of [`sghmc::step`] on ½
/// w² without noise, with its sign and with the other one, for which each step is turned round.
#[test]
fn the_printed_sign_ascends() {
    let c = Coeffs {
        beta1: 0.1,
        memory: 0.1,
        beta2: 1.0,
        dt: 0.1f32.sqrt(),
        k: 0.0,
        eta: 0.0,
        n: 1.0,
        slab_decay: 0.0,
        spike_decay: 0.0,
        noise: NoiseRule::Exact,
        rho: RhoRule::Exact,
        freeze: false,
    };
    let after = |printed: bool| {
        let (mut w, mut v, mut rho) = ([1.0f32], [0.0f32], [0.0f32]);
        for _ in 0..200 {
            let before = w[0];
            let g = Gradient { values: &[before], factor: 1.0 };
            sghmc::step(&c, &mut w, &mut v, &mut rho, g, &[3], &[0.0], &[0.0]);
            if printed {
                w[0] = before - (w[0] - before);
            }
        }
        w[0].abs()
    };
    // The same recursion in double precision: 1.01e-5 and 4.65e4.
    assert!((after(false) / 1.01e-5 - 1.0).abs() < 0.01, "{}", after(false));
    assert!((after(true) / 4.65e4 - 1.0).abs() < 0.01, "{}", after(true));
}
