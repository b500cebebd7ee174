//! What a shell completes.

use std::process::Command;

use super::workspace::Workspace;

/// What bash offers at the end of a line, where a bash is there.
fn offered(workspace: &Workspace, line: &str) -> Option<Vec<String>> {
    // Bash splits words at blanks and at =, which is a word of its own.
    let setting = r#"
        COMP_LINE="$0"; COMP_POINT=${#COMP_LINE}
        COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
        spaced="${COMP_LINE//=/ = }"
        read -ra COMP_WORDS <<< "$spaced"
        [[ "$COMP_LINE" == *[[:space:]=] ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        current="${COMP_WORDS[COMP_CWORD]}"
        _thinfer_settings thinfer "$current" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let program = format!("source ./script\n{setting}");
    let mut bash = Command::new("bash");
    bash.current_dir(workspace.path("")).args(["--norc", "-c", &program, line]);
    let output = bash.output().ok()?;
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn bash_completes_keys_and_their_values() {
    let workspace = Workspace::new();
    let script = workspace.succeeds(&["completions", "bash"]).stdout;
    std::fs::write(workspace.path("script"), script).unwrap();
    for (line, want) in [
        ("thinfer train a.toml --set prune.ru", &["prune.rule="][..]),
        ("thinfer train a.toml --set=prune.ru", &["prune.rule="]),
        ("thinfer train a.toml --set prune.rule=", &["mean-square", "range", "absolute-range"]),
        ("thinfer train a.toml --set data.kind=cifar1", &["cifar10", "cifar100"]),
        ("thinfer train a.toml --set=method.nesterov=t", &["true"]),
        ("thinfer train a.toml --set seed=2 --set preset=pa", &["paper"]),
        ("thinfer train a.toml --set seed=", &[]),
        // The rest is as ever.
        ("thinfer completions ba", &["bash"]),
        ("thinfer train a.toml --res", &["--resume"]),
    ] {
        let Some(offered) = offered(&workspace, line) else { return };
        assert_eq!(offered, want, "{line}");
    }
}

#[test]
fn zsh_and_fish_know_the_keys() {
    let workspace = Workspace::new();
    for shell in ["zsh", "fish"] {
        let script = workspace.succeeds(&["completions", shell]).stdout;
        assert!(
            script.contains(" prune.rule= ") && script.contains(" prune.rule=range "),
            "{shell}"
        );
    }
    let zsh = workspace.succeeds(&["completions", "zsh"]).stdout;
    assert!(zsh.contains(":KEY=VALUE:_thinfer_settings") && zsh.contains("_thinfer_settings() {"));
}
