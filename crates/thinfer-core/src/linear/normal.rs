//! The normal equations of a ridge fit, in the smaller of their two forms, and their Cholesky
//! factor.

use rayon::prelude::*;
use thinfer_data::{Error, Result};
use thinfer_engine::{Dataset, vectorize};

use super::{Centred, add_scaled, dot};

/// Rows of a panel, the unit of the matrix product.
const PANEL: usize = 8;
/// Products that are summed before the result goes back to memory.
const DEPTH: usize = 256;
/// Columns that one step of the factorisation removes.
const STRIP: usize = 64;
/// The largest matrix that is factorised, 2 GiB.
const MAX_ORDER: usize = 16_384;
/// Penalties on the grid: 10³ to 10⁻⁵ times the mean eigenvalue, three in two decades.
const PENALTIES: u32 = 13;

/// Which of the two equal forms of the normal equations is smaller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// XᵀX, columns by columns.
    Primal,
    /// XXᵀ, rows by rows.
    Dual,
}

impl Form {
    pub(super) fn of(data: &Dataset) -> Self {
        if data.columns() > data.rows() { Form::Dual } else { Form::Primal }
    }
}

/// XᵀX or XXᵀ of the centred inputs; only the lower triangle holds it.
pub(super) struct Normal {
    pub(super) form: Form,
    rows: usize,
    /// The most eigenvalues that can differ from 0.
    rank: usize,
    order: usize,
    lower: Vec<f64>,
}

impl Normal {
    pub(super) fn new(form: Form, inputs: &Centred) -> Result<Self> {
        let (rows, columns) = (inputs.data.rows(), inputs.data.columns());
        let (order, terms) = match form {
            Form::Primal => (columns, rows),
            Form::Dual => (rows, columns),
        };
        if order > MAX_ORDER {
            return Err(Error::Memory(format!(
                "the linear model would need a matrix of {order} by {order} numbers; \
                 give it at most {MAX_ORDER} rows or {MAX_ORDER} columns"
            )));
        }
        let x = inputs.data.inputs();
        let means = &inputs.means;
        let mut lower = vec![0.0; order * order];
        for first in (0..terms).step_by(DEPTH) {
            let depth = DEPTH.min(terms - first);
            let panels = match form {
                Form::Primal => pack(order, depth, |column, row| {
                    x[(first + row) * columns + column] as f64 - means[column]
                }),
                Form::Dual => pack(order, depth, |row, column| {
                    x[row * columns + first + column] as f64 - means[first + column]
                }),
            };
            add_outer(&mut lower, order, 0, 1.0, &panels, depth);
        }
        Ok(Self { form, rows, rank: rows.min(columns), order, lower })
    }

    /// The grid of λ, in falling order, around the mean eigenvalue of the inputs' covariance,
    /// the same in both forms.
    pub(super) fn penalties(&self) -> impl Iterator<Item = f64> + use<> {
        let trace: f64 = (0..self.order).map(|i| self.lower[i * self.order + i]).sum();
        let mean = trace / (self.rows * self.rank) as f64;
        let scale = if mean > 0.0 { mean } else { 1.0 };
        (0..PENALTIES).map(move |i| scale * 10f64.powf(3.0 - 2.0 * i as f64 / 3.0))
    }

    /// The factor of this matrix with `ridge` on the diagonal; `None` when rounding makes it
    /// indefinite.
    pub(super) fn factor(&self, ridge: f64) -> Option<Factor> {
        let mut lower = self.lower.clone();
        for i in 0..self.order {
            lower[i * self.order + i] += ridge;
        }
        cholesky(&mut lower, self.order).then_some(Factor { order: self.order, lower })
    }
}

/// Lays `order` vectors of length `depth` out in panels of eight, term by term; the last panel is
/// filled with zeros.
fn pack(order: usize, depth: usize, value: impl Fn(usize, usize) -> f64 + Sync) -> Vec<f64> {
    let mut panels = vec![0.0; order.next_multiple_of(PANEL) * depth];
    panels.par_chunks_mut(PANEL * depth).enumerate().for_each(|(panel, values)| {
        let used = PANEL.min(order - panel * PANEL);
        for (term, values) in values.chunks_exact_mut(PANEL).enumerate() {
            for (lane, v) in values[..used].iter_mut().enumerate() {
                *v = value(panel * PANEL + lane, term);
            }
        }
    });
    panels
}

