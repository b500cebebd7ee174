//! The same networks on the CPU and on a GPU: outputs, losses, gradients and running statistics.

mod crowded;
mod draws;
mod own;
mod setting;
mod steady;

use std::sync::Arc;

pub(super) use self::setting::{Manner, Setting, encode};
use self::setting::{predicted, training_draw};
use self::steady::has_kinks;
use super::Precision;
use super::context::Gpu;
use super::lower::PlanOptions;
use super::networks::{Case, cases};
use super::nvrtc::{self, source};
use super::plan::CudaPlan;
use crate::arena::{Arena, Kernel};
use crate::dataset::Dataset;
use crate::error::EngineError;
use crate::network::Network;
use crate::noise::{Key, Stream};
use crate::param::Param;
use crate::plan::Plan;

/// One line of the self test.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// In which arithmetic.
    pub precision: Precision,
    /// The largest difference, as a part of the largest value of the same tensor.
    pub worst: f64,
    /// What is allowed.
    pub limit: f64,
    /// Whether `worst` is within `limit`.
    pub passed: bool,
}

impl Check {
    /// What is not a number does not pass.
    pub fn new(name: String, precision: Precision, worst: f64, limit: f64) -> Self {
        Self { name, precision, worst, limit, passed: worst <= limit }
    }
}

/// f32: what different orders of summation give. tf32 rounds operands to 11 bits (5e-4) and bf16
/// everything between layers to 8 bits (4e-3), and a handful of layers stand behind one another.
fn limit(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-4,
        Precision::Tf32 => 5e-3,
        Precision::Bf16 => 2e-2,
    }
}

/// Gradients of a network with kinks may differ by `limit` and this many times what rounding noise
/// on its weights and inputs does to them on the CPU alone.
///
/// A value that rounding moves over the kink of a ReLU, or past its neighbour in a maximum, moves
/// its whole gradient, so no fixed limit is right for all networks. The measured noise is one
/// rounding of weights and inputs. tf32 rounds the operands of every product, and bf16 all that
/// goes from layer to layer, on the way back as well.
fn roundings(precision: Precision) -> f64 {
    match precision {
        Precision::F32 | Precision::Tf32 => 3.0,
        Precision::Bf16 => 3.5,
    }
}

/// The largest limit that a gradient gets, as a part of its own length: a gradient that is wrong in
/// a part of a tensor must not pass. With values away from kinks, `roundings` move that of any
/// weight tensor by less, and most by far less; a test holds them to that.
fn cap(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-3,
        Precision::Tf32 => 3e-2,
        Precision::Bf16 => 3e-1,
    }
}

/// Kernels of the self test alone, for a test that compiles them all.
#[cfg(test)]
pub(super) use self::draws::KERNELS;

/// How much is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Whole,
    /// Every kernel of ours, for memory checkers: no engines of the libraries are measured, no
    /// precision that differs in the libraries alone, and no limits that take the CPU long to find.
    Quick,
}

/// Compares the noise, every operation and whole networks with the CPU, in every precision.
/// `wanted` hears the name of every part and says whether it runs.
pub fn selftest(
    gpu: &Arc<Gpu>,
    extent: Extent,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    if wanted("noise") {
        checks.extend(draws::draws(gpu)?);
    }
    if wanted("convolutions by our own kernels") {
        checks.extend(own::own(gpu)?);
    }
    if wanted("convolutions by plain kernels") {
        checks.extend(own::plain(gpu)?);
    }
    if wanted("convolutions beside copies") {
        checks.extend(crowded::crowded(gpu, extent)?);
    }
    let precisions: &[Precision] = match extent {
        Extent::Whole => &[Precision::F32, Precision::Tf32, Precision::Bf16],
        Extent::Quick => &[Precision::F32, Precision::Bf16],
    };
    for precision in precisions {
        if wanted(&format!("networks in {}", precision.name())) {
            for case in cases()? {
                checks.extend(compare(gpu, &case, *precision, extent)?);
            }
        }
    }
    Ok(checks)
}

