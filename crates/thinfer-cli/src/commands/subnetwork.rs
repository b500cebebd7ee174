//! `thinfer subnetwork`: the samples of a run with most weights shared.

use std::path::PathBuf;

use serde_json::json;
use thinfer::evaluate::Scores;
use thinfer::subnetwork::{Row, Study, study};
use thinfer::{Error, Result};

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::text_table::{align, number, percent};
use crate::{output, run_folder};

/// Let the samples of a run share most weights: size and scores
#[derive(clap::Args)]
#[command(after_help = "\
Sizes are at what pruning left, against full snapshots of that size.

Examples:
  thinfer subnetwork runs/shapes --shares 0.02,0.2
  thinfer subnetwork runs/shapes --out shared.safetensors --share 0.1")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// Shares of the live weights that samples keep apart
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.01,0.03,0.1,0.3,1")]
    #[arg(allow_negative_numbers = true)]
    shares: Vec<f64>,
    /// The chain whose samples are taken [default: the first]
    #[arg(long, value_name = "N")]
    chain: Option<u32>,
    /// Also write the samples there, with --share
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The share in FILE
    #[arg(long, default_value_t = 0.1, requires = "out", allow_negative_numbers = true)]
    share: f64,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check(out, args.force)?;
    }
    args.shares.iter().try_for_each(|share| check("--shares", *share))?;
    check("--share", args.share)?;
    let chosen = args.device.choose()?;
    let run = run_folder::open(&args.run, context)?;
    if run.info.images().is_ok() {
        chosen.tell(context);
    }
    let (samples, study) = study(&run, args.chain, &args.shares, chosen.device)?;
    let chains = run.info.config.chains;
    if chains > 1 && args.chain.is_none() {
        context.notice(&format!(
            "samples share weights inside a chain; these are of chain {}, the first of {chains}. Take another one with --chain",
            study.chain
        ));
    }
    if study.samples == 1 {
        context.notice("there is a single sample with the final mask, so nothing can be shared; stop pruning earlier with `prune.freeze_after_cycles` to have more");
    }
    let mut json = serde_json::to_value(&study)?;
    json["run"] = json!(args.run.display().to_string());
    if let Some(out) = &args.out {
        let shared = samples.sharing(args.share)?;
        output::check_free(out, args.force)?;
        let bytes = shared.write(out)?;
        let shown = out.display().to_string();
        context.say(&format!("wrote {shown}, {bytes} bytes; read back and equal"));
        json["out"] = json!({ "file": shown, "share": args.share, "bytes": bytes });
    }
    context.result(&json, || to_text(&study))
}

fn check(option: &str, share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(Error::config(option, format!("is {share}; a share lies between 0 and 1, such as 0.1")))
}

fn to_text(study: &Study) -> String {
    let columns = scores_of(&study.full.scores);
    let head = ["", "own values", "bytes", "of full", "from full"].into_iter();
    let head = head.chain(columns.iter().map(|(name, _)| *name)).map(str::to_owned);
    let mut rows: Vec<Vec<String>> = vec![head.collect()];
    let line = |name: String, row: &Row| {
        let bytes = [row.bytes.to_string(), percent(row.of_full)];
        let size = [row.differing.to_string()].into_iter().chain(bytes);
        let size = size.chain([number(row.from_full)]);
        let scores = scores_of(&row.scores).into_iter().map(|(_, value)| value);
        [name].into_iter().chain(size).chain(scores).collect::<Vec<_>>()
    };
    rows.push(line(format!("full ({} samples)", study.samples), &study.full));
    for row in &study.shares {
        rows.push(line(format!("share {}", row.share), row));
    }
    rows.push(line("last sample alone".into(), &study.last));
    format!(
        "{}{} numbers a sample after pruning ({} of the whole network), {} of them live, {} not the same in all samples\n",
        align(&rows),
        study.numbers,
        study.whole_numbers,
        study.live,
        study.varying
    )
}

/// The scores that there are, by name.
fn scores_of(scores: &Scores) -> Vec<(&'static str, String)> {
    let shown = |name, value: Option<f64>, show: fn(f64) -> String| Some((name, show(value?)));
    [
        shown("MSE", scores.mse, number),
        shown("accuracy", scores.accuracy, |share| format!("{:.2} %", 100.0 * share)),
        shown("NLL", scores.nll, number),
        shown("ECE", scores.ece, number),
        shown("90 % coverage", scores.coverage90, percent),
    ]
    .into_iter()
    .flatten()
    .collect()
}
