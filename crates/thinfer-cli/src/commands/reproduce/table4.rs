//! `thinfer reproduce table4`: Table 4 of the paper.

use std::path::PathBuf;

use thinfer::metrics::Spread;
use thinfer::reproduce::{Cost, Example, Failure, Plan, Row, Summary, Table4, collect, table4};

use super::{Seeds, all_done, seeds_of, tell_of_no_folder, warning};
use crate::context::Context;
use crate::device::CpuArgs;
use crate::interrupt;
use crate::progress::Progress;
use crate::text_table::{align, seconds};

/// Variables of a row in the text at most.
const SHOWN: usize = 12;

/// Run Table 4 again, beside what the paper prints
#[derive(clap::Args)]
#[command(after_help = "\
Finished runs are kept in --out and not done again.

Examples:
  thinfer reproduce table4 --examples 1 --rows dfp,lasso --repeats 2
  thinfer reproduce table4 --out results/table4 --plan")]
pub(super) struct Args {
    /// Examples to run: 1, 2, 3, bai, friedman
    #[arg(long, value_enum, value_delimiter = ',', default_value = "1,2,3")]
    #[arg(hide_possible_values = true)]
    examples: Vec<ExampleArg>,
    /// Rows: splbnn, svbnn, dfp, dpf, lasso, stochastic-gates [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_possible_values = true)]
    rows: Vec<RowArg>,
    /// Independent data sets for each, with the seeds 1, 2, …
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// The same as seeds: 3 for 1, 2 and 3; 4..6 for 4, 5 and 6
    #[arg(long, value_name = "SEEDS", value_parser = seeds_of, conflicts_with = "repeats")]
    seeds: Option<Seeds>,
    /// Scale longer runs down to so many epochs; kept apart from whole runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    budget_epochs: Option<u16>,
    /// Change a setting of the shipped configurations or of a row
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder of runs and results
    #[arg(long, value_name = "DIR", default_value = "runs/table4")]
    out: PathBuf,
    /// Runs at a time [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Say what would run and what it would cost
    #[arg(long)]
    plan: bool,
    /// Print what --out holds, run nothing
    #[arg(long, conflicts_with = "plan")]
    collect: bool,
    #[command(flatten)]
    device: CpuArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ExampleArg {
    #[value(name = "1")]
    Example1,
    #[value(name = "2")]
    Example2,
    #[value(name = "3")]
    Example3,
    Bai,
    Friedman,
}

impl From<ExampleArg> for Example {
    fn from(arg: ExampleArg) -> Self {
        match arg {
            ExampleArg::Example1 => Example::Example1,
            ExampleArg::Example2 => Example::Example2,
            ExampleArg::Example3 => Example::Example3,
            ExampleArg::Bai => Example::Bai,
            ExampleArg::Friedman => Example::Friedman,
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RowArg {
    Splbnn,
    Svbnn,
    Dfp,
    Dpf,
    Lasso,
    #[value(alias = "stg")]
    StochasticGates,
}

impl From<RowArg> for Row {
    fn from(arg: RowArg) -> Self {
        match arg {
            RowArg::Splbnn => Row::Splbnn,
            RowArg::Svbnn => Row::Svbnn,
            RowArg::Dfp => Row::Dfp,
            RowArg::Dpf => Row::Dpf,
            RowArg::Lasso => Row::Lasso,
            RowArg::StochasticGates => Row::StochasticGates,
        }
    }
}

pub(super) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let chosen = args.device.choose()?;
    let rows: Vec<Row> = args.rows.iter().map(|&row| row.into()).collect();
    let plan = Plan {
        examples: args.examples.iter().map(|&example| example.into()).collect(),
        rows: if rows.is_empty() { Row::ALL.to_vec() } else { rows },
        seeds: match &args.seeds {
            Some(seeds) => seeds.0.clone(),
            None => (1..=u64::from(args.repeats)).collect(),
        },
        budget_epochs: args.budget_epochs.map(usize::from),
        overrides: args.set.clone(),
        jobs: args.jobs.map(usize::from),
    };
    if args.plan {
        let costs = plan.costs(Some(&args.out))?;
        let left: f64 = costs.iter().map(Cost::seconds_left).sum();
        let json = serde_json::json!({
            "budget_epochs": plan.budget_epochs, "lines": costs, "seconds_left": left,
        });
        return context
            .result(&json, || warning(plan.budget_epochs) + &costs_to_text(&costs, left));
    }
    if args.collect {
        tell_of_no_folder(&args.out, context);
        let table = collect(&plan, &args.out)?;
        return context.result(&serde_json::to_value(&table)?, || to_text(&table));
    }
    let stop = interrupt::stop_flag(context)?;
    let costs = plan.costs(Some(&args.out))?;
    let runs: usize = costs.iter().map(|cost| cost.repeats).sum();
    let done: usize = costs.iter().map(|cost| cost.done).sum();
    let side_by_side = plan.jobs.map_or("one a core".to_owned(), |n| format!("{n} at a time"));
    context.say(&format!("{chosen}; {runs} runs, {done} of them done, {side_by_side}"));
    let progress = Progress::of(context, &chosen, "runs");
    let table = table4(&plan, Some(&args.out), stop, &progress);
    progress.finish();
    let table = table.map_err(|error| {
        interrupt::explain(error, || {
            format!(
                "interrupted; finished runs are in {}, the same command goes on from there",
                args.out.display()
            )
        })
    })?;
    if let Some(file) = &table.file {
        context.say(&format!("wrote {}", file.display()));
    }
    context.result(&serde_json::to_value(&table)?, || to_text(&table))?;
    let failed = |f: &Failure| {
        format!("{} {}, seed {}: {}", f.example.name(), f.method.name(), f.repeat, f.reason)
    };
    all_done(&table.failures.iter().map(failed).collect::<Vec<_>>(), table.runs.len())
}

fn costs_to_text(costs: &[Cost], left: f64) -> String {
    let head = ["example", "row", "runs", "done", "s/run", "by", "left"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(costs.iter().map(|cost| {
        vec![
            cost.example.name().to_owned(),
            cost.method.name().to_owned(),
            cost.repeats.to_string(),
            cost.done.to_string(),
            format!("{:.1}", cost.seconds_each),
            if cost.measured { "measured" } else { "estimate" }.to_owned(),
            seconds(cost.seconds_left()),
        ]
    }));
    format!("{}{} of one core are left; nothing was run\n", align(&rows), seconds(left))
}

fn to_text(table: &Table4) -> String {
    let head = [
        "example", "row", "paper", "here", "sd", "last", "FDR", "FNDR", "power", "selected",
        "exact", "n", "s/run",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(table.rows.iter().map(line));
    format!(
        "{}{}\n{}\nMSE, or accuracy (Example 3), on the test rows, which are new to every method; last: the last sample\nalone; exact: repeats with exactly the right variables; n: runs that are there, of those asked for\n{} runs, {}, thinfer {}\n",
        warning(table.budget_epochs),
        align(&rows),
        inclusion(table),
        table.runs.len(),
        seconds(table.seconds),
        table.thinfer
    )
}

/// How often each variable was selected, the most frequent first.
fn inclusion(table: &Table4) -> String {
    let mut rows = Vec::new();
    for row in table.rows.iter().filter(|row| row.repeats > 0) {
        let mut all: Vec<(&String, f64)> = row.inclusion.iter().map(|(n, s)| (n, *s)).collect();
        // By number where shares are equal: x2 before x10.
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then((a.0.len(), a.0).cmp(&(b.0.len(), b.0))));
        let mut shown: Vec<String> =
            all.iter().take(SHOWN).map(|(name, share)| format!("{name} {share:.2}")).collect();
        match all.len().saturating_sub(SHOWN) {
            0 => {}
            more => shown.push(format!("{more} more (--json has all)")),
        }
        if shown.is_empty() {
            shown.push("none".to_owned());
        }
        rows.push(format!("{} {}: {}\n", row.example.name(), row.method.name(), shown.join(", ")));
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("share of repeats that selected a variable\n{}", rows.concat())
}

fn line(row: &Summary) -> Vec<String> {
    let classes = row.example.design().is_classification();
    let score = |value: Option<f64>| match value {
        Some(v) if classes => format!("{:.2} %", 100.0 * v),
        Some(v) => format!("{v:.3}"),
        None => String::new(),
    };
    let either = row.mse.or(row.accuracy);
    let share = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
    let one = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.1}"));
    let sd = |spread: Spread| (spread.n > 1).then_some(spread.sd);
    vec![
        row.example.name().to_owned(),
        row.method.name().to_owned(),
        score(row.printed.map(|p| p.score)),
        either.map_or("missing".to_owned(), |s| score(Some(s.mean))),
        score(either.and_then(sd)),
        score(row.last_mse_mean.or(row.last_accuracy_mean)),
        share(row.fdr_mean),
        share(row.fndr_mean),
        share(row.power_mean),
        one(row.selected_mean),
        if row.repeats == 0 {
            String::new()
        } else {
            format!("{}/{}", row.perfect_repeats, row.repeats)
        },
        format!("{}/{}", row.repeats, row.asked),
        one(row.seconds_mean),
    ]
}
