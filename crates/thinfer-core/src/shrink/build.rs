//! The smaller network, and where its numbers lie in the larger one.

use std::collections::BTreeMap;

use thinfer_engine::{EngineError, Family, Network, NetworkBuilder, Node, NodeId, Param, Shape};

use super::present::{Present, count, list, pad_numbers};
use super::reach::Channels;
use super::{Layout, Shrunk};

/// Builds node by node what [`Present`] leaves.
pub(super) struct Builder<'a> {
    network: &'a Network,
    present: &'a Present,
    reach: &'a Channels,
    layout: Layout,
    made: NetworkBuilder,
    /// For each node that stays, the node it became.
    became: Vec<Option<NodeId>>,
    /// Lists that were made already: readers of the same channels share them.
    selected: BTreeMap<(NodeId, Vec<u32>), NodeId>,
    params: Vec<u32>,
    stats: Vec<u32>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        network: &'a Network,
        present: &'a Present,
        reach: &'a Channels,
        layout: Layout,
    ) -> Self {
        let input = network.nodes()[0].shape;
        let channels = count(&present.nodes[0]);
        let builder = NetworkBuilder::image(Shape { channels, ..input });
        let mut became = vec![None; network.nodes().len()];
        became[0] = Some(builder.input());
        Self {
            network,
            present,
            reach,
            layout,
            made: builder,
            became,
            selected: BTreeMap::new(),
            params: Vec::new(),
            stats: Vec::new(),
        }
    }

    pub(super) fn build(mut self) -> Result<Shrunk, EngineError> {
        for at in 1..self.network.nodes().len() {
            if self.present.nodes[at].contains(&true) {
                self.became[at] = Some(self.node(at)?);
            }
        }
        let output = self.find(self.network.output())?;
        let loss = self.network.loss().clone();
        if let Some(param) = loss.scale_param() {
            self.params.push(self.network.params()[param].offset as u32);
        }
        let network = self.made.finish(output, loss)?;
        Ok(Shrunk {
            network,
            params: self.params,
            stats: self.stats,
            inputs: list(&self.present.nodes[0]),
            became: self.became,
            channels: (0..self.present.nodes.len()).map(|at| self.present.own(at)).collect(),
            read: self.reach.read.clone(),
        })
    }

    fn find(&self, node: NodeId) -> Result<NodeId, EngineError> {
        self.became[node.0].ok_or_else(|| EngineError::Network {
            node: self.network.nodes()[node.0].name.clone(),
            problem: "was cut although another node reads it".into(),
        })
    }

    fn node(&mut self, at: usize) -> Result<NodeId, EngineError> {
        let node = &self.network.nodes()[at];
        let (own, own_list) = (&self.present.nodes[at], self.present.own(at));
        let (nodes, params) = (self.network.nodes(), self.network.params());
        // The same operation, with the channels that stay.
        let small = Node { shape: Shape { channels: count(own), ..node.shape }, ..node.clone() };
        match node.op.family() {
            Family::Weights { weight, bias, window } => {
                let source = nodes[node.inputs[0].0].shape;
                let picked = if window.is_none() { self.picking(at)? } else { None };
                let ((from, reads), among) = if let Some(picked) = picked {
                    (picked, source.len())
                } else {
                    (self.reading(at)?, source.channels)
                };
                self.weights(&params[weight], &own_list, (among, &reads));
                if let Some(bias) = bias {
                    self.params.extend(picked_of(&params[bias], &own_list));
                }
                self.made.like(&small, &[from])
            }
            Family::Norm { scale, shift, mean, variance, .. } => {
                let from = self.by_channel(node.inputs[0], own)?;
                let stats = self.network.stats();
                self.params.extend(picked_of(&params[scale], &own_list));
                self.params.extend(picked_of(&params[shift], &own_list));
                self.stats.extend(picked_of(&stats[mean], &own_list));
                self.stats.extend(picked_of(&stats[variance], &own_list));
                self.made.like(&small, &[from])
            }
            Family::Pool(_) | Family::Curve(_) => {
                let from = self.by_channel(node.inputs[0], own)?;
                self.made.like(&small, &[from])
            }
            Family::Sum => self.sum(at),
            Family::Input | Family::List(..) | Family::Scales { .. } => Err(EngineError::Network {
                node: node.name.clone(),
                problem: "cannot be part of a network that is shrunk".into(),
            }),
        }
    }

    /// What a layer of weights reads: all channels that are there, or a list of those it needs.
    fn reading(&mut self, at: usize) -> Result<(NodeId, Vec<u32>), EngineError> {
        let (from, reads) = (self.network.nodes()[at].inputs[0], self.reads(at));
        Ok((self.by_channel(from, reads)?, self.present.list(from.0, reads)))
    }

    /// What a linear layer reads of a picture, number by number, where that leaves out enough of
    /// the channels that it would read.
    fn picking(&mut self, at: usize) -> Result<Option<(NodeId, Vec<u32>)>, EngineError> {
        let needs = &self.present.numbers[at];
        let from = self.network.nodes()[at].inputs[0];
        let there = &self.present.nodes[from.0];
        let numbers = pad_numbers(needs, there, &self.reach.zero[from.0], self.layout.multiple);
        let pixels = needs.len() / there.len();
        let channels = count(self.reads(at));
        if needs.is_empty() || self.layout.reads_all(count(&numbers), pixels * channels) {
            return Ok(None);
        }
        let channels = self.present.own(from.0);
        let picture: Vec<u32> = (0..pixels as u32)
            .flat_map(|pixel| channels.iter().map(move |c| pixel * there.len() as u32 + c))
            .collect();
        let numbers = list(&numbers);
        let picked = self.made.pick(self.find(from)?, places(&numbers, &picture))?;
        Ok(Some((picked, numbers)))
    }

    /// The channels that a layer of weights reads: all that are there, or those that it needs.
    fn reads(&self, at: usize) -> &'a [bool] {
        let from = self.network.nodes()[at].inputs[0];
        let (there, needs) = (&self.present.nodes[from.0], &self.present.reads[at]);
        let all = from.0 == 0 || self.layout.reads_all(count(needs), count(there));
        if all { there } else { needs }
    }

    /// The channels `wanted` of a node, all of which are there.
    fn by_channel(&mut self, from: NodeId, wanted: &[bool]) -> Result<NodeId, EngineError> {
        let there = &self.present.nodes[from.0];
        let found = self.find(from)?;
        if there == wanted {
            return Ok(found);
        }
        let list = places(&self.present.list(from.0, wanted), &self.present.own(from.0));
        if let Some(known) = self.selected.get(&(found, list.clone())) {
            return Ok(*known);
        }
        let select = self.made.select(found, list.clone())?;
        self.selected.insert((found, list), select);
        Ok(select)
    }

    /// A sum, of which one side may be gone, or have fewer channels than the sum.
    fn sum(&mut self, at: usize) -> Result<NodeId, EngineError> {
        let node = &self.network.nodes()[at];
        let own = &self.present.nodes[at];
        let mut sides = Vec::new();
        for from in &node.inputs {
            let there = &self.present.nodes[from.0];
            let both: Vec<bool> = there.iter().zip(own).map(|(a, b)| *a && *b).collect();
            let zero = &self.reach.zero[from.0];
            if both.iter().zip(zero).all(|(on, zero)| !on || *zero) {
                continue;
            }
            let side = self.by_channel(*from, &both)?;
            sides.push(if both == *own {
                side
            } else {
                let list = places(&self.present.list(from.0, &both), &self.present.own(at));
                self.made.spread(side, list, count(own))?
            });
        }
        match sides[..] {
            [a, b] => self.made.add(a, b),
            [one] => Ok(one),
            // Nothing goes in: the channels stay only because a later node has to have some.
            _ => self.by_channel(node.inputs[0], own),
        }
    }

    /// Indices of the weights `outputs` by `inputs`, of which there were so many; a linear layer
    /// that reads channels of a picture has every input once a pixel.
    fn weights(&mut self, weight: &Param, outputs: &[u32], (among, inputs): (usize, &[u32])) {
        let row = weight.fan_in();
        for output in outputs {
            for position in 0..row / among {
                let start = weight.offset + *output as usize * row + position * among;
                self.params.extend(inputs.iter().map(|input| start as u32 + input));
            }
        }
    }
}

/// Indices of the elements of a vector that stay.
fn picked_of(param: &Param, channels: &[u32]) -> Vec<u32> {
    channels.iter().map(|c| param.offset as u32 + c).collect()
}

/// Where the channels of `some` stand among those of `all`, which has them all.
fn places(some: &[u32], all: &[u32]) -> Vec<u32> {
    let at: BTreeMap<u32, u32> = all.iter().zip(0..).map(|(c, at)| (*c, at)).collect();
    some.iter().filter_map(|c| at.get(c).copied()).collect()
}
