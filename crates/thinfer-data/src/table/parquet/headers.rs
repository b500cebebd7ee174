//! The headers of Parquet files, gone through before the parquet crate believes them.
//!
//! A page may announce 2 GiB whatever it holds, and the crate makes room for them; a list may
//! announce 2³¹ elements, and the crate passes over them one by one where there are none. Headers
//! are structures of Thrift's compact protocol: fields with a number and a kind, a zero at the end.

use std::io::{BufRead, Read, Seek, SeekFrom, Take};

/// Structures inside structures beyond this depth are no header.
const DEEPEST: usize = 16;

/// The largest size that a page announces among the `len` bytes from `start` on; nothing where
/// there is something else than pages.
pub(super) fn largest_page(file: &mut (impl BufRead + Seek), start: u64, len: u64) -> Option<u64> {
    let end = file.seek(SeekFrom::End(0)).ok()?;
    if len > end.saturating_sub(start) {
        return None;
    }
    let (mut place, mut left, mut largest) = (start, len, 0);
    while left > 0 {
        file.seek(SeekFrom::Start(place)).ok()?;
        let mut header = Header { bytes: file.by_ref().take(left), sizes: Some([0; 2]) };
        header.structure(0, 0)?;
        let [size, stored] = header.sizes?;
        largest = largest.max(size);
        let used = (left - header.bytes.limit()).saturating_add(stored);
        (place, left) = (place.saturating_add(used), left.saturating_sub(used));
    }
    Some(largest)
}

/// Whether the end of a file describes its contents: a structure, its length, and four letters.
pub(super) fn has_footer(file: &mut (impl BufRead + Seek)) -> bool {
    let mut check = || -> Option<()> {
        let end = file.seek(SeekFrom::End(-8)).ok()?;
        let mut length = [0; 4];
        file.read_exact(&mut length).ok()?;
        let length = u64::from(u32::from_le_bytes(length));
        file.seek(SeekFrom::Start(end.checked_sub(length)?)).ok()?;
        Header { bytes: file.by_ref().take(length), sizes: None }.structure(0, 0)
    };
    check().is_some()
}

struct Header<R> {
    bytes: Take<R>,
    /// Of a page once it is unpacked, and as it is stored; nothing in other headers.
    sizes: Option<[u64; 2]>,
}

impl<R: BufRead> Header<R> {
    /// Goes through the fields of a structure, itself field `within` of another; the sizes are
    /// fields 2 and 3 of the outermost one.
    fn structure(&mut self, depth: usize, within: i16) -> Option<()> {
        let mut field = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.signed()? as i16,
                step => field.checked_add(i16::from(step))?,
            };
            if self.sizes.is_some() && !may_be(depth, within, field, head & 15) {
                return None;
            }
            match (field, self.sizes) {
                (2 | 3, Some(mut sizes)) if depth == 0 => {
                    // A negative size is refused by the parquet crate.
                    sizes[usize::from(field == 3)] = u64::try_from(self.signed()?).unwrap_or(0);
                    self.sizes = Some(sizes);
                }
                _ => self.skip(head & 15, depth, field)?,
            }
        }
    }

    /// Passes over a value of a kind.
    fn skip(&mut self, kind: u8, depth: usize, field: i16) -> Option<()> {
        match kind {
            // Yes and no are said by the kind.
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.number()?),
            7 => self.pass(8)?,
            8 => {
                let len = self.number()?;
                self.pass(len)?;
            }
            9 | 10 if depth < DEEPEST => {
                let head = self.byte()?;
                let len = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                // Every element takes a byte at least.
                if len > self.bytes.limit() {
                    return None;
                }
                (0..len).try_for_each(|_| self.skip(head & 15, depth + 1, 0))?;
            }
            12 if depth < DEEPEST => self.structure(depth + 1, field)?,
            _ => return None,
        }
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.bytes.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }

    fn pass(&mut self, len: u64) -> Option<()> {
        let passed = std::io::copy(&mut self.bytes.by_ref().take(len), &mut std::io::sink());
        (passed.ok()? == len).then_some(())
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for place in 0..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The same, with the sign in the lowest bit; 32 bits count, as for the parquet crate.
    fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        let value = (value >> 1) as i64 ^ -((value & 1) as i64);
        Some(i64::from(value as i32))
    }
}

