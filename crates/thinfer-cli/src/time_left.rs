//! How long the rest of some work takes, by how fast the last part of it went.

use std::collections::VecDeque;

/// Nothing is said before this many seconds, when the first steps say little about the others.
const PATIENCE: f64 = 1.0;

/// Reports kept at most.
const MOST: usize = 256;

/// The times at which so much was done.
#[derive(Default)]
pub(crate) struct TimeLeft {
    /// Seconds and steps, ascending.
    marks: VecDeque<(f64, u64)>,
}

impl TimeLeft {
    /// Takes note that `step` steps are done after so many seconds.
    pub(crate) fn mark(&mut self, seconds: f64, step: u64) {
        if self.marks.back().is_some_and(|last| last.1 >= step) {
            return;
        }
        self.marks.push_back((seconds, step));
        if self.marks.len() > MOST {
            // Every other one; the last stays.
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    /// Seconds that the steps up to `total` take, at the speed of the second half of the time so
    /// far: a network that shrinks is faster at the end. Nothing while too little is known.
    pub(crate) fn seconds(&self, total: u64) -> Option<f64> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        let spent = last.0 - first.0;
        if spent < PATIENCE {
            return None;
        }
        let half = first.0 + 0.5 * spent;
        // At least two marks: the last one, and the last that is not in the second half.
        let since = self.marks.iter().rev().find(|mark| mark.0 <= half)?;
        let speed = (last.1 - since.1) as f64 / (last.0 - since.0);
        Some(total.saturating_sub(last.1) as f64 / speed)
    }

    /// The same in words.
    pub(crate) fn words(&self, total: u64) -> String {
        let Some(left) = self.seconds(total) else { return "time left unknown yet".into() };
        let whole = left.ceil() as u64;
        match whole {
            0..60 => format!("{whole} s left"),
            60..3600 => format!("{} min {} s left", whole / 60, whole % 60),
            _ => format!("{} h {} min left", whole / 3600, whole % 3600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(marks: &[(f64, u64)]) -> TimeLeft {
        let mut left = TimeLeft::default();
        marks.iter().for_each(|(seconds, step)| left.mark(*seconds, *step));
        left
    }

    #[test]
    fn nothing_is_said_before_something_is_known() {
        assert_eq!(after(&[]).words(100), "time left unknown yet");
        // The first report, however much was done before it, also by a run before this one.
        assert_eq!(after(&[(40.0, 50)]).seconds(100), None);
        assert_eq!(after(&[(2.0, 1), (2.4, 2)]).seconds(100), None);
        // The same step again is no news.
        assert_eq!(after(&[(2.0, 1), (9.0, 1)]).seconds(100), None);
    }

    #[test]
    fn the_rest_takes_as_long_as_the_last_half_did() {
        assert_eq!(after(&[(2.0, 0), (4.0, 10)]).seconds(100), Some(18.0));
        // One step of 40 seconds and many quick ones.
        let slow_start: Vec<(f64, u64)> = [(0.0, 0), (40.0, 1)]
            .into_iter()
            .chain((1..=60).map(|i| (40.0 + i as f64, 1 + i)))
            .collect();
        assert_eq!(after(&slow_start).seconds(161), Some(100.0));
        assert_eq!(after(&[(0.0, 0), (4.0, 100)]).words(100), "0 s left");
    }

    /// A run of steady speed: the estimate is never far off, whatever it was before.
    #[test]
    fn a_steady_run_is_estimated_well_from_the_first_second_on() {
        let mut left = TimeLeft::default();
        for step in 0..2800 {
            let now = 3.0 + 0.01 * step as f64;
            left.mark(now, step);
            let rest = 28.0 - 0.01 * step as f64;
            match left.seconds(2800) {
                Some(told) => assert!((told - rest).abs() < 0.1, "{told} for {rest}"),
                None => assert!(step <= 100, "{step}"),
            }
        }
        assert!(left.marks.len() <= MOST);
    }

    #[test]
    fn times_are_in_words() {
        let told = |seconds: u64| after(&[(0.0, 0), (10.0, 10)]).words(10 + seconds);
        assert_eq!(told(40), "40 s left");
        assert_eq!(told(180), "3 min 0 s left");
        assert_eq!(told(86_400), "24 h 0 min left");
    }
}
