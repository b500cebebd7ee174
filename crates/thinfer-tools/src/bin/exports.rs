//! Exports of made-up posteriors for `tests/interop/check_export.py`, with the answers they must
//! give.
//!
//! `exports NETWORK SIZE CHANNELS CLASSES FOLDER` writes all ways to export three samples of an
//! image network of which about half the channels are pruned, `rows.f32` (images from 0 to 1,
//! channels first) and the probabilities as `all.f32` and `last.f32`. `exports table KIND FOLDER`,
//! KIND regression, binary or classes, does the same for a table, with `rows.json` and the columns
//! of `thinfer predict` as `all.json` and `last.json`.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::json;
use thinfer::config::{Activation, Config};
use thinfer::data::Schema;
use thinfer::data::table::{Column, Encoding, Rules, Table, Target, Values};
use thinfer::export::{Format, Options, Samples, export};
use thinfer::methods::initialize;
use thinfer::model::{image_network, mlp};
use thinfer::posterior::Posterior;
use thinfer::posterior::Snapshot;
use thinfer::predict::predict;
use thinfer::run::{ImageInputs, Inputs, RunInfo, TableInputs};
use thinfer_engine::augment::Choice;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Dataset, Loss, Network, Op, Role, Shape};

type Outcome = Result<(), Box<dyn Error>>;

const ROWS: usize = 5;
/// Stem of the files, which samples, `--dense`, `--fold-norms`.
const WAYS: [(&str, Samples, bool, bool); 6] = [
    ("all-dense", Samples::All, true, false),
    ("all-small", Samples::All, false, false),
    ("all-folded", Samples::All, false, true),
    ("last-dense", Samples::Last, true, false),
    ("last-small", Samples::Last, false, false),
    ("last-folded", Samples::Last, false, true),
];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [word, kind, folder] if word == "table" => table(kind, Path::new(folder)),
        [name, size, channels, classes, folder] => {
            let size = size.parse()?;
            let shape = Shape { height: size, width: size, channels: channels.parse()? };
            images(name, shape, classes.parse()?, Path::new(folder))
        }
        _ => {
            Err("usage: exports NETWORK SIZE CHANNELS CLASSES FOLDER, or exports table KIND FOLDER"
                .into())
        }
    }
}

fn images(name: &str, shape: Shape, classes: usize, folder: &Path) -> Outcome {
    let network = image_network(name, shape, classes)?;
    let by_channel = |from: f32| (0..shape.channels).map(|c| from + 0.1 * c as f32).collect();
    let classes = (0..classes).map(|c| format!("class {c}")).collect();
    let inputs = ImageInputs { shape, classes, mean: by_channel(0.4), sd: by_channel(0.2) };
    let (mut rows, mut read) = (Vec::new(), Vec::new());
    for row in 0..ROWS {
        let key = Key::new(7, 0, Stream::Inputs);
        let bytes: Vec<u8> =
            (0..shape.len()).map(|at| key.below(row as u64, at, 256) as u8).collect();
        let mut image = vec![0.0; shape.len()];
        let still = Choice { down: 0, right: 0, mirrored: false };
        inputs.augment()?.image(&bytes, still, &mut image)?;
        read.extend(image);
        for channel in 0..shape.channels {
            let own = bytes.iter().skip(channel).step_by(shape.channels);
            rows.extend(own.map(|byte| f32::from(*byte) / 255.0));
        }
    }
    let data = Dataset::new(shape.len(), 0, read, Vec::new())?;
    let posterior = posterior(&network)?;
    let info = info(&network, Inputs::Images(inputs))?;
    fs::write(folder.join("rows.f32"), floats(rows))?;
    for (stem, chosen) in [("all", posterior.clone()), ("last", posterior.last())] {
        let shares = chosen.predict(&data)?.mean();
        fs::write(
            folder.join(format!("{stem}.f32")),
            floats(shares.into_iter().map(|p| p as f32)),
        )?;
    }
    write(&info, &posterior, folder)
}

