//! Groups of weights that live and die together.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thinfer_engine::{Network, Op, Param, Role, vectorize};

/// Weights that one task works on. Networks of tables are smaller and stay on one thread.
pub(super) const TASK: usize = 1 << 15;

/// Which weights of a layer form one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// One kernel of a convolution for each pair of channels; in a linear layer one input.
    Kernel,
    /// All weights that read one input: variable selection in the first layer.
    #[default]
    Input,
    /// All weights of one output.
    Output,
    /// Every weight by itself.
    Weight,
}

/// The groups of one parameter. Inputs that belong together (the columns of one category) can be
/// merged into one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    start: usize,
    outputs: usize,
    positions: usize,
    inputs: usize,
    grouping: Grouping,
    merged: Option<Merged>,
    prunable: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Merged {
    into: Vec<u32>,
    sizes: Vec<usize>,
}

/// A run of weights that differ in the input alone, and the groups they belong to: weight `i` of
/// the run is in group `base + step * i` before any merge.
#[derive(Clone, Copy)]
struct Run {
    base: usize,
    step: usize,
}

impl Groups {
    /// The groups of `param`, stored (output, input) or (output, kernel row, kernel column, input).
    pub fn new(param: &Param, grouping: Grouping) -> Self {
        let grouping = match (grouping, param.role) {
            (Grouping::Kernel, Role::LinearWeight) => Grouping::Input,
            (grouping, _) => grouping,
        };
        let outputs = param.shape.first().copied().unwrap_or(1);
        let inputs = param.shape.last().copied().unwrap_or(1);
        Self {
            start: param.offset,
            outputs,
            positions: param.len() / (outputs * inputs),
            inputs,
            grouping,
            merged: None,
            prunable: true,
        }
    }

    /// Merges groups of inputs: group `g` becomes `into[g]`. Used where several design columns are
    /// one variable.
    pub fn merged(mut self, into: &[usize]) -> Self {
        let count = into.iter().max().map_or(0, |m| m + 1);
        let mut sizes = vec![0; count];
        for (group, &to) in into.iter().enumerate() {
            sizes[to] += self.size(group);
        }
        let into = into.iter().map(|g| *g as u32).collect();
        self.merged = Some(Merged { into, sizes });
        self
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        match (&self.merged, self.grouping) {
            (Some(merged), _) => merged.sizes.len(),
            (None, Grouping::Input) => self.inputs,
            (None, _) => self.outputs * self.groups_per_output(),
        }
    }

    /// The size of all groups, where it is the same.
    pub fn common_size(&self) -> Option<usize> {
        self.merged.is_none().then(|| self.size(0))
    }

    /// Weights in a group.
    pub fn size(&self, group: usize) -> usize {
        match (&self.merged, self.grouping) {
            (Some(merged), _) => merged.sizes[group],
            (None, Grouping::Kernel) => self.positions,
            (None, Grouping::Input) => self.outputs * self.positions,
            (None, Grouping::Output) => self.positions * self.inputs,
            (None, Grouping::Weight) => 1,
        }
    }

