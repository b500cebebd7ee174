//! What a run is compared with: a constant and a linear model on the same test rows.

use serde::Serialize;
use thinfer_core::linear::LinearModel;
use thinfer_core::metrics;
use thinfer_core::posterior::Predictive;
use thinfer_data::{Bundle, Task};
use thinfer_engine::Dataset;
use thinfer_engine::noise::{Key, Stream};

/// Where no rows are kept apart, so many of the training rows choose the penalty.
const APART: f64 = 0.2;
/// Numbers of a table, rows times columns, above which no linear model is fitted: it would take
/// longer than an evaluation may.
const MOST_CELLS: usize = 50_000_000;
/// The same with each class once.
const MOST_CELLS_OF_CLASSES: usize = 20_000_000;

/// Scores as people want to see them, in the user's units; absent where they do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PlainScores {
    /// Root of the mean squared error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Share of the variance of the test rows that is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Mean absolute error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// Share of right classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Area under the ROC curve; with more than two classes the mean of each against the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auc: Option<f64>,
    /// Mean negative log-likelihood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_loss: Option<f64>,
}

/// The posterior beside predictions that need no network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The posterior.
    pub posterior: PlainScores,
    /// The mean or the frequencies of the training rows.
    pub constant: PlainScores,
    /// Ridge regression, of classes logistic; nothing where it could not be fitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear: Option<PlainScores>,
    /// Whether the linear model is better than the posterior by more than chance allows.
    pub loses_to_linear: bool,
    /// Whether the posterior is hardly better than the constant.
    pub hardly_better_than_constant: bool,
}

/// A share of a constant's error below which a gain is none.
const HARDLY: f64 = 0.02;
/// The linear model is better where the losses of the rows differ by so many standard errors, and
/// by such a share.
const ERRORS: f64 = 2.0;
const SHARE: f64 = 0.01;

/// Predictions of rows: means in the user's units, or probabilities row by row.
enum Guess {
    Numbers(Vec<f64>),
    Classes(Vec<f64>),
}

impl Beside {
    /// Whether the posterior predicts better than both.
    pub fn is_worth_its_time(&self) -> bool {
        !self.loses_to_linear && !self.hardly_better_than_constant
    }

    /// Fits the linear model and compares. `predictive` is what the posterior says of the test rows.
    pub(crate) fn of(predictive: &Predictive, data: &Bundle, seed: u64) -> Self {
        let scale = data.schema.target_scale();
        let (mean, sd) = scale;
        let ours = match predictive {
            Predictive::Regression { .. } => {
                Guess::Numbers(predictive.mean().iter().map(|m| mean + sd * m).collect())
            }
            Predictive::Classes { .. } => Guess::Classes(predictive.mean()),
        };
        let rows = data.test.rows();
        let train = data.train.targets();
        let n = train.len().max(1) as f64;
        let constant = match data.task {
            Task::Regression => {
                let of_train = train.iter().map(|y| f64::from(*y)).sum::<f64>() / n;
                Guess::Numbers(vec![mean + sd * of_train; rows])
            }
            Task::Classification => {
                let mut shares = vec![0.0; data.classes];
                train.iter().for_each(|y| shares[*y as usize] += 1.0 / n);
                Guess::Classes(shares.repeat(rows))
            }
        };
        let linear = linear(data, seed).map(|guess| match guess {
            Guess::Numbers(values) => {
                Guess::Numbers(values.into_iter().map(|value| mean + sd * value).collect())
            }
            Guess::Classes(probabilities) => Guess::Classes(probabilities),
        });
        let truth: Vec<f64> =
            data.test.targets().iter().map(|y| mean + sd * f64::from(*y)).collect();
        let of = |guess: &Guess| scores(guess, &truth, data.classes);
        let losses = |guess: &Guess| losses(guess, &truth, data.classes);
        let loses = linear.as_ref().is_some_and(|other| {
            is_clearly_better(&losses(other), &losses(&ours)) && errs_more(&of(&ours), &of(other))
        });
        let (posterior, constant) = (of(&ours), of(&constant));
        Self {
            hardly_better_than_constant: hardly_better(&posterior, &constant),
            posterior,
            constant,
            linear: linear.as_ref().map(of),
            loses_to_linear: loses,
        }
    }
}

/// The linear model's predictions of the test rows, in the network's units.
fn linear(data: &Bundle, seed: u64) -> Option<Guess> {
    let cells = data.train.rows() * data.train.columns();
    let of_classes = cells * data.classes.max(1);
    if cells > MOST_CELLS || data.classes > 0 && of_classes > MOST_CELLS_OF_CLASSES {
        return None;
    }
    let (train, apart);
    let (train, apart): (&Dataset, &Dataset) = if data.validation.rows() > 0 {
        (&data.train, &data.validation)
    } else {
        let rows = data.train.rows();
        let order = Key::new(seed, 0, Stream::Split).permutation(u64::from(u32::MAX), rows);
        let first = ((APART * rows as f64) as usize).max(1);
        train = data.train.take_rows(&order[first..]);
        apart = data.train.take_rows(&order[..first]);
        (&train, &apart)
    };
    let model = match data.task {
        Task::Regression => LinearModel::ridge(train, apart),
        Task::Classification => LinearModel::logistic(train, apart, data.classes),
    };
    // Columns that are all alike, or a class that is missing: there is nothing to compare with.
    let predicted = model.ok()?.predict(&data.test);
    Some(match data.task {
        Task::Regression => Guess::Numbers(predicted),
        Task::Classification => Guess::Classes(predicted),
    })
}

