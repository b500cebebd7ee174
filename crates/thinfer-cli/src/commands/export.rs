//! `thinfer export`: samples of a run in other formats.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;
use thinfer::Error;
use thinfer::data::memory::human_bytes;
use thinfer::device::Device;
use thinfer::export::{self, ChainOptions, Exported, Format, Options, Samples};

use crate::context::Context;
use crate::{output, run_folder};

/// Take samples of a run elsewhere, at the size that pruning left
#[derive(clap::Args)]
#[command(after_help = "\
What is written is read again and compared; docs/export.md describes it.

Examples:
  thinfer export runs/example1 --format arviz
  thinfer export runs/cifar10 --format onnx --sample last --fold-norms")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// safetensors, onnx or arviz
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    format: FormatName,
    /// all, last, or a number from 0
    #[arg(long, value_name = "WHICH", default_value = "all", allow_negative_numbers = true)]
    sample: Samples,
    /// Make batch norms part of the layers before them
    #[arg(long)]
    fold_norms: bool,
    /// Keep the full size, with zeros where pruned
    #[arg(long)]
    dense: bool,
    /// arviz: the burn-in too, in groups of its own
    #[arg(long)]
    with_burn_in: bool,
    /// Where to write [default: RUN/posterior.FORMAT]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum FormatName {
    #[default]
    Safetensors,
    Onnx,
    Arviz,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let format = match args.format {
        FormatName::Safetensors => Format::Safetensors,
        FormatName::Onnx => Format::Onnx,
        FormatName::Arviz => return chains(args, context),
    };
    if args.with_burn_in {
        let problem = "is for --format arviz; leave it out";
        return Err(Error::config("--with-burn-in", problem).into());
    }
    let check = |path: &Path| -> thinfer::Result<()> {
        output::check(path, args.force)?;
        match format {
            Format::Safetensors => output::check(&export::description_path(path), args.force),
            Format::Onnx => Ok(()),
        }
    };
    // Before the run is opened, where that can be.
    args.out.as_deref().map_or(Ok(()), check)?;
    let (info, posterior) = run_folder::open_posterior(&args.run, context)?;
    let options = Options {
        samples: args.sample,
        fold_norms: args.fold_norms,
        dense: args.dense,
        new_only: !args.force,
    };
    let default = || export::default_path(&args.run, &posterior, args.sample, format);
    let path = args.out.clone().unwrap_or_else(default);
    check(&path)?;
    let exported = export::export(&info, &posterior, format, &options, &path)?;
    let chains: BTreeSet<u32> = posterior.members.iter().map(|member| member.chain).collect();
    context.say(&summary(&exported, chains.len()));
    exported.notices.iter().for_each(|notice| context.notice(notice));
    let shown = |path: &Path| path.display().to_string();
    let files: Vec<String> = exported.files.iter().map(|file| shown(file)).collect();
    let json = json!({
        "run": shown(&args.run),
        "file": files[0],
        "files": files,
        "samples": exported.samples,
        "parameters": exported.parameters.0,
        "parameters_before": exported.parameters.1,
        "bytes": exported.bytes,
        "difference": exported.difference,
        "notices": exported.notices,
    });
    context.result(&json, || files.join("\n"))
}

/// All samples of all chains, as a folder that ArviZ opens.
fn chains(args: &Args, context: &Context) -> anyhow::Result<()> {
    let refused = [
        ("--sample", args.sample != Samples::All),
        ("--fold-norms", args.fold_norms),
        ("--dense", args.dense),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, given)| *given) {
        let problem = "is for networks, and --format arviz writes all samples of all chains as they are; leave it out";
        return Err(Error::config(*name, problem).into());
    }
    let path = args.out.clone().unwrap_or_else(|| export::default_chains_path(&args.run));
    export::check_chains_place(&path, args.force)?;
    let run = run_folder::open(&args.run, context)?;
    let options = ChainOptions { with_burn_in: args.with_burn_in, replace: args.force };
    let exported = export::export_chains(&run, &options, Device::Cpu, &path)?;
    let burn_in = match exported.burn_in_draws {
        0 => String::new(),
        draws => format!(" and {draws} of burn-in"),
    };
    context.say(&format!(
        "{} chains of {} samples{burn_in}, {} parameters by name, {}",
        exported.chains,
        exported.draws,
        exported.variables,
        human_bytes(exported.bytes as u64)
    ));
    exported.notices.iter().for_each(|notice| context.notice(notice));
    let shown = exported.path.display().to_string();
    let json = json!({
        "run": args.run.display().to_string(),
        "file": shown,
        "files": [shown],
        "chains": exported.chains,
        "draws": exported.draws,
        "burn_in_draws": exported.burn_in_draws,
        "variables": exported.variables,
        "bytes": exported.bytes,
        "notices": exported.notices,
    });
    context.result(&json, || shown.clone())
}

fn summary(exported: &Exported, chains: usize) -> String {
    let (after, before) = exported.parameters;
    // Every chain has its own mask.
    let mean = if exported.samples > 1 && chains > 1 { " on average" } else { "" };
    let size = if after == before {
        format!("{after} parameters")
    } else {
        format!("{after} of {before} parameters{mean}")
    };
    let samples = match exported.samples {
        1 => "1 sample".to_owned(),
        several => format!("{several} samples"),
    };
    let agreement = if exported.difference == 0.0 {
        "equal to the run's".to_owned()
    } else {
        format!("within {:.0e} of the run's", exported.difference)
    };
    let bytes = human_bytes(exported.bytes as u64);
    format!("{samples} of {size}, {bytes}; read back, its answers are {agreement}")
}
