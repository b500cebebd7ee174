//! Groups of weights that live and die together.

use serde::{Deserialize, Serialize};
use thinfer_engine::{Param, ParamTable};

/// Which weights of a layer form one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// All weights that read one input: variable selection in the first layer.
    Input,
    /// All weights of one output.
    Output,
    /// Every weight by itself.
    Weight,
}

impl Grouping {
    /// The axes over which a group extends, for a tensor of the given rank.
    ///
    /// Axis 0 is the output and the last axis the input, for linear layers (output, input) and for
    /// convolutions (output, kernel row, kernel column, input) alike.
    fn extends_over(self, rank: usize) -> Vec<bool> {
        (0..rank)
            .map(|axis| match self {
                Grouping::Input => axis + 1 != rank,
                Grouping::Output => axis != 0,
                Grouping::Weight => false,
            })
            .collect()
    }
}

/// The groups of one parameter: a tensor, the axes over which a group extends, and, for inputs that
/// belong together (the columns of one category), a merge of neighbouring groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    range: std::ops::Range<usize>,
    shape: Vec<usize>,
    extends: Vec<bool>,
    merge: Option<Vec<u32>>,
    count: usize,
    sizes: Vec<u32>,
}

impl Groups {
    /// The groups of `param`.
    pub fn new(param: &Param, grouping: Grouping) -> Self {
        Self::over_axes(param, &grouping.extends_over(param.shape.len()))
    }

    /// Groups that extend over any axes: `[false, true, true, false]` is one kernel of a
    /// convolution per pair of channels.
    pub fn over_axes(param: &Param, extends: &[bool]) -> Self {
        let shape = param.shape.clone();
        let axes = || shape.iter().zip(extends);
        let count = axes().filter(|(_, e)| !**e).map(|(n, _)| n).product();
        let size: usize = axes().filter(|(_, e)| **e).map(|(n, _)| n).product();
        Self {
            range: param.range(),
            extends: extends.to_vec(),
            merge: None,
            count,
            sizes: vec![size as u32; count],
            shape,
        }
    }

    /// Merges groups: group `g` becomes `into[g]`. Used where several design columns are one
    /// variable.
    pub fn merged(mut self, into: &[usize]) -> Self {
        let count = into.iter().max().map_or(0, |m| m + 1);
        let mut sizes = vec![0; count];
        for (group, &to) in into.iter().enumerate() {
            sizes[to] += self.sizes[group];
        }
        self.merge = Some(into.iter().map(|g| *g as u32).collect());
        self.count = count;
        self.sizes = sizes;
        self
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Weights in a group.
    pub fn size(&self, group: usize) -> usize {
        self.sizes[group] as usize
    }

    /// Calls `visit(index in the flat buffers, group)` for every weight, in order.
    pub fn for_each(&self, mut visit: impl FnMut(usize, usize)) {
        let rank = self.shape.len();
        // Stride of the group number along each axis; 0 where the group extends.
        let mut strides = vec![0; rank];
        let mut next = 1;
        for axis in (0..rank).rev() {
            if !self.extends[axis] {
                strides[axis] = next;
                next *= self.shape[axis];
            }
        }
        let inner = self.shape[rank - 1];
        let inner_stride = strides[rank - 1];
        let mut at = vec![0; rank];
        let mut index = self.range.start;
        while index < self.range.end {
            let base: usize = (0..rank - 1).map(|axis| at[axis] * strides[axis]).sum();
            for i in 0..inner {
                let group = base + i * inner_stride;
                let group = self.merge.as_ref().map_or(group, |m| m[group] as usize);
                visit(index, group);
                index += 1;
            }
            for axis in (0..rank - 1).rev() {
                at[axis] += 1;
                if at[axis] < self.shape[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }

    /// `mean_k w_gk²` of every group, summed in the order of the buffer.
    pub fn mean_squares(&self, weights: &[f32]) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        self.for_each(|index, group| sums[group] += (weights[index] as f64).powi(2));
        for (sum, size) in sums.iter_mut().zip(&self.sizes) {
            *sum /= (*size).max(1) as f64;
        }
        sums
    }
}

/// The groups of every weight matrix of a network. Biases and scales belong to none.
pub fn group_network(
    table: &ParamTable,
    grouping: Grouping,
    input_groups: Option<&[usize]>,
) -> Vec<Groups> {
    let weights = table.iter().filter(|p| p.role.is_weight());
    weights
        .enumerate()
        .map(|(layer, param)| {
            let groups = Groups::new(param, grouping);
            match input_groups {
                Some(into) if layer == 0 && grouping == Grouping::Input => groups.merged(into),
                _ => groups,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::Role;

    fn param(shape: &[usize]) -> Param {
        Param { name: "w".into(), shape: shape.to_vec(), role: Role::LinearWeight, offset: 2 }
    }

    fn members(groups: &Groups) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        groups.for_each(|i, g| all.push((i, g)));
        all
    }

    #[test]
    fn input_groups_are_columns_and_output_groups_rows() {
        let inputs = Groups::new(&param(&[2, 3]), Grouping::Input);
        assert_eq!(members(&inputs), [(2, 0), (3, 1), (4, 2), (5, 0), (6, 1), (7, 2)]);
        let outputs = Groups::new(&param(&[2, 3]), Grouping::Output);
        assert_eq!(members(&outputs), [(2, 0), (3, 0), (4, 0), (5, 1), (6, 1), (7, 1)]);
        let single = Groups::new(&param(&[2, 3]), Grouping::Weight);
        assert_eq!(members(&single), [(2, 0), (3, 1), (4, 2), (5, 3), (6, 4), (7, 5)]);
        let weights = [0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0];
        assert_eq!(inputs.mean_squares(&weights), [5.0, 10.0, 17.0]);
        assert_eq!((inputs.size(0), outputs.size(0), single.size(0)), (2, 3, 1));
    }

    #[test]
    fn a_convolution_can_be_grouped_by_kernel_and_by_channel() {
        let conv = param(&[2, 3, 3, 4]);
        let kernels = Groups::over_axes(&conv, &[false, true, true, false]);
        assert_eq!((kernels.count(), kernels.size(0)), (8, 9));
        // Element (out 1, row 2, column 0, in 3) belongs to kernel 1·4 + 3.
        let index = 2 + (3 + 2) * 3 * 4 + 3;
        assert!(members(&kernels).contains(&(index, 7)));
        let channels = Groups::new(&conv, Grouping::Input);
        assert_eq!((channels.count(), channels.size(0)), (4, 18));
        assert!(members(&channels).contains(&(index, 3)));
    }

    #[test]
    fn columns_of_one_category_form_one_group() {
        let groups = Groups::new(&param(&[2, 4]), Grouping::Input).merged(&[0, 1, 1, 2]);
        assert_eq!((groups.count(), groups.size(1)), (3, 4));
        let weights = [0.0, 0.0, 1.0, 1.0, 3.0, 5.0, 1.0, 1.0, 3.0, 5.0];
        assert_eq!(groups.mean_squares(&weights), [1.0, 5.0, 25.0]);
    }
}