fn table(kind: &str, folder: &Path) -> Outcome {
    let count: Vec<f64> = (0..30).map(f64::from).collect();
    let level = |row: usize| Some(["red", "green", "blue"][row % 3].to_owned());
    let columns = vec![
        ("size", Values::Number(count.iter().map(|v| v * v).collect())),
        ("colour", Values::Text((0..30).map(level).collect())),
        ("year", Values::Number(count.iter().map(|v| 2000.1 + v / 3.0).collect())),
        ("weight", Values::Number(count.iter().map(|v| (v - 10.0).sin()).collect())),
        ("y", Values::Number(count)),
    ];
    let columns =
        columns.into_iter().map(|(name, values)| Column { name: name.into(), values }).collect();
    let rows = Table { path: "rows".into(), columns };
    let all: Vec<u32> = (0..30).collect();
    let encoding = Encoding::learn(&rows, "y", &all, &Rules::plain())?.0;
    let levels = |count: usize| (0..count).map(|c| format!("class {c}")).collect();
    let (outputs, loss, target) = match kind {
        "regression" => (1, Loss::gaussian_learned(0.5), Target::Number { mean: 40.0, sd: 3.0 }),
        "binary" => (1, Loss::Bernoulli, Target::Classes { levels: levels(2) }),
        "classes" => (4, Loss::cross_entropy(), Target::Classes { levels: levels(4) }),
        _ => return Err("KIND is regression, binary or classes".into()),
    };
    let network = mlp(encoding.width(), &[16, 8], Activation::Tanh, outputs, loss)?;
    let schema = Schema { target_name: "price".into(), encoding, target };
    let (groups, names) = (schema.encoding.groups(), schema.encoding.names());
    let info = info(&network, Inputs::Table(TableInputs { schema, groups, names }))?;
    let posterior = posterior(&network)?;
    let cells = |column: &Column| match &column.values {
        Values::Number(values) => json!(values),
        Values::Text(values) => json!(values),
    };
    let given: serde_json::Map<_, _> =
        rows.columns.iter().map(|column| (column.name.clone(), cells(column))).collect();
    fs::write(folder.join("rows.json"), json!(given).to_string())?;
    for (stem, chosen) in [("all", posterior.clone()), ("last", posterior.last())] {
        let answers = predict(&info, &chosen, &rows)?.to_json();
        fs::write(folder.join(format!("{stem}.json")), json!(answers).to_string())?;
    }
    write(&info, &posterior, folder)
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn write(info: &RunInfo, posterior: &Posterior, folder: &Path) -> Outcome {
    for (stem, samples, dense, fold_norms) in WAYS {
        let options = Options { samples, fold_norms, dense, ..Options::default() };
        for format in [Format::Safetensors, Format::Onnx] {
            let path = folder.join(format!("{stem}.{}", format.extension()));
            export(info, posterior, format, &options, &path)?;
        }
    }
    Ok(())
}

fn info(network: &Network, inputs: Inputs) -> Result<RunInfo, Box<dyn Error>> {
    Ok(RunInfo {
        thinfer: env!("CARGO_PKG_VERSION").into(),
        config: Config::parse("", &[])?,
        network: network.clone(),
        inputs,
        rows: (1, 1, 1),
        data_fingerprint: 0,
        untrained_loss: None,
        device: "cpu".into(),
        cores: 1,
        platform: String::new(),
        notes: Vec::new(),
        unreadable: thinfer::data::images::Broken::default(),
    })
}

/// Three samples with weights, norms and statistics that are all different, and one mask.
fn posterior(network: &Network) -> Result<Posterior, Box<dyn Error>> {
    let keep = mask(network);
    let mut members = Vec::new();
    for seed in 1..4u64 {
        let mut arena = Arena::new(network, 0);
        initialize(&mut arena, network.loss(), seed, 0)?;
        let mut weights = arena.weights().to_vec();
        let key = Key::new(seed, 0, Stream::Inputs);
        for param in network.params() {
            if matches!(param.role, Role::NormScale | Role::NormShift | Role::Bias) {
                param.range().for_each(|i| weights[i] += 0.2 * key.normal(0, i));
            }
        }
        weights.iter_mut().zip(&keep).for_each(|(w, keep)| *w *= f32::from(*keep));
        let mut stats = vec![0.0; network.stats().len()];
        for param in network.stats() {
            for i in param.range() {
                stats[i] = match param.role {
                    Role::RunningMean => 0.2 * key.normal(1, i),
                    _ => 0.5 + key.uniform(2, i),
                };
            }
        }
        members.push(Snapshot {
            chain: 0,
            epoch: seed as usize,
            weights,
            keep: keep.clone(),
            stats,
            inclusion: Vec::new(),
        });
    }
    Ok(Posterior { network: network.clone(), members })
}

/// Prunes channels by their number, the same in all layers so that those of a residual stream
/// agree, with their norms and biases; and some inputs of the first linear layer.
fn mask(network: &Network) -> Vec<u8> {
    let key = Key::new(5, 0, Stream::Inputs);
    let dead = |channel: usize| key.uniform(0, channel) < 0.5;
    let mut keep = vec![1u8; network.params().len()];
    for node in network.nodes() {
        if node.inputs.is_empty() || network.nodes()[network.output().0] == *node {
            continue;
        }
        let params: Vec<usize> = match &node.op {
            Op::Linear { weight, bias } | Op::Conv2d { weight, bias, .. } => {
                [Some(*weight), *bias].into_iter().flatten().collect()
            }
            Op::BatchNorm { scale, shift, .. } => vec![*scale, *shift],
            _ => Vec::new(),
        };
        for param in params.into_iter().map(|at| &network.params()[at]) {
            let row = param.fan_in();
            for i in param.range().filter(|i| dead((i - param.offset) / row)) {
                keep[i] = 0;
            }
        }
    }
    if let Some(first) = network.first_weight() {
        let columns = first.fan_in();
        first
            .range()
            .filter(|i| dead(100 + (i - first.offset) % columns))
            .for_each(|i| keep[i] = 0);
    }
    keep
}
