//! Convolution of a block of images, channels last: `y[p, o] = b[o] + Σ_k w[o, k] x[window(p), k]`.
//!
//! Nothing is copied but the padding: `tile` reads windows where they lie. A linear layer is the
//! convolution of one pixel.

use crate::ops::tile::{Finish, Level, Product, SLACK, multiply};
use crate::real::Real;
use crate::real::lanes::LANES;
use crate::shape::{Shape, Window};

/// Padded images that one call works on hold at most about this many numbers, 256 KB.
const BLOCK_VALUES: usize = 64 << 10;

/// Sizes of one layer and where its windows lie.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    from: Shape,
    to: Shape,
    window: Window,
    /// Width and height with padding.
    padded: Shape,
    /// Images a block.
    images: usize,
    /// Where the window of each output pixel of a block starts.
    windows: Vec<u32>,
    /// The output pixels of a block, image by image, column by column. In this order windows that
    /// overlap are far apart, so that one need not wait for the sum that went into another.
    columns: Vec<u32>,
}

impl Conv {
    pub(crate) fn new(from: Shape, to: Shape, window: Window, most_images: usize) -> Self {
        let [rows, columns] = window.padding;
        let padded = Shape {
            height: from.height + 2 * rows,
            width: from.width + 2 * columns,
            channels: from.channels,
        };
        let images = (BLOCK_VALUES / padded.len()).clamp(1, most_images.max(1));
        let [down, right] = window.stride;
        let start = |pixel: usize| {
            let (image, pixel) = (pixel / (to.height * to.width), pixel % (to.height * to.width));
            let (y, x) = (pixel / to.width, pixel % to.width);
            (image * padded.len() + (y * down * padded.width + x * right) * from.channels) as u32
        };
        let windows = (0..images * to.height * to.width).map(start).collect();
        let turned = |at: usize| {
            let (image, at) = (at / (to.height * to.width), at % (to.height * to.width));
            let (x, y) = (at / to.height, at % to.height);
            ((image * to.height + y) * to.width + x) as u32
        };
        let columns = (0..images * to.height * to.width).map(turned).collect();
        Self { from, to, window, padded, images, windows, columns }
    }

    /// A linear layer as a convolution of one pixel.
    pub(crate) fn linear(inputs: usize, outputs: usize, most_rows: usize) -> Self {
        let (from, to) = (Shape::vector(inputs), Shape::vector(outputs));
        Self::new(from, to, Window::square(1, 1, 0), most_rows)
    }

    fn is_padded(&self) -> bool {
        self.window.padding != [0, 0]
    }

    /// Numbers of scratch that the functions below want.
    pub(crate) fn scratch_len(&self) -> usize {
        if self.is_padded() { self.images * self.padded.len() + SLACK } else { 0 }
    }

    /// Places of pixels that it keeps.
    pub(crate) fn table_len(&self) -> usize {
        self.windows.len() + self.columns.len()
    }

    /// Numbers of packed weights.
    pub(crate) fn packed_len(&self) -> usize {
        self.kernel() * self.to.channels.next_multiple_of(LANES)
    }

    /// Weights of one output.
    fn kernel(&self) -> usize {
        self.window.size[0] * self.run()
    }

    /// Weights of one kernel row; they meet neighbours in memory.
    fn run(&self) -> usize {
        self.window.size[1] * self.from.channels
    }

    fn row(&self) -> usize {
        self.padded.width * self.from.channels
    }

    fn pixels(&self) -> usize {
        self.to.height * self.to.width
    }

    /// Weights with outputs innermost, as `forward` reads them.
    pub(crate) fn pack<T: Real>(&self, weight: &[T], packed: &mut [T]) {
        let (kernel, outputs) = (self.kernel(), self.to.channels);
        let width = outputs.next_multiple_of(LANES);
        // Square pieces, so that both sides stay in the first-level cache.
        for first in (0..kernel).step_by(LANES) {
            for (o, row) in weight.chunks_exact(kernel).enumerate() {
                let row = &row[first..(first + LANES).min(kernel)];
                for (k, value) in row.iter().enumerate() {
                    packed[(first + k) * width + o] = *value;
                }
            }
        }
    }

    /// Copies one image into the middle of a padded one.
    fn pad<T: Real>(&self, x: &[T], to: &mut [T]) {
        let [rows, columns] = self.window.padding;
        let (row, side) = (self.row(), columns * self.from.channels);
        let inner = self.from.width * self.from.channels;
        to[..rows * row].fill(T::ZERO);
        to[(rows + self.from.height) * row..self.padded.len()].fill(T::ZERO);
        for (x, to) in x.chunks_exact(inner).zip(to[rows * row..].chunks_exact_mut(row)) {
            to[..side].fill(T::ZERO);
            to[side..side + inner].copy_from_slice(x);
            to[side + inner..].fill(T::ZERO);
        }
    }

    /// The images of a block with their padding: in `scratch`, or where they are if it has none.
    /// `x` may go on past the block, which saves a copy where the last window is read in lanes.
    fn padded<'a, T: Real>(&self, x: &'a [T], images: usize, scratch: &'a mut [T]) -> &'a [T] {
        if !self.is_padded() {
            return x;
        }
        let pairs =
            x.chunks_exact(self.from.len()).zip(scratch.chunks_exact_mut(self.padded.len()));
        pairs.take(images).for_each(|(x, to)| self.pad(x, to));
        scratch
    }

