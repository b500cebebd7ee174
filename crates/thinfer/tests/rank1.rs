//! The Rank-1 BNN: its divergence, its start, where it comes to rest, and what it predicts.

mod common;

use thinfer::data::{ImageData, Images};
use thinfer::images::{classify, image_size};
use thinfer::methods::rank1::{Coeffs, LOCATION, PRE_SCALE, Rank1, divergence, first_scale, pull};
use thinfer::methods::{Method, Rates, Tick, initialize, sgd};
use thinfer::model::{image_network, rank1};
use thinfer::shrink::{Layout, shrink};
use thinfer::train::{Chain, ChainSpec};
use thinfer_engine::elementary::softplus;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{
    Arena, Dataset, Draw, Law, Loss, Mixture, Network, NetworkBuilder, Plan, Role, Shape,
};

use common::SHAPE;

const LAWS: [Law; 2] = [Law::Gaussian, Law::Cauchy];

fn log_density(law: Law, x: f64, location: f64, scale: f64) -> f64 {
    let z = (x - location) / scale;
    let (pi, two_pi) = (std::f64::consts::PI, std::f64::consts::TAU);
    match law {
        Law::Gaussian => -0.5 * z * z - scale.ln() - 0.5 * two_pi.ln(),
        Law::Cauchy => -(1.0 + z * z).ln() - scale.ln() - pi.ln(),
    }
}

/// ∫ q (ln q − ln p), with x = m + σ tan(t), which takes the Cauchy tails to an interval.
#[test]
fn the_divergence_is_that_of_an_integral() {
    for law in LAWS {
        for (location, scale, prior) in [(1.0, 0.1, 0.1), (-1.0, 0.0316, 0.1), (1.7, 0.6, 0.25)] {
            let n = 50_000;
            let width = std::f64::consts::PI / n as f64;
            let sum: f64 = (0..n)
                .map(|i| {
                    let t = (i as f64 + 0.5) * width - std::f64::consts::FRAC_PI_2;
                    let x = location + scale * t.tan();
                    let q = log_density(law, x, location, scale);
                    let p = log_density(law, x, 1.0, prior);
                    let density = q.exp() * scale / t.cos().powi(2);
                    if density == 0.0 { 0.0 } else { density * (q - p) * width }
                })
                .sum();
            let formula = divergence(law, location, scale, prior);
            assert!((sum - formula).abs() < 1e-4 * (1.0 + formula), "{law:?}: {sum} {formula}");
        }
        assert!(divergence(law, 1.0, 0.1, 0.1).abs() < 1e-12);
    }
}

fn coeffs(law: Law, kl: f32) -> Coeffs {
    let sgd = sgd::Coeffs { momentum: 0.9, decay: 0.0, rate: 0.1, nesterov: true };
    Coeffs { sgd, kl, prior: 0.1, law }
}

#[test]
fn pulls_are_the_slopes_of_the_divergence() {
    for law in LAWS {
        for (m, r) in [(1.0f32, -3.0f32), (-1.0, -3.5), (1.3, 0.5), (0.9, -2.2)] {
            let at = |m: f64, r: f64| divergence(law, m, r.exp().ln_1p(), 0.1);
            let (m64, r64, h) = (f64::from(m), f64::from(r), 1e-5);
            let of_m = (at(m64 + h, r64) - at(m64 - h, r64)) / (2.0 * h);
            let of_r = (at(m64, r64 + h) - at(m64, r64 - h)) / (2.0 * h);
            let [pull_m, pull_r] = pull(&coeffs(law, 0.5), m, r).map(f64::from);
            assert!((pull_m - 0.5 * of_m).abs() < 1e-4 * (1.0 + of_m.abs()), "{pull_m} {of_m}");
            assert!((pull_r - 0.5 * of_r).abs() < 1e-4 * (1.0 + of_r.abs()), "{pull_r} {of_r}");
        }
    }
}

fn method(law: Law, train_rows: usize) -> Rank1 {
    Rank1 {
        momentum: 0.9,
        weight_decay: 2e-4,
        train_rows,
        law,
        prior_sd: 0.1,
        kl_steps: 1.0,
        random_sign: 0.75,
        first_scale: first_scale(law),
    }
}

