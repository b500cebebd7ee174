use std::path::PathBuf;

use serde_json::{Map, Value, json};
use thinfer::data::table::Table;
use thinfer::predict::{Predictions, predict};

use crate::context::{Context, to_stdout};
use crate::{output, run_folder};

/// Predict new rows: means and intervals, or class probabilities
#[derive(clap::Args)]
#[command(after_help = "\
Rows with missing inputs keep their place and stay empty. Columns: row, mean,
sd, lower90, upper90; or row, p_CLASS for every class, predicted.

Examples:
  thinfer predict runs/example1 new.csv > predictions.csv
  thinfer predict runs/example1 new.parquet --out predictions.parquet")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// The table: .csv, .tsv or .parquet, with the input columns of the run
    input: PathBuf,
    /// Write there (.csv, .tsv, .parquet), not to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
    }
    let (info, posterior) = run_folder::open_posterior(&args.run, context)?;
    let table = Table::read_with(&args.input, &info.table()?.schema.encoding.read_options())?;
    let predictions = predict(&info, &posterior, &table)?;
    predictions.notes.iter().for_each(|note| context.notice(note));
    if let Some(out) = &args.out {
        predictions.write(out, args.force)?;
        context.say(&format!("wrote {} rows to {}", predictions.rows, out.display()));
    }
    match (context.json(), &args.out) {
        (true, _) => context.result(&args.to_json(&predictions)?, String::new),
        (false, None) => to_stdout(|to| predictions.write_csv(to)),
        (false, Some(_)) => Ok(()),
    }
}

impl Args {
    fn to_json(&self, predictions: &Predictions) -> anyhow::Result<Value> {
        let mut object = Map::new();
        object.insert("run".into(), json!(self.run.display().to_string()));
        object.insert("input".into(), json!(self.input.display().to_string()));
        object.insert("task".into(), serde_json::to_value(predictions.task)?);
        object.insert("rows".into(), json!(predictions.rows));
        object.insert("missing_rows".into(), json!(predictions.missing.rows));
        object.insert("members".into(), json!(predictions.members));
        object.insert("scored_rows".into(), json!(predictions.scored_rows));
        object.insert("score".into(), serde_json::to_value(&predictions.scores)?);
        match &self.out {
            Some(out) => drop(object.insert("out".into(), json!(out.display().to_string()))),
            None => object.extend(predictions.to_json()),
        }
        Ok(Value::Object(object))
    }
}
