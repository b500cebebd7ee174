//! Short runs on images: both devices, images from memory and from a stream, and after a resume.

use std::path::Path;
use std::sync::Arc;

use thinfer_core::device::OnCuda;
use thinfer_core::shrink::Shrinking;
use thinfer_core::train::{Chain, ChainSpec};
use thinfer_data::Result;
use thinfer_data::images::Broken;
use thinfer_data::{ImageData, ImageSet, ImageStream, Images, View};
use thinfer_engine::Shape;
use thinfer_engine::augment::Augment;
use thinfer_engine::cuda::{Check, Extent, Gpu, Precision};
use thinfer_engine::noise::{Key, Stream};
use thinfer_run::config::Config;
use thinfer_run::experiment::chain_specs;
use thinfer_run::images::classify;

use super::{check, worst};

/// What rounding may grow to in a handful of steps through batch norms and rectifiers.
const LIMIT: f64 = 5e-3;

const SHAPE: Shape = Shape { height: 8, width: 8, channels: 3 };

/// The share of marks that may differ: a last bit decides which of two weights of nearly the same
/// size is pruned, where they are pruned one by one.
pub(super) fn swapped(name: &str) -> f64 {
    if name.contains("sparse") { 0.01 } else { 0.0 }
}

/// Seeds are such that no activation is so near to the kink of its ReLU that rounding moves it
/// across; a test holds them to that.
pub(super) const METHODS: &[(&str, &[&str])] = &[
    ("SGD", &["method.kind=sgd", "schedule.step_size.value=0.02", "seed=11"]),
    ("cSGLD", &["method.kind=csgld", "method.sampling_epochs=1"]),
    ("cSGHMC", &["method.kind=csghmc", "method.sampling_epochs=1"]),
    ("DPF-Lin, sparse", &["method.kind=dpf-lin", "schedule.step_size.value=0.02"]),
    (
        "SM, sparse",
        &["method.kind=sm", "schedule.step_size.value=0.02", "prune.target=0.5", "seed=3"],
    ),
    ("DSR, sparse", &["method.kind=dsr", "schedule.step_size.value=0.02", "prune.target=0.5"]),
    ("Rank-1, normal scales", &["method.kind=rank1", "method.members=2", "seed=19"]),
    (
        "Rank-1, Cauchy scales",
        &["method.kind=rank1", "method.members=3", "method.posterior=cauchy", "seed=18"],
    ),
    ("Algorithm 1", &["method.kind=cv-adam", "schedule.step_size.value=0.02", "seed=20"]),
    ("IVON", &["method.kind=ivon", "schedule.step_size.value=0.02", "seed=23"]),
    ("Algorithm 2", &["method.kind=sghmc"]),
    ("Algorithm 3, DFP", &["prune.regrow=false", "prune.shrink=never"]),
    ("Algorithm 3, DPF", &["prune.regrow=true"]),
    ("Algorithm 3, DFP, shrunk", &["prune.regrow=false", "prune.shrink=always"]),
    (
        "Algorithm 3, DPF, shrunk",
        &["prune.regrow=true", "prune.freeze_after_epochs=1", "prune.shrink=always"],
    ),
    ("Algorithm 3, DFP, frozen", &freezing("prune.shrink=never")),
    ("Algorithm 3, DFP, frozen and shrunk", &freezing("prune.shrink=always")),
];

/// Three cycles of an epoch each, so that the last one has some layers frozen. Few groups, so that
/// no last bit decides which have settled.
const fn freezing(shrink: &'static str) -> [&'static str; 8] {
    [
        shrink,
        "prune.warm_up_epochs=1",
        "prune.regrow=false",
        "prior.group=output",
        "schedule.step_size.value=0.01",
        "schedule.step_size.cycles=3",
        "train.freeze_below=0.06",
        "train.freeze_layer_share=0.5",
    ]
}

/// Images that are held, handed out as a stream would.
#[derive(Debug)]
struct Lent(Arc<ImageSet>);

impl ImageStream for Lent {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn labels(&self) -> &[u32] {
        self.0.labels()
    }

    fn fill(&self, rows: &[u32], _view: View, out: &mut [u8]) -> Result<()> {
        for (to, row) in out.chunks_exact_mut(SHAPE.len()).zip(rows) {
            to.copy_from_slice(self.0.image(*row as usize));
        }
        Ok(())
    }
}

