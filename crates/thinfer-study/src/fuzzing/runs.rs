//! What a run is made from and what it leaves: configuration, `run.json`, checkpoint.

use std::path::Path;
use std::sync::OnceLock;

use thinfer_core::train::container::resealed;
use thinfer_core::train::{Chain, ChainSpec, Silent};
use thinfer_data::Bundle;
use thinfer_data::files::sealed_json;
use thinfer_run::config::Config;
use thinfer_run::experiment::chain_specs;
use thinfer_run::run::info_from_bytes;

use super::{Checked, Outcome, broken};

/// A configuration; lines after a zero byte are given as `--set`.
pub(super) fn configuration(bytes: &[u8]) -> Checked {
    let Ok(text) = str::from_utf8(bytes) else { return Ok(Outcome::refused(&"not text")) };
    let (text, overrides) = text.split_once('\0').unwrap_or((text, ""));
    let overrides: Vec<String> = overrides.lines().map(str::to_owned).collect();
    let config = match Config::read_text(Path::new("c.toml"), text, &overrides) {
        Ok(config) => config,
        Err(error) => return Ok(Outcome::refused(&error)),
    };
    let written =
        config.to_toml().or_else(|error| broken("what was read cannot be written", &error))?;
    let again = Config::read_text(Path::new("c.toml"), &written, &[])
        .or_else(|error| broken("what was written cannot be read", &error))?;
    if again != config || again.fingerprint().ok() != config.fingerprint().ok() {
        return broken("what was written reads otherwise", &written);
    }
    match config.differences(&again) {
        Ok(none) if none.is_empty() => Ok(Outcome::Read),
        Ok(some) => broken("a configuration differs from itself", &format!("{some:?}")),
        Err(error) => broken("a configuration cannot be compared", &error),
    }
}

/// A `run.json`.
pub(super) fn run_json(bytes: &[u8]) -> Checked {
    let path = Path::new("run.json");
    let info = match info_from_bytes(path, bytes, &Silent) {
        Ok(info) => info,
        Err(error) => return Ok(Outcome::refused(&error)),
    };
    // What every command asks first.
    let (_, _) = (info.table().is_ok(), info.images().map(|images| images.augment().is_ok()));
    let written =
        sealed_json(&info).or_else(|error| broken("what was read cannot be written", &error))?;
    match info_from_bytes(path, &written, &Silent) {
        Ok(again) if again == info => Ok(Outcome::Read),
        Ok(again) => broken("what was written reads otherwise", &format!("{info:?} {again:?}")),
        Err(error) => broken("what was written cannot be read", &error),
    }
}

/// A checkpoint of a small run: as it is, and under right checksums.
pub(super) fn checkpoint(bytes: &[u8]) -> Checked {
    let outcome = restored(bytes)?;
    match resealed(bytes) {
        Some(sealed) if sealed != bytes => match (restored(&sealed)?, outcome) {
            (Outcome::Refused(_), Outcome::Read) => broken("checksums matter", &"not read"),
            (sealed, _) => Ok(sealed),
        },
        _ => Ok(outcome),
    }
}

fn restored(bytes: &[u8]) -> Checked {
    let (spec, data) = small_run()?;
    let restore = |bytes: &[u8]| {
        Chain::from_bytes(spec.clone(), Path::new("checkpoint"), bytes, |_| Ok(Vec::new()))
    };
    let chain = match restore(bytes) {
        Ok(chain) => chain,
        Err(error) => return Ok(Outcome::refused(&error)),
    };
    let write = |chain: &Chain| {
        chain.to_bytes().or_else(|error| broken("what was read cannot be written", &error))
    };
    let written = write(&chain)?;
    let mut again =
        restore(&written).or_else(|error| broken("what was written cannot be read", &error))?;
    if write(&again)? != written {
        return broken("what was written reads otherwise", &chain.step());
    }
    // The run goes on, or says why it cannot.
    if !again.is_done() {
        let _ = again.advance(&data.train);
    }
    Ok(Outcome::Read)
}

/// The settings of the run whose checkpoints are read.
pub const CHECKPOINT_SETTINGS: [&str; 12] = [
    "data.columns=6",
    "data.train_rows=24",
    "data.validation_rows=10",
    "data.test_rows=10",
    "model.hidden=[3]",
    "train.batch=12",
    "train.epochs=6",
    "train.samples_per_cycle=1",
    "train.trace=[\"fc1:out:0\"]",
    "schedule.step_size.cycles=2",
    "prune.warm_up_epochs=1",
    "prune.hard_threshold=0.05",
];

type SmallRun = (ChainSpec, Bundle);

fn small_run() -> std::result::Result<&'static SmallRun, String> {
    static RUN: OnceLock<std::result::Result<SmallRun, String>> = OnceLock::new();
    let made = RUN.get_or_init(|| {
        let made = || -> thinfer_data::Result<Option<SmallRun>> {
            let config = Config::parse("", &CHECKPOINT_SETTINGS.map(str::to_owned))?;
            let data = Bundle::load(&config.data, config.seed)?;
            let spec = chain_specs(&config, &data)?.into_iter().next();
            Ok(spec.map(|spec| (spec, data)))
        };
        made().map_err(|error| error.to_string())?.ok_or_else(|| "has no chains".to_owned())
    });
    made.as_ref().map_err(Clone::clone)
}
