//! Gradient and Hessian of a small perceptron in `f64`, for the Laplace evidence.
//!
//! A network that has been thinned to a few inputs and a few dozen weights is cheap enough for
//! differences of exact gradients, and `f64` leaves them ten good digits.

use std::ops::Range;

use thinfer_data::{Error, Result};
use thinfer_engine::{Dataset, Loss, Network, Op};
use thinfer_run::config::Activation;

/// The step of the differences.
const STEP: f64 = 1e-4;

struct Layer {
    weight: Range<usize>,
    bias: Option<Range<usize>>,
    inputs: usize,
    outputs: usize,
    activation: Option<Activation>,
}

/// A perceptron that is a plain chain of layers.
pub(super) struct Chain {
    layers: Vec<Layer>,
    loss: Loss,
}

impl Chain {
    /// Fails for a network that is not linear layers with ReLU or tanh between them.
    pub(super) fn of(network: &Network) -> Result<Self> {
        let mut layers: Vec<Layer> = Vec::new();
        for (at, node) in network.nodes().iter().enumerate().skip(1) {
            let chained = node.inputs.len() == 1 && node.inputs[0].0 + 1 == at;
            match (&node.op, layers.last_mut()) {
                (Op::Linear { weight, bias }, _) if chained => {
                    let param = &network.params()[*weight];
                    layers.push(Layer {
                        weight: param.range(),
                        bias: bias.map(|b| network.params()[b].range()),
                        inputs: param.fan_in(),
                        outputs: node.shape.len(),
                        activation: None,
                    });
                }
                (Op::Relu, Some(layer)) if chained => layer.activation = Some(Activation::Relu),
                (Op::Tanh, Some(layer)) if chained => layer.activation = Some(Activation::Tanh),
                _ => {
                    return Err(Error::Data(
                        "curvature is known for plain perceptrons only; use one".into(),
                    ));
                }
            }
        }
        Ok(Self { layers, loss: network.loss().clone() })
    }

    /// The mean loss over all rows, and its gradient.
    pub(super) fn gradient(&self, w: &[f64], data: &Dataset) -> (f64, Vec<f64>) {
        let mut gradient = vec![0.0; w.len()];
        let mut values: Vec<Vec<f64>> = self.layers.iter().map(|l| vec![0.0; l.outputs]).collect();
        let mut total = 0.0;
        for row in 0..data.rows() {
            let x: Vec<f64> = data.input(row).iter().map(|x| f64::from(*x)).collect();
            for at in 0..self.layers.len() {
                let (before, rest) = values.split_at_mut(at);
                self.layers[at].forward(w, before.last().unwrap_or(&x), &mut rest[0]);
            }
            let output = &values[values.len() - 1];
            let (loss, mut slopes) = self.head(output, f64::from(data.target(row)[0]));
            total += loss;
            for at in (0..self.layers.len()).rev() {
                let input = if at == 0 { &x } else { &values[at - 1] };
                slopes = self.layers[at].backward(w, input, &values[at], slopes, &mut gradient);
            }
        }
        let rows = data.rows().max(1) as f64;
        gradient.iter_mut().for_each(|g| *g /= rows);
        (total / rows, gradient)
    }

    fn head(&self, output: &[f64], y: f64) -> (f64, Vec<f64>) {
        match self.loss {
            // The selectors give a number unit noise; no other likelihood comes here.
            Loss::Gaussian { .. }
            | Loss::StudentT { .. }
            | Loss::Poisson { .. }
            | Loss::NegativeBinomial { .. } => {
                let residual = output[0] - y;
                (0.5 * residual * residual, vec![residual])
            }
            Loss::Bernoulli => {
                let f = output[0];
                let p = 1.0 / (1.0 + (-f).exp());
                (f.max(0.0) + (-f.abs()).exp().ln_1p() - y * f, vec![p - y])
            }
            Loss::CrossEntropy { .. } => {
                let top = output.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = output.iter().map(|f| (f - top).exp()).sum();
                let mut slopes: Vec<f64> = output.iter().map(|f| (f - top).exp() / sum).collect();
                slopes[y as usize] -= 1.0;
                (sum.ln() + top - output[y as usize], slopes)
            }
        }
    }
}

impl Layer {
    fn forward(&self, w: &[f64], x: &[f64], y: &mut [f64]) {
        for (unit, y) in y.iter_mut().enumerate() {
            let weights = &w[self.weight.clone()][unit * self.inputs..(unit + 1) * self.inputs];
            let bias = self.bias.as_ref().map_or(0.0, |b| w[b.start + unit]);
            let sum = bias + weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
            *y = match self.activation {
                None => sum,
                Some(Activation::Relu) => sum.max(0.0),
                Some(Activation::Tanh) => sum.tanh(),
            };
        }
    }

    fn backward(
        &self,
        w: &[f64],
        x: &[f64],
        y: &[f64],
        mut slopes: Vec<f64>,
        gradient: &mut [f64],
    ) -> Vec<f64> {
        let mut below = vec![0.0; self.inputs];
        for unit in 0..self.outputs {
            slopes[unit] *= match self.activation {
                None => 1.0,
                Some(Activation::Relu) => f64::from(u8::from(y[unit] > 0.0)),
                Some(Activation::Tanh) => 1.0 - y[unit] * y[unit],
            };
            let first = self.weight.start + unit * self.inputs;
            for j in 0..self.inputs {
                gradient[first + j] += slopes[unit] * x[j];
                below[j] += slopes[unit] * w[first + j];
            }
            if let Some(bias) = &self.bias {
                gradient[bias.start + unit] += slopes[unit];
            }
        }
        below
    }
}

