//! Builds networks node by node, and checks each.

use super::held::Wanted;
use super::{Curve, Family, List, Network, Node, NodeId, Op};
use crate::error::EngineError;
use crate::mixture::Mixture;
use crate::ops::Pool;
use crate::ops::loss::Loss;
use crate::param::{ParamTable, Role};
use crate::shape::{Shape, Window};

/// Builds a [`Network`] node by node.
#[derive(Clone, Debug)]
pub struct NetworkBuilder {
    nodes: Vec<Node>,
    params: ParamTable,
    stats: ParamTable,
}

impl NetworkBuilder {
    /// Starts with a plain vector of `features` inputs.
    pub fn new(features: usize) -> Self {
        Self::image(Shape::vector(features))
    }

    /// Starts with an input of any shape.
    pub fn image(shape: Shape) -> Self {
        let input = Node { name: "input".into(), op: Op::Input, inputs: Vec::new(), shape };
        Self { nodes: vec![input], params: ParamTable::default(), stats: ParamTable::default() }
    }

    /// The input node.
    pub fn input(&self) -> NodeId {
        NodeId(0)
    }

    /// A linear layer with bias.
    pub fn linear(&mut self, name: &str, from: NodeId, out: usize) -> Result<NodeId, EngineError> {
        self.linear_with(name, from, out, true)
    }

    /// A linear layer, with or without bias.
    pub fn linear_with(
        &mut self,
        name: &str,
        from: NodeId,
        out: usize,
        bias: bool,
    ) -> Result<NodeId, EngineError> {
        let inputs = self.shape(name, from)?.len();
        if out == 0 {
            return Err(problem(name, "has no outputs; it needs at least one"));
        }
        if out.checked_mul(inputs).is_none_or(|n| n > u32::MAX as usize) {
            return Err(EngineError::Overflow {
                what: "a linear layer",
                rows: out,
                columns: inputs,
            });
        }
        let weight =
            self.params.push(format!("{name}.weight"), vec![out, inputs], Role::LinearWeight);
        let bias = bias.then(|| self.params.push(format!("{name}.bias"), vec![out], Role::Bias));
        self.push(name.into(), Op::Linear { weight, bias }, vec![from], Shape::vector(out))
    }

    /// A convolution without bias, as the networks with batch norm have it.
    pub fn conv2d(
        &mut self,
        name: &str,
        from: NodeId,
        out: usize,
        window: Window,
    ) -> Result<NodeId, EngineError> {
        self.conv2d_with(name, from, out, window, false)
    }

    /// A convolution, with or without bias.
    pub fn conv2d_with(
        &mut self,
        name: &str,
        from: NodeId,
        out: usize,
        window: Window,
        bias: bool,
    ) -> Result<NodeId, EngineError> {
        let shape = self.shape(name, from)?;
        if out == 0 {
            return Err(problem(name, "has no outputs; it needs at least one"));
        }
        let [height, width] = window.over(shape).map_err(|text| problem(name, &text))?;
        let per_output = window.size.iter().try_fold(shape.channels, |n, k| n.checked_mul(*k));
        let total = per_output.and_then(|n| n.checked_mul(out));
        if total.is_none_or(|n| n > u32::MAX as usize) {
            let columns = per_output.unwrap_or(usize::MAX);
            return Err(EngineError::Overflow { what: "a convolution", rows: out, columns });
        }
        let kernel = vec![out, window.size[0], window.size[1], shape.channels];
        let weight = self.params.push(format!("{name}.weight"), kernel, Role::ConvWeight);
        let bias = bias.then(|| self.params.push(format!("{name}.bias"), vec![out], Role::Bias));
        let to = Shape { height, width, channels: out };
        self.push(name.into(), Op::Conv2d { weight, bias, window }, vec![from], to)
    }

    /// Batch norm with PyTorch's defaults: momentum 0.1, eps 1e-5.
    pub fn batch_norm(&mut self, name: &str, from: NodeId) -> Result<NodeId, EngineError> {
        self.batch_norm_with(name, from, 0.1, 1e-5)
    }

    /// Batch norm; `momentum` is the weight of a new batch in the running statistics.
    pub fn batch_norm_with(
        &mut self,
        name: &str,
        from: NodeId,
        momentum: f64,
        eps: f64,
    ) -> Result<NodeId, EngineError> {
        let shape = self.shape(name, from)?;
        if !((0.0..=1.0).contains(&momentum) && eps.is_finite() && eps > 0.0) {
            return Err(problem(name, "needs a momentum between 0 and 1 and a positive eps"));
        }
        let channels = || vec![shape.channels];
        let scale = self.params.push(format!("{name}.weight"), channels(), Role::NormScale);
        let shift = self.params.push(format!("{name}.bias"), channels(), Role::NormShift);
        let mean = self.stats.push(format!("{name}.running_mean"), channels(), Role::RunningMean);
        let variance =
            self.stats.push(format!("{name}.running_var"), channels(), Role::RunningVariance);
        let op = Op::BatchNorm { scale, shift, mean, variance, momentum, eps };
        self.push(name.into(), op, vec![from], shape)
    }

