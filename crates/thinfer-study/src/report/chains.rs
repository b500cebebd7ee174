//! Quantities of chains over their epochs, and how they are drawn.

use std::collections::BTreeSet;

use thinfer_core::schedule::Clock;
use thinfer_core::train::{ChainResult, Record};
use thinfer_run::config::Config;

use super::axis::Axis;
use super::page::{Key, plural};
use super::plots::{Ink, Mark, Plot, SERIES};

/// Chains in one plot, at most: more are neither told apart nor worth the bytes.
const MOST_CHAINS: usize = 24;
/// A quantity that spans more than this is shown on a logarithmic axis.
pub(super) const WIDE: f64 = 20.0;

/// A quantity of one chain over its epochs, counted from 1.
pub(super) type Course = Vec<(f64, f64)>;

/// The chains that are drawn.
pub(super) struct Chains<'a> {
    shown: Vec<&'a ChainResult>,
    all: usize,
}

impl<'a> Chains<'a> {
    /// The first of `results`.
    pub(super) fn new(results: &'a [ChainResult]) -> Self {
        Self { shown: results.iter().take(MOST_CHAINS).collect(), all: results.len() }
    }

    /// Whether no chain has a record yet.
    pub(super) fn are_blank(&self) -> bool {
        self.shown.iter().all(|r| r.records.is_empty())
    }

    /// A quantity of every chain, where it is known.
    pub(super) fn courses(&self, value: impl Fn(&Record) -> Option<f64>) -> Vec<Course> {
        let of_chain = |chain: &&ChainResult| -> Course {
            let at = |r: &Record| Some((r.epoch as f64 + 1.0, value(r)?));
            chain.records.iter().filter_map(at).collect()
        };
        self.shown.iter().map(of_chain).collect()
    }

    /// The seconds of every epoch of every chain.
    pub(super) fn times(&self) -> Vec<Course> {
        let of_chain = |chain: &&ChainResult| -> Course {
            chain.times.iter().map(|time| (time.epoch as f64 + 1.0, time.seconds)).collect()
        };
        self.shown.iter().map(of_chain).collect()
    }

    /// Up to six chains have a colour each; more share one.
    pub(super) fn ink(&self, at: usize) -> Ink {
        Ink::Series(if self.has_own_colours() { at as u8 } else { 0 })
    }

    fn has_own_colours(&self) -> bool {
        self.shown.len() <= usize::from(SERIES)
    }

    /// What the colours mean.
    pub(super) fn keys(&self) -> Vec<Key> {
        if self.has_own_colours() {
            let key = |(at, chain): (usize, &&ChainResult)| {
                Key::new("line", self.ink(at), format!("chain {}", chain.chain))
            };
            return self.shown.iter().enumerate().map(key).collect();
        }
        let text = if self.shown.len() < self.all {
            format!("the first {} of {} chains", self.shown.len(), self.all)
        } else {
            plural(self.shown.len(), "chain")
        };
        vec![Key::new("line", self.ink(0), text)]
    }

    /// How visible a line of a chain is.
    pub(super) fn opacity(&self) -> f64 {
        if self.has_own_colours() { 1.0 } else { 0.5 }
    }

    /// A plot over the epochs that were recorded.
    pub(super) fn plot(&self, about: &str, y: Axis) -> Plot {
        let epochs = self.shown.iter().flat_map(|r| &r.records).map(|r| r.epoch + 1);
        let last = epochs.max().unwrap_or(1) as f64;
        let mut plot = Plot::new(about, Axis::whole(1.0_f64.min(last), last), "epoch", y);
        plot.right = 26;
        plot
    }

    /// One line a chain, each in its colour.
    pub(super) fn lines(&self, courses: &[Course]) -> Vec<Mark> {
        let line = |(at, course): (usize, &Course)| {
            Mark::line(course, self.ink(at)).with(1.5, self.opacity())
        };
        courses.iter().enumerate().map(line).collect()
    }

    /// The step size at the end of each epoch that gave a sample, with `rows` training rows.
    pub(super) fn sampled(&self, config: &Config, rows: usize) -> Vec<(f64, f64)> {
        let schedule = config.schedule.step_size.schedule(rows);
        let clock = clock(config, rows);
        let snapshots = self.shown.iter().flat_map(|r| &r.snapshots);
        let epochs: BTreeSet<usize> = snapshots.map(|s| s.epoch + 1).collect();
        let at = |epoch: usize| schedule.at(epoch as u64 * clock.steps_per_epoch - 1, clock);
        epochs.into_iter().map(|epoch| (epoch as f64, at(epoch))).collect()
    }
}

/// The heights of all points.
pub(super) fn heights<'a>(courses: impl IntoIterator<Item = &'a Course>) -> Vec<f64> {
    courses.into_iter().flatten().map(|p| p.1).collect()
}

/// Steps and epochs of a run on `rows` training rows.
pub(super) fn clock(config: &Config, rows: usize) -> Clock {
    let rows = rows.max(1);
    let steps = rows.div_ceil(config.train.batch.clamp(1, rows)) as u64;
    Clock { steps_per_epoch: steps, epochs: config.train.epochs }
}

/// Steps that all chains together have done.
pub(super) fn steps_done(results: &[ChainResult], config: &Config, rows: usize) -> u64 {
    let epochs = results.iter().filter_map(|r| r.records.last()).map(|r| r.epoch as u64 + 1);
    epochs.sum::<u64>() * clock(config, rows).steps_per_epoch
}
