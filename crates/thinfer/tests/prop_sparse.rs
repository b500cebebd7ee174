//! Invariants of the methods that keep a fixed number of single weights alive: DPF-Lin, SM and DSR.

use proptest::prelude::*;
use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::experiment::chain_specs;
use thinfer::methods::sgd::Sgd;
use thinfer::methods::sparse::{Layers, apportion};
use thinfer::methods::{Method, Rates, Tick, dpf_lin, dsr, sm};
use thinfer::prune::{ALIVE, KEEP};
use thinfer::train::Chain;
use thinfer_engine::Arena;
use thinfer_engine::noise::{Key, Stream};

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; n];
    Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
    values
}

/// Layers of the given sizes with a gap (a bias) after each, and marks with about `density` alive,
/// one at least in each layer.
fn layers(sizes: &[usize], density: f64, seed: u64) -> (Layers, Vec<u8>) {
    let (mut at, mut ranges) = (0, Vec::new());
    for size in sizes {
        ranges.push(at..at + size);
        at += size + 3;
    }
    let mut marks = vec![ALIVE; at];
    let key = Key::new(seed, 1, Stream::Initial);
    for range in &ranges {
        for place in range.clone().skip(1) {
            if f64::from(key.uniform(0, place)) > density {
                marks[place] &= !KEEP;
            }
        }
    }
    (Layers::at(ranges), marks)
}

