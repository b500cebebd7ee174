//! The user's own images: folders of classes, or tar shards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use thinfer_engine::Shape;
use thinfer_engine::augment::Augment;
use thinfer_engine::noise::{Key, Stream};

use super::broken::Patience;
use super::decode::Header;
use super::stream::{Item, Pictures};
use super::{Broken, ImageData, Images, folders, place, problem, shards};
use crate::error::{Error, Result};
use crate::memory::{available_memory, check_memory, human_bytes};
use crate::settings::DataConfig;

/// Mean and deviation of ImageNet's channels, which pretrained networks expect.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const SD: [f32; 3] = [0.229, 0.224, 0.225];

/// Sides and bytes up to which images of one size are decoded once and kept.
const HELD_SIDE: usize = 64;
const HELD_BYTES: u64 = 1 << 30;

/// Border of the random crops of images that are kept.
const HELD_PADDING: usize = 4;

/// What a folder of images or shards holds.
#[derive(Debug)]
pub(super) struct Listing {
    /// The names of the classes, in their order.
    pub(super) classes: Vec<String>,
    pub(super) train: Vec<Item>,
    /// Nothing where the images are not divided.
    pub(super) test: Option<Vec<Item>>,
    pub(super) notes: Vec<String>,
}

/// The parts that a folder or file name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Train,
    Validation,
    Test,
}

impl Part {
    /// The part that a name starts with.
    pub(super) fn of(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let starts = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        if starts(&["train"]) {
            Some(Part::Train)
        } else if starts(&["val", "dev"]) {
            Some(Part::Validation)
        } else if starts(&["test"]) {
            Some(Part::Test)
        } else {
            None
        }
    }
}

impl Listing {
    /// Lists what is below `path`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let listing = match shards::find(path)? {
            Some(found) => shards::list(path, &found)?,
            None => folders::list(path)?,
        };
        listing.check(path)?;
        Ok(listing)
    }

    fn check(&self, path: &Path) -> Result<()> {
        if self.train.is_empty() && self.test.as_ref().is_none_or(Vec::is_empty) {
            return Err(problem(
                path,
                "has no images (.jpg, .jpeg or .png); set `data.path` to where they are",
            ));
        }
        if self.classes.len() < 2 {
            let text = "has images of one class; at least two are needed to tell apart";
            return Err(problem(path, text));
        }
        let mut counts = vec![0usize; self.classes.len()];
        self.train.iter().for_each(|item| counts[item.label as usize] += 1);
        if let Some(empty) = counts.iter().position(|count| *count == 0) {
            let text = format!(
                "the class `{}` has no training images (.jpg, .jpeg or .png); add some, or remove the class",
                self.classes[empty]
            );
            return Err(problem(path, text));
        }
        if self.test.as_ref().is_some_and(Vec::is_empty) {
            return Err(problem(
                path,
                "has no images to test on; add some, or remove the empty part",
            ));
        }
        Ok(())
    }
}

/// Takes a share of each class out of images that are not divided.
fn hold_out(items: Vec<Item>, classes: usize, share: f64, seed: u64) -> (Vec<Item>, Vec<Item>) {
    let key = Key::new(seed, 0, Stream::Split);
    let mut rows = vec![Vec::new(); classes];
    items.iter().enumerate().for_each(|(row, item)| rows[item.label as usize].push(row));
    let mut held_out = vec![false; items.len()];
    for (class, rows) in rows.iter().enumerate() {
        // At least one of each class is for the test, and at least one stays to learn from.
        let count = (share * rows.len() as f64).round().max(1.0) as usize;
        let order = key.permutation(class as u64, rows.len());
        let count = count.min(rows.len().saturating_sub(1));
        order[..count].iter().for_each(|at| held_out[rows[*at as usize]] = true);
    }
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (item, out) in items.into_iter().zip(held_out) {
        if out { test.push(item) } else { train.push(item) }
    }
    (train, test)
}

