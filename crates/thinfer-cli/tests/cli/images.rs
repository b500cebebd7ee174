//! A run on images: `train`, `eval`, `predict`, `report` and `reproduce`.

use std::fs;

use serde_json::Value;

use crate::workspace::Workspace;

/// Small enough that what it learns does not matter.
const SHAPES: &str = r#"
[data]
kind = "shapes"
train_rows = 64
test_rows = 40
[model]
name = "lenet"
[prune]
warm_up_epochs = 1
[schedule.step_size]
value = 0.05
cycles = 2
[train]
epochs = 4
batch = 32
samples_per_cycle = 1
"#;

fn trained() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("shapes.toml", SHAPES);
    workspace.succeeds(&["train", "shapes.toml", "--quiet"]);
    workspace
}

#[test]
fn a_run_on_images_is_evaluated_reported_and_predicted_with() {
    let workspace = trained();
    let file = fs::read(workspace.path("runs/shapes/evaluation.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file["images"], serde_json::json!([64, 40]));
    assert_eq!(file["snapshots"].as_array().unwrap().len(), 2);
    assert!(file["sizes"][0]["multiply_adds"]["channels"].is_u64());
    let text = workspace.succeeds(&["eval", "runs/shapes"]).stdout;
    for part in ["40 test images", "posterior (", "ECE (mass)", "sparsity", "without dead channels"]
    {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    let page = fs::read_to_string(workspace.path("runs/shapes/report.html")).unwrap();
    assert!(page.contains("<h1>shapes, em-mcmc</h1>") && page.contains("data:image/png;base64,"));
    workspace.succeeds(&["report", "runs/shapes", "--out", "r.html"]);
    assert!(fs::read_to_string(workspace.path("r.html")).unwrap().contains("Live channels"));

    // A figure is a picture, so it can be predicted and be foreign.
    let drawn =
        workspace.json(&["reproduce", "figure2", "--run", "runs/shapes", "--out", "figures"]);
    assert!(fs::read_to_string(workspace.path("figures/figure2.svg")).unwrap().contains("DFP"));
    assert_eq!(drawn["png"], "figures/figure2.png");
    let draw = ["reproduce", "figure2", "--run", "runs/shapes", "--out", "figures"];
    let error = workspace.fails(2, &draw);
    assert!(error.contains("figures/figure2.svg already exists"), "{error}");
    workspace.succeeds(&[&draw[..], &["--force"]].concat());
    workspace.write("figures/broken.png", "not a picture");
    let outcome = workspace.succeeds(&["predict", "runs/shapes", "figures", "--all"]);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].starts_with("file,class,probability,entropy,mutual_information,p_disc,"));
    assert!(lines[1].starts_with("figures/figure2.png,") && lines.len() == 2, "{lines:?}");
    assert!(outcome.stderr.contains("1 picture cannot be read"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("resized to 28x28"), "{}", outcome.stderr);
    let json = workspace.json(&["predict", "runs/shapes", "figures"]);
    assert!(json["pictures"][0]["probability"].as_f64().unwrap() > 0.0);
    assert!(json["unreadable"][0]["problem"].as_str().unwrap().contains("neither JPEG nor PNG"));

    let foreign = workspace.json(&["eval", "runs/shapes", "--ood", "figures", "--ood", "shapes"]);
    assert_eq!(foreign["foreign"][0]["images"], 1);
    assert_eq!(foreign["foreign"][1]["images"], 1000);
    assert!(foreign["foreign"][1]["entropy"]["auroc"].is_f64());
}

#[test]
fn what_does_not_fit_a_run_on_images_is_said() {
    let workspace = trained();
    let error = workspace.fails(2, &["eval", "runs/shapes", "--ood", "nowhere"]);
    assert!(error.contains("neither a folder of pictures nor one of cifar10"), "{error}");
    let error = workspace.fails(1, &["predict", "runs/shapes", "missing.png"]);
    assert!(error.contains("the picture cannot be read: missing.png"), "{error}");
    let error = workspace.fails(1, &["reproduce", "figure1", "--run", "runs/shapes"]);
    assert!(error.contains("no paths of weights"), "{error}");
    let error = workspace.fails(2, &["reproduce", "figure1", "--config", "tiny.toml"]);
    assert!(error.contains("a configuration for images"), "{error}");
}

#[test]
fn a_pruned_run_is_cut_down_and_proved_to_be_the_same() {
    let workspace = Workspace::new();
    workspace.write(
        "shapes.toml",
        &SHAPES.replace("warm_up_epochs = 1", "warm_up_epochs = 0\ntarget = 0.7"),
    );
    workspace.succeeds(&["train", "shapes.toml", "--quiet"]);
    let found = workspace.json(&["shrink", "runs/shapes"]);
    let parameters = |at: usize| found["saving"]["parameters"][at].as_u64().unwrap();
    assert!(4 * parameters(1) < 3 * parameters(0), "{found}");
    assert!(found["proof"]["largest_difference"].as_f64().unwrap() < 1e-9);
    assert_eq!(found["proof"]["test_rows"], 6);
    assert_eq!(found["file"], "runs/shapes/small.safetensors");
    let bytes = fs::metadata(workspace.path("runs/shapes/small.safetensors")).unwrap().len();
    assert_eq!(found["bytes"], bytes);
    let text = workspace.succeeds(&["shrink", "runs/shapes", "--out", "s.safetensors"]).stdout;
    for part in ["masked", "shrunk", "multiply-adds", "the same function"] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    let again = workspace.fails(2, &["shrink", "runs/shapes", "--out", "s.safetensors"]);
    assert!(again.contains("--force"), "{again}");
    let again = workspace.fails(2, &["shrink", "runs/shapes"]);
    assert!(again.contains("small.safetensors already exists"), "{again}");
    workspace.succeeds(&["shrink", "runs/shapes", "--force"]);
    let page = fs::read_to_string(workspace.path("runs/shapes/report.html")).unwrap();
    for part in ["Cut down", "Seconds an epoch", "Accuracy against sparsity"] {
        assert!(page.contains(part), "`{part}` is missing in the report");
    }
}

#[test]
fn unreadable_images_are_counted_wherever_results_are_shown() {
    let workspace = Workspace::new();
    let folder = workspace.path("pictures");
    for at in 0..12u8 {
        let part = ["train", "val"][usize::from(at % 2)];
        let class = ["cat", "dog"][usize::from(at / 6)];
        let path = folder.join(format!("{part}/{class}/{at}.png"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, crate::data::PIXEL).unwrap();
    }
    for name in ["train/dog/a.png", "val/cat/a.png", "val/cat/b.png"] {
        fs::write(folder.join(name), "garbage").unwrap();
    }
    let place = "kind = \"images\"\npath = \"pictures\"\nimage_size = 28";
    let config = SHAPES.replace("kind = \"shapes\"\ntrain_rows = 64\ntest_rows = 40", place);
    workspace.write("own.toml", &config.replace("batch = 32", "batch = 4"));
    let outcome = workspace.succeeds(&["train", "own.toml"]);
    let test = "2 test images cannot be read and are left out: pictures/val/cat/a.png is neither";
    let train = "1 training image cannot be read and is replaced by others of its class: pictures/train/dog/a.png";
    assert!(outcome.stderr.contains(test), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(train), "{}", outcome.stderr);
    let page = fs::read_to_string(workspace.path("runs/own/report.html")).unwrap();
    for text in [&outcome.stdout, &workspace.succeeds(&["eval", "runs/own"]).stdout, &page] {
        assert!(text.contains(test) && text.contains(train), "{text}");
    }
    assert!(outcome.stdout.contains("6 test images"), "{}", outcome.stdout);
    let json = workspace.json(&["eval", "runs/own"]);
    assert_eq!(json["images"], serde_json::json!([7, 6]), "no image is scored twice");
    assert_eq!(json["unreadable"]["test"].as_array().unwrap().len(), 2);
    assert_eq!(json["unreadable"]["train"][0]["name"], "pictures/train/dog/a.png");
}
