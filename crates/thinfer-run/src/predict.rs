//! Predictions of a run for the rows of a new table, in the user's units.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::Path;

use serde_json::{Map, Value};
use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_data::table::{
    MissingReport, OutColumn, Table, Target, Unseen, Values, write_columns, write_csv_to,
};
use thinfer_data::{Error, Result};
use thinfer_data::{Schema, Task};
use thinfer_engine::{Dataset, Role};

use crate::evaluate::{LEVEL, Scores, score};
use crate::run::RunInfo;

/// Predictions for every row of a table.
///
/// The columns are `row` (counted from 1), then `mean`, `sd`, `lower90` and `upper90` for a
/// regression, or `p_CLASS` for every class and `predicted` for a classification. A row with a
/// missing input has its gap filled in as the training rows had theirs. In a run that does not fill
/// gaps it keeps its place and has no prediction.
#[derive(Clone, Debug)]
pub struct Predictions {
    /// What is predicted.
    pub task: Task,
    /// Rows of the table, those without a prediction included.
    pub rows: usize,
    /// Posterior samples that were averaged.
    pub members: usize,
    /// What is missing in the input columns that the samples read.
    pub missing: MissingReport,
    /// Whether it was filled in; else the rows have no prediction.
    pub filled: bool,
    /// Rows with a level of a category that the training rows did not have.
    pub unseen_rows: usize,
    /// Scores against the target column, where the table has one that can be used.
    pub scores: Option<Scores>,
    /// Rows that the scores are of.
    pub scored_rows: usize,
    /// What the user should know about the table.
    pub notes: Vec<String>,
    columns: Vec<(String, OutColumn)>,
}

/// Predicts the rows of `table` with the average of `posterior`.
///
/// The table needs the input columns that some sample reads; others, those of pruned variables
/// among them, are passed over, and the target is only compared with.
pub fn predict(info: &RunInfo, posterior: &Posterior, table: &Table) -> Result<Predictions> {
    let inputs = info.table()?;
    let schema = &inputs.schema;
    let read = read_variables(posterior, &inputs.groups);
    let wanted = |at: usize| read.contains(&at);
    let all = schema.encoding.names();
    let names: Vec<String> = read.iter().filter_map(|at| all.get(*at).cloned()).collect();
    check_columns(table, &names)?;
    let missing = table.missing_in(&names);
    let filled = schema.encoding.fills_gaps();
    let complete = table.complete_rows_in(if filled { &[] } else { &names });
    let unseen = schema.encoding.unseen(table, &complete, wanted);
    let inputs = schema.encoding.encode_some(table, &complete, wanted)?;
    let data = Dataset::new(schema.encoding.width(), 1, inputs, Vec::new())?;
    let predictive = posterior.predict(&data)?;
    let mut notes: Vec<String> = missing_note(&missing, table.rows(), filled).into_iter().collect();
    notes.extend(unseen.iter().map(|found| unseen_note(found, table)));
    let unseen_rows: BTreeSet<u32> = unseen.into_iter().flat_map(|found| found.rows).collect();
    let (scores, scored_rows) = match scored(schema, table, &complete, &predictive) {
        Ok((rows, scores)) => (scores, rows),
        Err(error) => {
            notes.push(format!("the predictions are not compared with the target: {error}"));
            (None, 0)
        }
    };
    let places = Places { complete: &complete, rows: table.rows() };
    let mut columns =
        vec![("row".to_owned(), OutColumn::Number((1..=table.rows()).map(|r| r as f64).collect()))];
    columns.extend(match &schema.target {
        Target::Number { .. } | Target::Count { .. } => {
            regression_columns(&predictive, schema.target_scale(), &places)
        }
        Target::Classes { levels } => class_columns(&predictive, levels, &places),
    });
    let task = schema.target.task();
    let members = posterior.members.len();
    Ok(Predictions {
        task,
        rows: table.rows(),
        members,
        missing,
        filled,
        unseen_rows: unseen_rows.len(),
        scores,
        scored_rows,
        notes,
        columns,
    })
}

impl Predictions {
    /// The named columns, all of them with one cell a row.
    pub fn columns(&self) -> &[(String, OutColumn)] {
        &self.columns
    }

