//! What 32-bit floats cost in the user's units: a graph reads and answers in them.

use thinfer_data::table::{Kind, Variable};
use thinfer_data::{Error, Result};
use thinfer_run::run::RunInfo;

use super::check::LIMIT;
use super::part::{Part, target_units};

/// Half the distance between neighbouring floats around 1: what rounding changes at most.
const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;
/// The largest share of the target's standard deviation that rounding an answer may change.
const COARSE: f64 = 0.01;

/// What to tell the user about a graph of `parts`. A target so far from zero, for its deviation,
/// that answers would say nothing is an error.
pub(super) fn notices(info: &RunInfo, parts: &[Part]) -> Result<Vec<String>> {
    let Some(table) = info.inputs.table() else { return Ok(Vec::new()) };
    let mut notices = Vec::new();
    let number = !info.network.loss().has_classes();
    let ((mean, sd), name) = (target_units(info), &table.schema.target_name);
    let share = cost(mean, sd);
    if number && share > COARSE {
        return Err(Error::Data(format!(
            "the target `{name}` lies around {mean:.6e} with a standard deviation of {sd:.3}, and a graph answers in 32-bit floats, which are {} apart there: its answers would be too coarse. Subtract a number near its mean from the target and train again; `thinfer predict` answers in 64-bit floats",
            apart(mean)
        )));
    }
    if number && share > LIMIT {
        notices.push(format!(
            "the target `{name}` lies around {mean:.6e} with a standard deviation of {sd:.3}: 32-bit floats round the graph's answers by up to {share:.0e} of it. Where that is too much, subtract a number near its mean and train again"
        ));
    }
    let mut first = 0;
    for variable in table.schema.encoding.variables() {
        let Variable { name, kind, .. } = variable;
        let own = first..first + variable.width() as u32;
        first = own.end;
        let Kind::Number { mean, sd } = kind else { continue };
        let read = || parts.iter().any(|part| part.inputs.iter().any(|c| own.contains(c)));
        let share = cost(*mean, *sd);
        if share > LIMIT && read() {
            notices.push(format!(
                "the column `{name}` lies around {mean:.6e} with a standard deviation of {sd:.3}: 32-bit floats, which the graph reads, round it by up to {share:.0e} of it, so answers differ from those of `thinfer predict`. Where that is too much, subtract a number near its mean and train again"
            ));
        }
    }
    Ok(notices)
}

/// The distance between neighbouring floats at a number.
fn apart(at: f64) -> f64 {
    2f64.powf(at.abs().log2().floor()) * f64::from(f32::EPSILON)
}

/// What rounding a number near `mean` changes at most, in standard deviations.
fn cost(mean: f64, sd: f64) -> f64 {
    ROUNDING * mean.abs() / sd
}
