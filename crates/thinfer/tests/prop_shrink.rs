//! Masked and shrunk networks are the same function, whatever the network and the mask.
//!
//! `PROPTEST_CASES=10000 cargo test --release -p thinfer --test prop_shrink` is the long mode.

use proptest::prelude::*;
use thinfer::shrink::{Layout, Shrunk, agreement, leftovers, shrink};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{
    Arena, Dataset, EngineError, ExactPlan, Loss, Network, NetworkBuilder, NodeId, Op, Plan, Scale,
    Shape, Window,
};

/// Random choices of one case, all from one seed, so that a failure can be repeated.
struct Dice {
    key: Key,
    thrown: usize,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self { key: Key::new(seed, 0, Stream::Initial), thrown: 0 }
    }

    fn share(&mut self) -> f32 {
        self.thrown += 1;
        self.key.uniform(0, self.thrown)
    }

    fn up_to(&mut self, most: usize) -> usize {
        1 + (self.share() * most as f32) as usize % most
    }

    fn chance(&mut self, share: f32) -> bool {
        self.share() < share
    }
}

type Built = Result<Network, EngineError>;

fn loss(dice: &mut Dice) -> (Loss, usize) {
    match dice.up_to(5) {
        4 => (Loss::Gaussian { scale: Scale::ByRow { start: 0.7 } }, 2),
        1 => (Loss::gaussian_learned(0.7), dice.up_to(2)),
        2 => (Loss::Bernoulli, 1),
        3 => (Loss::CrossEntropy { smoothing: 0.1 }, 1 + dice.up_to(4)),
        _ => (Loss::gaussian(1.0), 1),
    }
}

fn mlp(dice: &mut Dice) -> Built {
    let mut b = NetworkBuilder::new(dice.up_to(9));
    let mut h = b.input();
    for layer in 0..dice.up_to(3) {
        let (width, bias) = (dice.up_to(7), dice.chance(0.7));
        h = b.linear_with(&format!("fc{layer}"), h, width, bias)?;
        h = if dice.chance(0.5) { b.relu(h)? } else { b.tanh(h)? };
        if dice.chance(0.3) {
            let side = b.linear_with(&format!("side{layer}"), h, width, false)?;
            h = b.add(h, side)?;
        }
    }
    let (loss, outputs) = loss(dice);
    let out = b.linear("head", h, outputs)?;
    b.finish(out, loss)
}

fn plain_cnn(dice: &mut Dice) -> Built {
    let side = 5 + dice.up_to(4);
    let mut b = NetworkBuilder::image(Shape { height: side, width: side, channels: dice.up_to(3) });
    let mut h = b.input();
    for layer in 0..dice.up_to(3) {
        let window = Window::square(if dice.chance(0.3) { 1 } else { 3 }, 1, 0);
        let window = Window { padding: [usize::from(window.size[0] == 3); 2], ..window };
        h = b.conv2d_with(&format!("conv{layer}"), h, dice.up_to(6), window, dice.chance(0.5))?;
        if dice.chance(0.5) {
            h = b.batch_norm(&format!("bn{layer}"), h)?;
        }
        h = if dice.chance(0.5) { b.relu(h)? } else { b.tanh(h)? };
    }
    if dice.chance(0.5) {
        h = b.max_pool(h, Window::square(2, 2, 0))?;
    }
    if dice.chance(0.3) {
        h = b.average_pool(h, Window::square(3, 1, 1))?;
    }
    if dice.chance(0.5) {
        h = b.global_average_pool(h)?;
    }
    let (loss, outputs) = loss(dice);
    let out = b.linear("head", h, outputs)?;
    b.finish(out, loss)
}

