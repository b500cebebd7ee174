//! Which channels of a masked network carry anything, and which anything reads.

use thinfer_engine::{Family, Network, Param};

/// Which kernels of a layer are not all masked: outputs by inputs.
pub(crate) struct Kernels {
    pub(crate) inputs: usize,
    pub(crate) kept: Vec<bool>,
}

impl Kernels {
    pub(crate) fn of(weight: &Param, keep: &[u8]) -> Self {
        let (outputs, inputs) = (weight.shape[0], weight.shape[weight.shape.len() - 1]);
        let mut kept = vec![false; outputs * inputs];
        let marks = &keep[weight.range()];
        // Stored output, kernel row, kernel column, input.
        for (output, of_output) in marks.chunks_exact(weight.fan_in()).enumerate() {
            let row = &mut kept[output * inputs..][..inputs];
            for pixel in of_output.chunks_exact(inputs) {
                row.iter_mut().zip(pixel).for_each(|(kept, mark)| *kept |= *mark != 0);
            }
        }
        Self { inputs, kept }
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[bool]> {
        self.kept.chunks_exact(self.inputs)
    }
}

/// What is known of the channels of every node.
pub(crate) struct Channels {
    /// Always zero.
    pub(crate) zero: Vec<Vec<bool>>,
    /// Read by something that reaches the output.
    pub(crate) read: Vec<Vec<bool>>,
}

impl Channels {
    pub(crate) fn of(network: &Network, keep: &[u8]) -> Self {
        let nodes = network.nodes();
        let kernels: Vec<Option<Kernels>> = nodes
            .iter()
            .map(|node| node.op.weight())
            .map(|weight| weight.map(|weight| Kernels::of(&network.params()[weight], keep)))
            .collect();
        let marks = |param: usize| &keep[network.params()[param].range()];

        let mut zero: Vec<Vec<bool>> = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let from = |input: usize| &zero[node.inputs[input].0];
            let found = match (node.op.family(), &kernels[at]) {
                (Family::Input, _) => vec![false; node.shape.channels],
                (Family::Weights { bias, .. }, Some(kernels)) => {
                    let source = from(0);
                    let silent = |row: &[bool]| {
                        let mut inputs = row.iter().enumerate();
                        inputs.all(|(i, kept)| !kept || source[i % source.len()])
                    };
                    let unbiased = |output: usize| bias.is_none_or(|b| marks(b)[output] == 0);
                    let rows = kernels.rows().enumerate();
                    rows.map(|(output, row)| unbiased(output) && silent(row)).collect()
                }
                // A masked scale makes it constant, a masked shift too makes it zero.
                (Family::Norm { scale, shift, .. }, _) => {
                    let pairs = marks(scale).iter().zip(marks(shift));
                    pairs.map(|(scale, shift)| *scale == 0 && *shift == 0).collect()
                }
                (Family::Sum, _) => from(0).iter().zip(from(1)).map(|(a, b)| *a && *b).collect(),
                (Family::List(kind, list), _) => {
                    let sources = kind.sources(list, from(0).len(), node.shape.channels);
                    sources.into_iter().map(|at| at.is_none_or(|at| from(0)[at])).collect()
                }
                // Members share the channels, and the bias of any of them fills one.
                (Family::Pool(_) | Family::Curve(_) | Family::Scales { bias: None, .. }, _) => {
                    from(0).clone()
                }
                (Family::Scales { bias: Some(_), .. } | Family::Weights { .. }, _) => {
                    vec![false; node.shape.channels]
                }
            };
            zero.push(found);
        }

        let mut read: Vec<Vec<bool>> =
            nodes.iter().map(|n| vec![false; n.shape.channels]).collect();
        read[network.output().0].fill(true);
        for (at, node) in nodes.iter().enumerate().rev() {
            let own = std::mem::take(&mut read[at]);
            for input in &node.inputs {
                let source = &mut read[input.0];
                match (node.op.family(), &kernels[at]) {
                    (Family::Weights { .. }, Some(kernels)) => {
                        let count = source.len();
                        for row in kernels.rows().zip(&own).filter(|(_, own)| **own).map(|r| r.0) {
                            row.iter().enumerate().for_each(|(i, kept)| source[i % count] |= kept);
                        }
                    }
                    (Family::Norm { scale, .. }, _) => {
                        let scale = marks(scale).iter().map(|mark| *mark != 0);
                        let passes = own.iter().zip(scale).map(|(own, scale)| *own && scale);
                        source.iter_mut().zip(passes).for_each(|(read, own)| *read |= own);
                    }
                    (Family::List(kind, list), _) => {
                        let sources = kind.sources(list, source.len(), own.len());
                        let pairs = sources.into_iter().zip(&own);
                        pairs.for_each(|(at, own)| at.into_iter().for_each(|at| source[at] |= own));
                    }
                    (
                        Family::Pool(_) | Family::Curve(_) | Family::Sum | Family::Scales { .. },
                        _,
                    ) => {
                        source.iter_mut().zip(&own).for_each(|(read, own)| *read |= own);
                    }
                    (Family::Input | Family::Weights { .. }, _) => {}
                }
            }
            read[at] = own;
        }
        Self { zero, read }
    }
}
