//! What a cell of text is by itself.

use super::is_missing_text;

/// What a cell is by itself.
#[derive(Debug, PartialEq)]
pub(super) enum Cell {
    Number(f64),
    Infinite,
    Missing,
    Truth(bool),
    Text,
}

#[inline]
pub(super) fn classify(cell: &[u8]) -> Cell {
    let starts_like_a_number = matches!(cell.first(), Some(b'0'..=b'9' | b'.' | b'+' | b'-'));
    if starts_like_a_number
        && let Ok(text) = std::str::from_utf8(cell)
        && let Ok(value) = text.parse::<f64>()
    {
        return if value.is_finite() {
            Cell::Number(value)
        } else if value.is_nan() {
            Cell::Missing
        } else {
            Cell::Infinite
        };
    }
    if is_missing_text(cell) {
        Cell::Missing
    } else if cell.eq_ignore_ascii_case(b"inf") || cell.eq_ignore_ascii_case(b"infinity") {
        Cell::Infinite
    } else if cell.eq_ignore_ascii_case(b"true") || cell.eq_ignore_ascii_case(b"false") {
        Cell::Truth(cell.len() == 4)
    } else {
        Cell::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_what_they_look_like() {
        for (cell, class) in [
            ("-1.5e3", Cell::Number(-1500.0)),
            (".5", Cell::Number(0.5)),
            ("+7.", Cell::Number(7.0)),
            ("-nan", Cell::Missing),
            ("-inf", Cell::Infinite),
            ("Infinity", Cell::Infinite),
            ("1e999", Cell::Infinite),
            ("TRUE", Cell::Truth(true)),
            ("false", Cell::Truth(false)),
            ("1,5", Cell::Text),
            ("-", Cell::Text),
            ("2020-01-01", Cell::Text),
            ("0x10", Cell::Text),
        ] {
            assert_eq!(classify(cell.as_bytes()), class, "{cell}");
        }
        assert_eq!(classify(b"1\xff"), Cell::Text);
    }
}
