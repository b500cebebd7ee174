//! Filter gradients (`kernels/filter.cu`).

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};

use super::{ALIGNED, MEMORY, Map, PRODUCT, allow_memory, together};
use crate::cuda::context::Value;
use crate::cuda::dnn::Geometry;
use crate::cuda::error::Named;
use crate::error::EngineError;

/// Columns of a tile, which are input channels unless it is swapped, of which the kernel knows
/// these, and what it counts beside one of 32: about the time that it took, so that the fastest
/// come first (`results/bench`).
const TILES: [(usize, f64); 4] = [(80, 3.05), (64, 1.9), (48, 1.65), (32, 1.0)];
/// Its rows, which are output channels unless it is swapped.
const OUT: usize = 64;
/// Pixels that are fetched together, or fewer.
const PIXELS: usize = 128;
/// Into how many stages what is on its way and being multiplied is cut at most.
const STAGES: usize = 6;
/// Threads of a block, of which all but the last 128 multiply.
const THREADS: u32 = 512;
/// Threads of a block that adds up.
const SUMMERS: usize = 256;
/// Columns below which most of a tile would be empty.
const LEAST: usize = 24;
/// How much longer than with the likeliest tile a gradient may be expected to take to be worth
/// measuring, and how many tiles are.
const WASTE: f64 = 1.25;
const CANDIDATES: usize = 3;
/// What a block does besides its chunks, in chunks, and how many bytes of sums take as long as one
/// of a full tile.
const BESIDES: f64 = 4.0;
const SUMMED: f64 = 4e6;

/// How a filter gradient is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Columns of a tile.
    inputs: usize,
    /// Whether rows of a tile are input channels and its columns output channels.
    swapped: bool,
    /// Columns, rows and images of a chunk of pixels.
    width: usize,
    rows: usize,
    images: usize,
    stages: usize,
    /// Blocks that share the pixels of a tile.
    splits: usize,
}

impl Cut {
    /// Those worth measuring, the likeliest first.
    pub(super) fn all(geometry: &Geometry, multiprocessors: usize) -> Vec<Cut> {
        let cut = |columns: usize, time: f64, swapped: bool| {
            let cut = Cut::new(geometry, columns, swapped, multiprocessors)?;
            Some((time * cut.tiles(geometry) as f64, cut))
        };
        let sooner = |a: &(f64, Cut), b: &(f64, Cut)| a.0.total_cmp(&b.0);
        // Where both ways take as long, it is not swapped.
        let either = |(columns, time)| {
            [false, true]
                .into_iter()
                .filter_map(|swapped| cut(columns, time, swapped))
                .min_by(sooner)
        };
        let mut cuts: Vec<(f64, Cut)> = TILES.into_iter().filter_map(either).collect();
        cuts.sort_by(sooner);
        let most = cuts.first().map_or(0.0, |(time, _)| WASTE * time);
        let worth = cuts.into_iter().filter(|(time, _)| *time <= most);
        worth.take(CANDIDATES).map(|(_, cut)| cut).collect()
    }

    fn new(
        geometry: &Geometry,
        inputs: usize,
        swapped: bool,
        multiprocessors: usize,
    ) -> Option<Cut> {
        let [all, _, height, width] = geometry.output;
        // Eight pixels in a row are read together, and sixteen at a time.
        let width = width.next_multiple_of(8);
        let rows = (PIXELS / width).clamp(1, height);
        let images = (PIXELS / (width * rows)).clamp(1, all);
        let images = if (rows * images * width).is_multiple_of(16) { images } else { images + 1 };
        let mut cut = Cut { inputs, swapped, width, rows, images, stages: 0, splits: 1 };
        cut.stages = ((MEMORY - cut.row_bytes()) / cut.stage_bytes()).min(STAGES);
        let blocks = [cut.tiles(geometry), cut.chunks(geometry)];
        let sums = geometry.filter.iter().product::<usize>() as f64 * 4.0 / SUMMED;
        let sums = sums * TILES[0].0 as f64 / inputs as f64;
        cut.splits = best_splits(blocks, BESIDES, sums, multiprocessors);
        // With fewer, fetching and multiplying would take turns. A box has at most 256 pixels a
        // side.
        let fits = cut.stages >= 3 && width + 2 <= 256 && cut.sides(geometry)[1] >= LEAST;
        fits.then_some(cut)
    }

    /// Channels in rows and in columns of tiles.
    fn sides(&self, geometry: &Geometry) -> [usize; 2] {
        let [outputs, inputs, ..] = geometry.filter;
        if self.swapped { [inputs, outputs] } else { [outputs, inputs] }
    }

    fn tiles(&self, geometry: &Geometry) -> usize {
        let [rows, columns] = self.sides(geometry);
        rows.div_ceil(OUT) * columns.div_ceil(self.inputs)
    }

