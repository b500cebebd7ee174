//! What is chosen for a table.

use std::path::Path;

use thinfer_core::methods::mclmc;
use thinfer_data::table::{ReadOptions, Table};
use thinfer_data::{Bundle, Error, Result, Task, TaskChoice};
use thinfer_run::config::Config;
use thinfer_run::experiment::build_network;

use super::estimate::{self, Estimate, MovePace};
use super::target::{kind_of_number, no_target};
use super::{Choices, Proposal, Wish, is_set, quoted, steps};

/// Minutes, where none are given.
const MINUTES: f64 = 1.0;
/// Classes that are named.
const SHOWN: usize = 5;

/// Epochs of MCLMC. With so few stages the shortest run takes more than half of the longest.
const MCLMC_EPOCHS: usize = 800;
const MCLMC_SAMPLES: usize = 50;
const MCLMC_STAGES: usize = 4;
/// With fewer moves in an epoch its chains do not come far enough, and mini-batches do more.
const FEWEST_MOVES: f64 = 40.0;
/// Training rows from which likelihoods are no longer compared: that would take as long as the run.
const MANY_ROWS: usize = 2000;

/// Epochs of SGHMC that bring no more, and those with which it is still sensible.
const MOST_EPOCHS: usize = 600;
const FEWEST_EPOCHS: usize = 20;
const CYCLES: usize = 8;
/// Columns up to which a weight has a prior as wide as its input.
const FEW_COLUMNS: f64 = 12.0;
/// Rows that many columns need.
const ROWS_FOR_THEM: usize = 5000;
/// Columns from which a network reads more than it can learn from so few rows.
const MANY_COLUMNS: usize = 1000;

/// Chooses settings for a table and a column of it.
pub fn of_table(path: &Path, target: Option<&str>, wish: &Wish) -> Result<Proposal> {
    let (table, _) = Table::read_noted(path, &ReadOptions::default())?;
    let mut choices = Choices::default();
    choices.add("data.kind", "\"table\"", "");
    let text = path.to_str().ok_or_else(|| {
        Error::table(path, "is no text that a configuration could hold; rename it")
    })?;
    choices.add("data.path", quoted(text), "");
    match target {
        Some(target) => choices.add("data.target", quoted(target), ""),
        None if is_set(&wish.set, "data.target") => {}
        None => return Err(no_target(&table)),
    }
    // Other settings wait for the method: not every method takes them.
    let of_data = of_data(&wish.set);
    let name = choices.config(&of_data)?.data.target.unwrap_or_default();
    let kind = table.column(&name).and_then(|column| kind_of_number(&column.values));
    let kind = kind.filter(|_| !is_set(&wish.set, "data.task"));
    if let Some((task, why)) = &kind {
        let word = match task {
            TaskChoice::Classification => "classification",
            TaskChoice::Counts => "counts",
            _ => "regression",
        };
        choices.add("data.task", quoted(word), why.clone());
    }
    let config = choices.config(&of_data)?;
    let data = Bundle::load(&config.data, config.seed)?;
    let found = Found { file: path.display().to_string(), target: name, data };
    let kind = kind.map(|(_, why)| why);
    found.propose(choices, kind, wish)
}

/// The user's settings that say what the data is.
fn of_data(set: &[String]) -> Vec<String> {
    let is_of_data = |given: &&String| given.starts_with("data.") || given.starts_with("seed");
    set.iter().filter(is_of_data).cloned().collect()
}

/// A table that was looked at.
struct Found {
    file: String,
    target: String,
    data: Bundle,
}

impl Found {
    fn propose(self, mut choices: Choices, kind: Option<String>, wish: &Wish) -> Result<Proposal> {
        let mut lines = vec![self.about(kind)];
        let mut notices: Vec<String> = self.wide().into_iter().collect();
        let seconds = 60.0 * wish.minutes.unwrap_or(MINUTES);
        let estimate = if is_set(&wish.set, "method.kind") {
            let given = choices.config(&wish.set)?;
            lines.push(format!("method: {}, as you set it", given.method.kind.name()));
            None
        } else if self.is_wide() && !is_set(&wish.set, "model.hidden") {
            choices.add(
                "model.hidden",
                "[]",
                "a network reads more from so many columns than it can learn",
            );
            lines.push(
                "method: a linear model, four chains of MCLMC, which end when their samples agree"
                    .into(),
            );
            Some(self.mclmc(&mut choices, seconds, wish)?)
        } else if self.affordable(&wish.set, seconds)? >= FEWEST_MOVES {
            lines.push(
                "method: 50 tanh units, four chains of MCLMC on all rows, which end when their samples agree".into(),
            );
            Some(self.mclmc(&mut choices, seconds, wish)?)
        } else {
            Some(self.sghmc(&mut choices, seconds, wish, &mut lines, &mut notices)?)
        };
        let config = choices.config(&wish.set)?;
        Ok(Proposal { choices: choices.with(&wish.set), config, lines, notices, estimate })
    }

