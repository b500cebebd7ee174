//! Figures 1 and 2 of the paper, from runs in folders.

use std::path::{Path, PathBuf};

use serde::Serialize;
use thinfer_core::methods::{em_mcmc, sghmc};
use thinfer_core::train::{ChainResult, Channel, Observer, Record, Side};
use thinfer_data::ImageData;
use thinfer_data::files::write_whole;
use thinfer_data::{Error, Result};
use thinfer_engine::{Network, Op};
use thinfer_run::config::{Config, MethodKind};
use thinfer_run::experiment::build_network;
use thinfer_run::run::{Control, Mode, RunInfo, open_results, train};

use super::table_file::claim_folder;
use crate::report::figures::{ChannelPaths, Drawing, PruningCourse, pruning_courses, weight_paths};

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The paths of all weights of some channels under Algorithm 2, and the step size.
    WeightPaths,
    /// Test accuracy, soft-mask share and sparsity over the epochs, for DFP and DPF.
    Pruning,
}

impl Figure {
    /// Its name, which is also that of its files.
    pub fn name(self) -> &'static str {
        match self {
            Figure::WeightPaths => "figure1",
            Figure::Pruning => "figure2",
        }
    }

    /// Its files in a folder: SVG and PNG.
    pub fn files(self, folder: &Path) -> [PathBuf; 2] {
        ["svg", "png"].map(|ending| folder.join(format!("{}.{ending}", self.name())))
    }
}

/// What was drawn, and from what.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The figure as SVG.
    pub svg: PathBuf,
    /// The figure as PNG.
    pub png: PathBuf,
    /// The folders of the runs.
    pub runs: Vec<PathBuf>,
}

/// The channels of the paper's Figure 1: layer, side and channel of ResNet-18, whose convolutions
/// are counted from 0 without shortcuts, and how many channels that side has there.
const CHANNELS: [(usize, Side, usize, usize); 5] = [
    (1, Side::In, 3, 64),
    (6, Side::In, 20, 128),
    (6, Side::Out, 14, 128),
    (12, Side::Out, 50, 256),
    (16, Side::Out, 100, 512),
];
/// The number of the last of them.
const LAST_LAYER: usize = 16;

/// The channels of Figure 1: the paper's in a ResNet-18, and those at the same share of depth and
/// width in other networks.
pub fn figure_channels(network: &Network) -> Vec<Channel> {
    let convolutions: Vec<(&str, usize, usize)> = network
        .nodes()
        .iter()
        .filter_map(|node| match &node.op {
            Op::Conv2d { weight, window, .. } if window.size != [1, 1] => {
                let shape = &network.params()[*weight].shape;
                Some((node.name.as_str(), shape[3], shape[0]))
            }
            _ => None,
        })
        .collect();
    let mut chosen: Vec<Channel> = Vec::new();
    for (layer, side, number, of) in CHANNELS {
        let last = convolutions.len().saturating_sub(1);
        let Some(&(name, inputs, outputs)) = convolutions.get((layer * last).div_ceil(LAST_LAYER))
        else {
            continue;
        };
        let channels = if side == Side::In { inputs } else { outputs };
        // Small networks have fewer channels than that; then neighbours are taken.
        let free = (0..channels)
            .map(|next| (number * channels / of + next) % channels)
            .map(|number| Channel { layer: name.to_owned(), side, number })
            .find(|channel| !chosen.contains(channel));
        chosen.extend(free);
    }
    chosen
}

