//! Says what is in a folder of images, and whether it can be used.

use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use super::broken::{Unreadable, counted};
use super::stream::Item;
use super::user_images::Listing;
use super::{ImageData, cifar, mnist};
use crate::error::{Error, Result};
use crate::settings::{DataConfig, DataKind};

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// What it is, as `data.kind` names it.
    pub kind: DataKind,
    /// Training images. All of them where they are not divided.
    pub train: usize,
    /// Test images; nothing where the images are not divided.
    pub test: Option<usize>,
    /// The classes, in their order.
    pub classes: Vec<ClassCount>,
    /// The smallest and the largest width of the images.
    pub width: (usize, usize),
    /// The smallest and the largest height.
    pub height: (usize, usize),
    /// What was compared with checksums, and what came out.
    pub checksums: Vec<String>,
    /// Whether these are the official files of the set; nothing where there is none to compare
    /// with.
    pub official: Option<bool>,
    /// Images that cannot be read, and why.
    pub unreadable: Vec<Unreadable>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// How many images a class has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The name of the class.
    pub name: String,
    /// Training images.
    pub train: usize,
    /// Test images.
    pub test: usize,
    /// Training images that cannot be read.
    pub unreadable: usize,
}

/// What came of comparing files with official ones.
pub(super) struct Checksums {
    /// In words, one line a file.
    pub(super) lines: Vec<String>,
    /// Whether all are the official ones, where that is known.
    pub(super) official: Option<bool>,
}

impl Inspection {
    /// Why a run that passes over `allowed` unreadable images cannot use what was found, if so.
    pub fn problem(&self, allowed: usize) -> Option<String> {
        let unreadable = self.unreadable.len();
        if unreadable > allowed {
            let images = counted(unreadable);
            return Some(format!(
                "{images} cannot be read, more than the {allowed} that `data.skip_at_most` allows; repair or remove them, or allow more"
            ));
        }
        if self.test.is_none() && self.classes.iter().all(|class| class.train < 2) {
            return Some("has one image a class, so none can be held out; add some".to_owned());
        }
        let of_test = unreadable - self.classes.iter().map(|class| class.unreadable).sum::<usize>();
        if of_test > 0 && self.test == Some(of_test) {
            return Some("no test image can be read; repair or replace them".to_owned());
        }
        let dead =
            self.classes.iter().find(|class| class.train > 0 && class.unreadable == class.train)?;
        Some(format!(
            "no training image of the class `{}` can be read; repair them, or remove the class",
            dead.name
        ))
    }

    /// Reads all images at `path`. Without a kind it is guessed from the names of the files.
    pub fn of(path: &Path, kind: Option<DataKind>) -> Result<Self> {
        let found = path.metadata().map_err(|e| Error::file("read", path, e));
        found?;
        match kind.unwrap_or_else(|| guess(path)) {
            DataKind::Images => own(path),
            kind => published(path, kind),
        }
    }
}

/// The kind that the files at `path` look like.
fn guess(path: &Path) -> DataKind {
    for kind in [DataKind::Cifar10, DataKind::Cifar100] {
        if cifar::is_at(kind, path) {
            return kind;
        }
    }
    mnist::kind_at(path).unwrap_or(DataKind::Images)
}

fn published(path: &Path, kind: DataKind) -> Result<Inspection> {
    let text = path.to_str().ok_or_else(|| {
        Error::Data(format!(
            "{}: is no text that a configuration could hold; rename it",
            path.display()
        ))
    })?;
    let settings = DataConfig { kind, path: Some(text.to_owned()), ..DataConfig::default() };
    let data = ImageData::load(&settings, 1)?;
    let count = |labels: &[u32], class: usize| {
        labels.iter().filter(|label| **label as usize == class).count()
    };
    let class = |(class, name): (usize, &String)| ClassCount {
        name: name.clone(),
        train: count(data.train.labels(), class),
        test: count(data.test.labels(), class),
        unreadable: 0,
    };
    let shape = data.train.shape();
    let Checksums { lines, official } = match kind {
        DataKind::Cifar10 | DataKind::Cifar100 => cifar::checksums(kind, path),
        _ => mnist::checksums(kind, path)?,
    };
    Ok(Inspection {
        kind,
        train: data.train.rows(),
        test: Some(data.test.rows()),
        classes: data.classes.iter().enumerate().map(class).collect(),
        width: (shape.width, shape.width),
        height: (shape.height, shape.height),
        checksums: lines,
        official,
        unreadable: Vec::new(),
        notes: data.notes,
    })
}

