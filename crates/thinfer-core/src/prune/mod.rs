//! Which groups of weights are in the slab, which in the spike, and which are gone.

mod channels;
mod draw;
mod groups;
mod target;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use channels::Channels;
pub use draw::{Precisions, draw_groups, draw_log_odds, slab_probabilities, slab_probability};
pub use groups::{Grouping, Groups, group_network};
pub use target::{Course, Goal, HardThreshold, Target};

/// The weight takes part in the network (hard mask = 1).
pub const KEEP: u8 = 1;
/// The weight's group is in the slab (soft mask = 1).
pub const SLAB: u8 = 2;
/// The weight is frozen: it is not trained any more.
pub const FIXED: u8 = 4;
/// How every weight starts.
pub const ALIVE: u8 = KEEP | SLAB;
/// Marks that a thread counts at a time.
const PIECE: usize = 1 << 16;

/// How many marks have all of these bits.
pub fn count(marks: &[u8], bits: u8) -> usize {
    let of = |marks: &[u8]| marks.iter().filter(|mark| *mark & bits == bits).count();
    if marks.len() <= PIECE { of(marks) } else { marks.par_chunks(PIECE).map(of).sum() }
}

/// What is compared with the hard threshold λ₂.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The mean square of a group.
    #[default]
    MeanSquare,
    /// max w − min w over a channel.
    ///
    /// Deviation: the paper prints max |w| − min |w|, which would delete a channel whose weights
    /// are all ±c; the authors' program has the signed range.
    Range,
    /// max |w| − min |w| over a channel, as the paper prints.
    AbsoluteRange,
}

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
    let means = groups.mean_squares(weights);
    let common = groups.common_size().map(|size| lambda1.of(size));
    let threshold = |group: usize| common.unwrap_or_else(|| lambda1.of(groups.size(group)));
    let slab: Vec<bool> = means.iter().enumerate().map(|(g, mean)| *mean >= threshold(g)).collect();
    groups.mark(&slab, SLAB, true, marks);
}

/// The L2 rule: a group whose mean square is below the threshold that `goal` asks for is pruned.
/// With `regrow` a group whose dense weights pass the threshold again comes back; without it the
/// mask only loses.
///
/// Under a target the largest group of each layer stays. Under a given threshold nothing is kept
/// for its own sake: that no input matters is an answer.
pub fn prune_groups(
    groups: &[Groups],
    weights: &[f32],
    goal: Goal,
    regrow: bool,
    marks: &mut [u8],
) {
    let prunable: Vec<&Groups> = groups.iter().filter(|g| g.prunable()).collect();
    let means: Vec<Vec<f64>> = prunable.iter().map(|g| g.mean_squares(weights)).collect();
    let (threshold, largest) = match goal {
        Goal::Threshold(threshold) => (threshold, None),
        Goal::Share(share) => {
            let largest: Vec<usize> = means.iter().map(|means| largest(means)).collect();
            let live = |g: &Groups| {
                if regrow { vec![true; g.count()] } else { live_groups(g, marks) }
            };
            let mut sizes = Vec::new();
            let mut pruned = 0;
            for ((groups, means), largest) in prunable.iter().zip(&means).zip(&largest) {
                for (group, live) in live(groups).into_iter().enumerate() {
                    let size = groups.size(group);
                    if !live {
                        pruned += size;
                    } else if group != *largest {
                        sizes.push((means[group], size));
                    }
                }
            }
            let wanted = (share * marks.len() as f64).ceil() as usize;
            (threshold_for(sizes, pruned, wanted), Some(largest))
        }
    };
    for (layer, (groups, means)) in prunable.iter().zip(&means).enumerate() {
        let mut above: Vec<bool> = means.iter().map(|mean| *mean >= threshold).collect();
        if let Some(largest) = &largest {
            above[largest[layer]] = true;
        }
        groups.mark(&above, KEEP, regrow, marks);
    }
}

/// The smallest threshold at which groups of `wanted` weights are pruned, `pruned` of which are
/// already; of each other group its mean square and its size.
fn threshold_for(mut sizes: Vec<(f64, usize)>, mut pruned: usize, wanted: usize) -> f64 {
    sizes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut threshold = 0.0;
    for (mean, size) in sizes {
        if pruned >= wanted {
            break;
        }
        pruned += size;
        threshold = f64::next_up(mean);
    }
    threshold
}

fn largest(means: &[f64]) -> usize {
    (0..means.len()).fold(0, |best, at| if means[at] > means[best] { at } else { best })
}

/// The smallest mean square of a group that is kept: no smaller threshold would prune anything.
pub fn smallest_group(groups: &[Groups], weights: &[f32], marks: &[u8]) -> Option<f64> {
    let kept = groups.iter().filter(|g| g.prunable()).flat_map(|groups| {
        let live = live_groups(groups, marks).into_iter();
        groups.mean_squares(weights).into_iter().zip(live).filter(|(_, live)| *live)
    });
    kept.map(|(mean, _)| mean).reduce(f64::min)
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

    /// Of more marks than one thread counts, and with a rest.
    #[test]
    fn marks_are_counted_by_all_of_their_bits() {
        let marks: Vec<u8> = (0..3 * PIECE + 5).map(|i| (i % 8) as u8).collect();
        assert_eq!(count(&marks, KEEP), 3 * PIECE / 2 + 2);
        assert_eq!(count(&marks, KEEP | FIXED), 3 * PIECE / 4);
        assert_eq!(count(&marks[..8], KEEP | SLAB | FIXED), 1);
    }

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
        let (layers, goal) = ([groups.clone()], Goal::Threshold(0.5));
        let mut marks = vec![ALIVE; 6];
        let small = [0.1, 1.0, 1.0, 0.1, 1.0, 1.0];
        let large = [1.0; 6];
        em_step(&groups, &small, SoftThreshold::Given(0.5), &mut marks);
        prune_groups(&layers, &small, goal, false, &mut marks);
        assert_eq!(marks, [0, ALIVE, ALIVE, 0, ALIVE, ALIVE]);
        em_step(&groups, &large, SoftThreshold::Given(0.5), &mut marks);
        prune_groups(&layers, &large, goal, false, &mut marks);
        assert_eq!(marks, [SLAB, ALIVE, ALIVE, SLAB, ALIVE, ALIVE]);
        assert_eq!(live_groups(&groups, &marks), [false, true, true]);
        prune_groups(&layers, &large, goal, true, &mut marks);
        assert_eq!(marks, [ALIVE; 6]);
    }
}
