//! Runs that are stopped or killed and go on end with the same bits.
#![cfg(unix)]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::workspace::{Workspace, assert_same};

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

#[test]
fn a_terminated_run_says_how_to_go_on_and_does() {
    for name in ["TERM", "INT"] {
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
