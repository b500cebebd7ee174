//! Numbers as people write them for people: with a sign of money, or with commas between thousands.

#[cfg(feature = "parquet")]
use super::infer::{Cell, classify};
use super::number_text;

const MONEY: [char; 5] = ['$', '€', '£', '¥', '₹'];

/// The number that a cell like `$247,632`, `-€1,200.50` or `1,234 €` stands for.
///
/// Nothing where the cell has neither a sign of money nor commas, and where it may mean something
/// else: a decimal comma (`0,5`, `1234,5`) and a percentage are left alone.
pub(super) fn dressed_number(cell: &str) -> Option<f64> {
    let negative = cell.starts_with('-');
    let rest = cell.strip_prefix(['-', '+']).unwrap_or(cell);
    let (rest, before) = without(rest, |text| text.strip_prefix(MONEY));
    let (rest, after) = without(rest, |text| text.strip_suffix(MONEY));
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let grouped = whole.contains(',');
    let sound = if grouped {
        let mut groups = whole.split(',');
        let first = groups.next().unwrap_or_default();
        let lead = digits(first) && first.len() <= 3 && !first.starts_with('0');
        lead && groups.all(|group| group.len() == 3 && digits(group))
    } else {
        digits(whole)
    };
    if !(sound && digits(fraction) && (grouped || before || after)) || (before && after) {
        return None;
    }
    let size: f64 = format!("{}.{fraction}", whole.replace(',', "")).parse().ok()?;
    size.is_finite().then_some(if negative { -size } else { size })
}

/// The text without what `strip` takes away, blanks trimmed, and whether it took something.
fn without<'a>(text: &'a str, strip: impl Fn(&'a str) -> Option<&'a str>) -> (&'a str, bool) {
    strip(text).map_or((text, false), |rest| (rest.trim(), true))
}

/// A column of text as numbers, with the first cell that is written otherwise, where all cells are
/// numbers and some are written so.
#[cfg(feature = "parquet")]
pub(super) fn as_numbers(cells: &[Option<String>]) -> Option<(Vec<f64>, String)> {
    let mut first = None;
    let mut number = |cell: &Option<String>| match cell {
        None => Some(f64::NAN),
        Some(text) => match classify(text.as_bytes()) {
            Cell::Number(value) => Some(value),
            _ => dressed_number(text).inspect(|_| {
                first.get_or_insert_with(|| text.clone());
            }),
        },
    };
    let values: Option<Vec<f64>> = cells.iter().map(&mut number).collect();
    values.zip(first)
}

/// What the user hears about such columns: their names, and a cell of each.
pub(super) fn note(columns: &[(String, String)]) -> Option<String> {
    let shown = |(name, cell): &(String, String)| {
        let value = dressed_number(cell).map(number_text).unwrap_or_default();
        format!("`{name}` (\"{cell}\" is {value})")
    };
    let shown: Vec<String> = columns.iter().map(shown).collect();
    (!shown.is_empty()).then(|| {
        format!(
            "read as numbers, without signs of money and commas between thousands: {}",
            shown.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_and_commas_between_thousands_are_numbers() {
        for (cell, value) in [
            ("$247,632", 247_632.0),
            ("$5", 5.0),
            ("$5.20", 5.2),
            ("-$1,200.50", -1200.5),
            ("€ 7", 7.0),
            ("7 €", 7.0),
            ("1,234", 1234.0),
            ("-1,234,567.25", -1_234_567.25),
            ("+£12", 12.0),
        ] {
            assert_eq!(dressed_number(cell), Some(value), "{cell}");
        }
        for cell in [
            "12",
            "-3.5",
            "0,5",
            "1,5",
            "1234,567",
            "0,123",
            "1,23,456",
            "12,3456",
            ",123",
            "1,",
            "$",
            "€",
            "$5 €",
            "5 %",
            "$1e3",
            "1.234,5",
            "1.2.3",
            "$a",
            "",
            "2024-01-05",
            "$-5-",
        ] {
            assert_eq!(dressed_number(cell), None, "{cell}");
        }
    }

    #[test]
    fn a_column_is_numbers_where_every_cell_is_one() {
        let cells = |all: &[&str]| -> Vec<Option<String>> {
            all.iter().map(|c| (!c.is_empty()).then(|| (*c).to_owned())).collect()
        };
        let (values, first) = as_numbers(&cells(&["999", "", "$1,000", "2e3"])).unwrap();
        assert_eq!((values[0], values[1].is_nan(), &values[2..]), (999.0, true, &[1e3, 2e3][..]));
        assert_eq!(first, "$1,000");
        assert!(as_numbers(&cells(&["999", "12"])).is_none(), "text, as the file says");
        assert!(as_numbers(&cells(&["$1", "red"])).is_none());
        assert!(as_numbers(&cells(&["1,234", "1,5"])).is_none(), "a decimal comma");
    }
}
