//! `thinfer methods`: the methods and their keys.

use serde_json::json;
use thinfer::Error;
use thinfer::config::keys::Key;
use thinfer::registry::{self, Entry, METHODS};
use thinfer::selectors::registry as selectors;
use thinfer::selectors::registry::{SELECTORS, Setting};

use crate::context::Context;

/// List the training methods and selectors, their settings and pages
#[derive(clap::Args)]
#[command(after_help = "\
A run takes a training method with `method.kind`, in its file or with --set.
Selectors find the columns of a table that matter: they are rows of
`thinfer reproduce table4`, and `thinfer select --compare` takes them.

Examples:
  thinfer methods
  thinfer methods sm
  thinfer methods splbnn
  thinfer methods --json | jq -r '.methods[].kind'")]
pub(crate) struct Args {
    /// Say of this method alone what each setting means
    method: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let (methods, others) = match &args.method {
        None => (METHODS.to_vec(), SELECTORS.to_vec()),
        Some(name) => match (registry::find(name), selectors::find(name)) {
            (Some(method), _) => (vec![method], vec![]),
            (None, Some(selector)) => (vec![], vec![selector]),
            (None, None) => return Err(unknown(name).into()),
        },
    };
    let setting =
        |key: &Key| json!({ "key": key.name, "allowed": key.kind.allowed(), "about": key.about() });
    let method = |entry: &Entry| {
        json!({
            "kind": entry.kind.name(),
            "about": entry.about,
            "page": entry.page,
            "settings": entry.keys().iter().map(setting).collect::<Vec<_>>(),
        })
    };
    let own = |s: &Setting| json!({ "key": s.key, "default": s.default, "about": s.about });
    let selector = |entry: &selectors::Entry| {
        json!({
            "name": entry.name,
            "about": entry.about,
            "page": entry.page,
            "settings": entry.settings().iter().map(own).collect::<Vec<_>>(),
        })
    };
    let json = json!({
        "methods": methods.iter().map(method).collect::<Vec<_>>(),
        "selectors": others.iter().map(selector).collect::<Vec<_>>(),
    });
    context.result(&json, || match (&args.method, &methods[..], &others[..]) {
        (Some(_), [method], _) => in_full(method),
        (Some(_), _, [selector]) => selector_in_full(selector),
        _ => {
            let methods: Vec<String> = methods.iter().map(in_short).collect();
            let others: Vec<String> = others.iter().map(selector_in_short).collect();
            format!(
                "Training methods, `method.kind` of a run\n\n{}\nSelectors of variables, `thinfer reproduce table4 --rows`\n\n{}",
                methods.join("\n"),
                others.join("\n")
            )
        }
    })
}

fn unknown(name: &str) -> Error {
    let known = METHODS.iter().map(|entry| entry.kind.name());
    let known: Vec<&str> = known.chain(SELECTORS.iter().map(|entry| entry.name)).collect();
    let problem = format!("is no method; known are {}", known.join(", "));
    Error::config(name, problem)
}

fn in_short(entry: &Entry) -> String {
    let names: Vec<&str> = entry.key_names().collect();
    short(entry.kind.name(), entry.about, entry.page, &names.join(", "))
}

fn selector_in_short(entry: &selectors::Entry) -> String {
    let settings = entry.settings();
    let names: Vec<&str> = settings.iter().map(|setting| setting.key.as_str()).collect();
    short(entry.name, entry.about, entry.page, &names.join(", "))
}

fn short(name: &str, about: &str, page: &str, settings: &str) -> String {
    let settings = folded(settings, 76).join("\n    ");
    format!("{name}: {about}\n    {page}\n    {settings}\n")
}

fn in_full(entry: &Entry) -> String {
    let setting = |key: &Key| {
        let lines = [key.about(), key.kind.allowed()];
        let lines = lines.iter().flat_map(|line| folded(line, 76)).collect::<Vec<_>>();
        format!("{}\n    {}\n", key.name, lines.join("\n    "))
    };
    let settings: String = entry.keys().iter().map(setting).collect();
    format!("{}: {}\n{}\n\n{settings}", entry.kind.name(), entry.about, entry.page)
}

fn selector_in_full(entry: &selectors::Entry) -> String {
    let setting = |s: &Setting| format!("{}\n    {}\n    default: {}\n", s.key, s.about, s.default);
    let settings: String = entry.settings().iter().map(setting).collect();
    format!(
        "{}: {}\n{}\n\nDefaults of Example 1; the page has those of the other examples.\n\n{settings}",
        entry.name, entry.about, entry.page
    )
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
