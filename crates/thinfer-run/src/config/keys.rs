//! Every key that a configuration can have, as data: checks, suggestions, the schema, the presets,
//! the tables of `docs/config.md` and the completion of `--set` all come from these.
//!
//! A key is declared in its section's `section!`: `model`, `train` and `posterior` in `sections.rs`
//! beside this file, `method`, `prior` and `prune` in thinfer-core's `methods/settings.rs`, `data`
//! in thinfer-data's `settings.rs`. What one method alone reads is declared in the method's file.
//! Here are the keys without a section, and the schedules, which have the same six keys each.

pub use thinfer_core::keys::{Defaults, Key, Kind};
use thinfer_core::keys::{MOST, key};
use thinfer_core::methods::{self, MethodConfig, PriorConfig, PruneConfig};
use thinfer_data::DataConfig;
use toml::Value;

use super::sections::{ModelConfig, PosteriorConfig, TrainConfig};

const TOP: &[Key] = &[
    key(
        "format",
        Kind::Integer(0, MOST),
        "version of the file format; this program reads 1\n\n\
         Another number is refused; a file without the key counts as current",
    )
    .default("1"),
    key(
        "preset",
        Kind::Choice(&["exact", "paper", "reference-code"]),
        "which reading of the paper the defaults follow\n\nSee `docs/presets.md`",
    )
    .default("\"exact\""),
    key(
        "seed",
        Kind::Integer(0, i64::MAX),
        "everything random follows from it\n\n\
         Start values, noise, order of the rows, the split of a table",
    )
    .default("1"),
    key(
        "chains",
        Kind::Integer(1, 10_000),
        "independent chains\n\nThey differ in their random numbers alone",
    )
    .default("1"),
];

const SHAPES: &[&str] = &["constant", "cyclical", "steps"];
const TEMPERATURES: &[&str] = &["1/sqrt(N)", "1/N"];

/// The keys of a schedule; the first is its value, with the default.
macro_rules! schedule {
    ($name:literal, $value:expr, $about:literal, $default:literal) => {
        [
            key(concat!("schedule.", $name, ".value"), $value, $about).default($default),
            key(
                concat!("schedule.", $name, ".shape"),
                Kind::Choice(SHAPES),
                "its course over the run",
            )
            .default("\"constant\""),
            key(
                concat!("schedule.", $name, ".cycles"),
                Kind::Integer(1, 100_000),
                "cosine cycles, for shape = \"cyclical\"",
            )
            .default("1"),
            key(
                concat!("schedule.", $name, ".factor"),
                Kind::NumberAbove(0.0, 10.0),
                "multiplier at each of `at_epochs`, for shape = \"steps\"",
            )
            .default("0.1"),
            key(
                concat!("schedule.", $name, ".at_epochs"),
                Kind::Integers(0, MOST),
                "when to multiply, for shape = \"steps\"",
            )
            .default("[]"),
            key(
                concat!("schedule.", $name, ".warm_up_epochs"),
                Kind::Number(0.0, 1e9),
                "linear growth from 0 at the start\n\nOver so many epochs, with any shape",
            )
            .default("0.0"),
        ]
    };
}

const STEP_SIZE: [Key; 6] = {
    let mut keys =
        schedule!("step_size", Kind::NumberAbove(0.0, 1e6), "the learning rate l = Δt²", "0.01");
    keys[0] = keys[0].images("1.0");
    keys[1] = keys[1].default("\"cyclical\"");
    keys[2] = keys[2].default("6").images("4");
    keys
};
const TEMPERATURE: [Key; 6] = {
    let mut keys = schedule!(
        "temperature",
        Kind::NumberOr(TEMPERATURES),
        "k; the sampler targets exp(-L/k²), so 1/sqrt(N) is the posterior and 1/N a cold one",
        "\"1/sqrt(N)\""
    );
    keys[0] = keys[0].images("\"1/N\"");
    keys
};
const ETA: [Key; 6] = schedule!("eta", Kind::Number(0.0, 1e6), "the rate η of the ρ update", "0.1");
const WEIGHT_DECAY: [Key; 6] =
    schedule!("weight_decay", Kind::Number(0.0, 1e6), "a factor on the weight decay", "1.0");

