//! Partial dependence: the mean prediction where one variable has a value and all others are as
//! they are in the rows, with what the samples of the posterior say about it.

use serde::{Deserialize, Serialize};
use thinfer_core::metrics::quantile_of_sorted;
use thinfer_core::posterior::{Posterior, Predictive, Snapshot};
use thinfer_core::shrink::{Layout, shrink_posterior};
use thinfer_data::table::Kind;
use thinfer_data::{Bundle, Result};
use thinfer_engine::Dataset;

use super::spread;

/// Rows over which a prediction is averaged, at most.
const ROWS: usize = 200;
/// Samples that are asked, at most.
const SAMPLES: usize = 60;
/// Values of a number at which a prediction is asked for.
const VALUES: usize = 25;
/// A number with at most so many values is asked at each of them.
const FEW_VALUES: usize = 12;
/// Levels of a category, at most.
const LEVELS: usize = 20;
/// The share of a number's rows below the first value, and above the last.
const TAIL: f64 = 0.025;
/// The band holds this share of the samples.
const BAND: f64 = 0.9;
/// A number has a direction where its ends differ by this share of all that it does.
const MONOTONE: f64 = 0.9;

/// How the prediction depends on one variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependence {
    /// The variable, by its place.
    pub variable: usize,
    /// Where the prediction was asked for.
    pub places: Vec<Place>,
    /// The prediction: one for a number and for two classes (the probability of the second), else
    /// one for each class.
    pub responses: Vec<Response>,
    /// Deciles of a number in the training rows; empty for a category.
    pub deciles: Vec<f64>,
}

/// A value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Of a number, in the user's units.
    Number(f64),
    /// Of a category.
    Level(String),
}

/// The mean prediction at every place, in the user's units.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The class whose probability it is.
    pub class: Option<usize>,
    /// Mean over samples, and the ends of the band that holds 90 % of them.
    pub points: Vec<(f64, f64, f64)>,
}

/// What more of a number does, or which levels of a category are at the ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More of it, more of the target.
    Up,
    /// More of it, less of the target.
    Down,
    /// It depends on where one is.
    Curved,
    /// The level with the lowest prediction, and that with the highest.
    Levels {
        /// The lowest.
        lowest: String,
        /// The highest.
        highest: String,
    },
}

impl Dependence {
    /// The direction, and by how much the prediction changes: from the lowest place to the highest,
    /// with a sign where there is one. Nothing where each class has its own.
    pub fn direction(&self) -> Option<(Direction, f64)> {
        let [response] = &self.responses[..] else { return None };
        let mean = |at: usize| response.points[at].0;
        let by_mean = |a: &usize, b: &usize| mean(*a).total_cmp(&mean(*b));
        let low = (0..response.points.len()).min_by(by_mean)?;
        let high = (0..response.points.len()).max_by(by_mean)?;
        let range = mean(high) - mean(low);
        if let (Place::Level(lowest), Place::Level(highest)) =
            (&self.places[low], &self.places[high])
        {
            let (lowest, highest) = (lowest.clone(), highest.clone());
            return Some((Direction::Levels { lowest, highest }, range));
        }
        let change = mean(response.points.len() - 1) - mean(0);
        Some(match change {
            c if c.abs() < MONOTONE * range => (Direction::Curved, range),
            c if c > 0.0 => (Direction::Up, c),
            c => (Direction::Down, c),
        })
    }
}

/// How the predictions of `posterior` depend on `variable`, over training rows of `data`. Nothing
/// where the data has no rows, where no sample reads the variable, or where its values cannot be
/// shown.
pub fn dependence(
    posterior: &Posterior,
    data: &Bundle,
    variable: usize,
) -> Result<Option<Dependence>> {
    let Some(grid) = Grid::of(data, variable) else { return Ok(None) };
    let rows = spread(data.train.rows(), ROWS);
    if rows.is_empty() || posterior.members.is_empty() {
        return Ok(None);
    }
    let members: Vec<Snapshot> = spread(posterior.members.len(), SAMPLES)
        .into_iter()
        .map(|at| posterior.members[at].clone())
        .collect();
    let some = Posterior { network: posterior.network.clone(), members };
    // Only columns that some sample reads matter; predicting on those alone is much cheaper.
    let (some, small) = shrink_posterior(&some, Layout::CPU)?;
    let read: Vec<usize> = small.inputs.iter().map(|column| *column as usize).collect();
    if !grid.columns.iter().any(|column| read.contains(column)) {
        return Ok(None);
    }
    let asked = rows.len() * grid.places.len();
    let mut inputs = Vec::with_capacity(asked * read.len());
    for cells in &grid.cells {
        for &row in &rows {
            let all = data.train.input(row);
            inputs.extend(read.iter().map(|column| {
                let place = grid.columns.iter().position(|own| own == column);
                place.map_or(all[*column], |place| cells[place])
            }));
        }
    }
    let asked = Dataset::new(read.len(), 1, inputs, vec![0.0; asked])?;
    let responses = responses(&some.predict(&asked)?, rows.len(), data.schema.target_scale());
    let Grid { places, deciles, .. } = grid;
    Ok(Some(Dependence { variable, places, responses, deciles }))
}

