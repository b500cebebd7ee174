//! `thinfer compare`: several runs beside each other.

use std::path::PathBuf;

use serde_json::json;
use thinfer::compare::{Comparison, Entry, OverSeeds, Subject, compare};
use thinfer::data::memory::human_bytes;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::output;
use crate::text_table::{align, number, percent, seconds};

/// Put runs on the same data beside each other, in one report
#[derive(clap::Args)]
#[command(after_help = "\
Runs that were evaluated need neither their data nor their samples.

Examples:
  thinfer compare runs/sgd runs/dfp runs/sm
  thinfer compare runs/table1/runs/*-90-seed1-* --out sparse.html")]
pub(crate) struct Args {
    /// The folders of the runs
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where to write the report, as HTML
    #[arg(long, value_name = "FILE", default_value = "comparison.html")]
    out: PathBuf,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    output::check(&args.out, args.force)?;
    let chosen = args.device.choose()?;
    // A pattern of the shell also finds the results that `reproduce` writes beside its folders.
    let result = |path: &&PathBuf| path.is_file() && path.with_extension("").is_dir();
    let folders: Vec<PathBuf> = args.runs.iter().filter(|path| !result(path)).cloned().collect();
    let comparison = compare(&folders, chosen.device, context)?;
    if comparison.subject == Some(Subject::Images) {
        chosen.tell(context);
    }
    output::check_free(&args.out, args.force)?;
    thinfer::run::write_text(&args.out, &thinfer::report::comparison::html(&comparison)?)?;
    let mut json = serde_json::to_value(&comparison)?;
    json["report"] = json!(args.out.display().to_string());
    context.result(&json, || to_text(&comparison))?;
    context.say(&format!("wrote {}", args.out.display()));
    Ok(())
}

fn to_text(comparison: &Comparison) -> String {
    let numbers = comparison.subject == Some(Subject::Numbers);
    let selects = comparison.subject.is_some_and(|subject| subject != Subject::Images);
    let mut head = vec!["run", "method", "seed"];
    head.extend(if numbers {
        &["MSE", "NLL", "coverage"][..]
    } else {
        &["accuracy", "NLL", "ECE", "Brier"]
    });
    if selects {
        head.extend(["selected", "FDR", "FNDR"]);
    }
    head.extend(["pruned", "multiply-adds", "bytes", "time", "memory", ""]);
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let lines = comparison.runs.iter().enumerate();
    rows.extend(lines.map(|(at, run)| line(run, numbers, selects, comparison.front.contains(&at))));
    let score = if numbers { "error" } else { "accuracy" };
    let seeds = over_seeds(comparison, score);
    format!(
        "{}{seeds}\n*: no other run is at least as good in both {score} and sparsity and better in one; multiply-adds and bytes: what is\nleft of the network; memory: weights, state and masks in training\n",
        align(&rows)
    )
}

/// Mean and spread over runs that differ only in the seed; empty where no two do.
fn over_seeds(comparison: &Comparison, score: &str) -> String {
    let (name, show): (&str, fn(f64) -> String) =
        if score == "error" { ("mse", number) } else { ("accuracy", percent) };
    let several = comparison.groups.iter().filter(|group| group.runs.len() > 1);
    let mut rows: Vec<Vec<String>> = several
        .map(|group| {
            let runs: Vec<&str> =
                group.runs.iter().map(|run| comparison.runs[*run].run.as_str()).collect();
            let cell = |of: Option<&OverSeeds>, show: fn(f64) -> String| match of {
                Some(OverSeeds { mean, sd: Some(sd), .. }) => {
                    format!("{} ± {}", show(*mean), show(*sd))
                }
                Some(of) => show(of.mean),
                None => "-".to_owned(),
            };
            vec![
                runs.join(", "),
                cell(group.score(name), show),
                cell(group.score("nll"), number),
                cell(group.score("sparsity"), percent),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let title = if name == "mse" { "MSE" } else { "accuracy" };
    rows.insert(0, ["over seeds, mean ± sd", title, "NLL", "pruned"].map(str::to_owned).to_vec());
    let note = if comparison.split_by_seed {
        "each seed divides the rows of the table in its own way\n"
    } else {
        ""
    };
    format!("\n{}{note}", align(&rows))
}

fn line(run: &Entry, numbers: bool, selects: bool, on_front: bool) -> Vec<String> {
    let mut cells = vec![run.run.clone(), run.method.clone(), run.seed.to_string()];
    let Some(found) = &run.evaluated else {
        cells.push(format!("unfinished, {} of {} epochs", run.epochs_done, run.epochs));
        return cells;
    };
    let decimal = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    let left = |(whole, left): (f64, f64)| percent(if whole > 0.0 { left / whole } else { 1.0 });
    if numbers {
        cells.extend([decimal(found.mse), decimal(found.nll), share(found.coverage90)]);
    } else {
        let accuracy =
            found.accuracy.map_or_else(|| "-".to_owned(), |a| format!("{:.2} %", 100.0 * a));
        cells.extend([accuracy, decimal(found.nll), decimal(found.ece), decimal(found.brier)]);
    }
    if selects {
        let selected = found.selected.map_or_else(|| "-".to_owned(), |n| n.to_string());
        cells.extend([selected, decimal(found.fdr), decimal(found.fndr)]);
    }
    cells.extend([
        percent(found.sparsity),
        left(found.multiply_adds),
        left(found.bytes),
        run.seconds.map_or_else(|| "-".to_owned(), seconds),
        human_bytes(run.memory_bytes as u64),
        if on_front { "*" } else { "" }.to_owned(),
    ]);
    cells
}