/// The runs that a figure needs, by the name of their folder, from a configuration for images.
pub fn figure_runs(figure: Figure, config: &Config) -> Result<Vec<(&'static str, Config)>> {
    if !config.data.kind.is_images() {
        let problem = format!(
            "is {}, but {} shows a network for images; give a configuration for images with --config",
            config.data.kind.name(),
            figure.name()
        );
        return Err(Error::config("data.kind", problem));
    }
    let mut one = config.clone();
    one.chains = 1;
    one.train.record_every_epochs = Some(1);
    Ok(match figure {
        Figure::WeightPaths => {
            one.method.kind = MethodKind::of(&sghmc::METHOD);
            if one.train.trace.is_empty() {
                let network = build_network(&one, &ImageData::load(&one.data, one.seed)?)?;
                let channels = figure_channels(&network);
                one.train.trace = channels.iter().map(Channel::to_string).collect();
            }
            vec![("paths", one)]
        }
        Figure::Pruning => {
            one.method.kind = MethodKind::of(&em_mcmc::METHOD);
            one.train.evaluate_every_epochs = 1;
            let with = |regrow: bool| {
                let mut config = one.clone();
                config.prune.regrow = regrow;
                config
            };
            vec![("dfp", with(false)), ("dpf", with(true))]
        }
    })
}

/// Trains what a figure needs in `folder` and draws it there. With [`Mode::Resume`] what is trained
/// already is not trained again, and an interrupted run goes on.
pub fn reproduce_figure(
    figure: Figure,
    config: &Config,
    folder: &Path,
    mode: Mode,
    control: &Control<'_>,
) -> Result<Figures> {
    let needed = figure_runs(figure, config)?;
    let _until_the_end = claim_folder(folder)?;
    let mut runs = Vec::new();
    for (name, config) in needed {
        let run = folder.join(name);
        train(&config, &run, mode, control)?;
        runs.push(run);
    }
    draw_figure(figure, &runs, folder, control.observer)
}

/// Draws a figure from runs that are there, into `folder`.
pub fn draw_figure(
    figure: Figure,
    runs: &[PathBuf],
    folder: &Path,
    observer: &dyn Observer,
) -> Result<Figures> {
    let opened = runs
        .iter()
        .map(|run| {
            let (info, mut results) = open_results(run, observer)?;
            // Chains differ in their random numbers alone; the first is shown.
            results.truncate(1);
            let result = results.pop();
            result.map(|result| (info, result)).ok_or_else(|| Error::store(run, "has no chain yet"))
        })
        .collect::<Result<Vec<(RunInfo, ChainResult)>>>()?;
    let drawing = match (figure, &opened[..]) {
        (Figure::WeightPaths, [(_, result)]) => paths(&runs[0], result)?,
        (Figure::WeightPaths, _) => {
            return Err(Error::config("--run", "is to be given once: figure1 shows one run"));
        }
        (Figure::Pruning, several) => {
            let table = several.iter().position(|(info, _)| !info.config.data.kind.is_images());
            if let Some(at) = table {
                let run = runs[at].display();
                let problem = format!("{run} is a run on a table; figure2 shows runs on images");
                return Err(Error::config("--run", problem));
            }
            let named = several.iter().zip(runs);
            let named: Vec<(&Config, &Path)> =
                named.map(|((info, _), run)| (&info.config, run.as_path())).collect();
            let courses = several.iter().zip(labels(&named));
            let courses: Vec<PruningCourse> =
                courses.map(|((_, result), name)| course(name, result)).collect();
            pruning_courses(&courses)?
        }
    };
    std::fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
    let [svg, png] = figure.files(folder);
    let files = Figures { svg, png, runs: runs.to_vec() };
    write_whole(&files.svg, drawing.svg.as_bytes())?;
    write_whole(&files.png, &drawing.png)?;
    Ok(files)
}

fn paths(run: &Path, result: &ChainResult) -> Result<Drawing> {
    let channels: Vec<ChannelPaths> = result
        .trace
        .paths()
        .into_iter()
        .map(|(channel, paths)| {
            let side = if channel.side == Side::In { "input" } else { "output" };
            let title = format!("{}, {side} channel {}", channel.layer, channel.number);
            ChannelPaths { title, paths }
        })
        .collect();
    if result.trace.epochs() == 0 {
        return Err(Error::store(
            run,
            "has no paths of weights: `train.trace` names no channels, or no epoch is done yet; train it with --set 'train.trace=[\"LAYER:out:NUMBER\"]'",
        ));
    }
    let step_size: Vec<(f64, f64)> =
        result.records.iter().map(|r| (r.epoch as f64 + 1.0, r.step_size)).collect();
    weight_paths(&channels, &step_size)
}

