//! What a run says of itself while it works: `history.csv`, which grows with every record, and
//! `status.json`; and event files, where the user wants them.
//!
//! They are written in the background, some time after something has changed and never more often
//! than costs a small part of the time. Training does not wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use thinfer_core::train::{Observer, Record};
use thinfer_data::files::{regular, sealed_json, write_for_now, write_whole};
use thinfer_data::{Error, Result};

use super::status::{self, Agreed, Stage, Status};
use super::time_left::TimeLeft;
use crate::evaluate::Agreement;
use crate::history;
use crate::tensorboard::{EventFiles, Point};

/// The file of the records.
pub(super) const HISTORY: &str = "history.csv";

/// Nothing is written before: a run that is over by then writes its files once, at its end.
const FIRST: Duration = Duration::from_millis(100);
/// The time between two writes.
const PAUSE: Duration = Duration::from_millis(300);
/// Writing takes at most about one part in so many of the time.
const WRITING: u32 = 50;

/// Who watches a run and writes down what it sees.
pub(super) struct Journal<'a> {
    inner: &'a dyn Observer,
    pages: Arc<Pages>,
    writer: Option<JoinHandle<()>>,
}

/// What is shared with the thread that writes.
struct Pages {
    folder: PathBuf,
    begun: Instant,
    /// Training rows, where event files are written, and what writes them.
    events: Option<(usize, Mutex<EventFiles>)>,
    seen: Mutex<Seen>,
    changed: Condvar,
}

struct Seen {
    chains: BTreeMap<u32, Vec<Record>>,
    /// When each record came, in seconds since 1970.
    came: BTreeMap<u32, Vec<f64>>,
    /// Chains that have said which records they have; those of others are from the table before.
    heard: BTreeSet<u32>,
    left: TimeLeft,
    agreed: Vec<Agreed>,
    /// Whether there is something that the files do not say.
    news: Option<News>,
    /// Whether the thread is to end.
    over: bool,
    /// Why the files could not be written, to be told once.
    problem: Option<String>,
    told: bool,
}

/// How a file is written.
type Write = fn(&Path, &[u8]) -> Result<()>;

/// What has changed since the files were written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    /// Steps were done.
    Steps,
    /// A record was made.
    Records,
}

impl<'a> Journal<'a> {
    /// Begins to write. `resumes` says whether the run was begun before: then its records of then
    /// stay until its chains say which of them they go on from. With so many training rows as
    /// `events`, event files are written too.
    pub(super) fn begin(
        folder: &Path,
        inner: &'a dyn Observer,
        left: TimeLeft,
        resumes: bool,
        events: Option<usize>,
    ) -> Self {
        let before = |name: &str| regular::read(&folder.join(name)).ok().filter(|_| resumes);
        let table = before(HISTORY).and_then(|bytes| String::from_utf8(bytes).ok());
        let chains = table.and_then(|table| history::parse(&table)).unwrap_or_default();
        let agreed = before(status::NAME)
            .and_then(|bytes| status::from_bytes(&bytes))
            .map_or_else(Vec::new, |status| status.agreed);
        let seen = Seen {
            chains: chains.into_iter().collect(),
            heard: BTreeSet::new(),
            came: BTreeMap::new(),
            left,
            agreed,
            news: None,
            over: false,
            problem: None,
            told: false,
        };
        let pages = Arc::new(Pages {
            folder: folder.to_owned(),
            begun: Instant::now(),
            events: events.map(|rows| (rows, Mutex::new(EventFiles::of_run(folder)))),
            seen: Mutex::new(seen),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&pages);
        // Where there is no thread to be had, the files are written at the end alone.
        let writer = Builder::new().name("history".into()).spawn(move || shared.keep_writing());
        Self { inner, pages, writer: writer.ok() }
    }

    /// Notes whether the samples agreed after so many epochs.
    pub(super) fn agreement(&self, epochs: usize, found: &Agreement) {
        let mut seen = self.pages.lock();
        seen.agreed.retain(|before| before.epochs < epochs);
        let (r_hat, draws) = (found.r_hat, found.bulk_ess);
        seen.agreed.push(Agreed { epochs, r_hat, draws, at: status::now() });
        self.pages.tell(seen, News::Records);
    }

    /// Ends the thread and writes how the run ended; the table too, unless the run does it.
    pub(super) fn end(mut self, stage: Stage, message: Option<String>) -> Result<()> {
        self.stop();
        if stage != Stage::Trained {
            self.pages.write_history(write_whole)?;
        }
        self.pages.write_events()?;
        self.pages.write_status(stage, message, write_whole)
    }

    fn stop(&mut self) {
        self.pages.lock().over = true;
        self.pages.changed.notify_one();
        if let Some(writer) = self.writer.take() {
            // A bug there is shown as what it is.
            writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }

    /// Tells the user once where the files cannot be written; the run itself may still get to its
    /// checkpoints.
    fn tell_problem(&self) {
        let problem = self.pages.lock().problem.take();
        if let Some(problem) = problem {
            let text = format!("how far the run is cannot be written down: {problem}");
            self.inner.notice(&text);
        }
    }
}

impl Drop for Journal<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

impl Observer for Journal<'_> {
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>) {
        let mut seen = self.pages.lock();
        seen.left.mark(chain, self.pages.begun.elapsed().as_secs_f64(), (step, total), record);
        self.pages.tell(seen, News::Steps);
        self.tell_problem();
        self.inner.progress(chain, step, total, record);
    }

