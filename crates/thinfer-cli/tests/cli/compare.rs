//! Several runs in one report.

use std::fs;

use crate::workspace::Workspace;

/// Two runs on the same simulated rows.
fn two() -> Workspace {
    let workspace = Workspace::new();
    for (name, method) in [("runs/dfp", "em-mcmc"), ("runs/sgd", "sgd")] {
        let method = format!("method.kind={method}");
        workspace.succeeds(&["train", "tiny.toml", "--quiet", "--out", name, "--set", &method]);
    }
    workspace
}

#[test]
fn runs_are_put_beside_each_other() {
    let workspace = two();
    let outcome = workspace.succeeds(&["compare", "runs/dfp", "runs/sgd"]);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    for part in ["MSE", "selected", "FDR", "pruned", "multiply-adds", "memory"] {
        assert!(lines[0].contains(part), "{}", outcome.stdout);
    }
    assert!(lines[1].starts_with("runs/dfp  em-mcmc, DFP"), "{}", outcome.stdout);
    assert!(lines[2].starts_with("runs/sgd") && lines[2].contains("0.0 %"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("wrote comparison.html"), "{}", outcome.stderr);
    let page = fs::read_to_string(workspace.path("comparison.html")).unwrap();
    assert!(page.contains("MSE against sparsity") && page.contains("Pareto front"));

    let again = workspace.fails(2, &["compare", "runs/dfp", "runs/sgd"]);
    assert!(again.contains("comparison.html already exists"), "{again}");
    let json = workspace.json(&["compare", "runs/dfp", "runs/sgd", "--force"]);
    let evaluation = fs::read_to_string(workspace.path("runs/dfp/evaluation.json")).unwrap();
    let evaluation: serde_json::Value = serde_json::from_str(&evaluation).unwrap();
    assert_eq!(json["runs"][0]["evaluated"]["mse"], evaluation["posterior"]["mse"]);
    assert_eq!(json["report"], "comparison.html");
    assert!(!json["front"].as_array().unwrap().is_empty());
}

#[test]
fn what_cannot_be_compared_is_said_and_what_is_not_finished_is_shown() {
    let workspace = two();
    let seed = ["--set", "seed=2", "--out", "runs/other", "--quiet"];
    workspace.succeeds(&[&["train", "tiny.toml"], &seed[..]].concat());
    let error = workspace.fails(1, &["compare", "runs/dfp", "runs/other"]);
    assert!(error.contains("runs/other: ") && error.contains("data.seed=1"), "{error}");
    assert!(!workspace.path("comparison.html").exists());
    let error = workspace.fails(2, &["compare", "runs/dfp"]);
    assert!(error.contains("2 values required"), "{error}");

    fs::remove_file(workspace.path("runs/sgd/evaluation.json")).unwrap();
    fs::remove_file(workspace.path("runs/sgd/chain-0/snapshot-000019.safetensors")).unwrap();
    let text = workspace.succeeds(&["compare", "runs/dfp", "runs/sgd"]).stdout;
    assert!(text.contains("unfinished, 20 of 20 epochs"), "{text}");
    // What `reproduce` writes beside its folders is passed over, other files are not.
    workspace.write("runs/sgd.json", "{}");
    let all = ["compare", "runs/dfp", "runs/sgd", "runs/sgd.json", "--force"];
    assert_eq!(workspace.json(&all)["runs"].as_array().unwrap().len(), 2);
    let error = workspace.fails(1, &["compare", "runs/dfp", "tiny.toml", "--force"]);
    assert!(error.contains("tiny.toml: is not a run folder"), "{error}");
}
