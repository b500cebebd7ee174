//! What a graph reads: images from 0 to 1, or the columns of a table as the user has them.

use thinfer_data::table::{Encoding, Kind, Part as DatePart, Variable};
use thinfer_run::run::ImageInputs;

use super::graph::Graph;
use super::layers::Value;
use super::proto::{Attribute, FLOAT, INT64};

/// The name of an input that is an image.
const IMAGE: &str = "image";

/// Images as (rows, channels, height, width), normalised by what the training images had.
pub(super) fn images(graph: &mut Graph, images: &ImageInputs) -> Value {
    let shape = images.shape;
    let about = "pixels from 0 to 1, as torchvision's ToTensor gives them";
    let image = graph.input(IMAGE, FLOAT, &[shape.channels, shape.height, shape.width], about);
    let by_channel = [1, shape.channels, 1, 1];
    let mean = graph.floats("image/mean", &by_channel, &images.mean);
    let sd = graph.floats("image/sd", &by_channel, &images.sd);
    let centred = graph.node("image/centred", "Sub", &[&image, &mean], Vec::new());
    let name = graph.node("image/normalised", "Div", &[&centred, &sd], Vec::new());
    Value { name, flat: false }
}

/// The standardised design columns `used`, ascending, from one input a variable.
///
/// A number is an input of one float a row, NaN where it is missing, and a date one of a float for
/// each of its parts. A category is one whole number a row, the place of the level among the levels,
/// behind which may come those of rare levels and of a missing cell; any other number is none of the
/// levels.
pub(super) fn table(graph: &mut Graph, encoding: &Encoding, used: &[u32]) -> Value {
    let mut columns = Columns { graph, pieces: Vec::new(), means: Vec::new(), sds: Vec::new() };
    let mut first = 0;
    for variable in encoding.variables() {
        let here: Vec<usize> = (0..variable.width())
            .filter(|at| used.binary_search(&((first + at) as u32)).is_ok())
            .collect();
        first += variable.width();
        if here.is_empty() {
            continue;
        }
        match &variable.kind {
            Kind::Number { mean, sd } => columns.number(variable, (*mean, *sd), &here),
            Kind::Category { levels, means, sds, pooled } => {
                columns.category(variable, (levels, pooled), (means, sds), &here);
            }
            Kind::Date { parts, means, sds, .. } => {
                columns.date(variable, parts, (means, sds), &here);
            }
        }
    }
    columns.joined()
}

/// The design columns in the making.
struct Columns<'a> {
    graph: &'a mut Graph,
    pieces: Vec<String>,
    means: Vec<f64>,
    sds: Vec<f64>,
}

