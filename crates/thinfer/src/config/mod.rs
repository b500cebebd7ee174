//! Configuration: one TOML file, checked key by key, resolved against a preset.

mod differences;
pub mod keys;
mod notices;
mod presets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_engine::Law;
use thinfer_engine::cuda::Precision;
use toml::{Table, Value};

use crate::data::check_holdout;
use crate::data::simulate::{Example, Variant};
use crate::error::{Error, Result};
use crate::methods::em_mcmc::{AfterFreeze, Cadence};
use crate::methods::sghmc::{NoiseRule, RhoRule};
use crate::model::name_problem;
use crate::prune::{Grouping, Rule};
use crate::schedule::{Schedule, Shape};
use crate::train::Shrinking;
pub use differences::Difference;
pub use presets::{PRESET_DIFFERENCES, Preset};

/// The version of the file format that this program reads and writes.
pub const FORMAT: i64 = 1;

/// A resolved configuration: every value is there, of its type and in its range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "`keys.rs` says what each field does, for users and for readers")]
pub struct Config {
    pub format: i64,
    pub preset: Preset,
    pub seed: u64,
    pub chains: usize,
    pub data: DataConfig,
    pub model: ModelConfig,
    pub method: MethodConfig,
    pub prior: PriorConfig,
    pub prune: PruneConfig,
    pub schedule: ScheduleConfigs,
    pub train: TrainConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct DataConfig {
    pub kind: DataKind,
    pub variant: Variant,
    pub columns: Option<usize>,
    pub train_rows: usize,
    pub validation_rows: usize,
    pub test_rows: usize,
    pub seed: Option<u64>,
    pub path: Option<String>,
    pub target: Option<String>,
    pub task: TaskChoice,
    pub holdout: f64,
    pub image_size: usize,
    pub crop_padding: Option<usize>,
    pub flip: Option<bool>,
    pub skip_at_most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum DataKind {
    Example1,
    Example2,
    Example3,
    Bai,
    Friedman,
    Table,
    Shapes,
    Mnist,
    FashionMnist,
    Cifar10,
    Cifar100,
    Images,
}

impl DataKind {
    /// Whether the data is images.
    pub fn is_images(self) -> bool {
        self.example().is_none() && self != DataKind::Table
    }

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            DataKind::Example1 => "example1",
            DataKind::Example2 => "example2",
            DataKind::Example3 => "example3",
            DataKind::Bai => "bai",
            DataKind::Friedman => "friedman",
            DataKind::Table => "table",
            DataKind::Shapes => "shapes",
            DataKind::Mnist => "mnist",
            DataKind::FashionMnist => "fashion-mnist",
            DataKind::Cifar10 => "cifar10",
            DataKind::Cifar100 => "cifar100",
            DataKind::Images => "images",
        }
    }

