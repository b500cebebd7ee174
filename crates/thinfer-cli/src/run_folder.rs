//! A run that was trained before, opened to look at it.

use std::path::Path;

use thinfer::posterior::Posterior;
use thinfer::posterior::Snapshot;
use thinfer::run::{self, Run, RunInfo, State};

use crate::context::Context;
use crate::shell;

/// A run with its data.
pub(crate) fn open(folder: &Path, context: &Context) -> anyhow::Result<Run> {
    let run = run::open(folder, context)?;
    let last = run.results.iter().filter_map(|result| result.snapshots.last());
    note_unfinished(folder, &run.info, last, context);
    Ok(run)
}

/// A run with its data, at any moment: also while it trains.
pub(crate) fn open_so_far(folder: &Path, state: State, context: &Context) -> anyhow::Result<Run> {
    let run = run::open_so_far(folder, context)?;
    let last = run.results.iter().filter_map(|result| result.snapshots.last());
    // Whoever trains it goes on anyway.
    if state == State::Running {
        context.notice("the run is still going, so this is what there is so far");
    } else {
        note_unfinished(folder, &run.info, last, context);
    }
    Ok(run)
}

/// The samples of a run that are averaged; the training data is not needed.
pub(crate) fn open_posterior(
    folder: &Path,
    context: &Context,
) -> anyhow::Result<(RunInfo, Posterior)> {
    let (info, posterior) = run::open_posterior(folder, context)?;
    let last = posterior.last();
    note_unfinished(folder, &info, last.members.iter(), context);
    Ok((info, posterior))
}

/// Says so where chains are not at their end: their last epoch always leaves a sample.
fn note_unfinished<'a>(
    folder: &Path,
    info: &RunInfo,
    last: impl Iterator<Item = &'a Snapshot>,
    context: &Context,
) {
    let (chains, epochs) = (info.config.chains, info.config.train.epochs);
    let finished = last.filter(|snapshot| info.config.is_end(snapshot.epoch + 1)).count();
    if finished < chains {
        // The settings that a run keeps in its folder are those of that run.
        let config = folder.join("config.toml").to_string_lossy().into_owned();
        let resume = shell::command(&["train".to_owned(), config, "--resume".to_owned()]);
        context.notice(&format!(
            "the run is not finished: {finished} of {chains} chains have reached epoch {epochs}; go on with `{resume}` to have all samples"
        ));
    }
}
