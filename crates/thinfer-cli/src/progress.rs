//! One bar for each chain at work, with the time left.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use thinfer::data::memory::human_bytes;
use thinfer::run::{RunInfo, RunObserver};
use thinfer::train::{Observer, Record};

use crate::context::Context;
use crate::device::Chosen;
use crate::text_table::number;
use crate::time_left::TimeLeft;

/// A run that is over before this needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches a run for the user.
pub(crate) struct Progress<'a> {
    context: &'a Context,
    device: &'a Chosen,
    /// What a bar stands for, where it is not a chain, and whether there is one for each number.
    what: Option<(&'static str, bool)>,
    started: Instant,
    bars: MultiProgress,
    chains: Mutex<BTreeMap<u32, Chain>>,
}

/// What is known of a chain.
#[derive(Default)]
struct Chain {
    left: TimeLeft,
    /// What the last record says.
    said: String,
    /// Nothing before there is patience for it.
    bar: Option<ProgressBar>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(context: &'a Context, device: &'a Chosen) -> Self {
        Self {
            context,
            device,
            what: None,
            started: Instant::now(),
            bars: MultiProgress::new(),
            chains: Mutex::new(BTreeMap::new()),
        }
    }

    /// One bar, for work that is not a chain.
    pub(crate) fn of(context: &'a Context, device: &'a Chosen, what: &'static str) -> Self {
        Self { what: Some((what, false)), ..Self::new(context, device) }
    }

    /// A bar for each of several things that are not chains.
    pub(crate) fn numbered(context: &'a Context, device: &'a Chosen, what: &'static str) -> Self {
        Self { what: Some((what, true)), ..Self::new(context, device) }
    }

    /// Does something that writes to the terminal between the bars.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        self.bars.suspend(write);
    }

    /// Takes the bars away.
    pub(crate) fn finish(&self) {
        if let Ok(mut chains) = self.chains.lock() {
            chains.values().filter_map(|c| c.bar.as_ref()).for_each(ProgressBar::finish_and_clear);
            chains.clear();
        }
    }
}

impl RunObserver for Progress<'_> {
    fn begins(&self, info: &RunInfo, bytes: u64) {
        self.context.say(&introduction(self.device, info, bytes));
    }
}

impl Observer for Progress<'_> {
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>) {
        if !self.context.shows_progress() {
            return;
        }
        let Ok(mut chains) = self.chains.lock() else { return };
        if step >= total {
            if let Some(Chain { bar: Some(bar), .. }) = chains.remove(&chain) {
                bar.finish_and_clear();
            }
            return;
        }
        let after = chains.range(chain + 1..).find_map(|(_, next)| next.bar.clone());
        let shown = chains.entry(chain).or_default();
        // What was done before the first report, also by a run before this one, says nothing of
        // speed.
        let elapsed = self.started.elapsed();
        shown.left.mark(elapsed.as_secs_f64(), step);
        if let Some(record) = record {
            shown.said = format!(", {}", message(record));
        }
        if elapsed < PATIENCE {
            return;
        }
        let words = shown.left.words(total) + &shown.said;
        let bar = shown.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total);
            let bar = match after {
                Some(after) => self.bars.insert_before(&after, bar),
                None => self.bars.add(bar),
            };
            bar.set_style(style());
            bar.set_prefix(match self.what {
                None => format!("chain {chain}"),
                Some((what, true)) => format!("{what} {chain}"),
                Some((what, false)) => what.to_owned(),
            });
            bar
        });
        bar.set_message(words);
        bar.set_position(step);
    }

    fn notice(&self, text: &str) {
        self.bars.suspend(|| self.context.notice(text));
    }

    fn warning(&self, text: &str) {
        self.bars.suspend(|| self.context.warning(text));
    }
}

fn message(record: &Record) -> String {
    let loss = number(record.loss);
    match record.test_accuracy {
        None => format!("loss {loss}, {} live inputs", record.live_inputs),
        Some(right) => {
            let (right, pruned) = (100.0 * right, 100.0 * record.sparsity);
            format!("loss {loss}, {right:.2} % of test images right, {pruned:.1} % pruned")
        }
    }
}

fn style() -> ProgressStyle {
    let template = "{prefix} [{bar:20}] {percent:>3} %, {msg}";
    let plain = ProgressStyle::with_template(template);
    plain.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// The first line of a run: the device, and how large everything is.
fn introduction(device: &Chosen, info: &RunInfo, bytes: u64) -> String {
    let cores = info.cores;
    let side_by_side = info.config.chains.min(cores).max(1);
    let threads = side_by_side * (cores / side_by_side).max(1);
    let (train, validation, test) = info.rows;
    format!(
        "{device}, {}, {} for {}; {train} training, {validation} validation and {test} test rows, {}, {}; about {} of memory",
        counted(cores, "core"),
        counted(threads, "thread"),
        counted(info.config.chains, "chain"),
        counted(info.network.input_len(), "input"),
        counted(info.network.params().len(), "weight"),
        human_bytes(bytes)
    )
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
