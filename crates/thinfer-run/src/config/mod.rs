//! Configuration: one TOML file, checked key by key, resolved against a preset.

mod differences;
pub mod keys;
mod notices;
mod presets;
mod sections;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_core::methods::em_mcmc::Assignment;
use thinfer_core::methods::{Choices, NO_LIMIT};
use thinfer_core::model::name_problem;
use thinfer_core::posterior::SampleRule;
use thinfer_core::schedule::{Stages, sampling_epochs};
use thinfer_data::files::regular;
use thinfer_data::{Error, Result};
use thinfer_data::{check_holdout, check_split};
use toml::{Table, Value};

pub use differences::Difference;
pub use presets::{Preset, preset_differences};
pub use sections::{
    Likelihood, Members, ModelConfig, NoiseModel, PosteriorConfig, PrecisionName, ScheduleConfig,
    ScheduleConfigs, ScheduleValue, ShapeName, TrainConfig,
};
pub use thinfer_core::methods::{MethodConfig, MethodKind, OwnSettings, PriorConfig, PruneConfig};
pub use thinfer_core::model::Activation;
pub use thinfer_data::{DataConfig, DataKind, TaskChoice};

/// Bytes that a configuration may have.
const MOST_BYTES: u64 = 16 << 20;

/// The weight decays of the prior, and the standard deviations that can be given instead.
const WIDTHS: [(&str, &str); 2] =
    [("prior.weight_decay", "prior.sd"), ("prior.spike_decay", "prior.spike_sd")];

/// The version of the file format that this program reads and writes.
pub const FORMAT: i64 = 1;

/// A resolved configuration: every value is there, of its type and in its range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys say what each field does")]
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
    // Older runs have none.
    #[serde(default, skip_serializing_if = "PosteriorConfig::is_default")]
    pub posterior: PosteriorConfig,
}

