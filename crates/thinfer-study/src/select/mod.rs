//! Variable selection on a user's own table, with defaults that need no tuning.
//!
//! 1. A test part is held out and never looked at until the end.
//! 2. Several chains of EM-MCMC without regrowth prune inputs, each on all remaining rows but one
//!    fold. They run twice, with hidden units and without, and those count that predict the folds
//!    better.
//! 3. Each chain is asked, on the fold it did not see, how much worse it gets when a variable's
//!    values are shuffled. A variable's frequency is the share of chains and samples whose network
//!    still reads it and has a use for it there. It is selected when its frequency is above one
//!    half and, all folds together, shuffling it hurts by more than chance allows for as many
//!    variables as the table has.
//! 4. A Bayesian network on the selected variables alone is sampled on all rows but the test part;
//!    its error there stands beside that of a constant and of a linear model on all variables.

mod advice;
mod linear;
mod others;
mod refit;
mod scores;
mod screen;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thinfer_core::train::Observer;
use thinfer_data::files::read_json;
use thinfer_data::table::{Rules, Table};
use thinfer_data::{Bundle, Task, check_holdout};
use thinfer_data::{Error, Result};
use thinfer_run::config::TaskChoice;
use thinfer_run::evaluate::{self, Scores, score};

use crate::effects::{Direction, dependence, row_losses, shuffle_losses, untrained_losses};
use crate::selectors::{Lasso, Selector};
use linear::Linear;
pub use others::{Other, PathStep};
pub use refit::{Kept, Place};
pub use scores::{Model, ModelScores};
use screen::{Screen, screen};
pub use settings::Form;

/// Rows of a fold at least: fewer have no standard error.
const FOLD_ROWS: usize = 2;

/// What the user may choose; everything has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Regression, classification, or what the target suggests.
    pub task: TaskChoice,
    /// Chains, which are also the folds.
    pub chains: usize,
    /// Everything random follows from it.
    pub seed: u64,
    /// The share of rows that is held out for the final comparison.
    pub holdout: f64,
    /// How the columns are prepared.
    pub rules: Rules,
    /// Other selectors to put beside the result.
    pub compare: Vec<Selector>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            task: TaskChoice::Auto,
            chains: 4,
            seed: 1,
            holdout: 0.2,
            rules: Rules::default(),
            compare: Vec::new(),
        }
    }
}

/// One selected variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Its name.
    pub name: String,
    /// The share of chains and samples whose network reads it and has a use for it: a frequency, no
    /// probability.
    pub frequency: f64,
    /// How much the error on the test part grows when the variable is shuffled: mean squared error
    /// in the target's units, or mean log loss.
    pub effect: f64,
    /// The same as a share of the error of the constant prediction.
    pub relative_effect: f64,
    /// How far the effect was from chance on rows the chains had not seen, in standard errors.
    pub z: f64,
    /// What more of it does to the prediction; absent for more than two classes, where each has its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// By how much the mean prediction changes along the variable, all else as it is: from the 2.5th
    /// to the 97.5th percentile of a number, from the lowest to the highest where it bends or is a
    /// category; in the target's units, or as a probability of the second class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<f64>,
}

/// Errors on the test part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Heldout {
    pub rows: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_mse: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_mse: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_accuracy: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_accuracy: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage90: Option<f64>,
    pub nll: Option<f64>,
    pub baseline_nll: Option<f64>,
    /// Of classes alone: the linear model has no noise to judge numbers by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_nll: Option<f64>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selected {
    /// The target.
    pub target: String,
    /// What kind of target it is.
    pub task: Task,
    /// Names of the selected variables, in the order of the table.
    pub selected: Vec<String>,
    /// The selected variables, strongest effect first.
    pub effects: Vec<Effect>,
    /// Every variable's frequency.
    pub frequency: BTreeMap<String, f64>,
    /// What other thresholds on the frequency would select.
    pub path: Vec<PathStep>,
    /// Other selectors on the same rows.
    pub others: Vec<Other>,
    /// Errors on the test part.
    pub heldout: Heldout,
    /// The same in the units that people read, of all models: the one on the selected variables,
    /// where there are any, the linear model and the lasso on all, and the constant.
    #[serde(default)]
    pub models: Vec<ModelScores>,
    /// The result in a sentence.
    pub summary: String,
    /// Whether a sum of effects or hidden units predicted the folds better.
    pub form: Form,
    /// What to do where the linear model on all variables is clearly better, or nothing was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Rows that were used, the test part included.
    pub rows: usize,
    /// Variables that could be selected.
    pub variables: usize,
    /// Chains.
    pub chains: usize,
    /// The seed.
    pub seed: u64,
    /// What the user should know about the table.
    pub notes: Vec<String>,
    /// Wall-clock time without reading the table.
    pub seconds: f64,
    /// The version of the program.
    pub thinfer: String,
}

