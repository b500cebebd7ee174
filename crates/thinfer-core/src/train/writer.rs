//! Files of a run, written in the background in the order in which they are given: training does
//! not wait for the disk, and a checkpoint is there no sooner than the samples that it lists.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use thinfer_data::Result;
use thinfer_data::files::{write_keeping_previous, write_whole};

/// Files that wait to be written, at most: they take memory.
const WAITING: usize = 2;

/// A file to write.
pub(super) struct Job {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    /// Whether the file that was there is kept as the previous one.
    pub(super) keeps_previous: bool,
}

impl Job {
    fn run(&self) -> Result<()> {
        let write = if self.keeps_previous { write_keeping_previous } else { write_whole };
        write(&self.path, &self.bytes)
    }
}

/// Writes in the background, from the first file on until it is told to finish. Dropping it
/// finishes too.
#[derive(Default)]
pub(super) struct Writer(Option<(SyncSender<Job>, JoinHandle<Result<()>>)>);

impl Writer {
    /// Gives it a file. An error may be that of a file before; then none after that one is written.
    pub(super) fn write(&mut self, job: Job) -> Result<()> {
        if self.0.is_none() {
            let (jobs, given) = sync_channel(WAITING);
            let thread = Builder::new().name("files".into()).spawn(move || write_all(&given));
            self.0 = thread.ok().map(|thread| (jobs, thread));
        }
        // Where there is no thread to be had, training waits.
        let Some((jobs, _)) = &self.0 else { return job.run() };
        // It ends by itself only where a file could not be written.
        jobs.send(job).or_else(|_| self.finish())
    }

    /// Waits until all is written.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some((jobs, thread)) = self.0.take() else { return Ok(()) };
        drop(jobs);
        // A bug there is shown as what it is.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever wants to know what went wrong has asked before.
        let _ = self.finish();
    }
}

fn write_all(given: &Receiver<Job>) -> Result<()> {
    given.iter().try_for_each(|job| job.run())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn job(path: PathBuf, text: &str, keeps_previous: bool) -> Job {
        Job { path, bytes: text.into(), keeps_previous }
    }

    #[test]
    fn files_are_there_when_it_has_finished_and_it_can_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        let mut writer = Writer::default();
        for text in ["1", "2", "3"] {
            writer.write(job(a.clone(), text, false)).unwrap();
            writer.write(job(b.clone(), text, true)).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(
            (fs::read_to_string(&a).unwrap(), fs::read_to_string(&b).unwrap()),
            ("3".into(), "3".into())
        );
        let previous = thinfer_data::files::previous(&b);
        assert_eq!(fs::read_to_string(previous).unwrap(), "2");
        writer.write(job(a.clone(), "4", false)).unwrap();
        drop(writer);
        assert_eq!(fs::read_to_string(&a).unwrap(), "4");
    }

    #[test]
    fn nothing_is_written_after_a_file_that_could_not_be() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, after) = (folder.path().join("no/such/folder"), folder.path().join("after"));
        let mut writer = Writer::default();
        let mut told = writer.write(job(missing.clone(), "1", false));
        for _ in 0..2 * WAITING {
            told = told.and_then(|()| writer.write(job(after.clone(), "2", false)));
        }
        let error = told.and_then(|()| writer.finish()).unwrap_err();
        assert!(error.to_string().contains("no/such/folder"), "{error}");
        assert!(!after.exists());
    }
}
