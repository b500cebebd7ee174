//! Which groups of weights are in the slab, which in the spike, and which are gone.

mod groups;

pub use groups::{Grouping, Groups, group_network};

use serde::{Deserialize, Serialize};

/// The weight takes part in the network (hard mask = 1).
pub const KEEP: u8 = 1;
/// The weight's group is in the slab (soft mask = 1).
pub const SLAB: u8 = 2;
/// How every weight starts.
pub const ALIVE: u8 = KEEP | SLAB;

/// The soft threshold λ₁ on the mean square of a group of `size` weights, below which the group
/// belongs to the spike.
///
/// λ₁ = ( ln(δ₀/δ₁) + (2/K) ln(p/(1−p)) ) / (δ₀ − δ₁), from comparing
/// p·N(w; 0, 1/δ₀) with (1−p)·N(w; 0, 1/δ₁), δ₀ > δ₁, p = P(spike).
pub fn soft_threshold(
    spike_precision: f64,
    slab_precision: f64,
    spike_probability: f64,
    size: usize,
) -> f64 {
    let odds = (spike_probability / (1.0 - spike_probability)).ln();
    ((spike_precision / slab_precision).ln() + 2.0 / size as f64 * odds)
        / (spike_precision - slab_precision)
}

/// Where λ₁ comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum SoftThreshold {
    /// Given.
    Given(f64),
    /// Computed from the two precisions and P(spike), group size by group size.
    Computed {
        /// δ₀
        spike_precision: f64,
        /// δ₁
        slab_precision: f64,
        /// P(γ = 0)
        spike_probability: f64,
    },
}

impl SoftThreshold {
    /// λ₁ for a group of `size` weights.
    pub fn of(self, size: usize) -> f64 {
        match self {
            SoftThreshold::Given(lambda1) => lambda1,
            SoftThreshold::Computed { spike_precision, slab_precision, spike_probability } => {
                soft_threshold(spike_precision, slab_precision, spike_probability, size)
            }
        }
    }
}

/// The EM step with one sample as E-step: γ_g = 1 (slab) iff mean_k w_gk² ≥ λ₁. It starts afresh
/// each time, so a group can come back from the spike.
pub fn em_step(groups: &Groups, weights: &[f32], lambda1: SoftThreshold, marks: &mut [u8]) {
    let slab: Vec<bool> = groups
        .mean_squares(weights)
        .iter()
        .enumerate()
        .map(|(g, mean)| *mean >= lambda1.of(groups.size(g)))
        .collect();
    groups.for_each(|i, g| {
        marks[i] = if slab[g] { marks[i] | SLAB } else { marks[i] & !SLAB };
    });
}

/// The L2 rule: a group whose mean square is below `threshold` is pruned. With `regrow` a group
/// whose dense weights pass the threshold again comes back; without it the mask only loses.
pub fn l2_prune(groups: &Groups, weights: &[f32], threshold: f64, regrow: bool, marks: &mut [u8]) {
    let above: Vec<bool> =
        groups.mean_squares(weights).iter().map(|mean| *mean >= threshold).collect();
    groups.for_each(|i, g| {
        if !above[g] {
            marks[i] &= !KEEP;
        } else if regrow {
            marks[i] |= KEEP;
        }
    });
}

/// Which groups have any weight left.
pub fn live_groups(groups: &Groups, marks: &[u8]) -> Vec<bool> {
    let mut live = vec![false; groups.count()];
    groups.for_each(|i, g| live[g] |= marks[i] & KEEP != 0);
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::{Param, Role};

    fn groups() -> Groups {
        let shape = vec![2, 3];
        let param = Param { name: "w".into(), shape, role: Role::LinearWeight, offset: 0 };
        Groups::new(&param, Grouping::Input)
    }

    /// At w² = λ₁ both components of the mixture weigh the same.
    #[test]
    fn the_threshold_is_where_spike_and_slab_weigh_the_same() {
        let (d0, d1, p, k) = (100.0f64, 2.0f64, 0.3f64, 5);
        let w2 = soft_threshold(d0, d1, p, k);
        let log_density = |d: f64| k as f64 / 2.0 * (d.ln() - d * w2);
        let spike = p.ln() + log_density(d0);
        let slab = (1.0 - p).ln() + log_density(d1);
        assert!((spike - slab).abs() < 1e-9);
    }

    /// methods.md 3.1: the prior P(γ = 0) that the released settings imply, e.g. Example 1:
    /// λ₁ = 0.01, δ₀ = 1e-2·N, δ₁ = 2e-4·N, K = 5, N = 10,240 gives about 7e-4 (their N).
    #[test]
    fn released_settings_imply_the_published_prior() {
        let n = 10_240.0;
        for (wd0, wd1, lambda1, k, want) in [
            (1e-2, 2e-4, 1e-2, 5, 7e-4),
            (1e-2, 5e-4, 1e-2, 6, 2.3e-3),
            (1e-2, 5e-4, 2e-2, 6, 0.041),
        ] {
            let (d0, d1): (f64, f64) = (wd0 * n, wd1 * n);
            let log_odds = (lambda1 * (d0 - d1) - (d0 / d1).ln()) * k as f64 / 2.0;
            let p = 1.0 / (1.0 + (-log_odds).exp());
            let back = soft_threshold(d0, d1, p, k);
            assert!((back - lambda1).abs() < 1e-12);
            assert!((p / want - 1.0).abs() < 0.1, "{p} against {want}");
        }
    }

    #[test]
    fn em_moves_groups_both_ways_and_pruning_only_one() {
        let groups = groups();
        let mut marks = vec![ALIVE; 6];
        let small = [0.1, 1.0, 1.0, 0.1, 1.0, 1.0];
        let large = [1.0; 6];
        em_step(&groups, &small, SoftThreshold::Given(0.5), &mut marks);
        l2_prune(&groups, &small, 0.5, false, &mut marks);
        assert_eq!(marks, [0, ALIVE, ALIVE, 0, ALIVE, ALIVE]);
        em_step(&groups, &large, SoftThreshold::Given(0.5), &mut marks);
        l2_prune(&groups, &large, 0.5, false, &mut marks);
        assert_eq!(marks, [SLAB, ALIVE, ALIVE, SLAB, ALIVE, ALIVE]);
        assert_eq!(live_groups(&groups, &marks), [false, true, true]);
        l2_prune(&groups, &large, 0.5, true, &mut marks);
        assert_eq!(marks, [ALIVE; 6]);
    }
}
