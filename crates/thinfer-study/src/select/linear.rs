//! The linear model on all variables: what it says about the scale of the noise, and the rival that
//! the result is measured against.

use thinfer_core::metrics::Noise;
use thinfer_core::posterior::Predictive;
use thinfer_data::Result;
use thinfer_data::{Bundle, Task};
use thinfer_engine::Dataset;
use thinfer_run::evaluate::{Scores, score};

use super::scores::{Model, ModelScores};
use crate::effects::{row_losses, z};
use crate::linear::LinearModel;

/// The smallest share of a target's variance that counts as noise. Less would need steps too small
/// for the number of them.
const LEAST_NOISE: f64 = 0.01;
/// The smallest mean p(1 − p): classes that a plane separates have none at all.
const LEAST_CURVATURE: f64 = 0.05;
/// Standard errors by which a rival must be better to be called better.
const CLEAR: f64 = 2.0;
/// The share of the constant's loss that a difference has to be worth: what a chain wanders at its
/// temperature is less, and no variable is behind it.
const NEGLIGIBLE: f64 = 1e-3;

/// How precisely a row determines the linear predictor.
///
/// With a loss of curvature c in the linear predictor and the temperature T/N, a weight of a
/// standardised input has the variance T/(N c) when no other input is correlated with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// T: the variance of the noise as a share of the target's, and 1 for classes.
    pub(super) noise: f64,
    /// c: 1 for a squared error, the mean of p(1 − p) for classes.
    pub(super) curvature: f64,
}

/// The linear model that the validation rows chose.
pub(super) struct Linear {
    pub(super) scale: Scale,
    pub(super) scores: Scores,
    pub(super) as_model: ModelScores,
    losses: Vec<f64>,
}

impl Linear {
    pub(super) fn fit(data: &Bundle) -> Result<Self> {
        let (train, validation) = (&data.train, &data.validation);
        let model = match data.task {
            Task::Regression => LinearModel::ridge(train, validation)?,
            Task::Classification => LinearModel::logistic(train, validation, data.classes)?,
        };
        let predictive = predictive(&model, &data.test);
        let own = data.schema.target_scale();
        let variables = data.names.len();
        Ok(Self {
            scale: scale(&model, validation),
            scores: score(&predictive, &data.test, own),
            as_model: ModelScores::of(Model::Linear, variables, &predictive.mean(), data),
            losses: row_losses(&predictive, &data.test),
        })
    }

    /// What to do if this model is clearly better on the test part than one with these `losses`:
    /// the network on the selected variables, or the constant where nothing was found.
    ///
    /// Another form of model can be worse without a variable missing, so the linear model on the
    /// selected variables, `few`, has to be clearly worse as well.
    pub(super) fn advice(
        &self,
        losses: &[f64],
        few: Option<&Linear>,
        constant: &[f64],
        classes: usize,
    ) -> Option<String> {
        let worth = NEGLIGIBLE * constant.iter().sum::<f64>();
        let beats = |rival: &[f64]| {
            let difference: Vec<f64> = rival.iter().zip(&self.losses).map(|(a, b)| a - b).collect();
            let (sum, squares) = (difference.iter().sum(), difference.iter().map(|d| d * d).sum());
            sum > worth && z(sum, squares, difference.len()) > CLEAR
        };
        if !beats(losses) || few.is_some_and(|few| !beats(&few.losses)) {
            return None;
        }
        let other = if classes > 2 { "stochastic-gates" } else { "lasso" };
        Some(match few {
            None => format!(
                "the linear model on all variables predicts the held-out rows better than a constant, so there is something in the table that no single variable shows clearly enough; add rows, or see what `--compare {other}` selects"
            ),
            Some(_) => format!(
                "the linear model on all variables predicts the held-out rows clearly better, so variables that matter a little are probably missing from the selection; add rows, look at variables with a frequency above 0 in the output of `--json`, or see what `--compare {other}` selects"
            ),
        })
    }
}

fn predictive(model: &LinearModel, data: &Dataset) -> Predictive {
    let values = model.predict(data);
    match model.classes() {
        None => Predictive::Regression {
            noise: Noise::Normal,
            means: vec![values],
            sigmas: vec![1.0].into(),
        },
        Some(classes) => Predictive::Classes { classes, members: vec![values] },
    }
}

