//! Images that a network was not trained on, to see whether it notices.

use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;
use thinfer_data::images::{Fit, list_pictures, read_picture, reshape};
use thinfer_data::{Error, Result};
use thinfer_data::{ImageData, ImageSet, Images};
use thinfer_engine::Shape;

use crate::config::{Config, DataKind};

/// Published sets that can be named.
const SETS: [&str; 5] = ["cifar10", "cifar100", "mnist", "fashion-mnist", "shapes"];

/// Images of another data set in the shape of a run.
pub struct Foreign {
    /// The name of the set.
    pub name: String,
    /// The images.
    pub images: Images,
    /// What was done to them.
    pub notes: Vec<String>,
}

/// The images that `text` names: a published set from its folder below `data`, a published set and
/// where its files are as `SET:PATH`, or a folder of pictures. Of a published set the test images
/// are taken. All are brought into the shape of the images of `config`'s run.
pub fn foreign_images(text: &str, config: &Config, shape: Shape) -> Result<Foreign> {
    let (name, path) = text.split_once(':').map_or((text, None), |(n, p)| (n, Some(p)));
    let mut notes = Vec::new();
    let set = if SETS.contains(&name) {
        let mut settings = vec![format!("data.kind={name}")];
        settings.extend(path.map(|path| format!("data.path={path}")));
        let data = {
            let found = Config::parse("", &settings)?;
            ImageData::load(&found.data, found.seed)?
        };
        let Images::Held(set) = data.test else {
            return Err(Error::Data(format!("{name} is too large to compare with")));
        };
        let from = set.shape();
        if from != shape {
            notes.push(format!(
                "{name}: images of {}x{} with {} channels are compared as {}x{} with {}",
                from.width, from.height, from.channels, shape.width, shape.height, shape.channels
            ));
        }
        reshape(&set, shape)?
    } else {
        let folder = PathBuf::from(text);
        if !folder.is_dir() {
            let problem = format!(
                "is `{text}`, which is neither a folder of pictures nor one of {}",
                SETS.join(", ")
            );
            return Err(Error::config("--ood", problem));
        }
        pictures(&folder, config.data.kind, shape, &mut notes)?
    };
    Ok(Foreign { name: text.to_owned(), images: Images::Held(Arc::new(set)), notes })
}

fn pictures(
    folder: &PathBuf,
    kind: DataKind,
    shape: Shape,
    notes: &mut Vec<String>,
) -> Result<ImageSet> {
    let fit = if kind == DataKind::Images { Fit::Centre } else { Fit::Whole };
    let files = list_pictures(std::slice::from_ref(folder))?;
    let read: Vec<_> = files.par_iter().map(|file| read_picture(file, shape, fit)).collect();
    let pictures: Vec<_> = read.iter().flatten().collect();
    let (name, all, images) = (folder.display(), files.len(), pictures.len());
    if let (0, Some(Err(problem))) = (images, read.first()) {
        return Err(Error::Data(format!(
            "{name}: no picture can be read: {} {problem}; give a folder of .jpg or .png files",
            files[0].display()
        )));
    }
    if images < all {
        notes.push(format!(
            "{name}: {} of {all} pictures cannot be read and are left out",
            all - images
        ));
    }
    let resized = pictures.iter().filter(|p| p.size != (shape.width, shape.height)).count();
    if resized > 0 {
        let how = if fit == Fit::Centre { "cropped in the middle and resized" } else { "resized" };
        notes.push(format!(
            "{name}: {resized} of {all} pictures are {how} to {}x{}",
            shape.width, shape.height
        ));
    }
    let recoloured = pictures.iter().filter(|p| p.grey != (shape.channels == 1)).count();
    if recoloured > 0 {
        let how = if shape.channels == 1 {
            "coloured and become grey"
        } else {
            "grey and become coloured"
        };
        notes.push(format!("{name}: {recoloured} of {all} pictures are {how}"));
    }
    let bytes = pictures.iter().flat_map(|picture| &picture.bytes).copied().collect();
    ImageSet::new(shape, bytes, vec![0; images])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_folders_have_the_shape_of_the_run() {
        let config = Config::parse("", &["data.kind=cifar10".to_owned()]).unwrap();
        let shape = Shape { height: 32, width: 32, channels: 3 };
        let found = foreign_images("shapes", &config, shape).unwrap();
        assert_eq!((found.images.shape(), found.images.rows()), (shape, 1000));
        assert!(found.notes[0].contains("28x28 with 1 channels"), "{:?}", found.notes);
        let Err(error) = foreign_images("nowhere", &config, shape) else { panic!("no such set") };
        assert!(error.to_string().contains("neither a folder"), "{error}");
    }

    /// A PNG file of one grey level.
    fn picture(side: u32, color: png::ColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, side, side);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().unwrap();
        let pixels = vec![9; (side * side) as usize * color.samples()];
        writer.write_image_data(&pixels).unwrap();
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn pictures_of_another_shape_are_told_and_a_folder_without_any_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().to_str().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        let found = |kind: &str, channels| {
            let config = Config::parse("", &[format!("data.kind={kind}")]).unwrap();
            foreign_images(text, &config, Shape { height: 8, width: 8, channels })
        };
        write("a.png", b"x");
        let Err(error) = found("cifar10", 3) else { panic!("there is nothing to read") };
        let error = error.to_string();
        assert!(error.contains("no picture can be read") && error.contains("a.png is neither"));
        write("a.png", &picture(8, png::ColorType::Rgb));
        assert!(found("cifar10", 3).unwrap().notes.is_empty());
        write("b.png", &picture(12, png::ColorType::Grayscale));
        let notes = |kind: &str, channels| -> Vec<String> {
            let notes = found(kind, channels).unwrap().notes;
            notes.iter().map(|n| n.trim_start_matches(&format!("{text}: ")).to_owned()).collect()
        };
        assert_eq!(
            notes("cifar10", 3),
            ["1 of 2 pictures are resized to 8x8", "1 of 2 pictures are grey and become coloured"]
        );
        assert_eq!(notes("mnist", 1)[1], "1 of 2 pictures are coloured and become grey");
        assert!(notes("images", 3)[0].contains("cropped in the middle and resized to 8x8"));
    }
}
