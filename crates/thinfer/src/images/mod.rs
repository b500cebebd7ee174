//! Image classification: what networks say about images, what a run on images is worth, how large
//! its network still is, and which images are worth a look.

pub(crate) mod classify;
mod evaluate;
mod foreign;
mod judge;
mod pick;
mod predict;
mod size;

pub use classify::{Classifier, classify};
pub use evaluate::{
    ClassScores, Confusion, CycleScores, ForeignImages, ForeignScores, ImageEvaluation,
    ImageResults, ImageScores, SnapshotScores, evaluate_images,
};
pub use foreign::{Foreign, foreign_images};
pub use judge::{Judged, judge};
pub use pick::{Pick, Reason, pick};
pub use predict::{ImagePrediction, ImagePredictions, predict_images};
pub use size::{Amounts, ImageSize, LayerSize, image_size};

#[cfg(test)]
pub(crate) use evaluate::tests;
