//! Data ready to train on: three parts, what the columns mean, and how to get back to the user's
//! units.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_engine::Dataset;

use super::hints::{could_be_classes, could_be_numbers, numbers_for_classes};
use super::simulate::{Design, Part, Variant};
use super::table::{
    Encoding, Notes, ReadOptions, Reading, Rules, Table, Target, Task, infer_task,
    is_standard_input, learn_target,
};
use crate::error::{Error, Result};
use crate::memory::{available_memory, check_memory};
use crate::settings::{DataConfig, TaskChoice};
use crate::split::{Parts, Split, check_holdout};
use usable::Usable;

mod usable;

#[cfg(test)]
mod tests;

/// Rows that a table must have at least.
const FEWEST_ROWS: usize = 10;

/// Rows of the training part at least.
const FEWEST_TO_LEARN_FROM: usize = 4;

/// Data to train on, with what is known about it.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// To learn from.
    pub train: Dataset,
    /// To choose with.
    pub validation: Dataset,
    /// To report on.
    pub test: Dataset,
    /// What is predicted.
    pub task: Task,
    /// How many classes, or 0.
    pub classes: usize,
    /// The variable that each input column belongs to.
    pub groups: Vec<usize>,
    /// The names of the variables.
    pub names: Vec<String>,
    /// The variables that matter, where the data is simulated.
    pub truth: Option<Vec<usize>>,
    /// How to read other data of the same kind.
    pub schema: Schema,
    /// What the user should know about the data.
    pub notes: Vec<String>,
    /// A number that changes with the data.
    pub fingerprint: u32,
    /// N, the number of training rows.
    pub train_rows: usize,
}

/// How columns and target are encoded, as a run folder keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// The name of the target.
    pub target_name: String,
    /// The inputs.
    pub encoding: Encoding,
    /// The target.
    pub target: Target,
}

impl Schema {
    /// The factor from the network's units to the user's, for a regression.
    pub fn target_scale(&self) -> (f64, f64) {
        match self.target {
            Target::Number { mean, sd } => (mean, sd),
            Target::Count { .. } | Target::Classes { .. } => (0.0, 1.0),
        }
    }

    /// The mean count of the training rows, where the target is one.
    pub fn count_mean(&self) -> Option<f64> {
        match self.target {
            Target::Count { mean } => Some(mean),
            Target::Number { .. } | Target::Classes { .. } => None,
        }
    }
}

impl Bundle {
    /// The data that a configuration asks for, in a run with this seed.
    pub fn load(data: &DataConfig, seed: u64) -> Result<Self> {
        if let Some(design) = data.kind.design() {
            return Self::simulated(design, data, data.seed_in(seed));
        }
        let path = data.path.as_deref().unwrap_or_default();
        if is_standard_input(Path::new(path)) {
            let problem =
                "is standard input, and a run reads its table again later; save it in a file";
            return Err(Error::config("data.path", problem));
        }
        let options =
            ReadOptions { categorical: data.categorical.clone(), ..ReadOptions::default() };
        let reading = Reading::of(Path::new(path), &options, available_memory())?;
        let mut bundle = Self::of_reading(data, reading.table, reading.decimal_commas, seed)?;
        bundle.notes.splice(0..0, reading.notes);
        Ok(bundle)
    }

    /// The same of a table that is at hand, whatever `data.path` says.
    pub fn of_table(data: &DataConfig, table: Table, seed: u64) -> Result<Self> {
        Self::of_reading(data, table, false, seed)
    }

    fn of_reading(
        data: &DataConfig,
        mut table: Table,
        decimal_commas: bool,
        seed: u64,
    ) -> Result<Self> {
        let target = data.target.as_deref().unwrap_or_default();
        let split = Split::of(data, &mut table)?;
        let mut bundle = Self::from_split(&table, target, data.task, &split, &data.rules(), seed)
            .map_err(of_a_file)?;
        bundle.schema.encoding.set_decimal_commas(decimal_commas);
        if !data.only.is_empty() {
            bundle = bundle.with_variables(&bundle.places(&table, &data.only)?);
        }
        if let Some(path) = &data.test_path {
            bundle.take_test(Path::new(path)).map_err(of_a_file)?;
        }
        if data.join_validation {
            bundle = bundle.with_validation_joined()?;
        }
        bundle.notes.iter_mut().for_each(|note| *note = keys_for_options(note));
        Ok(bundle)
    }

