//! What all readers of image files share: gzip, MD5 and messages.

use std::io::{BufRead, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};
use crate::files::regular;
use crate::settings::DataKind;

/// A file that cannot be used.
pub(super) fn problem(path: &Path, text: impl AsRef<str>) -> Error {
    Error::Data(format!("{}: {}", path.display(), text.as_ref()))
}

/// A published set whose files are not where they were looked for.
pub(super) fn missing(path: &Path, kind: DataKind, wanted: &str) -> Error {
    let (path, name) = (path.display(), kind.name());
    Error::Data(format!(
        "{path} has no {wanted}; get {name} with `thinfer data get {name} --out {path}`, or set `data.path` to where it is"
    ))
}

/// The bytes of a file, unpacked where it is gzip, which its first bytes say.
pub(super) fn gzip_or_plain<'a>(
    mut reader: impl BufRead + 'a,
) -> std::io::Result<Box<dyn Read + 'a>> {
    if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        Ok(Box::new(MultiGzDecoder::new(reader)))
    } else {
        Ok(Box::new(reader))
    }
}

/// The MD5 of a file as hexadecimal digits.
pub fn md5_of(path: &Path) -> Result<String> {
    let mut file = regular::open(path).map_err(|e| Error::file("read", path, e))?;
    let mut context = md5::Context::new();
    std::io::copy(&mut file, &mut context).map_err(|e| Error::file("read", path, e))?;
    Ok(format!("{:x}", context.finalize()))
}

/// Refuses a file with another MD5.
pub(super) fn check_md5(path: &Path, expected: &str) -> Result<()> {
    let found = md5_of(path)?;
    if found == expected {
        return Ok(());
    }
    let text = format!(
        "has the MD5 {found}, but the official file has {expected}; it is incomplete or changed, so remove it and get it again"
    );
    Err(problem(path, text))
}
