//! The tables of `docs/config.md`, made from the declared keys, methods and data.

use thinfer_core::keys::MOST;
use thinfer_core::methods::{METHODS, When};
use thinfer_data::simulate::DESIGNS;

use super::super::keys::{Key, Kind, keys};
use super::super::{Preset, flatten};
use crate::registry::COMMON;

/// Names of the tables, each of which stands on the page between two comments.
const SECTIONS: [&str; 9] =
    ["", "data", "model", "method", "prior", "prune", "schedule", "train", "posterior"];

/// The keys of a section.
fn section(name: &str) -> String {
    let head = "| key | allowed | default for `exact` | meaning |\n|---|---|---|---|\n";
    let inside = |key: &Key| key.name.split_once('.').map_or("", |parts| parts.0) == name;
    let row = |key: Key| {
        let default = Preset::Exact.default(&key).map_or("absent".into(), code);
        let marks = marks(&key);
        let default = [default, marks].join(" ");
        format!(
            "| `{}` | {} | {} | {} |\n",
            key.name,
            allowed(key.kind),
            default.trim_end(),
            prose(&key.meaning())
        )
    };
    head.to_owned() + &keys().filter(inside).map(row).collect::<String>()
}

fn marks(key: &Key) -> String {
    let presets = key.defaults.paper.or(key.defaults.reference_code).is_some();
    let mut declared = METHODS.iter().flat_map(|method| method.defaults);
    let methods = declared.any(|(_, text)| settings(text).iter().any(|(name, _)| name == key.name));
    let marks = [(presets, "¹"), (key.defaults.images.is_some(), "²"), (methods, "³")];
    marks.iter().filter(|(holds, _)| *holds).map(|(_, mark)| *mark).collect::<Vec<_>>().join(" ")
}

/// What a TOML text sets.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut settings = std::collections::BTreeMap::new();
    flatten("", &toml::from_str(text).unwrap(), &mut settings);
    settings.into_iter().map(|(key, value)| (key, value.to_string())).collect()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Text of a key on the page: pages are linked.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match part.strip_prefix("docs/") {
        Some(page) if at % 2 == 1 => format!("[{page}]({page})"),
        _ if at % 2 == 1 => code(part),
        _ => part.to_owned(),
    });
    parts.collect::<String>().replace('|', "&#124;")
}

fn allowed(kind: Kind) -> String {
    let words = |list: &[&str]| list.iter().map(|w| code(&format!("\"{w}\""))).collect::<Vec<_>>();
    match kind {
        Kind::Integer(low, high) => format!("whole number, {low} to {}", whole(high)),
        Kind::Number(low, high) => format!("number in [{low}, {}]", number(high)),
        Kind::NumberAbove(low, high) => format!("number in ({low}, {}]", number(high)),
        Kind::NumberBelow(low, high) => format!("number in [{low}, {})", number(high)),
        Kind::Choice(list) => words(list).join(", "),
        Kind::NumberOr(list) => format!("number above 0, or {}", words(list).join(", ")),
        Kind::Switch => "`true` or `false`".into(),
        Kind::Text => "text".into(),
        Kind::Texts => "list of texts".into(),
        Kind::Integers(low, high) => {
            format!("list of whole numbers, each {low} to {}", whole(high))
        }
    }
}

fn whole(value: i64) -> String {
    match value {
        i64::MAX => "2⁶³ − 1".into(),
        MOST => "2⁵³".into(),
        _ => number(value as f64),
    }
}

/// A power of ten as such from 10⁴ on.
fn number(value: f64) -> String {
    let exponent = value.log10().round();
    if exponent < 4.0 || 10f64.powf(exponent) != value {
        return value.to_string();
    }
    let digits = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().collect::<Vec<_>>();
    format!("10{}", digits[exponent as usize])
}

/// The simulated designs.
fn designs() -> String {
    let head = "| `data.kind` | what it is | columns as published | of these matter |\n|---|---|---|---|\n";
    let row = |design: &&thinfer_data::simulate::Design| {
        format!(
            "| `\"{}\"` | {} | {} | {} |\n",
            design.name, design.about, design.columns, design.relevant
        )
    };
    head.to_owned() + &DESIGNS.iter().map(row).collect::<String>()
}

