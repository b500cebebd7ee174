//! Runs in folders: what is kept, refused, restored and noticed.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use thinfer_core::train::{Record, checkpoint_path};

use super::*;

fn config(more: &[&str]) -> Config {
    let small = ["data.columns=5", "data.train_rows=60", "data.validation_rows=10"];
    let rest = ["data.test_rows=10", "model.hidden=[3]", "train.epochs=6"];
    let all = small.iter().chain(&rest).chain(more).map(|set| (*set).to_owned());
    Config::parse("", &all.collect::<Vec<_>>()).unwrap()
}

/// Notes what it is told, and does something when a run is about to begin.
#[derive(Default)]
struct Witness<'a> {
    told: Mutex<Vec<String>>,
    at_begin: Option<Box<dyn Fn() + Sync + 'a>>,
}

impl Observer for Witness<'_> {
    fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}

    fn notice(&self, text: &str) {
        self.told.lock().unwrap().push(text.to_owned());
    }
}

impl RunObserver for Witness<'_> {
    fn begins(&self, _: &RunInfo, _: u64) {
        if let Some(act) = &self.at_begin {
            act();
        }
    }
}

fn trained(config: &Config, folder: &Path, mode: Mode, observer: &dyn RunObserver) -> Result<Run> {
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, observer, device: Device::Cpu, device_name: "cpu" };
    train(config, folder, mode, &control)
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    (folder, run)
}

fn last_sample(run: &Path) -> Vec<u8> {
    fs::read(run.join("chain-0/snapshot-000005.safetensors")).unwrap()
}

/// Another program trains in the folder while this one loads its data.
#[test]
fn a_run_that_was_finished_in_the_meantime_is_not_replaced() {
    let (_folder, run) = place();
    let (ours, theirs) = (config(&["seed=1"]), config(&["seed=2"]));
    for mode in [Mode::New, Mode::Resume] {
        let _ = fs::remove_dir_all(&run);
        let kept = Mutex::new(Vec::new());
        let other = || {
            trained(&theirs, &run, Mode::New, &Silent).unwrap();
            *kept.lock().unwrap() = last_sample(&run);
        };
        let witness = Witness { at_begin: Some(Box::new(other)), ..Witness::default() };
        let error = trained(&ours, &run, mode, &witness).map(drop).unwrap_err();
        match mode {
            Mode::New => assert!(matches!(error, Error::RunExists(_)), "{error}"),
            _ => assert!(error.to_string().contains("was started with 2"), "{error}"),
        }
        drop(witness);
        assert_eq!(last_sample(&run), *kept.lock().unwrap());
        assert_eq!(read_info(&run, &Silent).unwrap().config.seed, 2);
    }
    // The same run, finished by the other program, is gone on with.
    fs::remove_dir_all(&run).unwrap();
    let other = || drop(trained(&ours, &run, Mode::New, &Silent).unwrap());
    let witness = Witness { at_begin: Some(Box::new(other)), ..Witness::default() };
    assert_eq!(trained(&ours, &run, Mode::Resume, &witness).unwrap().results.len(), 1);
}

#[cfg(unix)]
#[test]
fn a_run_holds_its_folder_while_it_trains_and_until_it_is_let_go() {
    let (_folder, run) = place();
    let config = config(&[]);
    fs::create_dir(&run).unwrap();
    let held = claim(&run).unwrap();
    for mode in [Mode::New, Mode::Resume] {
        let error = trained(&config, &run, mode, &Silent).map(drop).unwrap_err().to_string();
        assert!(error.contains("is at work in this folder"), "{error}");
    }
    assert_eq!(fs::read_dir(&run).unwrap().count(), 0, "nothing was written");
    drop(held);
    let stop = AtomicBool::new(false);
    let control =
        Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
    let (_, held) = train_and_hold(&config, &run, Mode::New, &control, 1).unwrap();
    assert!(claim(&run).is_err());
    drop(held);
    assert!(claim(&run).is_ok());
}

