//! Parameters that are held fixed: what plans need not compute.

use super::{Network, Node, NodeId};
use crate::param::Param;

/// What a plan needs of the way back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// By parameter: whether it is trained.
    params: Vec<bool>,
    /// By node: whether the slope of the loss with respect to its value leads to a trained
    /// parameter.
    nodes: Vec<bool>,
}

impl Wanted {
    pub(super) fn new(nodes: &[Node], params: Vec<bool>) -> Self {
        let mut wanted: Vec<bool> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let own = node.op.params().iter().any(|param| params[*param]);
            wanted.push(own || node.inputs.iter().any(|from| wanted[from.0]));
        }
        Self { params, nodes: wanted }
    }
}

impl Network {
    /// The same network with the parameters that `held` names fixed. Plans for it compute no
    /// gradient of theirs, and nothing at all of the way back through nodes that no trained
    /// parameter stands at or in front of. What a gradient has at the places of held parameters
    /// means nothing.
    ///
    /// A file of the network does not say what is held.
    #[must_use]
    pub fn holding(&self, held: impl Fn(&Param) -> bool) -> Self {
        let trained = self.params.iter().map(|param| !held(param)).collect();
        Self { wanted: Wanted::new(&self.nodes, trained), ..self.clone() }
    }

    /// Whether the parameter of this number is trained.
    pub fn trains(&self, param: usize) -> bool {
        self.wanted.params[param]
    }

    /// Whether the way back has anything to do at a node: its parameters or those in front of it
    /// are trained.
    pub fn wants_slope(&self, node: NodeId) -> bool {
        self.wanted.nodes[node.0]
    }

    /// Multiply-adds of one row on the way back: gradients of weights, and of what layers read.
    pub fn backward_multiply_adds(&self) -> usize {
        let of = |node: &Node| {
            let Some(weight) = node.op.weight() else { return 0 };
            let products =
                usize::from(self.trains(weight)) + usize::from(self.wants_slope(node.inputs[0]));
            let pixels = node.shape.height * node.shape.width;
            self.params[weight].len().saturating_mul(products * pixels)
        };
        self.nodes.iter().map(of).fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkBuilder;
    use crate::ops::loss::Loss;
    use crate::shape::{Shape, Window};

    fn network() -> Network {
        let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 2 });
        let h = b.conv2d("conv1", b.input(), 3, Window::square(3, 1, 1)).unwrap();
        let h = b.batch_norm("bn1", h).unwrap();
        let h = b.relu(h).unwrap();
        let r = b.conv2d("conv2", h, 3, Window::square(3, 1, 1)).unwrap();
        let h = b.add(h, r).unwrap();
        let out = b.linear("fc", h, 5).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    #[test]
    fn the_way_back_ends_at_the_frozen_front() {
        let network = network();
        let [conv1, conv2, fc] = [16 * 9 * 6, 16 * 9 * 9, 48 * 5];
        // The picture wants no slope.
        assert_eq!(network.backward_multiply_adds(), conv1 + 2 * conv2 + 2 * fc);
        let wants = |network: &Network| -> Vec<bool> {
            (0..network.nodes().len()).map(|at| network.wants_slope(NodeId(at))).collect()
        };
        assert_eq!(wants(&network), [false, true, true, true, true, true, true]);

        let middle = network.holding(|param| param.name == "conv2.weight");
        assert_eq!(middle.backward_multiply_adds(), conv1 + conv2 + 2 * fc);
        assert_eq!(wants(&middle), wants(&network));

        // As long as the norm is trained, its slope is wanted, but not that of the convolution.
        let first = network.holding(|param| param.name.starts_with("conv1"));
        assert_eq!(first.backward_multiply_adds(), 2 * conv2 + 2 * fc);
        assert_eq!(wants(&first), [false, false, true, true, true, true, true]);

        let front = network.holding(|param| param.name.contains('1'));
        assert_eq!(front.backward_multiply_adds(), conv2 + 2 * fc);
        assert_eq!(wants(&front), [false, false, false, false, true, true, true]);

        let all = network.holding(|_| true);
        assert_eq!(all.backward_multiply_adds(), 0);
        assert!(wants(&all).iter().all(|wanted| !wanted));
        assert_eq!(all.holding(|_| false), network);
    }
}
