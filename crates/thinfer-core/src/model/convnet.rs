//! A small network of convolutions and batch norms, for grey or coloured thumbnails.

use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, Shape, Window};

/// Channels of the three convolutions.
const CHANNELS: [usize; 3] = [32, 64, 128];

/// Three times convolution 3×3, batch norm and ReLU, with max pooling 2×2 after the first two, then
/// the mean over all pixels and one linear layer.
///
/// Almost all of its weights lie in convolutions, so pruning channels makes all of it smaller.
pub fn convnet(input: Shape, classes: usize, loss: Loss) -> Result<Network, EngineError> {
    let mut b = NetworkBuilder::image(input);
    let mut at = b.input();
    for (layer, channels) in CHANNELS.into_iter().enumerate() {
        let number = layer + 1;
        at = b.conv2d(&format!("conv{number}"), at, channels, Window::square(3, 1, 1))?;
        at = b.batch_norm(&format!("bn{number}"), at)?;
        at = b.relu(at)?;
        if number < CHANNELS.len() {
            at = b.max_pool(at, Window::square(2, 2, 0))?;
        }
    }
    let at = b.global_average_pool(at)?;
    let out = b.linear("fc", at, classes)?;
    b.finish(out, loss)
}
