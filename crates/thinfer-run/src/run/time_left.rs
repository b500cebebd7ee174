//! How long the rest of a run takes, by how fast the last part of it went.
//!
//! The speed is that of the second half of the time so far. It starts anew where the work of a step
//! changes by much, as when pruned inputs are no longer read, and is taken over whole periods of
//! scoring. Chains that wait for a free core or for the end of a stage are counted as such.
//!
//! What cannot be foreseen is said: a run in stages may end after each, and a run that prunes by a
//! threshold gets faster by an unknown part when pruning begins. Until then the time is a bound.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use thinfer_core::methods::em_mcmc::Assignment;
use thinfer_core::train::Record;

use super::RunInfo;
use crate::experiment::record_every;

/// Nothing is said before this many seconds, when the first steps say little about the others.
const PATIENCE: f64 = 1.0;
/// Reports kept at most.
const MOST: usize = 256;
/// Steps that do more or less work than before by this factor have another speed.
const OTHER_WORK: f64 = 1.25;

/// What is known of the time that is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// Seconds until all chains have done all of their epochs.
    pub seconds: f64,
    /// Whether it may well be less.
    pub at_most: bool,
    /// Seconds until it is seen whether the samples agree, so that the run may end; for runs in
    /// stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_check: Option<f64>,
    /// Seconds until pruning by a threshold has begun: before, the time is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_in: Option<f64>,
}

/// The time that is left of chains of equal length, some of which run side by side.
#[derive(Default)]
pub struct TimeLeft {
    chains: usize,
    side_by_side: usize,
    epochs: usize,
    /// Epochs after which the run may end; empty where it has one end.
    stage_ends: Vec<usize>,
    /// Epochs after which it is known how much a threshold prunes at first, where one does.
    pruned_by: usize,
    /// Every how many epochs test images are scored.
    scored_every: usize,
    /// Steps of a chain; 0 before one has begun.
    steps: u64,
    /// Steps that are done of each chain that has begun, at its first report and now.
    done: BTreeMap<u32, (u64, u64)>,
    /// The work of a step, when the marks began.
    work: Option<f64>,
    /// When the last report came.
    last: Option<f64>,
    /// Seconds that chains were at work, and the steps that they did, together; ascending.
    marks: VecDeque<(f64, u64)>,
}

impl TimeLeft {
    /// Of the chains of a run, of which some run side by side.
    pub fn of_run(info: &RunInfo, side_by_side: usize) -> Self {
        let config = &info.config;
        let prunes = config.method.kind.reads_own("prune.warm_up_epochs")
            && config.prior.assignment != Assignment::Draw;
        Self {
            chains: config.chains,
            side_by_side,
            epochs: config.train.epochs,
            stage_ends: config.stages().map_or_else(Vec::new, |stages| stages.ends()),
            pruned_by: if prunes && config.prune.target.is_none() {
                config.prune.warm_up_epochs + 1 + record_every(config)
            } else {
                0
            },
            scored_every: if info.inputs.image().is_some() {
                config.train.evaluate_every_epochs
            } else {
                1
            },
            ..Self::default()
        }
    }

    /// Of some other work, which is one chain of so many equal parts.
    pub fn of_work() -> Self {
        Self { chains: 1, side_by_side: 1, epochs: 1, scored_every: 1, ..Self::default() }
    }