/// Basic or bottleneck blocks, with the norm after the convolution or, as wide networks have it,
/// before it.
fn residual(dice: &mut Dice) -> Built {
    let (before, bottleneck) = (dice.chance(0.4), dice.chance(0.4));
    let mut b = NetworkBuilder::image(Shape { height: 7, width: 6, channels: 3 });
    let mut width = dice.up_to(6);
    let mut from = b.conv2d("stem", b.input(), width, Window::square(3, 1, 1))?;
    if !before {
        let h = b.batch_norm("stem.bn", from)?;
        from = b.relu(h)?;
    }
    for block in 0..dice.up_to(3) {
        let stride = if dice.chance(0.4) { 2 } else { 1 };
        let out = if dice.chance(0.4) { dice.up_to(7) } else { width };
        let inner = dice.up_to(6);
        let sizes: &[usize] = if bottleneck { &[1, 3, 1] } else { &[3, 3] };
        let mut h = from;
        let mut entry = from;
        for (at, &size) in sizes.iter().enumerate() {
            let name = |what: &str| format!("block{block}.{what}{at}");
            let to = if at + 1 == sizes.len() { out } else { inner };
            let stride = if at == sizes.len() - 2 { stride } else { 1 };
            if before {
                h = b.batch_norm(&name("bn"), h)?;
                h = b.relu(h)?;
                if at == 0 {
                    entry = h;
                }
            }
            h = b.conv2d(&name("conv"), h, to, Window::square(size, stride, size / 2))?;
            if !before {
                h = b.batch_norm(&name("bn"), h)?;
                if at + 1 < sizes.len() {
                    h = b.relu(h)?;
                }
            }
        }
        let shortcut = if stride == 1 && out == width {
            from
        } else {
            let window = Window::square(1, stride, 0);
            let s = b.conv2d(&format!("block{block}.down"), entry, out, window)?;
            if before { s } else { b.batch_norm(&format!("block{block}.down.bn"), s)? }
        };
        let sum = b.add(h, shortcut)?;
        from = if before { sum } else { b.relu(sum)? };
        width = out;
    }
    if before {
        let h = b.batch_norm("last.bn", from)?;
        from = b.relu(h)?;
    }
    let h = b.global_average_pool(from)?;
    let (loss, outputs) = loss(dice);
    let out = b.linear("head", h, outputs)?;
    b.finish(out, loss)
}

/// Whole channels, single kernels or single weights, at a rate that differs from layer to layer;
/// norms and biases of dead outputs with them, or not.
fn mask(network: &Network, dice: &mut Dice) -> Vec<u8> {
    let mut keep = vec![1; network.params().len()];
    let (granularity, with_norms) = (dice.up_to(4), dice.chance(0.7));
    let mut dead = vec![Vec::new(); network.nodes().len()];
    for (at, node) in network.nodes().iter().enumerate() {
        match node.op {
            Op::Conv2d { weight, bias, .. } | Op::Linear { weight, bias } => {
                let weight = &network.params()[weight];
                let (rate, row) = (dice.share(), weight.fan_in());
                let inputs = weight.shape[weight.shape.len() - 1];
                let gone = |n: usize, dice: &mut Dice| -> Vec<bool> {
                    (0..n).map(|_| dice.chance(rate)).collect()
                };
                let (rows, columns) = (gone(weight.shape[0], dice), gone(inputs, dice));
                let kernels = gone(weight.shape[0] * inputs, dice);
                for (i, mark) in keep[weight.range()].iter_mut().enumerate() {
                    let (output, input) = (i / row, i % inputs);
                    let cut = match granularity {
                        1 | 2 => rows[output] || columns[input],
                        3 => kernels[output * inputs + input],
                        _ => dice.chance(rate),
                    };
                    *mark = u8::from(!cut);
                }
                dead[at] = rows;
                if let (Some(bias), true) = (bias, with_norms && granularity <= 2) {
                    for (mark, dead) in
                        keep[network.params()[bias].range()].iter_mut().zip(&dead[at])
                    {
                        *mark = u8::from(!dead);
                    }
                }
            }
            Op::BatchNorm { scale, shift, .. } => {
                let own = dead[node.inputs[0].0].clone();
                for param in [scale, shift] {
                    let alone = dice.chance(0.2);
                    for (c, mark) in keep[network.params()[param].range()].iter_mut().enumerate() {
                        let with = with_norms && own.get(c).is_some_and(|dead| *dead);
                        *mark = u8::from(!(with || alone && dice.chance(0.3)));
                    }
                }
            }
            _ => {}
        }
    }
    keep
}

struct Case {
    network: Network,
    keep: Vec<u8>,
    weights: Vec<f32>,
    stats: Vec<f32>,
}

fn case(seed: u64) -> Case {
    let dice = &mut Dice::new(seed);
    let network = match dice.up_to(4) {
        1 => mlp(dice),
        2 => plain_cnn(dice),
        _ => residual(dice),
    }
    .unwrap();
    let keep = mask(&network, dice);
    let mut weights = vec![0.0; keep.len()];
    dice.key.normals(1, 0, &mut weights);
    weights.iter_mut().zip(&keep).for_each(|(w, keep)| *w *= 0.6 * f32::from(*keep));
    let mut stats = Arena::new(&network, 0).stats().to_vec();
    for (at, stat) in stats.iter_mut().enumerate() {
        *stat = (*stat + 0.2 * dice.key.normal(2, at)).abs() + 0.1;
    }
    Case { network, keep, weights, stats }
}

