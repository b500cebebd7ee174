//! Plans, costs and summaries of the image tables.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use thinfer_core::model::image_network;
use thinfer_engine::Shape;
use thinfer_run::experiment::build_method;
use thinfer_run::experiment::{Problem, ProblemInputs, build_network};

use super::*;

/// Rows of the paper on generated figures with a small network: what they learn does not matter.
fn small(rows: &[&str], seeds: u64) -> Plan {
    let rows: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
    let mut plan = Plan::new(PaperTable::Table1, &rows, (1..=seeds).collect()).unwrap();
    let overrides = [
        "data.kind=shapes",
        "data.train_rows=64",
        "data.test_rows=20",
        "model.name=lenet",
        "train.epochs=8",
        "train.batch=32",
        "schedule.step_size.value=0.01",
        "schedule.step_size.at_epochs=[2, 4]",
        "prune.warm_up_epochs=1",
    ];
    plan.overrides = overrides.map(str::to_owned).to_vec();
    plan
}

/// Writes down what it is told, and stops everything after so many ends or steps.
#[derive(Default)]
struct Witness {
    told: Mutex<Vec<String>>,
    stop: AtomicBool,
    stop_at_step: Option<u64>,
}

impl Watcher for Witness {
    fn begins(&self, _: usize, name: &str) {
        self.told.lock().unwrap().push(format!("begins {name}"));
    }

    fn progress(&self, _: usize, step: u64, _: u64, _: Option<&Record>) {
        if self.stop_at_step.is_some_and(|at| step >= at) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn ends(&self, _: usize, name: &str, result: &Result<Outcome>) {
        self.told.lock().unwrap().push(format!("ends {name}: {}", result.is_ok()));
    }

    fn notice(&self, _: &str) {}
}

fn run(plan: &Plan, out: &Path, witness: &Witness, discard_samples: bool) -> Result<Measured> {
    let setting = Setting {
        out,
        jobs: Some(2),
        discard_samples,
        device: Device::Cpu,
        device_name: "cpu",
        stop: &witness.stop,
        watcher: witness,
    };
    reproduce(plan, &setting)
}

/// Method, runs and runs asked for of the rows in a file.
fn rows_of(path: &Path) -> Vec<(&'static str, u64, u64)> {
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let known = PaperTable::Table1.rows();
    let row = |row: &serde_json::Value| {
        let method = known.iter().find(|known| row["method"] == known.method).unwrap().method;
        (method, row["runs"].as_u64().unwrap(), row["asked"].as_u64().unwrap())
    };
    file["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn rows_are_run_kept_and_collected() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    // Rank-1 has a printed number on the wide network alone.
    let plan = small(&["resnet18-sgd", "resnet18-dfp-80", "resnet18-sm-80"], 2);
    let missing = collect(&plan, out).unwrap();
    assert!(missing.rows.iter().all(|row| row.accuracy.is_none() && row.runs == 0));

    let witness = Witness::default();
    let table = run(&plan, out, &witness, false).unwrap();
    assert_eq!(witness.told.lock().unwrap().len(), 12);
    let rows: Vec<(&str, Option<f64>, usize)> =
        table.rows.iter().map(|row| (row.method, row.printed, row.runs)).collect();
    assert_eq!(rows, [("sgd", Some(0.95), 2), ("sm", Some(0.911), 2), ("dfp", Some(0.945), 2)]);
    let seeds: Vec<u64> = table.runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [1, 2, 1, 2, 1, 2]);
    for run in &table.runs {
        assert_eq!((run.epochs, run.short, run.jobs), (8, false, 2));
        assert!(run.seconds > 0.0 && (0.0..=1.0).contains(&run.accuracy), "{run:?}");
        let pruned = if run.method == "sgd" { 0.0..=0.0 } else { 0.75..=0.85 };
        assert!(pruned.contains(&run.sparsity), "{run:?}");
    }
    // Nothing is done again, and what is written is what was measured.
    let again = run(&plan, out, &witness, false).unwrap();
    assert_eq!((again, witness.told.lock().unwrap().len()), (table.clone(), 12));
    assert_eq!(table.file, Some(out.join("table1.json")));
    let table = Measured { file: None, ..table };
    assert_eq!(collect(&plan, out).unwrap(), table);
    assert_eq!(rows_of(&out.join("table1.json")), [("sgd", 2, 2), ("sm", 2, 2), ("dfp", 2, 2)]);

    // A call for less, or with a look only, takes nothing out of the file.
    let less = small(&["resnet18-sgd"], 1);
    let before = std::fs::read(out.join("table1.json")).unwrap();
    assert_eq!(collect(&less, out).unwrap().rows.len(), 1);
    assert_eq!(std::fs::read(out.join("table1.json")).unwrap(), before);
    assert_eq!(run(&less, out, &witness, false).unwrap().rows.len(), 1);
    assert_eq!(rows_of(&out.join("table1.json")), [("sgd", 2, 2), ("sm", 2, 2), ("dfp", 2, 2)]);
    // Other settings have a file beside it.
    let mut slow = less;
    slow.overrides.push("train.epochs=6".to_owned());
    let file = run(&slow, out, &witness, false).unwrap().file.unwrap();
    assert_ne!(file, out.join("table1.json"));
    assert_eq!(rows_of(&file), [("sgd", 1, 1)]);
    assert_eq!(std::fs::read(out.join("table1.json")).unwrap(), before);
    let costs = plan.costs(out, Device::Cpu, "cpu").unwrap();
    assert!(costs.iter().all(|c| c.source == Source::Row && c.seconds_left() == 0.0));

    // Other settings lie beside them, and their cost is known from a run of the same size.
    let mut other = small(&["resnet18-dfp-90"], 1);
    let costs = other.costs(out, Device::Cpu, "cpu").unwrap();
    assert_eq!((costs[0].source, costs[0].done), (Source::Network, 0));
    assert!(costs[0].seconds_left() > 0.0);
    other.overrides.push("train.batch=16".to_owned());
    assert_eq!(other.costs(out, Device::Cpu, "cpu").unwrap()[0].source, Source::MultiplyAdds);
    // Seconds of a small network say nothing of the paper's.
    let paper = Plan::new(PaperTable::Table1, &["resnet18-sgd".to_owned()], vec![1]).unwrap();
    assert_eq!(paper.costs(out, Device::Cpu, "cpu").unwrap()[0].source, Source::MultiplyAdds);
    let elsewhere = other.costs(out, Device::Cuda(0), "cuda:0 (a GPU)").unwrap();
    assert_eq!(elsewhere[0].source, Source::Bench);
}

#[test]
fn short_runs_are_not_taken_for_whole_ones() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let whole = small(&["resnet18-sgd"], 1);
    let short = Plan { budget_epochs: Some(4), ..whole.clone() };
    let table = run(&short, out, &Witness::default(), true).unwrap();
    assert_eq!((table.budget_epochs, table.runs[0].epochs), (Some(4), 4));
    assert!(table.runs[0].short);
    assert_eq!(collect(&whole, out).unwrap().rows[0].runs, 0, "the whole run is missing");
    assert_eq!(collect(&short, out).unwrap().runs, table.runs);
    assert!(out.join("table1-4-epochs.json").is_file());

