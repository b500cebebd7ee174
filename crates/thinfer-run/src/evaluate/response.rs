//! How much of the noise of mini-batches a direction of the weights still has when a sample is
//! taken.

/// Steps before a sample that are looked at, at most.
pub(super) const MOST_STEPS: u64 = 20_000;
/// Less of a past step than this is forgotten.
const FORGOTTEN: f64 = 1e-6;

/// The steps of a sampler up to a sample, and its numbers.
pub(super) struct Response {
    /// Step size and factor on the velocity (see `methods::follow`) of each step, the last one
    /// first.
    pub(super) steps: Vec<(f64, f64)>,
    /// N, the rows of an epoch. The last step above is the last of its epoch.
    pub(super) rows: usize,
    /// B, the rows of a step; the last one of an epoch has what is left.
    pub(super) batch: usize,
    /// β₁
    pub(super) beta1: f64,
    /// β₂
    pub(super) beta2: f64,
    /// τ
    pub(super) tau: f64,
}

impl Response {
    /// The temperature T = λ Var(w) that mini-batches leave in a direction of curvature λ, where
    /// the gradients of rows have variance 1.
    ///
    /// v ← β₁ f v − β₂ l (λ w + n);  w ← w + τ v
    ///
    /// The noise n of a step reaches the sample with a weight h, found backwards from the sample.
    /// The rows of an epoch are drawn without replacement: steps of b rows have the variance 1/b −
    /// 1/N, any two of them the covariance −1/N, and Var(w) is the sum over epochs of Σ h²/b − (Σ
    /// h)²/N. Independent noise of variance V_b at a constant small step size would give β₂ l τ V_b
    /// / (2 (1−β₁)).
    pub(super) fn temperature(&self, curvature: f64) -> f64 {
        let largest = self.steps.iter().map(|step| step.0).fold(0.0, f64::max);
        // A chain that lives has no curvature beyond its stable steps, whatever an estimate says.
        let stable = (1.0 + self.beta1) / (self.tau * self.beta2 * largest);
        let lambda = curvature.min(stable);
        let steps_per_epoch = self.rows.div_ceil(self.batch);
        let left = self.rows - (steps_per_epoch - 1) * self.batch;
        let (mut of_v, mut of_w, mut variance) = (0.0, 1.0, 0.0);
        for epoch in self.steps.chunks(steps_per_epoch) {
            let (mut sum, mut squares) = (0.0, 0.0);
            for (at, (size, follow)) in epoch.iter().enumerate() {
                let kick: f64 = of_v + self.tau * of_w;
                let h = self.beta2 * size * kick;
                sum += h;
                squares += h * h / if at == 0 { left } else { self.batch } as f64;
                of_v = self.beta1 * follow * kick;
                of_w -= lambda * h;
            }
            variance += (squares - sum * sum / self.rows as f64).max(0.0);
            if of_w.abs() < FORGOTTEN && (self.tau * of_v).abs() < FORGOTTEN {
                break;
            }
        }
        lambda * variance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(size: f64, steps_per_epoch: usize, beta1: f64) -> Response {
        let steps = vec![(size, 1.0); 20_000];
        Response { steps, rows: 8 * steps_per_epoch, batch: 8, beta1, beta2: 1.0, tau: 0.5 }
    }

    /// With so many steps an epoch that a direction forgets most of one, batches are as good as
    /// independent; with few the epoch's noise adds up to nothing, and with one there is none.
    #[test]
    fn long_epochs_are_independent_noise_and_short_ones_cancel() {
        for beta1 in [0.1, 0.9] {
            let formula = 0.05 * 0.5 / (2.0 * (1.0 - beta1)) / 8.0;
            let share = |m: usize| constant(0.05, m, beta1).temperature(1.0) / formula;
            // The step-size factor is at most 1.012.
            assert!((share(5000) - 1.0).abs() < 0.02, "{}", share(5000));
            assert!(share(5) < 0.1 && share(1) == 0.0, "{} {}", share(5), share(1));
        }
    }

    /// A short last batch is noisier, and the mean of the batches of an epoch is no longer that of
    /// its rows.
    #[test]
    fn a_short_last_batch_adds_heat() {
        let even = constant(0.05, 6, 0.9);
        let uneven = Response { rows: 41, ..constant(0.05, 6, 0.9) };
        assert!(uneven.temperature(1.0) > 2.0 * even.temperature(1.0));
    }

    /// The small steps at the end of a cycle leave little of what its large ones brought.
    #[test]
    fn a_cycle_cools_before_its_sample() {
        let cycle = |at: usize| {
            let phase = (250 - at % 250) as f64 / 250.0;
            0.025 * ((std::f64::consts::PI * phase).cos() + 1.0)
        };
        let follow = |at: usize| (cycle(at).max(1e-24) / cycle(at + 1).max(1e-24)).sqrt();
        let steps = (0..20_000).map(|at| (cycle(at), follow(at))).collect();
        let cooled = Response { steps, ..constant(0.05, 25, 0.9) }.temperature(1.0);
        assert!(cooled < 0.1 * constant(0.05, 25, 0.9).temperature(1.0), "{cooled}");
    }
}