    /// What the table is.
    fn about(&self, kind: Option<String>) -> String {
        let Self { file, target, data } = self;
        let rows = data.train.rows() + data.validation.rows() + data.test.rows();
        let columns = match data.names.len() {
            1 => "1 column".to_owned(),
            many => format!("{many} columns"),
        };
        let what = match data.task {
            Task::Regression => {
                let kind = kind.unwrap_or_else(|| "a number".to_owned());
                let other = match data.schema.count_mean() {
                    Some(_) => "regression",
                    None => "classification",
                };
                format!("is {kind} (`--set data.task={other}` takes it otherwise)")
            }
            Task::Classification => {
                let levels = data.schema.target.levels();
                let more = if levels.len() > SHOWN { ", …" } else { "" };
                let shown = levels.iter().take(SHOWN).map(String::as_str);
                let shown = shown.collect::<Vec<_>>().join(", ");
                let coded = kind.map_or_else(String::new, |_| {
                    " (`--set data.task=regression` takes them as numbers)".to_owned()
                });
                format!("has {} classes: {shown}{more}{coded}", levels.len())
            }
        };
        format!("{file}: {rows} rows; `{target}` {what}, predicted from {columns}")
    }

    /// Whether there are more columns than a network can learn from.
    fn is_wide(&self) -> bool {
        let (rows, columns) = (self.data.train.rows(), self.data.groups.len());
        columns > rows || columns >= MANY_COLUMNS && rows < ROWS_FOR_THEM
    }

    /// Advice for such a table.
    fn wide(&self) -> Option<String> {
        let (rows, columns) = (self.data.train.rows(), self.data.groups.len());
        self.is_wide().then(|| {
            format!(
                "{columns} inputs for {rows} rows to learn from are many, and this run reads all of them; `thinfer select {} --target {}` finds those that matter first",
                self.file, self.target
            )
        })
    }

    /// Multiply-adds of a prediction by the network of 50 units.
    fn work(&self, set: &[String]) -> Result<f64> {
        let mut choices = Choices::default();
        choices.add("data.kind", "\"table\"", "");
        choices.add("data.path", "\"\"", "");
        choices.add("data.target", "\"\"", "");
        choices.add("method.kind", "\"mclmc\"", "");
        let data: Vec<String> =
            set.iter().filter(|given| given.starts_with("model.hidden")).cloned().collect();
        let config = choices.config(&data)?;
        Ok(build_network(&config, &self.data)?.multiply_adds() as f64)
    }

    /// Moves in an epoch of MCLMC that so much time has room for at the nominal speed.
    fn affordable(&self, set: &[String], seconds: f64) -> Result<f64> {
        let of_a_move = 2.0 * 3.0 * self.work(set)? * self.data.train.rows() as f64 * 4.0;
        Ok(seconds * mclmc::SPEED / (of_a_move * MCLMC_EPOCHS as f64))
    }

    /// MCLMC within so many seconds.
    fn mclmc(&self, choices: &mut Choices, seconds: f64, wish: &Wish) -> Result<Estimate> {
        let rows = self.data.train.rows();
        choices.add(
            "method.kind",
            "\"mclmc\"",
            "the table is small enough for all rows in every move",
        );
        if self.data.task == Task::Regression && rows >= MANY_ROWS {
            let word = if self.data.schema.count_mean().is_some() {
                "negative-binomial"
            } else {
                "normal"
            };
            choices.add(
                "model.likelihood",
                quoted(word),
                "comparing others takes long on so many rows",
            );
        }
        choices.add("train.epochs", MCLMC_EPOCHS.to_string(), "");
        choices.add("train.samples_per_cycle", MCLMC_SAMPLES.to_string(), "");
        choices.add(
            "train.stages",
            MCLMC_STAGES.to_string(),
            "the shortest run takes more than half of the longest",
        );
        choices.add("method.budget_seconds", format!("{seconds:.1}"), "");
        let config = choices.config(&wish.set)?;
        let pace = estimate::move_pace(&config, &self.data)?;
        let moves = estimate::moves(&config, &self.data)?;
        // Machines of about the nominal speed have the same run.
        let slower = pace.walk * moves * MCLMC_EPOCHS as f64 / seconds;
        let config = if slower > 1.5 {
            let budget = seconds / 2f64.powf(slower.log2().round());
            choices.set(
                "method.budget_seconds",
                format!("{budget:.2}"),
                "less than was asked for, since this machine is slower than MCLMC takes it to be",
            );
            choices.config(&wish.set)?
        } else {
            config
        };
        let moves = estimate::moves(&config, &self.data)?;
        Ok(mclmc_time(&config, &self.data, pace, moves))
    }