impl Config {
    /// Reads a file and applies `--set` overrides. One of them must say what `data.kind` is: a file
    /// that forgets it would train on simulated data.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self> {
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        if ["csv", "tsv", "parquet", "pq"].iter().any(|table| ending.as_deref() == Some(table)) {
            return Err(table_for_settings(path));
        }
        let text = regular::read_to_string(path, MOST_BYTES).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => {
                let problem = "is not text in UTF-8; give a configuration in TOML";
                Error::config(path.display().to_string(), problem)
            }
            _ => Error::file("read", path, e),
        })?;
        Self::read_text(path, &text, overrides)
    }

    /// Reads the text of a file; `path` is named in messages.
    pub fn read_text(path: &Path, text: &str, overrides: &[String]) -> Result<Self> {
        let read = || {
            let settings = settings(text, overrides)?;
            check_keys(&settings)?;
            check_names_data(&settings)?;
            Self::resolve(&settings)
        };
        read().map_err(|error| match error {
            Error::Config { key, problem } if key.is_empty() => {
                Error::config(path.display().to_string(), problem)
            }
            other => other,
        })
    }

    /// Parses text and applies overrides of the form `a.b=c`.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self> {
        Self::resolve(&settings(text, overrides)?)
    }

    /// Checks settings key by key and fills in what the preset says.
    pub fn resolve(settings: &BTreeMap<String, Value>) -> Result<Self> {
        check_keys(settings)?;
        let preset = match settings.get("preset").and_then(Value::as_str) {
            Some("paper") => Preset::Paper,
            Some("reference-code") => Preset::ReferenceCode,
            _ => Preset::Exact,
        };
        let data = settings.get("data.kind").and_then(Value::as_str).and_then(DataKind::find);
        let data = data.unwrap_or_default();
        let images = data.is_images();
        let mut all = preset.defaults();
        if images {
            all.extend(preset.image_defaults());
        }
        if data == DataKind::Table {
            // Written out, so that a run from before these keys is told from one that has them.
            let usual = [("data.missing", "impute"), ("data.prepare", "full")];
            all.extend(usual.map(|(key, value)| (key.to_owned(), value.into())));
        }
        let kind = settings.get("method.kind").cloned().and_then(|kind| kind.try_into().ok());
        let kind = kind.map_or_else(|| usual_method(data, preset, settings), Ok)?;
        all.insert("method.kind".into(), kind.name().into());
        all.remove("method.clip");
        all.extend(presets::clip(preset, kind, data).map(|c| ("method.clip".into(), c.into())));
        all.extend(presets::method_defaults(kind, preset, data, settings));
        if kind.is_sparse() {
            // They prune to a target and know no threshold.
            all.remove("prune.hard_threshold");
        }
        let usual_decays = WIDTHS.map(|(decay, _)| all.get(decay).cloned());
        if settings.contains_key("prior.weight_decay") && !settings.contains_key("prior.sd") {
            all.remove("prior.sd");
        }
        all.extend(settings.iter().map(|(k, v)| (k.clone(), v.clone())));
        // λ₁ is either given or computed; giving one replaces the default of the other. So is λ₂.
        // Where assignments are drawn there is neither.
        let draws = settings.get("prior.assignment").and_then(Value::as_str) == Some("draw");
        for (threshold, instead) in [
            ("prior.soft_threshold", "prior.spike_probability"),
            ("prune.hard_threshold", "prune.target"),
        ] {
            if (draws || settings.contains_key(instead)) && !settings.contains_key(threshold) {
                all.remove(threshold);
            }
        }
        if all.get("method.clip").and_then(Value::as_str) == Some(NO_LIMIT) {
            all.remove("method.clip");
        }
        // A resolved configuration has both, and a decay that is the default.
        for ((name, sd), usual) in WIDTHS.into_iter().zip(&usual_decays) {
            let decay = settings.get(name);
            if settings.contains_key(sd) && decay.is_some() && decay != usual.as_ref() {
                let problem = format!(
                    "is given beside {name}, and both say how wide the prior is; give one of them"
                );
                return Err(Error::config(sd, problem));
            }
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
            check_split(&self.data)?;
        }
        if self.data.kind.is_images()
            && let Some(problem) = name_problem(&self.model.name, &["mlp"])
        {
            return refuse("model.name", format!("`{}` {problem}", self.model.name));
        }
        if self.train.stages > 1 {
            if self.cycles().len() > 1 || self.train.members != Members::Snapshots {
                let problem = "needs samples of one cycle; give schedule.step_size.shape = \"constant\" and train.members = \"snapshots\"";
                return refuse("train.stages", problem.into());
            }
            if self.stages().is_none() {
                let TrainConfig { epochs, samples_per_cycle: samples, stages, .. } = self.train;
                let problem = format!(
                    "is {stages}, and so many stages from {samples} samples on take {samples} x 2^{} epochs and a warm-up, but train.epochs is {epochs}; give more epochs, or fewer stages",
                    stages - 1
                );
                return refuse("train.stages", problem);
            }
        }
        let kind = self.method.kind;
        if self.train.freeze_below.is_some() && !kind.reads("train.freeze_below") {
            let problem = format!(
                "freezes weights under Algorithms 2 and 3 (\"sghmc\", \"em-mcmc\"), but method.kind is \"{}\"",
                kind.name()
            );
            return refuse("train.freeze_below", problem);
        }
        if self.train.freeze_below.is_some() && self.prior.assignment == Assignment::Draw {
            let problem = "freezes weights, but prior.assignment = \"draw\" samples all of them; leave it out";
            return refuse("train.freeze_below", problem.into());
        }
        let choices = Choices {
            method: &self.method,
            prior: &self.prior,
            prune: &self.prune,
            images: self.data.kind.is_images(),
            reference_code: self.preset == Preset::ReferenceCode,
        };
        kind.declaration().check.map_or(Ok(()), |check| check(&choices))
    }

    /// The configuration as a TOML file, complete.
    pub fn to_toml(&self) -> Result<String> {
        let text = toml::to_string(self)
            .map_err(|e| Error::config("", format!("cannot be written: {e}")))?;
        if !self.lifts_limit() {
            return Ok(text);
        }
        // A key that is not there would stand for the default.
        let none = format!("[method]\nclip = \"{NO_LIMIT}\"\n");
        Ok(text.replacen("[method]\n", &none, 1))
    }

    /// Whether the gradient has no limit where the default is one.
    fn lifts_limit(&self) -> bool {
        let default = presets::clip(self.preset, self.method.kind, self.data.kind);
        self.method.clip.is_none() && default.is_some()
    }

    /// A number that differs where the results could: checkpoint intervals do not count.
    pub fn fingerprint(&self) -> Result<u32> {
        Ok(crc32fast::hash(self.relevant().to_toml()?.as_bytes()))
    }

    /// The same for checkpoints: which samples are averaged does not count either.
    pub fn training_fingerprint(&self) -> Result<u32> {
        let posterior = PosteriorConfig::default();
        Self { posterior, ..self.clone() }.fingerprint()
    }

    /// The same with fixed checkpoint intervals and without files for others to read, which change
    /// no result.
    fn relevant(&self) -> Self {
        let mut relevant = self.clone();
        relevant.train.tensorboard = false;
        relevant.train.checkpoint_seconds = 1.0;
        relevant.train.checkpoint_steps = None;
        relevant
    }

    /// The epochs of each cycle of the step size.
    pub fn cycles(&self) -> Vec<Range<usize>> {
        // How many rows there are changes the value of a schedule, not its shape.
        self.schedule.step_size.schedule(1).cycles(self.train.epochs)
    }

    /// The epochs after which samples are taken.
    pub fn sample_epochs(&self) -> Vec<usize> {
        match self.train.members {
            Members::Snapshots => match self.stages() {
                Some(stages) => stages.sampling_epochs(),
                None => sampling_epochs(&self.cycles(), self.train.samples_per_cycle),
            },
            Members::Last => vec![self.train.epochs.saturating_sub(1)],
        }
    }

    /// The stages of the sampling, where there are some.
    pub fn stages(&self) -> Option<Stages> {
        let TrainConfig { epochs, samples_per_cycle, stages, .. } = self.train;
        Stages::of(epochs, samples_per_cycle, stages).filter(|_| stages > 1)
    }

    /// Whether a chain that has done so many epochs is at its end: those of the run, or of a stage
    /// after which the samples were enough.
    pub fn is_end(&self, epochs: usize) -> bool {
        let at_stage = || self.stages().is_some_and(|stages| stages.ends().contains(&epochs));
        epochs >= self.train.epochs || at_stage()
    }

    /// Which samples are averaged.
    pub fn sample_rule(&self) -> SampleRule {
        let images = self.data.kind.is_images();
        self.posterior.rule(&self.cycles(), &self.sample_epochs(), images)
    }

    /// The seed of simulated data.
    pub fn data_seed(&self) -> u64 {
        self.data.seed_in(self.seed)
    }
}

