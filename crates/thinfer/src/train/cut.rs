//! When a run goes on with a smaller network.
//!
//! Buffers of a chain keep their size and their order, so noise, checkpoints and snapshots are those
//! of the whole network; what gets smaller is the network that computes gradients, and on a GPU the
//! device's buffers. Which network that is follows from the marks and from the network in use alone,
//! never from a clock, so a resumed run makes the same choices.

use std::sync::Arc;

use thinfer_engine::Network;

use crate::error::Result;
use crate::prune::KEEP;
use crate::shrink::{Layout, Shrunk, shrink};

/// A smaller network has to do at most this share of the work of the one in use.
const WORTHWHILE: f64 = 0.75;
/// What it saves until the end of the run has to be this many times what building it costs.
const TIMES_THE_COST: f64 = 3.0;
/// Multiply-adds that making a plan is taken to cost: far more on a GPU, where engines for new shapes
/// have to be searched.
const CPU_COST: f64 = 2e8;
const CUDA_COST: f64 = 3e14;

/// The smaller network in use.
#[derive(Clone)]
pub(crate) struct Cut {
    /// The marks that it was made for, 0 or 1.
    keep: Vec<u8>,
    /// The network.
    pub(crate) small: Arc<Shrunk>,
}

/// When training goes on with a smaller network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shrinking {
    /// When what it saves until the end of the run is worth more than building it.
    #[default]
    WhereItPays,
    /// Whenever there is less to do.
    Always,
    /// Never: pruned weights are multiplied with zeros to the end.
    Never,
}

/// What is left of a run.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) when: Shrinking,
    /// Rows of an epoch.
    pub(crate) rows: usize,
    /// Epochs, this one included.
    pub(crate) epochs: usize,
    /// Whether a GPU computes.
    pub(crate) on_cuda: bool,
}

impl Cut {
    /// The smaller network for marks of which some may have changed since.
    pub(crate) fn new(network: &Network, keep: Vec<u8>, on_cuda: bool) -> Result<Self> {
        let layout = if on_cuda { Layout::CUDA } else { Layout::CPU };
        let small = Arc::new(shrink(network, &keep, layout)?);
        Ok(Self { keep, small })
    }

    /// The same cut, laid out for the other kind of device.
    pub(crate) fn laid_out_for(self, network: &Network, on_cuda: bool) -> Result<Self> {
        Self::new(network, self.keep, on_cuda)
    }

    /// The network to go on with where another than the one in use pays, and whether one does.
    pub(crate) fn next(
        network: &Network,
        marks: &[u8],
        now: Option<&Cut>,
        ahead: Ahead,
    ) -> Result<Option<Cut>> {
        let kept = |marks: &[u8]| marks.iter().filter(|mark| *mark & KEEP != 0).count();
        let before = now.map_or(marks.len(), |cut| kept(&cut.keep));
        let few = match ahead.when {
            Shrinking::WhereItPays => kept(marks) as f64 <= WORTHWHILE * before as f64,
            Shrinking::Always => kept(marks) < before,
            Shrinking::Never => false,
        };
        if !few {
            return Ok(None);
        }
        let keep = marks.iter().map(|mark| mark & KEEP).collect();
        let cut = Cut::new(network, keep, ahead.on_cuda)?;
        let work = now.map_or(network, |cut| &cut.small.network).multiply_adds() as f64;
        let less = cut.small.network.multiply_adds() as f64;
        if ahead.when == Shrinking::Always {
            return Ok((less < work).then_some(cut));
        }
        // Forward, and back to inputs and to weights.
        let saved = 3.0 * (work - less) * ahead.rows as f64 * ahead.epochs as f64;
        let cost = if ahead.on_cuda { CUDA_COST } else { CPU_COST };
        let pays = less <= WORTHWHILE * work && saved >= TIMES_THE_COST * cost;
        Ok(pays.then_some(cut))
    }

    /// Where the weights of the smaller network lie in the whole one, and behind them those that
    /// nothing read but that were not pruned when it was cut.
    pub(crate) fn origin(&self) -> Vec<u32> {
        let mut there = vec![false; self.keep.len()];
        self.small.params.iter().for_each(|&at| there[at as usize] = true);
        let unread = |&at: &u32| !there[at as usize] && self.keep[at as usize] != 0;
        let rest = (0..self.keep.len() as u32).filter(unread);
        self.small.params.iter().copied().chain(rest).collect()
    }

    /// The marks, eight a byte.
    pub(crate) fn to_bits(&self) -> Vec<u8> {
        let byte = |marks: &[u8]| marks.iter().rev().fold(0, |byte, mark| byte << 1 | mark);
        self.keep.chunks(8).map(byte).collect()
    }

    /// Marks from [`Cut::to_bits`].
    pub(crate) fn from_bits(bits: &[u8], len: usize) -> Option<Vec<u8>> {
        let marks = || bits.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1));
        (bits.len() == len.div_ceil(8)).then(|| marks().take(len).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::{Loss, NetworkBuilder};

    fn network() -> Network {
        let mut b = NetworkBuilder::new(100);
        let h = b.linear("fc1", b.input(), 8).unwrap();
        let h = b.tanh(h).unwrap();
        let out = b.linear("fc2", h, 1).unwrap();
        b.finish(out, Loss::gaussian(1.0)).unwrap()
    }

    #[test]
    fn a_cut_must_pay_until_the_end_of_the_run() {
        let network = network();
        let mut marks = vec![3; network.params().len()];
        let when = Shrinking::WhereItPays;
        let ahead = |rows, epochs| Ahead { when, rows, epochs, on_cuda: false };
        let next = |marks: &[u8], now: Option<&Cut>, ahead| {
            Cut::next(&network, marks, now, ahead).unwrap()
        };
        assert!(next(&marks, None, ahead(100_000, 1000)).is_none());
        marks[..800]
            .iter_mut()
            .enumerate()
            .for_each(|(i, m)| *m = if i % 100 < 10 { 3 } else { 0 });
        assert!(next(&marks, None, ahead(100, 10)).is_none());
        let cut = next(&marks, None, ahead(100_000, 1000)).unwrap();
        assert_eq!(cut.small.inputs, (0..10).collect::<Vec<u32>>());
        assert!(next(&marks, Some(&cut), ahead(100_000, 1000)).is_none());
        let fewer: Vec<u8> = marks
            .iter()
            .enumerate()
            .map(|(i, m)| if i < 800 && i % 100 >= 3 { 0 } else { *m })
            .collect();
        let deeper = next(&fewer, Some(&cut), ahead(100_000, 1000)).unwrap();
        assert_eq!(deeper.small.inputs, [0, 1, 2]);
    }

    #[test]
    fn marks_survive_as_bits() {
        let keep: Vec<u8> = (0..19).map(|i| u8::from(i % 3 == 0)).collect();
        let network = network();
        let mut whole = vec![1; network.params().len()];
        whole[..19].copy_from_slice(&keep);
        let cut = Cut::new(&network, whole.clone(), false).unwrap();
        assert_eq!(Cut::from_bits(&cut.to_bits(), whole.len()), Some(whole));
        assert_eq!(Cut::from_bits(&cut.to_bits(), 5), None);
    }
}
