//! Data of either kind, behind one type: what a run asks of its data is asked here.

use thinfer_engine::Dataset;

use crate::bundle::Bundle;
use crate::error::Result;
use crate::images::{Broken, ImageData, View, image_rows};
use crate::settings::DataConfig;

/// Data to train on: a table, or images.
#[derive(Clone, Debug)]
pub enum Data {
    /// Rows of numbers.
    Table(Bundle),
    /// Images.
    Images(ImageData),
}

impl Data {
    /// The data that a configuration asks for, in a run with this seed.
    pub fn load(data: &DataConfig, seed: u64) -> Result<Self> {
        Ok(if data.kind.is_images() {
            Self::Images(ImageData::load(data, seed)?)
        } else {
            Self::Table(Bundle::load(data, seed)?)
        })
    }

    /// The table, where it is one.
    pub fn table(&self) -> Option<&Bundle> {
        match self {
            Self::Table(data) => Some(data),
            Self::Images(_) => None,
        }
    }

    /// The images, where they are some.
    pub fn images(&self) -> Option<&ImageData> {
        match self {
            Self::Images(data) => Some(data),
            Self::Table(_) => None,
        }
    }

    /// Rows to learn from, to choose with and to report on.
    pub fn rows(&self) -> (usize, usize, usize) {
        match self {
            Self::Table(data) => (data.train.rows(), data.validation.rows(), data.test.rows()),
            Self::Images(data) => (data.train.rows(), 0, data.test.rows()),
        }
    }

    /// How many classes, or 0.
    pub fn classes(&self) -> usize {
        match self {
            Self::Table(data) => data.classes,
            Self::Images(data) => data.classes.len(),
        }
    }

    /// A number that changes with the training data.
    pub fn fingerprint(&self) -> u32 {
        match self {
            Self::Table(data) => data.fingerprint,
            Self::Images(data) => data.fingerprint,
        }
    }

    /// What the user should know about the data.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Table(data) => &data.notes,
            Self::Images(data) => &data.notes,
        }
    }

    /// Images that are known to be unreadable by now.
    pub fn broken(&self) -> Broken {
        self.images().map(ImageData::broken).unwrap_or_default()
    }

    /// Some test rows, as a network reads them.
    pub fn test_rows(&self, rows: &[u32]) -> Result<Dataset> {
        match self {
            Self::Table(data) => Ok(data.test.take_rows(rows)),
            Self::Images(data) => image_rows(&data.test, &data.augment, View::Centre, rows),
        }
    }
}
