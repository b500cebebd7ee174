//! Whether the stubs of the module name what is in it, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The first word behind `prefix` in each line that begins with it.
fn named(text: &str, prefix: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    lines.map(|rest| rest.chars().take_while(|c| is_name(*c)).collect()).collect()
}

/// What `lib.rs` exports, by its name in Python.
fn exported() -> BTreeSet<String> {
    let text = read("src/lib.rs");
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("use super::"));
    let names = lines.flat_map(|path| {
        let names = path.trim_end_matches(';').rsplit("::").next().unwrap_or_default();
        names.trim_matches(['{', '}']).split(", ").map(str::to_owned).collect::<Vec<_>>()
    });
    names.map(|name| if name == "hit_a_bug" { "_hit_a_bug".into() } else { name }).collect()
}

#[test]
fn stubs_name_every_function_and_class() {
    let stubs = read("python/thinfer/_thinfer.pyi");
    let mut stubbed = named(&stubs, "def ");
    stubbed.extend(named(&stubs, "class "));
    assert!(stubbed.remove("_Listener"), "it is a protocol, not a class of the module");
    assert_eq!(stubbed, exported());
}

#[test]
fn stubs_name_every_method() {
    let stubs = read("python/thinfer/_thinfer.pyi");
    for (class, file) in [("Run", "runs"), ("Table", "tables"), ("Predicted", "predictions")] {
        let body = stubs.split(&format!("class {class}:")).nth(1).unwrap();
        let body = body.split("\nclass ").next().unwrap().split("\ndef ").next().unwrap();
        let mut stubbed = named(body, "    def ");
        stubbed.remove("__init__");
        let source = read(&format!("src/{file}.rs"));
        let methods = source.split(&format!("#[pymethods]\nimpl {class} {{")).nth(1).unwrap();
        let methods = methods.split("\n}\n").next().unwrap();
        let mut there = named(methods, "    fn ");
        there.remove("new");
        assert_eq!(stubbed, there, "{class}");
    }
}
