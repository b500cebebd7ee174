//! Every selector in a line, with its settings: what `thinfer methods` prints.

use serde_json::Value;

use super::{Lasso, Selector, Splbnn, StochasticGates, Svbnn};

/// One selector.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in commands and files.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its page.
    pub page: &'static str,
    /// Its settings in words.
    settings: &'static [(&'static str, &'static str)],
}

/// A setting of a selector.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// As `thinfer reproduce table4 --set` takes it.
    pub key: String,
    /// What it is where nobody sets it; a row of Table 4 can have its own.
    pub default: Value,
    /// What it does.
    pub about: &'static str,
}

const PAGE: &str = "docs/selectors.md";

const HIDDEN: (&str, &str) = ("hidden", "Units of the hidden layers");
const ACTIVATION: (&str, &str) = ("activation", "relu or tanh");
const BATCH: (&str, &str) = ("batch", "Rows of a step");

/// All selectors: those of the paper, then those that a practitioner would try first.
pub const SELECTORS: &[Entry] = &[
    Entry {
        name: "splbnn",
        about: "A mixture prior, a threshold, fine-tuning, and the start of most evidence (Sun et al.)",
        page: PAGE,
        settings: &[
            HIDDEN,
            ACTIVATION,
            ("bias", "Whether layers have a bias"),
            ("rate", "Learning rate of SGD"),
            BATCH,
            ("inclusion", "Prior probability of the slab"),
            ("spike_variance", "Variance of the spike"),
            ("slab_variance", "Variance of the slab"),
            ("steps", "Steps before the first threshold"),
            ("fine_tune_steps", "Steps after each threshold"),
            ("rounds", "Rounds of threshold and fine-tuning"),
            ("starts", "Networks to choose from by their evidence"),
        ],
    },
    Entry {
        name: "svbnn",
        about: "Spike-and-slab variational inference, Gumbel-softmax inclusion (Bai et al.)",
        page: PAGE,
        settings: &[
            HIDDEN,
            ACTIVATION,
            ("rate", "Learning rate of Adam"),
            BATCH,
            ("steps", "Steps"),
            ("slab_sd", "Standard deviation of the slab"),
            ("softness", "Temperature of the relaxed inclusion"),
            ("members", "Networks drawn for a prediction"),
        ],
    },
    Entry {
        name: "lasso",
        about: "Lasso, linear or logistic, its penalty chosen by cross-validation",
        page: PAGE,
        settings: &[
            ("folds", "Folds of the cross-validation"),
            ("penalties", "Penalties on the path"),
            ("smallest_share", "The last penalty as a share of the first"),
            ("rule", "one-standard-error, or minimum, which lets more columns in"),
        ],
    },
    Entry {
        name: "stochastic-gates",
        about: "A noisy gate before every input (Yamada et al.), the penalty by validation",
        page: PAGE,
        settings: &[
            HIDDEN,
            ("penalties", "Weights of the penalty to choose from"),
            ("start", "Means of the gates at the start"),
            ("sigma", "Noise of the gates"),
            ("epochs", "Epochs for each penalty"),
            BATCH,
            ("rate", "Learning rate of Adam at the start, to 0 along a cosine"),
        ],
    },
];

/// The selector of a name.
pub fn find(name: &str) -> Option<Entry> {
    SELECTORS.iter().find(|entry| entry.name == name).copied()
}

impl Entry {
    /// It with the settings that it has where nobody sets them.
    pub fn selector(&self) -> Selector {
        match self.name {
            "splbnn" => Selector::Splbnn(Splbnn::default()),
            "svbnn" => Selector::Svbnn(Svbnn::default()),
            "lasso" => Selector::Lasso(Lasso::default()),
            _ => Selector::StochasticGates(StochasticGates::default()),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> Vec<Setting> {
        let defaults = serde_json::to_value(self.selector()).unwrap_or_default();
        let setting = |(name, about): &(&str, &'static str)| Setting {
            key: format!("{}.{name}", self.name),
            default: defaults[*name].clone(),
            about,
        };
        self.settings.iter().map(setting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_selector_is_there_with_every_setting() {
        for entry in SELECTORS {
            assert_eq!(entry.selector().name(), entry.name);
            let Value::Object(defaults) = serde_json::to_value(entry.selector()).unwrap() else {
                panic!("{}", entry.name)
            };
            let mut known: Vec<&str> = defaults.keys().map(String::as_str).collect();
            known.retain(|key| *key != "kind");
            let mut told: Vec<&str> = entry.settings.iter().map(|setting| setting.0).collect();
            known.sort_unstable();
            told.sort_unstable();
            assert_eq!(told, known, "{}", entry.name);
            assert!(entry.settings().iter().all(|setting| !setting.default.is_null()));
            assert_eq!(find(entry.name).unwrap().about, entry.about);
        }
        assert!(find("lars").is_none());
    }
}
