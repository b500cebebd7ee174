//! Samples of a posterior for other programs: safetensors with a description, or an ONNX graph.
//!
//! The file is written beside its place, read again by code that knows nothing but the file, and
//! asked about made-up rows. It gets its name only where it answers as the run itself does. `chains`
//! writes all samples for ArviZ.

mod architecture;
mod chains;
mod check;
mod fold;
mod graph_io;
#[cfg_attr(not(feature = "onnx"), path = "no_onnx.rs")]
mod onnx;
mod part;
mod rounding;
mod tensors;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod zarr;

use std::fs;
use std::path::{Path, PathBuf};

use thinfer_core::metrics::Noise;
use thinfer_core::posterior::Posterior;
use thinfer_core::posterior::Snapshot;
use thinfer_data::files::Draft;
use thinfer_data::{Error, Result};
use thinfer_engine::{Family, Network, Node};
use thinfer_run::run::RunInfo;

use self::check::{Expected, LIMIT, Probe, compare};
use self::graph_io::{MEAN, MEANS};
use self::part::{Part, chosen, parts};
pub use architecture::{Architecture, Input, Layer, LayerOp, Layers, Output, Sample};
pub use chains::{
    ChainOptions, ExportedChains, check_chains_place, default_chains_path, export_chains,
};
pub use part::{Options, Samples};
pub use tensors::read;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tensors by name, and a JSON description of the network beside them.
    Safetensors,
    /// A graph that answers.
    Onnx,
}

impl Format {
    /// The ending of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Safetensors => "safetensors",
            Format::Onnx => "onnx",
        }
    }
}

/// What an export holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// The files, the one that was asked for first.
    pub files: Vec<PathBuf>,
    /// Posterior samples.
    pub samples: usize,
    /// Parameters of a sample, and how many it had before the pruned ones were cut out. Samples of
    /// several masks have the mean of theirs.
    pub parameters: (usize, usize),
    /// Bytes of the first file.
    pub bytes: usize,
    /// The largest difference to the run's own answers, relative to the largest of them; of a
    /// number in the user's units, to how far it lies from the target's mean.
    pub difference: f64,
    /// What the user should know about the files.
    pub notices: Vec<String>,
}

/// The file that an export goes to where the user names none.
pub fn default_path(
    folder: &Path,
    posterior: &Posterior,
    samples: Samples,
    format: Format,
) -> PathBuf {
    let number = match samples {
        Samples::All => None,
        Samples::Last => Some(posterior.members.len().saturating_sub(1)),
        Samples::Number(number) => Some(number),
    };
    let stem = number.map_or("posterior".to_owned(), |number| format!("sample{number:03}"));
    folder.join(format!("{stem}.{}", format.extension()))
}

/// The description that goes with a safetensors file: `NAME.architecture.json`.
pub fn description_path(path: &Path) -> PathBuf {
    path.with_extension("architecture.json")
}

/// Why a network with random channel scales has no other form.
fn has_random_scales(node: &str) -> Error {
    Error::Data(format!(
        "`{node}` scales channels at random, image by image, which no file for other programs can say; predict with `thinfer predict`"
    ))
}

