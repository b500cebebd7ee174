//! Which samples of a run are its posterior: not those of the burn-in, not near-copies, not those
//! of a chain that blew up, and as many of each chain.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::posterior::Snapshot;

/// Which samples are kept, by the epoch after which they were taken and by their chain.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRule {
    /// Which samples are burn-in.
    burn_in: BurnIn,
    /// Epochs whose samples are passed over, so that near-copies do not count.
    thinned: BTreeSet<usize>,
    /// Chains that are left out.
    blown_up: Vec<u32>,
}

/// Which samples come too early.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BurnIn {
    /// Those of earlier epochs.
    Before(usize),
    /// This share of the time from the first sample of a chain to its last, however long the chain
    /// became.
    Share(f64),
}

impl BurnIn {
    /// The first epoch that is not burn-in, in a chain with samples after these epochs.
    fn end(self, first: usize, last: usize) -> usize {
        match self {
            Self::Before(epoch) => epoch,
            Self::Share(share) => first + (share * (last + 1 - first) as f64) as usize,
        }
    }
}

impl SampleRule {
    /// Everything is kept.
    pub fn all() -> Self {
        Self { burn_in: BurnIn::Before(0), thinned: BTreeSet::new(), blown_up: Vec::new() }
    }

    /// Drops the first `burn_in` of the cycles, or of the time of sampling where there is one cycle;
    /// of the samples at `epochs`, ascending, it keeps every `thin`-th and the last one, or the last one
    /// of every cycle.
    pub fn new(cycles: &[Range<usize>], epochs: &[usize], burn_in: f64, thin: Thin) -> Self {
        let dropped = |count: usize| ((burn_in * count as f64) as usize).min(count.max(1) - 1);
        let burn_in = if cycles.len() > 1 {
            let dropped = cycles.get(dropped(cycles.len()));
            BurnIn::Before(dropped.map_or(0, |cycle| cycle.start))
        } else {
            BurnIn::Share(burn_in)
        };
        let last_before = |end: usize| epochs[..epochs.partition_point(|e| *e < end)].last();
        let last_of_cycles: BTreeSet<usize> =
            cycles.iter().filter_map(|cycle| last_before(cycle.end)).copied().collect();
        let is_kept = |(at, epoch): (usize, usize)| match thin {
            Thin::Every(thin) => (epochs.len() - 1 - at).is_multiple_of(thin.max(1)),
            Thin::OneACycle => last_of_cycles.contains(&epoch),
        };
        let thinned = epochs.iter().copied().enumerate().filter(|sample| !is_kept(*sample));
        Self { burn_in, thinned: thinned.map(|(_, e)| e).collect(), blown_up: Vec::new() }
    }

    /// The same rule without some chains.
    #[must_use]
    pub fn without(mut self, chains: &[u32]) -> Self {
        self.blown_up.extend(chains);
        self
    }

    /// The numbers of the samples that are kept, of samples that lie chain by chain in the order of
    /// their epochs: those that share their chain's final mask, after the burn-in, thinned, and as
    /// many of each chain. The last sample of a chain is always kept, so that a run which has not
    /// got beyond its burn-in has something to show.
    pub fn kept(&self, samples: &[&Snapshot]) -> Vec<usize> {
        let chains: Vec<Vec<usize>> = self
            .after_burn_in(samples)
            .into_iter()
            .map(|chain| {
                let last = chain.last().copied();
                let is_kept =
                    |at: &usize| Some(*at) == last || !self.thinned.contains(&samples[*at].epoch);
                chain.into_iter().filter(is_kept).collect()
            })
            .collect();
        let fewest = chains.iter().map(Vec::len).min().unwrap_or(0);
        chains.iter().flat_map(|chain| spread_evenly(chain, fewest)).collect()
    }

    /// The same without thinning and before chains are made equal, chain by chain: what tells
    /// whether they agree.
    pub fn after_burn_in(&self, samples: &[&Snapshot]) -> Vec<Vec<usize>> {
        let mut chains: Vec<Vec<usize>> = Vec::new();
        for (at, sample) in samples.iter().enumerate() {
            match chains.last_mut() {
                Some(chain) if samples[chain[0]].chain == sample.chain => chain.push(at),
                _ => chains.push(vec![at]),
            }
        }
        chains.retain(|chain| !self.blown_up.contains(&samples[chain[0]].chain));
        for chain in &mut chains {
            let last = chain[chain.len() - 1];
            let first_epoch = self.burn_in.end(samples[chain[0]].epoch, samples[last].epoch);
            chain.retain(|&at| {
                at == last
                    || samples[at].epoch >= first_epoch && samples[at].keep == samples[last].keep
            });
        }
        chains
    }
}

