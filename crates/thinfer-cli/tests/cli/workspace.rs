//! A scratch folder to run the program in, with a tiny configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// Eight inputs, 200 rows, 20 steps; checkpoints at steps 5, 10, 15 and 20.
pub(crate) const TINY: &str = r#"
[data]
kind = "example1"
columns = 8
train_rows = 200
[prune]
warm_up_epochs = 4
[schedule.step_size]
cycles = 2
[train]
epochs = 20
checkpoint_steps = 5
"#;

/// A folder of its own for one test; relative paths in messages stay the same.
pub(crate) struct Workspace {
    folder: TempDir,
}

/// What a command left behind.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workspace {
    /// An empty one with `tiny.toml`.
    pub(crate) fn new() -> Self {
        let workspace = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(workspace.path("tiny.toml"), TINY).unwrap();
        workspace
    }

    /// One with a finished run in `runs/tiny`.
    pub(crate) fn trained() -> Self {
        let workspace = Self::new();
        workspace.succeeds(&["train", "tiny.toml", "--quiet"]);
        workspace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_thinfer"));
        command.current_dir(self.folder.path()).env_remove("RUST_BACKTRACE").env("COLUMNS", "80");
        // The same device on every machine.
        command.env("CUDA_VISIBLE_DEVICES", "");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        let output = Command::from_std(self.command()).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Outcome {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs a command that must end well.
    pub(crate) fn succeeds(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
        outcome
    }

    /// Runs a command with `--json`, whose output must be one object on one line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let outcome = self.succeeds(&[arguments, &["--json"]].concat());
        assert_eq!(outcome.stdout.lines().count(), 1, "{}", outcome.stdout);
        let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert!(value.is_object(), "{value}");
        value
    }

    /// Runs a command that must fail with this code and nothing on stdout; gives the message.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "", "{arguments:?}");
        outcome.stderr
    }
}

/// The names of what is in a folder, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Everything in a run that must not depend on how often it was stopped: the samples, the final
/// state, the history and the evaluation.
pub(crate) fn essence(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in ["history.csv", "evaluation.json"] {
        files.insert(name.to_owned(), fs::read(run.join(name)).unwrap());
    }
    for chain in names(run).into_iter().filter(|name| name.starts_with("chain-")) {
        for file in names(&run.join(&chain)) {
            if file == "checkpoint" || file.starts_with("snapshot-") {
                let path = run.join(&chain).join(&file);
                files.insert(format!("{chain}/{file}"), fs::read(path).unwrap());
            }
        }
    }
    files
}

/// Compares two runs file by file, naming the first that differs.
pub(crate) fn assert_same(one: &Path, other: &Path, what: &str) {
    let (one, other) = (essence(one), essence(other));
    let listed = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(listed(&one), listed(&other), "{what}");
    for (name, bytes) in &one {
        assert!(bytes == &other[name], "{what}: {name} differs");
    }
}
