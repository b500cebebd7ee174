//! `thinfer data`: data sets that are got, made and looked at.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::json;
use thinfer::Error;
use thinfer::config::{Config, DataKind};
use thinfer::data::images::{Inspection, Published};

use crate::context::Context;
use crate::download::{Client, State, by_hand};
use crate::text_table::align;

/// Get a published image set, or check the images you have
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer data get cifar10
  thinfer data check data/cifar10
  thinfer data check ~/photos --kind images --json")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Get(GetArgs),
    Check(CheckArgs),
}

/// Download a published set: resumed where it stopped, and verified
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer data get fashion-mnist
  thinfer data get cifar100 --out /data/cifar100")]
struct GetArgs {
    /// The set
    #[arg(value_enum)]
    name: Set,
    /// The folder to put it into [default: data/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take the files from this address, not from the official one
    #[arg(long, value_name = "URL")]
    from: Option<String>,
}

/// Say what images are in a place, and whether they can be used
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer data check data/cifar10
  thinfer data check ~/photos --kind images --json | jq .unreadable")]
struct CheckArgs {
    /// The folder, archive or shard
    path: PathBuf,
    /// What it is [default: by the names of the files]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Set {
    Cifar10,
    Cifar100,
    Mnist,
    FashionMnist,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Cifar10,
    Cifar100,
    Mnist,
    FashionMnist,
    Images,
}

impl Set {
    fn kind(self) -> DataKind {
        match self {
            Set::Cifar10 => DataKind::Cifar10,
            Set::Cifar100 => DataKind::Cifar100,
            Set::Mnist => DataKind::Mnist,
            Set::FashionMnist => DataKind::FashionMnist,
        }
    }
}

impl Kind {
    fn kind(self) -> DataKind {
        match self {
            Kind::Cifar10 => DataKind::Cifar10,
            Kind::Cifar100 => DataKind::Cifar100,
            Kind::Mnist => DataKind::Mnist,
            Kind::FashionMnist => DataKind::FashionMnist,
            Kind::Images => DataKind::Images,
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    match &args.action {
        Action::Get(args) => get(args, context),
        Action::Check(args) => check(args, context),
    }
}

fn get(args: &GetArgs, context: &Context) -> anyhow::Result<()> {
    let kind = args.name.kind();
    let published = Published::of(kind).context("this set is not published")?;
    let default = PathBuf::from("data").join(kind.name());
    let folder = args.out.clone().unwrap_or_else(|| default.clone());
    let address = match &args.from {
        Some(address) if address.ends_with('/') => address.clone(),
        Some(address) => format!("{address}/"),
        None => published.address.to_owned(),
    };
    std::fs::create_dir_all(&folder).map_err(|e| Error::file("create", &folder, e))?;
    let client = Client::new(context);
    let mut files = Vec::new();
    for file in &published.files {
        let state = client.get(&address, file, &folder).map_err(|error| {
            // What is wrong with a file here is told as it is; for the rest there is a way round.
            if error.downcast_ref::<Error>().is_some() {
                return error;
            }
            let official = by_hand(published.address, &published.files, &folder);
            anyhow::anyhow!("{error:#}\n{official}")
        })?;
        context.say(&match state {
            State::Present => format!("{} is there already", file.name),
            State::Downloaded => format!("downloaded {}", file.name),
            State::Resumed => format!("downloaded the rest of {}", file.name),
        });
        files.push(json!({ "name": file.name, "md5": file.md5, "state": state.name() }));
    }
    let name = kind.name();
    let json = json!({ "kind": name, "folder": folder.display().to_string(), "files": files });
    context.result(&json, || {
        let place = if folder == default {
            String::new()
        } else {
            format!(" and data.path = \"{}\"", folder.display())
        };
        format!("{name} is in {}; train with data.kind = \"{name}\"{place}", folder.display())
    })
}

fn check(args: &CheckArgs, context: &Context) -> anyhow::Result<()> {
    let found = Inspection::of(&args.path, args.kind.map(Kind::kind))?;
    let allowed = Config::parse("", &[])?.data.skip_at_most;
    let problem = found.problem(allowed);
    let mut json = serde_json::to_value(&found)?;
    if let Some(object) = json.as_object_mut() {
        object.insert("path".into(), args.path.display().to_string().into());
        object.insert("usable".into(), problem.is_none().into());
    }
    context.result(&json, || to_text(&found, args))?;
    match problem {
        None => Ok(()),
        Some(problem) => Err(Error::Data(format!("{}: {problem}", args.path.display())).into()),
    }
}

/// Classes that are shown; `--json` has all.
const SHOWN: usize = 20;

fn to_text(found: &Inspection, args: &CheckArgs) -> String {
    let parts = match found.test {
        Some(test) => format!("{} training and {test} test images", found.train),
        None => format!("{} images, not divided", found.train),
    };
    let range = |(low, high): (usize, usize)| {
        if low == high { low.to_string() } else { format!("{low} to {high}") }
    };
    let mut text = format!(
        "{}: {}, {parts}, {} classes, {} x {} pixels\n\n",
        args.path.display(),
        found.kind.name(),
        found.classes.len(),
        range(found.width),
        range(found.height)
    );
    let divided = found.test.is_some();
    let head = if divided { &["class", "train", "test"][..] } else { &["class", "images"] };
    let mut rows = vec![head.iter().map(|&word| word.to_owned()).collect()];
    rows.extend(found.classes.iter().take(SHOWN).map(|class| {
        let mut row = vec![class.name.clone(), class.train.to_string()];
        row.extend(divided.then(|| class.test.to_string()));
        row
    }));
    text.push_str(&align(&rows));
    if found.classes.len() > SHOWN {
        text.push_str(&format!("and {} more\n", found.classes.len() - SHOWN));
    }
    for line in found.checksums.iter().chain(&found.notes) {
        text.push_str(&format!("{line}\n"));
    }
    if !found.unreadable.is_empty() {
        text.push_str(&format!("\ncannot be read: {}\n", found.unreadable.len()));
        for image in &found.unreadable {
            text.push_str(&format!("  {} {}\n", image.name, image.problem));
        }
    }
    text
}