/// The values at which a variable is asked for.
struct Grid {
    /// The input columns of the variable.
    columns: Vec<usize>,
    places: Vec<Place>,
    /// What these columns are at each place.
    cells: Vec<Vec<f32>>,
    deciles: Vec<f64>,
}

impl Grid {
    fn of(data: &Bundle, variable: usize) -> Option<Self> {
        let columns: Vec<usize> =
            (0..data.groups.len()).filter(|&c| data.groups[c] == variable).collect();
        let kind = &data.schema.encoding.variables().get(variable)?.kind;
        if let Kind::Number { mean, sd, .. } = kind {
            return Self::of_number(data, &columns, (*mean, *sd));
        }
        let Kind::Category { levels, means, sds, .. } = kind else { return None };
        let rest = resting(data, columns.get(levels.len()..)?);
        let cell = |level: usize| {
            let of = |c: usize| ((f64::from(u8::from(c == level)) - means[c]) / sds[c]) as f32;
            (0..levels.len()).map(of).chain(rest.iter().copied()).collect()
        };
        let shown = levels.len().min(LEVELS);
        Some(Self {
            columns,
            places: levels[..shown].iter().cloned().map(Place::Level).collect(),
            cells: (0..shown).map(cell).collect(),
            deciles: Vec::new(),
        })
    }

    fn of_number(data: &Bundle, columns: &[usize], (mean, sd): (f64, f64)) -> Option<Self> {
        let [column, more @ ..] = columns else { return None };
        let rest = resting(data, more);
        let rows = 0..data.train.rows();
        let mut values: Vec<f64> =
            rows.map(|row| f64::from(data.train.input(row)[*column])).collect();
        values.sort_by(f64::total_cmp);
        let quantile = |share: f64| quantile_of_sorted(&values, share);
        let mut different = values.clone();
        different.dedup();
        let asked: Vec<f64> = match different.len() {
            0 | 1 => return None,
            2..=FEW_VALUES => different,
            _ => {
                let (low, high) = (quantile(TAIL), quantile(1.0 - TAIL));
                // So many rows with one value that nothing is left between.
                let (low, high) =
                    if low < high { (low, high) } else { (quantile(0.0), quantile(1.0)) };
                let step = (high - low) / (VALUES - 1) as f64;
                (0..VALUES).map(|at| low + step * at as f64).collect()
            }
        };
        let own = |value: &f64| mean + sd * value;
        Some(Self {
            columns: columns.to_vec(),
            places: asked.iter().map(|value| Place::Number(own(value))).collect(),
            cells: asked.iter().map(|value| [&[*value as f32][..], &rest].concat()).collect(),
            deciles: (1..10).map(|tenth| own(&quantile(f64::from(tenth) / 10.0))).collect(),
        })
    }
}

/// What further columns of a variable are where its value is an ordinary one: a column that says
/// that the value is missing, or is another one, is at its least then.
fn resting(data: &Bundle, columns: &[usize]) -> Vec<f32> {
    let least = |column: &usize| {
        let cells = (0..data.train.rows()).map(|row| data.train.input(row)[*column]);
        cells.fold(f32::INFINITY, f32::min)
    };
    columns.iter().map(least).collect()
}

