//! What running a plan would cost.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use thinfer_core::device::Device;
use thinfer_core::methods::initialize;
use thinfer_core::model::image_network;
use thinfer_core::schedule::sampling_epochs;
use thinfer_data::Result;
use thinfer_engine::{Arena, Network, Plan as Pass, Shape};
use thinfer_run::config::{Config, DataKind};
use thinfer_run::experiment::{Problem, ProblemInputs, plain_network};

use super::super::table_file::results;
use super::outcome::Outcome;
use super::plan::{Job, Plan};
use crate::bench::random_batch;

/// Steps of Algorithm 2 on one H200, as `thinfer bench --json` printed them.
const BENCHED: [&str; 5] = [
    include_str!("../../../measured/thinfer-resnet18-cifar-64.json"),
    include_str!("../../../measured/thinfer-resnet18-cifar-128.json"),
    include_str!("../../../measured/thinfer-resnet18-cifar-512.json"),
    include_str!("../../../measured/thinfer-wrn-28-10-128.json"),
    include_str!("../../../measured/thinfer-resnet50-256.json"),
];

/// Training images and test images of ImageNet.
const IMAGENET: (usize, usize) = (1_281_167, 50_000);
/// Its classes.
const IMAGENET_CLASSES: usize = 1000;
/// Forward and backward, against forward alone.
const WITH_BACKWARD: f64 = 3.0;
/// Multiply-adds of one pass that measures the CPU: about a second.
const TRIAL: f64 = 2e10;

/// Where an estimate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Finished runs of the same row.
    Row,
    /// Finished runs of the same data, network, batch and device.
    Network,
    /// The steps that were timed on an NVIDIA H200.
    Bench,
    /// Multiply-adds, at the rate of a gradient that was just timed on this CPU.
    MultiplyAdds,
}

/// What one row will cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The row.
    pub row: String,
    /// Runs asked for.
    pub asked: usize,
    /// Runs that are finished.
    pub done: usize,
    /// Runs that were begun and go on.
    pub begun: usize,
    /// Epochs of a run.
    pub epochs: usize,
    /// Seconds of one whole run where it has the device for itself.
    pub seconds_each: f64,
    /// Where that comes from.
    pub source: Source,
    /// About the bytes that a run leaves on disk.
    pub bytes_each: u64,
}

impl Cost {
    /// Seconds of the device that are still to be spent; what runs that were begun have done
    /// already is not taken off.
    pub fn seconds_left(&self) -> f64 {
        (self.asked - self.done) as f64 * self.seconds_each
    }

    /// Bytes that are still to be written.
    pub fn bytes_left(&self) -> u64 {
        (self.asked - self.done) as u64 * self.bytes_each
    }
}

impl Plan {
    /// What running the plan on a device would cost, beside what `out` holds already.
    pub fn costs(&self, out: &Path, device: Device, device_name: &str) -> Result<Vec<Cost>> {
        let jobs = self.jobs()?;
        self.check(&jobs)?;
        let (kept, _): (Vec<Outcome>, _) = results(out);
        let mut rate = None;
        let mut costs: Vec<Cost> = Vec::new();
        for row in &self.rows {
            let of_row: Vec<&Job> = jobs.iter().filter(|job| job.row == *row).collect();
            let Some(job) = of_row.first() else { continue };
            let here = |o: &&Outcome| {
                let (data, model) = (job.config.data.kind.name(), &job.config.model.name);
                (o.device.as_str(), o.data.as_str()) == (device_name, data)
                    && (&o.model, o.batch) == (model, job.config.train.batch)
            };
            let alike: Vec<&Outcome> = kept.iter().filter(here).collect();
            let same = |o: &&Outcome| {
                (o.network.as_str(), o.method.as_str(), o.percent)
                    == (row.network, row.method, row.percent)
            };
            let own: Vec<&Outcome> = alike.iter().copied().filter(same).collect();
            let epochs = job.config.train.epochs;
            let (seconds_each, source) = if !own.is_empty() {
                (epochs as f64 * seconds_an_epoch(&own), Source::Row)
            } else if !alike.is_empty() {
                (epochs as f64 * seconds_an_epoch(&alike), Source::Network)
            } else if device == Device::Cpu {
                let rate = match rate {
                    Some(rate) => rate,
                    None => *rate.insert(multiply_adds_a_second(&network(&job.config)?)?),
                };
                (by_multiply_adds(&job.config, rate)?, Source::MultiplyAdds)
            } else {
                (by_bench(&job.config)?, Source::Bench)
            };
            let mut done = 0;
            for job in &of_row {
                done += usize::from(job.kept(out)?.is_some());
            }
            let begun = of_row.iter().filter(|job| job.begun(out)).count();
            costs.push(Cost {
                row: row.name(),
                asked: of_row.len(),
                done,
                begun: begun.saturating_sub(done),
                epochs,
                seconds_each,
                source,
                bytes_each: bytes(&job.config)?,
            });
        }
        Ok(costs)
    }
}