#[test]
fn a_run_that_was_killed_before_its_first_file_can_begin_again() {
    for mode in [Mode::New, Mode::Resume, Mode::Force] {
        // As versions before left it, and as this one does.
        for left in ["run.json.partial", "run.json.a1B2c3.partial"] {
            let (_folder, run) = place();
            fs::create_dir(&run).unwrap();
            fs::write(run.join(left), "{").unwrap();
            trained(&config(&[]), &run, mode, &Silent).unwrap();
            assert!(!run.join(left).exists(), "{mode:?} {left}");
        }
    }
    let (_folder, run) = place();
    fs::create_dir(&run).unwrap();
    for mine in ["config.toml", "thesis.partial"] {
        fs::write(run.join(mine), "mine").unwrap();
        for mode in [Mode::New, Mode::Resume, Mode::Force] {
            let error = trained(&config(&[]), &run, mode, &Silent).map(drop).unwrap_err();
            assert!(error.to_string().contains("not empty and holds no run"), "{error}");
        }
        assert_eq!(fs::read(run.join(mine)).unwrap(), b"mine");
        fs::remove_file(run.join(mine)).unwrap();
    }
}

#[test]
fn what_a_killed_run_was_writing_is_removed_when_it_goes_on() {
    let (_folder, run) = place();
    trained(&config(&[]), &run, Mode::New, &Silent).unwrap();
    let left = ["history.csv.x.partial", "chain-0/checkpoint.y.partial", "chain-0/checkpoint.next"];
    let mine = ["posterior.onnx.z.partial", "chain-0/notes.partial"];
    left.iter().chain(&mine).for_each(|name| fs::write(run.join(name), "half").unwrap());
    trained(&config(&[]), &run, Mode::Resume, &Silent).unwrap();
    assert!(left.iter().all(|name| !run.join(name).exists()));
    assert!(mine.iter().all(|name| run.join(name).exists()));
}

#[test]
fn settings_that_were_not_written_yet_are_written_when_the_run_goes_on() {
    let (_folder, run) = place();
    trained(&config(&[]), &run, Mode::New, &Silent).unwrap();
    let written = fs::read(run.join("config.toml")).unwrap();
    fs::remove_file(run.join("config.toml")).unwrap();
    trained(&config(&[]), &run, Mode::Resume, &Silent).unwrap();
    assert_eq!(fs::read(run.join("config.toml")).unwrap(), written);
}

