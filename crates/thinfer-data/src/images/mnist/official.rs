//! The official files of MNIST and Fashion-MNIST, known by their MD5: as they are published, and
//! unpacked, so that files that were packed again are known too.

use std::io::BufReader;
use std::path::Path;

use super::super::{gzip_or_plain, md5_of};
use crate::error::{Error, Result};
use crate::files::regular;
use crate::settings::DataKind;

/// Training and test images of both sets.
const ROWS: [usize; 2] = [60_000, 10_000];

/// A file of both sets.
pub(super) struct Official {
    /// Its name as it is downloaded.
    pub(super) packed_name: &'static str,
    /// The MD5 of the download, of MNIST and of Fashion-MNIST.
    packed: [&'static str; 2],
    /// The MD5 of what is in it.
    content: [&'static str; 2],
}

/// Images and labels to train on, then those to test on.
pub(super) const FILES: [Official; 4] = [
    Official {
        packed_name: "train-images-idx3-ubyte.gz",
        packed: ["f68b3c2dcbeaaa9fbdd348bbdeb94873", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"],
        content: ["6bbc9ace898e44ae57da46a324031adb", "f4a8712d7a061bf5bd6d2ca38dc4d50a"],
    },
    Official {
        packed_name: "train-labels-idx1-ubyte.gz",
        packed: ["d53e105ee54ea40749a09fcbcd1e9432", "25c81989df183df01b3e8a0aad5dffbe"],
        content: ["a25bea736e30d166cdddb491f175f624", "9018921c3c673c538a1fc5bad174d6f9"],
    },
    Official {
        packed_name: "t10k-images-idx3-ubyte.gz",
        packed: ["9fb629c4189551a2d022fa330f9573f3", "bef4ecab320f06d8554ea6380940ec79"],
        content: ["2646ac647ad5339dbf082846283269ea", "8181f5470baa50b63fa0f6fddb340f0a"],
    },
    Official {
        packed_name: "t10k-labels-idx1-ubyte.gz",
        packed: ["ec29112dd5afa0611ce80d1b7f02629c", "bb300cfdad3c16e7a12a480ee83cd310"],
        content: ["27ae3e4e09519cfbb04c329615203637", "15d484375f8d13e6eb1aabb0c3f46965"],
    },
];

/// The set's place in the lists above.
fn place(kind: DataKind) -> usize {
    usize::from(kind == DataKind::FashionMnist)
}

impl Official {
    /// Its name when it is unpacked.
    pub(super) fn name(&self) -> &'static str {
        self.packed_name.trim_end_matches(".gz")
    }

    /// The MD5 of the download.
    pub(super) fn packed(&self, kind: DataKind) -> &'static str {
        self.packed[place(kind)]
    }

    /// The MD5 of what is in it.
    pub(super) fn content(&self, kind: DataKind) -> &'static str {
        self.content[place(kind)]
    }

    /// Whether the file at `path`, packed or not, is the official one, and that in words.
    pub(super) fn compare(&self, kind: DataKind, path: &Path) -> Result<(bool, String)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (found, official) = (md5_of(path)?, self.content(kind));
        if found == self.packed(kind) || found == official {
            return Ok((true, format!("{name}: MD5 {found}, the official file")));
        }
        let content = content_md5(path)?;
        if content == official {
            let text =
                format!("{name}: MD5 {found}, packed again; its content is the official one");
            Ok((true, text))
        } else {
            let text = format!(
                "{name}: the MD5 of its content is {content}, not that of the official file ({official})"
            );
            Ok((false, text))
        }
    }
}

/// The MD5 of a file after unpacking.
pub(super) fn content_md5(path: &Path) -> Result<String> {
    let unreadable = |e| Error::file("read", path, e);
    let file = regular::open(path).map_err(unreadable)?;
    let mut reader = gzip_or_plain(BufReader::new(file)).map_err(unreadable)?;
    let mut context = md5::Context::new();
    std::io::copy(&mut reader, &mut context).map_err(unreadable)?;
    Ok(format!("{:x}", context.finalize()))
}

