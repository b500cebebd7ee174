//! `thinfer completions`: the completions of a shell, with the keys that `--set` takes.

use clap_complete::Shell;
use serde_json::json;
use thinfer::config::keys::{Kind, keys};

use super::program;
use crate::context::Context;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer completions bash > ~/.local/share/bash-completion/completions/thinfer
  thinfer completions zsh > ~/.zfunc/_thinfer")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let mut program = program();
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "thinfer", &mut script);
    let script = with_settings(args.shell, String::from_utf8(script)?);
    let json = json!({ "shell": args.shell.to_string(), "script": script });
    context.result(&json, || script.clone())
}

/// The script with the keys of a configuration behind `--set`, and the values of those that are a
/// choice. The generator knows nothing of them; PowerShell and Elvish complete options alone.
fn with_settings(shell: Shell, script: String) -> String {
    let names: Vec<String> = keys().map(|key| format!("{}=", key.name)).collect();
    let names = names.join(" ");
    let choices: Vec<String> = keys()
        .flat_map(|key| values(key.kind).iter().map(move |value| format!("{}={value}", key.name)))
        // A shell would want others in quotes.
        .filter(|choice| choice.chars().all(|c| c.is_ascii_alphanumeric() || "._-/=".contains(c)))
        .collect();
    let choices = choices.join(" ");
    let filled = |text: &str| text.replace("NAMES", &names).replace("CHOICES", &choices);
    match shell {
        Shell::Bash => script + &filled(BASH),
        Shell::Fish => script + &filled(FISH),
        Shell::Zsh => {
            let script = script.replace(":KEY=VALUE:_default", ":KEY=VALUE:_thinfer_settings");
            // The script ends by calling what it defines.
            match script.rfind("if [ \"$funcstack[1]\"") {
                Some(end) => format!("{}{}{}", &script[..end], filled(ZSH), &script[end..]),
                None => script,
            }
        }
        _ => script,
    }
}

fn values(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Choice(list) | Kind::NumberOr(list) => list,
        Kind::Switch => &["true", "false"],
        _ => &[],
    }
}

/// Bash takes `KEY=VALUE` for three words, so this looks at the line itself.
const BASH: &str = r#"
_thinfer_settings() {
    local line word before
    line="${COMP_LINE:0:COMP_POINT}"
    word="${line##*[[:space:]]}"
    before="${line%"$word"}"
    before="${before%"${before##*[![:space:]]}"}"
    before="${before##*[[:space:]]}"
    if [[ "$word" == --set=* ]]; then
        word="${word#--set=}"
    elif [[ "$before" != --set ]]; then
        _thinfer "$@"
        return
    fi
    if [[ "$word" == *=* ]]; then
        COMPREPLY=( $(compgen -W "CHOICES" -- "$word") )
        # Where = splits words, only what follows it is replaced.
        if [[ "$COMP_WORDBREAKS" == *=* ]]; then
            COMPREPLY=( "${COMPREPLY[@]#*=}" )
        fi
    else
        COMPREPLY=( $(compgen -W "NAMES" -- "$word") )
        compopt -o nospace 2> /dev/null
    fi
}

complete -F _thinfer_settings -o nosort -o bashdefault -o default thinfer 2> /dev/null ||
    complete -F _thinfer_settings -o bashdefault -o default thinfer
"#;

const ZSH: &str = r#"_thinfer_settings() {
    local -a names choices
    names=(NAMES)
    choices=(CHOICES)
    if [[ "$PREFIX" == *=* ]]; then
        compadd -a choices
    else
        compadd -S '' -a names
    fi
}

"#;

/// Fish adds no space behind `=`.
const FISH: &str = r#"
complete -c thinfer -n "__fish_seen_subcommand_from train reproduce" -l set -x -a "NAMES CHOICES"
"#;
