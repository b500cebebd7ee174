//! `thinfer train`: a run in a folder.

use std::path::{Path, PathBuf};

use serde_json::json;
use thinfer::config::Config;
use thinfer::finish::{Files, Keys, finish, to_json};
use thinfer::run::{self, Control, Mode};

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::progress::Progress;
use crate::{evaluated_run, interrupt, shell, summary};

/// Train and prune a network, from one configuration file
#[derive(clap::Args)]
#[command(after_help = "\
Ctrl-C stops after a checkpoint; --resume goes on to the same bits.

Examples:
  thinfer train configs/example1.toml
  thinfer train configs/example1.toml --set chains=4 --set seed=2 \\
      --out runs/four")]
pub(crate) struct Args {
    /// The settings, as TOML; docs/config.md lists them
    config: PathBuf,
    /// Change a setting, such as `train.epochs=500`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder of the run [default: runs/NAME for NAME.toml]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in the folder
    #[arg(long, conflicts_with = "force")]
    resume: bool,
    /// Replace the run in the folder
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let config = Config::read(&args.config, &args.set)?;
    config.notices().iter().for_each(|notice| context.notice(notice));
    let folder = args.folder();
    let mode = match (args.resume, args.force) {
        (true, _) => Mode::Resume,
        (_, true) => Mode::Force,
        _ => Mode::New,
    };
    if args.resume && !folder.join("run.json").exists() {
        context.notice(&format!("there is no run in {} yet, so it begins", folder.display()));
    }
    let chosen = args.device.choose()?;
    chosen.tell(context);
    let stop = interrupt::stop_flag(context)?;
    let progress = Progress::new(context, &chosen);
    let name = chosen.to_string();
    let control = Control { stop, observer: &progress, device: chosen.device, device_name: &name };
    let trained = run::train_and_hold(&config, &folder, mode, &control, 0);
    progress.finish();
    // Nobody may replace the run before its evaluation lies beside it.
    let (run, _until_the_end) = trained.map_err(|error| {
        interrupt::explain(error, || {
            format!("interrupted after a checkpoint; go on with `{}`", args.resuming(&folder))
        })
    })?;
    interrupt::end_at_once(format!(
        "interrupted after training; evaluate the run with `{}`",
        args.resuming(&folder)
    ));
    progress.say_scoring();
    let evaluated = run.evaluate(&[], chosen.device)?;
    let Files { evaluation, report } = finish(&run, &evaluated, &folder, Keys::Sorted)?;
    let files = json!({
        "evaluation": evaluation.display().to_string(),
        "report": report.display().to_string(),
    });
    let extra = [("seconds", json!(run.seconds)), ("files", files)];
    context.result(&summary::to_json(&folder, to_json(&evaluated)?, &extra), || {
        evaluated_run::to_text(&run, &evaluated, Some(run.seconds))
    })?;
    context.say(&format!("wrote {} and {}", evaluation.display(), report.display()));
    evaluated_run::check(&run, &evaluated)
}

impl Args {
    /// Where the run goes. The settings that a run keeps in its own folder resume that run.
    fn folder(&self) -> PathBuf {
        let beside = self.config.parent().filter(|parent| parent.join("run.json").exists());
        match (&self.out, beside) {
            (Some(out), _) => out.clone(),
            (None, Some(own)) if self.resume => Path::new(".").join(own),
            _ => Path::new("runs").join(self.config.file_stem().unwrap_or_default()),
        }
    }

    /// The command that goes on with the run.
    fn resuming(&self, folder: &Path) -> String {
        let mut words = vec!["train".to_owned(), self.config.to_string_lossy().into_owned()];
        words.extend(self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        words.extend(["--out".to_owned(), folder.to_string_lossy().into_owned()]);
        words.push("--resume".to_owned());
        shell::command(&words)
    }
}
