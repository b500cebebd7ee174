//! A graph run by a reader that shares no code with its writer.

use rten::{ModelOptions, OpRegistry, RegisterOp, Value, op_types as ops};
use thinfer_data::{Error, Result};

use crate::export::graph_io::Fed;

/// The operations that a graph may have; nothing else of the runtime is linked.
const OPERATIONS: [&dyn RegisterOp; 27] = [
    &ops::Add,
    &ops::AveragePool,
    &ops::BatchNormalization,
    &ops::Cast,
    &ops::Concat,
    &ops::Conv,
    &ops::Div,
    &ops::Equal,
    &ops::Exp,
    &ops::Flatten,
    &ops::Gather,
    &ops::Gemm,
    &ops::GlobalAveragePool,
    &ops::IsNaN,
    &ops::MaxPool,
    &ops::Mul,
    &ops::Pad,
    &ops::ReduceMean,
    &ops::Relu,
    &ops::Sigmoid,
    &ops::Softmax,
    &ops::Sqrt,
    &ops::Sub,
    &ops::Tanh,
    &ops::Transpose,
    &ops::Unsqueeze,
    &ops::Where,
];

/// What the graph in `file` answers under `outputs`. Inputs are fed in the order in which the graph
/// lists them.
pub(in crate::export) fn outputs_of(
    file: Vec<u8>,
    fed: Vec<Fed>,
    outputs: &[&str],
) -> Result<Vec<Vec<f32>>> {
    let broken = |e: &dyn std::fmt::Display| {
        Error::Promise(format!("the graph cannot be run ({e}); please report this"))
    };
    let registry = OpRegistry::with_ops(&OPERATIONS);
    let model = ModelOptions::with_ops(registry).load(file).map_err(|e| broken(&e))?;
    if model.input_ids().len() != fed.len() {
        let count = format!("it has {} inputs instead of {}", model.input_ids().len(), fed.len());
        return Err(broken(&count));
    }
    let mut inputs = Vec::new();
    for (id, values) in model.input_ids().iter().zip(fed) {
        let value = match values {
            Fed::Floats(shape, values) => Value::from_shape(shape, values).map_err(|e| broken(&e)),
            Fed::Integers(values) => {
                Value::from_shape([values.len(), 1], values).map_err(|e| broken(&e))
            }
        };
        inputs.push((*id, value?.into()));
    }
    let ids =
        outputs.iter().map(|name| model.node_id(name)).collect::<std::result::Result<Vec<_>, _>>();
    let values = model.run(inputs, &ids.map_err(|e| broken(&e))?, None).map_err(|e| broken(&e))?;
    let floats = |value: Value| {
        let Some(tensor) = value.into_tensor::<f32>() else {
            return Err(broken(&"an output is not of numbers"));
        };
        Ok(tensor.into_data())
    };
    values.into_iter().map(floats).collect()
}
