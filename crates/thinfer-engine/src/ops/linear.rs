//! `y = x Wᵀ + b` for a block of rows; W is stored output by input.

use gemm::Parallelism;

use super::tiny;
use crate::real::Real;

/// A row-major matrix as `gemm` wants it, possibly read transposed.
#[derive(Clone, Copy)]
struct View<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> View<'a, T> {
    fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert!(values.len() >= rows * columns, "a matrix view reaches past its buffer");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `to += a b` on one thread; threads share work by rows of the batch, not inside a product, so
/// the order of summation never depends on how many there are.
fn multiply_add<T: Real>(to: &mut [T], a: View<'_, T>, b: View<'_, T>) {
    assert_eq!(a.columns, b.rows, "inner sizes of a product differ");
    assert!(to.len() >= a.rows * b.columns, "a product does not fit its buffer");
    // SAFETY: the three buffers are at least as long as their sizes and strides reach (asserted
    // here and in `View::new`), and `to` is borrowed mutably, so it overlaps neither factor.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            to.as_mut_ptr(),
            1,
            b.columns as isize,
            true,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            T::ONE,
            T::ONE,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Sizes of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// `y ← x Wᵀ + b`
pub(crate) fn forward<T: Real>(size: Size, x: &[T], weight: &[T], bias: Option<&[T]>, y: &mut [T]) {
    if tiny::fits(size) {
        return tiny::forward(size, x, weight, bias, y);
    }
    match bias {
        Some(bias) => y.chunks_exact_mut(size.outputs).for_each(|row| row.copy_from_slice(bias)),
        None => y.fill(T::ZERO),
    }
    let x = View::new(x, size.rows, size.inputs);
    multiply_add(y, x, View::new(weight, size.outputs, size.inputs).transposed());
}

/// `dW += dyᵀ x`
pub(crate) fn weight_gradient<T: Real>(size: Size, x: &[T], dy: &[T], dw: &mut [T]) {
    if tiny::fits(size) {
        return tiny::weight_gradient(size, x, dy, dw);
    }
    let dy = View::new(dy, size.rows, size.outputs);
    multiply_add(dw, dy.transposed(), View::new(x, size.rows, size.inputs));
}

/// `db += Σ_rows dy`
pub(crate) fn bias_gradient<T: Real>(size: Size, dy: &[T], db: &mut [T]) {
    for row in dy.chunks_exact(size.outputs) {
        for (sum, value) in db.iter_mut().zip(row) {
            *sum += *value;
        }
    }
}

/// `dx += dy W`
pub(crate) fn input_gradient<T: Real>(size: Size, dy: &[T], weight: &[T], dx: &mut [T]) {
    if tiny::fits(size) {
        return tiny::input_gradient(size, dy, weight, dx);
    }
    let dy = View::new(dy, size.rows, size.outputs);
    multiply_add(dx, dy, View::new(weight, size.outputs, size.inputs));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `W = [[1,2,3],[4,5,6]]`, `x = [1,0,-1]`, `b = [10,20]`: y = [8, 18]; with dy = [1, 2],
    /// dW = [[1,0,-1],[2,0,-2]], dx = [9, 12, 15].
    #[test]
    fn worked_case() {
        let size = Size { rows: 1, inputs: 3, outputs: 2 };
        let (w, x, b, dy) =
            ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, -1.0], [10.0, 20.0], [1.0, 2.0]);
        let (mut y, mut dw, mut db, mut dx) = ([0.0; 2], [0.0; 6], [0.5; 2], [0.0; 3]);
        forward(size, &x, &w, Some(&b), &mut y);
        weight_gradient(size, &x, &dy, &mut dw);
        bias_gradient(size, &dy, &mut db);
        input_gradient(size, &dy, &w, &mut dx);
        assert_eq!(y, [8.0, 18.0]);
        assert_eq!(dw, [1.0, 0.0, -1.0, 2.0, 0.0, -2.0]);
        assert_eq!(db, [1.5, 2.5]);
        assert_eq!(dx, [9.0, 12.0, 15.0]);
    }

    /// A tiny layer inside a wider one whose other inputs and outputs are zero: both ways agree.
    #[test]
    fn tiny_and_general_products_agree() {
        let tiny = Size { rows: 37, inputs: 5, outputs: 3 };
        let wide = Size { inputs: 9, ..tiny };
        let value = |i: usize| ((i * 37 + 11) % 23) as f64 / 7.0 - 1.5;
        let values = |n: usize, from: usize| (from..from + n).map(value).collect::<Vec<f64>>();
        let widen = |from: &[f64]| -> Vec<f64> {
            from.chunks(5).flat_map(|row| row.iter().copied().chain([0.0; 4])).collect()
        };
        let (x, w, b, dy) = (values(185, 0), values(15, 3), values(3, 9), values(111, 5));
        let (mut y, mut dw, mut dx) = (vec![0.0; 111], vec![1.0; 15], vec![1.0; 185]);
        forward(tiny, &x, &w, Some(&b), &mut y);
        weight_gradient(tiny, &x, &dy, &mut dw);
        input_gradient(tiny, &dy, &w, &mut dx);
        let (x, w) = (widen(&x), widen(&w));
        let (mut y2, mut dw2, mut dx2) = (vec![0.0; 111], vec![1.0; 27], vec![1.0; 333]);
        forward(wide, &x, &w, Some(&b), &mut y2);
        weight_gradient(wide, &x, &dy, &mut dw2);
        input_gradient(wide, &dy, &w, &mut dx2);
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        let narrow = |from: &[f64]| -> Vec<f64> {
            from.chunks(9).flat_map(|row| row[..5].to_vec()).collect()
        };
        assert!(near(&y, &y2) && near(&dw, &narrow(&dw2)) && near(&dx, &narrow(&dx2)));
    }
}