fn scores(guess: &Guess, truth: &[f64], classes: usize) -> PlainScores {
    let n = truth.len().max(1) as f64;
    match guess {
        Guess::Numbers(values) => {
            let mean = truth.iter().sum::<f64>() / n;
            let all = truth.iter().map(|y| (y - mean).powi(2)).sum::<f64>();
            let differences = || values.iter().zip(truth).map(|(value, y)| value - y);
            let squares = differences().map(|d| d * d).sum::<f64>();
            PlainScores {
                rmse: Some((squares / n).sqrt()),
                r2: (all > 0.0).then(|| 1.0 - squares / all),
                mae: Some(differences().map(f64::abs).sum::<f64>() / n),
                ..PlainScores::default()
            }
        }
        Guess::Classes(probabilities) => PlainScores {
            accuracy: metrics::accuracy_from_probabilities(probabilities, classes, truth),
            auc: auc(probabilities, truth, classes),
            log_loss: metrics::negative_log_likelihood_classes(probabilities, classes, truth),
            ..PlainScores::default()
        },
    }
}

/// The area under the ROC curve, mean over the classes that some rows have and others have not.
fn auc(probabilities: &[f64], truth: &[f64], classes: usize) -> Option<f64> {
    let of_class = |class: usize| {
        let column = |row: usize| probabilities[row * classes + class];
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..truth.len()).partition(|row| truth[*row] as usize == class);
        let values = |rows: &[usize]| rows.iter().map(|row| column(*row)).collect::<Vec<_>>();
        metrics::detect(&values(&outside), &values(&inside)).map(|found| found.auroc)
    };
    let which = if classes == 2 { 1..2 } else { 0..classes };
    let found: Vec<f64> = which.filter_map(of_class).collect();
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
}

/// The loss of each row: squares, or minus the logarithm of the probability of the truth.
fn losses(guess: &Guess, truth: &[f64], classes: usize) -> Vec<f64> {
    match guess {
        Guess::Numbers(values) => values.iter().zip(truth).map(|(v, y)| (v - y).powi(2)).collect(),
        Guess::Classes(probabilities) => metrics::of_truth(probabilities, classes, truth)
            .into_iter()
            .map(|p| -p.max(f64::MIN_POSITIVE).ln())
            .collect(),
    }
}

/// Whether losses are smaller than others, row by row.
fn is_clearly_better(theirs: &[f64], ours: &[f64]) -> bool {
    let n = ours.len() as f64;
    if n < 2.0 {
        return false;
    }
    let differences: Vec<f64> =
        ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs).collect();
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let level = ours.iter().sum::<f64>() / n;
    mean > ERRORS * (variance / n).sqrt() && mean > SHARE * level.abs()
}

/// Whether the first is no better by what people look at: a smaller log loss alone is no reason to
/// leave the better classifier.
fn errs_more(ours: &PlainScores, theirs: &PlainScores) -> bool {
    match (ours.accuracy, theirs.accuracy) {
        (Some(ours), Some(theirs)) => ours < theirs,
        _ => true,
    }
}

fn hardly_better(ours: &PlainScores, constant: &PlainScores) -> bool {
    let of_numbers = ours.rmse.zip(constant.rmse).map(|(o, c)| o * o > (1.0 - HARDLY) * c * c);
    let of_classes = || {
        let (o, c) = ours.accuracy.zip(constant.accuracy)?;
        let (a, b) = ours.log_loss.zip(constant.log_loss)?;
        Some(1.0 - o > (1.0 - HARDLY) * (1.0 - c) && a > (1.0 - HARDLY) * b)
    };
    of_numbers.or_else(of_classes).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_the_textbooks() {
        let found = scores(&Guess::Numbers(vec![1.0, 2.0, 5.0]), &[1.0, 3.0, 5.0], 0);
        assert!((found.rmse.unwrap() - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((found.r2.unwrap() - (1.0 - 1.0 / 8.0)).abs() < 1e-12);
        assert!((found.mae.unwrap() - 1.0 / 3.0).abs() < 1e-12);
        // Two of three pairs in the right order.
        let probabilities = [0.9, 0.1, 0.4, 0.6, 0.5, 0.5, 0.2, 0.8];
        let found = scores(&Guess::Classes(probabilities.to_vec()), &[0.0, 0.0, 1.0, 1.0], 2);
        assert!((found.auc.unwrap() - 0.75).abs() < 1e-12);
        assert_eq!(found.rmse, None);
    }

    #[test]
    fn better_means_better_than_chance_and_worth_the_trouble() {
        let ours = [1.0, 1.2, 0.9, 1.1, 1.0, 1.3, 0.8, 1.0];
        let theirs = ours.map(|loss| loss - 0.2);
        assert!(is_clearly_better(&theirs, &ours) && !is_clearly_better(&ours, &theirs));
        assert!(!is_clearly_better(&ours.map(|loss| loss - 1e-3), &ours), "too little");
        let mixed = [0.5, 1.8, 0.4, 1.6, 0.5, 1.9, 0.2, 1.3];
        assert!(!is_clearly_better(&mixed, &ours), "chance");
        let constant = PlainScores { rmse: Some(10.0), ..PlainScores::default() };
        let near = PlainScores { rmse: Some(9.95), ..constant };
        assert!(hardly_better(&near, &constant));
        assert!(!hardly_better(&PlainScores { rmse: Some(9.0), ..constant }, &constant));
    }
}
