//! Forward passes and input gradients that read few channels or write few (`kernels/narrow.cu`).

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};

use super::{ALIGNED, MEMORY, Map, PLANE, PRODUCT, allow_memory, channels, together};
use crate::cuda::context::Value;
use crate::cuda::dnn::{Direction, Geometry};
use crate::cuda::error::Named;
use crate::error::EngineError;

/// Channels that a block writes, of which the kernel knows these.
const TILES: [usize; 3] = [64, 48, 32];
/// Columns, rows and images of a chunk, with 256 pixels first and then, where there are such, with
/// 128.
const CHUNKS: [[usize; 3]; 5] = [[32, 8, 1], [16, 16, 1], [16, 8, 1], [8, 8, 4], [8, 8, 2]];
/// Channels of which the library's tiles waste nothing.
const WHOLE: usize = 128;
/// What a product costs besides its channels, in channels: its pixels are read from shared memory
/// all the same.
const BESIDES: usize = 24;
/// How much longer than with the likeliest tile a pass may be expected to take to be worth
/// measuring, and how many tiles are.
const WASTE: f64 = 1.4;
const CANDIDATES: usize = 2;
/// Into how many stages what is on its way is cut at most, as the kernel knows.
const STAGES: usize = 4;
/// Threads of a block, of which all but the last 128 multiply.
const THREADS: u32 = 640;

/// How a pass is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    direction: Direction,
    /// Channels that are read, in whole products.
    read: usize,
    /// Channels that a block writes.
    pub(super) written: usize,
    width: usize,
    rows: usize,
    images: usize,
    stages: usize,
    /// Blocks by chunks and by channels.
    blocks: [usize; 2],
}

impl Cut {
    /// Those worth measuring, the likeliest first. None where pixels do not come in squares of
    /// eight, where the filter is too large to be kept, and where the library's tiles fit exactly.
    pub(super) fn all(
        geometry: &Geometry,
        direction: Direction,
        multiprocessors: usize,
    ) -> Vec<Cut> {
        let [read, all] = channels(geometry, direction);
        if [read, all].iter().all(|channels| channels.is_multiple_of(WHOLE)) {
            return Vec::new();
        }
        let cost = |tile: usize| all.div_ceil(tile) * (tile + BESIDES);
        let mut tiles = TILES.to_vec();
        tiles.sort_by_key(|tile| cost(*tile));
        let cut = |tile: usize| Cut::new(geometry, direction, tile, multiprocessors);
        let mut cuts: Vec<Cut> = tiles.into_iter().filter_map(cut).collect();
        let most = cuts.first().map_or(0.0, |cut| WASTE * cost(cut.written) as f64);
        cuts.retain(|cut| cost(cut.written) as f64 <= most);
        cuts.truncate(CANDIDATES);
        cuts
    }

    fn new(
        geometry: &Geometry,
        direction: Direction,
        written: usize,
        multiprocessors: usize,
    ) -> Option<Cut> {
        let [read, all] = channels(geometry, direction);
        let [batch, _, height, wide] = geometry.output;
        let read = read.next_multiple_of(PRODUCT);
        let tiles = all.div_ceil(written);
        let cut = |[width, rows, images]: [usize; 3]| {
            let chunks = batch.div_ceil(images) * (height / rows);
            let blocks = [(multiprocessors / tiles).clamp(1, chunks.max(1)), tiles];
            let mut cut = Cut { direction, read, written, width, rows, images, stages: 0, blocks };
            cut.stages = MEMORY.saturating_sub(cut.filter_bytes()) / cut.stage_bytes();
            cut.stages = cut.stages.min(STAGES);
            cut
        };
        let fits = |[width, rows, _]: &[usize; 3]| *width == wide && height.is_multiple_of(*rows);
        CHUNKS.into_iter().filter(fits).map(cut).find(|cut| cut.stages >= 2)
    }

    /// Planes before the last one, which is all of the channels where they are few.
    fn full(&self) -> usize {
        (self.read - 1) / PLANE
    }

    /// Channels that are read of the last plane.
    fn rest(&self) -> usize {
        self.read - self.full() * PLANE
    }

    /// Bytes of a pixel in the last plane, in shared memory.
    fn last(&self) -> usize {
        2 * self.rest().next_power_of_two()
    }

    fn filter_bytes(&self) -> usize {
        let pixel = 2 * PLANE * self.full() + self.last();
        (9 * self.written * pixel).next_multiple_of(ALIGNED)
    }

    fn stage_bytes(&self) -> usize {
        let pixels = self.images * (self.rows + 2) * (self.width + 2);
        let pixel = if self.full() > 0 { 2 * PLANE } else { self.last() };
        (pixels * pixel).next_multiple_of(ALIGNED)
    }

    fn memory(&self) -> usize {
        self.filter_bytes() + self.stages * self.stage_bytes()
    }

    /// What the kernel is compiled with.
    pub(super) fn defines(&self) -> Vec<String> {
        let Cut { written, width, rows, images, .. } = self;
        let mut defines = vec![
            format!("LAST_STEPS={}", self.rest() / PRODUCT),
            format!("WRITTEN={written}"),
            format!("WIDTH={width}"),
            format!("ROWS={rows}"),
            format!("IMAGES={images}"),
        ];
        defines.extend((self.direction == Direction::Data).then(|| "DATA".to_owned()));
        defines
    }
}

