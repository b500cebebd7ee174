//! When a run goes on with a smaller network.
//!
//! Buffers of a chain keep their size and their order, so noise, checkpoints and snapshots are
//! those of the whole network; what gets smaller is the network that computes gradients, and on a
//! GPU the device's buffers. Which network that is follows from the marks and from the network in
//! use alone, never from a clock, so a resumed run makes the same choices.

use std::sync::Arc;

use thinfer_data::Result;
use thinfer_engine::{Network, Node, NodeId};

use crate::prune::{Course, KEEP, count};
use crate::shrink::{Layout, Shrinking, Shrunk, shrink};

/// A smaller network has to do at most this share of the work of the one in use.
const WORTHWHILE: f64 = 0.75;
/// What it saves until the end of the run has to be this many times what building it costs.
const TIMES_THE_COST: f64 = 3.0;
/// The same while pruning pauses or has ended: no better one comes soon.
const PAUSED_TIMES_THE_COST: f64 = 1.5;
/// Multiply-adds that making a plan is taken to cost: far more on a GPU, where engines are searched
/// and graphs made, which took up to half a second on an H200 (`results/shrink`); twice that is
/// taken. There it is for batches below and from [`LARGE_BATCH`] on, with which a second has more
/// of them.
const CPU_COST: f64 = 2e8;
const CUDA_COST: [f64; 2] = [8e13, 1.6e14];
/// The share of the time that a GPU saves, of the share of multiply-adds that is gone, for the same
/// batches: 0.4 was found at a batch of 64, from runs of two days, and 0.45 to 0.55 at 512.
const CUDA_SAVES: [f64; 2] = [0.4, 0.5];
const LARGE_BATCH: usize = 256;

/// The smaller network in use.
#[derive(Clone)]
pub(crate) struct Cut {
    /// The marks that it was made for, 0 or 1.
    keep: Vec<u8>,
    /// The network.
    pub(crate) small: Arc<Shrunk>,
}

/// What is left of a run.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) when: Shrinking,
    /// Rows of an epoch.
    pub(crate) rows: usize,
    /// Epochs, this one included.
    pub(crate) epochs: usize,
    /// Rows of a step.
    pub(crate) batch: usize,
    /// Whether a GPU computes.
    pub(crate) on_cuda: bool,
    /// What pruning is up to.
    pub(crate) course: Course,
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
        let kept = |marks: &[u8]| count(marks, KEEP);
        let work = now.map_or(network, |cut| &cut.small.network).multiply_adds() as f64;
        // Where a plan is dear, one for all that is pruned up to the pause is better, unless that
        // is far away.
        let (worthwhile, times, epochs) = match ahead.course {
            Course::FallsFor(epochs) if ahead.on_cuda => {
                (WORTHWHILE, TIMES_THE_COST, epochs.min(ahead.epochs))
            }
            Course::Pauses | Course::Ended if ahead.on_cuda => {
                (1.0, PAUSED_TIMES_THE_COST, ahead.epochs)
            }
            _ => (WORTHWHILE, TIMES_THE_COST, ahead.epochs),
        };
        let large = usize::from(ahead.batch >= LARGE_BATCH);
        let (saves, cost) =
            if ahead.on_cuda { (CUDA_SAVES[large], CUDA_COST[large]) } else { (1.0, CPU_COST) };
        let pays = |less: f64| {
            // Forward, and back to inputs and to weights.
            let saved = 3.0 * (work - less) * ahead.rows as f64 * epochs as f64;
            less < work && less <= worthwhile * work && saves * saved >= times * cost
        };
        // A smaller network need not be built to see that it would not be small enough.
        let few = match ahead.when {
            Shrinking::WhereItPays => pays(work_of(network, marks) as f64),
            Shrinking::Always => kept(marks) < now.map_or(marks.len(), |cut| kept(&cut.keep)),
            Shrinking::Never => false,
        };
        if !few {
            return Ok(None);
        }
        let keep = marks.iter().map(|mark| mark & KEEP).collect();
        let cut = Cut::new(network, keep, ahead.on_cuda)?;
        let less = cut.small.network.multiply_adds() as f64;
        if ahead.when == Shrinking::Always {
            return Ok((less < work).then_some(cut));
        }
        Ok(pays(less).then_some(cut))
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

