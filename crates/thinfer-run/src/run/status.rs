//! Where a run is: `status.json`, and what else in its folder says so.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thinfer_data::files::{is_claimed, regular, take_json};

use super::time_left::Left;

/// The file.
pub(super) const NAME: &str = "status.json";

/// Where folders cannot be claimed, a run counts as at work for so long after it last said so.
const FRESH: Duration = Duration::from_secs(10);

/// How far a run came, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It trains.
    Training,
    /// All of its epochs are done.
    Trained,
    /// The user stopped it.
    Stopped,
    /// An error ended it.
    Failed,
}

/// What a run says of itself while it trains and when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// How far it came.
    pub stage: Stage,
    /// The error that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Seconds that it has trained, since it was last begun or gone on with.
    pub seconds: f64,
    /// The time that it takes from now on, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// The share of the steps of all chains that is done.
    pub done: f64,
    /// How far the samples agreed, for runs in stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed: Vec<Agreed>,
    /// When this was written, in seconds since 1970.
    pub written: f64,
}

/// How far samples agreed after a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreed {
    /// Epochs that were done.
    pub epochs: usize,
    /// R-hat of predictions.
    pub r_hat: f64,
    /// How many independent draws the samples are worth, where there are enough of them to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draws: Option<f64>,
    /// When that was seen, in seconds since 1970.
    pub at: f64,
}

/// What somebody who looks at the folder of a run finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A program trains it.
    Running,
    /// A program scores it, or renews it.
    Evaluating,
    /// It is trained and scored.
    Finished,
    /// It is not at its end, and no program is at work.
    Stopped,
    /// An error ended it.
    Failed,
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

pub(super) fn from_bytes(bytes: &[u8]) -> Option<Status> {
    take_json(bytes).ok().map(|contents| contents.value)
}

/// What a run last said of itself; `None` where it is of an older version, or began just now.
pub fn read_status(folder: &Path) -> Option<Status> {
    regular::read(&folder.join(NAME)).ok().and_then(|bytes| from_bytes(&bytes))
}

/// The state of the run in a folder, from what it last said.
pub fn state(folder: &Path, status: Option<&Status>) -> State {
    let stage = status.map(|status| status.stage);
    let is_fresh = || status.is_some_and(|status| now() - status.written < FRESH.as_secs_f64());
    let at_work =
        is_claimed(folder).unwrap_or_else(|| stage == Some(Stage::Training) && is_fresh());
    let is_scored = || folder.join("evaluation.json").is_file();
    match (at_work, stage) {
        (true, Some(Stage::Trained)) => State::Evaluating,
        (true, _) => State::Running,
        (false, Some(Stage::Failed)) => State::Failed,
        (false, Some(Stage::Trained) | None) if is_scored() => State::Finished,
        (false, _) => State::Stopped,
    }
}
