//! Predictions of pictures.

use std::path::Path;

use serde_json::json;
use thinfer::Error;
use thinfer::device::OnCuda;
use thinfer::images::predict_images;
use thinfer::posterior::Posterior;
use thinfer::run::RunInfo;

use super::Args;
use crate::context::{Context, data_to_stdout};
use crate::output;

pub(super) fn run(
    args: &Args,
    info: &RunInfo,
    posterior: &Posterior,
    context: &Context,
) -> anyhow::Result<()> {
    let ending = args.out.as_deref().and_then(Path::extension);
    if let Some(ending) = ending.filter(|e| ["parquet", "pq", "tsv"].iter().any(|other| e == other))
    {
        let problem = format!(
            "is a .{} file, but predictions of pictures are written as CSV; give the name of a .csv file",
            ending.display()
        );
        return Err(Error::config("--out", problem).into());
    }
    let chosen = args.device.choose()?;
    chosen.tell(context);
    let on = OnCuda::open(chosen.device, info.config.train.precision.into())?;
    let found = predict_images(info, posterior, &args.input, on.as_ref())?;
    found.notes.iter().for_each(|note| context.notice(note));
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
        found.write(out, args.all)?;
        context.say(&format!("wrote {} pictures to {}", found.pictures.len(), out.display()));
    }
    match (context.json(), &args.out) {
        (true, out) => {
            let mut object = found.to_json(args.all);
            object["run"] = json!(args.run.display().to_string());
            if let Some(out) = out {
                object["out"] = json!(out.display().to_string());
            }
            context.result(&object, String::new)
        }
        (false, None) => data_to_stdout(|to| found.write_csv(to, args.all)),
        (false, Some(_)) => Ok(()),
    }
}