fn scale(model: &LinearModel, validation: &Dataset) -> Scale {
    let predictive = predictive(model, validation);
    if model.classes().is_some() {
        let values = predictive.mean();
        let curvature = values.iter().map(|p| p * (1.0 - p)).sum::<f64>() / values.len() as f64;
        return Scale { noise: 1.0, curvature: curvature.clamp(LEAST_CURVATURE, 0.25) };
    }
    let losses = row_losses(&predictive, validation);
    let noise = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
    Scale { noise: noise.clamp(LEAST_NOISE, 1.0), curvature: 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(losses: Vec<f64>) -> Linear {
        let scale = Scale { noise: 1.0, curvature: 1.0 };
        let scores = Scores {
            members: 1,
            mse: None,
            accuracy: None,
            nll: None,
            coverage90: None,
            ece: None,
            brier: None,
        };
        let as_model = ModelScores {
            model: Model::Linear,
            variables: 1,
            rmse: None,
            r2: None,
            mae: None,
            accuracy: None,
            auc: None,
            log_loss: None,
        };
        Linear { scale, scores, as_model, losses }
    }

    #[test]
    fn advice_is_given_where_the_linear_model_is_clearly_better_and_only_there() {
        let rows = 100;
        let own: Vec<f64> = (0..rows).map(|row| f64::from(row % 5)).collect();
        let worse: Vec<f64> = own.iter().enumerate().map(|(i, l)| l + (i % 3) as f64).collect();
        let mixed: Vec<f64> =
            own.iter().enumerate().map(|(i, l)| l + if i % 2 == 0 { 1.0 } else { -0.9 }).collect();
        let constant = vec![5.0; rows as usize];
        let advice = |all: &[f64], found: &[f64], few: Option<&[f64]>, classes| {
            let few = few.map(|losses| linear(losses.to_vec()));
            linear(all.to_vec()).advice(found, few.as_ref(), &constant, classes)
        };
        assert!(advice(&own, &worse, Some(&worse), 0).unwrap().contains("missing"));
        assert!(advice(&own, &worse, None, 0).unwrap().contains("a constant"));
        assert_eq!(advice(&worse, &own, Some(&own), 0), None);
        assert_eq!(advice(&own, &mixed, Some(&mixed), 0), None);
        assert_eq!(advice(&own, &own, Some(&own), 0), None);
        // A network that is worse than a linear model on the same variables lacks none.
        assert_eq!(advice(&own, &worse, Some(&own), 2), None);
        assert_eq!(advice(&own, &worse, Some(&mixed), 2), None);
        // Next to nothing of the constant's error, however clear.
        let little: Vec<f64> = own.iter().map(|loss| loss + 1e-4 * (1.0 + loss)).collect();
        assert_eq!(advice(&own, &little, Some(&little), 0), None);
        // The lasso knows two classes.
        assert!(advice(&own, &worse, None, 2).unwrap().contains("--compare lasso"));
        assert!(advice(&own, &worse, None, 3).unwrap().contains("--compare stochastic-gates"));
    }

    /// y = 0.8 x + noise of variance 0.36: the model leaves 0.36 of a variance of 1.
    #[test]
    fn the_noise_is_what_the_linear_model_leaves() {
        let key = thinfer_engine::noise::Key::new(1, 0, thinfer_engine::noise::Stream::Inputs);
        let part = |from: usize| {
            let x: Vec<f32> = (from..from + 2000).map(|i| key.normal(i as u64, 0)).collect();
            let noise = (from..from + 2000).map(|i| 0.6 * key.normal(i as u64, 1));
            let y = x.iter().zip(noise).map(|(x, e)| 0.8 * x + e).collect();
            Dataset::new(1, 1, x, y).unwrap()
        };
        let (train, validation) = (part(0), part(2000));
        let model = LinearModel::ridge(&train, &validation).unwrap();
        let found = scale(&model, &validation);
        assert!((found.noise - 0.36).abs() < 0.03, "{found:?}");
        assert_eq!(found.curvature, 1.0);
    }
}
