//! Runs and networks with weights that are all different, for the tests of this folder.

use thinfer_core::methods::initialize;
use thinfer_core::posterior::Posterior;
use thinfer_core::posterior::Snapshot;
use thinfer_core::weights::Weights;
use thinfer_data::Schema;
use thinfer_data::table::{Column, Encoding, Rules, Table, Target, Values};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{
    Arena, Dataset, Family, Loss, Network, NetworkBuilder, Plan, Role, Shape, Window,
};
use thinfer_run::config::Config;
use thinfer_run::run::{ImageInputs, Inputs, RunInfo, TableInputs};

/// Weights as at the start of a run; scales, shifts and statistics are all different, so that an
/// exchanged tensor shows.
pub(super) fn weights_of(network: &Network, seed: u64) -> Weights {
    let mut arena = Arena::new(network, 0);
    initialize(&mut arena, network.loss(), seed, 0).unwrap();
    let mut params = arena.weights().to_vec();
    let key = Key::new(seed, 0, Stream::Inputs);
    for param in network.params() {
        if matches!(param.role, Role::NormScale | Role::NormShift | Role::Bias) {
            param.range().for_each(|i| params[i] += 0.2 * key.normal(0, i));
        }
    }
    let mut stats = vec![0.0; network.stats().len()];
    for param in network.stats() {
        for i in param.range() {
            stats[i] = match param.role {
                Role::RunningMean => 0.2 * key.normal(1, i),
                _ => 0.5 + key.uniform(2, i),
            };
        }
    }
    Weights { params, stats }
}

/// What a network gives for made-up rows.
pub(super) fn outputs(network: &Network, weights: &Weights, rows: usize) -> Vec<f32> {
    let key = Key::new(9, 0, Stream::Inputs);
    let inputs = (0..rows * network.input_len()).map(|i| key.normal(3, i)).collect();
    let data = Dataset::new(network.input_len(), 0, inputs, Vec::new()).unwrap();
    let mut outputs = vec![0.0; rows * network.output_len()];
    let mut plan = Plan::new(network, rows).unwrap();
    plan.forward(&weights.params, &weights.stats, &data, 0..rows, &mut outputs).unwrap();
    outputs
}

pub(super) const SMALL: Shape = Shape { height: 8, width: 8, channels: 3 };

fn info(network: &Network, inputs: Inputs) -> RunInfo {
    RunInfo {
        thinfer: "0.0.0".into(),
        config: Config::parse("", &[]).unwrap(),
        network: network.clone(),
        inputs,
        rows: (1, 1, 1),
        data_fingerprint: 0,
        untrained_loss: None,
        device: "cpu".into(),
        cores: 1,
        platform: String::new(),
        notes: Vec::new(),
        unreadable: thinfer_data::images::Broken::default(),
    }
}

pub(super) fn images(network: &Network) -> RunInfo {
    let shape = network.nodes()[0].shape;
    let by_channel = |from: f32| (0..shape.channels).map(|c| from + 0.1 * c as f32).collect();
    let classes = (0..network.output_len()).map(|c| format!("c{c}")).collect();
    let images = ImageInputs { shape, classes, mean: by_channel(0.4), sd: by_channel(0.2) };
    info(network, Inputs::Images(images))
}

/// Two numbers, one of them far from zero, and a category of three levels.
pub(super) fn encoding() -> Encoding {
    let count: Vec<f64> = (0..30).map(f64::from).collect();
    let level = |row: usize| Some(["red", "green", "blue"][row % 3].to_owned());
    let columns = [
        ("mean", Values::Number(count.iter().map(|v| v * v).collect())),
        ("colour", Values::Text((0..30).map(level).collect())),
        ("year", Values::Number(count.iter().map(|v| 20_000.1 + v / 3.0).collect())),
        ("y", Values::Number(count)),
    ];
    let columns =
        columns.map(|(name, values)| Column { name: name.into(), values }).into_iter().collect();
    let rows: Vec<u32> = (0..30).collect();
    Encoding::learn(&Table { path: "t".into(), columns }, "y", &rows, &Rules::plain()).unwrap().0
}

/// A number, a category and a date with gaps, one of each without, and rare levels.
pub(super) fn encoding_with_gaps() -> Encoding {
    const KINDS: [&str; 6] = ["p", "q", "r", "s", "t", "rare"];
    let level = |row: usize, of: &[&str]| of[row % of.len()].to_owned();
    let is_gap = |row: usize, every: usize| row.is_multiple_of(every);
    let number = |every: usize| {
        let value = |row: usize| if is_gap(row, every) { f64::NAN } else { row as f64 };
        Values::Number((0..30).map(value).collect())
    };
    let text = |every: usize, of: &[&str]| {
        Values::Text((0..30).map(|row| (!is_gap(row, every)).then(|| level(row, of))).collect())
    };
    let date = |every: usize| {
        let day = |row: usize| format!("{}.{}.20{}", 1 + row % 28, 1 + row % 5, 10 + row % 9);
        let cell = |row: usize| (row % every != every - 1).then(|| day(row));
        Values::Text((0..30).map(cell).collect())
    };
    let columns = [
        ("size", number(4)),
        ("colour", text(5, &["red", "green", "blue"])),
        ("weight", Values::Number((0..30).map(|row| f64::from(row * row % 11)).collect())),
        ("shape", Values::Text((0..30).map(|row| Some(level(row, &["round", "flat"]))).collect())),
        (
            "kind",
            Values::Text((0..30).map(|row| Some(level(row / 6 + row / 29, &KINDS))).collect()),
        ),
        ("sold", date(5)),
        ("made", date(100)),
        ("y", Values::Number((0..30).map(f64::from).collect())),
    ];
    let column = |(name, values): (&str, Values)| Column { name: name.into(), values };
    let columns = columns.into_iter().map(column).collect();
    let rows: Vec<u32> = (0..30).collect();
    let table = Table { path: "t".into(), columns };
    Encoding::learn(&table, "y", &rows, &Rules::default()).unwrap().0
}

