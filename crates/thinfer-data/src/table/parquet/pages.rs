//! Pages of Parquet files, looked at before the parquet crate makes room for what they announce.
//!
//! The crate believes the number of values of a dictionary and the numbers of lengths in front of
//! delta-encoded text. A changed byte there asks for more memory than there is, which no error
//! message survives.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// The pages of a column chunk, of which none announces more than it can hold.
pub(super) struct Pages {
    pub(super) inner: Box<dyn PageReader>,
    /// Whether cells may be null, so that pages begin with what is null.
    pub(super) optional: bool,
    /// The rows of the table.
    pub(super) rows: usize,
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.inner.at_record_boundary()
    }
}

impl Pages {
    fn check(&self, page: &Page) -> Result<()> {
        let too_many = |what: &str, values: u64| {
            Err(ParquetError::General(format!("{what} announces {values} values")))
        };
        let values = u64::from(page.num_values());
        if let Page::DictionaryPage { buf, .. } = page {
            // Every value takes a byte at least.
            if values > buf.len() as u64 {
                return too_many("a dictionary", values);
            }
            return Ok(());
        }
        if values > self.rows as u64 {
            return too_many("a page", values);
        }
        let streams = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            // Lengths of what is shared with the cell before, and of the rest.
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => return Ok(()),
        };
        let mut rest = self.values(page);
        for _ in 0..streams {
            // What is no such stream is refused by the crate, which gives the reason.
            let Some((announced, after)) = delta_stream(rest) else { return Ok(()) };
            if announced > values {
                return too_many("a list of lengths", announced);
            }
            rest = after;
        }
        Ok(())
    }

    /// The bytes of a page behind what is null.
    fn values<'a>(&self, page: &'a Page) -> &'a [u8] {
        let (buf, skipped) = match page {
            Page::DataPage { buf, num_values, def_level_encoding, .. } => {
                let length = buf.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let levels = match def_level_encoding {
                    Encoding::RLE => 4 + length as usize,
                    _ => num_values.div_ceil(8) as usize,
                };
                (buf, if self.optional { levels } else { 0 })
            }
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                (buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize)
            }
            Page::DictionaryPage { buf, .. } => (buf, 0),
        };
        buf.get(skipped..).unwrap_or_default()
    }
}

/// How many numbers a delta-encoded stream at the front announces, and what comes after it.
///
/// The numbers of a block, of its parts and of values, and the first value; then blocks: the
/// smallest difference, a width in bits for each part, and the parts.
fn delta_stream(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes;
    let (block, parts) = (number(&mut rest)?, number(&mut rest)?);
    let announced = number(&mut rest)?;
    number(&mut rest)?;
    let (part, parts) = (block.checked_div(parts)?, usize::try_from(parts).ok()?);
    let mut left = announced.saturating_sub(1);
    while left > 0 && part > 0 {
        // A stream that ends too early has no second one behind it to be checked.
        let Some((widths, after)) = number(&mut rest).and_then(|_| rest.split_at_checked(parts))
        else {
            return Some((announced, &[]));
        };
        rest = after;
        for width in widths {
            if left > 0 {
                let length = u64::from(*width).saturating_mul(part) / 8;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                rest = rest.get(length..).unwrap_or_default();
            }
            left = left.saturating_sub(part);
        }
    }
    Some((announced, rest))
}

/// A number of seven bits a byte, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_stream_is_found() {
        // 128 a block in 4 parts, 3 values, the first 5; differences from 1 on, 2 bits each in the
        // first part, which has 32, and widths of the others that do not count.
        let stream = [&[0x80, 1, 4, 3, 10, 2, 2, 9, 9, 9][..], &[0; 8], b"rest"].concat();
        assert_eq!(delta_stream(&stream), Some((3, &b"rest"[..])));
        assert_eq!(delta_stream(&[0x80, 1, 4, 1, 10, 7]), Some((1, &[7][..])));
        assert_eq!(delta_stream(&stream[..8]), Some((3, &[][..])));
        assert_eq!(delta_stream(&[0x80, 1, 0, 3, 10]), None, "no parts");
        assert_eq!(delta_stream(&[0xff; 40]), None);
    }
}