/// Whether a field of a page header may be of a kind. The parquet crate does not look at the kind
/// of fields that it knows, so another one would make it read something else than this file does.
fn may_be(depth: usize, within: i16, field: i16, kind: u8) -> bool {
    const NUMBER: &[u8] = &[5];
    const TRUTH: &[u8] = &[1, 2];
    const STRUCTURE: &[u8] = &[12];
    let expected = match (depth, within, field) {
        (0, _, 1..=4) | (1, 5, 1..=4) | (1, 7, 1 | 2) | (1, 8, 1..=6) => NUMBER,
        (1, 7, 3) | (1, 8, 7) => TRUTH,
        (0, _, 5..=8) | (1, 5, 5) | (1, 8, 8) => STRUCTURE,
        // Page headers have no lists.
        _ => return !matches!(kind, 9..=11),
    };
    expected.contains(&kind)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// The header of a page of so many bytes, 3 of them stored, with statistics in it.
    fn page(size: &[u8]) -> Vec<u8> {
        let sizes = [&[0x15, 0, 0x15][..], size, &[0x15, 6]].concat();
        let data = [0x2c, 0x15, 4, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18, 2, 9, 9, 0, 0];
        [&sizes[..], &data, &[0], b"abc"].concat()
    }

    #[test]
    fn every_page_is_looked_at() {
        let large = [0xfe, 0xff, 0xff, 0xff, 0x0f];
        let pages = [page(&[20]), page(&large), page(&[30])].concat();
        let whole = |bytes: &[u8]| largest_page(&mut Cursor::new(bytes), 0, bytes.len() as u64);
        assert_eq!(whole(&pages), Some((1 << 31) - 1));
        assert_eq!(whole(&page(&[20]).repeat(3)), Some(10));
        let first = page(&[20]).len() as u64;
        assert_eq!(largest_page(&mut Cursor::new(&pages), 0, first), Some(10));
        // What is no header, or lies behind the end.
        assert_eq!(whole(&[&page(&[20])[..], &[0xff; 40]].concat()), None);
        assert_eq!(largest_page(&mut Cursor::new(&pages), 1 << 40, 9), None);
        assert_eq!(whole(&[0x15; 9]), None);
        assert_eq!(largest_page(&mut Cursor::new(&pages), 0, 1 << 40), None, "behind the end");
        // A number that says it is a list, and a list where no field is known.
        assert_eq!(whole(&[0x15, 0, 0x19, 20, 0x15, 0, 0]), None);
        assert_eq!(whole(&[0x15, 0, 0x15, 20, 0x15, 0, 0x69, 0, 0]), None);
    }

    #[test]
    fn a_list_is_not_longer_than_the_rest_of_the_header() {
        let footer = |head: &[u8]| {
            let length = (head.len() as u32).to_le_bytes();
            has_footer(&mut Cursor::new([b"PAR1....", head, &length, b"PAR1"].concat()))
        };
        // Field 2: three truth values, which take no bytes here, or a billion of them.
        assert!(footer(&[0x29, 0x31, 0x16, 4, 0]));
        assert!(!footer(&[0x29, 0xf1, 0x80, 0x80, 0x80, 0x80, 4, 0]));
        assert!(!footer(&[0x29, 0x31]), "no end");
        assert!(!has_footer(&mut Cursor::new(b"PAR1")));
        let long = Cursor::new(b"PAR1\x7f\0\0\0PAR1");
        assert!(!has_footer(&mut { long }));
    }
}
