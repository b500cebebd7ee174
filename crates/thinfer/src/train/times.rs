//! How long every epoch took: `times.csv` in the folder of a chain, a line an epoch.
//!
//! Times are kept apart from the records, which have the same bits in every run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, Result};

const NAME: &str = "times.csv";
const HEAD: &str = "epoch,seconds\n";

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
    /// How many of them are in the file.
    written: usize,
}

impl Times {
    /// Starts the watch at an epoch; what a file has of it and of later ones is of a run that was
    /// cut off.
    pub(crate) fn start(folder: Option<&Path>, epoch: usize) -> Self {
        let mut all = folder.map_or_else(Vec::new, read_times);
        all.retain(|time| time.epoch < epoch);
        let path = folder.map(|folder| folder.join(NAME));
        Self { path, begun: Instant::now(), all, written: usize::MAX }
    }

    /// Notes the end of an epoch.
    pub(crate) fn end(&mut self, epoch: usize) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.begun = Instant::now();
        self.all.push(EpochTime { epoch, seconds });
    }

    /// Brings the file up to date.
    pub(crate) fn save(&mut self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let fresh = self.written > self.all.len();
        let from = if fresh { 0 } else { self.written };
        let mut text = if fresh { HEAD.to_owned() } else { String::new() };
        for time in &self.all[from..] {
            text.push_str(&format!("{},{:.6}\n", time.epoch, time.seconds));
        }
        let file = if fresh {
            fs::File::create(path)
        } else {
            fs::OpenOptions::new().append(true).open(path)
        };
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|e| Error::file("write", path, e))?;
        self.written = self.all.len();
        Ok(())
    }

    pub(crate) fn into_times(self) -> Vec<EpochTime> {
        self.all
    }
}

/// The times that a chain's folder has. A line that was cut off is passed over: nothing depends on
/// it.
pub(crate) fn read_times(folder: &Path) -> Vec<EpochTime> {
    let text = fs::read_to_string(folder.join(NAME)).unwrap_or_default();
    let time = |line: &str| {
        let (epoch, seconds) = line.split_once(',')?;
        Some(EpochTime { epoch: epoch.parse().ok()?, seconds: seconds.parse().ok()? })
    };
    text.lines().skip(1).filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_keeps_the_times_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Times::start(Some(folder.path()), 0);
        (0..5).for_each(|epoch| first.end(epoch));
        first.save().unwrap();
        first.end(5);
        first.save().unwrap();
        let before = read_times(folder.path());
        assert_eq!(before.iter().map(|t| t.epoch).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        // Cut off in epoch 3.
        let mut again = Times::start(Some(folder.path()), 3);
        again.end(3);
        again.save().unwrap();
        let after = read_times(folder.path());
        assert_eq!(after[..3], before[..3]);
        assert_eq!(after.len(), 4);
        fs::write(folder.path().join(NAME), "epoch,seconds\n0,0.5\n1,0.").unwrap();
        assert_eq!(read_times(folder.path()).len(), 2);
        fs::write(folder.path().join(NAME), "epoch,seconds\n0,0.5\n1").unwrap();
        assert_eq!(read_times(folder.path()), [EpochTime { epoch: 0, seconds: 0.5 }]);
    }
}
