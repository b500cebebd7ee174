//! The simulated designs that Table 4 has rows for.

use serde::{Deserialize, Serialize};
use thinfer_data::simulate::{BAI, Design, EXAMPLE1, EXAMPLE2, EXAMPLE3, FRIEDMAN};

/// Which design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the designs say what each is")]
pub enum Example {
    Example1,
    Example2,
    Example3,
    Bai,
    Friedman,
}

impl Example {
    /// All of them.
    pub const ALL: [Example; 5] =
        [Example::Example1, Example::Example2, Example::Example3, Example::Bai, Example::Friedman];

    /// What is simulated.
    pub fn design(self) -> &'static Design {
        match self {
            Example::Example1 => &EXAMPLE1,
            Example::Example2 => &EXAMPLE2,
            Example::Example3 => &EXAMPLE3,
            Example::Bai => &BAI,
            Example::Friedman => &FRIEDMAN,
        }
    }

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        self.design().name
    }
}