    fn recorded(&self, chain: u32, records: &[Record]) {
        let mut seen = self.pages.lock();
        let is_first = seen.heard.insert(chain);
        let known = seen.chains.entry(chain).or_default();
        if is_first {
            known.clear();
        }
        known.extend_from_slice(&records[known.len().min(records.len())..]);
        let came = seen.came.entry(chain).or_default();
        came.resize(records.len(), status::now());
        self.pages.tell(seen, News::Records);
        self.inner.recorded(chain, records);
    }

    fn notice(&self, text: &str) {
        self.inner.notice(text);
    }

    fn warning(&self, text: &str) {
        self.inner.warning(text);
    }
}

impl Pages {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        // Whoever panicked left numbers that are each whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut seen: MutexGuard<'_, Seen>, news: News) {
        let all = seen.news.map_or(news, |before| before.max(news));
        let before = seen.news.replace(all);
        drop(seen);
        if before.is_none() {
            self.changed.notify_one();
        }
    }

    /// Writes what is new until it is told to end.
    fn keep_writing(&self) {
        let mut due = self.begun + FIRST;
        let mut seen = self.lock();
        while !seen.over {
            let now = Instant::now();
            if seen.news.is_none() {
                seen = self.changed.wait(seen).unwrap_or_else(PoisonError::into_inner);
            } else if now < due {
                let waited = self.changed.wait_timeout(seen, due - now);
                seen = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                let news = seen.news.take();
                drop(seen);
                let written = match news {
                    Some(News::Records) => {
                        self.write_history(write_for_now).and_then(|()| self.write_events())
                    }
                    _ => Ok(()),
                };
                let status = || self.write_status(Stage::Training, None, write_for_now);
                let written = written.and_then(|()| status());
                due = Instant::now() + PAUSE.max(now.elapsed().saturating_mul(WRITING));
                seen = self.lock();
                if let (Err(error), false) = (written, seen.told) {
                    (seen.problem, seen.told) = (Some(error.to_string()), true);
                }
            }
        }
    }

    fn write_history(&self, write: Write) -> Result<()> {
        let chains = self.lock().chains.clone();
        let text = history::to_text(chains.iter().map(|(chain, records)| (*chain, &records[..])));
        write(&self.folder.join(HISTORY), text.as_bytes())
    }

    /// Writes what the event files do not have: of chains that have said which records they go on
    /// from, and of the stages.
    fn write_events(&self) -> Result<()> {
        let Some((rows, files)) = &self.events else { return Ok(()) };
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let (chains, agreed) = {
            let seen = self.lock();
            let points = |chain: &u32| {
                let came = seen.came.get(chain)?.iter();
                let records = seen.chains.get(chain)?.iter().zip(came);
                Some((*chain, records.map(|(r, at)| Point::of(r, *at, *rows)).collect()))
            };
            let chains: Vec<(u32, Vec<Point>)> = seen.heard.iter().filter_map(points).collect();
            (chains, seen.agreed.clone())
        };
        let now = status::now();
        for (chain, points) in &chains {
            files.write(&format!("chain-{chain}"), points, now)?;
        }
        if agreed.is_empty() {
            return Ok(());
        }
        let point = |found: &Agreed| {
            let values = vec![("samples/r_hat", found.r_hat)];
            Point { epochs: found.epochs, at: found.at, values }
        };
        files.write("all-chains", &agreed.iter().map(point).collect::<Vec<_>>(), now)
    }

    fn write_status(&self, stage: Stage, message: Option<String>, write: Write) -> Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let status = {
            let seen = self.lock();
            let left = seen.left.left().filter(|_| stage == Stage::Training);
            let (done, agreed) = (seen.left.done(), seen.agreed.clone());
            Status { stage, message, seconds, left, done, agreed, written: status::now() }
        };
        write(&self.folder.join(status::NAME), &sealed_json(&status)?)
    }
}

