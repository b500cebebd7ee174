//! What a terminal must not obey: names that users give to columns, classes and files go to it as
//! text, whatever is in them.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// Characters that a terminal obeys instead of showing them, and those that turn the direction of
/// what follows them.
fn is_obeyed(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}'
    );
    c.is_control() || turns
}

fn escaped(text: &str, keep: &[char]) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_obeyed(c) && !keep.contains(&c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Lines as they may be shown: all that a terminal would obey is written out, as in `\u{1b}`. Ends
/// of lines and tabs stay.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    const KEEP: [char; 2] = ['\n', '\t'];
    if text.chars().any(|c| is_obeyed(c) && !KEEP.contains(&c)) {
        Cow::Owned(escaped(text, &KEEP))
    } else {
        Cow::Borrowed(text)
    }
}

/// The same of a name within a line.
pub(crate) fn shown_name(name: &str) -> String {
    escaped(name, &[])
}

/// JSON as it may be shown, which is the same JSON: what its writer leaves in strings as it is,
/// such as the second set of control characters, is written by number.
pub(crate) fn shown_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_obeyed(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Writes data to stdout: as it is for another program, as it may be shown for a terminal.
pub(crate) fn write_data(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write_data_to(out, io::stdout().is_terminal(), write)
}

fn write_data_to(
    out: &mut dyn Write,
    terminal: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if !terminal {
        return write(out);
    }
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    out.write_all(shown(&String::from_utf8_lossy(&bytes)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let hostile = "a\u{1b}[31mred\u{1b}]0;title\u{7}\r\u{9b}2J\u{7f}\u{202e}z\n\tä";
        let text = shown(hostile);
        assert_eq!(text, "a\\u{1b}[31mred\\u{1b}]0;title\\u{7}\\r\\u{9b}2J\\u{7f}\\u{202e}z\n\tä");
        assert!(matches!(shown("plain ü\n"), Cow::Borrowed(_)));
        assert_eq!(shown_name("a\nb"), "a\\nb");
    }

    #[test]
    fn json_says_the_same() {
        let name = "\u{1b}[31m\u{9b}2J\u{7f}\u{202e}\n\"ü";
        let json = shown_json(&serde_json::json!({ name: name }).to_string());
        assert!(!json.chars().any(is_obeyed), "{json}");
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back[name], name);
    }

    #[test]
    fn data_is_changed_for_a_terminal_only() {
        let written = |terminal| {
            let mut out = Vec::new();
            write_data_to(&mut out, terminal, |to| to.write_all(b"\x1b[2J,1\n")).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(false), "\x1b[2J,1\n");
        assert_eq!(written(true), "\\u{1b}[2J,1\n");
    }
}