/// Means over `rows` rows of what every sample says at every place.
fn responses(predictive: &Predictive, rows: usize, (shift, scale): (f64, f64)) -> Vec<Response> {
    let mean_of = |values: &[f64], width: usize, at: usize| -> Vec<f64> {
        let place =
            |rows_of: &[f64]| rows_of.iter().skip(at).step_by(width).sum::<f64>() / rows as f64;
        values.chunks(rows * width).map(place).collect()
    };
    let of = |class: Option<usize>, samples: Vec<Vec<f64>>| {
        let point = |place: usize| {
            let mut values: Vec<f64> = samples.iter().map(|sample| sample[place]).collect();
            values.sort_by(f64::total_cmp);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let tail = (1.0 - BAND) / 2.0;
            let (low, high) =
                (quantile_of_sorted(&values, tail), quantile_of_sorted(&values, 1.0 - tail));
            (mean, low, high)
        };
        let places = samples.first().map_or(0, Vec::len);
        Response { class, points: (0..places).map(point).collect() }
    };
    match predictive {
        Predictive::Regression { means, .. } => {
            let own = |means: &Vec<f64>| -> Vec<f64> {
                mean_of(means, 1, 0).into_iter().map(|mean| shift + scale * mean).collect()
            };
            vec![of(None, means.iter().map(own).collect())]
        }
        Predictive::Classes { classes, members } => {
            let shown = if *classes == 2 { 1..2 } else { 0..*classes };
            shown
                .map(|class| {
                    let each = members.iter().map(|member| mean_of(member, *classes, class));
                    of(Some(class), each.collect())
                })
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_data::table::{Column, Table, Values};
    use thinfer_run::config::{Config, TaskChoice};
    use thinfer_run::experiment::build_network;

    /// 40 rows of a number and a category of three levels, and a linear network on them.
    fn linear(weights: &[&[f32]]) -> (Posterior, Bundle) {
        let column = |name: &str, values| Column { name: name.into(), values };
        let x = (0..40).map(|row| f64::from(row * 7 % 40)).collect();
        let kind = (0..40).map(|row| Some(["a", "b", "c"][row % 3].to_owned())).collect();
        let y = (0..40).map(|row| f64::from(row * row % 23)).collect();
        let columns = vec![
            column("x", Values::Number(x)),
            column("kind", Values::Text(kind)),
            column("y", Values::Number(y)),
        ];
        let table = Table { path: "t.csv".into(), columns };
        let data = Bundle::from_table(
            &table,
            "y",
            TaskChoice::Regression,
            0.2,
            &thinfer_data::table::Rules::plain(),
            1,
        )
        .unwrap();
        let config = Config::parse("", &["model.hidden=[]".to_owned()]).unwrap();
        let network = build_network(&config, &data).unwrap();
        let n = network.params().len();
        let member = |first: &&[f32]| {
            let mut all = first.to_vec();
            all.resize(n, 0.0);
            Snapshot {
                chain: 0,
                epoch: 0,
                weights: all,
                keep: vec![1; n],
                stats: Vec::new(),
                inclusion: Vec::new(),
            }
        };
        let members = weights.iter().map(member).collect();
        (Posterior { network, members }, data)
    }

    #[test]
    fn a_line_has_its_slope_and_a_band_where_samples_differ() {
        let (posterior, data) = linear(&[&[1.0], &[3.0]]);
        let found = dependence(&posterior, &data, 0).unwrap().unwrap();
        let [response] = &found.responses[..] else { panic!("one number") };
        assert_eq!((found.places.len(), found.deciles.len()), (VALUES, 9));
        let (Place::Number(first), Place::Number(last)) = (&found.places[0], &found.places[24])
        else {
            panic!("numbers")
        };
        // 2 standard deviations of y for one of x.
        let Kind::Number { sd, .. } = data.schema.encoding.variables()[0].kind else {
            panic!("a number")
        };
        let slope = 2.0 * data.schema.target_scale().1 / sd;
        let change = response.points[24].0 - response.points[0].0;
        assert!((change - slope * (last - first)).abs() < 1e-3 * change, "{change}");
        let (_, low, high) = response.points[24];
        assert!(low < response.points[24].0 && response.points[24].0 < high);
        let (direction, by) = found.direction().unwrap();
        assert_eq!((direction, by), (Direction::Up, change));
    }

    #[test]
    fn a_category_has_its_levels_and_a_bend_is_no_direction() {
        // Columns: x, kind=a, kind=b, kind=c.
        let (posterior, data) = linear(&[&[0.0, 1.0, 0.0, -1.0]]);
        let found = dependence(&posterior, &data, 1).unwrap().unwrap();
        assert_eq!(found.places[2], Place::Level("c".into()));
        let levels = Direction::Levels { lowest: "c".into(), highest: "a".into() };
        let (direction, by) = found.direction().unwrap();
        assert_eq!(direction, levels);
        assert!(by > 0.0);
        let points = [0.0, 2.0, 0.5].map(|mean| (mean, mean, mean)).to_vec();
        let places = [0.0, 1.0, 2.0].map(Place::Number).to_vec();
        let responses = vec![Response { class: None, points }];
        let bent = Dependence { variable: 0, places, responses, deciles: Vec::new() };
        assert_eq!(bent.direction(), Some((Direction::Curved, 2.0)));
    }
}
