//! Comparisons of small runs.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use thinfer_core::train::Silent;
use thinfer_run::config::Config;
use thinfer_run::run::{Control, Mode, Run, remove_samples, train, write_json};

use super::*;

const TABLE: &[&str] = &[
    "data.columns=8",
    "data.train_rows=200",
    "data.test_rows=50",
    "train.epochs=12",
    "prune.warm_up_epochs=2",
    "schedule.step_size.cycles=2",
    "data.seed=1",
];
const SHAPES: &[&str] = &[
    "data.kind=shapes",
    "data.train_rows=64",
    "data.test_rows=20",
    "model.name=lenet",
    "train.epochs=3",
    "train.batch=32",
    "schedule.step_size.value=0.01",
    "schedule.step_size.cycles=1",
    "prune.warm_up_epochs=0",
];

fn trained(folder: &Path, settings: &[&str], more: &[&str]) -> Run {
    let all: Vec<String> = settings.iter().chain(more).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &all).unwrap();
    let stop = AtomicBool::new(false);
    let control =
        Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
    train(&config, folder, Mode::New, &control).unwrap()
}

fn compared(folders: &[&Path]) -> Result<Comparison> {
    let folders: Vec<PathBuf> = folders.iter().map(|folder| (*folder).to_owned()).collect();
    compare(&folders, Device::Cpu, &Silent)
}

#[test]
fn runs_on_one_table_are_compared_with_or_without_their_samples() {
    let folder = tempfile::tempdir().unwrap();
    let [dfp, sgd] = ["dfp", "sgd"].map(|name| folder.path().join(name));
    let run = trained(&dfp, TABLE, &[]);
    trained(&sgd, TABLE, &["method.kind=sgd", "seed=2"]);
    let all = compared(&[&dfp, &sgd]).unwrap();
    assert_eq!((all.subject, all.is_error()), (Some(Subject::Numbers), true));
    let [first, second] = &all.runs[..] else { panic!("two runs") };
    assert_eq!([first.method.as_str(), second.method.as_str()], ["em-mcmc, DFP", "sgd"]);
    let weights = run.info.network.params().len();
    assert_eq!([first.memory_bytes, second.memory_bytes], [13 * weights, 9 * weights]);
    let found = run.evaluate(&[], Device::Cpu).unwrap().table().unwrap().clone();
    let scores = first.evaluated.as_ref().unwrap();
    assert_eq!((scores.mse, scores.coverage90), (found.posterior.mse, found.posterior.coverage90));
    assert_eq!(scores.selected, Some(found.selected.len()));
    assert_eq!(scores.fndr, found.selection.map(|s| s.fndr));
    assert!(first.finished && first.seconds.is_some() && !all.front.is_empty());

    // An evaluation that is kept is enough.
    write_json(&dfp.join("evaluation.json"), &found).unwrap();
    remove_samples(&dfp).unwrap();
    assert_eq!(compared(&[&dfp, &sgd]).unwrap(), all);
    remove_samples(&sgd).unwrap();
    let without = compared(&[&dfp, &sgd]).unwrap();
    assert!(!without.runs[1].finished && without.runs[1].evaluated.is_none());
    assert_eq!((without.runs[1].epochs_done, without.front), (12, vec![0]));
}