fn alive(marks: &[u8], place: usize) -> bool {
    marks[place] & KEEP != 0
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(2usize..60, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole parts that add up, none over its cap, and without caps none further than one from its
    /// exact share.
    #[test]
    fn a_division_adds_up(
        total in 0usize..500, parts in prop::collection::vec((0.0f64..5.0, 0usize..90), 1..8),
    ) {
        let (shares, caps): (Vec<f64>, Vec<usize>) = parts.into_iter().unzip();
        let given = apportion(total, &shares, &caps);
        prop_assert_eq!(given.iter().sum::<usize>(), total.min(caps.iter().sum()));
        prop_assert!(given.iter().zip(&caps).all(|(given, cap)| given <= cap));
        let sum: f64 = shares.iter().sum();
        if sum > 0.0 {
            let free = apportion(total, &shares, &vec![usize::MAX / 16; shares.len()]);
            for (given, share) in free.iter().zip(&shares) {
                let exact = total as f64 * share / sum;
                prop_assert!((*given as f64 - exact).abs() < 1.0 + 1e-9, "{given} for {exact}");
            }
        }
    }

    /// SM: each layer loses its smallest live weights and gains its zeros of largest momentum; the
    /// number of live weights stays, and nothing outside the layers changes.
    #[test]
    fn sparse_momentum_keeps_its_budget(
        sizes in sizes(), density in 0.05f64..1.0, seed in 0u64..1000, rate in 0.01f64..0.9,
    ) {
        let (layers, before) = layers(&sizes, density, seed);
        let (weights, momentum) = (random(before.len(), seed), random(before.len(), seed + 7));
        let shares = sm::momentum_shares(&layers, &momentum, &before);
        prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let live = layers.live(&before);
        let losses = sm::losses(rate, &shares, &live, &sizes);
        let mut pruned = before.clone();
        sm::prune(&layers, &losses, &weights, &mut pruned);
        let zeros: Vec<usize> =
            sizes.iter().zip(layers.live(&pruned)).map(|(size, live)| size - live).collect();
        let gains = sm::growth(losses.iter().sum(), &shares, &zeros);
        let mut after = pruned.clone();
        sm::grow(&layers, &gains, &momentum, &mut after);

        prop_assert_eq!(layers.live(&after).iter().sum::<usize>(), live.iter().sum::<usize>());
        for (at, range) in layers.ranges().iter().enumerate() {
            prop_assert_eq!(layers.live(&pruned)[at], live[at] - losses[at]);
            prop_assert_eq!(layers.live(&after)[at], live[at] - losses[at] + gains[at]);
            prop_assert!(layers.live(&pruned)[at] > 0, "an empty layer");
            let gone = range.clone().filter(|&i| alive(&before, i) && !alive(&pruned, i));
            let largest_gone = gone.map(|i| weights[i].abs()).fold(0.0, f32::max);
            let came: Vec<usize> =
                range.clone().filter(|&i| !alive(&pruned, i) && alive(&after, i)).collect();
            let smallest_came = came.iter().map(|&i| momentum[i].abs()).fold(f32::MAX, f32::min);
            for i in range.clone() {
                prop_assert!(!alive(&pruned, i) || weights[i].abs() >= largest_gone);
                prop_assert!(alive(&before, i) || !alive(&pruned, i), "pruning revived a weight");
                prop_assert!(!alive(&pruned, i) || alive(&after, i), "growth pruned a weight");
                prop_assert!(alive(&after, i) || momentum[i].abs() <= smallest_came);
            }
        }
        let inside = |i: usize| layers.ranges().iter().any(|range| range.contains(&i));
        prop_assert!((0..before.len()).all(|i| inside(i) || after[i] == before[i]));
    }

    /// DSR: the smallest live weights of all layers go, but one of each layer stays; growth is
    /// where nothing lived before the round, and replaces exactly what went.
    #[test]
    fn reallocation_keeps_its_budget(
        sizes in sizes(), density in 0.05f64..1.0, seed in 0u64..1000, rate in 0.01f64..0.9,
    ) {
        let (layers, before) = layers(&sizes, density, seed);
        let weights: Vec<f32> = random(before.len(), seed)
            .iter()
            .zip(&before)
            .map(|(w, mark)| if mark & KEEP != 0 { *w } else { 0.0 })
            .collect();
        let method = dsr::DsrMethod {
            config: dsr::Dsr { sgd: SGD, rate, freeze_after_epochs: 9 },
            layers: layers.clone(),
            pruned: 0,
            key: Key::new(seed, 0, Stream::Sampler),
        };
        let mut arena = Arena::flat(before.len(), 1);
        arena.set_weights(&weights).unwrap();
        arena.set_marks(&before).unwrap();
        method.reallocate(&mut arena, 3);
        let after = arena.marks().to_vec();

        let count = |marks: &[u8]| layers.live(marks).iter().sum::<usize>();
        prop_assert_eq!(count(&after), count(&before));
        let gone: Vec<usize> =
            (0..after.len()).filter(|&i| alive(&before, i) && !alive(&after, i)).collect();
        let came: Vec<usize> =
            (0..after.len()).filter(|&i| !alive(&before, i) && alive(&after, i)).collect();
        let room: usize = before.len() - 3 * sizes.len() - count(&before);
        let movable = count(&before) - sizes.len();
        let wanted = (rate * count(&before) as f64).round() as usize;
        prop_assert_eq!(gone.len(), wanted.min(room).min(movable));
        prop_assert_eq!(came.len(), gone.len());
        prop_assert!(layers.live(&after).iter().all(|live| *live > 0));
        let largest_gone = gone.iter().map(|&i| weights[i].abs()).fold(0.0, f32::max);
        for range in layers.ranges() {
            let stayed: Vec<f32> = range
                .clone()
                .filter(|&i| alive(&before, i) && alive(&after, i))
                .map(|i| weights[i].abs())
                .collect();
            // At most one, the largest of its layer, is smaller than something that went elsewhere.
            prop_assert!(stayed.iter().filter(|size| **size < largest_gone).count() <= 1);
        }
        for i in 0..after.len() {
            let want = if alive(&before, i) && alive(&after, i) { weights[i] } else { 0.0 };
            prop_assert!(arena.weights()[i] == want || !layers.ranges().iter().any(|r| r.contains(&i)));
        }
        // The places depend on the epoch and on nothing else.
        let mut again = Arena::flat(before.len(), 1);
        again.set_weights(&weights).unwrap();
        again.set_marks(&before).unwrap();
        method.reallocate(&mut again, 3);
        prop_assert_eq!(again.marks(), &after[..]);
    }

    /// DPF-Lin: exactly the wanted number is pruned, the smallest of all layers, whatever was
    /// before.
    #[test]
    fn feedback_pruning_takes_the_smallest(
        sizes in sizes(), density in 0.0f64..1.0, seed in 0u64..1000, share in 0.0f64..1.0,
    ) {
        let (layers, mut marks) = layers(&sizes, density, seed);
        let weights = random(marks.len(), seed);
        let all: usize = sizes.iter().sum();
        let wanted = (share * all as f64) as usize;
        dpf_lin::assign(&layers, wanted, &weights, &mut marks);
        prop_assert_eq!(layers.live(&marks).iter().sum::<usize>(), all - wanted);
        let places = || layers.ranges().iter().flat_map(Clone::clone);
        let largest_gone =
            places().filter(|&i| !alive(&marks, i)).map(|i| weights[i].abs()).fold(0.0, f32::max);
        prop_assert!(places().all(|i| !alive(&marks, i) || weights[i].abs() >= largest_gone));
    }
}

const SGD: Sgd = Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: true };

