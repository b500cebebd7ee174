//! Filter gradients of stride 2 (`kernels/strided_filter.cu`).

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};

use super::filter::{add_up, best_splits};
use super::strided::{SIDE, squares};
use super::{ALIGNED, MEMORY, Map, Phases, allow_memory, together};
use crate::cuda::context::Value;
use crate::cuda::dnn::Geometry;
use crate::cuda::error::Named;
use crate::error::EngineError;

/// Output channels of a tile, of which the kernel knows these.
const TILES: [usize; 4] = [80, 64, 48, 32];
/// Input channels of a tile.
const IN: usize = 64;
/// Into how many stages what is on its way and being multiplied is cut at most.
const STAGES: usize = 5;
/// Threads of a block, of which all but the last 128 multiply.
const THREADS: u32 = 512;
/// How many tiles are worth measuring.
const CANDIDATES: usize = 2;
/// What a block does besides its squares, in squares, and how many bytes of sums take as long as
/// one.
const BESIDES: f64 = 6.0;
const SUMMED: f64 = 2e6;

/// How a filter gradient is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Output channels of a tile.
    pub(super) outputs: usize,
    stages: usize,
    /// Blocks that share the pixels of a tile.
    splits: usize,
}

impl Cut {
    /// Those worth measuring, the likeliest first: few tiles, because all of them read the same
    /// inputs, and small ones. None where pixels do not come in squares.
    pub(super) fn all(geometry: &Geometry, multiprocessors: usize) -> Vec<Cut> {
        let Some(squares) = squares(geometry) else { return Vec::new() };
        let mut tiles = TILES;
        tiles.sort_by_key(|tile| (geometry.filter[0].div_ceil(*tile), *tile));
        let cut = |outputs| Cut::new(geometry, outputs, squares, multiprocessors);
        tiles.into_iter().take(CANDIDATES).map(cut).collect()
    }

    fn new(geometry: &Geometry, outputs: usize, squares: usize, multiprocessors: usize) -> Cut {
        let mut cut = Cut { outputs, stages: 0, splits: 1 };
        cut.stages = (MEMORY / cut.stage_bytes()).min(STAGES);
        let sums = geometry.filter.iter().product::<usize>() as f64 * 4.0 / SUMMED;
        let blocks = [cut.tiles(geometry), squares];
        cut.splits = best_splits(blocks, BESIDES, sums, multiprocessors);
        cut
    }

    fn tiles(&self, geometry: &Geometry) -> usize {
        let [outputs, inputs, ..] = geometry.filter;
        outputs.div_ceil(self.outputs) * inputs.div_ceil(IN)
    }

    fn stage_bytes(&self) -> usize {
        let read = (2 * SIDE + 1) * (2 * SIDE + 1) * 2 * IN;
        read.next_multiple_of(ALIGNED) + SIDE * SIDE * 2 * self.outputs
    }

    fn memory(&self) -> usize {
        self.stages * self.stage_bytes()
    }

    /// What the kernel is compiled with.
    pub(super) fn defines(&self) -> Vec<String> {
        vec![format!("TILE={}", self.outputs), format!("STAGES={}", self.stages)]
    }
}

/// A filter gradient ready to run.
pub(crate) struct Filter {
    parts: CudaFunction,
    sum: CudaFunction,
    geometry: Geometry,
    /// Input channels that the gradient has.
    stored: usize,
    cut: Cut,
}

impl Filter {
    pub(super) fn new(
        function: impl Fn(&str) -> Result<CudaFunction, EngineError>,
        geometry: Geometry,
        stored: usize,
        cut: Cut,
    ) -> Result<Self, EngineError> {
        let (parts, sum) = (function("filter_parts")?, function("filter_sum")?);
        allow_memory(&parts)?;
        Ok(Self { parts, sum, geometry, stored, cut })
    }

    /// Bytes that a run needs besides its tensors: the sums of all blocks.
    pub(super) fn workspace(&self) -> usize {
        self.cut.splits * self.geometry.filter.iter().product::<usize>() * 4
    }

    /// Puts it on a stream, for input, filter gradient in f32, output gradient and workspace at
    /// these addresses.
    pub(super) fn run(
        &self,
        stream: &CudaStream,
        [x, dw, dy, workspace]: [u64; 4],
    ) -> Result<(), EngineError> {
        let (g, cut) = (&self.geometry, &self.cut);
        let x = Phases::new(x, g.input, SIDE)?;
        let dy = Map::pixels(dy, g.output, together(cut.outputs), [SIDE, SIDE, 1])?;
        let [outputs, inputs, ..] = g.filter;
        let [images, _, height, width] = g.output;
        let shape = [images, height, width, inputs, outputs, cut.splits].map(|size| size as u32);
        let shape = Value::Words(shape.to_vec()).slot();
        let partial = Value::At(workspace).slot();
        let config = LaunchConfig {
            grid_dim: ((cut.tiles(g) * cut.splits) as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: cut.memory() as u32,
        };
        let mut parts = stream.launch_builder(&self.parts);
        parts.arg(&x).arg(&dy).arg(&partial).arg(&shape);
        // SAFETY: these are the arguments of `filter_parts`, and the workspace has room for its
        // sums.
        unsafe { parts.launch(config) }.named("filter_parts")?;
        add_up(stream, &self.sum, [outputs, inputs, self.stored], [workspace, dw], cut.splits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::strided;
    use super::*;

    #[test]
    fn cuts_fit_into_memory_and_share_all_squares() {
        for side in [16, 32] {
            for batch in [1, 3, 64, 512] {
                for outputs in [8, 40, 80, 112, 256] {
                    let g = strided(batch, 64, outputs, side);
                    for cut in Cut::all(&g, 132) {
                        assert!(cut.stages >= 3 && cut.memory() <= MEMORY, "{cut:?}");
                        assert!(squares(&g).is_some_and(|all| cut.splits <= all), "{cut:?}");
                        assert!(cut.outputs * cut.tiles(&g) >= outputs, "{cut:?}");
                    }
                }
            }
        }
        assert!(Cut::all(&strided(3, 64, 64, 28), 132).is_empty());
    }

    /// With as few tiles as possible, inputs are read as rarely as possible.
    #[test]
    fn few_and_small_tiles_come_first() {
        for (outputs, tile) in [(24, 32), (64, 64), (80, 80), (96, 48), (112, 64), (160, 80)] {
            assert_eq!(Cut::all(&strided(512, 64, outputs, 32), 132)[0].outputs, tile);
        }
    }
}
