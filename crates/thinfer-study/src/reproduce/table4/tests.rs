//! Plans, runs and summaries of Table 4.

use thinfer_core::train::Silent;

use super::*;

fn small(rows: &[Row]) -> Plan {
    let overrides = [
        "train.epochs=12",
        "schedule.step_size.cycles=2",
        "data.columns=8",
        "data.train_rows=200",
        "data.validation_rows=20",
        "data.test_rows=50",
        "prune.warm_up_epochs=2",
        "prune.freeze_after_epochs=11",
        "stochastic-gates.epochs=3",
        "splbnn.steps=40",
        "splbnn.fine_tune_steps=10",
        "splbnn.starts=2",
        "splbnn.batch=50",
        "svbnn.steps=40",
        "svbnn.batch=50",
        "lasso.folds=3",
    ];
    Plan {
        examples: vec![Example::Example1, Example::Example3],
        rows: rows.to_vec(),
        seeds: vec![1, 2],
        budget_epochs: None,
        overrides: overrides.map(str::to_owned).to_vec(),
        jobs: None,
    }
}

#[test]
fn a_small_table_has_every_row_and_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let plan = small(&Row::ALL);
    let table = table4(&plan, Some(folder.path()), &stop, &Silent).unwrap();
    let rows: Vec<(Example, Row)> = table.rows.iter().map(|r| (r.example, r.method)).collect();
    let want: Vec<(Example, Row)> = [Example::Example1, Example::Example3]
        .into_iter()
        .flat_map(|e| Row::ALL.map(|r| (e, r)))
        .collect();
    assert_eq!(rows, want);
    assert_eq!(table.failures, []);
    for row in &table.rows {
        assert_eq!((row.repeats, row.asked), (2, 2), "{row:?}");
        let classes = row.example == Example::Example3;
        assert_eq!((row.mse.is_none(), row.accuracy.is_some()), (classes, classes));
        let power = row.power_mean.unwrap();
        assert!((power + row.fndr_mean.unwrap() - 1.0).abs() < 1e-12);
        assert!(row.inclusion.values().all(|share| *share == 0.5 || *share == 1.0));
    }
    assert!(table.runs.iter().all(|r| !r.path.is_empty() && r.seconds > 0.0));
    let again = table4(&plan, Some(folder.path()), &stop, &Silent).unwrap();
    assert_eq!(again.runs, table.runs, "finished runs are taken as they are");
    assert_eq!(collect(&plan, folder.path()).unwrap().runs, table.runs);

    // Other settings do not take them, and say so before anything runs.
    let mut other = small(&[Row::Lasso, Row::Dfp]);
    other.overrides.push("lasso.folds=4".to_owned());
    let costs = other.costs(Some(folder.path())).unwrap();
    let done: Vec<(Row, usize, bool)> =
        costs.iter().map(|c| (c.method, c.done, c.measured)).collect();
    assert_eq!(
        done,
        [(Row::Dfp, 2, true), (Row::Lasso, 0, false), (Row::Dfp, 2, true), (Row::Lasso, 0, false)]
    );
    assert_eq!(costs[0].seconds_left(), 0.0);
    assert!(costs[1].seconds_left() > 0.0);
    let missing = collect(&other, folder.path()).unwrap();
    assert_eq!((missing.rows[1].repeats, missing.rows[1].asked), (0, 2));
    assert_eq!(missing.rows[1].mse, None);
}

#[test]
fn runs_with_other_settings_lie_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let run = |plan: &Plan| {
        table4(plan, Some(folder.path()), &AtomicBool::new(false), &Silent).unwrap().runs
    };
    let first = small(&[Row::Lasso]);
    let mut second = first.clone();
    second.overrides.push("lasso.folds=4".to_owned());
    let (of_first, of_second) = (run(&first), run(&second));
    assert_eq!((of_first.len(), of_second.len()), (4, 4));
    let done = |plan: &Plan| -> usize {
        plan.costs(Some(folder.path())).unwrap().iter().map(|cost| cost.done).sum()
    };
    assert_eq!((done(&first), done(&second)), (4, 4));
    // The seconds of a run tell whether it was done again.
    assert_eq!((run(&first), run(&second)), (of_first.clone(), of_second));

    // Names without a fingerprint are from earlier versions.
    let runs = folder.path().join("runs");
    for entry in std::fs::read_dir(&runs).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let outcome: Outcome = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        if of_first.contains(&outcome) {
            let old = name.rsplit_once('-').unwrap().0;
            std::fs::rename(&path, runs.join(format!("{old}.json"))).unwrap();
        }
    }
    assert_eq!((done(&first), done(&second)), (4, 4));
    assert_eq!(run(&first), of_first);
    let mut third = first.clone();
    third.overrides.push("lasso.folds=5".to_owned());
    run(&third);
    assert_eq!(done(&first), 4, "an old file is not written over");
}

#[test]
fn an_interrupt_is_an_interrupt() {
    let stop = AtomicBool::new(true);
    for row in Row::ALL {
        let error = table4(&small(&[row]), None, &stop, &Silent).unwrap_err();
        assert_eq!(error.exit_code(), 130, "{row:?}");
    }
}

