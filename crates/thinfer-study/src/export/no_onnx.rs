//! ONNX where the feature `onnx` is off: refused, with what to do.

use thinfer_data::{Error, Result};
use thinfer_run::run::RunInfo;

use super::graph_io::Fed;
use super::part::Part;

fn missing<T>() -> Result<T> {
    let problem = "is onnx, which this build cannot write; export as safetensors, or build with the feature `onnx`";
    Err(Error::config("--format", problem))
}

/// Refuses to write a graph.
pub(super) fn to_bytes(_: &RunInfo, _: &[Part], _: &str) -> Result<Vec<u8>> {
    missing()
}

/// Refuses to run one.
pub(super) fn outputs_of(_: Vec<u8>, _: Vec<Fed>, _: &[&str]) -> Result<Vec<Vec<f32>>> {
    missing()
}
