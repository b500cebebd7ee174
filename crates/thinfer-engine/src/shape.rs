//! The shape of activations, and windows that slide over them.

use serde::{Deserialize, Serialize};

/// The shape of one row of activations, channels last. A plain vector is 1 x 1 x channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
    /// Channels, or the length of a plain vector.
    pub channels: usize,
}

impl Shape {
    /// A plain vector.
    pub fn vector(channels: usize) -> Self {
        Self { height: 1, width: 1, channels }
    }

    /// How many numbers a row holds.
    pub fn len(self) -> usize {
        self.height * self.width * self.channels
    }

    /// The same of a shape that nobody has checked: nothing where the number has no place in a
    /// list, whose numbers have 32 bits.
    pub fn checked_len(self) -> Option<usize> {
        let len = self.height.checked_mul(self.width)?.checked_mul(self.channels)?;
        u32::try_from(len).is_ok().then_some(len)
    }

    /// Whether a row holds nothing.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A window that slides over rows and columns of pixels; `[rows, columns]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its size.
    pub size: [usize; 2],
    /// How far it moves.
    pub stride: [usize; 2],
    /// Pixels added on each side: zeros for a convolution, nothing for a maximum.
    pub padding: [usize; 2],
}

impl Window {
    /// A square window.
    pub fn square(size: usize, stride: usize, padding: usize) -> Self {
        Self { size: [size; 2], stride: [stride; 2], padding: [padding; 2] }
    }

    /// The image that the window's positions form, or what is wrong with it.
    pub(crate) fn over(self, from: Shape) -> Result<[usize; 2], String> {
        if self.size.contains(&0) || self.stride.contains(&0) {
            return Err("has a window of size or stride 0; both must be at least 1".into());
        }
        if (0..2).any(|axis| self.padding[axis] >= self.size[axis]) {
            return Err(
                "is padded by a whole window or more; some outputs would see nothing".into()
            );
        }
        let mut to = [0; 2];
        for (axis, pixels) in [from.height, from.width].into_iter().enumerate() {
            let padding = self.padding[axis].checked_mul(2);
            let Some(padded) = padding.and_then(|padding| padding.checked_add(pixels)) else {
                return Err("is padded by more pixels than can be counted".into());
            };
            if padded < self.size[axis] {
                let size = self.size[axis];
                return Err(format!("has a window of {size} pixels over an image of {padded}"));
            }
            to[axis] = (padded - self.size[axis]) / self.stride[axis] + 1;
        }
        Ok(to)
    }
}
