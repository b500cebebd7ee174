//! `eval`, `predict`, `report` and `export` on a finished run.

use std::collections::BTreeMap;
use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};
use thinfer::data::table::{OutColumn, Table, Values, write_columns};

use crate::workspace::{Workspace, names};

const INPUT: &str = "\
x1,x2,x3,x4,x5,x6,x7,x8,y
0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,1.0
1,,1,1,1,1,1,1,2.0
-1,0,1,0,-1,0,1,0,
";

#[test]
fn an_evaluation_is_that_of_the_training() {
    let workspace = Workspace::trained();
    let file = fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let printed = workspace.json(&["eval", "runs/tiny", "--out", "e.json"]);
    for (name, value) in file.as_object().unwrap().iter().filter(|(name, _)| *name != "checksum") {
        assert_eq!(&printed[name], value, "{name}");
    }
    assert_eq!(fs::read(workspace.path("e.json")).unwrap(), {
        fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap()
    });
    assert_snapshot!(workspace.fails(2, &["eval", "runs/tiny", "--out", "e.json"]), @"error: `--out`: e.json already exists; choose another place, or replace it with --force");
    let text = workspace.succeeds(&["eval", "runs/tiny"]).stdout;
    assert!(text.contains("posterior (") && !text.contains("time: "), "{text}");
}

#[test]
fn predictions_keep_the_rows_of_the_table() {
    let workspace = Workspace::trained();
    workspace.write("new.csv", INPUT);
    let outcome = workspace.succeeds(&["predict", "runs/tiny", "new.csv"]);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], "row,mean,sd,lower90,upper90");
    assert_eq!(lines[2], "2,,,,");
    assert!(lines[1].starts_with("1,") && lines[3].starts_with("3,"), "{lines:?}");
    assert_eq!(lines.len(), 4);
    assert_snapshot!(outcome.stderr, @"notice: 1 of 3 rows have missing values and get no prediction: row 2 `x2`; fill them in to have one");

    let result = workspace.json(&["predict", "runs/tiny", "new.csv"]);
    assert_eq!(result["row"], json!([1, 2, 3]));
    assert_eq!(result["mean"][1], Value::Null);
    assert_eq!((&result["missing_rows"], &result["scored_rows"]), (&json!(1), &json!(1)));
    let (mean, mse) = (result["mean"][0].as_f64().unwrap(), result["score"]["mse"].as_f64());
    assert!((mse.unwrap() - (mean - 1.0).powi(2)).abs() < 1e-6, "{result}");
    let cells: Vec<f64> = lines[1].split(',').map(|cell| cell.parse().unwrap()).collect();
    assert_eq!(cells[1], mean);
    assert!(cells[3] < cells[1] && cells[1] < cells[4] && cells[2] > 0.0, "{cells:?}");

    // Without the target nothing else changes.
    let without: Vec<&str> =
        INPUT.lines().filter_map(|line| line.rsplit_once(',')).map(|(inputs, _)| inputs).collect();
    workspace.write("without.csv", &without.join("\n"));
    let same = workspace.succeeds(&["predict", "runs/tiny", "without.csv", "--quiet"]);
    assert_eq!((same.stdout, same.stderr.as_str()), (outcome.stdout, ""));
    let result = workspace.json(&["predict", "runs/tiny", "without.csv"]);
    assert_eq!(result["score"], Value::Null);
}

#[test]
fn predictions_can_be_read_from_and_written_to_every_format() {
    let workspace = Workspace::trained();
    workspace.write("new.csv", INPUT);
    workspace.write("new.tsv", &INPUT.replace(',', "\t"));
    let columns: Vec<(String, OutColumn)> = Table::read(&workspace.path("new.csv"))
        .unwrap()
        .columns
        .into_iter()
        .map(|column| match column.values {
            Values::Number(values) => (column.name, OutColumn::Number(values)),
            Values::Text(_) => panic!("numbers only"),
        })
        .collect();
    write_columns(&workspace.path("new.parquet"), &columns, false).unwrap();
    let printed = workspace.succeeds(&["predict", "runs/tiny", "new.csv"]).stdout;
    for input in ["new.csv", "new.tsv", "new.parquet"] {
        assert_eq!(workspace.succeeds(&["predict", "runs/tiny", input]).stdout, printed, "{input}");
    }
    let outcome =
        workspace.succeeds(&["predict", "runs/tiny", "new.csv", "--out", "p.csv", "--quiet"]);
    assert_eq!(outcome.stdout, "");
    assert_eq!(fs::read_to_string(workspace.path("p.csv")).unwrap(), printed);
    assert_snapshot!(
        workspace.fails(2, &["predict", "runs/tiny", "new.csv", "--out", "p.csv"]),
        @"error: `--out`: p.csv already exists; choose another place, or replace it with --force"
    );
    let result = workspace.json(&["predict", "runs/tiny", "new.csv", "--out", "p.csv", "--force"]);
    assert_eq!((&result["out"], result.get("mean")), (&json!("p.csv"), None));
    workspace.succeeds(&["predict", "runs/tiny", "new.csv", "--out", "p.parquet"]);
    let [csv, parquet] = ["p.csv", "p.parquet"].map(|p| Table::read(&workspace.path(p)).unwrap());
    for (one, other) in csv.columns.iter().zip(&parquet.columns) {
        assert_eq!(one.name, other.name);
        assert_eq!(format!("{:?}", one.values), format!("{:?}", other.values));
    }
    let message = workspace.fails(1, &["predict", "runs/tiny", "new.csv", "--out", "p.json"]);
    assert!(message.contains("`.json` files are not supported; use .csv"), "{message}");
}