/// Every weight through which something flows is in the smaller network.
fn nothing_alive_is_gone(case: &Case, small: &Shrunk) -> Result<(), TestCaseError> {
    let Case { network, keep, weights, .. } = case;
    // A weight is alive when the output moves with it, in training or in inference.
    let data = rows(network);
    let order: Vec<u32> = (0..data.rows() as u32).collect();
    let mut plan = Plan::new(network, order.len()).unwrap();
    let (mut stats, mut gradient) = (case.stats.clone(), vec![0.0; weights.len()]);
    plan.gradient_at(weights, &mut stats, &data, &order, &mut gradient).unwrap();
    for (at, slope) in gradient.iter().enumerate() {
        let there =
            small.params.binary_search(&(at as u32)).is_ok() || small.params.contains(&(at as u32));
        let owner = &network.params().owner(at).unwrap().name;
        prop_assert!(there || keep[at] == 0 || *slope == 0.0, "{owner}: {slope} at {at}");
    }
    Ok(())
}

fn rows(network: &Network) -> Dataset {
    let classes = network.output_len();
    let width = network.loss().target_len(classes);
    let mut inputs = vec![0.0; 5 * network.input_len()];
    Key::new(3, 0, Stream::Observation).normals(0, 0, &mut inputs);
    let targets = (0..5 * width).map(|at| (at % classes.max(2)) as f32).collect();
    Dataset::new(network.input_len(), width, inputs, targets).unwrap()
}

/// Both networks in single precision, as they are used.
fn same_in_single_precision(case: &Case, small: &Shrunk) -> Result<(), TestCaseError> {
    let data = rows(&case.network);
    let columns: Vec<usize> = small.inputs.iter().map(|c| *c as usize).collect();
    let whole = case.network.input_len() == small.network.input_len();
    let fewer = if whole { data.clone() } else { data.take_columns(&columns) };
    let outputs = 5 * case.network.output_len();
    let (mut large, mut less) = (vec![0.0; outputs], vec![0.0; outputs]);
    Plan::new(&case.network, 5)
        .unwrap()
        .forward(&case.weights, &case.stats, &data, 0..5, &mut large)
        .unwrap();
    let (weights, stats) = (small.take(&case.weights), small.take_stats(&case.stats));
    Plan::new(&small.network, 5)
        .unwrap()
        .forward(&weights, &stats, &fewer, 0..5, &mut less)
        .unwrap();
    let scale = large.iter().fold(1e-3f32, |most, v| most.max(v.abs()));
    for (a, b) in large.iter().zip(&less) {
        prop_assert!((a - b).abs() <= 1e-5 * scale, "{a} against {b} of {scale}");
    }
    let large = Trained::of(&case.network, &case.weights, &case.stats, &data);
    let less = Trained::of(&small.network, &weights, &stats, &fewer);
    // A norm over a handful of nearly equal numbers magnifies rounding. Where the masked network is
    // further from the exact numbers than the limit, the smaller one may be as far as that.
    let (exact_loss, exact) = exact(case, &data);
    let scale = exact.iter().fold(1e-3f64, |most, v| most.max(v.abs()));
    let apart = |a: f64, b: f64| (a - b).abs();
    let kept = |at: &usize| case.keep[*at] != 0;
    let own = (0..exact.len()).filter(kept);
    let own = own.map(|at| apart(large.gradient[at].into(), exact[at])).fold(0.0, f64::max);
    let limit = (1e-5 * scale).max(20.0 * own);
    for (at, &from) in small.params.iter().enumerate().filter(|(_, from)| kept(&(**from as usize)))
    {
        let (a, b) = (large.gradient[from as usize], less.gradient[at]);
        prop_assert!(apart(a.into(), b.into()) <= limit, "{a} against {b}, limit {limit}");
    }
    let limit = (1e-5 * exact_loss.abs().max(1e-3)).max(20.0 * apart(large.loss, exact_loss));
    let (a, b) = (large.loss, less.loss);
    prop_assert!(apart(a, b) <= limit, "loss {a} against {b}, limit {limit}");
    Ok(())
}

/// Loss and gradient of a step in training, with the statistics of the batch.
struct Trained {
    loss: f64,
    gradient: Vec<f32>,
}

impl Trained {
    fn of(network: &Network, weights: &[f32], stats: &[f32], data: &Dataset) -> Self {
        let order: Vec<u32> = (0..data.rows() as u32).collect();
        let mut gradient = vec![0.0; weights.len()];
        let mut plan = Plan::new(network, order.len()).unwrap();
        let loss =
            plan.gradient_at(weights, &mut stats.to_vec(), data, &order, &mut gradient).unwrap();
        Self { loss, gradient }
    }
}

/// The same for the masked network in double precision.
fn exact(case: &Case, data: &Dataset) -> (f64, Vec<f64>) {
    let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
    let order: Vec<u32> = (0..data.rows() as u32).collect();
    let mut gradient = vec![0.0; case.weights.len()];
    let mut plan = ExactPlan::new(&case.network, order.len()).unwrap();
    let (weights, mut stats) = (wide(&case.weights), wide(&case.stats));
    let loss = plan.gradient(&weights, &mut stats, data, &order, &mut gradient).unwrap();
    (loss, gradient)
}

