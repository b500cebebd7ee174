//! What a posterior answers to made-up rows, and whether an exported file answers the same.

use thinfer_core::posterior::Posterior;
use thinfer_core::weights::Weights;
use thinfer_data::table::{
    Column, Encoding, Gaps, Kind, OutColumn, Part as DatePart, Table, Values, Variable,
};
use thinfer_data::{Error, Result};
use thinfer_engine::augment::Choice;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, Network, Plan, Shape};
use thinfer_run::predict::predict;
use thinfer_run::run::{ImageInputs, Inputs, RunInfo};

use super::graph_io::{Fed, LOGITS, MEAN, MEANS, PROBABILITIES, SD};
use super::part::{Part, target_units};

/// Rows that are compared.
const TABLE_ROWS: usize = 64;
const IMAGES: usize = 4;
/// The largest difference, relative to the largest number of an output (in the user's units, the
/// one farthest from the target's mean): both sides sum in f32, in another order.
pub(super) const LIMIT: f64 = 2e-5;

/// Made-up rows, as the network reads them and as the user has them.
pub(super) struct Probe {
    data: Dataset,
    raw: Raw,
}

enum Raw {
    /// (rows, channels, height, width), from 0 to 1.
    Images(Shape, Vec<f32>),
    /// One entry a variable, and the same as a table.
    Table(Vec<RawColumn>, Table),
}

struct RawColumn {
    /// How many columns of the design matrix come of it.
    width: usize,
    fed: RawValues,
}

enum RawValues {
    Numbers(Vec<f32>),
    /// The parts of dates, row by row.
    Parts(usize, Vec<f32>),
    /// Places of levels, and behind them that of a missing cell; -1 for a level that training did
    /// not see.
    Levels(Vec<i32>),
}

impl Probe {
    pub(super) fn new(info: &RunInfo) -> Result<Self> {
        match &info.inputs {
            Inputs::Images(images) => Self::images(images),
            Inputs::Table(table) => Self::table(&table.schema.encoding),
        }
    }

    fn images(images: &ImageInputs) -> Result<Self> {
        let (shape, key) = (images.shape, Key::new(0, 0, Stream::Inputs));
        let augment = images.augment()?;
        let mut inputs = vec![0.0; IMAGES * shape.len()];
        let mut raw = vec![0.0; inputs.len()];
        let pixels = shape.height * shape.width;
        for (row, out) in inputs.chunks_exact_mut(shape.len()).enumerate() {
            let bytes: Vec<u8> =
                (0..shape.len()).map(|at| key.below(row as u64, at, 256) as u8).collect();
            augment.image(&bytes, Choice { down: 0, right: 0, mirrored: false }, out)?;
            let image = &mut raw[row * shape.len()..][..shape.len()];
            for (at, byte) in bytes.iter().enumerate() {
                let (pixel, channel) = (at / shape.channels, at % shape.channels);
                image[channel * pixels + pixel] = f32::from(*byte) / 255.0;
            }
        }
        let data = Dataset::new(shape.len(), 0, inputs, Vec::new())?;
        Ok(Self { data, raw: Raw::Images(shape, raw) })
    }