/// C ← C ± P Pᵀ on the lower triangle, where row i of P is vector i of `panels` and C starts at
/// column `skip` of `rows`. Each panel of rows is one task, so the order of the sums is fixed.
fn add_outer(
    rows: &mut [f64],
    stride: usize,
    skip: usize,
    sign: f64,
    panels: &[f64],
    depth: usize,
) {
    rows.par_chunks_mut(PANEL * stride).enumerate().for_each(|(panel, rows)| {
        vectorize(
            #[inline(always)]
            || {
                let left = &panels[panel * PANEL * depth..][..PANEL * depth];
                for (other, right) in panels.chunks_exact(PANEL * depth).take(panel + 1).enumerate()
                {
                    let column = skip + other * PANEL;
                    let width = PANEL.min(stride - column);
                    // Four rows of eight sums fit into the registers of every x86-64 and ARM.
                    for half in 0..2 {
                        let tile = tile(left, right, 4 * half);
                        for (row, sums) in rows.chunks_exact_mut(stride).skip(4 * half).zip(&tile) {
                            for (c, sum) in row[column..column + width].iter_mut().zip(sums) {
                                *c += sign * sum;
                            }
                        }
                    }
                }
            },
        );
    });
}

#[inline(always)]
fn tile(left: &[f64], right: &[f64], first: usize) -> [[f64; PANEL]; 4] {
    let mut sums = [[0.0; PANEL]; 4];
    for (l, r) in left.as_chunks::<PANEL>().0.iter().zip(right.as_chunks::<PANEL>().0) {
        for i in 0..4 {
            for j in 0..PANEL {
                sums[i][j] += l[first + i] * r[j];
            }
        }
    }
    sums
}

/// Replaces the lower triangle by its Cholesky factor, strip by strip; false when the matrix is
/// not positive definite.
fn cholesky(a: &mut [f64], order: usize) -> bool {
    for first in (0..order).step_by(STRIP) {
        let width = STRIP.min(order - first);
        let (head, tail) = a.split_at_mut((first + width) * order);
        let corner = &mut head[first * order..];
        for j in 0..width {
            for c in 0..=j {
                let known: f64 = (0..c)
                    .map(|t| corner[j * order + first + t] * corner[c * order + first + t])
                    .sum();
                let rest = corner[j * order + first + c] - known;
                corner[j * order + first + c] = if c < j {
                    rest / corner[c * order + first + c]
                } else if rest > 0.0 {
                    rest.sqrt()
                } else {
                    return false;
                };
            }
        }
        let mut transposed = vec![0.0; width * width];
        for j in 0..width {
            for c in 0..=j {
                transposed[c * width + j] = corner[j * order + first + c];
            }
        }
        tail.par_chunks_mut(PANEL * order).for_each(|rows| {
            vectorize(
                #[inline(always)]
                || {
                    for row in rows.chunks_exact_mut(order) {
                        let row = &mut row[first..first + width];
                        for j in 0..width {
                            let column = &transposed[j * width..][..width];
                            row[j] /= column[j];
                            let done = row[j];
                            add_scaled(&mut row[j + 1..], -done, &column[j + 1..]);
                        }
                    }
                },
            );
        });
        let below = order - first - width;
        let panels = pack(below, width, |row, term| tail[row * order + first + term]);
        add_outer(tail, order, first + width, -1.0, &panels, width);
    }
    true
}

/// A Cholesky factor L, row by row in a square.
pub(super) struct Factor {
    order: usize,
    lower: Vec<f64>,
}

