use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::workspace::{Workspace, assert_same, names};

#[test]
fn a_run_leaves_its_files_and_tells_what_it_found() {
    let workspace = Workspace::new();
    let outcome = workspace.succeeds(&["train", "tiny.toml"]);
    let run = workspace.path("runs/tiny");
    assert_eq!(
        names(&run),
        [
            "chain-0",
            "config.toml",
            "evaluation.json",
            "history.csv",
            "report.html",
            "run.json",
            "status.json"
        ]
    );
    assert_eq!(
        names(&run.join("chain-0")),
        [
            "checkpoint",
            "checkpoint.previous",
            "snapshot-000007.safetensors",
            "snapshot-000008.safetensors",
            "snapshot-000009.safetensors",
            "snapshot-000017.safetensors",
            "snapshot-000018.safetensors",
            "snapshot-000019.safetensors",
            "times.csv",
        ]
    );
    let first = outcome.stderr.lines().next().unwrap();
    assert!(first.starts_with("cpu, ") && first.contains(" for 1 chain; 200 training,"), "{first}");
    assert!(first.contains("8 inputs, 67 weights; about "), "{first}");
    let last = outcome.stderr.lines().last().unwrap();
    assert_eq!(last, "wrote runs/tiny/evaluation.json and runs/tiny/report.html");
    for part in ["1000 test rows", "posterior (", "MSE", "of 8 variables selected; FDR ", "time: "]
    {
        assert!(outcome.stdout.contains(part), "no {part} in\n{}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains('\x1b') && !outcome.stderr.contains('\x1b'));
    let evaluation = fs::read(run.join("evaluation.json")).unwrap();
    let evaluation: Value = serde_json::from_slice(&evaluation).unwrap();
    assert_eq!(evaluation["rows"], serde_json::json!([200, 1000, 1000]));
}

#[test]
fn a_warm_up_that_is_longer_than_the_run_is_noticed() {
    let workspace = Workspace::new();
    let long = "schedule.temperature.warm_up_epochs=100";
    let outcome = workspace.succeeds(&["train", "tiny.toml", "--set", long]);
    let first = outcome.stderr.lines().next().unwrap();
    assert_eq!(
        first,
        "notice: schedule.temperature.warm_up_epochs is 100, but the run has 20 epochs, so the temperature never gets to its value; give more train.epochs or a warm-up of about 10"
    );
}

#[test]
fn json_is_one_object_and_quiet_is_quiet() {
    let workspace = Workspace::new();
    let outcome = workspace.succeeds(&["train", "tiny.toml", "--json", "--quiet"]);
    assert_eq!(outcome.stderr, "");
    let result: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(result["run"], "runs/tiny");
    assert_eq!(result["task"], "regression");
    assert_eq!(result["files"]["report"], "runs/tiny/report.html");
    assert!(result["posterior"]["mse"].is_f64() && result["seconds"].is_f64());
    assert_eq!(result["survival"].as_object().unwrap().len(), 8);
}

#[test]
fn a_run_that_draws_assignments_has_probabilities() {
    let workspace = Workspace::new();
    let draws = ["prior.assignment=draw", "prior.sd=1.0", "prior.spike_sd=0.1", "chains=2"];
    let sets: Vec<&str> = draws.iter().flat_map(|set| ["--set", set]).collect();
    let outcome = workspace.succeeds(&[&["train", "tiny.toml"][..], &sets].concat());
    let said = &outcome.stdout;
    assert!(said.contains("probability: that the weights") && !said.contains("surviv"), "{said}");
    assert!(said.contains("two chains differ by"), "{said}");
    let evaluation = fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap();
    let evaluation: Value = serde_json::from_slice(&evaluation).unwrap();
    let found = evaluation["inclusion"].as_object().unwrap();
    assert!(found.len() == 8 && found.values().all(|p| (0.0..=1.0).contains(&p.as_f64().unwrap())));
    assert!(evaluation["inclusion_difference"].is_f64());
    let selected = evaluation["selected"].as_array().unwrap().len();
    assert_eq!(selected, found.values().filter(|p| p.as_f64().unwrap() > 0.5).count());
}

#[test]
fn a_run_that_is_there_is_kept_unless_told_otherwise() {
    let workspace = Workspace::trained();
    let before = fs::read(workspace.path("runs/tiny/chain-0/snapshot-000019.safetensors")).unwrap();
    assert_snapshot!(workspace.fails(2, &["train", "tiny.toml"]), @"error: runs/tiny already holds a run; continue it with --resume, replace it with --force, or choose another folder with --out");
    let other = ["train", "tiny.toml", "--set", "seed=2"];
    assert_snapshot!(workspace.fails(2, &[&other[..], &["--resume"]].concat()), @"error: `seed`: is 2, but the run in runs/tiny was started with 1. Resume it with the settings it has (its config.toml), or start again with --force");
    let path = workspace.path("runs/tiny/chain-0/snapshot-000019.safetensors");
    assert_eq!(fs::read(&path).unwrap(), before);

    workspace.write("runs/tiny/notes.txt", "mine");
    workspace.succeeds(&[&other[..], &["--force"]].concat());
    assert_ne!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read(workspace.path("runs/tiny/notes.txt")).unwrap(), b"mine");
}

#[test]
fn other_settings_are_refused_before_the_data_is_read() {
    let workspace = Workspace::new();
    let rows: Vec<String> = (0..80).map(|row| format!("{row},{}", row * row % 7)).collect();
    workspace.write("table.csv", &format!("x,y\n{}\n", rows.join("\n")));
    let train = ["train", "tiny.toml", "--quiet", "--set", "data.path=table.csv"];
    let table = ["data.kind=table", "data.target=y", "method.kind=em-mcmc"];
    let table: Vec<&str> = table.iter().flat_map(|set| ["--set", set]).collect();
    let with = |more: &[&'static str]| [&train[..], &table, more].concat();
    workspace.succeeds(&with(&[]));
    fs::remove_file(workspace.path("table.csv")).unwrap();
    let other = ["--resume", "--set", "train.epochs=30", "--set", "model.hidden=[4]"];
    let message = workspace.fails(2, &with(&other));
    assert!(
        message.starts_with("error: `model.hidden`: is [4], but the run in runs/tiny was "),
        "{message}"
    );
    assert!(message.contains("; `train.epochs` is 30, but was 20. "), "{message}");
    // With its own settings the run misses its data.
    assert!(workspace.fails(1, &with(&["--resume"])).contains("table.csv"));
}

#[test]
fn an_unfinished_run_says_what_to_type() {
    let workspace = Workspace::trained();
    workspace.succeeds(&["train", "tiny.toml", "--quiet", "--out", "my runs/one"]);
    let chain = workspace.path("my runs/one/chain-0");
    // As if the run had been killed after its checkpoint at step 15.
    fs::rename(chain.join("checkpoint.previous"), chain.join("checkpoint")).unwrap();
    for command in ["eval", "report"] {
        let outcome = workspace.succeeds(&[command, "my runs/one"]);
        let notice = outcome.stderr.lines().next().unwrap();
        let told = "go on with `thinfer train 'my runs/one/config.toml' --resume`";
        assert!(
            notice.contains("0 of 1 chains have reached epoch 20") && notice.contains(told),
            "{notice}"
        );
    }
    workspace.succeeds(&["train", "my runs/one/config.toml", "--resume"]);
    assert_same(&workspace.path("runs/tiny"), &workspace.path("my runs/one"), "went on");
    assert!(!workspace.succeeds(&["eval", "my runs/one"]).stderr.contains("not finished"));
}

#[test]
fn a_finished_run_can_be_resumed_to_itself() {
    let workspace = Workspace::trained();
    workspace.succeeds(&["train", "tiny.toml", "--out", "other"]);
    workspace.succeeds(&["train", "tiny.toml", "--resume"]);
    assert_same(&workspace.path("runs/tiny"), &workspace.path("other"), "resumed when done");
    // The settings that a run keeps in its folder are those of that run.
    workspace.succeeds(&["train", "other/config.toml", "--resume"]);
    assert!(!workspace.path("runs/config").exists());
}

#[test]
fn chains_and_settings_come_from_the_command_line() {
    let workspace = Workspace::new();
    let set = ["--set", "chains=3", "--set", "seed=9", "--set", "model.hidden=[4]"];
    workspace.succeeds(&[&["train", "tiny.toml", "--out", "three"][..], &set].concat());
    let folders = names(&workspace.path("three"));
    assert_eq!(&folders[..3], ["chain-0", "chain-1", "chain-2"]);
    let config = fs::read_to_string(workspace.path("three/config.toml")).unwrap();
    assert!(config.contains("seed = 9\n") && config.contains("hidden = [4]"), "{config}");
}

#[test]
fn a_loss_that_is_not_finite_names_the_step() {
    let workspace = Workspace::new();
    let set = ["--set", "schedule.step_size.value=1e6", "--set", "train.epochs=200"];
    let message = workspace.fails(1, &[&["train", "tiny.toml"][..], &set].concat());
    assert!(message.contains("is not finite at step "), "{message}");
    assert!(message.contains("Lower `schedule.step_size"), "{message}");
}

#[test]
fn the_shipped_configurations_are_valid() {
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let workspace = Workspace::new();
    for example in ["example1", "example2", "example3"] {
        let config = format!("{configs}/{example}.toml");
        let small = ["data.columns=6", "data.train_rows=50", "train.epochs=6"];
        let mut arguments = vec!["train", &config, "--out", example];
        arguments.extend(small.iter().flat_map(|set| ["--set", set]));
        let result = workspace.json(&arguments);
        let classes = example == "example3";
        assert_eq!(result["posterior"]["accuracy"].is_f64(), classes);
        assert_eq!(result["posterior"]["mse"].is_f64(), !classes);
    }
}
