//! The curves of a run as event files, which TensorBoard reads while the run trains.
//!
//! `RUN/tensorboard/chain-0/events.out.tfevents.SECONDS.thinfer`: each time that a run begins or
//! goes on, each chain begins a file. A reader that is at work goes from one to the next, so a file
//! never gets other contents than it had; what a killed run wrote beyond its checkpoint is cut off
//! the end when the run goes on.

mod events;
mod frames;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use thinfer_core::train::Record;
use thinfer_data::files::regular;
use thinfer_data::{Error, Result};

use self::events::{Event, restart, scalars, version};
use self::frames::{frame, frames};

/// The folder in that of the run.
pub(crate) const FOLDER: &str = "tensorboard";
/// How the names of our files begin and end; TensorBoard reads files with `tfevents` in the name.
const BEGIN: &str = "events.out.tfevents.";
const END: &str = ".thinfer";

/// A point of every curve of a record, after so many epochs.
pub(crate) struct Point {
    pub(crate) epochs: usize,
    /// Seconds since 1970.
    pub(crate) at: f64,
    pub(crate) values: Vec<(&'static str, f64)>,
}

impl Point {
    /// What a record says of a chain on so many training rows.
    pub(crate) fn of(record: &Record, at: f64, rows: usize) -> Self {
        let n = rows as f64;
        let values = [
            ("train/loss", Some(record.loss)),
            ("train/step_size", Some(record.step_size)),
            ("train/temperature_times_n", record.effective_temperature.map(|t| t * n)),
            ("test/accuracy", record.test_accuracy),
            ("test/nll", record.test_nll),
            ("network/pruned", Some(record.sparsity)),
            ("network/inputs", Some(record.live_inputs as f64)),
            ("network/work", Some(record.work)),
        ];
        let there = |(name, value): (&'static str, Option<f64>)| value.map(|value| (name, value));
        Self {
            epochs: record.epoch + 1,
            at,
            values: values.into_iter().filter_map(there).collect(),
        }
    }
}

/// Writes the event files of a run, one folder for each of its parts.
pub(crate) struct EventFiles {
    folder: PathBuf,
    parts: BTreeMap<String, Part>,
}

/// The file of this session, and the last point that it or one before it has.
struct Part {
    file: File,
    path: PathBuf,
    last: usize,
}

impl EventFiles {
    /// In the folder of a run.
    pub(crate) fn of_run(run: &Path) -> Self {
        Self { folder: run.join(FOLDER), parts: BTreeMap::new() }
    }

    /// Takes all points that a part of the run has by now, in their order, and writes those that
    /// are not in its files. What its files have beyond the last one is removed the first time.
    pub(crate) fn write(&mut self, part: &str, points: &[Point], now: f64) -> Result<()> {
        if !self.parts.contains_key(part) {
            let most = points.last().map_or(0, |point| point.epochs);
            let begun = Part::begin(&self.folder.join(part), most, now)?;
            self.parts.insert(part.to_owned(), begun);
        }
        let Some(part) = self.parts.get_mut(part) else { return Ok(()) };
        let first = points.partition_point(|point| point.epochs <= part.last);
        let bytes: Vec<u8> = points[first..]
            .iter()
            .flat_map(|point| frame(&scalars(point.at, point.epochs as i64, &point.values)))
            .collect();
        part.file.write_all(&bytes).map_err(|e| Error::file("write", &part.path, e))?;
        part.last = points.last().map_or(part.last, |point| point.epochs.max(part.last));
        Ok(())
    }
}

impl Part {
    fn begin(folder: &Path, most: usize, now: f64) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
        let (mut last, mut newest) = (0, 0);
        for path in own_files(folder) {
            newest = newest.max(seconds_of(&path).unwrap_or(0));
            last = last.max(cut_after(&path, most)?);
        }
        // Readers take the files in the order of their names.
        let seconds = (now as u64).max(newest + 1);
        let path = folder.join(format!("{BEGIN}{seconds:010}{END}"));
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let mut file = file.map_err(|e| Error::file("create", &path, e))?;
        let mut bytes = frame(&version(now));
        if newest > 0 {
            // A reader that has seen what was cut off forgets it.
            bytes.extend(frame(&restart(now, last as i64 + 1)));
        }
        file.write_all(&bytes).map_err(|e| Error::file("write", &path, e))?;
        Ok(Self { file, path, last })
    }
}

/// Cuts off what a file has of epochs after `most`, and a point that was not written to its end;
/// gives the last epoch that stays.
fn cut_after(path: &Path, most: usize) -> Result<usize> {
    let bytes = regular::read(path).map_err(|e| Error::file("read", path, e))?;
    let (mut last, mut keep) = (0, 0);
    for (end, data) in frames(&bytes) {
        let Some(event) = Event::read(data) else { break };
        if event.is_scalars() {
            if event.step > most as i64 {
                break;
            }
            last = last.max(usize::try_from(event.step).unwrap_or(0));
        }
        keep = end;
    }
    if keep < bytes.len() {
        let open = OpenOptions::new().write(true).open(path);
        let cut = open.and_then(|file| file.set_len(keep as u64));
        cut.map_err(|e| Error::file("cut", path, e))?;
    }
    Ok(last)
}

/// The event files that thinfer wrote in a folder.
fn own_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| seconds_of(path).is_some()).collect();
    files.sort();
    files
}

fn seconds_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(BEGIN)?.strip_suffix(END)?.parse().ok()
}

/// Removes the event files of a run, and the folders that are empty then.
pub(crate) fn remove(run: &Path) -> Result<()> {
    let folder = run.join(FOLDER);
    let parts = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for part in parts.collect::<Vec<_>>() {
        for file in own_files(&part) {
            fs::remove_file(&file).map_err(|e| Error::file("remove", &file, e))?;
        }
        // Stay where there is something else in them.
        let _ = fs::remove_dir(&part);
    }
    let _ = fs::remove_dir(&folder);
    Ok(())
}

#[cfg(test)]
mod tests;
