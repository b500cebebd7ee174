//! Networks that members of a mixture share, as the Rank-1 method has them.

use thinfer_engine::{EngineError, Family, Mixture, Network, Op};

/// The same network for the members of a mixture, as the Rank-1 method has it: random scales of the
/// channels before and behind every convolution and linear layer, whose weights all members share.
/// A layer with a bias gets one for each member. Batch norms stay as they are.
///
/// Names: the scales before `NAME` are `NAME.in`, those behind it `NAME.out`.
pub fn rank1(network: &Network, mixture: Mixture) -> Result<Network, EngineError> {
    network.map(|b, at, inputs| {
        let mut node = network.nodes()[at.0].clone();
        match node.op.family() {
            Family::Weights { bias, .. } => {
                if let Op::Linear { bias, .. } | Op::Conv2d { bias, .. } = &mut node.op {
                    *bias = None;
                }
                let before = b.vary(&format!("{}.in", node.name), inputs[0], mixture, false)?;
                let layer = b.like(&node, &[before])?;
                b.vary(&format!("{}.out", node.name), layer, mixture, bias.is_some())
            }
            Family::Norm { .. } | Family::Pool(_) | Family::Curve(_) | Family::Sum => {
                b.like(&node, inputs)
            }
            Family::Input | Family::List(..) | Family::Scales { .. } => Err(EngineError::Network {
                node: node.name.clone(),
                problem: "cannot be shared by members; give the network as it was built".into(),
            }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image_network;
    use thinfer_engine::{Law, Role, Shape};

    /// The published sizes: 36.6 million parameters for WRN-28-10 with K = 4 (methods 6.6); by
    /// hand, two numbers for each member and channel before and behind every layer, and three more
    /// biases.
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
