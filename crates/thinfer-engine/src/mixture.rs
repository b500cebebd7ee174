//! Random channel scales: whose they are, which law they follow, and what makes them.

use serde::{Deserialize, Serialize};

use crate::noise::{Key, Stream};

/// The law of a random channel scale around its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Normal, with its standard deviation.
    Gaussian,
    /// Cauchy, with its scale.
    Cauchy,
}

impl Law {
    /// Scales are cut off beyond this, since a Cauchy number has no bound.
    pub const FARTHEST: f64 = 10.0;
}

/// Members that share a network's weights and have random channel scales of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mixture {
    /// How many.
    pub members: usize,
    /// What their scales are drawn from.
    pub law: Law,
    /// Draws of each member over which a prediction is averaged.
    pub draws: usize,
}

impl Mixture {
    /// What a prediction is the mean over: every member, drawn so many times. They are the same in
    /// every call, so a prediction can be repeated.
    pub fn views(self) -> impl Iterator<Item = Draw> {
        (0..self.members * self.draws).map(move |view| Draw {
            key: Key::new(0, 0, Stream::PredictedScale),
            step: view as u64,
            member: view % self.members,
            first_row: 0,
        })
    }
}

/// What makes the random scales of a pass: a pure function of this, the row and the channel.
///
/// In training, row n of a batch belongs to member n mod K, because each example stands there once
/// for every member, and n keys its noise. In a prediction all rows belong to one member, and their
/// places in the data key their noise, so that it does not matter how they are cut into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The key of the noise.
    pub key: Key,
    /// The step of training, or the number of the draw.
    pub step: u64,
    /// The member, in a prediction.
    pub member: usize,
    /// The number of row 0 of the data, in a prediction.
    pub first_row: usize,
}

impl Default for Draw {
    fn default() -> Self {
        Self { key: Key::new(0, 0, Stream::TrainedScale), step: 0, member: 0, first_row: 0 }
    }
}

impl Draw {
    /// The scales of one step of training.
    pub fn of_step(seed: u64, chain: u32, step: u64) -> Self {
        Self { key: Key::new(seed, chain, Stream::TrainedScale), step, ..Self::default() }
    }

    /// As kernels read it: the key, then the member and the number of the first row.
    pub fn kernel_words(&self) -> [u32; 8] {
        let [a, b, c, d, e, f] = self.key.kernel_words(self.step);
        [a, b, c, d, e, f, self.member as u32, self.first_row as u32]
    }
}
