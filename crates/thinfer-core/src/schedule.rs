//! How step size, temperature, η and weight decay change over a run.
//!
//! A schedule is a pure function of the step, so a resumed run needs nothing but its step number.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The shape of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Shape {
    /// The same value all the time.
    Constant,
    /// `½ (cos(π (r mod P) / P) + 1)` with P = steps / cycles: from 1 to almost 0 in each cycle.
    /// The cycles begin where the warm-up ends, and r and the steps count from there.
    Cyclical {
        /// Cycles in the run.
        cycles: usize,
    },
    /// Multiplied by `factor` at each of the epochs.
    Steps {
        /// The factor.
        factor: f64,
        /// The epochs, ascending.
        at_epochs: Vec<usize>,
    },
}

/// A value that changes over the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The largest value.
    pub value: f64,
    /// Its course.
    pub shape: Shape,
    /// Linear growth from 0 over the first epochs.
    pub warm_up_epochs: f64,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Steps in an epoch.
    pub steps_per_epoch: u64,
    /// Epochs in the run.
    pub epochs: usize,
}

impl Clock {
    /// Steps in the run.
    pub fn total_steps(self) -> u64 {
        self.steps_per_epoch * self.epochs as u64
    }

    /// The epoch of a step, from 0.
    pub fn epoch(self, step: u64) -> usize {
        (step / self.steps_per_epoch) as usize
    }

    /// The batch of a step inside its epoch, from 0.
    pub fn batch(self, step: u64) -> usize {
        (step % self.steps_per_epoch) as usize
    }
}

impl Schedule {
    /// A constant.
    pub fn constant(value: f64) -> Self {
        Self { value, shape: Shape::Constant, warm_up_epochs: 0.0 }
    }

    /// Cosine cycles from `value` down.
    pub fn cyclical(value: f64, cycles: usize) -> Self {
        Self { value, shape: Shape::Cyclical { cycles }, warm_up_epochs: 0.0 }
    }

    /// The value at `step`.
    pub fn at(&self, step: u64, clock: Clock) -> f64 {
        let warm_up = self.warm_up_epochs * clock.steps_per_epoch as f64;
        let factor = match &self.shape {
            Shape::Constant => 1.0,
            Shape::Cyclical { cycles } => {
                let steps = (clock.total_steps() as f64 - warm_up).max(1.0);
                let period = steps / (*cycles).max(1) as f64;
                let phase = ((step as f64 - warm_up).max(0.0) % period) / period;
                0.5 * ((std::f64::consts::PI * phase).cos() + 1.0)
            }
            Shape::Steps { factor, at_epochs } => {
                let epoch = clock.epoch(step);
                factor.powi(at_epochs.iter().filter(|&&e| e <= epoch).count() as i32)
            }
        };
        let rise =
            if (step as f64) < warm_up { (step as f64 + 1.0) / (warm_up + 1.0) } else { 1.0 };
        self.value * factor * rise
    }

    /// The epochs of each cycle of a run, without those before its warm-up ends. Everything that is
    /// not cyclical is one cycle.
    pub fn cycles(&self, epochs: usize) -> Vec<Range<usize>> {
        let (count, first) = match self.shape {
            Shape::Cyclical { cycles } => (cycles.max(1), self.warm_up_epochs.min(epochs as f64)),
            _ => (1, 0.0),
        };
        // Whole epochs before a restart: one that crosses it would be sampled at full step.
        let start = |cycle: usize| {
            let after = (epochs as f64 - first) * cycle as f64 / count as f64;
            (first + after) as usize
        };
        (0..count).map(|cycle| start(cycle)..start(cycle + 1)).collect()
    }
}

/// The epochs after which a snapshot is taken: the last `samples_per_cycle` of each cycle.
///
/// Deviation: the reference code saves at epochs 46-48, 95-97, … of cycles that end at 48, 98, …,
/// so its later samples leave the low-step-size end of the cycle. These are the last epochs of each
/// cycle, which is what the paper describes.
pub fn sampling_epochs(cycles: &[Range<usize>], samples_per_cycle: usize) -> Vec<usize> {
    let last = |cycle: &Range<usize>| {
        cycle.end.saturating_sub(samples_per_cycle).max(cycle.start)..cycle.end
    };
    cycles.iter().flat_map(last).collect()
}

/// A run whose sampling may end early: in the first stage a sample is taken after every epoch, and
/// each further stage makes the sampling twice as long with as many samples more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// The first epoch after which a sample is taken.
    pub first: usize,
    /// Samples in a stage.
    pub samples: usize,
    /// How many stages there are at most.
    pub count: usize,
}