fn seconds_an_epoch(outcomes: &[&Outcome]) -> f64 {
    let each = |o: &&Outcome| o.seconds / (o.epochs * o.jobs).max(1) as f64;
    outcomes.iter().map(each).sum::<f64>() / outcomes.len().max(1) as f64
}

/// Training and test images of the data.
fn whole_rows(config: &Config) -> (usize, usize) {
    match config.data.kind {
        DataKind::Cifar10 | DataKind::Cifar100 => (50_000, 10_000),
        DataKind::Mnist | DataKind::FashionMnist => (60_000, 10_000),
        DataKind::Images => IMAGENET,
        _ => (config.data.train_rows, config.data.test_rows),
    }
}

/// Training and test images that the network sees in an epoch, without looking at them. Every
/// member of a Rank-1 BNN sees them all, and in tests every draw does.
fn images(config: &Config) -> (usize, usize) {
    let (train, test) = whole_rows(config);
    let method = &config.method;
    let rank1 = method.kind.name() == "rank1";
    let [members, draws] =
        ["members", "draws"].map(|key| method.own.whole(key).filter(|_| rank1).unwrap_or(1));
    (train * members, test * members * draws)
}

/// What its networks and methods have to know of the data, without reading them.
pub(super) fn problem(config: &Config) -> Problem<'static> {
    let square = |side, channels| Shape { height: side, width: side, channels };
    let (shape, classes) = match config.data.kind {
        DataKind::Cifar10 => (square(32, 3), 10),
        DataKind::Cifar100 => (square(32, 3), 100),
        DataKind::Images => (square(config.data.image_size, 3), folders(config)),
        _ => (square(28, 1), 10),
    };
    let train_rows = whole_rows(config).0;
    Problem { train_rows, fingerprint: 0, inputs: ProblemInputs::Image { shape, classes } }
}

/// Classes of a folder of images, each a folder of its own; those of ImageNet where it is not
/// there.
fn folders(config: &Config) -> usize {
    let path = Path::new(config.data.path.as_deref().unwrap_or_default());
    let train = path.join("train");
    let entries = std::fs::read_dir(if train.is_dir() { &train } else { path });
    let count = entries.map(|all| all.flatten().filter(|entry| entry.path().is_dir()).count());
    count.ok().filter(|count| *count > 0).unwrap_or(IMAGENET_CLASSES)
}

fn network(config: &Config) -> Result<Network> {
    plain_network(config, problem(config))
}

/// Seconds of a run at so many multiply-adds a second.
fn by_multiply_adds(config: &Config, rate: f64) -> Result<f64> {
    let (train, test) = images(config);
    let tested = test as f64 / config.train.evaluate_every_epochs.max(1) as f64;
    let images = WITH_BACKWARD * train as f64 + tested;
    let work = images * network(config)?.multiply_adds() as f64;
    Ok(work * (config.train.epochs * config.chains) as f64 / rate)
}

/// Times a gradient on all cores of this machine.
fn multiply_adds_a_second(network: &Network) -> Result<f64> {
    let work = WITH_BACKWARD * network.multiply_adds() as f64;
    let batch = (TRIAL / work).clamp(1.0, 32.0) as usize;
    let data = random_batch(network, batch)?;
    let rows: Vec<u32> = (0..batch as u32).collect();
    let mut arena = Arena::new(network, 0);
    initialize(&mut arena, network.loss(), 1, 0)?;
    let mut plan = Pass::new(network, batch)?;
    // The first pass also pays for memory that is touched for the first time.
    plan.gradient(&mut arena, &data, &rows)?;
    let started = Instant::now();
    plan.gradient(&mut arena, &data, &rows)?;
    Ok(batch as f64 * work / started.elapsed().as_secs_f64().max(1e-9))
}

/// A step that was timed.
#[derive(serde::Deserialize)]
struct Benched {
    model: String,
    batch: usize,
    milliseconds: Step,
}

#[derive(serde::Deserialize)]
struct Step {
    step: f64,
    forward: f64,
}

