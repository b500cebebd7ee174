use super::*;
use crate::arena::Arena;
use crate::error::EngineError;
use crate::mixture::{Law, Mixture};
use crate::network::NetworkBuilder;
use crate::noise::{Key, Stream};
use crate::ops::loss::{Loss, Scale};
use crate::param::Role;
use crate::plan::Plan;
use crate::shape::{Shape, Window};

fn random(n: usize, seed: u64, scale: f32) -> Vec<f32> {
    let mut values = vec![0.0; n];
    Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
    values.iter_mut().for_each(|v| *v *= scale);
    values
}

fn image(height: usize, width: usize, channels: usize) -> NetworkBuilder {
    NetworkBuilder::image(Shape { height, width, channels })
}

fn data(network: &Network, rows: usize) -> Dataset {
    let (p, q) = (network.input_len(), network.output_len());
    let width = network.loss().target_len(q);
    let targets = (0..rows * width)
        .map(|i| {
            let normal = Key::new(9, 0, Stream::Observation).normal(0, i);
            let number = if network.loss() == &Loss::Bernoulli { i } else { i * 7 };
            network.loss().some_target(q, number, normal)
        })
        .collect();
    Dataset::new(p, width, random(rows * p, 5, 1.0), targets).unwrap()
}

fn stats(network: &Network) -> Vec<f64> {
    let arena = Arena::new(network, 0);
    arena.stats().iter().map(|v| f64::from(*v)).collect()
}

/// |analytic − central difference| ≤ 2e-6 (|gradient| + 1) for every parameter, in f64. Kinks of
/// ReLU and max pooling closer than the step are the reason for no tighter bound.
fn check_gradient(network: &Network, rows: usize) {
    let data = data(network, rows);
    let order: Vec<u32> = (0..rows as u32).rev().collect();
    let mut exec = Exec::<f64>::new(network, rows, Passes::ForwardAndBack);
    let n = network.params().len();
    let mut w: Vec<f64> = random(n, 1, 0.5).into_iter().map(f64::from).collect();
    let mut stats = stats(network);
    let (mut gradient, mut scratch) = (vec![0.0; n], vec![0.0; n]);
    exec.gradient(&w, &mut stats, &data, &order, &mut gradient);
    for i in 0..n {
        let h = 1e-6;
        let middle = w[i];
        w[i] = middle + h;
        let above = exec.gradient(&w, &mut stats, &data, &order, &mut scratch);
        w[i] = middle - h;
        let below = exec.gradient(&w, &mut stats, &data, &order, &mut scratch);
        w[i] = middle;
        let (got, want) = (gradient[i], (above - below) / (2.0 * h));
        let name = &network.params().owner(i).unwrap().name;
        assert!((got - want).abs() <= 2e-6 * (want.abs() + 1.0), "{name}: {got} against {want}");
    }
}

/// A convolution, something after it that makes its input gradient matter, and a linear head.
fn two_convolutions(
    height: usize,
    width: usize,
    channels: [usize; 3],
    windows: [Window; 2],
) -> Network {
    let mut b = image(height, width, channels[0]);
    let h = b.conv2d_with("conv1", b.input(), channels[1], windows[0], true).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.conv2d("conv2", h, channels[2], windows[1]).unwrap();
    let h = b.tanh(h).unwrap();
    let out = b.linear("fc", h, 2).unwrap();
    b.finish(out, Loss::gaussian(1.0)).unwrap()
}

/// The block of a residual network: two batch norms, a projected shortcut with a third, a maximum
/// over overlapping windows, and the mean of all pixels.
fn residual() -> Network {
    let mut b = image(9, 7, 2);
    let h = b.conv2d("conv1", b.input(), 4, Window::square(3, 1, 1)).unwrap();
    let h = b.batch_norm("bn1", h).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.max_pool(h, Window::square(3, 2, 1)).unwrap();
    let r = b.conv2d("conv2", h, 5, Window::square(3, 2, 1)).unwrap();
    let r = b.batch_norm("bn2", r).unwrap();
    let r = b.relu(r).unwrap();
    let r = b.conv2d("conv3", r, 5, Window::square(3, 1, 1)).unwrap();
    let r = b.batch_norm("bn3", r).unwrap();
    let s = b.conv2d("shortcut", h, 5, Window::square(1, 2, 0)).unwrap();
    let s = b.batch_norm("bn4", s).unwrap();
    let h = b.add(r, s).unwrap();
    let h = b.relu(h).unwrap();
    let r = b.conv2d("conv4", h, 5, Window::square(3, 1, 1)).unwrap();
    let h = b.add(r, h).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let out = b.linear("fc", h, 3).unwrap();
    b.finish(out, Loss::CrossEntropy { smoothing: 0.1 }).unwrap()
}

