//! What is held changes nothing else: all other gradients have the bits they would have had.

use super::Plan;
use crate::arena::Arena;
use crate::cuda::networks::cases;
use crate::dataset::Dataset;
use crate::network::{Network, NetworkBuilder};
use crate::noise::{Key, Stream};
use crate::ops::loss::Loss;

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; n];
    Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
    values.iter_mut().for_each(|v| *v *= 0.4);
    values
}

/// Loss, gradient and running statistics after two batches, of which the first leaves its traces.
fn run(network: &Network, rows: usize) -> (u64, Vec<u32>, Vec<u32>) {
    let outputs = network.output_len();
    let width = network.loss().target_len(outputs);
    let targets = match network.loss() {
        Loss::Gaussian { .. } => random(rows * width, 3),
        _ => (0..rows).map(|row| (row * 7 % outputs.max(2)) as f32).collect(),
    };
    let inputs = random(rows * network.input_len(), 2);
    let data = Dataset::new(network.input_len(), width, inputs, targets).unwrap();
    let mut arena = Arena::new(network, 0);
    arena.set_weights(&random(network.params().len(), 1)).unwrap();
    let mut plan = Plan::new(network, rows).unwrap();
    let order: Vec<u32> = (0..rows as u32).collect();
    let backwards: Vec<u32> = order.iter().rev().copied().collect();
    plan.gradient(&mut arena, &data, &backwards[..rows.div_ceil(2)]).unwrap();
    let loss = plan.gradient(&mut arena, &data, &order).unwrap();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
    (loss.to_bits(), bits(arena.gradient()), bits(arena.stats()))
}

/// An input wide enough for the kernels that read rows in place, and a network for rows side by
/// side.
fn perceptrons() -> [(Network, usize); 2] {
    [(150, 100), (7, 40)].map(|(inputs, rows)| {
        let mut b = NetworkBuilder::new(inputs);
        let h = b.linear("fc1", b.input(), 5).unwrap();
        let h = b.tanh(h).unwrap();
        let r = b.linear("fc2", h, 5).unwrap();
        let h = b.add(h, r).unwrap();
        let out = b.linear("fc3", h, 1).unwrap();
        (b.finish(out, Loss::gaussian_learned(1.0)).unwrap(), rows)
    })
}

#[test]
fn the_other_gradients_keep_their_bits() {
    let graphs = cases().unwrap().into_iter().map(|case| (case.network, case.batch));
    for (network, rows) in graphs.chain(perceptrons()) {
        let network = network.holding(|_| false);
        let (loss, gradient, stats) = run(&network, rows);
        let count = network.params().iter().count();
        let key = Key::new(5, 0, Stream::Shuffle);
        for draw in 0..8 {
            // Fronts of every length, and any set of parameters.
            let front = key.below(draw, 0, count + 1);
            let on: Vec<bool> = (0..count)
                .map(|at| if draw < 4 { at < front } else { key.below(draw, at + 1, 2) == 0 })
                .collect();
            let held = network.holding(|param| {
                let number = network.params().iter().position(|p| p.offset == param.offset);
                number.is_some_and(|number| on[number])
            });
            let (same_loss, some, same_stats) = run(&held, rows);
            assert_eq!((loss, &stats), (same_loss, &same_stats));
            for (number, param) in network.params().iter().enumerate().filter(|(at, _)| !on[*at]) {
                assert!(held.trains(number));
                let range = param.range();
                assert!(gradient[range.clone()] == some[range], "{} with {on:?}", param.name);
            }
        }
    }
}
