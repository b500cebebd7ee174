//! Runs small perceptrons with the rows of a block side by side.

use crate::dataset::Dataset;
use crate::network::{Curve, Family, Network, Node, NodeId, Op};
use crate::ops::loss;
use crate::ops::{add, relu, tanh};
use crate::plan::{Passes, bytes_of};
use crate::real::Real;
use crate::real::lanes::{LANES, Lanes, Work, with_lanes};
use crate::vectorize;

/// Rows of a block: they lie side by side, so a vector holds one unit of many rows.
const ROWS: usize = 128;
/// Layers with more units than this are left to general products.
const WIDEST: usize = 32;
/// Multiply-adds of a batch up to which waking another thread costs more than it helps.
const MOST_WORK: usize = 400_000;

/// Whether a network is so small that this is the fastest way to run it.
pub(crate) fn fits(network: &Network, most_rows: usize) -> bool {
    let runs = |op: &Op| super::rows::runs(op) && op.list().is_empty();
    let narrow = |node: &Node| runs(&node.op) && node.shape.len() <= WIDEST;
    network.nodes().iter().all(narrow)
        && network.multiply_adds().saturating_mul(most_rows) <= MOST_WORK
}

/// Numbers of each buffer: what makes them and what counts them read the same.
struct Lengths {
    /// Units of each node, of `ROWS` rows each.
    values: Vec<usize>,
    slopes: Vec<usize>,
    /// Parameters, of `LANES` sums each.
    sums: usize,
    targets: usize,
    output: usize,
    doutput: usize,
}

impl Lengths {
    fn new(network: &Network, passes: Passes) -> Self {
        let in_training = |len: usize| if passes == Passes::ForwardAndBack { len } else { 0 };
        let outputs = network.output_len();
        let values: Vec<usize> = network.nodes().iter().map(|node| node.shape.len()).collect();
        Self {
            slopes: values.iter().map(|units| in_training(*units)).collect(),
            values,
            sums: in_training(network.params().len()),
            targets: in_training(ROWS * network.loss().target_len(outputs)),
            output: ROWS * outputs,
            doutput: in_training(ROWS * outputs),
        }
    }
}

/// Bytes of the buffers of a plan whose numbers have `size` bytes.
pub(crate) fn bytes(network: &Network, passes: Passes, size: usize) -> u64 {
    let Lengths { values, slopes, sums, targets, output, doutput } = Lengths::new(network, passes);
    bytes_of(&values, ROWS * size)
        + bytes_of(&slopes, ROWS * size)
        + bytes_of(&[sums], LANES * size)
        + bytes_of(&[output, doutput], size)
        + bytes_of(&[targets], 4)
}

/// Runs small perceptrons on one thread, in `f32` to run and in `f64` to check gradients.
///
/// Of a network with a handful of units a general product is mostly calls, and turning rows into
/// columns for every layer takes longer than the layer. Here rows are turned once.
pub(crate) struct Exec<T> {
    pub(crate) network: Network,
    values: Vec<Vec<[T; ROWS]>>,
    slopes: Vec<Vec<[T; ROWS]>>,
    /// For each parameter, sums of its gradient, kept apart until the end of a batch.
    sums: Vec<[T; LANES]>,
    targets: Vec<f32>,
    /// Outputs and their slopes, row by row.
    output: Vec<T>,
    doutput: Vec<T>,
}

impl<T: Real> Exec<T> {
    pub(crate) fn new(network: &Network, passes: Passes) -> Self {
        let lengths = Lengths::new(network, passes);
        let blocks = |units: &[usize]| -> Vec<Vec<[T; ROWS]>> {
            units.iter().map(|units| vec![[T::ZERO; ROWS]; *units]).collect()
        };
        Self {
            values: blocks(&lengths.values),
            slopes: blocks(&lengths.slopes),
            sums: vec![[T::ZERO; LANES]; lengths.sums],
            targets: vec![0.0; lengths.targets],
            output: vec![T::ZERO; lengths.output],
            doutput: vec![T::ZERO; lengths.doutput],
            network: network.clone(),
        }
    }