/// Whether every kernel of the engine that this GPU can run has run, and these besides; those that
/// have not are named.
pub fn kernels_that_ran(gpu: &Gpu, besides: &[Kernel]) -> Check {
    let hopper: &[&str] = if gpu.is_hopper() { &source::HOPPER } else { &[] };
    let session = super::session::KERNELS.map(|kernel| kernel.source);
    let mut sources: Vec<&str> = source::USUAL.iter().chain(hopper).copied().collect();
    sources.extend(session.into_iter().chain([crate::augment::CUDA_SOURCE]));
    sources.extend(besides.iter().map(|kernel| kernel.source));
    sources.sort_unstable();
    sources.dedup();
    let all: usize = sources.iter().map(|source| nvrtc::entries(source).count()).sum();
    let unused: Vec<&str> = sources.iter().flat_map(|source| gpu.unused(source)).collect();
    let names = if unused.is_empty() { String::new() } else { format!(": {}", unused.join(", ")) };
    let name = format!("kernels of {all} that did not run{names}");
    Check::new(name, Precision::Bf16, unused.len() as f64, 0.0)
}

/// What a device made of a setting.
#[derive(Default)]
struct Outcome {
    loss: f64,
    gradient: Vec<f32>,
    stats: Vec<f32>,
    inference: Vec<f32>,
}

fn on_cpu(network: &Network, setting: &Setting, batch: usize) -> Result<Outcome, EngineError> {
    let width = network.loss().target_len(network.output_len());
    let data = |setting: &Setting| {
        let (inputs, targets) = (setting.inputs.clone(), setting.targets.clone());
        Dataset::new(network.input_len(), width, inputs, targets)
    };
    let (data, all) = (data(setting)?, data(&setting.repeated(network))?);
    let mut arena = Arena::new(network, 0);
    arena.set_weights(&setting.weights)?;
    arena.set_stats(&setting.stats)?;
    let mut plan = Plan::new(network, batch)?;
    let mut inference = vec![0.0; all.rows() * network.output_len()];
    plan.set_draw(predicted());
    plan.forward(&setting.weights, &setting.stats, &all, 0..all.rows(), &mut inference)?;
    plan.set_draw(training_draw());
    let rows: Vec<u32> = (0..batch as u32).collect();
    let loss = plan.gradient(&mut arena, &data, &rows)?;
    let (gradient, stats) = (arena.gradient().to_vec(), arena.stats().to_vec());
    Ok(Outcome { loss, gradient, stats, inference })
}

/// Runs twice; the second time must give the same bits.
fn on_gpu(
    gpu: &Gpu,
    network: &Network,
    setting: &Setting,
    plan: &mut CudaPlan,
) -> Result<(Outcome, bool), EngineError> {
    let mut buffers = setting.repeated(network).upload(gpu, network, plan)?;
    let io = buffers.io(gpu);
    gpu.write(&mut buffers.noise, &predicted().kernel_words())?;
    plan.forward(&io)?;
    let inference = plan.read_output()?;
    gpu.write(&mut buffers.noise, &training_draw().kernel_words())?;
    plan.forward_backward(&io)?;
    let first = gpu.download(&buffers.gradient)?;
    let loss = gpu.download(&buffers.tally)?[0];
    let mut after = gpu.download(&buffers.stats)?;
    after.truncate(setting.stats.len());
    plan.forward_backward(&io)?;
    let second = gpu.download(&buffers.gradient)?;
    let same = first.iter().zip(&second).all(|(a, b)| a.to_bits() == b.to_bits());
    Ok((Outcome { loss, gradient: first, stats: after, inference }, same))
}

/// The largest difference as a part of the largest value, or of `floor` where that is larger.
fn worst(got: &[f32], expected: &[f32], floor: f64) -> f64 {
    let largest = expected.iter().fold(floor, |m, v| m.max(f64::from(v.abs())));
    let difference = |(a, b): (&f32, &f32)| {
        let d = f64::from((a - b).abs());
        if d.is_finite() { d } else { f64::INFINITY }
    };
    got.iter().zip(expected).map(difference).fold(0.0, f64::max) / largest.max(f64::MIN_POSITIVE)
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    let norm = values.map(|v| v * v).sum::<f64>().sqrt();
    if norm.is_finite() { norm } else { f64::INFINITY }
}

