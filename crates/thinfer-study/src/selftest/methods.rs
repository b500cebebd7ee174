//! The methods on a GPU against the same methods on the CPU: part of `thinfer selftest`.

mod image_runs;
mod low_runs;

use std::sync::Arc;

use thinfer_core::device::OnCuda;
use thinfer_core::methods::initialize;
use thinfer_core::train::{Chain, ChainSpec};
use thinfer_data::Bundle;
use thinfer_data::Result;
use thinfer_engine::augment::Augment;
use thinfer_engine::cuda::{Check, Gpu, PlanOptions, Precision, Session, Source, StepCalls};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, Loss, Network, NetworkBuilder, Plan, Shape, Window};
use thinfer_run::config::Config;
use thinfer_run::experiment::chain_specs;

pub(super) use image_runs::image_runs;
pub(super) use low_runs::low_runs;

/// What the fast kernels and other orders of summation may differ by, relative to the largest
/// value.
const LIMIT: f64 = 1e-4;

/// What the runs learn from.
const DATA: &[(&str, &[&str])] = &[
    ("regression", &["data.kind=example1", "model.hidden=[5, 3]"]),
    ("two classes", &["data.kind=example3", "model.hidden=[6, 4]"]),
];

/// Every method, in the variants that have kernels of their own.
const METHODS: &[(&str, &[&str])] = &[
    ("SGD", &["method.kind=sgd", "schedule.step_size.value=0.05"]),
    (
        "SGD with Nesterov's term",
        &["method.kind=sgd", "schedule.step_size.value=0.05", "method.nesterov=true"],
    ),
    ("cSGLD", &["method.kind=csgld", "method.sampling_epochs=1"]),
    ("cSGHMC", &["method.kind=csghmc", "method.sampling_epochs=1"]),
    ("cSGHMC, clipped", &["method.kind=csghmc", "method.clip=0.1"]),
    (
        "DPF-Lin, sparse",
        &["method.kind=dpf-lin", "prune.target=0.6", "prune.freeze_after_epochs=3"],
    ),
    ("SM, sparse", &["method.kind=sm", "prune.target=0.6"]),
    ("DSR, sparse", &["method.kind=dsr", "prune.target=0.6", "prune.rate=0.3"]),
    ("Algorithm 1", &["method.kind=cv-adam", "schedule.step_size.value=0.05"]),
    ("IVON", &["method.kind=ivon", "method.curvature_memory=0.9"]),
    ("Algorithm 2", &["method.kind=sghmc"]),
    ("Algorithm 2, clipped", &["method.kind=sghmc", "method.clip=0.1"]),
    ("Algorithm 2, as in the authors' code", &["method.kind=sghmc", "preset=reference-code"]),
    ("Algorithm 2, as printed", &["method.kind=sghmc", "preset=paper"]),
    ("Algorithm 3, DFP", &["method.kind=em-mcmc", "prune.regrow=false"]),
    ("Algorithm 3, DPF", &["method.kind=em-mcmc", "prune.regrow=true"]),
];

/// Short runs of every method on both devices: weights, state, marks and losses. A handful of steps
/// is enough for every part of a state to move, and too few for rounding to grow.
pub(super) fn methods(gpu: &Arc<Gpu>) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (data, settings) in DATA {
        for (name, more) in METHODS {
            let (spec, bundle) = setting(settings, more)?;
            let mut chains = [Chain::start(spec.clone())?, Chain::start(spec)?];
            chains[1].use_cuda(OnCuda { gpu: gpu.clone(), precision: Precision::F32 })?;
            for chain in &mut chains {
                while !chain.is_done() {
                    chain.advance(&bundle.train)?;
                }
            }
            let [cpu, cuda] = &chains;
            checks.push(check(format!("{name}, {data}"), worst(cpu, cuda, 0.0), LIMIT));
        }
    }
    Ok(checks)
}

fn setting(data: &[&str], method: &[&str]) -> Result<(ChainSpec, Bundle)> {
    let small = [
        "data.columns=37",
        "data.train_rows=500",
        "data.validation_rows=10",
        "data.test_rows=10",
        "train.batch=128",
        "train.epochs=4",
        "schedule.step_size.cycles=2",
        "schedule.eta.value=10.0",
        "prune.warm_up_epochs=0",
        "prune.hard_threshold=0.01",
        "prior.soft_threshold=0.02",
    ];
    let settings: Vec<String> =
        small.iter().chain(data).chain(method).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &settings)?;
    let bundle = Bundle::load(&config.data, config.seed)?;
    Ok((chain_specs(&config, &bundle)?.swap_remove(0), bundle))
}

/// The largest difference of weights, state and losses, each relative to its largest value;
/// infinite where more than this share of the marks differ. Weights whose marks differ do not
/// count.
fn worst(cpu: &Chain, cuda: &Chain, swapped: f64) -> f64 {
    let (a, b) = (cpu.arena(), cuda.arena());
    let same: Vec<bool> = a.marks().iter().zip(b.marks()).map(|(a, b)| a == b).collect();
    let differ = same.iter().filter(|same| !**same).count();
    if differ as f64 > swapped * same.len() as f64 {
        return f64::INFINITY;
    }
    let loss = |chain: &Chain| -> Vec<f32> {
        chain.records().iter().map(|record| record.loss as f32).collect()
    };
    // Where nothing is alive the CPU does not move the state on, so only living weights count.
    let living = |values: &[f32]| -> Vec<f32> {
        let all = values.iter().zip(a.weights()).zip(&same);
        let kept = all.filter(|((_, w), same)| **w != 0.0 && **same);
        kept.map(|((value, _), _)| *value).collect()
    };
    let weights = relative(&living(a.weights()), &living(b.weights()));
    let mut worst = relative(&loss(cpu), &loss(cuda)).max(weights);
    for at in 0..a.state_buffers() {
        worst = worst.max(relative(&living(a.state(at)), &living(b.state(at))));
    }
    worst
}

