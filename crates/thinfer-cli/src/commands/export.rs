use std::path::PathBuf;

use serde_json::json;
use thinfer::data::table::human_bytes;

use crate::context::Context;
use crate::{output, run_folder};

/// Export the posterior samples of a run, with masks and names
#[derive(clap::Args)]
#[command(after_help = "\
The file is read back and compared bit by bit.

Examples:
  thinfer export runs/example1
  thinfer export runs/example1 --format safetensors --out posterior.safetensors")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// The format of the file
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    format: Format,
    /// Where to write [default: RUN/posterior.safetensors]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    #[default]
    Safetensors,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
    }
    let (info, posterior) = run_folder::open_posterior(&args.run, context)?;
    let path = args.out.clone().unwrap_or_else(|| args.run.join("posterior.safetensors"));
    let exported = match args.format {
        Format::Safetensors => thinfer::export::safetensors(&info, &posterior, &path)?,
    };
    let shown = path.display().to_string();
    context.say(&format!(
        "{} samples, {} tensors, {}; read back and equal",
        exported.samples,
        exported.tensors,
        human_bytes(exported.bytes as u64)
    ));
    let json = json!({
        "run": args.run.display().to_string(),
        "file": shown,
        "samples": exported.samples,
        "tensors": exported.tensors,
        "bytes": exported.bytes,
    });
    context.result(&json, || shown.clone())
}