/// Multiply-adds of the weights that are kept, each as often as its layer uses it.
fn work_of(network: &Network, marks: &[u8]) -> usize {
    let of = |(at, node): (usize, &Node)| {
        let Some(weight) = node.op.weight() else { return 0 };
        let marks = &marks[network.params()[weight].range()];
        let kept = count(marks, KEEP);
        network.node_multiply_adds(NodeId(at)) / marks.len().max(1) * kept
    };
    network.nodes().iter().enumerate().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::{Loss, NetworkBuilder, Shape, Window};

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
        let (batch, on_cuda, course) = (64, false, Course::Falls);
        let ahead = |rows, epochs| Ahead { when, rows, epochs, batch, on_cuda, course };
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

    /// A front of few weights and most of the work, and a head of the reverse.
    fn convolutional(width: usize) -> Network {
        let mut b = NetworkBuilder::image(Shape { height: 16, width: 16, channels: 4 });
        let h = b.conv2d("conv1", b.input(), width, Window::square(3, 1, 1)).unwrap();
        let h = b.conv2d("conv2", h, width, Window::square(3, 1, 1)).unwrap();
        let h = b.max_pool(h, Window::square(4, 4, 0)).unwrap();
        let h = b.linear("fc1", h, 64).unwrap();
        let out = b.linear("fc2", h, 10).unwrap();
        b.finish(out, Loss::cross_entropy()).unwrap()
    }

    #[test]
    fn a_front_with_most_of_the_work_is_cut_though_it_has_few_weights() {
        let network = convolutional(16);
        let mut marks = vec![3; network.params().len()];
        assert_eq!(work_of(&network, &marks), network.multiply_adds());
        let whole = marks.len();
        for name in ["conv1.weight", "conv2.weight"] {
            let weight = network.params().find(name).unwrap();
            // All output channels but four.
            let row = weight.fan_in();
            marks[weight.range()].iter_mut().skip(4 * row).for_each(|mark| *mark = 0);
        }
        let kept = marks.iter().filter(|mark| **mark != 0).count();
        assert!(4 * kept > 3 * whole, "{kept} of {whole}: few weights went");
        let when = Shrinking::WhereItPays;
        let (rows, epochs, batch, course) = (10_000, 100, 64, Course::Falls);
        let ahead = Ahead { when, rows, epochs, batch, on_cuda: false, course };
        let cut = Cut::next(&network, &marks, None, ahead).unwrap().unwrap();
        assert!(4 * cut.small.network.multiply_adds() < network.multiply_adds());
    }

    #[test]
    fn a_gpu_needs_more_of_the_run_ahead() {
        // Channels are kept in multiples of 16 there.
        let network = convolutional(64);
        let mut marks = vec![3; network.params().len()];
        let weight = network.params().find("conv2.weight").unwrap();
        marks[weight.range()].iter_mut().skip(16 * weight.fan_in()).for_each(|mark| *mark = 0);
        let when = Shrinking::WhereItPays;
        let next_of = |epochs, batch, course| {
            let ahead = Ahead { when, rows: 1_000_000, epochs, batch, on_cuda: true, course };
            Cut::next(&network, &marks, None, ahead).unwrap()
        };
        let next = |epochs| next_of(epochs, 64, Course::Falls);
        // What would be saved if time were multiply-adds, in units of what the rule asks for.
        let less = next(usize::MAX >> 20).unwrap().small.network.multiply_adds();
        let an_epoch = 3.0 * (network.multiply_adds() - less) as f64 * 1e6;
        let enough = (TIMES_THE_COST * CUDA_COST[0] / an_epoch).ceil() as usize;
        assert!(next(2 * enough).is_none(), "the time that is saved is less");
        assert!(next(4 * enough).is_some());
        // A cut that no better one follows soon needs less, and before that none is made.
        for course in [Course::Pauses, Course::Ended] {
            assert!(next_of(2 * enough, 64, course).is_some());
            assert!(next_of(enough, 64, course).is_none());
        }
        let far = |pause| next_of(8 * enough, 64, Course::FallsFor(pause));
        assert!(far(2 * enough).is_none() && far(4 * enough).is_some());
        // A large batch saves more of its time, and a plan costs more of its multiply-adds.
        let large = CUDA_COST[1] / CUDA_SAVES[1] / CUDA_COST[0];
        let epochs = |times: f64| (times * large * enough as f64) as usize;
        assert!(next_of(epochs(1.1), 512, Course::Falls).is_some());
        assert!(next_of(epochs(0.9), 512, Course::Falls).is_none());
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