    /// The same with columns of the table behind the numbers of the rows, so that predictions can
    /// be joined to what they are of. Their names must differ from those of the predictions.
    pub fn with_ids(mut self, table: &Table, ids: &[String]) -> Result<Self> {
        for (at, name) in ids.iter().enumerate() {
            let column = table.column(name).ok_or_else(|| {
                let problem = format!("{} has {}", table.path.display(), table.no_column(name));
                Error::config("--id", problem)
            })?;
            if self.columns.iter().any(|(taken, _)| taken == name) {
                let problem = if ids[..at].contains(name) {
                    format!("names `{name}` twice; name it once")
                } else {
                    format!(
                        "is `{name}`, and predictions have a column of that name; rename it in the table"
                    )
                };
                return Err(Error::config("--id", problem));
            }
            let cells = match &column.values {
                Values::Number(values) => OutColumn::Number(values.clone()),
                Values::Text(cells) => {
                    OutColumn::Text(cells.iter().map(|c| c.clone().unwrap_or_default()).collect())
                }
            };
            self.columns.insert(1 + at, (name.clone(), cells));
        }
        Ok(self)
    }

    /// Writes a CSV or Parquet file, by its extension.
    pub fn write(&self, path: &Path, overwrite: bool) -> Result<()> {
        write_columns(path, &self.columns, overwrite)
    }

    /// Writes CSV.
    pub fn write_csv(&self, to: impl io::Write) -> io::Result<()> {
        write_csv_to(to, b',', &self.columns).map(drop)
    }

    /// The columns as arrays; `null` where there is no prediction.
    pub fn to_json(&self) -> Map<String, Value> {
        let array = |column: &OutColumn| match column {
            // Row numbers and predictions alike; what is not a number becomes null.
            OutColumn::Number(values) => values.iter().map(|v| number(*v)).collect(),
            OutColumn::Text(values) => {
                let cell = |text: &String| match text.as_str() {
                    "" => Value::Null,
                    text => Value::from(text),
                };
                Value::Array(values.iter().map(cell).collect())
            }
        };
        self.columns.iter().map(|(name, column)| (name.clone(), array(column))).collect()
    }
}

/// Whole numbers without a fraction, others as they are, NaN as null.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

/// Where the predicted rows stand in the table.
struct Places<'a> {
    complete: &'a [u32],
    rows: usize,
}

impl Places<'_> {
    /// A number for every row of the table, NaN where nothing was predicted.
    fn spread(&self, values: impl IntoIterator<Item = f64>) -> OutColumn {
        let mut all = vec![f64::NAN; self.rows];
        self.complete.iter().zip(values).for_each(|(row, value)| all[*row as usize] = value);
        OutColumn::Number(all)
    }
}

/// The variables that some sample reads: one of their weights in the first layer is kept.
fn read_variables(posterior: &Posterior, groups: &[usize]) -> BTreeSet<usize> {
    let first = posterior.network.first_weight().filter(|w| w.role == Role::LinearWeight);
    let Some(first) = first else { return groups.iter().copied().collect() };
    let columns = first.shape[1];
    let mut read = vec![false; columns];
    for member in &posterior.members {
        let kept = member.keep[first.range()].iter().zip(&member.weights[first.range()]);
        for (at, (keep, weight)) in kept.enumerate() {
            read[at % columns] |= *keep != 0 || *weight != 0.0;
        }
    }
    groups.iter().zip(read).filter(|(_, read)| *read).map(|(group, _)| *group).collect()
}

/// Says that a category has new levels, and what becomes of them.
fn unseen_note(found: &Unseen, table: &Table) -> String {
    const SHOWN: usize = 5;
    let cell = |row: u32| match table.column(&found.name).map(|column| &column.values) {
        Some(Values::Text(cells)) => cells[row as usize].clone().unwrap_or_default(),
        Some(Values::Number(cells)) => cells[row as usize].to_string(),
        None => String::new(),
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    found.rows.iter().for_each(|row| *counts.entry(cell(*row)).or_default() += 1);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rows = |count: usize| if count == 1 { "row" } else { "rows" };
    let shown = counts.iter().take(SHOWN);
    let shown: Vec<String> =
        shown.map(|(level, count)| format!("{level:?} ({count} {})", rows(*count))).collect();
    let more = match counts.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} of {} rows have a level of `{}` that the training rows did not have: {}{more}; they are predicted as if they had none of the known levels, so trust them less",
        found.rows.len(),
        table.rows(),
        found.name,
        shown.join(", ")
    )
}

