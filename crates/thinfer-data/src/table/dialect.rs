//! Numbers as people write them for people: `$1,234.50`, `1.234,5 €`, `1 234,5`, `1'234`, `5 %`.
//!
//! What a comma means is decided over a whole column, and where the column leaves it open over the
//! table: `1,234` is a thousand unless other cells show that commas stand before decimals.

use super::cell::{Cell, classify};
use super::number_text;

/// What stands between a number and its decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decimal {
    Point,
    Comma,
}

/// Signs and codes of money, the longer ones first.
const MONEY: [&str; 42] = [
    "US$", "CA$", "AU$", "NZ$", "HK$", "R$", "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "₴", "₪", "฿",
    "zł", "Kč", "kr", "Fr.", "USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "SEK", "NOK", "DKK",
    "PLN", "CZK", "HUF", "AUD", "CAD", "NZD", "BRL", "MXN", "ZAR", "TRY", "RUB",
];

/// Cells that say in a column of numbers or dates that nothing is known. In a column of text they
/// are levels like any other.
const DASHES: [&str; 14] =
    ["-", "--", "---", "–", "—", ".", "..", "...", "*", "#N/A", "#NA", "<NA>", "n.a.", "NaT"];

/// Whether a cell says that nothing is known, where the others are numbers or dates.
pub(super) fn is_dash(cell: &str) -> bool {
    DASHES.iter().any(|dash| dash.eq_ignore_ascii_case(cell))
}

/// What a cell is with either meaning of a comma.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Read<'a> {
    value: f64,
    /// The sign of money, or `%`, or nothing.
    unit: &'a str,
}

/// The number that a cell stands for, by what stands before its decimals.
fn read(cell: &str, decimal: Decimal) -> Option<Read<'_>> {
    let (rest, in_brackets) = match cell.strip_prefix('(').and_then(|c| c.strip_suffix(')')) {
        Some(inner) => (inner.trim(), true),
        None => (cell, false),
    };
    let (mut rest, mut negative) = signed(rest);
    let mut unit = "";
    if let Some(money) = MONEY.iter().find(|money| rest.starts_with(**money)) {
        unit = &rest[..money.len()];
        rest = rest[money.len()..].trim_start();
        if negative.is_none() {
            (rest, negative) = signed(rest);
        }
    } else if let Some(sign) = MONEY.iter().chain(&["%"]).find(|sign| rest.ends_with(**sign)) {
        let at = rest.len() - sign.len();
        unit = &rest[at..];
        rest = rest[..at].trim_end();
    }
    if in_brackets && negative.is_some() {
        return None;
    }
    let size = size(rest, decimal)?;
    let is_negative = in_brackets || negative == Some(true);
    size.is_finite().then_some(Read { value: if is_negative { -size } else { size }, unit })
}

/// What stands behind a sign, and whether it is a minus.
fn signed(text: &str) -> (&str, Option<bool>) {
    let minus = text.strip_prefix(['-', '\u{2212}']).map(|rest| (rest, Some(true)));
    let plus = || text.strip_prefix('+').map(|rest| (rest, Some(false)));
    minus.or_else(plus).map_or((text, None), |(rest, sign)| (rest.trim_start(), sign))
}

/// A number without a sign.
fn size(text: &str, decimal: Decimal) -> Option<f64> {
    let (point, comma) = match decimal {
        Decimal::Point => ('.', ','),
        Decimal::Comma => (',', '.'),
    };
    let (whole, fraction) = match text.split_once(point) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let between = whole.chars().find(|c| !c.is_ascii_digit());
    let whole = match between {
        None => whole.to_owned(),
        Some(c) if c == comma || is_between_thousands(c) => {
            let mut groups = whole.split(c);
            let first = groups.next().unwrap_or_default();
            let lead = digits(first) && first.len() <= 3 && !first.starts_with('0');
            if !lead || !groups.all(|group| group.len() == 3 && digits(group)) {
                return None;
            }
            whole.chars().filter(char::is_ascii_digit).collect()
        }
        Some('e' | 'E') if fraction.is_none() => return plain(text),
        Some(_) => return None,
    };
    match fraction {
        None if digits(&whole) => whole.parse().ok(),
        // Neither is there in a lone point.
        Some("") if whole.is_empty() => None,
        Some(fraction) if between.is_none() => plain(&format!("{whole}.{fraction}")),
        Some(fraction) if digits(fraction) => format!("{whole}.{fraction}").parse().ok(),
        _ => None,
    }
}

/// A number as programs write it, without a sign.
fn plain(text: &str) -> Option<f64> {
    let like = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (begins && text.bytes().all(like)).then(|| text.parse().ok()).flatten()
}

/// Spaces and apostrophes, as they stand between thousands.
fn is_between_thousands(c: char) -> bool {
    matches!(c, ' ' | '\u{a0}' | '\u{202f}' | '\u{2009}' | '\'' | '\u{2019}')
}

