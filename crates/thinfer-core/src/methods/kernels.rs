//! The CUDA kernels of the methods, and the numbers of one step as they read them.
//!
//! Every pass has one signature: weights, what the network reads where that is kept apart, its bf16
//! copy, gradient, two state buffers, marks, length, a table of scalars with one entry a step, the
//! step, a factor on the gradient, and the numbers that key the noise where the weights are those
//! of a smaller network. Buffers that a pass does not use may be null, and so may the last two;
//! only the update of Algorithms 2 and 3 reads the numbers. A pass writes the bf16 copy of what the
//! network reads: an update writes it where the network reads the weights themselves, a
//! materialisation where it does not.
//!
//! Launch with 256 threads a block and 8 to 16 blocks a multiprocessor. Buffers start at a multiple
//! of 16 bytes.

use thinfer_engine::noise::{CUDA_SOURCE, Key};
use thinfer_engine::{Law, joined};

use super::sghmc::{NoiseRule, RhoRule};
use super::{csgmcmc, cv_adam, rank1, sgd, sghmc};
pub use thinfer_engine::Kernel;

/// A kernel without definitions.
pub(super) const fn kernel(source: &'static str, entry: &'static str) -> Kernel {
    Kernel { source, entry, defines: &[] }
}

const SGD_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("sgd.cu"));
const CSGMCMC_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("csgmcmc.cu"));
const CV_ADAM_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("cv_adam.cu"));
const SGHMC_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("sghmc.cu"));
const RANK1_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("rank1.cu"));
const MASK_SOURCE: &str = joined!(CUDA_SOURCE, include_str!("mask.cu"));

/// SGD's update; [`SgdScalars`]. State: momentum.
pub const SGD: Kernel = kernel(SGD_SOURCE, "sgd");
/// The same where pruned weights stay zero; [`SgdScalars`]. State: momentum.
pub const SGD_MASKED: Kernel = kernel(SGD_SOURCE, "sgd_masked");
/// Algorithm 1: writes the weights that the network reads; [`CvAdamScalars`].
pub const CV_ADAM_DRAW: Kernel = kernel(CV_ADAM_SOURCE, "cv_adam_draw");
/// Algorithm 1's update; [`CvAdamScalars`]. State: m, ρ.
pub const CV_ADAM: Kernel = kernel(CV_ADAM_SOURCE, "cv_adam");
/// Writes the masked weights to what the network reads. No scalars.
pub const MASK: Kernel = kernel(MASK_SOURCE, "mask");

/// The update of Algorithms 2 and 3; [`SghmcScalars`]. State: v, ρ.
pub const fn sghmc(noise: NoiseRule, rho: RhoRule) -> Kernel {
    let defines: &[&str] = match (noise, rho) {
        (NoiseRule::Exact, RhoRule::Exact) => &["NOISE_RULE=0", "RHO_RULE=0"],
        (NoiseRule::Exact, RhoRule::Code) => &["NOISE_RULE=0", "RHO_RULE=1"],
        (NoiseRule::Exact, RhoRule::Printed) => &["NOISE_RULE=0", "RHO_RULE=2"],
        (NoiseRule::Paper, RhoRule::Exact) => &["NOISE_RULE=1", "RHO_RULE=0"],
        (NoiseRule::Paper, RhoRule::Code) => &["NOISE_RULE=1", "RHO_RULE=1"],
        (NoiseRule::Paper, RhoRule::Printed) => &["NOISE_RULE=1", "RHO_RULE=2"],
    };
    Kernel { source: SGHMC_SOURCE, entry: "sghmc", defines }
}

/// The update of cSGHMC, and without momentum that of cSGLD; [`CsgmcmcScalars`]. State: u.
pub const fn csgmcmc(momentum: bool) -> Kernel {
    let defines: &[&str] = if momentum { &["MOMENTUM=1"] } else { &["MOMENTUM=0"] };
    Kernel { source: CSGMCMC_SOURCE, entry: "csgmcmc", defines }
}

/// The update of the Rank-1 BNN; [`Rank1Scalars`]. State: momentum.
pub const fn rank1(law: Law) -> Kernel {
    let defines: &[&str] = match law {
        Law::Gaussian => &["CAUCHY=0"],
        Law::Cauchy => &["CAUCHY=1"],
    };
    Kernel { source: RANK1_SOURCE, entry: "rank1", defines }
}

/// The same with the masked weights written in the same pass.
pub const SGHMC_FORWARD: Kernel =
    Kernel { defines: &["FORWARD=1"], ..sghmc(NoiseRule::Exact, RhoRule::Exact) };