fn own(path: &Path) -> Result<Inspection> {
    let listing = Listing::read(path)?;
    let none = Vec::new();
    let test = listing.test.as_ref().unwrap_or(&none);
    let all: Vec<&Item> = listing.train.iter().chain(test).collect();
    let sizes: Vec<std::result::Result<(usize, usize), String>> =
        all.par_iter().map(|item| item.decoded()).collect();
    let unreadable = all.iter().zip(&sizes).filter_map(|(item, size)| {
        let problem = size.as_ref().err()?.clone();
        Some(Unreadable { name: item.name(), problem })
    });
    let of_train = listing.train.iter().zip(&sizes);
    let broken: Vec<&Item> =
        of_train.filter(|(_, size)| size.is_err()).map(|(item, _)| item).collect();
    let range = |of: fn(&(usize, usize)) -> usize| {
        let values = || sizes.iter().flatten().map(of);
        (values().min().unwrap_or(0), values().max().unwrap_or(0))
    };
    let count = |items: &[Item], class: usize| {
        items.iter().filter(|item| item.label as usize == class).count()
    };
    let class = |(class, name): (usize, &String)| ClassCount {
        name: name.clone(),
        train: count(&listing.train, class),
        test: count(test, class),
        unreadable: broken.iter().filter(|item| item.label as usize == class).count(),
    };
    Ok(Inspection {
        kind: DataKind::Images,
        train: listing.train.len(),
        test: listing.test.as_ref().map(Vec::len),
        classes: listing.classes.iter().enumerate().map(class).collect(),
        width: range(|size| size.0),
        height: range(|size| size.1),
        checksums: Vec::new(),
        official: None,
        unreadable: unreadable.collect(),
        notes: listing.notes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{jpeg, png, write};
    use super::*;

    #[test]
    fn own_images_are_counted_and_decoded() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let whole = jpeg(40, 30, 1);
        write(root, "train/a/1.jpg", &whole);
        write(root, "train/a/2.jpg", &whole[..whole.len() / 2]);
        write(root, "train/b/1.png", &png(20, 50, ::png::ColorType::Rgb, 1));
        write(root, "val/b/1.jpg", &whole);
        let found = Inspection::of(root, None).unwrap();
        assert_eq!(found.kind, DataKind::Images);
        assert_eq!((found.train, found.test), (3, Some(1)));
        let class = |name: &str, train, test| ClassCount {
            name: name.into(),
            train,
            test,
            unreadable: usize::from(name == "a"),
        };
        assert_eq!(found.classes, [class("a", 2, 0), class("b", 1, 1)]);
        assert_eq!((found.width, found.height), ((20, 40), (30, 50)));
        assert_eq!(found.unreadable.len(), 1);
        assert!(found.unreadable[0].name.ends_with("2.jpg"));
        assert_eq!(found.unreadable[0].problem, "is truncated");
        assert_eq!(found.problem(1), None);
        assert!(found.problem(0).unwrap().starts_with("1 image cannot be read"));
        // All of a class: within the limit, and yet of no use.
        write(root, "train/a/1.jpg", b"x");
        let problem = Inspection::of(root, None).unwrap().problem(9).unwrap();
        assert!(problem.starts_with("no training image of the class `a`"), "{problem}");
    }

    #[test]
    fn what_a_run_has_nothing_to_test_on_with_is_not_usable() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let problem = |allowed| Inspection::of(root, None).unwrap().problem(allowed);
        write(root, "a/1.jpg", &jpeg(40, 30, 1));
        write(root, "b/1.jpg", &jpeg(40, 30, 2));
        assert!(problem(9).unwrap().contains("one image a class"));
        write(root, "b/2.jpg", &jpeg(40, 30, 3));
        assert_eq!(problem(9), None, "one of b can be held out");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let problem = |allowed| Inspection::of(root, None).unwrap().problem(allowed);
        for name in ["train/a/1.jpg", "train/b/1.jpg", "train/b/2.jpg"] {
            write(root, name, &jpeg(40, 30, 1));
        }
        write(root, "train/b/3.jpg", b"x");
        write(root, "val/a/1.jpg", b"x");
        write(root, "val/b/1.jpg", b"x");
        assert!(problem(9).unwrap().starts_with("no test image can be read"));
        assert!(problem(2).unwrap().starts_with("3 images cannot be read"));
        write(root, "val/b/2.jpg", &jpeg(40, 30, 1));
        assert_eq!(problem(9), None);
    }

    #[test]
    fn the_kind_is_guessed_from_names() {
        use DataKind::{Cifar10, Cifar100, FashionMnist, Mnist};
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(guess(root), DataKind::Images);
        write(root, "a/cifar-10-batches-bin/data_batch_1.bin", b"");
        write(root, "b/cifar-100-python.tar.gz", b"");
        write(root, "c/raw/train-images-idx3-ubyte.gz", b"");
        write(root, "fashion/train-images-idx3-ubyte", b"");
        let kinds = ["a", "b", "c", "fashion"].map(|name| guess(&root.join(name)));
        assert_eq!(kinds, [Cifar10, Cifar100, Mnist, FashionMnist]);
        let text = Inspection::of(&root.join("none"), None).unwrap_err().to_string();
        assert!(text.starts_with("could not read"), "{text}");
    }

    #[test]
    fn idx_files_are_counted_by_class_and_compared() {
        use super::super::idx::tests::file;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (part, rows) in [("train", 3), ("t10k", 2)] {
            let images = file(&[rows, 28, 28], &vec![9; 784 * rows as usize]);
            write(root, &format!("{part}-images-idx3-ubyte"), &images);
            let labels = file(&[rows], &vec![4; rows as usize]);
            write(root, &format!("{part}-labels-idx1-ubyte.gz"), &labels);
        }
        let found = Inspection::of(root, Some(DataKind::Mnist)).unwrap();
        assert_eq!((found.train, found.test, found.width), (3, Some(2), (28, 28)));
        assert_eq!((found.classes[4].train, found.classes[4].test), (3, 2));
        assert_eq!((found.checksums.len(), found.official), (4, Some(false)));
        for line in &found.checksums {
            assert!(line.contains("not that of the official file"), "{line}");
        }
        assert_eq!(found.problem(0), None, "files of one's own are no mistake");
        let note = &found.notes[0];
        assert!(
            note.contains("not the official set") && note.contains("60000 and 10000"),
            "{note}"
        );
    }
}
