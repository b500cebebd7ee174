//! How long a network takes for an example on this machine, masked and shrunk.

use std::time::Instant;

use serde::Serialize;
use thinfer_data::Result;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, Network, Plan};

use super::{Layout, Leftover, Shrunk, leftovers, shrink};
use crate::posterior::Snapshot;

/// Examples at a time.
const ROWS: [usize; 2] = [1, 32];
/// Each network is timed for at least this long, and at least this often.
const SECONDS: f64 = 0.3;
const TIMES: usize = 3;
/// Multiply-adds of a batch above which it is not timed: it would take many seconds.
const TOO_MANY: usize = 60_000_000_000;

/// Milliseconds an example, medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Examples at a time.
    pub rows: usize,
    /// Of the whole network, with zeros where it is pruned.
    pub masked: f64,
    /// Of the smaller one.
    pub shrunk: f64,
}

/// What cutting a network down comes to.
#[derive(Clone, Debug, Serialize)]
pub struct Saving {
    /// The chain of the sample.
    pub chain: u32,
    /// The epoch after which it was taken, from 0.
    pub epoch: usize,
    /// Parameters of the whole and of the smaller network.
    pub parameters: [usize; 2],
    /// Bytes of parameters and running statistics, four a number.
    pub bytes: [usize; 2],
    /// Multiply-adds an example.
    pub multiply_adds: [usize; 2],
    /// Inputs that are read, of those there are.
    pub inputs: [usize; 2],
    /// What is masked and stays.
    pub leftovers: Vec<Leftover>,
    /// Times on the cores of this machine.
    pub speed: Vec<Speed>,
}

impl Saving {
    /// Cuts one sample down and takes the time of both networks.
    pub fn of(network: &Network, sample: &Snapshot) -> Result<Self> {
        let small = shrink(network, &sample.keep, Layout::SMALLEST)?;
        Ok(Self {
            speed: speed(network, &small, sample)?,
            ..Self::untimed(network, &small, sample)
        })
    }

    /// The same without taking time.
    pub fn untimed(network: &Network, small: &Shrunk, sample: &Snapshot) -> Self {
        let less = &small.network;
        let both = |of: fn(&Network) -> usize| [of(network), of(less)];
        Self {
            chain: sample.chain,
            epoch: sample.epoch,
            parameters: both(|n| n.params().len()),
            bytes: both(|n| 4 * (n.params().len() + n.stats().len())),
            multiply_adds: both(Network::multiply_adds),
            inputs: [network.nodes()[0].shape.channels, small.inputs.len()],
            leftovers: leftovers(&sample.keep, small),
            speed: Vec::new(),
        }
    }
}

/// Times both networks, one example at a time and many.
fn speed(network: &Network, small: &Shrunk, sample: &Snapshot) -> Result<Vec<Speed>> {
    let less = small.sample(sample);
    let wanted = ROWS.into_iter().filter(|rows| rows * network.multiply_adds() <= TOO_MANY);
    wanted
        .map(|rows| {
            Ok(Speed {
                rows,
                masked: milliseconds(network, sample, rows)?,
                shrunk: milliseconds(&small.network, &less, rows)?,
            })
        })
        .collect()
}

fn milliseconds(network: &Network, sample: &Snapshot, rows: usize) -> Result<f64> {
    let mut inputs = vec![0.0; rows * network.input_len()];
    Key::new(0, 0, Stream::Inputs).normals(0, 0, &mut inputs);
    let data = Dataset::new(network.input_len(), 0, inputs, Vec::new())?;
    let mut plan = Plan::new(network, rows)?;
    let mut out = vec![0.0; rows * network.output_len()];
    let mut go = || plan.forward(&sample.weights, &sample.stats, &data, 0..rows, &mut out);
    go()?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < TIMES || begun.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        go()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(1e3 * times[times.len() / 2] / rows as f64)
}