    /// The simulated example, if it is one.
    pub fn example(self) -> Option<Example> {
        match self {
            DataKind::Example1 => Some(Example::Example1),
            DataKind::Example2 => Some(Example::Example2),
            DataKind::Example3 => Some(Example::Example3),
            DataKind::Bai => Some(Example::Bai),
            DataKind::Friedman => Some(Example::Friedman),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum TaskChoice {
    Auto,
    Regression,
    Classification,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct ModelConfig {
    pub name: String,
    pub label_smoothing: f64,
    pub hidden: Vec<usize>,
    pub activation: Activation,
    pub noise: NoiseModel,
    pub noise_sigma: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum Activation {
    Relu,
    Tanh,
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
    pub alpha: Option<f64>,
    pub sampling_epochs: Option<usize>,
    pub members: Option<usize>,
    pub draws: Option<usize>,
    pub posterior: Option<Law>,
    pub prior_sd: Option<f64>,
    pub kl_epochs: Option<f64>,
    pub random_sign: Option<f64>,
    pub first_scale: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub enum MethodKind {
    EmMcmc,
    Sghmc,
    CvAdam,
    Sgd,
    Csgld,
    Csghmc,
    DpfLin,
    Sm,
    Dsr,
    Rank1,
}

impl MethodKind {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            MethodKind::EmMcmc => "em-mcmc",
            MethodKind::Sghmc => "sghmc",
            MethodKind::CvAdam => "cv-adam",
            MethodKind::Sgd => "sgd",
            MethodKind::Csgld => "csgld",
            MethodKind::Csghmc => "csghmc",
            MethodKind::DpfLin => "dpf-lin",
            MethodKind::Sm => "sm",
            MethodKind::Dsr => "dsr",
            MethodKind::Rank1 => "rank1",
        }
    }

    /// Whether it keeps a given number of single weights alive, which `prune.target` says.
    pub fn is_sparse(self) -> bool {
        matches!(self, MethodKind::DpfLin | MethodKind::Sm | MethodKind::Dsr)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
pub struct PriorConfig {
    pub weight_decay: f64,
    pub spike_decay: f64,
    pub group: Grouping,
    pub soft_threshold: Option<f64>,
    pub spike_probability: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "see `keys.rs`")]
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

// Keys that came later are left out of a file where they have their default, so that older runs stay readable.

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

impl Config {
    /// Reads a file and applies `--set` overrides.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => {
                let problem = "is not text in UTF-8; give a configuration in TOML";
                Error::config(path.display().to_string(), problem)
            }
            _ => Error::file("read", path, e),
        })?;
        Self::parse(&text, overrides).map_err(|error| match error {
            Error::Config { key, problem } if key.is_empty() => {
                Error::config(path.display().to_string(), problem)
            }
            other => other,
        })
    }

    /// Parses text and applies overrides of the form `a.b=c`.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self> {
        let table: Table = toml::from_str(text).map_err(|e| {
            Error::config("", format!("is not valid TOML: {}", e.to_string().trim_end()))
        })?;
        let mut settings = BTreeMap::new();
        flatten("", &table, &mut settings);
        for given in overrides {
            let (key, value) = parse_override(given)?;
            settings.insert(key, value);
        }
        Self::resolve(&settings)
    }

    /// Checks settings key by key and fills in what the preset says.
    pub fn resolve(settings: &BTreeMap<String, Value>) -> Result<Self> {
        check_format(settings)?;
        for (name, value) in settings {
            check_key(name, value)?;
        }
        let preset = match settings.get("preset").and_then(Value::as_str) {
            Some("paper") => Preset::Paper,
            Some("reference-code") => Preset::ReferenceCode,
            _ => Preset::Exact,
        };
        let images = settings.get("data.kind").and_then(Value::as_str).is_some_and(is_images);
        let mut all = preset.defaults();
        if images {
            all.extend(preset.image_defaults());
        }
        let kind = settings.get("method.kind").cloned().and_then(|kind| kind.try_into().ok());
        let kind: MethodKind = kind.unwrap_or(MethodKind::EmMcmc);
        all.remove("method.clip");
        all.extend(presets::clip(preset, kind, images).map(|c| ("method.clip".into(), c.into())));
        all.extend(presets::method_defaults(kind, images));
        // A Cauchy number is far from its location now and then, so more of them are averaged.
        let law = settings.get("method.posterior").and_then(Value::as_str);
        if kind == MethodKind::Rank1 && law == Some("cauchy") {
            all.insert("method.draws".into(), Value::Integer(4));
        }
        if kind.is_sparse() {
            // They prune to a target and know no threshold.
            all.remove("prune.hard_threshold");
        }
        all.extend(settings.iter().map(|(k, v)| (k.clone(), v.clone())));
        // λ₁ is either given or computed; giving one replaces the default of the other.
        if settings.contains_key("prior.spike_probability")
            && !settings.contains_key("prior.soft_threshold")
        {
            all.remove("prior.soft_threshold");
        }
        // So is λ₂.
        if settings.contains_key("prune.target") && !settings.contains_key("prune.hard_threshold") {
            all.remove("prune.hard_threshold");
        }
        if all.get("method.clip").and_then(Value::as_str) == Some(keys::NO_LIMIT) {
            all.remove("method.clip");
        }
        let config: Config = Value::Table(unflatten(&all))
            .try_into()
            .map_err(|e| Error::config("", format!("cannot be understood: {e}")))?;
        config.check()?;
        Ok(config)
    }

