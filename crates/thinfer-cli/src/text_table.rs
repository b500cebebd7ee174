//! Small tables of text: the first column to the left, the others to the right.

use crate::terminal::shown_name;

/// The rows with their cells in line, two blanks between columns.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| shown_name(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cell = |(at, cell): (usize, &String)| {
            let blanks = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            if at == 0 { format!("{cell}{blanks}") } else { format!("{blanks}{cell}") }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A number with four significant digits; very large and very small ones with an exponent.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e6).contains(&size) {
        return format!("{value:.3e}");
    }
    // Rounded first: 0.99999 is 1.000 and has a digit before the point.
    let rounded = (1e3 * size / 10f64.powf(size.log10().floor())).round() / 1e3;
    let before = size.log10().floor() as i32 + if rounded >= 10.0 { 2 } else { 1 };
    format!("{value:.*}", (4 - before).clamp(0, 7) as usize)
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Seconds in words that are easy to read.
pub(crate) fn seconds(value: f64) -> String {
    let whole = value.round() as u64;
    match whole {
        0..60 => format!("{value:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_in_line() {
        let rows = [["", "MSE", "NLL"], ["posterior", "1.03", "1.4"], ["ü", "12", ""]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|c| (*c).to_owned()).collect()).collect();
        assert_eq!(align(&rows), "            MSE  NLL\nposterior  1.03  1.4\nü            12\n");
    }

    #[test]
    fn numbers_have_four_digits() {
        let shown = [0.0, 1.03123, 0.012345, 123.456, 98765.4, -2.5, 1e9, 1e-9].map(number);
        assert_eq!(
            shown,
            ["0", "1.031", "0.01235", "123.5", "98765", "-2.500", "1.000e9", "1.000e-9"]
        );
        assert_eq!([0.999_99, 9.9999, 99.994].map(number), ["1.000", "10.00", "99.99"]);
        assert_eq!(number(f64::NAN), "NaN");
    }

    #[test]
    fn times_are_in_words() {
        assert_eq!(
            [0.04, 59.4, 61.0, 3720.0].map(seconds),
            ["0.0 s", "59.4 s", "1 min 1 s", "1 h 2 min"]
        );
    }
}