    fn simulated(design: &Design, data: &DataConfig, seed: u64) -> Result<Self> {
        let columns = data.columns.unwrap_or(design.columns);
        let rows = [data.train_rows, data.validation_rows, data.test_rows];
        let cells = rows.iter().try_fold(0usize, |sum, r| sum.checked_add(r.checked_mul(columns)?));
        let bytes = cells.and_then(|c| c.checked_mul(4)).map(|b| b as u64);
        check_memory("the simulated data", bytes, available_memory())?;
        let part =
            |part: Part, rows: usize| design.simulate(data.variant, seed, part, rows, columns);
        let train = part(Part::Train, data.train_rows)?;
        let names: Vec<String> = (1..=columns).map(|c| format!("x{c}")).collect();
        let classification = design.is_classification();
        let target = if classification {
            Target::Classes { levels: vec!["0".into(), "1".into()] }
        } else {
            Target::Number { mean: 0.0, sd: 1.0 }
        };
        let notes = match data.variant {
            Variant::Sun => Vec::new(),
            _ if design.has_variants => Vec::new(),
            _ => vec!["`data.variant` only matters to Example 1".to_owned()],
        };
        Ok(Self {
            fingerprint: fingerprint(&[&train]),
            train_rows: train.rows(),
            train,
            validation: part(Part::Validation, data.validation_rows)?,
            test: part(Part::Test, data.test_rows)?,
            task: if classification { Task::Classification } else { Task::Regression },
            classes: if classification { 2 } else { 0 },
            groups: (0..columns).collect(),
            schema: Schema {
                target_name: "y".into(),
                encoding: Encoding::unscaled(&names),
                target,
            },
            names,
            truth: Some(design.relevant()),
            notes,
        })
    }

    /// Splits a table into parts and encodes it. What is learned about the columns (means, levels)
    /// is learned from the training part alone. At most a third can be held out.
    pub fn from_table(
        table: &Table,
        target: &str,
        task: TaskChoice,
        holdout: f64,
        rules: &Rules,
        seed: u64,
    ) -> Result<Self> {
        check_holdout("data.holdout", holdout)?;
        Self::from_split(table, target, task, &Split::Share(holdout), rules, seed)
    }

    /// The same, with the rows divided in any way.
    pub fn from_split(
        table: &Table,
        target: &str,
        task: TaskChoice,
        split: &Split,
        rules: &Rules,
        seed: u64,
    ) -> Result<Self> {
        if task != TaskChoice::Classification {
            numbers_for_classes(table, target)?;
        }
        let given = task;
        let task = match given {
            TaskChoice::Auto => infer_task(table, target)?,
            TaskChoice::Regression | TaskChoice::Counts => Task::Regression,
            TaskChoice::Classification => Task::Classification,
        };
        check_named(table, target, rules)?;
        let Usable { rows: usable, mut notes } = Usable::of(table, target, rules)?;
        if given == TaskChoice::Auto && task == Task::Regression {
            notes.extend(could_be_classes(table, target));
        }
        notes.extend(could_be_numbers(table));
        if usable.len() < FEWEST_ROWS {
            let mut problem = format!(
                "has {} usable rows of {}, but at least {FEWEST_ROWS} are needed; ",
                usable.len(),
                table.rows()
            );
            problem.push_str(if usable.len() == table.rows() {
                "add rows"
            } else {
                "add rows, fill in missing values, or remove the columns that have most of them"
            });
            return Err(Error::table(&table.path, problem));
        }
        // Says what is wrong with the target before anything is split. Classes are those of all
        // rows, so that one that is rare cannot be unknown to the training part.
        let (whole, _) = learn_target(table, target, task, &usable)?;
        let parts = split.divide(&table.path, &usable, seed)?;
        if parts.train.len() < FEWEST_TO_LEARN_FROM {
            let problem = format!(
                "has {} usable rows to learn from, but at least {FEWEST_TO_LEARN_FROM} are needed; put more rows into the training part",
                parts.train.len()
            );
            return Err(Error::table(&table.path, problem));
        }
        let Parts { train, validation, test, notes: of_split } = &parts;
        notes.extend(of_split.iter().cloned());
        let (encoding, column_notes): (Encoding, Notes) =
            Encoding::learn(table, target, train, rules)?;
        let learned = match whole {
            Target::Classes { .. } => whole,
            _ if given == TaskChoice::Counts => Target::count(table, target, train)?,
            Target::Number { .. } | Target::Count { .. } => Target::number(table, target, train)?,
        };
        let train_targets = learned.encode(table, target, train)?;
        let width = encoding.width();
        let make = |rows: &[u32], targets: Vec<f32>| -> Result<Dataset> {
            Ok(Dataset::new(width, 1, encoding.encode(table, rows)?, targets)?)
        };
        let held_out = |rows: &[u32]| make(rows, learned.encode(table, target, rows)?);
        let train = make(train, train_targets)?;
        let classes = learned.levels().len();
        Ok(Self {
            fingerprint: fingerprint(&[&train]),
            train_rows: train.rows(),
            train,
            validation: held_out(validation)?,
            test: held_out(test)?,
            task,
            classes,
            groups: encoding.groups(),
            names: encoding.names(),
            truth: None,
            schema: Schema { target_name: target.to_owned(), encoding, target: learned },
            notes: notes.into_iter().chain(column_notes.lines()).collect(),
        })
    }