    // Its samples are gone, what they were worth is not.
    let runs = std::fs::read_dir(out.join("runs")).unwrap();
    let run = runs.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    assert!(run.to_string_lossy().contains("-4-epochs-"));
    assert!(run.join("evaluation.json").is_file() && run.join("report.html").is_file());
    let left: Vec<String> = std::fs::read_dir(run.join("chain-0"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["times.csv"]);
    // A budget that is no limit gives whole runs.
    let enough = Plan { budget_epochs: Some(8), ..whole };
    assert_eq!(enough.counts(out).unwrap(), Counts { asked: 1, done: 0, begun: 0 });
}

#[test]
fn an_interrupted_table_goes_on_to_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    let mut plan = small(&["resnet18-dfp-70"], 1);
    // Slow enough to be told of a step on the way.
    plan.overrides.extend(["train.checkpoint_steps=1", "data.train_rows=256"].map(str::to_owned));
    let want = run(&plan, &whole, &Witness::default(), false).unwrap();

    let witness = Witness { stop_at_step: Some(1), ..Witness::default() };
    let error = run(&plan, &cut, &witness, false).unwrap_err();
    assert_eq!(error.exit_code(), 130, "{error}");
    assert_eq!(plan.counts(&cut).unwrap(), Counts { asked: 1, done: 0, begun: 1 });
    let got = run(&plan, &cut, &Witness::default(), false).unwrap();
    let numbers = |table: &Measured| {
        let run = &table.runs[0];
        (run.accuracy, run.nll, run.ece, run.brier, run.sparsity, run.last_accuracy)
    };
    assert_eq!(numbers(&got), numbers(&want));
}

#[test]
fn a_run_that_diverges_is_missing_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = small(&["resnet18-sgd"], 2);
    plan.overrides.push("schedule.step_size.value=1e6".to_owned());
    let table = run(&plan, folder.path(), &Witness::default(), false).unwrap();
    assert_eq!((table.runs.len(), table.failures.len()), (0, 2));
    assert!(table.failures[0].reason.contains("not finite"), "{:?}", table.failures);
}

