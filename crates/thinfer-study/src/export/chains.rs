//! The chains of a run for ArviZ: arrays over chain and draw, in groups that it knows.
//!
//! | group | arrays |
//! |---|---|
//! | `posterior` | every parameter by its name |
//! | `sample_stats` | epoch, training loss and step size of each sample |
//! | `log_likelihood` | `y` of every test row, in nats |
//! | `posterior_predictive` | of numbers `mean` and `sigma`, of classes `probability` |
//! | `observed_data` | `y` of every test row |
//! | `warmup_posterior`, `warmup_sample_stats` | what is burn-in, where it was asked for |

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use thinfer_core::classify::classify;
use thinfer_core::device::Device;
use thinfer_core::metrics::Scales;
use thinfer_core::posterior::{Posterior, Predictive, Snapshot};
use thinfer_core::train::Record;
use thinfer_data::table::Target;
use thinfer_data::{Bundle, Data, Error, ImageData, Result};
use thinfer_run::run::Run;

use super::zarr::{Array, Kind, Store, check_place, text};

/// How chains are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainOptions {
    /// The burn-in and samples of earlier masks too, in groups of their own.
    pub with_burn_in: bool,
    /// An earlier export in that place is replaced.
    pub replace: bool,
}

/// What an export of chains holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedChains {
    /// The folder.
    pub path: PathBuf,
    /// Chains.
    pub chains: usize,
    /// Samples of each of them.
    pub draws: usize,
    /// Samples of each that are burn-in, where they were asked for.
    pub burn_in_draws: usize,
    /// Parameters by name.
    pub variables: usize,
    /// Bytes of all its files.
    pub bytes: usize,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// The folder that chains go to where the user names none.
pub fn default_chains_path(folder: &Path) -> PathBuf {
    folder.join("posterior.zarr")
}

/// An error where chains cannot be written to a place, for which they need not be read.
pub fn check_chains_place(path: &Path, replace: bool) -> Result<()> {
    check_place(path, replace)
}

/// Samples of chains, equally many of each, in the order of their chains.
struct Draws<'a> {
    chains: usize,
    /// Of each chain.
    count: usize,
    samples: Vec<&'a Snapshot>,
}

impl<'a> Draws<'a> {
    /// The last samples of every chain, as many as the shortest one has.
    fn of(chains: &[Vec<&'a Snapshot>]) -> Self {
        let count = chains.iter().map(Vec::len).min().unwrap_or(0);
        let samples = chains.iter().flat_map(|chain| chain[chain.len() - count..].iter().copied());
        Self { chains: chains.len(), count, samples: samples.collect() }
    }

    fn at(&self, chain: usize, draw: usize) -> &'a Snapshot {
        self.samples[chain * self.count + draw]
    }

    fn shape(&self, rest: &[usize]) -> Vec<usize> {
        [self.chains, self.count].into_iter().chain(rest.iter().copied()).collect()
    }
}

/// Writes the samples of a run after its burn-in, with what they say about the test rows, to the
/// folder `path`. Images are predicted on `device`.
pub fn export_chains(
    run: &Run,
    options: &ChainOptions,
    device: Device,
    path: &Path,
) -> Result<ExportedChains> {
    check_place(path, options.replace)?;
    let samples: Vec<&Snapshot> = run.results.iter().flat_map(|r| &r.snapshots).collect();
    let after = run.info.sample_rule(&run.results).after_burn_in(&samples);
    let of = |chain: &Vec<usize>| chain.iter().map(|&at| samples[at]).collect::<Vec<_>>();
    let kept = Draws::of(&after.iter().map(of).collect::<Vec<_>>());
    if kept.count == 0 {
        return Err(Error::Data(
            "the run has no posterior samples yet; let it reach the end of its first cycle".into(),
        ));
    }
    let network = &run.info.network;
    let posterior = Posterior {
        network: network.clone(),
        members: kept.samples.iter().map(|sample| (*sample).clone()).collect(),
    };
    posterior.check_finite()?;
    let said = Said::of(run, &posterior, device)?;

    let mut attributes = Map::new();
    attributes.insert("inference_library_version".into(), run.info.thinfer.clone().into());
    attributes.insert("config".into(), run.info.config.to_toml()?.into());
    let mut store = Store::begin(path, attributes)?;
    parameters(&mut store, "posterior", run, &kept)?;
    statistics(&mut store, "sample_stats", run, &kept)?;
    said.write(&mut store, &kept)?;

    let mut notices = Vec::new();
    let mut burn_in_draws = 0;
    if options.with_burn_in {
        let early: Vec<Vec<&Snapshot>> = after
            .iter()
            .map(|chain| {
                let number = samples[chain[0]].chain;
                let of_chain = samples.iter().enumerate().filter(|(_, s)| s.chain == number);
                of_chain.filter(|(at, _)| !chain.contains(at)).map(|(_, s)| *s).collect()
            })
            .collect();
        let early = Draws::of(&early);
        burn_in_draws = early.count;
        if early.count == 0 {
            notices.push("no chain has burn-in, so there is no group for it".to_owned());
        } else {
            parameters(&mut store, "warmup_posterior", run, &early)?;
            statistics(&mut store, "warmup_sample_stats", run, &early)?;
        }
    }
    if kept.samples.iter().any(|sample| sample.keep.contains(&0)) {
        notices
            .push("pruned weights are 0 in every draw, so ArviZ has no R-hat for them".to_owned());
    }
    Ok(ExportedChains {
        path: path.to_owned(),
        chains: kept.chains,
        draws: kept.count,
        burn_in_draws,
        variables: network.params().iter().count(),
        bytes: store.finish(options.replace)?,
        notices,
    })
}