/// One batch of images: crops, mirrorings and normalisation on both devices, and what the network
/// makes of them.
pub(super) fn images(gpu: &Arc<Gpu>) -> Result<Vec<Check>> {
    let shape = Shape { height: 20, width: 20, channels: 3 };
    let (count, batch, epoch) = (50, 32, 3);
    let key = Key::new(7, 0, Stream::Augment);
    let bytes: Vec<u8> = (0..count * shape.len())
        .map(|i| Key::new(8, 0, Stream::Inputs).below(0, i, 256) as u8)
        .collect();
    let classes: Vec<u32> = (0..count as u32).map(|i| i % 5).collect();
    let augment = Augment::new(shape, 3, true, &[0.5, 0.4, 0.3], &[0.2, 0.25, 0.3])?;
    let network = smooth_network(shape)?;
    let mut arena = Arena::new(&network, 0);
    initialize(&mut arena, network.loss(), 1, 0)?;
    let order = Key::new(7, 0, Stream::Shuffle).permutation(epoch, count);

    let mut inputs = vec![0.0; count * shape.len()];
    for (row, to) in inputs.chunks_exact_mut(shape.len()).enumerate() {
        let choice = augment.choice(key, epoch, row as u32);
        augment.image(&bytes[row * shape.len()..][..shape.len()], choice, to)?;
    }
    let targets = classes.iter().map(|c| *c as f32).collect();
    let data = Dataset::new(shape.len(), 1, inputs, targets)?;
    let mut plan = Plan::new(&network, batch)?;
    let loss = plan.gradient(&mut arena.clone(), &data, &order[..batch])?;
    let mut reference = arena.clone();
    plan.gradient(&mut reference, &data, &order[..batch])?;

    let options = PlanOptions {
        batch,
        precision: Precision::F32,
        deterministic: true,
        training: true,
        hasty: false,
    };
    let source = Source::Images { bytes: &bytes, classes: &classes, augment: &augment };
    let mut session = Session::new(gpu, &network, &arena, source, options)?;
    session.push(&arena)?;
    let tally = session.run(&order, 0, &[StepCalls::default()], key.kernel_words(epoch))?;
    let gradient = relative(reference.gradient(), &session.gradient()?);
    Ok(vec![
        check("a batch of images: loss".into(), relative(&[loss as f32], &tally.losses), LIMIT),
        check("a batch of images: gradient".into(), gradient, LIMIT),
    ])
}

/// Convolution, batch norm and tanh: without kinks, over which a last bit could move a gradient.
fn smooth_network(shape: Shape) -> Result<Network> {
    let mut b = NetworkBuilder::image(shape);
    let h = b.conv2d("conv1", b.input(), 12, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let h = b.tanh(h)?;
    let h = b.conv2d("conv2", h, 8, Window::square(3, 2, 1))?;
    let h = b.batch_norm("bn2", h)?;
    let h = b.tanh(h)?;
    let h = b.global_average_pool(h)?;
    let out = b.linear("fc", h, 5)?;
    Ok(b.finish(out, Loss::cross_entropy())?)
}

fn check(name: String, worst: f64, limit: f64) -> Check {
    Check::new(name, Precision::F32, worst, limit)
}

fn relative(want: &[f32], got: &[f32]) -> f64 {
    let largest = want.iter().fold(1e-12, |most: f64, w| most.max(f64::from(w.abs())));
    let differ = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs() / largest;
    let worst = want
        .iter()
        .zip(got)
        .map(differ)
        .fold(0.0, |a: f64, b| if b > a || b.is_nan() { b } else { a });
    // Not a number would get lost in a maximum.
    if want.len() == got.len() && !worst.is_nan() { worst } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings are valid, every pass has a kernel, and the runs do what the checks are about.
    #[test]
    fn the_runs_prune_clip_and_can_be_recorded() {
        for (_, data) in DATA {
            for (name, method) in METHODS {
                let (spec, bundle) = setting(data, method).unwrap();
                let mut chain = Chain::start(spec.clone()).unwrap();
                while !chain.is_done() {
                    chain.advance(&bundle.train).unwrap();
                }
                let last = chain.records().last().unwrap();
                let prunes = name.contains("Algorithm 3") || name.contains("sparse");
                assert_eq!(last.pruned_share > 0.0, prunes, "{name}");
                let clipped: u64 = chain.records().iter().map(|r| r.clipped_steps).sum();
                assert_eq!(clipped > 0, name.contains("clipped"), "{name}");
                let rates = spec.schedules.at(0, spec.clock);
                let tick = thinfer_core::methods::Tick { step: 0, epoch: 0, rates };
                let mut arena = chain.arena().clone();
                let calls = arena.record(|arena| spec.method.update(arena, tick)).unwrap();
                assert_eq!(calls.len(), 1, "{name}: one kernel an update");
                assert_eq!(arena.weights(), chain.arena().weights(), "{name}");
            }
        }
    }
}