/// The defaults for images.
fn images() -> String {
    let row = |key: Key| match key.defaults.images {
        Some(text) if text != "absent" => Some(format!("| `{}` | `{text}` |\n", key.name)),
        Some(_) => Some(format!("| `{}` | absent ³ |\n", key.name)),
        None => None,
    };
    "| key | default for images |\n|---|---|\n".to_owned()
        + &keys().filter_map(row).collect::<String>()
}

/// The keys that each method reads.
fn reads() -> String {
    let all: Vec<String> = COMMON.iter().map(|name| code(name)).collect();
    let row = |method: &&thinfer_core::methods::Declaration| {
        let own: Vec<String> = method.reads.iter().map(|name| code(name)).collect();
        let page = method.page.strip_prefix("docs/").unwrap_or(method.page);
        format!("| [`{}`]({page}) | {} |\n", method.name, own.join(", "))
    };
    format!(
        "| method | keys that it reads |\n|---|---|\n| all | {} |\n{}",
        all.join(", "),
        METHODS.iter().map(row).collect::<String>()
    )
}

/// The defaults that methods have of their own.
fn of_methods() -> String {
    let mut page = "| method | where | defaults |\n|---|---|---|\n".to_owned();
    for method in METHODS {
        for (when, text) in method.defaults {
            let place = match when {
                When::Always => "always".to_owned(),
                When::Table => "`data.kind = \"table\"`".to_owned(),
                When::Images => "images".to_owned(),
                When::ExactImages => "images, `preset = \"exact\"`".to_owned(),
                When::Given(key, word) => format!("`{key} = \"{word}\"` is given"),
            };
            let set = settings(text);
            let set: Vec<String> = set.iter().map(|(k, v)| code(&format!("{k} = {v}"))).collect();
            page += &format!("| `{}` | {place} | {} |\n", method.name, set.join(", "));
        }
    }
    page
}

/// The page with its tables made anew.
fn renewed(page: &str) -> String {
    let mut tables: Vec<(String, String)> = SECTIONS
        .iter()
        .map(|name| (format!("keys {name}").trim_end().to_owned(), section(name)))
        .collect();
    for (name, table) in [
        ("simulated designs", designs()),
        ("images", images()),
        ("keys of methods", reads()),
        ("defaults of methods", of_methods()),
    ] {
        tables.push((name.to_owned(), table));
    }
    let mut page = page.to_owned();
    for (name, table) in tables {
        let (begin, end) = (format!("<!-- made: {name} -->\n"), "<!-- end -->");
        let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("no end of {begin}"));
        page = format!("{before}{begin}\n{table}\n{end}{after}");
    }
    page
}

/// The tables of the page are what is declared. To renew them:
/// `THINFER_UPDATE=1 cargo test -p thinfer-run the_reference_is_current`.
#[test]
fn the_reference_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let page = std::fs::read_to_string(path).unwrap();
    let renewed = renewed(&page);
    if std::env::var_os("THINFER_UPDATE").is_some() {
        std::fs::write(path, &renewed).unwrap();
    } else {
        assert!(page == renewed, "docs/config.md is not current; see the comment of this test");
    }
}

#[test]
fn ranges_are_written_as_one_reads_them() {
    assert_eq!(allowed(Kind::NumberBelow(0.0, 1.0)), "number in [0, 1)");
    assert_eq!(allowed(Kind::NumberAbove(0.0, 0.8)), "number in (0, 0.8]");
    assert_eq!(allowed(Kind::Integer(1, 100_000_000)), "whole number, 1 to 10⁸");
    assert_eq!(allowed(Kind::Integer(0, i64::MAX)), "whole number, 0 to 2⁶³ − 1");
    assert_eq!(prose("see `docs/a.md`, |w| and `b`"), "see [a.md](a.md), &#124;w&#124; and `b`");
}
