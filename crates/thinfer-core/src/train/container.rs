//! One-file container of checkpoints: a JSON header and raw sections, each under a checksum.
//!
//! Layout, all numbers little-endian (see `docs/formats.md`): `THINFER\x01` · header length (u64) ·
//! header CRC-32 (u32) · payload CRC-32 (u32) · header · payload. The header names every section
//! with its length in bytes; the payload is the sections one after another, and nothing follows.
//!
//! The file before the newest one is kept. Whatever the moment of a crash, one of the two is whole.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thinfer_data::{Error, Result};

const MAGIC: &[u8; 8] = b"THINFER\x01";
const FIXED: usize = 8 + 8 + 4 + 4;

#[derive(Serialize, Deserialize)]
struct Header<T> {
    sections: Vec<(String, u64)>,
    body: T,
}

/// A decoded container.
pub(crate) struct Container<T> {
    pub(crate) body: T,
    sections: Vec<(String, Vec<u8>)>,
}

impl<T> Container<T> {
    /// The section called `name`.
    pub(crate) fn section(&self, path: &Path, name: &str) -> Result<&[u8]> {
        let found = self.sections.iter().find(|(n, _)| n == name);
        found.map(|(_, bytes)| bytes.as_slice()).ok_or_else(|| {
            Error::store(path, format!("the section `{name}` is missing; the file is not usable"))
        })
    }

    /// Whether there is a section called `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.sections.iter().any(|(n, _)| n == name)
    }

    /// The section called `name` as numbers.
    pub(crate) fn floats(&self, path: &Path, name: &str) -> Result<Vec<f32>> {
        let bytes = self.section(path, name)?;
        let numbers = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok(numbers.collect())
    }
}

/// What goes into a section, where it lies.
pub(crate) enum Section<'a> {
    Floats(&'a [f32]),
    Bytes(&'a [u8]),
}

impl Section<'_> {
    fn len(&self) -> usize {
        match self {
            Section::Floats(values) => 4 * values.len(),
            Section::Bytes(bytes) => bytes.len(),
        }
    }

    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Section::Floats(values) => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Section::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// Encodes a container. The numbers are copied once, because a checkpoint is made while the run
/// holds all its memory.
pub(crate) fn encode<T: Serialize>(
    body: &T,
    sections: &[(String, Section<'_>)],
) -> Result<Vec<u8>> {
    let names = sections.iter().map(|(name, s)| (name.clone(), s.len() as u64)).collect();
    let header = serde_json::to_vec(&Header { sections: names, body })
        .map_err(|e| Error::Data(format!("a checkpoint header could not be written: {e}")))?;
    let start = FIXED + header.len();
    let payload: usize = sections.iter().map(|(_, section)| section.len()).sum();
    let mut out = Vec::with_capacity(start + payload);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(header.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    // The checksum of what follows is known when that is there.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&header);
    sections.iter().for_each(|(_, section)| section.append(&mut out));
    let checksum = crc32fast::hash(&out[start..]).to_le_bytes();
    out[FIXED - 4..FIXED].copy_from_slice(&checksum);
    Ok(out)
}

/// Decodes a container, checking every byte of it.
pub(crate) fn decode<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<Container<T>> {
    let damaged = |what: &str| Error::store(path, format!("the file is damaged ({what})"));
    if bytes.len() < FIXED || &bytes[..8] != MAGIC {
        return Err(if bytes.len() >= 7 && bytes[..7] == MAGIC[..7] && bytes.len() >= FIXED {
            let text = "the file was written by another version of thinfer; use that version, or start the run again with --force";
            Error::store(path, text)
        } else {
            damaged("it does not start like a checkpoint")
        });
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let length = u64::from(word(8)) | u64::from(word(12)) << 32;
    let end = usize::try_from(length).ok().and_then(|l| FIXED.checked_add(l));
    let Some(end) = end.filter(|e| *e <= bytes.len()) else {
        return Err(damaged("it is shorter than its header says"));
    };
    let (header, payload) = (&bytes[FIXED..end], &bytes[end..]);
    if crc32fast::hash(header) != word(16) {
        return Err(damaged("the checksum of its header is wrong"));
    }
    if crc32fast::hash(payload) != word(20) {
        return Err(damaged("the checksum of its contents is wrong, or it was cut short"));
    }
    let header: Header<T> = serde_json::from_slice(header)
        .map_err(|e| Error::store(path, format!("the header cannot be read: {e}")))?;
    let total = header.sections.iter().try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
    if total != Some(payload.len() as u64) {
        return Err(damaged("its sections do not add up"));
    }
    let mut rest = payload;
    let mut sections = Vec::new();
    for (name, length) in header.sections {
        let (section, after) = rest.split_at(length as usize);
        sections.push((name, section.to_vec()));
        rest = after;
    }
    Ok(Container { body: header.body, sections })
}

/// The bytes with the right checksums, so that damage is met behind them; nothing where the bytes
/// are no container at all.
pub fn resealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (fixed, rest) = bytes.split_at_checked(FIXED)?;
    let length = u64::from_le_bytes(*fixed.get(8..)?.first_chunk()?);
    let (header, payload) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let mut sealed = bytes.to_vec();
    sealed[16..20].copy_from_slice(&crc32fast::hash(header).to_le_bytes());
    sealed[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    Some(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let sections = [
            ("w".to_owned(), Section::Floats(&[1.5, -2.0])),
            ("m".to_owned(), Section::Bytes(&[3, 1])),
        ];
        encode(&("body".to_owned(), 0.1f64), &sections).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let path = Path::new("x");
        let back: Container<(String, f64)> = decode(path, &sample()).unwrap();
        assert_eq!(back.body, ("body".to_owned(), 0.1));
        assert_eq!(back.floats(path, "w").unwrap(), [1.5, -2.0]);
        assert_eq!(back.section(path, "m").unwrap(), [3, 1]);
        assert!(back.section(path, "z").is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_detected() {
        let whole = sample();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                assert!(decode::<(String, f64)>(Path::new("x"), &bytes).is_err(), "{at}.{bit}");
            }
            assert!(decode::<(String, f64)>(Path::new("x"), &whole[..at]).is_err(), "cut {at}");
        }
        let mut longer = whole;
        longer.push(0);
        assert!(decode::<(String, f64)>(Path::new("x"), &longer).is_err());
    }
}
