//! WebDataset: tar files in which `KEY.jpg` or `KEY.png` has its class beside it, in `KEY.cls` or
//! `KEY.json`. Every shard is read through once for where its images are; nothing is unpacked.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::Value;

use super::problem;
use super::stream::Item;
use super::user_images::{Listing, Part, entries, file_name};
use crate::error::{Error, Result};
use crate::files::regular;

/// Bytes that a label may have.
const LABEL_BYTES: u64 = 1 << 20;

/// The shards and the part that each belongs to.
pub(super) type Shards = Vec<(PathBuf, Option<Part>)>;

/// The shards at `path`: the file itself, those in the folder, or those in its parts. Nothing where
/// there are none.
pub(super) fn find(path: &Path) -> Result<Option<Shards>> {
    let is_shard = |path: &PathBuf| path.extension().is_some_and(|e| e == "tar") && path.is_file();
    if path.is_file() {
        if is_shard(&path.to_owned()) {
            return Ok(Some(vec![(path.to_owned(), None)]));
        }
        let text = "is neither a folder nor a .tar shard; give the folder of the images";
        return Err(problem(path, text));
    }
    let inside = entries(path)?;
    let mut found: Shards = Vec::new();
    for entry in &inside {
        let part = Part::of(&file_name(entry));
        if is_shard(entry) {
            found.push((entry.clone(), part));
        } else if entry.is_dir() && part.is_some() {
            found.extend(entries(entry)?.into_iter().filter(is_shard).map(|shard| (shard, part)));
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// A class as a shard names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Number(u32),
    Name(String),
}

/// What is known of a key.
#[derive(Default)]
struct Sample {
    image: Option<(u64, u64)>,
    label: Option<Label>,
}

/// Lists the images of all shards.
pub(super) fn list(root: &Path, shards: &Shards) -> Result<Listing> {
    let has = |part: Part| shards.iter().any(|(_, of)| *of == Some(part));
    let divided = has(Part::Train) && (has(Part::Validation) || has(Part::Test));
    // As with folders: where there are both, the validation part is for testing.
    let both = divided && has(Part::Validation) && has(Part::Test);
    let used = |(_, part): &&(PathBuf, Option<Part>)| !both || *part != Some(Part::Test);
    let shards: Shards = shards.iter().filter(used).cloned().collect();
    let notes =
        both.then(|| "shards of `test` are not used: test images are those of `val`".into());
    if let Some((shard, _)) = shards.iter().find(|(_, part)| divided && part.is_none()) {
        let text = "is a shard beside others that start with `train` or `val`; rename it so that its part is clear";
        return Err(problem(shard, text));
    }
    let indexed: Vec<Vec<(u64, u64, Label)>> =
        shards.par_iter().map(|(shard, _)| index(shard)).collect::<Result<_>>()?;
    let labels = || indexed.iter().flatten().map(|(_, _, label)| label);
    let mut names: Vec<&Label> = labels().collect();
    names.sort_unstable();
    names.dedup();
    let classes: Vec<Label> = match (names.first(), names.last()) {
        (Some(Label::Number(_)), Some(Label::Name(name))) => {
            let text = format!("has classes by number and by name (`{name}`); use one kind");
            return Err(problem(root, text));
        }
        // Numbers stand for themselves; one that no image has is an empty class.
        (_, Some(Label::Number(last))) if *last < 1 << 20 => {
            (0..=*last).map(Label::Number).collect()
        }
        (_, Some(Label::Number(last))) => {
            return Err(problem(
                root,
                format!("has a class with the number {last}; count classes from 0"),
            ));
        }
        _ => names.into_iter().cloned().collect(),
    };
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for ((shard, part), images) in shards.iter().zip(&indexed) {
        let file: Arc<Path> = Arc::from(shard.as_path());
        let items = images.iter().filter_map(|(offset, len, label)| {
            let label = classes.binary_search(label).ok()? as u32;
            Some(Item { file: Arc::clone(&file), offset: *offset, len: *len, label })
        });
        let into = if divided && *part != Some(Part::Train) { &mut test } else { &mut train };
        into.extend(items);
    }
    let name = |label: Label| match label {
        Label::Number(number) => number.to_string(),
        Label::Name(name) => name,
    };
    Ok(Listing {
        classes: classes.into_iter().map(name).collect(),
        train,
        test: divided.then_some(test),
        notes: notes.into_iter().collect(),
    })
}

/// Where the images of a shard are, in the order of the file, with their classes.
fn index(path: &Path) -> Result<Vec<(u64, u64, Label)>> {
    let file = regular::open(path).map_err(|e| Error::file("read", path, e))?;
    let len = file.metadata().map_err(|e| Error::file("read", path, e))?.len();
    index_of(BufReader::new(file), len).map_err(|text| problem(path, text))
}

/// Characters of a foreign message that are shown.
const SHOWN: usize = 200;

/// A character as it may be printed.
fn printable(c: char) -> impl Iterator<Item = char> {
    let odd = c.is_control() || c == char::REPLACEMENT_CHARACTER;
    let escaped = odd.then(|| c.escape_default()).into_iter().flatten();
    escaped.chain((!odd).then_some(c))
}

/// Where the images of a shard of `len` bytes are; the problem is in words.
pub(super) fn index_of(
    reader: impl Read + Seek,
    len: u64,
) -> std::result::Result<Vec<(u64, u64, Label)>, String> {
    const AGAIN: &str = "write or download the shard again";
    // What is quoted from a file that is no archive may be anything, also what a terminal obeys.
    let damaged = |error: std::io::Error| {
        let shown: String = error.to_string().chars().flat_map(printable).take(SHOWN).collect();
        format!("is no whole tar file ({shown}); {AGAIN}")
    };
    let mut archive = tar::Archive::new(reader);
    let mut samples: BTreeMap<String, Sample> = BTreeMap::new();
    for entry in archive.entries_with_seek().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name_at = path.rfind('/').map_or(0, |slash| slash + 1);
        // The key ends at the first point of the name.
        let Some(point) = path[name_at..].find('.').map(|point| name_at + point) else { continue };
        let (key, extension) = (&path[..point], path[point + 1..].to_lowercase());
        if point == name_at {
            continue;
        }
        let (offset, size) = (entry.raw_file_position(), entry.size());
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(format!("ends within `{path}`; it is truncated, so {AGAIN}"));
        }
        match extension.as_str() {
            "jpg" | "jpeg" | "png" => {
                let sample = samples.entry(key.to_owned()).or_default();
                if sample.image.replace((offset, size)).is_some() {
                    return Err(format!("has two images with the key `{key}`; {AGAIN}"));
                }
            }
            "cls" | "json" => {
                if size > LABEL_BYTES {
                    return Err(format!(
                        "has {size} bytes in `{path}`, too many for a label; {AGAIN}"
                    ));
                }
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(damaged)?;
                let label = if extension == "cls" { plain(&bytes) } else { json(&bytes) };
                let sample = samples.entry(key.to_owned()).or_default();
                match label {
                    // `.cls` says the class and nothing else, so it counts where there are both.
                    Some(label) if extension == "cls" || sample.label.is_none() => {
                        sample.label = Some(label);
                    }
                    None if extension == "cls" => {
                        return Err(format!(
                            "has something else than a class number in `{path}`; write it as digits, counted from 0"
                        ));
                    }
                    // A second answer, or other facts about an image.
                    Some(_) | None => {}
                }
            }
            _ => {}
        }
    }
    let mut images = Vec::new();
    for (key, sample) in samples {
        match (sample.image, sample.label) {
            (Some((offset, size)), Some(label)) => images.push((offset, size, label)),
            (Some(_), None) => {
                return Err(format!(
                    "has no class for the image `{key}`; write it into `{key}.cls` as a number, or into `{key}.json` under `label` or `class`"
                ));
            }
            (None, Some(_)) => {
                return Err(format!("has a class but no image for `{key}`; {AGAIN}"));
            }
            (None, None) => {}
        }
    }
    if images.is_empty() {
        return Err(
            "has no images; each needs `KEY.jpg` or `KEY.png` and `KEY.cls` or `KEY.json`".into()
        );
    }
    images.sort_unstable_by_key(|(offset, ..)| *offset);
    Ok(images)
}