/// How a run prunes.
fn label(config: &Config) -> String {
    match (config.method.kind.name(), config.prune.regrow) {
        ("em-mcmc", false) => "DFP: what is pruned stays pruned".to_owned(),
        ("em-mcmc", true) => "DPF: what is pruned may come back".to_owned(),
        ("sm", _) => "SM: sparse momentum".to_owned(),
        ("dsr", _) => "DSR: weights grow at random places".to_owned(),
        ("dpf-lin", _) => "DPF of Lin et al.".to_owned(),
        (other, _) => format!("{other}: not pruned"),
    }
}

/// The labels of runs, with the names of their folders, or their paths, where they would be the
/// same.
fn labels(runs: &[(&Config, &Path)]) -> Vec<String> {
    let alike = |(config, _): &(&Config, &Path)| -> Vec<&Path> {
        let same = runs.iter().filter(|(other, _)| label(other) == label(config));
        same.map(|(_, run)| *run).collect()
    };
    let in_full = |at: &(&Config, &Path)| {
        let (label, alike, run) = (label(at.0), alike(at), at.1);
        if alike.len() == 1 {
            return label;
        }
        let name = run.file_name();
        let once = alike.iter().filter(|other| other.file_name() == name).count() == 1;
        let name = name.filter(|_| once).map_or(run, Path::new);
        format!("{label} ({})", name.display())
    };
    runs.iter().map(in_full).collect()
}

