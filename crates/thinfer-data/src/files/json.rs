//! JSON files with a checksum, so that a changed digit does not go unnoticed.
//!
//! The last member of the object is `"checksum"`: the CRC-32 of every byte before the comma in
//! front of it, as eight hexadecimal digits. The file stays ordinary JSON for every other reader.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// What stands before the digits. Text has no line breaks in JSON, so this is a member and no text.
const MARK: &str = ",\n  \"checksum\": \"";

/// A value as JSON under a checksum. Only an object can have one; nothing else is written.
pub fn sealed_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::Data(format!("could not be written: {e}")))?;
    if text.ends_with(b"\n}") {
        text.truncate(text.len() - 2);
        let sum = crc32fast::hash(&text);
        text.extend_from_slice(format!("{MARK}{sum:08x}\"\n}}").as_bytes());
    }
    Ok(text)
}

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    Right,
    Wrong,
    /// An older version wrote the file, or somebody did by hand.
    Absent,
}

fn checksum(text: &str) -> Checksum {
    let Some(at) = text.rfind(MARK) else { return Checksum::Absent };
    let sum = crc32fast::hash(&text.as_bytes()[..at]);
    if text[at + MARK.len()..] == format!("{sum:08x}\"\n}}") {
        Checksum::Right
    } else {
        Checksum::Wrong
    }
}

/// What was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents<T> {
    /// What the file holds.
    pub value: T,
    /// Whether it was under a checksum.
    pub checked: bool,
}

/// Reads a value from the bytes of a JSON file; the error says in a few words what is wrong with
/// them. A file without a checksum is read as it is.
pub fn take_json<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<Contents<T>, String> {
    let text = str::from_utf8(bytes).map_err(|_| "it is damaged (not text)".to_owned())?;
    let checksum = checksum(text);
    if checksum == Checksum::Wrong {
        return Err("it is damaged, or was changed by hand (its checksum is wrong)".to_owned());
    }
    let value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    Ok(Contents { value, checked: checksum == Checksum::Right })
}

/// Reads a JSON file; `None` where there is none. `advice` ends the message about one that is
/// damaged.
pub fn read_json<T: DeserializeOwned>(path: &Path, advice: &str) -> Result<Option<T>> {
    let bytes = match super::regular::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|e| Error::file("read", path, e))?,
    };
    match take_json(&bytes) {
        Ok(contents) => Ok(Some(contents.value)),
        Err(problem) => Err(Error::store(path, format!("cannot be read: {problem}; {advice}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Value = BTreeMap<String, f64>;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Sd {
        sd: f64,
    }

    fn value() -> Value {
        [("sd", 1.25), ("checksum of mine", 3.0)].map(|(k, v)| (k.to_owned(), v)).into()
    }

    #[test]
    fn every_changed_byte_is_noticed_or_of_no_effect() {
        let whole = sealed_json(&value()).unwrap();
        assert_eq!(take_json(&whole), Ok(Contents { value: Sd { sd: 1.25 }, checked: true }));
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                match take_json::<Sd>(&bytes) {
                    Ok(found) => {
                        assert_eq!(found.value.sd, 1.25, "byte {at} became {byte}");
                        // The word itself is no content; without it the file is one of an older
                        // version.
                        assert_eq!(found.checked, bytes == whole);
                    }
                    Err(problem) => assert_ne!(problem, ""),
                }
            }
            assert!(take_json::<Sd>(&whole[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_file_without_a_checksum_is_read_and_told_apart() {
        let old = serde_json::to_vec_pretty(&value()).unwrap();
        assert_eq!(take_json(&old), Ok(Contents { value: value(), checked: false }));
        assert_eq!(sealed_json(&7).unwrap(), b"7");
    }

    #[test]
    fn the_checksum_is_that_of_the_bytes_before_it() {
        let text = String::from_utf8(
            sealed_json(&[("a", 1)].into_iter().collect::<BTreeMap<_, _>>()).unwrap(),
        );
        // python3 -c 'import zlib; print("%08x" % zlib.crc32(b"{\n  \"a\": 1"))'
        assert_eq!(text.unwrap(), "{\n  \"a\": 1,\n  \"checksum\": \"476d1ee6\"\n}");
    }
}
