//! The settings that methods are made from: the sections `method`, `prior` and `prune`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

use super::em_mcmc::{AfterFreeze, Cadence};
use super::registry::{MethodKind, own_keys};
use super::sghmc::{NoiseRule, RhoRule};
use crate::prune::{Grouping, Rule};
use crate::shrink::Shrinking;

/// The section `method`: what several methods read, and the keys that one method declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub struct MethodConfig {
    pub kind: MethodKind,
    pub beta1: f64,
    pub beta2: f64,
    pub momentum: f64,
    pub nesterov: bool,
    pub noise: NoiseRule,
    pub rho: RhoRule,
    pub initial_momentum: f64,
    pub clip: Option<f64>,
    #[serde(flatten)]
    pub own: OwnSettings,
}

/// The value of a key that one method declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    Switch(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

/// The values of the keys that single methods declare, by their names without `method.`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnSettings(BTreeMap<&'static str, Value>);

impl OwnSettings {
    /// A number.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.0.get(key)? {
            Value::Number(value) => Some(*value),
            _ => None,
        }
    }

    /// A whole number.
    pub fn whole(&self, key: &str) -> Option<usize> {
        match self.0.get(key)? {
            Value::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A word.
    pub fn word(&self, key: &str) -> Option<&str> {
        match self.0.get(key)? {
            Value::Text(word) => Some(word),
            _ => None,
        }
    }
}

/// Keys that `run.json` has always shown, as `null` where they are absent. Later ones are left out.
const SHOWN_WHERE_ABSENT: [&str; 9] = [
    "alpha",
    "sampling_epochs",
    "members",
    "draws",
    "posterior",
    "prior_sd",
    "kl_epochs",
    "random_sign",
    "first_scale",
];

impl Serialize for OwnSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, _) in own_keys() {
            let value = self.0.get(name);
            if value.is_some() || SHOWN_WHERE_ABSENT.contains(&name) {
                map.serialize_entry(name, &value)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for OwnSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut given = BTreeMap::<String, Option<Value>>::deserialize(deserializer)?;
        let own = own_keys().filter_map(|(name, kind)| {
            let value = match given.remove(name)?? {
                Value::Integer(whole) if kind.is_number() => Value::Number(whole as f64),
                other => other,
            };
            Some((name, value))
        });
        Ok(Self(own.collect()))
    }
}

/// The section `prior`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub struct PriorConfig {
    pub weight_decay: f64,
    pub spike_decay: f64,
    pub group: Grouping,
    pub soft_threshold: Option<f64>,
    pub spike_probability: Option<f64>,
}

/// The section `prune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub struct PruneConfig {
    pub regrow: bool,
    pub rule: Rule,
    pub hard_threshold: Option<f64>,
    pub target: Option<f64>,
    pub rate: f64,
    pub dense_layers: Vec<String>,
    pub keep_norm: bool,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub multiple: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub work_exponent: f64,
    pub shrink: Shrinking,
    pub warm_up_epochs: usize,
    pub freeze_after_epochs: Option<usize>,
    pub freeze_after_cycles: Option<usize>,
    #[serde(default, skip_serializing_if = "AfterFreeze::is_em")]
    pub after_freeze: AfterFreeze,
    pub cadence: Cadence,
}

// Keys that came later are left out of a file where they have their default, so that older runs
// stay readable.

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_one(multiple: &usize) -> bool {
    *multiple == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(exponent: &f64) -> bool {
    *exponent == 0.0
}
