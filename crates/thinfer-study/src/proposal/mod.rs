//! A configuration for data that comes without one: what is chosen, why, and how long it will take.
//!
//! [`of_table`] and [`of_images`] look at the data, measure a few real steps on this machine and
//! choose method, network and length for a stated time. [`Proposal::to_toml`] is the result as a
//! file with comments.

mod estimate;
mod images;
mod mirrored;

mod table;
mod target;
mod written;

use std::path::Path;

use thinfer_core::device::Device;
use thinfer_data::Result;
use thinfer_run::config::{Config, keys};

pub use estimate::Estimate;
pub use images::of_images;

pub use table::of_table;
pub use target::{no_target, usual_target};

/// What the user asks for besides the data.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Minutes that training may take; absent: the default of the kind of data.
    pub minutes: Option<f64>,
    /// Settings of the form `key=value`, which count more than what is chosen.
    pub set: Vec<String>,
    /// Where the run is to be computed.
    pub device: Device,
}

/// A setting that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its key.
    pub key: &'static str,
    /// Its value, as TOML.
    pub value: String,
    /// Why it has that value; nothing where the sentence of the key says enough.
    pub why: String,
}

/// A configuration, and what to tell of it.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What was chosen, in the order in which it is written.
    pub choices: Vec<Choice>,
    /// The whole configuration, with the user's own settings in it.
    pub config: Config,
    /// What the data is and what was chosen, in a few lines.
    pub lines: Vec<String>,
    /// What the user should know before, such as that a sensible result takes longer.
    pub notices: Vec<String>,
    /// How long training and evaluation will take, where that is known.
    pub estimate: Option<Estimate>,
}

impl Proposal {
    /// The chosen settings as a file with comments; `command` made it, and `schema` is where editors
    /// find what the keys are.
    pub fn to_toml(&self, command: &str, schema: &str) -> String {
        written::to_toml(self, command, schema)
    }
}

/// Settings that were chosen so far.
#[derive(Default)]
struct Choices(Vec<Choice>);

impl Choices {
    fn add(&mut self, key: &'static str, value: impl Into<String>, why: impl Into<String>) {
        self.0.push(Choice { key, value: value.into(), why: why.into() });
    }

    /// Gives a setting that was chosen another value.
    fn set(&mut self, key: &'static str, value: impl Into<String>, why: impl Into<String>) {
        self.0.retain(|choice| choice.key != key);
        self.add(key, value, why);
    }

    /// The whole configuration that they make with the user's own settings.
    fn config(&self, set: &[String]) -> Result<Config> {
        Config::read_text(Path::new("--set"), &written::plain(&self.0), set)
    }

    /// All of them, with the user's own settings in the place of what they replace.
    fn with(mut self, set: &[String]) -> Vec<Choice> {
        for given in set {
            let Some((name, text)) = given.split_once('=') else { continue };
            let Some(key) = keys::find(name.trim()) else { continue };
            let is_toml = toml::from_str::<toml::Table>(&format!("v = {text}")).is_ok();
            let value = if is_toml { text.trim().to_owned() } else { quoted(text.trim()) };
            match self.0.iter_mut().find(|choice| choice.key == key.name) {
                Some(choice) => (choice.value, choice.why) = (value, OWN.to_owned()),
                None => self.add(key.name, value, OWN),
            }
        }
        self.0
    }
}

/// Why a setting of the user's has its value.
const OWN: &str = "as you set it";

/// Whether the user sets a key.
fn is_set(set: &[String], key: &str) -> bool {
    set.iter().any(|given| given.split_once('=').is_some_and(|(name, _)| name.trim() == key))
}

/// Text as TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Epochs in coarse steps, so that machines of about the same speed have the same run: multiples
/// of ten cycles, each about 1.4 times the one before.
fn steps(room: f64) -> usize {
    let mut epochs = 10.0;
    while epochs * 1.414 <= room {
        epochs *= 1.414;
    }
    (epochs / 10.0).round() as usize * 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_come_in_coarse_steps_of_tens() {
        assert_eq!([0.0, 12.0, 15.0, 29.0, 250.0].map(steps), [10, 10, 10, 30, 230]);
        assert!((1..2000).all(|room| steps(f64::from(room)).is_multiple_of(10)));
    }
}
