use super::*;
use crate::arena::Arena;
use crate::error::EngineError;
use crate::network::NetworkBuilder;
use crate::noise::{Key, Stream};
use crate::ops::loss::{Loss, Scale};
use crate::plan::Plan;

fn random(n: usize, seed: u64, scale: f32) -> Vec<f32> {
    let mut values = vec![0.0; n];
    Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
    values.iter_mut().for_each(|v| *v *= scale);
    values
}

fn data(network: &Network, rows: usize) -> Dataset {
    let (p, q) = (network.input_len(), network.output_len());
    let width = network.loss().target_len(q);
    let targets = (0..rows * width)
        .map(|i| {
            let normal = Key::new(9, 0, Stream::Observation).normal(0, i);
            network.loss().some_target(q, i, normal)
        })
        .collect();
    Dataset::new(p, width, random(rows * p, 5, 1.0), targets).unwrap()
}

/// |analytic − central difference| ≤ 1e-7 (|gradient| + 1) for every parameter, in f64.
fn check_gradient(network: &Network, rows: usize) {
    let data = data(network, rows);
    let order: Vec<u32> = (0..rows as u32).rev().collect();
    let mut exec = Exec::<f64>::new(network, rows, Passes::ForwardAndBack);
    let n = network.params().len();
    let mut w: Vec<f64> = random(n, 1, 0.5).into_iter().map(f64::from).collect();
    let (mut gradient, mut scratch) = (vec![0.0; n], vec![0.0; n]);
    exec.gradient(&w, &data, &order, &mut gradient);
    for i in 0..n {
        let h = 1e-6;
        let middle = w[i];
        w[i] = middle + h;
        let above = exec.gradient(&w, &data, &order, &mut scratch);
        w[i] = middle - h;
        let below = exec.gradient(&w, &data, &order, &mut scratch);
        w[i] = middle;
        let numeric = (above - below) / (2.0 * h);
        let name = &network.params().owner(i).unwrap().name;
        assert!(
            (gradient[i] - numeric).abs() <= 1e-7 * (numeric.abs() + 1.0),
            "{name}[{i}]: {} against {numeric}",
            gradient[i]
        );
    }
}

fn one_layer(inputs: usize, outputs: usize, loss: Loss) -> Network {
    let mut b = NetworkBuilder::new(inputs);
    let out = b.linear("fc", b.input(), outputs).unwrap();
    b.finish(out, loss).unwrap()
}

fn mlp(activation: &str, widths: &[usize], outputs: usize, loss: Loss) -> Network {
    let mut b = NetworkBuilder::new(7);
    let mut h = b.input();
    for (i, width) in widths.iter().enumerate() {
        h = b.linear(&format!("fc{i}"), h, *width).unwrap();
        h = if activation == "relu" { b.relu(h).unwrap() } else { b.tanh(h).unwrap() };
    }
    let out = b.linear("out", h, outputs).unwrap();
    b.finish(out, loss).unwrap()
}

fn residual(loss: Loss, outputs: usize) -> Network {
    let mut b = NetworkBuilder::new(5);
    let h = b.linear("fc1", b.input(), 4).unwrap();
    let a = b.tanh(h).unwrap();
    let r = b.linear_with("fc2", a, 4, false).unwrap();
    let s = b.add(a, r).unwrap();
    let twice = b.add(s, s).unwrap();
    let out = b.linear("fc3", twice, outputs).unwrap();
    b.finish(out, loss).unwrap()
}

/// A normal and a Student's t whose noise is predicted.
fn by_row() -> [Loss; 2] {
    let scale = Scale::ByRow { start: 0.7 };
    [Loss::Gaussian { scale }, Loss::StudentT { scale, dof: 4.0 }]
}

#[test]
fn every_loss_has_the_right_gradient() {
    check_gradient(&one_layer(3, 2, Loss::gaussian(0.7)), 5);
    check_gradient(&one_layer(3, 2, Loss::gaussian_learned(0.7)), 5);
    for loss in by_row() {
        check_gradient(&one_layer(3, 2, loss), 5);
    }
    check_gradient(&one_layer(4, 1, Loss::Bernoulli), 6);
    check_gradient(&one_layer(4, 3, Loss::cross_entropy()), 6);
}

#[test]
fn whole_networks_have_the_right_gradient() {
    check_gradient(&mlp("tanh", &[5, 3], 1, Loss::gaussian(1.0)), 70);
    check_gradient(&mlp("relu", &[6, 4, 3], 1, Loss::Bernoulli), 33);
    check_gradient(&mlp("relu", &[6, 4], 4, Loss::cross_entropy()), 1);
    check_gradient(&residual(Loss::gaussian_learned(1.0), 1), 40);
    for loss in by_row() {
        check_gradient(&mlp("tanh", &[5, 3], 2, loss.clone()), 70);
        check_gradient(&residual(loss, 2), 40);
    }
    check_gradient(&residual(Loss::cross_entropy(), 3), 40);
    let mut b = NetworkBuilder::new(6);
    let h = b.linear("fc1", b.input(), 40).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.pick(h, vec![39, 0, 11]).unwrap();
    let r = b.pick(b.input(), vec![2, 5, 1]).unwrap();
    let h = b.add(h, r).unwrap();
    let out = b.linear("fc2", h, 2).unwrap();
    check_gradient(&b.finish(out, Loss::gaussian(1.0)).unwrap(), 37);
}