/// Means of windows that overlap and of such as tile the image, on a graph with two readers.
fn averages() -> Network {
    let mut b = image(7, 6, 2);
    let h = b.conv2d("conv1", b.input(), 3, Window::square(3, 1, 1)).unwrap();
    let h = b.tanh(h).unwrap();
    let window = Window { size: [3, 2], stride: [1, 2], padding: [1, 1] };
    let h = b.average_pool(h, window).unwrap();
    let r = b.average_pool(h, Window::square(3, 1, 1)).unwrap();
    let h = b.add(h, r).unwrap();
    let h = b.average_pool(h, Window::square(2, 2, 0)).unwrap();
    let out = b.linear("fc", h, 3).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

/// A block that reads some channels of a stream and writes others, as shrunk networks have them.
fn indexed() -> Network {
    let mut b = image(6, 5, 2);
    let h = b.conv2d("conv1", b.input(), 5, Window::square(3, 1, 1)).unwrap();
    let r = b.select(h, vec![4, 0, 2]).unwrap();
    let r = b.batch_norm("bn1", r).unwrap();
    let r = b.tanh(r).unwrap();
    let r = b.conv2d("conv2", r, 2, Window::square(3, 1, 1)).unwrap();
    let r = b.spread(r, vec![3, 1], 5).unwrap();
    let h = b.add(h, r).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let out = b.linear("fc", h, 3).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

/// Members with random scales around every layer, on a graph where two of them share an input.
fn varied(law: Law, members: usize) -> Network {
    let mixture = Mixture { members, law, draws: 2 };
    let mut b = image(5, 4, 3);
    let h = b.vary("conv1.in", b.input(), mixture, false).unwrap();
    let h = b.conv2d("conv1", h, 4, Window::square(3, 1, 1)).unwrap();
    let h = b.vary("conv1.out", h, mixture, false).unwrap();
    let h = b.batch_norm("bn1", h).unwrap();
    let h = b.tanh(h).unwrap();
    let r = b.vary("conv2.in", h, mixture, false).unwrap();
    let r = b.conv2d("conv2", r, 4, Window::square(3, 1, 1)).unwrap();
    let r = b.vary("conv2.out", r, mixture, true).unwrap();
    let s = b.vary("shortcut", h, mixture, false).unwrap();
    let h = b.add(r, s).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let h = b.vary("fc.in", h, mixture, false).unwrap();
    let h = b.linear_with("fc", h, 3, false).unwrap();
    let out = b.vary("fc.out", h, mixture, true).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

#[test]
fn gradients_through_random_scales_are_right() {
    for law in [Law::Gaussian, Law::Cauchy] {
        for (members, rows) in [(1, 5), (3, 4), (4, 7)] {
            check_gradient(&varied(law, members), rows);
        }
    }
}

/// Without noise and with locations of one, members are the plain network.
#[test]
fn members_without_noise_are_the_plain_network() {
    let network = varied(Law::Gaussian, 3);
    let mut w: Vec<f64> =
        random(network.params().len(), 1, 0.5).iter().map(|w| f64::from(*w)).collect();
    for param in network.params().iter().filter(|p| p.role == Role::RandomScale) {
        w[param.range()].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[1.0, -1e3]));
    }
    for param in network.params().iter().filter(|p| p.role == Role::Bias) {
        w[param.range()].fill(0.0);
    }
    let data = data(&network, 6);
    let mut exec = Exec::<f64>::new(&network, 6, Passes::ForwardAndBack);
    let (mut start, rows) = (stats(&network), [0, 1, 2, 3, 4, 5]);
    let mut gradient = vec![0.0; w.len()];
    let loss = exec.gradient(&w, &mut start, &data, &rows, &mut gradient);
    let mut b = image(5, 4, 3);
    let h = b.conv2d("conv1", b.input(), 4, Window::square(3, 1, 1)).unwrap();
    let h = b.batch_norm("bn1", h).unwrap();
    let h = b.tanh(h).unwrap();
    let r = b.conv2d("conv2", h, 4, Window::square(3, 1, 1)).unwrap();
    let h = b.add(r, h).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let out = b.linear_with("fc", h, 3, false).unwrap();
    let plain = b.finish(out, Loss::cross_entropy()).unwrap();
    let own = |values: &[f64]| -> Vec<f64> {
        let of =
            |p: &crate::Param| values[network.params().find(&p.name).unwrap().range()].to_vec();
        plain.params().iter().flat_map(of).collect()
    };
    let mut simple = vec![0.0; plain.params().len()];
    let mut exec = Exec::<f64>::new(&plain, 6, Passes::ForwardAndBack);
    let want = exec.gradient(&own(&w), &mut stats(&plain), &data, &rows, &mut simple);
    assert!((loss - want).abs() < 1e-12, "{loss} against {want}");
    assert!(own(&gradient).iter().zip(&simple).all(|(a, b)| (a - b).abs() < 1e-12));
}

/// What the member of each row is decides its prediction; which rows are its neighbours does not.
#[test]
fn random_predictions_can_be_repeated() {
    let network = varied(Law::Cauchy, 2);
    let data = data(&network, 30);
    let w = random(network.params().len(), 1, 0.5);
    let stats: Vec<f32> = stats(&network).iter().map(|v| *v as f32).collect();
    let views: Vec<Draw> = network.mixture().unwrap().views().collect();
    assert_eq!(views.len(), 4);
    let predict = |draw: Draw, most: usize, rows: std::ops::Range<usize>| {
        let mut plan = Plan::new(&network, most).unwrap();
        plan.set_draw(draw);
        let mut out = vec![0.0; rows.len() * 3];
        plan.forward(&w, &stats, &data, rows, &mut out).unwrap();
        bits(&out)
    };
    let all: Vec<Vec<u32>> = views.iter().map(|view| predict(*view, 30, 0..30)).collect();
    for (at, view) in views.iter().enumerate() {
        assert_eq!(predict(*view, 7, 0..30), all[at]);
        assert_eq!(predict(*view, 16, 11..12), all[at][33..36]);
        assert!((0..at).all(|before| all[before] != all[at]), "views differ");
    }
    // The same rows under another number are others.
    assert_ne!(predict(Draw { first_row: 1, ..views[0] }, 30, 0..30), all[0]);
}

/// A linear layer that reads some pixels of some channels, as shrunk networks have it.
fn picked() -> Network {
    let mut b = image(4, 5, 2);
    let h = b.conv2d("conv1", b.input(), 3, Window::square(3, 1, 1)).unwrap();
    let t = b.tanh(h).unwrap();
    let some = b.pick(t, vec![59, 0, 7, 31]).unwrap();
    let others = b.pick(t, vec![7, 8, 9, 10]).unwrap();
    let h = b.add(some, others).unwrap();
    let h = b.linear("fc1", h, 6).unwrap();
    let h = b.tanh(h).unwrap();
    let out = b.linear("fc2", h, 3).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

fn lenet(side: usize) -> Network {
    let mut b = image(side, side, 1);
    let h = b.conv2d_with("conv1", b.input(), 6, Window::square(5, 1, 2), true).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.max_pool(h, Window::square(2, 2, 0)).unwrap();
    let h = b.conv2d_with("conv2", h, 16, Window::square(5, 1, 0), true).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.max_pool(h, Window::square(2, 2, 0)).unwrap();
    let h = b.linear("fc1", h, 12).unwrap();
    let h = b.relu(h).unwrap();
    let out = b.linear("fc2", h, 4).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

#[test]
fn gradients_of_convolutions_are_right() {
    let odd = Window { size: [2, 3], stride: [1, 2], padding: [1, 0] };
    for (height, width, channels, windows, rows) in [
        (5, 7, [1, 3, 2], [Window::square(3, 1, 1), Window::square(3, 2, 1)], 3),
        (6, 5, [3, 2, 4], [Window::square(1, 1, 0), Window::square(1, 2, 0)], 1),
        (8, 8, [2, 6, 3], [Window::square(5, 1, 2), Window::square(5, 1, 0)], 2),
        (7, 9, [2, 3, 17], [odd, odd], 9),
        (4, 4, [1, 18, 2], [Window::square(2, 2, 0), Window::square(2, 1, 1)], 17),
        (1, 6, [4, 2, 2], [Window { size: [1, 3], stride: [1, 1], padding: [0, 1] }; 2], 2),
    ] {
        check_gradient(&two_convolutions(height, width, channels, windows), rows);
    }
}

#[test]
fn gradients_of_whole_networks_are_right() {
    for rows in [2, 5, 19] {
        check_gradient(&residual(), rows);
        check_gradient(&indexed(), rows);
        check_gradient(&averages(), rows);
        check_gradient(&picked(), rows);
    }
    check_gradient(&lenet(12), 3);
    check_gradient(&lenet(13), 1);
}

#[test]
fn gradients_of_odd_graphs_are_right() {
    // The input straight into a batch norm and a pool, one node added to itself, a ReLU whose
    // input is read twice, and learned noise.
    let mut b = image(4, 5, 3);
    let h = b.batch_norm("bn0", b.input()).unwrap();
    let h = b.max_pool(h, Window { size: [2, 2], stride: [1, 2], padding: [1, 1] }).unwrap();
    let h = b.conv2d("conv", h, 4, Window::square(2, 1, 0)).unwrap();
    let r = b.relu(h).unwrap();
    let h = b.add(h, r).unwrap();
    let h = b.add(h, h).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.batch_norm("bn1", h).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let h = b.linear("fc1", h, 3).unwrap();
    let h = b.batch_norm("bn2", h).unwrap();
    let out = b.linear_with("fc2", h, 2, false).unwrap();
    check_gradient(&b.finish(out, Loss::gaussian_learned(0.7)).unwrap(), 6);
    let mut b = image(3, 3, 2);
    let h = b.conv2d("conv", b.input(), 3, Window::square(2, 1, 0)).unwrap();
    let h = b.batch_norm("bn", h).unwrap();
    let out = b.linear("fc", h, 2).unwrap();
    let scale = Scale::ByRow { start: 0.7 };
    check_gradient(&b.finish(out, Loss::StudentT { scale, dof: 4.0 }).unwrap(), 5);
    let mut b = image(3, 3, 1);
    let h = b.max_pool(b.input(), Window::square(2, 1, 0)).unwrap();
    let h = b.relu(h).unwrap();
    let out = b.linear("fc", h, 1).unwrap();
    check_gradient(&b.finish(out, Loss::Bernoulli).unwrap(), 4);
}

#[test]
fn a_linear_network_is_the_same_in_both_executors() {
    let mut b = NetworkBuilder::new(37);
    let h = b.linear("fc1", b.input(), 21).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.linear("fc2", h, 21).unwrap();
    let out = b.tanh(h).unwrap();
    let out = b.linear("fc3", out, 3).unwrap();
    let network = b.finish(out, Loss::cross_entropy()).unwrap();
    let data = data(&network, 70);
    let order: Vec<u32> = (0..70).collect();
    let n = network.params().len();
    let w: Vec<f64> = random(n, 1, 0.3).into_iter().map(f64::from).collect();
    let (mut one, mut two) = (vec![0.0; n], vec![0.0; n]);
    let a = super::super::rows::Exec::<f64>::new(&network, 70, Passes::ForwardAndBack)
        .gradient(&w, &data, &order, &mut one);
    let b = Exec::<f64>::new(&network, 70, Passes::ForwardAndBack).gradient(
        &w,
        &mut [],
        &data,
        &order,
        &mut two,
    );
    assert!((a - b).abs() < 1e-12);
    assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-12));
}

#[test]
fn single_precision_agrees_with_double() {
    let (lists, members) = (picked(), varied(Law::Gaussian, 4));
    let cases = [(residual(), 40), (indexed(), 19), (lists, 11), (lenet(16), 21), (members, 11)];
    for (network, rows) in cases {
        let data = data(&network, rows);
        let order: Vec<u32> = (0..rows as u32).collect();
        let n = network.params().len();
        let w = random(n, 1, 0.2);
        let wide: Vec<f64> = w.iter().map(|v| f64::from(*v)).collect();
        let (mut single, mut double) = (vec![0f32; n], vec![0f64; n]);
        let mut small = stats(&network).iter().map(|v| *v as f32).collect::<Vec<_>>();
        let a = Exec::new(&network, rows, Passes::ForwardAndBack).gradient(
            &w,
            &mut small,
            &data,
            &order,
            &mut single,
        );
        let b = Exec::new(&network, rows, Passes::ForwardAndBack).gradient(
            &wide,
            &mut stats(&network),
            &data,
            &order,
            &mut double,
        );
        assert!((a - b).abs() < 1e-5 * b.abs(), "{a} against {b}");
        for (a, b) in single.iter().zip(&double) {
            assert!((f64::from(*a) - b).abs() < 1e-5 * (1.0 + b.abs()), "{a} against {b}");
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for network in [residual(), lenet(12), varied(Law::Cauchy, 3)] {
        let data = data(&network, 150);
        let rows: Vec<u32> = Key::new(1, 0, Stream::Shuffle).permutation(0, 150);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut arena = Arena::new(&network, 0);
                arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
                let mut plan = Plan::new(&network, 150).unwrap();
                let loss = plan.gradient(&mut arena, &data, &rows).unwrap();
                let mut out = vec![0.0; 150 * network.output_len()];
                plan.forward(arena.weights(), arena.stats(), &data, 0..150, &mut out).unwrap();
                (loss.to_bits(), bits(arena.gradient()), bits(arena.stats()), bits(&out))
            })
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            assert_eq!(one, run(threads), "{threads} threads");
        }
    }
}

