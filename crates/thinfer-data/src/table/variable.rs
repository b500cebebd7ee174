//! What becomes of a source column: the design columns it has, and what stands in for its gaps.

use serde::{Deserialize, Serialize};

use super::dates::{Order, Part};
use crate::error::{Error, Result};

/// A source column that is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub kind: Kind,
    /// What becomes of its missing cells. Without it they are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Gaps>,
}

/// What becomes of a source column. Standard deviations have the divisor n.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// One design column, `(x - mean) / sd`.
    Number {
        /// The mean over the training rows.
        mean: f64,
        /// The standard deviation over the training rows.
        sd: f64,
    },
    /// One design column a level, 1 where the cell is that level and 0 elsewhere, standardised.
    Category {
        /// The levels; numbers in numeric order, text in alphabetic order.
        levels: Vec<String>,
        /// The share of the training rows with each level.
        means: Vec<f64>,
        /// The standard deviation of each design column.
        sds: Vec<f64>,
        /// Levels that are rare, in alphabetic order. Where there are some, one more design column
        /// behind the levels is 1 where the cell is none of the levels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pooled: Vec<String>,
    },
    /// One design column for each number that is made of a date, standardised.
    Date {
        /// Which way round the numbers of the date are.
        order: Order,
        /// What is made of it.
        parts: Vec<Part>,
        /// The mean of each over the training rows.
        means: Vec<f64>,
        /// The standard deviation of each.
        sds: Vec<f64>,
    },
}

/// What becomes of missing cells, as learned from the training rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gaps {
    /// What stands in for a missing cell: of numbers the median, of a category the place of its
    /// most frequent level. The parts of a missing date are at their means, whatever this is.
    pub fill: f64,
    /// The share of the training rows where the cell is missing. Above 0 the variable has one more
    /// design column, 1 where the cell is missing and 0 elsewhere, standardised. A category then
    /// has none of its levels there.
    pub share: f64,
}

impl Variable {
    /// A variable that may not have gaps.
    pub fn complete(name: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), kind, gaps: None }
    }

    /// The number of design columns.
    pub fn width(&self) -> usize {
        self.kind.width() + usize::from(self.flags_gaps())
    }

    /// Whether a design column says where cells are missing.
    pub fn flags_gaps(&self) -> bool {
        self.gaps.as_ref().is_some_and(|gaps| gaps.share > 0.0)
    }

    /// The names of the design columns.
    pub fn design_names(&self) -> Vec<String> {
        let name = &self.name;
        let mut names = match &self.kind {
            Kind::Number { .. } => vec![name.clone()],
            Kind::Category { levels, pooled, .. } => {
                let named = levels.iter().map(|level| format!("{name}={level}"));
                let other = (!pooled.is_empty()).then(|| format!("{name} is another"));
                named.chain(other).collect()
            }
            Kind::Date { parts, .. } => {
                parts.iter().map(|part| format!("{name} ({})", part.name())).collect()
            }
        };
        names.extend(self.flags_gaps().then(|| format!("{name} is missing")));
        names
    }

    /// Refuses what no training rows can have shown.
    pub(super) fn check(&self) -> Result<()> {
        let sound = |mean: f64, sd: f64| mean.is_finite() && sd.is_finite() && sd > 0.0;
        let all = |means: &[f64], sds: &[f64]| {
            means.len() == sds.len() && means.iter().zip(sds).all(|(mean, sd)| sound(*mean, *sd))
        };
        let good = match &self.kind {
            Kind::Number { mean, sd } => sound(*mean, *sd),
            Kind::Category { levels, means, sds, pooled } => {
                let width = levels.len() + usize::from(!pooled.is_empty());
                !levels.is_empty() && width == means.len() && all(means, sds)
            }
            Kind::Date { parts, means, sds, .. } => {
                !parts.is_empty() && parts.len() == means.len() && all(means, sds)
            }
        };
        let filled = self.gaps.as_ref().is_none_or(|gaps| {
            let place = match &self.kind {
                Kind::Number { .. } | Kind::Date { .. } => true,
                Kind::Category { levels, .. } => {
                    gaps.fill >= 0.0 && gaps.fill < levels.len() as f64
                }
            };
            gaps.fill.is_finite() && place && (0.0..1.0).contains(&gaps.share)
        });
        if good && filled {
            return Ok(());
        }
        Err(Error::Data(format!(
            "the encoding of `{}` is damaged; train the model again",
            self.name
        )))
    }
}

impl Kind {
    /// The number of design columns, without the one that says where cells are missing.
    pub fn width(&self) -> usize {
        match self {
            Kind::Number { .. } => 1,
            Kind::Category { means, .. } | Kind::Date { means, .. } => means.len(),
        }
    }
}

impl Gaps {
    /// The design column that says where cells are missing: its value where they are there, and
    /// where they are missing.
    pub fn flag(&self) -> [f32; 2] {
        let sd = self.flag_sd();
        [0.0, 1.0].map(|value| ((value - self.share) / sd) as f32)
    }

    /// The standard deviation of that column.
    pub fn flag_sd(&self) -> f64 {
        (self.share * (1.0 - self.share)).sqrt()
    }
}