/// The norm of a difference.
fn apart(got: &[f32], expected: &[f32]) -> f64 {
    norm(got.iter().zip(expected).map(|(a, b)| f64::from(a - b)))
}

/// Half a unit in the last place of bf16 and of tf32. In f32 operands are not rounded, but sums
/// are, in another order on each device: two units.
fn rounding(precision: Precision) -> f32 {
    match precision {
        Precision::F32 => 2f32.powi(-22),
        Precision::Tf32 => 2f32.powi(-12),
        Precision::Bf16 => 2f32.powi(-9),
    }
}

/// How far noise of this relative size on weights and inputs moves the gradient of each trained
/// tensor on the CPU: the norm of the difference, the largest of some draws.
fn sensitivity(
    case: &Case,
    setting: &Setting,
    size: f32,
    expected: &Outcome,
) -> Result<Vec<f64>, EngineError> {
    let network = &case.network;
    let mut most = vec![0.0; trained(network).count()];
    for draw in 0..16 {
        let noisy = |values: &[f32], seed: u64| -> Vec<f32> {
            let mut noise = vec![0.0; values.len()];
            Key::new(seed, 0, Stream::Observation).normals(draw, 0, &mut noise);
            values.iter().zip(noise).map(|(value, noise)| value * (1.0 + size * noise)).collect()
        };
        let setting = Setting {
            weights: noisy(&setting.weights, 5),
            inputs: noisy(&setting.inputs, 6),
            ..setting.clone()
        };
        let moved = on_cpu(network, &setting, case.batch)?;
        for (most, param) in most.iter_mut().zip(trained(network)) {
            let range = param.range();
            *most = apart(&moved.gradient[range.clone()], &expected.gradient[range]).max(*most);
        }
    }
    Ok(most)
}

/// How the gradient of one tensor is held away from kinks: what its difference is divided by, and
/// to what.
#[derive(Clone, Copy, Debug)]
struct Hold {
    scale: f64,
    limit: f64,
}

impl Hold {
    /// `noise` is how far one rounding moves the gradient, `norm` its length and `floor` what a
    /// length counts as at least.
    ///
    /// A gradient that is mostly rounding, as that of a shift in front of a batch norm, is measured
    /// as a part of that noise, so that no limit is above the cap.
    fn new(noise: f64, norm: f64, floor: f64, precision: Precision) -> Self {
        let allowed = roundings(precision) * noise;
        let scale = norm.max(floor).max(allowed / cap(precision)).max(f64::MIN_POSITIVE);
        Self { scale, limit: (limit(precision) + allowed / scale).min(cap(precision)) }
    }
}

/// One for every trained tensor.
fn holds(
    case: &Case,
    setting: &Setting,
    precision: Precision,
    expected: &Outcome,
) -> Result<Vec<Hold>, EngineError> {
    let noise = sensitivity(case, setting, rounding(precision), expected)?;
    let floor = gradient_floor(expected);
    let hold = |(param, noise): (&Param, f64)| {
        let gradient = &expected.gradient[param.range()];
        let norm = norm(gradient.iter().map(|g| f64::from(*g)));
        // Gradients of scales, shifts and biases are sums over all pixels, and where a batch norm
        // follows they all but cancel. Low precision rounds what is summed, so it cannot give the
        // little that is left; f32, where the same kernels add in the same order, is held to it.
        let sums = precision != Precision::F32 && !param.role.is_weight();
        let floor = if sums { floor } else { 1e-2 * floor };
        Hold::new(noise, norm, floor * (param.len() as f64).sqrt(), precision)
    };
    Ok(trained(&case.network).zip(noise).map(hold).collect())
}

/// A bias in front of a batch norm has no gradient but rounding, so a tensor is measured against a
/// part of the largest gradient at least.
fn gradient_floor(expected: &Outcome) -> f64 {
    1e-2 * expected.gradient.iter().fold(0.0, |m: f64, v| m.max(f64::from(v.abs())))
}

