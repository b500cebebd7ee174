use std::fs::{self, File};
use std::process::Stdio;

use insta::assert_snapshot;

use crate::workspace::{Workspace, names};

#[test]
fn settings_that_cannot_be_are_refused_with_code_2() {
    let workspace = Workspace::new();
    let refused = |set: &str| workspace.fails(2, &["train", "tiny.toml", "--set", set, "--json"]);
    assert_snapshot!(refused("train.epoch=3"), @"error: `train.epoch`: is not a key; did you mean `train.epochs`?");
    assert_snapshot!(refused("train.epochs=many"), @r#"error: `train.epochs`: is "many", but must be a whole number from 1 on"#);
    assert_snapshot!(refused("method.beta1=1.0"), @"error: `method.beta1`: is 1.0, but must be a number from 0 on and below 1");
    assert_snapshot!(refused("preset=papper"), @r#"error: `preset`: is "papper", but must be one of "exact", "paper", "reference-code"; did you mean "paper"?"#);
    assert_snapshot!(refused("train.epochs"), @"error: `train.epochs`: is not of the form key=value; write for example --set train.epochs=100");
    assert_snapshot!(refused("schedule.step_size.cycles=21"), @"error: `schedule.step_size.cycles`: is 21, but there are only 20 epochs; give fewer cycles or more train.epochs");
    assert_snapshot!(refused("data.columns=3"), @"error: `data.columns`: is 3, but this example has 5 relevant inputs");
    assert_snapshot!(refused("model.kind=lenet"), @"error: `model.kind`: is not a key; did you mean `model.name`?");
    let network = ["train", "tiny.toml", "--set", "data.kind=shapes", "--set", "model.name=lenett"];
    assert_snapshot!(workspace.fails(2, &network), @"error: `model.name`: `lenett` is not the name of a network; known are mlp, convnet, lenet, resnet18-cifar, resnet34-cifar, resnet18, resnet34, resnet50, wrn-DEPTH-WIDTH (such as wrn-28-10); did you mean `lenet`?");
    assert!(refused("format=2").contains("`format`: is 2, but this thinfer"));
    assert!(!workspace.path("runs/tiny/run.json").exists());
}

#[test]
fn a_file_that_is_no_configuration_is_refused() {
    let workspace = Workspace::new();
    workspace.write("broken.toml", "seed = = 1\n");
    assert_snapshot!(workspace.fails(2, &["train", "broken.toml"]), @"
    error: `broken.toml`: is not valid TOML: TOML parse error at line 1, column 8
      |
    1 | seed = = 1
      |        ^
    extra `=`, expected nothing
    ");
    assert_snapshot!(workspace.fails(1, &["train", "absent.toml"]), @"error: could not read absent.toml: No such file or directory (os error 2). Check the path");
}

#[test]
fn a_folder_that_is_no_run_is_refused() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("empty")).unwrap();
    assert_snapshot!(workspace.fails(1, &["eval", "nowhere"]), @"error: nowhere: is not a run folder (it has no run.json); give the folder that `thinfer train` wrote");
    for command in ["eval", "report", "shrink", "export"] {
        let message = workspace.fails(1, &[command, "empty"]);
        assert!(message.contains("is not a run folder"), "{message}");
    }
    let message = workspace.fails(1, &["predict", "empty", "tiny.toml"]);
    assert!(message.contains("is not a run folder"), "{message}");
}

#[test]
fn a_folder_that_holds_something_else_is_left_alone() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("mine")).unwrap();
    workspace.write("mine/thesis.tex", "text");
    for mode in [&[][..], &["--force"], &["--resume"]] {
        let arguments = [&["train", "tiny.toml", "--out", "mine"], mode].concat();
        let message = workspace.fails(1, &arguments);
        assert!(message.contains("holds no run; choose another one with --out"), "{message}");
    }
    assert_eq!(names(&workspace.path("mine")), ["thesis.tex"]);
}

