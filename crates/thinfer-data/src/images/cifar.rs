//! CIFAR-10 and CIFAR-100: the official binary and Python versions, packed or not.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use thinfer_engine::Shape;

use super::inspect::Checksums;
use super::pickle;
use super::{
    Download, ImageData, ImageSet, Look, Published, check_md5, md5_of, missing, place, problem,
};
use crate::error::{Error, Result};
use crate::files::regular;
use crate::memory::{available_memory, check_memory};
use crate::settings::{DataConfig, DataKind};

/// Bytes that a file of images may have: the largest official one has 148 MiB.
const MOST_BYTES: u64 = 256 << 20;

const SIDE: usize = 32;
const PIXELS: usize = SIDE * SIDE;

/// One of the two sets.
struct Collection {
    kind: DataKind,
    /// Their names, with blanks between.
    classes: &'static str,
    mean: &'static [f32],
    sd: &'static [f32],
    versions: [Version; 2],
}

/// The files of one version.
struct Version {
    /// The folder that the archive unpacks to.
    folder: &'static str,
    archive: &'static str,
    archive_md5: &'static str,
    layout: Layout,
    train: &'static [Batch],
    test: Batch,
}

/// One file of images.
struct Batch {
    name: &'static str,
    rows: usize,
    /// The official MD5 where it is known.
    md5: Option<&'static str>,
}