fn course(name: String, result: &ChainResult) -> PruningCourse {
    let over = |value: fn(&Record) -> Option<f64>| -> Vec<(f64, f64)> {
        let at = |r: &Record| Some((r.epoch as f64 + 1.0, value(r)?));
        result.records.iter().filter_map(at).collect()
    };
    PruningCourse {
        name,
        accuracy: over(|r| r.test_accuracy),
        soft: over(|r| Some(r.spike_share)),
        sparsity: over(|r| Some(r.sparsity)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use thinfer_core::device::Device;
    use thinfer_core::model::image_network;
    use thinfer_core::train::Silent;
    use thinfer_engine::Shape;

    fn small(more: &[&str]) -> Config {
        let mut settings = vec![
            "data.kind=shapes",
            "data.train_rows=64",
            "data.test_rows=20",
            "model.name=lenet",
            "train.epochs=4",
            "train.batch=32",
            "schedule.step_size.value=0.01",
            "schedule.step_size.cycles=2",
            "prune.warm_up_epochs=1",
        ];
        settings.extend(more);
        let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
        Config::parse("", &settings).unwrap()
    }

    #[test]
    fn the_channels_are_those_of_the_paper_in_its_network() {
        let cifar = Shape { height: 32, width: 32, channels: 3 };
        let names = |network: &str, shape: Shape| -> Vec<String> {
            let network = image_network(network, shape, 10).unwrap();
            figure_channels(&network).iter().map(Channel::to_string).collect()
        };
        assert_eq!(
            names("resnet18-cifar", cifar),
            [
                "layer1.0.conv1:in:3",
                "layer2.0.conv2:in:20",
                "layer2.0.conv2:out:14",
                "layer3.1.conv2:out:50",
                "layer4.1.conv2:out:100",
            ]
        );
        let digits = Shape { height: 28, width: 28, channels: 1 };
        assert_eq!(
            names("lenet", digits),
            ["conv2:in:0", "conv2:in:1", "conv2:out:1", "conv2:out:3", "conv2:out:4"]
        );
        for network in ["resnet50", "wrn-10-1"] {
            assert_eq!(names(network, cifar).len(), 5);
        }
    }

    #[test]
    fn figures_are_drawn_from_runs_and_go_on_where_they_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let control =
            Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
        let config = small(&[]);
        for (figure, runs) in [(Figure::WeightPaths, 1), (Figure::Pruning, 2)] {
            let reproduce = |config: &Config, mode| {
                reproduce_figure(figure, config, folder.path(), mode, &control)
            };
            let first = reproduce(&config, Mode::Resume).unwrap();
            assert_eq!(first.runs.len(), runs);
            let svg = std::fs::read_to_string(&first.svg).unwrap();
            assert!(svg.contains(["step size", "Sparsity"][runs - 1]), "{}", figure.name());
            assert!(std::fs::read(&first.png).unwrap().starts_with(b"\x89PNG"));
            // All there is is drawn again, bit by bit, without training.
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let again = reproduce(&config, Mode::Resume).unwrap();
            assert_eq!(std::fs::read_to_string(&again.svg).unwrap(), svg);
            stop.store(false, std::sync::atomic::Ordering::Relaxed);
            // Other settings are another run, which replaces this one on request alone.
            let other = small(&["train.batch=16", "train.epochs=2"]);
            let error = reproduce(&other, Mode::Resume).unwrap_err().to_string();
            assert!(error.contains("--force"), "{error}");
            let svg_of = |found: Figures| std::fs::read_to_string(found.svg).unwrap();
            assert!(svg_of(reproduce(&other, Mode::Force).unwrap()) != svg, "fewer epochs");
        }
    }

    #[test]
    fn runs_are_labelled_by_how_they_prune_and_told_apart() {
        use thinfer_core::methods::{dpf_lin, dsr, em_mcmc, sgd, sm};
        let config = |kind: MethodKind| {
            let mut config = small(&[]);
            config.method.kind = kind;
            config
        };
        let names = |kinds: &[(MethodKind, &str)]| -> Vec<String> {
            let configs: Vec<Config> = kinds.iter().map(|(kind, _)| config(*kind)).collect();
            let runs: Vec<(&Config, &Path)> =
                configs.iter().zip(kinds).map(|(c, (_, run))| (c, Path::new(*run))).collect();
            labels(&runs)
        };
        let [em, momentum, random, lin, plain] =
            [&em_mcmc::METHOD, &sm::METHOD, &dsr::METHOD, &dpf_lin::METHOD, &sgd::METHOD]
                .map(MethodKind::of);
        let one = names(&[(em, "a"), (momentum, "b"), (random, "c"), (lin, "d"), (plain, "e")]);
        let starts = ["DFP: ", "SM: ", "DSR: ", "DPF of Lin", "sgd: not pruned"];
        for (name, start) in one.iter().zip(starts) {
            assert!(name.starts_with(start) && !name.contains('('), "{name}");
        }
        let ends = |kinds: &[(MethodKind, &str)]| -> Vec<String> {
            let end = |name: &String| name.split_once(" (").map_or("", |(_, end)| end).to_owned();
            names(kinds).iter().map(end).collect()
        };
        assert_eq!(ends(&[(em, "runs/a"), (momentum, "runs/c"), (em, "runs/b")]), ["a)", "", "b)"]);
        assert_eq!(ends(&[(momentum, "x/a"), (momentum, "y/a")]), ["x/a)", "y/a)"]);
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() {
        let table = Config::parse("", &[]).unwrap();
        let error = figure_runs(Figure::Pruning, &table).unwrap_err().to_string();
        assert!(error.contains("a configuration for images"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let control =
            Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
        let run = folder.path().join("run");
        train(&small(&["train.epochs=2"]), &run, Mode::New, &control).unwrap();
        let draw = |runs: &[PathBuf]| draw_figure(Figure::WeightPaths, runs, &run, &Silent);
        let error = draw(std::slice::from_ref(&run)).unwrap_err().to_string();
        assert!(error.contains("no paths of weights"), "{error}");
        let error = draw(&[run.clone(), run.clone()]).unwrap_err().to_string();
        assert!(error.contains("given once"), "{error}");
        let few = ["data.columns=8", "data.train_rows=64", "train.epochs=12"].map(str::to_owned);
        let (table, on_table) = (Config::parse("", &few).unwrap(), folder.path().join("table"));
        train(&table, &on_table, Mode::New, &control).unwrap();
        let both = draw_figure(Figure::Pruning, &[run.clone(), on_table], &run, &Silent);
        assert!(both.unwrap_err().to_string().contains("table is a run on a table"));
    }
}
