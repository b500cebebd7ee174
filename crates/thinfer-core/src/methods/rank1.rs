//! The Rank-1 BNN: shared weights, and for each of K members random scales of every channel.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thinfer_data::{Error, Result};
use thinfer_engine::elementary::{sigmoid, softplus};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Chunk, Law, Mixture, Network, Pass, Role, vectorize};

use super::kernels::{self, Kernel, Rank1Scalars, Scalars};
use super::registry::{Choices, Declaration, When};
use super::settings::MethodConfig;
use super::{Method, Tick, Vitals, sgd};
use crate::keys::{Key as Declared, Kind, key};
use crate::model;
use crate::prune::ALIVE;

/// Minimises the mean loss over examples and members + ½ wd |w|² + κ KL(q ‖ p) / N, where w are the
/// shared weights, norms and biases, q the law of the random scales, p its prior, and κ grows from
/// 0 to 1.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `momentum` | β | 0.9 | [0, 1) | oscillates |
/// | `weight_decay` | wd | 2e-4 | ≥ 0 | underfits |
/// | `prior_sd` | s | 0.1 | > 0 | members drift apart |
/// | `kl_steps` | A | 200 epochs | ≥ 1 | the prior never counts |
/// | `random_sign` | P(+1) | 0.5 | [0, 1] | members start alike |
/// | `first_scale` | σ at the start | [`first_scale`] | > 0 | noise drowns what is to be learnt |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rank1 {
    /// β of Nesterov's momentum.
    pub momentum: f64,
    /// wd = δ/N of what is not random.
    pub weight_decay: f64,
    /// N
    pub train_rows: usize,
    /// The family of q and p.
    pub law: Law,
    /// s: standard deviation, or scale, of the prior around 1.
    pub prior_sd: f64,
    /// Steps over which κ grows to 1.
    pub kl_steps: f64,
    /// P(+1) of the first locations; the others begin at −1.
    pub random_sign: f64,
    /// σ = softplus(r) at the start.
    pub first_scale: f64,
}

/// State buffer of the momentum.
pub const BUFFER: usize = 0;
/// Mark of a location m: a bit that [`crate::prune`] does not use.
pub const LOCATION: u8 = 8;
/// Mark of a pre-scale r, which stands behind its location.
pub const PRE_SCALE: u8 = 16;

/// The variance that a scale has at the start: 0.001 / 0.999, that of a dropout rate of one in a
/// thousand.
const FIRST_VARIANCE: f64 = 0.001 / 0.999;
/// Standard deviation of the first pre-scales, of the normal law alone.
const FIRST_SPREAD: f32 = 0.1;
/// Where the normal numbers for them are cut off.
const CUT: f32 = 2.0;

/// The numbers of one step, the same for every weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coeffs {
    /// Of the optimiser.
    pub sgd: sgd::Coeffs,
    /// κ / N
    pub kl: f32,
    /// s
    pub prior: f32,
    /// The family.
    pub law: Law,
}

/// σ = softplus(r) at the start: a scale has the same variance under both laws.
///
/// Of a Cauchy number that is cut off at ±c, c ≫ σ, the variance is 4 c σ / π.
///
/// Deviation: the authors' program starts both laws with the σ of the normal one. Cut off at ±10,
/// Cauchy scales then have a variance of 0.4 and one in fifty is off by more than 1: a ResNet-18
/// hardly learns.
pub fn first_scale(law: Law) -> f64 {
    match law {
        Law::Gaussian => FIRST_VARIANCE.sqrt(),
        Law::Cauchy => FIRST_VARIANCE * std::f64::consts::PI / (4.0 * Law::FARTHEST),
    }
}

/// KL(q ‖ p) of one scale, in nats.
///
/// Normal: ln(s/σ) + (σ² + (m − 1)²) / (2 s²) − ½. Cauchy: ln( ((σ + s)² + (m − 1)²) / (4 σ s) ).
///
/// Deviation: the authors' program takes ln q(x) − ln p(x) at one draw for the Cauchy law. This is
/// its mean, without the noise.
pub fn divergence(law: Law, location: f64, scale: f64, prior: f64) -> f64 {
    let apart = (location - 1.0).powi(2);
    match law {
        Law::Gaussian => {
            (prior / scale).ln() + (scale * scale + apart) / (2.0 * prior * prior) - 0.5
        }
        Law::Cauchy => (((scale + prior).powi(2) + apart) / (4.0 * scale * prior)).ln(),
    }
}

