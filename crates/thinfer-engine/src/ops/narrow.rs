//! The first layer of a network with many inputs and a few hidden units, read straight from the
//! rows of the data set.
//!
//! A general product copies its factors into panels first. With five outputs that copy costs more
//! than the product, so here rows are read where they lie, four at a time, and only the small
//! matrix is rearranged: packed so that the vectors of all outputs for the same inputs lie side by
//! side.

use pulp::{Arch, Simd, WithSimd};

/// Layers with more outputs are left to the general product.
pub(crate) const MOST_OUTPUTS: usize = 8;
/// Layers with fewer inputs are left to the general product.
pub(crate) const LEAST_INPUTS: usize = 64;
/// Rows whose sums are kept in registers together.
const GROUP: usize = 4;
/// The longest vector there is, in numbers; a packed matrix is padded to it.
const LONGEST: usize = 16;

/// Rows of a data set in some order.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) inputs: &'a [f32],
    pub(crate) columns: usize,
    pub(crate) order: &'a [u32],
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn row(self, at: u32) -> &'a [f32] {
        &self.inputs[at as usize * self.columns..][..self.columns]
    }

    /// The rows in groups. The last group is filled up with its last row.
    #[inline(always)]
    fn groups(self) -> impl Iterator<Item = [&'a [f32]; GROUP]> {
        self.order.chunks(GROUP).map(move |group| {
            let last = group.len() - 1;
            [
                self.row(group[0]),
                self.row(group[last.min(1)]),
                self.row(group[last.min(2)]),
                self.row(group[last]),
            ]
        })
    }
}

/// Numbers that a packed matrix takes.
pub(crate) fn packed_len(outputs: usize, inputs: usize) -> usize {
    outputs * inputs.next_multiple_of(LONGEST)
}

/// Runs a job compiled for this processor and this number of outputs.
macro_rules! dispatch {
    ($job:ident { $($field:ident),* }, $outputs:expr) => {
        match $outputs {
            1 => Arch::new().dispatch($job::<1> { $($field),* }),
            2 => Arch::new().dispatch($job::<2> { $($field),* }),
            3 => Arch::new().dispatch($job::<3> { $($field),* }),
            4 => Arch::new().dispatch($job::<4> { $($field),* }),
            5 => Arch::new().dispatch($job::<5> { $($field),* }),
            6 => Arch::new().dispatch($job::<6> { $($field),* }),
            7 => Arch::new().dispatch($job::<7> { $($field),* }),
            8 => Arch::new().dispatch($job::<8> { $($field),* }),
            _ => unreachable!("a plan sends no wider layers here"),
        }
    };
}

/// Packs `weight`, stored output by input.
pub(crate) fn pack(weight: &[f32], outputs: usize, packed: &mut [f32]) {
    dispatch!(Pack { weight, packed }, outputs);
}

/// Unpacks a gradient into `dw`, stored output by input.
pub(crate) fn unpack(packed: &[f32], outputs: usize, dw: &mut [f32]) {
    dispatch!(Unpack { packed, dw }, outputs);
}

/// `y ← x Wᵀ + b`
pub(crate) fn forward(
    x: Rows<'_>,
    packed: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    outputs: usize,
) {
    dispatch!(Forward { x, packed, bias, y }, outputs);
}

/// `packed dW += dyᵀ x`, or `packed dW ← dyᵀ x` where it is `fresh`: then what it holds is not
/// read.
pub(crate) fn weight_gradient(
    x: Rows<'_>,
    dy: &[f32],
    fresh: bool,
    packed: &mut [f32],
    outputs: usize,
) {
    dispatch!(WeightGradient { x, dy, fresh, packed }, outputs);
}

/// `y ← x Wᵀ + b` where all weights outside `columns` are zero.
pub(crate) fn forward_columns(
    x: Rows<'_>,
    columns: &[u32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    outputs: usize,
) {
    for (&row, y) in x.order.iter().zip(y.chunks_exact_mut(outputs)) {
        let row = x.row(row);
        match bias {
            Some(bias) => y.copy_from_slice(bias),
            None => y.fill(0.0),
        }
        for (y, weight) in y.iter_mut().zip(weight.chunks_exact(x.columns)) {
            let product = |&c: &u32| row[c as usize] * weight[c as usize];
            *y += columns.iter().map(product).sum::<f32>();
        }
    }
}

struct Pack<'a, const O: usize> {
    weight: &'a [f32],
    packed: &'a mut [f32],
}