/// Every kernel of every method, for a test that compiles them all.
pub fn all() -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    for kernel in super::METHODS.iter().flat_map(|method| method.kernels) {
        if !kernels.contains(kernel) {
            kernels.push(*kernel);
        }
    }
    kernels
}

/// One entry of a kernel's table of scalars, as 32-bit words in the order of its struct.
pub trait Scalars {
    /// The words.
    fn words(&self) -> Vec<u32>;
}

/// `Scalars` of `sgd.cu`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdScalars {
    /// The numbers.
    pub coeffs: sgd::Coeffs,
    /// What the gradient of a pruned weight does, where there is a mask.
    pub pruned: Option<sgd::Pruned>,
}

impl Scalars for SgdScalars {
    fn words(&self) -> Vec<u32> {
        let sgd::Coeffs { momentum, decay, rate, nesterov } = self.coeffs;
        let mut words = [momentum, decay, rate].map(f32::to_bits).to_vec();
        words.push(u32::from(nesterov));
        words.push(u32::from(self.pruned == Some(sgd::Pruned::KeepsMomentum)));
        words
    }
}

/// `Scalars` of `csgmcmc.cu`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CsgmcmcScalars {
    /// The numbers.
    pub coeffs: csgmcmc::Coeffs,
    /// The key of the noise.
    pub key: Key,
    /// The step, from 0.
    pub step: u64,
}

impl Scalars for CsgmcmcScalars {
    fn words(&self) -> Vec<u32> {
        let csgmcmc::Coeffs { momentum, rate, decay, noise } = self.coeffs;
        with_key(self.key, self.step, &[momentum, rate, decay, noise])
    }
}

/// `Scalars` of `rank1.cu`. The law of the coefficients chooses the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rank1Scalars {
    /// The numbers.
    pub coeffs: rank1::Coeffs,
}

impl Scalars for Rank1Scalars {
    fn words(&self) -> Vec<u32> {
        let rank1::Coeffs { sgd, kl, prior, .. } = self.coeffs;
        [sgd.momentum, sgd.decay, sgd.rate, kl, prior].map(f32::to_bits).to_vec()
    }
}

/// `Scalars` of `cv_adam.cu`: one step of Algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CvAdamScalars {
    /// The numbers.
    pub coeffs: cv_adam::Coeffs,
    /// The key of the noise.
    pub key: Key,
    /// The step, from 0.
    pub step: u64,
}

impl Scalars for CvAdamScalars {
    /// Products that are the same for every weight are made here, in the order in which the CPU
    /// makes them, so that they have the same bits.
    fn words(&self) -> Vec<u32> {
        let c = &self.coeffs;
        let numbers = [
            c.beta1,
            c.beta2,
            c.rate,
            c.alpha,
            c.alpha * c.alpha * c.decay,
            c.eta,
            c.n,
            1.0 / c.n,
            c.decay,
        ];
        with_key(self.key, self.step, &numbers)
    }
}

/// `Scalars` of `sghmc.cu`: one step of Algorithms 2 and 3. The rules of the coefficients choose
/// the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SghmcScalars {
    /// The numbers.
    pub coeffs: sghmc::Coeffs,
    /// The key of the noise.
    pub key: Key,
    /// The step, from 0.
    pub step: u64,
}

impl Scalars for SghmcScalars {
    fn words(&self) -> Vec<u32> {
        let c = &self.coeffs;
        let paper = sghmc::Coeffs { noise: NoiseRule::Paper, ..*c };
        let (k_dt, alpha) = (c.k * c.dt, c.k * c.dt * c.dt.sqrt());
        let numbers = [
            c.memory,
            c.beta2 * c.dt * c.dt,
            k_dt,
            2.0 * (1.0 - c.beta1),
            paper.noise_scale(sghmc::Tau::new(1.0)),
            alpha,
            alpha * alpha,
            if k_dt > 0.0 { alpha * alpha / k_dt } else { 0.0 },
            c.eta,
            c.n,
            1.0 / c.n,
            c.slab_decay,
            c.spike_decay,
        ];
        let mut words = with_key(self.key, self.step, &numbers);
        words.push(u32::from(c.freeze));
        words
    }
}

/// The words of the noise at a step, then numbers.
pub(super) fn with_key(key: Key, step: u64, numbers: &[f32]) -> Vec<u32> {
    key.kernel_words(step).into_iter().chain(numbers.iter().map(|x| x.to_bits())).collect()
}
