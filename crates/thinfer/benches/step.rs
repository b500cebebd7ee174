//! What a step costs, whole and in parts. `benches/README.md` says what each number means.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use rayon::{ThreadPool, ThreadPoolBuilder};
use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::experiment::{build_method, build_network, chain_specs};
use thinfer::methods::em_mcmc::{AfterFreeze, Cadence, EmMcmc, EmMcmcMethod};
use thinfer::methods::sghmc::{NoiseRule, RhoRule, Sghmc, SghmcMethod};
use thinfer::methods::{Method, Rates, Tick, initialize};
use thinfer::model::image_network;
use thinfer::prune::{Channels, Grouping, HardThreshold, Rule, SoftThreshold, group_network};
use thinfer::train::{Chain, live_inputs};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Plan, Shape};

const BATCH: usize = 1024;
/// Example 1: 1000-5-3-1 with biases.
const EXAMPLE_1: &[&str] = &["data.kind=example1", "model.hidden=[5, 3]"];
/// Example 2: 2000-6-4-3-1 with biases.
const EXAMPLE_2: &[&str] =
    &["data.kind=example2", "model.hidden=[6, 4, 3]", "prior.weight_decay=5e-4"];
/// No run ends while it is measured, and nothing is pruned: every step reads all columns. A run
/// that stays at the top of a cycle this long needs a smaller step than the paper's to be sure to
/// stay finite; what a step costs does not depend on it.
const ENDLESS: &[&str] = &[
    "train.epochs=1000000000",
    "prune.warm_up_epochs=1000000000",
    "schedule.step_size.value=0.001",
];
/// The rates of Example 1 at the start of a cycle.
const RATES: Rates = Rates {
    step_size: 0.01,
    step_size_before: 0.01,
    temperature: 0.01,
    eta: 0.1,
    decay_factor: 1.0,
};

/// Bytes that each method keeps for a weight: weight, state and one byte of marks.
#[expect(clippy::print_stdout, reason = "a benchmark reports on stdout")]
fn memory() {
    for kind in ["sgd", "cv-adam", "sghmc", "em-mcmc"] {
        let method = format!("method.kind={kind}");
        let (config, data) = load(EXAMPLE_1, &[&method, "data.train_rows=10"]);
        let network = build_network(&config, &data).expect("a network");
        let method = build_method(&config, &data, &network, 0).unwrap();
        let arena = Arena::new(&network, method.state_buffers());
        let bytes = arena.method_bytes() as f64 / arena.len() as f64;
        println!("memory/{kind}: {bytes} bytes a weight, 1 of them marks");
    }
}

fn main() {
    memory();
    let mut criterion = Criterion::default().configure_from_args();
    step(&mut criterion, "step/example1", EXAMPLE_1);
    step(&mut criterion, "step/example2", EXAMPLE_2);
    gradient(&mut criterion);
    update(&mut criterion);
    noise(&mut criterion);
    em_and_prune(&mut criterion);
    criterion.final_summary();
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .sampling_mode(SamplingMode::Flat);
    group
}

/// Pools as `run_chains` makes them; 0 threads means one a core.
fn pools() -> [(&'static str, ThreadPool); 2] {
    [("all-cores", 0), ("one-thread", 1)]
        .map(|(name, n)| (name, ThreadPoolBuilder::new().num_threads(n).build().expect("threads")))
}

fn load(settings: &[&str], more: &[&str]) -> (Config, Bundle) {
    // Only the training part is measured.
    let small = ["data.validation_rows=10", "data.test_rows=10"];
    let settings: Vec<String> =
        settings.iter().chain(more).chain(&small).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &settings).expect("the settings are valid");
    assert_eq!(config.train.batch, BATCH);
    let data = Bundle::load(&config.data, config.seed).expect("the data fits into memory");
    (config, data)
}

/// One `Chain::advance`: schedule, batch, gradient, update. Whole epochs are timed and divided by
/// their steps, since the first step of an epoch shuffles and the last has a smaller batch.
fn step(criterion: &mut Criterion, name: &str, settings: &[&str]) {
    let mut group = group(criterion, name);
    let mut made = None;
    for (threads, pool) in &pools() {
        let mut chain = None;
        group.bench_function(*threads, |b| {
            let (config, data) = made.get_or_insert_with(|| load(settings, ENDLESS));
            let chain = chain.get_or_insert_with(|| {
                let spec = chain_specs(config, &*data).expect("a chain").remove(0);
                Chain::start(spec).expect("a start")
            });
            let epoch = chain.spec().clock.steps_per_epoch;
            pool.install(|| {
                b.iter_custom(|wanted| {
                    let steps = wanted.next_multiple_of(epoch);
                    let began = Instant::now();
                    for _ in 0..steps {
                        chain.advance(&data.train).expect("a finite step");
                    }
                    began.elapsed().mul_f64(wanted as f64 / steps as f64)
                });
            });
        });
    }
    group.finish();
}

/// `Plan::gradient` alone: gather, forward and backward of one batch.
fn gradient(criterion: &mut Criterion) {
    let mut group = group(criterion, "gradient/example1");
    let mut made = None;
    for (threads, pool) in &pools() {
        group.bench_function(*threads, |b| {
            let (data, arena, plan, order) = made.get_or_insert_with(|| {
                let (config, data) = load(EXAMPLE_1, ENDLESS);
                let network = build_network(&config, &data).expect("a network");
                let mut arena = Arena::new(&network, 0);
                initialize(&mut arena, network.loss(), 1, 0).expect("weights");
                let plan = Plan::new(&network, BATCH).expect("a plan");
                let order = Key::new(1, 0, Stream::Shuffle).permutation(0, data.train.rows());
                (data, arena, plan, order)
            });
            // Another batch each time: one batch would stay in the cache.
            let mut batches = order.chunks_exact(BATCH).cycle();
            pool.install(|| {
                b.iter(|| {
                    let rows = batches.next().expect("a cycle never ends");
                    plan.gradient(arena, &data.train, rows).expect("a gradient")
                });
            });
        });
    }
    group.finish();
}

