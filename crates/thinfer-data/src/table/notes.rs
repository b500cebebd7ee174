//! What is told of columns: those that are not used, and those of which more is made.

use super::dates::Order;
use super::quoted;

/// A category has at most so many levels that are columns: more would outweigh all others.
pub(super) const MOST_LEVELS: usize = 50;

/// The columns that are not used, and why, and what else the user should know of columns. None of
/// it is an error.
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
    /// Columns of numbers that count or name the rows, and are not used.
    pub counters: Vec<String>,
    /// Columns that say almost exactly what the target is, and are used.
    pub copies: Vec<String>,
    /// Columns of dates, which way round they are, and a cell where that was left open.
    pub dates: Vec<(String, Order, Option<String>)>,
    /// Categories of which rare levels are one column: levels with a column each, and others.
    pub pooled: Vec<(String, usize, usize)>,
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
        say(
            &self.counters,
            "whole numbers that differ in every row, like an identifier (`--keep` uses them)",
        );
        for (column, levels) in &self.too_many_levels {
            let why = format!("text with {levels} levels, more than {MOST_LEVELS}");
            say(std::slice::from_ref(column), &why);
        }
        for (column, kept, others) in &self.pooled {
            lines.push(format!(
                "of {} levels of `{column}` the {kept} most frequent have a column each, the others share one",
                kept + others
            ));
        }
        let date = |(name, order, open): &(String, Order, Option<String>)| {
            let open = open.as_ref().map(|cell| format!(", though \"{cell}\" leaves it open"));
            format!("`{name}` ({}{})", order.words(), open.unwrap_or_default())
        };
        if !self.dates.is_empty() {
            let shown: Vec<String> = self.dates.iter().take(8).map(date).collect();
            lines.push(format!("read as dates: {}", shown.join(", ")));
        }
        if !self.copies.is_empty() {
            let shown = quoted(self.copies.iter().take(8).map(String::as_str));
            lines.push(format!(
                "almost the target itself: {shown}; where that is not known when you predict, leave it out with `--leave-out`, or the scores are too good"
            ));
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
