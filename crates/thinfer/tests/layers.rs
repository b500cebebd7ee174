//! Modules of a crate have no cycles: what is above may use what is below, and never the other way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose order inside is checked.
const CRATES: [&str; 6] = [
    "thinfer-engine",
    "thinfer-data",
    "thinfer-core",
    "thinfer-run",
    "thinfer-study",
    "thinfer-cli",
];

/// Which modules a module uses, with a file that does.
type Uses = BTreeMap<String, BTreeMap<String, PathBuf>>;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push(path);
        }
    }
}

/// Whether a file is compiled for tests alone.
fn is_test(path: &Path) -> bool {
    path.components().any(|part| {
        let name = Path::new(part.as_os_str()).file_stem().unwrap_or_default();
        name == "tests" || name == "testing"
    })
}

/// The text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The first names behind `prefix` in a text: `prefix::name` and `prefix::{name, other::part}`.
fn names_behind(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in text.match_indices(prefix) {
        if text[..at].chars().next_back().is_some_and(|c| is_name(c) || c == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(rest.chars().take_while(|c| is_name(*c)).collect());
            continue;
        };
        let mut depth = 1;
        let mut name = String::new();
        let mut begins = true;
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 1 && is_name(c) && begins {
                name.push(c);
                continue;
            }
            // A name begins the list or follows a comma, with nothing but blanks before it.
            begins &= name.is_empty() && c.is_whitespace();
            begins |= depth == 1 && c == ',';
            if !name.is_empty() {
                names.insert(std::mem::take(&mut name));
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn uses(root: &Path) -> Uses {
    let mut files = Vec::new();
    sources(root, &mut files);
    let module = |path: &Path| {
        let first = path.strip_prefix(root).unwrap().components().next().unwrap();
        Path::new(first.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let all: BTreeSet<String> = files.iter().map(|path| module(path)).collect();
    let mut uses = Uses::new();
    for path in files.iter().filter(|path| !is_test(path)) {
        let own = module(path);
        if own == "lib" || own == "main" {
            continue;
        }
        let text = code(&fs::read_to_string(path).unwrap());
        let mut names = names_behind(&text, "crate::");
        // What `super` means at the top of the crate.
        let depth = path.strip_prefix(root).unwrap().components().count();
        let up =
            if path.file_name().is_some_and(|name| name == "mod.rs") { depth - 1 } else { depth };
        names.extend(names_behind(&text, &"super::".repeat(up)));
        for name in names.into_iter().filter(|name| *name != own && all.contains(name)) {
            uses.entry(own.clone()).or_default().insert(name, path.clone());
        }
    }
    uses
}

/// A way from `from` back to itself, if there is one.
fn cycle(uses: &Uses, from: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in uses.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            let mut way = way.clone();
            way.push(next.clone());
            if next == from {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push(way);
            }
        }
    }
    None
}

#[test]
fn modules_of_a_crate_have_no_cycles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for name in CRATES {
        let uses = uses(&crates.join(name).join("src"));
        assert!(uses.len() > 3, "{name}: nothing was read");
        let Some(way) = uses.keys().find_map(|module| cycle(&uses, module)) else { continue };
        let edge = |pair: &[String]| {
            let file = uses[&pair[0]][&pair[1]].strip_prefix(&crates).unwrap();
            format!("{} -> {} ({})", pair[0], pair[1], file.display())
        };
        let edges: Vec<String> = way.windows(2).map(edge).collect();
        wrong.push(format!("{name}: {}", edges.join(", ")));
    }
    assert!(wrong.is_empty(), "modules use each other in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn names_are_found_in_paths_and_in_lists() {
    let text = "use crate::{a, b::{c, d}, e as f};\nlet x = crate::g::h; mycrate::i; xcrate::j";
    let found: Vec<String> = names_behind(text, "crate::").into_iter().collect();
    assert_eq!(found, ["a", "b", "e", "g"]);
    assert_eq!(code("use a;\n// crate::b\nx\n#[cfg(test)]\nmod tests {\ncrate::c"), "use a;\nx");
    let circle = Uses::from([
        ("a".into(), BTreeMap::from([("b".into(), "a.rs".into())])),
        ("b".into(), BTreeMap::from([("a".into(), "b.rs".into())])),
    ]);
    assert_eq!(cycle(&circle, "a"), Some(vec!["a".into(), "b".into(), "a".into()]));
}
