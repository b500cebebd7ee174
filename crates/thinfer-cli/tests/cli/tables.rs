//! Tables 1 to 3 from the outside, with a network and images small enough for a test.

use std::fs;

use crate::workspace::{Outcome, Workspace, names};

const SMALL: [&str; 18] = [
    "--set",
    "data.kind=shapes",
    "--set",
    "data.train_rows=64",
    "--set",
    "data.test_rows=20",
    "--set",
    "model.name=lenet",
    "--set",
    "train.epochs=6",
    "--set",
    "train.batch=32",
    "--set",
    "schedule.step_size.value=0.01",
    "--set",
    "schedule.step_size.at_epochs=[2, 4]",
    "--set",
    "prune.warm_up_epochs=1",
];

fn table1(more: &[&'static str]) -> Vec<&'static str> {
    [&["reproduce", "table1", "--out", "out", "--seeds", "2"][..], &SMALL, more].concat()
}

#[test]
fn a_plan_runs_nothing_and_a_table_shows_what_is_missing() {
    let workspace = Workspace::new();
    let rows = ["--rows", "resnet18-sgd,resnet18-dfp-80,wrn-28-10-rank1"];
    let plan = workspace.succeeds(&table1(&[&rows[..], &["--plan"]].concat())).stdout;
    assert!(plan.contains("an estimate, from multiply-adds"), "{plan}");
    assert!(plan.contains("nothing was run") && !workspace.path("out").exists(), "{plan}");

    let outcome = workspace.succeeds(&table1(&["--rows", "resnet18-sgd"]));
    assert!(outcome.stderr.contains("run 2: resnet18-sgd, seed 2: "), "{}", outcome.stderr);
    let text = workspace.succeeds(&table1(&[&rows[..], &["--collect"]].concat())).stdout;
    let line = |row: &str| text.lines().find(|line| line.starts_with(row)).unwrap_or_default();
    assert!(
        line("resnet18-sgd").contains("95.0 %") && line("resnet18-sgd").contains("2/2"),
        "{text}"
    );
    assert!(line("resnet18-dfp-80").contains("94.5 %  missing"), "{text}");
    assert!(line("wrn-28-10-rank1").contains("96.5 %  missing"), "{text}");
    let plan = workspace.json(&table1(&["--rows", "resnet18-sgd,resnet18-sm-90", "--plan"]));
    let lines = plan["lines"].as_array().unwrap();
    let state: Vec<(u64, &str)> = lines
        .iter()
        .map(|line| (line["done"].as_u64().unwrap(), line["source"].as_str().unwrap()))
        .collect();
    assert_eq!(state, [(2, "row"), (0, "network")]);
}

#[test]
fn short_runs_say_so_and_can_leave_little_behind() {
    let workspace = Workspace::new();
    let short = ["--rows", "resnet18-sgd", "--budget-epochs", "3", "--jobs", "1"];
    let text = workspace.succeeds(&table1(&[&short[..], &["--discard-samples"]].concat())).stdout;
    assert!(text.starts_with("Short runs: ") && text.contains("not the paper's table"), "{text}");
    let whole = workspace.json(&table1(&["--rows", "resnet18-sgd", "--collect"]));
    assert_eq!((&whole["rows"][0]["runs"], &whole["budget_epochs"]), (&0.into(), &().into()));
    let table = fs::read_to_string(workspace.path("out/table1-3-epochs.json")).unwrap();
    let table: serde_json::Value = serde_json::from_str(&table).unwrap();
    assert_eq!(
        (&table["runs"][1]["short"], &table["runs"][1]["epochs"]),
        (&true.into(), &3.into())
    );
    let runs = names(&workspace.path("out/runs"));
    let run = runs.iter().find(|name| !name.contains(".json")).unwrap();
    assert_eq!(names(&workspace.path("out/runs").join(run).join("chain-0")), ["times.csv"]);
}

#[test]
fn a_run_that_diverges_ends_the_command_with_its_reason() {
    let workspace = Workspace::new();
    let diverges = ["--rows", "resnet18-sgd", "--set", "schedule.step_size.value=100000", "-q"];
    let Outcome { code, stdout, stderr: error } = workspace.run(&table1(&diverges));
    assert_eq!(code, Some(1), "{error}");
    assert!(stdout.contains("missing"), "{stdout}");
    assert!(error.contains("2 of 2 runs failed"), "{error}");
    assert!(error.contains("resnet18-sgd, seed 2: ") && error.contains("not finite"), "{error}");
    assert!(workspace.path("out/table1.json").is_file());
}

#[test]
fn mistakes_are_named() {
    let workspace = Workspace::new();
    let error = workspace.fails(2, &["reproduce", "table2", "--rows", "resnet18"]);
    assert!(
        error.contains("`resnet18` is no row of table2") && error.contains("resnet34"),
        "{error}"
    );
    let error = workspace.fails(2, &["reproduce", "table1", "--seeds", "3..1"]);
    assert!(error.contains("4..6"), "{error}");
    let error = workspace.fails(2, &table1(&["--rows", "cv-adam", "--budget-epochs", "4"]));
    assert!(error.contains("--budget-epochs") && error.contains("at least 5"), "{error}");
    for more in [&["--plan"][..], &[]] {
        let error = workspace.fails(2, &table1(&[&["--set", "seed=5"][..], more].concat()));
        assert!(error.contains("`seed`: ") && error.contains("--seeds"), "{error}");
        let layer = ["--rows", "resnet18-sm-80", "--set", "prune.dense_layers=[\"nope\"]"];
        let error = workspace.fails(2, &table1(&[&layer[..], more].concat()));
        assert!(error.contains("nope"), "{error}");
    }
    assert!(!workspace.path("out").exists());
    let error = workspace.fails(1, &["reproduce", "table1", "--rows", "sgd", "--seeds", "1"]);
    assert!(error.contains("thinfer data get cifar10"), "{error}");
}
