//! `thinfer init`: the settings that `train` would choose, as a file to change.

use std::path::{Path, PathBuf};

use serde_json::json;
use thinfer::Error;
use thinfer::config::keys;
use thinfer::run::write_text;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::source::{self, Asked, Source};
use crate::{output, shell};

/// The schema of settings beside them, for editors.
const SCHEMA: &str = "thinfer-schema.json";

/// Write the settings that `train` would choose, with comments
#[derive(clap::Args)]
#[command(after_help = "\
Editors that know TOML complete and check keys by the first line.

Examples:
  thinfer init houses.csv --target price
  thinfer init photos --minutes 10 --out photos-10.toml")]
pub(crate) struct Args {
    /// A table, or a folder of images
    #[arg(value_name = "DATA")]
    source: PathBuf,
    /// The column of a table to predict
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// Time for the training
    #[arg(long, allow_negative_numbers = true)]
    minutes: Option<f64>,
    /// Give a setting another value than would be chosen
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The file to write [default: NAME.toml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let source = Source::of(&args.source)?;
    if source == Source::Settings {
        let shown = args.source.display().to_string();
        let problem = format!("holds settings already; train with `thinfer train {shown}`");
        return Err(Error::config(shown, problem).into());
    }
    let named = || PathBuf::from(format!("{}.toml", source::name_of(&args.source).display()));
    let out = args.out.clone().unwrap_or_else(named);
    output::check(&out, args.force)?;
    let device = args.device.choose()?.device;
    let asked =
        Asked { target: args.target.as_deref(), minutes: args.minutes, set: &args.set, device };
    let proposal = source::propose(source, &args.source, &asked)?;
    proposal.notices.iter().for_each(|notice| context.notice(notice));
    let schema = write_schema(&out, args.force, context)?;
    output::check_free(&out, args.force)?;
    write_text(&out, &proposal.to_toml(&args.command(), &schema))?;
    let train = shell::command(&["train".into(), out.to_string_lossy().into_owned()]);
    let mut found = source::to_json(&proposal);
    found["file"] = json!(out.display().to_string());
    context.result(&found, || {
        format!("{}wrote {}; train with `{train}`\n", source::to_text(&proposal), out.display())
    })
}

/// Puts the schema beside the settings, unless another file has its name. Gives how the settings
/// name it.
fn write_schema(out: &Path, force: bool, context: &Context) -> anyhow::Result<String> {
    let path = out.with_file_name(SCHEMA);
    let text = serde_json::to_string_pretty(&keys::schema())? + "\n";
    match std::fs::read_to_string(&path) {
        Ok(there) if there == text => {}
        Ok(there) if !force && !there.contains("thinfer configuration") => context.notice(&format!(
            "{} is another file and stays; editors know no keys until it is moved, and `init` is called again",
            path.display()
        )),
        _ => write_text(&path, &text)?,
    }
    Ok(format!("./{SCHEMA}"))
}

impl Args {
    /// The command as it was typed, but for the file.
    fn command(&self) -> String {
        let mut words = vec!["init".to_owned(), self.source.to_string_lossy().into_owned()];
        if let Some(target) = &self.target {
            words.extend(["--target".to_owned(), target.clone()]);
        }
        if let Some(minutes) = self.minutes {
            words.extend(["--minutes".to_owned(), minutes.to_string()]);
        }
        words.extend(self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        shell::command(&words)
    }
}
