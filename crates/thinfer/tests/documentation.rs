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

/// All files of the repository, by their path from its root.
fn repository() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git", "runs"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else {
                found.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// `a/{b,c}.rs` names `a/b.rs` and `a/c.rs`.
fn spelled_out(name: &str) -> Vec<String> {
    match (name.split_once('{'), name.split_once('}')) {
        (Some((before, _)), Some((inside, after))) => {
            let inside = inside.split_once('{').unwrap().1;
            inside.split(',').map(|part| format!("{before}{part}{after}")).collect()
        }
        _ => vec![name.to_owned()],
    }
}

/// Files that a page speaks of and that are the user's, or a run's, or should not be.
const NOT_OURS: [&str; 3] = ["houses.py", "config.toml", "utils.rs"];

/// A source file in backticks is there, by its whole path or by the end of it (`prune/mod.rs`), and
/// so is the target of every link.
#[test]
fn every_file_that_a_page_names_is_there() {
    let files = repository();
    let there =
        |name: &str| files.iter().any(|file| file == name || file.ends_with(&format!("/{name}")));
    let is_code = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_./{},-".contains(c);
        let source = [".rs", ".cu", ".cuh", ".py", ".toml"].iter().any(|end| name.ends_with(end));
        let ours = ["crates/", "docs/", "configs/", "results/", "tests/"];
        let data = [".md", ".json", ".csv"].iter().any(|end| name.ends_with(end))
            && ours.iter().any(|folder| name.starts_with(folder));
        (source || data) && name.chars().all(plain)
    };
    // `NAME.toml` stands for any name.
    let is_pattern = |name: &str| {
        name.split(['/', '.', '-'])
            .any(|w| w.len() > 1 && w.chars().all(|c| c.is_ascii_uppercase()))
    };
    let (mut named, mut linked, mut absent) = (0, 0, Vec::new());
    let is_page = |file: &&String| Path::new(file).extension().is_some_and(|end| end == "md");
    for page in files.iter().filter(is_page) {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for name in text.split('`').skip(1).step_by(2).filter(|name| is_code(name)) {
            for name in spelled_out(name) {
                named += 1;
                if !there(&name) && !is_pattern(&name) && !NOT_OURS.contains(&name.as_str()) {
                    absent.push(format!("{page}: `{name}`"));
                }
            }
        }
        let folder = Path::new(page).parent().unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next())
        {
            if target.is_empty() || target.contains(':') {
                continue;
            }
            linked += 1;
            if !root().join(folder).join(target).exists() {
                absent.push(format!("{page}: a link to {target}"));
            }
        }
    }
    assert!(named > 100 && linked > 50, "{named} files and {linked} links were found");
    assert!(absent.is_empty(), "not there:\n{}", absent.join("\n"));
}

/// `.ci/run` checks with the version in `Cargo.toml`, so that is the one to tell of.
#[test]
fn the_rust_version_that_is_told_is_the_one_that_is_checked() {
    let claimed = env!("CARGO_PKG_RUST_VERSION");
    let told = [
        ("CONTRIBUTING.md", format!("Rust {claimed} or newer")),
        ("README.md", format!("[Rust](https://rustup.rs) {claimed} or later")),
    ];
    for (page, told) in told {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert!(text.contains(&told), "{page} does not say `{told}`");
    }
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("s/^rust-version = "), "CI does not ask which version is claimed");
}