    /// Takes the complete rows of another table as the test part.
    fn take_test(&mut self, path: &Path) -> Result<()> {
        let Schema { target_name, encoding, target } = &self.schema;
        let (table, _) = Table::read_noted(path, &encoding.read_options())?;
        let mut needed = if encoding.fills_gaps() { Vec::new() } else { encoding.names() };
        needed.push(target_name.clone());
        let (rows, missing) = (table.complete_rows_in(&needed), table.missing_in(&needed));
        if rows.is_empty() {
            let problem = "has no complete row to test on; add rows, or fill in missing values";
            return Err(Error::table(path, problem));
        }
        if missing.rows > 0 {
            self.notes.push(format!(
                "{}: {} of {} rows have missing values and are not tested on",
                path.display(),
                missing.rows,
                table.rows()
            ));
        }
        let inputs = encoding.encode(&table, &rows)?;
        let targets = target.encode(&table, target_name, &rows)?;
        self.test = Dataset::new(encoding.width(), 1, inputs, targets)?;
        Ok(())
    }

    /// A bundle with the right shape and no data, for what depends on the shape alone.
    pub fn stand_in(
        schema: &Schema,
        groups: &[usize],
        names: &[String],
        train_rows: usize,
        fingerprint: u32,
    ) -> Result<Self> {
        let columns = groups.len();
        let empty = Dataset::new(columns, 1, Vec::new(), Vec::new())?;
        let (task, classes) = (schema.target.task(), schema.target.levels().len());
        Ok(Self {
            train: empty.clone(),
            validation: empty.clone(),
            test: empty,
            task,
            classes,
            groups: groups.to_vec(),
            names: names.to_vec(),
            truth: None,
            schema: schema.clone(),
            notes: Vec::new(),
            fingerprint,
            train_rows,
        })
    }

    /// Where the variables of these names are, in the order of the table.
    fn places(&self, table: &Table, names: &[String]) -> Result<Vec<usize>> {
        if let Some(name) = names.iter().find(|name| !self.names.contains(name)) {
            let problem = match table.column(name) {
                Some(_) if *name == self.schema.target_name => {
                    format!("names `{name}`, which is the target; leave it out")
                }
                Some(_) => format!("names `{name}`, which cannot be an input; leave it out"),
                None => table.no_column(name),
            };
            return Err(Error::config("data.only", problem));
        }
        Ok((0..self.names.len()).filter(|&at| names.contains(&self.names[at])).collect())
    }

    /// The same data with the validation part among the rows to learn from.
    pub fn with_validation_joined(&self) -> Result<Self> {
        let (a, b) = (&self.train, &self.validation);
        let joined = |x: &[f32], y: &[f32]| x.iter().chain(y).copied().collect();
        let train = Dataset::new(
            a.columns(),
            1,
            joined(a.inputs(), b.inputs()),
            joined(a.targets(), b.targets()),
        )?;
        Ok(Self {
            fingerprint: fingerprint(&[&train]),
            train_rows: train.rows(),
            train,
            validation: b.take_rows(&[]),
            ..self.clone()
        })
    }

    /// The same data with only the given variables, which are in the order of the table.
    pub fn with_variables(&self, keep: &[usize]) -> Self {
        let columns: Vec<usize> =
            (0..self.groups.len()).filter(|&c| keep.contains(&self.groups[c])).collect();
        let place = |variable: usize| keep.iter().position(|&k| k == variable).unwrap_or(0);
        let train = self.train.take_columns(&columns);
        let encoding = self.schema.encoding.with_variables(keep);
        Self {
            fingerprint: fingerprint(&[&train]),
            schema: Schema { encoding, ..self.schema.clone() },
            train,
            validation: self.validation.take_columns(&columns),
            test: self.test.take_columns(&columns),
            groups: columns.iter().map(|&c| place(self.groups[c])).collect(),
            names: keep.iter().map(|&k| self.names[k].clone()).collect(),
            truth: None,
            ..self.clone()
        }
    }
}

/// The keys of a configuration in the place of the options that advice names.
fn keys_for_options(text: &str) -> String {
    text.replace("--target", "data.target")
        .replace("--task ", "data.task = ")
        .replace("--missing ", "data.missing = ")
        .replace("--keep", "data.keep")
        .replace("--leave-out", "data.leave_out")
}

/// The same for errors.
fn of_a_file(error: Error) -> Error {
    match error {
        Error::Config { key, problem } => {
            Error::config(keys_for_options(&key), keys_for_options(&problem))
        }
        Error::Table { path, problem } => Error::table(&path, keys_for_options(&problem)),
        Error::Data(problem) => Error::Data(keys_for_options(&problem)),
        other => other,
    }
}

/// Refuses columns that are to be used or left out and are not there.
fn check_named(table: &Table, target: &str, rules: &Rules) -> Result<()> {
    for (option, names) in [("--keep", &rules.keep), ("--leave-out", &rules.leave_out)] {
        if let Some(name) = names.iter().find(|name| table.column(name).is_none()) {
            let problem = format!("{} has {}", table.path.display(), table.no_column(name));
            return Err(Error::config(option, problem));
        }
    }
    if rules.leaves_out(target) {
        return Err(Error::config("--leave-out", "names the target; name another column"));
    }
    Ok(())
}

fn fingerprint(parts: &[&Dataset]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        part.inputs().iter().chain(part.targets()).for_each(|v| hasher.update(&v.to_le_bytes()));
    }
    hasher.finalize()
}
