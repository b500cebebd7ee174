//! `thinfer predict`: predictions of new rows or pictures.

mod images;
mod table;

use std::path::PathBuf;

use thinfer::Error;
use thinfer::run::Inputs;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::{output, run_folder};

/// Predict rows of a table, or pictures
#[derive(clap::Args)]
#[command(after_help = "\
Tables: row, mean, sd, lower90, upper90; or row, p_CLASS for each, predicted.
Pictures: file, class, probability, entropy, mutual_information (in nats).

Examples:
  thinfer predict runs/houses new.csv --id address > predictions.csv
  thinfer predict runs/shapes photos/ a.png --all > predictions.csv")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// A table (.csv, .tsv, .parquet, or -), or pictures and folders
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// Write there, not to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    /// Of a table: a column that predictions keep
    #[arg(long, value_name = "COLUMN")]
    id: Vec<String>,
    /// For pictures: the probability of every class
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check(out, args.force)?;
    }
    let (info, posterior) = run_folder::open_posterior(&args.run, context)?;
    match &info.inputs {
        Inputs::Table(_) => table::run(args, &info, &posterior, context),
        Inputs::Images(_) if !args.id.is_empty() => {
            let problem =
                "keeps columns of a table, but the run was trained on images; leave it out";
            Err(Error::config("--id", problem).into())
        }
        Inputs::Images(_) => images::run(args, &info, &posterior, context),
    }
}
