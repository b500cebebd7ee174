//! Evaluations of imagined predictions of images.

use super::*;
use crate::images::imagined::{CLASSES, IMAGES, Imagined, KEPT, imagined};

#[test]
fn the_headline_has_only_snapshots_with_the_final_mask() {
    let run = imagined();
    let found = evaluate_images(&run.results()).unwrap();
    assert_eq!((found.posterior.members, found.all_samples.members), (KEPT.len(), 8));
    let kept: Vec<usize> = (0..8).filter(|at| found.snapshots[*at].kept).collect();
    assert_eq!(kept, KEPT);
    let finals: Vec<bool> = found.snapshots.iter().map(|s| s.final_mask).collect();
    assert_eq!(finals, [false, false, true, true, true, true, true, true]);
    let cycles: Vec<usize> = found.snapshots.iter().map(|s| s.cycle).collect();
    assert_eq!(cycles, [0, 0, 1, 1, 0, 0, 1, 1]);
    let members: Vec<usize> = found.cycles.iter().map(|c| c.scores.members).collect();
    assert_eq!(members, [4, 4]);
    assert_eq!(found.sizes.len(), 2);
    assert!(found.snapshots[0].sparsity < found.snapshots[2].sparsity);
    assert_eq!(found.sizes[0].sparsity, found.snapshots[3].sparsity);
}

#[test]
fn scores_are_those_of_the_average() {
    let run = imagined();
    let found = evaluate_images(&run.results()).unwrap();
    let mean: Vec<f64> = (0..IMAGES * CLASSES)
        .map(|at| KEPT.iter().map(|m| run.probabilities[*m][at]).sum::<f64>() / 4.0)
        .collect();
    let accuracy = metrics::accuracy_from_probabilities(&mean, CLASSES, &run.labels).unwrap();
    assert_eq!(found.posterior.accuracy, accuracy);
    let nll = metrics::negative_log_likelihood_classes(&mean, CLASSES, &run.labels).unwrap();
    assert!((found.posterior.nll - nll).abs() < 1e-12);
    let (confidences, right) = metrics::confidences(&mean, CLASSES, &run.labels);
    let selective = metrics::risk_coverage(&confidences, &right).unwrap();
    let members: Vec<&[f64]> = KEPT.iter().map(|m| run.probabilities[*m].as_slice()).collect();
    let unknown = metrics::uncertainty(&members, CLASSES);
    let over_images = |value: fn(&metrics::Uncertainty) -> f64| {
        unknown.iter().map(value).sum::<f64>() / IMAGES as f64
    };
    let scores = found.posterior;
    for (name, got, want) in [
        ("brier", scores.brier, metrics::brier(&mean, CLASSES, &run.labels).unwrap()),
        ("ece", scores.ece, metrics::ece(&mean, CLASSES, &run.labels, 15).unwrap().ece),
        (
            "ece_equal_mass",
            scores.ece_equal_mass,
            metrics::ece_equal_mass(&mean, CLASSES, &run.labels, 15).unwrap().ece,
        ),
        (
            "classwise_ece",
            scores.classwise_ece,
            metrics::classwise_ece(&mean, CLASSES, &run.labels, 15).unwrap(),
        ),
        ("aurc", scores.aurc, selective.aurc),
        ("excess_aurc", scores.excess_aurc, selective.excess),
        ("entropy", scores.entropy, over_images(|u| u.entropy)),
        ("mutual_information", scores.mutual_information, over_images(|u| u.mutual_information)),
    ] {
        assert!((got - want).abs() < 1e-12, "{name}: {got} is not {want}");
    }
    // Answering the sure images first must help.
    assert!(scores.aurc < 1.0 - scores.accuracy);
    // The last of each chain alone: numbers 3 and 7.
    let alone = |at: usize| found.snapshots[at].scores.accuracy;
    assert!((found.last.accuracy - 0.5 * (alone(3) + alone(7))).abs() < 1e-12);
    assert_eq!(found.last.mutual_information, 0.0);
    assert!(found.posterior.mutual_information > 0.01);
    assert!(found.posterior.accuracy > found.last.accuracy, "averaging removes noise");
}

#[test]
fn tables_of_the_headline_add_up() {
    let run = imagined();
    let found = evaluate_images(&run.results()).unwrap();
    let right: usize = (0..CLASSES).map(|class| found.confusion[class][class]).sum();
    assert_eq!(right as f64 / IMAGES as f64, found.posterior.accuracy);
    let wrong: usize = found.confusions.iter().map(|c| c.count).sum();
    assert_eq!(right + wrong, IMAGES);
    assert!(found.confusions.windows(2).all(|pair| pair[0].count >= pair[1].count));
    assert_eq!(found.per_class.iter().map(|c| c.images).sum::<usize>(), IMAGES);
    assert_eq!(found.risk_coverage.len(), 200);
    let (coverage, risk) = found.risk_coverage[199];
    assert_eq!(coverage, 1.0);
    assert!((risk - (1.0 - found.posterior.accuracy)).abs() < 1e-12);
    assert_eq!(found.reliability.iter().map(|b| b.count).sum::<usize>(), IMAGES);
}

#[test]
fn images_without_a_class_are_found_out() {
    let found = evaluate_images(&imagined().results()).unwrap();
    let foreign = &found.foreign[0];
    assert_eq!((foreign.name.as_str(), foreign.images), ("letters", 200));
    for score in [foreign.max_probability, foreign.entropy, foreign.mutual_information] {
        assert!(score.unwrap().auroc > 0.6, "{score:?}");
    }
    // Of no images nothing can be said, and nothing is.
    let mut run = imagined();
    run.foreign[0].probabilities.iter_mut().for_each(Vec::clear);
    let none = evaluate_images(&run.results()).unwrap().foreign.swap_remove(0);
    assert_eq!((none.images, none.max_probability, none.mutual_information), (0, None, None));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut run = imagined();
    let problem = |run: &Imagined| evaluate_images(&run.results()).unwrap_err().to_string();
    run.labels[7] = 3;
    assert!(problem(&run).contains("the class 3, but there are 3 classes"));
    run = imagined();
    run.probabilities[1].pop();
    assert!(problem(&run).contains("predictions do not fit"));
    run = imagined();
    run.foreign[0].probabilities.pop();
    assert!(problem(&run).contains("predictions do not fit"));
    run.results.iter_mut().for_each(|r| r.snapshots.clear());
    assert!(problem(&run).contains("no posterior samples yet"));
}

#[test]
fn an_evaluation_is_plain_json() {
    let found = evaluate_images(&imagined().results()).unwrap();
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["posterior"]["members"], 4);
    assert!(json["foreign"][0]["entropy"]["auroc"].is_number());
    assert!(json["sizes"][0]["layers"][0]["live_inputs"].is_number());
}

#[test]
fn the_largest_loss_is_of_all_but_the_start_and_always_of_the_last_epoch() {
    let mut run = imagined();
    let largest =
        |results: &[ChainResult]| crate::evaluate::behaviour(results, None, 1).largest_loss;
    // Of 20 epochs the first two do not count.
    assert!((largest(&run.results) - (0.52 + 1.0 / 3.0)).abs() < 1e-12);
    run.results.iter_mut().for_each(|chain| chain.records.truncate(1));
    assert!((largest(&run.results) - 1.52).abs() < 1e-12);
    // Losses are negative where noise is learned.
    run.results.iter_mut().for_each(|chain| chain.records[0].largest_loss = -0.75);
    assert_eq!(largest(&run.results), -0.75);
    assert_eq!(largest(&[]), 0.0);
}