/// Seconds of a run by the steps that were timed: between batches in proportion, and networks that
/// were not timed by their multiply-adds.
fn by_bench(config: &Config) -> Result<f64> {
    let timed: Vec<Benched> =
        BENCHED.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    let wanted = network(config)?.multiply_adds() as f64;
    let size = |bench: &Benched| -> f64 {
        let (shape, classes) = crate::bench::usual_input(&bench.model);
        image_network(&bench.model, shape, classes).map_or(1.0, |n| n.multiply_adds() as f64)
    };
    let distance = |bench: &Benched| {
        let other = usize::from(bench.model != config.model.name);
        (other, (size(bench) / wanted).ln().abs())
    };
    let nearest = timed.iter().min_by(|a, b| {
        let (a, b) = (distance(a), distance(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let Some(nearest) = nearest else { return Ok(0.0) };
    let of_model: Vec<&Benched> = timed.iter().filter(|b| b.model == nearest.model).collect();
    let batch = config.train.batch as f64;
    let at = |value: fn(&Benched) -> f64| {
        let points: Vec<(f64, f64)> = of_model.iter().map(|b| (b.batch as f64, value(b))).collect();
        between(&points, batch) * wanted / size(nearest)
    };
    let (train, test) = images(config);
    let tests = test as f64 / batch / config.train.evaluate_every_epochs.max(1) as f64;
    let epoch = (train as f64 / batch).ceil() * at(|b| b.milliseconds.step)
        + tests * at(|b| b.milliseconds.forward);
    Ok(1e-3 * epoch * (config.train.epochs * config.chains) as f64)
}

/// Along the line through the two nearest points, or in proportion to the only one.
fn between(points: &[(f64, f64)], at: f64) -> f64 {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    match &sorted[..] {
        [] => 0.0,
        [(x, y)] => y * at / x,
        many => {
            let above = many.iter().position(|(x, _)| *x >= at).unwrap_or(many.len() - 1).max(1);
            let ((x0, y0), (x1, y1)) = (many[above - 1], many[above]);
            (y0 + (y1 - y0) * (at - x0) / (x1 - x0)).max(0.0)
        }
    }
}

/// About what a run leaves on disk: its samples with their masks, and two checkpoints of weights
/// and two numbers of state.
fn bytes(config: &Config) -> Result<u64> {
    let weights = network(config)?.params().len() as u64;
    let cycles = config.schedule.step_size.schedule(1).cycles(config.train.epochs);
    let samples = sampling_epochs(&cycles, config.train.samples_per_cycle).len() as u64;
    Ok(weights * (5 * samples + 2 * 13) * config.chains as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_between_batches_and_of_other_networks_are_in_proportion() {
        let points = [(64.0, 1.0), (128.0, 2.0), (512.0, 6.0)];
        assert_eq!(between(&points, 96.0), 1.5);
        assert_eq!(between(&points, 320.0), 4.0);
        assert_eq!(between(&points, 896.0), 10.0);
        assert_eq!(between(&points, 32.0), 0.5);
        assert_eq!(between(&points[..1], 32.0), 0.5);
    }

    /// results/cifar10: 200 epochs of SGD took 166 s, before a step became a little faster.
    #[test]
    fn a_run_that_was_measured_is_estimated_about_right() {
        let text = include_str!("../../../configs/cifar10-resnet18-sgd.toml");
        let config = Config::parse(text, &[]).unwrap();
        let seconds = by_bench(&config).unwrap();
        assert!((130.0..180.0).contains(&seconds), "{seconds}");
        // ResNet-34 has about twice the multiply-adds of ResNet-18.
        let text = include_str!("../../../configs/cifar100-resnet34-sgd.toml");
        let larger = by_bench(&Config::parse(text, &[]).unwrap()).unwrap();
        assert!((1.9..2.3).contains(&(larger / seconds)), "{larger}");
    }

    #[test]
    fn work_grows_with_epochs_images_and_chains() {
        let config = |more: &[&str]| {
            let mut set = vec!["data.kind=shapes", "model.name=lenet", "train.epochs=10"];
            set.extend(more);
            let set: Vec<String> = set.into_iter().map(str::to_owned).collect();
            Config::parse("", &set).unwrap()
        };
        let seconds = |more: &[&str]| by_multiply_adds(&config(more), 1e9).unwrap();
        assert_eq!(seconds(&["chains=4"]), 4.0 * seconds(&[]));
        assert_eq!(seconds(&["train.epochs=40"]), 4.0 * seconds(&[]));
        let few = seconds(&["data.train_rows=1000", "data.test_rows=50"]);
        let macs = network(&config(&[])).unwrap().multiply_adds() as f64;
        assert!((few - 10.0 * 3050.0 * macs / 1e9).abs() < 1e-9, "{few}");
        let text = include_str!("../../../configs/cifar10-wrn-28-10-rank1-cauchy.toml");
        assert_eq!(images(&Config::parse(text, &[]).unwrap()), (4 * 50_000, 16 * 10_000));
        // Two cycles of three samples, and two checkpoints of 13 bytes a weight.
        let weights = network(&config(&[])).unwrap().params().len() as u64;
        let two = config(&["schedule.step_size.cycles=2", "train.samples_per_cycle=3"]);
        assert_eq!(bytes(&two).unwrap(), weights * (5 * 6 + 26));
    }
}