/// How a selection is run.
pub struct Control<'a> {
    /// Set by the user to stop.
    pub stop: &'a AtomicBool,
    /// Who is told; all work is reported as one bar from 0 to 1000.
    pub observer: &'a dyn Observer,
}

/// The file in the folder of a run that says how its variables were selected.
pub const SELECTION: &str = "selection.json";

impl Selected {
    /// What the folder of a run says about its selection; nothing where its variables were not
    /// selected.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        read_json(&folder.join(SELECTION), "select again with --force, or remove the file")
    }
}

/// Selects variables of `table` for `target`.
pub fn select(
    table: &Table,
    target: &str,
    options: &Options,
    control: &Control<'_>,
) -> Result<Selected> {
    select_and(table, target, options, control, None).map(|(selected, _)| selected)
}

/// The same, with the model on the selected variables as a run in a folder, which is the same model
/// to the bit. There is no run where nothing was selected.
pub fn select_and_keep(
    table: &Table,
    target: &str,
    options: &Options,
    control: &Control<'_>,
    place: &Place<'_>,
) -> Result<(Selected, Option<Kept>)> {
    select_and(table, target, options, control, Some(place))
}

fn select_and(
    table: &Table,
    target: &str,
    options: &Options,
    control: &Control<'_>,
    place: Option<&Place<'_>>,
) -> Result<(Selected, Option<Kept>)> {
    let started = Instant::now();
    let Options { task, holdout, rules, seed, .. } = options;
    let data = Bundle::from_table(table, target, *task, *holdout, rules, *seed)?;
    let whole = data.with_validation_joined()?;
    check_folds(options.chains, whole.train_rows)?;
    let compare = others::able(&options.compare, &data)?;
    data.notes.iter().for_each(|note| control.observer.notice(note));
    let linear = Linear::fit(&data)?;
    let scale = linear.scale;
    let screen = screen(&data, &whole.train, scale, options, control)?;
    let chosen = screen.chosen();
    let baseline = evaluate::baseline(&data);
    let constant_losses = untrained_losses(&data.train, &data.test, data.classes);
    let Refitted { scores, as_model, mut effects, losses, kept } = if chosen.is_empty() {
        Refitted::nothing(baseline.clone(), constant_losses.clone())
    } else {
        let small = whole.with_variables(&chosen);
        let kept = refit::sample(screen.form, small, table, options, place, control)?;
        refitted(kept, &chosen, &screen, options.seed)?
    };
    let few = match &chosen[..] {
        [] => None,
        chosen => Some(Linear::fit(&data.with_variables(chosen))?),
    };
    effects.sort_by(|a, b| b.effect.total_cmp(&a.effect));
    let heldout = Heldout {
        rows: data.test.rows(),
        mse: scores.mse,
        baseline_mse: baseline.mse,
        linear_mse: linear.scores.mse,
        accuracy: scores.accuracy,
        baseline_accuracy: baseline.accuracy,
        linear_accuracy: linear.scores.accuracy,
        coverage90: if chosen.is_empty() { None } else { scores.coverage90 },
        nll: scores.nll,
        baseline_nll: baseline.nll,
        linear_nll: linear.scores.nll.filter(|_| data.task == Task::Classification),
    };
    let mut models: Vec<ModelScores> = as_model.into_iter().collect();
    models.push(linear.as_model.clone());
    let (others, lasso) = fit_others(&compare, &data, options.seed, control)?;
    models.extend(lasso);
    models.push(ModelScores::of(Model::Constant, 0, &scores::constant(&data), &data));
    let better = linear.advice(&losses, few.as_ref(), &constant_losses, data.classes);
    let advice = if chosen.is_empty() { advice::of_nothing(&models, better) } else { better };
    control.observer.progress(0, 1000, 1000, None);
    let selected = Selected {
        path: others::path(&screen, &data.names),
        others,
        target: target.to_owned(),
        task: data.task,
        selected: chosen.iter().map(|&v| data.names[v].clone()).collect(),
        frequency: data.names.iter().cloned().zip(screen.frequency.iter().copied()).collect(),
        summary: summary(&data, &chosen),
        form: screen.form,
        advice,
        effects,
        heldout,
        models,
        rows: whole.train_rows + data.test.rows(),
        variables: data.names.len(),
        chains: options.chains,
        seed: options.seed,
        notes: data.notes.clone(),
        seconds: started.elapsed().as_secs_f64(),
        thinfer: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok((selected, kept.filter(|_| place.is_some())))
}

/// The other selectors that were asked for, and the lasso's scores in any case that it can be
/// fitted.
fn fit_others(
    asked: &[Selector],
    data: &Bundle,
    seed: u64,
    control: &Control<'_>,
) -> Result<(Vec<Other>, Option<ModelScores>)> {
    let (mut all, mut scores) = (Vec::new(), None);
    for selector in asked {
        let (other, as_model) = others::fit(selector, data, seed, control.stop)?;
        all.push(other);
        if matches!(selector, Selector::Lasso(_)) {
            scores = Some(as_model);
        }
    }
    if scores.is_none()
        && let Ok(lasso) = Selector::Lasso(Lasso::default()).on(data)
    {
        scores = Some(others::fit(&lasso, data, seed, control.stop)?.1);
    }
    Ok((all, scores))
}

fn summary(data: &Bundle, chosen: &[usize]) -> String {
    let target = &data.schema.target_name;
    if chosen.is_empty() {
        format!(
            "nothing was found: no variable tells more about `{target}` than chance would on rows that were not used for training"
        )
    } else {
        format!("{} of {} variables matter for `{target}`", chosen.len(), data.names.len())
    }
}

/// The model on the selected variables.
struct Refitted {
    scores: Scores,
    as_model: Option<ModelScores>,
    effects: Vec<Effect>,
    /// Of every row of the test part.
    losses: Vec<f64>,
    kept: Option<Kept>,
}

impl Refitted {
    /// The constant, where nothing was selected.
    fn nothing(scores: Scores, losses: Vec<f64>) -> Self {
        Self { scores, as_model: None, effects: Vec::new(), losses, kept: None }
    }
}

/// What the sampled model is worth on the test part, and what each of its variables is.
fn refitted(kept: Kept, chosen: &[usize], screen: &Screen, seed: u64) -> Result<Refitted> {
    let posterior = kept.run.posterior();
    let Some(data) = kept.run.data.table() else {
        return Err(Error::Data("the run is not on a table; please report this".into()));
    };
    let scale = data.schema.target_scale();
    let predictive = posterior.predict(&data.test)?;
    let as_model = ModelScores::of(Model::Selected, chosen.len(), &predictive.mean(), data);
    let live: Vec<usize> = (0..chosen.len()).collect();
    let evidence = shuffle_losses(&posterior, data, &data.test, &live, seed, u32::MAX)?;
    let unit = if data.task == Task::Regression { scale.1 * scale.1 } else { 1.0 };
    let effect = |(at, &variable): (usize, &usize)| -> Result<Effect> {
        let along = dependence(&posterior, data, at)?.and_then(|found| found.direction());
        let (direction, change) = along.unzip();
        Ok(Effect {
            name: data.names[at].clone(),
            frequency: screen.frequency[variable],
            effect: evidence.mean_increase(at) * unit,
            relative_effect: evidence.mean_increase(at) / evidence.baseline_loss().max(1e-300),
            z: screen.z[variable],
            direction,
            change,
        })
    };
    let effects = chosen.iter().enumerate().map(effect).collect::<Result<_>>()?;
    Ok(Refitted {
        scores: score(&predictive, &data.test, scale),
        as_model: Some(as_model),
        effects,
        losses: row_losses(&predictive, &data.test),
        kept: Some(kept),
    })
}

/// Refuses more chains than there are folds for.
fn check_folds(chains: usize, rows: usize) -> Result<()> {
    if rows / chains.max(2) >= FOLD_ROWS {
        return Ok(());
    }
    let most = rows / FOLD_ROWS;
    let problem = format!(
        "is {chains}, but each chain is asked about a fold of its own, and the {rows} rows that are not held out make at most {most} folds of {FOLD_ROWS}; give at most {most} chains"
    );
    Err(Error::config("--chains", problem))
}

/// Says what to do where a selection cannot even begin.
pub fn check_options(options: &Options) -> Result<()> {
    if options.chains == 0 || options.chains > 1000 {
        let problem = format!("is {}, but must be from 1 to 1000", options.chains);
        return Err(Error::config("--chains", problem));
    }
    check_holdout("--holdout", options.holdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_would_be_ignored_or_find_nothing_are_refused() {
        let with = |holdout| check_options(&Options { holdout, ..Options::default() });
        assert!(with(0.33).is_ok() && with(1.0 / 3.0).is_ok());
        for holdout in [0.0, 0.34, 0.5, f64::NAN] {
            let error = with(holdout).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("at most 1/3"), "{error}");
        }
        assert!(check_folds(96, 192).is_ok() && check_folds(1, 8).is_ok());
        let error = check_folds(97, 192).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("at most 96 chains"), "{error}");
    }
}
