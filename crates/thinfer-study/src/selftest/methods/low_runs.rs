//! Steps in bf16: every method's update against the CPU's on the same gradients, and the bf16 copy
//! that the network reads.
//!
//! Gradients in bf16 differ from the CPU's by a few hundredths, and where networks have kinks by
//! more; those of every operation are compared elsewhere. Here the CPU follows with the GPU's own
//! gradients, so that weights, state and marks are held as tightly as in f32, and the losses say
//! that the network read the weights of the step.

use std::sync::Arc;

use thinfer_core::device::OnCuda;
use thinfer_core::methods::{Tick, initialize};
use thinfer_core::prune::KEEP;
use thinfer_core::train::{Chain, ChainSpec};
use thinfer_data::images::image_rows;
use thinfer_data::{Error, Result};
use thinfer_data::{ImageData, View};
use thinfer_engine::cuda::{Check, Gpu, Precision};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Draw, Plan};

use super::image_runs::{METHODS, images_of, spec, swapped};
use super::{LIMIT, relative};

/// What a loss in bf16 may differ by: rounding to 8 bits between a handful of layers.
const LOSS_LIMIT: f64 = 2e-2;
/// Rows of a batch with members, so that all runs have convolutions of one size. An epoch is one
/// step, after which the host sees everything.
const ROWS: usize = 96;
/// Steps of a run.
const STEPS: &str = "train.epochs=4";

/// All checks.
pub(crate) fn low_runs(gpu: &Arc<Gpu>) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (name, more) in whole_networks() {
        let (spec, data) = setting(more)?;
        let mut chain = Chain::start(spec.clone())?;
        chain.use_cuda(OnCuda { gpu: gpu.clone(), precision: Precision::Bf16 })?;
        let mut follower = Follower::new(spec)?;
        let (mut updates, mut other, mut wrong) = (0.0, 0, 0);
        while !chain.is_done() {
            chain.advance(&data)?;
            chain.synchronise()?;
            let session = chain.session().ok_or_else(|| missing("a network"))?;
            let low = session.low()?.ok_or_else(|| missing("a bf16 copy"))?;
            follower.step(&data, Some(&session.gradient()?))?;
            updates = worst(&follower.arena, chain.arena(), swapped(name)).max(updates);
            other += other_bits(chain.arena(), &low);
            wrong += alive_though_pruned(chain.arena(), &low);
        }
        let check = |what: &str, worst: f64, limit: f64| {
            Check::new(format!("{name}, images: {what}"), Precision::Bf16, worst, limit)
        };
        let losses: Vec<f32> = chain.records().iter().map(|record| record.loss as f32).collect();
        checks.push(check("updates on the same gradients", updates, LIMIT));
        checks.push(check("losses", relative(&follower.losses, &losses), LOSS_LIMIT));
        checks.push(check("other bits in the bf16 copy", other as f64, 0.0));
        checks.push(check("pruned weights in the bf16 copy", wrong as f64, 0.0));
    }
    Ok(checks)
}

/// The runs that keep the whole network.
fn whole_networks() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    METHODS.iter().filter(|(name, _)| !name.contains("shrunk") && !name.contains("frozen"))
}

fn setting(more: &[&str]) -> Result<(ChainSpec, ImageData)> {
    let members = more.iter().find_map(|setting| setting.strip_prefix("method.members="));
    let members: usize = members.and_then(|members| members.parse().ok()).unwrap_or(1);
    let data = images_of(ROWS / members)?;
    let last = ["train.batch=96", STEPS, "train.record_every_epochs=1", "prune.shrink=never"];
    Ok((spec(&[more, &last[..]].concat(), &data)?, data))
}

fn missing(what: &str) -> Error {
    Error::Memory(format!("the self test found no {what} on the GPU; report this"))
}

/// The same run on the CPU, with gradients from elsewhere.
struct Follower {
    spec: ChainSpec,
    arena: Arena,
    plan: Plan,
    step: u64,
    losses: Vec<f32>,
}

impl Follower {
    fn new(spec: ChainSpec) -> Result<Self> {
        let mut arena = Arena::new(&spec.network, spec.method.state_buffers());
        initialize(&mut arena, spec.network.loss(), spec.seed, spec.chain)?;
        spec.method.start(&mut arena, Key::new(spec.seed, spec.chain, Stream::Sampler))?;
        let plan = Plan::new(&spec.network, spec.batch)?;
        Ok(Self { spec, arena, plan, step: 0, losses: Vec::new() })
    }

    /// One step, which is one epoch. Without a gradient it takes its own.
    fn step(&mut self, data: &ImageData, gradient: Option<&[f32]>) -> Result<()> {
        let Self { spec, arena, plan, .. } = self;
        let epoch = spec.clock.epoch(self.step);
        let rates = spec.schedules.at(self.step, spec.clock);
        let tick = Tick { step: self.step, epoch, rates };
        spec.method.epoch(arena, tick);
        let key = |stream| Key::new(spec.seed, spec.chain, stream);
        let order = key(Stream::Shuffle).permutation(epoch as u64, data.train.rows());
        let view = View::Random { key: key(Stream::Augment), epoch: epoch as u64 };
        let table = image_rows(&data.train, &data.augment, view, &order)?;
        let rows: Vec<u32> = (0..order.len() as u32).collect();
        spec.method.materialize(arena, tick);
        plan.set_draw(Draw::of_step(spec.seed, spec.chain, self.step));
        let loss = plan.gradient(arena, &table, &rows)?;
        if let Some(gradient) = gradient {
            arena.set_gradient(gradient)?;
        }
        spec.method.update(arena, tick);
        self.losses.push(loss as f32);
        self.step += 1;
        Ok(())
    }
}

