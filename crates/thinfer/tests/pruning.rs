//! A small convolutional network with batch norm, trained and pruned through the hooks of a method.

use std::sync::Arc;

use thinfer::methods::em_mcmc::{AfterFreeze, Cadence, EmMcmc, EmMcmcMethod};
use thinfer::methods::sghmc::{NoiseRule, RhoRule, Sghmc};
use thinfer::methods::{Method, Rates, Tick, initialize};
use thinfer::prune::{
    Channels, Grouping, HardThreshold, KEEP, Rule, SLAB, SoftThreshold, Target, group_network,
};
use thinfer::schedule::{Clock, Schedule};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, Loss, Network, NetworkBuilder, Plan, Shape, Window};

const IMAGE: Shape = Shape { height: 6, width: 6, channels: 3 };
const ROWS: usize = 256;
const BATCH: usize = 32;
const CLOCK: Clock = Clock { steps_per_epoch: (ROWS / BATCH) as u64, epochs: 40 };

/// A bright bar in channel 0, lying or standing, is the class; channels 1 and 2 are noise alone.
fn bars(seed: u64) -> Dataset {
    let key = Key::new(seed, 0, Stream::Initial);
    let mut inputs = vec![0.0; ROWS * IMAGE.len()];
    key.normals(0, 0, &mut inputs);
    let mut classes = Vec::new();
    for (row, image) in inputs.chunks_exact_mut(IMAGE.len()).enumerate() {
        let class = row % 2;
        let line = (6.0 * key.uniform(1, row)) as usize;
        for (pixel, channels) in image.chunks_exact_mut(3).enumerate() {
            let place = [pixel / 6, pixel % 6][class];
            channels[0] = 0.3 * channels[0] + if place == line { 3.0 } else { 0.0 };
        }
        classes.push(class as f32);
    }
    Dataset::new(IMAGE.len(), 1, inputs, classes).unwrap()
}

