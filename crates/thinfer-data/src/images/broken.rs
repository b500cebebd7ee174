//! Images that cannot be read: which they are, how many are too many, and what is said of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::stream::Item;
use crate::error::{Error, Result};

/// Images named in a message, at most.
const NAMED: usize = 3;

/// An image that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unreadable {
    /// The file, with the place in it where it is a shard.
    pub name: String,
    /// What is wrong.
    pub problem: String,
}

/// The images of a data set that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// Training images, in whose place others of their class are shown.
    pub train: Vec<Unreadable>,
    /// Test images, which are left out.
    pub test: Vec<Unreadable>,
}

impl Broken {
    /// What the user should know of them: how many there are, and the first names.
    pub fn notes(&self) -> Vec<String> {
        let train = [
            "image cannot be read and is replaced by others of its class",
            "images cannot be read and are replaced by others of their classes",
        ];
        let test =
            ["image cannot be read and is left out", "images cannot be read and are left out"];
        let note = |(found, part, [one, many]): (&[Unreadable], &str, [&str; 2])| {
            let what = if found.len() == 1 { one } else { many };
            format!("{} {part} {what}: {}", found.len(), first(found))
        };
        let parts = [(&self.train[..], "training", train), (&self.test[..], "test", test)];
        parts.into_iter().filter(|(found, ..)| !found.is_empty()).map(note).collect()
    }

    /// Whether all images can be read.
    pub fn is_empty(&self) -> bool {
        self.train.is_empty() && self.test.is_empty()
    }

    /// Adds training images that were met since, each once.
    pub fn add_train(&mut self, more: impl IntoIterator<Item = Unreadable>) {
        self.train.extend(more);
        self.train.sort();
        self.train.dedup_by(|a, b| a.name == b.name);
    }
}

/// The first of some images with what is wrong with them.
fn first(found: &[Unreadable]) -> String {
    let name = |image: &Unreadable| format!("{} {}", image.name, image.problem);
    let mut names: Vec<String> = found.iter().take(NAMED).map(name).collect();
    if found.len() > NAMED {
        names.push(format!("and {} more", found.len() - NAMED));
    }
    names.join(", ")
}

/// So many images, in words.
pub(super) fn counted(images: usize) -> String {
    if images == 1 { "1 image".to_owned() } else { format!("{images} images") }
}

/// Takes note of images that cannot be read, and stops where there are too many.
#[derive(Debug)]
pub(super) struct Patience {
    at_most: usize,
    /// The name of each and what is wrong with it.
    found: Mutex<BTreeMap<String, String>>,
}

impl Patience {
    pub(super) fn new(at_most: usize) -> Self {
        Self { at_most, found: Mutex::new(BTreeMap::new()) }
    }

    /// Takes note of one more; an image that was met before does not count again.
    pub(super) fn add(&self, item: &Item, problem: String) -> Result<()> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(item.name(), problem);
        if found.len() <= self.at_most {
            return Ok(());
        }
        Err(Error::Data(format!(
            "{} cannot be read, and `data.skip_at_most` is {}: {}; repair or remove them (`thinfer data check` lists all), or allow more",
            counted(found.len()),
            self.at_most,
            first(&list(&found))
        )))
    }

    /// Those that were met by now, by name.
    pub(super) fn found(&self) -> Vec<Unreadable> {
        list(&self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn list(found: &BTreeMap<String, String>) -> Vec<Unreadable> {
    let image = |(name, problem): (&String, &String)| Unreadable {
        name: name.clone(),
        problem: problem.clone(),
    };
    found.iter().map(image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_count_and_name_the_first() {
        let images = |count: usize| -> Vec<Unreadable> {
            let image = |at| Unreadable { name: format!("{at}.jpg"), problem: "is torn".into() };
            (0..count).map(image).collect()
        };
        let mut broken = Broken { train: images(1), test: images(5) };
        assert_eq!(
            broken.notes(),
            [
                "1 training image cannot be read and is replaced by others of its class: 0.jpg is torn",
                "5 test images cannot be read and are left out: 0.jpg is torn, 1.jpg is torn, 2.jpg is torn, and 2 more",
            ]
        );
        broken.add_train(images(2));
        assert_eq!(broken.train, images(2), "an image counts once");
        assert!(Broken::default().notes().is_empty());
    }
}