    /// The sum of two nodes of one shape.
    pub fn add(&mut self, a: NodeId, b: NodeId) -> Result<NodeId, EngineError> {
        let name = self.fresh("add");
        let (left, right) = (self.shape(&name, a)?, self.shape(&name, b)?);
        if left != right {
            return Err(problem(
                &name,
                &format!("adds {} and {} numbers; they must be equal", left.len(), right.len()),
            ));
        }
        self.push(name, Op::Add, vec![a, b], left)
    }

    /// Some channels of `from`, in the order of the list.
    pub fn select(&mut self, from: NodeId, channels: Vec<u32>) -> Result<NodeId, EngineError> {
        let name = self.fresh("select");
        let shape = self.shape(&name, from)?;
        check_list(&name, &channels, shape.channels)?;
        let shape = Shape { channels: channels.len(), ..shape };
        self.push(name, Op::Select { channels }, vec![from], shape)
    }

    /// Some numbers of `from`, whatever its shape, as a plain vector in the order of the list.
    pub fn pick(&mut self, from: NodeId, places: Vec<u32>) -> Result<NodeId, EngineError> {
        let name = self.fresh("pick");
        let shape = self.shape(&name, from)?;
        check_list(&name, &places, shape.len())?;
        let shape = Shape::vector(places.len());
        self.push(name, Op::Pick { places }, vec![from], shape)
    }

    /// The channels of `from` put to the places of the list, among `width` channels that are zero
    /// otherwise.
    pub fn spread(
        &mut self,
        from: NodeId,
        channels: Vec<u32>,
        width: usize,
    ) -> Result<NodeId, EngineError> {
        let name = self.fresh("spread");
        let shape = self.shape(&name, from)?;
        check_list(&name, &channels, width)?;
        if channels.len() != shape.channels {
            let (places, given) = (channels.len(), shape.channels);
            return Err(problem(&name, &format!("has {places} places for {given} channels")));
        }
        let shape = Shape { channels: width, ..shape };
        self.push(name, Op::Spread { channels }, vec![from], shape)
    }

    /// Random scales of the channels of `from`, each member's own, with or without a bias for each
    /// member. All such nodes of a network share one mixture.
    pub fn vary(
        &mut self,
        name: &str,
        from: NodeId,
        mixture: Mixture,
        bias: bool,
    ) -> Result<NodeId, EngineError> {
        let shape = self.shape(name, from)?;
        if mixture.members == 0 || mixture.draws == 0 {
            return Err(problem(name, "needs at least one member and one draw of each"));
        }
        let scales = shape.channels.checked_mul(2).and_then(|n| n.checked_mul(mixture.members));
        if scales.is_none_or(|n| n > u32::MAX as usize) {
            let (rows, columns) = (mixture.members, shape.channels);
            return Err(EngineError::Overflow { what: "random scales", rows, columns });
        }
        let other = |node: &Node| matches!(node.op, Op::Vary { mixture: m, .. } if m != mixture);
        if self.nodes.iter().any(other) {
            return Err(problem(name, "has other members or another law than a node before it"));
        }
        let scales = vec![mixture.members, shape.channels, 2];
        let posterior = self.params.push(format!("{name}.posterior"), scales, Role::RandomScale);
        let biases = vec![mixture.members, shape.channels];
        let bias = bias.then(|| self.params.push(format!("{name}.bias"), biases, Role::Bias));
        self.push(name.into(), Op::Vary { posterior, bias, mixture }, vec![from], shape)
    }

    /// Closes the network with its output and loss.
    pub fn finish(mut self, output: NodeId, loss: Loss) -> Result<Network, EngineError> {
        let outputs = self.shape("output", output)?.len();
        let read: Vec<bool> = (0..self.nodes.len())
            .map(|i| self.nodes.iter().any(|n| n.inputs.contains(&NodeId(i))))
            .collect();
        for (i, node) in self.nodes.iter().enumerate() {
            if !read[i] && i != output.0 {
                return Err(problem(
                    &node.name,
                    "is read by nothing; a network has one output and no loose ends",
                ));
            }
        }
        if read[output.0] {
            return Err(problem(
                &self.nodes[output.0].name,
                "is the output but another node reads it; give the last node",
            ));
        }
        loss.check(outputs)?;
        if loss.is_by_row() && !matches!(self.nodes[output.0].op, Op::Linear { .. }) {
            return Err(problem(
                "loss",
                "predicts the noise of each row, which needs a linear layer at the end; learn one noise for all rows instead",
            ));
        }
        let mut loss = loss;
        if loss.scale_param().is_some() {
            let at = self.params.push("noise.log_sigma".into(), vec![1], Role::LogScale);
            loss.set_scale_param(at);
        }
        if self.params.is_empty() {
            return Err(problem("output", "the network has no parameters to train"));
        }
        let wanted = Wanted::new(&self.nodes, vec![true; self.params.iter().count()]);
        let Self { nodes, params, stats } = self;
        Ok(Network { nodes, params, stats, output, loss, wanted })
    }

