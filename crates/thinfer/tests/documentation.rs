//! What the documentation promises about the code.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Every `Deviation:` comment has a row in `docs/deviations.md` that names its file.
#[test]
fn every_deviation_is_on_the_page() {
    let page = fs::read_to_string(root().join("docs/deviations.md")).unwrap();
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    let marker = ["Deviation", ":"].concat();
    let mut seen = 0;
    let mut of_selectors = 0;
    for file in files.into_iter().filter(|f| !f.ends_with("tests/documentation.rs")) {
        let comments = fs::read_to_string(&file).unwrap().matches(&marker).count();
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let rows = page.lines().filter(|l| l.starts_with('|') && l.contains(&name)).count();
        assert!(
            rows >= comments,
            "{name}: {comments} deviations, {rows} rows in docs/deviations.md"
        );
        seen += comments;
        of_selectors += comments * usize::from(name.contains("/selectors/"));
    }
    assert!(of_selectors >= 4, "the selectors that others published are not as published");
    assert!(seen >= 8, "only {seen} deviations were found; is the marker still spelled that way?");
}

/// Every configuration key is on the reference page.
#[test]
fn every_key_is_in_the_reference() {
    let page = fs::read_to_string(root().join("docs/config.md")).unwrap();
    for key in thinfer::config::keys::keys() {
        let last = key.name.rsplit('.').next().unwrap_or_default();
        let there =
            page.contains(&format!("`{}`", key.name)) || page.contains(&format!("`{last}`"));
        assert!(there, "docs/config.md does not mention `{}`", key.name);
    }
}

/// The shipped configurations are valid.
#[test]
fn shipped_configurations_are_valid() {
    for entry in fs::read_dir(root().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            thinfer::config::Config::read(&path, &[]).unwrap();
        }
    }
}