/// All checks, or the runs alone.
pub(crate) fn image_runs(gpu: &Arc<Gpu>, extent: Extent) -> Result<Vec<Check>> {
    let on = || OnCuda { gpu: gpu.clone(), precision: Precision::F32 };
    let (held, lent) = data()?;
    let mut checks = Vec::new();
    for (name, more) in METHODS {
        let spec = spec(more, &held)?;
        let cpu = finish(Chain::start(spec.clone())?, &held)?;
        let cuda = finish(on_gpu(Chain::start(spec.clone())?, on())?, &held)?;
        let swapped = swapped(name);
        checks.push(check(format!("{name}, images"), worst(&cpu, &cuda, swapped), LIMIT));
        if extent == Extent::Quick {
            continue;
        }

        if name.contains("shrunk") {
            let masked = ChainSpec { shrink: Shrinking::Never, ..spec.clone() };
            let masked = finish(on_gpu(Chain::start(masked)?, on())?, &held)?;
            let what = format!("{name}, images: as with masks");
            checks.push(check(what, worst(&masked, &cuda, 0.0), LIMIT));
        }
        let streamed = finish(on_gpu(Chain::start(spec.clone())?, on())?, &lent)?;
        let name_of = |what: &str| format!("{name}, images: {what}");
        checks.push(equal(name_of("a stream gives the same bits"), &cuda, &streamed)?);

        let mut first = on_gpu(Chain::start(spec.clone())?, on())?;
        first.advance(&held)?;
        first.synchronise()?;
        let bytes = first.to_bytes()?;
        let sampled = |_: &[(usize, u32)]| Ok(first.snapshots().to_vec());
        let again = Chain::from_bytes(spec.clone(), Path::new("memory"), &bytes, sampled)?;
        let resumed = finish(on_gpu(again, on())?, &held)?;
        checks.push(equal(name_of("resumed to the same bits"), &cuda, &resumed)?);
        let sampled = |_: &[(usize, u32)]| Ok(first.snapshots().to_vec());
        let again = Chain::from_bytes(spec.clone(), Path::new("memory"), &bytes, sampled)?;
        let moved = finish(again, &held)?;
        checks.push(check(name_of("resumed on the CPU"), worst(&cuda, &moved, swapped), LIMIT));

        let members = cpu.snapshots();
        let guess = |on: Option<&OnCuda>| -> Result<Vec<f32>> {
            let all = classify(&spec.network, members, &held.test, &held.augment, on)?;
            Ok(all.concat().into_iter().map(|p| p as f32).collect())
        };
        let differ = super::relative(&guess(None)?, &guess(Some(&on()))?);
        checks.push(check(name_of("class probabilities"), differ, super::LIMIT));
    }
    Ok(checks)
}

fn on_gpu(mut chain: Chain, on: OnCuda) -> Result<Chain> {
    chain.use_cuda(on)?;
    Ok(chain)
}

fn finish(mut chain: Chain, data: &ImageData) -> Result<Chain> {
    while !chain.is_done() {
        chain.advance(data)?;
    }
    Ok(chain)
}

fn equal(name: String, a: &Chain, b: &Chain) -> Result<Check> {
    let same = a.to_bytes()? == b.to_bytes()?;
    Ok(check(name, if same { 0.0 } else { f64::INFINITY }, 0.0))
}

/// The same images held and lent. Nothing is left to chance on their way, so both are the same.
fn data() -> Result<(ImageData, ImageData)> {
    let held = images_of(90)?;
    let lend = |images: &Images| match images {
        Images::Held(set) => Images::Streamed(Arc::new(Lent(set.clone()))),
        Images::Streamed(stream) => Images::Streamed(stream.clone()),
    };
    let lent = ImageData { train: lend(&held.train), test: lend(&held.test), ..held.clone() };
    Ok((held, lent))
}