/// ln |det H| of the Hessian of a function over the coordinates `free`, from its gradient.
pub(super) fn log_determinant(
    at: &[f64],
    free: &[usize],
    gradient: impl Fn(&[f64]) -> Vec<f64>,
) -> f64 {
    let d = free.len();
    let mut hessian = vec![0.0; d * d];
    let mut point = at.to_vec();
    for (column, &i) in free.iter().enumerate() {
        point[i] = at[i] + STEP;
        let above = gradient(&point);
        point[i] = at[i] - STEP;
        let below = gradient(&point);
        point[i] = at[i];
        for (row, &j) in free.iter().enumerate() {
            hessian[row * d + column] = (above[j] - below[j]) / (2.0 * STEP);
        }
    }
    for row in 0..d {
        for column in 0..row {
            let mean = 0.5 * (hessian[row * d + column] + hessian[column * d + row]);
            (hessian[row * d + column], hessian[column * d + row]) = (mean, mean);
        }
    }
    log_abs_determinant(hessian, d)
}

/// By elimination with row exchanges; −∞ of a singular matrix.
fn log_abs_determinant(mut a: Vec<f64>, d: usize) -> f64 {
    let mut sum = 0.0;
    for k in 0..d {
        let largest = (k..d).max_by(|&i, &j| a[i * d + k].abs().total_cmp(&a[j * d + k].abs()));
        let pivot = largest.unwrap_or(k);
        if pivot != k {
            (0..d).for_each(|j| a.swap(k * d + j, pivot * d + j));
        }
        let diagonal = a[k * d + k];
        sum += diagonal.abs().ln();
        if diagonal == 0.0 {
            return f64::NEG_INFINITY;
        }
        for i in k + 1..d {
            let factor = a[i * d + k] / diagonal;
            for j in k..d {
                a[i * d + j] -= factor * a[k * d + j];
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use thinfer_engine::Plan;

    use super::*;
    use crate::selectors::network::{Shape, perceptron};
    use crate::selectors::testing::{bundle, classes};

    #[test]
    fn determinants_are_known() {
        // 0·(…) first, so that rows must be exchanged; det = -14.
        let a = vec![0.0, 2.0, 1.0, 1.0, 1.0, 4.0, 3.0, 1.0, 1.0];
        let by_hand: f64 = 0.0 * (1.0 - 4.0) - 2.0 * (1.0 - 12.0) + (1.0 - 3.0);
        assert!((log_abs_determinant(a, 3) - by_hand.abs().ln()).abs() < 1e-12);
        assert_eq!(log_abs_determinant(vec![1.0, 2.0, 2.0, 4.0], 2), f64::NEG_INFINITY);
    }

    #[test]
    fn gradients_are_those_of_the_engine() {
        let regression = bundle(1, 40, 4, |x, e| x[0] + e);
        let two = classes(1, 40, 4, |x, _| x[0] > 0.0);
        let mut three = classes(1, 40, 4, |x, _| x[0] > 0.0);
        three.classes = 3;
        for data in [&regression, &two, &three] {
            for activation in [Activation::Relu, Activation::Tanh] {
                let shape = Shape { hidden: &[3, 2], activation, bias: true };
                let network = perceptron(data, shape).unwrap();
                let w: Vec<f32> = (0..network.params().len())
                    .map(|i| ((i * 37 % 19) as f32 - 9.0) / 9.0)
                    .collect();
                let rows: Vec<u32> = (0..40).collect();
                let mut want = vec![0.0; w.len()];
                let mut plan = Plan::new(&network, 40).unwrap();
                let loss = plan.gradient_at(&w, &mut [], &data.train, &rows, &mut want).unwrap();
                let wide: Vec<f64> = w.iter().map(|w| f64::from(*w)).collect();
                let (got_loss, got) = Chain::of(&network).unwrap().gradient(&wide, &data.train);
                assert!((got_loss - loss).abs() < 1e-5 * (1.0 + loss));
                for (a, b) in got.iter().zip(&want) {
                    assert!((a - f64::from(*b)).abs() < 1e-4 * (1.0 + a.abs()), "{a} {b}");
                }
            }
        }
    }

    /// A quadratic ½ wᵀAw has the Hessian A, whatever the point.
    #[test]
    fn the_hessian_of_a_quadratic_is_its_matrix() {
        let a = [[2.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 3.0]];
        let gradient =
            |w: &[f64]| (0..3).map(|i| (0..3).map(|j| a[i][j] * w[j]).sum()).collect::<Vec<f64>>();
        let got = log_determinant(&[1.0, -2.0, 0.3], &[0, 2], gradient);
        assert!((got - 6.0f64.ln()).abs() < 1e-9, "{got}");
        let all = log_determinant(&[1.0, -2.0, 0.3], &[0, 1, 2], gradient);
        let det: f64 = 2.0 * (3.0 - 0.0625) - 0.5 * 1.5;
        assert!((all - det.ln()).abs() < 1e-9);
    }
}
