//! How far a run is: on a terminal a line for each chain at work, elsewhere a line now and then.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use terminal_size::terminal_size_of;
use thinfer::data::memory::human_bytes;
use thinfer::run::{RunInfo, RunObserver, TimeLeft, in_words};
use thinfer::train::{Observer, Record, division};

use crate::context::Context;
use crate::device::Chosen;
use crate::progress_line::{self, Line, Pieces};

/// A run that is over before this needs no line.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where stderr is no terminal, the time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Watches a run for the user.
pub(crate) struct Progress<'a> {
    context: &'a Context,
    device: &'a Chosen,
    /// What a line stands for, where it is not a chain, and whether there is one for each number.
    what: Option<(&'static str, bool)>,
    bars: MultiProgress,
    shown: Mutex<Shown>,
}

/// What is known and shown.
struct Shown {
    started: Instant,
    /// The run that trains; nothing where the work is no run.
    run: Option<Whole>,
    chains: BTreeMap<u32, Chain>,
    /// When the last line was written that is no bar, and of which epoch of which chain.
    told: Option<(Instant, Option<(u32, usize)>)>,
}

/// All chains of a run together.
struct Whole {
    chains: usize,
    epochs: usize,
    /// Whether it is on a table.
    table: bool,
    left: TimeLeft,
    /// Where there are several chains.
    bar: Option<ProgressBar>,
}

/// What is known of a chain.
struct Chain {
    left: TimeLeft,
    /// The share of test images that were right when they were last scored.
    accuracy: Option<f64>,
    /// Nothing before there is patience for it.
    bar: Option<ProgressBar>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(context: &'a Context, device: &'a Chosen) -> Self {
        let shown =
            Shown { started: Instant::now(), run: None, chains: BTreeMap::new(), told: None };
        Self { context, device, what: None, bars: MultiProgress::new(), shown: Mutex::new(shown) }
    }

    /// One line, for work that is not a chain.
    pub(crate) fn of(context: &'a Context, device: &'a Chosen, what: &'static str) -> Self {
        Self { what: Some((what, false)), ..Self::new(context, device) }
    }

    /// A line for each of several things that are not chains.
    pub(crate) fn numbered(context: &'a Context, device: &'a Chosen, what: &'static str) -> Self {
        Self { what: Some((what, true)), ..Self::new(context, device) }
    }

    /// Does something that writes to the terminal between the lines.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        self.bars.suspend(write);
    }

    /// Takes the lines away.
    pub(crate) fn finish(&self) {
        if let Ok(mut shown) = self.shown.lock() {
            shown.clear();
        }
    }

    /// Says that the run is trained and is being scored, where the user has waited for a while.
    pub(crate) fn say_scoring(&self) {
        let waited = self.shown.lock().is_ok_and(|shown| shown.started.elapsed() >= PATIENCE);
        if waited {
            self.context.say("trained; scoring the samples on the test data");
        }
    }

    fn name(&self, number: u32) -> String {
        match self.what {
            None => format!("chain {number}"),
            Some((what, true)) => format!("{what} {number}"),
            Some((what, false)) => what.to_owned(),
        }
    }

    /// A new line at the bottom, or before that of another.
    fn add(&self, before: Option<&ProgressBar>) -> ProgressBar {
        let bar = ProgressBar::no_length();
        let bar = match before {
            Some(before) => self.bars.insert_before(before, bar),
            None => self.bars.add(bar),
        };
        let plain = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(plain.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar
    }

    /// Renews the bars of a terminal.
    fn draw(&self, shown: &mut Shown, chain: u32, share: f64, pieces: Pieces) {
        let Shown { run, chains, .. } = shown;
        let columns = terminal_columns();
        let all = run.as_mut().filter(|run| run.chains > 1);
        let single = all.is_none();
        if let Some(all) = all {
            let bar = all.bar.get_or_insert_with(|| self.add(None));
            let name = format!("all {} chains", all.chains);
            let left = Some(in_words(all.left.left()));
            let pieces = Pieces { left, ..Pieces::default() };
            bar.set_message(Line { name, share: all.left.done(), pieces }.fit(columns));
        }
        let next = chains.range(chain + 1..).find_map(|(_, next)| next.bar.clone());
        let next = next.or_else(|| run.as_ref().and_then(|run| run.bar.clone()));
        if let Some(own) = chains.get_mut(&chain) {
            let bar = own.bar.get_or_insert_with(|| self.add(next.as_ref()));
            let pieces = if single { pieces } else { Pieces { left: None, ..pieces } };
            bar.set_message(Line { name: self.name(chain), share, pieces }.fit(columns));
        }
    }

    /// Writes a line where there is no terminal: after an epoch, and not too often.
    fn tell(
        &self,
        shown: &mut Shown,
        chain: u32,
        share: f64,
        record: Option<&Record>,
        pieces: Pieces,
    ) {
        let epoch = record.map(|record| (chain, record.epoch));
        let due = shown.told.is_none_or(|(at, last)| {
            at.elapsed() >= BETWEEN_LINES && (epoch.is_none() || epoch != last)
        });
        if due {
            shown.told = Some((Instant::now(), epoch));
            let several = shown.run.as_ref().is_none_or(|run| run.chains > 1);
            let name = if several { self.name(chain) } else { String::new() };
            self.context.say(&Line { name, share, pieces }.plain());
        }
    }
}