#[test]
fn tables_that_do_not_fit_the_run_are_refused() {
    let workspace = Workspace::trained();
    workspace.write("short.csv", "x1,x2\n1,2\n");
    // Which columns are left depends on the run; the tiny one has dropped some.
    let told = workspace.fails(1, &["predict", "runs/tiny", "short.csv"]);
    assert!(told.starts_with("error: short.csv: has no columns `x"), "{told}");
    assert!(told.contains("which the samples of the run read; add them under these"), "{told}");
    workspace.write("text.csv", "x1,x2,x3,x4,x5,x6,x7,x8\n1,2,3,red,5,6,7,8\n1,2,3,blue,5,6,7,8\n");
    assert_snapshot!(workspace.fails(1, &["predict", "runs/tiny", "text.csv"]), @r#"error: text.csv: column `x4` holds text (row 1: "red"), but the model was trained on numbers there; correct those cells"#);
    assert_snapshot!(workspace.fails(1, &["predict", "runs/tiny", "absent.csv"]), @"error: could not read absent.csv: No such file or directory (os error 2). Check the path");
    workspace.write("rows.xlsx", "x");
    assert_snapshot!(workspace.fails(1, &["predict", "runs/tiny", "rows.xlsx"]), @"error: rows.xlsx: `.xlsx` files are not supported; use .csv, .tsv, .txt, also with .gz, .parquet or .pq");
}

#[test]
fn a_damaged_parquet_file_is_refused_without_a_word_of_panic() {
    let workspace = Workspace::trained();
    let mut bytes = b"PAR1".to_vec();
    bytes.extend([0xFF; 64]);
    bytes.extend(40u32.to_le_bytes());
    bytes.extend(b"PAR1");
    fs::write(workspace.path("damaged.parquet"), bytes).unwrap();
    let message = workspace.fails(1, &["predict", "runs/tiny", "damaged.parquet"]);
    assert!(message.starts_with("error: damaged.parquet: "), "{message}");
    assert!(!message.contains("panicked") && !message.contains("hit a bug"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn a_folder_that_cannot_be_made_says_so() {
    let workspace = Workspace::new();
    let message = workspace.fails(1, &["train", "tiny.toml", "--out", "/proc/none/run"]);
    assert!(message.contains("could not create /proc/none/run"), "{message}");
}

#[test]
#[cfg(unix)]
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn a_read_only_folder_says_where_to_write_instead() {
    use std::os::unix::fs::PermissionsExt;
    let workspace = Workspace::new();
    let closed = workspace.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    if File::create(closed.join("probe")).is_ok() {
        eprintln!("SKIPPED: this user may write to read-only folders (root does)");
        return;
    }
    let message = workspace.fails(1, &["train", "tiny.toml", "--out", "closed/run"]);
    assert!(message.contains("Choose a folder you may write to with --out"), "{message}");
    assert!(names(&closed).is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_is_an_error() {
    let workspace = Workspace::new();
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let child = workspace.command().args(["completions", "bash"]).stdout(full).output().unwrap();
    assert_eq!(child.status.code(), Some(1));
    assert_snapshot!(String::from_utf8(child.stderr).unwrap(), @"error: could not write the result to standard output: No space left on device (os error 28). Free some space there, or send it elsewhere");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let workspace = Workspace::new();
    let mut command = workspace.command();
    command.args(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let outcome = child.wait_with_output().unwrap();
    assert!(outcome.status.success());
    assert_eq!(String::from_utf8(outcome.stderr).unwrap(), "");
}

/// What keeps a result from being written is told before the work, so that nothing is printed or
/// left.
#[test]
fn a_place_for_the_result_that_does_not_work_is_refused_before_the_work() {
    let workspace = Workspace::trained();
    workspace.write("rows.csv", "x1,x2,x3,x4,x5,x6,x7,x8\n1,2,3,4,5,6,7,8\n");
    workspace.write("there", "mine");
    // None of these runs is there, and none is looked for before the place of the result is right.
    let commands: [&[&str]; 8] = [
        &["compare", "a", "b"],
        &["eval", "a"],
        &["export", "a"],
        &["predict", "a", "rows.csv"],
        &["report", "a"],
        &["selftest"],
        &["shrink", "a"],
        &["subnetwork", "a"],
    ];
    for command in commands {
        let refused = |out: &[&str]| workspace.fails(2, &[command, out].concat());
        let text = refused(&["--out", "nowhere/result"]);
        assert!(text.contains("nowhere is no folder; make it"), "{command:?}: {text}");
        let text = refused(&["--out", "there"]);
        assert!(text.contains("there already exists"), "{command:?}: {text}");
        let text = refused(&["--out", "runs", "--force"]);
        assert!(text.contains("runs is a folder; give the name of a file"), "{command:?}: {text}");
    }
    for (place, words) in [
        ("there", "there is no folder; choose another place"),
        ("there/run", "there is no folder; choose another place"),
        (".", "holds no run; choose another one"),
        ("runs/tiny", "already holds a run"),
    ] {
        let outcome = workspace.run(&["select", "a.csv", "--target", "y", "--out", place]);
        assert!(outcome.code == Some(1) || outcome.code == Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{place}: {}", outcome.stderr);
    }
    assert_eq!(fs::read_to_string(workspace.path("there")).unwrap(), "mine");
    let text = workspace.fails(1, &["predict", "runs/tiny", "rows.csv", "--out", "p.xlsx"]);
    assert!(text.contains("`.xlsx` files are not supported"), "{text}");
    let text = workspace.fails(1, &["predict", "runs/tiny", "absent.csv", "--out", "p.xlsx"]);
    assert!(text.contains("p.xlsx"), "before the table is read: {text}");
}

#[test]
fn a_run_of_another_format_is_not_called_damaged() {
    let workspace = Workspace::trained();
    let path = workspace.path("runs/tiny/run.json");
    let text = fs::read_to_string(&path).unwrap();
    let later = text.replacen("\"format\": 1", "\"format\": 99", 1);
    assert_ne!(later, text);
    fs::write(&path, later).unwrap();
    for arguments in [&["eval", "runs/tiny"][..], &["train", "tiny.toml", "--resume"]] {
        let message = workspace.fails(1, arguments);
        assert!(
            message.contains("run.json: was written by thinfer 0.1.0 in format 99"),
            "{message}"
        );
        assert!(message.contains("use that version"), "{message}");
    }
    fs::write(&path, "{}").unwrap();
    let message = workspace.fails(1, &["eval", "runs/tiny"]);
    assert!(message.contains("Put back a copy, use that version, or train again"), "{message}");
}

#[test]
fn messages_name_what_was_given_and_what_to_do() {
    let workspace = Workspace::trained();
    fs::write(workspace.path("latin.toml"), b"# \xe9\n").unwrap();
    for (code, arguments, words) in [
        (2, &["train", "latin.toml"][..], "`latin.toml`: is not text in UTF-8"),
        (2, &["train", "."], "holds no images; give a file in it, such as ./latin.toml"),
        (1, &["select", "-", "--target", "y"], "standard input is empty"),
        (2, &["select", "a.csv", "--target", "y", "--seed", "-1"], "invalid value '-1'"),
        (2, &["select", "a.csv", "--target", "y", "--holdout", "-1"], "`--holdout`: is -1"),
        (2, &["export", "runs/tiny", "--sample", "-1"], "counted from 0"),
        (2, &["subnetwork", "runs/tiny", "--shares", "-1"], "`--shares`: is -1"),
        (2, &["eval", "runs/tiny", "--ood", "mnist"], "`--ood`: compares images"),
    ] {
        let message = workspace.fails(code, arguments);
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
    let outcome = workspace.run(&["train", "tiny.toml", "--out", "tiny.toml"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("choose another place"), "{}", outcome.stderr);
    let told = workspace.succeeds(&["train", "tiny.toml", "--out", "new", "--resume"]).stderr;
    assert!(told.contains("notice: there is no run in new yet, so it begins"), "{told}");
    let told = workspace.succeeds(&["reproduce", "table4", "--collect", "--out", "none"]).stderr;
    assert!(told.contains("none is no folder, so nothing is there to collect"), "{told}");
}
