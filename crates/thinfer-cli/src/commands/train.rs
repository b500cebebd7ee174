//! `thinfer train`: a run in a folder.

use std::path::{Path, PathBuf};

use serde_json::json;
use thinfer::Error;
use thinfer::config::Config;
use thinfer::finish::{Files, Keys, finish, to_json};
use thinfer::run::{self, Control, Mode};

use crate::context::Context;
use crate::device::{Chosen, DeviceArgs};
use crate::progress::Progress;
use crate::source::{self, Asked, Source};
use crate::{evaluated_run, interrupt, shell, summary};

/// Train on a table, on a folder of images, or as a file says
#[derive(clap::Args)]
#[command(after_help = "\
Ctrl-C stops after a checkpoint; --resume goes on to the same bits.
Examples:
  thinfer train houses.csv --target price
  thinfer train configs/example1.toml --set chains=4 --out runs/four")]
pub(crate) struct Args {
    /// A table, a folder of images, or settings as TOML
    #[arg(value_name = "DATA|CONFIG")]
    source: PathBuf,
    /// The column of a table to predict
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// Time for the training of a table or of images
    #[arg(long, allow_negative_numbers = true, conflicts_with = "resume")]
    minutes: Option<f64>,
    /// Only say what would be done, and how long it takes
    #[arg(long, conflicts_with_all = ["resume", "force"])]
    dry_run: bool,
    /// Change a setting, such as `train.epochs=500`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder of the run [default: runs/NAME]
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
    let source = Source::of(&args.source)?;
    let folder = args.folder(source);
    if args.dry_run && source == Source::Settings {
        return Err(dry_run_of_settings().into());
    }
    let chosen = args.device.choose()?;
    let Some(config) = args.config(source, &folder, &chosen, context)? else { return Ok(()) };
    config.notices().iter().for_each(|notice| context.notice(notice));
    let mode = match (args.resume, args.force) {
        (true, _) => Mode::Resume,
        (_, true) => Mode::Force,
        _ => Mode::New,
    };
    if args.resume && !folder.join("run.json").exists() {
        context.notice(&format!("there is no run in {} yet, so it begins", folder.display()));
    }
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

/// Why settings are not tried.
fn dry_run_of_settings() -> Error {
    let problem = "is of a table or a folder of images, whose settings are chosen; a file of settings says what is done. Leave it out";
    Error::config("--dry-run", problem)
}

impl Args {
    /// The settings of the run; nothing where they were only asked for.
    fn config(
        &self,
        source: Source,
        folder: &Path,
        chosen: &Chosen,
        context: &Context,
    ) -> anyhow::Result<Option<Config>> {
        let asked = Asked {
            target: self.target.as_deref(),
            minutes: self.minutes,
            set: &self.set,
            device: chosen.device,
        };
        if source == Source::Settings {
            source::refuse_table_options(&asked)?;
            return Ok(Some(Config::read(&self.source, &self.set)?));
        }
        if source == Source::Images {
            source::refuse_target(asked.target, source::NO_COLUMNS)?;
        }
        if folder.join("run.json").exists() && !self.force && !self.dry_run {
            if self.resume {
                return Ok(Some(source::kept(folder, &self.source, &asked)?));
            }
            return Err(Error::RunExists(folder.to_owned()).into());
        }
        let proposal = source::propose(source, &self.source, &asked)?;
        if self.dry_run {
            context.result(&source::to_json(&proposal), || source::to_text(&proposal))?;
            return Ok(None);
        }
        context.say(source::to_text(&proposal).trim_end());
        proposal.notices.iter().for_each(|notice| context.notice(notice));
        Ok(Some(proposal.config))
    }

    /// Where the run goes. The settings that a run keeps in its own folder resume that run.
    fn folder(&self, source: Source) -> PathBuf {
        let beside = self.source.parent().filter(|parent| parent.join("run.json").exists());
        match (&self.out, beside) {
            (Some(out), _) => out.clone(),
            (None, Some(own)) if self.resume && source == Source::Settings => {
                Path::new(".").join(own)
            }
            _ => Path::new("runs").join(source::name_of(&self.source)),
        }
    }

    /// The command that goes on with the run.
    fn resuming(&self, folder: &Path) -> String {
        let mut words = vec!["train".to_owned(), self.source.to_string_lossy().into_owned()];
        if let Some(target) = &self.target {
            words.extend(["--target".to_owned(), target.clone()]);
        }
        words.extend(self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        words.extend(["--out".to_owned(), folder.to_string_lossy().into_owned()]);
        words.push("--resume".to_owned());
        shell::command(&words)
    }
}
