//! The Pareto front: what nothing else beats in two things at once.

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Accuracy, sparsity.
    MoreIsBetter,
    /// Errors, seconds, bytes.
    LessIsBetter,
}

impl Axis {
    /// The value with the sign that makes more better.
    fn signed(self, value: f64) -> f64 {
        if self == Axis::MoreIsBetter { value } else { -value }
    }
}

/// The numbers of the points that no other point beats: one that is at least as good both ways and
/// better in one. In the order of x; equal points are all on the front, and what is not a number is
/// not and beats nothing.
pub fn front(points: &[(f64, f64)], x: Axis, y: Axis) -> Vec<usize> {
    let good = |at: usize| (x.signed(points[at].0), y.signed(points[at].1));
    let beats = |one: usize, other: usize| {
        let (one, other) = (good(one), good(other));
        one.0 >= other.0 && one.1 >= other.1 && one != other
    };
    let numbers: Vec<usize> = (0..points.len())
        .filter(|&at| points[at].0.is_finite() && points[at].1.is_finite())
        .collect();
    let beaten = |at: &usize| numbers.iter().any(|&other| beats(other, *at));
    let mut front: Vec<usize> = numbers.iter().copied().filter(|at| !beaten(at)).collect();
    front.sort_by(|&a, &b| points[a].0.total_cmp(&points[b].0));
    front
}

#[cfg(test)]
mod tests {
    use super::*;
    use Axis::{LessIsBetter, MoreIsBetter};

    #[test]
    fn what_is_beaten_is_not_on_the_front() {
        // Sparsity and accuracy.
        let points = [(0.9, 0.93), (0.0, 0.95), (0.8, 0.92), (0.9, 0.90), (0.5, 0.94)];
        assert_eq!(front(&points, MoreIsBetter, MoreIsBetter), [1, 4, 0]);
        // Seconds and error: less of both.
        let points = [(10.0, 1.0), (5.0, 2.0), (20.0, 1.5), (5.0, 3.0)];
        assert_eq!(front(&points, LessIsBetter, LessIsBetter), [1, 0]);
        // Seconds and accuracy.
        assert_eq!(
            front(&[(1.0, 0.8), (2.0, 0.9), (3.0, 0.85)], LessIsBetter, MoreIsBetter),
            [0, 1]
        );
    }

    #[test]
    fn equal_points_and_points_that_are_no_numbers() {
        let points = [(0.5, 0.9), (f64::NAN, 1.0), (0.5, 0.9), (0.6, f64::INFINITY)];
        assert_eq!(front(&points, MoreIsBetter, MoreIsBetter), [0, 2]);
        assert!(front(&[], MoreIsBetter, MoreIsBetter).is_empty());
        // Dense runs differ in accuracy alone: one is on the front.
        assert_eq!(front(&[(0.0, 0.9), (0.0, 0.91)], MoreIsBetter, MoreIsBetter), [1]);
    }
}