    /// Their place in the flat buffers.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.outputs * self.positions * self.inputs
    }

    /// Whether a hard rule may prune them; the prior acts on all.
    pub fn prunable(&self) -> bool {
        self.prunable
    }

    /// `mean_k w_gk²` of every group, summed in the order of the buffer whatever the number of
    /// threads.
    pub fn mean_squares(&self, weights: &[f32]) -> Vec<f64> {
        let mut means = vec![0.0; self.count()];
        let work = |sums: &mut [f64], weights: &[f32]| {
            for (run, weights) in self.runs(weights.chunks_exact(self.inputs)) {
                self.add_squares(run, weights, sums);
            }
        };
        let weights = &weights[self.range()];
        match self.block() {
            Some(outputs) => means
                .par_chunks_mut(outputs * self.groups_per_output())
                .zip(weights.par_chunks(outputs * self.positions * self.inputs))
                .for_each(|(sums, weights)| work(sums, weights)),
            None => work(&mut means, weights),
        }
        match self.common_size() {
            Some(size) => means.iter_mut().for_each(|mean| *mean /= size as f64),
            None => {
                for (group, mean) in means.iter_mut().enumerate() {
                    *mean /= self.size(group).max(1) as f64;
                }
            }
        }
        means
    }

    fn add_squares(&self, run: Run, weights: &[f32], sums: &mut [f64]) {
        let square = |w: f32| f64::from(w) * f64::from(w);
        match &self.merged {
            Some(merged) => {
                for (&group, w) in merged.into.iter().zip(weights) {
                    sums[group as usize] += square(*w);
                }
            }
            None if run.step == 0 => weights.iter().for_each(|w| sums[run.base] += square(*w)),
            None => {
                let sums = &mut sums[run.base..run.base + weights.len()];
                vectorize(
                    #[inline(always)]
                    || sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += square(*w)),
                );
            }
        }
    }

    /// Clears `bit` of every weight whose group is not `on`, and with `both_ways` sets it where the
    /// group is.
    pub fn mark(&self, on: &[bool], bit: u8, both_ways: bool, marks: &mut [u8]) {
        let work = |on: &[bool], marks: &mut [u8]| {
            for (run, marks) in self.runs(marks.chunks_exact_mut(self.inputs)) {
                let change = |mark: &mut u8, on: bool| {
                    let set = if both_ways { bit } else { *mark & bit };
                    *mark = *mark & !bit | if on { set } else { 0 };
                };
                match &self.merged {
                    Some(merged) => {
                        for (mark, &group) in marks.iter_mut().zip(&merged.into) {
                            change(mark, on[group as usize]);
                        }
                    }
                    None if run.step == 0 => marks.iter_mut().for_each(|m| change(m, on[run.base])),
                    None => {
                        let on = &on[run.base..run.base + marks.len()];
                        vectorize(
                            #[inline(always)]
                            || marks.iter_mut().zip(on).for_each(|(mark, on)| change(mark, *on)),
                        );
                    }
                }
            }
        };
        let marks = &mut marks[self.range()];
        match self.block() {
            Some(outputs) => marks
                .par_chunks_mut(outputs * self.positions * self.inputs)
                .zip(on.par_chunks(outputs * self.groups_per_output()))
                .for_each(|(marks, on)| work(on, marks)),
            None => work(on, marks),
        }
    }

    /// Calls `visit(index in the flat buffers, group)` for every weight, in order.
    pub fn for_each(&self, mut visit: impl FnMut(usize, usize)) {
        for (run, first) in self.runs(self.range().step_by(self.inputs)) {
            for i in 0..self.inputs {
                let group = run.base + run.step * i;
                let group = self.merged.as_ref().map_or(group, |m| m.into[group] as usize);
                visit(first + i, group);
            }
        }
    }

    /// Pairs the runs of some outputs, the first of which counts as 0, with what belongs to each.
    fn runs<T>(&self, each: impl Iterator<Item = T>) -> impl Iterator<Item = (Run, T)> {
        each.enumerate().map(|(at, item)| {
            let output = at / self.positions;
            let (base, step) = match self.grouping {
                Grouping::Kernel => (output * self.inputs, 1),
                Grouping::Input => (0, 1),
                Grouping::Output => (output, 0),
                Grouping::Weight => (at * self.inputs, 1),
            };
            (Run { base, step }, item)
        })
    }

    /// Groups that belong to one output alone.
    fn groups_per_output(&self) -> usize {
        match self.grouping {
            Grouping::Kernel => self.inputs,
            Grouping::Output => 1,
            Grouping::Weight => self.positions * self.inputs,
            Grouping::Input => 0,
        }
    }

    /// How many outputs go to one task, where there is work for several and no group is in two.
    fn block(&self) -> Option<usize> {
        let alone = self.merged.is_none() && self.grouping != Grouping::Input;
        let block = TASK.div_ceil(self.positions * self.inputs);
        (alone && block < self.outputs).then_some(block)
    }
}

