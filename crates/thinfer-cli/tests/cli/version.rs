//! Which program this is, and its manual.

use std::fs;

use crate::workspace::{Workspace, names};

#[test]
fn the_short_version_is_one_line_and_the_long_one_says_what_the_program_can_do() {
    let workspace = Workspace::new();
    let version = format!("thinfer {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(workspace.succeeds(&["-V"]).stdout, format!("{version}\n"));
    let long = workspace.succeeds(&["--version"]).stdout;
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines[0], version);
    assert_eq!(lines[1], "features: cuda, images, onnx, parquet, report");
    assert!(
        lines[2].starts_with("target: ") && lines[2].contains(std::env::consts::ARCH),
        "{long}"
    );
    assert!(lines[3].starts_with("devices: cpu"), "{long}");
    // Tests hide GPUs.
    assert!(lines[4].starts_with("CUDA: cannot be opened: "), "{long}");
}

#[test]
fn every_command_has_a_manual_page() {
    let workspace = Workspace::new();
    let wrote = workspace.json(&["man", "man1"]);
    let pages = names(&workspace.path("man1"));
    assert_eq!(wrote["pages"].as_array().unwrap().len(), pages.len());
    for page in ["thinfer.1", "thinfer-train.1", "thinfer-watch.1", "thinfer-data-get.1"] {
        assert!(pages.contains(&page.to_owned()), "{page} is not in {pages:?}");
    }
    let text = fs::read_to_string(workspace.path("man1/thinfer-data-get.1")).unwrap();
    assert!(text.contains(".TH thinfer-data-get 1"), "{text}");
    assert!(text.contains("thinfer data get"), "{text}");
    // What is there is the user's.
    let error = workspace.fails(2, &["man", "man1"]);
    assert!(error.contains("already exists") && error.contains("--force"), "{error}");
    workspace.succeeds(&["man", "man1", "--force"]);
}
