//! Whether what is to be timed fits into the memory of the machine, and what would.

use thinfer_core::classify::largest;
use thinfer_data::memory::human_bytes;
use thinfer_data::{Error, Result};
use thinfer_engine::{Network, Passes, Plan};

/// Bytes a parameter: weight, two numbers of state, gradient, the copy that the network reads, the
/// gradient that is kept beside it, and marks.
const A_PARAMETER: u64 = 25;

/// Bytes of a batch on the CPU: the plan, the images and the answers.
pub(super) fn cpu_batch(network: &Network, batch: usize) -> u64 {
    let numbers = 4 * (network.input_len() + 1 + network.output_len()) as u64;
    let plan = Plan::bytes_of(network, batch, Passes::ForwardAndBack);
    plan.saturating_add(numbers.saturating_mul(batch as u64))
}

/// Refuses a network that does not fit, and a batch beside it that takes `of_batch` bytes.
pub(super) fn check(
    network: &Network,
    batch: usize,
    of_batch: impl Fn(usize) -> u64,
    available: Option<u64>,
) -> Result<()> {
    let Some(available) = available else { return Ok(()) };
    let weights = A_PARAMETER.saturating_mul(network.params().len() as u64);
    let bytes = |batch: usize| of_batch(batch).saturating_add(weights);
    let needs = |what: String, bytes: u64, advice: String| {
        Err(Error::Memory(format!(
            "{what} needs about {} of memory, but only {} are available; {advice}",
            human_bytes(bytes),
            human_bytes(available)
        )))
    };
    if bytes(batch) <= available {
        return Ok(());
    }
    let Some(largest) = largest(batch.saturating_sub(1), |batch| bytes(batch) <= available) else {
        let what = format!("a network of {} parameters", network.params().len());
        let advice = "choose a smaller one with --model".into();
        return needs(what, bytes(1), advice);
    };
    let advice = format!("lower --batch, the largest that fits is {largest}");
    needs(format!("a batch of {batch} images"), bytes(batch), advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::usual_input;
    use thinfer_core::model::image_network;

    #[test]
    fn the_largest_batch_that_fits_is_named_and_fits() {
        let (shape, classes) = usual_input("lenet");
        let network = image_network("lenet", shape, classes).unwrap();
        let weights = A_PARAMETER * 61_706;
        let of_batch = |batch: usize| 1000 * batch as u64;
        let check = |batch, available| check(&network, batch, of_batch, Some(available));
        let error = check(1_000_000_000, weights + 7999).unwrap_err().to_string();
        assert!(error.contains("a batch of 1000000000 images needs about "), "{error}");
        assert!(error.ends_with("lower --batch, the largest that fits is 7"), "{error}");
        check(7, weights + 7999).unwrap();
        check(8, weights + 7999).unwrap_err();
        let error = check(1, weights - 1).unwrap_err().to_string();
        assert!(error.contains("61706 parameters") && error.ends_with("--model"), "{error}");
    }

    /// Half of what it takes would let a batch through that does not fit.
    #[test]
    fn a_batch_on_the_cpu_is_counted_as_it_is_taken() {
        let (shape, classes) = usual_input("resnet18");
        let network = image_network("resnet18", shape, classes).unwrap();
        let plan = Plan::new(&network, 3).unwrap();
        assert!(cpu_batch(&network, 3) > plan.bytes() as u64);
        assert!((cpu_batch(&network, 3) as f64) < 1.01 * plan.bytes() as f64);
    }
}
