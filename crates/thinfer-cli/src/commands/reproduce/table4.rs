use std::path::PathBuf;

use thinfer::reproduce::{Plan, Row, Summary, Table4, table4};

use crate::context::Context;
use crate::device::CpuArgs;
use crate::interrupt;
use crate::progress::Progress;
use crate::text_table::{align, seconds};

/// Run Table 4 again, beside what the paper prints
#[derive(clap::Args)]
#[command(after_help = "\
Finished runs are kept in --out and not done again.

Examples:
  thinfer reproduce table4 --examples 1 --rows dfp --repeats 2
  thinfer reproduce table4 --out results/table4 --json")]
pub(super) struct Args {
    /// Examples to run
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    examples: Vec<usize>,
    /// Methods to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "dfp,dpf")]
    rows: Vec<RowArg>,
    /// Independent data sets for each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Change a setting of the shipped configurations
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A folder for the results of every run
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    device: CpuArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RowArg {
    Dfp,
    Dpf,
}

pub(super) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let chosen = args.device.choose()?;
    let rows = args.rows.iter().map(|row| match row {
        RowArg::Dfp => Row::Dfp,
        RowArg::Dpf => Row::Dpf,
    });
    let plan = Plan {
        examples: args.examples.clone(),
        rows: rows.collect(),
        repeats: usize::from(args.repeats),
        overrides: args.set.clone(),
    };
    let stop = interrupt::stop_flag(context)?;
    let runs = plan.examples.len() * plan.rows.len() * plan.repeats;
    context.say(&format!("{chosen}; {runs} runs, one a core"));
    let progress = Progress::of(context, &chosen, "runs");
    let table = table4(&plan, args.out.as_deref(), stop, &progress);
    progress.finish();
    let table = table.map_err(|error| {
        interrupt::explain(error, || match &args.out {
            Some(out) => format!(
                "interrupted; finished runs are in {}, the same command goes on from there",
                out.display()
            ),
            None => "interrupted; nothing was kept, give --out to go on another time".into(),
        })
    })?;
    if let Some(out) = &args.out {
        context.say(&format!("wrote {}", out.join("table4.json").display()));
    }
    context.result(&serde_json::to_value(&table)?, || to_text(&table))
}

fn to_text(table: &Table4) -> String {
    let head = [
        "example",
        "row",
        "paper",
        "posterior",
        "sd",
        "last",
        "FDR",
        "FNDR",
        "selected",
        "exact",
        "s/run",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(table.rows.iter().map(line));
    format!(
        "{}\nMSE (Examples 1, 2) or accuracy (Example 3) on 1,000 test rows; posterior: average of the samples with\nthe final mask; last: the last sample alone; exact: repeats with exactly the right variables\n{} runs, {}, thinfer {}\n",
        align(&rows),
        table.runs.len(),
        seconds(table.seconds),
        table.thinfer
    )
}

fn line(row: &Summary) -> Vec<String> {
    let score = |value: Option<f64>| match (value, row.mse_mean) {
        (Some(v), Some(_)) => format!("{v:.3}"),
        (Some(v), None) => format!("{:.2} %", 100.0 * v),
        (None, _) => String::new(),
    };
    let either = |a: Option<f64>, b: Option<f64>| score(a.or(b));
    vec![
        row.example.to_string(),
        row.method.name().to_uppercase(),
        score(Some(row.printed)),
        either(row.mse_mean, row.accuracy_mean),
        either(row.mse_sd, row.accuracy_sd),
        either(row.last_mse_mean, row.last_accuracy_mean),
        format!("{:.3}", row.fdr_mean),
        format!("{:.3}", row.fndr_mean),
        format!("{:.1}", row.selected_mean),
        format!("{}/{}", row.perfect_repeats, row.repeats),
        format!("{:.1}", row.seconds_mean),
    ]
}
