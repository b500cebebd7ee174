//! One draw from the posterior.

/// Numbers that a checksum takes at once; one by one it takes several times as long.
const SUMMED_AT_ONCE: usize = 1 << 14;

/// One draw from the posterior.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Its chain.
    pub chain: u32,
    /// The epoch after which it was taken, from 0.
    pub epoch: usize,
    /// The weights as the network uses them.
    pub weights: Vec<f32>,
    /// Which of them are kept: 1, or 0 where pruned.
    pub keep: Vec<u8>,
    /// Running means and variances of batch norms; empty where there are none.
    pub stats: Vec<f32>,
    /// The probability that each variable of a table is in the slab, the mean over the draws of its
    /// epoch; empty where that is not drawn.
    pub inclusion: Vec<f32>,
}

impl Snapshot {
    /// A checksum of its contents.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        let pieces = |values| <[f32]>::chunks(values, SUMMED_AT_ONCE).map(float_bytes);
        pieces(&self.weights).for_each(|bytes| hasher.update(&bytes));
        hasher.update(&self.keep);
        pieces(&self.stats).for_each(|bytes| hasher.update(&bytes));
        pieces(&self.inclusion).for_each(|bytes| hasher.update(&bytes));
        hasher.finalize()
    }
}

/// Numbers as bytes.
fn float_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