/// Rows of a table that are divided by the seed are other rows for each seed, and may be compared.
#[test]
fn seeds_are_put_together_also_where_they_divide_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut text = String::from("a,b,y\n");
    for row in 0..80 {
        text.push_str(&format!("{},{},{}\n", row * 7 % 31, row * 5 % 17, row * row % 23));
    }
    std::fs::write(&path, text).unwrap();
    let path = format!("data.path={}", path.display());
    let settings = [
        "data.kind=table",
        path.as_str(),
        "data.target=y",
        "method.kind=sgd",
        "model.hidden=[3]",
        "train.epochs=6",
        "train.batch=16",
        "schedule.step_size.cycles=2",
    ];
    let folders: Vec<PathBuf> = (0..4).map(|at| folder.path().join(format!("r{at}"))).collect();
    for (at, more) in
        [&["seed=1"][..], &["seed=2"], &["seed=1", "train.epochs=4"], &["seed=2", "train.epochs=4"]]
            .into_iter()
            .enumerate()
    {
        trained(&folders[at], &settings, more);
    }
    let all = compare(&folders, Device::Cpu, &Silent).unwrap();
    assert!(all.split_by_seed);
    let keys: Vec<&str> = all.differences.iter().map(|of| of.key.as_str()).collect();
    assert_eq!(keys, ["seed", "train.epochs"]);
    let runs: Vec<&[usize]> = all.groups.iter().map(|group| &group.runs[..]).collect();
    assert_eq!(runs, [&[0, 1][..], &[2, 3]]);
    let mse = all.groups[0].score("mse").unwrap();
    let [one, two] = [0, 1].map(|run| all.runs[run].evaluated.as_ref().unwrap().mse.unwrap());
    assert!((mse.mean - 0.5 * (one + two)).abs() < 1e-9 && mse.runs == 2);
    assert!((mse.sd.unwrap() - (one - two).abs() / 2f64.sqrt()).abs() < 1e-9);
    assert_eq!(all.runs[0].course.loss.len(), 6);
    let page = crate::report::comparison::html(&all).unwrap();
    for part in ["Over seeds", "\u{b1}", "Differences of the configurations", "train.epochs"] {
        assert!(page.contains(part), "`{part}` is missing");
    }
    assert!(page.contains("divided by the seed") && page.contains("Training loss"));
    let one = compare(&folders[..2], Device::Cpu, &Silent).unwrap();
    assert_eq!((one.groups.len(), one.differences.len()), (1, 1));
}

#[test]
fn images_are_compared_and_unfinished_runs_are_shown_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    trained(&whole, SHAPES, &["prune.target=0.5"]);
    trained(&cut, SHAPES, &["method.kind=sgd"]);
    std::fs::remove_file(cut.join("chain-0/snapshot-000002.safetensors")).unwrap();
    std::fs::write(cut.join("chain-0/times.csv"), "epoch,seconds\n0,0.5\n1,0.25\n").unwrap();
    let all = compared(&[&cut, &whole]).unwrap();
    assert_eq!((all.subject, &all.front[..]), (Some(Subject::Images), &[1][..]));
    assert_eq!((all.runs[0].finished, all.runs[0].epochs_done), (false, 2));
    assert_eq!(all.runs[0].seconds, Some(0.75));
    let found = all.runs[1].evaluated.as_ref().unwrap();
    assert!((0.4..0.6).contains(&found.sparsity) && found.accuracy.is_some());
    assert!(found.bytes.1 < found.bytes.0);
    let page = crate::report::comparison::html(&all).unwrap();
    assert!(page.contains("unfinished, 2 of 3 epochs"));
}

#[test]
fn other_data_and_other_tasks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, settings: &[&str], more: &[&str]| {
        let path = folder.path().join(name);
        trained(&path, settings, more);
        path
    };
    let table = run("table", TABLE, &[]);
    let images = run("images", SHAPES, &[]);
    let seed = run("seed", TABLE, &["data.seed=2"]);
    let other = run("other", TABLE, &["data.kind=example3"]);
    for (path, part) in
        [(&images, "another task"), (&seed, "data.seed=1"), (&other, "trained on example3")]
    {
        let error = compared(&[&table, path]).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("same data"), "{error}");
    }
    let error = compared(&[&table, folder.path()]).unwrap_err().to_string();
    assert!(error.contains("not a run folder"), "{error}");
    std::fs::write(table.join("evaluation.json"), "{}").unwrap();
    let error = compared(&[&table, &table]).unwrap_err().to_string();
    assert!(error.contains("thinfer eval"), "{error}");
}
