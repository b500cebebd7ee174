//! Which samples are averaged, whether they agree, and chains that are left out.

use std::fs;

use serde_json::Value;

use crate::workspace::Workspace;

/// So that no sample has an earlier mask than the last one.
const UNPRUNED: [&str; 2] = ["--set", "prune.warm_up_epochs=20"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_first_half_of_a_tables_cycles_is_burn_in_and_a_cycle_gives_one_sample() {
    let workspace = Workspace::new();
    let train = ["train", "tiny.toml", "--json", "--set", "schedule.step_size.cycles=4"];
    let found = json(&workspace.succeeds(&[&train[..], &UNPRUNED].concat()).stdout);
    assert_eq!(
        (&found["posterior"]["members"], &found["all_samples"]["members"]),
        (&2.into(), &12.into())
    );
    let trace = &found["convergence"]["traces"][0];
    let kept: Vec<u64> = (0..12)
        .filter(|at| trace["kept"][at] == true)
        .filter_map(|at| trace["epochs"][at].as_u64())
        .collect();
    assert_eq!(kept, [14, 19]);
    assert_eq!(found["convergence"]["samples"], 6);
}

#[test]
fn which_samples_are_averaged_may_change_without_training_again() {
    let workspace = Workspace::new();
    let train = [&["train", "tiny.toml", "--json"][..], &UNPRUNED].concat();
    let before = json(&workspace.succeeds(&train).stdout);
    assert_eq!(before["posterior"]["members"], 1);
    let sample = workspace.path("runs/tiny/chain-0/snapshot-000019.safetensors");
    let bytes = fs::read(&sample).unwrap();
    let other = ["--resume", "--set", "posterior.burn_in=0.0", "--set", "posterior.thin=2"];
    let after = json(&workspace.succeeds(&[&train[..], &other].concat()).stdout);
    assert_eq!(after["posterior"]["members"], 3);
    assert_eq!(after["last"], before["last"]);
    assert_eq!(fs::read(&sample).unwrap(), bytes);
    // It is the run's own from then on.
    let again = json(&workspace.succeeds(&["eval", "runs/tiny", "--json"]).stdout);
    assert_eq!(again["posterior"], after["posterior"]);
    let config = fs::read_to_string(workspace.path("runs/tiny/config.toml")).unwrap();
    assert!(config.contains("burn_in = 0.0") && config.contains("thin = 2"), "{config}");
}

#[test]
fn samples_that_do_not_agree_are_not_called_a_posterior_without_a_word() {
    let workspace = Workspace::new();
    let few = workspace.succeeds(&[&["train", "tiny.toml"][..], &UNPRUNED].concat()).stdout;
    assert!(few.contains("posterior (1 sample, convergence unknown)"), "{few}");
    assert!(few.contains("convergence: unknown, since 3 samples"), "{few}");
    // Noise is still being learned, so the later samples differ from the earlier ones.
    let settings = ["--set", "posterior.burn_in=0.0", "--set", "model.noise=learned", "--force"];
    let climbing =
        workspace.succeeds(&[&["train", "tiny.toml"][..], &UNPRUNED, &settings].concat()).stdout;
    assert!(climbing.contains("samples, not converged)"), "{climbing}");
    assert!(climbing.contains("convergence: R-hat "), "{climbing}");
    let report = fs::read_to_string(workspace.path("runs/tiny/report.html")).unwrap();
    assert!(report.contains("Do the samples agree?") && report.contains("have not converged"));
}

#[test]
fn a_chain_that_blew_up_is_left_out_and_the_exit_code_says_so() {
    let workspace = Workspace::new();
    let too_large = ["method.kind=sgd", "model.noise=learned", "schedule.step_size.value=1.0"];
    let mut train = vec!["train", "tiny.toml", "--set", "chains=4"];
    train.extend(too_large.iter().flat_map(|setting| ["--set", setting]));
    let outcome = workspace.run(&train);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let last = outcome.stderr.lines().last().unwrap();
    assert!(last.contains("blew up") && last.contains("schedule.step_size.value"), "{last}");
    let evaluation = fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap();
    let evaluation: Value = serde_json::from_slice(&evaluation).unwrap();
    let left_out = evaluation["blown_up"].as_array().unwrap();
    assert!((1..4).contains(&left_out.len()), "{left_out:?}");
    assert!(evaluation["posterior"]["mse"].as_f64().unwrap() < 100.0, "{evaluation}");
    assert_eq!(workspace.run(&["eval", "runs/tiny"]).code, Some(1));
    // Nothing is left of a single chain that did.
    train.extend(["--force", "--set", "schedule.step_size.value=30.0", "--set", "chains=1"]);
    let alone = workspace.run(&train);
    assert_eq!(alone.code, Some(1), "{}", alone.stdout);
}
