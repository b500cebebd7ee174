//! Grids: how many blocks of what shape a kernel gets.

use super::step::{Arg, Launch, Step};

const THREADS: u32 = 256;
/// Rows that a thread of a tiled kernel reads at once.
const ROWS_AHEAD: usize = 4;
/// Groups of channels in a tile, at most; the kernels' totals have room for this many.
const WIDEST: usize = 32;

/// Values of a tensor whose reading takes longer than adding up its partial sums.
const LARGE: usize = 10_000_000;
/// Groups of eight channels in a tile of a reduction, at most.
const NARROW: usize = 4;

/// Threads of a block that sums rows and waits for others, as its kernels are compiled: few large
/// blocks leave few partial sums.
const WHOLE_THREADS: u32 = 512;
/// Groups of eight channels in a tile of such a block. A line of the cache at least, because memory
/// is slow where several blocks share one; not many more, because every block reads the partial
/// sums of all blocks that share its channels.
const LINE: usize = 8;
const WIDEST_WHOLE: usize = 20;
/// Blocks that share channels, at most; the kernels have room for this many.
const MOST_PARTS: usize = 256;

/// What a tiled kernel does with its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Which {
    /// Sums over rows: few blocks, because their partial sums are added by one.
    Reduction,
    /// One result a value: enough blocks to hide latency.
    Pass,
}

/// Blocks of a kernel that walks over rows and keeps its channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tile {
    pub(crate) vector: bool,
    /// Groups of channels a block.
    pub(crate) width: u32,
    pub(crate) block: u32,
    pub(crate) grid: [u32; 2],
}

impl Tile {
    pub(crate) fn new(which: Which, rows: usize, channels: usize, sms: u32) -> Self {
        let vector = channels.is_multiple_of(8);
        let groups = if vector { channels / 8 } else { channels };
        // Idle threads at the end of the last tile are waste; then wide tiles read longer lines.
        let waste = |width: usize| groups.next_multiple_of(width) - groups;
        let fits = |width: &usize| match which {
            // Narrow tiles have few partial rows a column, which one block adds up; a power of two,
            // because a warp adds its rows by shuffles.
            Which::Reduction => width.is_power_of_two() && (!vector || *width <= NARROW),
            Which::Pass => true,
        };
        let widths = (1..=WIDEST.min(groups)).filter(fits);
        let width = widths.min_by_key(|w| (waste(*w) * 16 / groups, usize::MAX - w)).unwrap_or(1);
        let high = THREADS as usize / width;
        let columns = groups.div_ceil(width);
        // Two blocks a multiprocessor leave few partial rows to add up; where the tensor is large,
        // reading it takes longer than that, and four keep the memory busier.
        let per_sm = if rows * channels >= LARGE { 4 } else { 2 };
        let blocks = match which {
            Which::Reduction => per_sm * sms as usize,
            Which::Pass => 8 * sms as usize,
        };
        let down = rows.div_ceil(high * ROWS_AHEAD).clamp(1, (blocks / columns).max(1));
        Self {
            vector,
            width: width as u32,
            block: (width * high) as u32,
            grid: [down as u32, columns as u32],
        }
    }

    /// Tiles of a kernel whose blocks sum rows, wait for each other and go over the rows again: one
    /// block a multiprocessor. `None` where sums need a kernel of their own.
    pub(crate) fn whole(rows: usize, channels: usize, sms: u32) -> Option<Self> {
        let groups = channels / 8;
        if groups == 0 || !channels.is_multiple_of(8) {
            return None;
        }
        let waste = |width: usize| groups.next_multiple_of(width) - groups;
        let widths = LINE.min(groups)..=WIDEST_WHOLE.min(groups);
        // Tiles that share a line of the cache are slower than wide ones.
        let shares = |width: usize| width < groups && !width.is_multiple_of(LINE);
        let width = widths.min_by_key(|w| (waste(*w) * 16 / groups, shares(*w), *w))?;
        let columns = groups.div_ceil(width);
        let most = (sms as usize / columns).min(MOST_PARTS);
        if most == 0 {
            return None;
        }
        let high = WHOLE_THREADS as usize / width;
        let down = rows.div_ceil(high * ROWS_AHEAD).clamp(1, most);
        Some(Self {
            vector: true,
            width: width as u32,
            block: WHOLE_THREADS,
            grid: [down as u32, columns as u32],
        })
    }

