//! Table 4 and the selectors beside EM-MCMC, from the outside.

use crate::workspace::Workspace;

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