fn tick(step: u64, step_size: f64) -> Tick {
    let rates = Rates {
        step_size,
        step_size_before: step_size,
        temperature: 0.0,
        eta: 0.0,
        decay_factor: 1.0,
    };
    Tick { step, epoch: 0, rates }
}

fn started(network: &Network, method: &Rank1) -> Arena {
    let mut arena = Arena::new(network, method.state_buffers());
    initialize(&mut arena, network.loss(), 3, 0).unwrap();
    method.start(&mut arena, Key::new(3, 0, Stream::Sampler)).unwrap();
    arena
}

/// methods.md 6.3: κ = min(1, (step + 1) / (steps of an epoch · A)), over N.
#[test]
fn the_divergence_counts_in_full_after_the_annealing() {
    let method = Rank1 { kl_steps: 40.0, ..method(Law::Gaussian, 50) };
    for (step, kappa) in [(0, 1.0 / 40.0), (9, 0.25), (39, 1.0), (40, 1.0), (4000, 1.0)] {
        let kl = f64::from(method.coeffs(tick(step, 0.1)).kl);
        assert!((kl * 50.0 - kappa).abs() < 1e-6, "step {step}: {kl}");
    }
}

/// Both laws begin with the variance of a dropout rate of one in a thousand, cut off where scales
/// are.
#[test]
fn both_laws_begin_with_the_same_variance() {
    for law in LAWS {
        let (scale, far) = (first_scale(law), Law::FARTHEST);
        // In steps of ln x, since the Cauchy law reaches over five orders of magnitude.
        let (steps, least) = (200_000, scale * 1e-4);
        let width = (1e4 * far / least).ln() / f64::from(steps);
        let part = |i: u32| {
            let x = least * (width * (f64::from(i) + 0.5)).exp();
            2.0 * x.min(far).powi(2) * log_density(law, x, 0.0, scale).exp() * x * width
        };
        let variance: f64 = (0..steps).map(part).sum();
        assert!((variance / (0.001 / 0.999) - 1.0).abs() < 1e-3, "{law:?}: {variance}");
    }
}