/// The update of Algorithm 2 alone, its noise included: Example 1 and the size of a ResNet-18.
fn update(criterion: &mut Criterion) {
    let mut group = group(criterion, "update/sghmc");
    let [(_, pool), _] = pools();
    let method = SghmcMethod {
        config: Sghmc {
            beta1: 0.1,
            beta2: 1.0,
            weight_decay: 2e-4,
            train_rows: 10_000,
            noise: NoiseRule::Exact,
            rho: RhoRule::Exact,
            initial_momentum: 0.0,
            clip: None,
        },
        key: Key::new(1, 0, Stream::Sampler),
        batch_noise: None,
    };
    for weights in [5_027, 11_200_000] {
        let mut arena = None;
        let mut at = 0;
        group.throughput(Throughput::Elements(weights as u64));
        group.sample_size(if weights > 1_000_000 { 10 } else { 20 });
        group.bench_function(weights.to_string(), |b| {
            let arena = arena.get_or_insert_with(|| {
                let mut arena = Arena::flat(weights, method.state_buffers());
                let mut values = vec![0.0; weights];
                Key::new(1, 0, Stream::Initial).normals(0, 0, &mut values);
                arena.set_weights(&values).expect("the same length");
                arena.set_gradient(&values).expect("the same length");
                method.start(&mut arena, method.key).expect("a start");
                arena
            });
            pool.install(|| {
                b.iter(|| {
                    at += 1;
                    method.update(arena, Tick { step: at, epoch: 0, rates: RATES });
                });
            });
        });
    }
    group.finish();
}

/// A million keyed normal numbers on one thread.
fn noise(criterion: &mut Criterion) {
    let mut group = group(criterion, "noise");
    let key = Key::new(1, 0, Stream::Sampler);
    let mut out = vec![0.0; 1_000_000];
    let mut at = 0;
    group.throughput(Throughput::Elements(out.len() as u64));
    group.bench_function("million", |b| {
        b.iter(|| {
            at += 1;
            key.normals(at, 0, black_box(&mut out));
        });
    });
    group.finish();
}

/// What pruning adds to an epoch: one EM step and one L2 rule over all groups of Example 1, in the
/// state in which a run spends most of its time, five inputs in the slab and the others pruned.
fn em_and_prune(criterion: &mut Criterion) {
    let mut group = group(criterion, "em_and_prune");
    let mut made = None;
    group.bench_function("example1", |b| {
        let (method, arena) = made.get_or_insert_with(|| {
            let settings = ["prune.warm_up_epochs=0", "data.train_rows=10"];
            let (config, data) = load(EXAMPLE_1, &settings);
            let network = build_network(&config, &data).expect("a network");
            let method = build_method(&config, &data, &network, 0).unwrap();
            let mut arena = Arena::new(&network, method.state_buffers());
            initialize(&mut arena, network.loss(), 1, 0).expect("weights");
            let first = network.first_weight().expect("a first layer");
            let mut weights = arena.weights().to_vec();
            for row in weights[first.range()].chunks_exact_mut(first.shape[1]) {
                row[..5].fill(0.5);
            }
            arena.set_weights(&weights).expect("the same length");
            method.start(&mut arena, Key::new(1, 0, Stream::Sampler)).expect("a start");
            method.epoch(&mut arena, Tick { step: 0, epoch: 1, rates: RATES });
            assert_eq!(live_inputs(&network, arena.marks()), [0, 1, 2, 3, 4]);
            (method, arena)
        });
        b.iter(|| method.epoch(arena, Tick { step: 0, epoch: 1, rates: RATES }));
    });
    // The same over kernels and channels of an image network, at a threshold that prunes some.
    let mut made = None;
    group.bench_function("resnet18", |b| {
        let (method, arena) = made.get_or_insert_with(|| {
            let shape = Shape { height: 32, width: 32, channels: 3 };
            let network = image_network("resnet18-cifar", shape, 10).expect("a network");
            let key = Key::new(1, 0, Stream::Sampler);
            let sghmc = Sghmc {
                beta1: 0.1,
                beta2: 1.0,
                weight_decay: 5e-4,
                train_rows: 50_000,
                noise: NoiseRule::Exact,
                rho: RhoRule::Exact,
                initial_momentum: 0.0,
                clip: None,
            };
            let config = EmMcmc {
                sghmc,
                spike_decay: 2e-3,
                soft_threshold: SoftThreshold::Given(1e-4),
                hard_threshold: HardThreshold::Given(0.05),
                warm_up_epochs: 0,
                freeze_after_epochs: None,
                after_freeze: AfterFreeze::Em,
                cadence: Cadence::Epoch,
                regrow: false,
                draw: None,
            };
            let groups = group_network(&network, Grouping::Kernel, None);
            let channels = Some(Channels::new(&network, Rule::Range, false));
            let method = EmMcmcMethod { config, groups, channels, key };
            let mut arena = Arena::new(&network, method.state_buffers());
            initialize(&mut arena, network.loss(), 1, 0).expect("weights");
            method.start(&mut arena, key).expect("a start");
            (method, arena)
        });
        b.iter(|| method.epoch(arena, Tick { step: 0, epoch: 1, rates: RATES }));
    });
    group.finish();
}