    /// The same operation as `node` has, by the same name, on `inputs`: with parameters of its own.
    pub fn like(&mut self, node: &Node, inputs: &[NodeId]) -> Result<NodeId, EngineError> {
        let missing = || problem(&node.name, "an input is missing");
        let input = |at: usize| inputs.get(at).copied().ok_or_else(missing);
        let (name, channels) = (&node.name, node.shape.channels);
        match node.op.family() {
            Family::Input => Err(problem(name, "only the first node is the input")),
            Family::Weights { bias, window: None, .. } => {
                let out = node.shape.checked_len();
                let out = out.ok_or_else(|| problem(name, "has too many values"))?;
                self.linear_with(name, input(0)?, out, bias.is_some())
            }
            Family::Weights { bias, window: Some(window), .. } => {
                self.conv2d_with(name, input(0)?, channels, window, bias.is_some())
            }
            Family::Norm { momentum, eps, .. } => {
                self.batch_norm_with(name, input(0)?, momentum, eps)
            }
            Family::Pool(pool) => self.pool(node.op.clone(), pool, input(0)?),
            Family::Curve(curve) => self.curve(node.op.clone(), curve, input(0)?),
            Family::Sum => self.add(input(0)?, input(1)?),
            Family::List(List::Select, list) => self.select(input(0)?, list.to_vec()),
            Family::List(List::Pick, list) => self.pick(input(0)?, list.to_vec()),
            Family::List(List::Spread, list) => self.spread(input(0)?, list.to_vec(), channels),
            Family::Scales { bias, mixture, .. } => {
                self.vary(name, input(0)?, mixture, bias.is_some())
            }
        }
    }

    pub(super) fn pool(&mut self, op: Op, pool: Pool, from: NodeId) -> Result<NodeId, EngineError> {
        let name = self.fresh(pool.word());
        let shape = self.shape(&name, from)?;
        let to = pool.shape(shape).map_err(|text| problem(&name, &text))?;
        self.push(name, op, vec![from], to)
    }

    pub(super) fn curve(
        &mut self,
        op: Op,
        curve: Curve,
        from: NodeId,
    ) -> Result<NodeId, EngineError> {
        let name = self.fresh(curve.word());
        let shape = self.shape(&name, from)?;
        self.push(name, op, vec![from], shape)
    }

    fn fresh(&self, kind: &str) -> String {
        format!("{kind}{}", self.nodes.len())
    }

    fn shape(&self, reader: &str, from: NodeId) -> Result<Shape, EngineError> {
        let Some(node) = self.nodes.get(from.0) else {
            return Err(problem(
                reader,
                &format!("reads node {} but only {} come before it", from.0, self.nodes.len()),
            ));
        };
        let Shape { height, width, channels } = node.shape;
        if node.shape.checked_len().is_none() {
            let (rows, columns) = (height.saturating_mul(width), channels);
            return Err(EngineError::Overflow { what: "a row of a network", rows, columns });
        }
        if node.shape.is_empty() {
            return Err(problem(&node.name, "has no values; every axis needs at least one"));
        }
        Ok(node.shape)
    }

    fn push(
        &mut self,
        name: String,
        op: Op,
        inputs: Vec<NodeId>,
        shape: Shape,
    ) -> Result<NodeId, EngineError> {
        if self.nodes.iter().any(|n| n.name == name) {
            return Err(problem(&name, "the name is taken; names must be unique"));
        }
        self.nodes.push(Node { name, op, inputs, shape });
        Ok(NodeId(self.nodes.len() - 1))
    }
}

/// A list of channels names each at most once, and at least one.
fn check_list(name: &str, channels: &[u32], width: usize) -> Result<(), EngineError> {
    let mut sorted = channels.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if channels.is_empty() || sorted.len() != channels.len() {
        return Err(problem(name, "needs at least one channel, and each at most once"));
    }
    match sorted.last() {
        Some(&last) if last as usize >= width => {
            Err(problem(name, &format!("names channel {last} of {width}; the first is 0")))
        }
        _ => Ok(()),
    }
}

fn problem(node: &str, text: &str) -> EngineError {
    EngineError::Network { node: node.to_owned(), problem: text.to_owned() }
}
