//! Wide residual networks, `wrn-DEPTH-WIDTH`.

use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, NodeId, Shape, Window};

/// Generous, as the tables of the paper have depth 28 and width 10, and low enough that what cannot
/// be trained is refused at once instead of being built for minutes.
const DEEPEST: usize = 2000;
const WIDEST: usize = 100;

/// What is wrong with a depth and a width, if anything.
pub(super) fn size_problem(depth: usize, width: usize) -> Option<String> {
    if depth < 10 || !(depth - 4).is_multiple_of(6) || width == 0 {
        return Some("needs a depth of 6n + 4 with n at least 1, and a width of at least 1".into());
    }
    (depth > DEEPEST || width > WIDEST).then(|| {
        format!("is too large; the depth may be at most {DEEPEST} and the width at most {WIDEST}")
    })
}

/// A wide residual network of `depth` = 6n + 4 layers, `width` times as wide as the narrow one:
/// three stages of n pre-activation blocks with 16, 32 and 64 times `width` channels.
///
/// As the authors of the paper have it: the second convolution of a block has the stride, and the
/// shortcut, where the shape changes, is a plain 1x1 convolution of the block's raw input. No bias
/// in convolutions, no dropout. A new batch has weight 0.9 in the running statistics of the last
/// batch norm.
///
/// torchvision has no such network. Names: `conv1`; in block j of stage i
/// `layer{i}.{j}.{bn1, conv1, bn2, conv2}` and `layer{i}.0.shortcut`; `bn1`; `fc`.
pub fn wide_resnet(
    depth: usize,
    width: usize,
    input: Shape,
    classes: usize,
    loss: Loss,
) -> Result<Network, EngineError> {
    if let Some(problem) = size_problem(depth, width) {
        return Err(EngineError::Network { node: format!("wrn-{depth}-{width}"), problem });
    }
    let mut b = NetworkBuilder::image(input);
    let mut at = b.conv2d("conv1", b.input(), 16, Window::square(3, 1, 1))?;
    let mut channels = 16;
    for stage in 0..3 {
        let out = (16 << stage) * width;
        for number in 0..(depth - 4) / 6 {
            let stride = if stage > 0 && number == 0 { 2 } else { 1 };
            let name = format!("layer{}.{number}", stage + 1);
            at = block(&mut b, &name, at, channels, out, stride)?;
            channels = out;
        }
    }
    at = b.batch_norm_with("bn1", at, 0.9, 1e-5)?;
    at = b.relu(at)?;
    at = b.global_average_pool(at)?;
    let out = b.linear("fc", at, classes)?;
    b.finish(out, loss)
}

fn block(
    b: &mut NetworkBuilder,
    name: &str,
    from: NodeId,
    channels: usize,
    out: usize,
    stride: usize,
) -> Result<NodeId, EngineError> {
    let mut at = b.batch_norm(&format!("{name}.bn1"), from)?;
    at = b.relu(at)?;
    at = b.conv2d(&format!("{name}.conv1"), at, out, Window::square(3, 1, 1))?;
    at = b.batch_norm(&format!("{name}.bn2"), at)?;
    at = b.relu(at)?;
    at = b.conv2d(&format!("{name}.conv2"), at, out, Window::square(3, stride, 1))?;
    let shortcut = if stride > 1 || channels != out {
        b.conv2d(&format!("{name}.shortcut"), from, out, Window::square(1, stride, 0))?
    } else {
        from
    };
    b.add(at, shortcut)
}
