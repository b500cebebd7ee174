//! Every method in a line, with the keys that it reads: what `thinfer methods` prints.

use thinfer_core::methods::{self, Declaration, MethodKind};

use crate::config::keys::{self, Key};

/// One method.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Which.
    pub kind: MethodKind,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its page.
    pub page: &'static str,
}

/// Keys that every method reads.
pub const COMMON: &[&str] =
    &["prior.weight_decay", "prior.sd", "schedule.step_size", "schedule.weight_decay"];

/// All methods: those of the paper, then those that it compares with.
pub const METHODS: &[Entry] = &{
    let mut all = [Entry::of(methods::METHODS[0]); methods::METHODS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = Entry::of(methods::METHODS[at]);
        at += 1;
    }
    all
};

impl Entry {
    const fn of(method: &'static Declaration) -> Self {
        Self { kind: MethodKind::of(method), about: method.about, page: method.page }
    }

    /// The keys that the method reads, those that all methods share last.
    pub fn keys(&self) -> Vec<Key> {
        let under = |key: &Key, name: &str| {
            let rest = key.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.key_names().flat_map(|name| keys::keys().filter(move |key| under(key, name))).collect()
    }

    /// The same in short: one name for all keys of a schedule.
    pub fn key_names(&self) -> impl Iterator<Item = &'static str> {
        self.kind.declaration().reads.iter().chain(COMMON).copied()
    }
}

/// The method called `name` in a configuration.
pub fn find(name: &str) -> Option<Entry> {
    METHODS.iter().copied().find(|entry| entry.kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_listed_with_keys_and_a_page_that_exist() {
        let Some(keys::Kind::Choice(kinds)) = keys::find("method.kind").map(|key| key.kind) else {
            panic!("method.kind is a choice");
        };
        let listed: Vec<&str> = METHODS.iter().map(|entry| entry.kind.name()).collect();
        assert_eq!(listed, kinds);
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        for entry in METHODS {
            let page = std::fs::read_to_string(format!("{root}{}", entry.page)).unwrap();
            let kind = format!("method.kind = \"{}\"", entry.kind.name());
            assert!(page.contains(&kind), "{} does not say {kind}", entry.page);
            for name in entry.key_names() {
                let (before, after) = (format!("{name}."), keys::find(name));
                let there =
                    after.is_some() || keys::keys().any(|key| key.name.starts_with(&before));
                assert!(there, "{name} is no key");
            }
            assert_eq!(entry.keys().len(), {
                let schedules = entry.key_names().filter(|n| n.starts_with("schedule")).count();
                entry.key_names().count() + 5 * schedules
            });
        }
    }
}
