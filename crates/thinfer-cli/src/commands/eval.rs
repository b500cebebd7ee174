use std::path::PathBuf;

use serde_json::json;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::worth::Worth;
use crate::{output, run_folder, summary};

/// Score a run on its test rows and show what it selected
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer eval runs/example1
  thinfer eval runs/example1 --json | jq .selected")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// Also write the evaluation there, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
    }
    let chosen = args.device.choose()?;
    let run = run_folder::open(&args.run, context)?;
    let worth = Worth::of(&run, &[], &chosen)?;
    let evaluation = worth.json()?;
    let mut extra = Vec::new();
    if let Some(out) = &args.out {
        thinfer::run::write_json(out, &evaluation)?;
        context.say(&format!("wrote {}", out.display()));
        extra.push(("out", json!(out.display().to_string())));
    }
    context.result(&summary::to_json(&args.run, evaluation, &extra), || worth.text(None))
}