impl Stages {
    /// The stages of a run of so many epochs; `None` where the warm-up would be none.
    pub fn of(epochs: usize, samples: usize, count: usize) -> Option<Self> {
        let longest = u32::try_from(count.max(1) - 1).ok().and_then(|c| 2usize.checked_pow(c))?;
        let first = epochs.checked_sub(samples.checked_mul(longest)?).filter(|first| *first > 0)?;
        Some(Self { first, samples, count: count.max(1) })
    }

    /// How many epochs the run has after each stage.
    pub fn ends(&self) -> Vec<usize> {
        (0..self.count).map(|stage| self.first + (self.samples << stage)).collect()
    }

    /// The epochs after which samples are taken.
    pub fn sampling_epochs(&self) -> Vec<usize> {
        let mut epochs: Vec<usize> = (self.first..self.first + self.samples).collect();
        for stage in 1..self.count {
            let apart = 1 << (stage - 1);
            let begin = self.first + (self.samples << (stage - 1));
            epochs.extend((1..=self.samples).map(|sample| begin + sample * apart - 1));
        }
        epochs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { steps_per_epoch: 10, epochs: 40 };

    #[test]
    fn a_cycle_falls_from_the_value_to_almost_nothing() {
        let s = Schedule::cyclical(2.0, 4);
        assert_eq!(s.at(0, CLOCK), 2.0);
        assert_eq!(s.at(100, CLOCK), 2.0);
        assert!((s.at(50, CLOCK) - 1.0).abs() < 1e-12);
        assert!(s.at(99, CLOCK) < 1e-3);
    }

    #[test]
    fn steps_multiply_at_their_epochs() {
        let shape = Shape::Steps { factor: 0.1, at_epochs: vec![10, 20] };
        let s = Schedule { value: 1.0, shape, warm_up_epochs: 0.0 };
        assert_eq!(s.at(99, CLOCK), 1.0);
        assert!((s.at(100, CLOCK) - 0.1).abs() < 1e-12);
        assert!((s.at(399, CLOCK) - 0.01).abs() < 1e-12);
    }

    #[test]
    fn a_warm_up_rises_to_the_value() {
        let s = Schedule { warm_up_epochs: 2.0, ..Schedule::constant(1.0) };
        assert!(s.at(0, CLOCK) < 0.05);
        assert!((1..20).all(|r| s.at(r, CLOCK) > s.at(r - 1, CLOCK)));
        assert_eq!(s.at(20, CLOCK), 1.0);
    }

    /// ImageNet in the paper: 50 of 200 epochs are warm-up, then there are 3 cycles.
    #[test]
    fn cycles_begin_after_the_warm_up() {
        let s = Schedule { warm_up_epochs: 10.0, ..Schedule::cyclical(2.0, 3) };
        assert!(s.at(0, CLOCK) < 0.05 && s.at(99, CLOCK) < 2.0 && s.at(99, CLOCK) > 1.9);
        assert_eq!([s.at(100, CLOCK), s.at(200, CLOCK), s.at(300, CLOCK)], [2.0; 3]);
        assert!(s.at(199, CLOCK) < 1e-3 && s.at(399, CLOCK) < 1e-3);
        assert_eq!(s.cycles(40), [10..20, 20..30, 30..40]);
        assert_eq!(sampling_epochs(&s.cycles(40), 2), [18, 19, 28, 29, 38, 39]);
    }

    #[test]
    fn samples_are_the_last_epochs_of_each_cycle() {
        let samples = |epochs: usize, cycles: usize, each: usize| {
            sampling_epochs(&Schedule::cyclical(1.0, cycles).cycles(epochs), each)
        };
        let want = [47, 48, 49, 97, 98, 99, 147, 148, 149, 197, 198, 199];
        assert_eq!(samples(200, 4, 3), want);
        assert_eq!(samples(5, 1, 2), [3, 4]);
        assert_eq!(samples(2, 1, 9), [0, 1]);
        assert_eq!(samples(3, 6, 3), [0, 1, 2]);
        // 400 epochs in 6 cycles: the first restart is in epoch 66.
        assert_eq!(samples(400, 6, 1)[..2], [65, 132]);
    }

    #[test]
    fn every_stage_doubles_the_sampling_with_as_many_samples() {
        let stages = Stages::of(42, 4, 4).unwrap();
        assert_eq!((stages.first, stages.ends()), (10, vec![14, 18, 26, 42]));
        let epochs = stages.sampling_epochs();
        assert_eq!(epochs[..8], [10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(epochs[8..], [19, 21, 23, 25, 29, 33, 37, 41]);
        assert_eq!(Stages::of(32, 4, 4), None, "no warm-up is left");
        assert_eq!(Stages::of(9, 4, 1).unwrap().sampling_epochs(), [5, 6, 7, 8]);
        assert_eq!(Stages::of(usize::MAX, 1 << 40, 60), None);
    }
}
