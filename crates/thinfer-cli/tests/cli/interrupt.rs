//! Runs that are stopped or killed and go on end with the same bits.
#![cfg(unix)]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::workspace::{TINY, Workspace, assert_same};

/// 400 steps, each with a checkpoint.
const LONG: [&str; 4] =
    ["train.epochs=100", "train.batch=50", "train.checkpoint_steps=1", "prune.warm_up_epochs=10"];

fn arguments<'a>(out: &'a str, set: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["train", "tiny.toml", "--quiet", "--out", out];
    arguments.extend(LONG.iter().chain(set).flat_map(|set| ["--set", set]));
    arguments
}

/// Starts a run and waits until it has written a checkpoint (again).
fn start(workspace: &Workspace, out: &str, arguments: &[&str]) -> Child {
    let checkpoint = workspace.path(out).join("chain-0/checkpoint");
    let written = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let before = written(&checkpoint);
    let mut command = workspace.command();
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while written(&checkpoint).is_none_or(|now| Some(now) == before)
        && child.try_wait().unwrap().is_none()
    {
        assert!(started.elapsed() < Duration::from_secs(30), "no checkpoint after 30 s");
        sleep(Duration::from_millis(1));
    }
    child
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success(), "kill -s {name}");
}

/// Whether a signal is ignored here, as a hangup is under `nohup` and an interrupt behind the `&` of
/// a script, and so by all that is started from here.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored
        .is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).unwrap() >> (number - 1) & 1 == 1)
}

#[test]
fn a_terminated_run_says_how_to_go_on_and_does() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        if is_ignored(number) {
            continue;
        }
        let workspace = Workspace::new();
        workspace.succeeds(&arguments("whole", &["chains=2"]));
        let cut = arguments("cut", &["chains=2"]);
        let child = start(&workspace, "cut", &cut);
        signal(&child, name);
        let outcome = child.wait_with_output().unwrap();
        assert_eq!(outcome.status.code(), Some(130), "{:?}", outcome.status);
        assert_eq!(outcome.stdout, b"");
        let message = String::from_utf8(outcome.stderr).unwrap();
        assert!(message.starts_with("interrupted after a checkpoint; go on with `"), "{message}");
        // What the message says to type, without the program's name.
        let (_, command) = message.trim_end().split_once("`thinfer ").unwrap();
        let words: Vec<&str> = command.trim_end_matches('`').split(' ').collect();
        assert!(words.ends_with(&["--out", "cut", "--resume"]), "{message}");
        workspace.succeeds(&words);
        assert_same(&workspace.path("whole"), &workspace.path("cut"), name);
    }
}

/// A run that would take an hour and writes no checkpoint by itself.
fn endless<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["train", "endless.toml", "--quiet", "--out", out];
    arguments.extend(more);
    arguments
}

/// Starts a command and waits until a file or folder is there.
fn start_until(workspace: &Workspace, arguments: &[&str], there: &str) -> Child {
    let mut command = workspace.command();
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while !workspace.path(there).exists() && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(30), "no {there} after 30 s");
        sleep(Duration::from_millis(1));
    }
    child
}

fn endless_workspace() -> Workspace {
    let workspace = Workspace::new();
    let endless = TINY.replace("epochs = 20\ncheckpoint_steps = 5", "epochs = 1000000");
    assert!(!endless.contains("checkpoint_steps"));
    workspace.write("endless.toml", &format!("{endless}checkpoint_seconds = 1e6\n"));
    workspace
}

#[test]
fn the_checkpoint_of_a_terminated_run_is_there_also_where_none_was_due() {
    let workspace = endless_workspace();
    let checkpoint = workspace.path("cut/chain-0/checkpoint");
    let child = start_until(&workspace, &endless("cut", &[]), "cut/chain-0");
    assert!(!checkpoint.exists());
    signal(&child, "TERM");
    let outcome = child.wait_with_output().unwrap();
    let message = String::from_utf8(outcome.stderr).unwrap();
    assert_eq!(outcome.status.code(), Some(130), "{message}");
    assert!(message.starts_with("interrupted after a checkpoint; go on with `"), "{message}");
    assert!(checkpoint.is_file(), "the message says that there is one");
}

#[test]
fn a_run_that_is_killed_before_its_first_checkpoint_goes_on() {
    let workspace = endless_workspace();
    let mut child = start_until(&workspace, &endless("cut", &[]), "cut/run.json");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!workspace.path("cut/chain-0/checkpoint").exists());
    let message = workspace.fails(2, &endless("cut", &[]));
    assert!(message.contains("already holds a run; continue it with --resume"), "{message}");
    // Also where it had not come to its second file.
    let _ = std::fs::remove_file(workspace.path("cut/config.toml"));
    let _ = std::fs::remove_dir(workspace.path("cut/chain-0"));
    let child = start_until(&workspace, &endless("cut", &["--resume"]), "cut/chain-0");
    signal(&child, "TERM");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert!(workspace.path("cut/config.toml").is_file());
    workspace.succeeds(&["train", "tiny.toml", "--quiet", "--out", "cut", "--force"]);
}

