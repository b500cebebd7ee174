//! What a lowered network is made of: launches with places instead of addresses.

use super::conv::Problem;
use super::linear::Product;

/// Buffers that steps read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// No buffer: the kernel gets a null pointer.
    Nothing,
    /// The plan's activations and gradients of activations.
    Arena,
    /// Partial sums of reductions.
    Scratch,
    /// Counters of blocks that are done; zero between kernels.
    Counters,
    /// Aligned and padded copies of weights.
    Packed,
    /// Weight gradients as the libraries write them.
    PackedGradient,
    /// Tables that never change.
    Constants,
    /// The batch.
    Input,
    /// Its targets.
    Targets,
    /// Parameters, f32.
    Weights,
    /// Parameters, bf16.
    Low,
    /// Running statistics.
    Stats,
    /// Gradient of the parameters, f32.
    Gradient,
    /// Sums over batches.
    Tally,
    /// The loss of every step.
    Losses,
    /// The number of the step.
    Step,
    /// What makes random channel scales.
    Noise,
}

/// A byte in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) offset: usize,
}

impl Place {
    pub(crate) const NOTHING: Place = Place { space: Space::Nothing, offset: 0 };

    pub(crate) fn new(space: Space, offset: usize) -> Self {
        Self { space, offset }
    }

    /// Bytes to which the place is aligned, where its buffer is aligned to 256.
    pub(crate) fn alignment(self) -> u32 {
        if self.offset == 0 { 256 } else { (1 << self.offset.trailing_zeros().min(8)) as u32 }
    }
}

/// One argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    At(Place),
    U32(u32),
    F32(f32),
    /// A struct of 4-byte fields.
    Words(Vec<u32>),
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub(crate) source: &'static str,
    pub(crate) entry: &'static str,
    pub(crate) defines: Vec<&'static str>,
    pub(crate) grid: [u32; 2],
    pub(crate) block: u32,
    pub(crate) args: Vec<Arg>,
}

/// One thing to put on the stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Kernel(Launch),
    /// A convolution pass over input, filter and output.
    Conv(Problem, [Place; 3]),
    /// A filter gradient over the same, and where it lies in the flat gradient: a kernel of our own
    /// writes it there.
    Filter(Problem, [Place; 3], Place),
    /// Moves the filter gradient with this number into the flat gradient, where that runs. Left out
    /// where a kernel of our own has written it there.
    Beside(usize, Launch),
    /// Waits for the filter gradient with this number. Filter gradients run beside the main stream,
    /// since nothing on the way back reads them.
    Join(usize),
    /// A product of left and right.
    Product(Product, [Place; 3]),
}

/// A lowered network: steps, and how large its buffers are.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Forward, loss and backward.
    pub(crate) training: Vec<Step>,
    /// How many of the training steps are forward and loss.
    pub(crate) forward: usize,
    /// Forward with running statistics.
    pub(crate) inference: Vec<Step>,
    pub(crate) arena: usize,
    pub(crate) activations: usize,
    pub(crate) scratch: usize,
    pub(crate) counters: usize,
    pub(crate) packed: usize,
    pub(crate) packed_gradient: usize,
    pub(crate) constants: Vec<u32>,
    /// Where the network's output lies, f32.
    pub(crate) output: usize,
    /// Channels of the batch, padding included.
    pub(crate) input_channels: usize,
}
