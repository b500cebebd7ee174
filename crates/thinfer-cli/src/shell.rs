//! Commands that messages tell to type.

/// The program with these words behind it, as a shell takes them.
pub(crate) fn command(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("thinfer {}", words.join(" "))
}

/// The word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("train.epochs=5"), "train.epochs=5");
        assert_eq!(quoted("model.hidden=[5, 3]"), "'model.hidden=[5, 3]'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        let words = ["eval", "my runs/a"].map(str::to_owned);
        assert_eq!(command(&words), "thinfer eval 'my runs/a'");
    }
}
