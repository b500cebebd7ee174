//! Small networks with every operation and every fusion, for the self test.

use crate::error::EngineError;
use crate::mixture::{Law, Mixture};
use crate::network::{Network, NetworkBuilder, NodeId};
use crate::ops::loss::Loss;
use crate::shape::{Shape, Window};

mod random;

/// A network and how many examples a batch has.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) network: Network,
    pub(crate) batch: usize,
    /// Whether convolutions are chosen among few.
    pub(crate) hasty: bool,
}

type Built = Result<Network, EngineError>;

fn image(height: usize, width: usize, channels: usize) -> NetworkBuilder {
    NetworkBuilder::image(Shape { height, width, channels })
}

/// Pools, and ends in classes.
fn classify(mut b: NetworkBuilder, h: NodeId, classes: usize) -> Built {
    let h = b.global_average_pool(h)?;
    let out = b.linear("fc", h, classes)?;
    b.finish(out, Loss::CrossEntropy { smoothing: 0.1 })
}

fn convolution(size: [usize; 3], out: usize, window: Window, bias: bool) -> Built {
    let mut b = image(size[0], size[1], size[2]);
    let h = b.conv2d_with("conv", b.input(), out, window, bias)?;
    classify(b, h, 5)
}

/// Two convolutions, so that the first gets a gradient through the second.
fn convolutions(channels: usize, out: usize, window: Window) -> Built {
    let mut b = image(9, 8, 3);
    let h = b.conv2d("conv1", b.input(), channels, Window::square(3, 1, 1))?;
    let h = b.conv2d("conv2", h, out, window)?;
    classify(b, h, 5)
}

fn basic_block(
    b: &mut NetworkBuilder,
    name: &str,
    from: NodeId,
    channels: usize,
    stride: usize,
) -> Result<NodeId, EngineError> {
    let h = b.conv2d(&format!("{name}.conv1"), from, channels, Window::square(3, stride, 1))?;
    let h = b.batch_norm(&format!("{name}.bn1"), h)?;
    let h = b.relu(h)?;
    let h = b.conv2d(&format!("{name}.conv2"), h, channels, Window::square(3, 1, 1))?;
    let h = b.batch_norm(&format!("{name}.bn2"), h)?;
    let shortcut = if stride == 1 {
        from
    } else {
        let window = Window::square(1, stride, 0);
        let s = b.conv2d(&format!("{name}.downsample.0"), from, channels, window)?;
        b.batch_norm(&format!("{name}.downsample.1"), s)?
    };
    let h = b.add(h, shortcut)?;
    b.relu(h)
}

fn residual(height: usize, width: usize, channels: usize, more: usize) -> Built {
    let mut b = image(height, width, 3);
    let h = residual_blocks(&mut b, channels, more)?;
    classify(b, h, 10)
}

/// The classes read every pixel: from a mean over the pixels of a single row, nothing would come
/// back through a batch norm whose units are all on or all off.
fn residual_without_mean(height: usize, width: usize, channels: usize, more: usize) -> Built {
    let mut b = image(height, width, 3);
    let h = residual_blocks(&mut b, channels, more)?;
    let out = b.linear("fc", h, 10)?;
    b.finish(out, Loss::CrossEntropy { smoothing: 0.1 })
}