#[test]
fn it_starts_as_the_authors_program_does() {
    let shape = Shape { height: 8, width: 8, channels: 3 };
    let plain = image_network("wrn-10-4", shape, 10).unwrap();
    for law in LAWS {
        let network = rank1(&plain, Mixture { members: 4, law, draws: 1 }).unwrap();
        let arena = started(&network, &method(law, 100));
        let (mut up, mut all, mut scales) = (0.0, 0.0, Vec::new());
        for param in network.params() {
            let w = &arena.weights()[param.range()];
            match param.role {
                Role::RandomScale => {
                    for (at, pair) in param.range().step_by(2).zip(w.chunks_exact(2)) {
                        assert!(pair[0].abs() == 1.0);
                        up += f64::from(u8::from(pair[0] > 0.0));
                        all += 1.0;
                        scales.push(pair[1]);
                        assert_eq!(arena.marks()[at] & (LOCATION | PRE_SCALE), LOCATION);
                        assert_eq!(arena.marks()[at + 1] & (LOCATION | PRE_SCALE), PRE_SCALE);
                    }
                }
                Role::Bias => assert!(w.iter().all(|w| *w == 0.0)),
                Role::NormScale => assert!(w.iter().all(|w| *w == 1.0)),
                role if role.is_weight() && w.len() > 1000 => {
                    let n = w.len() as f64;
                    let square = w.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / n;
                    let he = 2.0 / param.fan_in() as f64;
                    assert!((square / he - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{}", param.name);
                }
                _ => {}
            }
        }
        assert!((up / all - 0.75).abs() < 5.0 * (0.75 * 0.25 / all).sqrt(), "{up} of {all}");
        // Pre-scales around ln(e^0.0316 − 1), normal and cut off at two standard deviations; of the
        // Cauchy law all the same, around ln(e^7.9e-5 − 1).
        let (first, center) =
            if law == Law::Gaussian { (0.0316, -3.4375) } else { (7.86e-5, -9.451) };
        let away = |r: &f32| (r - center).abs();
        assert!(scales.iter().all(|r| away(r) < 0.2001));
        assert_eq!(scales.iter().any(|r| away(r) > 0.1), law == Law::Gaussian);
        assert!((softplus(scales[0]) / first - 1.0).abs() < 0.25);
    }
}

#[test]
fn nothing_of_it_is_cut_out() {
    let shape = Shape { height: 8, width: 8, channels: 3 };
    let plain = image_network("wrn-10-1", shape, 10).unwrap();
    let mixture = Mixture { members: 2, law: Law::Gaussian, draws: 1 };
    let network = rank1(&plain, mixture).unwrap();
    let mut keep = vec![1; network.params().len()];
    assert_eq!(shrink(&network, &keep, Layout::SMALLEST).unwrap().network, network);
    let size = image_size(&network, &keep).unwrap();
    assert_eq!((size.kept, size.bytes.kernels), (keep.len(), size.bytes.whole));
    keep[5] = 0;
    let error = shrink(&network, &keep, Layout::SMALLEST).unwrap_err().to_string();
    assert!(error.contains("random scales"), "{error}");
}

/// Without data q becomes the prior, whatever its family.
#[test]
fn without_data_the_posterior_is_the_prior() {
    for law in LAWS {
        let mut b = NetworkBuilder::new(5);
        let out = b.vary("a", b.input(), Mixture { members: 2, law, draws: 1 }, true).unwrap();
        let network = b.finish(out, Loss::gaussian(1.0)).unwrap();
        let method = method(law, 10);
        let mut arena = started(&network, &method);
        arena.set_gradient(&vec![0.0; arena.len()]).unwrap();
        for step in 0..5000 {
            method.update(&mut arena, tick(step, 0.02));
        }
        for pair in arena.weights()[..20].chunks_exact(2) {
            assert!((pair[0] - 1.0).abs() < 1e-3, "{law:?}: {pair:?}");
            assert!((softplus(pair[1]) - 0.1).abs() < 1e-3, "{law:?}: {pair:?}");
        }
    }
}

/// y = s x + noise with the prior N(1, 0.1²) on s. The loss is a mean over K members and the
/// divergence their sum, so each member has the posterior of a likelihood to the power 1/K: N(m,
/// σ²) with 1/σ² = Σx²/K + 100 and m = σ² (Σxy/K + 100). A fresh s for every row and step has the
/// same optimum, because the expected loss depends on m and σ alone.
#[test]
fn a_linear_model_comes_to_rest_at_the_conjugate_posterior() {
    let rows = 60;
    let key = Key::new(8, 0, Stream::Inputs);
    let x: Vec<f32> = (0..rows).map(|i| 2.0 * key.normal(0, i)).collect();
    let y: Vec<f32> = (0..rows).map(|i| 1.6 * x[i] + key.normal(1, i)).collect();
    let sum = |f: &dyn Fn(usize) -> f32| (0..rows).map(|i| f64::from(f(i))).sum::<f64>();
    let precision = sum(&|i| x[i] * x[i]) / 3.0 + 100.0;
    let mean = (sum(&|i| x[i] * y[i]) / 3.0 + 100.0) / precision;

    let mut b = NetworkBuilder::new(1);
    let mixture = Mixture { members: 3, law: Law::Gaussian, draws: 1 };
    let out = b.vary("a", b.input(), mixture, false).unwrap();
    let network = b.finish(out, Loss::gaussian(1.0)).unwrap();
    let data = Dataset::new(1, 1, x, y).unwrap();
    let method = method(Law::Gaussian, rows);
    let mut arena = started(&network, &method);
    let mut plan = Plan::new(&network, rows).unwrap();
    let order: Vec<u32> = (0..rows as u32).collect();
    let (steps, burn_in) = (5000, 1000);
    let mut found = [[0.0; 2]; 3];
    // A network of one scale is done before another thread has woken up.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    alone.install(|| {
        for step in 0..steps {
            plan.set_draw(Draw::of_step(1, 0, step));
            plan.gradient(&mut arena, &data, &order).unwrap();
            method.update(&mut arena, tick(step, 0.01));
            if step < burn_in {
                continue;
            }
            for (found, pair) in found.iter_mut().zip(arena.weights().chunks_exact(2)) {
                found[0] += f64::from(pair[0]) / (steps - burn_in) as f64;
                found[1] += f64::from(softplus(pair[1])) / (steps - burn_in) as f64;
            }
        }
    });
    for [m, sd] in found {
        assert!((m - mean).abs() < 0.005, "{m} against {mean}");
        assert!(
            (sd * precision.sqrt() - 1.0).abs() < 0.03,
            "{sd} against {}",
            precision.powf(-0.5)
        );
    }
}

