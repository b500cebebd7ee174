//! A few test rows of a run, to compare networks on.

use thinfer_data::images::image_rows;
use thinfer_data::{Result, View};
use thinfer_engine::Dataset;

use super::Trained;

/// Test rows that are taken at most.
const ROWS: usize = 6;

/// A few test rows of a run, as its network reads them; none where it has no test data.
pub fn some_test_rows(run: &Trained) -> Result<Option<Dataset>> {
    let order = |rows: usize| (0..rows.min(ROWS) as u32).collect::<Vec<u32>>();
    let rows = match run {
        Trained::Table(run) => run.data.test.take_rows(&order(run.data.test.rows())),
        Trained::Images(run) => {
            let (test, augment) = (&run.data.test, &run.data.augment);
            if test.rows() == 0 {
                return Ok(None);
            }
            image_rows(test, augment, View::Centre, &order(test.rows()))?
        }
    };
    Ok(Some(rows).filter(|rows| rows.rows() > 0))
}