/// So many images to learn from, and some to be scored on.
pub(super) fn images_of(rows: usize) -> Result<ImageData> {
    let images = |seed: u64, rows: usize| -> Result<Arc<ImageSet>> {
        let key = Key::new(seed, 0, Stream::Inputs);
        let bytes = (0..rows * SHAPE.len()).map(|i| key.below(0, i, 256) as u8).collect();
        let labels = (0..rows as u32).map(|row| row % 3).collect();
        Ok(Arc::new(ImageSet::new(SHAPE, bytes, labels)?))
    };
    Ok(ImageData {
        train: Images::Held(images(1, rows)?),
        test: Images::Held(images(2, 50)?),
        classes: ["a", "b", "c"].map(str::to_owned).to_vec(),
        augment: Augment::new(SHAPE, 0, false, &[0.5; 3], &[0.3; 3])?,
        notes: Vec::new(),
        unreadable: Broken::default(),
        fingerprint: 0,
    })
}

pub(super) fn spec(more: &[&str], data: &ImageData) -> Result<ChainSpec> {
    let small = [
        "data.kind=shapes",
        "model.name=wrn-10-1",
        "train.batch=40",
        "train.epochs=3",
        "train.precision=f32",
        "train.samples_per_cycle=1",
        "schedule.step_size.value=0.05",
        "schedule.step_size.cycles=1",
        "prune.warm_up_epochs=0",
        "prune.hard_threshold=0.6",
    ];
    let settings: Vec<String> = small.iter().chain(more).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &settings)?;
    Ok(chain_specs(&config, data)?.swap_remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_core::methods::Tick;
    use thinfer_core::prune::FIXED;

    /// Images that differ by some millionths move a run far less than its limit.
    #[test]
    fn runs_in_f32_are_far_from_kinks() {
        let (held, _) = data().unwrap();
        for (name, more) in METHODS {
            let spec = spec(more, &held).unwrap();
            let run = |change: f32| {
                let deviation = 0.3 * (1.0 + change);
                let augment = Augment::new(SHAPE, 0, false, &[0.5; 3], &[deviation; 3]).unwrap();
                let data = ImageData { augment, ..held.clone() };
                finish(Chain::start(spec.clone()).unwrap(), &data).unwrap()
            };
            let plain = run(0.0);
            for change in [1e-6, -1e-6, 2e-6, -2e-6] {
                let apart = worst(&plain, &run(change), swapped(name));
                assert!(apart < 0.1 * LIMIT, "{name}, {change}: {apart}");
            }
        }
    }

    /// A GPU run brings the state to the host only where a method says that it reads it.
    #[test]
    fn samples_that_depend_on_state_say_so() {
        let (held, _) = data().unwrap();
        for (name, more) in METHODS {
            let spec = spec(more, &held).unwrap();
            let chain = Chain::start(spec.clone()).unwrap();
            let rates = spec.schedules.at(1, spec.clock);
            let (tick, mut arena) = (Tick { step: 1, epoch: 0, rates }, chain.arena().clone());
            let before = spec.method.sample(&arena, tick);
            for at in 0..arena.state_buffers() {
                let other: Vec<f32> = arena.state(at).iter().map(|value| value + 1.0).collect();
                arena.set_state(at, &other).unwrap();
            }
            let depends = spec.method.sample(&arena, tick) != before;
            assert_eq!(depends, spec.method.sample_reads_state(), "{name}");
        }
    }

    #[test]
    fn the_runs_are_valid_and_a_stream_changes_nothing() {
        let (held, lent) = data().unwrap();
        for (name, more) in METHODS {
            let spec = spec(more, &held).unwrap();
            let a = finish(Chain::start(spec.clone()).unwrap(), &held).unwrap();
            let b = finish(Chain::start(spec).unwrap(), &lent).unwrap();
            assert!(equal(String::new(), &a, &b).unwrap().passed, "{name}");
            let pruned = a.records().last().unwrap().sparsity > 0.0;
            let prunes = name.contains("Algorithm 3") || name.contains("sparse");
            assert_eq!(pruned, prunes, "{name}");
            let smaller = a.records().last().unwrap().work < 1.0;
            assert_eq!(smaller, name.contains("shrunk"), "{name}");
            let less = a.records().last().unwrap().backward;
            assert_eq!(less < 0.9, name.contains("frozen"), "{name}: {less}");
            assert!(a.arena().marks().iter().any(|mark| mark & FIXED == 0), "{name}");
        }
    }
}
