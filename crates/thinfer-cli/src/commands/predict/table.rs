//! Predictions of the rows of a table.

use serde_json::{Map, Value, json};
use thinfer::Error;
use thinfer::data::table::{Table, check_extension};
use thinfer::posterior::Posterior;
use thinfer::predict::{Predictions, predict};
use thinfer::run::RunInfo;

use super::Args;
use crate::context::{Context, data_to_stdout};

pub(super) fn run(
    args: &Args,
    info: &RunInfo,
    posterior: &Posterior,
    context: &Context,
) -> anyhow::Result<()> {
    let [input] = &args.input[..] else {
        let problem = "are several, but the run was trained on a table; give one table";
        return Err(Error::config("INPUT", problem).into());
    };
    args.out.as_deref().map_or(Ok(()), check_extension)?;
    let options = info.table()?.schema.encoding.read_options();
    let (table, note) = Table::read_noted(input, &options)?;
    note.iter().for_each(|note| context.notice(note));
    let predictions = predict(info, posterior, &table)?.with_ids(&table, &args.id)?;
    predictions.notes.iter().for_each(|note| context.notice(note));
    if let Some(out) = &args.out {
        predictions.write(out, args.force)?;
        context.say(&format!("wrote {} rows to {}", predictions.rows, out.display()));
    }
    match (context.json(), &args.out) {
        (true, _) => context.result(&to_json(args, &predictions)?, String::new),
        (false, None) => data_to_stdout(|to| predictions.write_csv(to)),
        (false, Some(_)) => Ok(()),
    }
}

fn to_json(args: &Args, predictions: &Predictions) -> anyhow::Result<Value> {
    let mut object = Map::new();
    object.insert("run".into(), json!(args.run.display().to_string()));
    object.insert("input".into(), json!(args.input[0].display().to_string()));
    object.insert("task".into(), serde_json::to_value(predictions.task)?);
    object.insert("rows".into(), json!(predictions.rows));
    let with_gaps = predictions.missing.rows;
    let (filled, missing) = if predictions.filled { (with_gaps, 0) } else { (0, with_gaps) };
    object.insert("missing_rows".into(), json!(missing));
    object.insert("filled_rows".into(), json!(filled));
    object.insert("unseen_rows".into(), json!(predictions.unseen_rows));
    object.insert("members".into(), json!(predictions.members));
    object.insert("scored_rows".into(), json!(predictions.scored_rows));
    object.insert("score".into(), serde_json::to_value(&predictions.scores)?);
    match &args.out {
        Some(out) => drop(object.insert("out".into(), json!(out.display().to_string()))),
        None => object.extend(predictions.to_json()),
    }
    Ok(Value::Object(object))
}
