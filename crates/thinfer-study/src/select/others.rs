//! Other selectors on the same rows, and what other thresholds would have selected.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use thinfer_data::Bundle;
use thinfer_data::{Error, Result};
use thinfer_run::evaluate::score;

use super::scores::{Model, ModelScores};
use super::screen::Screen;
use crate::selectors::Selector;

/// What another selector makes of the same training, validation and test rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// Its name.
    pub name: String,
    /// The variables it selects, in the order of the table.
    pub selected: Vec<String>,
    /// Mean squared error on the test part, in the target's units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    /// Share of right classes on the test part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Wall-clock time.
    pub seconds: f64,
}

/// What a threshold on the frequency selects, all else as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStep {
    /// Variables are in where their frequency is at least this.
    pub frequency: f64,
    /// The variables, in the order of the table.
    pub selected: Vec<String>,
}

/// The selectors, each able to run on these data; one that is not is refused before anything runs.
pub(super) fn able(selectors: &[Selector], data: &Bundle) -> Result<Vec<Selector>> {
    let able = |selector: &Selector| {
        let refused = |error| Error::config("--compare", format!("{}: {error}", selector.name()));
        selector.on(data).map_err(refused)
    };
    selectors.iter().map(able).collect()
}

/// Fits one, and scores it as a model with so many variables.
pub(super) fn fit(
    selector: &Selector,
    data: &Bundle,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(Other, ModelScores)> {
    let found = selector.fit(data, seed, stop)?;
    let predictive = found.predictor.predict(&data.test)?;
    let scores = score(&predictive, &data.test, data.schema.target_scale());
    let mut variables: Vec<usize> = found.columns.iter().map(|&c| data.groups[c]).collect();
    variables.dedup();
    let as_model = ModelScores::of(Model::Lasso, variables.len(), &predictive.mean(), data);
    let other = Other {
        name: selector.name().to_owned(),
        selected: variables.iter().map(|&v| data.names[v].clone()).collect(),
        mse: scores.mse,
        accuracy: scores.accuracy,
        seconds: found.seconds,
    };
    Ok((other, as_model))
}

/// From every variable that any chain included and that passes the test on unseen rows, to those
/// that all chains and samples include.
pub(super) fn path(screen: &Screen, names: &[String]) -> Vec<PathStep> {
    let passes = |v: &usize| screen.frequency[*v] > 0.0 && screen.z[*v] > screen.critical;
    let able: Vec<usize> = (0..names.len()).filter(passes).collect();
    let mut shares: Vec<f64> = able.iter().map(|&v| screen.frequency[v]).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares
        .into_iter()
        .map(|frequency| {
            let kept = able.iter().filter(|&&v| screen.frequency[v] >= frequency);
            PathStep { frequency, selected: kept.map(|&v| names[v].clone()).collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Form;

    #[test]
    fn the_path_goes_from_any_chain_to_all() {
        let screen = Screen {
            form: Form::Hidden,
            frequency: vec![1.0, 0.25, 0.0, 0.5, 1.0],
            z: vec![9.0, 8.0, 7.0, 1.0, 6.0],
            critical: 3.0,
            found_anything: true,
        };
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let steps = path(&screen, &names);
        assert_eq!(steps.len(), 2);
        assert_eq!((steps[0].frequency, steps[0].selected.join("")), (0.25, "abe".to_owned()));
        assert_eq!((steps[1].frequency, steps[1].selected.join("")), (1.0, "ae".to_owned()));
    }
}
