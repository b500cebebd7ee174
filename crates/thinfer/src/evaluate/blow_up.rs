//! When a chain counts as blown up: one rule for the terminal, the report and whoever else asks.

use super::Behaviour;

/// A loss of this many times the last one shows that the chain had left its mode.
const FACTOR: f64 = 5.0;

/// A final loss closer to 0 than this is no yardstick; with learned noise it can be negative.
const LEAST: f64 = 0.1;

/// Whether a chain blew up, by its `largest` loss after the first tenth of the run and its `last` one.
///
/// It did where one of them is not finite, or where the largest exceeds both five times the last one
/// and the loss of a guess among `classes` (0 for a regression): back at a guess is forgotten, not
/// blown up.
pub fn blew_up(largest: f64, last: f64, classes: usize) -> bool {
    let guess = (classes.max(1) as f64).ln();
    !largest.is_finite()
        || !last.is_finite()
        || largest > (FACTOR * last.abs().max(LEAST)).max(guess)
}

impl Behaviour {
    /// [`blew_up`] for all chains together.
    pub fn blew_up(&self, classes: usize) -> bool {
        blew_up(self.largest_loss, self.final_loss, classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_far_above_the_last_one_and_above_a_guess_is_a_blow_up() {
        // Example 3: the report called this a blow-up, the terminal did not.
        assert!(!blew_up(0.5133, 0.11, 2));
        assert!(!blew_up(0.68, 0.05, 2));
        assert!(blew_up(0.75, 0.05, 2));
        // A regression has no guess.
        assert!(blew_up(0.68, 0.05, 0));
        assert!(!blew_up(6.2, 1.25, 0));
        assert!(blew_up(6.3, 1.25, 0));
        // Seven is no more than a guess among 1,100 classes.
        assert!(!blew_up(7.0, 1.25, 1100));
        assert!(blew_up(7.0, 1.25, 10));
    }

    #[test]
    fn a_loss_near_zero_or_below_is_no_yardstick() {
        assert!(!blew_up(0.4, 1e-9, 0));
        assert!(!blew_up(-1.0, -2.0, 0));
        assert!(blew_up(11.0, -2.0, 0));
        assert!(!blew_up(0.0, 0.0, 0), "a run without records");
    }

    #[test]
    fn a_loss_that_is_not_finite_is_a_blow_up() {
        for (largest, last) in [(f64::INFINITY, 1.0), (f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert!(blew_up(largest, last, 10));
        }
    }
}
