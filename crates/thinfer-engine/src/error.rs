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
}