    /// What single keys cannot say.
    fn check(&self) -> Result<()> {
        let refuse = |key: &str, problem: String| Err(Error::config(key, problem));
        if self.data.kind == DataKind::Table {
            for (key, value) in [("data.path", &self.data.path), ("data.target", &self.data.target)]
            {
                if value.is_none() {
                    return refuse(key, "is missing; data.kind = \"table\" needs it".into());
                }
            }
            check_holdout("data.holdout", self.data.holdout)?;
        }
        if self.data.kind.is_images()
            && let Some(problem) = name_problem(&self.model.name, &["mlp"])
        {
            return refuse("model.name", format!("`{}` {problem}", self.model.name));
        }
        if self.train.freeze_below.is_some()
            && !matches!(self.method.kind, MethodKind::EmMcmc | MethodKind::Sghmc)
        {
            let problem = format!(
                "freezes weights under Algorithms 2 and 3 (\"sghmc\", \"em-mcmc\"), but method.kind is \"{}\"",
                self.method.kind.name()
            );
            return refuse("train.freeze_below", problem);
        }
        if self.method.kind == MethodKind::EmMcmc {
            let prior = &self.prior;
            match (prior.soft_threshold, prior.spike_probability) {
                (None, None) => {
                    return refuse(
                        "prior.soft_threshold",
                        "is missing; give it, or prior.spike_probability to compute it".into(),
                    );
                }
                (Some(_), Some(_)) => {
                    return refuse(
                        "prior.spike_probability",
                        "is given together with prior.soft_threshold; give one of them".into(),
                    );
                }
                _ => {}
            }
            if prior.spike_decay <= prior.weight_decay {
                return refuse(
                    "prior.spike_decay",
                    format!(
                        "is {}, but must be larger than prior.weight_decay = {}: the spike is the narrow part",
                        prior.spike_decay, prior.weight_decay
                    ),
                );
            }
            if prior.spike_probability.is_some() && prior.weight_decay == 0.0 {
                return refuse(
                    "prior.weight_decay",
                    "is 0, so λ₁ cannot be computed from prior.spike_probability; give a positive one".into(),
                );
            }
            if self.preset == Preset::ReferenceCode && self.prune.regrow {
                return refuse(
                    "prune.regrow",
                    "is true, but the reference code sets pruned weights to zero in every step and cannot regrow; use preset = \"exact\" or \"paper\"".into(),
                );
            }
            self.check_pruning()?;
        }
        if self.method.kind == MethodKind::Rank1 && self.prune.target.is_some() {
            return refuse("prune.target", "is given, but a Rank-1 BNN prunes nothing".into());
        }
        if self.method.kind == MethodKind::Rank1 && !self.data.kind.is_images() {
            return refuse(
                "method.kind",
                "is \"rank1\", which scales the channels of image networks; a table needs another one".into(),
            );
        }
        Ok(())
    }

    fn check_pruning(&self) -> Result<()> {
        let prune = &self.prune;
        if prune.target.is_some() && prune.hard_threshold.is_some() {
            return Err(Error::config(
                "prune.target",
                "is given together with prune.hard_threshold, which it finds by itself; give one of them",
            ));
        }
        if prune.freeze_after_epochs.is_some() && prune.freeze_after_cycles.is_some() {
            return Err(Error::config(
                "prune.freeze_after_cycles",
                "is given together with prune.freeze_after_epochs; give one of them",
            ));
        }
        if prune.rule != Rule::MeanSquare && !self.data.kind.is_images() {
            return Err(Error::config(
                "prune.rule",
                "compares the channels of image networks; use \"mean-square\" for a table",
            ));
        }
        let of_ranges = [
            ("prune.multiple", prune.multiple > 1),
            ("prune.work_exponent", prune.work_exponent > 0.0),
        ];
        for (key, given) in of_ranges {
            if given && prune.rule == Rule::MeanSquare {
                return Err(Error::config(
                    key,
                    "is about channels, and prune.rule = \"mean-square\" prunes groups of weights; leave it out, or prune image networks by \"range\"",
                ));
            }
        }
        Ok(())
    }

    /// The configuration as a TOML file, complete.
    pub fn to_toml(&self) -> Result<String> {
        let text = toml::to_string(self)
            .map_err(|e| Error::config("", format!("cannot be written: {e}")))?;
        if !self.lifts_limit() {
            return Ok(text);
        }
        // A key that is not there would stand for the default.
        let none = format!("[method]\nclip = \"{}\"\n", keys::NO_LIMIT);
        Ok(text.replacen("[method]\n", &none, 1))
    }

    /// Whether the gradient has no limit where the default is one.
    fn lifts_limit(&self) -> bool {
        let default = presets::clip(self.preset, self.method.kind, self.data.kind.is_images());
        self.method.clip.is_none() && default.is_some()
    }

