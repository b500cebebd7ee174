//! Files of a run that were cut or flipped: named, and the ones before them used.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;

use crate::workspace::{Workspace, assert_same};

const NEWEST: &str = "runs/tiny/chain-0/checkpoint";
const PREVIOUS: &str = "runs/tiny/chain-0/checkpoint.previous";

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Damages one file of a finished run; `--resume` must name it and end with the same bits.
fn damaged_and_resumed(file: &str, damage: fn(&Path)) -> String {
    let workspace = Workspace::trained();
    workspace.succeeds(&["train", "tiny.toml", "--out", "whole", "--quiet"]);
    damage(&workspace.path(file));
    let looked = workspace.succeeds(&["eval", "runs/tiny"]).stderr;
    let resumed = workspace.succeeds(&["train", "tiny.toml", "--resume"]).stderr;
    let notice = resumed.lines().find(|line| line.starts_with("warning: ")).unwrap();
    assert!(looked.contains(notice), "{looked}");
    assert!(looked.contains("the run is not finished: 0 of 1 chains"), "{looked}");
    assert_same(&workspace.path("runs/tiny"), &workspace.path("whole"), file);
    notice.to_owned()
}

#[test]
fn a_truncated_checkpoint_is_passed_over() {
    assert_snapshot!(damaged_and_resumed(NEWEST, cut), @"warning: runs/tiny/chain-0/checkpoint: the file is damaged (it is shorter than its header says); going on from runs/tiny/chain-0/checkpoint.previous, step 15");
}

#[test]
fn a_flipped_bit_in_a_checkpoint_is_passed_over() {
    assert_snapshot!(damaged_and_resumed(NEWEST, flip), @"warning: runs/tiny/chain-0/checkpoint: the file is damaged (the checksum of its contents is wrong, or it was cut short); going on from runs/tiny/chain-0/checkpoint.previous, step 15");
}

#[test]
fn a_flipped_bit_in_a_sample_is_passed_over() {
    let sample = "runs/tiny/chain-0/snapshot-000018.safetensors";
    let notice = damaged_and_resumed(sample, flip);
    assert!(notice.contains("snapshot-000018.safetensors: the snapshot is damaged"), "{notice}");
}

/// Both checkpoints are from after it, so it cannot be taken again; all others are there.
#[test]
fn an_early_sample_that_is_damaged_or_gone_is_left_out() {
    let early = "runs/tiny/chain-0/snapshot-000008.safetensors";
    let damages: [fn(&Path); 2] = [flip, |path| fs::remove_file(path).unwrap()];
    for damage in damages {
        let workspace = Workspace::trained();
        let samples = |text: &str| {
            let found: serde_json::Value = serde_json::from_str(text).unwrap();
            found["all_samples"]["members"].as_u64().unwrap()
        };
        let before = samples(&workspace.succeeds(&["eval", "runs/tiny", "--json"]).stdout);
        damage(&workspace.path(early));
        for arguments in
            [&["eval", "runs/tiny", "--json"][..], &["train", "tiny.toml", "--resume", "--json"]]
        {
            let told = workspace.succeeds(arguments);
            assert_eq!(samples(&told.stdout), before - 1, "{arguments:?}");
            assert!(told.stderr.contains(early), "{}", told.stderr);
            assert!(told.stderr.contains("this sample is left out"), "{}", told.stderr);
        }
        // A score without some of the samples is not that of the run, whoever wants to hear no
        // notices.
        let quiet = workspace.succeeds(&["eval", "runs/tiny", "--quiet"]).stderr;
        assert!(quiet.starts_with("warning: ") && quiet.contains(early), "{quiet}");
        assert_eq!(quiet.lines().count(), 1, "{quiet}");
        for command in ["shrink", "export"] {
            let told = workspace.succeeds(&[command, "runs/tiny"]).stderr;
            assert_eq!(told.matches("this sample is left out").count(), 1, "{told}");
        }
    }
}

#[test]
fn a_run_without_a_sample_that_can_be_read_is_an_error() {
    let workspace = Workspace::trained();
    for entry in fs::read_dir(workspace.path("runs/tiny/chain-0")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            flip(&path);
        }
    }
    fs::remove_file(workspace.path(PREVIOUS)).unwrap();
    for arguments in [&["eval", "runs/tiny"][..], &["train", "tiny.toml", "--resume"]] {
        let message = workspace.fails(1, arguments);
        assert!(message.contains("no sample can be read"), "{message}");
        assert!(message.contains("start the run again with --force"), "{message}");
    }
}

#[test]
fn two_damaged_checkpoints_are_an_error() {
    let workspace = Workspace::trained();
    flip(&workspace.path(NEWEST));
    cut(&workspace.path(PREVIOUS));
    for arguments in [&["eval", "runs/tiny"][..], &["train", "tiny.toml", "--resume"]] {
        let message = workspace.fails(1, arguments);
        let error = message.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(error.contains("chain-0/checkpoint"), "{error}");
        assert!(error.contains("the file is damaged"), "{error}");
    }
    workspace.succeeds(&["train", "tiny.toml", "--force"]);
}

#[test]
fn a_checkpoint_that_is_gone_leaves_the_one_before_it() {
    let workspace = Workspace::trained();
    workspace.succeeds(&["train", "tiny.toml", "--out", "whole", "--quiet"]);
    fs::remove_file(workspace.path(NEWEST)).unwrap();
    workspace.succeeds(&["train", "tiny.toml", "--resume"]);
    assert_same(&workspace.path("runs/tiny"), &workspace.path("whole"), "checkpoint gone");
}
