//! Forward passes and input gradients of stride 2, 3x3 or 1x1 (`kernels/strided.cu`).

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};

use super::{ALIGNED, MEMORY, Map, PLANE, PRODUCT, Phases, allow_memory, channels};
use crate::cuda::context::Value;
use crate::cuda::dnn::{Direction, Geometry};
use crate::cuda::error::Named;
use crate::error::EngineError;

/// Rows and columns of a square of pixels.
pub(super) const SIDE: usize = 8;
/// Channels that a block can write: forward all multiples of 16 from one to the other, and these
/// for data.
const WRITTEN: [usize; 2] = [32, 128];
const WRITTEN_DATA: [usize; 2] = [64, 32];
/// The most channels that are read.
const MOST_READ: usize = 256;
/// How many cuts are worth measuring.
const CANDIDATES: usize = 2;
/// Boxes that are on their way or being multiplied, at least and at most; the kernel knows the
/// second.
const SLOTS: [usize; 2] = [4, 12];
/// Threads of a block, of which all but the last 128 multiply.
const THREADS: u32 = 384;

/// How a pass is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    direction: Direction,
    /// Taps of the filter, nine or one.
    taps: usize,
    /// Channels that are read, in whole products.
    read: usize,
    /// Channels that a block writes.
    pub(super) written: usize,
    slots: usize,
    /// Blocks by squares and by channels.
    blocks: [usize; 2],
}

impl Cut {
    /// Those worth measuring, the likeliest first: what is read is read once for every tile.
    pub(super) fn all(
        geometry: &Geometry,
        direction: Direction,
        multiprocessors: usize,
    ) -> Vec<Cut> {
        let [_, all] = channels(geometry, direction);
        let mut tiles: Vec<usize> = if direction == Direction::Data {
            let most = all.next_multiple_of(WRITTEN_DATA[1]);
            WRITTEN_DATA.into_iter().filter(|tile| *tile <= most).collect()
        } else {
            let [least, most] = WRITTEN;
            let tile = |tiles| all.div_ceil(tiles).next_multiple_of(16).max(least);
            (1..=all.div_ceil(least)).map(tile).filter(|tile| *tile <= most).collect()
        };
        tiles.dedup();
        let cut = |tile| Cut::new(geometry, direction, tile, multiprocessors);
        tiles.into_iter().filter_map(cut).take(CANDIDATES).collect()
    }

    /// `None` where pixels do not come in squares, or a block cannot keep the filter.
    fn new(
        geometry: &Geometry,
        direction: Direction,
        written: usize,
        multiprocessors: usize,
    ) -> Option<Cut> {
        let [read, all] = channels(geometry, direction);
        let squares = squares(geometry)?;
        let tiles = all.div_ceil(written);
        let blocks = [(multiprocessors / tiles).clamp(1, squares), tiles];
        let read = read.next_multiple_of(PRODUCT);
        let taps = geometry.filter[2] * geometry.filter[3];
        let mut cut = Cut { direction, taps, read, written, slots: 0, blocks };
        cut.slots = (MEMORY.saturating_sub(cut.filter_bytes()) / slot_bytes()).min(SLOTS[1]);
        (cut.slots >= SLOTS[0] && read <= MOST_READ).then_some(cut)
    }

    fn filter_bytes(&self) -> usize {
        let data = self.direction == Direction::Data;
        let read = if data { self.read } else { self.planes() * PLANE };
        (self.taps * self.written * 2 * read).next_multiple_of(ALIGNED)
    }

    fn planes(&self) -> usize {
        self.read.div_ceil(PLANE)
    }

    /// Pixels that are fetched on a side of a square: 3x3 reads one more.
    fn side(&self) -> usize {
        if self.taps == 1 { SIDE } else { SIDE + 1 }
    }

    fn memory(&self) -> usize {
        self.filter_bytes() + self.slots * slot_bytes()
    }

    /// What the kernel is compiled with.
    pub(super) fn defines(&self) -> Vec<String> {
        let last = (self.read - 1) % PLANE / PRODUCT + 1;
        let mut defines = vec![format!("LAST_STEPS={last}"), format!("WRITTEN={}", self.written)];
        defines.extend((self.direction == Direction::Data).then(|| "DATA".to_owned()));
        defines.extend((self.taps == 1).then(|| "ONE".to_owned()));
        defines
    }
}

