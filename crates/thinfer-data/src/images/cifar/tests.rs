//! CIFAR in its binary and Python forms, whole and damaged.

use std::fs;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::pickle::tests::batch as pickled;
use super::*;

/// Two versions of one small set, so that tests need no official file.
const TINY: Collection = Collection {
    kind: DataKind::Cifar10,
    classes: "a b c",
    mean: &[0.0; 3],
    sd: &[1.0; 3],
    versions: [
        Version {
            folder: "tiny-bin",
            archive: "tiny-binary.tar.gz",
            archive_md5: "",
            layout: Layout::Binary { labels: 2 },
            train: &[
                Batch { name: "one.bin", rows: 2, md5: None },
                Batch { name: "two.bin", rows: 1, md5: None },
            ],
            test: Batch { name: "test.bin", rows: 1, md5: None },
        },
        Version {
            folder: "tiny-py",
            archive: "tiny-python.tar.gz",
            archive_md5: "",
            layout: Layout::Pickle { labels: "fine_labels" },
            train: &[
                Batch { name: "one", rows: 2, md5: None },
                Batch { name: "two", rows: 1, md5: None },
            ],
            test: Batch { name: "test", rows: 1, md5: None },
        },
    ],
};

const LABELS: [(&str, &[u8]); 3] = [("one", &[2, 0]), ("two", &[1]), ("test", &[2])];

/// Pixels of an image as planes.
fn planes(label: u8) -> Vec<u8> {
    (0..3 * PIXELS).map(|i| (i as u8).wrapping_mul(7).wrapping_add(label)).collect()
}

fn binary_files() -> Vec<(String, Vec<u8>)> {
    let record = |label: &u8| [vec![19, *label], planes(*label)].concat();
    let file = |(name, labels): (&str, &[u8])| {
        (format!("{name}.bin"), labels.iter().flat_map(record).collect())
    };
    LABELS.map(file).to_vec()
}

fn python_files() -> Vec<(String, Vec<u8>)> {
    let file = |(name, labels): (&str, &[u8])| {
        let pixels: Vec<u8> = labels.iter().flat_map(|label| planes(*label)).collect();
        (name.to_owned(), pickled("fine_labels", labels, 3 * PIXELS, &pixels))
    };
    LABELS.map(file).to_vec()
}

fn write(folder: &Path, files: &[(String, Vec<u8>)]) {
    fs::create_dir_all(folder).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
}

fn pack(path: &Path, below: &str, files: &[(String, Vec<u8>)]) {
    let packed = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
    let mut archive = tar::Builder::new(packed);
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, format!("{below}/{name}"), &bytes[..]).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

fn assert_whole(read: Result<(ImageSet, ImageSet)>) {
    let (train, test) = read.unwrap();
    assert_eq!((train.labels(), test.labels()), (&[2, 0, 1][..], &[2][..]));
    for (set, row) in [(&train, 0), (&train, 1), (&train, 2), (&test, 0)] {
        let planes = planes(set.labels()[row] as u8);
        for (pixel, channel) in [(0, 0), (33, 1), (1023, 2)] {
            let expected = planes[channel * PIXELS + pixel];
            assert_eq!(set.image(row)[3 * pixel + channel], expected);
        }
    }
}

/// The small set with the right checksums of two archives.
fn with_archives(binary: &Path, python: &Path) -> Collection {
    let mut tiny = TINY;
    for (version, path) in tiny.versions.iter_mut().zip([binary, python]) {
        if path.exists() {
            version.archive_md5 = md5_of(path).unwrap().leak();
        }
    }
    tiny
}

#[test]
fn both_versions_are_read_unpacked_and_packed() {
    for (files, below, archive) in [
        (binary_files(), "tiny-bin", "tiny-binary.tar.gz"),
        (python_files(), "tiny-py", "tiny-python.tar.gz"),
    ] {
        for at in ["", below] {
            let folder = tempfile::tempdir().unwrap();
            write(&folder.path().join(at), &files);
            assert_whole(TINY.read(folder.path()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(archive);
        // Files may come in any order.
        let reversed: Vec<_> = files.iter().rev().cloned().collect();
        pack(&path, below, &reversed);
        let tiny = with_archives(&folder.path().join("tiny-binary.tar.gz"), &path);
        assert_whole(tiny.read(folder.path()));
        let renamed = folder.path().join("renamed.tgz");
        fs::rename(&path, &renamed).unwrap();
        assert_whole(tiny.read(&renamed));
    }
}

#[test]
fn archives_with_another_md5_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny-binary.tar.gz");
    pack(&path, "tiny-bin", &binary_files());
    let tiny = with_archives(&path, &path);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let text = tiny.read(folder.path()).unwrap_err().to_string();
    assert!(text.contains("the official file has") && text.contains("get it again"), "{text}");
    let text = tiny.read(&path).unwrap_err().to_string();
    assert!(text.contains("the official files are tiny-binary.tar.gz"), "{text}");
}

#[test]
fn an_archive_without_one_of_its_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny-python.tar.gz");
    pack(&path, "tiny-py", &python_files()[1..]);
    let tiny = with_archives(&folder.path().join("none"), &path);
    let text = tiny.read(folder.path()).unwrap_err().to_string();
    assert!(text.contains("has no file one"), "{text}");
}

#[test]
fn damaged_files_are_refused_with_the_reason() {
    let refused = |files: &[(String, Vec<u8>)]| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), files);
        TINY.read(folder.path()).unwrap_err().to_string()
    };
    let mut files = binary_files();
    files[1].1.pop();
    let text = refused(&files);
    assert!(text.contains("two.bin: has 3073 bytes, but must have 3074"), "{text}");
    let mut files = binary_files();
    files[0].1[1 + 2 + 3072] = 3;
    let text = refused(&files);
    assert!(text.contains("gives image 2 the label 3") && text.contains("0 to 2"), "{text}");
    let text = refused(&binary_files()[..2]);
    assert!(text.contains("test.bin"), "{text}");
    let mut files = python_files();
    files[0].1.truncate(4000);
    let text = refused(&files);
    assert!(text.contains("one: ends too early"), "{text}");
    let mut files = python_files();
    files[2].1 = b"garbage".to_vec();
    assert!(refused(&files).contains("test: "));
    let mut files = python_files();
    files[1].1 = pickled("labels", &[1], 3 * PIXELS, &planes(1));
    assert!(refused(&files).contains("no list under `fine_labels`"));
    files[1].1 = pickled("fine_labels", &[1, 1], PIXELS, &planes(1)[..2 * PIXELS]);
    let text = refused(&files);
    assert!(text.contains("has 2 images of 1024 bytes and 2 labels"), "{text}");
}

#[test]
fn official_files_are_compared_with_their_md5() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("cifar-10-batches-py"), &[("data_batch_1".into(), vec![1])]);
    let text = CIFAR10.read(folder.path()).unwrap_err().to_string();
    assert!(text.contains("c99cafc152244af753f735de768cd75f"), "{text}");
    assert!(text.contains("thinfer data get cifar10"), "{text}");
}

#[test]
fn an_empty_place_says_how_to_get_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let text = CIFAR100.read(folder.path()).unwrap_err().to_string();
    for part in ["cifar-100-binary.tar.gz", "cifar-100-python", "thinfer data get cifar100"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!((CIFAR10.names().count(), CIFAR100.names().count()), (10, 100));
    assert!(CIFAR100.names().is_sorted());
}