/// A number that changes with the images' names, sizes and classes.
fn fingerprint(root: &Path, items: &[Item]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for item in items {
        let name = item.file.strip_prefix(root).unwrap_or(&item.file);
        hasher.update(name.as_os_str().as_encoded_bytes());
        hasher.update(&item.offset.to_le_bytes());
        hasher.update(&item.len.to_le_bytes());
        hasher.update(&item.label.to_le_bytes());
    }
    hasher.finalize()
}

pub(super) fn load(data: &DataConfig, seed: u64) -> Result<ImageData> {
    let root = place(data);
    let Listing { classes, train, test, mut notes } = Listing::read(&root)?;
    let (train, test) = match test {
        Some(test) => (train, test),
        None => hold_out(train, classes.len(), data.holdout, data.seed_in(seed)),
    };
    if test.is_empty() {
        return Err(problem(&root, "has one image a class, so none can be held out; add some"));
    }
    if train.len().max(test.len()) > u32::MAX as usize {
        return Err(problem(&root, "has more images than can be counted; use fewer"));
    }
    let fingerprint = fingerprint(&root, &train);
    let size = data.image_size;
    let patience = Arc::new(Patience::new(data.skip_at_most));
    let flip = data.flip.unwrap_or(true);
    let shape = Shape { height: size, width: size, channels: 3 };
    let first = train.iter().find_map(size_of);
    let bytes = ((train.len() + test.len()) as u64).checked_mul(shape.len() as u64);
    let small = first == Some((size, size))
        && size <= HELD_SIDE
        && bytes.is_some_and(|bytes| bytes <= HELD_BYTES);
    if let Some((width, height)) = first.filter(|(w, h)| *w.max(h) < size) {
        notes.push(format!(
            "the images are small ({width} x {height}) and are enlarged to {size} x {size}; `data.image_size` sets another size"
        ));
    }
    let (mut train, test) = (
        Pictures::new(train, size, flip, Arc::clone(&patience)),
        Pictures::new(test, size, flip, Arc::clone(&patience)),
    );
    let (test, left_out) = test.readable()?;
    let of_first = first.map_or(0, |(width, height)| width * height);
    train.know_pixels(test.most_pixels().max(of_first));
    if test.items().is_empty() {
        return Err(problem(
            &root,
            "no test image can be read; list them with `thinfer data check`, and repair or replace them",
        ));
    }
    let mut unreadable = Broken { train: Vec::new(), test: left_out };
    if data.hold || small && one_size(&train, size) && one_size(&test, size) {
        check_memory("the images", bytes, available_memory())?;
        let padding = data.crop_padding.unwrap_or(HELD_PADDING);
        let whole = train.held()?;
        let left_out = &unreadable.test;
        let of_train = patience.found().into_iter().filter(|image| !left_out.contains(image));
        unreadable.train = of_train.collect();
        return Ok(ImageData {
            augment: Augment::new(shape, padding, flip, &MEAN, &SD)?,
            train: Images::Held(Arc::new(whole)),
            test: Images::Held(Arc::new(test.held()?)),
            classes,
            notes,
            unreadable,
            fingerprint,
        });
    }
    if let Some(padding) = data.crop_padding.filter(|padding| *padding > 0) {
        return Err(Error::config(
            "data.crop_padding",
            format!(
                "is {padding}, but these images are cropped at random sizes instead, as they are not all {size} x {size} with at most {HELD_SIDE} pixels a side and {} together; leave it out",
                human_bytes(HELD_BYTES)
            ),
        ));
    }
    Ok(ImageData {
        augment: Augment::new(shape, 0, false, &MEAN, &SD)?,
        train: Images::Streamed(Arc::new(train)),
        test: Images::Streamed(Arc::new(test)),
        classes,
        notes,
        unreadable,
        fingerprint,
    })
}

/// Width and height of an image, if it can be read.
fn size_of(item: &Item) -> Option<(usize, usize)> {
    let mut bytes = Vec::new();
    item.read(&mut bytes).ok()?;
    Header::read(&bytes).ok().map(|header| (header.width, header.height))
}

/// Whether all images that can be read have this size already.
fn one_size(pictures: &Pictures, size: usize) -> bool {
    let items = pictures.items();
    items.par_iter().all(|item| size_of(item).is_none_or(|found| found == (size, size)))
}

