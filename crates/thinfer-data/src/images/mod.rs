//! Images: sets held in memory as bytes, and streams that are decoded when they are needed.

mod broken;
mod cifar;
mod crop;
mod decode;
mod files;
mod folders;
#[doc(hidden)]
pub mod fuzzed;
mod idx;
mod inspect;
mod link_guard;
mod load;
mod mnist;
mod pickle;
mod picture;
mod prefetch;
mod published;
mod rows;
mod shapes;
mod shards;
mod stream;
mod survey;
#[cfg(test)]
mod testing;
mod user_images;

use std::fmt::Debug;
use std::sync::Arc;

use thinfer_engine::Shape;
use thinfer_engine::augment::Augment;
use thinfer_engine::noise::Key;

use crate::error::{Error, Result};
pub use broken::{Broken, Unreadable};
pub use files::md5_of;
use files::{check_md5, gzip_or_plain, missing, problem};
pub use inspect::{ClassCount, Inspection};
use load::{Look, place};
pub use picture::{Fit, Picture, list_pictures, read_picture, reshape};
pub use prefetch::{Chunk, Prefetch, Speed};
pub use published::{Download, Published};
pub use rows::image_rows;
pub use survey::Survey;

/// Images of one shape with their classes, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSet {
    shape: Shape,
    bytes: Vec<u8>,
    labels: Vec<u32>,
}

impl ImageSet {
    /// Takes images one after another, rows of pixels with channels last, and one class each.
    pub fn new(shape: Shape, bytes: Vec<u8>, labels: Vec<u32>) -> Result<Self> {
        if bytes.len() != shape.len() * labels.len() {
            let (images, labels) = (bytes.len() / shape.len().max(1), labels.len());
            return Err(Error::Data(format!("there are {images} images and {labels} labels")));
        }
        Ok(Self { shape, bytes, labels })
    }

    /// The shape of one image.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// All images, one after another.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The class of each image.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The bytes of one image.
    pub fn image(&self, row: usize) -> &[u8] {
        let len = self.shape.len();
        &self.bytes[row * len..][..len]
    }

    /// A number that changes with the images and their classes.
    pub fn fingerprint(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.bytes);
        self.labels.iter().for_each(|label| hasher.update(&label.to_le_bytes()));
        hasher.finalize()
    }
}

/// How a stream shows an image.
#[derive(Clone, Copy, Debug)]
pub enum View {
    /// A random resized crop, mirrored or not: a pure function of key, epoch and row.
    Random {
        /// The key of the chances.
        key: Key,
        /// The epoch.
        epoch: u64,
    },
    /// The centre, for evaluation.
    Centre,
}

/// Images that are too many to hold: decoded, cropped and resized when they are needed.
pub trait ImageStream: Debug + Send + Sync {
    /// The shape that every image comes in.
    fn shape(&self) -> Shape;

    /// The class of each image.
    fn labels(&self) -> &[u32];

    /// Writes the images of `rows` one after another, on all threads of the current pool.
    fn fill(&self, rows: &[u32], view: View, out: &mut [u8]) -> Result<()>;

    /// Bytes that a thread takes to decode one image, as far as that is known.
    fn decoding_bytes(&self) -> u64 {
        0
    }

    /// The images that could not be read by now and were replaced by others of their class.
    fn unreadable(&self) -> Vec<Unreadable> {
        Vec::new()
    }
}

/// Images to train on or to look at.
#[derive(Clone, Debug)]
pub enum Images {
    /// In memory.
    Held(Arc<ImageSet>),
    /// Decoded when they are needed.
    Streamed(Arc<dyn ImageStream>),
}

impl Images {
    /// The shape of one image.
    pub fn shape(&self) -> Shape {
        match self {
            Images::Held(set) => set.shape(),
            Images::Streamed(stream) => stream.shape(),
        }
    }

    /// The class of each image.
    pub fn labels(&self) -> &[u32] {
        match self {
            Images::Held(set) => set.labels(),
            Images::Streamed(stream) => stream.labels(),
        }
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.labels().len()
    }

    /// Bytes held in memory.
    pub fn held_bytes(&self) -> usize {
        match self {
            Images::Held(set) => set.bytes.len(),
            Images::Streamed(_) => 0,
        }
    }
}

/// A data set of images, ready to train on.
#[derive(Clone, Debug)]
pub struct ImageData {
    /// To learn from.
    pub train: Images,
    /// To report on.
    pub test: Images,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// What happens to a training image of `train` on its way into a batch: crops and mirroring
    /// for held images, normalisation for all.
    pub augment: Augment,
    /// What the user should know about the data.
    pub notes: Vec<String>,
    /// Images that were found unreadable when the data was loaded.
    pub unreadable: Broken,
    /// A number that changes with the training data.
    pub fingerprint: u32,
}

impl ImageData {
    /// Images that are known to be unreadable by now: those of a stream show when they are needed.
    pub fn broken(&self) -> Broken {
        let mut broken = self.unreadable.clone();
        if let Images::Streamed(stream) = &self.train {
            let test = &self.unreadable.test;
            broken.add_train(stream.unreadable().into_iter().filter(|image| !test.contains(image)));
        }
        broken
    }
}
