//! SGD with momentum: the baseline, and the limit of the samplers without noise.

use serde::{Deserialize, Serialize};
use thinfer_engine::noise::Key;
use thinfer_engine::{Arena, Chunk, Pass, vectorize};

use super::kernels::{self, Kernel, Scalars, SgdScalars};
use super::{Method, Tick, Vitals};
use crate::error::Result;
use crate::prune::ALIVE;

/// Minimises `L(w) = mean loss + ½ wd |w|²`.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `momentum` | β | 0.9 | [0, 1) | oscillates |
/// | `weight_decay` | wd | 2e-4 | ≥ 0 | underfits |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// β
    pub momentum: f64,
    /// wd = δ/N
    pub weight_decay: f64,
}

const BUFFER: usize = 0;

/// One step of SGD with momentum, no dampening and no Nesterov term.
///
/// buf ← β buf + (g + wd w)
/// w ← w − lr buf
#[inline(always)]
pub fn step(momentum: f32, wd: f32, lr: f32, w: &mut [f32], buf: &mut [f32], g: &[f32]) {
    for ((w, buf), g) in w.iter_mut().zip(buf).zip(g) {
        *buf = momentum * *buf + (*g + wd * *w);
        *w -= lr * *buf;
    }
}

struct Update {
    momentum: f32,
    decay: f32,
    rate: f32,
}

impl Pass for Update {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        let Self { momentum, decay, rate } = *self;
        Some((kernels::SGD, SgdScalars { momentum, decay, rate }.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        vectorize(
            #[inline(always)]
            || {
                let buf = &mut chunk.state[BUFFER];
                step(self.momentum, self.decay, self.rate, chunk.weights, buf, chunk.gradient);
            },
        );
    }
}

impl Method for Sgd {
    fn state_buffers(&self) -> usize {
        1
    }

    fn start(&self, arena: &mut Arena, _key: Key) -> Result<()> {
        arena.set_marks(&vec![ALIVE; arena.len()])?;
        Ok(())
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Update {
            momentum: self.momentum as f32,
            decay: (self.weight_decay * tick.rates.decay_factor) as f32,
            rate: tick.rates.step_size as f32,
        });
    }

    fn vitals(&self, _arena: &Arena, _tick: Tick) -> Vitals {
        Vitals::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with PyTorch:
    /// ```python
    /// w = torch.tensor([1.0, -2.0], requires_grad=True)
    /// opt = torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01)
    /// for _ in range(3):
    ///     opt.zero_grad(); (0.5 * (w * torch.tensor([1.0, 3.0]) * w).sum()).backward(); opt.step()
    /// ```
    #[test]
    fn follows_pytorch() {
        let (mut w, mut buf) = ([1.0f32, -2.0], [0.0f32; 2]);
        for _ in 0..3 {
            let g = [w[0], 3.0 * w[1]];
            step(0.9, 0.01, 0.1, &mut w, &mut buf, &g);
        }
        let want = GOLDEN;
        assert!((w[0] - want[0]).abs() < 1e-6 && (w[1] - want[1]).abs() < 1e-6, "{w:?}");
    }

    const GOLDEN: [f32; 2] = [0.481_324_5, 0.561_992_3];
}
