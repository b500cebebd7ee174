//! Images that a network was not trained on, to see whether it notices.

use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;
use thinfer_engine::Shape;

use crate::config::{Config, DataKind};
use crate::data::images::{Fit, list_pictures, read_picture, reshape};
use crate::data::{ImageData, ImageSet, Images};
use crate::error::{Error, Result};

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
/// where its files are as `SET:PATH`, or a folder of pictures. Of a published set the test images are
/// taken. All are brought into the shape of the images of `config`'s run.
pub fn foreign_images(text: &str, config: &Config, shape: Shape) -> Result<Foreign> {
    let (name, path) = text.split_once(':').map_or((text, None), |(n, p)| (n, Some(p)));
    let mut notes = Vec::new();
    let set = if SETS.contains(&name) {
        let mut settings = vec![format!("data.kind={name}")];
        settings.extend(path.map(|path| format!("data.path={path}")));
        let data = ImageData::load(&Config::parse("", &settings)?)?;
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
    let bytes: Vec<u8> =
        read.iter().flatten().flat_map(|picture| &picture.bytes).copied().collect();
    let images = bytes.len() / shape.len();
    if images < files.len() {
        notes.push(format!(
            "{}: {} of {} pictures cannot be read and are left out",
            folder.display(),
            files.len() - images,
            files.len()
        ));
    }
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
}
