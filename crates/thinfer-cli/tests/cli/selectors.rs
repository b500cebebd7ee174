//! Table 4 and the selectors beside EM-MCMC, from the outside.

use crate::workspace::{Outcome, Workspace};

const SMALL: [&str; 12] = [
    "--set",
    "data.columns=6",
    "--set",
    "data.train_rows=100",
    "--set",
    "data.test_rows=20",
    "--set",
    "stochastic-gates.epochs=2",
    "--examples",
    "1,friedman",
    "--repeats",
    "2",
];

fn table4(more: &[&'static str]) -> Vec<&'static str> {
    [&["reproduce", "table4", "--out", "out"][..], &SMALL, more].concat()
}

#[test]
fn a_plan_runs_nothing_and_a_table_shows_what_is_missing() {
    let workspace = Workspace::new();
    let plan = workspace.succeeds(&table4(&["--rows", "lasso,stg", "--plan"])).stdout;
    assert!(plan.contains("estimate") && plan.contains("nothing was run"), "{plan}");
    assert!(!workspace.path("out").exists());

    workspace.succeeds(&table4(&["--rows", "lasso", "--quiet"]));
    let plan = workspace.json(&table4(&["--rows", "lasso,stg", "--plan"]));
    let done: Vec<(&str, u64)> = plan["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["method"].as_str().unwrap(), line["done"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        done,
        [("lasso", 2), ("stochastic-gates", 0), ("lasso", 2), ("stochastic-gates", 0)]
    );
    let table = workspace.succeeds(&table4(&["--rows", "lasso,stg", "--collect"])).stdout;
    let missing: Vec<&str> = table.lines().filter(|line| line.contains("missing")).collect();
    assert_eq!(missing.len(), 2, "{table}");
    assert!(missing[0].contains("stochastic-gates") && missing[0].contains("0/2"), "{table}");
    let found = table.lines().find(|line| line.starts_with("example1 lasso: "));
    assert!(found.is_some_and(|line| line.contains("x3 1.00")), "{table}");
}

#[test]
fn mistakes_are_named() {
    let workspace = Workspace::new();
    let error = workspace.fails(2, &["reproduce", "table4", "--rows", "lars"]);
    assert!(error.contains("lars") && error.contains("svbnn"), "{error}");
    let error = workspace.fails(2, &["reproduce", "table4", "--examples", "4"]);
    assert!(error.contains('4') && error.contains("friedman"), "{error}");
    let error = workspace.fails(2, &table4(&["--rows", "lasso", "--set", "lasso.fold=3"]));
    assert!(error.contains("lasso.fold"), "{error}");
    for more in [&["--plan"][..], &[]] {
        let wrong = [&["--rows", "svbnn,lasso", "--set", "svbnn.steps=0"][..], more].concat();
        let error = workspace.fails(2, &table4(&wrong));
        assert!(error.contains("`svbnn.steps`: must be above 0"), "{error}");
    }
    assert!(!workspace.path("out").exists());
    let error = workspace.fails(2, &table4(&["--seeds", "3"]));
    assert!(error.contains("--repeats"), "{error}");
}

#[test]
fn seeds_and_budgets_are_those_of_the_other_tables() {
    let workspace = Workspace::new();
    let small = &SMALL[..8];
    let rows = ["--examples", "1", "--rows", "lasso,stg"];
    let command =
        |more: &[&'static str]| [&["reproduce", "table4"][..], small, &rows, more].concat();
    let table = workspace.json(&command(&["--seeds", "4..5"]));
    let seeds: Vec<u64> =
        table["runs"].as_array().unwrap().iter().map(|r| r["repeat"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [4, 5, 4, 5]);
    // Without --out they lie where the same command finds them again.
    assert!(workspace.path("runs/table4/table4.json").is_file());
    let text = workspace.succeeds(&command(&["--seeds", "4..5"])).stderr;
    assert!(text.contains("4 runs, 4 of them done"), "{text}");

    let short = workspace.succeeds(&command(&["--seeds", "4..4", "--budget-epochs", "1"]));
    assert!(short.stdout.starts_with("Short runs: "), "{}", short.stdout);
    // The lasso has no epochs, and its run is taken as it is.
    assert!(short.stderr.contains("2 runs, 1 of them done"), "{}", short.stderr);
    assert!(workspace.path("runs/table4/table4-1-epochs.json").is_file());
    let error = workspace.fails(
        2,
        &[&["reproduce", "table4", "--rows", "dfp", "--budget-epochs", "1"][..], small].concat(),
    );
    assert!(error.contains("--budget-epochs") && error.contains("at least"), "{error}");
}

#[test]
fn runs_that_fail_end_the_command_with_their_reason() {
    let workspace = Workspace::new();
    let diverges = ["--rows", "stg,lasso", "--set", "stochastic-gates.rate=1e30", "--quiet"];
    // What there is of the table is printed all the same.
    let Outcome { code, stdout, stderr: error } = workspace.run(&table4(&diverges));
    assert_eq!(code, Some(1), "{error}");
    assert!(stdout.contains("missing"), "{stdout}");
    assert!(error.contains("4 of 8 runs failed"), "{error}");
    assert!(error.contains("example1 stochastic-gates, seed 2: the loss of"), "{error}");
    let table = std::fs::read_to_string(workspace.path("out/table4.json")).unwrap();
    let table: serde_json::Value = serde_json::from_str(&table).unwrap();
    assert_eq!(table["failures"].as_array().unwrap().len(), 4);
    assert_eq!(table["runs"].as_array().unwrap().len(), 4);
}

#[test]
fn select_puts_others_beside_its_result() {
    let workspace = Workspace::new();
    let mut table = String::from("a,b,y\n");
    for row in 0..60 {
        let (a, b) = (f64::from(row % 7) - 3.0, f64::from(row * row % 11));
        table.push_str(&format!("{a},{b},{}\n", 2.0 * a));
    }
    workspace.write("table.csv", &table);
    let result = workspace.json(&[
        "select",
        "table.csv",
        "--target",
        "y",
        "--chains",
        "2",
        "--compare",
        "lasso",
    ]);
    assert_eq!(result["others"][0]["name"], "lasso");
    assert_eq!(result["others"][0]["selected"], serde_json::json!(["a"]));
    assert!(result["path"].is_array(), "{result}");
}