fn residual_blocks(
    b: &mut NetworkBuilder,
    channels: usize,
    more: usize,
) -> Result<NodeId, EngineError> {
    let h = b.conv2d("conv1", b.input(), channels, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let h = b.relu(h)?;
    let h = basic_block(b, "layer1.0", h, channels, 1)?;
    let h = basic_block(b, "layer2.0", h, more, 2)?;
    basic_block(b, "layer2.1", h, more, 1)
}

fn wide_block(
    b: &mut NetworkBuilder,
    name: &str,
    from: NodeId,
    channels: usize,
    stride: usize,
    project: bool,
) -> Result<NodeId, EngineError> {
    let o = b.batch_norm(&format!("{name}.bn1"), from)?;
    let o = b.relu(o)?;
    let h = b.conv2d(&format!("{name}.conv1"), o, channels, Window::square(3, stride, 1))?;
    let h = b.batch_norm(&format!("{name}.bn2"), h)?;
    let h = b.relu(h)?;
    let h = b.conv2d(&format!("{name}.conv2"), h, channels, Window::square(3, 1, 1))?;
    let shortcut = if project {
        b.conv2d(&format!("{name}.shortcut"), o, channels, Window::square(1, stride, 0))?
    } else {
        from
    };
    b.add(h, shortcut)
}

fn wide_residual() -> Built {
    let mut b = image(8, 8, 3);
    let h = b.conv2d("conv1", b.input(), 16, Window::square(3, 1, 1))?;
    let h = wide_block(&mut b, "block1.0", h, 24, 1, true)?;
    let h = wide_block(&mut b, "block1.1", h, 24, 1, false)?;
    let h = wide_block(&mut b, "block2.0", h, 32, 2, true)?;
    let h = b.batch_norm("bn", h)?;
    let h = b.relu(h)?;
    classify(b, h, 10)
}

fn bottleneck() -> Built {
    let mut b = image(23, 21, 3);
    let h = b.conv2d("conv1", b.input(), 16, Window::square(7, 2, 3))?;
    let h = b.batch_norm("bn1", h)?;
    let h = b.relu(h)?;
    let h = b.max_pool(h, Window::square(3, 2, 1))?;
    let from = h;
    let h = b.conv2d("layer1.conv1", h, 8, Window::square(1, 1, 0))?;
    let h = b.batch_norm("layer1.bn1", h)?;
    let h = b.relu(h)?;
    let h = b.conv2d("layer1.conv2", h, 8, Window::square(3, 1, 1))?;
    let h = b.batch_norm("layer1.bn2", h)?;
    let h = b.relu(h)?;
    let h = b.conv2d("layer1.conv3", h, 32, Window::square(1, 1, 0))?;
    let h = b.batch_norm("layer1.bn3", h)?;
    let s = b.conv2d("layer1.downsample.0", from, 32, Window::square(1, 1, 0))?;
    let s = b.batch_norm("layer1.downsample.1", s)?;
    let h = b.add(s, h)?;
    let h = b.relu(h)?;
    classify(b, h, 10)
}

fn lenet() -> Built {
    let mut b = image(28, 28, 1);
    let h = b.conv2d_with("conv1", b.input(), 6, Window::square(5, 1, 2), true)?;
    let h = b.tanh(h)?;
    let h = b.max_pool(h, Window::square(2, 2, 0))?;
    let h = b.conv2d_with("conv2", h, 16, Window::square(5, 1, 0), true)?;
    let h = b.relu(h)?;
    let h = b.max_pool(h, Window::square(2, 2, 0))?;
    let h = b.linear("fc1", h, 120)?;
    let h = b.relu(h)?;
    let h = b.linear("fc2", h, 84)?;
    let h = b.relu(h)?;
    let out = b.linear("fc3", h, 10)?;
    b.finish(out, Loss::cross_entropy())
}

/// Means of windows that overlap and are padded, of windows that tile the image, and of both in
/// one.
fn averages(channels: usize) -> Built {
    let mut b = image(11, 8, 3);
    let h = b.average_pool(b.input(), Window { size: [3, 2], stride: [2, 1], padding: [1, 1] })?;
    let h = b.conv2d("conv1", h, channels, Window::square(3, 1, 1))?;
    let h = b.tanh(h)?;
    let s = b.average_pool(h, Window::square(3, 1, 1))?;
    let h = b.add(h, s)?;
    let h = b.average_pool(h, Window::square(2, 2, 0))?;
    let out = b.linear("fc", h, 5)?;
    b.finish(out, Loss::cross_entropy())
}

fn mlp(inputs: usize, widths: &[usize], outputs: usize, loss: Loss) -> Built {
    let mut b = NetworkBuilder::new(inputs);
    let mut h = b.input();
    for (i, width) in widths.iter().enumerate() {
        h = b.linear(&format!("fc{i}"), h, *width)?;
        h = if i % 2 == 0 { b.tanh(h)? } else { b.relu(h)? };
    }
    let out = b.linear("out", h, outputs)?;
    b.finish(out, loss)
}

/// Norms that nothing follows, sums of sums, and an output that is not a linear layer.
fn odd_graph() -> Built {
    let mut b = image(5, 3, 5);
    let h = b.conv2d_with("conv1", b.input(), 7, Window::square(3, 1, 1), true)?;
    let n = b.batch_norm("bn1", h)?;
    let a = b.add(n, h)?;
    let t = b.tanh(a)?;
    let twice = b.add(t, t)?;
    let m = b.batch_norm("bn2", twice)?;
    let c = b.conv2d("conv2", m, 7, Window::square(3, 1, 1))?;
    let k = b.batch_norm("bn3", c)?;
    let s = b.add(k, m)?;
    let r = b.relu(s)?;
    let out = b.global_average_pool(r)?;
    b.finish(out, Loss::gaussian_learned(0.7))
}

/// Blocks that read some channels of a stream and add to others, as shrunk networks have them: with
/// a ReLU after the sum, without one, and one whose channels meet a projected shortcut.
fn indexed(stream: usize, part: usize) -> Built {
    let every = |step: u32| (0..part as u32).map(move |c| c * step).collect::<Vec<u32>>();
    let mut b = image(8, 6, 3);
    let h = b.conv2d("conv1", b.input(), stream, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let mut from = b.relu(h)?;
    for block in 0..2 {
        let h = b.select(from, every(2).into_iter().rev().collect())?;
        let h = b.conv2d(&format!("{block}.conv1"), h, part, Window::square(3, 1, 1))?;
        let h = b.batch_norm(&format!("{block}.bn1"), h)?;
        let h = b.spread(h, every(3), stream)?;
        let h = b.add(h, from)?;
        from = if block == 0 { b.relu(h)? } else { h };
    }
    let h = b.conv2d("conv2", from, part, Window::square(3, 2, 1))?;
    let h = b.spread(h, every(2), stream)?;
    let s = b.conv2d("conv3", from, stream, Window::square(1, 2, 0))?;
    let s = b.batch_norm("bn3", s)?;
    let h = b.add(h, s)?;
    let h = b.relu(h)?;
    classify(b, h, 5)
}

/// A residual stream that gets wider from block to block, as shrunk networks have it: what a block
/// adds to has its first channels. The last sum has no ReLU.
fn growing(widths: [usize; 3]) -> Built {
    let mut b = image(8, 6, 3);
    let h = b.conv2d("conv1", b.input(), widths[0], Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let mut from = b.relu(h)?;
    for (block, [before, width]) in
        [[widths[0], widths[1]], [widths[1], widths[2]]].into_iter().enumerate()
    {
        let h = b.conv2d(&format!("{block}.conv1"), from, 8, Window::square(3, 1, 1))?;
        let h = b.batch_norm(&format!("{block}.bn1"), h)?;
        let h = b.relu(h)?;
        let h = b.conv2d(&format!("{block}.conv2"), h, width, Window::square(3, 1, 1))?;
        let h = b.batch_norm(&format!("{block}.bn2"), h)?;
        let part = b.spread(from, (0..before as u32).collect(), width)?;
        let h = b.add(h, part)?;
        from = if block == 0 { b.relu(h)? } else { h };
    }
    classify(b, from, 5)
}

/// A block's branch, through so many channels and by this stride, put to the last channels of so
/// many.
fn last_channels(
    b: &mut NetworkBuilder,
    block: usize,
    from: NodeId,
    (through, stride): (usize, usize),
    [adds, width]: [usize; 2],
) -> Result<NodeId, EngineError> {
    let h = b.conv2d(&format!("{block}.conv1"), from, through, Window::square(3, stride, 1))?;
    let h = b.batch_norm(&format!("{block}.bn1"), h)?;
    let h = b.relu(h)?;
    let h = b.conv2d(&format!("{block}.conv2"), h, adds, Window::square(3, 1, 1))?;
    let h = b.batch_norm(&format!("{block}.bn2"), h)?;
    b.spread(h, ((width - adds) as u32..width as u32).collect(), width)
}

/// A residual stream of which blocks add to the last channels alone, as shrunk networks have it:
/// the first to some that are there, the second to some of those and to new ones. The last sum has
/// no ReLU.
fn adding_last(width: usize, adds: usize, more: usize) -> Built {
    let mut b = image(8, 6, 3);
    let h = b.conv2d("conv1", b.input(), width, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let mut from = b.relu(h)?;
    for (block, [before, width]) in [[width, width], [width, width + more]].into_iter().enumerate()
    {
        let h = last_channels(&mut b, block, from, (8, 1), [adds, width])?;
        let h = if block == 0 {
            b.add(h, from)?
        } else {
            let part = b.spread(from, (0..before as u32).collect(), width)?;
            b.add(part, h)?
        };
        from = if block == 0 { b.relu(h)? } else { h };
    }
    classify(b, from, 5)
}

/// Blocks of stride 2 that add to the last channels of what their shortcuts give; the shortcut of
/// the second comes before its other layers.
fn adding_last_to_shortcuts(width: usize, adds: usize) -> Built {
    let mut b = image(16, 8, 3);
    let h = b.conv2d("conv1", b.input(), 16, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let mut from = b.relu(h)?;
    for block in 0..2 {
        let shortcut = |b: &mut NetworkBuilder| {
            let one = Window::square(1, 2, 0);
            let h = b.conv2d(&format!("{block}.downsample.0"), from, width, one)?;
            b.batch_norm(&format!("{block}.downsample.1"), h)
        };
        let before = if block == 1 { Some(shortcut(&mut b)?) } else { None };
        let h = last_channels(&mut b, block, from, (16, 2), [adds, width])?;
        let h = if let Some(shortcut) = before {
            b.add(shortcut, h)?
        } else {
            let shortcut = shortcut(&mut b)?;
            b.add(h, shortcut)?
        };
        from = b.relu(h)?;
    }
    classify(b, from, 5)
}

/// A linear layer that reads some pixels of some channels, and one that reads some of the input.
fn picked(places: usize) -> Built {
    let mut b = image(6, 5, 3);
    let every = |step: u32| (0..places as u32).map(move |at| at * step).rev().collect();
    let h = b.conv2d("conv1", b.input(), 7, Window::square(3, 1, 1))?;
    let h = b.tanh(h)?;
    let h = b.pick(h, every(5))?;
    let h = b.linear("fc1", h, 12)?;
    let r = b.pick(b.input(), every(2))?;
    let r = b.linear("fc2", r, 12)?;
    let h = b.add(h, r)?;
    let out = b.linear("fc3", h, 5)?;
    b.finish(out, Loss::cross_entropy())
}

/// Norms, sums and both shortcuts without a kink, so that low precision can be held to its
/// rounding.
fn smooth() -> Built {
    let mut b = image(8, 8, 3);
    let h = b.conv2d("conv1", b.input(), 16, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn1", h)?;
    let from = b.tanh(h)?;
    let h = b.conv2d("conv2", from, 16, Window::square(3, 1, 1))?;
    let h = b.batch_norm("bn2", h)?;
    let h = b.add(h, from)?;
    let from = b.tanh(h)?;
    let h = b.conv2d("conv3", from, 32, Window::square(3, 2, 1))?;
    let h = b.batch_norm("bn3", h)?;
    let s = b.conv2d("conv4", from, 32, Window::square(1, 2, 0))?;
    let s = b.batch_norm("bn4", s)?;
    let h = b.add(h, s)?;
    let h = b.tanh(h)?;
    classify(b, h, 10)
}

/// Members with random scales around every layer, as the Rank-1 method has them, without a kink.
fn varied(law: Law, members: usize, channels: usize) -> Built {
    let mixture = Mixture { members, law, draws: 1 };
    let mut b = image(8, 6, 3);
    let h = b.vary("conv1.in", b.input(), mixture, false)?;
    let h = b.conv2d("conv1", h, channels, Window::square(3, 1, 1))?;
    let h = b.vary("conv1.out", h, mixture, false)?;
    let h = b.batch_norm("bn1", h)?;
    let from = b.tanh(h)?;
    let h = b.vary("conv2.in", from, mixture, false)?;
    let h = b.conv2d("conv2", h, channels, Window::square(3, 1, 1))?;
    let h = b.vary("conv2.out", h, mixture, true)?;
    let h = b.add(h, from)?;
    let h = b.tanh(h)?;
    let h = b.global_average_pool(h)?;
    let h = b.vary("fc.in", h, mixture, false)?;
    let h = b.linear_with("fc", h, 10, false)?;
    let out = b.vary("fc.out", h, mixture, true)?;
    b.finish(out, Loss::cross_entropy())
}

/// The network with the layers held whose names begin so.
fn held(network: &Network, names: &[&str]) -> Network {
    network.holding(|param| names.iter().any(|name| param.name.starts_with(name)))
}

/// Up to the first convolution of the second stage, its shortcut, and a layer behind them.
const FRONT: &[&str] = &[
    "conv1",
    "bn1",
    "layer1",
    "layer2.0.conv1",
    "layer2.0.bn1",
    "layer2.0.down",
    "layer2.1.conv1",
];
/// Up to a shortcut beside which a branch is trained.
const WIDE_FRONT: &[&str] = &["conv1", "block1.0.bn1", "block1.0.shortcut", "block2.0.conv1"];
/// One block whose channels meet a stream that is held, too.
const LIST_FRONT: &[&str] = &["conv1", "bn1", "0.", "conv3", "bn3"];

/// Every case of the self test.
pub(crate) fn cases() -> Result<Vec<Case>, EngineError> {
    let square = Window::square;
    let tall = Window { size: [3, 1], stride: [1, 2], padding: [1, 0] };
    let gaussian = Loss::gaussian(0.8);
    let list = [
        ("convolution 3x3", convolution([8, 8, 3], 16, square(3, 1, 1), false)?, 4),
        (
            "convolution 5x5 stride 2 with bias",
            convolution([11, 7, 5], 9, square(5, 2, 2), true)?,
            3,
        ),
        ("convolution 1x1 after 3x3", convolutions(16, 24, square(1, 1, 0))?, 5),
        ("convolution 3x3 stride 2", convolutions(32, 64, square(3, 2, 1))?, 8),
        ("convolution 3x1 of odd channels", convolutions(5, 7, tall)?, 2),
        ("linear", mlp(37, &[], 1, Loss::Bernoulli)?, 19),
        ("linear of one row", mlp(8, &[16], 3, gaussian.clone())?, 1),
        ("perceptron, wide", mlp(200, &[64, 48, 32], 10, Loss::cross_entropy())?, 64),
        ("perceptron, learned noise", mlp(13, &[7, 5], 2, Loss::gaussian_learned(0.5))?, 33),
        ("lenet", lenet()?, 16),
        ("lenet of one row", lenet()?, 1),
        ("smooth residual network", smooth()?, 16),
        ("residual network", residual(8, 8, 16, 32)?, 16),
        ("residual network of odd sizes", residual(7, 5, 6, 10)?, 9),
        ("residual network of one row", residual_without_mean(9, 9, 16, 16)?, 1),
        ("wide residual network", wide_residual()?, 16),
        ("bottleneck and max pool", bottleneck()?, 16),
        ("means of windows", averages(16)?, 8),
        ("means of windows of odd channels", averages(7)?, 3),
        ("sums, lone norms, open end", odd_graph()?, 12),
        ("channels by lists", indexed(24, 8)?, 16),
        ("odd channels by lists", indexed(17, 5)?, 7),
        ("normal scales of four members", varied(Law::Gaussian, 4, 24)?, 8),
        ("Cauchy scales of three members", varied(Law::Cauchy, 3, 7)?, 5),
        ("normal scales of many channels", varied(Law::Gaussian, 2, 272)?, 4),
        ("numbers by lists", picked(40)?, 16),
        ("odd numbers by lists", picked(37)?, 7),
        ("lenet with a frozen front", held(&lenet()?, &["conv1", "conv2", "fc2"]), 16),
        ("residual network with a frozen front", held(&residual(8, 8, 16, 32)?, FRONT), 16),
        ("wide residual network with a frozen front", held(&wide_residual()?, WIDE_FRONT), 16),
        ("a stream that grows", growing([16, 24, 40])?, 16),
        ("a stream that grows by odd channels", growing([5, 12, 17])?, 7),
        ("a stream of which the last channels are added to", adding_last(40, 24, 16)?, 16),
        ("odd last channels of a stream", adding_last(13, 6, 5)?, 7),
        ("last channels of shortcuts", adding_last_to_shortcuts(48, 32)?, 16),
        (
            "last channels of a stream with a frozen front",
            held(&adding_last(40, 24, 16)?, &["conv1", "bn1", "0.conv1", "0.bn1", "0.conv2"]),
            16,
        ),
        (
            "a stream that grows with a frozen front",
            held(&growing([16, 24, 40])?, &["conv1", "bn1"]),
            16,
        ),
        ("channels by lists with a frozen front", held(&indexed(24, 8)?, LIST_FRONT), 16),
    ];
    let case = |(name, network, batch): (&str, Network, usize)| {
        let (name, hasty) = (name.to_owned(), false);
        Case { name, network, batch, hasty }
    };
    Ok(list.into_iter().map(case).chain(random::cases()).collect())
}
