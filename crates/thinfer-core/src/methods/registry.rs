//! What each method says of itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thinfer_data::Result;
use thinfer_engine::noise::Key as NoiseKey;
use thinfer_engine::{Kernel, Network};

use super::settings::{MethodConfig, PriorConfig, PruneConfig};
use super::{METHODS, Method, em_mcmc};
use crate::keys::{Key, Kind};

/// The names of all methods.
pub const NAMES: &[&str] = &{
    let mut names = [""; METHODS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = METHODS[at].name;
        at += 1;
    }
    names
};

/// What a method says of itself.
pub struct Declaration {
    /// Its name in a configuration.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its page.
    pub page: &'static str,
    /// The keys that it reads, besides those that all methods read. One that others begin with
    /// stands for all of them.
    pub reads: &'static [&'static str],
    /// The keys that it declares, since no other method has them.
    pub keys: &'static [Key],
    /// Defaults that differ from those of the preset, as TOML. Later ones count.
    pub defaults: &'static [(When, &'static str)],
    /// What one key cannot say alone.
    pub check: Option<fn(&Choices<'_>) -> Result<()>>,
    /// The network that it trains, where that is another one.
    pub network: Option<fn(&MethodConfig, &Network) -> Result<Network>>,
    /// Its kernels for GPUs; methods may share one.
    pub kernels: &'static [Kernel],
    /// Makes it.
    pub build: fn(&Setup<'_>) -> Result<Arc<dyn Method>>,
}

/// When a default holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Where the data is a table of the user's.
    Table,
    /// Where the data is images.
    Images,
    /// Where the data is images and the preset `exact`.
    ExactImages,
    /// Where a key is given as this word.
    Given(&'static str, &'static str),
}

/// The settings that a method may refuse.
pub struct Choices<'a> {
    /// The section `method`.
    pub method: &'a MethodConfig,
    /// The section `prior`.
    pub prior: &'a PriorConfig,
    /// The section `prune`.
    pub prune: &'a PruneConfig,
    /// Whether the data is images.
    pub images: bool,
    /// Whether the preset is `reference-code`.
    pub reference_code: bool,
}

/// What a method of one chain is made from.
pub struct Setup<'a> {
    /// The section `method`.
    pub method: &'a MethodConfig,
    /// The section `prior`.
    pub prior: &'a PriorConfig,
    /// The section `prune`.
    pub prune: &'a PruneConfig,
    /// The network that it trains.
    pub network: &'a Network,
    /// The variable that each column of a table belongs to; images have none.
    pub columns: Option<&'a [usize]>,
    /// N, the number of training rows.
    pub train_rows: usize,
    /// Chains of the run.
    pub chains: usize,
    /// Rows a step.
    pub batch: usize,
    /// Epochs in the run.
    pub epochs: usize,
    /// The epochs of each cycle of the step size.
    pub cycles: Vec<Range<usize>>,
    /// The first epoch after which a sample is taken; all before is warm-up.
    pub first_sample_epoch: usize,
    /// The last epoch in which the mask may change.
    pub freeze_after_epochs: Option<usize>,
    /// The key of the noise.
    pub key: NoiseKey,
}

/// Which method: a name that a configuration knows.
#[derive(Clone, Copy)]
pub struct MethodKind(&'static Declaration);

impl MethodKind {
    /// The method of a declaration.
    pub const fn of(declaration: &'static Declaration) -> Self {
        Self(declaration)
    }

    /// The method called `name`.
    pub fn find(name: &str) -> Option<Self> {
        METHODS.iter().find(|method| method.name == name).map(|method| Self(method))
    }

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What it says of itself.
    pub fn declaration(self) -> &'static Declaration {
        self.0
    }

    /// Whether it reads a key.
    pub fn reads(self, key: &str) -> bool {
        self.0.reads.contains(&key)
    }

    /// Whether it reads a key that not all methods read, or one that such a key stands for.
    pub fn reads_own(self, key: &str) -> bool {
        let is_of = |read: &&str| {
            key.strip_prefix(*read).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.0.reads.iter().any(is_of)
    }

    /// Whether its update is one of kernels, for GPUs and for networks of images.
    pub fn has_kernels(self) -> bool {
        !self.0.kernels.is_empty()
    }

    /// Whether it keeps a given number of single weights alive, which `prune.target` says.
    pub fn is_sparse(self) -> bool {
        self.reads("prune.target") && !self.reads("prune.hard_threshold")
    }
}

/// Algorithm 3.
impl Default for MethodKind {
    fn default() -> Self {
        Self(&em_mcmc::METHOD)
    }
}

impl PartialEq for MethodKind {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for MethodKind {}

impl fmt::Debug for MethodKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Serialize for MethodKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

impl<'de> Deserialize<'de> for MethodKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::find(&name).ok_or_else(|| de::Error::unknown_variant(&name, NAMES))
    }
}

/// The keys that single methods declare, by their names without `method.`.
pub(super) fn own_keys() -> impl Iterator<Item = (&'static str, Kind)> {
    let short = |key: &'static Key| Some((key.name.strip_prefix("method.")?, key.kind));
    METHODS.iter().flat_map(|method| method.keys).filter_map(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_declares_keys_of_its_section_that_it_reads() {
        for method in METHODS {
            for key in method.keys {
                assert!(key.name.starts_with("method."), "{}", key.name);
                assert!(method.reads.contains(&key.name), "{}", key.name);
            }
        }
    }
}
