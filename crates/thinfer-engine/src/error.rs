/// What can go wrong in the engine.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum EngineError {
    /// A network that cannot be built.
    #[error("network node `{node}`: {problem}")]
    Network {
        /// The node's name.
        node: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A buffer, table or batch of the wrong size.
    #[error("{what} has {got} values where {expected} are needed")]
    Size {
        /// Which buffer.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length that fits.
        expected: usize,
    },
    /// A size that does not fit into memory addresses.
    #[error("{what} of {rows} x {columns} values is larger than this machine can address")]
    Overflow {
        /// Which table or layer.
        what: &'static str,
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        columns: usize,
    },
    /// A batch names a row that the data set does not have.
    #[error("row {row} was asked for, but the data set has {rows} rows")]
    Row {
        /// The row asked for.
        row: usize,
        /// How many there are.
        rows: usize,
    },
    /// A CUDA library or driver that is missing or too old.
    #[error("{library}: found {found}, needed {needed}; {get}")]
    Library {
        /// Its name.
        library: &'static str,
        /// The version found, or `nothing`.
        found: String,
        /// The version needed.
        needed: String,
        /// How to get it.
        get: String,
    },
    /// A CUDA call that failed.
    #[error("CUDA: {call}: {problem}")]
    Cuda {
        /// Which call.
        call: String,
        /// What it answered.
        problem: String,
    },
    /// A kernel that failed, after which the process can do nothing more on this GPU.
    #[error(
        "the GPU stopped with {problem}. Last launched: {launched}. This process can do nothing more on it, but \
         checkpoints are kept: give the same command again (`train` with --resume). If it happens again, run \
         `thinfer selftest`; docs/cuda.md says how to find the kernel"
    )]
    Fault {
        /// The code of the error.
        problem: String,
        /// What the GPU was given last.
        launched: String,
    },
    /// A plan that does not fit into device memory.
    #[error(
        "a batch of {batch} needs {} MiB of device memory and {} are free ({plan}); the largest \
         batch that fits is {largest_batch}",
        plan.total().div_ceil(1 << 20), free >> 20
    )]
    DeviceMemory {
        /// Where the memory would go.
        plan: crate::device_memory::MemoryPlan,
        /// Bytes that are free.
        free: usize,
        /// The batch asked for.
        batch: usize,
        /// The largest batch that fits; 0 where none does.
        largest_batch: usize,
    },
}