/// How many cells of a column are numbers, for either meaning of a comma.
pub(super) struct Column {
    /// Cells that are neither missing nor dashes.
    pub(super) present: usize,
    /// Those of them that are numbers, with decimal points and with decimal commas.
    numbers: [usize; 2],
    /// Whether a number is another one with decimal commas.
    differs: bool,
    /// Whether all numbers have the same unit: `$5` and `5 €` are not one column of numbers.
    one_unit: bool,
    /// The first cell that is not written as programs write numbers.
    dressed: Option<String>,
}

const BOTH: [Decimal; 2] = [Decimal::Point, Decimal::Comma];

impl Column {
    /// Looks at all cells.
    pub(super) fn of(cells: &[Option<String>]) -> Self {
        let mut column =
            Self { present: 0, numbers: [0; 2], differs: false, one_unit: true, dressed: None };
        let mut money: Option<String> = None;
        let (mut percent, mut bare) = (false, false);
        for cell in cells.iter().flatten().filter(|cell| !is_dash(cell)) {
            column.present += 1;
            let found = BOTH.map(|decimal| read(cell, decimal));
            for (count, found) in column.numbers.iter_mut().zip(&found) {
                *count += usize::from(found.is_some());
            }
            if let [Some(point), Some(comma)] = found {
                column.differs |= point.value != comma.value;
            }
            let Some(unit) = found.iter().flatten().map(|read| read.unit).next() else { continue };
            match unit {
                "" => bare = true,
                "%" => percent = true,
                unit if money.is_none() => money = Some(unit.to_owned()),
                unit => column.one_unit &= money.as_deref() == Some(unit),
            }
            if column.dressed.is_none() && !matches!(classify(cell.as_bytes()), Cell::Number(_)) {
                column.dressed = Some(cell.clone());
            }
        }
        // 5 and 5 % are not the same; 5 and $5 may be.
        column.one_unit &= !percent || (!bare && money.is_none());
        column
    }

    /// What a comma means, where the cells say it by themselves.
    pub(super) fn says(&self) -> Option<Decimal> {
        let [point, comma] = self.fits();
        match (point, comma) {
            (true, false) if self.dressed.is_some() => Some(Decimal::Point),
            (false, true) => Some(Decimal::Comma),
            _ => None,
        }
    }

    /// Whether all cells are numbers, with decimal points and with decimal commas.
    fn fits(&self) -> [bool; 2] {
        self.numbers.map(|count| self.present > 0 && count == self.present && self.one_unit)
    }

    /// Whether it can be read with either meaning, and it matters.
    pub(super) fn is_open(&self) -> bool {
        self.fits() == [true; 2] && self.differs
    }

    /// What a comma means here, by the cells or else by what the table `usually` has; nothing where
    /// the column is not numbers.
    pub(super) fn decimal(&self, usually: Decimal) -> Option<Decimal> {
        match self.fits() {
            [true, true] => Some(usually),
            [true, false] => Some(Decimal::Point),
            [false, true] => Some(Decimal::Comma),
            [false, false] => None,
        }
    }

    /// The first cell that is not written as programs write numbers.
    pub(super) fn dressed(&self) -> Option<&str> {
        self.dressed.as_deref()
    }

    /// Cells that are numbers at most, by one meaning of a comma, and that meaning.
    pub(super) fn most(&self) -> (usize, Decimal) {
        let [point, comma] = self.numbers;
        if comma > point { (comma, Decimal::Comma) } else { (point, Decimal::Point) }
    }
}

/// The numbers of a column that is read with one meaning of a comma; NaN for what is none.
pub(super) fn numbers(cells: &[Option<String>], decimal: Decimal) -> Vec<f64> {
    cells.iter().map(|cell| number(cell.as_deref(), decimal)).collect()
}

fn number(cell: Option<&str>, decimal: Decimal) -> f64 {
    cell.and_then(|cell| read(cell, decimal)).map_or(f64::NAN, |read| read.value)
}

/// Whether a cell is a number with that meaning of a comma.
pub(super) fn is_number(cell: &str, decimal: Decimal) -> bool {
    read(cell, decimal).is_some()
}

/// A column that was read so: its name, a cell of it, and whether the cells alone left open what a
/// comma means.
pub(super) struct Told {
    pub(super) name: String,
    pub(super) cell: String,
    pub(super) decimal: Decimal,
    pub(super) is_open: bool,
}

