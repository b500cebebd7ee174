//! SGD with momentum: the baseline, and the limit of the samplers without noise.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thinfer_data::Result;
use thinfer_engine::noise::Key;
use thinfer_engine::{Arena, Chunk, Pass, vectorize};

use super::kernels::{self, Kernel, Scalars, SgdScalars};
use super::registry::{Declaration, Setup};
use super::{Method, Tick, Vitals};
use crate::prune::{ALIVE, KEEP};

/// Minimises `L(w) = mean loss + ½ wd |w|²`.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `momentum` | β | 0.9 | [0, 1) | oscillates |
/// | `weight_decay` | wd | 2e-4 | ≥ 0 | underfits |
/// | `nesterov` | | no | | |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// β
    pub momentum: f64,
    /// wd = δ/N
    pub weight_decay: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
}

/// State buffer of the momentum.
pub const BUFFER: usize = 0;

/// The numbers of one step, the same for every weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coeffs {
    /// β
    pub momentum: f32,
    /// wd
    pub decay: f32,
    /// lr
    pub rate: f32,
    /// Nesterov's term.
    pub nesterov: bool,
}

/// One weight: d = g + wd w is given. Returns what lr multiplies.
#[inline(always)]
pub(crate) fn along(c: &Coeffs, buf: &mut f32, d: f32) -> f32 {
    *buf = c.momentum * *buf + d;
    if c.nesterov { d + c.momentum * *buf } else { *buf }
}

/// One step of SGD with momentum and no dampening.
///
/// d = g + wd w
/// buf ← β buf + d
/// w ← w − lr buf, with Nesterov's term w ← w − lr (d + β buf)
#[inline(always)]
pub fn step(c: &Coeffs, w: &mut [f32], buf: &mut [f32], g: &[f32]) {
    for ((w, buf), g) in w.iter_mut().zip(buf).zip(g) {
        *w -= c.rate * along(c, buf, *g + c.decay * *w);
    }
}

/// What the gradient of a pruned weight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// It goes into the momentum, which then says what the weight would be worth.
    KeepsMomentum,
    /// Nothing: the momentum decays.
    Rests,
}

/// The same step where pruned weights, which are zero, stay zero.
#[inline(always)]
pub fn step_masked(
    c: &Coeffs,
    pruned: Pruned,
    w: &mut [f32],
    buf: &mut [f32],
    g: &[f32],
    marks: &[u8],
) {
    let n = w.len();
    let (buf, g, marks) = (&mut buf[..n], &g[..n], &marks[..n]);
    for i in 0..n {
        let live = marks[i] & KEEP != 0;
        let d = g[i] + c.decay * w[i];
        let d = if live || pruned == Pruned::KeepsMomentum { d } else { 0.0 };
        let moved = w[i] - c.rate * along(c, &mut buf[i], d);
        w[i] = if live { moved } else { 0.0 };
    }
}

/// The update as a pass, over all weights or with a mask.
pub(crate) struct Update {
    pub(crate) coeffs: Coeffs,
    pub(crate) pruned: Option<Pruned>,
}

impl Pass for Update {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        let Self { coeffs, pruned } = *self;
        let kernel = if pruned.is_some() { kernels::SGD_MASKED } else { kernels::SGD };
        Some((kernel, SgdScalars { coeffs, pruned }.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        vectorize(
            #[inline(always)]
            || {
                let (w, g) = (&mut *chunk.weights, chunk.gradient);
                let buf = &mut chunk.state[BUFFER];
                match self.pruned {
                    None => step(&self.coeffs, w, buf, g),
                    Some(pruned) => step_masked(&self.coeffs, pruned, w, buf, g, chunk.marks),
                }
            },
        );
    }
}

impl Sgd {
    /// The numbers of one step.
    pub(crate) fn coeffs(&self, tick: Tick) -> Coeffs {
        Coeffs {
            momentum: self.momentum as f32,
            decay: (self.weight_decay * tick.rates.decay_factor) as f32,
            rate: tick.rates.step_size as f32,
            nesterov: self.nesterov,
        }
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
        arena.run(&Update { coeffs: self.coeffs(tick), pruned: None });
    }