/// What sets files apart from the official ones of `kind`, by the MD5 of what is in each and by the
/// number of training and test images. Other files are somebody's own, which is no mistake.
pub(super) fn differs(kind: DataKind, contents: &[String; 4], rows: [usize; 2]) -> Option<String> {
    let all = |kind| FILES.iter().zip(contents).all(|(file, found)| file.content(kind) == found);
    if all(kind) {
        return None;
    }
    let name = kind.name();
    let other = if kind == DataKind::Mnist { DataKind::FashionMnist } else { DataKind::Mnist };
    if all(other) {
        let other = other.name();
        return Some(format!(
            "these are the official files of {other} and not of {name}; with data.kind = \"{other}\" the classes have their names"
        ));
    }
    let how = if rows == ROWS {
        let changed = FILES.iter().zip(contents).filter(|(file, md5)| file.content(kind) != *md5);
        let changed: Vec<&str> = changed.map(|(file, _)| file.name()).collect();
        format!("the content of {} is another one", changed.join(", "))
    } else {
        let ([train, test], [of, and]) = (rows, ROWS);
        format!("it has {train} and {test} images, the official one {of} and {and}")
    };
    Some(format!("this is not the official set {name} but images of your own: {how}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataKind::{FashionMnist, Mnist};

    fn contents(kind: DataKind) -> [String; 4] {
        FILES.each_ref().map(|file| file.content(kind).to_owned())
    }

    #[test]
    fn official_files_are_known_and_others_are_somebodys_own() {
        for kind in [Mnist, FashionMnist] {
            assert_eq!(differs(kind, &contents(kind), ROWS), None);
        }
        let text = differs(Mnist, &contents(FashionMnist), ROWS).unwrap();
        assert!(text.contains("official files of fashion-mnist and not of mnist"), "{text}");
        let mut changed = contents(Mnist);
        changed[3] = "0".repeat(32);
        let text = differs(Mnist, &changed, ROWS).unwrap();
        assert!(text.contains("images of your own: the content of t10k-labels-idx1"), "{text}");
        assert!(!text.contains("train-"), "{text}");
        let text = differs(Mnist, &changed, [3, 2]).unwrap();
        assert!(text.contains("3 and 2 images, the official one 60000 and 10000"), "{text}");
    }

    #[test]
    fn files_are_the_same_packed_unpacked_and_packed_again() {
        use std::io::Write;
        let gzip = |level: u32| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            encoder.write_all(&[7; 999]).unwrap();
            encoder.finish().unwrap()
        };
        let sum = |bytes: &[u8]| -> &'static str { format!("{:x}", md5::compute(bytes)).leak() };
        let (published, again) = (gzip(9), gzip(0));
        let official = Official {
            packed_name: "a.gz",
            packed: [sum(&published), ""],
            content: [sum(&[7; 999]), ""],
        };
        let folder = tempfile::tempdir().unwrap();
        let compare = |bytes: &[u8]| {
            let path = folder.path().join("a.gz");
            std::fs::write(&path, bytes).unwrap();
            official.compare(Mnist, &path).unwrap()
        };
        for (bytes, same, end) in [
            (&published[..], true, ", the official file"),
            (&[7; 999], true, ", the official file"),
            (&again, true, ", packed again; its content is the official one"),
            (&[8; 999], false, " not that of the official file"),
        ] {
            let (found, line) = compare(bytes);
            assert_eq!(found, same, "{line}");
            assert!(line.starts_with("a.gz: ") && line.contains(end), "{line}");
        }
    }

    /// Every MD5 stands for one file of one set.
    #[test]
    fn no_sum_occurs_twice() {
        let sums = FILES.iter().flat_map(|file| file.packed.iter().chain(&file.content));
        let mut sums: Vec<&&str> = sums.collect();
        assert!(sums.iter().all(|sum| sum.len() == 32));
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), 16);
    }
}
