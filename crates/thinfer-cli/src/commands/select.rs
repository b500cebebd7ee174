//! `thinfer select`: the variables of a table that matter.

use std::path::PathBuf;

use thinfer::config::TaskChoice;
use thinfer::data::Task;
use thinfer::data::table::{Missing, ReadOptions, Rules, Table};
use thinfer::select::{Control, Form, Options, Selected, check_options, select};
use thinfer::selectors::{Lasso, Selector, Splbnn, StochasticGates, Svbnn};

use crate::context::Context;
use crate::device::CpuArgs;
use crate::progress::Progress;
use crate::text_table::{align, number, percent, seconds};
use crate::{interrupt, output};

/// Find the columns of a table that matter for one of them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer select houses.csv --target price --compare lasso --out selection.json")]
pub(crate) struct Args {
    /// The table: .csv, .tsv or .parquet, with a header
    table: PathBuf,
    /// The column to explain
    #[arg(long, value_name = "COLUMN")]
    target: String,
    /// regression or classification [default: by values]
    #[arg(long, value_enum, hide_possible_values = true)]
    task: Option<TaskArg>,
    /// Independent chains
    #[arg(long, allow_negative_numbers = true, default_value_t = 4)]
    chains: usize,
    /// Everything random follows from it
    #[arg(long, allow_negative_numbers = true, default_value_t = 1)]
    seed: u64,
    /// Share kept for the end, up to 1/3 [default: 0.2]
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, hide_default_value = true)]
    #[arg(allow_negative_numbers = true)]
    holdout: f64,
    /// Treat a column of numbers as a category
    #[arg(long, value_name = "COLUMN")]
    categorical: Vec<String>,
    // These three are named by the notices that they are the answer to; help fits one screen.
    /// impute, drop-rows or refuse
    #[arg(long, value_enum, default_value_t = MissingArg::Impute, hide = true)]
    missing: MissingArg,
    /// Use a column that looks like an identifier
    #[arg(long, value_name = "COLUMN", hide = true)]
    keep: Vec<String>,
    /// Do not use a column
    #[arg(long, value_name = "COLUMN", hide = true)]
    leave_out: Vec<String>,
    /// Also run lasso, stochastic-gates, splbnn or svbnn
    #[arg(long, value_enum, value_delimiter = ',', hide_possible_values = true)]
    compare: Vec<CompareArg>,
    /// Also write the result there, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: CpuArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TaskArg {
    Regression,
    Classification,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MissingArg {
    Impute,
    DropRows,
    Refuse,
}

