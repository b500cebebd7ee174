use serde_json::json;
use thinfer::Error;
use thinfer::config::keys::Key;
use thinfer::methods::registry::{self, Entry, METHODS};

use crate::context::Context;

/// List the training methods, their settings and pages
#[derive(clap::Args)]
#[command(after_help = "\
A run takes one with `method.kind`, in its file or with --set.

Examples:
  thinfer methods
  thinfer methods sm
  thinfer methods --json | jq -r '.methods[].kind'")]
pub(crate) struct Args {
    /// Say of this method alone what each setting means
    method: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let chosen = match &args.method {
        None => METHODS.to_vec(),
        Some(name) => vec![registry::find(name).ok_or_else(|| unknown(name))?],
    };
    let setting =
        |key: &Key| json!({ "key": key.name, "allowed": key.kind.allowed(), "about": key.about });
    let method = |entry: &Entry| {
        json!({
            "kind": entry.kind.name(),
            "about": entry.about,
            "page": entry.page,
            "settings": entry.keys().iter().map(setting).collect::<Vec<_>>(),
        })
    };
    let json = json!({ "methods": chosen.iter().map(method).collect::<Vec<_>>() });
    context.result(&json, || match &chosen[..] {
        [entry] if args.method.is_some() => in_full(entry),
        all => all.iter().map(in_short).collect::<Vec<_>>().join("\n"),
    })
}

fn unknown(name: &str) -> Error {
    let known: Vec<&str> = METHODS.iter().map(|entry| entry.kind.name()).collect();
    let problem = format!("is no method; known are {}", known.join(", "));
    Error::config(name, problem)
}

fn in_short(entry: &Entry) -> String {
    let names: Vec<&str> = entry.key_names().collect();
    let settings = folded(&names.join(", "), 76).join("\n    ");
    format!("{}: {}\n    {}\n    {settings}\n", entry.kind.name(), entry.about, entry.page)
}

fn in_full(entry: &Entry) -> String {
    let setting = |key: &Key| {
        let lines = [key.about.to_owned(), key.kind.allowed()];
        let lines = lines.iter().flat_map(|line| folded(line, 76)).collect::<Vec<_>>();
        format!("{}\n    {}\n", key.name, lines.join("\n    "))
    };
    let settings: String = entry.keys().iter().map(setting).collect();
    format!("{}: {}\n{}\n\n{settings}", entry.kind.name(), entry.about, entry.page)
}

/// The text in lines of at most `width` characters, broken at blanks.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
