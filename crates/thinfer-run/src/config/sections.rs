//! What a configuration holds, section by section; `keys.rs` says what each value does.

use serde::{Deserialize, Serialize};
use thinfer_core::model::Activation;
use thinfer_core::schedule::{Schedule, Shape};
use thinfer_engine::cuda::Precision;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct ModelConfig {
    pub name: String,
    pub label_smoothing: f64,
    pub hidden: Vec<usize>,
    pub activation: Activation,
    pub noise: NoiseModel,
    pub noise_sigma: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likelihood: Option<Likelihood>,
    #[serde(default = "default_dof", skip_serializing_if = "is_default_dof")]
    pub dof: f64,
}

/// What a number is like around what the network says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum Likelihood {
    Normal,
    StudentT,
    Poisson,
    NegativeBinomial,
}

/// Tails that forgive outliers and still have a variance.
fn default_dof() -> f64 {
    4.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_default_dof(dof: &f64) -> bool {
    *dof == default_dof()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum NoiseModel {
    Known,
    Learned,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct ScheduleConfigs {
    pub step_size: ScheduleConfig,
    pub temperature: ScheduleConfig,
    pub eta: ScheduleConfig,
    pub weight_decay: ScheduleConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct ScheduleConfig {
    pub value: ScheduleValue,
    pub shape: ShapeName,
    pub cycles: usize,
    pub factor: f64,
    pub at_epochs: Vec<usize>,
    pub warm_up_epochs: f64,
}

/// A number, or a word that depends on the number of training rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScheduleValue {
    /// As it stands.
    Number(f64),
    /// `1/sqrt(N)` or `1/N`.
    Word(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum ShapeName {
    Constant,
    Cyclical,
    Steps,
}

impl ScheduleConfig {
    /// The schedule for `n` training rows.
    pub fn schedule(&self, n: usize) -> Schedule {
        let value = match &self.value {
            ScheduleValue::Number(v) => *v,
            ScheduleValue::Word(word) if word == "1/N" => 1.0 / n as f64,
            ScheduleValue::Word(_) => 1.0 / (n as f64).sqrt(),
        };
        let shape = match self.shape {
            ShapeName::Constant => Shape::Constant,
            ShapeName::Cyclical => Shape::Cyclical { cycles: self.cycles },
            ShapeName::Steps => {
                Shape::Steps { factor: self.factor, at_epochs: self.at_epochs.clone() }
            }
        };
        Schedule { value, shape, warm_up_epochs: self.warm_up_epochs }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct TrainConfig {
    pub epochs: usize,
    pub batch: usize,
    pub samples_per_cycle: usize,
    pub members: Members,
    pub record_every_epochs: Option<usize>,
    pub evaluate_every_epochs: usize,
    pub precision: PrecisionName,
    #[serde(default)]
    pub trace: Vec<String>,
    pub freeze_below: Option<f64>,
    pub freeze_layer_share: Option<f64>,
    pub checkpoint_seconds: f64,
    pub checkpoint_steps: Option<u64>,
}

/// Which samples are averaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct PosteriorConfig {
    pub burn_in: Option<f64>,
    pub thin: Option<usize>,
}

impl PosteriorConfig {
    /// Whether all is left to the defaults.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a posterior is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum Members {
    Snapshots,
    Last,
}

/// The arithmetic on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum PrecisionName {
    Bf16,
    Tf32,
    F32,
}

impl From<PrecisionName> for Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::Bf16 => Precision::Bf16,
            PrecisionName::Tf32 => Precision::Tf32,
            PrecisionName::F32 => Precision::F32,
        }
    }
}