/// What a file and overrides say, by the full names of the keys.
fn settings(text: &str, overrides: &[String]) -> Result<BTreeMap<String, Value>> {
    let table: Table = toml::from_str(text).map_err(|e| {
        Error::config("", format!("is not valid TOML: {}", e.to_string().trim_end()))
    })?;
    let mut settings = BTreeMap::new();
    flatten("", &table, &mut settings);
    for given in overrides {
        let (key, value) = parse_override(given)?;
        settings.insert(key, value);
    }
    Ok(settings)
}

/// How to say that a table was given where settings are expected.
fn table_for_settings(path: &Path) -> Error {
    let file = path.display();
    let problem = format!(
        "is a table, and a configuration is expected; `thinfer init {file} --target COLUMN` writes one, `thinfer train {file} --target COLUMN` trains without one, and `thinfer select {file} --target COLUMN` finds the variables that matter"
    );
    Error::config(file.to_string(), problem)
}

/// Refuses settings that do not say what to train on.
fn check_names_data(settings: &BTreeMap<String, Value>) -> Result<()> {
    if settings.contains_key("data.kind") {
        return Ok(());
    }
    let problem = if settings.contains_key("data.path") || settings.contains_key("data.target") {
        "is missing, so it is not known what data.path is; give kind = \"table\" or \"images\" under [data]"
    } else {
        "is missing, so it is not known what to train on; give under [data] kind = \"table\" with path and target for your own table, or another kind of docs/config.md, such as \"example1\" for simulated data"
    };
    Err(Error::config("data.kind", problem))
}

/// The method of those who name none: MCLMC for a table of the user's, else Algorithm 3. Settings
/// that MCLMC does not read are refused for a table: they ask for another method.
fn usual_method(
    data: DataKind,
    preset: Preset,
    settings: &BTreeMap<String, Value>,
) -> Result<MethodKind> {
    let of_paper = MethodKind::default();
    let Some(sampler) = MethodKind::find(FOR_TABLES) else { return Ok(of_paper) };
    if data != DataKind::Table || preset != Preset::Exact {
        return Ok(of_paper);
    }
    let only_of_others = |key: &&String| {
        // All methods read the step size, except that this one finds its own.
        let is_of_paper = of_paper.reads_own(key) || key.starts_with("schedule.step_size.");
        is_of_paper && !sampler.reads_own(key)
    };
    let Some(key) = settings.keys().find(only_of_others) else { return Ok(sampler) };
    let problem = format!(
        "is for another method than \"{FOR_TABLES}\", which trains on a table where none is named; give method.kind = \"{}\" too, or leave the key out",
        of_paper.name()
    );
    Err(Error::config(key, problem))
}

/// The method that trains on a table where none is named.
const FOR_TABLES: &str = "mclmc";

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

fn check_keys(settings: &BTreeMap<String, Value>) -> Result<()> {
    check_format(settings)?;
    settings.iter().try_for_each(|(name, value)| check_key(name, value))
}

fn check_key(name: &str, value: &Value) -> Result<()> {
    let Some(key) = keys::find(name) else {
        let inside = |key: &keys::Key| key.name.split_once('.').is_some_and(|k| k.0 == name);
        if let Some(first) = keys::keys().find(inside) {
            let problem =
                format!("is a table of settings; give one of them, such as `{}`", first.name);
            return Err(Error::config(name, problem));
        }
        let problem = match (keys::nearest(name), keys::nearest_table(name)) {
            (Some(near), _) => format!("is not a key; did you mean `{near}`?"),
            (None, Some(table)) => format!("is not a key; did you mean the table `[{table}]`?"),
            (None, None) => "is not a key; docs/config.md lists all of them".to_owned(),
        };
        return Err(Error::config(name, problem));
    };
    if keys::accepts(key.kind, value) {
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