impl Shown {
    fn clear(&mut self) {
        let of_run = self.run.as_ref().and_then(|run| run.bar.as_ref());
        let bars = self.chains.values().filter_map(|chain| chain.bar.as_ref()).chain(of_run);
        bars.for_each(ProgressBar::finish_and_clear);
        self.chains.clear();
        self.run = None;
    }
}

impl RunObserver for Progress<'_> {
    fn begins(&self, info: &RunInfo, bytes: u64) {
        self.context.say(&introduction(self.device, info, bytes));
        let Ok(mut shown) = self.shown.lock() else { return };
        shown.clear();
        let (chains, epochs) = (info.config.chains, info.config.train.epochs);
        let (side_by_side, _) = division(chains, 0);
        let left = TimeLeft::of_run(info, side_by_side);
        let table = info.table().is_ok();
        shown.run = Some(Whole { chains, epochs, table, left, bar: None });
        (shown.started, shown.told) = (Instant::now(), None);
    }
}

impl Observer for Progress<'_> {
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>) {
        if self.context.quiet() {
            return;
        }
        let Ok(mut shown) = self.shown.lock() else { return };
        let elapsed = shown.started.elapsed();
        if let Some(run) = &mut shown.run {
            run.left.mark(chain, elapsed.as_secs_f64(), (step, total), record);
        }
        if step >= total {
            if let Some(Chain { bar: Some(bar), .. }) = shown.chains.remove(&chain) {
                bar.finish_and_clear();
            }
            return;
        }
        let own = shown.chains.entry(chain).or_insert_with(|| Chain {
            left: TimeLeft::of_work(),
            accuracy: None,
            bar: None,
        });
        own.left.mark(0, elapsed.as_secs_f64(), (step, total), None);
        own.accuracy = record.and_then(|record| record.test_accuracy).or(own.accuracy);
        let (own_left, accuracy) = (own.left.left(), own.accuracy);
        if elapsed < PATIENCE {
            return;
        }
        let run = shown.run.as_ref();
        let left = run.map_or(own_left, |run| run.left.left());
        let share = step as f64 / total.max(1) as f64;
        let mut pieces = Pieces { left: Some(in_words(left)), ..Pieces::default() };
        if let Some(record) = record {
            pieces.epoch = run.map(|run| progress_line::epoch(record, run.epochs));
            pieces.loss = Some(progress_line::loss(record));
            let inputs = run.filter(|run| run.table).map(|_| progress_line::inputs(record));
            pieces.metric = accuracy.map(progress_line::accuracy).or(inputs);
            pieces.pruned = progress_line::pruned(record);
        }
        if self.context.shows_progress() {
            self.draw(&mut shown, chain, share, pieces);
        } else {
            self.tell(&mut shown, chain, share, record, pieces);
        }
    }

    fn notice(&self, text: &str) {
        self.bars.suspend(|| self.context.notice(text));
    }

    fn warning(&self, text: &str) {
        self.bars.suspend(|| self.context.warning(text));
    }
}

/// Columns of the terminal that stderr is.
fn terminal_columns() -> usize {
    terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
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
