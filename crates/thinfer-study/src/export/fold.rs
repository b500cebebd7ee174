//! Batch norms made part of the layer before them: in inference they only scale and shift.

use std::collections::BTreeMap;

use thinfer_core::weights::Weights;
use thinfer_data::Result;
use thinfer_engine::{Family, Network, Node, NodeId, Op};

/// What a folded norm does to each channel: `y = factor x + shift`.
struct Affine {
    factor: Vec<f64>,
    shift: Vec<f64>,
}

/// The same function with every batch norm folded into the convolution or linear layer that it
/// alone reads. Other norms, such as those in front of a wide residual block, stay.
pub(super) fn fold_norms(network: &Network, weights: &Weights) -> Result<(Network, Weights)> {
    let nodes = network.nodes();
    let folded = folded(nodes);
    let mut small = Weights { params: Vec::new(), stats: Vec::new() };
    let made = network.map(|builder, at, inputs| -> Result<NodeId> {
        let mut node = nodes[at.0].clone();
        match node.op.family() {
            Family::Weights { weight, bias, .. } => {
                let norm = folded.get(&at.0).map(|norm| affine(network, weights, &nodes[*norm].op));
                scale(network, weights, (weight, bias), norm.as_ref(), &mut small.params);
                if let (Op::Linear { bias, .. } | Op::Conv2d { bias, .. }, Some(_)) =
                    (&mut node.op, norm)
                {
                    *bias = Some(0);
                }
            }
            Family::Norm { .. } if folded.values().any(|norm| *norm == at.0) => {
                return Ok(inputs[0]);
            }
            Family::Norm { scale, shift, mean, variance, .. } => {
                for param in [scale, shift] {
                    small.params.extend(&weights.params[network.params()[param].range()]);
                }
                for stat in [mean, variance] {
                    small.stats.extend(&weights.stats[network.stats()[stat].range()]);
                }
            }
            Family::Scales { .. } => return Err(super::has_random_scales(&node.name)),
            Family::Input | Family::Pool(_) | Family::Curve(_) | Family::Sum | Family::List(..) => {
            }
        }
        Ok(builder.like(&node, inputs)?)
    })?;
    if let Some(param) = network.loss().scale_param() {
        small.params.extend(&weights.params[network.params()[param].range()]);
    }
    Ok((made, small))
}

/// The layers that are read by nothing but a batch norm, each with that norm.
fn folded(nodes: &[Node]) -> BTreeMap<usize, usize> {
    let readers = |id: NodeId| nodes.iter().filter(|n| n.inputs.contains(&id)).count();
    let norms = nodes.iter().enumerate().filter(|(_, n)| matches!(n.op, Op::BatchNorm { .. }));
    norms
        .map(|(at, norm)| (norm.inputs[0], at))
        .filter(|(layer, _)| nodes[layer.0].op.weight().is_some() && readers(*layer) == 1)
        .map(|(layer, norm)| (layer.0, norm))
        .collect()
}

fn affine(network: &Network, weights: &Weights, norm: &Op) -> Affine {
    let Op::BatchNorm { scale, shift, mean, variance, eps, .. } = norm else {
        return Affine { factor: Vec::new(), shift: Vec::new() };
    };
    let param = |at: usize| &weights.params[network.params()[at].range()];
    let stat = |at: usize| &weights.stats[network.stats()[at].range()];
    let factor: Vec<f64> = param(*scale)
        .iter()
        .zip(stat(*variance))
        .map(|(scale, variance)| f64::from(*scale) / (f64::from(*variance) + eps).sqrt())
        .collect();
    let shift = param(*shift)
        .iter()
        .zip(stat(*mean))
        .zip(&factor)
        .map(|((shift, mean), factor)| f64::from(*shift) - factor * f64::from(*mean))
        .collect();
    Affine { factor, shift }
}

/// Appends weights and bias of a layer, with the norm behind it in them where there is one.
fn scale(
    network: &Network,
    weights: &Weights,
    (weight, bias): (usize, Option<usize>),
    norm: Option<&Affine>,
    to: &mut Vec<f32>,
) {
    let weight = &network.params()[weight];
    let values = &weights.params[weight.range()];
    let bias = bias.map(|bias| &weights.params[network.params()[bias].range()]);
    let Some(Affine { factor, shift }) = norm else {
        to.extend(values);
        to.extend(bias.into_iter().flatten());
        return;
    };
    for (row, factor) in values.chunks_exact(weight.fan_in()).zip(factor) {
        to.extend(row.iter().map(|w| (f64::from(*w) * factor) as f32));
    }
    for (channel, (factor, shift)) in factor.iter().zip(shift).enumerate() {
        let bias = bias.map_or(0.0, |bias| f64::from(bias[channel]));
        to.push((factor * bias + shift) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::{outputs, weights_of};
    use thinfer_core::model::image_network;
    use thinfer_engine::Shape;

    #[test]
    fn folded_networks_are_the_same_function_with_fewer_norms() {
        let shape = Shape { height: 8, width: 8, channels: 3 };
        for (name, norms) in [("resnet18-cifar", 0), ("wrn-10-1", 4), ("convnet", 0)] {
            let network = image_network(name, shape, 5).unwrap();
            let weights = weights_of(&network, 1);
            let (folded, small) = fold_norms(&network, &weights).unwrap();
            let left = folded.nodes().iter().filter(|n| matches!(n.op, Op::BatchNorm { .. }));
            assert_eq!(left.count(), norms, "{name}");
            let want = outputs(&network, &weights, 3);
            let got = outputs(&folded, &small, 3);
            let largest = want.iter().fold(0f32, |most, v| most.max(v.abs()));
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-5 * largest, "{name}: {got} {want}");
            }
        }
    }

    /// A channel that is nearly constant has a variance as small as eps.
    #[test]
    fn a_folded_norm_has_its_eps() {
        let shape = Shape { height: 8, width: 8, channels: 3 };
        let network = image_network("resnet18-cifar", shape, 5).unwrap();
        let mut weights = weights_of(&network, 1);
        let Some(Op::BatchNorm { variance, eps, .. }) =
            network.nodes().iter().map(|n| &n.op).find(|op| matches!(op, Op::BatchNorm { .. }))
        else {
            panic!("no norm")
        };
        weights.stats[network.stats()[*variance].range()].fill(*eps as f32);
        let (folded, small) = fold_norms(&network, &weights).unwrap();
        let want = outputs(&network, &weights, 3);
        let largest = want.iter().fold(0f32, |most, v| most.max(v.abs()));
        for (got, want) in outputs(&folded, &small, 3).iter().zip(&want) {
            assert!((got - want).abs() < 1e-4 * largest, "{got} {want}");
        }
    }
}
