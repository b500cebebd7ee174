//! Invariants of the methods that keep a fixed number of single weights alive: DPF-Lin, SM and DSR.

use proptest::prelude::*;
use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::experiment::chain_specs;
use thinfer::methods::sparse::{Layers, apportion};
use thinfer::methods::{dpf_lin, dsr, sm};
use thinfer::prune::{ALIVE, KEEP};
use thinfer::train::Chain;
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

    /// DSR: the smallest live weights of all layers go, but one of each layer stays; growth is where
    /// nothing lived before the round, and replaces exactly what went.
    #[test]
    fn reallocation_keeps_its_budget(
        sizes in sizes(), density in 0.05f64..1.0, seed in 0u64..1000, rate in 0.01f64..0.9,
    ) {
        use thinfer::methods::sgd::Sgd;
        let (layers, before) = layers(&sizes, density, seed);
        let weights: Vec<f32> = random(before.len(), seed)
            .iter()
            .zip(&before)
            .map(|(w, mark)| if mark & KEEP != 0 { *w } else { 0.0 })
            .collect();
        let sgd = Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: true };
        let method = dsr::DsrMethod {
            config: dsr::Dsr { sgd, rate, freeze_after_epochs: 9 },
            layers: layers.clone(),
            pruned: 0,
            key: Key::new(seed, 0, Stream::Sampler),
        };
        let mut arena = thinfer_engine::Arena::flat(before.len(), 1);
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
        let mut again = thinfer_engine::Arena::flat(before.len(), 1);
        again.set_weights(&weights).unwrap();
        again.set_marks(&before).unwrap();
        method.reallocate(&mut again, 3);
        prop_assert_eq!(again.marks(), &after[..]);
    }

    /// DPF-Lin: exactly the wanted number is pruned, the smallest of all layers, whatever was before.
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
    let data = Bundle::load(&config).unwrap();
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
    let data = Bundle::load(&config).unwrap();
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
        let data = Bundle::load(&config).unwrap();
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