    pub(crate) fn gradient(
        &mut self,
        weights: &[T],
        data: &Dataset,
        rows: &[u32],
        gradient: &mut [T],
    ) -> f64 {
        let scale = T::of(1.0 / rows.len() as f64);
        let param = self.network.loss().scale_param();
        let log_sigma = param.map(|param| self.network.params()[param].offset);
        self.sums.fill([T::ZERO; LANES]);
        let (mut total, mut total_dscale) = (0.0, 0.0);
        for block in rows.chunks(ROWS) {
            self.load(data, block, true);
            self.forward_block(weights);
            let outputs = self.network.output_len();
            self.take_output(block.len());
            let len = block.len() * outputs;
            let (loss, dscale) = loss::gradient(
                self.network.loss(),
                log_sigma.map(|at| weights[at]),
                &self.output[..len],
                &self.targets,
                outputs,
                scale,
                &mut self.doutput[..len],
            );
            total += loss;
            total_dscale += dscale;
            self.backward_block(weights, block.len());
        }
        for (gradient, sums) in gradient.iter_mut().zip(&self.sums) {
            *gradient = total_of(sums);
        }
        if let Some(at) = log_sigma {
            gradient[at] = T::of(total_dscale) * scale;
        }
        total / rows.len() as f64
    }

    pub(crate) fn forward(&mut self, weights: &[T], data: &Dataset, rows: &[u32], out: &mut [T]) {
        let outputs = self.network.output_len();
        for (block, out) in rows.chunks(ROWS).zip(out.chunks_mut(ROWS * outputs)) {
            self.load(data, block, false);
            self.forward_block(weights);
            self.take_output(block.len());
            out.copy_from_slice(&self.output[..out.len()]);
        }
    }

    /// Turns a block of rows; rows that are missing are zero.
    fn load(&mut self, data: &Dataset, rows: &[u32], targets: bool) {
        let (inputs, columns) = (data.inputs(), data.columns());
        let mut starts = [0; ROWS];
        starts.iter_mut().zip(rows).for_each(|(start, &row)| *start = row as usize * columns);
        let most = starts.iter().fold(0, |most, start| most.max(*start));
        assert!(most + columns <= inputs.len(), "rows are checked before");
        for (column, unit) in self.values[0].iter_mut().enumerate().take(columns) {
            let (there, missing) = unit.split_at_mut(rows.len());
            vectorize(
                #[inline(always)]
                || {
                    for (to, start) in there.iter_mut().zip(&starts) {
                        // SAFETY: a row of `columns` numbers begins there, as was just seen of the
                        // last one.
                        *to = T::of_single(unsafe { *inputs.get_unchecked(start + column) });
                    }
                },
            );
            missing.fill(T::ZERO);
        }
        if targets {
            let width = data.target_columns();
            let all = data.targets();
            if width == 1 {
                let pairs = self.targets.iter_mut().zip(rows);
                pairs.for_each(|(to, &row)| *to = all[row as usize]);
            } else {
                for (to, &row) in self.targets.chunks_exact_mut(width).zip(rows) {
                    to.copy_from_slice(data.target(row as usize));
                }
            }
        }
    }

    fn take_output(&mut self, rows: usize) {
        let units = &self.values[self.network.output().0];
        if let [unit] = &units[..] {
            self.output[..rows].copy_from_slice(&unit[..rows]);
            return;
        }
        for (row, to) in self.output.chunks_exact_mut(units.len()).take(rows).enumerate() {
            to.iter_mut().zip(units).for_each(|(to, unit)| *to = unit[row]);
        }
    }

    fn forward_block(&mut self, weights: &[T]) {
        let params = self.network.params();
        for (at, node) in self.network.nodes().iter().enumerate().skip(1) {
            let (before, rest) = self.values.split_at_mut(at);
            let (x, y) = (&before[node.inputs[0].0], &mut rest[0]);
            match node.op.family() {
                Family::Weights { weight, bias, window: None } => {
                    let weight = &weights[params[weight].range()];
                    let bias = bias.map(|bias| &weights[params[bias].range()]);
                    with_lanes(Forward { x, weight, bias, y });
                }
                Family::Curve(Curve::Relu) => relu::forward(x.as_flattened(), y.as_flattened_mut()),
                Family::Curve(Curve::Tanh) => tanh::forward(x.as_flattened(), y.as_flattened_mut()),
                Family::Sum => {
                    let other = &before[node.inputs[1].0];
                    add::forward(x.as_flattened(), other.as_flattened(), y.as_flattened_mut());
                }
                // [`fits`] sends networks with these elsewhere.
                Family::Input
                | Family::Weights { window: Some(_), .. }
                | Family::Norm { .. }
                | Family::Pool(_)
                | Family::List(..)
                | Family::Scales { .. } => {}
            }
        }
    }

