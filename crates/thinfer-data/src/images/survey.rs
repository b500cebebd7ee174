//! What is in a folder of images, from its names and a sample of its files: enough to choose
//! settings by.

use std::path::Path;

use super::decode::Header;
use super::stream::Item;
use super::user_images::Listing;
use crate::error::Result;

/// Images whose sizes are looked at.
const LOOKED_AT: usize = 200;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Images of each class to learn from; all of them where they are not divided.
    pub counts: Vec<usize>,
    /// Test images, where they are divided.
    pub test: Option<usize>,
    /// The median of the shorter sides of some images, in pixels.
    pub side: usize,
    /// Width and height, where all images looked at have the same.
    pub one_size: Option<(usize, usize)>,
    /// Whether none of them has colours.
    pub grey: bool,
}

impl Survey {
    /// Looks at a folder of classes, a divided one, or a folder of shards.
    pub fn of(path: &Path) -> Result<Self> {
        let Listing { classes, train, test, .. } = Listing::read(path)?;
        let mut counts = vec![0; classes.len()];
        train.iter().for_each(|item| counts[item.label as usize] += 1);
        let every = train.len().div_ceil(LOOKED_AT).max(1);
        let headers: Vec<Header> = train.iter().step_by(every).filter_map(header).collect();
        let mut sides: Vec<usize> = headers.iter().map(|h| h.width.min(h.height)).collect();
        sides.sort_unstable();
        let first = headers.first().map(|h| (h.width, h.height));
        let one_size = first.filter(|first| headers.iter().all(|h| (h.width, h.height) == *first));
        Ok(Self {
            classes,
            counts,
            test: test.map(|test| test.len()),
            side: sides.get(sides.len() / 2).copied().unwrap_or(0),
            one_size,
            grey: !headers.is_empty() && headers.iter().all(|h| h.grey),
        })
    }

    /// Images to learn from.
    pub fn images(&self) -> usize {
        self.counts.iter().sum()
    }
}

/// What the first bytes of an image say, if it can be read.
fn header(item: &Item) -> Option<Header> {
    let mut bytes = Vec::new();
    item.read(&mut bytes).ok()?;
    Header::read(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{jpeg, png, write};
    use super::*;

    #[test]
    fn sizes_colours_and_classes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for seed in 0..3 {
            write(
                root,
                &format!("cat/{seed}.png"),
                &png(16, 16, ::png::ColorType::Grayscale, seed),
            );
        }
        write(root, "dog/1.png", &png(16, 16, ::png::ColorType::Grayscale, 9));
        let found = Survey::of(root).unwrap();
        assert_eq!(found.classes, ["cat", "dog"]);
        assert_eq!((found.counts.as_slice(), found.images()), (&[3, 1][..], 4));
        assert_eq!((found.side, found.one_size, found.test), (16, Some((16, 16)), None));
        assert!(found.grey);
        write(root, "dog/2.jpg", &jpeg(40, 30, 1));
        let found = Survey::of(root).unwrap();
        assert_eq!((found.one_size, found.grey, found.side), (None, false, 16));
    }
}
