//! Whether what is to be timed fits into the memory of the machine, and what would.

use thinfer_engine::Network;

use crate::data::table::human_bytes;
use crate::error::{Error, Result};

/// Bytes a parameter: weight, two numbers of state, gradient, the copy that the network reads, the
/// gradient that is kept beside it, and marks.
const A_PARAMETER: u64 = 25;

/// Bytes an image on the CPU: every activation and its gradient, the image and the answer.
pub(super) fn activation_bytes(network: &Network) -> u64 {
    let numbers: usize = network.nodes().iter().map(|node| 2 * node.shape.len()).sum();
    4 * (numbers + network.input_len() + network.output_len()) as u64
}

/// Refuses a network that does not fit, and a batch of `an_image` bytes each beside it.
pub(super) fn check(
    network: &Network,
    batch: usize,
    an_image: u64,
    available: Option<u64>,
) -> Result<()> {
    let Some(available) = available else { return Ok(()) };
    let weights = A_PARAMETER.saturating_mul(network.params().len() as u64);
    let needs = |what: String, bytes: u64, advice: String| {
        Err(Error::Memory(format!(
            "{what} needs about {} of memory, but only {} are available; {advice}",
            human_bytes(bytes),
            human_bytes(available)
        )))
    };
    let largest = available.saturating_sub(weights) / an_image.max(1);
    if largest == 0 {
        let what = format!("a network of {} parameters", network.params().len());
        let advice = "choose a smaller one with --model".into();
        return needs(what, weights.saturating_add(an_image), advice);
    }
    if batch as u64 > largest {
        let bytes = an_image.saturating_mul(batch as u64).saturating_add(weights);
        let advice = format!("lower --batch, the largest that fits is {largest}");
        return needs(format!("a batch of {batch} images"), bytes, advice);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::usual_input;
    use crate::model::image_network;

    #[test]
    fn the_largest_batch_that_fits_is_named_and_fits() {
        let (shape, classes) = usual_input("lenet");
        let network = image_network("lenet", shape, classes).unwrap();
        let weights = A_PARAMETER * 61_706;
        let check = |batch, available| check(&network, batch, 1000, Some(available));
        let error = check(1_000_000_000, weights + 7999).unwrap_err().to_string();
        assert!(error.contains("a batch of 1000000000 images needs about "), "{error}");
        assert!(error.ends_with("lower --batch, the largest that fits is 7"), "{error}");
        check(7, weights + 7999).unwrap();
        check(8, weights + 7999).unwrap_err();
        let error = check(1, weights - 1).unwrap_err().to_string();
        assert!(error.contains("61706 parameters") && error.ends_with("--model"), "{error}");
    }
}