/// How a file holds its images; pixels are always planes of red, green and blue.
#[derive(Clone, Copy)]
enum Layout {
    /// So many bytes of labels, of which the last counts, then the pixels, image after image.
    Binary { labels: usize },
    /// A pickled dictionary with the pixels under `data` and the labels under this key.
    Pickle { labels: &'static str },
}

const fn batch(name: &'static str, rows: usize, md5: &'static str) -> Batch {
    Batch { name, rows, md5: Some(md5) }
}

static CIFAR10: Collection = Collection {
    kind: DataKind::Cifar10,
    classes: "airplane automobile bird cat deer dog frog horse ship truck",
    mean: &[0.4914, 0.4822, 0.4465],
    sd: &[0.2023, 0.1994, 0.2010],
    versions: [
        Version {
            folder: "cifar-10-batches-bin",
            archive: "cifar-10-binary.tar.gz",
            archive_md5: "c32a1d4ab5d03f1284b67883e8d87530",
            layout: Layout::Binary { labels: 1 },
            train: &[
                batch("data_batch_1.bin", 10_000, "5dd7e06a14cb22eb9f671a540d1b7c25"),
                batch("data_batch_2.bin", 10_000, "5ea93a67294ea407fff1d09f752e9692"),
                batch("data_batch_3.bin", 10_000, "942cd6a4bcdd0dd3c604fbe906cb4421"),
                batch("data_batch_4.bin", 10_000, "ae636b3ba5c66a11e91e8cb52e771fcb"),
                batch("data_batch_5.bin", 10_000, "53f37980c15c3d472c316c40844f3f0d"),
            ],
            test: batch("test_batch.bin", 10_000, "803d5f7f4d78ea53de84dbe85f74fb6d"),
        },
        Version {
            folder: "cifar-10-batches-py",
            archive: "cifar-10-python.tar.gz",
            archive_md5: "c58f30108f718f92721af3b95e74349a",
            layout: Layout::Pickle { labels: "labels" },
            train: &[
                batch("data_batch_1", 10_000, "c99cafc152244af753f735de768cd75f"),
                batch("data_batch_2", 10_000, "d4bba439e000b95fd0a9bffe97cbabec"),
                batch("data_batch_3", 10_000, "54ebc095f3ab1f0389bbae665268c751"),
                batch("data_batch_4", 10_000, "634d18415352ddfa80567beed471001a"),
                batch("data_batch_5", 10_000, "482c414d41f54cd18b22e5b47cb7c3cb"),
            ],
            test: batch("test_batch", 10_000, "40351d587109b95175f43aff81a1287e"),
        },
    ],
};

static CIFAR100: Collection = Collection {
    kind: DataKind::Cifar100,
    classes: "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge \
        bus butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud \
        cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox \
        girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man \
        maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree \
        pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray \
        road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel \
        streetcar sunflower sweet_pepper table tank telephone television tiger tractor train \
        trout tulip turtle wardrobe whale willow_tree wolf woman worm",
    mean: &[0.5071, 0.4867, 0.4408],
    sd: &[0.2675, 0.2565, 0.2761],
    versions: [
        Version {
            folder: "cifar-100-binary",
            archive: "cifar-100-binary.tar.gz",
            archive_md5: "03b5dce01913d631647c71ecec9e9cb8",
            // The first byte is the class among the 20 coarse ones.
            layout: Layout::Binary { labels: 2 },
            train: &[Batch { name: "train.bin", rows: 50_000, md5: None }],
            test: Batch { name: "test.bin", rows: 10_000, md5: None },
        },
        Version {
            folder: "cifar-100-python",
            archive: "cifar-100-python.tar.gz",
            archive_md5: "eb9058c3a382ffc7106e4002c42a8d85",
            layout: Layout::Pickle { labels: "fine_labels" },
            train: &[batch("train", 50_000, "16019d7e3df5f24257cddd939b257f8d")],
            test: batch("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        },
    ],
};

fn collection(kind: DataKind) -> &'static Collection {
    if kind == DataKind::Cifar10 { &CIFAR10 } else { &CIFAR100 }
}

/// The binary version, which is the quickest to read.
pub(super) fn published(kind: DataKind) -> Published {
    let version = &collection(kind).versions[0];
    let file = Download { name: version.archive, md5: version.archive_md5 };
    Published { address: "https://www.cs.toronto.edu/~kriz/", files: vec![file] }
}

/// Whether a version lies at `path`.
pub(super) fn is_at(kind: DataKind, path: &Path) -> bool {
    collection(kind).find(path).is_ok()
}

/// What reading the files at `path` has compared with official checksums, in words.
pub(super) fn checksums(kind: DataKind, path: &Path) -> Checksums {
    let Ok((version, source)) = collection(kind).find(path) else {
        return Checksums { lines: Vec::new(), official: None };
    };
    let batch = |batch: &Batch| match batch.md5 {
        Some(md5) => format!("{}: MD5 {md5}, the official file", batch.name),
        None => format!("{}: no official MD5 is known; size and labels are right", batch.name),
    };
    // Files with another MD5 were refused when they were read.
    match source {
        Source::Folder(_) => {
            let batches = || version.train.iter().chain([&version.test]);
            let known = batches().all(|batch| batch.md5.is_some());
            Checksums { lines: batches().map(batch).collect(), official: known.then_some(true) }
        }
        Source::Archive(_) => {
            let line =
                format!("{}: MD5 {}, the official file", version.archive, version.archive_md5);
            Checksums { lines: vec![line], official: Some(true) }
        }
    }
}

pub(super) fn load(data: &DataConfig) -> Result<ImageData> {
    let collection = collection(data.kind);
    let (train, test) = collection.read(&place(data))?;
    let look = Look {
        mean: collection.mean,
        sd: collection.sd,
        padding: 4,
        flip: true,
        classes: collection.names().map(str::to_owned).collect(),
    };
    look.held(data, train, test, Vec::new())
}

/// Where the files of a version were found.
enum Source {
    Folder(PathBuf),
    Archive(PathBuf),
}

impl Collection {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.classes.split_whitespace()
    }

    fn read(&self, given: &Path) -> Result<(ImageSet, ImageSet)> {
        let (version, source) = self.find(given)?;
        let rows = version.train.iter().map(|batch| batch.rows).sum::<usize>() + version.test.rows;
        // The images, and the largest file beside them.
        let largest = version.train.iter().map(|batch| batch.rows).max().unwrap_or(0);
        let bytes = (rows + 2 * largest) as u64 * 3 * PIXELS as u64;
        check_memory(self.kind.name(), Some(bytes), available_memory())?;
        match source {
            Source::Folder(folder) => version.read_folder(&folder, self),
            Source::Archive(archive) => {
                check_md5(&archive, version.archive_md5)?;
                version.read_archive(&archive, self)
            }
        }
    }

    /// The version that is there, and where: files before archives, binary before Python.
    fn find(&self, given: &Path) -> Result<(&Version, Source)> {
        if given.is_file() {
            return self.archive(given).map(|version| (version, Source::Archive(given.into())));
        }
        for version in &self.versions {
            for folder in [given.to_owned(), given.join(version.folder)] {
                // CIFAR-100's Python files are called `train` and `test`, as folders of images may
                // be.
                if version.train.iter().any(|batch| folder.join(batch.name).is_file()) {
                    return Ok((version, Source::Folder(folder)));
                }
            }
        }
        for version in &self.versions {
            let archive = given.join(version.archive);
            if archive.is_file() {
                return Ok((version, Source::Archive(archive)));
            }
        }
        let wanted = self.versions.each_ref().map(|v| format!("{} or {}", v.archive, v.folder));
        Err(missing(given, self.kind, &wanted.join(", ")))
    }

    /// The version that an archive is, whatever its name.
    fn archive(&self, path: &Path) -> Result<&Version> {
        let found = md5_of(path)?;
        let version = self.versions.iter().find(|version| version.archive_md5 == found);
        version.ok_or_else(|| {
            let known = self.versions.each_ref().map(|v| format!("{} ({})", v.archive, v.archive_md5));
            let text = format!(
                "has the MD5 {found}, but the official files are {}; it is incomplete or another file, so get it again with `thinfer data get {}`",
                known.join(" and "),
                self.kind.name()
            );
            problem(path, text)
        })
    }
}

impl Version {
    fn read_folder(&self, folder: &Path, collection: &Collection) -> Result<(ImageSet, ImageSet)> {
        let read = |batch: &Batch, into: &mut Rows| {
            let path = folder.join(batch.name);
            let bytes = regular::read_up_to(&path, MOST_BYTES)
                .map_err(|e| Error::file("read", &path, e))?;
            if let Some(expected) = batch.md5 {
                let found = format!("{:x}", md5::compute(&bytes));
                if found != expected {
                    let text = format!(
                        "has {} bytes and the MD5 {found}, but the official file has {expected}; it is incomplete or changed, so remove it and get it again with `thinfer data get {}`",
                        bytes.len(),
                        collection.kind.name()
                    );
                    return Err(problem(&path, text));
                }
            }
            let read = self.layout.read(batch.rows, collection, &bytes, into);
            read.map_err(|text| problem(&path, text))
        };
        let (mut train, mut test) = (Rows::default(), Rows::default());
        for batch in self.train {
            read(batch, &mut train)?;
        }
        read(&self.test, &mut test)?;
        Ok((train.into_set()?, test.into_set()?))
    }

