//! Files that are none, limits on threads, and disks that are full.
#![cfg(unix)]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::workspace::{Outcome, Workspace, assert_same, names};

/// Says that a test did nothing here, and why.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Runs a command that must end by itself: one that waits for a pipe never does.
fn ends(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    let mut command = workspace.command();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_mins(1) {
            child.kill().unwrap();
            panic!("{arguments:?} did not end");
        }
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A picture folder with a good picture of each class and part, and one of each kind that is none.
fn pictures(workspace: &Workspace) {
    for at in 0..12u8 {
        let part = ["train", "val"][usize::from(at % 2)];
        let class = ["cat", "dog"][usize::from(at / 6)];
        let path = workspace.path(&format!("pictures/{part}/{class}/{at}.png"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, crate::data::PIXEL).unwrap();
    }
    let odd = workspace.path("odd");
    fs::create_dir_all(&odd).unwrap();
    pipe(&odd.join("pipe.png"));
    symlink("/dev/zero", odd.join("zeros.png")).unwrap();
    fs::create_dir(odd.join("folder.png")).unwrap();
    File::create(odd.join("large.png")).unwrap().set_len(6 << 30).unwrap();
}

const ODD: [(&str, &str); 3] = [
    ("pipe.png", "it is a pipe, a socket or a device and not a file"),
    ("zeros.png", "it is a pipe, a socket or a device and not a file"),
    ("large.png", "has 6.0 GiB, and an image file may have 512.0 MiB at most"),
];

#[test]
fn pictures_that_are_no_files_are_named_and_not_waited_for() {
    let workspace = Workspace::new();
    pictures(&workspace);
    for (name, _) in ODD {
        let from = workspace.path("odd").join(name);
        fs::rename(from, workspace.path("pictures/train/cat").join(name)).unwrap();
    }
    let found = ends(&workspace, &["data", "check", "pictures"]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    let said = format!("{}{}", found.stdout, found.stderr);
    for (name, problem) in ODD {
        assert!(said.contains(name) && said.contains(problem), "{name}: {said}");
    }
    let place = "[data]\nkind = \"images\"\npath = \"pictures\"\nimage_size = 28\n";
    let rest = "[model]\nname = \"lenet\"\n[prune]\nwarm_up_epochs = 1\n[schedule.step_size]\n\
        value = 0.05\ncycles = 2\n[train]\nepochs = 4\nbatch = 4\nsamples_per_cycle = 1\n";
    workspace.write("own.toml", &format!("{place}{rest}"));
    let found = ends(&workspace, &["train", "own.toml", "--set", "data.skip_at_most=3"]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    for (name, _) in ODD {
        let arguments = ["predict", "runs/own", &format!("pictures/train/cat/{name}")];
        let found = ends(&workspace, &arguments);
        assert_eq!(found.code, Some(1), "{name}: {}", found.stdout);
        assert!(found.stderr.contains(name), "{name}: {}", found.stderr);
    }
    // A folder is looked into, whatever its name.
    let found = ends(&workspace, &["predict", "runs/own", "odd"]);
    assert!(found.code == Some(1) && found.stderr.contains("has no pictures"), "{}", found.stderr);
}

#[test]
fn settings_tables_and_runs_that_are_no_files_are_refused() {
    let workspace = Workspace::trained();
    pipe(&workspace.path("pipe.toml"));
    pipe(&workspace.path("pipe.csv"));
    pipe(&workspace.path("pipe.parquet"));
    fs::create_dir(workspace.path("folder.toml")).unwrap();
    fs::create_dir(workspace.path("folder.csv")).unwrap();
    let cases: [&[&str]; 8] = [
        &["train", "pipe.toml"],
        &["train", "folder.toml"],
        &[
            "train",
            "tiny.toml",
            "--set",
            "data.kind=table",
            "--set",
            "data.path=pipe.csv",
            "--set",
            "data.target=y",
            "--out",
            "x",
        ],
        &["select", "pipe.csv", "--target", "y"],
        &["select", "folder.csv", "--target", "y"],
        &["select", "pipe.parquet", "--target", "y"],
        &["data", "check", "pipe.csv"],
        &["predict", "runs/tiny", "pipe.csv"],
    ];
    for arguments in cases {
        let found = ends(&workspace, arguments);
        assert!(matches!(found.code, Some(1 | 2)), "{arguments:?}: {}", found.stderr);
        assert!(!found.stderr.contains("bug"), "{arguments:?}: {}", found.stderr);
    }
    let info = workspace.path("runs/tiny/run.json");
    fs::remove_file(&info).unwrap();
    pipe(&info);
    for arguments in [&["eval", "runs/tiny"][..], &["train", "tiny.toml", "--resume"]] {
        let found = ends(&workspace, arguments);
        assert_eq!(found.code, Some(1), "{arguments:?}: {}", found.stderr);
        assert!(found.stderr.contains("and not a file"), "{arguments:?}: {}", found.stderr);
    }
    File::create(workspace.path("large.toml")).unwrap().set_len(6 << 30).unwrap();
    let found = ends(&workspace, &["train", "large.toml"]);
    assert!(found.stderr.contains("at most 16.0 MiB can be read"), "{}", found.stderr);
}

/// Whether this user is root, whom limits on processes do not bind.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim() == "0"
}

/// The system counts the threads of a user, of whom this one has no others: so many more than the
/// first can be started, and the next fails.
#[test]
fn a_limit_on_threads_makes_a_run_slower_and_changes_nothing() {
    const NOBODY: &str = "54321";
    if !is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        skipped("only root can start a program as another user, with setpriv");
        return;
    }
    let workspace = Workspace::new();
    workspace.succeeds(&["train", "tiny.toml", "--quiet", "--set", "chains=2", "--out", "free"]);
    let root = workspace.path("");
    for path in [root.clone(), root.join("tiny.toml")] {
        let opened = Command::new("chmod").arg("a+rwx").arg(path).status().unwrap();
        assert!(opened.success());
    }
    let mut finished = 0;
    for limit in 1..=6 {
        let out = format!("limited-{limit}");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--clear-groups", "prlimit", &format!("--nproc={limit}")]);
        command.arg(env!("CARGO_BIN_EXE_thinfer")).current_dir(&root);
        command.args(["train", "tiny.toml", "--set", "chains=2", "--device", "cpu", "--out", &out]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("Permission denied") && !workspace.path(&out).exists() {
            skipped("another user may not run the program where it was built");
            return;
        }
        assert!(!said.contains("bug") && !said.contains("panic"), "{limit}: {said}");
        match output.status.code() {
            Some(0) => {
                finished += 1;
                assert_same(&workspace.path("free"), &workspace.path(&out), &out);
            }
            code => {
                assert_eq!(code, Some(1), "{limit}: {said}");
                assert!(said.contains("ulimit -u"), "{limit}: {said}");
            }
        }
    }
    assert!(finished >= 4, "only {finished} of 6 finished");
}

/// A disk of so many kilobytes, where this user may mount one.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path, kilobytes: usize) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={kilobytes}k");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Self(path))
    }

    fn grow(&self, kilobytes: usize) {
        let size = format!("remount,size={kilobytes}k");
        assert!(Command::new("mount").args(["-o", &size]).arg(self.0).status().unwrap().success());
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_run_on_a_full_disk_stops_whole_and_goes_on_when_there_is_space() {
    let workspace = Workspace::new();
    let place = workspace.path("disk");
    let arguments = |out: &'static str, more: &[&'static str]| -> Vec<&'static str> {
        let set = ["model.hidden=[64]", "data.columns=40", "train.samples_per_cycle=8"];
        let set = set.iter().flat_map(|set| ["--set", set]);
        ["train", "tiny.toml", "--out", out]
            .into_iter()
            .chain(set)
            .chain(more.iter().copied())
            .collect()
    };
    workspace.succeeds(&arguments("whole", &["--quiet"]));
    // A checkpoint has 45 kB and a sample 15, of which there are 16 in the end.
    let Some(disk) = SmallDisk::mount(&place, 240) else {
        skipped("only root may mount a small disk, and not in every container");
        return;
    };
    let mut before: Vec<(String, Vec<u8>)> = Vec::new();
    for (turn, more) in [(1, &[][..]), (2, &["--resume"])] {
        let outcome = workspace.run(&arguments("disk/run", more));
        assert_eq!(outcome.code, Some(1), "turn {turn}: {}", outcome.stderr);
        let advice =
            "Free some space, then continue with --resume; finished checkpoints are intact";
        assert!(outcome.stderr.contains(advice), "turn {turn}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "");
        let chain = workspace.path("disk/run/chain-0");
        let samples = names(&chain).into_iter().filter(|name| name.starts_with("snapshot-"));
        let whole = workspace.path("whole/chain-0");
        let now: Vec<(String, Vec<u8>)> =
            samples.map(|name| (name.clone(), fs::read(chain.join(&name)).unwrap())).collect();
        assert!(!now.is_empty(), "it got to no sample");
        for (name, bytes) in &now {
            assert!(*bytes == fs::read(whole.join(name)).unwrap(), "{name} is damaged");
        }
        for kept in &before {
            assert!(now.contains(kept), "{} is lost", kept.0);
        }
        // What is finished can be looked at where nothing can be written.
        let seen = workspace.run(&["eval", "disk/run"]);
        assert_eq!(seen.code, Some(0), "{}", seen.stderr);
        before = now;
    }
    disk.grow(8 << 10);
    workspace.succeeds(&arguments("disk/run", &["--resume", "--quiet"]));
    assert_same(&workspace.path("whole"), &workspace.path("disk/run"), "a full disk");
}
