//! What is told of columns that are not used.

use super::quoted;

/// A category with more levels than this is dropped: its columns would outweigh all others.
pub(super) const MOST_LEVELS: usize = 50;

/// The columns that are not used, and why. None of them is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Columns with the same value in every training row.
    pub constant: Vec<String>,
    /// Columns without a value in any training row.
    pub empty: Vec<String>,
    /// Text columns with a different value in every training row.
    pub identifiers: Vec<String>,
    /// Text columns with too many levels, and how many.
    pub too_many_levels: Vec<(String, usize)>,
}

impl Notes {
    /// Whether every column is used.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One sentence a reason, for the user.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |columns: &[String], why: &str| {
            if !columns.is_empty() {
                let shown = quoted(columns.iter().take(8).map(String::as_str));
                let more = match columns.len().saturating_sub(8) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                lines.push(format!("not used, {why}: {shown}{more}"));
            }
        };
        say(&self.constant, "the same value in every training row");
        say(&self.empty, "no values");
        say(&self.identifiers, "text that is different in every row, like an identifier");
        for (column, levels) in &self.too_many_levels {
            let why = format!("text with {levels} levels, more than {MOST_LEVELS}");
            say(std::slice::from_ref(column), &why);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        assert!(Notes::default().is_empty());
        let constant = (0..10).map(|i| format!("x{i}")).collect();
        let notes = Notes { constant, ..Notes::default() };
        assert!(!notes.is_empty());
        assert_eq!(
            notes.lines(),
            [
                "not used, the same value in every training row: `x0`, `x1`, `x2`, `x3`, `x4`, `x5`, \
              `x6`, `x7` and 2 more"
            ]
        );
    }
}