    /// Reads the archive once; its files may come in any order.
    fn read_archive(&self, path: &Path, collection: &Collection) -> Result<(ImageSet, ImageSet)> {
        let unreadable = |error: std::io::Error| {
            problem(path, format!("cannot be unpacked ({error}); remove it and get it again"))
        };
        let file = regular::open(path).map_err(|e| Error::file("read", path, e))?;
        let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
        let batches: Vec<&Batch> = self.train.iter().chain([&self.test]).collect();
        let mut parts: Vec<Option<Rows>> = batches.iter().map(|_| None).collect();
        for entry in archive.entries().map_err(unreadable)? {
            let mut entry = entry.map_err(unreadable)?;
            let name = entry.path().map_err(unreadable)?;
            let name = name.file_name().unwrap_or_default().to_owned();
            let Some(at) = batches.iter().position(|batch| name == batch.name) else { continue };
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(unreadable)?;
            let mut rows = Rows::default();
            let read = self.layout.read(batches[at].rows, collection, &bytes, &mut rows);
            read.map_err(|text| problem(path, format!("{} {text}", batches[at].name)))?;
            parts[at] = Some(rows);
        }
        let mut sets = [Rows::default(), Rows::default()];
        for (at, part) in parts.into_iter().enumerate() {
            let Some(part) = part else {
                return Err(problem(
                    path,
                    format!("has no file {}; get it again", batches[at].name),
                ));
            };
            sets[usize::from(at == self.train.len())].extend(part);
        }
        let [train, test] = sets;
        Ok((train.into_set()?, test.into_set()?))
    }
}

/// The images of one file of a set, of which there must be so many; the problem is in words.
pub(super) fn images_of(
    kind: DataKind,
    python: bool,
    rows: usize,
    bytes: &[u8],
) -> std::result::Result<ImageSet, String> {
    let collection = collection(kind);
    let version = &collection.versions[usize::from(python)];
    let mut found = Rows::default();
    version.layout.read(rows, collection, bytes, &mut found)?;
    found.into_set().map_err(|error| error.to_string())
}

impl Layout {
    /// Adds the images of one file, or says what is wrong with it.
    fn read(
        self,
        rows: usize,
        collection: &Collection,
        bytes: &[u8],
        into: &mut Rows,
    ) -> std::result::Result<(), String> {
        const AGAIN: &str = "it is incomplete or damaged, so get it again";
        match self {
            Layout::Binary { labels } => {
                let record = labels + 3 * PIXELS;
                if bytes.len() != rows * record {
                    let (got, expected) = (bytes.len(), rows * record);
                    return Err(format!("has {got} bytes, but must have {expected}; {AGAIN}"));
                }
                for (row, record) in bytes.chunks_exact(record).enumerate() {
                    into.label(i64::from(record[labels - 1]), row, collection)?;
                    into.pixels(&record[labels..]);
                }
            }
            Layout::Pickle { labels } => {
                let value = pickle::parse(bytes).map_err(|text| format!("{text}; {AGAIN}"))?;
                let data = value.get("data").and_then(pickle::Value::byte_matrix);
                let Some((found, columns, data)) = data else {
                    return Err(format!("has no array of bytes under `data`; {AGAIN}"));
                };
                let given = value.get(labels).and_then(pickle::Value::integers);
                let given =
                    given.ok_or_else(|| format!("has no list under `{labels}`; {AGAIN}"))?;
                if [found, columns, given.len()] != [rows, 3 * PIXELS, rows] {
                    return Err(format!(
                        "has {found} images of {columns} bytes and {} labels, but must have {rows} of {}; {AGAIN}",
                        given.len(),
                        3 * PIXELS
                    ));
                }
                for (row, (label, image)) in
                    given.into_iter().zip(data.chunks_exact(columns)).enumerate()
                {
                    into.label(label, row, collection)?;
                    into.pixels(image);
                }
            }
        }
        Ok(())
    }
}

/// Images as they are read.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    labels: Vec<u32>,
}

