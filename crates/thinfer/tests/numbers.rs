//! Numbers that a wrong formula would change without another test noticing.

use thinfer::evaluate::score;
use thinfer::methods::sghmc::{Coeffs, Gradient, NoiseRule, RhoRule, step};
use thinfer::metrics::Noise;
use thinfer::posterior::Predictive;
use thinfer::prune::{ALIVE, Channels, Goal, KEEP, Rule};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, Loss, NetworkBuilder, Shape, Window};

/// The density of y = mean + sd z is that of z divided by sd, so its −ln is larger by ln sd.
#[test]
fn scores_of_regression_are_in_the_units_of_the_target() {
    let data = Dataset::new(1, 1, vec![0.0; 2], vec![0.5, -1.0]).unwrap();
    let (mean, sd) = (10.0, 4.0);
    let (f, sigma) = ([0.2, -0.4], 0.8);
    let predictive = Predictive::Regression {
        noise: Noise::Normal,
        means: vec![f.to_vec()],
        sigmas: vec![sigma].into(),
    };
    let scores = score(&predictive, &data, (mean, sd));
    let (mut nll, mut mse) = (0.0, 0.0);
    for (z, f) in [0.5, -1.0].into_iter().zip(f) {
        let (y, centre, width): (f64, f64, f64) = (mean + sd * z, mean + sd * f, sd * sigma);
        let density = (-0.5 * ((y - centre) / width).powi(2)).exp()
            / (width * (2.0 * std::f64::consts::PI).sqrt());
        nll -= density.ln() / 2.0;
        mse += (y - centre).powi(2) / 2.0;
    }
    assert!((scores.nll.unwrap() - nll).abs() < 1e-12, "{:?} {nll}", scores.nll);
    assert!((scores.mse.unwrap() - mse).abs() < 1e-6, "{:?} {mse}", scores.mse);
}

/// Two weights that differ in their mark alone. In double precision, tolerance 1e-6:
/// ```python
/// b1, b2, dt, k, eta, n = 0.5, 1.0, 0.5, 2.0, 0.1, 100.0
/// for d in [0.01, 0.5]:                                     # slab, spike
///     w, v, r, g, before, eps = 0.4, 0.1, 0.3, 0.2, -0.7, 0.5
///     alpha = k * dt**1.5; tau = 1 / (1 + exp(-r)); s = k * dt * sqrt(2 * (1 - b1) / tau)
///     r += eta * (1 / (n * tau) - alpha**2 * d * tau - alpha**2 / s * before * g)
///     tau = 1 / (1 + exp(-r)); s = k * dt * sqrt(2 * (1 - b1) / tau)
///     v = b1 * v - b2 * dt**2 * (g + d * w) + s * eps; w += tau * v
/// ```
#[test]
fn a_weight_in_the_spike_has_the_decay_of_the_spike_in_velocity_and_rho() {
    let coeffs = Coeffs {
        memory: 0.5,
        beta1: 0.5,
        beta2: 1.0,
        dt: 0.5,
        k: 2.0,
        eta: 0.1,
        n: 100.0,
        slab_decay: 0.01,
        spike_decay: 0.5,
        noise: NoiseRule::Exact,
        rho: RhoRule::Exact,
        freeze: false,
    };
    let (mut w, mut v, mut rho) = ([0.4f32; 2], [0.1f32; 2], [0.3f32; 2]);
    let g = Gradient { values: &[0.2; 2], factor: 1.0 };
    step(&coeffs, &mut w, &mut v, &mut rho, g, &[ALIVE, KEEP], &[-0.7; 2], &[0.5; 2]);
    let golden = [(0.7789282, 0.6577541, 0.306759), (0.7497367, 0.6107301, 0.2926852)];
    for (at, (golden_w, golden_v, golden_rho)) in golden.into_iter().enumerate() {
        let pairs = [("w", w[at], golden_w), ("v", v[at], golden_v), ("rho", rho[at], golden_rho)];
        for (name, got, want) in pairs {
            assert!((got - want).abs() < 1e-6f32, "{name} of weight {at}: {got}, not {want}");
        }
    }
}

/// Nine weights of its filter, its scale and its shift go with a channel: a target asks for no
/// more channels than reach it, counted by the marks that are gone.
#[test]
fn a_target_counts_scale_and_shift_of_a_norm() {
    let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 1 });
    let at = b.input();
    let at = b.conv2d("conv", at, 20, Window::square(3, 1, 1)).unwrap();
    let at = b.batch_norm("bn", at).unwrap();
    let at = b.global_average_pool(at).unwrap();
    let out = b.linear("fc", at, 2).unwrap();
    let network = b.finish(out, Loss::cross_entropy()).unwrap();
    let key = Key::new(1, 0, Stream::Initial);
    let weights: Vec<f32> = (0..network.params().len()).map(|i| key.normal(0, i)).collect();
    let scales = network.params().find("bn.weight").unwrap().range();
    let channels = Channels::new(&network, Rule::Range, false);
    for percent in (5..70).step_by(5) {
        let asked = f64::from(percent) / 100.0 * weights.len() as f64;
        let mut marks = vec![ALIVE; weights.len()];
        channels.prune(&weights, Goal::Share(f64::from(percent) / 100.0), false, &mut marks);
        let gone = |marks: &[u8]| marks.iter().filter(|mark| *mark & KEEP == 0).count();
        let (pruned, of_norm) = (gone(&marks), gone(&marks[scales.clone()]));
        let each = pruned / of_norm;
        assert_eq!(pruned, each * of_norm, "{percent} %");
        assert!(pruned as f64 >= asked, "{percent} %: {pruned} of {asked}");
        assert!(((pruned - each) as f64) < asked, "{percent} %: {pruned} of {asked}, {each} each");
    }
}