#[test]
fn a_table_of_classes_can_be_learned_and_predicted() {
    let workspace = Workspace::new();
    let row = |row: usize| {
        let colour = ["red", "green", "blue"][row % 3];
        let kind = ["ant", "bee", "cat"][row / 7 % 3];
        format!("{}.5,{colour},{kind}", row * 7 % 11)
    };
    let rows: Vec<String> = (0..60).map(row).collect();
    workspace.write("animals.csv", &format!("size,colour,kind\n{}", rows.join("\n")));
    workspace.write(
        "animals.toml",
        "data = { kind = \"table\", path = \"animals.csv\", target = \"kind\" }\n\
         method.kind = \"em-mcmc\"\ntrain.epochs = 12\nschedule.step_size.cycles = 2\n",
    );
    workspace.succeeds(&["train", "animals.toml"]);
    workspace.write("new.csv", "colour,size\nred,3.5\n,4\nblack,9\n");
    let result = workspace.json(&["predict", "runs/animals", "new.csv"]);
    assert_eq!(result["task"], "classification");
    let share = |class: &str, row: usize| result[format!("p_{class}")][row].as_f64();
    for row in [0, 1, 2] {
        let sum: f64 = ["ant", "bee", "cat"].iter().filter_map(|class| share(class, row)).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{result}");
        assert!(["ant", "bee", "cat"].contains(&result["predicted"][row].as_str().unwrap()));
    }
    // The second row has a gap, which is filled in.
    assert_eq!((&result["missing_rows"], &result["filled_rows"]), (&json!(0), &json!(1)));
    let csv = workspace.succeeds(&["predict", "runs/animals", "new.csv", "--quiet"]).stdout;
    assert!(csv.starts_with("row,p_ant,p_bee,p_cat,predicted\n1,"), "{csv}");
    assert!(!csv.contains(",,"), "{csv}");
    // The training data may go; new rows can still be predicted, but not the old ones scored.
    fs::remove_file(workspace.path("animals.csv")).unwrap();
    assert_eq!(workspace.succeeds(&["predict", "runs/animals", "new.csv", "--quiet"]).stdout, csv);
    assert!(workspace.fails(1, &["eval", "runs/animals"]).contains("could not read animals.csv"));
}

#[test]
fn a_report_is_rewritten_in_its_run_and_nowhere_else() {
    let workspace = Workspace::trained();
    let printed = workspace.succeeds(&["report", "runs/tiny"]).stdout;
    assert_eq!(printed, "runs/tiny/report.html\n");
    let page = fs::read_to_string(workspace.path("runs/tiny/report.html")).unwrap();
    assert!(page.to_lowercase().starts_with("<!doctype html>"), "{}", &page[..40.min(page.len())]);
    workspace.write("mine.html", "mine");
    let refused = workspace.fails(2, &["report", "runs/tiny", "--out", "mine.html"]);
    assert!(refused.contains("mine.html already exists; choose another place"), "{refused}");
    assert_eq!(fs::read(workspace.path("mine.html")).unwrap(), b"mine");
    let result = workspace.json(&["report", "runs/tiny", "--out", "mine.html", "--force"]);
    assert_eq!(result["report"], "mine.html");
    assert_eq!(fs::read_to_string(workspace.path("mine.html")).unwrap(), page);
}

