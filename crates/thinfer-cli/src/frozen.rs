//! What a run has frozen, as text.

use thinfer::config::Config;
use thinfer::train::{ChainResult, phases};

use crate::text_table::{align, percent, seconds};

/// A line for each cycle of every chain that froze anything; nothing where none did.
pub(crate) fn to_text(results: &[ChainResult], config: &Config) -> String {
    let cycles = config.cycles();
    let head =
        ["frozen in epochs", "chain", "of kept parameters", "way back done", "an epoch took"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for result in results {
        for phase in phases(result, &cycles) {
            rows.push(vec![
                format!("{} to {}", phase.epochs.start + 1, phase.epochs.end),
                result.chain.to_string(),
                percent(phase.frozen),
                percent(phase.backward),
                phase.seconds.map_or_else(String::new, seconds),
            ]);
        }
    }
    if rows.len() == 1 { String::new() } else { format!("\n{}", align(&rows)) }
}
