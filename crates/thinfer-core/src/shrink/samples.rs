//! All samples of a posterior at one small size.

use thinfer_data::Result;

use super::{Layout, Shrunk, shrink};
use crate::posterior::Posterior;
use crate::posterior::Snapshot;

/// The posterior cut down to what at least one of its samples uses, and how it was cut.
///
/// Samples that were taken while the network was larger have more of it alive; all of them fit into
/// what they have together, so the smaller posterior predicts what the larger one does. Samples
/// that share one mask fit exactly.
pub fn shrink_posterior(posterior: &Posterior, layout: Layout) -> Result<(Posterior, Shrunk)> {
    let mut keep = vec![0; posterior.network.params().len()];
    for member in &posterior.members {
        keep.iter_mut().zip(&member.keep).for_each(|(keep, mark)| *keep |= mark);
    }
    let small = shrink(&posterior.network, &keep, layout)?;
    let members = posterior.members.iter().map(|member| small.sample(member)).collect();
    Ok((Posterior { network: small.network.clone(), members }, small))
}

impl Shrunk {
    /// A sample of the larger network as one of the smaller.
    pub fn sample(&self, sample: &Snapshot) -> Snapshot {
        Snapshot {
            chain: sample.chain,
            epoch: sample.epoch,
            weights: self.take(&sample.weights),
            keep: self.take(&sample.keep),
            stats: self.take_stats(&sample.stats),
            // It may have fewer inputs.
            inclusion: Vec::new(),
        }
    }
}
