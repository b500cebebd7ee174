//! What stands between the cells of a table: commas, semicolons, tabs or bars.

use csv::{ByteRecord, ReaderBuilder};

/// What may stand there.
pub(super) const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Rows that are looked at.
const ROWS: usize = 50;

/// The separator of text that begins with `sample`. `usual` is the one that the name of the file
/// asks for: it is taken unless it separates nothing, or rows unevenly where another one separates
/// them evenly.
pub(super) fn of(sample: &[u8], usual: u8) -> u8 {
    let found = SEPARATORS.map(|separator| (separator, Layout::of(sample, separator)));
    let layout = |wanted: u8| found.iter().find(|(separator, _)| *separator == wanted);
    if let Some((_, layout)) = layout(usual)
        && layout.columns > 1
        && layout.is_even
    {
        return usual;
    }
    let best = |even: bool| {
        let fitting = found.iter().filter(|(_, l)| l.columns > 1 && (l.is_even || !even));
        // The first of equals.
        fitting.rev().max_by_key(|(_, layout)| layout.columns).map(|(separator, _)| *separator)
    };
    let has_some = |(_, layout): &(u8, Layout)| layout.columns > 1;
    best(true)
        .or_else(|| layout(usual).filter(|found| has_some(found)).map(|(separator, _)| *separator))
        .or_else(|| best(false))
        .unwrap_or(usual)
}

/// How a separator divides the first rows.
struct Layout {
    /// Columns of the header.
    columns: usize,
    /// Whether there are rows, and all have as many cells.
    is_even: bool,
}

impl Layout {
    fn of(sample: &[u8], separator: u8) -> Self {
        let mut reader = ReaderBuilder::new()
            .delimiter(separator)
            .has_headers(false)
            .flexible(true)
            .from_reader(sample);
        let (mut record, mut widths) = (ByteRecord::new(), Vec::new());
        while widths.len() < ROWS && matches!(reader.read_byte_record(&mut record), Ok(true)) {
            widths.push(record.len());
        }
        // The last row may be cut.
        if widths.len() > 2 && widths.len() < ROWS {
            widths.pop();
        }
        let columns = widths.first().copied().unwrap_or_default();
        Self { columns, is_even: widths.len() > 1 && widths.iter().all(|w| *w == columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_separator_is_the_one_that_divides_rows_evenly() {
        for (text, usual, separator) in [
            ("a,b\n1,2\n", b',', b','),
            ("a;b\n1,5;2\n3;4,5\n", b',', b';'),
            ("a|b|c\n1|2|3\n", b',', b'|'),
            ("a\tb\n1\t2\n", b',', b'\t'),
            ("a,b\n1,2\n", b'\t', b','),
            ("a\tb\nx,y\t2\n", b'\t', b'\t'),
            ("a,b;c\n1;2\n3;4\n", b',', b';'),
            ("\"a;b\",c\n\"1;2\",3\n", b',', b','),
            ("a\n1\n2\n", b',', b','),
            ("a,b,c\n1,2,3\n4,5\n6,7,8\n9,9,9\n", b',', b','),
            ("a;b;c\n1;2;3\n4;5\n6;7;8\n", b',', b';'),
            ("x\n1;2\n", b',', b','),
            ("", b',', b','),
        ] {
            assert_eq!(of(text.as_bytes(), usual) as char, separator as char, "{text:?}");
        }
    }
}