/// Names all the columns that are absent; a single one is left to [`Encoding::encode`], which looks
/// for the nearest name.
///
/// [`Encoding::encode`]: thinfer_data::table::Encoding::encode
fn check_columns(table: &Table, names: &[String]) -> Result<()> {
    const SHOWN: usize = 8;
    let there: HashSet<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let absent: Vec<String> = names
        .iter()
        .filter(|name| !there.contains(name.as_str()))
        .map(|name| format!("`{name}`"))
        .collect();
    if absent.len() < 2 {
        return Ok(());
    }
    let more = match absent.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let problem = format!(
        "has no columns {}{more}, which the samples of the run read; add them under these names",
        absent[..SHOWN.min(absent.len())].join(", ")
    );
    Err(Error::table(&table.path, problem))
}

/// Mean, standard deviation and interval of the predictive mixture.
fn regression_columns(
    predictive: &Predictive,
    (centre, scale): (f64, f64),
    places: &Places<'_>,
) -> Vec<(String, OutColumn)> {
    let Predictive::Regression { noise, means, sigmas } = predictive else { return Vec::new() };
    let average = predictive.mean();
    let members = means.len() as f64;
    // The variance of an equal-weight mixture: the mean of the variances, and that of the means.
    let sd = |(row, mean): (usize, &f64)| {
        let sigmas = sigmas.at_row(row);
        let within = means.iter().zip(&*sigmas).map(|(m, sigma)| noise.variance(m[row], *sigma));
        let between = means.iter().map(|m| (m[row] - mean).powi(2)).sum::<f64>() / members;
        scale * (within.sum::<f64>() / members + between).sqrt()
    };
    let sds: Vec<f64> = average.iter().enumerate().map(sd).collect();
    let (lower, upper) = predictive.interval(LEVEL).unwrap_or_default();
    let units = |values: Vec<f64>| values.into_iter().map(|v| centre + scale * v);
    vec![
        ("mean".into(), places.spread(units(average))),
        ("sd".into(), places.spread(sds)),
        ("lower90".into(), places.spread(units(lower))),
        ("upper90".into(), places.spread(units(upper))),
    ]
}

/// The probability of every class, and the most likely one; of equals the first.
fn class_columns(
    predictive: &Predictive,
    levels: &[String],
    places: &Places<'_>,
) -> Vec<(String, OutColumn)> {
    let mean = predictive.mean();
    let of_class = |class: usize| mean.iter().skip(class).step_by(levels.len()).copied();
    let mut columns: Vec<(String, OutColumn)> = levels
        .iter()
        .enumerate()
        .map(|(class, level)| (format!("p_{level}"), places.spread(of_class(class))))
        .collect();
    let mut predicted = vec![String::new(); places.rows];
    for (row, p) in places.complete.iter().zip(mean.chunks_exact(levels.len())) {
        let most = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let top = p.iter().position(|p| *p == most).unwrap_or(0);
        predicted[*row as usize].clone_from(&levels[top]);
    }
    columns.push(("predicted".into(), OutColumn::Text(predicted)));
    columns
}

/// Scores of the rows that have a target, where the table has that column at all.
fn scored(
    schema: &Schema,
    table: &Table,
    complete: &[u32],
    predictive: &Predictive,
) -> Result<(usize, Option<Scores>)> {
    let Some(column) = table.column(&schema.target_name) else { return Ok((0, None)) };
    let known = |row: &u32| !column.values.is_missing(*row as usize);
    let places: Vec<usize> = (0..complete.len()).filter(|&at| known(&complete[at])).collect();
    if places.is_empty() {
        return Ok((0, None));
    }
    let rows: Vec<u32> = places.iter().map(|&at| complete[at]).collect();
    let targets = schema.target.encode(table, &schema.target_name, &rows)?;
    let data = Dataset::new(1, 1, vec![0.0; rows.len()], targets)?;
    Ok((rows.len(), Some(score(&predictive.at_rows(&places), &data, schema.target_scale()))))
}

