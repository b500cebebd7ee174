//! What a run went through, epoch by epoch, as its `history.csv` says.

use std::collections::BTreeMap;
use std::path::Path;

use thinfer_data::files::regular;

/// One value an epoch, counted from 1: the mean over the chains that recorded it.
pub type Curve = Vec<(f64, f64)>;

/// Bytes that a history may have.
const MOST_BYTES: u64 = 256 << 20;

/// The curves of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Mean training loss of an epoch.
    pub loss: Curve,
    /// Share of test images that the network of the epoch has right.
    pub test_accuracy: Curve,
    /// Share of all parameters that are pruned.
    pub sparsity: Curve,
}

impl Course {
    /// Reads the history in the folder of a run. A run without one has no curves, and a line that
    /// cannot be read is left out: a run that is on its way may just be writing it.
    pub(super) fn read(folder: &Path) -> Self {
        let text = regular::read_to_string(&folder.join("history.csv"), MOST_BYTES);
        text.map_or_else(|_| Self::default(), |text| Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let Ok(head) = reader.headers().cloned() else { return Self::default() };
        let place = |name: &str| head.iter().position(|column| column == name);
        let Some(epoch) = place("epoch") else { return Self::default() };
        let columns = ["loss", "test_accuracy", "sparsity"].map(place);
        let mut all: [BTreeMap<usize, (f64, f64)>; 3] = Default::default();
        for record in reader.records().flatten().filter(|record| record.len() >= head.len()) {
            let Some(at) = record.get(epoch).and_then(|cell| cell.parse::<usize>().ok()) else {
                continue;
            };
            for (column, sums) in columns.iter().zip(&mut all) {
                let cell = column.and_then(|column| record.get(column));
                let value = cell.and_then(|cell| cell.parse::<f64>().ok());
                if let Some(value) = value.filter(|value| value.is_finite()) {
                    let (sum, count) = sums.entry(at).or_default();
                    (*sum, *count) = (*sum + value, *count + 1.0);
                }
            }
        }
        let curve = |sums: &BTreeMap<usize, (f64, f64)>| {
            sums.iter().map(|(epoch, (sum, count))| (*epoch as f64 + 1.0, sum / count)).collect()
        };
        let [loss, test_accuracy, sparsity] = all.each_ref().map(curve);
        Self { loss, test_accuracy, sparsity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_averaged_and_what_cannot_be_read_is_left_out() {
        let text = "chain,epoch,loss,sparsity,test_accuracy\n0,0,2,0,\n0,9,1,0.5,0.8\n1,0,4,0,\n1,9,NaN,0.7,";
        let course = Course::of(text);
        assert_eq!(course.loss, [(1.0, 3.0), (10.0, 1.0)]);
        assert_eq!(course.sparsity, [(1.0, 0.0), (10.0, 0.6)]);
        assert_eq!(course.test_accuracy, [(10.0, 0.8)]);
        assert_eq!(Course::of("chain,epoch,loss\n0,0,1\n0,1").loss, [(1.0, 1.0)]);
        assert_eq!(Course::of("nothing of this kind"), Course::default());
        assert_eq!(Course::read(Path::new("not there")), Course::default());
    }
}