impl<const O: usize> WithSimd for Pack<'_, O> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (lanes, inputs) = (S::F32_LANES, self.weight.len() / O);
        for (at, group) in self.packed.chunks_exact_mut(lanes * O).enumerate() {
            let (first, last) = ((at * lanes).min(inputs), ((at + 1) * lanes).min(inputs));
            let rows = group.chunks_exact_mut(lanes).zip(self.weight.chunks_exact(inputs));
            for (to, from) in rows {
                to[..last - first].copy_from_slice(&from[first..last]);
                to[last - first..].fill(0.0);
            }
        }
    }
}

struct Unpack<'a, const O: usize> {
    packed: &'a [f32],
    dw: &'a mut [f32],
}

impl<const O: usize> WithSimd for Unpack<'_, O> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (lanes, inputs) = (S::F32_LANES, self.dw.len() / O);
        for (o, dw) in self.dw.chunks_exact_mut(inputs).enumerate() {
            let groups = self.packed.chunks_exact(lanes * O);
            for (to, group) in dw.chunks_mut(lanes).zip(groups) {
                to.copy_from_slice(&group[o * lanes..][..to.len()]);
            }
        }
    }
}

/// A packed matrix as vectors: the whole vectors of a row, and the one that is partly filled.
#[inline(always)]
#[expect(clippy::type_complexity, reason = "a name for it would say less than the type")]
fn vectors<S: Simd, const O: usize>(
    packed: &[f32],
    whole: usize,
) -> (&[[S::f32s; O]], Option<&[S::f32s; O]>) {
    let vectors = S::as_simd_f32s(packed).0.as_chunks::<O>().0;
    (&vectors[..whole], vectors.get(whole))
}

struct Forward<'a, const O: usize> {
    x: Rows<'a>,
    packed: &'a [f32],
    bias: Option<&'a [f32]>,
    y: &'a mut [f32],
}

impl<const O: usize> WithSimd for Forward<'_, O> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (weights, rest) = vectors::<S, O>(self.packed, self.x.columns / S::F32_LANES);
        let mut bias = [0.0; O];
        if let Some(values) = self.bias {
            bias.copy_from_slice(values);
        }
        for (x, y) in self.x.groups().zip(self.y.chunks_mut(GROUP * O)) {
            let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = [
                S::as_simd_f32s(x[0]),
                S::as_simd_f32s(x[1]),
                S::as_simd_f32s(x[2]),
                S::as_simd_f32s(x[3]),
            ];
            let mut sums = [[simd.splat_f32s(0.0); O]; GROUP];
            for ((((w, a), b), c), d) in weights.iter().zip(a).zip(b).zip(c).zip(d) {
                add_products(simd, &mut sums, [*a, *b, *c, *d], w);
            }
            if let Some(w) = rest {
                let x = [
                    simd.partial_load_f32s(a_rest),
                    simd.partial_load_f32s(b_rest),
                    simd.partial_load_f32s(c_rest),
                    simd.partial_load_f32s(d_rest),
                ];
                add_products(simd, &mut sums, x, w);
            }
            for (y, sums) in y.chunks_exact_mut(O).zip(&sums) {
                for o in 0..O {
                    y[o] = bias[o] + simd.reduce_sum_f32s(sums[o]);
                }
            }
        }
    }
}

#[inline(always)]
fn add_products<S: Simd, const O: usize>(
    simd: S,
    sums: &mut [[S::f32s; O]; GROUP],
    x: [S::f32s; GROUP],
    w: &[S::f32s; O],
) {
    for r in 0..GROUP {
        for o in 0..O {
            sums[r][o] = simd.mul_add_f32s(x[r], w[o], sums[r][o]);
        }
    }
}

struct WeightGradient<'a, const O: usize> {
    x: Rows<'a>,
    dy: &'a [f32],
    fresh: bool,
    packed: &'a mut [f32],
}