/// The largest difference of weights, of what the network reads and of the state, each relative to
/// its largest value; infinite where more than this share of the marks differ, which do not count
/// otherwise.
fn worst(cpu: &Arena, cuda: &Arena, swapped: f64) -> f64 {
    let same: Vec<bool> = cpu.marks().iter().zip(cuda.marks()).map(|(a, b)| a == b).collect();
    let differ = same.iter().filter(|same| !**same).count();
    if differ as f64 > swapped * same.len() as f64 {
        return f64::INFINITY;
    }
    let far = |cpu: &[f32], cuda: &[f32], counts: &dyn Fn(usize) -> bool| {
        let kept = |values: &[f32]| -> Vec<f32> {
            let all = values.iter().enumerate().filter(|(at, _)| same[*at] && counts(*at));
            all.map(|(_, value)| *value).collect()
        };
        let apart = relative(&kept(cpu), &kept(cuda));
        if apart.is_nan() { f64::INFINITY } else { apart }
    };
    let mut worst = far(cpu.weights(), cuda.weights(), &|_| true);
    worst = far(cpu.forward(), cuda.forward(), &|_| true).max(worst);
    // Where nothing is alive the CPU does not move the state on.
    let living = |at: usize| cpu.weights()[at] != 0.0;
    for at in 0..cpu.state_buffers() {
        worst = far(cpu.state(at), cuda.state(at), &living).max(worst);
    }
    worst
}

/// How many numbers of the bf16 copy are not what the network reads, rounded to the nearest and
/// ties to even.
fn other_bits(arena: &Arena, low: &[u16]) -> usize {
    let round = |value: f32| {
        let bits = value.to_bits();
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    };
    let wrong = arena.forward().iter().zip(low).filter(|(value, low)| round(**value) != **low);
    wrong.count() + arena.len().abs_diff(low.len())
}

/// How many pruned weights the network reads as something else than zero.
fn alive_though_pruned(arena: &Arena, low: &[u16]) -> usize {
    let pruned = arena.marks().iter().zip(low).filter(|(mark, _)| **mark & KEEP == 0);
    pruned.filter(|(_, low)| **low & 0x7fff != 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_run::registry;

    #[test]
    fn every_method_of_the_registry_has_a_run() {
        for entry in registry::METHODS.iter().filter(|entry| entry.kind.has_kernels()) {
            let kind = format!("method.kind={}", entry.kind.name());
            // Algorithm 3 is the default.
            let there = whole_networks().any(|(_, more)| more.contains(&kind.as_str()))
                || entry.kind.name() == "em-mcmc";
            assert!(there, "{kind}");
        }
        assert!(whole_networks().any(|(name, _)| name.contains("Algorithm 3, DPF")));
    }

    /// What the GPU is compared with is the CPU's own run, one step an epoch.
    #[test]
    fn the_follower_goes_as_a_chain_does() {
        for (name, more) in whole_networks() {
            let (spec, data) = setting(more).unwrap();
            assert_eq!(spec.clock.steps_per_epoch, 1, "{name}");
            let mut follower = Follower::new(spec.clone()).unwrap();
            let mut chain = Chain::start(spec).unwrap();
            while !chain.is_done() {
                chain.advance(&data).unwrap();
                follower.step(&data, None).unwrap();
            }
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
            assert_eq!(bits(chain.arena().weights()), bits(follower.arena.weights()), "{name}");
            assert_eq!(chain.arena().marks(), follower.arena.marks(), "{name}");
            let losses: Vec<f32> = chain.records().iter().map(|r| r.loss as f32).collect();
            assert_eq!(losses, follower.losses, "{name}");
            assert_eq!(worst(&follower.arena, chain.arena(), 0.0), 0.0, "{name}");
            let pruned = chain.arena().marks().iter().any(|mark| mark & KEEP == 0);
            let prunes = name.contains("Algorithm 3") || name.contains("sparse");
            assert_eq!(pruned, prunes, "{name}");
        }
    }

    #[test]
    fn a_copy_that_is_off_by_a_bit_shows() {
        let mut arena = Arena::flat(3, 0);
        // A tie to even, a tie away from odd, and a plain number.
        let values = [0x3f80_8000_u32, 0x3f81_8000, 0xc049_0fdb].map(f32::from_bits);
        arena.set_weights(&values).unwrap();
        arena.set_marks(&[KEEP, KEEP, 0]).unwrap();
        assert_eq!(other_bits(&arena, &[0x3f80, 0x3f82, 0xc049]), 0);
        assert_eq!(other_bits(&arena, &[0x3f81, 0x3f82, 0xc049]), 1);
        assert_eq!(other_bits(&arena, &[0x3f80, 0x3f82]), 1);
        assert_eq!(alive_though_pruned(&arena, &[0x3f80, 0x3f82, 0xc049]), 1);
        assert_eq!(alive_though_pruned(&arena, &[0x3f80, 0x3f82, 0x8000]), 0);
    }
}
