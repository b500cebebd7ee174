//! Which numbers differ most between samples.

use thinfer_engine::Network;

use super::tensors;

/// The places where samples differ, by their mean square difference from the last sample relative
/// to the mean square of what is live of their tensor, largest first; equal ones in the order of
/// the network. Running statistics come first of all: those of another sample belong to other
/// weights, and they are few.
///
/// Relative, because layers have weights of different size: a change by a tenth of what is usual in
/// a layer moves its outputs by about a tenth, wherever it is. Numbers that are equal in all
/// samples, pruned ones among them, are not listed: to share them loses nothing.
pub(super) fn order(network: &Network, numbers: &[Vec<f32>]) -> Vec<usize> {
    let mut scored: Vec<(f64, usize)> = Vec::new();
    for (_, range) in tensors(network) {
        let all = || numbers.iter().flat_map(|numbers| &numbers[range.clone()]);
        let squares: f64 = all().map(|number| f64::from(*number).powi(2)).sum();
        let scale = squares / all().filter(|number| **number != 0.0).count().max(1) as f64;
        let first = range.start >= network.params().len();
        let score = |place: usize| (difference(numbers, place) / scale, place);
        let differing = range.clone().map(score).filter(|(score, _)| *score > 0.0);
        scored.extend(differing.map(
            |(score, place)| {
                if first { (f64::INFINITY, place) } else { (score, place) }
            },
        ));
    }
    scored.sort_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
    scored.into_iter().map(|(_, place)| place).collect()
}

/// The mean square difference of one number from that of the last sample.
fn difference(numbers: &[Vec<f32>], place: usize) -> f64 {
    let last = f64::from(numbers[numbers.len() - 1][place]);
    let squares = numbers.iter().map(|numbers| (f64::from(numbers[place]) - last).powi(2));
    squares.sum::<f64>() / numbers.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_core::model::{image_network, mlp};
    use thinfer_engine::{Loss, Shape};
    use thinfer_run::config::Activation;

    #[test]
    fn what_differs_is_ordered_by_its_size_in_the_layer() {
        let network = mlp(1, &[2], Activation::Tanh, 1, Loss::gaussian(1.0)).unwrap();
        // fc1.weight, fc1.bias, fc2.weight, fc2.bias.
        let one = vec![10.0, -10.0, 0.5, 0.5, 0.1, 0.1, 0.25];
        let mut other = one.clone();
        // By a tenth, by a fifth, by four fifths.
        (other[0], other[3], other[5]) = (11.0, 0.6, 0.18);
        assert_eq!(order(&network, &[one, other]), [5, 3, 0]);
    }

    #[test]
    fn running_statistics_come_first() {
        let shape = Shape { height: 4, width: 4, channels: 1 };
        let network = image_network("convnet", shape, 2).unwrap();
        let (params, stats) = (network.params().len(), network.stats().len());
        let one: Vec<f32> = vec![1.0; params + stats];
        let mut other = one.clone();
        other[..params].fill(3.0);
        other[params..].fill(1.001);
        let found = order(&network, &[one, other]);
        assert!(found.len() == params + stats && found[..stats].iter().all(|at| *at >= params));
    }
}
