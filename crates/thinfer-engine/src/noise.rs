//! Keyed noise: Philox4x32-10 and Box-Muller, a pure function of (seed, chain, stream, step,
//! index).
//!
//! Nothing random is ever stored. A resumed run needs only its step number, replicas agree without
//! talking, and the noise of the last step, which the ρ update of the paper needs, is made again.
//!
//! Layout. Element `index` of a step takes lane `(index / 32) mod 4` of the Philox block
//! `32·(index / 128) + index mod 32`. Neighbouring elements thus sit in the same lane of
//! neighbouring blocks, which is the order in which vector units and GPU warps work.
//! The counter words are `[block, step (low), step (high 16 bits) · 2¹⁶ + stream, chain]`, the key
//! words are the seed.

use serde::{Deserialize, Serialize};

use crate::elementary::{ln, sin_cos_turn};
use crate::vectorize::vectorize;

/// What a stream of random numbers is for. Two streams never share a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u16)]
pub enum Stream {
    /// The sampler's noise, one number a weight and step.
    Sampler = 1,
    /// Initial weights.
    Initial = 2,
    /// Initial momentum.
    Momentum = 3,
    /// The order of rows in an epoch.
    Shuffle = 4,
    /// Simulated inputs.
    Inputs = 5,
    /// Simulated observation noise.
    Observation = 6,
    /// Which rows are held out.
    Split = 7,
    /// Permutations of a column, to measure its effect.
    Permute = 8,
    /// Draws from a predictive distribution.
    Predictive = 9,
    /// Crops and mirrorings of training images.
    Augment = 10,
    /// Which weights live: the first masks, and growth at random places.
    Mask = 11,
    /// Random channel scales in training.
    TrainedScale = 12,
    /// Random channel scales in predictions.
    PredictedScale = 13,
    /// Which groups are in the slab, where that is drawn.
    Assignment = 14,
    /// How probable the slab is, where that is drawn.
    SlabProbability = 15,
    /// The rows of a step that are drawn independently of other steps.
    Rows = 16,
}

/// The same noise for CUDA kernels, with the elementary functions it needs. A kernel that draws
/// noise is compiled with this text before its own; see [`joined`](crate::joined).
pub const CUDA_SOURCE: &str = include_str!("cuda/kernels/noise.cuh");

/// The part of the key that stays the same over a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The user's seed.
    pub seed: u64,
    /// The chain, so that chains of one seed are independent.
    pub chain: u32,
    /// The purpose.
    pub stream: Stream,
}

const TILE: usize = 128;
const WIDTH: usize = 32;

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Philox4x32 with ten rounds (Salmon, Moraes, Dror & Shaw, SC 2011).
#[inline(always)]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = MULTIPLIER[0] as u64 * counter[0] as u64;
        let b = MULTIPLIER[1] as u64 * counter[2] as u64;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Two independent standard normal numbers from two words. |value| ≤ 6.67 by construction, since
/// the smallest uniform is 2⁻³².
#[inline(always)]
fn box_muller(radius: u32, angle: u32) -> (f32, f32) {
    let u = ((radius >> 1) as i32 as f32 + 0.5) * (1.0 / 2_147_483_648.0);
    let r = (-2.0 * ln(u)).max(0.0).sqrt();
    let (s, c) = sin_cos_turn(angle);
    (r * c, r * s)
}

/// A whole number below `bound` from 64 random bits.
fn scale(word: u64, bound: usize) -> usize {
    ((word as u128 * bound as u128) >> 64) as usize
}

impl Key {
    /// A key for `stream` of `chain` under `seed`.
    pub fn new(seed: u64, chain: u32, stream: Stream) -> Self {
        Self { seed, chain, stream }
    }

    #[inline(always)]
    fn counter(self, step: u64, block: u32) -> [u32; 4] {
        let high = ((step >> 32) as u32) << 16 | self.stream as u32;
        [block, step as u32, high, self.chain]
    }

    /// The key at `step` as kernels read it: seed (low, high), chain, stream, step (low, high).
    pub fn kernel_words(self, step: u64) -> [u32; 6] {
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let ([seed_low, seed_high], [low, high]) = (halves(self.seed), halves(step));
        [seed_low, seed_high, self.chain, self.stream as u32, low, high]
    }