impl From<MissingArg> for Missing {
    fn from(arg: MissingArg) -> Self {
        match arg {
            MissingArg::Impute => Missing::Impute,
            MissingArg::DropRows => Missing::DropRows,
            MissingArg::Refuse => Missing::Refuse,
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum CompareArg {
    Lasso,
    #[value(alias = "stg")]
    StochasticGates,
    Splbnn,
    Svbnn,
}

impl From<CompareArg> for Selector {
    fn from(arg: CompareArg) -> Self {
        match arg {
            CompareArg::Lasso => Selector::Lasso(Lasso::default()),
            CompareArg::StochasticGates => Selector::StochasticGates(StochasticGates::default()),
            CompareArg::Splbnn => Selector::Splbnn(Splbnn::default()),
            CompareArg::Svbnn => Selector::Svbnn(Svbnn::default()),
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let chosen = args.device.choose()?;
    if let Some(out) = &args.out {
        output::check(out, args.force)?;
    }
    let options = Options {
        task: match args.task {
            None => TaskChoice::Auto,
            Some(TaskArg::Regression) => TaskChoice::Regression,
            Some(TaskArg::Classification) => TaskChoice::Classification,
        },
        chains: args.chains,
        seed: args.seed,
        holdout: args.holdout,
        rules: Rules {
            missing: args.missing.into(),
            keep: args.keep.clone(),
            leave_out: args.leave_out.clone(),
            ..Rules::default()
        },
        compare: args.compare.iter().map(|&other| other.into()).collect(),
    };
    check_options(&options)?;
    let reading = ReadOptions { categorical: args.categorical.clone(), ..ReadOptions::default() };
    let (table, note) = Table::read_noted(&args.table, &reading)?;
    note.iter().for_each(|note| context.notice(note));
    context.say(&format!(
        "{chosen}; {} rows, {} columns, {} chains",
        table.rows(),
        table.columns.len(),
        options.chains
    ));
    let stop = interrupt::stop_flag(context)?;
    let progress = Progress::of(context, &chosen, "selecting");
    let control = Control { stop, observer: &progress };
    let selected = select(&table, &args.target, &options, &control);
    progress.finish();
    let selected = selected.map_err(|error| {
        interrupt::explain(error, || "interrupted; nothing was written, so start again".into())
    })?;
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
        thinfer::run::write_json(out, &selected)?;
        context.say(&format!("wrote {}", out.display()));
    }
    context.result(&serde_json::to_value(&selected)?, || to_text(&selected))
}

fn to_text(result: &Selected) -> String {
    let mut text = format!("{}\n", result.summary);
    if !result.effects.is_empty() {
        let head = ["variable", "frequency", "effect", "of the error", "z"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(result.effects.iter().map(|e| {
            vec![
                e.name.clone(),
                percent(e.frequency),
                number(e.effect),
                percent(e.relative_effect),
                format!("{:.1}", e.z),
            ]
        }));
        let unit = if result.task == Task::Regression { "squared error" } else { "log loss" };
        text.push_str(&format!("\n{}", align(&rows)));
        text.push_str(&format!(
            "frequency: share of chains and samples whose network reads the variable and predicts unseen rows worse\nwithout it, no probability; effect: how much the held-out {unit} grows when the variable is shuffled; of the error: as a share\nof the {unit} of a constant prediction\n"
        ));
    }
    text.push_str(&format!("\nheld-out rows: {}\n", result.heldout.rows));
    let heldout = &result.heldout;
    let mut rows = Vec::new();
    let mut line = |name: &str, mse: Option<f64>, classes: (Option<f64>, Option<f64>)| {
        let (accuracy, nll) = classes;
        let values = [
            mse.map(|mse| format!("MSE {}", number(mse))),
            accuracy.map(|accuracy| format!("accuracy {}", percent(accuracy))),
            nll.filter(|_| mse.is_none()).map(|nll| format!("log loss {}", number(nll))),
        ];
        let values: Vec<String> = values.into_iter().flatten().collect();
        rows.push(vec![name.to_owned(), values.join(", ")]);
    };
    if !result.selected.is_empty() {
        let name = match result.form {
            Form::Hidden => "network on the selected variables",
            Form::Linear => "Bayesian linear model on the selected variables",
        };
        line(name, heldout.mse, (heldout.accuracy, heldout.nll));
    }
    let linear = (heldout.linear_accuracy, heldout.linear_nll);
    line("linear model on all variables", heldout.linear_mse, linear);
    let constant = if result.task == Task::Regression { "mean" } else { "majority class" };
    line(constant, heldout.baseline_mse, (heldout.baseline_accuracy, None));
    text.push_str(&align(&rows));
    if let Some(coverage) = heldout.coverage90 {
        text.push_str(&format!("90 % intervals hold {} of the rows\n", percent(coverage)));
    }
    if let Some(advice) = &result.advice {
        text.push_str(&format!("note: {advice}\n"));
    }
    if !result.others.is_empty() {
        let head = ["selector", "variables", "held out", "seconds", "which"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(result.others.iter().map(|other| {
            let score = other.mse.map(|m| format!("MSE {}", number(m)));
            let score =
                score.or_else(|| other.accuracy.map(|a| format!("accuracy {}", percent(a))));
            let mut which = other.selected[..other.selected.len().min(8)].join(" ");
            if other.selected.len() > 8 {
                which.push_str(" …");
            }
            vec![
                other.name.to_owned(),
                other.selected.len().to_string(),
                score.unwrap_or_default(),
                format!("{:.1}", other.seconds),
                which,
            ]
        }));
        text.push_str(&format!("\n{}", align(&rows)));
    }
    text.push_str(&format!("{} chains, {}\n", result.chains, seconds(result.seconds)));
    text
}