/// So many numbers by the names `x1`, `x2` and so on.
pub(super) fn numbers(count: usize) -> Encoding {
    let value = |at: usize| (0..9).map(|row| f64::from(row * (1 + at as u32 % 4) % 7)).collect();
    let column = |at| Column { name: format!("x{at}"), values: Values::Number(value(at)) };
    let mut columns: Vec<Column> = (1..=count).map(column).collect();
    columns.push(Column { name: "y".into(), values: Values::Number(value(1)) });
    let rows: Vec<u32> = (0..9).collect();
    Encoding::learn(&Table { path: "t".into(), columns }, "y", &rows, &Rules::plain()).unwrap().0
}

pub(super) fn table(network: &Network, target: Target) -> RunInfo {
    table_of(network, encoding(), target)
}

pub(super) fn table_of(network: &Network, encoding: Encoding, target: Target) -> RunInfo {
    let schema = Schema { target_name: "y".into(), encoding, target };
    let (groups, names) = (schema.encoding.groups(), schema.encoding.names());
    info(network, Inputs::Table(TableInputs { schema, groups, names }))
}

pub(super) fn classes(count: usize) -> Target {
    Target::Classes { levels: (0..count).map(|c| format!("c{c}")).collect() }
}

/// Samples of two chains, each with its own mask.
pub(super) fn posterior(network: &Network, samples: u32) -> Posterior {
    let member = |sample: u32| {
        let mut weights = weights_of(network, u64::from(sample) + 1);
        let keep = mask(network, sample % 2);
        weights.params.iter_mut().zip(&keep).for_each(|(w, keep)| *w *= f32::from(*keep));
        Snapshot {
            chain: sample % 2,
            epoch: sample as usize,
            weights: weights.params,
            keep,
            stats: weights.stats,
            inclusion: Vec::new(),
        }
    };
    Posterior { network: network.clone(), members: (0..samples).map(member).collect() }
}

/// Single weights, and channels by their number with their norms and biases: the same in all
/// layers, so that those of a residual stream agree.
fn mask(network: &Network, chain: u32) -> Vec<u8> {
    let key = Key::new(5, chain, Stream::Inputs);
    let dead = |channel: usize| key.uniform(0, channel) < 0.5;
    let mut keep = vec![1u8; network.params().len()];
    for node in
        network.nodes().iter().filter(|n| n.name != network.nodes()[network.output().0].name)
    {
        let params = match node.op.family() {
            Family::Weights { .. } | Family::Norm { .. } => node.op.params(),
            Family::Input
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::Sum
            | Family::List(..)
            | Family::Scales { .. } => Vec::new(),
        };
        for param in params.into_iter().map(|at| &network.params()[at]) {
            let row = param.fan_in();
            for i in param.range() {
                let single = param.role.is_weight() && key.uniform(1, i) < 0.2;
                keep[i] = u8::from(!single && !dead((i - param.offset) / row));
            }
        }
    }
    if let Some(first) = network.first_weight() {
        let columns = first.fan_in();
        first.range().filter(|i| dead(99 + (i - first.offset) % columns)).for_each(|i| keep[i] = 0);
    }
    keep
}

/// Lists of channels and of numbers on an image and on a vector, and a sum of the two forms of a
/// vector.
pub(super) fn listed() -> Network {
    let mut b = NetworkBuilder::image(SMALL);
    let h = b
        .conv2d_with(
            "conv1",
            b.input(),
            6,
            Window { size: [3, 2], stride: [1, 2], padding: [1, 0] },
            true,
        )
        .unwrap();
    let r = b.select(h, vec![4, 1, 5]).unwrap();
    let r = b.conv2d("conv2", r, 2, Window::square(3, 1, 1)).unwrap();
    let r = b.batch_norm("bn", r).unwrap();
    let r = b.spread(r, vec![5, 2], 6).unwrap();
    let h = b.add(h, r).unwrap();
    let h = b.tanh(h).unwrap();
    let h = b.max_pool(h, Window::square(3, 2, 1)).unwrap();
    let h = b.average_pool(h, Window::square(3, 1, 1)).unwrap();
    let l = b.pick(h, vec![13, 0, 7, 2, 22]).unwrap();
    let l = b.linear("fc1", l, 4).unwrap();
    let p = b.global_average_pool(h).unwrap();
    let p = b.select(p, vec![0, 3, 2]).unwrap();
    let p = b.spread(p, vec![3, 0, 1], 4).unwrap();
    let p = b.pick(p, vec![2, 0, 3, 1]).unwrap();
    let h = b.add(l, p).unwrap();
    let h = b.conv2d("conv3", h, 4, Window::square(1, 1, 0)).unwrap();
    let h = b.batch_norm("bn3", h).unwrap();
    let h = b.relu(h).unwrap();
    let out = b.linear_with("fc2", h, 3, false).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}