impl Columns<'_> {
    /// The columns `here` of a number: itself, and where it is missing.
    fn number(&mut self, variable: &Variable, (mean, sd): (f64, f64), here: &[usize]) {
        let name = &variable.name;
        let nan = if variable.gaps.is_some() { "; NaN is missing" } else { "" };
        let about = format!("the column `{name}`; truth values are 1 and 0{nan}");
        let input = self.graph.input(name, FLOAT, &[1], &about);
        let fill = variable.gaps.as_ref().map_or(mean, |gaps| gaps.fill);
        self.numbers(variable, &input, &[fill], (&[mean], &[sd]), here);
    }

    /// The columns `here` of a date: its parts, and where it is missing.
    fn date(
        &mut self,
        variable: &Variable,
        parts: &[DatePart],
        (means, sds): (&[f64], &[f64]),
        here: &[usize],
    ) {
        let name = &variable.name;
        let listed: Vec<&str> = parts.iter().map(|part| part.name()).collect();
        let nan = if variable.gaps.is_some() { "; NaN is missing" } else { "" };
        let about = format!(
            "of the date `{name}`: {}; days count from 1970-01-01, a year has 365.25 and weeks begin on Monday{nan}",
            listed.join(", ")
        );
        let input = self.graph.input(name, FLOAT, &[parts.len()], &about);
        self.numbers(variable, &input, means, (means, sds), here);
    }

    /// The columns `here` of an input of numbers: themselves, `fills` where they are missing, and
    /// where that is.
    fn numbers(
        &mut self,
        variable: &Variable,
        input: &str,
        fills: &[f64],
        (means, sds): (&[f64], &[f64]),
        here: &[usize],
    ) {
        let (name, width) = (&variable.name, means.len());
        let own: Vec<usize> = here.iter().copied().filter(|at| *at < width).collect();
        let is_missing = variable
            .gaps
            .as_ref()
            .map(|_| self.graph.node(&format!("{name}/missing"), "IsNaN", &[input], vec![]));
        if !own.is_empty() {
            let mut value = input.to_owned();
            if let Some(is_missing) = &is_missing {
                let fills: Vec<f32> = fills.iter().map(|fill| *fill as f32).collect();
                let fill = self.graph.floats(&format!("{name}/fill"), &[1, width], &fills);
                let parts = [is_missing.as_str(), &fill, input];
                value = self.graph.node(&format!("{name}/filled"), "Where", &parts, vec![]);
            }
            if own.len() < width {
                value = self.chosen(&format!("{name}/read"), &value, &own);
            }
            self.pieces.push(value);
            self.means.extend(own.iter().map(|at| means[*at]));
            self.sds.extend(own.iter().map(|at| sds[*at]));
        }
        if let (Some(gaps), Some(mut is_missing)) = (&variable.gaps, is_missing)
            && here.contains(&width)
        {
            if width > 1 {
                is_missing = self.chosen(&format!("{name}/first"), &is_missing, &[0]);
            }
            let flag = self.as_float(&format!("{name}/flag"), &is_missing);
            self.pieces.push(flag);
            self.means.push(gaps.share);
            self.sds.push(gaps.flag_sd());
        }
    }

    /// Some columns of a value.
    fn chosen(&mut self, name: &str, value: &str, wanted: &[usize]) -> String {
        let places: Vec<i64> = wanted.iter().map(|at| *at as i64).collect();
        let places = self.graph.integers(&format!("{name}/places"), &places);
        let axis = vec![Attribute::int("axis", 1)];
        self.graph.node(name, "Gather", &[value, &places], axis)
    }

    /// The columns `here` of a category: its levels, and where it is missing.
    fn category(
        &mut self,
        variable: &Variable,
        (levels, pooled): (&[String], &[String]),
        (means, sds): (&[f64], &[f64]),
        here: &[usize],
    ) {
        let name = &variable.name;
        let mut listed: Vec<String> =
            levels.iter().enumerate().map(|(at, level)| format!("{at} {level}")).collect();
        let other = if pooled.is_empty() { -1 } else { levels.len() as i64 };
        let (mut means, mut sds) = (means.to_vec(), sds.to_vec());
        if let Some(gaps) = variable.gaps.as_ref().filter(|_| variable.flags_gaps()) {
            listed.push(format!("{} a missing cell", means.len()));
            means.push(gaps.share);
            sds.push(gaps.flag_sd());
        }
        let about = format!("the level of `{name}`: {}; {other} for any other", listed.join(", "));
        let input = self.graph.input(name, INT64, &[1], &about);
        let numbers: Vec<i64> = here.iter().map(|at| *at as i64).collect();
        let numbers = self.graph.integers(&format!("{name}/levels"), &numbers);
        let is = self.graph.node(&format!("{name}/is"), "Equal", &[&input, &numbers], vec![]);
        let piece = self.as_float(&format!("{name}/columns"), &is);
        self.pieces.push(piece);
        self.means.extend(here.iter().map(|at| means[*at]));
        self.sds.extend(here.iter().map(|at| sds[*at]));
    }

    /// Truth values as 1 and 0.
    fn as_float(&mut self, name: &str, value: &str) -> String {
        let to = vec![Attribute::int("to", i64::from(FLOAT))];
        self.graph.node(name, "Cast", &[value], to)
    }

    /// All of them side by side, standardised.
    fn joined(self) -> Value {
        let Self { graph, pieces, means, sds } = self;
        let joined = match &pieces[..] {
            [one] => one.clone(),
            several => {
                let several: Vec<&str> = several.iter().map(String::as_str).collect();
                graph.node("columns", "Concat", &several, vec![Attribute::int("axis", 1)])
            }
        };
        Value { name: standardised(graph, joined, &means, &sds), flat: true }
    }
}

/// `(x − mean) / sd` by column; columns that are taken as they are stay untouched.
///
/// A mean far from zero is not an f32, and what is lost there would be divided by the deviation.
/// So the rounded mean is subtracted, which is exact near it, and the rest corrected afterwards.
fn standardised(graph: &mut Graph, value: String, means: &[f64], sds: &[f64]) -> String {
    if means.iter().all(|m| *m == 0.0) && sds.iter().all(|s| *s == 1.0) {
        return value;
    }
    let narrow = |values: &[f64]| -> Vec<f32> { values.iter().map(|v| *v as f32).collect() };
    let rest: Vec<f32> = means
        .iter()
        .zip(sds)
        .map(|(mean, sd)| ((f64::from(*mean as f32) - mean) / sd) as f32)
        .collect();
    let columns = [1, means.len()];
    let centre = graph.floats("columns/mean", &columns, &narrow(means));
    let scale = graph.floats("columns/sd", &columns, &narrow(sds));
    let rest = graph.floats("columns/rest", &columns, &rest);
    let centred = graph.node("columns/centred", "Sub", &[&value, &centre], Vec::new());
    let scaled = graph.node("columns/scaled", "Div", &[&centred, &scale], Vec::new());
    graph.node("columns/standardised", "Add", &[&scaled, &rest], Vec::new())
}

/// The columns `wanted` of a value that has the columns `used`.
pub(super) fn columns(graph: &mut Graph, value: &Value, used: &[u32], wanted: &[u32]) -> Value {
    if used == wanted {
        return value.clone();
    }
    let places: Vec<i64> =
        wanted.iter().filter_map(|c| used.binary_search(c).ok()).map(|at| at as i64).collect();
    let places = graph.integers("columns/read", &places);
    let axis = vec![Attribute::int("axis", 1)];
    Value {
        name: graph.node("columns/chosen", "Gather", &[&value.name, &places], axis),
        flat: true,
    }
}