impl Rows {
    fn label(
        &mut self,
        label: i64,
        row: usize,
        collection: &Collection,
    ) -> std::result::Result<(), String> {
        let classes = collection.names().count();
        match u32::try_from(label) {
            Ok(label) if (label as usize) < classes => self.labels.push(label),
            _ => {
                return Err(format!(
                    "gives image {} the label {label}, but the labels of {} go from 0 to {}; it is damaged, so get it again",
                    row + 1,
                    collection.kind.name(),
                    classes - 1
                ));
            }
        }
        Ok(())
    }

    /// Adds an image, from planes to channels last.
    fn pixels(&mut self, planes: &[u8]) {
        let (red, rest) = planes.split_at(PIXELS);
        let (green, blue) = rest.split_at(PIXELS);
        let pixels = red.iter().zip(green).zip(blue);
        self.bytes.extend(pixels.flat_map(|((red, green), blue)| [*red, *green, *blue]));
    }

    fn extend(&mut self, other: Rows) {
        if self.bytes.is_empty() {
            *self = other;
        } else {
            self.bytes.extend(other.bytes);
            self.labels.extend(other.labels);
        }
    }

    fn into_set(self) -> Result<ImageSet> {
        let shape = Shape { height: SIDE, width: SIDE, channels: 3 };
        ImageSet::new(shape, self.bytes, self.labels)
    }
}

#[cfg(test)]
mod tests;