    fn vitals(&self, _arena: &Arena, _tick: Tick) -> Vitals {
        Vitals::default()
    }
}

impl Sgd {
    /// What a configuration says of it.
    pub(super) fn of(setup: &Setup<'_>) -> Self {
        Self {
            momentum: setup.method.momentum,
            weight_decay: setup.prior.weight_decay,
            nesterov: setup.method.nesterov,
        }
    }
}

/// SGD as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "sgd",
    about: "SGD with momentum: one network; with several chains a deep ensemble",
    page: "docs/sgd.md",
    reads: &["method.momentum", "method.nesterov"],
    keys: &[],
    defaults: &[],
    check: None,
    network: None,
    kernels: &[kernels::SGD, kernels::SGD_MASKED],
    build: |setup| Ok(Arc::new(Sgd::of(setup))),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn three_steps(nesterov: bool) -> [f32; 2] {
        let c = Coeffs { momentum: 0.9, decay: 0.01, rate: 0.1, nesterov };
        let (mut w, mut buf) = ([1.0f32, -2.0], [0.0f32; 2]);
        for _ in 0..3 {
            let g = [w[0], 3.0 * w[1]];
            step(&c, &mut w, &mut buf, &g);
        }
        w
    }

    fn assert_near(got: [f32; 2], want: [f32; 2]) {
        assert!((got[0] - want[0]).abs() < 1e-6 && (got[1] - want[1]).abs() < 1e-6, "{got:?}");
    }

    /// Made with PyTorch:
    /// ```python
    /// w = torch.tensor([1.0, -2.0], requires_grad=True)
    /// opt = torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01)
    /// for _ in range(3):
    ///     opt.zero_grad(); (0.5 * (w * torch.tensor([1.0, 3.0]) * w).sum()).backward(); opt.step()
    /// ```
    #[test]
    fn follows_pytorch() {
        assert_near(three_steps(false), [0.481_324_5, 0.561_992_3]);
    }

    /// The rule of `torch.optim.SGD(nesterov=True)` in double precision:
    /// ```python
    /// w, buf, h = [1.0, -2.0], [0.0, 0.0], [1.0, 3.0]
    /// for _ in range(3):
    ///     for i in range(2):
    ///         d = h[i] * w[i] + 0.01 * w[i]; buf[i] = 0.9 * buf[i] + d; w[i] -= 0.1 * (d + 0.9 * buf[i])
    /// ```
    #[test]
    fn nesterov_looks_ahead() {
        assert_near(three_steps(true), GOLDEN_NESTEROV);
    }

    const GOLDEN_NESTEROV: [f32; 2] = [0.321_859_67, 0.699_442_8];

    #[test]
    fn pruned_weights_stay_zero_and_their_momentum_follows_the_rule() {
        let c = Coeffs { momentum: 0.5, decay: 0.1, rate: 0.1, nesterov: true };
        let marks = [ALIVE, 0, ALIVE, 0];
        let start = [1.0f32, 0.0, -2.0, 0.0];
        let (g, first) = ([0.25f32, -4.0, 0.5, 8.0], [0.5f32, 1.0, 0.0, -2.0]);
        let (mut dense, mut dense_buf) = (start, first);
        step(&c, &mut dense, &mut dense_buf, &g);
        for (pruned, want) in [(Pruned::KeepsMomentum, [-3.5, 7.0]), (Pruned::Rests, [0.5, -1.0])] {
            let (mut w, mut buf) = (start, first);
            step_masked(&c, pruned, &mut w, &mut buf, &g, &marks);
            assert_eq!(w, [dense[0], 0.0, dense[2], 0.0]);
            assert_eq!(buf, [dense_buf[0], want[0], dense_buf[2], want[1]]);
        }
    }

    #[test]
    fn the_decay_follows_its_schedule() {
        let sgd = Sgd { momentum: 0.9, weight_decay: 0.02, nesterov: false };
        let rates = super::super::Rates {
            step_size: 0.1,
            step_size_before: 0.1,
            temperature: 0.0,
            eta: 0.0,
            decay_factor: 0.25,
        };
        let coeffs = sgd.coeffs(Tick { step: 0, epoch: 0, rates });
        assert_eq!((coeffs.rate, coeffs.decay), (0.1, 0.005));
    }
}