#[test]
fn a_smaller_batch_in_a_larger_plan_is_the_same() {
    let network = residual();
    let data = data(&network, 300);
    for rows in [1, 7, 9, 77, 129] {
        let order: Vec<u32> = (0..rows).collect();
        let mut gradients = Vec::new();
        for most in [rows as usize, 200, 300] {
            let mut arena = Arena::new(&network, 0);
            arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
            let mut plan = Plan::new(&network, most).unwrap();
            // Rows of an earlier and larger batch leave nothing behind.
            let all: Vec<u32> = (0..most as u32).rev().collect();
            plan.gradient(&mut arena.clone(), &data, &all).unwrap();
            plan.gradient(&mut arena, &data, &order).unwrap();
            gradients.push((bits(arena.gradient()), bits(arena.stats())));
        }
        assert!(gradients.windows(2).all(|pair| pair[0] == pair[1]), "{rows} rows");
    }
}

#[test]
fn predictions_do_not_depend_on_the_other_rows() {
    let network = residual();
    let data = data(&network, 30);
    let mut arena = Arena::new(&network, 0);
    arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
    let mut plan = Plan::new(&network, 16).unwrap();
    plan.gradient(&mut arena, &data, &[3, 1, 4, 15, 9, 2, 6]).unwrap();
    let mut all = vec![0.0; 90];
    plan.forward(arena.weights(), arena.stats(), &data, 0..30, &mut all).unwrap();
    for row in [0, 13, 29] {
        let mut one = vec![0.0; 3];
        plan.forward(arena.weights(), arena.stats(), &data, row..row + 1, &mut one).unwrap();
        assert_eq!(bits(&one), bits(&all[3 * row..][..3]));
    }
    let short = plan.forward(arena.weights(), &[], &data, 0..1, &mut [0.0; 3]);
    let expected = arena.stats().len();
    let what = "the running statistics";
    assert_eq!(short, Err(EngineError::Size { what, got: 0, expected }));
}

