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
    // The linear model is exact here, and nothing is missing.
    assert_eq!(result["selected"], serde_json::json!(["a"]));
    assert!(result["advice"].is_null() && result["heldout"]["linear_nll"].is_null(), "{result}");
}

/// A table of `a` and `b`, with a target that depends on `a`.
fn two_columns(rows: usize, target: fn(f64) -> &'static str) -> String {
    let mut random = Uniform(1);
    let mut table = String::from("a,b,y\n");
    for _ in 0..rows {
        let [a, b] = [random.normal(), random.normal()];
        table.push_str(&format!("{a},{b},{}\n", target(a)));
    }
    table
}

#[test]
fn select_says_by_what_classes_are_compared_and_misses_nothing_there_is() {
    let workspace = Workspace::new();
    workspace.write("table.csv", &two_columns(80, |a| if a > 0.0 { "yes" } else { "no" }));
    let command = ["select", "table.csv", "--target", "y", "--chains", "2"];
    let result = workspace.json(&command);
    assert_eq!(result["selected"], serde_json::json!(["a"]));
    // A plane separates the classes, so the linear model is as sure as its penalty lets it be.
    let loss = |name: &str| result["heldout"][name].as_f64().unwrap();
    assert!(loss("linear_nll") < loss("nll"), "{result}");
    assert!(result["advice"].is_null(), "{result}");
    let text = workspace.succeeds(&[&command[..], &["--force"]].concat()).stdout;
    assert!(text.contains("accuracy    AUC  log loss"), "{text}");
    assert!(text.contains("logistic model on all 2") && text.contains("lasso on 1"), "{text}");
}

