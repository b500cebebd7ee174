//! Chosen settings as TOML, with the sentence of each key above it.

use thinfer_run::config::keys;

use super::{Choice, Proposal};

/// Columns of a comment.
const WIDTH: usize = 98;

/// The chosen settings with comments.
pub(super) fn to_toml(proposal: &Proposal, command: &str, schema: &str) -> String {
    let mut text = format!("#:schema {schema}\n");
    comment(
        &mut text,
        &format!(
            "Made by `{command}`. Change what you like; every other key has its default (docs/config.md)."
        ),
    );
    proposal.lines.iter().for_each(|line| comment(&mut text, line));
    sections(&mut text, &proposal.choices, true);
    text
}

/// The same without comments.
pub(super) fn plain(choices: &[Choice]) -> String {
    let mut text = String::new();
    sections(&mut text, choices, false);
    text
}

fn sections(text: &mut String, choices: &[Choice], comments: bool) {
    let section = |choice: &Choice| choice.key.rsplit_once('.').map_or("", |(table, _)| table);
    let mut names: Vec<&str> = choices.iter().map(section).collect();
    // Keys without a table come before the first one.
    names.sort_by_key(|name| !name.is_empty());
    let mut done: Vec<&str> = Vec::new();
    for name in names {
        if done.contains(&name) {
            continue;
        }
        done.push(name);
        if !text.is_empty() {
            text.push('\n');
        }
        if !name.is_empty() {
            text.push_str(&format!("[{name}]\n"));
        }
        for choice in choices.iter().filter(|choice| section(choice) == name) {
            if comments {
                let about = keys::find(choice.key).map(|key| key.about()).unwrap_or_default();
                comment(text, &about);
                if !choice.why.is_empty() {
                    comment(text, &format!("Here: {}", choice.why));
                }
            }
            let key = choice.key.rsplit('.').next().unwrap_or(choice.key);
            text.push_str(&format!("{key} = {}\n", choice.value));
        }
    }
}

/// Adds lines of a comment.
fn comment(text: &mut String, sentence: &str) {
    let mut line = String::from("#");
    for word in sentence.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line != "#" {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
