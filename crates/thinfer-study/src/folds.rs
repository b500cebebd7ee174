//! Cross-validation: one run for each fold of a table, and the mean of what they score.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thinfer_core::metrics::Spread;
use thinfer_core::train::Observer;
use thinfer_data::files::{claim, read_json};
use thinfer_data::{Data, Error, Result};
use thinfer_run::config::{Config, DataKind};
use thinfer_run::run::{Control, Mode, read_info, train_and_hold, write_json};

use crate::finish::{Keys, finish};

/// Several runs of one configuration, each tested on its own part of the rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Folds {
    /// Each fold, in its order.
    pub folds: Vec<Fold>,
    /// What they score together.
    pub summary: Summary,
}

/// The run of one fold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fold {
    /// Its number, from 1.
    pub fold: usize,
    /// Its folder.
    pub run: PathBuf,
    /// Rows that it learned from.
    pub train_rows: usize,
    /// Rows that it was tested on, which no other fold was.
    pub test_rows: usize,
    /// Scores of its posterior on them.
    pub scores: FoldScores,
    /// Scores of a constant: the mean or the most frequent class of its training rows.
    pub baseline: FoldScores,
    /// Whether to believe it, in a word.
    pub believe: Option<String>,
    /// Its chains that blew up.
    pub blown_up: Vec<u32>,
}

/// Scores on the test rows of a fold, as its `evaluation.json` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoldScores {
    /// Mean squared error.
    pub mse: Option<f64>,
    /// Share of right classes.
    pub accuracy: Option<f64>,
    /// Mean negative log-likelihood.
    pub nll: Option<f64>,
    /// Share of rows inside their 90 % interval.
    pub coverage90: Option<f64>,
    /// Expected calibration error.
    pub ece: Option<f64>,
    /// Brier score.
    pub brier: Option<f64>,
}

/// Mean and spread over folds of every score; absent where no fold has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Mean squared error.
    pub mse: Option<Spread>,
    /// Share of right classes.
    pub accuracy: Option<Spread>,
    /// Mean negative log-likelihood.
    pub nll: Option<Spread>,
    /// Share of rows inside their 90 % interval.
    pub coverage90: Option<Spread>,
    /// Expected calibration error.
    pub ece: Option<Spread>,
    /// Brier score.
    pub brier: Option<Spread>,
}

impl Summary {
    /// Of the scores of folds.
    pub fn of(scores: &[FoldScores]) -> Self {
        let spread = |value: fn(&FoldScores) -> Option<f64>| {
            let values: Option<Vec<f64>> = scores.iter().map(value).collect();
            values.filter(|values| !values.is_empty()).map(|values| Spread::of(&values))
        };
        Self {
            mse: spread(|s| s.mse),
            accuracy: spread(|s| s.accuracy),
            nll: spread(|s| s.nll),
            coverage90: spread(|s| s.coverage90),
            ece: spread(|s| s.ece),
            brier: spread(|s| s.brier),
        }
    }
}

/// Who is told of folds.
pub trait Watcher {
    /// A fold is about to be trained, or gone on with.
    fn begins(&self, fold: usize);
    /// A fold is there; `trained` is false where it was before.
    fn ends(&self, fold: &Fold, trained: bool);
}

/// The folder of so many folds of a run.
pub fn folds_path(run: &Path, folds: usize) -> PathBuf {
    run.join(format!("folds-{folds}"))
}

/// The configuration of one of so many folds.
pub fn fold_config(config: &Config, fold: usize, folds: usize) -> Result<Config> {
    let refuse = |problem: &str| Err(Error::config("--folds", problem));
    let data = &config.data;
    if data.kind != DataKind::Table {
        return refuse("divides the rows of a table, but this run has none; leave it out");
    }
    if data.split.is_some() {
        return refuse(
            "divides the rows by chance, but in this run a column does (data.split); leave it out",
        );
    }
    if data.test_path.is_some() {
        return refuse(
            "divides the rows of one table, but this run has a second one for testing (data.test_path); leave it out",
        );
    }
    let mut config = config.clone();
    (config.data.folds, config.data.fold) = (Some(folds), Some(fold));
    Ok(config)
}

