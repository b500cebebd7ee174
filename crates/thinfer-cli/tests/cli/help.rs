use insta::assert_snapshot;

use crate::workspace::Workspace;

fn help(command: &str) -> String {
    Workspace::new().succeeds(&[command, "--help"]).stdout
}

#[test]
fn every_help_fits_one_screen_and_shows_an_example() {
    let workspace = Workspace::new();
    let top = workspace.succeeds(&["--help"]).stdout;
    let listed = top.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = listed
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for command in [
        "data",
        "train",
        "eval",
        "diagnose",
        "predict",
        "watch",
        "report",
        "compare",
        "shrink",
        "export",
        "subnetwork",
        "methods",
        "doctor",
        "selftest",
        "bench",
        "completions",
    ] {
        assert!(commands.contains(&command), "{command} is not in\n{top}");
    }
    let helps = commands.iter().map(|command| help(command)).chain([top.clone()]);
    for text in helps {
        // The list of all commands may be a little longer than an old terminal, and so may that of
        // the options of the command that needs no file.
        let most = if text == top || text.contains("thinfer select [") { 30 } else { 24 };
        assert!(text.lines().count() <= most, "{} lines:\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("Examples:\n  thinfer "), "{text}");
        assert!(text.contains("--quiet") && text.contains("--json"), "{text}");
    }
}

#[test]
fn help_of_train() {
    assert_snapshot!(help("train"), @r"
    Train on a table, on a folder of images, or as a file says

    Usage: thinfer train [OPTIONS] <DATA|CONFIG>

    Arguments:
      <DATA|CONFIG>  A table, a folder of images, or settings as TOML

    Options:
          --target <COLUMN>    The column of a table to predict
          --minutes <MINUTES>  Time for the training of a table or of images
          --dry-run            Only say what would be done, and how long it takes
          --set <KEY=VALUE>    Change a setting, such as `train.epochs=500`
          --out <DIR>          The folder of the run [default: runs/NAME]
          --resume             Go on with the run in the folder
          --force              Replace the run in the folder
          --device <DEVICE>    cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet              Only results, warnings and errors
          --json               Print the result as one JSON object
      -h, --help               Print help

    Ctrl-C stops after a checkpoint; --resume goes on to the same bits.
    Examples:
      thinfer train houses.csv --target price
      thinfer train configs/example1.toml --set chains=4 --out runs/four
    ");
}

#[test]
fn help_of_init() {
    assert_snapshot!(help("init"), @r"
    Write the settings that `train` would choose, with comments

    Usage: thinfer init [OPTIONS] <DATA>

    Arguments:
      <DATA>  A table, or a folder of images

    Options:
          --target <COLUMN>    The column of a table to predict
          --minutes <MINUTES>  Time for the training
          --set <KEY=VALUE>    Give a setting another value than would be chosen
          --out <FILE>         The file to write [default: NAME.toml]
          --force              Replace FILE
          --device <DEVICE>    cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet              Only results, warnings and errors
          --json               Print the result as one JSON object
      -h, --help               Print help

    Editors that know TOML complete and check keys by the first line.

    Examples:
      thinfer init houses.csv --target price
      thinfer init photos --minutes 10 --out photos-10.toml
    ");
}

#[test]
fn help_of_data() {
    assert_snapshot!(help("data"), @"
    Get a published image set, or check the images you have

    Usage: thinfer data [OPTIONS] <COMMAND>

    Commands:
      get    Download a published set: resumed where it stopped, and verified
      check  Say what images are in a place, and whether they can be used

    Options:
      -q, --quiet  Only results, warnings and errors
          --json   Print the result as one JSON object
      -h, --help   Print help

    Examples:
      thinfer data get cifar10
      thinfer data check data/cifar10
      thinfer data check ~/photos --kind images --json
    ");
    let workspace = Workspace::new();
    assert_snapshot!(workspace.succeeds(&["data", "get", "--help"]).stdout, @"
    Download a published set: resumed where it stopped, and verified

    Usage: thinfer data get [OPTIONS] <NAME>

    Arguments:
      <NAME>  The set [possible values: cifar10, cifar100, mnist, fashion-mnist]

    Options:
          --out <DIR>   The folder to put it into [default: data/NAME]
          --from <URL>  Take the files from this address, not from the official one
      -q, --quiet       Only results, warnings and errors
          --json        Print the result as one JSON object
      -h, --help        Print help

    Examples:
      thinfer data get fashion-mnist
      thinfer data get cifar100 --out /data/cifar100
    ");
    assert_snapshot!(workspace.succeeds(&["data", "check", "--help"]).stdout, @"
    Say what images are in a place, and whether they can be used

    Usage: thinfer data check [OPTIONS] <PATH>

    Arguments:
      <PATH>  The folder, archive or shard

    Options:
          --kind <KIND>  What it is [default: by the names of the files] [possible
                         values: cifar10, cifar100, mnist, fashion-mnist, images]
      -q, --quiet        Only results, warnings and errors
          --json         Print the result as one JSON object
      -h, --help         Print help

    Examples:
      thinfer data check data/cifar10
      thinfer data check ~/photos --kind images --json | jq .unreadable
    ");
}

#[test]
fn help_of_eval() {
    assert_snapshot!(help("eval"), @"
    Score a run on its test rows or images

    Usage: thinfer eval [OPTIONS] <RUN>

    Arguments:
      <RUN>  The folder of the run

    Options:
          --out <FILE>       Also write the evaluation there, as JSON
          --force            Replace FILE
          --ood <SET>        For images: how well these are told from the test
                             images
          --folds <K>        For tables: train once for each of K folds
          --device <DEVICE>  cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    --ood takes cifar10, cifar100, mnist, fashion-mnist or shapes, SET:PATH where it
    is not in data/SET, or a folder. Folds go to RUN/folds-K; done ones are kept.

    Examples:
      thinfer eval runs/shapes --ood fashion-mnist
      thinfer eval runs/houses --folds 5
    ");
}

#[test]
fn help_of_diagnose() {
    assert_snapshot!(help("diagnose"), @"
    Say whether to believe a run, and what to do where not

    Usage: thinfer diagnose [OPTIONS] <RUN>

    Arguments:
      <RUN>  The folder of the run

    Options:
          --device <DEVICE>  cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    The first line is the answer. --json has every sample; docs/metrics.md says
    what each number means.

    Examples:
      thinfer diagnose runs/example1
      thinfer diagnose runs/example1 --json | jq .verdict
    ");
}

#[test]
fn help_of_predict() {
    assert_snapshot!(help("predict"), @"
    Predict rows of a table, or pictures

    Usage: thinfer predict [OPTIONS] <RUN> <INPUT>...

    Arguments:
      <RUN>       The folder of the run
      <INPUT>...  A table (.csv, .tsv, .parquet, or -), or pictures and folders

    Options:
          --out <FILE>       Write there, not to standard output
          --force            Replace FILE
          --id <COLUMN>      Of a table: a column that predictions keep
          --all              For pictures: the probability of every class
          --device <DEVICE>  cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    Tables: row, mean, sd, lower90, upper90; or row, p_CLASS for each, predicted.
    Pictures: file, class, probability, entropy, mutual_information (in nats).

    Examples:
      thinfer predict runs/houses new.csv --id address > predictions.csv
      thinfer predict runs/shapes photos/ a.png --all > predictions.csv
    ");
}

#[test]
fn help_of_report() {
    assert_snapshot!(help("report"), @"
    Write a report of a run, also while it trains: one HTML file

    Usage: thinfer report [OPTIONS] <RUN>

    Arguments:
      <RUN>  The folder of the run

    Options:
          --out <FILE>       Where to write [default: RUN/report.html]
          --force            Replace FILE
          --device <DEVICE>  cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    Examples:
      thinfer report runs/example1
      thinfer report runs/example1 --out example1.html
    ");
}

#[test]
fn help_of_compare() {
    assert_snapshot!(help("compare"), @"
    Put runs on the same data beside each other, in one report

    Usage: thinfer compare [OPTIONS] <RUN> <RUN>...

    Arguments:
      <RUN> <RUN>...  The folders of the runs

    Options:
          --out <FILE>       Where to write the report, as HTML [default:
                             comparison.html]
          --force            Replace FILE
          --device <DEVICE>  cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    Runs that were evaluated need neither their data nor their samples.

    Examples:
      thinfer compare runs/sgd runs/dfp runs/sm
      thinfer compare runs/table1/runs/*-90-seed1-* --out sparse.html
    ");
}

#[test]
fn help_of_reproduce() {
    let workspace = Workspace::new();
    let text = workspace.succeeds(&["reproduce", "table1", "--help"]).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_snapshot!(text, @"
    CIFAR-10: ResNet-18 and WRN-28-10, dense and pruned

    Usage: thinfer reproduce table1 [OPTIONS]

    Options:
          --rows <LIST>        Rows to run [default: all that the paper has]
          --seeds <SEEDS>      3 for the seeds 1, 2 and 3; 4..6 for 4, 5 and 6
                               [default: 3]
          --budget-epochs <N>  Scale longer schedules down to so many epochs; kept
                               apart from whole runs
          --set <KEY=VALUE>    Change a setting of the shipped configurations
          --out <DIR>          The folder of runs and results [default: runs/TABLE]
          --jobs <N>           Runs at a time [default: one a core, or one on a GPU]
          --discard-samples    Remove checkpoints and samples of each new run once
                               it is evaluated
          --plan               Say what would run and what it would cost
          --collect            Print what --out holds, run nothing
          --device <DEVICE>    cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet              Only results, warnings and errors
          --json               Print the result as one JSON object
      -h, --help               Print help

    A row is a network, a method and, where it prunes, a sparsity: resnet18-dfp-90.
    --rows takes whole names or parts: dfp, wrn-28-10, dfp-90. Finished runs are
    kept in --out and not done again; interrupted ones go on. More is in
    docs/reproduce.md.

    Examples:
      thinfer reproduce table1 --rows resnet18 --seeds 3 --plan
      thinfer reproduce table1 --rows sgd,dfp-90 --seeds 1 --budget-epochs 20
    ");
}

#[test]
fn help_of_export() {
    assert_snapshot!(help("export"), @"
    Take samples of a run elsewhere, at the size that pruning left

    Usage: thinfer export [OPTIONS] <RUN>

    Arguments:
      <RUN>  The folder of the run

    Options:
          --format <FORMAT>  safetensors, onnx or arviz [default: safetensors]
          --sample <WHICH>   all, last, or a number from 0 [default: all]
          --fold-norms       Make batch norms part of the layers before them
          --dense            Keep the full size, with zeros where pruned
          --with-burn-in     arviz: the burn-in too, in groups of its own
          --out <FILE>       Where to write [default: RUN/posterior.FORMAT]
          --force            Replace FILE
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    What is written is read again and compared; docs/export.md describes it.

    Examples:
      thinfer export runs/example1 --format arviz
      thinfer export runs/cifar10 --format onnx --sample last --fold-norms
    ");
}

#[test]
fn help_of_subnetwork() {
    assert_snapshot!(help("subnetwork"), @"
    Let the samples of a run share most weights: size and scores

    Usage: thinfer subnetwork [OPTIONS] <RUN>

    Arguments:
      <RUN>  The folder of the run

    Options:
          --shares <LIST>    Shares of the live weights that samples keep apart
                             [default: 0.01,0.03,0.1,0.3,1]
          --chain <N>        The chain whose samples are taken [default: the first]
          --out <FILE>       Also write the samples there, with --share
          --share <SHARE>    The share in FILE [default: 0.1]
          --force            Replace FILE
          --device <DEVICE>  cpu, cuda or cuda:N [default: a GPU where one works]
      -q, --quiet            Only results, warnings and errors
          --json             Print the result as one JSON object
      -h, --help             Print help

    Sizes are at what pruning left, against full snapshots of that size.

    Examples:
      thinfer subnetwork runs/shapes --shares 0.02,0.2
      thinfer subnetwork runs/shapes --out shared.safetensors --share 0.1
    ");
}

#[test]
fn help_of_bench_names_every_network() {
    let text = help("bench").replace('\n', " ");
    for name in thinfer::model::IMAGE_NETWORKS {
        assert!(text.contains(&format!(" {name}")), "{name} is not in {text}");
    }
}

#[test]
fn help_of_methods() {
    assert_snapshot!(help("methods"), @"
    List the training methods and selectors, their settings and pages

    Usage: thinfer methods [OPTIONS] [METHOD]

    Arguments:
      [METHOD]  Say of this method alone what each setting means

    Options:
      -q, --quiet  Only results, warnings and errors
          --json   Print the result as one JSON object
      -h, --help   Print help

    A run takes a training method with `method.kind`, in its file or with --set.
    Selectors find the columns of a table that matter: they are rows of
    `thinfer reproduce table4`, and `thinfer select --compare` takes them.

    Examples:
      thinfer methods
      thinfer methods sm
      thinfer methods splbnn
      thinfer methods --json | jq -r '.methods[].kind'
    ");
}

#[test]
fn methods_are_listed_with_their_settings() {
    let workspace = Workspace::new();
    let all = workspace.succeeds(&["methods"]).stdout;
    let listed = workspace.json(&["methods"]);
    let kinds = listed["methods"].as_array().unwrap();
    for kind in ["em-mcmc", "sgd", "csgld", "csghmc", "dpf-lin", "sm", "dsr", "rank1"] {
        assert!(kinds.iter().any(|method| method["kind"] == kind), "{kind}");
        assert!(all.contains(&format!("{kind}: ")), "{all}");
    }
    for name in ["splbnn", "svbnn", "lasso", "stochastic-gates"] {
        let listed = listed["selectors"].as_array().unwrap();
        let entry = listed.iter().find(|entry| entry["name"] == name).unwrap();
        assert_eq!(entry["page"], "docs/selectors.md");
        assert!(all.contains(&format!("\n{name}: ")) && all.contains("svbnn.softness"), "{all}");
        let alone = workspace.json(&["methods", name]);
        assert_eq!(alone["methods"].as_array().unwrap().len(), 0);
        assert_eq!(alone["selectors"][0]["settings"], entry["settings"]);
    }
    let splbnn = workspace.succeeds(&["methods", "splbnn"]).stdout;
    assert!(splbnn.contains("splbnn.starts\n") && splbnn.contains("default: 10\n"), "{splbnn}");
    assert!(all.lines().all(|line| line.chars().count() <= 100), "{all}");
    assert_snapshot!(workspace.succeeds(&["methods", "csgld"]).stdout.lines().take(6).collect::<Vec<_>>().join("\n"), @"
    csgld: cSGLD: Langevin dynamics with a cyclical step size
    docs/csgmcmc.md

    method.batch_noise
        whether the noise of mini-batches is measured and taken out of the injected
        noise
    ");
    assert_snapshot!(workspace.fails(2, &["methods", "adam"]), @"error: `adam`: is no method; known are em-mcmc, sghmc, cv-adam, sgd, csgld, csghmc, dpf-lin, sm, dsr, rank1, ivon, mclmc, nuts, smile, splbnn, svbnn, lasso, stochastic-gates");
}

#[test]
fn help_of_completions() {
    assert_snapshot!(help("completions"), @"
    Print a completion script for a shell

    Usage: thinfer completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  The shell [possible values: bash, elvish, fish, powershell, zsh]

    Options:
      -q, --quiet  Only results, warnings and errors
          --json   Print the result as one JSON object
      -h, --help   Print help

    Examples:
      thinfer completions bash > ~/.local/share/bash-completion/completions/thinfer
      thinfer completions zsh > ~/.zfunc/_thinfer
    ");
}

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    let workspace = Workspace::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = workspace.succeeds(&["completions", shell]).stdout;
        assert!(script.contains("predict") && script.contains("resume"), "{shell}");
        assert_eq!(workspace.json(&["completions", shell])["shell"], shell);
    }
}

#[test]
fn usage_errors_have_code_2() {
    let workspace = Workspace::new();
    assert_snapshot!(workspace.fails(2, &["train", "tiny.toml", "--resume", "--force"]), @"
    error: the argument '--resume' cannot be used with '--force'

    Usage: thinfer train --resume <DATA|CONFIG>

    For more information, try '--help'.
    ");
    assert_snapshot!(workspace.fails(2, &["trainn"]), @"
    error: unrecognized subcommand 'trainn'

      tip: a similar subcommand exists: 'train'

    Usage: thinfer [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    assert_snapshot!(workspace.fails(2, &["export", "runs/tiny", "--format", "pickle"]), @"
    error: invalid value 'pickle' for '--format <FORMAT>'
      [possible values: safetensors, onnx, arviz]

    For more information, try '--help'.
    ");
    assert!(workspace.fails(2, &[]).contains("Usage: thinfer"));
}