/// A pass that is ready to run.
pub(crate) struct Narrow {
    function: CudaFunction,
    geometry: Geometry,
    cut: Cut,
}

impl Narrow {
    pub(super) fn new(
        function: impl Fn(&str) -> Result<CudaFunction, EngineError>,
        geometry: Geometry,
        cut: Cut,
    ) -> Result<Self, EngineError> {
        let function = function("narrow")?;
        allow_memory(&function)?;
        Ok(Self { function, geometry, cut })
    }

    pub(super) fn run(
        &self,
        stream: &CudaStream,
        [x, w, y, _]: [u64; 4],
    ) -> Result<(), EngineError> {
        let (g, cut) = (&self.geometry, &self.cut);
        let data = cut.direction == Direction::Data;
        let (from, read, to) = if data { (y, g.output, x) } else { (x, g.input, y) };
        let fetched = [cut.width + 2, cut.rows + 2, cut.images];
        let pixels = |bytes: usize| Map::pixels(from, read, bytes, fetched);
        let filter = |bytes: usize| {
            let (written, read) = (cut.written, bytes / 2);
            let fetched = if data { [together(written) / 2, read] } else { [read, written] };
            Map::filter(w, g.filter, fetched)
        };
        let maps =
            [pixels(2 * PLANE)?, pixels(cut.last())?, filter(2 * PLANE)?, filter(cut.last())?];
        let [_, written] = channels(g, cut.direction);
        let in_turn = usize::from(in_turn(cut.full() + 1, cut.stages));
        let shape = [g.output[0], g.output[2], written, cut.full(), cut.stages, in_turn];
        let shape = shape.map(|size| size as u32);
        let (to, shape) = (Value::At(to).slot(), Value::Words(shape.to_vec()).slot());
        let config = LaunchConfig {
            grid_dim: (cut.blocks[0] as u32, cut.blocks[1] as u32, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: cut.memory() as u32,
        };
        let mut launch = stream.launch_builder(&self.function);
        for map in &maps {
            launch.arg(map);
        }
        launch.arg(&to).arg(&shape);
        // SAFETY: these are the arguments of `narrow`, and it writes as many channels of as many
        // pixels as there are.
        unsafe { launch.launch(config) }.named("narrow")?;
        Ok(())
    }
}

/// Whether the two pairs of groups must take turns: a pair begins a chunk of so many planes when
/// the other pair has got all planes of the chunk before it.
///
/// A pair waits for a stage by the parity of its turn. Where the stage had a plane of the other
/// pair before, that plane may still be on its way, and the turn before that one has the parity
/// that is waited for. Only where a stage belongs to one pair for good can this not happen.
fn in_turn(planes: usize, stages: usize) -> bool {
    planes > 1 || !stages.is_multiple_of(2)
}

#[cfg(test)]
mod turns;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::geometry;
    use super::*;

    #[test]
    fn cuts_fit_into_memory_and_write_all_channels() {
        for side in [8, 16, 32] {
            for read in [8, 24, 48, 64, 80, 128] {
                for written in [8, 40, 64, 80, 160] {
                    let g = geometry(5, read, written, side);
                    let cuts = Cut::all(&g, Direction::Forward, 132);
                    assert!(!cuts.is_empty(), "{side} {read} {written}");
                    for cut in &cuts {
                        let pixels = cut.images * cut.rows * cut.width;
                        assert!([128, 256].contains(&pixels), "{cut:?}");
                        assert!(cut.memory() <= MEMORY && cut.read >= read, "{cut:?}");
                        assert!(cut.blocks[1] * cut.written >= written, "{cut:?}");
                    }
                    let turned = geometry(5, written, read, side);
                    let turned = Cut::all(&turned, Direction::Data, 132);
                    assert_eq!(turned.len(), cuts.len());
                    assert_eq!(turned[0].blocks, cuts[0].blocks);
                }
            }
        }
    }

    /// One for each tile, size of a chunk and number of products of the last plane, however many
    /// channels are read.
    #[test]
    fn few_kernels_do_for_all_channels() {
        let mut kernels = BTreeSet::new();
        for read in (8..=256).step_by(8) {
            for written in (8..=256).step_by(8) {
                let cuts = Cut::all(&geometry(64, read, written, 16), Direction::Forward, 132);
                kernels.extend(cuts.iter().map(Cut::defines));
            }
        }
        assert!(kernels.len() <= 4 * TILES.len() * 2, "{}", kernels.len());
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let refused = |g: Geometry| Cut::all(&g, Direction::Forward, 132).is_empty();
        assert!(refused(geometry(5, 400, 64, 32)));
        assert!(refused(geometry(5, 64, 64, 28)));
        assert!(refused(geometry(5, 128, 256, 16)));
        let mut low = geometry(5, 64, 64, 32);
        (low.input[2], low.output[2]) = (4, 4);
        assert!(refused(low));
    }
}
