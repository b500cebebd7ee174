//! Convolutions by kernels of our own for Hopper, used where cuDNN is measured to be slower: 3x3,
//! of which a block fetches a pixel once and reads it for all nine taps, and 1x1 of stride 2.

mod filter;
mod map;
mod narrow;
mod strided;
mod strided_filter;

use std::collections::{BTreeMap, BTreeSet};

use cudarc::driver::sys::CUfunction_attribute as Attribute;
use cudarc::driver::{CudaFunction, CudaStream};

use self::map::{Map, Phases};
use super::Precision;
use super::context::Gpu;
use super::conv::Problem;
use super::dnn::{Direction, Geometry};
use super::error::Named;
use super::nvrtc::source;
use crate::error::EngineError;

/// Bytes of shared memory that a block may have, less what barriers take.
const MEMORY: usize = 225 << 10;
/// Stages are aligned to the pattern in which shared memory is swizzled.
const ALIGNED: usize = 1024;

/// The text of a kernel, and what it is compiled with.
pub(super) type Kernel = (&'static str, Vec<String>);

/// Channels of a pixel that are fetched and lie together, and those of one product.
const PLANE: usize = 64;
const PRODUCT: usize = 16;

/// How a pass is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Filter(filter::Cut),
    Narrow(narrow::Cut),
    Strided(strided::Cut),
    StridedFilter(strided_filter::Cut),
}

impl Cut {
    /// Those worth measuring, the likeliest first; none where no kernel can do it.
    pub(crate) fn all(problem: &Problem, gpu: &Gpu) -> Vec<Cut> {
        if !gpu.is_hopper() || !fits(problem) {
            return Vec::new();
        }
        let multiprocessors = gpu.multiprocessors() as usize;
        let mut cuts = Cut::of(problem, multiprocessors);
        cuts.truncate(if problem.hasty { 1 } else { cuts.len() });
        cuts
    }

    fn of(problem: &Problem, multiprocessors: usize) -> Vec<Cut> {
        let geometry = &problem.geometry;
        let (direction, strided) = (problem.direction, geometry.stride != [1, 1]);
        match (direction, strided) {
            (Direction::Filter, false) => {
                filter::Cut::all(geometry, multiprocessors).into_iter().map(Cut::Filter).collect()
            }
            (Direction::Filter, true) if geometry.filter[2..] == [1, 1] => Vec::new(),
            (Direction::Filter, true) => {
                let cuts = strided_filter::Cut::all(geometry, multiprocessors);
                cuts.into_iter().map(Cut::StridedFilter).collect()
            }
            (_, false) => {
                let cuts = narrow::Cut::all(geometry, direction, multiprocessors);
                cuts.into_iter().map(Cut::Narrow).collect()
            }
            (_, true) => {
                let cuts = strided::Cut::all(geometry, direction, multiprocessors);
                cuts.into_iter().map(Cut::Strided).collect()
            }
        }
    }

    /// What a cut is remembered by: unlike that of any other for the same problem, and one word.
    pub(crate) fn name(&self) -> String {
        match self {
            Cut::Filter(cut) => cut.name(),
            Cut::Narrow(cut) => cut.written.to_string(),
            Cut::Strided(cut) => cut.written.to_string(),
            Cut::StridedFilter(cut) => cut.outputs.to_string(),
        }
    }

    pub(crate) fn kernel(&self) -> Kernel {
        match self {
            Cut::Filter(cut) => (source::FILTER, cut.defines()),
            Cut::Narrow(cut) => (source::NARROW, cut.defines()),
            Cut::Strided(cut) => (source::STRIDED, cut.defines()),
            Cut::StridedFilter(cut) => (source::STRIDED_FILTER, cut.defines()),
        }
    }
}

/// Whether it is a problem for these kernels. Fetching wants channels in multiples of 16 bytes.
fn fits(problem: &Problem) -> bool {
    let g = &problem.geometry;
    let even = g.input[2..].iter().all(|side| side.is_multiple_of(2));
    let known = match (&g.filter[2..], g.padding, g.stride) {
        ([3, 3], [1, 1], [1, 1]) => true,
        ([3, 3], [1, 1], [2, 2]) | ([1, 1], [0, 0], [2, 2]) => even,
        _ => false,
    };
    problem.precision == Precision::Bf16
        && known
        && g.filter[..2].iter().all(|channels| channels.is_multiple_of(8))
}

