//! Forward passes and input gradients that read few channels (`kernels/narrow.cu`).

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};

use super::{ALIGNED, MEMORY, Map, allow_memory, together};
use crate::cuda::context::Value;
use crate::cuda::dnn::{Direction, Geometry};
use crate::cuda::error::Named;
use crate::error::EngineError;

/// Channels that a block writes, of which the kernel knows these.
const TILES: [usize; 3] = [64, 48, 32];
/// The most channels that are read: a block keeps their whole filter.
const MOST_READ: usize = 64;
/// Columns, rows and images of a chunk of 256 pixels.
const CHUNKS: [[usize; 3]; 3] = [[32, 8, 1], [16, 16, 1], [8, 8, 4]];
/// Into how many stages what is on its way is cut at most.
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
    /// `None` where it reads too many channels, or pixels do not come in squares of eight.
    pub(super) fn new(
        geometry: &Geometry,
        direction: Direction,
        multiprocessors: usize,
    ) -> Option<Cut> {
        let [read, all] = channels(geometry, direction);
        let [batch, _, height, width] = geometry.output;
        let [width, rows, images] = CHUNKS.into_iter().find(|chunk| chunk[0] == width)?;
        if read > MOST_READ || !height.is_multiple_of(rows) {
            return None;
        }
        let written = TILES.into_iter().min_by_key(|tile| all.next_multiple_of(*tile))?;
        let read = read.next_multiple_of(16);
        let tiles = all.div_ceil(written);
        let chunks = batch.div_ceil(images) * (height / rows);
        let blocks = [(multiprocessors / tiles).clamp(1, chunks), tiles];
        let mut cut = Cut { direction, read, written, width, rows, images, stages: 0, blocks };
        cut.stages = ((MEMORY - cut.filter_bytes()) / cut.stage_bytes()).min(STAGES);
        (cut.stages >= 2).then_some(cut)
    }

    /// Bytes of a pixel in shared memory.
    fn pixel(&self) -> usize {
        if self.read > 32 { 128 } else { 64 }
    }

    fn filter_bytes(&self) -> usize {
        (9 * self.written * self.pixel()).next_multiple_of(ALIGNED)
    }

    fn stage_bytes(&self) -> usize {
        let pixels = self.images * (self.rows + 2) * (self.width + 2);
        (pixels * self.pixel()).next_multiple_of(ALIGNED)
    }

    fn memory(&self) -> usize {
        self.filter_bytes() + self.stages * self.stage_bytes()
    }

    /// What the kernel is compiled with.
    pub(super) fn defines(&self) -> Vec<String> {
        let Cut { read, written, width, rows, images, stages, .. } = self;
        let mut defines = vec![
            format!("READ={read}"),
            format!("WRITTEN={written}"),
            format!("WIDTH={width}"),
            format!("ROWS={rows}"),
            format!("IMAGES={images}"),
            format!("STAGES={stages}"),
        ];
        defines.extend((self.direction == Direction::Data).then(|| "DATA".to_owned()));
        defines
    }
}

/// Channels that are read and written.
fn channels(geometry: &Geometry, direction: Direction) -> [usize; 2] {
    let [outputs, inputs, ..] = geometry.filter;
    if direction == Direction::Data { [outputs, inputs] } else { [inputs, outputs] }
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
        allow_memory(&function, cut.memory())?;
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
        let pixels = Map::pixels(from, read, cut.pixel(), fetched)?;
        let half = cut.pixel() / 2;
        let fetched = if data { [together(cut.written) / 2, half] } else { [half, cut.written] };
        let filter = Map::filter(w, g.filter, fetched)?;
        let [_, written] = channels(g, cut.direction);
        let shape = [g.output[0], g.output[2], written].map(|size| size as u32);
        let (to, shape) = (Value::At(to).slot(), Value::Words(shape.to_vec()).slot());
        let config = LaunchConfig {
            grid_dim: (cut.blocks[0] as u32, cut.blocks[1] as u32, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: cut.memory() as u32,
        };
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&pixels).arg(&filter).arg(&to).arg(&shape);
        // SAFETY: these are the arguments of `narrow`, and it writes as many channels of as many pixels as there
        // are.
        unsafe { launch.launch(config) }.named("narrow")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::geometry;
    use super::*;

    #[test]
    fn cuts_fit_into_memory_and_write_all_channels() {
        for side in [8, 16, 32] {
            for read in [8, 24, 48, 64] {
                for written in [8, 40, 64, 80, 160] {
                    let g = geometry(5, read, written, side);
                    let cut = Cut::new(&g, Direction::Forward, 132).unwrap();
                    assert_eq!(cut.images * cut.rows * cut.width, 256);
                    assert!(cut.memory() <= MEMORY && cut.read >= read, "{cut:?}");
                    assert!(cut.blocks[1] * cut.written >= written, "{cut:?}");
                    let turned = Cut::new(&geometry(5, written, read, side), Direction::Data, 132);
                    assert_eq!(turned.unwrap().blocks, cut.blocks);
                }
            }
        }
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let refused = |g: Geometry| Cut::new(&g, Direction::Forward, 132).is_none();
        assert!(refused(geometry(5, 72, 64, 32)));
        assert!(refused(geometry(5, 64, 64, 28)));
        let mut low = geometry(5, 64, 64, 16);
        (low.input[2], low.output[2]) = (8, 8);
        assert!(refused(low));
    }
}
