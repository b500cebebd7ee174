//! How long every epoch took: `times.csv` in the folder of a chain, a line an epoch.
//!
//! Times are kept apart from the records, which have the same bits in every run. Every line ends
//! with the CRC-32 of the file up to the comma before it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use thinfer_data::files::regular;

use super::Observer;
use super::writer::Job;

const NAME: &str = "times.csv";
const HEAD: &str = "epoch,seconds,checksum";
/// The first line of older versions, whose lines have no checksums.
const OLD_HEAD: &str = "epoch,seconds";

/// The time of one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochTime {
    /// The epoch, from 0.
    pub epoch: usize,
    /// From its first step to the end of its evaluation.
    pub seconds: f64,
}

/// A watch on a chain.
pub(crate) struct Times {
    path: Option<PathBuf>,
    begun: Instant,
    all: Vec<EpochTime>,
    /// How many of them are in the file; `None` where it is to be written in any case.
    written: Option<usize>,
}

impl Times {
    /// Starts the watch at an epoch; what a file has of it and of later ones is of a run that was
    /// cut off.
    pub(crate) fn start(folder: Option<&Path>, epoch: usize, observer: &dyn Observer) -> Self {
        let mut all = folder.map_or_else(Vec::new, |folder| read_times(folder, observer));
        all.retain(|time| time.epoch < epoch);
        let path = folder.map(|folder| folder.join(NAME));
        Self { path, begun: Instant::now(), all, written: None }
    }

    /// Notes the end of an epoch.
    pub(crate) fn end(&mut self, epoch: usize) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.begun = Instant::now();
        self.all.push(EpochTime { epoch, seconds });
    }

    /// The file to write, where it is not up to date.
    pub(super) fn file(&mut self) -> Option<Job> {
        let path = self.path.as_ref().filter(|_| self.written != Some(self.all.len()))?;
        self.written = Some(self.all.len());
        let bytes = to_text(&self.all).into_bytes();
        Some(Job { path: path.clone(), bytes, keeps_previous: false })
    }

    pub(crate) fn into_times(self) -> Vec<EpochTime> {
        self.all
    }
}

fn to_text(times: &[EpochTime]) -> String {
    let (mut text, mut sum, mut summed) = (format!("{HEAD}\n"), crc32fast::Hasher::new(), 0);
    for time in times {
        text.push_str(&format!("{},{:.6}", time.epoch, time.seconds));
        sum.update(&text.as_bytes()[summed..]);
        summed = text.len();
        text.push_str(&format!(",{:08x}\n", sum.clone().finalize()));
    }
    text
}

/// The times that a chain's folder has. Where the file is damaged there are none, and the observer
/// is told: no result of a run depends on them.
pub fn read_times(folder: &Path, observer: &dyn Observer) -> Vec<EpochTime> {
    let path = folder.join(NAME);
    let Ok(bytes) = regular::read(&path) else { return Vec::new() };
    from_text(&bytes).unwrap_or_else(|| {
        let path = path.display();
        observer.notice(&format!(
            "{path} is damaged, so the times of its epochs are not known; put back a copy of it to have them"
        ));
        Vec::new()
    })
}

fn from_text(bytes: &[u8]) -> Option<Vec<EpochTime>> {
    let text = str::from_utf8(bytes).ok()?;
    let time = |line: &str| {
        let (epoch, seconds) = line.split_once(',')?;
        Some(EpochTime { epoch: epoch.parse().ok()?, seconds: seconds.parse().ok()? })
    };
    let (head, rows) = text.split_once('\n')?;
    if head == OLD_HEAD {
        // Lines were appended one by one, so the last may be cut off.
        let mut times: Vec<Option<EpochTime>> = rows.lines().map(time).collect();
        times.pop_if(|last| last.is_none());
        return times.into_iter().collect();
    }
    let mut times = Vec::new();
    for row in rows.split_terminator('\n') {
        times.push(time(row.rsplit_once(',')?.0)?);
    }
    // Every number, line and checksum is as it was written, or the file would be another.
    (head == HEAD && to_text(&times) == text).then_some(times)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;

    use super::*;
    use crate::train::{Record, Silent};
    use thinfer_data::files::write_whole;

    fn save(times: &mut Times) {
        let job = times.file().unwrap();
        write_whole(&job.path, &job.bytes).unwrap();
        assert!(times.file().is_none(), "nothing is new");
    }

    #[test]
    fn a_run_that_goes_on_keeps_the_times_before() {
        let folder = tempfile::tempdir().unwrap();
        let read = || read_times(folder.path(), &Silent);
        let mut first = Times::start(Some(folder.path()), 0, &Silent);
        (0..5).for_each(|epoch| first.end(epoch));
        save(&mut first);
        first.end(5);
        save(&mut first);
        let before = read();
        assert_eq!(before.iter().map(|t| t.epoch).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        // Cut off in epoch 3.
        let mut again = Times::start(Some(folder.path()), 3, &Silent);
        again.end(3);
        save(&mut again);
        let after = read();
        assert_eq!(after[..3], before[..3]);
        assert_eq!(after.len(), 4);
    }

    #[test]
    fn files_of_older_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(folder.path().join(NAME), text).unwrap();
            read_times(folder.path(), &Silent)
        };
        assert_eq!(read("epoch,seconds\n0,0.5\n1,0.").len(), 2);
        assert_eq!(read("epoch,seconds\n0,0.5\n1"), [EpochTime { epoch: 0, seconds: 0.5 }]);
    }

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Observer for Told {
        fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}
        fn notice(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let times: Vec<EpochTime> =
            (0..12).map(|epoch| EpochTime { epoch, seconds: 0.125 * epoch as f64 }).collect();
        let whole = to_text(&times).into_bytes();
        assert_eq!(from_text(&whole), Some(times.clone()));
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let found = from_text(&bytes);
                assert!(found.is_none() || bytes == whole, "byte {at} became {byte}: {found:?}");
            }
        }
        let told = Told::default();
        fs::write(&path, &whole).unwrap();
        assert_eq!(read_times(folder.path(), &told), times);
        assert!(told.0.lock().unwrap().is_empty());
        fs::write(&path, &whole[1..]).unwrap();
        assert!(read_times(folder.path(), &told).is_empty());
        assert!(told.0.into_inner().unwrap()[0].contains("times.csv is damaged"));
    }
}