fn data() -> ImageData {
    common::data([120, 150], 0)
}

fn spec(settings: &[&str], data: &ImageData) -> ChainSpec {
    let small = [
        "method.kind=rank1",
        "train.epochs=30",
        "train.evaluate_every_epochs=30",
        "schedule.step_size.at_epochs=[25]",
    ];
    common::spec(&small, settings, data)
}

#[test]
fn it_learns_and_a_prediction_is_the_mean_over_members_and_draws() {
    let data = data();
    for (law, draws) in [("gaussian", 1), ("cauchy", 4)] {
        let spec = spec(&[&format!("method.posterior={law}"), "method.members=2"], &data);
        let network = spec.network.clone();
        let mixture = network.mixture().unwrap();
        assert_eq!((mixture.members, mixture.draws), (2, draws));
        let mut chain = Chain::start(spec).unwrap();
        while !chain.is_done() {
            chain.advance(&data).unwrap();
        }
        let record = chain.records().last().unwrap();
        assert!(record.test_accuracy.unwrap() > 0.9, "{law}: {record:?}");
        let members = chain.snapshots();
        assert_eq!(members.len(), 1);
        let bytes = image_size(&network, &members[0].keep).unwrap().bytes;
        assert_eq!(bytes.whole, 4 * (network.params().len() + network.stats().len()));
        assert_eq!((bytes.kernels, bytes.channels), (bytes.whole, bytes.whole));
        let views = classify(&network, members, &data.test, &data.augment, None).unwrap();
        assert_eq!(views.len(), 2 * draws);
        let mean = |at: usize| views.iter().map(|v| v[at]).sum::<f64>() / views.len() as f64;
        let got: Vec<f64> = (0..views[0].len()).map(mean).collect();
        // Members and draws differ, and that is what the network does not know.
        let tables: Vec<&[f64]> = views.iter().map(Vec::as_slice).collect();
        let unknown = thinfer::metrics::uncertainty(&tables, 2);
        assert!(unknown.iter().any(|u| u.mutual_information > 1e-4), "{law}");

        let Images::Held(test) = &data.test else { panic!("the images are held") };
        let augment = data.augment.without_chance();
        let mut inputs = vec![0.0; test.labels().len() * SHAPE.len()];
        let choice = augment.choice(Key::new(0, 0, Stream::Augment), 0, 0);
        for (row, to) in inputs.chunks_exact_mut(SHAPE.len()).enumerate() {
            augment.image(test.image(row), choice, to).unwrap();
        }
        let table = Dataset::new(SHAPE.len(), 1, inputs, Vec::new()).unwrap();
        let mut plan = Plan::new(&network, 33).unwrap();
        let mut want = vec![0.0; got.len()];
        for view in mixture.views() {
            let mut logits = vec![0.0; got.len()];
            plan.set_draw(view);
            let (w, stats) = (&members[0].weights, &members[0].stats);
            plan.forward(w, stats, &table, 0..table.rows(), &mut logits).unwrap();
            for (want, pair) in want.chunks_exact_mut(2).zip(logits.chunks_exact(2)) {
                let second = 1.0 / (1.0 + f64::from(pair[0] - pair[1]).exp());
                want[0] += (1.0 - second) / (2 * draws) as f64;
                want[1] += second / (2 * draws) as f64;
            }
        }
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

#[test]
fn a_cut_in_any_step_changes_no_bit() {
    let data = data();
    for law in ["gaussian", "cauchy"] {
        let law = format!("method.posterior={law}");
        let spec = spec(&[&law, "method.members=2", "train.epochs=3"], &data);
        let finish = |mut chain: Chain| {
            while !chain.is_done() {
                chain.advance(&data).unwrap();
            }
            chain.to_bytes().unwrap()
        };
        let whole = finish(Chain::start(spec.clone()).unwrap());
        for cut in [1, 3, 7] {
            let mut chain = Chain::start(spec.clone()).unwrap();
            while chain.step() < cut {
                chain.advance(&data).unwrap();
            }
            let bytes = chain.to_bytes().unwrap();
            let path = std::path::Path::new("memory");
            let again = Chain::from_bytes(spec.clone(), path, &bytes, |_| Ok(Vec::new())).unwrap();
            assert!(finish(again) == whole, "{law}: differs after a cut at step {cut}");
        }
    }
}
