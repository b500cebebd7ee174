//! Pools: windows of each channel, forward and back.

use super::launch::Elements;
use super::lower::Lower;
use super::nvrtc::source;
use super::step::{Arg, Place, Step};
use crate::ops::Kernels;
use crate::shape::Window;

impl Lower<'_> {
    /// Pools `x` into `y`, the value of node `at`.
    pub(super) fn pool_forward(&mut self, at: usize, kernels: Kernels, [x, y]: [Place; 2]) {
        if kernels.keeps.is_some() {
            self.kept[at] = self.arena(self.len(at));
        }
        let step = self.pool_step(kernels.forward, kernels, at, (at, [x, y]));
        self.both(step);
    }

    /// The gradient of what node `at` pools.
    pub(super) fn pool_backward(&mut self, at: usize, kernels: Kernels, [dy, dx]: [Place; 2]) {
        let from = self.network.nodes()[at].inputs[0].0;
        let step = self.pool_step(kernels.backward, kernels, at, (from, [dy, dx]));
        self.program.training.push(step);
    }

    /// One kernel of the pool `at`, a thread for each group of values of node `over`.
    fn pool_step(
        &self,
        entry: &'static str,
        kernels: Kernels,
        at: usize,
        (over, [read, write]): (usize, [Place; 2]),
    ) -> Step {
        let from = self.network.nodes()[at].inputs[0].0;
        let vector = self.channels(at).is_multiple_of(8);
        let elements = Elements::groups(self.len(over), vector, self.sms);
        let mut args = vec![Arg::At(read), Arg::At(write)];
        if kernels.keeps.is_some() {
            // Forward it is written last, on the way back it is read.
            args.insert(if over == at { 2 } else { 1 }, Arg::At(self.kept[at]));
        }
        if let Some(window) = kernels.window {
            args.push(self.pool_words(from, at, window));
        } else {
            let shape = self.network.nodes()[from].shape;
            let sizes = [self.options.batch, shape.height * shape.width, shape.channels];
            args.extend(sizes.map(|size| Arg::U32(size as u32)));
        }
        elements.step(source::POOL, entry, self.defines(vector, &[]), args)
    }

    fn pool_words(&self, from: usize, at: usize, window: Window) -> Arg {
        let (a, b) = (self.network.nodes()[from].shape, self.network.nodes()[at].shape);
        let ([kh, kw], [sh, sw], [ph, pw]) = (window.size, window.stride, window.padding);
        let batch = [self.options.batch, a.height, a.width, a.channels];
        let words = [&batch[..], &[b.height, b.width, kh, kw, sh, sw, ph, pw]].concat();
        Arg::Words(words.iter().map(|w| *w as u32).collect())
    }
}