/// Sums over units at the end, all of them zero, end as they would without them.
#[test]
fn bits_are_equal_where_dead_units_lie_at_the_end() {
    let mut b = NetworkBuilder::new(9);
    let h = b.linear("fc1", b.input(), 8).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.linear("fc2", h, 6).unwrap();
    let h = b.tanh(h).unwrap();
    let out = b.linear("head", h, 2).unwrap();
    let network = b.finish(out, Loss::gaussian(1.0)).unwrap();
    let mut keep = vec![1; network.params().len()];
    // Inputs from 6 on, units of the first layer from 5 on and of the second from 3 on.
    for (name, rows, columns) in [("fc1", 5, 6), ("fc2", 3, 5), ("head", usize::MAX, 3)] {
        let weight = network.params().find(&format!("{name}.weight")).unwrap();
        let row = weight.fan_in();
        for (i, mark) in keep[weight.range()].iter_mut().enumerate() {
            *mark = u8::from(i / row < rows && i % row < columns);
        }
        let bias = network.params().find(&format!("{name}.bias")).unwrap();
        keep[bias.range()].iter_mut().enumerate().for_each(|(i, mark)| *mark = u8::from(i < rows));
    }
    let mut weights = vec![0.0; keep.len()];
    Key::new(5, 0, Stream::Initial).normals(0, 0, &mut weights);
    weights.iter_mut().zip(&keep).for_each(|(w, keep)| *w *= f32::from(*keep));
    let small = shrink(&network, &keep, Layout::SMALLEST).unwrap();
    assert_eq!(small.inputs, [0, 1, 2, 3, 4, 5]);
    assert_eq!(small.network.params().len(), 5 * 7 + 3 * 6 + 2 * 4);
    let data = rows(&network);
    let fewer = data.take_columns(&[0, 1, 2, 3, 4, 5]);
    let answers = |network: &Network, weights: &[f32], data: &Dataset| {
        let mut outputs = vec![0.0; 10];
        Plan::new(network, 5).unwrap().forward(weights, &[], data, 0..5, &mut outputs).unwrap();
        outputs.iter().map(|v: &f32| v.to_bits()).collect::<Vec<u32>>()
    };
    let own = small.take(&weights);
    assert_eq!(answers(&network, &weights, &data), answers(&small.network, &own, &fewer));
    let large = Trained::of(&network, &weights, &[], &data);
    let less = Trained::of(&small.network, &own, &[], &fewer);
    assert_eq!(large.loss.to_bits(), less.loss.to_bits());
    let bits = |values: Vec<f32>| values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(small.take(&large.gradient)), bits(less.gradient));
}

/// In the smallest layout a masked element stays only beside a kept one.
fn nothing_dead_stays_unforced(case: &Case, small: &Shrunk) -> Result<(), TestCaseError> {
    let marks = small.take(&case.keep);
    let left: usize = leftovers(&case.keep, small).iter().map(|l| l.masked).sum();
    let masked: usize = marks.iter().map(|mark| usize::from(*mark == 0)).sum();
    prop_assert_eq!(left, masked);
    for node in small.network.nodes() {
        let (Op::Conv2d { weight, .. } | Op::Linear { weight, .. }) = node.op else { continue };
        let weight = &small.network.params()[weight];
        let inputs = weight.shape[weight.shape.len() - 1];
        let marks = &marks[weight.range()];
        // One input always stays, and a picture stays whole.
        let reads_data = node.inputs == [NodeId(0)];
        for input in (0..inputs).filter(|_| inputs > 1 && !reads_data) {
            let mut kept = marks[input..].iter().step_by(inputs);
            prop_assert!(kept.any(|mark| *mark != 0), "{} reads {input}", weight.name);
        }
    }
    Ok(())
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    ProptestConfig {
        cases: if asked { default.cases } else { 120 },
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn shrinking_changes_nothing(seed in any::<u64>()) {
        let case = case(seed);
        let padded = Layout { multiple: 4, list_at_most: 0.6, grows: false };
        let growing = Layout { multiple: 2, list_at_most: 0.0, grows: true };
        for layout in [Layout::SMALLEST, Layout::CPU, padded, growing] {
            let small = shrink(&case.network, &case.keep, layout).unwrap();
            let found =
                agreement(&case.network, &small, (&case.keep, &case.weights), &case.stats, None)
                    .unwrap();
            prop_assert!(found.holds(), "{layout:?}: {found:?}");
            nothing_alive_is_gone(&case, &small)?;
            same_in_single_precision(&case, &small)?;
            if layout == Layout::SMALLEST {
                nothing_dead_stays_unforced(&case, &small)?;
                prop_assert!(small.network.multiply_adds() <= case.network.multiply_adds());
            }
        }
    }
}