    fn table(encoding: &Encoding) -> Result<Self> {
        let key = Key::new(0, 0, Stream::Inputs);
        let (mut raw, mut columns) = (Vec::new(), Vec::new());
        for (variable, at) in encoding.variables().iter().zip(0..) {
            let Variable { name, kind, gaps } = variable;
            // A row in eight has a gap where there may be one.
            let is_gap = |row: usize| gaps.is_some() && (row + at as usize).is_multiple_of(8);
            let (fed, values) = match kind {
                Kind::Number { mean, sd } => {
                    let value = |row| (mean + sd * f64::from(key.normal(at, row))) as f32;
                    let number = |row| if is_gap(row) { f32::NAN } else { value(row) };
                    let numbers: Vec<f32> = (0..TABLE_ROWS).map(number).collect();
                    let wide = numbers.iter().map(|v| f64::from(*v)).collect();
                    (RawValues::Numbers(numbers), Values::Number(wide))
                }
                Kind::Date { order, parts, .. } => {
                    let day = |row: usize| 18_000 + key.below(at, row, 2000) as i64;
                    let cell = |row| (!is_gap(row)).then(|| order.text(day(row)));
                    let value = |part: &DatePart, row| part.of(day(row) as f64) as f32;
                    let mut numbers = Vec::with_capacity(TABLE_ROWS * parts.len());
                    for row in 0..TABLE_ROWS {
                        let number = |part| if is_gap(row) { f32::NAN } else { value(part, row) };
                        numbers.extend(parts.iter().map(number));
                    }
                    let text = (0..TABLE_ROWS).map(cell).collect();
                    (RawValues::Parts(parts.len(), numbers), Values::Text(text))
                }
                Kind::Category { levels, pooled, .. } => {
                    let other = if pooled.is_empty() { -1 } else { levels.len() as i32 };
                    let places = levels.len() as i32;
                    // Of a graph without a place for gaps, the level that stands in for them.
                    let flag = variable.flags_gaps().then(|| variable.kind.width() as i32);
                    let gap = |gaps: &Gaps| flag.unwrap_or(gaps.fill as i32);
                    let gap = gaps.as_ref().map_or(-1, gap);
                    let level = |row: usize| match key.below(at, row, levels.len() + 1) as i32 {
                        _ if is_gap(row) => gap,
                        level if level == places => other,
                        level => level,
                    };
                    let numbers: Vec<i32> = (0..TABLE_ROWS).map(level).collect();
                    let unseen = levels.concat() + "?";
                    let text = |at: &i32| {
                        let level = usize::try_from(*at).ok().and_then(|at| levels.get(at));
                        level.unwrap_or(&unseen).clone()
                    };
                    let cell = |(row, at)| (!is_gap(row)).then(|| text(at));
                    let text = numbers.iter().enumerate().map(cell).collect();
                    (RawValues::Levels(numbers), Values::Text(text))
                }
            };
            raw.push(RawColumn { width: variable.width(), fed });
            columns.push(Column { name: name.clone(), values });
        }
        let table = Table { path: "made-up rows".into(), columns };
        let rows: Vec<u32> = (0..TABLE_ROWS as u32).collect();
        let inputs = encoding.encode(&table, &rows)?;
        let data = Dataset::new(encoding.width(), 0, inputs, Vec::new())?;
        Ok(Self { data, raw: Raw::Table(raw, table) })
    }

    fn rows(&self) -> usize {
        self.data.rows()
    }

    /// The rows as a graph with these parts reads them, input by input.
    pub(super) fn fed(&self, parts: &[Part]) -> Vec<Fed> {
        match &self.raw {
            Raw::Images(shape, values) => {
                let shape = vec![self.rows(), shape.channels, shape.height, shape.width];
                vec![Fed::Floats(shape, values.clone())]
            }
            Raw::Table(columns, _) => {
                let mut fed = Vec::new();
                let mut first = 0;
                for column in columns {
                    let own = first..first + column.width as u32;
                    first = own.end;
                    if !parts.iter().any(|part| part.inputs.iter().any(|c| own.contains(c))) {
                        continue;
                    }
                    fed.push(match &column.fed {
                        RawValues::Numbers(v) => Fed::Floats(vec![self.rows(), 1], v.clone()),
                        RawValues::Parts(width, v) => {
                            Fed::Floats(vec![self.rows(), *width], v.clone())
                        }
                        RawValues::Levels(v) => Fed::Integers(v.clone()),
                    });
                }
                fed
            }
        }
    }

