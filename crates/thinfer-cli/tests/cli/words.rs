//! Messages that must not mislead.

use std::fs;

use serde_json::json;

use crate::workspace::Workspace;

#[test]
fn a_table_in_the_place_of_settings_and_settings_without_data_get_advice() {
    let workspace = Workspace::new();
    workspace.write("houses.csv", "price,rooms\n1,2\n");
    let told = workspace.fails(2, &["train", "houses.csv"]);
    for part in ["is a table", "kind = \"table\"", "`thinfer select houses.csv --target COLUMN`"] {
        assert!(told.contains(part), "{told}");
    }
    workspace.write("a.toml", "[train]\nepochs = 3\n");
    let told = workspace.fails(2, &["train", "a.toml"]);
    assert!(told.contains("`data.kind`: is missing"), "{told}");
    assert!(!workspace.path("runs").exists());
    workspace.write("b.toml", "[dta]\nkind = \"example1\"\n");
    let told = workspace.fails(2, &["train", "b.toml"]);
    assert!(told.contains("`dta.kind`: is not a key; did you mean `data.kind`?"), "{told}");
}

/// 120 houses with prices like `$247,632`, which are numbers, and a town.
fn houses(workspace: &Workspace) {
    let mut text = String::from("price,rooms,town,noise\n");
    for i in 0..120u32 {
        let (rooms, town) = (1 + i % 6, ["Ulm", "Bonn", "Kiel"][(i % 3) as usize]);
        let (thousands, rest) = (100 + 50 * rooms + i % 4, (i * 37) % 1000);
        text += &format!("\"${thousands},{rest:03}\",{rooms},{town},{}\n", (i * 7) % 11);
    }
    workspace.write("houses.csv", &text);
}

const HOUSES: &str = "[data]\nkind = \"table\"\npath = \"houses.csv\"\ntarget = \"price\"\n\
                      [method]\nkind = \"em-mcmc\"\n[prune]\n\
                      warm_up_epochs = 4\n[schedule.step_size]\ncycles = 2\n[train]\nepochs = 20\n";

#[test]
fn prices_with_signs_are_numbers_and_the_user_hears_of_it() {
    let workspace = Workspace::new();
    houses(&workspace);
    workspace.write("houses.toml", HOUSES);
    let outcome = workspace.succeeds(&["train", "houses.toml"]);
    assert!(
        outcome.stderr.contains("read as numbers, without signs of money"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("`price` (\"$150,000\" is 150000)"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("MSE"), "{}", outcome.stdout);
    // Prices with decimal commas are no classes either.
    let text = fs::read_to_string(workspace.path("houses.csv")).unwrap();
    let commas: String = text.lines().map(|line| line.replacen('$', "0", 1) + "\n").collect();
    workspace.write("houses.csv", &commas);
    let told = workspace.fails(1, &["train", "houses.toml", "--out", "commas"]);
    assert!(told.contains("the target `price` is text that looks like numbers"), "{told}");
    assert!(told.contains("data.task = classification"), "{told}");
}

#[test]
fn a_level_that_is_new_is_predicted_with_a_notice() {
    let workspace = Workspace::new();
    houses(&workspace);
    workspace.write("houses.toml", HOUSES);
    // Without pruning every column is read.
    let plain = ["--set", "method.kind=sghmc", "--quiet"];
    workspace.succeeds(&[&["train", "houses.toml"][..], &plain].concat());
    workspace.write("new.csv", "rooms,town,noise\n3,Ulm,1\n3,Rom,1\n4,Oslo,2\n");
    let outcome = workspace.succeeds(&["predict", "runs/houses", "new.csv"]);
    let told = "2 of 3 rows have a level of `town` that the training rows did not have: \
                row 2 \"Rom\", row 3 \"Oslo\"";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    let json = workspace.json(&["predict", "runs/houses", "new.csv"]);
    assert_eq!((&json["unseen_rows"], &json["missing_rows"]), (&json!(2), &json!(0)));
    workspace.write("short.csv", "rooms\n3\n");
    let told = workspace.fails(1, &["predict", "runs/houses", "short.csv"]);
    assert!(
        told.contains("no columns `town`, `noise`, which the samples of the run read"),
        "{told}"
    );
}