/// The groups of every weight tensor of a network. Biases and scales belong to none.
///
/// In a network with convolutions the layer that gives the output is never pruned, as in the
/// authors' program, whose image networks have no other linear layer.
pub fn group_network(
    network: &Network,
    grouping: Grouping,
    input_groups: Option<&[usize]>,
) -> Vec<Groups> {
    let convolutions = network.nodes().iter().any(|n| matches!(n.op, Op::Conv2d { .. }));
    let last = output_layer(network);
    let params = network.params().iter().enumerate().filter(|(_, p)| p.role.is_weight());
    params
        .enumerate()
        .map(|(layer, (number, param))| {
            let mut groups = Groups::new(param, grouping);
            groups.prunable = !(convolutions && last == Some(number));
            match input_groups {
                Some(into) if layer == 0 && groups.grouping == Grouping::Input => {
                    groups.merged(into)
                }
                _ => groups,
            }
        })
        .collect()
}

/// The number of the weights of the layer that gives the network's output.
pub(super) fn output_layer(network: &Network) -> Option<usize> {
    network.nodes()[network.output().0].op.weight()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(shape: &[usize], role: Role) -> Param {
        Param { name: "w".into(), shape: shape.to_vec(), role, offset: 2 }
    }

    fn linear(shape: &[usize]) -> Param {
        param(shape, Role::LinearWeight)
    }

    fn members(groups: &Groups) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        groups.for_each(|i, g| all.push((i, g)));
        all
    }

    #[test]
    fn input_groups_are_columns_and_output_groups_rows() {
        let inputs = Groups::new(&linear(&[2, 3]), Grouping::Input);
        assert_eq!(members(&inputs), [(2, 0), (3, 1), (4, 2), (5, 0), (6, 1), (7, 2)]);
        let outputs = Groups::new(&linear(&[2, 3]), Grouping::Output);
        assert_eq!(members(&outputs), [(2, 0), (3, 0), (4, 0), (5, 1), (6, 1), (7, 1)]);
        let single = Groups::new(&linear(&[2, 3]), Grouping::Weight);
        assert_eq!(members(&single), [(2, 0), (3, 1), (4, 2), (5, 3), (6, 4), (7, 5)]);
        let weights = [0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0];
        assert_eq!(inputs.mean_squares(&weights), [5.0, 10.0, 17.0]);
        assert_eq!((inputs.size(0), outputs.size(0), single.size(0)), (2, 3, 1));
    }

    #[test]
    fn a_convolution_can_be_grouped_by_kernel_and_by_channel() {
        let conv = param(&[2, 3, 3, 4], Role::ConvWeight);
        let kernels = Groups::new(&conv, Grouping::Kernel);
        assert_eq!((kernels.count(), kernels.size(0)), (8, 9));
        // Element (out 1, row 2, column 0, in 3) belongs to kernel 1·4 + 3.
        let index = 2 + (3 + 2) * 3 * 4 + 3;
        assert!(members(&kernels).contains(&(index, 7)));
        let channels = Groups::new(&conv, Grouping::Input);
        assert_eq!((channels.count(), channels.size(0)), (4, 18));
        assert!(members(&channels).contains(&(index, 3)));
        // In a linear layer the group of the paper's program is one input.
        let units = Groups::new(&linear(&[5, 3]), Grouping::Kernel);
        assert_eq!((units.count(), units.size(0)), (3, 5));
    }

    #[test]
    fn columns_of_one_category_form_one_group() {
        let groups = Groups::new(&linear(&[2, 4]), Grouping::Input).merged(&[0, 1, 1, 2]);
        assert_eq!((groups.count(), groups.size(1)), (3, 4));
        let weights = [0.0, 0.0, 1.0, 1.0, 3.0, 5.0, 1.0, 1.0, 3.0, 5.0];
        assert_eq!(groups.mean_squares(&weights), [1.0, 5.0, 25.0]);
    }
}