/// (κ/N) dKL/dm and (κ/N) dKL/dr at m and r, σ = softplus(r).
///
/// Normal: (m − 1)/s² and (σ/s² − 1/σ) σ′. Cauchy, with D = (σ + s)² + (m − 1)²: 2 (m − 1)/D and
/// (2 (σ + s)/D − 1/σ) σ′.
#[inline(always)]
pub fn pull(c: &Coeffs, m: f32, r: f32) -> [f32; 2] {
    let (scale, slope, apart) = (softplus(r), sigmoid(r), m - 1.0);
    let sum = scale + c.prior;
    let (of_apart, of_scale) = match c.law {
        Law::Gaussian => {
            let over = 1.0 / (c.prior * c.prior);
            (apart * over, scale * over)
        }
        Law::Cauchy => {
            let over = 2.0 / (sum * sum + apart * apart);
            (apart * over, sum * over)
        }
    };
    [c.kl * of_apart, c.kl * ((of_scale - 1.0 / scale) * slope)]
}

/// One step for random scales, whose pulls are given: no decay.
///
/// d = g + (κ/N) dKL
/// buf ← β buf + d
/// w ← w − lr (d + β buf)
#[inline(always)]
pub fn step_random(c: &Coeffs, w: &mut [f32], buf: &mut [f32], g: &[f32], pulls: &[f32]) {
    for (((w, buf), g), pull) in w.iter_mut().zip(buf).zip(g).zip(pulls) {
        *w -= c.sgd.rate * sgd::along(&c.sgd, buf, *g + *pull);
    }
}

/// The update as a pass: [`sgd::step`] for what is shared, [`step_random`] for random scales.
struct Update<'a> {
    coeffs: Coeffs,
    /// Where random scales lie, and the pulls of each piece.
    random: &'a [(usize, Vec<f32>)],
}

impl Pass for Update<'_> {
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        Some((kernels::rank1(self.coeffs.law), Rank1Scalars { coeffs: self.coeffs }.words()))
    }

    fn apply(&self, mut chunk: Chunk<'_>) {
        let (c, first, n) = (&self.coeffs, chunk.first, chunk.weights.len());
        let (w, g, buf) = (&mut *chunk.weights, chunk.gradient, &mut *chunk.state[BUFFER]);
        vectorize(
            #[inline(always)]
            || {
                let mut at = 0;
                for (offset, pulls) in self.random {
                    let start = offset.saturating_sub(first).min(n);
                    let end = (offset + pulls.len()).saturating_sub(first).min(n);
                    if start >= end {
                        continue;
                    }
                    sgd::step(&c.sgd, &mut w[at..start], &mut buf[at..start], &g[at..start]);
                    let pulls = &pulls[first + start - offset..];
                    let own = start..end;
                    step_random(c, &mut w[own.clone()], &mut buf[own.clone()], &g[own], pulls);
                    at = end;
                }
                sgd::step(&c.sgd, &mut w[at..], &mut buf[at..], &g[at..]);
            },
        );
    }
}

impl Rank1 {
    /// The numbers of one step.
    pub fn coeffs(&self, tick: Tick) -> Coeffs {
        let annealed = ((tick.step + 1) as f64 / self.kl_steps).min(1.0);
        Coeffs {
            sgd: sgd::Coeffs {
                momentum: self.momentum as f32,
                decay: (self.weight_decay * tick.rates.decay_factor) as f32,
                rate: tick.rates.step_size as f32,
                nesterov: true,
            },
            kl: (annealed / self.train_rows as f64) as f32,
            prior: self.prior_sd as f32,
            law: self.law,
        }
    }
}

/// A truncated normal number: the first of its draws that is not cut off.
fn truncated(key: Key, index: usize) -> f32 {
    let draws = (3..).map(|step| key.normal(step, index));
    draws.take(100).find(|z| z.abs() <= CUT).unwrap_or(0.0)
}

impl Method for Rank1 {
    fn state_buffers(&self) -> usize {
        1
    }

    /// He's initialisation for weights, zeros for biases, random signs for locations.
    fn start(&self, arena: &mut Arena, key: Key) -> Result<()> {
        let key = Key { stream: Stream::Initial, ..key };
        let mut weights = arena.weights().to_vec();
        let mut marks = vec![ALIVE; arena.len()];
        // softplus backwards.
        let first = self.first_scale.exp_m1().ln() as f32;
        for param in arena.table() {
            match param.role {
                Role::ConvWeight | Role::LinearWeight => {
                    let sd = (2.0 / param.fan_in() as f32).sqrt();
                    key.normals(1, param.offset, &mut weights[param.range()]);
                    weights[param.range()].iter_mut().for_each(|w| *w *= sd);
                }
                Role::Bias => weights[param.range()].fill(0.0),
                Role::RandomScale => {
                    for at in param.range().step_by(2) {
                        let up = f64::from(key.uniform(2, at)) < self.random_sign;
                        let spread = match self.law {
                            Law::Gaussian => FIRST_SPREAD * truncated(key, at),
                            Law::Cauchy => 0.0,
                        };
                        (weights[at], weights[at + 1]) =
                            (if up { 1.0 } else { -1.0 }, first + spread);
                        (marks[at], marks[at + 1]) = (ALIVE | LOCATION, ALIVE | PRE_SCALE);
                    }
                }
                _ => {}
            }
        }
        arena.set_weights(&weights)?;
        arena.set_marks(&marks)?;
        Ok(())
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        let coeffs = self.coeffs(tick);
        let pulls = |offset: usize, len: usize| {
            let pairs = arena.weights()[offset..offset + len].chunks_exact(2);
            pairs.flat_map(|pair| pull(&coeffs, pair[0], pair[1])).collect()
        };
        let random = arena.table().iter().filter(|param| param.role == Role::RandomScale);
        let random: Vec<(usize, Vec<f32>)> =
            random.map(|param| (param.offset, pulls(param.offset, param.len()))).collect();
        arena.run(&Update { coeffs, random: &random });
    }