/// Trains and evaluates one run for each of `folds` folds in `folder`, and writes `folds.json`
/// there. Folds that are there with the same settings and data are not trained again, and one that
/// was stopped goes on; with `force` folds of other settings are replaced.
pub fn cross_validate(
    config: &Config,
    folder: &Path,
    folds: usize,
    force: bool,
    control: &Control<'_>,
    watcher: &dyn Watcher,
) -> Result<Folds> {
    let configs: Vec<Config> =
        (1..=folds).map(|fold| fold_config(config, fold, folds)).collect::<Result<_>>()?;
    fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
    let _alone = claim(folder)?;
    let mut all = Vec::with_capacity(folds);
    for (fold, config) in (1..).zip(&configs) {
        let run = folder.join(format!("fold-{fold}"));
        let finished = finished(config, fold, &run, control.observer)?;
        let trained = finished.is_none();
        let found = if let Some(found) = finished {
            found
        } else {
            watcher.begins(fold);
            train_fold(config, fold, &run, force, control)?
        };
        watcher.ends(&found, trained);
        all.push(found);
    }
    let scores: Vec<FoldScores> = all.iter().map(|fold| fold.scores).collect();
    let found = Folds { summary: Summary::of(&scores), folds: all };
    write_json(&folder.join("folds.json"), &found)?;
    Ok(found)
}

fn train_fold(
    config: &Config,
    fold: usize,
    run: &Path,
    force: bool,
    control: &Control<'_>,
) -> Result<Fold> {
    let other = || -> Result<bool> {
        match read_info(run, control.observer) {
            Ok(info) => {
                let differences = info.config.differences(config)?;
                Ok(differences.iter().any(|difference| !difference.key.starts_with("posterior.")))
            }
            Err(_) => Ok(run.join("run.json").exists()),
        }
    };
    let mode = if force && other()? { Mode::Force } else { Mode::Resume };
    let (trained, _held) = train_and_hold(config, run, mode, control, 0)?;
    let evaluated = trained.evaluate(&[], control.device)?;
    finish(&trained, &evaluated, run, Keys::Sorted)?;
    read(fold, run)?.ok_or_else(|| {
        Error::store(run, "its evaluation was removed while it was written; try again")
    })
}

/// A fold that was trained and evaluated before, with these settings on this data.
fn finished(
    config: &Config,
    fold: usize,
    run: &Path,
    observer: &dyn Observer,
) -> Result<Option<Fold>> {
    if !run.join("run.json").exists() || !run.join("evaluation.json").exists() {
        return Ok(None);
    }
    let Ok(info) = read_info(run, observer) else { return Ok(None) };
    if info.config != *config
        || Data::load(&config.data, config.seed)?.fingerprint() != info.data_fingerprint
    {
        return Ok(None);
    }
    // One that is damaged is written again.
    Ok(read(fold, run).unwrap_or(None))
}

/// What is read of the evaluation of a fold.
#[derive(Deserialize)]
struct Evaluation {
    rows: (usize, usize, usize),
    posterior: FoldScores,
    baseline: FoldScores,
    verdict: Option<Verdict>,
    blown_up: Vec<u32>,
}

#[derive(Deserialize)]
struct Verdict {
    believe: String,
}

