//! `thinfer reproduce table1`, `table2` and `table3`: the image tables of the paper.

use std::path::{Path, PathBuf};

use thinfer::data::memory::human_bytes;
use thinfer::metrics::Spread;
use thinfer::reproduce::images::{
    Cost, Failure, Measured, Outcome, PaperTable, Plan, Setting, Source, Summary, Watcher, collect,
    reproduce,
};
use thinfer::train::{Observer, Record};
use thinfer::{Error, Result};

use super::{Seeds, all_done, seeds_of, tell_of_no_folder, warning};
use crate::context::Context;
use crate::device::DeviceArgs;
use crate::interrupt;
use crate::progress::Progress;
use crate::text_table::{align, number, seconds};

#[derive(clap::Args)]
#[command(after_help = "\
A row is a network, a method and, where it prunes, a sparsity: resnet18-dfp-90.
--rows takes whole names or parts: dfp, wrn-28-10, dfp-90. Finished runs are
kept in --out and not done again; interrupted ones go on. More is in
docs/reproduce.md.

Examples:
  thinfer reproduce table1 --rows resnet18 --seeds 3 --plan
  thinfer reproduce table1 --rows sgd,dfp-90 --seeds 1 --budget-epochs 20")]
pub(super) struct Args {
    /// Rows to run [default: all that the paper has]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    rows: Vec<String>,
    /// 3 for the seeds 1, 2 and 3; 4..6 for 4, 5 and 6
    #[arg(long, value_name = "SEEDS", default_value = "3", value_parser = seeds_of)]
    seeds: Seeds,
    /// Scale longer schedules down to so many epochs; kept apart from whole runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    budget_epochs: Option<u16>,
    /// Change a setting of the shipped configurations
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder of runs and results [default: runs/TABLE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at a time [default: one a core, or one on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Remove checkpoints and samples of each new run once it is evaluated
    #[arg(long)]
    discard_samples: bool,
    /// Say what would run and what it would cost
    #[arg(long)]
    plan: bool,
    /// Print what --out holds, run nothing
    #[arg(long, conflicts_with = "plan")]
    collect: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(table: PaperTable, args: &Args, context: &Context) -> anyhow::Result<()> {
    let mut plan = Plan::new(table, &args.rows, args.seeds.0.clone())?;
    plan.budget_epochs = args.budget_epochs.map(usize::from);
    plan.overrides.clone_from(&args.set);
    let out = args.out.clone().unwrap_or_else(|| Path::new("runs").join(table.name()));
    if args.collect {
        tell_of_no_folder(&out, context);
        let measured = collect(&plan, &out)?;
        return context.result(&serde_json::to_value(&measured)?, || to_text(&measured));
    }
    let chosen = args.device.choose()?;
    chosen.tell(context);
    let device_name = chosen.to_string();
    if args.plan {
        let costs = plan.costs(&out, chosen.device, &device_name)?;
        let left: f64 = costs.iter().map(Cost::seconds_left).sum();
        let bytes: u64 = costs.iter().map(Cost::bytes_left).sum();
        let json = serde_json::json!({
            "table": table, "device": device_name, "budget_epochs": plan.budget_epochs,
            "lines": costs, "seconds_left": left, "bytes_left": bytes,
        });
        return context.result(&json, || costs_to_text(&plan, &costs, &device_name));
    }
    let counts = plan.counts(&out)?;
    let stop = interrupt::stop_flag(context)?;
    context.say(&format!(
        "{device_name}; {} runs, {} of them done and {} begun",
        counts.asked, counts.done, counts.begun
    ));
    let watch = Watch { context, progress: Progress::numbered(context, &chosen, "run") };
    let setting = Setting {
        out: &out,
        jobs: args.jobs.map(usize::from),
        discard_samples: args.discard_samples,
        device: chosen.device,
        device_name: &device_name,
        stop,
        watcher: &watch,
    };
    let measured = reproduce(&plan, &setting);
    watch.progress.finish();
    let measured = measured.map_err(|error| {
        interrupt::explain(error, || {
            format!("interrupted; the same command goes on with what is in {}", out.display())
        })
    })?;
    if let Some(file) = &measured.file {
        context.say(&format!("wrote {}", file.display()));
    }
    context.result(&serde_json::to_value(&measured)?, || to_text(&measured))?;
    let failed = |f: &Failure| format!("{}, seed {}: {}", f.row, f.seed, f.reason);
    all_done(&measured.failures.iter().map(failed).collect::<Vec<_>>(), measured.runs.len())
}

/// Tells of runs as they come and go.
struct Watch<'a> {
    context: &'a Context,
    progress: Progress<'a>,
}

impl Watcher for Watch<'_> {
    fn begins(&self, number: usize, name: &str) {
        self.progress.suspend(|| self.context.say(&format!("run {}: {name}", number + 1)));
    }

    fn progress(&self, number: usize, step: u64, total: u64, record: Option<&Record>) {
        self.progress.progress(number as u32 + 1, step, total, record);
    }

    fn ends(&self, number: usize, name: &str, result: &Result<Outcome>) {
        let end = match result {
            Ok(run) => format!("{} in {}", percent(run.accuracy), seconds(run.seconds)),
            Err(Error::NonFinite { .. }) => "diverged".to_owned(),
            // These end the command, which says why.
            Err(_) => return,
        };
        let text = format!("run {}: {name}: {end}", number + 1);
        self.progress.suspend(|| self.context.say(&text));
    }

    fn notice(&self, text: &str) {
        self.progress.notice(text);
    }

    fn warning(&self, text: &str) {
        self.progress.warning(text);
    }
}

fn costs_to_text(plan: &Plan, costs: &[Cost], device: &str) -> String {
    let head = ["row", "runs", "done", "begun", "epochs", "a run", "by", "left", "disk"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(costs.iter().map(|cost| {
        vec![
            cost.row.clone(),
            cost.asked.to_string(),
            cost.done.to_string(),
            cost.begun.to_string(),
            cost.epochs.to_string(),
            seconds(cost.seconds_each),
            source(cost.source).0.to_owned(),
            seconds(cost.seconds_left()),
            human_bytes(cost.bytes_left()),
        ]
    }));
    let left: f64 = costs.iter().map(Cost::seconds_left).sum();
    let bytes: u64 = costs.iter().map(Cost::bytes_left).sum();
    let mut notes = Vec::new();
    for cost in costs {
        let (word, about) = source(cost.source);
        let note = format!("{word}: {about}");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let without: Vec<String> = plan
        .rows
        .iter()
        .map(thinfer::reproduce::images::Row::name)
        .filter(|name| !costs.iter().any(|cost| cost.row == *name))
        .collect();
    if !without.is_empty() {
        notes.push(format!("without a configuration, so not run: {}", without.join(", ")));
    }
    format!(
        "{}{}{} of {device} and {} of disk are left; nothing was run\n{}\n",
        warning(plan.budget_epochs),
        align(&rows),
        seconds(left),
        human_bytes(bytes),
        notes.join("\n")
    )
}

/// Where an estimate comes from, in a word and in a sentence.
fn source(source: Source) -> (&'static str, &'static str) {
    match source {
        Source::Row => ("row", "measured, by finished runs of the row on this device"),
        Source::Network => (
            "network",
            "measured, by finished runs of the same data, network and batch on this device",
        ),
        Source::Bench => {
            ("bench", "an estimate, from steps that were timed on an NVIDIA H200 (results/bench)")
        }
        Source::MultiplyAdds => (
            "work",
            "an estimate, from multiply-adds at the rate of a gradient just timed on all cores",
        ),
    }
}

fn to_text(table: &Measured) -> String {
    let head = ["row", "paper", "here", "sd", "last", "pruned", "NLL", "ECE", "n", "s/run"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(table.rows.iter().map(line));
    let without: Vec<String> = table
        .rows
        .iter()
        .filter(|row| !row.shipped)
        .map(|row| format!("{}-{}", row.network, row.method))
        .collect();
    let without = match &without[..] {
        [] => String::new(),
        rows => format!("no configuration is there for {}\n", rows.join(", ")),
    };
    format!(
        "{}{}\ntest accuracy; here: mean of the posterior averages, sd: over seeds, last: the last sample alone, pruned: of\nall parameters, n: runs that are there, of those asked for, s/run: seconds of training and testing\n{without}thinfer {}\n",
        warning(table.budget_epochs),
        align(&rows),
        table.thinfer
    )
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn line(row: &Summary) -> Vec<String> {
    let or_nothing = |text: Option<String>| text.unwrap_or_default();
    let name = match row.percent {
        Some(target) => format!("{}-{}-{target}", row.network, row.method),
        None => format!("{}-{}", row.network, row.method),
    };
    let sd = |spread: Spread| (spread.n > 1).then(|| percent(spread.sd));
    vec![
        name,
        or_nothing(row.printed.map(|share| format!("{:.1} %", 100.0 * share))),
        row.accuracy.map_or_else(|| "missing".to_owned(), |s| percent(s.mean)),
        or_nothing(row.accuracy.and_then(sd)),
        or_nothing(row.last_accuracy_mean.map(percent)),
        or_nothing(row.sparsity_mean.map(|share| format!("{:.1} %", 100.0 * share))),
        or_nothing(row.nll.map(|s| number(s.mean))),
        or_nothing(row.ece.map(|s| number(s.mean))),
        format!("{}/{}", row.runs, row.asked),
        or_nothing(row.seconds.map(|s| number(s.mean))),
    ]
}