    fn chunks(&self, geometry: &Geometry) -> usize {
        let [images, _, height, _] = geometry.output;
        images.div_ceil(self.images) * height.div_ceil(self.rows)
    }

    fn stage_bytes(&self) -> usize {
        let whole = |bytes: usize| bytes.next_multiple_of(ALIGNED);
        let outputs = self.images * self.rows * self.width * 2 * OUT;
        let inputs = self.images * (self.rows + 2) * (self.width + 2) * together(self.inputs);
        whole(outputs) + 2 * self.inputs / together(self.inputs) * whole(inputs)
    }

    /// Bytes of the matrix that describes the three taps of a row, where they are one product. Its
    /// columns overlap in memory, so the product reads fewer. All of it lies in the block's memory
    /// nevertheless: a checker cannot tell a description that reaches beyond it from a wrong read.
    fn row_bytes(&self) -> usize {
        let one_plane = together(self.inputs) == 2 * self.inputs;
        if one_plane { 3 * self.inputs * 2 * PRODUCT } else { 0 }
    }

    /// Bytes of shared memory that a block has.
    fn memory(&self) -> usize {
        self.stages * self.stage_bytes() + self.row_bytes()
    }

    /// What the kernel is compiled with.
    pub(super) fn defines(&self) -> Vec<String> {
        let Cut { inputs, width, rows, images, stages, .. } = self;
        let mut defines = vec![
            format!("TILE={inputs}"),
            format!("WIDTH={width}"),
            format!("ROWS={rows}"),
            format!("IMAGES={images}"),
            format!("STAGES={stages}"),
        ];
        defines.extend(self.swapped.then(|| "SWAPPED".to_owned()));
        defines
    }