#[test]
fn missing_data_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = small(&["resnet18-sgd"], 1);
    let nowhere = format!("data.path={}", folder.path().join("nowhere").display());
    plan.overrides = vec![nowhere];
    let error = run(&plan, folder.path(), &Witness::default(), false).unwrap_err();
    assert!(error.to_string().contains("thinfer data get cifar10"), "{error}");
    let imagenet = Plan::new(PaperTable::Table3, &["sgd".to_owned()], vec![1]).unwrap();
    let error = run(&imagenet, folder.path(), &Witness::default(), false).unwrap_err();
    assert!(error.to_string().contains("data/imagenet/train"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    plan.overrides = vec!["data.kind=example1".to_owned()];
    assert_eq!(plan.counts(folder.path()).unwrap_err().exit_code(), 2);
}

/// The targets of sparse methods can be reached with the layers that stay dense.
#[test]
fn every_row_has_a_method_that_can_do_it() {
    for table in [PaperTable::Table1, PaperTable::Table2, PaperTable::Table3] {
        let plan = Plan::new(table, &[], vec![1]).unwrap();
        for row in plan.rows.iter().filter(|row| ["sm", "dsr"].contains(&row.method)) {
            let (config, short) = plan.config(row, 1).unwrap().unwrap();
            assert!(!short);
            assert_eq!(config.prune.target, row.percent.map(|p| f64::from(p) / 100.0));
            let (side, classes) = match table {
                PaperTable::Table1 => (32, 10),
                PaperTable::Table2 => (32, 100),
                PaperTable::Table3 => (224, 1000),
            };
            let shape = Shape { height: side, width: side, channels: 3 };
            let inputs = ProblemInputs::Image { shape, classes };
            let problem = Problem { train_rows: 50_000, fingerprint: 0, inputs };
            let network = build_network(&config, problem).unwrap();
            let known = image_network(&config.model.name, shape, classes).unwrap();
            assert_eq!(network.params().len(), known.params().len());
            build_method(&config, problem, &network, 0)
                .unwrap_or_else(|error| panic!("{}: {error}", row.name()));
        }
    }
}

/// Rows and repeats that are shown as different runs are different runs.
#[test]
fn settings_that_tell_runs_apart_cannot_be_set() {
    let folder = tempfile::tempdir().unwrap();
    for (setting, option) in [
        ("seed=5", "--seeds"),
        (" seed = 5", "--seeds"),
        ("prune.target=0.5", "--rows"),
        ("prune.regrow=true", "--rows"),
        ("method.kind=\"sgd\"", "--rows"),
        ("method.posterior=\"cauchy\"", "--rows"),
        ("chains=2", "--rows"),
    ] {
        let mut plan = small(&["resnet18-dfp-80"], 3);
        plan.overrides.push(setting.to_owned());
        let errors = [
            plan.costs(folder.path(), Device::Cuda(0), "cuda:0").unwrap_err(),
            collect(&plan, folder.path()).unwrap_err(),
            run(&plan, folder.path(), &Witness::default(), false).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.exit_code(), 2, "{error}");
            let key = setting.split_once('=').unwrap().0.trim();
            let text = error.to_string();
            assert!(text.starts_with(&format!("`{key}`: ")) && text.contains(option), "{text}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn settings_that_cannot_be_run_with_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let row = |name: &str| Plan::new(PaperTable::Table1, &[name.to_owned()], vec![1]).unwrap();
    // Pruning has no epoch left, a layer is not there, and a schedule does not fit.
    let short = Plan { budget_epochs: Some(5), ..row("resnet18-dfp-90") };
    let mut layer = small(&["resnet18-sgd", "resnet18-sm-80"], 2);
    layer.overrides.push("prune.dense_layers=[\"nope\"]".to_owned());
    let mut late = small(&["resnet18-dpf-lin-80"], 1);
    late.overrides.push("prune.freeze_after_epochs=8".to_owned());
    for (plan, word) in [(short, "prune.target"), (layer, "nope"), (late, "prune.target")] {
        let errors = [
            plan.costs(folder.path(), Device::Cuda(0), "cuda:0").unwrap_err(),
            run(&plan, folder.path(), &Witness::default(), false).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_call_that_fails_on_a_gpu_names_its_run() {
    let (call, problem) = ("narrow".into(), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED".into());
    let error = Error::Engine(thinfer_engine::EngineError::Cuda { call, problem });
    let text = super::name_run(error, "resnet18-dfp-80, seed 1").to_string();
    assert!(text.contains("ended resnet18-dfp-80, seed 1; its checkpoint stays"), "{text}");
    assert_eq!(super::name_run(Error::Data("full".into()), "a").to_string(), "full");
}

#[test]
fn a_fault_names_every_run_that_it_ended() {
    let fault = || {
        let (problem, launched) = ("CUDA_ERROR_LAUNCH_FAILED".into(), "steps 0 to 782".into());
        Error::Engine(thinfer_engine::EngineError::Fault { problem, launched })
    };
    let runs = ["b, seed 1: steps 0 to 782", "a, seed 1: nothing"].map(str::to_owned).to_vec();
    let text = super::name_runs(fault(), runs).to_string();
    assert!(text.contains("a, seed 1: nothing; b, seed 1: steps 0 to 782"), "{text}");
    let other = super::name_runs(Error::Data("full".into()), vec!["a".into()]);
    assert_eq!(other.to_string(), "full");
}