#[test]
fn a_run_that_fails_is_missing_and_the_others_go_on() {
    let mut plan = small(&[Row::StochasticGates, Row::Lasso]);
    plan.examples = vec![Example::Example1];
    plan.overrides.push("stochastic-gates.rate=1e30".to_owned());
    let table = table4(&plan, None, &AtomicBool::new(false), &Silent).unwrap();
    assert_eq!((table.runs.len(), table.failures.len()), (2, 2));
    assert!(table.failures[0].reason.contains("not finite"), "{:?}", table.failures);
    assert_eq!((table.rows[0].repeats, table.rows[1].repeats), (2, 0));
}

#[test]
fn settings_that_cannot_be_run_with_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for wrong in [
        "svbnn.steps=0",
        "splbnn.starts=0",
        "lasso.folds=201",
        // More than there are epochs.
        "schedule.step_size.cycles=13",
        // What tells runs apart.
        "seed=5",
        "data.seed=5",
        "data.kind=example2",
        "method.kind=sgd",
        "prune.target=0.5",
        "prune.regrow=true",
        "chains=2",
    ] {
        let mut plan = small(&Row::ALL);
        plan.overrides.push(wrong.to_owned());
        let errors = [
            plan.costs(None).unwrap_err(),
            table4(&plan, Some(folder.path()), &AtomicBool::new(false), &Silent).unwrap_err(),
        ];
        for error in errors {
            let key = wrong.split_once('=').unwrap().0;
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(key), "{error}");
        }
    }
    assert!(!folder.path().join("runs").exists());
}

/// Example, row, runs and runs asked for of the rows in a file.
fn rows_of(path: &Path) -> Vec<(String, String, u64, u64)> {
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let row = |row: &serde_json::Value| {
        let counts = ["repeats", "asked"].map(|key| row[key].as_u64().unwrap());
        (text(&row["example"]), text(&row["method"]), counts[0], counts[1])
    };
    file["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn the_file_of_a_table_has_all_that_lies_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        |plan: &Plan| table4(plan, Some(folder.path()), &AtomicBool::new(false), &Silent).unwrap();
    let usual = folder.path().join("table4.json");
    let lasso = small(&[Row::Lasso]);
    assert_eq!(run(&lasso).file, Some(usual.clone()));
    let mut less = small(&[Row::StochasticGates]);
    (less.examples, less.seeds) = (vec![Example::Example1], vec![7]);
    assert_eq!(run(&less).rows.len(), 1);
    let want = [
        ("example1", "lasso", 2, 2),
        ("example1", "stochastic-gates", 1, 1),
        ("example3", "lasso", 2, 2),
    ]
    .map(|(example, row, runs, asked)| (example.to_owned(), row.to_owned(), runs, asked));
    assert_eq!(rows_of(&usual), want);
    let before = std::fs::read(&usual).unwrap();
    assert_eq!(collect(&less, folder.path()).unwrap().rows.len(), 1);
    assert_eq!(std::fs::read(&usual).unwrap(), before, "a look writes nothing");

    // Other settings, and shorter runs, have files of their own.
    let mut other = less.clone();
    other.overrides.push("stochastic-gates.epochs=2".to_owned());
    let beside = run(&other).file.unwrap();
    assert_ne!(beside, usual);
    // The lasso has no part in that setting.
    assert_eq!(rows_of(&beside), want);
    let short = Plan { budget_epochs: Some(1), ..less };
    let table = run(&short);
    assert_eq!(table.file, Some(folder.path().join("table4-1-epochs.json")));
    assert_eq!(table.rows[0].repeats, 1);
    assert_eq!(std::fs::read(&usual).unwrap(), before);
}

#[test]
fn em_mcmc_has_a_path_over_its_threshold() {
    let mut plan = small(&[Row::Dfp, Row::Dpf]);
    (plan.examples, plan.seeds) = (vec![Example::Example1], vec![1]);
    // As many inputs below this as above it.
    plan.overrides.push("prune.hard_threshold=0.05".to_owned());
    let table = table4(&plan, None, &AtomicBool::new(false), &Silent).unwrap();
    for run in &table.runs {
        assert!((1..8).contains(&run.selected.len()), "{run:?}");
        assert_eq!(run.path.iter().map(|point| point.selected).max(), Some(8), "{run:?}");
        assert!(run.path.len() > 2 && run.path.is_sorted_by(|a, b| a.at < b.at), "{run:?}");
        // The threshold of the run is one of those on the path.
        let at_threshold = run.path.iter().find(|point| point.at >= 0.05).unwrap();
        assert_eq!(at_threshold.selected, run.selected.len(), "{run:?}");
        assert_eq!(at_threshold.power, Some(run.power));
    }
}

#[test]
fn the_uniform_designs_run() {
    let plan = Plan {
        examples: vec![Example::Bai, Example::Friedman],
        seeds: vec![1],
        ..small(&[Row::Dfp, Row::Lasso])
    };
    let table = table4(&plan, None, &AtomicBool::new(false), &Silent).unwrap();
    assert_eq!((table.runs.len(), table.failures.len()), (4, 0));
    assert!(table.rows.iter().all(|r| r.printed.is_none() && r.mse.is_some()));
}
