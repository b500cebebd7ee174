//! What a chain learns from.

use thinfer_data::{Data, ImageData};
use thinfer_engine::Dataset;

/// Rows to learn from.
#[derive(Clone, Copy, Debug)]
pub enum Examples<'a> {
    /// Rows of numbers.
    Table(&'a Dataset),
    /// Images, with others to be scored on.
    Images(&'a ImageData),
}

impl<'a> From<&'a Dataset> for Examples<'a> {
    fn from(data: &'a Dataset) -> Self {
        Self::Table(data)
    }
}

impl<'a> From<&'a ImageData> for Examples<'a> {
    fn from(data: &'a ImageData) -> Self {
        Self::Images(data)
    }
}

impl<'a> From<&'a Data> for Examples<'a> {
    fn from(data: &'a Data) -> Self {
        match data {
            Data::Table(data) => (&data.train).into(),
            Data::Images(data) => data.into(),
        }
    }
}

impl Examples<'_> {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        match self {
            Examples::Table(data) => data.rows(),
            Examples::Images(data) => data.train.rows(),
        }
    }
}
