//! Networks that look at images: what they say about many of them.

mod classify;

pub use classify::{Classifier, classify};
