//! `diagnose`, folds of `eval`, and the chains of `export`.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::workspace::{TINY, Workspace, names};

/// Two chains of the plain sampler whose noise is known, on eight inputs.
const SAMPLED: [&str; 8] = [
    "--set",
    "method.kind=sghmc",
    "--set",
    "chains=2",
    "--set",
    "train.samples_per_cycle=10",
    "--set",
    "posterior.thin=1",
];

#[test]
fn a_diagnosis_begins_with_a_sentence_that_evaluation_and_report_share() {
    let workspace = Workspace::new();
    workspace.succeeds(&[&["train", "tiny.toml", "--quiet"][..], &SAMPLED].concat());
    let text = workspace.succeeds(&["diagnose", "runs/tiny"]).stdout;
    let first = text.lines().next().unwrap();
    let file = fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file["verdict"]["sentence"], first);
    assert_eq!(file["pit"]["bins"].as_array().unwrap().len(), 10);
    let report = fs::read_to_string(workspace.path("runs/tiny/report.html")).unwrap();
    // Up to the first word that is code there.
    let plain = first.split('`').next().unwrap();
    assert!(report.contains(plain), "{plain}");
    assert!(report.contains("Where the truth lies (PIT)") && report.contains("Central interval"));
    for part in ["R-hat", "chain 1", "cycle 2", "temperature: ", "clipped: ", "PIT in ten bins: "] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    let json = workspace.json(&["diagnose", "runs/tiny"]);
    assert_eq!(json["verdict"], file["verdict"]);
    let traces = json["traces"].as_array().unwrap();
    assert_eq!((traces.len(), traces[0]["epochs"].as_array().unwrap().len()), (2, 20));
    assert_eq!(traces[1]["compared"][0], false);
    assert_eq!(json["drift"][1]["cycle"], 2);
}

/// The text with every number as `#`, every course as `▄` and single blanks: machines may differ in
/// the last digits.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        let c = match c {
            c if c.is_ascii_digit() => '#',
            '▁'..='█' => '▄',
            c => c,
        };
        if !(['#', '▄', ' '].contains(&c) && shape.ends_with(c)) {
            shape.push(c);
        }
    }
    shape
}

