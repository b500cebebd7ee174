//! Images in files, decoded when they are needed.

use std::cell::RefCell;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use fast_image_resize::Resizer;
use rayon::prelude::*;
use thinfer_engine::Shape;

use super::broken::{Patience, Unreadable};
use super::crop::Crop;
use super::decode::{Header, check_len};
use super::{ImageSet, ImageStream, View};
use crate::error::{Error, Result};
use crate::files::regular;

/// One image: a file, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) file: Arc<Path>,
    /// Where it starts.
    pub(super) offset: u64,
    /// How many bytes it has.
    pub(super) len: u64,
    /// Its class.
    pub(super) label: u32,
}

impl Item {
    /// Reads the bytes of the image.
    pub(super) fn read(&self, into: &mut Vec<u8>) -> std::result::Result<(), String> {
        check_len(self.len)?;
        let read = |into: &mut Vec<u8>| {
            let mut file = regular::open(&self.file)?;
            if self.offset > 0 {
                file.seek(SeekFrom::Start(self.offset))?;
            }
            into.clear();
            file.take(self.len).read_to_end(into)
        };
        read(into).map(drop).map_err(|error| format!("cannot be read ({error})"))
    }

    /// Width and height of the image, every row of which is decoded.
    pub(super) fn decoded(&self) -> std::result::Result<(usize, usize), String> {
        SCRATCH.with_borrow_mut(|Scratch { bytes, pixels, .. }| {
            self.read(bytes)?;
            let header = Header::read(bytes)?;
            header.decode(bytes, header.height, pixels)?;
            Ok((header.width, header.height))
        })
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        match self.offset {
            0 => self.file.display().to_string(),
            offset => format!("{} at byte {offset}", self.file.display()),
        }
    }
}

/// What a thread keeps between images.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    pixels: Vec<u8>,
    resizer: Resizer,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A set of image files.
#[derive(Debug)]
pub(super) struct Pictures {
    items: Vec<Item>,
    labels: Vec<u32>,
    size: usize,
    flip: bool,
    patience: Arc<Patience>,
    /// The largest image that is known, in pixels.
    most_pixels: usize,
}

impl Pictures {
    /// Images that come as `size` x `size` pixels, mirrored half the time where `flip`.
    pub(super) fn new(items: Vec<Item>, size: usize, flip: bool, patience: Arc<Patience>) -> Self {
        let labels = items.iter().map(|item| item.label).collect();
        Self { items, labels, size, flip, patience, most_pixels: 0 }
    }

    /// The largest image that is known, in pixels.
    pub(super) fn most_pixels(&self) -> usize {
        self.most_pixels
    }

    /// Tells of the size of an image.
    pub(super) fn know_pixels(&mut self, pixels: usize) {
        self.most_pixels = self.most_pixels.max(pixels);
    }

    /// The images, readable or not.
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Only those that can be read, all of them decoded once to know it, and those that cannot: a
    /// test set in which one image stood for another would score that one twice.
    pub(super) fn readable(self) -> Result<(Self, Vec<Unreadable>)> {
        let sizes: Vec<_> = self.items.par_iter().map(Item::decoded).collect();
        let (mut items, mut left_out) = (Vec::new(), Vec::new());
        let mut most_pixels = self.most_pixels;
        for (item, size) in self.items.into_iter().zip(sizes) {
            match size {
                Ok((width, height)) => {
                    items.push(item);
                    most_pixels = most_pixels.max(width * height);
                }
                Err(problem) => {
                    left_out.push(Unreadable { name: item.name(), problem: problem.clone() });
                    self.patience.add(&item, problem)?;
                }
            }
        }
        let mut readable = Self::new(items, self.size, self.flip, self.patience);
        readable.know_pixels(most_pixels);
        Ok((readable, left_out))
    }

    /// All images as they are looked at in evaluation; those of the right size stay as they are.
    pub(super) fn held(&self) -> Result<ImageSet> {
        let len = self.shape().len();
        let mut bytes = vec![0; self.items.len() * len];
        bytes
            .par_chunks_exact_mut(len)
            .enumerate()
            .try_for_each(|(row, out)| self.show_or_replace(row as u32, View::Centre, out))?;
        ImageSet::new(self.shape(), bytes, self.labels.clone())
    }

    /// Writes one image, as it stands in for `row`.
    fn show(
        &self,
        item: &Item,
        row: u32,
        view: View,
        out: &mut [u8],
    ) -> std::result::Result<(), String> {
        SCRATCH.with_borrow_mut(|Scratch { bytes, pixels, resizer }| {
            item.read(bytes)?;
            let header = Header::read(bytes)?;
            let (width, height) = (header.width, header.height);
            let crop = match view {
                View::Random { key, epoch } => {
                    Crop::random(width, height, self.flip, key, epoch, row)
                }
                View::Centre => Crop::centre(width, height, self.size),
            };
            header.decode(bytes, crop.top + crop.height, pixels)?;
            crop.resize(pixels, width, self.size, resizer, out)
        })
    }