    /// The way back of a block of which `rows` rows count.
    fn backward_block(&mut self, weights: &[T], rows: usize) {
        let out = self.network.output().0;
        let outputs = self.network.output_len();
        // Nothing reads the slope of the input.
        self.slopes.iter_mut().skip(1).for_each(|units| units.fill([T::ZERO; ROWS]));
        if let [unit] = &mut self.slopes[out][..] {
            unit[..rows].copy_from_slice(&self.doutput[..rows]);
        } else {
            for (row, d) in self.doutput.chunks_exact(outputs).take(rows).enumerate() {
                self.slopes[out].iter_mut().zip(d).for_each(|(unit, d)| unit[row] = *d);
            }
        }
        let params = self.network.params();
        let network = &self.network;
        for (at, node) in network.nodes().iter().enumerate().skip(1).rev() {
            if !network.wants_slope(NodeId(at)) {
                continue;
            }
            let (before, rest) = self.slopes.split_at_mut(at);
            let dy = &rest[0];
            match node.op.family() {
                Family::Weights { weight, bias, window: None } => {
                    let from = node.inputs[0].0;
                    let (x, w) = (&self.values[from], &weights[params[weight].range()]);
                    if network.trains(weight) {
                        let dw = &mut self.sums[params[weight].range()];
                        with_lanes(WeightGradient { x, dy, dw });
                    }
                    if let Some(bias) = bias.filter(|bias| network.trains(*bias)) {
                        let db = &mut self.sums[params[bias].range()];
                        let ones = [[T::ONE; ROWS]];
                        with_lanes(WeightGradient { x: &ones, dy, dw: db });
                    }
                    if network.wants_slope(node.inputs[0]) {
                        let dx = &mut before[from];
                        with_lanes(InputGradient { dy, weight: w, dx });
                    }
                }
                family @ (Family::Curve(_) | Family::Sum) => {
                    let (y, dy) = (self.values[at].as_flattened(), dy.as_flattened());
                    for from in node.inputs.iter().filter(|from| network.wants_slope(**from)) {
                        let dx = before[from.0].as_flattened_mut();
                        match family {
                            Family::Curve(Curve::Relu) => relu::backward(y, dy, dx),
                            Family::Curve(Curve::Tanh) => tanh::backward(y, dy, dx),
                            _ => add::backward(dy, dx),
                        }
                    }
                }
                // [`fits`] sends networks with these elsewhere.
                Family::Input
                | Family::Weights { window: Some(_), .. }
                | Family::Norm { .. }
                | Family::Pool(_)
                | Family::List(..)
                | Family::Scales { .. } => {}
            }
        }
    }
}

/// Sixteen rows of one unit.
///
/// # Safety
/// The processor has the features of `L`, and `first` is a multiple of [`LANES`] below [`ROWS`].
#[inline(always)]
unsafe fn lanes<T, L: Lanes<T>>(unit: &[T; ROWS], first: usize) -> L {
    // SAFETY: sixteen numbers follow `first`.
    unsafe { L::load(unit.as_ptr().add(first)) }
}

/// `y ← W x + b`
struct Forward<'a, T> {
    x: &'a [[T; ROWS]],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    y: &'a mut [[T; ROWS]],
}

impl<T: Real> Work<T> for Forward<'_, T> {
    #[inline(always)]
    unsafe fn run<L: Lanes<T>>(self) {
        for (o, (y, weight)) in
            self.y.iter_mut().zip(self.weight.chunks_exact(self.x.len())).enumerate()
        {
            let start = [self.bias.map_or(T::ZERO, |bias| bias[o]); LANES];
            for (at, y) in y.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: the caller promises the features; `start` has sixteen numbers.
                unsafe {
                    let mut sum = L::load(start.as_ptr());
                    for (w, x) in weight.iter().zip(self.x) {
                        sum = sum.add_product(*w, lanes(x, LANES * at));
                    }
                    sum.put(y, false);
                }
            }
        }
    }
}

/// `dx += Wᵀ dy`
struct InputGradient<'a, T> {
    dy: &'a [[T; ROWS]],
    weight: &'a [T],
    dx: &'a mut [[T; ROWS]],
}

impl<T: Real> Work<T> for InputGradient<'_, T> {
    #[inline(always)]
    unsafe fn run<L: Lanes<T>>(self) {
        let inputs = self.dx.len();
        for (i, dx) in self.dx.iter_mut().enumerate() {
            for (at, dx) in dx.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: the caller promises the features.
                unsafe {
                    let mut sum = L::load(dx.as_ptr());
                    for (weight, dy) in self.weight.chunks_exact(inputs).zip(self.dy) {
                        sum = sum.add_product(weight[i], lanes(dy, LANES * at));
                    }
                    sum.put(dx, false);
                }
            }
        }
    }
}

