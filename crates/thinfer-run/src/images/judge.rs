//! A run on images, predicted and evaluated.

use thinfer_core::classify::classify;
use thinfer_core::device::OnCuda;
use thinfer_core::posterior::Snapshot;
use thinfer_data::Images;
use thinfer_data::Result;
use thinfer_data::images::Broken;

use super::evaluate::{ForeignImages, ImageEvaluation, ImageResults, evaluate_images};
use super::pick::{Pick, pick};
use crate::evaluate::{check_chains, temperature};
use crate::run::ImageRun;

/// Test images shown for each reason.
const SHOWN: usize = 6;

/// What a run on images is worth.
pub struct Judged {
    /// The evaluation.
    pub evaluation: ImageEvaluation,
    /// Test images that are worth a look.
    pub picks: Vec<Pick>,
}

/// Predicts the test images with every snapshot of a run, and images of other data sets, by name
/// and in the shape of the run, with the snapshots that are averaged.
pub fn judge(run: &ImageRun, foreign: &[(String, Images)], on: Option<&OnCuda>) -> Result<Judged> {
    let (network, data, config) = (&run.info.network, &run.data, &run.info.config);
    let snapshots: Vec<&Snapshot> = run.results.iter().flat_map(|r| &r.snapshots).collect();
    let probabilities =
        classify(network, snapshots.iter().copied(), &data.test, &data.augment, on)?;
    let blown_up = run.info.blown_up(&run.results);
    check_chains(run.results.len(), &blown_up)?;
    let rule = run.info.sample_rule(&run.results);
    let headline = rule.kept(&snapshots);
    let foreign = foreign
        .iter()
        .map(|(name, images)| {
            let members = headline.iter().map(|&at| snapshots[at]);
            let probabilities = classify(network, members, images, &data.augment, on)?;
            Ok(ForeignImages { name: name.clone(), probabilities })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut evaluation = evaluate_images(&ImageResults {
        network,
        classes: &data.classes,
        labels: data.test.labels(),
        results: &run.results,
        probabilities: &probabilities,
        train_images: data.train.rows(),
        cycles: &config.cycles(),
        rule: &rule,
        blown_up: &blown_up,
        foreign: &foreign,
    })?;
    evaluation.behaviour.temperature = temperature(config, network, data.into(), &run.results)?;
    // What training met stands in the run's own account; the test images were decoded just now.
    evaluation.unreadable =
        Broken { train: run.info.unreadable.train.clone(), test: data.unreadable.test.clone() };
    let views = probabilities.len() / snapshots.len().max(1);
    let tables = |at: &usize| &probabilities[at * views..(at + 1) * views];
    let shared: Vec<&[f64]> = headline.iter().flat_map(tables).map(Vec::as_slice).collect();
    let picks = pick(&shared, data.test.labels(), data.classes.len(), SHOWN);
    Ok(Judged { evaluation, picks })
}
