//! Several programs on one folder, and data that changed under a run.

use std::fs::{self, File};
use std::process::Stdio;

use crate::workspace::{Workspace, names};

/// Holds a folder as another program that works in it does.
fn hold(workspace: &Workspace, name: &str) -> File {
    let path = workspace.path(name);
    fs::create_dir_all(&path).unwrap();
    let folder = File::open(path).unwrap();
    folder.lock().unwrap();
    folder
}

const IN_USE: &str =
    "is at work in this folder; wait for it to end, or choose another one with --out";

#[cfg(unix)]
#[test]
fn a_folder_that_is_in_use_is_not_trained_in() {
    let workspace = Workspace::trained();
    let before = fs::read(workspace.path("runs/tiny/run.json")).unwrap();
    let held = hold(&workspace, "runs/tiny");
    for mode in ["--resume", "--force"] {
        let message = workspace.fails(1, &["train", "tiny.toml", "--quiet", mode]);
        assert!(message.contains(IN_USE), "{message}");
        if cfg!(target_os = "linux") {
            let process = format!("(process {})", std::process::id());
            assert!(message.contains(&process) || !message.contains("(process"), "{message}");
        }
    }
    assert_eq!(fs::read(workspace.path("runs/tiny/run.json")).unwrap(), before);
    drop(held);
    workspace.succeeds(&["train", "tiny.toml", "--quiet", "--resume"]);
}

#[cfg(unix)]
#[test]
fn two_reproductions_do_not_work_in_one_folder() {
    let workspace = Workspace::new();
    let small = ["--set", "data.train_rows=60", "--set", "data.columns=6", "--budget-epochs", "8"];
    let table = ["reproduce", "table4", "--examples", "1", "--rows", "dfp", "--repeats", "1"];
    let table = [&table[..], &small, &["--out", "out", "--quiet"]].concat();
    let figure = ["reproduce", "figure2", "--out", "out", "--quiet"];
    let images = ["reproduce", "table1", "--rows", "resnet18-sgd", "--out", "out", "--quiet"];
    let held = hold(&workspace, "out");
    for command in [&table[..], &figure, &images] {
        let message = workspace.fails(1, command);
        assert!(message.contains(IN_USE), "{message}");
    }
    assert!(names(&workspace.path("out")).is_empty());
    drop(held);
    workspace.succeeds(&table);
    // What is there is kept, and not done again.
    let run = names(&workspace.path("out/runs")).remove(0);
    let path = workspace.path("out/runs").join(run);
    let made = fs::read_to_string(&path).unwrap();
    workspace.succeeds(&table);
    assert_eq!(fs::read_to_string(&path).unwrap(), made);
    // A changed number in a result is no result.
    fs::write(&path, made.replacen("\"fdr\": ", "\"fdr\": 1", 1)).unwrap();
    let message = workspace.fails(1, &table);
    assert!(message.contains("its checksum is wrong"), "{message}");
    assert!(message.contains("move it away to have the run done again"), "{message}");
    fs::remove_file(&path).unwrap();
    workspace.succeeds(&table);
}

#[test]
fn exports_at_the_same_time_all_succeed() {
    let workspace = Workspace::trained();
    workspace.succeeds(&["export", "runs/tiny", "--quiet"]);
    let files = ["posterior.architecture.json", "posterior.safetensors"];
    let read = || files.map(|name| fs::read(workspace.path("runs/tiny").join(name)).unwrap());
    let before = (names(&workspace.path("runs/tiny")), read());
    for _ in 0..4 {
        let start = |_| {
            let mut command = workspace.command();
            command.args(["export", "runs/tiny", "--force", "--quiet"]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let together: Vec<_> = (0..4).map(start).collect();
        for child in together {
            let outcome = child.wait_with_output().unwrap();
            assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
        }
        assert_eq!((names(&workspace.path("runs/tiny")), read()), before);
    }
}

#[test]
fn data_that_changed_is_refused() {
    let workspace = Workspace::new();
    let row = |row: usize| format!("{row},{},{}\n", row * row % 11, row * 7 % 5);
    let rows: String = (0..120).map(row).collect();
    let table = format!("a,b,y\n{rows}");
    let method = "method.kind=em-mcmc";
    let set = ["data.kind=table", "data.path=table.csv", "data.target=y", method];
    let mut train = vec!["train", "tiny.toml", "--quiet"];
    train.extend(set.iter().flat_map(|set| ["--set", set]));
    workspace.write("table.csv", &table);
    workspace.succeeds(&train);
    train.push("--resume");
    // One cell in many rows, so that rows that the run learned from are among them.
    let changed = rows.replace(",4,", ",6,");
    workspace.write("table.csv", &format!("a,b,y\n{changed}"));
    let before = fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap();
    let message = workspace.fails(1, &train);
    let told = "runs/tiny: the training data changed since the run was started; restore it";
    assert!(message.contains(told), "{message}");
    let message = workspace.fails(1, &["eval", "runs/tiny"]);
    let told = "runs/tiny: the data that the run was trained on has changed; restore it";
    assert!(message.contains(told), "{message}");
    assert_eq!(fs::read(workspace.path("runs/tiny/evaluation.json")).unwrap(), before);
    workspace.write("table.csv", &table);
    workspace.succeeds(&train);
    workspace.succeeds(&["eval", "runs/tiny"]);
}

#[test]
fn a_changed_digit_of_a_run_or_its_evaluation_is_refused() {
    let workspace = Workspace::trained();
    workspace.succeeds(&["train", "tiny.toml", "--quiet", "--out", "other"]);
    for (file, key, command) in [
        ("runs/tiny/evaluation.json", "\"mse\": ", &["compare", "runs/tiny", "other"][..]),
        ("runs/tiny/run.json", "\"train_rows\": ", &["eval", "runs/tiny"]),
    ] {
        let text = fs::read_to_string(workspace.path(file)).unwrap();
        let changed = text.replacen(key, &format!("{key}1"), 1);
        assert_ne!(changed, text);
        workspace.write(file, &changed);
        let message = workspace.fails(1, command);
        assert!(message.contains(file) && message.contains("checksum is wrong"), "{message}");
        workspace.write(file, &text);
        workspace.succeeds(&[command, &["--quiet"]].concat());
    }
}
