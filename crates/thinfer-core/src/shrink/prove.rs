//! The proof that a run's samples can be cut down.

use serde::Serialize;
use thinfer_data::{Error, Result};
use thinfer_engine::Dataset;

use super::{Layout, agreement, shrink};
use crate::posterior::Posterior;

/// What was compared, and how far apart it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Proof {
    /// Samples that were cut down.
    pub samples: usize,
    /// Rows of the test data among those compared.
    pub test_rows: usize,
    /// The largest difference in double precision, relative to the largest number of its kind.
    pub largest_difference: f64,
    /// The largest that would have passed.
    pub limit: f64,
}

/// Cuts every sample down and compares it with the masked network, on random rows and on `data`.
/// Where they differ the error names the layer in which they begin to.
pub fn prove(posterior: &Posterior, data: Option<&Dataset>) -> Result<Proof> {
    let mut proof = Proof {
        samples: posterior.members.len(),
        test_rows: data.map_or(0, Dataset::rows),
        largest_difference: 0.0,
        limit: 0.0,
    };
    posterior.check_finite()?;
    for sample in &posterior.members {
        let small = shrink(&posterior.network, &sample.keep, Layout::SMALLEST)?;
        let marked = (&sample.keep[..], &sample.weights[..]);
        let found = agreement(&posterior.network, &small, marked, &sample.stats, data)?;
        if !found.holds() {
            return Err(Error::Promise(format!(
                "cut down, the sample of chain {} and epoch {} is another function: from the layer `{}` on its values differ by {:.1e} (at most {:.0e} may be rounding). Its masks do not fit its weights: a pruned weight is not zero. Nothing was written",
                sample.chain,
                sample.epoch,
                found.culprit.as_deref().unwrap_or("output"),
                found.worst(),
                found.tolerance,
            )));
        }
        proof.largest_difference = proof.largest_difference.max(found.worst());
        proof.limit = found.tolerance;
    }
    Ok(proof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image_network;
    use crate::posterior::Snapshot;
    use thinfer_engine::noise::{Key, Stream};
    use thinfer_engine::{Arena, Shape};

    fn posterior() -> Posterior {
        let shape = Shape { height: 12, width: 12, channels: 3 };
        let network = image_network("resnet18-cifar", shape, 4).unwrap();
        let mut weights = vec![0.0; network.params().len()];
        Key::new(1, 0, Stream::Initial).normals(0, 0, &mut weights);
        weights.iter_mut().for_each(|w| *w *= 0.05);
        let mut keep = vec![1; weights.len()];
        // Half of the inner channels of a block, with their norm.
        for (name, row) in [
            ("layer2.0.conv1.weight", 9 * 64),
            ("layer2.0.bn1.weight", 1),
            ("layer2.0.bn1.bias", 1),
        ] {
            let range = network.params().find(name).unwrap().range();
            keep[range.start..range.start + range.len() / 2].fill(0);
            assert_eq!(range.len() / 128, row);
        }
        weights.iter_mut().zip(&keep).for_each(|(w, keep)| *w *= f32::from(*keep));
        let stats = Arena::new(&network, 0).stats().to_vec();
        let sample = Snapshot { chain: 0, epoch: 9, weights, keep, stats, inclusion: Vec::new() };
        Posterior { network, members: vec![sample] }
    }

    #[test]
    fn a_sample_whose_masks_fit_is_proved() {
        let proof = prove(&posterior(), None).unwrap();
        assert!(proof.largest_difference < proof.limit && proof.samples == 1);
    }

    #[test]
    fn a_pruned_weight_that_is_not_zero_names_its_layer() {
        let mut broken = posterior();
        let at = broken.network.params().find("layer2.0.bn1.bias").unwrap().offset;
        broken.members[0].weights[at + 3] = 0.7;
        let error = prove(&broken, None).unwrap_err();
        assert!(matches!(error, Error::Promise(_)));
        let text = error.to_string();
        // The first layer that reads the channel.
        assert!(text.contains("`layer2.0.conv2`"), "{text}");
    }

    #[test]
    fn numbers_that_are_not_finite_are_named_as_such() {
        let mut broken = posterior();
        let at = broken.network.params().find("fc.weight").unwrap().offset;
        broken.members[0].weights[at] = f32::NAN;
        let text = prove(&broken, None).unwrap_err().to_string();
        assert!(text.contains("`fc.weight`") && text.contains("epoch 9"), "{text}");
        let mut broken = posterior();
        broken.members[0].stats[0] = f32::INFINITY;
        let text = prove(&broken, None).unwrap_err().to_string();
        assert!(text.contains("`bn1.running_mean`"), "{text}");
    }
}