/// Wide enough in the input for the kernels of a narrow first layer.
fn wide() -> Network {
    let mut b = NetworkBuilder::new(150);
    let h = b.linear("fc1", b.input(), 5).unwrap();
    let h = b.tanh(h).unwrap();
    let out = b.linear("fc2", h, 1).unwrap();
    b.finish(out, Loss::gaussian(1.0)).unwrap()
}

#[test]
fn columns_known_to_be_dead_change_no_gradient() {
    let network = wide();
    let data = data(&network, 100);
    let rows: Vec<u32> = (0..100).collect();
    let mut w = random(network.params().len(), 1, 0.5);
    let live = [3, 149];
    for (i, w) in w[..750].iter_mut().enumerate() {
        if !live.contains(&(i % 150)) {
            *w = 0.0;
        }
    }
    let mut exec = Exec::<f32>::new(&network, 100, Passes::ForwardAndBack);
    let (mut all, mut some) = (vec![0.0; w.len()], vec![0.0; w.len()]);
    exec.gradient(&w, &data, &rows, &mut all);
    exec.set_live_inputs(Some(&live));
    exec.gradient(&w, &data, &rows, &mut some);
    assert!(all.iter().zip(&some).all(|(a, b)| (a - b).abs() < 1e-5));
    assert!(some[0] != 0.0, "a dead column has a gradient too");
}

#[test]
fn single_precision_follows_double() {
    for network in [mlp("tanh", &[5, 3], 1, Loss::gaussian(1.0)), wide()] {
        follows_double(&network);
    }
}

fn follows_double(network: &Network) {
    let data = data(network, 100);
    let rows: Vec<u32> = (0..100).collect();
    let w = random(network.params().len(), 1, 0.5);
    let wide: Vec<f64> = w.iter().map(|v| *v as f64).collect();
    let (mut g32, mut g64) = (vec![0.0f32; w.len()], vec![0.0f64; w.len()]);
    let l32 =
        Exec::<f32>::new(network, 100, Passes::ForwardAndBack).gradient(&w, &data, &rows, &mut g32);
    let l64 = Exec::<f64>::new(network, 100, Passes::ForwardAndBack)
        .gradient(&wide, &data, &rows, &mut g64);
    assert!((l32 - l64).abs() < 1e-5);
    for (a, b) in g32.iter().zip(&g64) {
        assert!((*a as f64 - b).abs() < 1e-5, "{a} against {b}");
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for network in [mlp("relu", &[6, 4], 1, Loss::gaussian(1.0)), wide()] {
        same_bits(&network);
    }
}

fn same_bits(network: &Network) {
    let data = data(network, 1000);
    let rows: Vec<u32> = Key::new(1, 0, Stream::Shuffle).permutation(0, 1000);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut arena = Arena::new(network, 0);
            arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
            let mut plan = Plan::new(network, 1000).unwrap();
            let loss = plan.gradient(&mut arena, &data, &rows).unwrap();
            let mut out = vec![0.0; 1000];
            plan.forward(arena.weights(), &[], &data, 0..1000, &mut out).unwrap();
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (loss.to_bits(), bits(arena.gradient()), bits(&out))
        })
    };
    let one = run(1);
    for threads in [2, 3, 7] {
        assert_eq!(one, run(threads), "{threads} threads");
    }
}

#[test]
fn a_smaller_batch_in_a_larger_plan_is_the_same() {
    let network = mlp("relu", &[6], 1, Loss::gaussian(1.0));
    let data = data(&network, 200);
    let rows: Vec<u32> = (0..77).collect();
    let mut gradients = Vec::new();
    for most in [77, 200] {
        let mut arena = Arena::new(&network, 0);
        arena.set_weights(&random(network.params().len(), 1, 0.5)).unwrap();
        Plan::new(&network, most).unwrap().gradient(&mut arena, &data, &rows).unwrap();
        gradients.push(arena.gradient().to_vec());
    }
    assert_eq!(gradients[0], gradients[1]);
}

#[test]
fn bad_batches_are_refused() {
    let network = one_layer(3, 1, Loss::gaussian(1.0));
    let data = data(&network, 4);
    let mut arena = Arena::new(&network, 0);
    let mut plan = Plan::new(&network, 4).unwrap();
    let far = plan.gradient(&mut arena, &data, &[0, 9]).unwrap_err();
    assert_eq!(far, EngineError::Row { row: 9, rows: 4 });
    assert!(plan.gradient(&mut arena, &data, &[0; 5]).is_err());
    let narrow = Dataset::new(2, 1, vec![0.0; 8], vec![0.0; 4]).unwrap();
    assert!(plan.gradient(&mut arena, &narrow, &[0]).is_err());
    let blind = Dataset::new(3, 1, vec![0.0; 12], Vec::new()).unwrap();
    assert!(plan.gradient(&mut arena, &blind, &[0]).is_err());
}
