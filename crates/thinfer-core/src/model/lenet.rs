//! LeNet-5.

use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, Shape, Window};

/// A small convolutional network after LeNet-5, with ReLU and max pooling: `conv1` (5x5, 6
/// channels, padded by 2), `conv2` (5x5, 16), `fc1` (120), `fc2` (84), `fc3`.
pub fn lenet(input: Shape, classes: usize, loss: Loss) -> Result<Network, EngineError> {
    let mut b = NetworkBuilder::image(input);
    let mut at = b.conv2d_with("conv1", b.input(), 6, Window::square(5, 1, 2), true)?;
    at = b.relu(at)?;
    at = b.max_pool(at, Window::square(2, 2, 0))?;
    at = b.conv2d_with("conv2", at, 16, Window::square(5, 1, 0), true)?;
    at = b.relu(at)?;
    at = b.max_pool(at, Window::square(2, 2, 0))?;
    for (name, units) in [("fc1", 120), ("fc2", 84)] {
        at = b.linear(name, at, units)?;
        at = b.relu(at)?;
    }
    let out = b.linear("fc3", at, classes)?;
    b.finish(out, loss)
}
