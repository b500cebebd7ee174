//! The first command of a new user: a table and a column, and nothing else.

use std::fmt::Write as _;
use std::fs;

use crate::workspace::{Workspace, names};

/// A table of 60 houses, whose price follows area and kind.
fn houses() -> String {
    let mut text = String::from("area,age,kind,price\n");
    for row in 0..60_u32 {
        let (area, age) = (40 + row * 37 % 90, row * 13 % 50);
        let kind = ["flat", "house"][row as usize % 2];
        let price = 1000 * area + 300 * age + 20_000 * (row % 2) + 791 * (row * row % 7);
        writeln!(text, "{area},{age},{kind},{price}.5").unwrap();
    }
    text
}

/// Settings of a run that is over at once.
const SHORT: [&str; 10] = [
    "--set",
    "train.epochs=20",
    "--set",
    "train.samples_per_cycle=4",
    "--set",
    "train.stages=2",
    "--set",
    "method.moves=5",
    "--set",
    "model.hidden=[4]",
];

fn with_houses() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("houses.csv", &houses());
    workspace
}

fn short(command: &[&'static str]) -> Vec<&'static str> {
    [command, &SHORT].concat()
}

#[test]
fn a_table_and_a_column_are_enough() {
    let workspace = with_houses();
    let train = short(&["train", "houses.csv", "--target", "price"]);
    let outcome = workspace.succeeds(&train);
    let mut told = outcome.stderr.lines();
    assert_eq!(
        told.next(),
        Some(
            "houses.csv: 60 rows; `price` is a number (`--set data.task=classification` takes it otherwise), predicted from 3 columns"
        )
    );
    assert!(told.next().is_some_and(|line| line.contains("four chains of MCLMC")));
    assert!(told.next().is_some_and(|line| line.starts_with("time: about ")));
    assert!(outcome.stdout.contains("test rows"), "{}", outcome.stdout);
    let config = fs::read_to_string(workspace.path("runs/houses/config.toml")).unwrap();
    assert!(config.contains("target = \"price\"") && config.contains("kind = \"mclmc\""));

    // Again, it behaves as with a file.
    let refused = workspace.fails(2, &train);
    assert!(refused.contains("runs/houses already holds a run; continue it with --resume"));
    let resumed = [&train[..], &["--resume"]].concat();
    workspace.succeeds(&resumed);
    let other = workspace.fails(2, &["train", "houses.csv", "--target", "age", "--resume"]);
    assert!(other.contains("holds a run of the target `price`"), "{other}");
    workspace.succeeds(&[&train[..], &["--force"]].concat());
}

#[test]
fn a_dry_run_says_what_and_how_long_and_writes_nothing() {
    let workspace = with_houses();
    let dry = short(&["train", "houses.csv", "--target", "kind", "--dry-run"]);
    let outcome = workspace.succeeds(&dry);
    assert!(outcome.stdout.contains("`kind` has 2 classes: flat, house"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("time: about "), "{}", outcome.stdout);
    assert!(!workspace.path("runs").exists());
    let json = workspace.json(&dry);
    assert!(json["seconds"]["most"].as_f64() >= json["seconds"]["least"].as_f64());
    let chosen = json["chosen"].as_array().unwrap();
    assert!(chosen.iter().any(|c| c["key"] == "method.moves" && c["why"] == "as you set it"));
}

#[test]
fn mistakes_are_answered_with_advice() {
    let workspace = with_houses();
    let told = |arguments: &[&str]| workspace.fails(2, arguments);
    let none = told(&["train", "houses.csv"]);
    assert!(
        none.contains(
            "The columns are `area`, `age`, `kind`, `price`; give one, such as `--target price`"
        ),
        "{none}"
    );
    let of_settings = told(&["train", "tiny.toml", "--target", "y"]);
    assert!(of_settings.contains("this is a file of settings, which has `data.target`"));
    assert!(told(&["train", "tiny.toml", "--minutes", "1"]).contains("Leave it out"));
    assert!(told(&["train", "tiny.toml", "--dry-run"]).contains("Leave it out"));
    let negative = told(&["train", "houses.csv", "--target", "price", "--minutes", "-1"]);
    assert!(negative.contains("must be above 0"), "{negative}");
    let init = told(&["init", "tiny.toml"]);
    assert!(init.contains("train with `thinfer train tiny.toml`"), "{init}");
    let absent = workspace.fails(1, &["train", "none.csv", "--target", "y"]);
    assert!(absent.contains("could not read none.csv") && absent.contains("Check the path"));
    let slip = workspace.run(&["train", "houses.csv", "--target", "prize"]);
    assert!(slip.stderr.contains("did you mean `price`?"), "{}", slip.stderr);
    assert!(!workspace.path("runs").exists());
}

#[test]
fn init_writes_the_settings_of_the_same_run() {
    let workspace = with_houses();
    let init = short(&["init", "houses.csv", "--target", "price"]);
    let outcome = workspace.succeeds(&init);
    assert!(outcome.stdout.contains("wrote houses.toml; train with `thinfer train houses.toml`"));
    let text = fs::read_to_string(workspace.path("houses.toml")).unwrap();
    assert!(text.starts_with("#:schema ./thinfer-schema.json\n# Made by `thinfer init houses.csv"));
    assert!(text.contains("# the column to predict\ntarget = \"price\"\n"), "{text}");
    assert!(text.contains("# Here: as you set it\nmoves = 5\n"), "{text}");
    let schema = fs::read_to_string(workspace.path("thinfer-schema.json")).unwrap();
    assert!(schema.contains("\"thinfer configuration\""));

    let refused = workspace.fails(2, &init);
    assert!(refused.contains("houses.toml already exists"), "{refused}");
    workspace.succeeds(&[&init[..], &["--force"]].concat());

    let direct = short(&["train", "houses.csv", "--target", "price", "--out", "direct"]);
    workspace.succeeds(&direct);
    workspace.succeeds(&["train", "houses.toml", "--out", "file"]);
    crate::workspace::assert_same(
        &workspace.path("direct"),
        &workspace.path("file"),
        "the settings of `init` are those of `train`",
    );
    assert_eq!(names(&workspace.path("direct")), names(&workspace.path("file")));
}

#[test]
fn another_file_in_the_place_of_the_schema_stays() {
    let workspace = with_houses();
    workspace.write("thinfer-schema.json", "mine");
    let outcome = workspace.succeeds(&short(&["init", "houses.csv", "--target", "price"]));
    assert!(outcome.stderr.contains("is another file and stays"), "{}", outcome.stderr);
    assert_eq!(fs::read_to_string(workspace.path("thinfer-schema.json")).unwrap(), "mine");
}

/// What a run that was hardly worth its time says before everything else.
#[test]
fn a_run_that_loses_to_a_linear_model_says_so_first() {
    let workspace = with_houses();
    let hasty = ["--set", "method.moves=1", "--set", "train.samples_per_cycle=2"];
    let train = short(&["train", "houses.csv", "--target", "price"]);
    let outcome = workspace.succeeds(&[&train[..], &hasty].concat());
    let first = outcome.stdout.lines().next().unwrap();
    assert!(first.starts_with("On the test rows "), "{}", outcome.stdout);
    assert!(first.contains("train longer"), "{first}");
    let line = |start: &str| outcome.stdout.lines().find(|line| line.starts_with(start));
    assert!(line("beside others").is_some_and(|l| l.contains("RMSE") && l.ends_with("MAE")));
    assert!(line("linear model on all columns").is_some() && line("constant ").is_some());
    let file = fs::read(workspace.path("runs/houses/evaluation.json")).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&file).unwrap();
    assert!(found["verdict"]["cautions"][0].as_str().unwrap().starts_with("on the test rows "));
    assert!(
        found["beside"]["linear"]["rmse"].as_f64() < found["beside"]["constant"]["rmse"].as_f64()
    );
    let page = fs::read_to_string(workspace.path("runs/houses/report.html")).unwrap();
    assert!(page.contains("on the test rows "), "the report has it, too");
}

/// Twelve white pixels, of which nothing can be learned.
#[test]
fn a_folder_of_images_is_enough() {
    let workspace = Workspace::new();
    for at in 0..12 {
        let class = ["cat", "dog"][at % 2];
        let path = workspace.path("photos").join(class).join(format!("{at}.png"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, crate::data::PIXEL).unwrap();
    }
    let short = ["--set", "train.epochs=5"];
    let outcome = workspace.succeeds(&[&["train", "photos/"][..], &short].concat());
    let mut told = outcome.stderr.lines();
    assert_eq!(
        told.next(),
        Some(
            "photos/: 12 grey images of 2 classes, of which a fifth is for testing, 1 x 1 pixels each"
        )
    );
    assert!(told.next().is_some_and(|l| l.contains("convnet on 8 x 8 pixels, mirrored")));
    assert!(told.next().is_some_and(|line| line.starts_with("time: about ")));
    let first = outcome.stdout.lines().next().unwrap();
    assert!(first.contains("no better than the most frequent class"), "{}", outcome.stdout);
    let config = fs::read_to_string(workspace.path("runs/photos/config.toml")).unwrap();
    assert!(config.contains("hold = true") && config.contains("target = 0.5"), "{config}");

    let target = workspace.fails(2, &["train", "photos", "--target", "cat"]);
    assert!(target.contains("their classes are the folders"), "{target}");
    workspace.succeeds(&[&["init", "photos"][..], &short].concat());
    let text = fs::read_to_string(workspace.path("photos.toml")).unwrap();
    assert!(text.contains("[prune]\n") && text.contains("epochs = 5\n"), "{text}");
    workspace.succeeds(&["train", "photos.toml", "--out", "file"]);
    fs::create_dir(workspace.path("empty")).unwrap();
    let none = workspace.fails(1, &["train", "empty"]);
    assert!(none.contains("has no folders of classes"), "{none}");
}