#[test]
fn the_text_of_a_diagnosis() {
    let workspace = Workspace::trained();
    let text = workspace.succeeds(&["diagnose", "runs/tiny"]).stdout;
    assert_snapshot!(shape(&text), @r#"
    Nobody can tell yet whether to believe this run: # samples are too few to compare, as R-hat needs # of each chain; raise `train.epochs` with `schedule.step_size.cycles`, or `chains`.
     also: its posterior is a single sample; take more samples a cycle, or more chains
     also: its # % intervals hold #.# % of the test rows, so they are too narrow; let it learn the noise (`model.noise = "learned"`), or train longer

    # chain of # samples R-hat ESS, bulk ESS, tails
     predictions, worst # % - - -
     log-likelihood - - -

    log-likelihood of the test rows, from -#.# to -#.#, one block a sample or several
     chain # ▄|▄
     before |: burn-in and earlier masks, which are not compared

    means of epochs samples training loss log-likelihood
     cycle #, not compared #-# # #.# -#.#
     cycle # #-# # #.# -#.#

    temperature: #.# times that of the posterior (#.# asked for), all of it injected
    clipped: #.# % of the steps that made samples

    intervals of # % # % # % # %
     hold of # test rows #.# % #.# % #.# % #.# %

    PIT in ten bins: ▄ (# # # # # # # # # #), about # each where predictions are calibrated
     largest distance from uniform #.#, p #.#e-#
    "#);
}

#[test]
fn classes_have_a_calibration_error() {
    let workspace = Workspace::new();
    let classes = ["--set", "data.kind=example3"];
    workspace.succeeds(&[&["train", "tiny.toml", "--quiet"][..], &classes].concat());
    let text = workspace.succeeds(&["diagnose", "runs/tiny"]).stdout;
    assert!(text.contains("calibration error: ") && !text.contains("PIT"), "{text}");
    let json = workspace.json(&["diagnose", "runs/tiny"]);
    assert_eq!(json["pit"], Value::Null);
    assert_eq!(json["calibration"]["bins"].as_array().unwrap().len(), 15);
}

fn houses(workspace: &Workspace) {
    let row = |row: usize| format!("{},{},{}\n", row % 7, row * 5 % 11, 3 * (row % 7) + row % 3);
    let rows: String = (0..50).map(row).collect();
    workspace.write("houses.csv", &("rooms,age,price\n".to_owned() + &rows));
    let data = "kind = \"table\"\npath = \"houses.csv\"\ntarget = \"price\"";
    let columns = "kind = \"example1\"\ncolumns = 8\ntrain_rows = 200";
    let text = TINY.replace(columns, data);
    assert_ne!(text, TINY);
    workspace.write("houses.toml", &(text + "[method]\nkind = \"em-mcmc\"\n"));
}

#[test]
fn folds_are_trained_once_and_told_in_a_table() {
    let workspace = Workspace::new();
    houses(&workspace);
    workspace.succeeds(&["train", "houses.toml", "--quiet"]);
    let first = workspace.succeeds(&["eval", "runs/houses", "--folds", "3"]);
    assert!(first.stderr.contains("fold 2 of 3\n"), "{}", first.stderr);
    let lines: Vec<&str> = first.stdout.lines().collect();
    assert!(lines[0].starts_with("3 folds") && lines[0].contains("90 % coverage"), "{lines:?}");
    assert!(lines[1].starts_with("  fold 1") && lines[4].starts_with("mean ± sd"), "{lines:?}");
    let folder = workspace.path("runs/houses/folds-3");
    assert_eq!(names(&folder), ["fold-1", "fold-2", "fold-3", "folds.json"]);
    let again = workspace.succeeds(&["eval", "runs/houses", "--folds", "3"]);
    assert!(again.stderr.contains("fold 2 of 3 is done already"), "{}", again.stderr);
    assert_eq!(again.stdout, first.stdout);
    let json = workspace.json(&["eval", "runs/houses", "--folds", "3", "--out", "f.json"]);
    let folds = json["folds"].as_array().unwrap();
    let rows: u64 = folds.iter().map(|fold| fold["test_rows"].as_u64().unwrap()).sum();
    assert_eq!(rows, 50);
    let mse: Vec<f64> = (1..=3)
        .map(|fold| {
            let path = folder.join(format!("fold-{fold}/evaluation.json"));
            let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            file["posterior"]["mse"].as_f64().unwrap()
        })
        .collect();
    let mean = mse.iter().sum::<f64>() / 3.0;
    assert!((json["summary"]["mse"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12 * mean);
    let file: Value = serde_json::from_slice(&fs::read(workspace.path("f.json")).unwrap()).unwrap();
    assert_eq!(file["summary"], json["summary"]);
    let refused = workspace.fails(2, &["eval", "runs/houses", "--folds", "3", "--out", "f.json"]);
    assert!(refused.contains("f.json already exists"), "{refused}");
    let few = workspace.fails(2, &["eval", "runs/houses", "--folds", "1"]);
    assert!(few.contains("1 is not in 2..=1000"), "{few}");
    let simulated = Workspace::trained();
    let refused = simulated.fails(2, &["eval", "runs/tiny", "--folds", "3"]);
    assert!(refused.contains("`--folds`: divides the rows of a table"), "{refused}");
}

#[test]
fn chains_for_arviz_are_a_folder_that_is_not_replaced_unasked() {
    let workspace = Workspace::new();
    workspace.succeeds(&[&["train", "tiny.toml", "--quiet"][..], &SAMPLED].concat());
    let arviz = ["export", "runs/tiny", "--format", "arviz"];
    let json = workspace.json(&arviz);
    assert_eq!(json["file"], "runs/tiny/posterior.zarr");
    assert_eq!((&json["chains"], &json["draws"]), (&json!(2), &json!(10)));
    let store = workspace.path("runs/tiny/posterior.zarr");
    let groups = [
        ".zattrs",
        ".zgroup",
        ".zmetadata",
        "log_likelihood",
        "observed_data",
        "posterior",
        "posterior_predictive",
        "sample_stats",
    ];
    assert_eq!(names(&store), groups);
    let refused = workspace.fails(2, &arviz);
    assert!(refused.contains("posterior.zarr already exists; choose another place"), "{refused}");
    let all = [&arviz[..], &["--force", "--with-burn-in"]].concat();
    let outcome = workspace.succeeds(&all);
    assert!(
        outcome.stderr.contains("2 chains of 10 samples and 10 of burn-in"),
        "{outcome:?}",
        outcome = outcome.stderr
    );
    assert!(store.join("warmup_posterior").is_dir());
    for wrong in [&["--dense"][..], &["--fold-norms"], &["--sample", "last"]] {
        let refused = workspace.fails(2, &[&arviz[..], wrong].concat());
        assert!(refused.contains("is for networks, and --format arviz"), "{refused}");
    }
    let refused = workspace.fails(2, &["export", "runs/tiny", "--with-burn-in"]);
    assert!(refused.contains("`--with-burn-in`: is for --format arviz"), "{refused}");
    // A run that takes the place of this one takes its chains away.
    workspace.succeeds(&["train", "tiny.toml", "--force", "--quiet"]);
    assert!(!store.exists());
}