/// Writes samples of `posterior` to `path`, where they answer as the run does; otherwise nothing is
/// left there.
pub fn export(
    info: &RunInfo,
    posterior: &Posterior,
    format: Format,
    options: &Options,
    path: &Path,
) -> Result<Exported> {
    let varies = |node: &&Node| matches!(node.op.family(), Family::Scales { .. });
    if let Some(node) = posterior.network.nodes().iter().find(varies) {
        return Err(has_random_scales(&node.name));
    }
    if Noise::of(posterior.network.loss()).is_some_and(Noise::counts) {
        let problem = "the target is a count, whose rate no file for other programs says yet; predict with `thinfer predict`";
        return Err(Error::Data(problem.into()));
    }
    let chosen = chosen(posterior, options.samples)?;
    let parts = parts(info, posterior, &chosen, options)?;
    let notices = match format {
        Format::Safetensors => Vec::new(),
        Format::Onnx => rounding::notices(info, &parts)?,
    };
    let members: Vec<&Snapshot> = chosen.iter().map(|(_, member)| *member).collect();
    let asked = Posterior {
        network: posterior.network.clone(),
        members: members.iter().map(|member| (*member).clone()).collect(),
    };
    asked.check_finite()?;
    let probe = Probe::new(info)?;
    let expected = Expected::new(info, &asked, &probe)?;
    let about = Architecture::new(info, &parts, format == Format::Safetensors)?;
    let written = |e: serde_json::Error| Error::Data(format!("the description failed: {e}"));
    let (files, difference) = match format {
        Format::Safetensors => {
            // The whole posterior at its full size has its masks with it; one sample is a state
            // dictionary that PyTorch loads strictly.
            let masks = options.dense && options.samples == Samples::All && !options.fold_norms;
            let (bytes, _) = tensors::to_bytes(&parts, if masks { &members } else { &[] }, &about)?;
            let text = serde_json::to_vec_pretty(&about).map_err(written)?;
            let files = vec![(path.to_owned(), bytes), (description_path(path), text)];
            let equal = options.dense && !options.fold_norms;
            let limit = if equal { 0.0 } else { LIMIT };
            let difference = publish(&files, options.new_only, |bytes| {
                check_tensors(path, &probe, &expected, &bytes, limit)
            })?;
            (files, difference)
        }
        Format::Onnx => {
            let text = serde_json::to_string(&about).map_err(written)?;
            let files = vec![(path.to_owned(), onnx::to_bytes(info, &parts, &text)?)];
            let difference = publish(&files, options.new_only, |bytes| {
                check_graph(&parts, &probe, &expected, bytes)
            })?;
            (files, difference)
        }
    };
    let total: usize = parts.iter().map(|part| size(&part.network)).sum();
    Ok(Exported {
        samples: parts.len(),
        parameters: (total / parts.len(), size(&posterior.network)),
        bytes: files[0].1.len(),
        files: files.into_iter().map(|(path, _)| path).collect(),
        difference,
        notices,
    })
}

fn size(network: &Network) -> usize {
    network.params().len()
}

/// Reads a safetensors file back and compares what its networks give with what they should.
fn check_tensors(
    path: &Path,
    probe: &Probe,
    expected: &Expected,
    bytes: &[u8],
    limit: f64,
) -> Result<f64> {
    let (about, samples) = read(path, bytes)?;
    if samples.len() != expected.raw.len() {
        return Err(Error::Promise(format!(
            "the export holds {} samples instead of {}; please report this",
            samples.len(),
            expected.raw.len()
        )));
    }
    let mut worst = 0f64;
    for ((place, (network, weights)), want) in samples.iter().enumerate().zip(&expected.raw) {
        let columns = about.columns(about.samples[place].network);
        let got = probe.outputs(network, weights, &columns)?;
        let want: Vec<f64> = want.iter().map(|v| f64::from(*v)).collect();
        let name = format!("sample {place}");
        worst = worst.max(compare(&name, &got, &want, network.output_len(), limit, (0.0, 0.0))?);
    }
    Ok(worst)
}

/// Runs a graph and compares all its outputs with what they should be.
fn check_graph(parts: &[Part], probe: &Probe, expected: &Expected, bytes: Vec<u8>) -> Result<f64> {
    let names: Vec<&str> = expected.answers.iter().map(|(name, ..)| *name).collect();
    let outputs = onnx::outputs_of(bytes, probe.fed(parts), &names)?;
    let mut worst = 0f64;
    for ((name, width, want), got) in expected.answers.iter().zip(outputs) {
        let units = if [MEAN, MEANS].contains(name) { expected.units } else { (0.0, 0.0) };
        worst = worst.max(compare(name, &got, want, *width, LIMIT, units)?);
    }
    Ok(worst)
}

/// Writes files beside their places, reads them back and gives all of them their names where
/// `check` is content with the first; otherwise what was at those places stays.
fn publish(
    files: &[(PathBuf, Vec<u8>)],
    new_only: bool,
    check: impl FnOnce(Vec<u8>) -> Result<f64>,
) -> Result<f64> {
    let mut drafts = Vec::with_capacity(files.len());
    let mut first = None;
    for (path, bytes) in files {
        let draft = Draft::of(path, bytes)?;
        let read = draft.read_back()?;
        if read != *bytes {
            return Err(Error::Promise(format!(
                "{}: the disk did not keep what was written; check it and export again",
                path.display()
            )));
        }
        first.get_or_insert(read);
        drafts.push(draft);
    }
    let difference = check(first.unwrap_or_default())?;
    for draft in drafts {
        if new_only { draft.create()? } else { draft.replace()? }
    }
    // Two exports at once may take turns with their files, and then one of them sees it here.
    for (path, bytes) in files {
        let found = fs::read(path).map_err(|e| Error::file("read back", path, e))?;
        if found != *bytes {
            return Err(Error::Promise(format!(
                "{} was replaced by another program while this one wrote; export again when that has ended",
                path.display()
            )));
        }
    }
    Ok(difference)
}