fn read(fold: usize, run: &Path) -> Result<Option<Fold>> {
    let advice = "remove it, and the fold is evaluated again";
    let found: Option<Evaluation> = read_json(&run.join("evaluation.json"), advice)?;
    Ok(found.map(|Evaluation { rows, posterior, baseline, verdict, blown_up }| Fold {
        fold,
        run: run.to_owned(),
        train_rows: rows.0,
        test_rows: rows.2,
        scores: posterior,
        baseline,
        believe: verdict.map(|verdict| verdict.believe),
        blown_up,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use thinfer_core::device::Device;
    use thinfer_core::train::Record;
    use thinfer_run::run::RunObserver;

    /// A table of 46 rows whose target is known from two columns.
    fn config(folder: &Path, more: &[&str]) -> Config {
        let path = folder.join("t.csv");
        if !path.exists() {
            let row = |row: usize| {
                let (a, b) = ((row * 7 % 11) as f64, (row * 5 % 13) as f64);
                format!("{a},{b},{}\n", 2.0 * a - b + (row % 3) as f64)
            };
            fs::write(&path, "a,b,y\n".to_owned() + &(0..46).map(row).collect::<String>()).unwrap();
        }
        let path = format!("data.path={}", path.display());
        let set = ["data.kind=table", "data.target=y", "method.kind=sghmc", "model.hidden=[3]"];
        let length =
            ["train.epochs=12", "schedule.step_size.cycles=2", "train.samples_per_cycle=4"];
        let all = set.iter().chain(&length).chain(more).map(|set| (*set).to_owned());
        Config::parse("", &all.chain([path]).collect::<Vec<_>>()).unwrap()
    }

    /// Notes which folds are trained, and stops one of them after its first step.
    #[derive(Default)]
    struct Witness {
        trained: Mutex<Vec<usize>>,
        stop: AtomicBool,
        stop_in: Option<usize>,
    }

    impl Watcher for Witness {
        fn begins(&self, fold: usize) {
            self.trained.lock().unwrap().push(fold);
            self.stop.store(self.stop_in == Some(fold), Ordering::SeqCst);
        }

        fn ends(&self, _: &Fold, _: bool) {}
    }

    impl Observer for Witness {
        fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}

        fn notice(&self, _: &str) {}
    }

    impl RunObserver for Witness {}

    fn validate(config: &Config, folder: &Path, force: bool, witness: &Witness) -> Result<Folds> {
        let control = Control {
            stop: &witness.stop,
            observer: witness,
            device: Device::Cpu,
            device_name: "cpu",
        };
        cross_validate(config, folder, 3, force, &control, witness)
    }

    #[test]
    fn every_row_is_tested_once_and_the_summary_is_that_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), &[]);
        let out = folder.path().join("folds");
        let found = validate(&config, &out, false, &Witness::default()).unwrap();
        let tested: usize = found.folds.iter().map(|fold| fold.test_rows).sum();
        assert_eq!(tested, 46);
        assert!(found.folds.iter().all(|fold| fold.train_rows + fold.test_rows == 46));
        let mut nll = Vec::new();
        for (fold, of) in (1..).zip(&found.folds) {
            let path = out.join(format!("fold-{fold}/evaluation.json"));
            let file: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            assert_eq!(file["posterior"]["nll"].as_f64(), of.scores.nll);
            assert_eq!(file["verdict"]["believe"].as_str(), of.believe.as_deref());
            nll.push(of.scores.nll.unwrap());
        }
        assert_eq!(found.summary.nll, Some(Spread::of(&nll)));
        assert!(found.summary.nll.unwrap().sd > 0.0 && found.summary.accuracy.is_none());
        let kept: serde_json::Value =
            serde_json::from_slice(&fs::read(out.join("folds.json")).unwrap()).unwrap();
        assert_eq!(kept["summary"]["nll"]["mean"].as_f64(), found.summary.nll.map(|s| s.mean));
    }

    #[test]
    fn folds_that_were_stopped_go_on_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), &[]);
        let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
        let wanted = validate(&config, &whole, false, &Witness::default()).unwrap();
        let witness = Witness { stop_in: Some(2), ..Witness::default() };
        let stopped = validate(&config, &cut, false, &witness).unwrap_err();
        assert!(matches!(stopped, Error::Interrupted(_)), "{stopped}");
        assert!(!cut.join("folds.json").exists() && !cut.join("fold-3").exists());
        let again = Witness::default();
        let found = validate(&config, &cut, false, &again).unwrap();
        assert_eq!(*again.trained.lock().unwrap(), [2, 3], "the first one was done");
        assert_eq!(found.summary, wanted.summary);
        for fold in 1..=3 {
            let bytes = |of: &Path| fs::read(of.join(format!("fold-{fold}/evaluation.json")));
            assert_eq!(bytes(&whole).unwrap(), bytes(&cut).unwrap(), "fold {fold}");
        }
        let done = Witness::default();
        validate(&config, &cut, false, &done).unwrap();
        assert!(done.trained.lock().unwrap().is_empty());
    }

    #[test]
    fn folds_of_other_settings_are_refused_and_replaced_when_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("folds");
        validate(&config(folder.path(), &[]), &out, false, &Witness::default()).unwrap();
        let other = config(folder.path(), &["seed=7"]);
        let error = validate(&other, &out, false, &Witness::default()).unwrap_err().to_string();
        assert!(error.contains("`seed`: is 7, but the run in"), "{error}");
        let witness = Witness::default();
        validate(&other, &out, true, &witness).unwrap();
        assert_eq!(*witness.trained.lock().unwrap(), [1, 2, 3]);
        // Which samples are averaged needs no training.
        let averaged = config(folder.path(), &["seed=7", "posterior.burn_in=0.0"]);
        let before = fs::read(out.join("fold-1/chain-0/checkpoint")).unwrap();
        validate(&averaged, &out, false, &Witness::default()).unwrap();
        assert_eq!(fs::read(out.join("fold-1/chain-0/checkpoint")).unwrap(), before);
        let held = claim(&out).unwrap();
        let error = validate(&averaged, &out, false, &Witness::default()).unwrap_err();
        assert!(error.to_string().contains("is at work in this folder"), "{error}");
        drop(held);
    }

    #[test]
    fn rows_that_are_divided_already_are_not_divided_again() {
        let told = |set: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            fold_config(&config(folder.path(), set), 1, 3).map(drop).unwrap_err().to_string()
        };
        assert!(told(&["data.split=part"]).contains("a column does (data.split)"));
        assert!(told(&["data.test_path=other.csv"]).contains("a second one for testing"));
        let simulated = Config::parse("", &[]).unwrap();
        let error = fold_config(&simulated, 1, 3).unwrap_err().to_string();
        assert!(error.contains("`--folds`: divides the rows of a table"), "{error}");
    }
}