    /// A number that differs where the results could: checkpoint intervals do not count.
    pub fn fingerprint(&self) -> Result<u32> {
        Ok(crc32fast::hash(self.relevant().to_toml()?.as_bytes()))
    }

    /// The same with fixed checkpoint intervals, which change no result.
    fn relevant(&self) -> Self {
        let mut relevant = self.clone();
        relevant.train.checkpoint_seconds = 1.0;
        relevant.train.checkpoint_steps = None;
        relevant
    }

    /// The epochs of each cycle of the step size.
    pub fn cycles(&self) -> Vec<Range<usize>> {
        // How many rows there are changes the value of a schedule, not its shape.
        self.schedule.step_size.schedule(1).cycles(self.train.epochs)
    }

    /// The seed of simulated data.
    pub fn data_seed(&self) -> u64 {
        self.data.seed.unwrap_or(self.seed)
    }
}

fn is_images(kind: &str) -> bool {
    let kind: std::result::Result<DataKind, _> = Value::String(kind.to_owned()).try_into();
    kind.is_ok_and(DataKind::is_images)
}

fn flatten(prefix: &str, table: &Table, into: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => flatten(&path, inner, into),
            other => drop(into.insert(path, other.clone())),
        }
    }
}

fn unflatten(settings: &BTreeMap<String, Value>) -> Table {
    let mut root = Table::new();
    for (name, value) in settings {
        let mut at = &mut root;
        let mut parts = name.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                at.insert(part.to_owned(), value.clone());
                break;
            }
            let inner = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
            match inner {
                Value::Table(table) => at = table,
                // Keys are checked before: no key is a prefix of another.
                _ => break,
            }
        }
    }
    root
}

fn parse_override(given: &str) -> Result<(String, Value)> {
    const FORM: &str = "is not of the form key=value; write for example --set train.epochs=100";
    let Some((key, text)) = given.split_once('=').map(|(key, text)| (key.trim(), text.trim()))
    else {
        let name = if given.trim().is_empty() { "--set" } else { given };
        return Err(Error::config(name, FORM));
    };
    if key.is_empty() {
        return Err(Error::config(format!("--set {given}"), FORM));
    }
    let parsed = toml::from_str::<Table>(&format!("value = {text}"));
    let value = match parsed {
        Ok(mut table) => table.remove("value").unwrap_or(Value::String(text.to_owned())),
        // A bare word is text, so that --set preset=paper needs no quotes.
        Err(_) => Value::String(text.to_owned()),
    };
    Ok((key.to_owned(), value))
}

fn check_format(settings: &BTreeMap<String, Value>) -> Result<()> {
    match settings.get("format").and_then(Value::as_integer) {
        Some(format) if format != FORMAT => Err(Error::config(
            "format",
            format!(
                "is {format}, but this thinfer {} reads format {FORMAT}; use the version that wrote the file, or adapt the keys (docs/config.md) and set format = {FORMAT}",
                env!("CARGO_PKG_VERSION")
            ),
        )),
        _ => Ok(()),
    }
}

fn check_key(name: &str, value: &Value) -> Result<()> {
    let Some(key) = keys::find(name) else {
        let inside = |key: &keys::Key| key.name.split_once('.').is_some_and(|k| k.0 == name);
        if let Some(first) = keys::keys().find(inside) {
            let problem =
                format!("is a table of settings; give one of them, such as `{}`", first.name);
            return Err(Error::config(name, problem));
        }
        let problem = match keys::nearest(name) {
            Some(near) => format!("is not a key; did you mean `{near}`?"),
            None => "is not a key; docs/config.md lists all of them".to_owned(),
        };
        return Err(Error::config(name, problem));
    };
    if key.kind.accepts(value) {
        return Ok(());
    }
    let mut problem = format!("is {value}, but must be {}", key.kind.allowed());
    if let (keys::Kind::Choice(list) | keys::Kind::NumberOr(list), Some(word)) =
        (key.kind, value.as_str())
    {
        let near = list
            .iter()
            .map(|w| (strsim::jaro_winkler(word, w), w))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(score, _)| *score > 0.7);
        if let Some((_, near)) = near {
            problem.push_str(&format!("; did you mean \"{near}\"?"));
        }
    }
    Err(Error::config(name, problem))
}