/// The folder's entries in the order of their names.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()?;
        entries.sort();
        Ok(entries)
    };
    read().map_err(|e| Error::file("read", folder, e))
}

/// The last part of a path, for comparing and showing.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{held, jpeg, load, png, tar, write};
    use super::super::{ImageData, Images, View};
    use super::*;

    /// Two classes with `each` images, of `size` by `size + 4` pixels where not square.
    fn classes(root: &Path, below: &str, each: usize) {
        for (class, name) in ["cat", "dog"].iter().enumerate() {
            for at in 0..each {
                let file = format!("{below}{name}/{at:03}.jpg");
                write(root, &file, &jpeg(40, 30, 7 * class + at));
            }
        }
    }

    fn stream(images: &Images) -> &dyn super::super::ImageStream {
        match images {
            Images::Streamed(stream) => stream.as_ref(),
            Images::Held(_) => panic!("the images are held in memory"),
        }
    }

    fn refused(root: &Path) -> String {
        load("images", root, &["image_size=16"]).unwrap_err().to_string()
    }

    #[test]
    fn divided_folders_are_read_under_all_their_names() {
        for test in ["val", "test", "validation", "valid", "dev"] {
            let folder = tempfile::tempdir().unwrap();
            classes(folder.path(), "train/", 3);
            write(folder.path(), &format!("{test}/dog/deep/a.JPEG"), &jpeg(40, 30, 1));
            write(folder.path(), "train/cat/notes.txt", b"x");
            let data = load("images", folder.path(), &["image_size=16"]).unwrap();
            assert_eq!(data.classes, ["cat", "dog"]);
            assert_eq!(data.train.labels(), [0, 0, 0, 1, 1, 1]);
            assert_eq!(data.test.labels(), [1]);
            assert_eq!(data.train.shape(), Shape { height: 16, width: 16, channels: 3 });
            assert_eq!(data.notes.len(), 1, "{:?}", data.notes);
            assert!(data.notes[0].starts_with("1 file that is not"));
        }
    }

    #[test]
    fn of_several_test_parts_the_first_is_used_and_the_others_are_named() {
        let folder = tempfile::tempdir().unwrap();
        classes(folder.path(), "train/", 3);
        classes(folder.path(), "val/", 1);
        // As in ImageNet: without classes.
        write(folder.path(), "test/a.jpg", &jpeg(40, 30, 1));
        let data = load("images", folder.path(), &["image_size=16"]).unwrap();
        assert_eq!(data.test.labels(), [0, 1]);
        assert_eq!(data.notes, ["`test` is not used: test images are those of `val`"]);
        let folder = tempfile::tempdir().unwrap();
        for (name, labels) in [("train", &[0, 1][..]), ("val", &[0]), ("test", &[0, 1, 0])] {
            write(folder.path(), &format!("{name}-0.tar"), &shard(labels));
        }
        let data = load("images", folder.path(), &["image_size=16"]).unwrap();
        assert_eq!((data.train.rows(), data.test.rows()), (2, 1));
        assert!(data.notes[0].starts_with("shards of `test` are not used"));
    }

    #[test]
    fn a_part_is_not_taken_for_a_class() {
        for part in ["train", "val"] {
            let folder = tempfile::tempdir().unwrap();
            classes(folder.path(), &format!("{part}/"), 2);
            classes(folder.path(), "elsewhere/", 2);
            let text = refused(folder.path());
            assert!(
                text.contains(&format!("has the folder `{part}` of classes, but no")),
                "{text}"
            );
        }
        // Trains and cars.
        let folder = tempfile::tempdir().unwrap();
        for (class, at) in ["train", "car"].into_iter().flat_map(|class| [(class, 1), (class, 2)]) {
            write(folder.path(), &format!("{class}/{at}.jpg"), &jpeg(40, 30, at));
        }
        let data = load("images", folder.path(), &["image_size=16"]).unwrap();
        assert_eq!(data.classes, ["car", "train"]);
    }

    #[test]
    fn undivided_folders_are_divided_by_the_seed_class_by_class() {
        let folder = tempfile::tempdir().unwrap();
        classes(folder.path(), "", 10);
        let split =
            |seed: &str| load("images", folder.path(), &["image_size=16", "holdout=0.3", seed]);
        let (one, again, other) =
            (split("seed=1").unwrap(), split("seed=1").unwrap(), split("seed=2").unwrap());
        assert_eq!(one.test.labels(), [0, 0, 0, 1, 1, 1]);
        assert_eq!(one.train.rows(), 14);
        assert_eq!(one.fingerprint, again.fingerprint);
        assert_ne!(one.fingerprint, other.fingerprint);
    }

    #[test]
    fn small_images_of_the_wanted_size_are_held() {
        let folder = tempfile::tempdir().unwrap();
        let image = |seed| png(16, 16, ::png::ColorType::Rgb, seed);
        for seed in 0..4 {
            write(folder.path(), &format!("train/{}/{seed}.png", seed % 2), &image(seed));
            write(folder.path(), &format!("val/{}/{seed}.png", seed % 2), &image(seed + 9));
        }
        let data = load("images", folder.path(), &["image_size=16"]).unwrap();
        let pixels = super::super::testing::pixels(16, 16, 3, 2);
        assert_eq!(held(&data.train).image(1), pixels, "0/2.png comes after 0/0.png");
        assert!(data.notes.is_empty());
        let key = Key::new(1, 0, Stream::Augment);
        let moved =
            |data: &ImageData| (0..40).any(|row| data.augment.choice(key, 0, row).down != 4);
        assert!(moved(&data));
        let larger = load("images", folder.path(), &["image_size=24"]).unwrap();
        assert!(matches!(larger.train, Images::Streamed(_)));
        assert!(larger.notes[0].contains("(16 x 16) and are enlarged to 24 x 24"));
        // Asked for, images of any size are kept.
        let kept = load("images", folder.path(), &["image_size=24", "hold=true", "crop_padding=2"]);
        assert_eq!(held(&kept.unwrap().train).shape().height, 24);
        // One image of another size, and crops with a border are no longer possible.
        write(folder.path(), "train/0/odd.png", &png(16, 17, ::png::ColorType::Rgb, 1));
        let mixed = load("images", folder.path(), &["image_size=16"]).unwrap();
        assert!(matches!(mixed.train, Images::Streamed(_)));
        let text = load("images", folder.path(), &["image_size=16", "crop_padding=4"]);
        assert!(text.unwrap_err().to_string().contains("`data.crop_padding`: is 4"));
    }

    #[test]
    fn unusable_folders_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(refused(&root.join("none")).starts_with("could not read"));
        assert!(refused(root).contains("has no folders of classes"));
        write(root, "a.jpg", &jpeg(40, 30, 1));
        assert!(refused(root).contains("has 1 image but no folders of classes"));
        std::fs::create_dir(root.join("cat")).unwrap();
        assert!(refused(root).contains("has no images (.jpg"));
        write(root, "cat/a.jpg", &jpeg(40, 30, 1));
        assert!(refused(root).contains("images of one class"));
        write(root, "dog/a.txt", b"");
        assert!(refused(root).contains("the class `dog` has no training images"));
        write(root, "dog/a.jpg", &jpeg(40, 30, 1));
        assert!(refused(root).contains("has one image a class"));
        let folder = tempfile::tempdir().unwrap();
        classes(folder.path(), "train/", 2);
        write(folder.path(), "val/bird/a.jpg", &jpeg(40, 30, 1));
        assert!(refused(folder.path()).contains("has the class `bird`"));
        assert!(refused(&folder.path().join("val/bird/a.jpg")).contains("neither a folder nor"));
    }

    #[test]
    fn unreadable_test_images_are_left_out_and_told_and_training_images_replaced() {
        for (size, held) in [("image_size=16", true), ("image_size=24", false)] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            for seed in 0..8 {
                let (part, class) = (["train", "val"][seed % 2], ["cat", "dog"][seed / 4]);
                let image = png(16, 16, ::png::ColorType::Rgb, seed);
                write(root, &format!("{part}/{class}/{seed}.png"), &image);
            }
            for name in ["train/cat/a.png", "val/cat/a.png", "val/cat/b.png"] {
                write(root, name, b"garbage");
            }
            let data = load("images", root, &[size]).unwrap();
            assert_eq!(matches!(data.test, Images::Held(_)), held);
            assert_eq!(data.test.labels(), [0, 0, 1, 1], "no image stands for another one");
            assert_eq!(data.train.rows(), 5);
            if let Images::Streamed(stream) = &data.train {
                assert!(data.broken().train.is_empty(), "it was not needed yet");
                let rows: Vec<u32> = (0..5).collect();
                stream.fill(&rows, View::Centre, &mut vec![0; 5 * 24 * 24 * 3]).unwrap();
            }
            let notes = data.broken().notes();
            assert!(notes[0].starts_with("1 training image cannot be read"), "{notes:?}");
            assert!(notes[0].contains("train/cat/a.png is neither"), "{notes:?}");
            assert!(notes[1].starts_with("2 test images cannot be read and are left out"));
            assert!(notes[1].contains("val/cat/b.png"), "{notes:?}");
            let refused = load("images", root, &[size, "skip_at_most=1"]).unwrap_err().to_string();
            assert!(refused.starts_with("2 images cannot be read"), "{refused}");
            std::fs::remove_dir_all(root.join("val")).unwrap();
            write(root, "val/cat/a.png", b"garbage");
            let refused = load("images", root, &[size]).unwrap_err().to_string();
            assert!(refused.contains("no test image can be read"), "{refused}");
        }
    }

    /// A shard with images of the given classes.
    fn shard(labels: &[u32]) -> Vec<u8> {
        let files: Vec<(String, Vec<u8>)> = labels
            .iter()
            .enumerate()
            .flat_map(|(at, label)| {
                let image = (format!("s/{at:04}.jpg"), jpeg(40, 30, *label as usize));
                [image, (format!("s/{at:04}.cls"), format!("{label}\n").into_bytes())]
            })
            .collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
        tar(&files)
    }

    #[test]
    fn shards_give_the_same_images_as_files() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "train-000.tar", &shard(&[1, 0]));
        write(folder.path(), "train-001.tar", &shard(&[0, 2]));
        write(folder.path(), "val-000.tar", &shard(&[2]));
        let data = load("images", folder.path(), &["image_size=16"]).unwrap();
        assert_eq!(data.classes, ["0", "1", "2"]);
        assert_eq!((data.train.labels(), data.test.labels()), (&[1, 0, 0, 2][..], &[2][..]));
        let files = tempfile::tempdir().unwrap();
        for label in 0..3 {
            write(files.path(), &format!("train/{label}/a.jpg"), &jpeg(40, 30, label));
            write(files.path(), &format!("val/{label}/a.jpg"), &jpeg(40, 30, label));
        }
        let plain = load("images", files.path(), &["image_size=16"]).unwrap();
        let show = |data: &ImageData, row| {
            let mut out = vec![0; 16 * 16 * 3];
            stream(&data.train).fill(&[row], View::Centre, &mut out).unwrap();
            out
        };
        for (row, label) in [(0, 1), (1, 0), (3, 2)] {
            assert_eq!(show(&data, row), show(&plain, label));
        }
        // In folders of their parts, and one alone.
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "train/a.tar", &shard(&[1, 0]));
        write(folder.path(), "val/a.tar", &shard(&[0]));
        let data = load("images", folder.path(), &["image_size=16"]).unwrap();
        assert_eq!((data.train.rows(), data.test.rows()), (2, 1));
        write(folder.path(), "one.tar", &shard(&[1, 0, 1, 0]));
        let data = load("images", &folder.path().join("one.tar"), &["image_size=16"]).unwrap();
        assert_eq!((data.train.rows(), data.test.rows()), (2, 2));
    }

    #[test]
    fn unusable_shards_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a.tar", &shard(&[0, 2, 0, 2]));
        assert!(refused(root).contains("the class `1` has no training images"));
        write(root, "a.tar", &shard(&[0, 1, 0, 1]));
        write(root, "train-b.tar", &shard(&[0, 1]));
        write(root, "val-b.tar", &shard(&[0, 1]));
        assert!(refused(root).contains("a.tar: is a shard beside others"));
    }
}
