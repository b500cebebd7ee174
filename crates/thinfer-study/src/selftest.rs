//! Whether this machine computes what it should: on the CPU against known answers, on a GPU
//! against the CPU.

mod methods;

use std::cell::Cell;
use std::sync::Arc;

use serde::Serialize;
use thinfer_core::methods::{Method, Rates, Tick, initialize};
use thinfer_core::model::image_network;
use thinfer_data::Result;
use thinfer_data::threads::Threads;
use thinfer_engine::cuda::{self, Gpu, Precision};
use thinfer_engine::noise::{Key, Stream, philox4x32};
use thinfer_engine::{Arena, Dataset, Loss, Network, NetworkBuilder, Plan, Shape, Window};

use crate::bench::{example_method, random_batch, usual_input};
pub use thinfer_engine::cuda::Extent;

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// The arithmetic of the GPU; none on the CPU.
    pub precision: Option<Precision>,
    /// The largest difference, as a part of what the name says, or how many numbers differ where
    /// none may.
    pub worst: f64,
    /// What is allowed.
    pub limit: f64,
    /// Whether `worst` is within `limit`.
    pub passed: bool,
}

impl Check {
    /// A check on the CPU. What is not a number does not pass.
    fn new(name: impl Into<String>, worst: f64, limit: f64) -> Self {
        Self { name: name.into(), precision: None, worst, limit, passed: worst <= limit }
    }
}

impl From<cuda::Check> for Check {
    fn from(check: cuda::Check) -> Self {
        let cuda::Check { name, precision, worst, limit, passed } = check;
        Self { name, precision: Some(precision), worst, limit, passed }
    }
}

/// The checks that need no GPU.
pub fn cpu() -> Result<Vec<Check>> {
    Ok(vec![
        known_words(),
        known_normals(),
        gradient()?,
        threads("lenet", 33)?,
        threads("wrn-10-1", 9)?,
    ])
}

