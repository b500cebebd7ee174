//! Where two configurations differ, key by key.

use std::collections::BTreeMap;

use thinfer_core::methods::NO_LIMIT;
use thinfer_data::{Error, Result};
use toml::{Table, Value};

use super::{Config, flatten};

/// A key that two configurations do not have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its dotted name.
    pub key: String,
    /// Its value in the first, or `absent`.
    pub here: String,
    /// Its value in the other.
    pub there: String,
}

impl Config {
    /// Every key whose value is another one in `other`; checkpoint intervals change no result and
    /// do not count.
    pub fn differences(&self, other: &Config) -> Result<Vec<Difference>> {
        let (here, there) = (self.settings()?, other.settings()?);
        let keys = here.keys().chain(there.keys().filter(|key| !here.contains_key(*key)));
        let shown = |value: Option<&Value>| value.map_or("absent".into(), ToString::to_string);
        Ok(keys
            .filter(|key| here.get(*key) != there.get(*key))
            .map(|key| Difference {
                key: key.clone(),
                here: shown(here.get(key)),
                there: shown(there.get(key)),
            })
            .collect())
    }

    /// All keys with their values.
    fn settings(&self) -> Result<BTreeMap<String, Value>> {
        let table = Table::try_from(self.relevant())
            .map_err(|e| Error::config("", format!("cannot be written: {e}")))?;
        let mut settings = BTreeMap::new();
        flatten("", &table, &mut settings);
        if self.lifts_limit() {
            settings.insert("method.clip".into(), NO_LIMIT.into());
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_with_both_values() {
        let config = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
            Config::parse("", &set).unwrap()
        };
        let before = config(&["train.checkpoint_seconds=3"]);
        let now = config(&["seed=7", "train.trace=[\"fc1:in:0\"]", "data.columns=9"]);
        let found = now.differences(&before).unwrap();
        let found: Vec<[&str; 3]> = found.iter().map(|d| [&*d.key, &*d.here, &*d.there]).collect();
        let seed = before.seed.to_string();
        assert_eq!(
            found,
            [
                ["data.columns", "9", "absent"],
                ["seed", "7", &seed],
                ["train.trace", "[\"fc1:in:0\"]", "[]"],
            ]
        );
        assert_eq!(before.differences(&config(&[])).unwrap(), []);
    }
}
