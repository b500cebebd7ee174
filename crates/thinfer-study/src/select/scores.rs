//! What models are worth on the held-out rows, in the user's units.

use serde::{Deserialize, Serialize};
use thinfer_core::metrics;
use thinfer_data::{Bundle, Task};

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// The Bayesian model on the selected variables.
    Selected,
    /// The ridge or logistic model on all variables.
    Linear,
    /// The lasso.
    Lasso,
    /// The mean, or the most frequent class.
    Constant,
}

/// The scores of a model on the held-out rows; what does not apply is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelScores {
    /// Which model.
    pub model: Model,
    /// How many variables it reads.
    pub variables: usize,
    /// Root of the mean squared error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Share of the variance that is explained; 0 is the mean of the held-out rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Mean absolute error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// Share of right classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Area under the ROC curve, mean over classes where there are more than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auc: Option<f64>,
    /// Mean of −ln p of the true class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_loss: Option<f64>,
}

impl ModelScores {
    /// Scores what a model with so many variables says about the test rows of `data`: the means, or
    /// the probabilities of classes.
    pub(super) fn of(model: Model, variables: usize, mean: &[f64], data: &Bundle) -> Self {
        let (truth, sd) = (data.test.targets(), data.schema.target_scale().1);
        let none = Self {
            model,
            variables,
            rmse: None,
            r2: None,
            mae: None,
            accuracy: None,
            auc: None,
            log_loss: None,
        };
        match (data.task, data.classes) {
            (Task::Regression, _) => Self {
                rmse: metrics::mse(mean, truth).map(|mse| mse.sqrt() * sd),
                r2: metrics::r2(mean, truth),
                mae: metrics::mae(mean, truth).map(|mae| mae * sd),
                ..none
            },
            (Task::Classification, classes) => Self {
                accuracy: metrics::accuracy_from_probabilities(mean, classes, truth),
                auc: metrics::auc(mean, classes, truth),
                log_loss: metrics::negative_log_likelihood_classes(mean, classes, truth),
                ..none
            },
        }
    }

    /// What models are compared by, of which less is better.
    pub(super) fn loss(&self) -> Option<f64> {
        self.rmse.or(self.log_loss)
    }
}

/// The constant prediction from the training rows, for the test rows.
pub(super) fn constant(data: &Bundle) -> Vec<f64> {
    let (n, rows) = (data.train.rows() as f64, data.test.rows());
    let one = match data.task {
        Task::Regression => {
            vec![data.train.targets().iter().map(|y| f64::from(*y)).sum::<f64>() / n]
        }
        Task::Classification => {
            // Half a row more for each class, so that none is impossible.
            let all = n + 0.5 * data.classes as f64;
            let mut share = vec![0.5 / all; data.classes];
            data.train.targets().iter().for_each(|y| share[*y as usize] += 1.0 / all);
            share
        }
    };
    one.repeat(rows)
}