fn at_epoch(epoch: usize) -> Tick {
    let rates = Rates {
        step_size: 0.1,
        step_size_before: 0.1,
        temperature: 0.0,
        eta: 0.0,
        decay_factor: 1.0,
    };
    Tick { step: 10 * epoch as u64, epoch, rates }
}

/// Weights and marks in a flat arena, pruned weights zero.
fn arena_with(weights: &[f32], marks: &[u8]) -> Arena {
    let live = |(w, mark): (&f32, &u8)| if mark & KEEP != 0 { *w } else { 0.0 };
    let weights: Vec<f32> = weights.iter().zip(marks).map(live).collect();
    let mut arena = Arena::flat(weights.len(), 1);
    arena.set_weights(&weights).unwrap();
    arena.set_marks(marks).unwrap();
    arena
}

/// One step of each method at a live and at a pruned weight. The gradient of a pruned one goes into
/// the momentum under SM and is dropped under DSR, where the momentum decays; both hold it at zero.
/// Under DPF-Lin it moves like a live one, decay included.
#[test]
fn a_step_treats_pruned_weights_as_the_method_says() {
    let sgd = Sgd { weight_decay: 0.1, ..SGD };
    let layers = Layers::at(std::iter::once(0..2).collect());
    let sm = sm::SmMethod {
        config: sm::Sm { sgd, rate: 0.5, epochs: 4, freeze_after_epochs: None },
        layers: layers.clone(),
        pruned: 1,
    };
    let dsr = dsr::DsrMethod {
        config: dsr::Dsr { sgd, rate: 0.1, freeze_after_epochs: 3 },
        layers: layers.clone(),
        pruned: 1,
        key: Key::new(1, 0, Stream::Sampler),
    };
    let lin =
        dpf_lin::DpfLinMethod { config: dpf_lin::DpfLin { sgd, pruned: 1, last_epoch: 3 }, layers };
    let (g, first) = ([0.5f32, -2.0], [0.25f32, 4.0]);
    // d = g + wd w, buf = 0.9 buf + d, w − 0.1 (d + 0.9 buf).
    let moved = |w: f32, at: usize| {
        let d = g[at] + 0.1 * w;
        let buf = 0.9 * first[at] + d;
        (w - 0.1 * (d + 0.9 * buf), buf)
    };
    let live = moved(2.0, 0);
    let methods: [(&dyn Method, f32, (f32, f32)); 3] = [
        (&sm, 0.0, (0.0, 0.9 * 4.0 - 2.0)),
        (&dsr, 0.0, (0.0, 0.9 * 4.0)),
        (&lin, 3.0, moved(3.0, 1)),
    ];
    for (number, (method, dense, pruned)) in methods.into_iter().enumerate() {
        let mut arena = Arena::flat(2, 1);
        arena.set_weights(&[2.0, dense]).unwrap();
        arena.set_marks(&[ALIVE, ALIVE & !KEEP]).unwrap();
        arena.set_state(0, &first).unwrap();
        arena.set_gradient(&g).unwrap();
        method.update(&mut arena, at_epoch(1));
        let (w, buf) = (arena.weights(), arena.state(0));
        for (got, want) in [(w[0], live.0), (buf[0], live.1), (w[1], pruned.0), (buf[1], pruned.1)]
        {
            assert!((got - want).abs() < 1e-6, "method {number}: {w:?} {buf:?}");
        }
    }
}