fn about(text: &str) -> Map<String, Value> {
    [("description".to_owned(), json!(text))].into_iter().collect()
}

/// An axis that counts from 0.
fn counted(store: &mut Store, group: &str, name: &str, length: usize) -> Result<()> {
    let numbers: Vec<i64> = (0..length as i64).collect();
    axis(store, group, name, &numbers)
}

fn axis(store: &mut Store, group: &str, name: &str, numbers: &[i64]) -> Result<()> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let (axes, shape) = (vec![name.to_owned()], vec![numbers.len()]);
    store.whole(&Array { group, name, kind: Kind::Int64, axes, shape, about: None }, &bytes)
}

/// Begins a group over chains and draws.
fn group(store: &mut Store, name: &str, text: &str, draws: &Draws<'_>) -> Result<()> {
    store.group(name, about(text))?;
    let chains: Vec<i64> =
        (0..draws.chains).map(|chain| i64::from(draws.at(chain, 0).chain)).collect();
    axis(store, name, "chain", &chains)?;
    counted(store, name, "draw", draws.count)
}

fn over_draws(rest: &[String]) -> Vec<String> {
    ["chain", "draw"].map(str::to_owned).into_iter().chain(rest.iter().cloned()).collect()
}

fn parameters(store: &mut Store, name: &str, run: &Run, draws: &Draws<'_>) -> Result<()> {
    let text = "parameters of the network, on standardised inputs and targets; pruned ones are 0";
    group(store, name, text, draws)?;
    for param in run.info.network.params() {
        let rest: Vec<String> =
            (0..param.shape.len()).map(|dim| format!("{}_dim_{dim}", param.name)).collect();
        for (axis, length) in rest.iter().zip(&param.shape) {
            counted(store, name, axis, *length)?;
        }
        let array = Array {
            group: name,
            name: &param.name,
            kind: Kind::Float32,
            axes: over_draws(&rest),
            shape: draws.shape(&param.shape),
            about: None,
        };
        store.draws(&array, |chain, draw| {
            let weights = &draws.at(chain, draw).weights[param.range()];
            weights.iter().flat_map(|w| w.to_le_bytes()).collect()
        })?;
    }
    Ok(())
}

fn statistics(store: &mut Store, name: &str, run: &Run, draws: &Draws<'_>) -> Result<()> {
    group(store, name, "the epoch of each sample, and the record of that epoch", draws)?;
    let array = |array: &'static str, kind, about| Array {
        group: name,
        name: array,
        kind,
        axes: over_draws(&[]),
        shape: draws.shape(&[]),
        about: Some(about),
    };
    let epoch = array("epoch", Kind::Int64, "epoch after which the sample was taken, from 0");
    store
        .draws(&epoch, |chain, draw| (draws.at(chain, draw).epoch as i64).to_le_bytes().to_vec())?;
    let record = |sample: &Snapshot, value: fn(&Record) -> f64| {
        let of_chain = run.results.iter().find(|result| result.chain == sample.chain);
        let records = of_chain.map_or(&[][..], |result| &result.records);
        // Records are rarer than epochs in a long run.
        let found = records.iter().find(|record| record.epoch == sample.epoch);
        found.map_or(f64::NAN, value)
    };
    for (of, about, value) in [
        ("loss", "mean training loss of the epoch", (|r| r.loss) as fn(&Record) -> f64),
        ("step_size", "step size at the end of the epoch", |r| r.step_size),
    ] {
        let array = array(of, Kind::Float64, about);
        store.draws(&array, |chain, draw| {
            record(draws.at(chain, draw), value).to_le_bytes().to_vec()
        })?;
    }
    Ok(())
}

