//! `thinfer man`: the manual, a page for each command.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap_mangen::Man;
use serde_json::json;

use super::program;
use crate::context::Context;
use crate::output;

/// Write manual pages, one for each command
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer man ~/.local/share/man/man1
  man thinfer-train")]
pub(crate) struct Args {
    /// The folder to write them into
    dir: PathBuf,
    /// Replace pages that are there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let mut pages = Vec::new();
    let mut program = program().disable_help_subcommand(true);
    // Gives every command the name that its page has.
    program.build();
    collect(&program, &mut pages)?;
    fs::create_dir_all(&args.dir)
        .with_context(|| format!("{} cannot be made; choose another folder", args.dir.display()))?;
    let place = |name: &str| args.dir.join(format!("{name}.1"));
    for (name, _) in &pages {
        output::check(&place(name), args.force)?;
    }
    for (name, text) in &pages {
        thinfer::run::write_text(&place(name), text)?;
    }
    let (count, dir) = (pages.len(), args.dir.display().to_string());
    let names: Vec<&str> = pages.iter().map(|(name, _)| &name[..]).collect();
    context.result(&json!({ "folder": dir, "pages": names }), || {
        format!("wrote {count} pages into {dir}")
    })
}

/// The pages of a command and of those below it, by their names.
fn collect(command: &clap::Command, pages: &mut Vec<(String, String)>) -> anyhow::Result<()> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push((name.to_owned(), String::from_utf8(text)?));
    let mut below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.try_for_each(|command| collect(command, pages))
}
