//! MNIST and Fashion-MNIST: four IDX files, gzipped or not.

mod official;

use std::path::{Path, PathBuf};

use thinfer_engine::Shape;

use super::idx::Idx;
use super::inspect::Checksums;
use super::{Download, ImageData, ImageSet, Look, Published, problem};
use crate::error::{Error, Result};
use crate::settings::{DataConfig, DataKind};
use official::{FILES, Official, content_md5, differs};

const SIDE: usize = 28;
const GARMENTS: [&str; 10] = [
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
];

/// Where Debian's package `dataset-fashion-mnist` puts the files.
const DEBIAN: &str = "/usr/share/datasets/fashion-mnist";

pub(super) fn published(kind: DataKind) -> Published {
    let digits = kind == DataKind::Mnist;
    let address = if digits {
        // The site of its authors refuses downloads; this is the copy that torchvision uses.
        "https://ossci-datasets.s3.amazonaws.com/mnist/"
    } else {
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    };
    let file = |file: Official| Download { name: file.packed_name, md5: file.packed(kind) };
    Published { address, files: FILES.map(file).to_vec() }
}

/// The set whose files lie at `path`, if there are such files. Both sets have files of the same
/// names and sizes: what the labels are says which it is, or else the name of the folder.
pub(super) fn kind_at(path: &Path) -> Option<DataKind> {
    let folder = place_of(path)?;
    let labels = file(&folder, FILES[1].name()).and_then(|labels| content_md5(&labels).ok());
    let known = [DataKind::Mnist, DataKind::FashionMnist]
        .into_iter()
        .find(|kind| labels.as_deref() == Some(FILES[1].content(*kind)));
    let fashion = || path.to_string_lossy().to_lowercase().contains("fashion");
    let named = || if fashion() { DataKind::FashionMnist } else { DataKind::Mnist };
    Some(known.unwrap_or_else(named))
}

/// Compares the files at `path` with the official ones, packed or not, in words.
pub(super) fn checksums(kind: DataKind, path: &Path) -> Result<Checksums> {
    let folder = place_of(path).unwrap_or_else(|| path.to_owned());
    let mut all = Checksums { lines: Vec::new(), official: Some(true) };
    for official in &FILES {
        let Some(path) = file(&folder, official.name()) else { continue };
        let (same, line) = official.compare(kind, &path)?;
        all.lines.push(line);
        all.official = all.official.map(|before| before && same);
    }
    Ok(all)
}

pub(super) fn load(data: &DataConfig) -> Result<ImageData> {
    let folder = folder(data)?;
    let (train, [train_images, train_labels]) = part(&folder, "train", data.kind)?;
    let (test, [test_images, test_labels]) = part(&folder, "t10k", data.kind)?;
    let mut notes = Vec::new();
    if folder == Path::new(DEBIAN) {
        let package = "the images are those of the package dataset-fashion-mnist";
        notes.push(format!("{package}, in {DEBIAN}"));
    }
    let contents = [train_images, train_labels, test_images, test_labels];
    notes.extend(differs(data.kind, &contents, [&train, &test].map(|part| part.labels.len())));
    look(data.kind).held(data, train, test, notes)
}

fn look(kind: DataKind) -> Look {
    if kind == DataKind::Mnist {
        Look {
            mean: &[0.1307],
            sd: &[0.3081],
            padding: 2,
            flip: false,
            classes: (0..10).map(|digit| digit.to_string()).collect(),
        }
    } else {
        Look {
            mean: &[0.2860],
            sd: &[0.3530],
            padding: 2,
            flip: true,
            classes: GARMENTS.map(str::to_owned).to_vec(),
        }
    }
}

/// Where the files may be below a folder: in it, or where torchvision puts them.
fn places(given: &Path) -> Vec<PathBuf> {
    ["", "raw", "MNIST/raw", "FashionMNIST/raw"].iter().map(|below| given.join(below)).collect()
}

/// The folder at or below `given` that has the files.
fn place_of(given: &Path) -> Option<PathBuf> {
    places(given).into_iter().find(|place| file(place, FILES[0].name()).is_some())
}

/// The folder of the files.
fn folder(data: &DataConfig) -> Result<PathBuf> {
    let given = super::place(data);
    let debian = || {
        let may = data.kind == DataKind::FashionMnist && data.path.is_none();
        may.then(|| place_of(Path::new(DEBIAN))).flatten()
    };
    let found = place_of(&given).or_else(debian);
    found.ok_or_else(|| super::missing(&given, data.kind, "train-images-idx3-ubyte[.gz]"))
}

