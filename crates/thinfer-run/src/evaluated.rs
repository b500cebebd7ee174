//! What a run came to: one question to a run of either kind, and one type for the answer.

use serde::Serialize;
use thinfer_core::device::Device;
use thinfer_data::{Data, Images, Result};

use crate::evaluate::{Behaviour, Convergence, Evaluation, Verdict, evaluate};
use crate::images::{ImageEvaluation, evaluate_image_run};
use crate::run::Run;

/// The evaluation of a run; as JSON it is that of its kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Evaluated {
    /// On the test rows of a table.
    Table(Box<Evaluation>),
    /// On test images.
    Images(Box<ImageEvaluation>),
}

impl Evaluated {
    /// Chains that blew up and are left out of every average.
    pub fn blown_up(&self) -> &[u32] {
        match self {
            Self::Table(found) => &found.blown_up,
            Self::Images(found) => &found.blown_up,
        }
    }

    /// Whether to believe the run.
    pub fn verdict(&self) -> Option<&Verdict> {
        match self {
            Self::Table(found) => Some(&found.verdict),
            Self::Images(found) => found.verdict.as_ref(),
        }
    }

    /// Whether the samples agree.
    pub fn convergence(&self) -> &Convergence {
        match self {
            Self::Table(found) => &found.convergence,
            Self::Images(found) => &found.convergence,
        }
    }

    /// What the chains did.
    pub fn behaviour(&self) -> &Behaviour {
        match self {
            Self::Table(found) => &found.behaviour,
            Self::Images(found) => &found.behaviour,
        }
    }

    /// What is only known of a table, where the run was on one.
    pub fn table(&self) -> Option<&Evaluation> {
        match self {
            Self::Table(found) => Some(found),
            Self::Images(_) => None,
        }
    }

    /// What is only known of images, where the run was on some.
    pub fn images(&self) -> Option<&ImageEvaluation> {
        match self {
            Self::Images(found) => Some(found),
            Self::Table(_) => None,
        }
    }
}

impl Run {
    /// Scores on the test rows, size, and what the chains did. Images are predicted on `device`,
    /// and compared with `foreign` ones, by name and in the shape of the run.
    pub fn evaluate(&self, foreign: &[(String, Images)], device: Device) -> Result<Evaluated> {
        Ok(match &self.data {
            Data::Table(data) => {
                let info = &self.info;
                let found = evaluate(&info.config, &info.network, data, &self.results)?;
                Evaluated::Table(Box::new(found))
            }
            Data::Images(data) => {
                let on = self.on(device)?;
                let found = evaluate_image_run(self, data, foreign, on.as_ref())?;
                Evaluated::Images(Box::new(found))
            }
        })
    }
}