#[test]
fn every_changed_byte_of_a_run_is_refused_or_of_no_effect() {
    let (_folder, run) = place();
    trained(&config(&[]), &run, Mode::New, &Silent).unwrap();
    let (path, info) = (run.join("run.json"), read_info(&run, &Silent).unwrap());
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in 0..whole.len() {
        // Another digit, another letter, and something that is no text.
        for flip in [0x01, 0x10, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&path, &bytes).unwrap();
            match read_info(&run, &Silent) {
                Ok(found) => assert!(found == info, "byte {at} ^ {flip:#x} changed the run"),
                Err(error) => {
                    assert!(error.to_string().contains("run.json"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    // Only the word `checksum` is no content.
    assert!(refused > 3 * (whole.len() - 20), "{refused} of {}", 3 * whole.len());
}

#[test]
fn a_run_of_an_older_version_is_read_with_a_notice() {
    let (_folder, run) = place();
    let config = config(&[]);
    trained(&config, &run, Mode::New, &Silent).unwrap();
    let witness = Witness::default();
    let info = read_info(&run, &witness).unwrap();
    assert!(witness.told.lock().unwrap().is_empty());
    fs::write(run.join("run.json"), serde_json::to_vec_pretty(&info).unwrap()).unwrap();
    assert_eq!(read_info(&run, &witness).unwrap(), info);
    assert!(witness.told.lock().unwrap()[0].contains("run.json has no checksum"));
    trained(&config, &run, Mode::Resume, &witness).unwrap();
    assert_eq!(witness.told.lock().unwrap().len(), 2, "told once a command");
}

/// The first checkpoint is far away when the user stops the run.
#[test]
fn a_stopped_run_has_a_checkpoint_however_rarely_they_are_written() {
    let (_folder, run) = place();
    let config = config(&["train.checkpoint_seconds=1e6", "chains=2"]);
    let stop = AtomicBool::new(false);
    let asks = || stop.store(true, Ordering::Relaxed);
    let witness = Witness { at_begin: Some(Box::new(asks)), ..Witness::default() };
    let control =
        Control { stop: &stop, observer: &witness, device: Device::Cpu, device_name: "cpu" };
    let error = train(&config, &run, Mode::New, &control).map(drop).unwrap_err();
    assert!(matches!(error, Error::Interrupted(_)), "{error}");
    assert!(checkpoint_path(&run, 0).is_file() || checkpoint_path(&run, 1).is_file());
    open_results(&run, &Silent).unwrap();
    trained(&config, &run, Mode::Resume, &Silent).unwrap();
    let (_other, whole) = place();
    trained(&config, &whole, Mode::New, &Silent).unwrap();
    assert_eq!(last_sample(&run), last_sample(&whole));
}

/// A run from before gaps were filled in has left their rows out, and goes on without them.
#[test]
fn a_run_of_a_table_with_gaps_goes_on_as_it_was_started() {
    let (folder, run) = place();
    let path = folder.path().join("t.csv");
    let row = |row: usize| {
        let cell = if row.is_multiple_of(5) { String::new() } else { format!("{}", row * 7 % 11) };
        format!("{cell},{}\n", row * 5 % 13)
    };
    fs::write(&path, format!("a,y\n{}", (0..60).map(row).collect::<String>())).unwrap();
    let set = ["data.kind=table", "data.target=y", "method.kind=sgd", "train.epochs=6"];
    let mut set: Vec<String> = set.map(str::to_owned).to_vec();
    set.push(format!("data.path={}", path.display()));
    let now = Config::parse("", &set).unwrap();
    let mut before = now.clone();
    (before.data.missing, before.data.prepare) = (None, None);
    assert!(!before.to_toml().unwrap().contains("missing"));
    let first = trained(&before, &run, Mode::New, &Silent).unwrap();
    assert_eq!(first.info.rows, (28, 10, 10));
    let kept = read_info(&run, &Silent).unwrap();
    assert_eq!(
        (kept.config.data.missing, kept.data_fingerprint),
        (None, first.info.data_fingerprint)
    );
    assert_eq!(open(&run, &Silent).unwrap().info.rows, (28, 10, 10));
    let again = trained(&now, &run, Mode::Resume, &Silent).unwrap();
    assert_eq!(again.info.rows, (28, 10, 10));
    // A new run loses no row, and says in its settings why.
    let run = folder.path().join("new");
    let new = trained(&now, &run, Mode::New, &Silent).unwrap();
    assert_eq!(new.info.rows, (36, 12, 12));
    assert!(fs::read_to_string(run.join("config.toml")).unwrap().contains("missing = \"impute\""));
}

/// Stops a run after some records.
struct StopsAfter<'a> {
    records: usize,
    stop: &'a AtomicBool,
}

impl Observer for StopsAfter<'_> {
    fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}

    fn recorded(&self, _: u32, records: &[Record]) {
        self.stop.store(records.len() >= self.records, Ordering::Relaxed);
    }

    fn notice(&self, _: &str) {}
}

impl RunObserver for StopsAfter<'_> {}

#[test]
fn the_history_of_a_stopped_run_is_there_and_that_of_a_resumed_one_is_the_same_to_the_byte() {
    let config = config(&["train.checkpoint_seconds=1e6", "chains=2"]);
    let history = |run: &Path| fs::read_to_string(run.join("history.csv")).unwrap();
    let (_whole_folder, whole) = place();
    trained(&config, &whole, Mode::New, &Silent).unwrap();
    let (_folder, run) = place();
    let stop = AtomicBool::new(false);
    let observer = StopsAfter { records: 3, stop: &stop };
    let control =
        Control { stop: &stop, observer: &observer, device: Device::Cpu, device_name: "cpu" };
    train(&config, &run, Mode::New, &control).map(drop).unwrap_err();
    let status = read_status(&run).unwrap();
    assert_eq!((status.stage, state(&run, Some(&status))), (Stage::Stopped, State::Stopped));
    let stopped = history(&run);
    assert!(stopped.lines().any(|line| line.starts_with("0,2,")), "{stopped}");
    // As if it had been killed a few epochs later, in the middle of what it is writing.
    fs::write(run.join("history.csv"), stopped + "0,4,1,1,1,,,,0,0,5,1,0,0,1,0,1,,,\n0,5,")
        .unwrap();
    trained(&config, &run, Mode::Resume, &Silent).unwrap();
    assert_eq!(history(&run), history(&whole));
    let status = read_status(&run).unwrap();
    assert_eq!((status.stage, status.done), (Stage::Trained, 1.0));
    // Nobody has scored it.
    assert_eq!(state(&run, Some(&status)), State::Stopped);
    fs::write(run.join("evaluation.json"), "{}").unwrap();
    assert_eq!(state(&run, Some(&status)), State::Finished);
    let held = claim(&run).unwrap();
    assert_eq!(state(&run, Some(&status)), State::Evaluating);
    drop(held);
    // Replacing it leaves nothing of the files behind.
    trained(&config, &run, Mode::Force, &Silent).unwrap();
    assert!(!run.join("evaluation.json").exists() && run.join("status.json").exists());
}

#[test]
fn a_run_that_goes_wrong_says_so_in_its_folder() {
    let (_folder, run) = place();
    let config = config(&["schedule.step_size.value=1e5", "method.kind=sgd", "method.clip=none"]);
    let error = trained(&config, &run, Mode::New, &Silent).map(drop).unwrap_err().to_string();
    let status = read_status(&run).unwrap();
    assert_eq!((status.stage, status.message.as_deref()), (Stage::Failed, Some(&error[..])));
    assert_eq!(state(&run, Some(&status)), State::Failed);
}

fn table_in_memory() -> thinfer_data::table::Table {
    use thinfer_data::table::{Column, Table, Values};
    let numbers = |name: &str, of: &dyn Fn(usize) -> f64| Column {
        name: name.into(),
        values: Values::Number((0..60).map(of).collect()),
    };
    let x = |row: usize| (row * 7 % 60) as f64;
    Table::from_columns(vec![
        numbers("x", &x),
        numbers("z", &|row| (row % 5) as f64),
        numbers("y", &|row| (0.1 * x(row)).sin()),
    ])
    .unwrap()
}

/// A run keeps no table that was in no file: who has it can open the run, others see its samples.
#[test]
fn a_run_on_a_table_in_memory_is_opened_with_that_table() {
    use thinfer_data::table::IN_MEMORY;
    let settings = [
        "data.kind=table".to_owned(),
        format!("data.path={IN_MEMORY}"),
        "data.target=y".into(),
        "model.likelihood=normal".into(),
        "method.kind=sghmc".into(),
        "train.epochs=6".into(),
        "model.hidden=[3]".into(),
    ];
    let config = Config::parse("", &settings).unwrap();
    let load = |config: &Config| -> Result<Data> {
        Ok(Data::Table(Bundle::of_table(&config.data, table_in_memory(), config.seed)?))
    };
    let (_folder, folder) = place();
    let stop = AtomicBool::new(false);
    let control =
        Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
    let (run, _claim) =
        train_on(&config, || load(&config), &folder, Mode::New, &control, 0).unwrap();
    let alone = train_in_memory(&config, load(&config).unwrap(), &control, 1).unwrap();
    assert_eq!(alone.results[0].snapshots, run.results[0].snapshots, "a folder changes no bit");
    let again = open_on(&folder, load, &Silent).unwrap();
    assert_eq!(again.results[0].snapshots, run.results[0].snapshots);
    let error = open(&folder, &Silent).map(drop).unwrap_err().to_string();
    assert!(error.contains("give the same table again"), "{error}");
    assert_eq!(open_posterior(&folder, &Silent).unwrap().1.members, run.posterior().members);
    let other = |config: &Config| -> Result<Data> {
        let mut table = table_in_memory();
        table.columns.remove(1);
        Ok(Data::Table(Bundle::of_table(&config.data, table, config.seed)?))
    };
    let error = open_on(&folder, other, &Silent).map(drop).unwrap_err().to_string();
    assert!(error.contains("has changed"), "{error}");
}
