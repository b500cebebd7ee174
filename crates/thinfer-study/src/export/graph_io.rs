//! What goes into a graph and what comes out of it.

/// Names of outputs.
pub(super) const LOGITS: &str = "logits";
pub(super) const PROBABILITIES: &str = "probabilities";
pub(super) const MEANS: &str = "means";
pub(super) const MEAN: &str = "mean";
pub(super) const SD: &str = "sd";

/// What is given to an input.
pub(super) enum Fed {
    /// Numbers of this shape.
    Floats(Vec<usize>, Vec<f32>),
    /// One whole number a row.
    Integers(Vec<i32>),
}
