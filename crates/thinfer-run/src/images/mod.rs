//! Image classification: what networks say about images, scores of a run on images, how large
//! its network still is, and which images are worth a look.

mod evaluate;
mod foreign;
#[cfg(any(test, feature = "testing"))]
pub mod imagined;
mod nearest;
mod of_run;
mod pick;
mod predict;

pub use evaluate::{
    ClassScores, Confusion, CycleScores, ForeignImages, ForeignScores, ImageEvaluation,
    ImageResults, ImageScores, NamedScore, SnapshotScores, evaluate_images,
};
pub use foreign::{Foreign, foreign_images};
pub use nearest::NearestMean;
pub use of_run::evaluate_image_run;
pub use pick::{Pick, Reason, pick};
pub use predict::{ImagePrediction, ImagePredictions, predict_images};
pub use thinfer_core::classify::{Classifier, classify};
pub use thinfer_core::shrink::{Amounts, ImageSize, LayerSize, image_size};