    /// Writes image `row`, or the next of its class that can be read.
    fn show_or_replace(&self, row: u32, view: View, out: &mut [u8]) -> Result<()> {
        let at = row as usize;
        let class = self.labels[at];
        let later = (at..self.items.len()).chain(0..at);
        for other in later.filter(|other| self.labels[*other] == class) {
            let item = &self.items[other];
            match self.show(item, row, view, out) {
                Ok(()) => return Ok(()),
                Err(problem) => self.patience.add(item, problem)?,
            }
        }
        Err(Error::Data(format!(
            "no image of the class of {} can be read; check the files with `thinfer data check`",
            self.items[at].name()
        )))
    }
}

impl ImageStream for Pictures {
    fn shape(&self) -> Shape {
        Shape { height: self.size, width: self.size, channels: 3 }
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn fill(&self, rows: &[u32], view: View, out: &mut [u8]) -> Result<()> {
        let len = self.shape().len();
        if out.len() != rows.len() * len {
            let (rows, bytes) = (rows.len(), out.len());
            return Err(Error::Data(format!("{rows} images do not fit {bytes} bytes exactly")));
        }
        if let Some(row) = rows.iter().find(|row| **row as usize >= self.items.len()) {
            return Err(Error::Data(format!("there is no image {row}")));
        }
        // An image takes long enough to be a task of its own, and no thread is left with the rest.
        out.par_chunks_exact_mut(len)
            .zip(rows)
            .with_max_len(1)
            .try_for_each(|(out, row)| self.show_or_replace(*row, view, out))
    }

    /// The pixels once as the file has them, once in three colours, and a row of floats to resize.
    fn decoding_bytes(&self) -> u64 {
        7 * self.most_pixels as u64
    }

    fn unreadable(&self) -> Vec<Unreadable> {
        self.patience.found()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use thinfer_engine::noise::{Key, Stream};

    use super::super::testing::{jpeg, write};
    use super::*;

    /// Images of two classes, taking turns, of which those in `broken` are cut off.
    pub(in super::super) fn pictures(
        root: &Path,
        rows: usize,
        broken: &[usize],
        at_most: usize,
    ) -> Pictures {
        let item = |row: usize| {
            let (name, mut bytes) = (format!("{row}.jpg"), jpeg(40, 30, row));
            if broken.contains(&row) {
                bytes.truncate(bytes.len() / 2);
            }
            write(root, &name, &bytes);
            let file = Arc::from(root.join(name));
            Item { file, offset: 0, len: bytes.len() as u64, label: (row % 2) as u32 }
        };
        let items = (0..rows).map(item).collect();
        Pictures::new(items, 16, true, Arc::new(Patience::new(at_most)))
    }

    fn show(pictures: &Pictures, rows: &[u32], view: View) -> Result<Vec<u8>> {
        let mut out = vec![0; rows.len() * pictures.shape().len()];
        pictures.fill(rows, view, &mut out).map(|()| out)
    }

    fn random(epoch: u64) -> View {
        View::Random { key: Key::new(1, 0, Stream::Augment), epoch }
    }

    #[test]
    fn an_image_depends_on_its_row_and_epoch_and_not_on_its_neighbours() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = pictures(folder.path(), 6, &[], 0);
        let len = pictures.shape().len();
        for view in [View::Centre, random(0), random(5)] {
            let all = show(&pictures, &[0, 1, 2, 3, 4, 5], view).unwrap();
            let some = show(&pictures, &[4, 1, 4], view).unwrap();
            assert_eq!(some[..len], all[4 * len..5 * len]);
            assert_eq!(some[len..2 * len], all[len..2 * len]);
            assert_eq!(some[2 * len..], some[..len]);
        }
        let (first, second) = (show(&pictures, &[3], random(0)), show(&pictures, &[3], random(1)));
        assert_ne!(first.unwrap(), second.unwrap());
        assert!(show(&pictures, &[6], View::Centre).is_err());
        assert!(pictures.fill(&[0], View::Centre, &mut [0; 5]).is_err());
    }

    #[test]
    fn an_unreadable_image_is_replaced_by_the_next_of_its_class() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = pictures(folder.path(), 6, &[1, 5], 2);
        let image = |row: u32| show(&pictures, &[row], View::Centre).unwrap();
        assert_eq!(image(1), image(3));
        // After the last comes the first of the class, which here is unreadable too.
        assert_eq!(image(5), image(3));
        assert_ne!(image(0), image(2));
        assert_eq!(pictures.unreadable().len(), 2, "an image counts once however often it is met");
    }

    #[test]
    fn too_many_unreadable_images_are_an_error_that_names_some() {
        let folder = tempfile::tempdir().unwrap();
        let some = pictures(folder.path(), 12, &[0, 2, 3, 4, 6], 4);
        let rows: Vec<u32> = (0..12).collect();
        let text = show(&some, &rows, View::Centre).unwrap_err().to_string();
        assert!(
            text.starts_with("5 images cannot be read, and `data.skip_at_most` is 4"),
            "{text}"
        );
        assert!(text.contains("0.jpg is truncated, "), "{text}");
        let all = pictures(folder.path(), 4, &[1, 3], 9);
        let text = show(&all, &[3], View::Centre).unwrap_err().to_string();
        assert!(text.contains("no image of the class") && text.contains("3.jpg"), "{text}");
        let gone = pictures(folder.path(), 4, &[], 0);
        std::fs::remove_file(folder.path().join("2.jpg")).unwrap();
        let text = show(&gone, &[2], View::Centre).unwrap_err().to_string();
        assert!(text.contains("2.jpg cannot be read"), "{text}");
    }
}