/// What samples say about the test rows.
struct Said {
    /// What is predicted, as the user calls it.
    name: String,
    /// The true value of every row, in the user's units, or the number of its class.
    truth: Vec<f64>,
    /// Of each sample, row by row.
    log_likelihood: Vec<Vec<f64>>,
    predicted: Predicted,
}

enum Predicted {
    /// The mean of every row and the scale of the noise, of each sample.
    Numbers { by_row: bool, members: Vec<(Vec<f64>, Vec<f64>)> },
    /// The names of the classes, and their probabilities row by row, of each sample.
    Classes(Vec<String>, Vec<Vec<f64>>),
}

impl Said {
    fn of(run: &Run, posterior: &Posterior, device: Device) -> Result<Self> {
        match &run.data {
            Data::Table(data) => Self::of_table(data, posterior),
            Data::Images(data) => Self::of_images(run, data, posterior, device),
        }
    }

    fn of_table(data: &Bundle, posterior: &Posterior) -> Result<Self> {
        let name = data.schema.target_name.clone();
        let targets = data.test.targets();
        let (centre, sd) = data.schema.target_scale();
        match posterior.predict(&data.test)? {
            Predictive::Regression { noise, means, sigmas } => {
                let of_member = |(member, means): (usize, &Vec<f64>)| -> Vec<f64> {
                    let of_row = |(row, (mean, y)): (usize, (&f64, &f32))| {
                        noise.log_density(f64::from(*y), *mean, sigmas.at(member, row)) - sd.ln()
                    };
                    means.iter().zip(targets).enumerate().map(of_row).collect()
                };
                // The scale of a count has no units.
                let unit = if noise.counts() { 1.0 } else { sd };
                let own = |(member, means): (usize, &Vec<f64>)| {
                    let scales = match &sigmas {
                        Scales::OfMembers(scales) => vec![unit * scales[member]],
                        Scales::OfRows(scales) => {
                            scales[member].iter().map(|scale| unit * scale).collect()
                        }
                    };
                    (means.iter().map(|mean| centre + sd * mean).collect(), scales)
                };
                Ok(Self {
                    name,
                    truth: targets.iter().map(|y| centre + sd * f64::from(*y)).collect(),
                    log_likelihood: means.iter().enumerate().map(of_member).collect(),
                    predicted: Predicted::Numbers {
                        by_row: matches!(sigmas, Scales::OfRows(_)),
                        members: means.iter().enumerate().map(own).collect(),
                    },
                })
            }
            Predictive::Classes { classes, members } => {
                let levels = match &data.schema.target {
                    Target::Classes { levels } => levels.clone(),
                    Target::Number { .. } | Target::Count { .. } => {
                        (0..classes).map(|class| class.to_string()).collect()
                    }
                };
                let truth = targets.iter().map(|y| f64::from(*y)).collect();
                Ok(Self::of_classes(name, truth, levels, members))
            }
        }
    }

    fn of_images(
        run: &Run,
        data: &ImageData,
        posterior: &Posterior,
        device: Device,
    ) -> Result<Self> {
        let on = run.on(device)?;
        let tables = classify(
            &posterior.network,
            &posterior.members,
            &data.test,
            &data.augment,
            on.as_ref(),
        )?;
        // A sample that varies its scales at random has several tables.
        let views = tables.len() / posterior.members.len().max(1);
        let mean = |tables: &[Vec<f64>]| -> Vec<f64> {
            let sum = |at: usize| tables.iter().map(|table| table[at]).sum::<f64>();
            (0..tables[0].len()).map(|at| sum(at) / views as f64).collect()
        };
        let members = tables.chunks_exact(views.max(1)).map(mean).collect();
        let truth = data.test.labels().iter().map(|label| f64::from(*label)).collect();
        Ok(Self::of_classes("class".into(), truth, data.classes.clone(), members))
    }

    fn of_classes(
        name: String,
        truth: Vec<f64>,
        levels: Vec<String>,
        members: Vec<Vec<f64>>,
    ) -> Self {
        let classes = levels.len();
        let of_member = |member: &Vec<f64>| -> Vec<f64> {
            let rows = truth.iter().enumerate();
            // As the score of a row that was thought impossible.
            let log = |p: f64| p.max(f64::MIN_POSITIVE).ln();
            rows.map(|(row, class)| log(member[row * classes + *class as usize])).collect()
        };
        let log_likelihood = members.iter().map(of_member).collect();
        Self { name, truth, log_likelihood, predicted: Predicted::Classes(levels, members) }
    }

