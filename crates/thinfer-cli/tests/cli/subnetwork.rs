//! `subnetwork`: samples that share most of their weights.

use std::fs;

use insta::assert_snapshot;

use crate::workspace::Workspace;

/// Three samples of each of two cycles; the mask stays after the first.
fn trained(config: &str, settings: &[&str]) -> Workspace {
    let workspace = Workspace::new();
    let mut arguments = vec!["train", "tiny.toml", "--quiet", "--out", "run"];
    arguments.extend([
        "--set",
        "prune.freeze_after_cycles=1",
        "--set",
        "train.samples_per_cycle=3",
        "--set",
        "posterior.thin=1",
        "--set",
        "posterior.burn_in=0.0",
    ]);
    if !config.is_empty() {
        workspace.write("tiny.toml", config);
    }
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    workspace.succeeds(&arguments);
    workspace
}

#[test]
fn shares_are_measured_and_one_is_written() {
    let workspace = trained("", &[]);
    let command = ["subnetwork", "run", "--shares", "0,0.5,1", "--out", "s.safetensors"];
    let found = workspace.json(&[&command[..], &["--share", "0.5"]].concat());
    assert!(found["samples"].as_u64().unwrap() >= 3, "{found}");
    let shares = found["shares"].as_array().unwrap();
    assert_eq!(shares[2]["scores"], found["full"]["scores"]);
    assert_ne!(shares[1]["scores"], found["full"]["scores"]);
    assert_eq!(shares[0]["differing"], 0);
    let bytes: Vec<u64> = shares.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert!(bytes[0] < bytes[1] && bytes[1] < bytes[2], "{bytes:?}");
    assert_eq!(found["out"]["bytes"], bytes[1]);
    assert_eq!(fs::metadata(workspace.path("s.safetensors")).unwrap().len(), bytes[1]);
    // Nothing but the order of sums tells the smaller network from the whole one.
    let posterior = workspace.json(&["eval", "run"])["posterior"]["mse"].as_f64().unwrap();
    let full = found["full"]["scores"]["mse"].as_f64().unwrap();
    assert!((full / posterior - 1.0).abs() < 1e-4, "{full} {posterior}");

    let text = workspace.succeeds(&["subnetwork", "run", "--shares", "0.5"]).stdout;
    for part in ["full (", "share 0.5", "last sample alone", "90 % coverage", "not the same in all"]
    {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    assert_snapshot!(workspace.fails(2, &command), @"error: `--out`: s.safetensors already exists; choose another place, or replace it with --force");
    assert_snapshot!(workspace.fails(2, &["subnetwork", "run", "--shares", "0.1,2"]), @"error: `--shares`: is 2; a share lies between 0 and 1, such as 0.1");
    let error = workspace.fails(2, &["subnetwork", "run", "--share", "0.2"]);
    assert!(error.contains("--out <FILE>"), "{error}");
    assert_snapshot!(workspace.fails(2, &["subnetwork", "run", "--chain", "7"]), @"error: `--chain`: is 7, but the chains with samples are 0");
}

#[test]
fn images_and_several_chains_have_their_words() {
    let config = "data = { kind = \"shapes\", train_rows = 64, test_rows = 40 }\nmodel.name = \"lenet\"\n\
                  prune.warm_up_epochs = 1\nschedule.step_size = { value = 0.05, cycles = 2 }\n\
                  train = { epochs = 8, batch = 32 }\n";
    let workspace = trained(config, &["chains=2"]);
    let outcome = workspace.succeeds(&["subnetwork", "run"]);
    assert!(outcome.stderr.contains("chain 0, the first of 2"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("ECE") && outcome.stdout.contains("share 0.03"));
    let other = workspace.json(&["subnetwork", "run", "--chain", "1", "--shares", "0"]);
    assert_eq!(other["chain"], 1);
    assert!(other["full"]["scores"]["accuracy"].is_f64(), "{other}");
    assert_eq!(other["shares"][0]["scores"]["members"], other["samples"]);
}
