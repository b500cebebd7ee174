//! Messages that must not mislead.

use std::fs;

use serde_json::{Value, json};

use crate::workspace::Workspace;

#[test]
fn a_table_without_a_target_and_settings_without_data_get_advice() {
    let workspace = Workspace::new();
    workspace.write("houses.csv", "price,rooms\n1,2\n");
    let told = workspace.fails(2, &["train", "houses.csv"]);
    for part in ["`--target`: is missing", "`price`, `rooms`", "such as `--target price`"] {
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
    let told = "read as numbers: `price` (\"$150,000\" is 150000";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("MSE"), "{}", outcome.stdout);
    // Prices with other units are no classes either.
    let text = fs::read_to_string(workspace.path("houses.csv")).unwrap();
    workspace.write("houses.csv", &text.replace('$', "").replace("\",", " km\","));
    let told = workspace.fails(1, &["train", "houses.toml", "--out", "units"]);
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
                \"Oslo\" (1 row), \"Rom\" (1 row)";
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

/// A table as a spreadsheet in German writes it, with an identifier, dates and gaps.
fn sales() -> String {
    let mut text = String::from("Nr;Preis;Datum;Ort;Fläche\n");
    for i in 0..90u32 {
        let area = 40 + (i * 37) % 90;
        let gap = |every: u32, cell: String| if i % every == 3 { String::new() } else { cell };
        let price = format!("{}.{:03},50 €", 100 + 2 * area, (i * 13) % 1000);
        let day = format!("{}.{}.2023", 1 + i % 28, 1 + i % 12);
        let town = gap(11, ["Köln", "Ulm", "Kiel"][(i % 3) as usize].to_owned());
        let (day, area) = (gap(9, day), gap(7, format!("{area},5")));
        text += &format!("{};{price};{day};{town};{area}\n", 1001 + i);
    }
    text
}

#[test]
fn a_table_as_people_have_it_loses_no_row_and_its_predictions_can_be_joined() {
    let workspace = Workspace::new();
    workspace.write("sales.csv", &sales());
    workspace.write(
        "sales.toml",
        &HOUSES.replace("houses.csv", "sales.csv").replace("\"price\"", "\"Preis\""),
    );
    let plain = ["--set", "method.kind=sghmc"];
    let told = workspace.succeeds(&[&["train", "sales.toml"][..], &plain].concat()).stderr;
    for part in [
        "cells are separated by `;`",
        "read as numbers: `Preis` (\"180.000,50 €\" is 180000.5), `Fläche` (\"40,5\" is 40.5)",
        "31 missing cells in 27 of 90 rows are filled in",
        "like an identifier (`data.keep` uses them): `Nr`",
        "read as dates: `Datum` (day first)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let info: Value =
        serde_json::from_str(&fs::read_to_string(workspace.path("runs/sales/run.json")).unwrap())
            .unwrap();
    assert_eq!(info["rows"], json!([54, 18, 18]));
    assert_eq!(info["config"]["data"]["missing"], "impute");
    // One row, which says nothing of commas by itself, without a date.
    workspace.write("new.csv", "Nr;Datum;Ort;Fläche\n7;;Ulm;1.100\n8;1.2.2023;;50\n");
    let outcome = workspace.succeeds(&["predict", "runs/sales", "new.csv", "--id", "Nr"]);
    assert!(outcome.stderr.contains("`Fläche` (\"1.100\" is 1100"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("2 of 2 rows have missing values that"), "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], "row,Nr,mean,sd,lower90,upper90");
    assert!(lines[1].starts_with("1,7,") && lines[2].starts_with("2,8,"), "{lines:?}");
    assert!(!outcome.stdout.contains(",,"), "{lines:?}");
}