/// The checks of a GPU: the noise, every operation and whole networks in every precision, short
/// runs of every method in f32 and in bf16, a batch of images, and whether every kernel has run.
/// `wanted` hears the name of every part and says whether it runs; where one did not, nothing is
/// said of kernels that did not run.
pub fn cuda(gpu: &Arc<Gpu>, extent: Extent, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Check>> {
    let skipped = Cell::new(false);
    let wanted = |part: &str| {
        let wanted = wanted(part);
        skipped.set(skipped.get() || !wanted);
        wanted
    };
    let mut checks = cuda::selftest(gpu, extent, &wanted)?;
    if wanted("methods on tables") {
        checks.extend(methods::methods(gpu)?);
    }
    if wanted("a batch of images") {
        checks.extend(methods::images(gpu)?);
    }
    if wanted("methods on images") {
        checks.extend(methods::image_runs(gpu, extent)?);
    }
    if wanted("methods on images in bf16") {
        checks.extend(methods::low_runs(gpu)?);
    }
    if !skipped.get() {
        checks.push(cuda::kernels_that_ran(gpu, &thinfer_core::methods::kernels::all()));
    }
    Ok(checks.into_iter().map(Check::from).collect())
}

/// The known-answer vectors that Random123 publishes for `philox4x32 10`.
fn known_words() -> Check {
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    let wrong = cases.iter().flat_map(|(counter, key, want)| {
        let got = philox4x32(*counter, *key);
        (0..4).filter(move |&word| got[word] != want[word])
    });
    Check::new("noise: words of Philox", wrong.count() as f64, 0.0)
}

/// Box-Muller in f64 on the words that the layout of the noise names.
fn known_normals() -> Check {
    let (seed, chain, step) = (0x1234_5678_9abc_def0_u64, 3, 70_000_000_000_u64);
    let key = Key::new(seed, chain, Stream::Sampler);
    let mut got = vec![0.0; 4096];
    key.normals(step, 0, &mut got);
    let want = |index: usize| {
        let block = (32 * (index / 128) + index % 32) as u32;
        let high = ((step >> 32) as u32) << 16 | Stream::Sampler as u32;
        let words =
            philox4x32([block, step as u32, high, chain], [seed as u32, (seed >> 32) as u32]);
        let lane = index / 32 % 4;
        let (radius, angle) = if lane < 2 { (words[0], words[1]) } else { (words[2], words[3]) };
        // The uniform number is rounded to f32 by definition; everything after it is exact here.
        let uniform = f64::from(((radius >> 1) as i32 as f32 + 0.5) * (1.0 / 2_147_483_648.0));
        let turn = (f64::from(angle) / 4_294_967_296.0 - 0.125) * std::f64::consts::TAU;
        let r = (-2.0 * uniform.ln()).sqrt();
        if lane.is_multiple_of(2) { r * turn.cos() } else { r * turn.sin() }
    };
    let apart = got.iter().enumerate().map(|(index, got)| (f64::from(*got) - want(index)).abs());
    Check::new("noise: normal numbers against f64", apart.fold(0.0, largest), 5e-6)
}

/// The larger one; what is not a number stays one.
fn largest(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Two convolutions, one strided, a batch norm and a linear layer, without kinks.
fn smooth_network() -> Result<Network> {
    let mut b = NetworkBuilder::image(Shape { height: 8, width: 7, channels: 2 });
    let mut at = b.conv2d("conv1", b.input(), 4, Window::square(3, 1, 1))?;
    at = b.batch_norm("bn1", at)?;
    at = b.tanh(at)?;
    at = b.conv2d_with("conv2", at, 6, Window::square(3, 2, 1), true)?;
    at = b.tanh(at)?;
    at = b.global_average_pool(at)?;
    at = b.linear("fc", at, 3)?;
    Ok(b.finish(at, Loss::cross_entropy())?)
}

/// The slope of the loss along two directions of every parameter, the gradient itself and a random
/// one, against differences of fourth order, as a part of the parameter's gradient.
fn gradient() -> Result<Check> {
    const ROWS: usize = 6;
    // Rounding of the loss divided by this is the error that is left; the fourth order is far
    // below.
    const STEP: f64 = 0.02;
    let network = smooth_network()?;
    let data = random_batch(&network, ROWS)?;
    let rows: Vec<u32> = (0..ROWS as u32).collect();
    let mut arena = Arena::new(&network, 0);
    initialize(&mut arena, network.loss(), 1, 0)?;
    let mut plan = Plan::new(&network, ROWS)?;
    plan.gradient(&mut arena, &data, &rows)?;
    let (weights, gradient) = (arena.weights(), arena.gradient());
    let whole = norm(gradient);
    let mut scratch = vec![0.0; weights.len()];
    let mut worst = 0.0;
    for param in network.params() {
        let own = &gradient[param.range()];
        let mut random = vec![0.0; own.len()];
        Key::new(7, 0, Stream::Inputs).normals(0, param.offset, &mut random);
        for direction in [own, &random] {
            let length = norm(direction);
            let mut loss_at = |far: f64| {
                let mut moved = weights.to_vec();
                for (w, d) in moved[param.range()].iter_mut().zip(direction) {
                    *w += (far * STEP * f64::from(*d) / length) as f32;
                }
                let mut stats = arena.stats().to_vec();
                plan.gradient_at(&moved, &mut stats, &data, &rows, &mut scratch)
            };
            let near = loss_at(1.0)? - loss_at(-1.0)?;
            let far = loss_at(2.0)? - loss_at(-2.0)?;
            let measured = (8.0 * near - far) / (12.0 * STEP);
            let products = own.iter().zip(direction).map(|(g, d)| f64::from(*g) * f64::from(*d));
            let slope = products.sum::<f64>() / length;
            worst = largest(worst, (measured - slope).abs() / norm(own).max(0.05 * whole));
        }
    }
    Ok(Check::new("gradient of convolutions against differences", worst, 5e-3))
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// One step of Algorithm 2 on one thread and on two: how many numbers have other bits.
fn threads(model: &str, batch: usize) -> Result<Check> {
    let (shape, classes) = usual_input(model);
    let network = image_network(model, shape, classes)?;
    let data = random_batch(&network, batch)?;
    let one = step_on(1, &network, &data)?;
    let two = step_on(2, &network, &data)?;
    let differ = one.iter().zip(&two).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    Ok(Check::new(format!("{model}: the same bits on 1 and 2 threads"), differ as f64, 0.0))
}

/// Gradient, weights and running statistics after a step on so many threads.
fn step_on(threads: usize, network: &Network, data: &Dataset) -> Result<Vec<f32>> {
    let pool = Threads::new(threads);
    pool.install(|| {
        let method = example_method();
        let mut arena = Arena::new(network, method.state_buffers());
        initialize(&mut arena, network.loss(), 1, 0)?;
        method.start(&mut arena, method.key)?;
        let rows: Vec<u32> = (0..data.rows() as u32).collect();
        Plan::new(network, data.rows())?.gradient(&mut arena, data, &rows)?;
        let rates = Rates {
            step_size: 1e-3,
            step_size_before: 1e-3,
            temperature: 1e-2,
            eta: 1e-3,
            decay_factor: 1.0,
        };
        method.update(&mut arena, Tick { step: 1, epoch: 0, rates });
        Ok([arena.gradient(), arena.weights(), arena.stats()].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_computes_what_it_should() {
        for check in cpu().unwrap() {
            assert!(check.passed, "{check:?}");
        }
    }

    #[test]
    fn what_is_not_a_number_does_not_pass() {
        assert!(!Check::new("x", f64::NAN, 1.0).passed);
        assert!(largest(f64::NAN, 1.0).is_nan() && largest(1.0, f64::NAN).is_nan());
        assert_eq!(largest(1.0, 2.0), 2.0);
    }
}