/// `dW += dy xᵀ`, summed by lanes.
struct WeightGradient<'a, T> {
    x: &'a [[T; ROWS]],
    dy: &'a [[T; ROWS]],
    dw: &'a mut [[T; LANES]],
}

impl<T: Real> Work<T> for WeightGradient<'_, T> {
    #[inline(always)]
    unsafe fn run<L: Lanes<T>>(self) {
        for (dw, dy) in self.dw.chunks_exact_mut(self.x.len()).zip(self.dy) {
            for (sums, x) in dw.iter_mut().zip(self.x) {
                // SAFETY: the caller promises the features.
                unsafe {
                    let mut sum = L::load(sums.as_ptr());
                    for first in (0..ROWS).step_by(LANES) {
                        sum = sum.add_products(lanes(dy, first), lanes(x, first));
                    }
                    sum.put(sums, false);
                }
            }
        }
    }
}

/// The sum of all lanes, in a fixed order.
fn total_of<T: Real>(sums: &[T; LANES]) -> T {
    let mut half = [T::ZERO; LANES / 2];
    for l in 0..LANES / 2 {
        half[l] = sums[l] + sums[l + LANES / 2];
    }
    let quarter = [half[0] + half[4], half[1] + half[5], half[2] + half[6], half[3] + half[7]];
    (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkBuilder;
    use crate::noise::{Key, Stream};
    use crate::ops::loss::{Loss, Scale};
    use crate::plan::rows;

    fn random(n: usize, seed: u64, scale: f32) -> Vec<f32> {
        let mut values = vec![0.0; n];
        Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
        values.iter_mut().for_each(|v| *v *= scale);
        values
    }

    fn network(loss: Loss, outputs: usize) -> Network {
        let mut b = NetworkBuilder::new(5);
        let h = b.linear("fc1", b.input(), 4).unwrap();
        let a = b.tanh(h).unwrap();
        let r = b.linear_with("fc2", a, 4, false).unwrap();
        let r = b.relu(r).unwrap();
        let s = b.add(a, r).unwrap();
        let twice = b.add(s, s).unwrap();
        let out = b.linear("fc3", twice, outputs).unwrap();
        b.finish(out, loss).unwrap()
    }

    /// Row by row and turned, in double precision: sums are taken in another order, no more.
    #[test]
    fn turned_rows_give_the_same_gradient() {
        for (loss, outputs) in [
            (Loss::gaussian_learned(0.7), 2),
            (Loss::Gaussian { scale: Scale::ByRow { start: 0.7 } }, 2),
            (Loss::StudentT { scale: Scale::ByRow { start: 0.7 }, dof: 4.0 }, 2),
            (Loss::Bernoulli, 1),
            (Loss::CrossEntropy { smoothing: 0.1 }, 3),
        ] {
            let network = network(loss, outputs);
            let width = network.loss().target_len(outputs);
            for n in [1, 127, 128, 129, 300] {
                let targets = (0..n * width).map(|i| (i % outputs.max(2)) as f32).collect();
                let data = Dataset::new(5, width, random(n * 5, 5, 1.0), targets).unwrap();
                let rows: Vec<u32> = (0..n as u32).rev().collect();
                let params = network.params().len();
                let w: Vec<f64> = random(params, 1, 0.5).into_iter().map(f64::from).collect();
                let (mut a, mut b) = (vec![0.0; params], vec![0.0; params]);
                let mut turned = Exec::<f64>::new(&network, Passes::ForwardAndBack);
                let mut by_row = rows::Exec::<f64>::new(&network, n, Passes::ForwardAndBack);
                // Twice, so that nothing is left over from the batch before.
                turned.gradient(&w, &data, &rows, &mut a);
                let loss = turned.gradient(&w, &data, &rows, &mut a);
                let expected = by_row.gradient(&w, &data, &rows, &mut b);
                assert!((loss - expected).abs() < 1e-12 * expected.abs().max(1.0));
                for (a, b) in a.iter().zip(&b) {
                    // Slopes grow with e^{−ln σ} where σ is an output.
                    let near = 1e-12 * b.abs().max(1.0);
                    assert!((a - b).abs() < near, "{a} against {b} of {n} rows");
                }
                let (mut a, mut b) = (vec![0.0; n * outputs], vec![0.0; n * outputs]);
                turned.forward(&w, &data, &rows, &mut a);
                by_row.forward(&w, &data, &rows, &mut b);
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12));
            }
        }
    }
}