/// What the user hears about such columns.
pub(super) fn note(columns: &[Told]) -> Option<String> {
    const SHOWN: usize = 6;
    let shown = |told: &Told| {
        let value = |decimal| number_text(number(Some(&told.cell), decimal));
        let [here, there] = match told.decimal {
            Decimal::Point => BOTH,
            Decimal::Comma => [Decimal::Comma, Decimal::Point],
        };
        let (here, there) = (value(here), value(there));
        let open = if told.is_open && here != there {
            format!(", though it could be {there}")
        } else {
            String::new()
        };
        format!("`{}` (\"{}\" is {here}{open})", told.name, told.cell)
    };
    let listed: Vec<String> = columns.iter().take(SHOWN).map(shown).collect();
    let more = match columns.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more columns"),
    };
    (!listed.is_empty()).then(|| format!("read as numbers: {}{more}", listed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(all: &[&str]) -> Vec<Option<String>> {
        all.iter().map(|c| (!c.is_empty()).then(|| (*c).to_owned())).collect()
    }

    fn value(cell: &str, decimal: Decimal) -> Option<f64> {
        read(cell, decimal).map(|read| read.value)
    }

    #[test]
    fn numbers_with_signs_of_money_and_between_thousands_are_numbers() {
        for (cell, value) in [
            ("$247,632", 247_632.0),
            ("$5", 5.0),
            ("-$1,200.50", -1200.5),
            ("$-5", -5.0),
            ("€ 7", 7.0),
            ("7 €", 7.0),
            ("USD 1,200", 1200.0),
            ("1'234.50 CHF", 1234.5),
            ("1,234", 1234.0),
            ("-1,234,567.25", -1_234_567.25),
            ("+£12", 12.0),
            ("(1,234)", -1234.0),
            ("($5.20)", -5.2),
            ("1 234.5", 1234.5),
            ("1\u{202f}234", 1234.0),
            ("1\u{2019}234", 1234.0),
            ("\u{2212}3.5", -3.5),
            ("5 %", 5.0),
            ("12.5%", 12.5),
            ("1e3", 1000.0),
            ("2.5e-3", 0.0025),
            (".5", 0.5),
            ("7.", 7.0),
        ] {
            assert_eq!(super::read(cell, Decimal::Point).map(|r| r.value), Some(value), "{cell}");
        }
        for cell in [
            "0,5",
            "1234,567",
            "0,123",
            "1,23,456",
            "12,3456",
            ",123",
            "1,",
            "$",
            "€",
            "%",
            "$5 €",
            "1.234,5",
            "1.2.3",
            "$a",
            "",
            "2024-01-05",
            "$-5-",
            "-",
            ".",
            "(-5)",
            "1 2",
            "1,234 567",
            "e5",
            "1e",
            "12:30",
            "- 5 -",
        ] {
            assert_eq!(value(cell, Decimal::Point), None, "{cell}");
        }
    }

    #[test]
    fn decimal_commas_are_read_where_they_are_meant() {
        for (cell, expected) in [
            ("0,5", 0.5),
            ("-1,25", -1.25),
            ("1.234,5", 1234.5),
            ("1 234,5 €", 1234.5),
            ("1'234,5", 1234.5),
            ("1.234.567", 1_234_567.0),
            ("12,5 %", 12.5),
            ("1,5e3", 1500.0),
            ("7", 7.0),
        ] {
            assert_eq!(value(cell, Decimal::Comma), Some(expected), "{cell}");
        }
        for cell in ["0.5", "12.34", "1,234,567", "1.23,4", "1,2,3"] {
            assert_eq!(value(cell, Decimal::Comma), None, "{cell}");
        }
    }

    #[test]
    fn what_a_comma_means_is_decided_over_the_column() {
        let of = |all: &[&str]| Column::of(&cells(all));
        assert_eq!(of(&["1,234", "0,5"]).says(), Some(Decimal::Comma));
        assert_eq!(of(&["1,234", "1,234.5"]).says(), Some(Decimal::Point));
        assert_eq!(of(&["1,234", "12,345,678"]).says(), Some(Decimal::Point));
        let open = of(&["1,234", "999", "-"]);
        assert!(open.is_open() && open.says().is_none());
        assert_eq!(open.decimal(Decimal::Comma), Some(Decimal::Comma));
        assert_eq!(open.decimal(Decimal::Point), Some(Decimal::Point));
        assert!(!of(&["$5", "7"]).is_open());
        for none in [&["1,5", "1.5"][..], &["$5", "5 €"], &["5 %", "5"], &["1", "red"], &["-"]] {
            assert_eq!(of(none).decimal(Decimal::Point), None, "{none:?}");
        }
    }

    #[test]
    fn a_note_shows_a_cell_of_each_column_and_what_was_open() {
        let told = |cell: &str, decimal, is_open| Told {
            name: "x".into(),
            cell: cell.into(),
            decimal,
            is_open,
        };
        let columns = [told("$1,234", Decimal::Point, true), told("0,5", Decimal::Comma, false)];
        assert_eq!(
            note(&columns).unwrap(),
            "read as numbers: `x` (\"$1,234\" is 1234, though it could be 1.234), `x` (\"0,5\" is 0.5)"
        );
        assert_eq!(note(&[]), None);
    }
}