    /// What it is remembered by.
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.inputs, if self.swapped { "-swapped" } else { "" })
    }

    /// Bytes of sums of all blocks.
    fn workspace(&self, geometry: &Geometry) -> usize {
        self.splits * geometry.filter.iter().product::<usize>() * 4
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

    /// Bytes that a run needs besides its tensors.
    pub(super) fn workspace(&self) -> usize {
        self.cut.workspace(&self.geometry)
    }

    /// Puts it on a stream, for input, filter gradient in f32, output gradient and workspace at
    /// these addresses.
    pub(super) fn run(
        &self,
        stream: &CudaStream,
        [x, dw, dy, workspace]: [u64; 4],
    ) -> Result<(), EngineError> {
        let (g, cut) = (&self.geometry, &self.cut);
        let Cut { width, rows, images, splits, .. } = *cut;
        let [(wide, wide_shape), (whole, whole_shape)] = if cut.swapped {
            [(dy, g.output), (x, g.input)]
        } else {
            [(x, g.input), (dy, g.output)]
        };
        let border = [width + 2, rows + 2, images];
        let x = Map::pixels(wide, wide_shape, together(cut.inputs), border)?;
        let dy = Map::pixels(whole, whole_shape, 2 * OUT, [width, rows, images])?;
        let [outputs, inputs] = cut.sides(g);
        let shape = [g.output[0], g.output[2], inputs, outputs, splits];
        let shape = Value::Words(shape.map(|size| size as u32).to_vec()).slot();
        let partial = Value::At(workspace).slot();
        let config = LaunchConfig {
            grid_dim: ((cut.tiles(g) * splits) as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: cut.memory() as u32,
        };
        let mut parts = stream.launch_builder(&self.parts);
        parts.arg(&x).arg(&dy).arg(&partial).arg(&shape);
        // SAFETY: these are the arguments of `filter_parts`, and the workspace has room for its
        // sums.
        unsafe { parts.launch(config) }.named("filter_parts")?;
        add_up(stream, &self.sum, [outputs, inputs, self.stored], [workspace, dw], splits)
    }
}

/// How many blocks share the chunks of a tile, where what a block does besides them and the sums of
/// all tiles take as long as so many chunks. Few blocks leave multiprocessors without work, many
/// have much to add up.
pub(super) fn best_splits(
    [tiles, chunks]: [usize; 2],
    besides: f64,
    sums: f64,
    multiprocessors: usize,
) -> usize {
    let cost = |splits: usize| {
        let waves = (tiles * splits).div_ceil(multiprocessors) as f64;
        waves * (chunks.div_ceil(splits) as f64 + besides) + splits as f64 * sums
    };
    let all = 1..=chunks.min(2 * multiprocessors);
    all.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(1)
}

/// Puts the addition of the sums of all splits on a stream, for tiles over so many rows and columns
/// and a gradient with so many input channels.
pub(super) fn add_up(
    stream: &CudaStream,
    function: &CudaFunction,
    [rows, columns, stored]: [usize; 3],
    [from, to]: [u64; 2],
    splits: usize,
) -> Result<(), EngineError> {
    let quads = rows * 9 * columns / 4;
    // Few splits are added by one thread; for many there would be too few threads.
    let shares = (splits / 4).next_power_of_two().min(8);
    let config = LaunchConfig {
        grid_dim: (quads.div_ceil(SUMMERS / shares) as u32, 1, 1),
        block_dim: (SUMMERS as u32, 1, 1),
        shared_mem_bytes: 0,
    };
    let [from, to] = [from, to].map(|address| Value::At(address).slot());
    let numbers = [quads, splits, shares, columns, stored];
    let numbers = numbers.map(|value| Value::U32(value as u32).slot());
    let mut sum = stream.launch_builder(function);
    sum.arg(&from).arg(&to);
    for number in &numbers {
        sum.arg(number);
    }
    // SAFETY: these are the arguments of `filter_sum`, and the gradient has that many numbers.
    unsafe { sum.launch(config) }.named("filter_sum")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::geometry;
    use super::*;

    #[test]
    fn cuts_cover_all_pixels_and_fit_into_memory() {
        for side in [1, 4, 5, 7, 8, 13, 14, 16, 28, 32, 33, 56, 112] {
            for batch in [1, 3, 64, 128] {
                for (inputs, _) in TILES {
                    let g = geometry(batch, 160, 96, side);
                    let Some(cut) = Cut::new(&g, inputs, side % 2 == 0, 132) else {
                        // Long rows, two images of them, and pixels that are mostly border are too
                        // much for three stages.
                        assert!([1, 33, 112].contains(&side), "{side} {inputs}");
                        continue;
                    };
                    let pixels = cut.images * cut.rows * cut.width;
                    assert!(pixels.is_multiple_of(16) && cut.width >= side, "{cut:?}");
                    assert!(cut.chunks(&g) * pixels >= batch * side * side, "{cut:?}");
                    assert!(cut.memory() <= MEMORY, "{cut:?}");
                    assert!((1..=cut.chunks(&g)).contains(&cut.splits), "{cut:?}");
                }
            }
        }
    }

    /// NVIDIA's memory checker takes the matrix of a product to lie in one piece from its start on.
    /// In the last stage the last of the three taps of a row would reach beyond the block's memory
    /// then.
    #[test]
    fn what_describes_a_product_lies_in_the_memory_of_the_block() {
        for side in [4, 5, 7, 8, 13, 16, 28, 32] {
            for (inputs, _) in TILES {
                let Some(cut) = Cut::new(&geometry(64, 160, 96, side), inputs, false, 132) else {
                    continue;
                };
                let Cut { width, rows, images, stages, .. } = cut;
                let pixel = together(inputs);
                // The first of the last sixteen pixels, which the third group reads two lines on.
                let group = images * rows * width / 8 - 2;
                let line = group / (width / 8);
                let line = line / rows * (rows + 2) + line % rows + 2;
                let start = line * (width + 2) + group % (width / 8) * 8;
                let planes = 2 * inputs / pixel;
                let box_bytes = images * (rows + 2) * (width + 2) * pixel;
                let in_stage = cut.stage_bytes() - planes * box_bytes.next_multiple_of(ALIGNED);
                let columns = if planes == 1 { 3 * inputs } else { inputs };
                let end = (stages - 1) * cut.stage_bytes()
                    + in_stage
                    + start * pixel
                    + columns * 2 * PRODUCT;
                assert!(end <= cut.memory(), "{cut:?}: {end} of {}", cut.memory());
            }
        }
    }

    /// A wide network at batch 128 fills the device, and no block has much more to do than another.
    #[test]
    fn blocks_are_about_as_many_as_multiprocessors_or_more() {
        for (channels, side) in [(160, 32), (320, 16), (640, 8)] {
            let g = geometry(128, channels, channels, side);
            let cut = Cut::new(&g, 80, false, 132).unwrap();
            let blocks = cut.tiles(&g) * cut.splits;
            let waves = blocks.div_ceil(132);
            assert!(blocks as f64 > 0.85 * (waves * 132) as f64, "{cut:?}: {blocks}");
        }
    }

    /// No tile is half empty where turning it helps.
    #[test]
    fn the_tiles_that_were_the_fastest_come_first() {
        let first = |inputs, outputs| Cut::all(&geometry(64, inputs, outputs, 32), 132)[0].name();
        assert_eq!(first(64, 32), "32-swapped");
        assert_eq!(first(128, 40), "48-swapped");
        assert_eq!(first(64, 64), "64");
        assert_eq!(first(32, 64), "32");
        assert_eq!(first(48, 96), "32-swapped");
        assert_eq!(first(96, 128), "32");
        assert_eq!(first(160, 160), "32");
        // The widest is still measured where its tiles are full.
        let all: Vec<String> =
            Cut::all(&geometry(64, 160, 160, 32), 132).iter().map(Cut::name).collect();
        assert!(all.contains(&"80".to_owned()), "{all:?}");
        assert!(Cut::all(&geometry(64, 16, 16, 32), 132).is_empty());
    }
}
