//! The bytes of a table as UTF-8 text: from a file or from standard input, packed by gzip or not,
//! in UTF-8, UTF-16 or Windows-1252.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, WINDOWS_1252};
use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};
use crate::files::regular;
use crate::memory::check_memory;

/// Bytes looked at to guess what the whole holds.
const SAMPLE: u64 = 1 << 16;
/// What a gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// What a Parquet file begins with.
const PARQUET: &[u8] = b"PAR1";

/// Where the text of a table comes from. It can be read more than once.
pub(super) struct Source {
    path: PathBuf,
    /// What came from standard input.
    input: Option<Arc<[u8]>>,
    is_packed: bool,
    /// Where it is not UTF-8.
    encoding: Option<&'static Encoding>,
}

impl Source {
    /// A file, packed or not.
    pub(super) fn file(path: &Path, is_packed: bool) -> Result<Self> {
        let source = Self { path: path.to_owned(), input: None, is_packed, encoding: None };
        source.with_encoding()
    }

    /// All of standard input, where it fits into memory.
    pub(super) fn standard_input(memory: Option<u64>) -> Result<Self> {
        Self::of_input(std::io::stdin().lock(), memory)
    }

    fn of_input(input: impl Read, memory: Option<u64>) -> Result<Self> {
        let path = PathBuf::from("-");
        let mut bytes = Vec::new();
        let most = memory.map_or(u64::MAX, |memory| memory.saturating_add(1));
        input.take(most).read_to_end(&mut bytes).map_err(|e| Error::file("read", &path, e))?;
        check_memory("the table from standard input", Some(bytes.len() as u64), memory)?;
        if bytes.is_empty() {
            return Err(Error::table(&path, "standard input is empty; send it a table"));
        }
        if bytes.starts_with(PARQUET) {
            let problem = "Parquet cannot be read from standard input; save it as a .parquet file";
            return Err(Error::table(&path, problem));
        }
        let is_packed = bytes.starts_with(&GZIP);
        let source = Self { path, input: Some(bytes.into()), is_packed, encoding: None };
        source.with_encoding()
    }

    /// The file, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The same text, taken as Windows-1252.
    pub(super) fn as_windows_1252(&self) -> Self {
        let Self { path, input, is_packed, .. } = self;
        Self {
            path: path.clone(),
            input: input.clone(),
            is_packed: *is_packed,
            encoding: Some(WINDOWS_1252),
        }
    }

    /// Whether it may be text in Windows-1252, where it is not UTF-8: its beginning has none of the
    /// characters that no text has.
    pub(super) fn may_be_windows_1252(&self) -> Result<bool> {
        let control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\r' | b'\n');
        Ok(self.encoding.is_none() && !self.sample()?.iter().any(control))
    }

    /// UTF-16, where the text begins like it.
    fn with_encoding(mut self) -> Result<Self> {
        self.encoding = match self.sample()?[..] {
            [0xff, 0xfe, ..] | [_, 0, _, 0, ..] => Some(UTF_16LE),
            [0xfe, 0xff, ..] | [0, _, 0, _, ..] => Some(UTF_16BE),
            _ => None,
        };
        Ok(self)
    }

    /// What the user should know about the text.
    pub(super) fn note(&self) -> Option<String> {
        let encoding = self.encoding?;
        Some(format!("read as {} text, since it is not UTF-8", encoding.name()))
    }

    /// The text from its beginning.
    pub(super) fn open(&self) -> Result<Box<dyn Read>> {
        let bytes = self.unpacked()?;
        let Some(encoding) = self.encoding else { return Ok(bytes) };
        let mut decoder = DecodeReaderBytesBuilder::new();
        Ok(Box::new(decoder.encoding(Some(encoding)).bom_override(true).build(bytes)))
    }

    /// The bytes, unpacked.
    fn unpacked(&self) -> Result<Box<dyn Read>> {
        let stored: Box<dyn Read> = match &self.input {
            Some(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
            None => Box::new(self.stored()?),
        };
        Ok(if self.is_packed {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, stored)))
        } else {
            stored
        })
    }

    fn stored(&self) -> Result<File> {
        regular::open(&self.path).map_err(|e| self.broken(e))
    }

    /// The first bytes, unpacked.
    pub(super) fn sample(&self) -> Result<Vec<u8>> {
        self.beginning(self.unpacked()?)
    }

    /// The first bytes as UTF-8.
    pub(super) fn text_sample(&self) -> Result<Vec<u8>> {
        self.beginning(self.open()?)
    }

    fn beginning(&self, bytes: Box<dyn Read>) -> Result<Vec<u8>> {
        let mut sample = Vec::new();
        bytes.take(SAMPLE).read_to_end(&mut sample).map_err(|e| self.broken(e))?;
        Ok(sample)
    }

    /// How many bytes there are, unpacked.
    pub(super) fn size(&self) -> Result<u64> {
        match &self.input {
            _ if self.is_packed => std::io::copy(&mut self.unpacked()?, &mut std::io::sink())
                .map_err(|e| self.broken(e)),
            Some(bytes) => Ok(bytes.len() as u64),
            None => Ok(self.stored()?.metadata().map_err(|e| self.broken(e))?.len()),
        }
    }

    /// What went wrong while it was read.
    pub(super) fn broken(&self, error: std::io::Error) -> Error {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match error.kind() {
            InvalidData | InvalidInput | UnexpectedEof if self.is_packed => {
                let problem = format!("cannot be unpacked as gzip ({error}); write the file again");
                Error::table(&self.path, problem)
            }
            _ => Error::file("read", &self.path, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_is_read_within_memory_and_says_what_it_cannot_be() {
        let of = |bytes: &'static [u8], memory| Source::of_input(bytes, memory);
        let source = of(b"a,b\n1,2\n", None).unwrap();
        assert_eq!(source.text_sample().unwrap(), b"a,b\n1,2\n");
        assert_eq!(source.size().unwrap(), 8);
        let refused = |bytes, memory| of(bytes, memory).map(drop).unwrap_err().to_string();
        assert!(refused(b"", None).contains("standard input is empty"));
        assert!(refused(b"PAR1....", None).contains("save it as a .parquet file"));
        assert!(refused(b"a,b\n1,2\n", Some(4)).contains("memory"));
    }
}
