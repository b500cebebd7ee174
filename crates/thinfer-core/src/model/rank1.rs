//! The network of a Rank-1 BNN, made from a plain one.

use thinfer_engine::{EngineError, Mixture, Network, NetworkBuilder, NodeId, Op};

/// The same network for the members of a mixture, as the Rank-1 method has it: random scales of the
/// channels before and behind every convolution and linear layer, whose weights all members share. A
/// layer with a bias gets one for each member. Batch norms stay as they are.
///
/// Names: the scales before `NAME` are `NAME.in`, those behind it `NAME.out`.
pub fn rank1(network: &Network, mixture: Mixture) -> Result<Network, EngineError> {
    let nodes = network.nodes();
    let mut b = NetworkBuilder::image(nodes[0].shape);
    let mut became: Vec<NodeId> = vec![b.input()];
    for node in nodes.iter().skip(1) {
        let from = |slot: usize| became[node.inputs[slot].0];
        let name = node.name.as_str();
        let before =
            |b: &mut NetworkBuilder| b.vary(&format!("{name}.in"), from(0), mixture, false);
        let behind = |b: &mut NetworkBuilder, at: NodeId, bias: bool| {
            b.vary(&format!("{name}.out"), at, mixture, bias)
        };
        let now = match &node.op {
            Op::Linear { bias, .. } => {
                let at = before(&mut b)?;
                let at = b.linear_with(name, at, node.shape.len(), false)?;
                behind(&mut b, at, bias.is_some())?
            }
            Op::Conv2d { bias, window, .. } => {
                let at = before(&mut b)?;
                let at = b.conv2d(name, at, node.shape.channels, *window)?;
                behind(&mut b, at, bias.is_some())?
            }
            Op::BatchNorm { momentum, eps, .. } => {
                b.batch_norm_with(name, from(0), *momentum, *eps)?
            }
            Op::MaxPool { window } => b.max_pool(from(0), *window)?,
            Op::GlobalAveragePool => b.global_average_pool(from(0))?,
            Op::Relu => b.relu(from(0))?,
            Op::Tanh => b.tanh(from(0))?,
            Op::Add => b.add(from(0), from(1))?,
            Op::Input
            | Op::Select { .. }
            | Op::Pick { .. }
            | Op::Spread { .. }
            | Op::Vary { .. } => {
                return Err(EngineError::Network {
                    node: node.name.clone(),
                    problem: "cannot be shared by members; give the network as it was built".into(),
                });
            }
        };
        became.push(now);
    }
    b.finish(became[network.output().0], network.loss().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image_network;
    use thinfer_engine::{Law, Role, Shape};

    /// The published sizes: 36.6 million parameters for WRN-28-10 with K = 4 (methods 6.6); by hand,
    /// two numbers for each member and channel before and behind every layer, and three more biases.
    #[test]
    fn members_add_two_vectors_a_layer() {
        let mixture = Mixture { members: 4, law: Law::Gaussian, draws: 1 };
        let input = Shape { height: 32, width: 32, channels: 3 };
        let plain = image_network("wrn-28-10", input, 10).unwrap();
        let network = rank1(&plain, mixture).unwrap();
        let layers = plain.params().iter().filter(|p| p.role.is_weight());
        let channels: usize = layers.map(|p| p.shape[0] + p.shape[p.shape.len() - 1]).sum();
        let more = network.params().len() - plain.params().len();
        assert_eq!(more, 4 * 2 * channels + 3 * 10);
        assert!(
            (network.params().len() as f64 - 36.6e6).abs() < 0.1e6,
            "{}",
            network.params().len()
        );
        assert_eq!(network.mixture(), Some(mixture));
        let bias = network.params().find("fc.out.bias").unwrap();
        assert_eq!((bias.shape.as_slice(), bias.role), ([4, 10].as_slice(), Role::Bias));
        assert_eq!(network.multiply_adds(), plain.multiply_adds());
        assert!(rank1(&network, mixture).is_err());
    }

    /// WRN's last norm has another momentum than its others.
    #[test]
    fn batch_norms_keep_their_momentum_and_eps() {
        let norms = |network: &Network| -> Vec<(String, f64, f64)> {
            let of = |node: &thinfer_engine::Node| match node.op {
                Op::BatchNorm { momentum, eps, .. } => Some((node.name.clone(), momentum, eps)),
                _ => None,
            };
            network.nodes().iter().filter_map(of).collect()
        };
        let input = Shape { height: 32, width: 32, channels: 3 };
        let plain = image_network("wrn-28-10", input, 10).unwrap();
        assert!(norms(&plain).iter().any(|(_, momentum, _)| *momentum != 0.1));
        let mixture = Mixture { members: 2, law: Law::Gaussian, draws: 1 };
        assert_eq!(norms(&rank1(&plain, mixture).unwrap()), norms(&plain));
    }
}
