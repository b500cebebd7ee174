//! How much is to be pruned, and when: a threshold, or a share of all parameters.

use std::ops::Range;

use thinfer_data::{Error, Result};

/// What one pruning step is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Prune what is below this threshold.
    Threshold(f64),
    /// Prune, with the smallest threshold that does it, this share of all parameters.
    Share(f64),
}

/// Where the threshold of the hard rule comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum HardThreshold {
    /// Given.
    Given(f64),
    /// Found at each pruning step from a target.
    Target(Target),
}

impl HardThreshold {
    /// What the pruning step of an epoch is to reach; `None` where there is none in this epoch.
    pub fn goal(&self, epoch: usize) -> Option<Goal> {
        match self {
            HardThreshold::Given(threshold) => Some(Goal::Threshold(*threshold)),
            HardThreshold::Target(target) => target.at(epoch).map(Goal::Share),
        }
    }

    /// What becomes of the pruned share at an epoch.
    pub fn course(&self, epoch: usize) -> Course {
        match self {
            HardThreshold::Given(_) => Course::Falls,
            HardThreshold::Target(target) => target.course(epoch),
        }
    }
}

/// What pruning is up to at an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It may prune in any epoch, this one included.
    Falls,
    /// It prunes in so many epochs from this one on, and then pauses or ends.
    FallsFor(usize),
    /// It pauses, and goes on later.
    Pauses,
    /// Nothing is pruned any more.
    Ended,
}

/// A share of all parameters that is pruned step by step.
///
/// The pruning epochs are those after the warm-up in the second half of each cycle, where the step
/// size has fallen and channels without use have decayed; in a run of one cycle all of them. In the
/// n-th of the m pruning epochs up to `by`, the share is
///
/// s = target · (1 − (1 − n/m)³),
///
/// and it is the target in every later one.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    share: f64,
    epochs: Vec<usize>,
    reached_at: usize,
}

impl Target {
    /// The course towards `share` over `cycles`, the epochs of each cycle of the run, after
    /// `warm_up` epochs. It is reached in epoch `by`, or without one with the last cycle but one;
    /// in a run of one cycle after three quarters of it.
    pub fn new(
        share: f64,
        cycles: &[Range<usize>],
        warm_up: usize,
        by: Option<usize>,
    ) -> Result<Self> {
        let by = by.unwrap_or_else(|| match cycles {
            [.., last_but_one, _] => last_but_one.end.saturating_sub(1),
            [only] => only.start + only.len() * 3 / 4,
            [] => 0,
        });
        let second_half = |cycle: &Range<usize>| match cycles {
            [_] => cycle.clone(),
            _ => cycle.start + cycle.len().div_ceil(2)..cycle.end,
        };
        let epochs: Vec<usize> =
            cycles.iter().flat_map(second_half).filter(|epoch| *epoch > warm_up).collect();
        let reached_at = epochs.partition_point(|epoch| *epoch <= by);
        if reached_at == 0 {
            return Err(Error::config(
                "prune.target",
                format!(
                    "has no epoch to prune in: pruning is in the second half of each cycle, after epoch {warm_up} (prune.warm_up_epochs) and up to epoch {by}; give a shorter warm-up, more epochs or a later end of pruning"
                ),
            ));
        }
        Ok(Self { share, epochs, reached_at })
    }

    /// What becomes of the share at an epoch: it is reached in the last epoch up to which it grows.
    fn course(&self, epoch: usize) -> Course {
        let grows = &self.epochs[..self.reached_at];
        match grows.binary_search(&epoch) {
            Ok(at) => {
                let in_a_row = grows[at..].iter().zip(epoch..).take_while(|(a, b)| *a == b);
                Course::FallsFor(in_a_row.count())
            }
            Err(at) if at == grows.len() => Course::Ended,
            Err(_) => Course::Pauses,
        }
    }

    /// The share to reach in `epoch`; `None` where it is no pruning epoch.
    pub fn at(&self, epoch: usize) -> Option<f64> {
        let at = self.epochs.binary_search(&epoch).ok()?;
        let t = ((at + 1) as f64 / self.reached_at as f64).min(1.0);
        Some(self.share * (1.0 - (1.0 - t).powi(3)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_approached_in_the_second_halves_of_cycles() {
        let cycles = [0..50, 50..100, 100..150, 150..200];
        let target = Target::new(0.9, &cycles, 20, Some(149)).unwrap();
        assert_eq!((target.at(24), target.at(50), target.at(74)), (None, None, None));
        // 25, 50 and 75 of 75 pruning epochs: 1 − (2/3)³ and 1 − (1/3)³ of the target.
        let want = [(49, 0.9 * 19.0 / 27.0), (99, 0.9 * 26.0 / 27.0), (149, 0.9), (175, 0.9)];
        for (epoch, want) in want {
            assert!((target.at(epoch).unwrap() - want).abs() < 1e-12, "epoch {epoch}");
        }
        assert!(target.at(26) > target.at(25));
        // Without an end it is reached before the last cycle.
        assert_eq!(Target::new(0.9, &cycles, 20, None).unwrap(), target);
        let courses = [(0, Course::Pauses), (25, Course::FallsFor(25)), (50, Course::Pauses)];
        let later = [(149, Course::FallsFor(1)), (150, Course::Ended), (199, Course::Ended)];
        for (epoch, course) in courses.into_iter().chain(later) {
            assert_eq!(target.course(epoch), course, "epoch {epoch}");
        }
        // The warm-up takes away what lies in it.
        let late = Target::new(0.9, &cycles, 60, Some(149)).unwrap();
        assert_eq!((late.at(49), late.at(75).is_some()), (None, true));
    }

    #[test]
    fn one_cycle_is_used_as_a_whole() {
        let target = Target::new(0.5, std::slice::from_ref(&(0..40)), 3, None).unwrap();
        assert_eq!((target.at(3), target.at(30), target.at(39)), (None, Some(0.5), Some(0.5)));
        assert!(target.at(4).unwrap() > 0.0);
    }

    #[test]
    fn a_target_without_pruning_epochs_is_refused() {
        let error = Target::new(0.5, &[0..10, 10..20], 9, Some(9)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("a shorter warm-up"), "{error}");
    }
}