/// How samples are thinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thin {
    /// One of so many, counted from the last.
    Every(usize),
    /// The last one of every cycle.
    OneACycle,
}

/// So many of these, the last among them, as far apart as they can be.
fn spread_evenly(samples: &[usize], count: usize) -> impl Iterator<Item = usize> {
    (1..=count).map(move |at| samples[(at * samples.len()).div_ceil(count) - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of chains with these epochs; a mask changes after the epoch that is given with it.
    fn samples(chains: &[(&[usize], usize)]) -> Vec<Snapshot> {
        let sample = |chain: usize, epoch: usize, changes: usize| Snapshot {
            chain: chain as u32,
            epoch,
            weights: Vec::new(),
            keep: vec![u8::from(epoch <= changes)],
            stats: Vec::new(),
            inclusion: Vec::new(),
        };
        let of = |(chain, (epochs, changes)): (usize, &(&[usize], usize))| -> Vec<Snapshot> {
            epochs.iter().map(|epoch| sample(chain, *epoch, *changes)).collect()
        };
        chains.iter().enumerate().flat_map(of).collect()
    }

    fn kept(rule: &SampleRule, samples: &[Snapshot]) -> Vec<(u32, usize)> {
        let samples: Vec<&Snapshot> = samples.iter().collect();
        rule.kept(&samples).iter().map(|&at| (samples[at].chain, samples[at].epoch)).collect()
    }

    /// Four cycles of five epochs, with two samples each.
    const CYCLES: [Range<usize>; 4] = [0..5, 5..10, 10..15, 15..20];
    const EPOCHS: [usize; 8] = [3, 4, 8, 9, 13, 14, 18, 19];

    fn rule(burn_in: f64, thin: Thin) -> SampleRule {
        SampleRule::new(&CYCLES, &EPOCHS, burn_in, thin)
    }

    #[test]
    fn the_first_cycles_are_burn_in_and_one_sample_of_a_cycle_is_kept() {
        let samples = samples(&[(&EPOCHS, 0)]);
        let epochs = |rule: &SampleRule| -> Vec<usize> {
            kept(rule, &samples).into_iter().map(|(_, epoch)| epoch).collect()
        };
        assert_eq!(epochs(&rule(0.5, Thin::OneACycle)), [14, 19]);
        assert_eq!(epochs(&rule(0.5, Thin::Every(1))), [13, 14, 18, 19]);
        assert_eq!(epochs(&rule(0.0, Thin::Every(3))), [4, 13, 19]);
        assert_eq!(epochs(&rule(0.0, Thin::Every(1))), EPOCHS);
        assert_eq!(epochs(&rule(0.99, Thin::Every(1))), [18, 19]);
        assert_eq!(epochs(&SampleRule::all()), EPOCHS);
        // One cycle: a share of the samples.
        let whole = 0..20;
        let whole = std::slice::from_ref(&whole);
        let one = SampleRule::new(whole, &EPOCHS, 0.5, Thin::Every(1));
        assert_eq!(epochs(&one), [13, 14, 18, 19]);
        assert_eq!(epochs(&SampleRule::new(whole, &EPOCHS, 0.5, Thin::OneACycle)), [19]);
    }

    #[test]
    fn a_run_that_has_not_got_beyond_its_burn_in_has_its_last_sample() {
        assert_eq!(kept(&rule(0.5, Thin::OneACycle), &samples(&[(&[3, 4, 8], 0)])), [(0, 8)]);
        assert_eq!(kept(&rule(0.5, Thin::OneACycle), &[]), []);
    }

    #[test]
    fn chains_have_equally_many_samples_and_the_final_mask() {
        let samples = samples(&[(&EPOCHS, 0), (&EPOCHS, 13)]);
        let all = rule(0.0, Thin::Every(1));
        assert_eq!(
            kept(&all, &samples),
            [(0, 8), (0, 14), (0, 19), (1, 14), (1, 18), (1, 19)],
            "three of the second chain share its final mask"
        );
        assert_eq!(kept(&all.clone().without(&[1]), &samples).len(), 8);
        assert_eq!(kept(&all.without(&[0, 1]), &samples), []);
    }
}