#[test]
fn not_a_number_stays_visible() {
    let network = lenet(12);
    let clean = data(&network, 2);
    let mut inputs = clean.inputs().to_vec();
    inputs[70] = f32::NAN;
    let data = Dataset::new(144, 1, inputs, clean.targets().to_vec()).unwrap();
    let mut arena = Arena::new(&network, 0);
    arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
    assert!(Plan::new(&network, 2).unwrap().gradient(&mut arena, &data, &[0, 1]).unwrap().is_nan());
}

// In PyTorch 2.15:
//
// import torch, torch.nn as nn, torch.nn.functional as F torch.set_default_dtype(torch.float64) x =
// ((torch.arange(2*5*4*2) * 37 % 23).double() / 8 - 1).reshape(2, 5, 4, 2)           # NHWC w =
// ((torch.arange(3*3*3*2) * 29 % 19).double() / 16 - 0.5).reshape(3, 3, 3, 2)        # out, kh, kw,
// in conv = nn.Conv2d(2, 3, 3, stride=1, padding=1, bias=False); conv.weight.data = w.permute(0, 3,
// 1, 2).contiguous() bn = nn.BatchNorm2d(3); bn.weight.data = torch.tensor([1., .5, -1.]);
// bn.bias.data = torch.tensor([.1, .2, .3]) fc = nn.Linear(3, 2); fc.weight.data =
// torch.tensor([[1., -1., .5], [-.5, 2., 1.]]); fc.bias.data = torch.tensor([0., .25]) def net(x):
// return fc(F.max_pool2d(torch.relu(bn(conv(x.permute(0, 3, 1, 2)))), 3, 2, 1).mean((2, 3))) loss =
// F.cross_entropy(net(x), torch.tensor([1, 0]), label_smoothing=0.2) loss.backward()
// print(loss.item()); print(conv.weight.grad.permute(0, 2, 3, 1).flatten()[:4].tolist(),
// bn.weight.grad.tolist(), bn.bias.grad.tolist()) print(bn.running_mean.tolist(),
// bn.running_var.tolist()) bn.eval(); print(net(x).flatten().tolist())
#[test]
fn numbers_are_those_of_pytorch() {
    let mut b = image(5, 4, 2);
    let h = b.conv2d("conv", b.input(), 3, Window::square(3, 1, 1)).unwrap();
    let h = b.batch_norm("bn", h).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.max_pool(h, Window::square(3, 2, 1)).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let out = b.linear("fc", h, 2).unwrap();
    let network = b.finish(out, Loss::CrossEntropy { smoothing: 0.2 }).unwrap();
    let inputs = (0..80).map(|i| (i * 37 % 23) as f32 / 8.0 - 1.0).collect();
    let data = Dataset::new(40, 1, inputs, vec![1.0, 0.0]).unwrap();
    let mut w: Vec<f64> = (0..54).map(|i| f64::from(i * 29 % 19) / 16.0 - 0.5).collect();
    w.extend([1.0, 0.5, -1.0, 0.1, 0.2, 0.3]);
    w.extend([1.0, -1.0, 0.5, -0.5, 2.0, 1.0, 0.0, 0.25]);
    let mut exec = Exec::<f64>::new(&network, 2, Passes::ForwardAndBack);
    let (mut stats, mut gradient) = (stats(&network), vec![0.0; w.len()]);
    let loss = exec.gradient(&w, &mut stats, &data, &[0, 1], &mut gradient);
    let mut out = [0.0; 4];
    exec.forward(&w, &stats, &data, &[0, 1], &mut out);
    let near = |got: &[f64], want: &[f64]| {
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{got} against {want}");
        }
    };
    near(&[loss], &[0.7312585405665778]);
    near(
        &gradient[..4],
        &[0.004742034334716358, -0.0035053590497003684, -0.01529892734831223, -0.19755152639419485],
    );
    near(&gradient[54..57], &[-0.31121597955860586, 0.4440024317408667, -0.07416862303651937]);
    near(&gradient[57..60], &[-0.3533562420660641, 0.5266272331530591, 0.11778541402202129]);
    near(&stats[..3], &[0.0387890625, 0.006289062500000001, 0.0301953125]);
    near(&stats[3..], &[1.0643262188251201, 0.9967100329276843, 1.0314921217698316]);
    near(&out, &[1.8208312250442957, 2.1001625560915462, 1.560624973102478, 1.4271198214959555]);
}
