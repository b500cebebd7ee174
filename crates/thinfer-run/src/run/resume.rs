//! Whether a run can go on: the same settings, and the same data.

use std::path::Path;

use thinfer_core::train::Observer;
use thinfer_data::{Error, Result};

use super::RunInfo;
use crate::config::Config;

/// Keys that a message names before it counts the rest.
const NAMED: usize = 6;

/// The settings that a run goes on with: how the columns of its table are prepared stays as it was
/// where it was started before that could be said.
pub(super) fn as_started(before: &RunInfo, config: &Config) -> Config {
    let mut config = config.clone();
    if before.config.data.missing.is_none() && before.config.data.prepare.is_none() {
        config.data.missing = None;
        config.data.prepare = None;
    }
    config
}

/// Refuses other settings than the run was started with, by name. Which samples are averaged may
/// change: nothing is trained again for that.
pub(super) fn check_settings(before: &RunInfo, config: &Config, folder: &Path) -> Result<()> {
    let mut differences = config.differences(&before.config)?;
    differences.retain(|difference| !difference.key.starts_with("posterior."));
    let [first, others @ ..] = &differences[..] else { return Ok(()) };
    let mut problem = format!(
        "is {}, but the run in {} was started with {}",
        first.here,
        folder.display(),
        first.there
    );
    for other in others.iter().take(NAMED - 1) {
        problem.push_str(&format!("; `{}` is {}, but was {}", other.key, other.here, other.there));
    }
    if others.len() >= NAMED {
        problem.push_str(&format!("; {} more keys differ", others.len() + 1 - NAMED));
    }
    problem.push_str(
        ". Resume it with the settings it has (its config.toml), or start again with --force",
    );
    Err(Error::config(&first.key, problem))
}

/// Refuses other data, and says so where the device is another one.
pub(super) fn check_data(
    before: &RunInfo,
    now: &RunInfo,
    folder: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    if before.data_fingerprint != now.data_fingerprint {
        return Err(Error::store(
            folder,
            "the training data changed since the run was started; restore it, or start again with --force",
        ));
    }
    if before.device != now.device {
        observer.notice(&format!(
            "the run was started on {} and goes on on {}: from here on its numbers agree with the ones it would have had to rounding, not to the last bit",
            before.device, now.device
        ));
    }
    Ok(())
}
