//! `thinfer report`: a run as one HTML file.

use std::path::PathBuf;

use serde_json::json;
use thinfer::run;
use thinfer::select::Selected;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::{output, run_folder};

/// Write a report of a run, also while it trains: one HTML file
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer report runs/example1
  thinfer report runs/example1 --out example1.html")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// Where to write [default: RUN/report.html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    args.out.as_deref().map_or(Ok(()), |out| output::check(out, args.force))?;
    let chosen = args.device.choose()?;
    // Asked first: a run that ends in the meantime has more than is said of it, and not less.
    let status = run::read_status(&args.run);
    let state = run::state(&args.run, status.as_ref());
    let run = run_folder::open_so_far(&args.run, state, context)?;
    if run.info.images().is_ok() {
        chosen.tell(context);
    }
    // The report in the run's own folder is renewed.
    let path = args.out.clone().unwrap_or_else(|| args.run.join("report.html"));
    output::check(&path, true)?;
    let report = if run.results.iter().all(|result| result.snapshots.is_empty()) {
        thinfer::report::of_run_without_samples(&run)?
    } else {
        let selection = Selected::read(&args.run)?;
        let evaluated = run.evaluate(&[], chosen.device)?;
        thinfer::report::of_run(&run, &evaluated, selection.as_ref())?
    };
    let report = thinfer::report::saying(report, state, status.as_ref());
    output::check_free(&path, args.force || args.out.is_none())?;
    thinfer::run::write_text(&path, &report)?;
    let shown = path.display().to_string();
    let json = json!({ "run": args.run.display().to_string(), "report": shown });
    context.result(&json, || shown.clone())
}
