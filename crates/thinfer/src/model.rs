//! Networks of the paper, built as data.

use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder};

use crate::config::Activation;

/// A multilayer perceptron: hidden layers `fc1`, `fc2`, … and the output layer after them.
pub fn mlp(
    inputs: usize,
    hidden: &[usize],
    activation: Activation,
    outputs: usize,
    loss: Loss,
) -> Result<Network, EngineError> {
    let mut builder = NetworkBuilder::new(inputs);
    let mut at = builder.input();
    for (layer, &units) in hidden.iter().enumerate() {
        at = builder.linear(&format!("fc{}", layer + 1), at, units)?;
        at = match activation {
            Activation::Relu => builder.relu(at)?,
            Activation::Tanh => builder.tanh(at)?,
        };
    }
    let out = builder.linear(&format!("fc{}", hidden.len() + 1), at, outputs)?;
    builder.finish(out, loss)
}
