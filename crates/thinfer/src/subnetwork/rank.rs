//! Which numbers differ most between samples.

use thinfer_engine::Network;

use super::tensors;

/// The places where samples differ, by their variance over samples relative to the mean square of
/// what is live of their tensor, largest first; equal ones in the order of the network.
///
/// Relative, because layers have weights of different size: a change by a tenth of what is usual in
/// a layer moves its outputs by about a tenth, wherever it is. Numbers that are equal in all samples,
/// pruned ones among them, are not listed: to share them loses nothing.
pub(super) fn order(network: &Network, numbers: &[Vec<f32>]) -> Vec<usize> {
    let mut scored: Vec<(f64, usize)> = Vec::new();
    for (_, range) in tensors(network) {
        let all = || numbers.iter().flat_map(|numbers| &numbers[range.clone()]);
        let squares: f64 = all().map(|number| f64::from(*number).powi(2)).sum();
        let scale = squares / all().filter(|number| **number != 0.0).count().max(1) as f64;
        let differs = |place: &usize| numbers.iter().any(|n| n[*place] != numbers[0][*place]);
        let score = |place: usize| (variance(numbers, place) / scale, place);
        scored.extend(range.clone().filter(differs).map(score));
    }
    scored.sort_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
    scored.into_iter().map(|(_, place)| place).collect()
}

/// The mean of one number over samples.
pub(super) fn mean(numbers: &[Vec<f32>], place: usize) -> f64 {
    numbers.iter().map(|numbers| f64::from(numbers[place])).sum::<f64>() / numbers.len() as f64
}

fn variance(numbers: &[Vec<f32>], place: usize) -> f64 {
    let mean = mean(numbers, place);
    let squares = numbers.iter().map(|numbers| (f64::from(numbers[place]) - mean).powi(2));
    squares.sum::<f64>() / numbers.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Activation;
    use crate::model::mlp;
    use thinfer_engine::Loss;

    #[test]
    fn what_differs_is_ordered_by_its_size_in_the_layer() {
        let network = mlp(1, &[2], Activation::Tanh, 1, Loss::gaussian(1.0)).unwrap();
        // fc1.weight, fc1.bias, fc2.weight, fc2.bias.
        let one = vec![10.0, -10.0, 0.5, 0.5, 0.1, 0.1, 0.25];
        let mut other = one.clone();
        // By a tenth, by nothing, by a fifth, by four fifths.
        (other[0], other[3], other[5]) = (11.0, 0.6, 0.18);
        assert_eq!(order(&network, &[one, other]), [5, 3, 0]);
    }
}