fn missing_note(missing: &MissingReport, rows: usize, filled: bool) -> Option<String> {
    if missing.rows == 0 {
        return None;
    }
    let shown: Vec<String> =
        missing.first.iter().map(|(row, name)| format!("row {row} `{name}`")).collect();
    let more = match missing.cells.saturating_sub(missing.first.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (what, advice) = if filled {
        ("that were filled in from the training rows", "trust those predictions less")
    } else {
        ("and get no prediction", "fill them in to have one")
    };
    Some(format!(
        "{} of {rows} rows have missing values {what}: {}{more}; {advice}",
        missing.rows,
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::experiment::build_network;
    use crate::run::{Inputs, TableInputs};
    use thinfer_core::posterior::Snapshot;
    use thinfer_data::table::{Column, Values};
    use thinfer_data::{Bundle, Task};

    /// A linear model on two simulated columns of which both weights are `weights`, per member.
    fn linear(kind: &str, weights: &[f32], target: Target) -> (RunInfo, Posterior) {
        let set = ["data.columns=5", "model.hidden=[]"].map(str::to_owned);
        let mut set = set.to_vec();
        set.push(format!("data.kind={kind}"));
        let config = Config::parse("", &set).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let network = build_network(&config, &data).unwrap();
        let n = network.params().len();
        let members = weights.iter().zip(0..).map(|(w, chain)| {
            let mut all = vec![0.0; n];
            all[0] = *w;
            Snapshot {
                chain,
                epoch: 0,
                weights: all,
                keep: vec![1; n],
                stats: Vec::new(),
                inclusion: Vec::new(),
            }
        });
        let posterior = Posterior { network: network.clone(), members: members.collect() };
        let schema = Schema { target, ..data.schema.clone() };
        let info = RunInfo {
            thinfer: String::new(),
            config,
            network,
            inputs: Inputs::Table(TableInputs { schema, groups: data.groups, names: data.names }),
            rows: (1, 1, 1),
            data_fingerprint: 0,
            untrained_loss: None,
            device: "cpu".into(),
            cores: 1,
            platform: String::new(),
            notes: Vec::new(),
            unreadable: thinfer_data::images::Broken::default(),
        };
        (info, posterior)
    }

    fn table(first: &[f64], target: Option<Values>) -> Table {
        let mut columns: Vec<Column> = (1..=5)
            .map(|c| Column {
                name: format!("x{c}"),
                values: Values::Number(if c == 1 {
                    first.to_vec()
                } else {
                    vec![0.0; first.len()]
                }),
            })
            .collect();
        columns.extend(target.map(|values| Column { name: "y".into(), values }));
        Table { path: "new.csv".into(), columns }
    }

    fn numbers<'a>(predictions: &'a Predictions, name: &str) -> &'a [f64] {
        match predictions.columns().iter().find(|(n, _)| n == name) {
            Some((_, OutColumn::Number(values))) => values,
            _ => panic!("no column {name}"),
        }
    }

    #[test]
    fn a_regression_is_in_the_users_units() {
        let target = Target::Number { mean: 10.0, sd: 2.0 };
        let (info, posterior) = linear("example1", &[1.0, 3.0], target);
        let p = predict(&info, &posterior, &table(&[1.0, 0.0], None)).unwrap();
        assert_eq!(numbers(&p, "row"), [1.0, 2.0]);
        // Means 1 and 3, so 10 + 2 · 2; noise 1 and spread 1, so 2 √2.
        assert_eq!(numbers(&p, "mean"), [14.0, 10.0]);
        assert!((numbers(&p, "sd")[0] - 8f64.sqrt()).abs() < 1e-12);
        assert!((numbers(&p, "sd")[1] - 2.0).abs() < 1e-12);
        assert!((numbers(&p, "upper90")[1] - (10.0 + 2.0 * 1.644_853_627)).abs() < 1e-6);
        assert!((numbers(&p, "lower90")[1] - (10.0 - 2.0 * 1.644_853_627)).abs() < 1e-6);
        assert!(p.scores.is_none() && p.notes.is_empty());
        let mut csv = Vec::new();
        p.write_csv(&mut csv).unwrap();
        assert!(csv.starts_with(b"row,mean,sd,lower90,upper90\n1,14,2.82"));
    }

    #[test]
    fn classes_have_probabilities_and_a_winner() {
        let levels = vec!["no".to_owned(), "yes".to_owned()];
        let (info, posterior) = linear("example3", &[2.0], Target::Classes { levels });
        let truth = Values::Text(["yes", "yes"].map(|t| Some(t.to_owned())).to_vec());
        let p = predict(&info, &posterior, &table(&[1.0, -1.0], Some(truth))).unwrap();
        let yes = 1.0 / (1.0 + (-2f64).exp());
        assert!((numbers(&p, "p_yes")[0] - yes).abs() < 1e-6);
        assert!((numbers(&p, "p_no")[1] - yes).abs() < 1e-6);
        let json = Value::Object(p.to_json());
        assert_eq!(json["predicted"], serde_json::json!(["yes", "no"]));
        assert_eq!(p.scores.as_ref().and_then(|s| s.accuracy), Some(0.5));
        assert_eq!(p.task, Task::Classification);
    }

    #[test]
    fn rows_with_missing_values_keep_their_place() {
        let (info, posterior) = linear("example1", &[1.0], Target::Number { mean: 0.0, sd: 1.0 });
        let target = Values::Number(vec![1.0, 7.0, f64::NAN]);
        let p = predict(&info, &posterior, &table(&[1.0, f64::NAN, 2.0], Some(target))).unwrap();
        let mean = numbers(&p, "mean");
        assert_eq!((mean[0], mean[1].is_nan(), mean[2]), (1.0, true, 2.0));
        let json = Value::Object(p.to_json());
        assert_eq!(json["mean"], serde_json::json!([1, null, 2]));
        assert_eq!(json["row"], serde_json::json!([1, 2, 3]));
        assert_eq!(
            p.notes,
            [
                "1 of 3 rows have missing values and get no prediction: row 2 `x1`; fill them in to have one"
            ]
        );
        // Only the first row has both inputs and a target.
        assert_eq!((p.scored_rows, p.scores.and_then(|s| s.mse)), (1, Some(0.0)));
    }

    #[test]
    fn gaps_are_filled_in_where_the_training_rows_had_theirs_filled_in() {
        let (mut info, posterior) =
            linear("example1", &[1.0], Target::Number { mean: 0.0, sd: 1.0 });
        let Inputs::Table(inputs) = &mut info.inputs else { panic!() };
        let mut file = serde_json::to_value(&inputs.schema.encoding).unwrap();
        for variable in file["variables"].as_array_mut().unwrap() {
            variable["gaps"] = serde_json::json!({ "fill": 0.25, "share": 0.0 });
        }
        inputs.schema.encoding = serde_json::from_value(file).unwrap();
        let p = predict(&info, &posterior, &table(&[1.0, f64::NAN, 2.0], None)).unwrap();
        assert_eq!(numbers(&p, "mean"), [1.0, 0.25, 2.0]);
        assert_eq!(
            p.notes,
            [
                "1 of 3 rows have missing values that were filled in from the training rows: row 2 `x1`; trust those predictions less"
            ]
        );
    }

    #[test]
    fn predictions_keep_columns_to_join_them_by() {
        let (info, posterior) = linear("example1", &[1.0], Target::Number { mean: 0.0, sd: 1.0 });
        let mut new = table(&[1.0, 0.0], None);
        let names = Values::Text(vec![Some("ann".into()), None]);
        new.columns.push(Column { name: "who".into(), values: names });
        let with = |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            predict(&info, &posterior, &new).unwrap().with_ids(&new, &ids)
        };
        let mut csv = Vec::new();
        with(&["who", "x1"]).unwrap().write_csv(&mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        assert!(csv.starts_with("row,who,x1,mean,"), "{csv}");
        assert!(csv.contains("\n1,ann,1,1,") && csv.contains("\n2,,0,0,"), "{csv}");
        for (ids, text) in [
            (&["whom"][..], "`--id`: new.csv has no column `whom`; did you mean `who`?"),
            (&["who", "who"], "`--id`: names `who` twice"),
        ] {
            let refused = with(ids).unwrap_err();
            assert_eq!(refused.exit_code(), 2);
            assert!(refused.to_string().starts_with(text), "{refused}");
        }
    }

    #[test]
    fn levels_that_are_new_are_told_with_their_rows() {
        let table = Table {
            path: "new.csv".into(),
            columns: vec![Column {
                name: "c".into(),
                values: Values::Text(["u", "v", "v"].map(|c| Some(c.to_owned())).to_vec()),
            }],
        };
        let found = Unseen { name: "c".into(), rows: vec![0, 1, 2] };
        assert!(
            unseen_note(&found, &table).starts_with(
                "3 of 3 rows have a level of `c` that the training rows did not have: \"v\" (2 rows), \"u\" (1 row);"
            ),
            "{}",
            unseen_note(&found, &table)
        );
    }

    #[test]
    fn a_table_without_a_complete_row_has_no_predictions() {
        let (info, posterior) = linear("example1", &[1.0], Target::Number { mean: 0.0, sd: 1.0 });
        let p = predict(&info, &posterior, &table(&[f64::NAN; 2], None)).unwrap();
        assert!(numbers(&p, "upper90").iter().all(|v| v.is_nan()));
    }

    #[test]
    fn a_target_that_cannot_be_used_is_only_noted() {
        let levels = vec!["no".to_owned(), "yes".to_owned()];
        let (info, posterior) = linear("example3", &[2.0], Target::Classes { levels });
        let truth = Values::Text(vec![Some("maybe".into())]);
        let p = predict(&info, &posterior, &table(&[1.0], Some(truth))).unwrap();
        assert!(p.scores.is_none());
        assert!(p.notes[0].contains("class `maybe` of `y` is not among"), "{:?}", p.notes);
    }

    /// What pruning has dropped is not asked for, and a hole there costs no row.
    #[test]
    fn a_column_that_no_sample_reads_may_be_absent_or_have_holes() {
        let (info, mut posterior) =
            linear("example1", &[1.0, 3.0], Target::Number { mean: 10.0, sd: 2.0 });
        for (at, member) in posterior.members.iter_mut().enumerate() {
            member.keep[2..5].fill(0);
            // One sample still reads x3.
            member.keep[2] = u8::from(at == 0);
        }
        let whole = predict(&info, &posterior, &table(&[1.0, 0.0], None)).unwrap();
        let mut short = table(&[1.0, 0.0], None);
        short.columns.retain(|column| column.name != "x4");
        short.columns[3].values = Values::Number(vec![f64::NAN, 1.0]);
        let found = predict(&info, &posterior, &short).unwrap();
        assert_eq!(found.notes, Vec::<String>::new());
        assert_eq!(numbers(&found, "mean"), numbers(&whole, "mean"));
        assert_eq!(numbers(&found, "sd"), numbers(&whole, "sd"));
        short.columns.retain(|column| column.name != "x3");
        let error = predict(&info, &posterior, &short).unwrap_err().to_string();
        assert!(error.contains("no column `x3`"), "{error}");
    }

    #[test]
    fn an_input_column_that_is_absent_is_named() {
        let (info, posterior) = linear("example1", &[1.0], Target::Number { mean: 0.0, sd: 1.0 });
        let mut short = table(&[1.0], None);
        short.columns.remove(2);
        let error = predict(&info, &posterior, &short).unwrap_err().to_string();
        assert!(error.contains("no column `x3`"), "{error}");
        short.columns.truncate(1);
        let error = predict(&info, &posterior, &short).unwrap_err().to_string();
        assert_eq!(
            error,
            "new.csv: has no columns `x2`, `x3`, `x4`, `x5`, which the samples of the run read; add them under these names"
        );
    }
}
