//! The readers of image files as functions of bytes, for the fuzz targets.

use std::io::Cursor;
use std::path::Path;

use thinfer_engine::Shape;

use super::decode::Header;
use super::idx::Idx;
use super::picture::{Fit, picture_from_bytes};
use super::{cifar, shards};
use crate::fuzzed::{Checked, Outcome};
use crate::settings::DataKind;

/// Larger pictures are not decoded here: they only take time.
const MOST_PIXELS: usize = 1 << 20;

/// An array of MNIST, gzipped or not.
pub fn idx(bytes: &[u8]) -> Checked {
    let path = Path::new("idx");
    let array = match Idx::from_packed(path, bytes) {
        Ok(array) => array,
        Err(error) => return Ok(Outcome::refused(&error)),
    };
    if array.sizes.iter().product::<usize>() != array.values.len() {
        return Err(format!("{} values of {}", array.values.len(), array.sizes_text()));
    }
    array.md5();
    let mut written = vec![0, 0, 8, array.sizes.len() as u8];
    array.sizes.iter().for_each(|size| written.extend((*size as u32).to_be_bytes()));
    written.extend(&array.values);
    match Idx::from_packed(path, &written[..]) {
        Ok(again) if again == array => Ok(Outcome::Read),
        // An array whose first bytes look like a packed file does not exist: they are zero.
        _ => Err(format!("an array of {} reads otherwise", array.sizes_text())),
    }
}

/// Images of the binary version of both sets.
pub fn cifar_binary(bytes: &[u8]) -> Checked {
    cifar(bytes, false)
}

/// Images of the Python version of both sets.
pub fn cifar_pickle(bytes: &[u8]) -> Checked {
    cifar(bytes, true)
}

fn cifar(bytes: &[u8], python: bool) -> Checked {
    let mut outcome = Outcome::refused(&"");
    for (kind, rows) in
        [DataKind::Cifar10, DataKind::Cifar100].into_iter().flat_map(|k| [(k, 1), (k, 2)])
    {
        match cifar::images_of(kind, python, rows, bytes) {
            Ok(set) if set.labels().len() == rows && set.bytes().len() == rows * 32 * 32 * 3 => {
                outcome = Outcome::Read;
            }
            Ok(set) => return Err(format!("{} labels of {rows} images", set.labels().len())),
            Err(reason) if outcome != Outcome::Read => outcome = Outcome::Refused(reason),
            Err(_) => {}
        }
    }
    Ok(outcome)
}

/// A shard: the places of its images lie in it, one after another.
pub fn shard(bytes: &[u8]) -> Checked {
    match shards::index_of(Cursor::new(bytes), bytes.len() as u64) {
        Ok(images) => {
            let inside = |(offset, len, _): &(u64, u64, shards::Label)| {
                offset.checked_add(*len).is_some_and(|end| end <= bytes.len() as u64)
            };
            let ordered = images.is_sorted_by_key(|(offset, ..)| *offset);
            if images.is_empty() || !ordered || !images.iter().all(inside) {
                return Err(format!("images lie at {images:?} in {} bytes", bytes.len()));
            }
            Ok(Outcome::Read)
        }
        Err(reason) => Ok(Outcome::refused(&reason)),
    }
}

/// A JPEG file. Another kind of picture is refused here, so that each has a corpus of its own.
pub fn jpeg(bytes: &[u8]) -> Checked {
    if bytes.starts_with(&[0xff, 0xd8]) { picture(bytes) } else { Ok(Outcome::refused(&"no JPEG")) }
}

/// A PNG file.
pub fn png(bytes: &[u8]) -> Checked {
    if bytes.starts_with(b"\x89PNG") { picture(bytes) } else { Ok(Outcome::refused(&"no PNG")) }
}

/// Decoded whole and down to the end of the square in its middle, and resized.
fn picture(bytes: &[u8]) -> Checked {
    let header = match Header::read(bytes) {
        Ok(header) => header,
        Err(reason) => return Ok(Outcome::refused(&reason)),
    };
    if header.width * header.height > MOST_PIXELS {
        return Ok(Outcome::refused(&"larger than is decoded here"));
    }
    let mut outcome = Outcome::Read;
    for (fit, channels) in [(Fit::Whole, 3), (Fit::Centre, 1)] {
        let shape = Shape { height: 16, width: 16, channels };
        match picture_from_bytes(bytes.to_vec(), shape, fit) {
            Ok(picture) if picture.bytes.len() == shape.len() => {}
            Ok(picture) => return Err(format!("{} bytes of a picture", picture.bytes.len())),
            Err(reason) => outcome = Outcome::Refused(reason),
        }
    }
    Ok(outcome)
}
