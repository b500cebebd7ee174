//! The model on the selected variables, sampled as a run.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use thinfer_core::device::Device;
use thinfer_core::train::{Observer, Record};
use thinfer_data::table::Table;
use thinfer_data::{Bundle, Data, DataConfig, DataKind, Error, Result};
use thinfer_run::run::{self, Claim, Mode, Run, RunInfo, RunObserver, train_on};

use super::screen::Share;
use super::settings::{self, Form};
use super::{Control, Options};

/// The run that keeps the model on the selected variables. Nobody else trains in its folder until
/// this is dropped, so that what is found out about the run can be written beside it.
pub struct Kept {
    /// The run, with its data.
    pub run: Run,
    /// Its folder, held.
    pub claim: Claim,
}

/// Where the model on the selected variables is kept.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The folder of the run.
    pub folder: &'a Path,
    /// What to do where it is there.
    pub mode: Mode,
    /// Columns of numbers that the table was read with as categories.
    pub categorical: Vec<String>,
    /// The device in words.
    pub device_name: &'a str,
}

/// Where the model is sampled within the progress of all: from, and how much.
const FROM: u64 = 700;
const SPAN: u64 = 270;

/// Samples the model on `small`, which has the selected variables of `table` and all rows but the
/// test part. Without a place for it the run is gone with the answer.
pub(super) fn sample(
    form: Form,
    small: Bundle,
    table: &Table,
    options: &Options,
    place: Option<&Place<'_>>,
    control: &Control<'_>,
) -> Result<Kept> {
    let categorical = place.map_or_else(Vec::new, |place| place.categorical.clone());
    let data = DataConfig {
        kind: DataKind::Table,
        path: Some(table.path.display().to_string()),
        target: Some(small.schema.target_name.clone()),
        task: options.task,
        holdout: options.holdout,
        missing: Some(options.rules.missing),
        prepare: Some(options.rules.prepare),
        keep: options.rules.keep.clone(),
        leave_out: options.rules.leave_out.clone(),
        only: small.names.clone(),
        categorical,
        join_validation: true,
        ..DataConfig::default()
    };
    let config = settings::refitting(form, data, options)?;
    let total = AtomicUsize::new(0);
    let observer = Quiet { share: share(control.observer, &total), told: Mutex::new(Vec::new()) };
    let (stop, device) = (control.stop, Device::Cpu);
    let control = |device_name| run::Control { stop, observer: &observer, device, device_name };
    let data = Data::Table(small);
    let (run, claim) = if let Some(place) = place {
        train_on(&config, || Ok(data), place.folder, place.mode, &control(place.device_name), 0)?
    } else {
        let folder =
            tempfile::tempdir().map_err(|e| Error::file("create", &std::env::temp_dir(), e))?;
        train_on(&config, || Ok(data), &folder.path().join("run"), Mode::New, &control("cpu"), 0)?
    };
    Ok(Kept { run, claim })
}

fn share<'a>(observer: &'a dyn Observer, total: &'a AtomicUsize) -> Share<'a> {
    let last = AtomicUsize::new(0);
    Share { observer, total, from: FROM, span: SPAN, last, chains: 1 }
}

/// Passes on what the run says, but for what was said of the same table before.
struct Quiet<'a> {
    share: Share<'a>,
    told: Mutex<Vec<String>>,
}

impl Observer for Quiet<'_> {
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>) {
        self.share.progress(chain, step, total, record);
    }

    fn notice(&self, text: &str) {
        if !self.told.lock().is_ok_and(|told| told.iter().any(|note| note == text)) {
            self.share.notice(text);
        }
    }

    fn warning(&self, text: &str) {
        self.share.warning(text);
    }
}

impl RunObserver for Quiet<'_> {
    fn begins(&self, info: &RunInfo, _: u64) {
        if let Ok(mut told) = self.told.lock() {
            told.clone_from(&info.notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use thinfer_core::train::Silent;
    use thinfer_engine::noise::{Key, Stream};
    use thinfer_run::run::open;

    use super::super::{Selected, select, select_and_keep};
    use super::*;

    /// A number and a category of numbers that matter, one that does not, and missing values.
    fn table(folder: &Path) -> Table {
        let key = Key::new(4, 0, Stream::Inputs);
        let mut text = String::from("a,code,b,y\n");
        for row in 0..90usize {
            let [a, b, e] = [0, 1, 2].map(|column| f64::from(key.normal(column, row)));
            let code = row % 3;
            let y = 3.0 * a + 4.0 * (code as f64 - 1.0).abs() + 0.3 * e;
            let hole = if row == 7 { String::new() } else { b.to_string() };
            text.push_str(&format!("{a},{code},{hole},{y}\n"));
        }
        let path = folder.join("t.csv");
        std::fs::write(&path, text).unwrap();
        let options = thinfer_data::table::ReadOptions {
            categorical: vec!["code".into()],
            ..Default::default()
        };
        Table::read_with(&path, &options).unwrap()
    }

    #[test]
    fn the_run_is_the_model_that_the_selection_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(folder.path());
        let (stop, options) = (AtomicBool::new(false), Options { chains: 2, ..Options::default() });
        let control = Control { stop: &stop, observer: &Silent };
        let run_folder = folder.path().join("run");
        let place = Place {
            folder: &run_folder,
            mode: Mode::New,
            categorical: vec!["code".into()],
            device_name: "cpu",
        };
        let alone = select(&table, "y", &options, &control).unwrap();
        let (kept, run) = select_and_keep(&table, "y", &options, &control, &place).unwrap();
        let seconds = alone.seconds;
        assert_eq!(alone, Selected { seconds, ..kept.clone() });
        assert_eq!(alone.selected, ["a", "code"]);
        drop(run.unwrap());
        let opened = open(&run_folder, &Silent).unwrap();
        let evaluation = opened.evaluate(&[], Device::Cpu).unwrap().table().unwrap().clone();
        assert_eq!(evaluation.posterior.mse, alone.heldout.mse);
        assert_eq!(evaluation.rows.2, alone.heldout.rows);
        // Going on with what is finished gives the same, and a new run is refused.
        let again = Place { mode: Mode::Resume, ..place.clone() };
        let (same, _) = select_and_keep(&table, "y", &options, &control, &again).unwrap();
        assert_eq!(Selected { seconds, ..same }, alone);
        let refused = select_and_keep(&table, "y", &options, &control, &place).err().unwrap();
        assert!(refused.to_string().contains("already holds a run"), "{refused}");
    }
}