    /// `y ← b + w * x` for the images of `y`, and the positive part of that if `relu` is set.
    /// `bias` must be readable for `SLACK` numbers past its end.
    pub(crate) fn forward<T: Real>(
        &self,
        x: &[T],
        packed: &[T],
        bias: Option<&[T]>,
        relu: bool,
        y: &mut [T],
        scratch: &mut [T],
    ) {
        let (outputs, run) = (self.to.channels, self.run());
        let width = outputs.next_multiple_of(LANES);
        for (block, y) in y.chunks_mut(self.images * self.to.len()).enumerate() {
            let images = y.len() / self.to.len();
            let x = self.padded(&x[block * self.images * self.from.len()..], images, scratch);
            let sum = [
                Level::ONE,
                Level { count: self.window.size[0], a: self.row(), b: run * width },
                Level { count: run, a: 1, b: width },
            ];
            let at = |pixel: usize| (self.windows[pixel] as usize, pixel * outputs);
            let finish = Finish { start: bias, positive: relu, add: false };
            let product = Product { a: x, b: packed, sum };
            multiply(product, images * self.pixels(), outputs, at, finish, y);
        }
    }

    /// `dw += Σ_pixels dy x`. `x` must be readable for `SLACK` numbers past the last image.
    pub(crate) fn weight_gradient<T: Real>(
        &self,
        x: &[T],
        dy: &[T],
        dw: &mut [T],
        scratch: &mut [T],
    ) {
        let (outputs, run, kernel) = (self.to.channels, self.run(), self.kernel());
        let [down, right] = self.window.stride;
        for (block, dy) in dy.chunks(self.images * self.to.len()).enumerate() {
            let images = dy.len() / self.to.len();
            let x = self.padded(&x[block * self.images * self.from.len()..], images, scratch);
            let columns = self.to.width;
            let sum = [
                Level { count: images, a: self.to.len(), b: self.padded.len() },
                Level { count: self.to.height, a: columns * outputs, b: down * self.row() },
                Level { count: columns, a: outputs, b: right * self.from.channels },
            ];
            for line in 0..self.window.size[0] {
                let product = Product { a: dy, b: &x[line * self.row()..], sum };
                let at = |o: usize| (o, o * kernel + line * run);
                multiply(product, outputs, run, at, Finish::ADD, dw);
            }
        }
    }

    /// `dx ← dy wᵀ`, or `dx += dy wᵀ`. `weight` must be readable for `SLACK` numbers past its end.
    pub(crate) fn input_gradient<T: Real>(
        &self,
        dy: &[T],
        weight: &[T],
        dx: &mut [T],
        add: bool,
        scratch: &mut [T],
    ) {
        let (outputs, run, kernel) = (self.to.channels, self.run(), self.kernel());
        let sum = [Level::ONE, Level::ONE, Level { count: outputs, a: 1, b: kernel }];
        let blocks = dy.chunks(self.images * self.to.len());
        for (dy, dx) in blocks.zip(dx.chunks_mut(self.images * self.from.len())) {
            let images = dy.len() / self.to.len();
            let to = if self.is_padded() {
                scratch[..images * self.padded.len()].fill(T::ZERO);
                &mut *scratch
            } else {
                if !add {
                    dx.fill(T::ZERO);
                }
                &mut *dx
            };
            for line in 0..self.window.size[0] {
                let product = Product { a: dy, b: &weight[line * run..], sum };
                let at = |pixel: usize| {
                    let pixel = self.columns[pixel] as usize;
                    (pixel * outputs, self.windows[pixel] as usize + line * self.row())
                };
                multiply(product, images * self.pixels(), run, at, Finish::ADD, to);
            }
            if self.is_padded() {
                let pairs = dx.chunks_exact_mut(self.from.len());
                pairs.zip(scratch.chunks_exact(self.padded.len())).for_each(|(dx, from)| {
                    self.unpad(from, dx, add);
                });
            }
        }
    }

    /// The middle of a padded image.
    fn unpad<T: Real>(&self, from: &[T], dx: &mut [T], add: bool) {
        let [rows, columns] = self.window.padding;
        let (row, side) = (self.row(), columns * self.from.channels);
        let inner = self.from.width * self.from.channels;
        for (dx, from) in dx.chunks_exact_mut(inner).zip(from[rows * row..].chunks_exact(row)) {
            let from = &from[side..side + inner];
            if add {
                dx.iter_mut().zip(from).for_each(|(dx, from)| *dx += *from);
            } else {
                dx.copy_from_slice(from);
            }
        }
    }

    /// `db += Σ_pixels dy`
    pub(crate) fn bias_gradient<T: Real>(&self, dy: &[T], db: &mut [T]) {
        let outputs = self.to.channels;
        // Several pixels side by side fill the vector unit where channels are few.
        let mut sums = [T::ZERO; 128];
        let width = sums.len() / outputs * outputs;
        if width == 0 {
            for dy in dy.chunks_exact(outputs) {
                db.iter_mut().zip(dy).for_each(|(db, dy)| *db += *dy);
            }
            return;
        }
        for dy in dy.chunks(width) {
            sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += *dy);
        }
        for sums in sums[..width].chunks_exact(outputs) {
            db.iter_mut().zip(sums).for_each(|(db, sum)| *db += *sum);
        }
    }
}
