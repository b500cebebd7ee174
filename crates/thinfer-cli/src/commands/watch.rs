//! `thinfer watch`: runs in a browser, while they train and after.

use std::path::PathBuf;

use serde_json::json;
use thinfer::watch::{Runs, Server};

use crate::context::Context;
use crate::interrupt;

/// Show runs in a browser, side by side and while they train
#[derive(clap::Args)]
#[command(after_help = "\
The page is for browsers of this machine; docs/watch.md says how to see that of
another one. It only reads. Ctrl-C ends it; the runs go on.

Examples:
  thinfer watch
  thinfer watch runs/sgd runs/dfp --port 8080")]
pub(crate) struct Args {
    /// Folders of runs, or folders that have runs in them
    #[arg(value_name = "RUN", default_value = "runs")]
    runs: Vec<PathBuf>,
    /// The port of the page; 0 takes one that is free
    #[arg(long, value_name = "PORT", default_value_t = 7070)]
    port: u16,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let runs = Runs::below(&args.runs)?;
    let count = runs.count();
    let server = Server::bind(runs, args.port)?;
    let stopper = server.stopper();
    interrupt::on_stop(move || stopper.stop())?;
    let (url, plural) = (server.url(), if count == 1 { "run" } else { "runs" });
    context.result(&json!({ "url": url, "runs": count }), || url.clone())?;
    context
        .say(&format!("{count} {plural} so far; open the address in a browser, Ctrl-C ends this"));
    server.serve();
    Ok(())
}
