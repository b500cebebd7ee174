//! How the columns of a table are prepared: what becomes of gaps, and which columns are used.

use serde::{Deserialize, Serialize};

/// What becomes of missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// They are filled in from the training rows, and an input says where they were.
    #[default]
    Impute,
    /// Their rows are left out.
    DropRows,
    /// The table is refused.
    Refuse,
}

/// How much is made of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prepare {
    /// Dates become numbers, rare levels are pooled, identifiers are left out.
    #[default]
    Full,
    /// Numbers are standardised and levels become columns, as runs of version 0.1.0 did it.
    Plain,
}

/// How the columns of a table are prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What becomes of missing values.
    pub missing: Missing,
    /// How much is made of a column.
    pub prepare: Prepare,
    /// Columns that are used although they look like identifiers.
    pub keep: Vec<String>,
    /// Columns that are not used.
    pub leave_out: Vec<String>,
}

impl Rules {
    /// Complete rows alone, and columns as they stand.
    pub fn plain() -> Self {
        Self { missing: Missing::DropRows, prepare: Prepare::Plain, ..Self::default() }
    }

    /// Whether a column is not to be used, whatever is in it.
    pub fn leaves_out(&self, name: &str) -> bool {
        self.leave_out.iter().any(|other| other == name)
    }

    /// Whether a column is to be used, whatever it looks like.
    pub fn keeps(&self, name: &str) -> bool {
        self.keep.iter().any(|other| other == name)
    }
}
