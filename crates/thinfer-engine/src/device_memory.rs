//! Where the memory of a GPU goes.

use std::fmt;

/// Where the device memory of a plan goes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Parameters, their bf16 copy, gradient and running statistics, which the caller holds.
    pub weights: usize,
    /// A method's state, which the caller holds; 0 until the caller sets it.
    pub state: usize,
    /// Activations.
    pub activations: usize,
    /// Gradients of activations.
    pub gradients: usize,
    /// Work space of the libraries, packed weights and partial sums.
    pub workspace: usize,
}

impl MemoryPlan {
    /// All of it.
    pub fn total(&self) -> usize {
        self.weights + self.state + self.activations + self.gradients + self.workspace
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        write!(
            f,
            "weights {} MiB, state {} MiB, activations {} MiB, gradients {} MiB, workspace {} MiB",
            mib(self.weights),
            mib(self.state),
            mib(self.activations),
            mib(self.gradients),
            mib(self.workspace)
        )
    }
}
