//! A run on images, predicted and evaluated.

use thinfer_core::classify::classify;
use thinfer_core::device::OnCuda;
use thinfer_core::metrics::ece_by_chance;
use thinfer_core::posterior::Snapshot;
use thinfer_data::images::Broken;
use thinfer_data::{ImageData, Images, Result};

use super::evaluate::{ForeignImages, ImageEvaluation, ImageResults, evaluate_images};
use super::nearest::NearestMean;
use crate::evaluate::{Calibrated, Evidence, Verdict, check_chains, temperature};
use crate::run::Run;

/// With more bytes of training images their means take longer than an evaluation may.
const MOST_BYTES: usize = 1 << 28;

/// Predicts the test images with every snapshot of a run, and images of other data sets, by name
/// and in the shape of the run, with the snapshots that are averaged. `data` is that of the run.
pub fn evaluate_image_run(
    run: &Run,
    data: &ImageData,
    foreign: &[(String, Images)],
    on: Option<&OnCuda>,
) -> Result<ImageEvaluation> {
    let (network, config) = (&run.info.network, &run.info.config);
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
    if let (Images::Held(train), Images::Held(test)) = (&data.train, &data.test)
        && train.bytes().len() <= MOST_BYTES
    {
        evaluation.nearest_mean = Some(NearestMean::of(train).accuracy(test));
    }
    // What training met stands in the run's own account; the test images were decoded just now.
    evaluation.unreadable =
        Broken { train: run.info.unreadable.train.clone(), test: data.unreadable.test.clone() };
    evaluation.verdict = Some(Verdict::of(&Evidence {
        config,
        results: &run.results,
        blown_up: &blown_up,
        convergence: &evaluation.convergence,
        behaviour: &evaluation.behaviour,
        members: evaluation.posterior.members,
        beside: None,
        nearest_mean: evaluation.nearest_mean.map(|of| (of, evaluation.posterior.accuracy)),
        prunes_nothing: evaluation.sizes.iter().all(|size| size.sparsity.value() == 0.0),
        no_better_than: evaluation
            .is_no_better_than_a_constant()
            .then_some("the most frequent class"),
        pit: None,
        counts: false,
        calibrated: Some(Calibrated {
            ece: evaluation.posterior.ece,
            by_chance: ece_by_chance(&evaluation.reliability),
        }),
        qualities: [(&evaluation.posterior).into(), (&evaluation.last).into()],
    }));
    Ok(evaluation)
}