/// The parameters whose gradient means something.
fn trained(network: &Network) -> impl Iterator<Item = &Param> {
    let all = network.params().iter().enumerate();
    all.filter(|(number, _)| network.trains(*number)).map(|(_, param)| param)
}

/// The tensor whose gradient is nearest to its limit, or furthest beyond it: its name, how far its
/// gradient is off, and the limit.
fn nearest<'a>(
    case: &'a Case,
    setting: &Setting,
    (precision, manner): (Precision, Manner),
    (got, expected): (&Outcome, &Outcome),
) -> Result<(&'a str, f64, f64), EngineError> {
    let pairs = |param: &Param| (&got.gradient[param.range()], &expected.gradient[param.range()]);
    let measured: Vec<(f64, f64)> = if manner == Manner::Usual {
        let floor = gradient_floor(expected);
        let measure = |(got, expected): (&[f32], &[f32])| worst(got, expected, floor);
        trained(&case.network).map(|p| (measure(pairs(p)), limit(precision))).collect()
    } else {
        let holds = holds(case, setting, precision, expected)?;
        let measure = |(param, hold): (&Param, Hold)| {
            let (got, expected) = pairs(param);
            (apart(got, expected) / hold.scale, hold.limit)
        };
        trained(&case.network).zip(holds).map(measure).collect()
    };
    let mut most = ("", 0.0, limit(precision));
    for (param, (apart, limit)) in trained(&case.network).zip(measured) {
        if apart / limit >= most.1 / most.2 {
            most = (&param.name, apart, limit);
        }
    }
    Ok(most)
}

fn compare(
    gpu: &Arc<Gpu>,
    case: &Case,
    precision: Precision,
    extent: Extent,
) -> Result<Vec<Check>, EngineError> {
    let batch = case.batch * case.network.repeats();
    let (deterministic, training) = (true, true);
    let hasty = case.hasty || extent == Extent::Quick;
    let options = PlanOptions { batch, precision, deterministic, training, hasty };
    let mut plan = CudaPlan::new(gpu, &case.network, options)?;
    let steady = has_kinks(&case.network) && extent == Extent::Whole;
    let manners: &[Manner] =
        if steady { &[Manner::Usual, Manner::Steady] } else { &[Manner::Usual] };
    let mut checks = Vec::new();
    for manner in manners {
        checks.extend(compare_with(gpu, case, &mut plan, *manner)?);
    }
    Ok(checks)
}

fn compare_with(
    gpu: &Gpu,
    case: &Case,
    plan: &mut CudaPlan,
    manner: Manner,
) -> Result<Vec<Check>, EngineError> {
    let Case { name, network, batch, .. } = case;
    let precision = plan.options().precision;
    let setting = Setting::new(network, *batch, precision, manner);
    let expected = on_cpu(network, &setting, *batch)?;
    let (got, same) = on_gpu(gpu, network, &setting, plan)?;
    let limit = limit(precision);
    let values = if manner == Manner::Steady { ", away from kinks" } else { "" };
    let check = |what: &str, worst: f64, limit: f64| {
        Check::new(format!("{name}{values}: {what}"), precision, worst, limit)
    };
    let mut checks = Vec::new();
    if manner == Manner::Usual {
        let loss = (got.loss - expected.loss).abs() / expected.loss.abs().max(1e-3);
        let loss = if loss.is_finite() { loss } else { f64::INFINITY };
        checks.push(check("inference", worst(&got.inference, &expected.inference, 0.0), limit));
        checks.push(check("loss", loss, limit));
        if !setting.stats.is_empty() {
            let apart = worst(&got.stats, &expected.stats, 0.0);
            checks.push(check("running statistics", apart, limit));
        }
    }
    // In low precision a gradient near kinks says nothing.
    let tells = manner == Manner::Steady || precision == Precision::F32 || !has_kinks(network);
    if tells {
        let both = (&got, &expected);
        let (tensor, apart, limit) = nearest(case, &setting, (precision, manner), both)?;
        checks.push(check(&format!("gradient (worst {tensor})"), apart, limit));
    }
    checks.push(check("same bits twice", f64::from(u8::from(!same)), 0.0));
    Ok(checks)
}

#[cfg(test)]
mod tests;