/// All keys.
pub fn keys() -> impl Iterator<Item = Key> {
    let own = methods::METHODS.iter().flat_map(|method| method.keys);
    let schedules = [STEP_SIZE, TEMPERATURE, ETA, WEIGHT_DECAY].into_iter().flatten();
    let before = [TOP, DataConfig::KEYS, ModelConfig::KEYS, MethodConfig::KEYS];
    let after = [PriorConfig::KEYS, PruneConfig::KEYS, TrainConfig::KEYS, PosteriorConfig::KEYS];
    let (before, after) = (before.into_iter().flatten(), after.into_iter().flatten());
    before.chain(own).chain(after).copied().chain(schedules)
}

/// The key called `name`.
pub fn find(name: &str) -> Option<Key> {
    keys().find(|k| k.name == name)
}

/// What the key of a table that says which one it is may be called.
const WHICH: [&str; 3] = ["kind", "name", "type"];

/// The table nearest to the one that `name` is in, where there is no table of that name.
pub fn nearest_table(name: &str) -> Option<&'static str> {
    let (table, _) = split(name);
    let tables = || keys().map(|k| split(k.name).0);
    if tables().any(|known| known == table) {
        return None;
    }
    let near = tables().map(|known| (strsim::jaro_winkler(table, known), known));
    let near = near.max_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|(score, _)| *score > 0.8).map(|(_, known)| known)
}

/// The valid name nearest to `name`, if any is near. Keys of the same table come first, unless
/// exactly one other table has a key with the same last part. A table that is not there stands for
/// the nearest one that is: `[dta]` for `[data]`.
pub fn nearest(name: &str) -> Option<&'static str> {
    if let Some(table) = nearest_table(name) {
        let (_, last) = split(name);
        let meant = format!("{table}.{last}");
        let inside = keys().filter(|k| split(k.name).0 == table);
        let near = || best(inside, |k| strsim::jaro_winkler(last, split(k.name).1), 0.8);
        return find(&meant).map(|key| key.name).or_else(near);
    }
    let (table, last) = split(name);
    let inside = || keys().filter(|k| split(k.name).0 == table);
    if WHICH.contains(&last)
        && let Some(which) = inside().find(|k| WHICH.contains(&split(k.name).1))
    {
        return Some(which.name);
    }
    let mut same = keys().filter(|k| split(k.name).1 == last);
    if let (Some(only), None) = (same.next(), same.next()) {
        return Some(only.name);
    }
    let likeness = |k: &Key| strsim::jaro_winkler(last, split(k.name).1);
    let whole = |k: &Key| strsim::jaro_winkler(name, k.name).max(0.95 * likeness(k));
    best(inside(), likeness, 0.8).or_else(|| best(keys(), whole, 0.75))
}

/// The table of a key and its name in it.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

/// The key with the highest score, if that is above a limit.
fn best(
    keys: impl Iterator<Item = Key>,
    score: impl Fn(&Key) -> f64,
    above: f64,
) -> Option<&'static str> {
    let best = keys.map(|k| (score(&k), k.name)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > above).map(|(_, name)| name)
}

/// Whether a key of this kind takes `value`.
pub fn accepts(kind: Kind, value: &Value) -> bool {
    let number = || match value {
        Value::Float(v) => Some(*v),
        Value::Integer(v) => Some(*v as f64),
        _ => None,
    };
    match kind {
        Kind::Integer(low, high) => value.as_integer().is_some_and(|v| (low..=high).contains(&v)),
        Kind::Number(low, high) => number().is_some_and(|v| v >= low && v <= high),
        Kind::NumberAbove(low, high) => number().is_some_and(|v| v > low && v <= high),
        Kind::NumberBelow(low, high) => number().is_some_and(|v| v >= low && v < high),
        Kind::Choice(list) => value.as_str().is_some_and(|v| list.contains(&v)),
        Kind::NumberOr(list) => {
            number().is_some_and(|v| v > 0.0 && v.is_finite())
                || value.as_str().is_some_and(|v| list.contains(&v))
        }
        Kind::Switch => value.is_bool(),
        Kind::Text => value.is_str(),
        Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
        Kind::Integers(low, high) => value.as_array().is_some_and(|list| {
            list.iter().all(|v| v.as_integer().is_some_and(|v| (low..=high).contains(&v)))
        }),
    }
}

