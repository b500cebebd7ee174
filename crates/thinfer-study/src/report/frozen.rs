//! What was frozen, cycle by cycle, and how long epochs took.

use thinfer_core::train::{ChainResult, Phase, phases};
use thinfer_run::config::Config;

use super::page::{element, number_or_nothing, percent, remark, table};

/// A table of all chains that froze anything; empty where none did.
pub(super) fn of_chains(results: &[ChainResult], config: &Config) -> String {
    let cycles = config.cycles();
    let row = |chain: u32, phase: &Phase| {
        vec![
            chain.to_string(),
            format!("{} to {}", phase.epochs.start + 1, phase.epochs.end),
            percent(phase.frozen),
            percent(phase.backward),
            number_or_nothing(phase.seconds),
        ]
    };
    let rows: Vec<Vec<String>> = results
        .iter()
        .flat_map(|r| phases(r, &cycles).into_iter().map(|phase| row(r.chain, &phase)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["Chain", "Epochs", "Frozen", "Way back done", "Seconds an epoch"];
    element("h3", "What was frozen")
        + &table(&head, &rows)
        + &remark(
            "\u{201c}Frozen\u{201d} is the share of kept parameters that are not trained any more; \
             \u{201c}way back done\u{201d} the share of the multiply-adds of the way back that is left \
             of the network in use; seconds are the median of the cycle's epochs, its evaluations \
             included.",
        )
}