impl<const O: usize> WithSimd for WeightGradient<'_, O> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let whole = self.x.columns / S::F32_LANES;
        let vectors = S::as_mut_simd_f32s(self.packed).0.as_chunks_mut::<O>().0;
        let (sums, rest) = vectors.split_at_mut(whole);
        let mut fresh = self.fresh;
        for (x, dy) in self.x.groups().zip(self.dy.chunks(GROUP * O)) {
            // A row that only fills up its group has slope zero.
            let mut slopes = [[simd.splat_f32s(0.0); O]; GROUP];
            for (slopes, dy) in slopes.iter_mut().zip(dy.chunks_exact(O)) {
                for o in 0..O {
                    slopes[o] = simd.splat_f32s(dy[o]);
                }
            }
            let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = [
                S::as_simd_f32s(x[0]),
                S::as_simd_f32s(x[1]),
                S::as_simd_f32s(x[2]),
                S::as_simd_f32s(x[3]),
            ];
            for ((((sums, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                if fresh {
                    *sums = [simd.splat_f32s(0.0); O];
                }
                add_slopes(simd, sums, [*a, *b, *c, *d], &slopes);
            }
            if let Some(sums) = rest.first_mut() {
                let x = [
                    simd.partial_load_f32s(a_rest),
                    simd.partial_load_f32s(b_rest),
                    simd.partial_load_f32s(c_rest),
                    simd.partial_load_f32s(d_rest),
                ];
                if fresh {
                    *sums = [simd.splat_f32s(0.0); O];
                }
                add_slopes(simd, sums, x, &slopes);
            }
            fresh = false;
        }
    }
}

#[inline(always)]
fn add_slopes<S: Simd, const O: usize>(
    simd: S,
    sums: &mut [S::f32s; O],
    x: [S::f32s; GROUP],
    slopes: &[[S::f32s; O]; GROUP],
) {
    for o in 0..O {
        let sum = simd.mul_add_f32s(x[0], slopes[0][o], sums[o]);
        let sum = simd.mul_add_f32s(x[1], slopes[1][o], sum);
        let sum = simd.mul_add_f32s(x[2], slopes[2][o], sum);
        sums[o] = simd.mul_add_f32s(x[3], slopes[3][o], sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Key, Stream};

    fn random(n: usize, step: u64) -> Vec<f32> {
        let mut values = vec![0.0; n];
        Key::new(1, 0, Stream::Initial).normals(step, 0, &mut values);
        values
    }

    /// Against sums in f64, for sizes that are and are not whole vectors and groups.
    #[test]
    fn products_are_those_of_the_definition() {
        for outputs in 1..=MOST_OUTPUTS {
            for (columns, count) in [(64, 4), (71, 5), (100, 1), (129, 7)] {
                let inputs = random(9 * columns, 0);
                let order: Vec<u32> = (0..count as u32).map(|i| (i * 5 + 2) % 9).collect();
                let x = Rows { inputs: &inputs, columns, order: &order };
                let (weight, bias) = (random(outputs * columns, 1), random(outputs, 2));
                let dy = random(outputs * count, 3);
                let len = packed_len(outputs, columns);
                let (mut packed, mut slopes) = (vec![0.0; len], vec![f32::NAN; len]);
                let mut y = vec![0.0; outputs * count];
                let mut dw = vec![0.0; outputs * columns];
                pack(&weight, outputs, &mut packed);
                forward(x, &packed, Some(&bias), &mut y, outputs);
                weight_gradient(x, &dy, true, &mut slopes, outputs);
                unpack(&slopes, outputs, &mut dw);
                for (r, &row) in order.iter().enumerate() {
                    for o in 0..outputs {
                        let products = (0..columns).map(|c| {
                            inputs[row as usize * columns + c] as f64
                                * weight[o * columns + c] as f64
                        });
                        let want = bias[o] as f64 + products.sum::<f64>();
                        assert!((y[r * outputs + o] as f64 - want).abs() < 1e-4);
                    }
                }
                for o in 0..outputs {
                    for c in 0..columns {
                        let products = order.iter().enumerate().map(|(r, &row)| {
                            inputs[row as usize * columns + c] as f64 * dy[r * outputs + o] as f64
                        });
                        let want = products.sum::<f64>();
                        assert!((dw[o * columns + c] as f64 - want).abs() < 1e-4);
                    }
                }
            }
        }
    }

    #[test]
    fn columns_with_zero_weights_need_not_be_read() {
        let (columns, outputs) = (70, 3);
        let inputs = random(4 * columns, 0);
        let x = Rows { inputs: &inputs, columns, order: &[3, 0, 1] };
        let live = [2u32, 5, 69];
        let mut weight = random(outputs * columns, 1);
        for (i, w) in weight.iter_mut().enumerate() {
            if !live.contains(&((i % columns) as u32)) {
                *w = 0.0;
            }
        }
        let mut packed = vec![0.0; packed_len(outputs, columns)];
        pack(&weight, outputs, &mut packed);
        let (mut all, mut some) = (vec![0.0; 9], vec![0.0; 9]);
        forward(x, &packed, None, &mut all, outputs);
        forward_columns(x, &live, &weight, None, &mut some, outputs);
        for (a, b) in all.iter().zip(&some) {
            assert!((a - b).abs() < 1e-5, "{a} against {b}");
        }
    }
}