/// A shell that ignores a signal hands that down, as `nohup` does.
#[test]
fn a_run_under_nohup_is_not_stopped_by_a_hangup() {
    let workspace = Workspace::new();
    let run = arguments("cut", &[]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_thinfer")]);
    command.args(&run).current_dir(workspace.path("")).env("CUDA_VISIBLE_DEVICES", "");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let checkpoint = workspace.path("cut/chain-0/checkpoint");
    while !checkpoint.exists() && child.try_wait().unwrap().is_none() {
        sleep(Duration::from_millis(1));
    }
    signal(&child, "HUP");
    let outcome = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(0), "{message}");
}

/// The limit is 512 or 1024 bytes, by the shell; `run.json` is larger.
#[test]
fn a_file_that_is_over_the_limit_of_the_system_is_an_error_with_words() {
    let workspace = Workspace::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_thinfer")]);
    command.args(["train", "tiny.toml", "--quiet"]).env("CUDA_VISIBLE_DEVICES", "");
    let outcome = command.current_dir(workspace.path("")).output().unwrap();
    let message = String::from_utf8(outcome.stderr).unwrap();
    assert_eq!(outcome.status.code(), Some(1), "{:?} {message}", outcome.status);
    assert!(message.starts_with("error: could not write runs/tiny/run.json: "), "{message}");
    assert!(message.contains("raise it with `ulimit -f`"), "{message}");
    assert_eq!(std::fs::read_dir(workspace.path("runs/tiny")).unwrap().count(), 0);
    workspace.succeeds(&["train", "tiny.toml", "--quiet"]);
}

/// Kills one run again and again, each time a while after it went on, then lets it finish.
fn killed(method: &[&str]) {
    const DELAYS: [u64; 6] = [0, 3, 11, 2, 29, 47];
    let workspace = Workspace::new();
    workspace.succeeds(&arguments("whole", method));
    let mut cut = arguments("cut", method);
    let mut hits = 0;
    for delay in DELAYS {
        let mut child = start(&workspace, "cut", &cut);
        sleep(Duration::from_millis(delay));
        // A run that is done already cannot be killed any more.
        let _ = child.kill();
        let outcome = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let ended = outcome.status.signal() == Some(9) || outcome.status.success();
        assert!(ended, "after {delay} ms: {:?} {message}", outcome.status);
        hits += usize::from(outcome.status.signal() == Some(9));
        if !cut.contains(&"--resume") {
            cut.push("--resume");
        }
    }
    assert!(hits > 0, "every run was done before it was killed");
    workspace.succeeds(&cut);
    assert_same(&workspace.path("whole"), &workspace.path("cut"), &format!("{method:?}"));
}

#[test]
fn em_mcmc_without_feedback_survives_being_killed() {
    killed(&["method.kind=em-mcmc", "prune.regrow=false", "prior.soft_threshold=0.05"]);
}

#[test]
fn em_mcmc_with_feedback_survives_being_killed() {
    killed(&["method.kind=em-mcmc", "prune.regrow=true", "prior.soft_threshold=0.05"]);
}

#[test]
fn sghmc_survives_being_killed() {
    killed(&["method.kind=sghmc"]);
}

#[test]
fn cv_adam_survives_being_killed() {
    killed(&["method.kind=cv-adam"]);
}

#[test]
fn sgd_survives_being_killed() {
    killed(&["method.kind=sgd"]);
}

/// A Rank-1 network whose test images take long to score: each is looked at 20,000 times. That a
/// run goes on from there to the same bits is tested beside `run_chain`.
#[test]
fn a_run_that_scores_test_images_for_long_stops_soon() {
    let workspace = Workspace::new();
    let config = |draws: usize, rows: usize| {
        format!(
            "[data]\nkind = \"shapes\"\ntrain_rows = 32\ntest_rows = {rows}\n[model]\nname = \"lenet\"\n\
             [method]\nkind = \"rank1\"\nmembers = 2\ndraws = {draws}\n[schedule.step_size]\n\
             value = 0.01\ncycles = 1\n[train]\nepochs = 2\nbatch = 32\nsamples_per_cycle = 1\n\
             checkpoint_steps = 1\n"
        )
    };
    workspace.write("long.toml", &config(10_000, 500));
    let train = ["train", "long.toml", "--quiet", "--out", "long"];
    let mut child = start_until(&workspace, &train, "long/run.json");
    sleep(Duration::from_millis(500));
    signal(&child, "TERM");
    let sent = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if sent.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("the run did not stop");
        }
        sleep(Duration::from_millis(5));
    }
    let outcome = child.wait_with_output().unwrap();
    let said = String::from_utf8(outcome.stderr).unwrap();
    assert_eq!(outcome.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted after a checkpoint"), "{said}");
    assert!(workspace.path("long/chain-0/checkpoint").exists());
}