/// The message that a run leaves which an error ended.
pub(super) fn ended_by(error: &Error) -> (Stage, Option<String>) {
    match error {
        Error::Interrupted(_) => (Stage::Stopped, None),
        error => (Stage::Failed, Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thinfer_core::train::Silent;

    use super::*;

    fn records(count: usize) -> Vec<Record> {
        let rows: Vec<String> = (0..count).map(|epoch| format!("0,{epoch},0.5\n")).collect();
        history::parse(&format!("chain,epoch,loss\n{}", rows.concat()))
            .unwrap()
            .pop()
            .map_or_else(Vec::new, |(_, records)| records)
    }

    fn journal(folder: &Path, resumes: bool) -> Journal<'static> {
        Journal::begin(folder, &Silent, TimeLeft::default(), resumes, Some(100))
    }

    /// Records of each chain that the table has, once it has so many of them together.
    fn wait_for(folder: &Path, all: usize) -> Vec<(u32, usize)> {
        for _ in 0..500 {
            let text = fs::read_to_string(folder.join(HISTORY)).unwrap_or_default();
            let chains = history::parse(&text).unwrap_or_default();
            let found: Vec<(u32, usize)> = chains.iter().map(|(c, r)| (*c, r.len())).collect();
            if found.iter().map(|(_, records)| records).sum::<usize>() == all {
                return found;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the table never had {all} records");
    }

    #[test]
    fn the_table_grows_while_the_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), false);
        journal.recorded(0, &[]);
        journal.recorded(0, &records(1));
        assert_eq!(wait_for(folder.path(), 1), [(0, 1)]);
        let status = status::read_status(folder.path());
        assert!(status.is_none_or(|status| status.stage == Stage::Training));
        journal.recorded(0, &records(2));
        journal.recorded(1, &records(1));
        assert_eq!(wait_for(folder.path(), 3), [(0, 2), (1, 1)]);
        journal.progress(0, 30, 40, None);
        journal.recorded(0, &records(3));
        journal.end(Stage::Stopped, None).unwrap();
        assert_eq!(wait_for(folder.path(), 4), [(0, 3), (1, 1)]);
        let status = status::read_status(folder.path()).unwrap();
        assert_eq!((status.stage, status.left), (Stage::Stopped, None));
        for chain in ["chain-0", "chain-1"] {
            let files = folder.path().join("tensorboard").join(chain);
            assert_eq!(fs::read_dir(&files).unwrap().count(), 1, "{chain}");
        }
    }

    /// Killed after the table was written and before the next checkpoint.
    #[test]
    fn records_that_come_again_are_not_there_twice() {
        let folder = tempfile::tempdir().unwrap();
        let both = [(0, records(5)), (1, records(4))];
        let table = history::to_text(both.iter().map(|(chain, records)| (*chain, &records[..])));
        fs::write(folder.path().join(HISTORY), &table).unwrap();
        let resumed = journal(folder.path(), true);
        // Chain 0 goes on from its checkpoint; chain 1 waits for a core.
        resumed.recorded(0, &records(3));
        assert_eq!(wait_for(folder.path(), 7), [(0, 3), (1, 4)]);
        resumed.recorded(0, &records(4));
        resumed.recorded(1, &records(2));
        resumed.end(Stage::Stopped, None).unwrap();
        assert_eq!(wait_for(folder.path(), 6), [(0, 4), (1, 2)]);
        // One that begins anew has none of them.
        let anew = journal(folder.path(), false);
        anew.end(Stage::Failed, Some("no".into())).unwrap();
        assert_eq!(wait_for(folder.path(), 0), []);
        let status = status::read_status(folder.path()).unwrap();
        assert_eq!((status.stage, status.message), (Stage::Failed, Some("no".into())));
    }

    #[test]
    fn a_folder_that_takes_no_files_is_told_of_once_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let journal = journal(&gone, false);
        journal.recorded(0, &records(1));
        let told = || journal.pages.lock().told;
        while !told() {
            std::thread::sleep(Duration::from_millis(5));
        }
        journal.progress(0, 1, 2, None);
        assert!(journal.pages.lock().problem.is_none(), "the user was told");
        let error = journal.end(Stage::Stopped, None).unwrap_err().to_string();
        assert!(error.contains("gone"), "{error}");
    }
}
