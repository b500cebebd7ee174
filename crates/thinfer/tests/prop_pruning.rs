//! Properties of masks and of the parts of a network that pruning leaves.

use proptest::prelude::*;
use thinfer::config::{Activation, Config};
use thinfer::data::Bundle;
use thinfer::experiment::chain_specs;
use thinfer::model::mlp;
use thinfer::prune::{
    ALIVE, Goal, Grouping, Groups, KEEP, SoftThreshold, em_step, group_network, live_groups,
    prune_groups,
};
use thinfer::train::Chain;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Loss, Param, Role, elementary};

fn random(n: usize, seed: u64, scale: f32) -> Vec<f32> {
    let mut values = vec![0.0; n];
    Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
    values.iter_mut().for_each(|v| *v *= scale);
    values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Without regrowth the mask only loses; with it the mask is a function of the weights alone.
    #[test]
    fn masks_shrink_without_regrowth(
        out in 1usize..6, inputs in 1usize..9, seed in 0u64..1000, threshold in 0.01f64..2.0,
        which in 0usize..3,
    ) {
        let param =
            Param { name: "w".into(), shape: vec![out, inputs], role: Role::LinearWeight, offset: 0 };
        let grouping = [Grouping::Input, Grouping::Output, Grouping::Weight][which];
        let groups = Groups::new(&param, grouping);
        let (layers, goal) = ([groups.clone()], Goal::Threshold(threshold));
        let mut marks = vec![ALIVE; out * inputs];
        for round in 0..4 {
            let weights = random(out * inputs, seed + round, 1.0);
            let before = marks.clone();
            prune_groups(&layers, &weights, goal, false, &mut marks);
            for (b, a) in before.iter().zip(&marks) {
                prop_assert!(b & KEEP != 0 || a & KEEP == 0, "a weight came back");
            }
            let mut regrown = marks.clone();
            prune_groups(&layers, &weights, goal, true, &mut regrown);
            let mut fresh = vec![ALIVE; out * inputs];
            prune_groups(&layers, &weights, goal, true, &mut fresh);
            em_step(&groups, &weights, SoftThreshold::Given(threshold), &mut fresh);
            em_step(&groups, &weights, SoftThreshold::Given(threshold), &mut regrown);
            prop_assert_eq!(&regrown, &fresh);
            // With one threshold for both rules the two masks agree.
            prop_assert!(fresh.iter().all(|m| *m == ALIVE || *m == 0));
        }
    }

    /// Under a target the smallest groups of all layers go, no more of them than needed, and each
    /// layer keeps its largest.
    #[test]
    fn a_target_prunes_the_smallest_groups(
        inputs in 2usize..12, hidden in 2usize..8, seed in 0u64..1000, target in 0.05f64..0.6,
        which in 0usize..3, regrow in any::<bool>(),
    ) {
        let network = mlp(inputs, &[hidden, 3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let grouping = [Grouping::Input, Grouping::Output, Grouping::Weight][which];
        let layers = group_network(&network, grouping, None);
        let weights = random(network.params().len(), seed, 1.0);
        let mut marks = vec![ALIVE; weights.len()];
        prune_groups(&layers, &weights, Goal::Share(target), regrow, &mut marks);
        let pruned = marks.iter().filter(|m| *m & KEEP == 0).count();
        let (mut kept, mut gone, mut most) = (Vec::new(), Vec::new(), 0);
        for groups in &layers {
            let means = groups.mean_squares(&weights);
            let largest = means.iter().copied().fold(0.0, f64::max);
            for (group, live) in live_groups(groups, &marks).into_iter().enumerate() {
                prop_assert!(live || means[group] < largest);
                most = most.max(groups.size(group));
                if means[group] < largest {
                    if live { &mut kept } else { &mut gone }.push(means[group]);
                }
            }
        }
        prop_assert!(gone.iter().all(|g| kept.iter().all(|k| g < k)));
        let wanted = target * weights.len() as f64;
        prop_assert!(pruned as f64 >= wanted || kept.is_empty());
        prop_assert!((pruned as f64) < wanted + most as f64);
    }

    /// τ stays inside (0, 1), masks only lose under DFP, and pruned weights are exactly zero.
    #[test]
    fn a_whole_run_keeps_its_invariants(seed in 0u64..50, regrow in any::<bool>()) {
        let overrides = [
            format!("seed={seed}"),
            format!("prune.regrow={regrow}"),
            "data.columns=10".into(), "data.train_rows=80".into(), "data.test_rows=10".into(),
            "data.validation_rows=10".into(), "train.batch=40".into(), "train.epochs=10".into(),
            "schedule.step_size.cycles=2".into(), "schedule.eta.value=2.0".into(),
            "prune.warm_up_epochs=1".into(), "prune.hard_threshold=0.05".into(),
            "prior.soft_threshold=0.1".into(),
        ];
        let config = Config::parse("", &overrides).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let mut chain = Chain::start(chain_specs(&config, &data).unwrap().swap_remove(0)).unwrap();
        let mut before = chain.arena().marks().to_vec();
        while !chain.is_done() {
            chain.advance(&data.train).unwrap();
            let arena = chain.arena();
            let inside = |rho: &f32| (0.0..1.0).contains(&elementary::sigmoid(*rho));
            let all_inside = arena.state(1).iter().all(inside);
            prop_assert!(all_inside, "tau left (0, 1)");
            for i in 0..arena.len() {
                if arena.marks()[i] & KEEP == 0 {
                    prop_assert!(regrow || arena.weights()[i] == 0.0);
                    prop_assert!(arena.forward()[i] == 0.0 || regrow);
                }
                prop_assert!(regrow || before[i] & KEEP != 0 || arena.marks()[i] & KEEP == 0);
            }
            before = arena.marks().to_vec();
        }
        for sample in chain.snapshots() {
            for (w, k) in sample.weights.iter().zip(&sample.keep) {
                prop_assert!(*k == 1 || *w == 0.0);
            }
        }
    }
}

/// With feedback a pruned input comes back when its dense weights grow; without it never.
#[test]
fn dpf_regrows_and_dfp_does_not() {
    let returns = |regrow: bool| {
        let overrides: Vec<String> = [
            format!("prune.regrow={regrow}"),
            "data.columns=10".into(),
            "data.train_rows=400".into(),
            "data.test_rows=10".into(),
            "data.validation_rows=10".into(),
            "train.batch=100".into(),
            "train.epochs=120".into(),
            "schedule.step_size.value=0.1".into(),
            "schedule.step_size.cycles=1".into(),
            "prune.warm_up_epochs=0".into(),
            "prune.hard_threshold=0.05".into(),
            "prior.spike_decay=0.001".into(),
        ]
        .to_vec();
        let config = Config::parse("", &overrides).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let mut chain = Chain::start(chain_specs(&config, &data).unwrap().swap_remove(0)).unwrap();
        let (mut count, mut before) = (0, chain.arena().marks().to_vec());
        while !chain.is_done() {
            chain.advance(&data.train).unwrap();
            let now = chain.arena().marks();
            count +=
                before.iter().zip(now).filter(|(b, n)| *b & KEEP == 0 && *n & KEEP != 0).count();
            before = now.to_vec();
        }
        count
    };
    assert!(returns(true) > 0);
    assert_eq!(returns(false), 0);
}

/// A target needs no threshold in networks of tables either, and a run that asks for what cannot be
/// is refused before it starts.
#[test]
fn a_run_reaches_its_target_and_holds_it() {
    let overrides = |target: f64| {
        [
            format!("prune.target={target}"),
            "data.columns=40".into(),
            "data.train_rows=200".into(),
            "data.test_rows=10".into(),
            "data.validation_rows=10".into(),
            "train.batch=100".into(),
            "train.epochs=40".into(),
            "train.record_every_epochs=1".into(),
            "schedule.step_size.cycles=4".into(),
            "prune.warm_up_epochs=2".into(),
            "prune.freeze_after_cycles=3".into(),
        ]
    };
    let config = Config::parse("", &overrides(0.7)).unwrap();
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let mut chain = Chain::start(chain_specs(&config, &data).unwrap().swap_remove(0)).unwrap();
    while !chain.is_done() {
        chain.advance(&data.train).unwrap();
    }
    let sparsity: Vec<f64> = chain.records().iter().map(|r| r.sparsity).collect();
    assert!(sparsity.is_sorted() && sparsity[2] == 0.0, "{sparsity:?}");
    // Nothing is pruned in the first half of a cycle.
    assert!(sparsity[10..15].iter().all(|s| *s == sparsity[9]), "{sparsity:?}");
    // A group of the first layer has 5 of 227 parameters.
    assert!((0.7..0.7 + 5.0 / 227.0).contains(&sparsity[29]), "{sparsity:?}");
    assert_eq!(sparsity[29], sparsity[39]);
    let config = Config::parse("", &overrides(0.99)).unwrap();
    let error = chain_specs(&config, &data).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("`prune.target`: is 0.99, but at most 0.96"), "{error}");
}
