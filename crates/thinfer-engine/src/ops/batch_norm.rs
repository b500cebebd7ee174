//! Batch norm by channel, channels last: `y = scale (x − mean) / √(variance + eps) + shift`.
//!
//! Mean and variance are those of the whole batch, so lanes first take the moments of their own
//! images, which are then put together in order.

use crate::real::Real;

/// Sums over the pixels of one lane, by channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums<T> {
    /// Pixels.
    count: usize,
    /// Forward: the mean. Backward: `Σ dy`.
    first: Vec<T>,
    /// Forward: `Σ (x − mean)²`. Backward: `Σ dy (x − mean)`.
    second: Vec<T>,
}

impl<T: Real> Sums<T> {
    pub(crate) fn new(channels: usize) -> Self {
        Self { count: 0, first: vec![T::ZERO; channels], second: vec![T::ZERO; channels] }
    }

    /// Mean and squared distance from it: two passes, so that a large mean costs no digits.
    pub(crate) fn take_moments(&mut self, x: &[T]) {
        let channels = self.first.len();
        self.count = x.len() / channels;
        self.first.fill(T::ZERO);
        self.second.fill(T::ZERO);
        for pixel in x.chunks_exact(channels) {
            self.first.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += *x);
        }
        let share = T::of(1.0 / self.count as f64);
        self.first.iter_mut().for_each(|sum| *sum *= share);
        for pixel in x.chunks_exact(channels) {
            for ((sum, x), mean) in self.second.iter_mut().zip(pixel).zip(&self.first) {
                *sum += (*x - *mean) * (*x - *mean);
            }
        }
    }

    /// `Σ dy` and `Σ dy (x − mean)`.
    pub(crate) fn take_slopes(&mut self, batch: &Batch<T>, x: &[T], dy: &[T]) {
        let channels = self.first.len();
        self.count = x.len() / channels;
        self.first.fill(T::ZERO);
        self.second.fill(T::ZERO);
        for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
            for (sum, dy) in self.first.iter_mut().zip(dy) {
                *sum += *dy;
            }
            for (((sum, dy), x), mean) in self.second.iter_mut().zip(dy).zip(x).zip(&batch.mean) {
                *sum += *dy * (*x - *mean);
            }
        }
    }
}

/// What one batch norm needs between its passes, by channel: `y = gain x + offset`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch<T> {
    mean: Vec<T>,
    /// `1 / √(variance + eps)`
    precision: Vec<T>,
    gain: Vec<T>,
    offset: Vec<T>,
    /// `dx = gain dy + tilt x + level`
    tilt: Vec<T>,
    level: Vec<T>,
}

/// The parameters of one batch norm.
#[derive(Clone, Copy)]
pub(crate) struct Affine<'a, T> {
    pub(crate) scale: &'a [T],
    pub(crate) shift: &'a [T],
    pub(crate) eps: f64,
}

impl<T: Real> Batch<T> {
    pub(crate) fn new(channels: usize) -> Self {
        let zeros = || vec![T::ZERO; channels];
        Self {
            mean: zeros(),
            precision: zeros(),
            gain: zeros(),
            offset: zeros(),
            tilt: zeros(),
            level: zeros(),
        }
    }

    /// Mean and variance of the batch from those of its lanes, and the running ones brought
    /// nearer to them: `running ← (1 − m) running + m new`, with the unbiased variance.
    pub(crate) fn collect<'a>(
        &mut self,
        lanes: &(impl Iterator<Item = &'a Sums<T>> + Clone),
        affine: Affine<'_, T>,
        momentum: f64,
        running: [&mut [T]; 2],
    ) {
        let [running_mean, running_variance] = running;
        let count: usize = lanes.clone().map(|lane| lane.count).sum();
        for c in 0..self.mean.len() {
            let sum: f64 = lanes.clone().map(|l| l.count as f64 * l.first[c].wide()).sum();
            let mean = sum / count as f64;
            let square = |lane: &Sums<T>| {
                let away = lane.first[c].wide() - mean;
                lane.second[c].wide() + lane.count as f64 * away * away
            };
            let squares: f64 = lanes.clone().map(square).sum();
            let toward = |old: &mut T, new: f64| {
                *old = T::of((1.0 - momentum) * old.wide() + momentum * new);
            };
            toward(&mut running_mean[c], mean);
            // A single pixel has no unbiased variance; PyTorch refuses it, we keep the old one.
            if count > 1 {
                toward(&mut running_variance[c], squares / (count - 1) as f64);
            }
            self.set(c, mean, squares / count as f64, affine);
        }
    }

    /// Takes the running mean and variance.
    pub(crate) fn recall(&mut self, affine: Affine<'_, T>, running: [&[T]; 2]) {
        for c in 0..self.mean.len() {
            self.set(c, running[0][c].wide(), running[1][c].wide(), affine);
        }
    }

    fn set(&mut self, c: usize, mean: f64, variance: f64, affine: Affine<'_, T>) {
        let precision = 1.0 / (variance + affine.eps).sqrt();
        let gain = affine.scale[c].wide() * precision;
        self.mean[c] = T::of(mean);
        self.precision[c] = T::of(precision);
        self.gain[c] = T::of(gain);
        self.offset[c] = T::of(affine.shift[c].wide() - mean * gain);
    }

    pub(crate) fn forward(&self, x: &[T], relu: bool, y: &mut [T]) {
        let channels = self.mean.len();
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            for (((y, x), gain), offset) in y.iter_mut().zip(x).zip(&self.gain).zip(&self.offset) {
                let value = *gain * *x + *offset;
                // NaN, for which every comparison is false, stays visible.
                *y = if relu && value <= T::ZERO { T::ZERO } else { value };
            }
        }
    }

    /// Gradients of scale and shift from the lanes' sums, and what `backward` needs of them.
    pub(crate) fn collect_slopes<'a>(
        &mut self,
        lanes: &(impl Iterator<Item = &'a Sums<T>> + Clone),
        dscale: &mut [T],
        dshift: &mut [T],
    ) {
        let count: usize = lanes.clone().map(|lane| lane.count).sum();
        for c in 0..self.mean.len() {
            let sum: f64 = lanes.clone().map(|lane| lane.first[c].wide()).sum();
            let product: f64 = lanes.clone().map(|lane| lane.second[c].wide()).sum();
            let precision = self.precision[c].wide();
            dscale[c] = T::of(product * precision);
            dshift[c] = T::of(sum);
            let gain = self.gain[c].wide();
            let tilt = -gain * precision * precision * product / count as f64;
            self.tilt[c] = T::of(tilt);
            self.level[c] = T::of(-gain * sum / count as f64 - tilt * self.mean[c].wide());
        }
    }

    /// `dx ← gain dy + tilt x + level`, or added to `dx`.
    pub(crate) fn backward(&self, x: &[T], dy: &[T], dx: &mut [T], add: bool) {
        let channels = self.mean.len();
        let pixels = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
        for ((x, dy), dx) in pixels.zip(dx.chunks_exact_mut(channels)) {
            for c in 0..channels {
                let slope = self.gain[c] * dy[c] + self.tilt[c] * x[c] + self.level[c];
                dx[c] = if add { dx[c] + slope } else { slope };
            }
        }
    }
}
