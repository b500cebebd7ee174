//! `thinfer eval`: the scores of a run.

mod folds;

use std::path::PathBuf;

use serde_json::json;
use thinfer::Error;
use thinfer::data::Images;
use thinfer::finish::to_json;
use thinfer::images::foreign_images;
use thinfer::run::RunInfo;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::{evaluated_run, output, run_folder, summary};

/// Score a run on its test rows or images
#[derive(clap::Args)]
#[command(after_help = "\
--ood takes cifar10, cifar100, mnist, fashion-mnist or shapes, SET:PATH where it
is not in data/SET, or a folder. Folds go to RUN/folds-K; done ones are kept.

Examples:
  thinfer eval runs/shapes --ood fashion-mnist
  thinfer eval runs/houses --folds 5")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// Also write the evaluation there, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    /// For images: how well these are told from the test images
    #[arg(long, value_name = "SET")]
    ood: Vec<String>,
    /// For tables: train once for each of K folds
    #[arg(long, value_name = "K", conflicts_with = "ood",
          value_parser = clap::value_parser!(u16).range(2..=1000))]
    folds: Option<u16>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check(out, args.force)?;
    }
    if let Some(folds) = args.folds {
        return folds::run(args, usize::from(folds), context);
    }
    let chosen = args.device.choose()?;
    let run = run_folder::open(&args.run, context)?;
    if run.info.images().is_ok() {
        chosen.tell(context);
    }
    let foreign = args.foreign(&run.info, context)?;
    let evaluated = run.evaluate(&foreign, chosen.device)?;
    let evaluation = to_json(&evaluated)?;
    let mut extra = Vec::new();
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
        thinfer::run::write_json(out, &evaluation)?;
        context.say(&format!("wrote {}", out.display()));
        extra.push(("out", json!(out.display().to_string())));
    }
    context.result(&summary::to_json(&args.run, evaluation, &extra), || {
        evaluated_run::to_text(&run, &evaluated, None)
    })?;
    evaluated_run::check(&run, &evaluated)
}

impl Args {
    /// The other images that were asked for, by name.
    fn foreign(&self, info: &RunInfo, context: &Context) -> anyhow::Result<Vec<(String, Images)>> {
        let mut all = Vec::new();
        if !self.ood.is_empty() && info.images().is_err() {
            let problem = "compares images, but the run was trained on a table; leave it out";
            return Err(Error::config("--ood", problem).into());
        }
        for text in &self.ood {
            let found = foreign_images(text, &info.config, info.images()?.shape)?;
            found.notes.iter().for_each(|note| context.notice(note));
            all.push((found.name, found.images));
        }
        Ok(all)
    }
}