    fn vitals(&self, _arena: &Arena, _tick: Tick) -> Vitals {
        Vitals::default()
    }
}

/// The Rank-1 BNN as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "rank1",
    about: "Rank-1 BNN: members share weights and have random channel scales of their own",
    page: "docs/rank1.md",
    reads: &[
        "method.momentum",
        "method.members",
        "method.draws",
        "method.posterior",
        "method.prior_sd",
        "method.kl_epochs",
        "method.random_sign",
        "method.first_scale",
    ],
    keys: KEYS,
    defaults: &[
        (
            When::Always,
            r#"
method.members = 4
method.draws = 1
method.posterior = "gaussian"
method.prior_sd = 0.1
method.kl_epochs = 200.0
method.random_sign = 0.5
train.samples_per_cycle = 1
"#,
        ),
        (
            When::Images,
            r#"
prior.weight_decay = 2e-4
schedule.step_size = { value = 0.1, shape = "steps", factor = 0.2, at_epochs = [100, 200, 225], warm_up_epochs = 1.0 }
train.epochs = 250
train.batch = 128
"#,
        ),
        // A Cauchy number is far from its location now and then, so more of them are averaged.
        (When::Given("method.posterior", "cauchy"), "method.draws = 4"),
    ],
    check: Some(check),
    network: Some(network),
    kernels: &[kernels::rank1(Law::Gaussian), kernels::rank1(Law::Cauchy)],
    build: |setup| {
        let (own, rows) = (&setup.method.own, setup.train_rows);
        let steps = rows.div_ceil(setup.batch.min(rows).max(1));
        let law = law(setup.method);
        Ok(Arc::new(Rank1 {
            momentum: setup.method.momentum,
            weight_decay: setup.prior.weight_decay,
            train_rows: rows,
            law,
            prior_sd: own.number("prior_sd").unwrap_or(0.1),
            kl_steps: own.number("kl_epochs").unwrap_or(1.0) * steps as f64,
            random_sign: own.number("random_sign").unwrap_or(0.5),
            first_scale: own.number("first_scale").unwrap_or_else(|| first_scale(law)),
        }))
    },
};

const KEYS: &[Declared] = &[
    key(
        "method.members",
        Kind::Integer(1, 1000),
        "K, members of a Rank-1 BNN: each has random scales of its own and sees every example",
    ),
    key(
        "method.draws",
        Kind::Integer(1, 10_000),
        "draws of each member of a Rank-1 BNN that a prediction averages; 1, for Cauchy scales 4",
    ),
    key(
        "method.posterior",
        Kind::Choice(&["gaussian", "cauchy"]),
        "law of the random scales of a Rank-1 BNN, and of their prior",
    ),
    key(
        "method.prior_sd",
        Kind::NumberAbove(0.0, 1e3),
        "standard deviation of that prior around 1, or its scale where it is Cauchy",
    ),
    key(
        "method.kl_epochs",
        Kind::NumberAbove(0.0, 1e6),
        "epochs over which that prior comes into force",
    ),
    key(
        "method.random_sign",
        Kind::Number(0.0, 1.0),
        "share of random scales that begin at 1; the others begin at -1",
    ),
    key(
        "method.first_scale",
        Kind::NumberAbove(0.0, 10.0),
        "width of the law of each random scale at the start; 0.0316, for Cauchy scales 7.9e-5",
    ),
];

fn law(method: &MethodConfig) -> Law {
    match method.own.word("posterior") {
        Some("cauchy") => Law::Cauchy,
        _ => Law::Gaussian,
    }
}

fn check(choices: &Choices<'_>) -> Result<()> {
    if choices.prune.target.is_some() {
        return Err(Error::config("prune.target", "is given, but a Rank-1 BNN prunes nothing"));
    }
    if !choices.images {
        return Err(Error::config(
            "method.kind",
            "is \"rank1\", which scales the channels of image networks; a table needs another one",
        ));
    }
    Ok(())
}

/// The network with the random scales of its members.
fn network(method: &MethodConfig, network: &Network) -> Result<Network> {
    let mixture = Mixture {
        members: method.own.whole("members").unwrap_or(1),
        law: law(method),
        draws: method.own.whole("draws").unwrap_or(1),
    };
    Ok(model::rank1(network, mixture)?)
}