/// One redistribution of SM in a given epoch: its prune rate is that of the epoch, what grows
/// starts at zero, also where it went just now, and momentum stays where it is.
#[test]
fn a_redistribution_follows_the_epoch_and_growth_starts_at_zero() {
    let (layers, mut before) = layers(&[100, 100], 1.0, 1);
    // 60 live weights in each, so neither layer is nearly dense.
    (60..100).chain(163..203).for_each(|i| before[i] &= !KEEP);
    let weights = random(before.len(), 5);
    // The smallest live weights have the largest momentum: they go and come back at once.
    let momentum: Vec<f32> = weights
        .iter()
        .zip(&before)
        .map(|(w, mark)| if mark & KEEP != 0 { 1.0 / (0.1 + w.abs()) } else { 1e-3 })
        .collect();
    for (epoch, frozen) in [(1, false), (5, false), (9, false), (0, true), (10, true)] {
        let config = sm::Sm { sgd: SGD, rate: 0.5, epochs: 12, freeze_after_epochs: Some(9) };
        let method = sm::SmMethod { config, layers: layers.clone(), pruned: 80 };
        let mut arena = arena_with(&weights, &before);
        arena.set_state(0, &momentum).unwrap();
        let start = arena.weights().to_vec();
        method.epoch(&mut arena, at_epoch(epoch));
        assert_eq!(arena.state(0), momentum, "epoch {epoch}");
        if frozen {
            assert_eq!((arena.marks(), arena.weights()), (&before[..], &start[..]));
            continue;
        }
        // 0.005 + ½ (0.5 − 0.005) (1 + cos(π e / 12)), of 60 in each layer.
        let rate = 0.005 + 0.2475 * (1.0 + (std::f64::consts::PI * epoch as f64 / 12.0).cos());
        let lost = (60.0 * rate).ceil() as usize;
        let live = (0..before.len()).filter(|&i| alive(&before, i) && start[i] != 0.0);
        let zeroed = live.filter(|&i| arena.weights()[i] == 0.0).count();
        assert!(zeroed == 2 * lost, "epoch {epoch}: {zeroed} went, not twice {lost}");
        let back = (0..before.len()).filter(|&i| {
            alive(&before, i) && alive(arena.marks(), i) && start[i] != arena.weights()[i]
        });
        assert!(back.count() > lost, "epoch {epoch}: what went with large momentum comes back");
        assert_eq!(layers.live(arena.marks()).iter().sum::<usize>(), 120);
    }
}

/// G_l = K R_l / Σ R with R_l what is left after pruning: a layer that lost half of its weights
/// gets half as many as one that lost none.
#[test]
fn reallocation_grows_in_proportion_to_what_is_left() {
    let (layers, mut before) = layers(&[200, 200], 1.0, 1);
    (60..200).chain(263..403).for_each(|i| before[i] &= !KEEP);
    let weights: Vec<f32> =
        (0..before.len()).map(|i| if i < 200 { 5.0 } else { 0.1 + 1e-3 * i as f32 }).collect();
    let config = dsr::Dsr { sgd: SGD, rate: 0.25, freeze_after_epochs: 4 };
    let key = Key::new(3, 0, Stream::Sampler);
    let method = dsr::DsrMethod { config, layers: layers.clone(), pruned: 280, key };
    for (epoch, live) in [(1, [80, 40]), (4, [80, 40]), (0, [60, 60]), (5, [60, 60])] {
        let mut arena = arena_with(&weights, &before);
        method.epoch(&mut arena, at_epoch(epoch));
        assert_eq!(layers.live(arena.marks()), live, "epoch {epoch}");
    }
}

/// The mask of DPF-Lin follows the weights up to T_p and stays from then on.
#[test]
fn the_mask_of_feedback_pruning_is_final_after_its_epoch() {
    let (layers, marks) = layers(&[30, 20], 1.0, 1);
    let config = dpf_lin::DpfLin { sgd: SGD, pruned: 25, last_epoch: 6 };
    let method = dpf_lin::DpfLinMethod { config, layers: layers.clone() };
    let mut arena = Arena::flat(marks.len(), 1);
    method.start(&mut arena, Key::new(1, 0, Stream::Sampler)).unwrap();
    let mut masks = Vec::new();
    for epoch in 0..10 {
        arena.set_weights(&random(marks.len(), epoch as u64)).unwrap();
        method.epoch(&mut arena, at_epoch(epoch));
        masks.push(arena.marks().to_vec());
    }
    assert!(masks[..7].windows(2).all(|pair| pair[0] != pair[1]));
    assert!(masks[7..].iter().all(|mask| *mask == masks[6]));
    assert_eq!(layers.live(&masks[6]).iter().sum::<usize>(), 25);
}

