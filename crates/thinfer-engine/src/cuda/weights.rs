//! Where weights are read and their gradients written: in the flat buffers, or beside them where a
//! library wants other alignment or padding.

use super::Precision;
use super::lower::Lower;
use super::memory::aligned;
use super::nvrtc::source;
use super::step::{Arg, Launch, Place, Space, Step};

/// Values that a block moves between packed and flat weights.
const PIECE: usize = 4096;
/// Channels of an input that was unfolded.
pub(super) const UNFOLDED: usize = 32;

impl Lower<'_> {
    /// Weights in the flat buffer that has the precision of the activations.
    pub(super) fn flat_weight(&self, weight: usize) -> Place {
        let offset = self.network.params()[weight].offset * self.options.precision.bytes();
        Place::new(self.flat_space(), offset)
    }

    fn flat_space(&self) -> Space {
        if self.options.precision == Precision::Bf16 { Space::Low } else { Space::Weights }
    }

    /// Where a convolution reads its weights: in the flat buffer where they are aligned as cuDNN
    /// wants it and need no padding, else in a packed copy.
    pub(super) fn conv_weight(&mut self, weight: usize, from: usize) -> Place {
        if let Some(place) = self.weight_places[weight] {
            return place;
        }
        let param = &self.network.params()[weight];
        let flat = self.flat_weight(weight);
        let (inner, padded) = self.conv_channels(weight, from);
        let place = if inner == padded && flat.offset.is_multiple_of(16) {
            flat
        } else {
            let value = self.options.precision.bytes();
            let place = Place::new(Space::Packed, self.program.packed);
            pieces(&mut self.pack, param.offset, place.offset / value, param.len(), inner, padded);
            self.program.packed += aligned(param.len() / inner * padded * value);
            place
        };
        self.weight_places[weight] = Some(place);
        place
    }

    /// The innermost axis of a convolution's weights, as stored and as cuDNN reads it.
    pub(super) fn conv_channels(&self, weight: usize, from: usize) -> (usize, usize) {
        let shape = &self.network.params()[weight].shape;
        if self.unfolds(weight, from) {
            (shape[1] * shape[2] * shape[3], UNFOLDED)
        } else {
            (shape[3], self.channels(from))
        }
    }

    /// Whether a convolution reads its input window by window: of few channels, tensor cores would
    /// multiply mostly zeros. In f32 the zeros are fewer, and often no tensor cores are used at
    /// all.
    pub(super) fn unfolds(&self, weight: usize, from: usize) -> bool {
        let shape = &self.network.params()[weight].shape;
        let taps = shape[1] * shape[2];
        let low = self.options.precision == Precision::Bf16;
        low && from == 0 && taps > 1 && taps * shape[3] <= UNFOLDED
    }

    /// Where a library writes the gradient of a convolution's weights.
    pub(super) fn conv_gradient(&mut self, weight: usize, from: usize) -> Place {
        let param = &self.network.params()[weight];
        let (inner, padded) = self.conv_channels(weight, from);
        let exact = self.options.precision != Precision::Bf16;
        if exact && inner == padded && (param.offset * 4).is_multiple_of(16) {
            return self.param(weight, Space::Gradient);
        }
        let value = self.options.precision.bytes();
        let place = Place::new(Space::PackedGradient, self.program.packed_gradient);
        pieces(&mut self.unpack, param.offset, place.offset / value, param.len(), inner, padded);
        self.program.packed_gradient += aligned(param.len() / inner * padded * value);
        place
    }

    pub(super) fn start_with_packing(&mut self) {
        if self.pack.is_empty() {
            return;
        }
        let flat = Place::new(self.flat_space(), 0);
        let packed = Place::new(Space::Packed, 0);
        let pieces = std::mem::take(&mut self.pack);
        let step = Step::Kernel(self.moving("pack_weights", &pieces, flat, packed));
        self.program.inference.insert(0, step.clone());
        if self.options.training {
            self.program.training.insert(0, step);
            self.program.forward += 1;
        }
    }

    /// Widens the filter gradient that a library has just made, beside the main stream like itself.
    pub(super) fn unpack_gradient(&mut self, filter: usize) {
        if self.unpack.is_empty() {
            return;
        }
        let packed = Place::new(Space::PackedGradient, 0);
        let flat = Place::new(Space::Gradient, 0);
        let pieces = std::mem::take(&mut self.unpack);
        let launch = self.moving("unpack_gradients", &pieces, packed, flat);
        self.program.training.push(Step::Beside(filter, launch));
    }

    fn moving(&mut self, entry: &'static str, pieces: &[[u32; 6]], a: Place, b: Place) -> Launch {
        let table = Place::new(Space::Constants, self.program.constants.len() * 4);
        self.program.constants.extend(pieces.iter().flatten());
        Launch {
            source: source::ELEMENTWISE,
            entry,
            defines: self.defines(false, &[]),
            grid: [pieces.len() as u32, 1],
            block: 256,
            args: vec![Arg::At(table), Arg::At(a), Arg::At(b)],
        }
    }
}

/// Cuts a weight tensor into pieces, one a block.
fn pieces(
    to: &mut Vec<[u32; 6]>,
    flat: usize,
    packed: usize,
    len: usize,
    inner: usize,
    padded: usize,
) {
    for first in (0..len).step_by(PIECE) {
        let count = PIECE.min(len - first);
        to.push([flat, packed, first, count, inner, padded].map(|v| v as u32));
    }
}