fn plain(bytes: &[u8]) -> Option<Label> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok().map(Label::Number)
}

fn json(bytes: &[u8]) -> Option<Label> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let label = ["label", "class", "cls"].iter().find_map(|key| value.get(key))?;
    match label {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok().map(Label::Number),
        Value::String(name) => Some(Label::Name(name.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::super::testing::tar;
    use super::*;

    fn indexed(bytes: &[u8]) -> std::result::Result<Vec<(u64, u64, Label)>, String> {
        index_of(Cursor::new(bytes), bytes.len() as u64)
    }

    #[test]
    fn images_are_found_by_their_offsets_with_either_kind_of_label() {
        let bytes = tar(&[
            ("b.png", b"second"),
            ("b.json", b"{\"label\": 4, \"width\": 7}"),
            ("dir.x/a.b.jpg", b"ignored: the extension is b.jpg"),
            ("dir/a.JPG", b"third!"),
            ("dir/a.cls", b" 3\n"),
            ("dir/a.json", b"{\"label\": 9}"),
            ("readme", b"no point"),
        ]);
        let found = indexed(&bytes).unwrap();
        let content = |at: usize| {
            let (offset, len, _) = found[at];
            &bytes[offset as usize..][..len as usize]
        };
        assert_eq!((content(0), &found[0].2), (&b"second"[..], &Label::Number(4)));
        assert_eq!((content(1), &found[1].2), (&b"third!"[..], &Label::Number(3)));
        assert_eq!(found.len(), 2);
        let named = indexed(&tar(&[("a.jpg", b"x"), ("a.json", b"{\"class\": \"cat\"}")]));
        assert_eq!(named.unwrap()[0].2, Label::Name("cat".into()));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |files: &[(&str, &[u8])]| indexed(&tar(files)).unwrap_err();
        assert!(refused(&[("a.jpg", b"x")]).contains("has no class for the image `a`"));
        assert!(refused(&[("a.cls", b"1")]).contains("no image for `a`"));
        assert!(refused(&[("a.jpg", b"x"), ("a.cls", b"cat")]).contains("in `a.cls`"));
        assert!(
            refused(&[("a.jpg", b"x"), ("a.png", b"y"), ("a.cls", b"1")]).contains("two images")
        );
        assert!(refused(&[("a.txt", b"x")]).contains("has no images"));
        assert!(refused(&[("a.jpg", b"x"), ("a.json", b"[1]")]).contains("has no class"));
        let whole = tar(&[("a.cls", b"1"), ("a.jpg", &[7; 3000])]);
        let text = indexed(&whole[..512 * 5]).unwrap_err();
        assert!(text.contains("ends within `a.jpg`"), "{text}");
        let mut damaged = whole;
        damaged[1024] ^= 1;
        assert!(indexed(&damaged).unwrap_err().contains("is no whole tar file"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..1600)) {
            let _ = indexed(&bytes);
        }

        #[test]
        fn a_shard_with_changed_bytes_does_not_make_it_panic(
            changes in prop::collection::vec((0usize..3000, any::<u8>()), 1..8),
        ) {
            let mut bytes = tar(&[("a.cls", b"1"), ("a.jpg", b"image")]);
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let _ = indexed(&bytes);
        }
    }
}