    /// What a network gives for every row; `columns` are those of the design matrix that it reads.
    pub(super) fn outputs(
        &self,
        network: &Network,
        weights: &Weights,
        columns: &[u32],
    ) -> Result<Vec<f32>> {
        let mut outputs = vec![0.0; self.rows() * network.output_len()];
        let mut plan = Plan::new(network, self.rows())?;
        let columns: Vec<usize> = columns.iter().map(|c| *c as usize).collect();
        let narrow = (!columns.is_empty()).then(|| self.data.take_columns(&columns));
        let data = narrow.as_ref().unwrap_or(&self.data);
        plan.forward(&weights.params, &weights.stats, data, 0..self.rows(), &mut outputs)?;
        Ok(outputs)
    }
}

/// What the posterior itself answers, at its full size.
pub(super) struct Expected {
    /// What the network gives, sample by sample.
    pub(super) raw: Vec<Vec<f32>>,
    /// The outputs of a graph by name, with their numbers a row.
    pub(super) answers: Vec<(&'static str, usize, Vec<f64>)>,
    /// Mean and standard deviation of the target.
    pub(super) units: (f64, f64),
}

impl Expected {
    /// The answers of the chosen samples, which are all members of `posterior`.
    pub(super) fn new(info: &RunInfo, posterior: &Posterior, probe: &Probe) -> Result<Self> {
        let mut raw = Vec::new();
        for member in &posterior.members {
            let weights = Weights { params: member.weights.clone(), stats: member.stats.clone() };
            raw.push(probe.outputs(&posterior.network, &weights, &[])?);
        }
        let width = posterior.network.output_len();
        let units = target_units(info);
        let (centre, scale) = units;
        let each = |value: f32| centre + scale * f64::from(value);
        let mut answers = match &probe.raw {
            Raw::Images(..) => {
                let mean = posterior.predict(&probe.data)?.mean();
                vec![(PROBABILITIES, mean.len() / probe.rows(), mean)]
            }
            Raw::Table(_, table) => of_table(info, posterior, table)?,
        };
        let samples = raw.len();
        match posterior.network.loss() {
            loss if loss.has_classes() => {
                let logits = by_row(&raw, width).map(f64::from).collect();
                answers.push((LOGITS, samples * width, logits));
            }
            _ if samples == 1 => {}
            _ => {
                // Beside each number there may be the noise of its row.
                let targets = posterior.network.loss().target_len(width);
                let numbers = by_row(&raw, width).step_by(width / targets.max(1));
                answers.push((MEANS, samples * targets, numbers.map(each).collect()));
            }
        }
        Ok(Self { raw, answers, units })
    }
}

/// Row by row what the samples give, one behind another.
fn by_row(raw: &[Vec<f32>], width: usize) -> impl Iterator<Item = f32> + '_ {
    let rows = raw.first().map_or(0, |one| one.len() / width);
    (0..rows).flat_map(move |row| {
        raw.iter().flat_map(move |one| one[row * width..][..width].iter().copied())
    })
}

/// The answers of `thinfer predict`.
fn of_table(
    info: &RunInfo,
    posterior: &Posterior,
    table: &Table,
) -> Result<Vec<(&'static str, usize, Vec<f64>)>> {
    let predictions = predict(info, posterior, table)?;
    let numbers = |wanted: &dyn Fn(&str) -> bool| -> Vec<&Vec<f64>> {
        let columns = predictions.columns().iter().filter(|(name, _)| wanted(name));
        columns
            .filter_map(|(_, column)| match column {
                OutColumn::Number(values) => Some(values),
                OutColumn::Text(_) => None,
            })
            .collect()
    };
    if !posterior.network.loss().has_classes() {
        let of = |name: &'static str| {
            (name, 1, numbers(&|column| column == name).into_iter().flatten().copied().collect())
        };
        return Ok(vec![of(MEAN), of(SD)]);
    }
    let classes = numbers(&|column| column.starts_with("p_"));
    let rows = 0..predictions.rows;
    let shares = rows.flat_map(|row| classes.iter().map(move |class| class[row])).collect();
    Ok(vec![(PROBABILITIES, classes.len(), shares)])
}