/// Kernels that hasty plans may use for these problems with as many or fewer channels on both
/// sides, in multiples of sixteen. Those come first that most of these numbers of channels need.
pub(super) fn kernels_of_smaller(
    problems: BTreeSet<Problem>,
    multiprocessors: usize,
) -> Vec<Kernel> {
    // Texts are long: what a kernel is compiled with is compared first.
    let mut shares: BTreeMap<(Vec<String>, &'static str), f64> = BTreeMap::new();
    for whole in problems {
        let [most_outputs, most_inputs, ..] = whole.geometry.filter;
        let share = 1.0 / (most_outputs * most_inputs) as f64;
        let kept = |most: usize| (16..=most).step_by(16);
        let both =
            kept(most_outputs).flat_map(|outputs| kept(most_inputs).map(move |i| [outputs, i]));
        for problem in both.map(|channels| with_channels(whole, channels)).filter(fits) {
            let cuts = Cut::of(&problem, multiprocessors);
            if let Some((source, defines)) = cuts.first().map(Cut::kernel) {
                *shares.entry((defines, source)).or_default() += share;
            }
        }
    }
    let mut kernels: Vec<_> = shares.into_iter().collect();
    kernels.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    kernels.into_iter().map(|((defines, source), _)| (source, defines)).collect()
}

/// The same for so many output and input channels.
fn with_channels(mut problem: Problem, [outputs, inputs]: [usize; 2]) -> Problem {
    let g = &mut problem.geometry;
    (g.input[1], g.output[1]) = (inputs, outputs);
    (g.filter[0], g.filter[1]) = (outputs, inputs);
    problem
}

/// A pass that is ready to run.
pub(crate) enum Own {
    Filter(filter::Filter),
    Narrow(narrow::Narrow),
    Strided(strided::Strided),
    StridedFilter(strided_filter::Filter),
}

impl Own {
    pub(crate) fn new(gpu: &Gpu, problem: &Problem, cut: Cut) -> Result<Self, EngineError> {
        let Problem { geometry, stored, .. } = *problem;
        let (source, defines) = cut.kernel();
        let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
        let function = |entry: &str| gpu.function(source, entry, &defines);
        Ok(match cut {
            Cut::Filter(cut) => Own::Filter(filter::Filter::new(function, geometry, stored, cut)?),
            Cut::Narrow(cut) => Own::Narrow(narrow::Narrow::new(function, geometry, cut)?),
            Cut::Strided(cut) => Own::Strided(strided::Strided::new(function, geometry, cut)?),
            Cut::StridedFilter(cut) => {
                Own::StridedFilter(strided_filter::Filter::new(function, geometry, stored, cut)?)
            }
        })
    }

    /// Bytes that a run needs besides its tensors.
    pub(crate) fn workspace(&self) -> usize {
        match self {
            Own::Filter(filter) => filter.workspace(),
            Own::StridedFilter(filter) => filter.workspace(),
            Own::Narrow(_) | Own::Strided(_) => 0,
        }
    }

    /// Puts it on a stream, for input, filter, output and workspace at these addresses. All are
    /// bf16 but filter gradients, which are f32 and have the channels that the weights have.
    pub(crate) fn run(&self, stream: &CudaStream, at: [u64; 4]) -> Result<(), EngineError> {
        match self {
            Own::Filter(filter) => filter.run(stream, at),
            Own::Narrow(narrow) => narrow.run(stream, at),
            Own::Strided(strided) => strided.run(stream, at),
            Own::StridedFilter(filter) => filter.run(stream, at),
        }
    }
}

/// Channels that a forward pass or an input gradient reads and writes.
fn channels(geometry: &Geometry, direction: Direction) -> [usize; 2] {
    let [outputs, inputs, ..] = geometry.filter;
    if direction == Direction::Data { [outputs, inputs] } else { [inputs, outputs] }
}

/// Lets blocks of a kernel have as much shared memory as any pass wants: passes of different sizes
/// share it.
fn allow_memory(function: &CudaFunction) -> Result<(), EngineError> {
    let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function.set_attribute(attribute, MEMORY as i32).named("cuFuncSetAttribute")
}

/// Bytes of so many channels that lie together in shared memory.
fn together(channels: usize) -> usize {
    [128, 64].into_iter().find(|bytes| (2 * channels).is_multiple_of(*bytes)).unwrap_or(32)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn geometry(batch: usize, inputs: usize, outputs: usize, side: usize) -> Geometry {
        Geometry {
            input: [batch, inputs, side, side],
            filter: [outputs, inputs, 3, 3],
            output: [batch, outputs, side, side],
            stride: [1, 1],
            padding: [1, 1],
        }
    }

    /// Of stride 2, for inputs of this side.
    pub(super) fn strided(batch: usize, inputs: usize, outputs: usize, side: usize) -> Geometry {
        let output = [batch, outputs, side / 2, side / 2];
        Geometry { output, stride: [2, 2], ..geometry(batch, inputs, outputs, side) }
    }

    /// The same of one tap.
    pub(super) fn strided_one(
        batch: usize,
        inputs: usize,
        outputs: usize,
        side: usize,
    ) -> Geometry {
        let (filter, padding) = ([outputs, inputs, 1, 1], [0, 0]);
        Geometry { filter, padding, ..strided(batch, inputs, outputs, side) }
    }

    fn problem(direction: Direction, geometry: Geometry) -> Problem {
        let (precision, stored) = (Precision::Bf16, geometry.filter[1]);
        Problem { direction, geometry, stored, precision, deterministic: true, hasty: false }
    }

    /// Kernels of some networks and what they are compiled with, for a test that compiles them.
    pub(in crate::cuda) fn examples() -> Vec<(&'static str, Vec<String>)> {
        let shapes = [(128, 32), (64, 16), (64, 8), (64, 4), (2, 56), (3, 7)];
        let channels = [(64, 64), (32, 48), (48, 32), (160, 160), (16, 160), (208, 96), (112, 40)];
        let directions = [Direction::Forward, Direction::Data, Direction::Filter];
        let usual = shapes
            .into_iter()
            .flat_map(|shape| channels.map(|channels| (shape, channels)))
            .map(|((batch, side), (inputs, outputs))| geometry(batch, inputs, outputs, side));
        let outputs = [24, 64, 80, 96, 112, 128].map(|outputs| strided(64, 64, outputs, 32));
        let wide = [128, 200, 256].map(|outputs| strided(64, 128, outputs, 16));
        let ones = [24, 64, 112, 128].map(|outputs| strided_one(64, 56, outputs, 32));
        let mut kernels: Vec<_> = usual
            .chain(outputs)
            .chain(wide)
            .chain(ones)
            .flat_map(|geometry| directions.map(|direction| problem(direction, geometry)))
            .flat_map(|problem| Cut::of(&problem, 132))
            .map(|cut| cut.kernel())
            .collect();
        kernels.sort();
        kernels.dedup();
        kernels
    }

    /// Those of a residual network of 18 layers on pictures of 32 by 32.
    fn residual_network(batch: usize) -> BTreeSet<Problem> {
        let stages = [(64, 32), (128, 16), (256, 8), (512, 4)];
        let usual = stages.map(|(channels, side)| geometry(batch, channels, channels, side));
        let down = [(64, 32), (128, 16), (256, 8)];
        let down = down.map(|(channels, side)| strided(batch, channels, 2 * channels, side));
        let directions = [Direction::Forward, Direction::Data, Direction::Filter];
        let shortcuts = [(64, 32), (128, 16), (256, 8)];
        let shortcuts =
            shortcuts.map(|(channels, side)| strided_one(batch, channels, 2 * channels, side));
        let all = usual.into_iter().chain(down).chain(shortcuts);
        all.flat_map(|geometry| directions.map(|direction| problem(direction, geometry))).collect()
    }

    #[test]
    fn smaller_networks_need_few_kernels() {
        for batch in [64, 512] {
            let kernels = kernels_of_smaller(residual_network(batch), 132);
            let count = |source| kernels.iter().filter(|kernel| kernel.0 == source).count();
            // Four numbers of products in the last plane, three tiles, five chunks, two directions.
            assert!((1..=120).contains(&count(source::NARROW)), "{}", count(source::NARROW));
            // Four tiles, swapped or not, for each of four sizes of pictures.
            assert!((1..=32).contains(&count(source::FILTER)), "{}", count(source::FILTER));
            assert!((1..=4).contains(&count(source::STRIDED_FILTER)));
            // Four numbers of products in the last plane, seven tiles forward and two back, 3x3 or
            // 1x1.
            assert!((1..=72).contains(&count(source::STRIDED)), "{}", count(source::STRIDED));
        }
    }

    /// Whatever is kept, a hasty plan finds its kernel.
    #[test]
    fn kernels_of_smaller_networks_are_among_those_that_are_listed() {
        let kernels = kernels_of_smaller(residual_network(64), 132);
        assert_eq!(kernels, kernels_of_smaller(residual_network(64), 132));
        for whole in residual_network(64) {
            let [outputs, inputs, ..] = whole.geometry.filter;
            for channels in [[outputs, inputs], [outputs, 32], [48, inputs], [64, 16]] {
                let smaller = with_channels(whole, channels);
                if let Some(cut) = Cut::of(&smaller, 132).first() {
                    assert!(kernels.contains(&cut.kernel()), "{smaller:?}");
                }
            }
        }
    }

    #[test]
    fn other_convolutions_are_left_to_the_library() {
        let fitting = problem(Direction::Forward, geometry(4, 64, 64, 32));
        assert!(fits(&fitting));
        assert!(fits(&problem(Direction::Forward, strided(4, 64, 64, 32))));
        assert!(fits(&problem(Direction::Data, strided_one(4, 64, 64, 32))));
        assert!(Cut::of(&problem(Direction::Filter, strided_one(4, 64, 64, 32)), 132).is_empty());
        let mut others = [fitting; 6];
        others[0].geometry.stride = [2, 1];
        others[1].geometry.padding = [0, 0];
        others[2].geometry.filter = [64, 64, 1, 1];
        others[3].geometry = geometry(4, 60, 64, 32);
        others[4].precision = Precision::Tf32;
        others[5].geometry = strided(4, 64, 64, 31);
        assert!(others.iter().all(|problem| !fits(problem)));
    }
}