#[test]
fn an_export_at_full_size_holds_the_samples_bit_by_bit() {
    let workspace = Workspace::new();
    workspace.succeeds(&["train", "tiny.toml", "--quiet", "--set", "posterior.thin=1"]);
    let result = workspace.json(&["export", "runs/tiny", "--dense"]);
    assert_eq!(result["file"], "runs/tiny/posterior.safetensors");
    assert_eq!(result["files"][1], "runs/tiny/posterior.architecture.json");
    assert_eq!(result["difference"], 0.0);
    assert_eq!(result["parameters"], result["parameters_before"]);
    let exported = tensors(&fs::read(workspace.path("runs/tiny/posterior.safetensors")).unwrap());
    let about: Value = serde_json::from_str(exported.1["thinfer"].as_str().unwrap()).unwrap();
    let beside = fs::read(workspace.path("runs/tiny/posterior.architecture.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&beside).unwrap(), about);
    let samples = about["samples"].as_array().unwrap();
    assert_eq!(result["samples"], samples.len());
    assert!(!samples.is_empty());
    for (at, sample) in samples.iter().enumerate() {
        let epoch = sample["epoch"].as_u64().unwrap();
        let path = workspace.path(&format!("runs/tiny/chain-0/snapshot-{epoch:06}.safetensors"));
        for (name, bytes) in tensors(&fs::read(path).unwrap()).0 {
            assert_eq!(exported.0[&format!("sample{at:03}.{name}")], bytes, "{name}");
        }
    }
    assert_eq!(about["input"]["columns"].as_array().unwrap().len(), 8);
    assert_eq!(about["output"]["name"], "y");
    assert!(about["config"].as_str().unwrap().contains("epochs = 20"));
    for file in ["mine.safetensors", "other.architecture.json"] {
        workspace.write(file, "mine");
        let out = file.replace("architecture.json", "safetensors");
        let refused = workspace.fails(2, &["export", "runs/tiny", "--out", &out]);
        assert!(refused.contains(&format!("{file} already exists")), "{refused}");
        assert_eq!(fs::read(workspace.path(file)).unwrap(), b"mine");
    }
    workspace.succeeds(&["export", "runs/tiny", "--out", "mine.safetensors", "--force"]);
    let refused = workspace.fails(2, &["export", "runs/tiny"]);
    assert!(refused.contains("posterior.safetensors already exists"), "{refused}");
    workspace.succeeds(&["export", "runs/tiny", "--force"]);
}

#[test]
fn sizes_of_several_chains_say_whose_they_are() {
    let workspace = Workspace::new();
    let two = ["train", "tiny.toml", "--set", "chains=2"];
    let text = workspace.succeeds(&two).stdout;
    assert!(text.contains("size, mean of 2 chains: "), "{text}");
    let text = workspace.succeeds(&["shrink", "runs/tiny"]).stdout;
    assert!(text.starts_with("last sample, chain 1"), "{text}");
    let text = workspace.succeeds(&["export", "runs/tiny"]).stderr;
    assert!(text.contains(" parameters on average, "), "{text}");
}

#[test]
fn exports_say_what_they_hold_and_belong_to_the_run() {
    let workspace = Workspace::trained();
    let outcome = workspace.succeeds(&["export", "runs/tiny", "--format", "onnx"]);
    assert_eq!(outcome.stdout, "runs/tiny/posterior.onnx\n");
    assert!(outcome.stderr.contains("; read back, its answers are"), "{}", outcome.stderr);
    let result = workspace.json(&["export", "runs/tiny", "--format", "onnx", "--sample", "last"]);
    assert_eq!(result["samples"], 1);
    assert!(result["difference"].as_f64().unwrap() < 2e-5, "{result}");
    let one = result["file"].as_str().unwrap().to_owned();
    assert!(one.starts_with("runs/tiny/sample00") && one.contains(".onnx"), "{one}");
    let number = one.trim_start_matches("runs/tiny/sample").trim_end_matches(".onnx");
    let again = workspace.json(&["export", "runs/tiny", "--sample", number]);
    assert_eq!(again["file"], one.replace("onnx", "safetensors"));
    let refused = workspace.fails(2, &["export", "runs/tiny", "--sample", "99"]);
    assert!(refused.contains("`--sample`: there is no sample 99; the run has"), "{refused}");
    let refused = workspace.fails(2, &["export", "runs/tiny", "--sample", "first"]);
    assert!(refused.contains("counted from 0, or `last`, or `all`"), "{refused}");
    // A run that takes the place of this one takes its exports away, and nothing else.
    workspace.write("runs/tiny/sample.onnx", "mine");
    workspace.succeeds(&["train", "tiny.toml", "--force", "--quiet"]);
    let left = names(&workspace.path("runs/tiny"));
    let exports: Vec<&String> = left.iter().filter(|n| n.contains("onnx")).collect();
    assert_eq!(exports, ["sample.onnx"]);
    assert!(!left.iter().any(|name| name.ends_with("architecture.json")), "{left:?}");
}

/// A safetensors file, read by its specification: tensors and metadata.
fn tensors(bytes: &[u8]) -> (BTreeMap<String, Vec<u8>>, Value) {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let data = &bytes[8 + length..];
    let mut tensors = BTreeMap::new();
    for (name, tensor) in header.as_object().unwrap() {
        if name != "__metadata__" {
            let at = |i: usize| tensor["data_offsets"][i].as_u64().unwrap() as usize;
            tensors.insert(name.clone(), data[at(0)..at(1)].to_vec());
        }
    }
    (tensors, header["__metadata__"].clone())
}