#[test]
fn select_refuses_what_cannot_work_before_the_work() {
    let workspace = Workspace::new();
    let classes = |a: f64| match a {
        a if a > 0.5 => "u",
        a if a > -0.5 => "v",
        _ => "w",
    };
    workspace.write("table.csv", &two_columns(100, classes));
    for (more, words) in [
        (&["--compare", "stg,lasso"][..], ["`--compare`: lasso", "2 classes"]),
        (&["--out", "s.json"], ["`--out`: is s.json", "--json"]),
        (&["--chains", "41"], ["`--chains`: is 41", "at most 40 chains"]),
        (&["--holdout", "0.5"], ["`--holdout`: is 0.5", "at most 1/3"]),
    ] {
        let command = [&["select", "table.csv", "--target", "y", "--quiet"][..], more].concat();
        let error = workspace.fails(2, &command);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

/// What `select` leaves is a run like any other.
#[test]
fn select_makes_a_run_that_other_commands_take() {
    let workspace = Workspace::new();
    workspace.write("two.csv", &two_columns(120, |a| if a > 0.0 { "yes" } else { "no" }));
    let command = ["select", "two.csv", "--target", "y", "--chains", "2", "--quiet"];
    let result = workspace.json(&command);
    assert_eq!(result["run"], "runs/two-select");
    let models = result["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|of| of["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["selected", "linear", "lasso", "constant"]);
    assert!(models[0]["auc"].as_f64().unwrap() > 0.9, "{result}");
    assert_eq!(result["effects"][0]["direction"], "up");
    let run = "runs/two-select";
    let evaluation = workspace.json(&["eval", run]);
    assert_eq!(evaluation["posterior"]["accuracy"], result["heldout"]["accuracy"]);
    // Only what was selected is asked for.
    workspace.write("new.csv", "a\n2.5\n-2.5\n");
    let predicted = workspace.json(&["predict", run, "new.csv"]);
    assert_eq!(predicted["predicted"], serde_json::json!(["yes", "no"]));
    workspace.succeeds(&["report", run]);
    let page = std::fs::read_to_string(workspace.path("runs/two-select/report.html")).unwrap();
    assert!(page.contains("1 of 2 variables matter") && page.contains(">Lasso<"), "{page}");
    workspace.succeeds(&["export", run, "--format", "safetensors"]);

    let error = workspace.fails(2, &command);
    assert!(error.contains("already holds a run") && error.contains("--force"), "{error}");
    let resumed = workspace.json(&[&command[..], &["--resume"]].concat());
    assert_eq!(resumed["heldout"], result["heldout"]);
    let other = workspace.fails(2, &[&command[..], &["--resume", "--seed", "2"]].concat());
    assert!(other.contains("`seed`: is 2, but the run in"), "{other}");
}

#[test]
fn where_nothing_is_selected_no_run_is_made_and_none_is_lost() {
    let workspace = Workspace::new();
    let mut random = Uniform(5);
    let mut table = String::from("a,b,y\n");
    for _ in 0..60 {
        let [a, b, y] = [random.normal(), random.normal(), random.normal()];
        table.push_str(&format!("{a},{b},{y}\n"));
    }
    workspace.write("noise.csv", &table);
    let command = ["select", "noise.csv", "--target", "y", "--chains", "2"];
    let outcome = workspace.succeeds(&command);
    assert!(outcome.stdout.starts_with("nothing was found"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("note: ") && outcome.stdout.contains("ridge model on all 2"));
    assert!(outcome.stderr.contains("no run was made"), "{}", outcome.stderr);
    assert!(!workspace.path("runs").exists());

    workspace.write("signal.csv", &two_columns(120, |a| if a > 0.0 { "1" } else { "-1" }));
    let folder = ["--out", "kept"];
    let signal = ["select", "signal.csv", "--target", "y", "--chains", "2", "--quiet"];
    workspace.succeeds(&[&signal[..], &folder].concat());
    let kept = std::fs::read(workspace.path("kept/run.json")).unwrap();
    let outcome = workspace.succeeds(&[&command[..], &folder, &["--force"]].concat());
    assert!(outcome.stderr.contains("of an earlier run"), "{}", outcome.stderr);
    assert_eq!(std::fs::read(workspace.path("kept/run.json")).unwrap(), kept);
}

/// Uniform numbers on (0, 1), the same everywhere.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal, with variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// Prices that one column explains to three quarters, and three more a little, one of them of text.
fn houses(rows: usize) -> String {
    let mut random = Uniform(7);
    let mut table = String::from("area,rooms,age,kind,noise1,noise2,price\n");
    for _ in 0..rows {
        let area = 40.0 + 160.0 * random.next();
        let rooms = (area / 35.0 + random.normal()).round().clamp(1.0, 9.0);
        let age = 90.0 * random.next();
        let kind = random.next();
        let (kind, more) = match kind {
            k if k < 0.5 => ("flat", 0.0),
            k if k < 0.85 => ("house", 20_000.0),
            _ => ("villa", 60_000.0),
        };
        let noise = [random.normal(), random.normal()];
        let price =
            2000.0 * area + 8000.0 * rooms - 900.0 * age + more + 30_000.0 * random.normal();
        let [first, second] = noise;
        table.push_str(&format!("{area},{rooms},{age},{kind},{first},{second},{price}\n"));
    }
    table
}

/// Small effects beside a large one are kept, and what predicts is as good as a linear model.
#[test]
fn select_finds_small_effects_beside_a_large_one() {
    let workspace = Workspace::new();
    workspace.write("houses.csv", &houses(600));
    let result = workspace.json(&["select", "houses.csv", "--target", "price"]);
    assert_eq!(result["selected"], serde_json::json!(["area", "rooms", "age", "kind"]));
    assert_eq!(result["form"], "linear");
    let error = |name: &str| result["heldout"][name].as_f64().unwrap();
    assert!(error("mse") < 1.1 * error("linear_mse"), "{}", result["heldout"]);
    assert!(result["advice"].is_null(), "{result}");
}

/// |a| has no linear part, so only hidden units can find it.
#[test]
fn select_uses_hidden_units_where_they_predict_better() {
    let workspace = Workspace::new();
    let mut random = Uniform(3);
    let mut table = String::from("a,b,c,y\n");
    for _ in 0..400 {
        let [a, b, c] = [random.normal(), random.normal(), random.normal()];
        table.push_str(&format!("{a},{b},{c},{}\n", a.abs() + 0.1 * random.normal()));
    }
    workspace.write("table.csv", &table);
    let result = workspace.json(&["select", "table.csv", "--target", "y", "--chains", "2"]);
    assert_eq!(result["selected"], serde_json::json!(["a"]));
    assert_eq!(result["form"], "hidden");
    let error = |name: &str| result["heldout"][name].as_f64().unwrap();
    assert!(error("mse") < 0.3 * error("linear_mse"), "{}", result["heldout"]);
}