fn run(kind: &str, seed: u64) -> (usize, Vec<usize>, Chain) {
    let overrides = [
        format!("method.kind={kind}"),
        format!("seed={seed}"),
        "data.columns=30".into(),
        "data.train_rows=200".into(),
        "data.test_rows=10".into(),
        "data.validation_rows=10".into(),
        "model.hidden=[12, 8]".into(),
        "train.batch=50".into(),
        "train.epochs=12".into(),
        "schedule.step_size.cycles=1".into(),
        "prune.target=0.7".into(),
        "prune.rate=0.3".into(),
    ];
    let config = Config::parse("", &overrides).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let spec = chain_specs(&config, &data).unwrap().swap_remove(0);
    let all = spec.network.params().len();
    let mut chain = Chain::start(spec).unwrap();
    let mut pruned = Vec::new();
    while !chain.is_done() {
        chain.advance(&data.train).unwrap();
        let arena = chain.arena();
        let zero = |i: usize| alive(arena.marks(), i) || arena.forward()[i] == 0.0;
        assert!((0..all).all(zero), "{kind}: the network reads a pruned weight");
        pruned.push(arena.marks().iter().filter(|mark| **mark & KEEP == 0).count());
    }
    (all, pruned, chain)
}

/// In a whole run the number of live weights is exact at every step, and the mask moves.
#[test]
fn runs_hold_their_sparsity_at_every_step() {
    for kind in ["sm", "dsr"] {
        let (all, pruned, chain) = run(kind, 3);
        let wanted = (0.7 * all as f64).ceil() as usize;
        assert!(pruned.iter().all(|n| *n == wanted), "{kind}: {pruned:?}");
        let (_, _, other) = run(kind, 4);
        assert_ne!(chain.arena().marks(), other.arena().marks(), "{kind}");
    }
    let (all, pruned, chain) = run("dpf-lin", 3);
    assert!(pruned.is_sorted() && pruned[0] == 0, "{pruned:?}");
    assert_eq!(*pruned.last().unwrap(), (0.7 * all as f64).ceil() as usize);
    // The mask is final with epoch 9 of 12, and pruned weights live on beside it.
    assert_eq!(pruned[4 * 9], *pruned.last().unwrap());
    let arena = chain.arena();
    assert!((0..all).any(|i| !alive(arena.marks(), i) && arena.weights()[i] != 0.0));
    assert!(
        chain.snapshots()[0]
            .weights
            .iter()
            .zip(arena.marks())
            .all(|(w, mark)| { mark & KEEP != 0 || *w == 0.0 })
    );
}

/// The momentum of a pruned weight follows its gradient under SM and rests under DSR.
#[test]
fn momentum_rules_hold_in_a_run() {
    let at_rest = |kind: &str| {
        let (all, _, chain) = run(kind, 3);
        let arena = chain.arena();
        let pruned = (0..all).filter(|&i| !alive(arena.marks(), i));
        pruned.filter(|&i| arena.state(0)[i].abs() > 1e-6).count()
    };
    assert!(at_rest("sm") > 20);
    // β^4 steps of an epoch leave something of what went in the last round only.
    assert!(at_rest("dsr") < at_rest("sm"));
}

#[test]
fn a_target_that_cannot_be_is_refused() {
    let overrides =
        ["method.kind=sm".to_owned(), "prune.target=0.9".to_owned(), "data.columns=5".to_owned()];
    let config = Config::parse("", &overrides).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let error = chain_specs(&config, &data).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("`prune.target`: is 0.9, but at most"), "{error}");
}

/// A deep ensemble of any method: one network of each chain, all of them different.
#[test]
fn an_ensemble_has_the_last_network_of_each_chain() {
    use std::sync::atomic::AtomicBool;
    use thinfer::train::{Setting, Silent, run_chains};
    let stop = AtomicBool::new(false);
    for kind in ["sgd", "csghmc", "sm"] {
        let overrides = [
            format!("method.kind={kind}"),
            "chains=3".into(),
            "train.members=last".into(),
            "data.columns=12".into(),
            "data.train_rows=100".into(),
            "train.batch=50".into(),
            "train.epochs=6".into(),
            "schedule.step_size.cycles=3".into(),
            "prune.target=0.5".into(),
        ];
        let config = Config::parse("", &overrides).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let setting = Setting::in_memory(&stop, &Silent, 1);
        let results =
            run_chains(chain_specs(&config, &data).unwrap(), &data.train, &setting).unwrap();
        let members: Vec<_> = results.into_iter().flat_map(|result| result.snapshots).collect();
        let places: Vec<(u32, usize)> = members.iter().map(|m| (m.chain, m.epoch)).collect();
        assert_eq!(places, [(0, 5), (1, 5), (2, 5)], "{kind}");
        assert!(
            members[0].weights != members[1].weights && members[1].weights != members[2].weights
        );
    }
}