    fn write(&self, store: &mut Store, draws: &Draws<'_>) -> Result<()> {
        let rows = self.truth.len();
        let bytes = |values: &[f64]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let place = |chain: usize, draw: usize| chain * draws.count + draw;
        let array = |group: &'static str, name: &'static str, rest: &[(&str, usize)]| Array {
            group,
            name,
            kind: Kind::Float64,
            axes: over_draws(&rest.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>()),
            shape: draws.shape(&rest.iter().map(|(_, length)| *length).collect::<Vec<_>>()),
            about: None,
        };

        let likelihood = "log_likelihood";
        group(
            store,
            likelihood,
            "of the test rows, in nats and in the units of the target",
            draws,
        )?;
        counted(store, likelihood, "row", rows)?;
        store.draws(&array(likelihood, "y", &[("row", rows)]), |chain, draw| {
            bytes(&self.log_likelihood[place(chain, draw)])
        })?;

        let predictive = "posterior_predictive";
        group(store, predictive, "what each sample says about the test rows", draws)?;
        counted(store, predictive, "row", rows)?;
        match &self.predicted {
            Predicted::Numbers { by_row, members } => {
                store.draws(&array(predictive, "mean", &[("row", rows)]), |chain, draw| {
                    bytes(&members[place(chain, draw)].0)
                })?;
                let axes: &[_] = if *by_row { &[("row", rows)] } else { &[] };
                store.draws(&array(predictive, "sigma", axes), |chain, draw| {
                    bytes(&members[place(chain, draw)].1)
                })?;
            }
            Predicted::Classes(levels, members) => {
                let classes = levels.len();
                let (kind, words) = text(levels);
                let (axes, shape) = (vec!["class".to_owned()], vec![classes]);
                let names =
                    Array { group: predictive, name: "class", kind, axes, shape, about: None };
                store.whole(&names, &words)?;
                let rest = [("row", rows), ("class", classes)];
                store.draws(&array(predictive, "probability", &rest), |chain, draw| {
                    bytes(&members[place(chain, draw)])
                })?;
            }
        }

        let observed = "observed_data";
        store.group(observed, about("the target of the test rows"))?;
        counted(store, observed, "row", rows)?;
        let (axes, shape) = (vec!["row".to_owned()], vec![rows]);
        let (kind, values) = match &self.predicted {
            Predicted::Numbers { .. } => (Kind::Float64, bytes(&self.truth)),
            Predicted::Classes(..) => {
                let classes = self.truth.iter().flat_map(|class| (*class as i64).to_le_bytes());
                (Kind::Int64, classes.collect())
            }
        };
        let about = Some(self.name.as_str());
        store.whole(&Array { group: observed, name: "y", kind, axes, shape, about }, &values)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use thinfer_core::metrics;
    use thinfer_core::train::Silent;
    use thinfer_run::config::Config;
    use thinfer_run::run::{Control, Mode, train};

    fn trained(folder: &Path, more: &[&str]) -> Run {
        let set = ["data.columns=5", "data.train_rows=60", "data.test_rows=30", "chains=2"];
        let length = ["train.epochs=24", "train.samples_per_cycle=24", "method.kind=sghmc"];
        let set = set.iter().chain(&length).chain(more).map(|set| (*set).to_owned());
        let config = Config::parse("", &set.collect::<Vec<_>>()).unwrap();
        let stop = AtomicBool::new(false);
        let control =
            Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
        train(&config, folder, Mode::New, &control).unwrap()
    }

    /// An array of 64-bit floats, read by the words of the specification: shape and values.
    fn floats(store: &Path, name: &str) -> (Vec<usize>, Vec<f64>) {
        let about: Value =
            serde_json::from_slice(&fs::read(store.join(name).join(".zarray")).unwrap()).unwrap();
        assert_eq!(about["dtype"], "<f8");
        let sizes = |name: &str| -> Vec<usize> {
            let list = about[name].as_array().unwrap();
            list.iter().map(|n| n.as_u64().unwrap() as usize).collect()
        };
        let (shape, chunk) = (sizes("shape"), sizes("chunks"));
        assert_eq!(chunk[1..], shape[1..], "small arrays have a chunk for each chain");
        let of_chain = |chain: usize| {
            let name = format!("{name}/{chain}{}", ".0".repeat(shape.len() - 1));
            let bytes = fs::read(store.join(name)).unwrap();
            let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
            bytes.chunks_exact(8).map(number).collect::<Vec<_>>()
        };
        let values = (0..shape[0]).flat_map(of_chain).collect();
        (shape, values)
    }

    #[test]
    fn chains_are_those_that_the_run_compares() {
        let folder = tempfile::tempdir().unwrap();
        let run = trained(&folder.path().join("run"), &["model.noise=learned"]);
        let store = folder.path().join("chains.zarr");
        let options = ChainOptions { with_burn_in: true, replace: false };
        let found = export_chains(&run, &options, Device::Cpu, &store).unwrap();
        let evaluated = run.evaluate(&[], Device::Cpu).unwrap();
        let wanted = evaluated.convergence();
        assert_eq!((found.chains, found.draws), (wanted.chains, wanted.samples));
        assert_eq!(found.draws + found.burn_in_draws, 24);
        let (shape, y) = floats(&store, "log_likelihood/y");
        assert_eq!(shape, [2, found.draws, 30]);
        let means: Vec<f64> =
            y.chunks_exact(30).map(|row| row.iter().sum::<f64>() / 30.0).collect();
        let chains: Vec<Vec<f64>> = means.chunks_exact(found.draws).map(<[f64]>::to_vec).collect();
        let r_hat = metrics::r_hat(&chains).unwrap();
        let ours = wanted.log_likelihood.unwrap().r_hat;
        assert!((r_hat - ours).abs() < 1e-9, "{r_hat}, not {ours}");
        // The mean of the draws is the prediction, in the units of the target.
        let (shape, mean) = floats(&store, "posterior_predictive/mean");
        assert_eq!(shape, [2, found.draws, 30]);
        let (_, sigma) = floats(&store, "posterior_predictive/sigma");
        assert!(sigma.iter().all(|sigma| *sigma > 0.0));
        let truth = fs::read(store.join("observed_data/y/0")).unwrap();
        let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
        let truth: Vec<f64> = truth.chunks_exact(8).map(number).collect();
        let density = |at: usize| {
            let (row, of) = (at % 30, at / 30);
            metrics::Noise::Normal.log_density(truth[row], mean[at], sigma[of])
        };
        assert!((0..y.len()).all(|at| (density(at) - y[at]).abs() < 1e-4));
        assert!(store.join("warmup_posterior/noise.log_sigma/1.0.0").is_file());
        let error = export_chains(&run, &options, Device::Cpu, &store).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        let again = ChainOptions { with_burn_in: false, replace: true };
        export_chains(&run, &again, Device::Cpu, &store).unwrap();
        assert!(!store.join("warmup_posterior").exists());
    }

    /// Noise that is predicted has a number for each row.
    #[test]
    fn noise_by_row_is_exported_row_by_row() {
        let folder = tempfile::tempdir().unwrap();
        let run = trained(&folder.path().join("run"), &["model.noise=by-row"]);
        let store = folder.path().join("chains.zarr");
        let options = ChainOptions { with_burn_in: false, replace: false };
        let found = export_chains(&run, &options, Device::Cpu, &store).unwrap();
        let (shape, sigma) = floats(&store, "posterior_predictive/sigma");
        assert_eq!(shape, [2, found.draws, 30]);
        let (_, mean) = floats(&store, "posterior_predictive/mean");
        let (_, y) = floats(&store, "log_likelihood/y");
        let truth = fs::read(store.join("observed_data/y/0")).unwrap();
        let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
        let truth: Vec<f64> = truth.chunks_exact(8).map(number).collect();
        let density =
            |at: usize| metrics::Noise::Normal.log_density(truth[at % 30], mean[at], sigma[at]);
        assert!((0..y.len()).all(|at| (density(at) - y[at]).abs() < 1e-4));
        assert!(sigma[..30].iter().any(|one| (one / sigma[0] - 1.0).abs() > 1e-4), "rows differ");
        let evaluated = run.evaluate(&[], Device::Cpu).unwrap();
        assert!(evaluated.convergence().log_sigma.is_some());
    }

    #[test]
    fn classes_have_probabilities_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let run = trained(&folder.path().join("run"), &["data.kind=example3"]);
        let store = folder.path().join("chains.zarr");
        let found = export_chains(&run, &ChainOptions::default(), Device::Cpu, &store).unwrap();
        let (shape, p) = floats(&store, "posterior_predictive/probability");
        assert_eq!(shape, [2, found.draws, 30, 2]);
        assert!(p.chunks_exact(2).all(|pair| (pair[0] + pair[1] - 1.0).abs() < 1e-12));
        assert!(store.join("posterior_predictive/class/0").is_file());
        assert_eq!(found.burn_in_draws, 0);
    }
}
