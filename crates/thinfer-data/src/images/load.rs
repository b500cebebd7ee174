//! From a configuration to images.

use std::path::PathBuf;
use std::sync::Arc;

use thinfer_engine::augment::Augment;

use super::{Broken, ImageData, ImageSet, Images, cifar, mnist, shapes, user_images};
use crate::error::{Error, Result};
use crate::settings::{DataConfig, DataKind};

impl ImageData {
    /// Reads or generates the images that a configuration names, in a run with this seed.
    pub fn load(data: &DataConfig, seed: u64) -> Result<Self> {
        match data.kind {
            DataKind::Shapes => shapes::load(data, seed),
            DataKind::Mnist | DataKind::FashionMnist => mnist::load(data),
            DataKind::Cifar10 | DataKind::Cifar100 => cifar::load(data),
            DataKind::Images => user_images::load(data, seed),
            other => {
                Err(Error::config("data.kind", format!("is {}, which has no images", other.name())))
            }
        }
    }
}

/// Where the files of a set are: the given place, or a folder of its name.
pub(super) fn place(data: &DataConfig) -> PathBuf {
    match &data.path {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from("data").join(data.kind.name()),
    }
}

/// What is known of a published set besides its images.
pub(super) struct Look {
    /// Mean of each channel of the training images, in units of 255.
    pub(super) mean: &'static [f32],
    /// Their standard deviation.
    pub(super) sd: &'static [f32],
    /// Border of a random crop, unless the configuration says otherwise.
    pub(super) padding: usize,
    /// Whether images are mirrored, unless the configuration says otherwise.
    pub(super) flip: bool,
    /// The names of the classes.
    pub(super) classes: Vec<String>,
}

impl Look {
    /// The data set of images in memory.
    pub(super) fn held(
        self,
        data: &DataConfig,
        train: ImageSet,
        test: ImageSet,
        notes: Vec<String>,
    ) -> Result<ImageData> {
        let padding = data.crop_padding.unwrap_or(self.padding);
        let flip = data.flip.unwrap_or(self.flip);
        let augment = Augment::new(train.shape(), padding, flip, self.mean, self.sd)?;
        let fingerprint = train.fingerprint();
        Ok(ImageData {
            train: Images::Held(Arc::new(train)),
            test: Images::Held(Arc::new(test)),
            classes: self.classes,
            augment,
            notes,
            unreadable: Broken::default(),
            fingerprint,
        })
    }
}