/// The JSON schema of configuration files.
pub fn schema() -> serde_json::Value {
    fn object() -> serde_json::Value {
        serde_json::json!({"type": "object", "additionalProperties": false, "properties": {}})
    }
    let mut root = object();
    for key in keys() {
        let mut at = &mut root;
        let parts: Vec<&str> = key.name.split('.').collect();
        for part in &parts[..parts.len() - 1] {
            at = &mut at["properties"][*part];
            if at.is_null() {
                *at = object();
            }
        }
        let mut leaf = key.kind.schema();
        leaf["description"] = key.about().into();
        at["properties"][parts[parts.len() - 1]] = leaf;
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "thinfer configuration".into();
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = keys().map(|k| k.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_slip_finds_its_key() {
        assert_eq!(nearest("train.epoch"), Some("train.epochs"));
        assert_eq!(nearest("tran.epochs"), Some("train.epochs"));
        assert_eq!(nearest("hard_treshold"), Some("prune.hard_threshold"));
        assert_eq!(nearest("schedule.stepsize.value"), Some("schedule.step_size.value"));
        assert_eq!(nearest("qqqq"), None);
        // A slip in the name of the table, which is alike in no other way.
        for (slip, key) in [
            ("dta.kind", "data.kind"),
            ("Data.path", "data.path"),
            ("modle.hidden", "model.hidden"),
            ("metod.kind", "method.kind"),
            ("schedule.step_sizes.value", "schedule.step_size.value"),
        ] {
            assert_eq!(nearest_table(slip), Some(key.rsplit_once('.').unwrap().0), "{slip}");
            assert_eq!(nearest(slip), Some(key), "{slip}");
        }
        assert_eq!((nearest("dta.zzzz"), nearest_table("dta.zzzz")), (None, Some("data")));
        assert_eq!((nearest_table("data.kind"), nearest_table("seed")), (None, None));
    }

    #[test]
    fn keys_of_the_same_table_come_first() {
        assert_eq!(nearest("model.kind"), Some("model.name"));
        assert_eq!(nearest("model.type"), Some("model.name"));
        assert_eq!(nearest("method.name"), Some("method.kind"));
        assert_eq!(nearest("data.type"), Some("data.kind"));
        assert_eq!(nearest("schedule.eta.val"), Some("schedule.eta.value"));
        assert_eq!(nearest("schedule.temperature.cycle"), Some("schedule.temperature.cycles"));
        // One other table has it by this very name.
        assert_eq!(nearest("train.regrow"), Some("prune.regrow"));
        assert_eq!(nearest("method.noise_sigma"), Some("model.noise_sigma"));
    }

    #[test]
    fn every_default_is_a_value_that_its_key_takes() {
        for key in keys() {
            let Defaults { exact, paper, reference_code, images } = key.defaults;
            for text in [exact, paper, reference_code, images].into_iter().flatten() {
                let value = super::super::presets::read(text);
                let fits = value.as_ref().is_some_and(|value| accepts(key.kind, value));
                assert!(fits || text == "absent", "{}: {text}", key.name);
                // The structs read them as JSON, which is written the same way.
                let same = serde_json::from_str::<serde_json::Value>(text).ok();
                assert_eq!(same.is_some(), text != "absent", "{}: {text}", key.name);
            }
        }
    }

    /// `docs/config-schema.json` is this schema. To renew it:
    /// `THINFER_UPDATE=1 cargo test -p thinfer-run the_committed_schema_is_current`.
    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config-schema.json");
        let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("THINFER_UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text);
    }
}
