//! The curves of a run, as the page draws them.

use serde::Serialize;
use thinfer_core::train::Record;
use thinfer_run::run::Agreed;

/// Points of a curve, at most: more cannot be told apart on a screen.
const MOST_POINTS: usize = 500;

/// What the page draws of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Curves {
    chains: Vec<ChainCurves>,
    /// Epochs and R-hat after each stage.
    agreed: Vec<(usize, f64)>,
}

/// Columns of the records of one chain; a column that has no number is not there. A number that is
/// not finite is `null`.
#[derive(Debug, PartialEq, Serialize)]
struct ChainCurves {
    chain: u32,
    /// Epochs that were done.
    epoch: Vec<usize>,
    loss: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nll: Option<Vec<Option<f64>>>,
    pruned: Vec<f64>,
    inputs: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<Vec<Option<f64>>>,
}

impl Curves {
    /// Of the records of chains, on so many training rows.
    pub(super) fn of(chains: &[(u32, Vec<Record>)], agreed: &[Agreed], rows: usize) -> Self {
        Self {
            chains: chains.iter().map(|(chain, records)| of_chain(*chain, records, rows)).collect(),
            agreed: agreed.iter().map(|found| (found.epochs, found.r_hat)).collect(),
        }
    }
}

fn of_chain(chain: u32, records: &[Record], rows: usize) -> ChainCurves {
    // The last one is always drawn.
    let each = records.len().div_ceil(MOST_POINTS).max(1);
    let mut drawn: Vec<&Record> = records.iter().rev().step_by(each).collect();
    drawn.reverse();
    let column = |value: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<Option<f64>> = drawn.iter().map(|record| value(record)).collect();
        values.iter().any(Option::is_some).then_some(values)
    };
    ChainCurves {
        chain,
        epoch: drawn.iter().map(|record| record.epoch + 1).collect(),
        loss: drawn.iter().map(|record| record.loss).collect(),
        accuracy: column(&|record| record.test_accuracy),
        nll: column(&|record| record.test_nll),
        pruned: drawn.iter().map(|record| record.sparsity).collect(),
        inputs: drawn.iter().map(|record| record.live_inputs).collect(),
        temperature: column(&|record| record.effective_temperature.map(|t| t * rows as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(count: usize) -> Vec<Record> {
        let rows: Vec<String> = (0..count).map(|epoch| format!("0,{epoch},0.5\n")).collect();
        let table = format!("chain,epoch,loss\n{}", rows.concat());
        thinfer_run::history::parse(&table).unwrap().remove(0).1
    }

    #[test]
    fn curves_have_few_points_and_the_last_one() {
        let found = Curves::of(&[(3, records(1_234))], &[], 100);
        let chain = &found.chains[0];
        assert!(chain.epoch.len() <= MOST_POINTS && chain.epoch.len() > MOST_POINTS / 2);
        assert_eq!((chain.chain, chain.epoch.last()), (3, Some(&1_234)));
        assert_eq!((&chain.accuracy, &chain.temperature), (&None, &None));
    }

    #[test]
    fn what_is_not_finite_is_null() {
        let mut records = records(2);
        (records[0].loss, records[1].effective_temperature) = (f64::NAN, Some(0.01));
        let json = serde_json::to_value(Curves::of(&[(0, records)], &[], 100)).unwrap();
        assert!(json["chains"][0]["loss"][0].is_null());
        assert_eq!(json["chains"][0]["temperature"][1], 1.0);
        assert!(json["chains"][0].get("nll").is_none());
    }
}
