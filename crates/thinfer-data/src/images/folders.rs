//! Folders with a folder for each class, as ImageNet is usually kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::broken::counted;
use super::link_guard::LinkGuard;
use super::problem;
use super::stream::Item;
use super::user_images::{Listing, entries, file_name};
use crate::error::Result;

/// What the test part is called; the first that is there is used. `test` comes last, since that of
/// ImageNet has no classes.
const TEST: [&str; 5] = ["val", "validation", "valid", "dev", "test"];

/// What a file is by its name.
fn is_image(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    ["jpg", "jpeg", "png"].contains(&extension.as_str())
}

fn is_hidden(path: &Path) -> bool {
    file_name(path).starts_with('.')
}

/// The classes of a folder and their images.
struct Class {
    name: String,
    /// Files and their sizes, in the order of their names.
    files: Vec<(PathBuf, u64)>,
    /// Files with other extensions.
    ignored: usize,
}

/// Lists `root/train/CLASS/…` and `root/val/CLASS/…`, or `root/CLASS/…`.
pub(super) fn list(root: &Path) -> Result<Listing> {
    let inside: Vec<PathBuf> =
        entries(root)?.into_iter().filter(|path| path.is_dir() && !is_hidden(path)).collect();
    let named = |word: &&str| inside.iter().find(|path| file_name(path).to_lowercase() == **word);
    let train = named(&"train");
    let tests: Vec<&PathBuf> = TEST.iter().filter_map(named).collect();
    let test = tests.first().copied();
    let (Some(train), Some(test)) = (train, test) else {
        let Some(lonely) = train.or(test) else { return listing(classes(root)?, None) };
        if inside.len() == 1 {
            // A single part: the test images are taken out of it.
            return listing(classes(lonely)?, None);
        }
        if holds_classes(lonely)? {
            let text = format!(
                "has the folder `{}` of classes, but {}; name the parts `train` and `val`, or put folders of classes alone there",
                file_name(lonely),
                if train.is_some() { "no part for testing" } else { "no part `train`" }
            );
            return Err(problem(root, text));
        }
        return listing(classes(root)?, None);
    };
    let mut listing = listing(classes(train)?, Some((classes(test)?, test)))?;
    let unused = tests.iter().skip(1).map(|part| {
        format!("`{}` is not used: test images are those of `{}`", file_name(part), file_name(test))
    });
    listing.notes.extend(unused);
    Ok(listing)
}

/// Whether a folder has folders and no image of its own: a part of the data, not a class.
fn holds_classes(folder: &Path) -> Result<bool> {
    let inside = entries(folder)?;
    let folders = inside.iter().any(|path| path.is_dir() && !is_hidden(path));
    Ok(folders && !inside.iter().any(|path| is_image(path)))
}

/// The folders of `part`, each a class.
fn classes(part: &Path) -> Result<Vec<Class>> {
    let inside = entries(part)?;
    let folders: Vec<&PathBuf> =
        inside.iter().filter(|path| path.is_dir() && !is_hidden(path)).collect();
    if folders.is_empty() {
        let images = inside.iter().filter(|path| is_image(path)).count();
        let text = if images > 0 {
            let images = counted(images);
            format!(
                "has {images} but no folders of classes; put the images of each class into a folder of its own"
            )
        } else {
            "has no folders of classes; put the images of each class into a folder of its own, or set `data.path` to where they are".into()
        };
        return Err(problem(part, text));
    }
    let guard = LinkGuard::start(part)?;
    folders
        .into_par_iter()
        .filter_map(|folder| {
            let class = || -> Result<Option<Class>> {
                let Some(guard) = guard.down(folder)? else { return Ok(None) };
                let mut class = Class { name: file_name(folder), files: Vec::new(), ignored: 0 };
                walk(folder, &guard, &mut class)?;
                Ok(Some(class))
            };
            class().transpose()
        })
        .collect()
}

fn walk(folder: &Path, guard: &LinkGuard<'_>, class: &mut Class) -> Result<()> {
    for path in entries(folder)?.into_iter().filter(|path| !is_hidden(path)) {
        let Ok(metadata) = path.metadata() else {
            class.ignored += 1;
            continue;
        };
        if metadata.is_dir() {
            if let Some(guard) = guard.down(&path)? {
                walk(&path, &guard, class)?;
            }
        } else if is_image(&path) {
            class.files.push((path, metadata.len()));
        } else {
            class.ignored += 1;
        }
    }
    Ok(())
}

fn listing(train: Vec<Class>, test: Option<(Vec<Class>, &Path)>) -> Result<Listing> {
    let names: Vec<String> = train.iter().map(|class| class.name.clone()).collect();
    let ignored = train.iter().chain(test.iter().flat_map(|(test, _)| test));
    let ignored: usize = ignored.map(|class| class.ignored).sum();
    let mut notes = Vec::new();
    if ignored > 0 {
        notes.push(match ignored {
            1 => "1 file that is not .jpg, .jpeg or .png is passed over".to_owned(),
            many => format!("{many} files that are not .jpg, .jpeg or .png are passed over"),
        });
    }
    let items = |classes: Vec<Class>| -> std::result::Result<Vec<Item>, String> {
        let mut items = Vec::new();
        for class in classes {
            // Classes are sorted by name, as the folders are.
            let Ok(label) = names.binary_search(&class.name) else { return Err(class.name) };
            items.extend(class.files.into_iter().map(|(path, len)| Item {
                file: Arc::from(path),
                offset: 0,
                len,
                label: label as u32,
            }));
        }
        Ok(items)
    };
    let unknown = |folder: &Path, name: String| {
        let text = format!(
            "has the class `{name}`, which the training images do not have; rename or remove it"
        );
        problem(folder, text)
    };
    let test = match test {
        Some((classes, folder)) => Some(items(classes).map_err(|name| unknown(folder, name))?),
        None => None,
    };
    let train = items(train).map_err(|name| unknown(Path::new("train"), name))?;
    Ok(Listing { classes: names, train, test, notes })
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::testing::write;
    use super::*;

    #[test]
    fn links_that_go_round_in_circles_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        for class in ["a", "b"] {
            write(root.path(), &format!("{class}/1.png"), b"");
            symlink("..", root.path().join(class).join("up")).unwrap();
        }
        symlink(".", root.path().join("all")).unwrap();
        write(root.path(), "b/c/d/e/f/g/h/i/j/k/2.png", b"");
        let found = list(root.path()).unwrap();
        assert_eq!(found.classes, ["a", "b"]);
        let labels: Vec<u32> = found.train.iter().map(|item| item.label).collect();
        assert_eq!(labels, [0, 1, 1], "each picture once, however deep it lies");
    }
}