    /// Bytes of partial sums.
    pub(crate) fn scratch(&self) -> usize {
        let values = if self.vector { 8 } else { 1 };
        self.grid[0] as usize * self.grid[1] as usize * 2 * self.width as usize * values * 4
    }

    pub(crate) fn step(
        &self,
        source: &'static str,
        entry: &'static str,
        defines: Vec<&'static str>,
        args: Vec<Arg>,
    ) -> Step {
        Step::Kernel(Launch { source, entry, defines, grid: self.grid, block: self.block, args })
    }
}

/// Blocks of a kernel over a flat buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Elements {
    pub(crate) vector: bool,
    /// Groups of values.
    pub(crate) count: u32,
    blocks: u32,
}

impl Elements {
    pub(crate) fn new(len: usize, sms: u32) -> Self {
        Self::groups(len, len.is_multiple_of(8), sms)
    }

    /// One value a thread.
    pub(crate) fn plain(len: usize, sms: u32) -> Self {
        Self::groups(len, false, sms)
    }

    pub(crate) fn groups(len: usize, vector: bool, sms: u32) -> Self {
        let count = if vector { len / 8 } else { len };
        let blocks = count.div_ceil(THREADS as usize).clamp(1, 16 * sms as usize);
        Self { vector, count: count as u32, blocks: blocks as u32 }
    }

    pub(crate) fn step(
        &self,
        source: &'static str,
        entry: &'static str,
        defines: Vec<&'static str>,
        args: Vec<Arg>,
    ) -> Step {
        let grid = [self.blocks, 1];
        Step::Kernel(Launch { source, entry, defines, grid, block: THREADS, args })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_all_channels_without_much_waste() {
        for channels in [1, 3, 8, 10, 16, 64, 120, 160, 320, 512, 640, 1000, 2048] {
            for rows in [1, 7, 2048, 131_072] {
                for which in [Which::Reduction, Which::Pass] {
                    let tile = Tile::new(which, rows, channels, 132);
                    let groups = if tile.vector { channels / 8 } else { channels };
                    let covered = (tile.width * tile.grid[1]) as usize;
                    assert!(covered >= groups && covered <= groups + groups / 8 + 1, "{tile:?}");
                    assert!(tile.block <= 256 && tile.block.is_multiple_of(tile.width));
                    assert!(tile.grid[0] >= 1);
                    if which == Which::Reduction {
                        assert!(tile.width.is_power_of_two() && tile.block == 256);
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_that_wait_for_each_other_are_few_and_cover_all_channels() {
        for channels in (1..40).map(|groups| 8 * groups).chain([512, 640, 1000, 2048, 8192]) {
            for rows in [1, 7, 2048, 131_072] {
                let tile = Tile::whole(rows, channels, 132).unwrap();
                assert!(tile.grid[0] * tile.grid[1] <= 132 && tile.grid[0] <= 256, "{tile:?}");
                assert!(tile.width <= 20 && (tile.width * tile.grid[1]) as usize * 8 >= channels);
            }
        }
        // 160 channels are two lines and a half, so two tiles would share one.
        let width = |channels| Tile::whole(2048, channels, 132).map(|tile| tile.width);
        assert_eq!([64, 128, 160, 320, 640].map(width), [8, 8, 20, 8, 8].map(Some));
        assert_eq!(Tile::whole(64, 10, 132), None);
        assert_eq!(Tile::whole(64, 8 * 20 * 133, 132), None);
    }
}