fn network() -> Network {
    let mut b = NetworkBuilder::image(IMAGE);
    let mut at = b.input();
    for name in ["conv1", "conv2"] {
        at = b.conv2d(name, at, 8, Window::square(3, 1, 1)).unwrap();
        at = b.batch_norm(&format!("{name}.bn"), at).unwrap();
        at = b.relu(at).unwrap();
    }
    at = b.global_average_pool(at).unwrap();
    let out = b.linear("fc", at, 2).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

fn method(network: &Network, hard_threshold: HardThreshold, regrow: bool) -> Arc<dyn Method> {
    method_then(network, hard_threshold, regrow, AfterFreeze::Em)
}

fn method_then(
    network: &Network,
    hard_threshold: HardThreshold,
    regrow: bool,
    after_freeze: AfterFreeze,
) -> Arc<dyn Method> {
    let sghmc = Sghmc {
        beta1: 0.1,
        beta2: 1.0,
        weight_decay: 2e-3,
        train_rows: ROWS,
        noise: NoiseRule::Exact,
        rho: RhoRule::Exact,
        initial_momentum: 0.0,
        clip: None,
    };
    let config = EmMcmc {
        sghmc,
        spike_decay: 2e-2,
        soft_threshold: SoftThreshold::Given(1e-2),
        hard_threshold,
        warm_up_epochs: 10,
        freeze_after_epochs: Some(30),
        after_freeze,
        cadence: Cadence::Epoch,
        regrow,
        draw: None,
    };
    Arc::new(EmMcmcMethod {
        config,
        groups: group_network(network, Grouping::Kernel, None),
        channels: Some(Channels::new(network, Rule::Range, false)),
        key: Key::new(1, 0, Stream::Sampler),
    })
}

struct Trained {
    arena: Arena,
    accuracy: f64,
    sparsity: Vec<f64>,
}

fn train(network: &Network, method: &dyn Method) -> Trained {
    let key = Key::new(1, 0, Stream::Sampler);
    let (train, test) = (bars(1), bars(2));
    let step_size = Schedule::cyclical(0.5, 1);
    let mut arena = Arena::new(network, method.state_buffers());
    initialize(&mut arena, network.loss(), 1, 0).unwrap();
    method.start(&mut arena, key).unwrap();
    let mut plan = Plan::new(network, BATCH).unwrap();
    let mut sparsity = Vec::new();
    for step in 0..CLOCK.total_steps() {
        let rates = Rates {
            step_size: step_size.at(step, CLOCK),
            step_size_before: step_size.at(step.saturating_sub(1), CLOCK),
            temperature: 1.0 / ROWS as f64,
            eta: 0.1,
            decay_factor: 1.0,
        };
        let tick = Tick { step, epoch: CLOCK.epoch(step), rates };
        let batch = CLOCK.batch(step);
        if batch == 0 {
            method.epoch(&mut arena, tick);
            let pruned = arena.marks().iter().filter(|m| *m & KEEP == 0).count();
            sparsity.push(pruned as f64 / arena.len() as f64);
        }
        method.materialize(&mut arena, tick);
        let order = Key::new(1, 0, Stream::Shuffle).permutation(tick.epoch as u64, ROWS);
        plan.gradient(&mut arena, &train, &order[batch * BATCH..(batch + 1) * BATCH]).unwrap();
        method.update(&mut arena, tick);
        for (w, mark) in arena.weights().iter().zip(arena.marks()) {
            assert!(!method.drops_for_good(tick.epoch) || mark & KEEP != 0 || *w == 0.0);
        }
    }
    let last = Tick {
        step: CLOCK.total_steps() - 1,
        epoch: CLOCK.epochs - 1,
        rates: Rates {
            step_size: 0.0,
            step_size_before: 0.0,
            temperature: 0.0,
            eta: 0.0,
            decay_factor: 1.0,
        },
    };
    let sample = method.sample(&arena, last);
    let mut out = vec![0.0; ROWS * 2];
    plan.forward(&sample, arena.stats(), &test, 0..ROWS, &mut out).unwrap();
    let right = out.chunks_exact(2).zip(test.targets());
    let right = right.filter(|(o, class)| f32::from(o[1] > o[0]) == **class).count();
    for (w, mark) in sample.iter().zip(arena.marks()) {
        assert!(mark & KEEP != 0 || *w == 0.0);
    }
    Trained { arena, accuracy: right as f64 / ROWS as f64, sparsity }
}

/// Which input channels of the first convolution are kept.
fn colours(network: &Network, marks: &[u8]) -> [bool; 3] {
    let stem = network.params().find("conv1.weight").unwrap();
    [0, 1, 2].map(|c| stem.range().skip(c).step_by(3).any(|at| marks[at] & KEEP != 0))
}

#[test]
fn noise_channels_go_and_the_signal_stays() {
    let network = network();
    for regrow in [false, true] {
        let method = method(&network, HardThreshold::Given(0.25), regrow);
        let trained = train(&network, &*method);
        let marks = trained.arena.marks();
        assert_eq!(colours(&network, marks), [true, false, false], "regrow = {regrow}");
        assert!(trained.accuracy > 0.95, "{} right with regrow = {regrow}", trained.accuracy);
        assert!(marks.iter().any(|m| m & SLAB == 0));
        for param in network.params().iter().filter(|p| p.shape.len() == 1) {
            assert!(marks[param.range()].iter().all(|m| m & SLAB != 0), "{}", param.name);
        }
    }
}

#[test]
fn a_target_is_held_from_its_epoch_on() {
    let network = network();
    for regrow in [false, true] {
        let cycles = Schedule::cyclical(1.0, 1).cycles(CLOCK.epochs);
        let target = Target::new(0.5, &cycles, 10, Some(30)).unwrap();
        let method = method(&network, HardThreshold::Target(target), regrow);
        let trained = train(&network, &*method);
        let sparsity = &trained.sparsity;
        assert_eq!(sparsity[10], 0.0);
        assert!(regrow || sparsity.is_sorted(), "{sparsity:?}");
        let one_channel = 75.0 / trained.arena.len() as f64;
        let held = &sparsity[30..];
        assert!(held.iter().all(|s| *s == held[0]), "{held:?}");
        assert!(held[0] >= 0.5 && held[0] < 0.5 + one_channel, "{held:?}");
        assert!(trained.accuracy > 0.95, "{} right with regrow = {regrow}", trained.accuracy);
    }
}

#[test]
fn what_is_left_after_the_freeze_is_in_the_slab_where_asked_for() {
    let network = network();
    let spikes = |after: AfterFreeze| {
        let method = method_then(&network, HardThreshold::Given(0.05), false, after);
        let trained = train(&network, method.as_ref());
        let marks = trained.arena.marks();
        let kept = marks.iter().filter(|mark| *mark & KEEP != 0);
        kept.filter(|mark| *mark & SLAB == 0).count()
    };
    assert!(spikes(AfterFreeze::Em) > 0);
    assert_eq!(spikes(AfterFreeze::Slab), 0);
}
