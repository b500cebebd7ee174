//! A data set that lives on the device, and the kernels that make batches of it.

use cudarc::driver::CudaSlice;

use super::Precision;
use super::context::{Gpu, Value};
use super::error::Named;
use crate::augment::{self, Augment};
use crate::dataset::Dataset;
use crate::error::EngineError;
use crate::network::Network;
use crate::ops::loss::Loss;

/// Rows to train on.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A table of numbers.
    Table(&'a Dataset),
    /// Images as bytes, row after row, with their classes.
    Images {
        /// Height by width by channels, one image after another.
        bytes: &'a [u8],
        /// One class an image.
        classes: &'a [u32],
        /// How a batch is made of them.
        augment: &'a Augment,
    },
    /// Images that come and go: the device holds `slots` of them at a time, and row `i` of an epoch
    /// lies in slot `i % slots` when its step begins.
    Ring {
        /// Images of an epoch.
        rows: usize,
        /// Images on the device.
        slots: usize,
        /// How a batch is made of them.
        augment: &'a Augment,
    },
}

impl Source<'_> {
    /// Rows of an epoch.
    pub fn rows(&self) -> usize {
        match self {
            Source::Table(data) => data.rows(),
            Source::Images { classes, .. } => classes.len(),
            Source::Ring { rows, .. } => *rows,
        }
    }
}

/// The data set on the device.
pub(crate) struct Batches {
    inputs: CudaSlice<u8>,
    targets: CudaSlice<u32>,
    kind: Kind,
    low: bool,
}

enum Kind {
    Table { columns: usize, target_columns: usize },
    Images(Augment),
}

/// Where one batch goes.
#[derive(Clone, Copy)]
pub(crate) struct Slots {
    pub(crate) batch: usize,
    /// Channels of the batch, padding included.
    pub(crate) channels: usize,
    pub(crate) order: u64,
    pub(crate) step: u64,
    /// Six words: the key of crops and mirrorings.
    pub(crate) key: u64,
    pub(crate) input: u64,
    pub(crate) targets: u64,
}

impl Batches {
    pub(crate) fn new(
        gpu: &Gpu,
        network: &Network,
        source: Source<'_>,
        precision: Precision,
    ) -> Result<Self, EngineError> {
        let low = precision == Precision::Bf16;
        let size = |what, got, expected| {
            if got == expected { Ok(()) } else { Err(EngineError::Size { what, got, expected }) }
        };
        let width = network.loss().target_len(network.output_len());
        match source {
            Source::Table(data) => {
                size("a row of inputs", data.columns(), network.input_len())?;
                size("a row of targets", data.target_columns(), width)?;
                // Classes are counted, values are measured; both are four bytes.
                let word = |value: &f32| match network.loss() {
                    Loss::CrossEntropy { .. } => *value as u32,
                    _ => value.to_bits(),
                };
                let targets: Vec<u32> = data.targets().iter().map(word).collect();
                let bytes: Vec<u8> = data.inputs().iter().flat_map(|x| x.to_le_bytes()).collect();
                let kind = Kind::Table { columns: data.columns(), target_columns: width };
                Ok(Self { inputs: gpu.upload(&bytes)?, targets: gpu.upload(&targets)?, kind, low })
            }
            Source::Images { bytes, classes, augment } => {
                size("an image", augment.shape().len(), network.input_len())?;
                size("the images", bytes.len(), classes.len() * network.input_len())?;
                size("a row of targets", 1, width)?;
                let kind = Kind::Images(augment.clone());
                Ok(Self { inputs: gpu.upload(bytes)?, targets: gpu.upload(classes)?, kind, low })
            }
            Source::Ring { slots, augment, .. } => {
                size("an image", augment.shape().len(), network.input_len())?;
                size("a row of targets", 1, width)?;
                let kind = Kind::Images(augment.clone());
                let inputs = gpu.zeros(slots * augment.shape().len())?;
                Ok(Self { inputs, targets: gpu.zeros(slots)?, kind, low })
            }
        }
    }

    /// Replaces the images from slot `first` on.
    pub(crate) fn fill(
        &mut self,
        gpu: &Gpu,
        first: usize,
        bytes: &[u8],
        classes: &[u32],
    ) -> Result<(), EngineError> {
        let Kind::Images(augment) = &self.kind else {
            return Err(EngineError::Size { what: "the images", got: classes.len(), expected: 0 });
        };
        let len = augment.shape().len();
        if bytes.len() != classes.len() * len || first + classes.len() > self.targets.len() {
            let (got, expected) = (classes.len(), self.targets.len().saturating_sub(first));
            return Err(EngineError::Size { what: "the images", got, expected });
        }
        let mut images = self.inputs.slice_mut(first * len..first * len + bytes.len());
        gpu.stream.memcpy_htod(bytes, &mut images).named("cuMemcpyHtoD")?;
        let mut targets = self.targets.slice_mut(first..first + classes.len());
        gpu.stream.memcpy_htod(classes, &mut targets).named("cuMemcpyHtoD")?;
        gpu.wait()
    }

    /// Puts the making of one batch on the stream.
    pub(crate) fn gather(&self, gpu: &Gpu, to: Slots) -> Result<(), EngineError> {
        use Value::{At, U32};
        let defines: &[&str] = if self.low { &["LOW=1"] } else { &[] };
        let (inputs, targets) = (gpu.address(&self.inputs), gpu.address(&self.targets));
        match &self.kind {
            Kind::Table { columns, target_columns } => {
                let function = gpu.function(augment::CUDA_SOURCE, "gather_table", defines)?;
                let threads = to.batch * columns.max(target_columns);
                let sizes = [to.batch, *columns, to.channels, *target_columns];
                let mut values: Vec<Value> =
                    [inputs, targets, to.order, to.step, to.input, to.targets].map(At).to_vec();
                values.extend(sizes.map(|n| U32(n as u32)));
                gpu.launch(&function, threads.div_ceil(256), &values)
            }
            Kind::Images(augment) => {
                let function = gpu.function(augment::CUDA_SOURCE, "gather_images", defines)?;
                let shape = augment.shape();
                let threads = to.batch * shape.height * shape.width;
                let places =
                    [inputs, targets, to.order, to.step, to.key, to.input, to.targets].map(At);
                let mut values = places.to_vec();
                values.push(Value::Words(augment.kernel_words(to.batch, to.channels).to_vec()));
                gpu.launch(&function, threads.div_ceil(256), &values)
            }
        }
    }
}
