//! The noise by itself: the same numbers on both devices.

use super::Check;
use crate::arena::Kernel;
use crate::cuda::Precision;
use crate::cuda::context::{Gpu, Value};
use crate::error::EngineError;
use crate::joined;
use crate::noise::{CUDA_SOURCE, Key, Stream};

const SOURCE: &str = joined!(CUDA_SOURCE, include_str!("../kernels/draws.cu"));
/// As training has it, with the fast functions of the hardware.
const FAST: Kernel = Kernel { source: SOURCE, entry: "draws", defines: &[] };
/// With the arithmetic of the CPU, bit for bit.
const EXACT: Kernel = Kernel { source: SOURCE, entry: "draws", defines: &["EXACT=1"] };

/// Both, for a test that compiles them.
#[cfg(test)]
pub(in crate::cuda) const KERNELS: [Kernel; 2] = [FAST, EXACT];

/// How far a number may be from the CPU's, not relative to anything: numbers reach 6.67, where one
/// rounding is 2.4e-7, and logarithm, root and product have a handful. A wrong word is far off.
const LIMIT: f64 = 5e-6;

/// How many numbers of a step are compared: no multiple of a tile.
const N: usize = 5000;

/// Seed, chain, stream, step and first index. The step after the third one carries into the high
/// word, and the last indices are the largest that a kernel can have.
const PLACES: [(u64, u32, Stream, u64, usize); 6] = [
    (0, 0, Stream::Sampler, 0, 0),
    (7, 1, Stream::Sampler, 12_345, (1 << 20) + 1280),
    (7, 3, Stream::Momentum, u32::MAX as u64, 1 << 24),
    (0x1234_5678_9abc_def0, 3, Stream::Sampler, (1 << 32) + 7, (1 << 20) + 128),
    (1 << 32 | 1, u32::MAX, Stream::Initial, 70_000_000_000, (1 << 31) + 128),
    (u64::MAX, 2, Stream::TrainedScale, (1 << 48) - 2, (1 << 32) - 6144),
];

/// All checks.
pub(super) fn draws(gpu: &Gpu) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    for (seed, chain, stream, step, first) in PLACES {
        let key = Key::new(seed, chain, stream);
        let want = expected(key, step, first);
        let check = |what: &str, worst: f64, limit: f64| {
            let place = format!("noise of step {step}, chain {chain}, from index {first}: {what}");
            Check::new(place, Precision::F32, worst, limit)
        };
        let fast = on_gpu(gpu, FAST, key, step, first)?;
        checks.push(check("largest difference", apart(&fast, &want), LIMIT));
        let exact = on_gpu(gpu, EXACT, key, step, first)?;
        checks.push(check("other bits in exact arithmetic", other_bits(&exact, &want), 0.0));
    }
    Ok(checks)
}

/// The numbers of a step and those of the next.
fn expected(key: Key, step: u64, first: usize) -> Vec<f32> {
    let mut both = vec![0.0; 2 * N];
    let (now, after) = both.split_at_mut(N);
    key.normals(step, first, now);
    key.normals(step + 1, first, after);
    both
}

fn on_gpu(
    gpu: &Gpu,
    kernel: Kernel,
    key: Key,
    step: u64,
    first: usize,
) -> Result<Vec<f32>, EngineError> {
    let function = gpu.function(kernel.source, kernel.entry, kernel.defines)?;
    let words = gpu.upload(&key.kernel_words(step))?;
    // Poisoned, so that an element which is not written shows.
    let poison = vec![f32::NAN; N];
    let [fours, ones] = [gpu.upload(&poison)?, gpu.upload(&poison)?];
    let values = [
        Value::At(gpu.address(&words)),
        Value::U32(first as u32),
        Value::U32(N as u32),
        Value::At(gpu.address(&fours)),
        Value::At(gpu.address(&ones)),
    ];
    // Fewer threads than there are blocks of noise, so that each takes several.
    gpu.launch(&function, 3, &values)?;
    Ok([gpu.download(&fours)?, gpu.download(&ones)?].concat())
}

/// The largest difference; what is not a number is infinitely far off.
fn apart(got: &[f32], want: &[f32]) -> f64 {
    let difference = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
    let finite = |d: f64| if d.is_finite() { d } else { f64::INFINITY };
    got.iter().zip(want).map(difference).map(finite).fold(0.0, f64::max)
}

/// How many numbers have other bits.
fn other_bits(got: &[f32], want: &[f32]) -> f64 {
    got.iter().zip(want).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_reach_far_and_a_wrong_word_shows() {
        assert!(PLACES.iter().any(|place| place.3 > 1 << 32 && place.4 > 1 << 20));
        assert!(PLACES.iter().any(|place| place.3 == u64::from(u32::MAX)));
        for (seed, chain, stream, step, first) in PLACES {
            assert!(first.is_multiple_of(128) && first + N <= 1 << 32);
            let key = Key::new(seed, chain, stream);
            let want = expected(key, step, first);
            assert_eq!((apart(&want, &want), other_bits(&want, &want)), (0.0, 0.0));
            // A step too late, another chain, and indices that lost their high bits.
            let wrong = [
                expected(key, step - step.min(1), first + 128),
                expected(Key { chain: chain ^ 1, ..key }, step, first),
                expected(key, step ^ 1 << 32, first),
            ];
            for wrong in &wrong {
                assert!(apart(wrong, &want) > 1.0);
            }
        }
        assert_eq!(apart(&[f32::NAN], &[0.0]), f64::INFINITY);
    }
}
