//! The optimised start of a walker: Adam until rows that are held out get worse.

use thinfer_data::Result;

use super::walker::{Energy, Part};

/// Adam (Kingma & Ba 2015) in double precision.
pub(super) struct Adam {
    /// The mean gradient.
    pub(super) first: Vec<f64>,
    /// The mean squared gradient.
    pub(super) second: Vec<f64>,
    pub(super) steps: f64,
}

impl Adam {
    /// m ← m + (1 − β₁)(g − m),  v ← v + (1 − β₂)(g² − v),  x ← x − l m̂ / (√v̂ + 10⁻⁸)
    pub(super) fn step(&mut self, x: &mut [f64], gradient: &[f64], rate: f64) {
        const BETA: [f64; 2] = [0.9, 0.999];
        self.steps += 1.0;
        let unbias = BETA.map(|beta| 1.0 / (1.0 - beta.powf(self.steps)));
        for i in 0..x.len() {
            let g = gradient[i];
            self.first[i] += (1.0 - BETA[0]) * (g - self.first[i]);
            self.second[i] += (1.0 - BETA[1]) * (g * g - self.second[i]);
            let size = (self.second[i] * unbias[1]).sqrt() + 1e-8;
            x[i] -= rate * self.first[i] * unbias[0] / size;
        }
    }
}

/// Epochs without a better one after which the descent ends.
const PATIENCE: f64 = 10.0;

/// Adam on the rows that are fitted, and the best weights so far by the rows that are held out.
pub(super) struct Descent {
    pub(super) adam: Adam,
    /// The weights with the smallest loss of rows that were held out.
    pub(super) best: Vec<f64>,
    pub(super) best_loss: f64,
    /// Epochs since then.
    pub(super) since_best: f64,
    /// Whether it has ended; a number, since it is kept among numbers.
    pub(super) stopped: f64,
}

impl Descent {
    /// A step of Adam from `x` along each of some parts of the rows, then a look at those held out.
    pub(super) fn epoch(
        &mut self,
        x: &mut [f64],
        parts: impl Iterator<Item = Part>,
        rate: f64,
        energy: &mut Energy<'_>,
    ) -> Result<()> {
        if self.stopped > 0.0 {
            return Ok(());
        }
        let mut gradient = vec![0.0; x.len()];
        for part in parts {
            energy.at(part, x, &mut gradient)?;
            gradient.iter_mut().for_each(|g| *g *= energy.temperature);
            self.adam.step(x, &gradient, rate);
        }
        let (_, loss) = energy.at(Part::HeldOut, x, &mut gradient)?;
        self.since_best += 1.0;
        if loss < self.best_loss {
            self.best_loss = loss;
            self.since_best = 0.0;
            self.best.copy_from_slice(x);
        } else if self.since_best >= PATIENCE || !loss.is_finite() {
            self.stopped = 1.0;
        }
        Ok(())
    }

    /// Goes back to the best weights, where there are some.
    pub(super) fn take_best(&self, x: &mut [f64]) {
        if self.best_loss.is_finite() {
            x.copy_from_slice(&self.best);
        }
    }
}
