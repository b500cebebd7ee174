//! The runs below some folders, and what they say of themselves at the moment.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use thinfer_core::train::{Record, Silent};
use thinfer_data::files::regular;
use thinfer_data::{Error, Result};
use thinfer_run::history;
use thinfer_run::run::{RunInfo, State, Status, read_info, read_status, state};

use super::curves::Curves;
use super::find::{MOST_RUNS, runs_below};
use super::summary::{Known, Summary};

/// New runs are looked for this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Bytes of a table of records that are read, at most.
const MOST_BYTES: u64 = 256 << 20;

/// The runs below some folders.
pub struct Runs {
    roots: Vec<PathBuf>,
    known: Mutex<HashMap<PathBuf, Arc<Cached>>>,
    found: Mutex<Option<(Instant, Vec<PathBuf>)>>,
}

/// What a file was like when it was read.
type Stamp = Option<(SystemTime, u64)>;

/// What was read of a run.
struct Cached {
    info: (Stamp, std::result::Result<Arc<RunInfo>, String>),
    history: (Stamp, Arc<Chains>),
}

type Chains = Vec<(u32, Vec<Record>)>;

impl Runs {
    /// The runs in or below these folders. A folder that is not there is refused; one that has no
    /// run yet is not.
    pub fn below(roots: &[PathBuf]) -> Result<Self> {
        for root in roots {
            if !root.is_dir() {
                let problem = if root.exists() {
                    "is no folder; give that of a run, or one that has runs in it"
                } else {
                    "is not there; give the folder of a run, or one that will have runs in it"
                };
                return Err(Error::store(root, problem));
            }
        }
        Ok(Self { roots: roots.to_vec(), known: Mutex::default(), found: Mutex::default() })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.folders().len()
    }

    /// All runs as JSON: those at work first, then those that changed last.
    pub(super) fn list(&self) -> String {
        let folders = self.folders();
        let mut found: Vec<(bool, SystemTime, Summary)> = folders
            .iter()
            .map(|folder| {
                let (summary, changed) = self.summary(folder);
                let rests = !matches!(summary.state, "running" | "evaluating");
                (rests, changed, summary)
            })
            .collect();
        found.sort_by(|a, b| {
            let by_name = || a.2.name.cmp(&b.2.name);
            // The time of a run at work changes all the time; its place does not.
            let by_time = || if a.0 { b.1.cmp(&a.1) } else { std::cmp::Ordering::Equal };
            a.0.cmp(&b.0).then_with(by_time).then_with(by_name)
        });
        let runs: Vec<Summary> = found.into_iter().map(|(_, _, summary)| summary).collect();
        json!({ "runs": runs, "most": MOST_RUNS }).to_string()
    }

    /// The curves of one run as JSON; `None` where no run has this name.
    pub(super) fn curves(&self, id: &str) -> Option<String> {
        let folder = self.folders().into_iter().find(|folder| id_of(folder) == id)?;
        let known = self.read(&folder);
        let status = read_status(&folder);
        let agreed = status.as_ref().map_or(&[][..], |status| &status.agreed);
        let rows = known.info.1.as_ref().map_or(1, |info| info.rows.0);
        serde_json::to_string(&Curves::of(&known.history.1, agreed, rows)).ok()
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut found = lock(&self.found);
        if let Some((at, folders)) = &*found
            && at.elapsed() < LOOK_AGAIN
        {
            return folders.clone();
        }
        let mut folders: Vec<PathBuf> =
            self.roots.iter().flat_map(|root| runs_below(root)).collect();
        let mut seen = std::collections::HashSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        folders.truncate(MOST_RUNS);
        lock(&self.known).retain(|folder, _| seen.contains(folder));
        *found = Some((Instant::now(), folders.clone()));
        folders
    }

    /// A run in one line, and when it last changed.
    fn summary(&self, folder: &Path) -> (Summary, SystemTime) {
        let known = self.read(folder);
        let (id, name) = (id_of(folder), folder.display().to_string());
        let info = match &known.info.1 {
            Ok(info) => info,
            Err(message) => {
                let summary = Summary::unreadable(id, name, message.clone());
                return (summary, SystemTime::UNIX_EPOCH);
            }
        };
        let status: Option<Status> = read_status(folder);
        let state: State = state(folder, status.as_ref());
        let stages = status.as_ref().map_or(0, |status| status.agreed.len());
        let version = format!("{:?} {stages}", known.history.0);
        let version = format!("{:x}", hash(&version));
        let run = Known { folder, info, chains: &known.history.1, status: status.as_ref(), state };
        let changed = known.history.0.map_or(SystemTime::UNIX_EPOCH, |stamp| stamp.0);
        (Summary::of(id, version, name, &run), changed)
    }

    /// What the files of a run say, read again where they changed.
    fn read(&self, folder: &Path) -> Arc<Cached> {
        let before = lock(&self.known).get(folder).cloned();
        let (info_stamp, history_stamp) =
            (stamp(&folder.join("run.json")), stamp(&folder.join("history.csv")));
        if let Some(before) = &before
            && before.info.0 == info_stamp
            && before.history.0 == history_stamp
        {
            return Arc::clone(before);
        }
        let info = match &before {
            Some(before) if before.info.0 == info_stamp => before.info.1.clone(),
            _ => read_info(folder, &Silent).map(Arc::new).map_err(|error| error.to_string()),
        };
        let history = match &before {
            Some(before) if before.history.0 == history_stamp => Arc::clone(&before.history.1),
            _ => Arc::new(read_history(folder)),
        };
        let read = Arc::new(Cached { info: (info_stamp, info), history: (history_stamp, history) });
        lock(&self.known).insert(folder.to_owned(), Arc::clone(&read));
        read
    }
}

/// The records of a run; none where it has no table of them yet, or one that cannot be read.
fn read_history(folder: &Path) -> Chains {
    let text = regular::read_to_string(&folder.join("history.csv"), MOST_BYTES);
    text.ok().and_then(|text| history::parse(&text)).unwrap_or_default()
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// The name of a run in addresses. It is looked up among the runs that were found, so no address
/// leads to any other file.
fn id_of(folder: &Path) -> String {
    format!("{:016x}", hash(&folder))
}

fn hash<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is a memory of files, and can be read again.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
