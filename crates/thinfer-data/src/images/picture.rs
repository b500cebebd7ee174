//! Picture files and sets of another shape, brought into the shape of a network's images.

use std::io::Read;
use std::path::{Path, PathBuf};

use fast_image_resize::Resizer;
use rayon::prelude::*;
use thinfer_engine::Shape;

use super::ImageSet;
use super::crop::Crop;
use super::decode::{Header, MOST_BYTES, check_len};
use super::link_guard::LinkGuard;
use super::user_images::entries;
use crate::error::{Error, Result};
use crate::files::regular;

/// Endings of the files that are taken from folders.
const ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// How a picture of another size is brought to the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// All of it is resized.
    Whole,
    /// The square in its middle is resized, as for evaluation on one's own images.
    Centre,
}

/// A picture in the shape of a network's images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Rows of pixels, channels last.
    pub bytes: Vec<u8>,
    /// Width and height of the file.
    pub size: (usize, usize),
    /// Whether the file has no colours.
    pub grey: bool,
}

/// The picture files that `paths` name, folders with all below them, in the order of their names.
/// Of folders only files that end like pictures are taken.
pub fn list_pictures(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        if path.is_dir() {
            walk(path, &LinkGuard::start(path)?, &mut found)?;
            if found.len() == before {
                return Err(Error::Data(format!(
                    "{} has no pictures below it; give .jpg or .png files, or a folder of them",
                    path.display()
                )));
            }
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn walk(folder: &Path, guard: &LinkGuard<'_>, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in entries(folder)? {
        let ending = entry.extension().and_then(|e| e.to_str()).map(str::to_lowercase);
        if entry.is_dir() {
            if let Some(guard) = guard.down(&entry)? {
                walk(&entry, &guard, found)?;
            }
        } else if ending.is_some_and(|e| ENDINGS.contains(&e.as_str())) {
            found.push(entry);
        }
    }
    Ok(())
}

/// The bytes of a picture file; the problem is in words.
fn read_file(path: &Path) -> std::result::Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read ({error})");
    let file = regular::open(path).map_err(unreadable)?;
    check_len(file.metadata().map_err(unreadable)?.len())?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Reads a JPEG or PNG file; the problem is in words.
pub fn read_picture(path: &Path, shape: Shape, fit: Fit) -> std::result::Result<Picture, String> {
    picture_from_bytes(read_file(path)?, shape, fit)
}

/// The same from the bytes of a file.
pub(super) fn picture_from_bytes(
    mut bytes: Vec<u8>,
    shape: Shape,
    fit: Fit,
) -> std::result::Result<Picture, String> {
    let header = Header::read(&bytes)?;
    let (width, height) = (header.width, header.height);
    let crop = match fit {
        Fit::Centre => Crop::centre(width, height, shape.width),
        Fit::Whole => Crop::whole(width, height),
    };
    let mut pixels = Vec::new();
    header.decode(&mut bytes, crop.top + crop.height, &mut pixels)?;
    let bytes = shaped(&pixels, width, crop, shape, &mut Resizer::new())?;
    Ok(Picture { bytes, size: (width, height), grey: header.grey })
}

/// The set in another shape: resized, grey from colours or the same grey in all channels.
pub fn reshape(set: &ImageSet, shape: Shape) -> Result<ImageSet> {
    let from = set.shape();
    if from == shape {
        return Ok(set.clone());
    }
    let crop = Crop::whole(from.width, from.height);
    let images = set.labels().len();
    let mut bytes = vec![0; images * shape.len()];
    bytes.par_chunks_exact_mut(shape.len()).enumerate().try_for_each_init(
        Resizer::new,
        |resizer, (image, out)| {
            let colours: Vec<u8> = match from.channels {
                3 => set.image(image).to_vec(),
                channels => {
                    let grey = set.image(image).iter().step_by(channels.max(1));
                    grey.flat_map(|g| [*g; 3]).collect()
                }
            };
            let pixels = shaped(&colours, from.width, crop, shape, resizer)
                .map_err(|problem| Error::Data(format!("image {image} {problem}")))?;
            out.copy_from_slice(&pixels);
            Ok::<(), Error>(())
        },
    )?;
    ImageSet::new(shape, bytes, set.labels().to_vec())
}

/// A part of red, green and blue pixels in the shape of a network's images.
fn shaped(
    pixels: &[u8],
    width: usize,
    crop: Crop,
    shape: Shape,
    resizer: &mut Resizer,
) -> std::result::Result<Vec<u8>, String> {
    if shape.height != shape.width || ![1, 3].contains(&shape.channels) {
        return Err(format!(
            "cannot be brought to {} x {} pixels with {} channels; only squares of grey or colour are known",
            shape.width, shape.height, shape.channels
        ));
    }
    let size = shape.height;
    let mut colours = vec![0; 3 * size * size];
    crop.resize(pixels, width, size, resizer, &mut colours)?;
    if shape.channels == 3 {
        return Ok(colours);
    }
    // The weights of ITU-R 601, as in Pillow's `convert("L")`.
    let grey = |p: &[u8]| {
        let [r, g, b] = [p[0], p[1], p[2]].map(u32::from);
        ((299 * r + 587 * g + 114 * b + 500) / 1000) as u8
    };
    Ok(colours.chunks_exact(3).map(grey).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{jpeg, jpeg_as, png, write};
    use super::*;

    const COLOUR: Shape = Shape { height: 16, width: 16, channels: 3 };
    const GREY: Shape = Shape { channels: 1, ..COLOUR };

    #[test]
    fn folders_are_walked_and_files_taken_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b/2.JPG", "b/1.png", "a.jpeg", "b/notes.txt"] {
            write(root.path(), name, &jpeg(8, 8, 1));
        }
        let names = |paths: &[PathBuf]| -> Vec<String> {
            let found = list_pictures(paths).unwrap();
            let name = |p: &PathBuf| p.strip_prefix(root.path()).unwrap().display().to_string();
            found.iter().map(name).collect()
        };
        assert_eq!(names(&[root.path().to_owned()]), ["a.jpeg", "b/1.png", "b/2.JPG"]);
        let notes = root.path().join("b/notes.txt");
        assert_eq!(names(&[notes]), ["b/notes.txt"], "what is named is taken");
        write(root.path(), "empty/none.txt", b"");
        let error = list_pictures(&[root.path().join("empty")]).unwrap_err().to_string();
        assert!(error.contains("no pictures"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_that_go_round_in_circles_end() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a", "b"] {
            write(root.path(), &format!("{folder}/1.png"), b"");
            std::os::unix::fs::symlink("..", root.path().join(folder).join("up")).unwrap();
        }
        let found = list_pictures(&[root.path().to_owned()]).unwrap();
        assert_eq!(found, ["a/1.png", "b/1.png"].map(|name| root.path().join(name)));
    }

    #[test]
    fn pictures_come_in_the_shape_of_the_run() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "same.png", &png(16, 16, png::ColorType::Rgb, 3));
        write(root.path(), "wide.jpg", &jpeg(64, 32, 5));
        write(root.path(), "broken.jpg", &jpeg(64, 32, 5)[..200]);
        let read =
            |name: &str, shape: Shape, fit: Fit| read_picture(&root.path().join(name), shape, fit);
        let same = read("same.png", COLOUR, Fit::Whole).unwrap();
        assert_eq!((same.size, same.bytes.len()), ((16, 16), COLOUR.len()));
        assert_eq!(read("same.png", COLOUR, Fit::Centre).unwrap(), same, "nothing to cut");
        let wide = read("wide.jpg", COLOUR, Fit::Whole).unwrap();
        assert_eq!(wide.size, (64, 32));
        assert!(!wide.grey && !same.grey);
        write(root.path(), "grey.png", &png(16, 16, png::ColorType::GrayscaleAlpha, 3));
        write(root.path(), "grey.jpg", &jpeg_as(16, 16, 3, jpeg_encoder::ColorType::Luma, false));
        for name in ["grey.png", "grey.jpg"] {
            assert!(read(name, COLOUR, Fit::Whole).unwrap().grey, "{name}");
        }
        assert_ne!(read("wide.jpg", COLOUR, Fit::Centre).unwrap().bytes, wide.bytes);
        assert_eq!(read("wide.jpg", GREY, Fit::Whole).unwrap().bytes.len(), GREY.len());
        assert!(read("broken.jpg", COLOUR, Fit::Whole).is_err());
        assert!(read("nothing.jpg", COLOUR, Fit::Whole).unwrap_err().contains("cannot be read"));
        let flat = Shape { height: 4, ..COLOUR };
        assert!(read("same.png", flat, Fit::Whole).unwrap_err().contains("only squares"));
    }

    #[test]
    fn sets_change_size_and_colour() {
        // One grey level stays one, whatever the shape.
        let small = Shape { height: 4, width: 4, channels: 1 };
        let set = ImageSet::new(small, [[10; 16], [200; 16]].concat(), vec![3, 1]).unwrap();
        let large = reshape(&set, COLOUR).unwrap();
        assert_eq!(large.shape(), COLOUR);
        assert_eq!(large.labels(), [3, 1]);
        assert_eq!(large.image(0), vec![10; COLOUR.len()]);
        assert_eq!(large.image(1), vec![200; COLOUR.len()]);
        assert_eq!(reshape(&large, small).unwrap(), set);
        assert_eq!(reshape(&set, small).unwrap(), set);
        // Red, green and blue have different weights.
        let one = Shape { height: 1, width: 1, channels: 3 };
        let red = ImageSet::new(one, vec![255, 0, 0], vec![0]).unwrap();
        assert_eq!(reshape(&red, Shape { channels: 1, ..one }).unwrap().image(0), [76]);
    }
}
