use crate::error::EngineError;

/// Rows of inputs and targets, where the plan can read them.
///
/// Targets of a classifier with several classes are class numbers, stored as `f32`, one a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    columns: usize,
    target_columns: usize,
    inputs: Vec<f32>,
    targets: Vec<f32>,
}

impl Dataset {
    /// Takes row-major inputs and targets. `targets` may be empty where only predictions are made.
    pub fn new(
        columns: usize,
        target_columns: usize,
        inputs: Vec<f32>,
        targets: Vec<f32>,
    ) -> Result<Self, EngineError> {
        if columns == 0 || !inputs.len().is_multiple_of(columns) {
            let expected = inputs.len().div_ceil(columns.max(1)) * columns.max(1);
            return Err(EngineError::Size { what: "the inputs", got: inputs.len(), expected });
        }
        let expected = inputs.len() / columns * target_columns;
        if !targets.is_empty() && targets.len() != expected {
            return Err(EngineError::Size { what: "the targets", got: targets.len(), expected });
        }
        Ok(Self { columns, target_columns, inputs, targets })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.inputs.len() / self.columns
    }

    /// Inputs a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Targets a row.
    pub fn target_columns(&self) -> usize {
        self.target_columns
    }

    /// The inputs of one row.
    pub fn input(&self, row: usize) -> &[f32] {
        &self.inputs[row * self.columns..(row + 1) * self.columns]
    }

    /// The targets of one row; empty when the data set was made without targets.
    pub fn target(&self, row: usize) -> &[f32] {
        if self.targets.is_empty() {
            return &[];
        }
        &self.targets[row * self.target_columns..(row + 1) * self.target_columns]
    }

    /// Whether targets are known.
    pub fn has_targets(&self) -> bool {
        !self.targets.is_empty()
    }

    /// All inputs, row by row.
    pub fn inputs(&self) -> &[f32] {
        &self.inputs
    }

    /// All targets, row by row.
    pub fn targets(&self) -> &[f32] {
        &self.targets
    }

    /// A copy of the chosen rows, in the given order.
    pub fn take_rows(&self, rows: &[u32]) -> Self {
        let pick = |values: &[f32], width: usize| -> Vec<f32> {
            rows.iter().flat_map(|&r| &values[r as usize * width..][..width]).copied().collect()
        };
        let targets =
            if self.has_targets() { pick(&self.targets, self.target_columns) } else { Vec::new() };
        Self { inputs: pick(&self.inputs, self.columns), targets, ..*self }
    }

    /// A copy that keeps only the chosen input columns, in the given order.
    pub fn take_columns(&self, keep: &[usize]) -> Self {
        let inputs = (0..self.rows())
            .flat_map(|r| {
                let row = self.input(r);
                keep.iter().map(move |&c| row[c])
            })
            .collect();
        Self { columns: keep.len(), inputs, targets: self.targets.clone(), ..*self }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * (self.inputs.len() + self.targets.len())
    }
}
