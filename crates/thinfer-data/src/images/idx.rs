//! IDX, the file format of MNIST: a magic number, sizes, and bytes; possibly gzipped.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::{gzip_or_plain, problem};
use crate::error::{Error, Result};
use crate::files::regular;
use crate::memory::{available_memory, check_memory};

/// An array of bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    /// The size of each dimension.
    pub(super) sizes: Vec<usize>,
    /// The last dimension varies fastest.
    pub(super) values: Vec<u8>,
}

impl Idx {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = regular::open(path).map_err(|e| Error::file("read", path, e))?;
        Self::from_packed(path, BufReader::new(file))
    }

    /// Reads an array, gzipped or not; `path` is named in messages.
    pub(super) fn from_packed(path: &Path, reader: impl BufRead) -> Result<Self> {
        let reader = gzip_or_plain(reader).map_err(|e| Error::file("read", path, e))?;
        Self::parse(reader).map_err(|refused| match refused {
            Refused::Memory(error) => error,
            Refused::Text(text) => problem(path, text),
        })
    }

    fn parse(mut reader: impl Read) -> std::result::Result<Self, Refused> {
        let mut magic = [0; 4];
        fill(&mut reader, &mut magic, "its first four bytes")?;
        let [0, 0, 8, dimensions @ 1..=4] = magic else {
            return Err(format!(
                "is no IDX file of bytes: it starts with {magic:02x?}, not with 00 00 08; check that this is the right file"
            )
            .into());
        };
        let mut sizes = Vec::new();
        for _ in 0..dimensions {
            let mut size = [0; 4];
            fill(&mut reader, &mut size, "its sizes")?;
            sizes.push(u32::from_be_bytes(size) as usize);
        }
        let len = sizes.iter().try_fold(1u64, |all, size| all.checked_mul(*size as u64));
        check_memory("the array of an IDX file", len, available_memory())
            .map_err(Refused::Memory)?;
        let len = len.unwrap_or(u64::MAX);
        // Grows with what is there, so that a wrong size in a short file reserves nothing.
        let mut values = Vec::new();
        reader.by_ref().take(len).read_to_end(&mut values).map_err(|e| unreadable(&e))?;
        if values.len() as u64 != len {
            return Err(format!(
                "ends after {} of {len} values; it is truncated, so get it again",
                values.len()
            )
            .into());
        }
        let more = reader.read(&mut [0]).map_err(|e| unreadable(&e))?;
        if more != 0 {
            return Err("goes on after its last value; it is damaged, so get it again"
                .to_owned()
                .into());
        }
        Ok(Self { sizes, values })
    }

    /// The MD5 of the array as an unpacked file.
    pub(super) fn md5(&self) -> String {
        let mut context = md5::Context::new();
        context.consume([0, 0, 8, self.sizes.len() as u8]);
        self.sizes.iter().for_each(|size| context.consume((*size as u32).to_be_bytes()));
        context.consume(&self.values);
        format!("{:x}", context.finalize())
    }

    /// The sizes, for messages.
    pub(super) fn sizes_text(&self) -> String {
        self.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")
    }
}

/// Why a file was refused.
enum Refused {
    Memory(Error),
    Text(String),
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Refused::Text(text)
    }
}

fn fill(reader: &mut impl Read, into: &mut [u8], what: &str) -> std::result::Result<(), Refused> {
    reader.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Refused::Text(format!("ends within {what}; it is truncated, so get it again"))
        }
        _ => unreadable(&error),
    })
}

fn unreadable(error: &std::io::Error) -> Refused {
    Refused::Text(format!(
        "cannot be unpacked ({error}); it is truncated or damaged, so get it again"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The file of an array.
    pub(in super::super) fn file(sizes: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    fn refused(bytes: &[u8]) -> String {
        match Idx::parse(bytes) {
            Err(Refused::Text(text)) => text,
            Err(Refused::Memory(error)) => error.to_string(),
            Ok(idx) => panic!("{idx:?} was read"),
        }
    }

    #[test]
    fn sizes_and_values_are_read() {
        let idx = Idx::parse(&file(&[2, 1, 2], &[1, 2, 3, 4])[..]).ok().unwrap();
        assert_eq!(idx, Idx { sizes: vec![2, 1, 2], values: vec![1, 2, 3, 4] });
        assert_eq!(idx.sizes_text(), "2 x 1 x 2");
        let bytes = file(&[2, 1, 2], &[1, 2, 3, 4]);
        assert_eq!(idx.md5(), format!("{:x}", md5::compute(bytes)));
    }

    #[test]
    fn damaged_files_are_refused_with_the_reason() {
        let whole = file(&[2, 2], &[1, 2, 3, 4]);
        assert!(refused(&whole[..2]).contains("within its first four bytes"));
        assert!(refused(&whole[..9]).contains("within its sizes"));
        assert!(refused(&whole[..14]).contains("ends after 2 of 4 values"));
        assert!(refused(&[&whole[..], &[0]].concat()).contains("goes on after its last value"));
        assert!(refused(b"\x89PNG....").contains("is no IDX file"));
        // Floats, which no image set here has.
        assert!(refused(&[0, 0, 0x0d, 1, 0, 0, 0, 0]).contains("is no IDX file"));
        assert!(refused(&file(&[u32::MAX; 4], &[])).contains("needs more memory"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), idx: bool) {
            let head: &[u8] = if idx { &[0, 0, 8] } else { &[] };
            let _ = Idx::parse(&[head, &bytes[..]].concat()[..]);
        }
    }
}