    /// SGHMC within so many seconds.
    fn sghmc(
        &self,
        choices: &mut Choices,
        seconds: f64,
        wish: &Wish,
        lines: &mut Vec<String>,
        notices: &mut Vec<String>,
    ) -> Result<Estimate> {
        let rows = self.data.train.rows();
        let batch = if rows < 20_000 { 64 } else { 128 };
        choices.add("model.hidden", "[32, 32, 32]", "");
        choices.add("model.activation", "\"tanh\"", "");
        choices.add("model.noise", "\"learned\"", "");
        choices.add("method.kind", "\"sghmc\"", "mini-batches learn faster from so many rows");
        choices.add("method.beta1", "0.9", "");
        choices.add(
            "prior.sd",
            format!("{:.2}", prior_width(self.data.groups.len())),
            "1, and narrower for many columns",
        );
        choices.add("chains", "4", "");
        choices.add("schedule.step_size.value", "0.02", "");
        choices.add(
            "schedule.step_size.cycles",
            CYCLES.to_string(),
            "the first half is burn-in; each other one leaves a sample",
        );
        choices.add("train.batch", batch.to_string(), "");
        choices.add("train.samples_per_cycle", "1", "");
        choices.add("train.epochs", FEWEST_EPOCHS.to_string(), "");
        let config = choices.config(&wish.set)?;
        let (each, fixed) = estimate::epoch_pace(&config, &self.data)?;
        let room = ((seconds - fixed) / each).max(0.0);
        let epochs = steps(room).clamp(FEWEST_EPOCHS, MOST_EPOCHS);
        choices.set(
            "train.epochs",
            epochs.to_string(),
            "as many as the time has room for, in coarse steps",
        );
        let config = choices.config(&wish.set)?;
        let epochs = config.train.epochs;
        lines.push(format!(
            "method: three layers of 32 tanh units, four chains of SGHMC in mini-batches of {batch} rows, {epochs} epochs"
        ));
        let estimate = Estimate::fixed(fixed + each * config.train.epochs as f64);
        if room < FEWEST_EPOCHS as f64 {
            notices.push(format!(
                "{rows} rows are many for {} on this machine, and {FEWEST_EPOCHS} epochs are few: the run takes about {estimate}. Give more time with `--minutes`, or train on fewer rows",
                estimate::duration(seconds)
            ));
        }
        Ok(estimate)
    }
}

/// The width of the prior of a weight, such that what a unit adds up does not depend on how many
/// columns there are beyond a few.
fn prior_width(columns: usize) -> f64 {
    (FEW_COLUMNS / (columns as f64).max(FEW_COLUMNS)).sqrt()
}

/// Share of the search for a start in which chains still search, as it was on most tables.
const SEARCHING: f64 = 0.5;

/// How long MCLMC takes, from its shortest run to its longest.
fn mclmc_time(config: &Config, data: &Bundle, pace: MovePace, moves: f64) -> Estimate {
    let ends = config.stages().map_or_else(|| vec![config.train.epochs], |stages| stages.ends());
    let first = config.sample_epochs().first().copied().unwrap_or(0) as f64;
    let search = config.method.own.number("start_share").unwrap_or(0.3) * first;
    let compared = data.task == Task::Regression
        && config.model.likelihood == Some(thinfer_run::config::Likelihood::ByValidation);
    let searches = if compared { 3.0 } else { 1.0 };
    let start = searches * SEARCHING * search * moves * pace.start;
    let until = |epochs: usize| start + (epochs as f64 - search) * moves * pace.walk;
    let least = until(ends.first().copied().unwrap_or(config.train.epochs));
    let most = until(config.train.epochs);
    Estimate { seconds: (least * most).sqrt(), least, most }
}
