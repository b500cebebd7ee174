//! How large the pages of a Parquet column say they are, before the parquet crate makes room for them.
//!
//! A page may announce 2 GiB whatever it holds. Its header is a structure of Thrift's compact
//! protocol: fields with a number and a kind, a zero at the end.

use std::io::{BufRead, Read, Seek, SeekFrom, Take};

/// Structures inside structures beyond this depth are no header.
const DEEPEST: usize = 8;
/// Elements of a list in a header, which has none.
const LONGEST: u64 = 1 << 16;

/// The largest size that a page announces among the `len` bytes from `start` on. It ends at what is no
/// header: the parquet crate refuses that with the reason.
pub(super) fn largest_page(file: &mut (impl BufRead + Seek), start: u64, len: u64) -> u64 {
    let (mut place, mut left, mut largest) = (start, len, 0);
    while left > 0 && file.seek(SeekFrom::Start(place)).is_ok() {
        let mut header = Header { bytes: file.by_ref().take(left), sizes: [0; 2] };
        if header.structure(0).is_none() {
            break;
        }
        let [size, stored] = header.sizes;
        largest = largest.max(size);
        let used = (left - header.bytes.limit()).saturating_add(stored);
        (place, left) = (place.saturating_add(used), left.saturating_sub(used));
    }
    largest
}

struct Header<R> {
    bytes: Take<R>,
    /// Of the page once it is unpacked, and as it is stored.
    sizes: [u64; 2],
}

impl<R: BufRead> Header<R> {
    /// Goes through the fields of a structure; the sizes are fields 2 and 3 of the outermost one.
    fn structure(&mut self, depth: usize) -> Option<()> {
        let mut field = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.signed()?,
                step => field.checked_add(i64::from(step))?,
            };
            match field {
                // A negative size is refused by the parquet crate.
                2 | 3 if depth == 0 => {
                    let size = u64::try_from(self.signed()?).unwrap_or(0);
                    self.sizes[usize::from(field == 3)] = size;
                }
                _ => self.skip(head & 15, depth)?,
            }
        }
    }

    /// Passes over a value of a kind.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
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
                if len > LONGEST {
                    return None;
                }
                (0..len).try_for_each(|_| self.skip(head & 15, depth + 1))?;
            }
            12 if depth < DEEPEST => self.structure(depth + 1)?,
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
        assert_eq!(whole(&pages), (1 << 31) - 1);
        assert_eq!(whole(&page(&[20]).repeat(3)), 10);
        let first = page(&[20]).len() as u64;
        assert_eq!(largest_page(&mut Cursor::new(&pages), 0, first), 10);
        assert_eq!(largest_page(&mut Cursor::new(&pages), first, u64::MAX), (1 << 31) - 1);
        // What is no header, or lies behind the end, is left to others.
        assert_eq!(whole(&[&page(&[20])[..], &[0xff; 40]].concat()), 10);
        assert_eq!(largest_page(&mut Cursor::new(&pages), 1 << 40, 9), 0);
        assert_eq!(whole(&[0x15; 9]), 0);
    }
}
