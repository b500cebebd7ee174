//! `thinfer reproduce figure`: a figure of the paper.

use std::path::{Path, PathBuf};

use thinfer::config::Config;
use thinfer::device::Device;
use thinfer::reproduce::{Figure, draw_figure, reproduce_figure};
use thinfer::run::{Control, Mode};

use crate::context::Context;
use crate::device::{Chosen, DeviceArgs};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;

/// ResNet-18 on CIFAR-10, as the paper shows it.
const CIFAR: [&str; 2] = [
    include_str!("../../../configs/cifar10-resnet18-cv-adam.toml"),
    include_str!("../../../configs/cifar10-resnet18-dfp-threshold.toml"),
];
/// A small network on generated images: minutes on two cores.
const SHAPES: &str = include_str!("../../../configs/shapes-figures.toml");

#[derive(clap::Args)]
#[command(after_help = "\
Without --config: ResNet-18 on CIFAR-10 where data/cifar10 and a GPU are there,
a small network on generated images otherwise.

Examples:
  thinfer reproduce figure1
  thinfer reproduce figure2 --run runs/dfp --run runs/dpf --out figures")]
pub(super) struct Args {
    /// The settings of the runs, as TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change a setting
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Draw this run and train none
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "set"])]
    run: Vec<PathBuf>,
    /// The folder of runs and figure [default: runs/figure1, runs/figure2]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Train again what is there; with --run, replace the figure
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(figure: Figure, args: &Args, context: &Context) -> anyhow::Result<()> {
    let out = args.out.clone().unwrap_or_else(|| Path::new("runs").join(figure.name()));
    let drawn = if args.run.is_empty() {
        let chosen = args.device.choose()?;
        chosen.tell(context);
        let config = args.config(figure, &chosen)?;
        let stop = interrupt::stop_flag(context)?;
        let progress = Progress::new(context, &chosen);
        let device_name = chosen.to_string();
        let control =
            Control { stop, observer: &progress, device: chosen.device, device_name: &device_name };
        let mode = if args.force { Mode::Force } else { Mode::Resume };
        let drawn = reproduce_figure(figure, &config, &out, mode, &control);
        progress.finish();
        drawn.map_err(|error| {
            interrupt::explain(error, || {
                let how = if args.force { " without --force" } else { "" };
                format!("interrupted after a checkpoint; the same command{how} goes on from there")
            })
        })?
    } else {
        for file in figure.files(&out) {
            output::check_free(&file, args.force)?;
        }
        draw_figure(figure, &args.run, &out, context)?
    };
    let shown = format!("{}\n{}", drawn.svg.display(), drawn.png.display());
    context.result(&serde_json::to_value(&drawn)?, || shown.clone())
}

impl Args {
    fn config(&self, figure: Figure, chosen: &Chosen) -> anyhow::Result<Config> {
        let large = Path::new("data/cifar10").exists() && matches!(chosen.device, Device::Cuda(_));
        Ok(match (&self.config, figure) {
            (Some(path), _) => Config::read(path, &self.set)?,
            (None, Figure::WeightPaths) if large => Config::parse(CIFAR[0], &self.set)?,
            (None, Figure::Pruning) if large => Config::parse(CIFAR[1], &self.set)?,
            _ => Config::parse(SHAPES, &self.set)?,
        })
    }
}