    #[inline(always)]
    pub(crate) fn words(self, step: u64, block: u32) -> [u32; 4] {
        philox4x32(self.counter(step, block), [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// The standard normal number of `(step, index)`.
    pub fn normal(self, step: u64, index: usize) -> f32 {
        let mut one = [0.0];
        self.normals(step, index, &mut one);
        one[0]
    }

    /// Fills `out` with the standard normal numbers of `step` from index `first` on.
    pub fn normals(self, step: u64, first: usize, out: &mut [f32]) {
        vectorize(
            #[inline(always)]
            || {
                let mut tile = [0.0; TILE];
                let mut done = 0;
                while done < out.len() {
                    let index = first + done;
                    let skip = index % TILE;
                    let take = (TILE - skip).min(out.len() - done);
                    self.tile(step, index / TILE, &mut tile);
                    out[done..done + take].copy_from_slice(&tile[skip..skip + take]);
                    done += take;
                }
            },
        );
    }

    /// Fills `out` with the standard normal numbers of `step` at the indices `at`.
    pub fn normals_at(self, step: u64, at: &[u32], out: &mut [f32]) {
        vectorize(
            #[inline(always)]
            || {
                for (at, out) in at.chunks(WIDTH).zip(out.chunks_mut(WIDTH)) {
                    let (mut radius, mut angle) = ([0; WIDTH], [0; WIDTH]);
                    let mut second = [false; WIDTH];
                    for (b, &at) in at.iter().enumerate() {
                        let (tile, within) = (at / TILE as u32, at % TILE as u32);
                        let words = self.words(step, tile * WIDTH as u32 + within % WIDTH as u32);
                        let which = within / WIDTH as u32;
                        let late = which >= 2;
                        radius[b] = if late { words[2] } else { words[0] };
                        angle[b] = if late { words[3] } else { words[1] };
                        second[b] = which % 2 == 1;
                    }
                    for (b, out) in out.iter_mut().enumerate() {
                        let pair = box_muller(radius[b], angle[b]);
                        *out = if second[b] { pair.1 } else { pair.0 };
                    }
                }
            },
        );
    }

    #[inline(always)]
    fn tile(self, step: u64, tile: usize, out: &mut [f32; TILE]) {
        let (mut w0, mut w1, mut w2, mut w3) = ([0; WIDTH], [0; WIDTH], [0; WIDTH], [0; WIDTH]);
        for b in 0..WIDTH {
            [w0[b], w1[b], w2[b], w3[b]] = self.words(step, (tile * WIDTH + b) as u32);
        }
        for b in 0..WIDTH {
            let (first, second) = box_muller(w0[b], w1[b]);
            let (third, fourth) = box_muller(w2[b], w3[b]);
            out[b] = first;
            out[WIDTH + b] = second;
            out[2 * WIDTH + b] = third;
            out[3 * WIDTH + b] = fourth;
        }
    }

    /// Fills `out` with the standard Cauchy numbers of `step` from index `first` on: tangents of
    /// uniform angles, which may be infinite.
    pub fn cauchys(self, step: u64, first: usize, out: &mut [f32]) {
        vectorize(
            #[inline(always)]
            || {
                for (index, out) in (first..).zip(out) {
                    let within = index % TILE;
                    let words = self.words(step, (index / TILE * WIDTH + within % WIDTH) as u32);
                    let (s, c) = sin_cos_turn(words[within / WIDTH]);
                    *out = s / c;
                }
            },
        );
    }

    /// A uniform number in (0, 1), one of 2³¹ equally spaced values.
    pub fn uniform(self, step: u64, index: usize) -> f32 {
        let word = self.words(step, index as u32)[0] >> 8;
        (word as f32 + 0.5) * (1.0 / 16_777_216.0)
    }

    /// A whole number below `bound`, which must not be 0. The bias is below `bound · 2⁻⁶⁴`.
    pub fn below(self, step: u64, index: usize, bound: usize) -> usize {
        let [high, low, ..] = self.words(step, index as u32);
        scale(u64::from(high) << 32 | u64::from(low), bound)
    }

    /// A random order of `0..n` (Fisher-Yates), the same for the same key and `step`.
    pub fn permutation(self, step: u64, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        let mut words = vec![0; n];
        vectorize(
            #[inline(always)]
            || {
                for (index, word) in words.iter_mut().enumerate() {
                    let [high, low, ..] = self.words(step, index as u32);
                    *word = u64::from(high) << 32 | u64::from(low);
                }
            },
        );
        for last in (1..n).rev() {
            order.swap(last, scale(words[last], last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that Random123 publishes for `philox4x32 10`.
    #[test]
    fn numbers_at_any_place_are_those_of_the_whole() {
        let key = Key::new(3, 1, Stream::Sampler);
        let mut all = vec![0.0; 700];
        key.normals(9, 0, &mut all);
        let at: Vec<u32> = (0..700).filter(|i| i % 3 != 1).rev().collect();
        let mut some = vec![0.0; at.len()];
        key.normals_at(9, &at, &mut some);
        assert!(
            at.iter().zip(&some).all(|(at, some)| all[*at as usize].to_bits() == some.to_bits())
        );
    }

    #[test]
    fn published_known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want);
        }
    }

    fn sample(key: Key, step: u64, n: usize) -> Vec<f64> {
        let mut values = vec![0.0; n];
        key.normals(step, 0, &mut values);
        values.into_iter().map(f64::from).collect()
    }

    #[test]
    fn cauchy_numbers_have_the_quartiles_of_their_law() {
        let n = 1 << 18;
        let mut x = vec![0.0; n];
        Key::new(7, 0, Stream::TrainedScale).cauchys(3, 5, &mut x);
        // P(x < t) = 1/2 + atan(t) / π, and five standard errors of a share.
        for t in [-3.0f64, -1.0, 0.0, 0.5, 10.0] {
            let share = x.iter().filter(|x| f64::from(**x) < t).count() as f64 / n as f64;
            let want = 0.5 + t.atan() / std::f64::consts::PI;
            let error = (want * (1.0 - want) / n as f64).sqrt();
            assert!((share - want).abs() < 5.0 * error, "{t}: {share} against {want}");
        }
        let mut piece = vec![0.0; 40];
        Key::new(7, 0, Stream::TrainedScale).cauchys(3, 105, &mut piece);
        assert_eq!(piece, x[100..140]);
    }

    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>() / a.len() as f64
    }

    #[test]
    fn moments_are_those_of_a_standard_normal() {
        let n = 1 << 20;
        let x = sample(Key::new(7, 0, Stream::Sampler), 3, n);
        let moment = |k: i32| x.iter().map(|v| v.powi(k)).sum::<f64>() / n as f64;
        // Five standard errors of each moment: Var(x^k) = E x^2k − (E x^k)².
        let bound = |variance: f64| 5.0 * (variance / n as f64).sqrt();
        assert!(moment(1).abs() < bound(1.0));
        assert!((moment(2) - 1.0).abs() < bound(2.0));
        assert!(moment(3).abs() < bound(15.0));
        assert!((moment(4) - 3.0).abs() < bound(96.0));
        let beyond_two = x.iter().filter(|v| v.abs() > 2.0).count() as f64 / n as f64;
        assert!((beyond_two - 0.045_500_26).abs() < bound(0.0455));
        assert!(x.iter().all(|v| v.abs() <= 6.67));
    }

    #[test]
    fn streams_are_independent() {
        let n = 1 << 17;
        let base = sample(Key::new(1, 0, Stream::Sampler), 0, n);
        let bound = 5.0 / (n as f64).sqrt();
        let others = [
            (Key::new(2, 0, Stream::Sampler), 0),
            (Key::new(1 << 32 | 1, 0, Stream::Sampler), 0),
            (Key::new(1, 1, Stream::Sampler), 0),
            (Key::new(1, 0, Stream::Initial), 0),
            (Key::new(1, 0, Stream::Sampler), 1),
            (Key::new(1, 0, Stream::Sampler), 1 << 32),
        ];
        for (key, step) in others {
            let other = sample(key, step, n);
            let r = correlation(&base, &other);
            assert!(r.abs() < bound, "{key:?} step {step}: correlation {r}");
        }
        for lag in [1, 31, 32, 33, 64, 96, 128] {
            let r = correlation(&base[..n - lag], &base[lag..]);
            assert!(r.abs() < bound, "lag {lag}: correlation {r}");
        }
    }

    #[test]
    fn a_piece_equals_the_same_piece_of_the_whole() {
        let key = Key::new(11, 2, Stream::Sampler);
        let mut whole = [0.0; 700];
        key.normals(5, 0, &mut whole);
        for (first, len) in [(0, 1), (1, 300), (127, 2), (128, 128), (333, 367)] {
            let mut piece = vec![0.0; len];
            key.normals(5, first, &mut piece);
            assert_eq!(piece, whole[first..first + len]);
        }
        assert_eq!(key.normal(5, 421), whole[421]);
    }

    #[test]
    fn permutations_hold_every_row_once_and_differ() {
        let key = Key::new(3, 0, Stream::Shuffle);
        let a = key.permutation(0, 1000);
        let mut sorted = a.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
        assert_ne!(a, key.permutation(1, 1000));
        assert_eq!(a, key.permutation(0, 1000));
    }

    #[test]
    fn uniforms_fill_the_interval() {
        let key = Key::new(3, 0, Stream::Initial);
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|i| key.uniform(0, i) as f64).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0 / n as f64).sqrt());
        assert!(values.iter().all(|v| *v > 0.0 && *v < 1.0));
    }
}
