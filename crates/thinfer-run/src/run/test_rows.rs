//! A few test rows of a run, to compare networks on.

use thinfer_data::Result;
use thinfer_engine::Dataset;

use super::Run;

/// Test rows that are taken at most.
const ROWS: usize = 6;

/// A few test rows of a run, as its network reads them; none where it has no test data.
pub fn some_test_rows(run: &Run) -> Result<Option<Dataset>> {
    let (_, _, rows) = run.data.rows();
    let taken: Vec<u32> = (0..rows.min(ROWS) as u32).collect();
    if taken.is_empty() { Ok(None) } else { run.data.test_rows(&taken).map(Some) }
}