/// The file called `name`, as it is or gzipped.
fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    let names = [name.to_owned(), format!("{name}.gz")];
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The images of a part, and the MD5 of what is in the files of images and of labels.
fn part(folder: &Path, part: &str, kind: DataKind) -> Result<(ImageSet, [String; 2])> {
    let find = |what: &str| {
        let name = format!("{part}-{what}");
        file(folder, &name).ok_or_else(|| super::missing(folder, kind, &format!("{name}[.gz]")))
    };
    let (images_path, labels_path) = (find("images-idx3-ubyte")?, find("labels-idx1-ubyte")?);
    let images = Idx::read(&images_path)?;
    let [rows, SIDE, SIDE] = images.sizes[..] else {
        let text = format!(
            "holds an array of {}, but the images of {} are {SIDE} x {SIDE}; get the file again with `thinfer data get {}`",
            images.sizes_text(),
            kind.name(),
            kind.name()
        );
        return Err(problem(&images_path, text));
    };
    let labels = Idx::read(&labels_path)?;
    if labels.sizes != [rows] {
        let text = format!(
            "holds an array of {}, but {} has {rows} images; the two files do not belong together, or one of them is damaged",
            labels.sizes_text(),
            images_path.display()
        );
        return Err(problem(&labels_path, text));
    }
    if rows == 0 {
        return Err(problem(&images_path, "holds no images; get the file again"));
    }
    if let Some(at) = labels.values.iter().position(|label| *label > 9) {
        let text = format!(
            "image {} has the label {}, but the labels of {} go from 0 to 9; the file is another one, or damaged",
            at + 1,
            labels.values[at],
            kind.name()
        );
        return Err(problem(&labels_path, text));
    }
    let sums = [images.md5(), labels.md5()];
    let shape = Shape { height: SIDE, width: SIDE, channels: 1 };
    ImageSet::new(shape, images.values, labels.values.into_iter().map(u32::from).collect())
        .map(|set| (set, sums))
        .map_err(|error| Error::Data(format!("{}: {error}", images_path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::super::idx::tests::file as idx_file;
    use super::super::testing::{held, load};
    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn images(rows: usize) -> Vec<u8> {
        let values: Vec<u8> = (0..rows * SIDE * SIDE).map(|i| (i % 251) as u8).collect();
        idx_file(&[rows as u32, 28, 28], &values)
    }

    fn labels(labels: &[u8]) -> Vec<u8> {
        idx_file(&[labels.len() as u32], labels)
    }

    /// Three training images as they are, two test images gzipped.
    fn whole(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("train-images-idx3-ubyte"), images(3)).unwrap();
        fs::write(folder.join("train-labels-idx1-ubyte"), labels(&[9, 0, 4])).unwrap();
        fs::write(folder.join("t10k-images-idx3-ubyte.gz"), gzip(&images(2))).unwrap();
        fs::write(folder.join("t10k-labels-idx1-ubyte.gz"), gzip(&labels(&[1, 2]))).unwrap();
    }

    #[test]
    fn plain_and_gzipped_files_are_read_from_either_layout() {
        for below in ["", "raw", "MNIST/raw"] {
            let folder = tempfile::tempdir().unwrap();
            whole(&folder.path().join(below));
            let data = load("mnist", folder.path(), &[]).unwrap();
            assert_eq!(data.train.labels(), [9, 0, 4]);
            assert_eq!(data.test.labels(), [1, 2]);
            assert_eq!(held(&data.train).image(1)[..3], [31, 32, 33]);
            assert_eq!(held(&data.test).bytes(), &images(2)[16..]);
            assert_eq!((data.classes.len(), data.classes[7].as_str()), (10, "7"));
        }
    }

    #[test]
    fn digits_are_not_mirrored_and_garments_are() {
        let folder = tempfile::tempdir().unwrap();
        whole(folder.path());
        let key = thinfer_engine::noise::Key::new(1, 0, thinfer_engine::noise::Stream::Augment);
        let mirrored = |kind: &str| {
            let augment = load(kind, folder.path(), &[]).unwrap().augment;
            (0..50).filter(|row| augment.choice(key, 0, *row).mirrored).count()
        };
        assert_eq!(mirrored("mnist"), 0);
        assert!(mirrored("fashion-mnist") > 10);
    }

    #[test]
    fn every_damage_has_its_message() {
        let refused = |name: &str, bytes: Option<Vec<u8>>| {
            let folder = tempfile::tempdir().unwrap();
            whole(folder.path());
            let path = folder.path().join(name);
            match bytes {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            load("mnist", folder.path(), &[]).unwrap_err().to_string()
        };
        let train = "train-images-idx3-ubyte";
        let text = refused(train, None);
        assert!(text.contains("thinfer data get mnist --out"), "{text}");
        let text = refused("t10k-labels-idx1-ubyte.gz", None);
        assert!(text.contains("has no t10k-labels-idx1-ubyte[.gz]"), "{text}");
        let text = refused(train, Some(images(3)[..2000].to_vec()));
        assert!(text.contains("ends after 1984 of 2352 values"), "{text}");
        let text = refused(train, Some(idx_file(&[3, 27, 28], &[0; 3 * 27 * 28])));
        assert!(text.contains("3 x 27 x 28") && text.contains("28 x 28"), "{text}");
        let text = refused("train-labels-idx1-ubyte", Some(labels(&[1, 2])));
        assert!(text.contains("has 3 images"), "{text}");
        let text = refused("train-labels-idx1-ubyte", Some(labels(&[1, 2, 10])));
        assert!(text.contains("image 3 has the label 10"), "{text}");
        let text = refused("train-labels-idx1-ubyte", Some(labels(&[])));
        assert!(text.contains("array of 0"), "{text}");
        let packed = gzip(&images(2));
        let text = refused("t10k-images-idx3-ubyte.gz", Some(packed[..packed.len() / 2].to_vec()));
        assert!(text.contains("truncated"), "{text}");
        let mut wrong = packed;
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        let text = refused("t10k-images-idx3-ubyte.gz", Some(wrong));
        assert!(text.contains("truncated or damaged"), "{text}");
    }
}
