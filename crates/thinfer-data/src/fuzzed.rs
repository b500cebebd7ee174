//! What a fuzz target says of some bytes.

/// What became of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They were read.
    Read,
    /// They were refused, for this reason.
    Refused(String),
}

/// What became of some bytes, or the promise that the reader broke.
pub type Checked = std::result::Result<Outcome, String>;

impl Outcome {
    /// Refused for that reason.
    pub fn refused(reason: &impl ToString) -> Self {
        Self::Refused(reason.to_string())
    }
}