impl Factor {
    /// x ← (L Lᵀ)⁻¹ x
    pub(super) fn solve(&self, x: &mut [f64]) {
        vectorize(
            #[inline(always)]
            || {
                for i in 0..self.order {
                    let row = &self.lower[i * self.order..][..=i];
                    x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
                }
                for i in (0..self.order).rev() {
                    let row = &self.lower[i * self.order..][..=i];
                    let (before, after) = x.split_at_mut(i);
                    after[0] /= row[i];
                    add_scaled(before, -after[0], &row[..i]);
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use thinfer_engine::noise::{Key, Stream};

    use super::*;

    fn data(rows: usize, columns: usize) -> Dataset {
        let mut inputs = vec![0.0; rows * columns];
        Key::new(5, 0, Stream::Inputs).normals(0, 0, &mut inputs);
        for x in &mut inputs {
            *x += 0.5;
        }
        Dataset::new(columns, 1, inputs, vec![0.0; rows]).unwrap()
    }

    /// Sizes below, at and above the borders of panels, depths and strips.
    const SIZES: [(usize, usize); 6] = [(1, 1), (3, 2), (8, 8), (64, 70), (300, 131), (65, 260)];

    #[test]
    fn both_forms_hold_the_centred_products() {
        for (rows, columns) in SIZES {
            let data = data(rows, columns);
            let inputs = Centred::new(&data);
            let x = |i: usize, j: usize| data.input(i)[j] as f64 - inputs.means[j];
            let primal = Normal::new(Form::Primal, &inputs).unwrap();
            let dual = Normal::new(Form::Dual, &inputs).unwrap();
            for a in 0..columns {
                for b in 0..=a {
                    let want: f64 = (0..rows).map(|i| x(i, a) * x(i, b)).sum();
                    assert!((primal.lower[a * columns + b] - want).abs() < 1e-10);
                }
            }
            for a in 0..rows {
                for b in 0..=a {
                    let want: f64 = (0..columns).map(|j| x(a, j) * x(b, j)).sum();
                    assert!((dual.lower[a * rows + b] - want).abs() < 1e-10);
                }
            }
        }
    }

    #[test]
    fn a_factor_solves_its_equations() {
        for (rows, columns) in SIZES {
            let data = data(rows, columns);
            let normal = Normal::new(Form::Primal, &Centred::new(&data)).unwrap();
            let right: Vec<f64> = (0..columns).map(|j| (j as f64).sin()).collect();
            let mut x = right.clone();
            normal.factor(0.5).unwrap().solve(&mut x);
            for a in 0..columns {
                let left: f64 = (0..columns)
                    .map(|b| normal.lower[a.max(b) * columns + a.min(b)] * x[b])
                    .sum::<f64>()
                    + 0.5 * x[a];
                assert!((left - right[a]).abs() < 1e-9, "{rows}x{columns}, equation {a}");
            }
        }
    }

    #[test]
    fn an_indefinite_matrix_has_no_factor() {
        let data = data(40, 10);
        let normal = Normal::new(Form::Primal, &Centred::new(&data)).unwrap();
        assert!(normal.factor(-1e3).is_none());
    }

    #[test]
    fn penalties_fall_around_the_mean_eigenvalue() {
        let inputs = vec![1.0, 1.0, 1.0, -1.0, -1.0, -1.0];
        let data = Dataset::new(3, 1, inputs, vec![0.0; 2]).unwrap();
        let normal = Normal::new(Form::Dual, &Centred::new(&data)).unwrap();
        // Three columns of variance 1 and at most two eigenvalues: their mean is 3/2.
        let penalties: Vec<f64> = normal.penalties().collect();
        assert_eq!(penalties.len(), 13);
        assert!((penalties[0] / 1500.0 - 1.0).abs() < 1e-12);
        assert!((penalties[12] / 1.5e-5 - 1.0).abs() < 1e-12);
        assert!(penalties.windows(2).all(|pair| pair[1] < pair[0]));
    }

    #[test]
    fn a_matrix_that_is_too_large_is_refused() {
        let order = MAX_ORDER + 1;
        let data = Dataset::new(order, 1, vec![0.0; order], vec![0.0]).unwrap();
        let error = Normal::new(Form::Primal, &Centred::new(&data)).err().unwrap();
        assert!(error.to_string().contains("16385 by 16385"));
        assert!(Normal::new(Form::Dual, &Centred::new(&data)).is_ok());
    }
}
