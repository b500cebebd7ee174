//! Residual networks, in the CIFAR and in the ImageNet form.

use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, NodeId, Shape, Window};

/// The first layers of a residual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// 3x3 with stride 1 and no pooling, for images of 32 pixels: the CIFAR form.
    Small,
    /// 7x7 with stride 2 and a max pool, for images of 224 pixels: the ImageNet form.
    Large,
}

#[derive(Clone, Copy, PartialEq)]
enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1, 3x3, 1x1 to four times the channels. The 3x3 has the stride, as in torchvision; the
    /// first paper had it in the first 1x1.
    Bottleneck,
}

/// A residual network of depth 18, 34 or 50 with torchvision's names and structure (post-activation
/// blocks, convolutions without bias, 1x1 shortcuts where the shape changes, global average pool).
pub fn resnet(
    depth: usize,
    stem: Stem,
    input: Shape,
    classes: usize,
    loss: Loss,
) -> Result<Network, EngineError> {
    let (block, stages) = match depth {
        18 => (Block::Basic, [2, 2, 2, 2]),
        34 => (Block::Basic, [3, 4, 6, 3]),
        50 => (Block::Bottleneck, [3, 4, 6, 3]),
        _ => {
            return Err(EngineError::Network {
                node: format!("resnet{depth}"),
                problem: "there are residual networks of depth 18, 34 and 50".into(),
            });
        }
    };
    let mut b = NetworkBuilder::image(input);
    let window = match stem {
        Stem::Small => Window::square(3, 1, 1),
        Stem::Large => Window::square(7, 2, 3),
    };
    let mut at = b.input();
    at = conv_norm(&mut b, ["conv1", "bn1"], at, 64, window)?;
    at = b.relu(at)?;
    if stem == Stem::Large {
        at = b.max_pool(at, Window::square(3, 2, 1))?;
    }
    let mut channels = 64;
    for (stage, &blocks) in stages.iter().enumerate() {
        let width = 64 << stage;
        for number in 0..blocks {
            let stride = if stage > 0 && number == 0 { 2 } else { 1 };
            let name = format!("layer{}.{number}", stage + 1);
            (at, channels) = residual(&mut b, &name, block, (at, channels), width, stride)?;
        }
    }
    at = b.global_average_pool(at)?;
    let out = b.linear("fc", at, classes)?;
    b.finish(out, loss)
}

/// One block from a node and its channels to a node and its channels.
fn residual(
    b: &mut NetworkBuilder,
    name: &str,
    block: Block,
    (from, channels): (NodeId, usize),
    width: usize,
    stride: usize,
) -> Result<(NodeId, usize), EngineError> {
    let (small, three) = (Window::square(1, 1, 0), Window::square(3, 1, 1));
    let moving = Window::square(3, stride, 1);
    let out = if block == Block::Bottleneck { 4 * width } else { width };
    let layers = match block {
        Block::Basic => vec![(width, moving), (width, three)],
        Block::Bottleneck => vec![(width, small), (width, moving), (out, small)],
    };
    let mut at = from;
    for (layer, (channels, window)) in layers.iter().enumerate() {
        if layer > 0 {
            at = b.relu(at)?;
        }
        let [conv, norm] = ["conv", "bn"].map(|kind| format!("{name}.{kind}{}", layer + 1));
        at = conv_norm(b, [&conv, &norm], at, *channels, *window)?;
    }
    let shortcut = if stride > 1 || channels != out {
        let [conv, norm] = [0, 1].map(|part| format!("{name}.downsample.{part}"));
        conv_norm(b, [&conv, &norm], from, out, Window::square(1, stride, 0))?
    } else {
        from
    };
    at = b.add(at, shortcut)?;
    Ok((b.relu(at)?, out))
}

fn conv_norm(
    b: &mut NetworkBuilder,
    [conv, norm]: [&str; 2],
    from: NodeId,
    out: usize,
    window: Window,
) -> Result<NodeId, EngineError> {
    let at = b.conv2d(conv, from, out, window)?;
    b.batch_norm(norm, at)
}