/// Squares of a batch of outputs; `None` where they are not whole.
pub(super) fn squares(geometry: &Geometry) -> Option<usize> {
    let [images, _, height, width] = geometry.output;
    let whole = [height, width].iter().all(|side| side.is_multiple_of(SIDE));
    whole.then_some(images * (height / SIDE) * (width / SIDE))
}

/// Bytes of 64 channels of a square and of one more row and column.
fn slot_bytes() -> usize {
    ((SIDE + 1) * (SIDE + 1) * 2 * PLANE).next_multiple_of(ALIGNED)
}

/// A pass that is ready to run.
pub(crate) struct Strided {
    function: CudaFunction,
    geometry: Geometry,
    cut: Cut,
}

impl Strided {
    pub(super) fn new(
        function: impl Fn(&str) -> Result<CudaFunction, EngineError>,
        geometry: Geometry,
        cut: Cut,
    ) -> Result<Self, EngineError> {
        let function = function("strided")?;
        allow_memory(&function)?;
        Ok(Self { function, geometry, cut })
    }

    pub(super) fn run(
        &self,
        stream: &CudaStream,
        [x, w, y, _]: [u64; 4],
    ) -> Result<(), EngineError> {
        let (g, cut) = (&self.geometry, &self.cut);
        let (phases, pixels);
        let mut launch = stream.launch_builder(&self.function);
        let (to, fetched) = if cut.direction == Direction::Data {
            pixels = Map::pixels(y, g.output, 2 * PLANE, [cut.side(), cut.side(), 1])?;
            launch.arg(&pixels);
            (x, [cut.written, cut.read])
        } else {
            phases = Phases::new(x, g.input, SIDE)?;
            launch.arg(&phases);
            (y, [PLANE, cut.written])
        };
        let filter = Map::filter(w, g.filter, fetched)?;
        let [images, _, height, width] = g.output;
        let [_, written] = channels(g, cut.direction);
        let shape = [images, height, width, written, cut.read, cut.planes(), cut.slots];
        let shape = shape.map(|size| size as u32);
        let (to, shape) = (Value::At(to).slot(), Value::Words(shape.to_vec()).slot());
        let config = LaunchConfig {
            grid_dim: (cut.blocks[0] as u32, cut.blocks[1] as u32, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: cut.memory() as u32,
        };
        launch.arg(&filter).arg(&to).arg(&shape);
        // SAFETY: these are the arguments of `strided`, and it writes as many channels of as many
        // pixels as there are.
        unsafe { launch.launch(config) }.named("strided")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{strided, strided_one};
    use super::*;

    const BOTH: [Direction; 2] = [Direction::Forward, Direction::Data];

    #[test]
    fn cuts_fit_into_memory_and_write_all_channels() {
        for side in [16, 32] {
            for inputs in [8, 24, 48, 64, 104, 128] {
                for outputs in [8, 24, 40, 72, 80, 112, 128, 256] {
                    let both = [strided, strided_one].map(|of| of(5, inputs, outputs, side));
                    for (g, direction) in both.into_iter().flat_map(|g| BOTH.map(|d| (g, d))) {
                        let cuts = Cut::all(&g, direction, 132);
                        assert!(!cuts.is_empty(), "{direction:?} {inputs} {outputs}");
                        for cut in cuts {
                            let [read, written] = channels(&g, direction);
                            assert!(cut.memory() <= MEMORY && cut.read >= read, "{cut:?}");
                            assert!(cut.blocks[1] * cut.written >= written, "{cut:?}");
                            assert!(cut.blocks[0] * cut.blocks[1] <= 132, "{cut:?}");
                            assert!(cut.filter_bytes().is_multiple_of(ALIGNED), "{cut:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_tile_is_tried_before_two() {
        for (outputs, tiles) in [(64, [64, 32]), (80, [80, 48]), (112, [112, 64]), (128, [128, 64])]
        {
            let cuts = Cut::all(&strided(512, 64, outputs, 32), Direction::Forward, 132);
            assert_eq!(cuts.iter().map(|cut| cut.written).collect::<Vec<_>>(), tiles);
            let data = Cut::all(&strided(512, 64, outputs, 32), Direction::Data, 132);
            assert_eq!(data[0].written, 64);
        }
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        for direction in BOTH {
            let refused = |g: Geometry| Cut::all(&g, direction, 132).is_empty();
            assert!(refused(strided(5, 264, 264, 32)));
            assert!(refused(strided(5, 64, 64, 28)));
        }
    }
}
