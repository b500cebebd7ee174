//! Networks of random shapes: what a list that someone wrote would leave out.

use super::{Built, Case, image};
use crate::noise::{Key, Stream};
use crate::ops::loss::Loss;
use crate::shape::{Shape, Window};

/// How many there are.
const COUNT: usize = 12;
/// What they are drawn with; for this one, batch 1, both curves and both pools are among them.
const SEED: u64 = 24;
/// Values of a channel that a batch norm needs: of few, variance and gradient are mostly rounding.
const FEWEST: usize = 16;

/// What is drawn.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    batch: usize,
    shape: Shape,
    /// Output channels and windows of both convolutions.
    layers: [(usize, Window); 2],
    bias: bool,
    relu: bool,
    /// The side of the windows of max pooling; without, the mean over all pixels.
    pool: Option<usize>,
}

/// The first valid ones.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    (0..).map(Drawn::new).filter_map(Drawn::case).take(COUNT)
}

impl Drawn {
    fn new(number: u64) -> Self {
        let key = Key::new(SEED, 0, Stream::Inputs);
        let mut index = 0;
        // A whole number from `least` to `most`.
        let mut draw = |least: usize, most: usize| {
            index += 1;
            least + key.below(number, index, most - least + 1)
        };
        let batch = draw(1, 9);
        let shape = Shape { height: draw(3, 17), width: draw(3, 17), channels: draw(1, 9) };
        let (bias, relu) = (draw(0, 1) == 1, draw(0, 1) == 1);
        let pool = (draw(0, 1) == 1).then(|| draw(2, 3));
        // Of an even side, half would put whole columns of the result into the padding, where all
        // numbers are nearly the same: a maximum of those is chance.
        let most = |side: usize| if pool.is_some() { (side - 1) / 2 } else { side / 2 };
        let mut layer = |largest: usize, furthest: usize| {
            let size = [draw(1, largest), draw(1, largest)];
            let stride = [draw(1, furthest), draw(1, furthest)];
            let padding = [draw(0, most(size[0])), draw(0, most(size[1]))];
            (draw(3, 20), Window { size, stride, padding })
        };
        let layers = [layer(7, 3), layer(4, 2)];
        Self { batch, shape, layers, bias, relu, pool }
    }

    /// The network, unless a window is larger than what it slides over or a norm sees too little.
    fn case(self) -> Option<Case> {
        let network = self.network().ok()?;
        let norm = network.nodes()[1].shape;
        let enough = self.batch * norm.height * norm.width >= FEWEST;
        enough.then(|| Case { name: self.name(), network, batch: self.batch, hasty: true })
    }

    fn network(&self) -> Built {
        let Shape { height, width, channels } = self.shape;
        let mut b = image(height, width, channels);
        let [(first, window), (second, after)] = self.layers;
        let h = b.conv2d("conv1", b.input(), first, window)?;
        let h = b.batch_norm("bn1", h)?;
        let h = if self.relu { b.relu(h)? } else { b.tanh(h)? };
        let h = b.conv2d_with("conv2", h, second, after, self.bias)?;
        let h = match self.pool {
            Some(side) => b.max_pool(h, Window::square(side, 2, 0))?,
            None => b.global_average_pool(h)?,
        };
        let out = b.linear("fc", h, 5)?;
        b.finish(out, Loss::cross_entropy())
    }

    fn name(&self) -> String {
        let Shape { height, width, channels } = self.shape;
        let layer = |(out, window): (usize, Window)| {
            let two = |[a, b]: [usize; 2]| format!("{a}x{b}");
            let [size, stride, padding] = [window.size, window.stride, window.padding].map(two);
            format!("{size}/{stride}+{padding} to {out}")
        };
        let [first, second] = self.layers.map(layer);
        let curve = if self.relu { "relu" } else { "tanh" };
        let bias = if self.bias { " with bias" } else { "" };
        let pool = self.pool.map_or("mean".to_owned(), |side| format!("max {side}x{side}"));
        let batch = self.batch;
        format!(
            "random {batch} of {height}x{width}x{channels}, {first}, {curve}, {second}{bias}, {pool}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::network::Network;

    #[test]
    fn random_shapes_are_valid_and_differ_in_everything() {
        let all: Vec<Case> = cases().collect();
        assert_eq!(all.len(), COUNT);
        let names: BTreeSet<&String> = all.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), COUNT);
        let some = |what: &str, holds: &dyn Fn(&Case) -> bool| {
            assert!(all.iter().any(holds), "none has {what}");
        };
        let shape = |network: &Network, at: usize| network.nodes()[at].shape;
        some("one example", &|case| case.batch == 1);
        some("an odd height", &|case| shape(&case.network, 0).height % 2 == 1);
        some("an odd width", &|case| shape(&case.network, 0).width % 2 == 1);
        some("odd channels", &|case| shape(&case.network, 0).channels % 2 == 1);
        some("odd channels inside", &|case| shape(&case.network, 1).channels % 2 == 1);
        some("channels by eight", &|case| shape(&case.network, 1).channels % 8 == 0);
        for part in ["relu", "tanh", "mean", "max", "bias", "/3x", "7x", "x7/", "+0x0"] {
            some(part, &|case| case.name.contains(part));
        }
        assert!(all.iter().all(|case| case.network.nodes().iter().all(|n| !n.shape.is_empty())));
    }
}