    /// Takes note that `step` of its `steps` steps are done of a chain after so many seconds. What
    /// was done before its first report, also by a run before this one, says nothing of its speed.
    pub fn mark(
        &mut self,
        chain: u32,
        seconds: f64,
        (step, steps): (u64, u64),
        record: Option<&Record>,
    ) {
        self.steps = steps;
        let busy = self.marks.back().map_or(0.0, |mark| mark.0);
        let since = seconds - self.last.unwrap_or(seconds);
        let busy = busy + since.max(0.0) * self.at_work() as f64;
        self.last = Some(seconds);
        let done = self.done.entry(chain).or_insert((step, step));
        done.1 = done.1.max(step);
        let all: u64 = self.done.values().map(|(first, now)| now - first).sum();
        match self.marks.back_mut() {
            // Time passes without a step where a chain that waited is heard of first.
            Some(last) if last.1 >= all => last.0 = busy,
            _ => self.marks.push_back((busy, all)),
        }
        if let Some(work) = record.map(work_of) {
            let before = *self.work.get_or_insert(work);
            if work * OTHER_WORK < before || work > before * OTHER_WORK {
                self.work = Some(work);
                self.marks.drain(..self.marks.len() - 1);
            }
        }
        if self.marks.len() > MOST {
            // Every other one; the last stays.
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    /// The share of all steps that is done.
    pub fn done(&self) -> f64 {
        let done: u64 = self.done.values().map(|(_, now)| now).sum();
        done as f64 / (self.steps * self.chains as u64).max(1) as f64
    }

    /// The time until all is done. Nothing while too little is known.
    pub fn left(&self) -> Option<Left> {
        let each = self.seconds_a_step()?;
        let an_epoch = self.steps / self.epochs.max(1) as u64;
        let mut ends: Vec<u64> = self.stage_ends.iter().map(|end| *end as u64 * an_epoch).collect();
        if ends.is_empty() {
            ends.push(self.steps);
        }
        let mut from = 0;
        let mut stages = Vec::new();
        for end in ends {
            let steps = self.longest(from, end);
            if steps > 0 {
                stages.push(steps as f64 * each);
            }
            from = end;
        }
        let now = self.done.values().map(|(_, now)| now).min().copied().unwrap_or(0);
        let unpruned = (self.pruned_by.min(self.epochs) as u64 * an_epoch).saturating_sub(now);
        let known_in = (unpruned > 0).then_some(unpruned as f64 * each);
        Some(Left {
            seconds: stages.iter().sum(),
            known_in,
            at_most: known_in.is_some() || stages.len() > 1,
            to_check: stages.first().copied().filter(|_| stages.len() > 1),
        })
    }

    /// Chains that are at work.
    fn at_work(&self) -> usize {
        let ended = self.done.values().filter(|(_, now)| *now >= self.steps).count();
        self.chains.saturating_sub(ended).clamp(1, self.side_by_side.max(1))
    }

    /// Steps that the busiest core does until all chains have done `end` steps, of those after
    /// `from`.
    fn longest(&self, from: u64, end: u64) -> u64 {
        let rest = |now: u64| end.saturating_sub(now.max(from));
        let begun = self.done.values().map(|(_, now)| rest(*now));
        let waiting = self.chains.saturating_sub(self.done.len());
        let mut cores = vec![0u64; self.side_by_side.max(1)];
        for steps in begun.chain(std::iter::repeat_n(rest(0), waiting)) {
            if let Some(free) = cores.iter_mut().min() {
                *free += steps;
            }
        }
        cores.into_iter().max().unwrap_or(0)
    }

    /// How long a step takes, as in the second half of the time so far.
    fn seconds_a_step(&self) -> Option<f64> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        let spent = last.0 - first.0;
        if spent < PATIENCE {
            return None;
        }
        let half = first.0 + 0.5 * spent;
        // At least two marks: the last one, and the last that is not in the second half.
        let at = self.marks.iter().rposition(|mark| mark.0 <= half)?;
        let since = self.in_whole_periods(at, *last);
        Some((last.0 - since.0) / (last.1 - since.1).max(1) as f64)
    }

    /// The mark that whole periods of scoring lie after, from the one at `at` on or before it.
    fn in_whole_periods(&self, at: usize, last: (f64, u64)) -> (f64, u64) {
        let an_epoch = self.steps / self.epochs.max(1) as u64;
        let period = self.scored_every as u64 * an_epoch;
        let there = last.1 - self.marks[at].1;
        if self.scored_every < 2 || self.chains > 1 || period == 0 {
            return self.marks[at];
        }
        let wanted = last.1.checked_sub(there.div_ceil(period) * period);
        let fits = |wanted: u64| self.marks.iter().rev().find(|mark| mark.1 <= wanted);
        wanted.and_then(fits).copied().unwrap_or(self.marks[at])
    }
}

/// The work of a step, up to a factor.
fn work_of(record: &Record) -> f64 {
    record.work * (1.0 + record.live_inputs as f64)
}

/// The time that is left, in words.
pub fn in_words(left: Option<Left>) -> String {
    match left {
        None => "time left not known yet".into(),
        Some(Left { known_in: Some(known), .. }) => {
            format!("time left known in {}", duration(known))
        }
        Some(Left { seconds, to_check: Some(check), .. }) => {
            format!("check in {}, at most {} left", duration(check), duration(seconds))
        }
        Some(Left { seconds, at_most: true, .. }) => format!("at most {} left", duration(seconds)),
        Some(Left { seconds, .. }) => format!("{} left", duration(seconds)),
    }
}

fn duration(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..600 => format!("{} min {} s", whole / 60, whole % 60),
        600..3600 => format!("{} min", whole.div_ceil(60)),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(chains: usize, side_by_side: usize, epochs: usize) -> TimeLeft {
        TimeLeft { chains, side_by_side, epochs, scored_every: 1, ..TimeLeft::default() }
    }

    fn after(steps: u64, marks: &[(f64, u64)]) -> TimeLeft {
        let mut left = work(1, 1, 1);
        marks.iter().for_each(|(seconds, step)| left.mark(0, *seconds, (*step, steps), None));
        left
    }

    fn seconds(left: &TimeLeft) -> Option<f64> {
        left.left().map(|left| left.seconds)
    }

    #[test]
    fn nothing_is_said_before_something_is_known() {
        assert_eq!(in_words(after(100, &[]).left()), "time left not known yet");
        // The first report, however much was done before it, also by a run before this one.
        assert_eq!(after(100, &[(40.0, 50)]).left(), None);
        assert_eq!(after(100, &[(2.0, 1), (2.4, 2)]).left(), None);
    }

    #[test]
    fn the_rest_takes_as_long_as_the_last_half_did() {
        assert_eq!(seconds(&after(100, &[(2.0, 0), (4.0, 10)])), Some(18.0));
        // One step of 40 seconds and many quick ones.
        let slow_start: Vec<(f64, u64)> = [(0.0, 0), (40.0, 1)]
            .into_iter()
            .chain((1..=60).map(|i| (40.0 + i as f64, 1 + i)))
            .collect();
        assert_eq!(seconds(&after(161, &slow_start)), Some(100.0));
        assert_eq!(in_words(after(100, &[(0.0, 0), (4.0, 100)]).left()), "0 s left");
    }

    /// A run of steady speed: the estimate is never far off, whatever it was before.
    #[test]
    fn a_steady_run_is_estimated_well_from_the_first_second_on() {
        let mut left = work(1, 1, 10);
        for step in 0..2800 {
            left.mark(0, 3.0 + 0.01 * step as f64, (step, 2800), None);
            let rest = 28.0 - 0.01 * step as f64;
            match seconds(&left) {
                Some(told) => assert!((told - rest).abs() < 0.1, "{told} for {rest}"),
                None => assert!(step <= 100, "{step}"),
            }
        }
        assert!(left.marks.len() <= MOST);
        assert!((left.done() - 1.0).abs() < 1e-3);
    }

    /// Three chains on two cores: the third begins when one of the others is done.
    #[test]
    fn chains_that_wait_are_counted() {
        let mut left = work(3, 2, 10);
        for second in 0..=10 {
            for chain in 0..2 {
                left.mark(chain, second as f64, (10 * second, 100), None);
            }
            if second == 5 {
                assert!((seconds(&left).unwrap() - 15.0).abs() < 1e-9, "{:?}", seconds(&left));
            }
        }
        for second in 11..20 {
            left.mark(2, second as f64, (10 * (second - 10), 100), None);
            let (told, rest) = (seconds(&left).unwrap(), (20 - second) as f64);
            assert!((told - rest).abs() <= 0.2 * rest + 0.5, "{told} for {rest}");
        }
    }

    /// Example 1 of the paper: a thousand inputs, and then five.
    #[test]
    fn a_network_that_gets_small_at_once_is_timed_anew() {
        let record = |live_inputs| {
            let table = "chain,epoch,loss,live_inputs\n0,0,1,";
            let text = format!("{table}{live_inputs}\n");
            crate::history::parse(&text).unwrap().remove(0).1.remove(0)
        };
        let mut left = TimeLeft { pruned_by: 101, ..work(1, 1, 3000) };
        let mut now = 0.0;
        for epoch in 0..3000 {
            let (cost, inputs) = if epoch < 100 { (0.1, 1000) } else { (0.004, 5) };
            now += cost;
            left.mark(0, now, (epoch + 1, 3000), Some(&record(inputs)));
            let rest = (2999 - epoch) as f64 * 0.004;
            match left.left() {
                Some(told) if epoch < 100 => {
                    assert!(told.at_most && told.seconds > rest);
                    let known = (100 - epoch) as f64 * 0.1;
                    assert!((told.known_in.unwrap() - known).abs() < 0.1 + 1e-9, "{told:?}");
                }
                Some(told) => {
                    assert!((told.seconds - rest).abs() < 0.2 * rest + 0.1, "{told:?} for {rest}");
                    assert!(!told.at_most);
                }
                None => assert!(!(20..100).contains(&epoch) && epoch < 500, "{epoch}"),
            }
        }
    }

    #[test]
    fn a_run_in_stages_says_when_it_may_end() {
        let mut left = TimeLeft { stage_ends: vec![20, 40, 80], ..work(2, 1, 80) };
        for second in 0..=10 {
            left.mark(0, second as f64, (second, 80), None);
        }
        let told = left.left().unwrap();
        // One core: 20 + 20 epochs of the first stage, less the 10 that are done.
        assert_eq!((told.to_check, told.seconds, told.at_most), (Some(30.0), 150.0, true));
        assert_eq!(in_words(Some(told)), "check in 30 s, at most 2 min 30 s left");
    }

    /// Test images are scored after every tenth epoch, which takes as long as ten epochs.
    #[test]
    fn scoring_is_counted_in_whole_periods() {
        let mut left = TimeLeft { scored_every: 10, ..work(1, 1, 200) };
        let mut now = 0.0;
        for epoch in 1..=200 {
            now += if epoch % 10 == 0 { 11.0 } else { 1.0 };
            left.mark(0, now, (epoch * 5, 1000), None);
            let rest = 400.0 - now;
            if (21..190).contains(&epoch) {
                let told = seconds(&left).unwrap();
                assert!((told - rest).abs() < 0.2 * rest + 11.0, "{told} for {rest} at {epoch}");
            }
        }
    }

    #[test]
    fn times_are_in_words() {
        let told = |seconds| in_words(Some(Left { seconds, ..Left::default() }));
        assert_eq!(told(40.0), "40 s left");
        assert_eq!(told(180.0), "3 min 0 s left");
        assert_eq!(told(1230.0), "21 min left");
        assert_eq!(told(86_400.0), "24 h 0 min left");
        let bound = Left { seconds: 9.2, at_most: true, ..Left::default() };
        assert_eq!(in_words(Some(bound)), "at most 10 s left");
        let unknown = Left { known_in: Some(7.9), ..bound };
        assert_eq!(in_words(Some(unknown)), "time left known in 8 s");
    }
}
