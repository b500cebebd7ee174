//! `thinfer select`: the variables of a table that matter, and a run with a model on them.

mod text;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thinfer::Error;
use thinfer::config::TaskChoice;
use thinfer::data::table::{Missing, ReadOptions, Rules, Table};
use thinfer::device::Device;
use thinfer::finish::{Keys, finish};
use thinfer::run::{Mode, write_json};
use thinfer::select::{Control, Kept, Options, Place, SELECTION, check_options, select_and_keep};
use thinfer::selectors::{Lasso, Selector, Splbnn, StochasticGates, Svbnn};

use crate::context::Context;
use crate::device::CpuArgs;
use crate::progress::Progress;
use crate::{evaluated_run, interrupt, shell};

/// Find the columns of a table that matter, and train on them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer select houses.csv --target price --compare lasso")]
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
    /// Fill gaps in, or: drop-rows, refuse
    #[arg(long, value_enum, default_value_t = MissingArg::Impute)]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    missing: MissingArg,
    /// Use a column that looks like an identifier
    #[arg(long, value_name = "COLUMN")]
    keep: Vec<String>,
    /// Do not use a column
    #[arg(long, value_name = "COLUMN")]
    leave_out: Vec<String>,
    /// Also run lasso, stochastic-gates, splbnn or svbnn
    #[arg(long, value_enum, value_delimiter = ',', hide_possible_values = true)]
    compare: Vec<CompareArg>,
    /// The folder of the run [default: runs/NAME-select]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Select again and go on with the run
    #[arg(long, conflicts_with = "force")]
    resume: bool,
    /// Replace the run in the folder
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
    let options = args.options();
    check_options(&options)?;
    let folder = args.folder();
    check_folder(&folder, args.mode())?;
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
    let name = chosen.to_string();
    let place = Place {
        folder: &folder,
        mode: args.mode(),
        categorical: args.categorical.clone(),
        device_name: &name,
    };
    let found = select_and_keep(&table, &args.target, &options, &control, &place);
    progress.finish();
    let (selected, kept) =
        found.map_err(|error| interrupt::explain(error, || args.how_to_go_on(&folder)))?;
    let mut json = serde_json::to_value(&selected)?;
    let Some(Kept { run, claim: _until_the_end }) = kept else {
        json["run"] = Value::Null;
        context.result(&json, || text::to_text(&selected))?;
        context.say(&nothing_kept(&folder));
        return Ok(());
    };
    interrupt::end_at_once(format!(
        "interrupted before the report was written; write it with `{}`",
        args.resuming(&folder)
    ));
    write_json(&folder.join(SELECTION), &selected)?;
    let evaluated = run.evaluate(&[], Device::Cpu)?;
    let files = finish(&run, &evaluated, &folder, Keys::Sorted)?;
    json["run"] = json!(folder.display().to_string());
    json["report"] = json!(files.report.display().to_string());
    context.result(&json, || text::to_text(&selected))?;
    context.say(&format!(
        "wrote {} and {}",
        folder.join(SELECTION).display(),
        files.report.display()
    ));
    evaluated_run::check(&run, &evaluated)
}

impl Args {
    fn options(&self) -> Options {
        Options {
            task: match self.task {
                None => TaskChoice::Auto,
                Some(TaskArg::Regression) => TaskChoice::Regression,
                Some(TaskArg::Classification) => TaskChoice::Classification,
            },
            chains: self.chains,
            seed: self.seed,
            holdout: self.holdout,
            rules: Rules {
                missing: self.missing.into(),
                keep: self.keep.clone(),
                leave_out: self.leave_out.clone(),
                ..Rules::default()
            },
            compare: self.compare.iter().map(|&other| other.into()).collect(),
        }
    }

    fn mode(&self) -> Mode {
        match (self.resume, self.force) {
            (true, _) => Mode::Resume,
            (_, true) => Mode::Force,
            _ => Mode::New,
        }
    }

    /// Where the run goes.
    fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let packed = self.table.extension().is_some_and(|ending| ending == "gz");
            let stem = |path: &Path| PathBuf::from(path.file_stem().unwrap_or_default());
            let name = if packed { stem(&stem(&self.table)) } else { stem(&self.table) };
            Path::new("runs").join(format!("{}-select", name.display()))
        })
    }

    /// What to say to somebody who stopped the work: the model may be on its way in the folder.
    fn how_to_go_on(&self, folder: &Path) -> String {
        if folder.join("run.json").exists() && !self.force {
            return format!("interrupted; go on with `{}`", self.resuming(folder));
        }
        "interrupted; nothing was written, so start again".to_owned()
    }

    /// The command that goes on with the run.
    fn resuming(&self, folder: &Path) -> String {
        let mut words = vec!["select".to_owned(), self.table.to_string_lossy().into_owned()];
        let mut give = |option: &str, value: String| words.extend([option.to_owned(), value]);
        give("--target", self.target.clone());
        match self.task {
            None => {}
            Some(TaskArg::Regression) => give("--task", "regression".to_owned()),
            Some(TaskArg::Classification) => give("--task", "classification".to_owned()),
        }
        give("--chains", self.chains.to_string());
        give("--seed", self.seed.to_string());
        give("--holdout", self.holdout.to_string());
        self.categorical.iter().for_each(|column| give("--categorical", column.clone()));
        match self.missing {
            MissingArg::Impute => {}
            MissingArg::DropRows => give("--missing", "drop-rows".to_owned()),
            MissingArg::Refuse => give("--missing", "refuse".to_owned()),
        }
        self.keep.iter().for_each(|column| give("--keep", column.clone()));
        self.leave_out.iter().for_each(|column| give("--leave-out", column.clone()));
        give("--out", folder.to_string_lossy().into_owned());
        words.push("--resume".to_owned());
        shell::command(&words)
    }
}

/// Refuses a folder that cannot be written to before the work begins. What is there may change, so
/// it is asked again before it is written.
fn check_folder(folder: &Path, mode: Mode) -> thinfer::Result<()> {
    if folder.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) {
        let problem = format!(
            "is {}, but names the folder of the run, which has the result as {SELECTION}; give a folder, or print JSON with --json",
            folder.display()
        );
        return Err(Error::config("--out", problem));
    }
    thinfer::run::check_place(folder, mode)
}

/// What to say where nothing was selected.
fn nothing_kept(folder: &Path) -> String {
    if folder.join("run.json").exists() {
        return format!(
            "no run was made, as nothing was selected; what is in {} is of an earlier run",
            folder.display()
        );
    }
    "no run was made, as nothing was selected".to_owned()
}
