//! What a graph reads: images from 0 to 1, or the columns of a table as the user has them.

use thinfer_data::table::{Encoding, Kind, Variable};
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
/// A number is an input of one float a row. A category is one whole number a row, the place of the
/// level among the levels; any other number is none of the levels.
pub(super) fn table(graph: &mut Graph, encoding: &Encoding, used: &[u32]) -> Value {
    let (mut pieces, mut means, mut sds) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = 0;
    for Variable { name, kind } in encoding.variables() {
        let here: Vec<usize> = (0..kind.width())
            .filter(|at| used.binary_search(&((first + at) as u32)).is_ok())
            .collect();
        first += kind.width();
        if here.is_empty() {
            continue;
        }
        match kind {
            Kind::Number { mean, sd } => {
                let about = format!("the column `{name}`; truth values are 1 and 0");
                pieces.push(graph.input(name, FLOAT, &[1], &about));
                means.push(*mean);
                sds.push(*sd);
            }
            Kind::Category { levels, means: m, sds: s } => {
                let listed = levels.iter().enumerate().map(|(at, level)| format!("{at} {level}"));
                let listed: Vec<String> = listed.collect();
                let about =
                    format!("the level of `{name}`: {}; -1 for any other", listed.join(", "));
                let input = graph.input(name, INT64, &[1], &about);
                let numbers: Vec<i64> = here.iter().map(|at| *at as i64).collect();
                let numbers = graph.integers(&format!("{name}/levels"), &numbers);
                let is = graph.node(&format!("{name}/is"), "Equal", &[&input, &numbers], vec![]);
                let to = vec![Attribute::int("to", i64::from(FLOAT))];
                pieces.push(graph.node(&format!("{name}/columns"), "Cast", &[&is], to));
                means.extend(here.iter().map(|at| m[*at]));
                sds.extend(here.iter().map(|at| s[*at]));
            }
        }
    }
    let joined = match &pieces[..] {
        [one] => one.clone(),
        several => {
            let several: Vec<&str> = several.iter().map(String::as_str).collect();
            graph.node("columns", "Concat", &several, vec![Attribute::int("axis", 1)])
        }
    };
    Value { name: standardised(graph, joined, &means, &sds), flat: true }
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