/// The largest difference between two outputs, relative to the largest number; an error names the
/// first number that differs by more than `limit`.
///
/// Numbers in the user's units are measured from the mean of the target, and at least by its
/// standard deviation: an offset makes no difference smaller. Rounding them to f32 is allowed
/// besides.
pub(super) fn compare(
    output: &str,
    got: &[f32],
    want: &[f64],
    width: usize,
    limit: f64,
    (centre, sd): (f64, f64),
) -> Result<f64> {
    if let Some(at) = want.iter().position(|v| !v.is_finite()) {
        return Err(Error::Data(format!(
            "the run itself answers {} to made-up row {}: its weights are too large for 32-bit floats, so no file was written. Train again with a smaller `schedule.step_size.value`",
            want[at],
            at / width + 1
        )));
    }
    let largest = want.iter().fold(sd, |most, v| most.max((v - centre).abs()));
    let rounding = f64::from(f32::EPSILON) * centre.abs();
    let allowed = limit + if rounding > 0.0 { rounding / largest } else { 0.0 };
    let apart = |(got, want): (&f32, &f64)| {
        if f64::from(*got) == *want { 0.0 } else { (f64::from(*got) - want).abs() / largest }
    };
    let mut worst = 0f64;
    for (at, pair) in got.iter().zip(want).enumerate() {
        let apart = apart(pair);
        if apart > allowed || apart.is_nan() {
            return Err(Error::Promise(format!(
                "the export does not agree with the run: number {} of `{output}` for made-up row {} is {} instead of {} (allowed is {allowed:.0e} of the largest, {largest}); no file was written, please report this with the run's config.toml",
                at % width + 1,
                at / width + 1,
                pair.0,
                pair.1
            )));
        }
        worst = worst.max(apart);
    }
    if got.len() != want.len() {
        return Err(Error::Promise(format!(
            "the export does not agree with the run: `{output}` has {} numbers instead of {}; no file was written, please report this with the run's config.toml",
            got.len(),
            want.len()
        )));
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: (f64, f64) = (0.0, 0.0);

    #[test]
    fn the_first_difference_is_named() {
        let want = [1.0, 2.0, 4.0, -8.0];
        assert_eq!(compare("logits", &[1.0, 2.0, 4.0, -8.0], &want, 2, 0.0, NONE).unwrap(), 0.0);
        let near = compare("logits", &[1.0, 2.0, 4.0, -8.000_01], &want, 2, 1e-5, NONE).unwrap();
        assert!((1e-7..1e-5).contains(&near), "{near}");
        for wrong in [4.5, f32::NAN] {
            let error =
                compare("logits", &[1.0, 2.0, wrong, 0.0], &want, 2, 1e-5, NONE).unwrap_err();
            assert_eq!(error.exit_code(), 3);
            let text = error.to_string();
            assert!(text.contains("number 1 of `logits` for made-up row 2 is"), "{text}");
        }
        let short = compare("logits", &[1.0], &want, 2, 1e-5, NONE).unwrap_err().to_string();
        assert!(short.contains("has 1 numbers instead of 4"), "{short}");
        assert!(compare("sd", &[1e-30], &[0.0], 1, 1e-5, NONE).is_err());
    }

    #[test]
    fn numbers_far_from_zero_are_measured_by_their_spread() {
        let (want, units) = ([1e6, 1e6 + 2.0], (1e6, 4.0));
        assert!(compare("mean", &[1e6, 1e6], &want, 1, LIMIT, units).is_err());
        assert!(compare("mean", &[1e6, 1e6 + 2.0625], &want, 1, LIMIT, units).unwrap() > 0.01);
        assert!(compare("mean", &[1e6, 1e6 + 2.25], &want, 1, LIMIT, units).is_err());
    }

    #[test]
    fn a_run_that_answers_with_no_number_is_told_from_a_wrong_export() {
        let error = compare("mean", &[f32::NAN], &[f64::NAN], 1, LIMIT, NONE).unwrap_err();
        assert!(error.to_string().contains("the run itself answers NaN"), "{error}");
    }
}
