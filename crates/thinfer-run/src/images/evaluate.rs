//! The evaluation of a run on images: scores on test images, size, and what the chains did.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use thinfer_core::metrics::{self, Detection, ECE_BINS, ReliabilityBin, Sparsity};
use thinfer_core::posterior::SampleRule;
use thinfer_core::posterior::Snapshot;
use thinfer_core::shrink::{Amounts, ImageSize, image_size};
use thinfer_core::train::ChainResult;
use thinfer_data::images::Broken;
use thinfer_data::{Error, Result};
use thinfer_engine::Network;

use super::pick::{Pick, pick};
use crate::evaluate::{
    Behaviour, Convergence, Quality, Sampled, Verdict, behaviour, compared_rows,
};

/// Points of a risk-coverage curve, at most.
const MOST_POINTS: usize = 200;
/// Classes of a confusion matrix, at most: beyond, the most frequent confusions say more.
const MOST_CLASSES: usize = 100;
/// Confusions that are named, at most.
const MOST_CONFUSIONS: usize = 20;

/// Test images that are picked for each reason.
const SHOWN: usize = 6;

/// What some chains found, and what their snapshots predict.
pub struct ImageResults<'a> {
    /// The network.
    pub network: &'a Network,
    /// The names of the classes.
    pub classes: &'a [String],
    /// The class of each test image.
    pub labels: &'a [u32],
    /// The chains.
    pub results: &'a [ChainResult],
    /// Class probabilities of the test images, images × classes, one table for each snapshot, chain
    /// by chain; as many for each where members share a network.
    pub probabilities: &'a [Vec<f64>],
    /// Training images.
    pub train_images: usize,
    /// The epochs of each cycle of the step size.
    pub cycles: &'a [Range<usize>],
    /// Which samples are averaged.
    pub rule: &'a SampleRule,
    /// Chains that blew up.
    pub blown_up: &'a [u32],
    /// Images of other data sets, to see whether the network knows that they are foreign.
    pub foreign: &'a [ForeignImages],
}

/// What the snapshots that are averaged predict for images of another data set.
pub struct ForeignImages {
    /// The name of the data set.
    pub name: String,
    /// Class probabilities, images × classes, for each snapshot that the rule keeps, as above.
    pub probabilities: Vec<Vec<f64>>,
}

/// Scores of one prediction on the test images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ImageScores {
    /// Snapshots that were averaged.
    pub members: usize,
    /// Share of right classes.
    pub accuracy: f64,
    /// Mean negative log-likelihood, in nats.
    pub nll: f64,
    /// Brier score, from 0 to 2.
    pub brier: f64,
    /// Expected calibration error, 15 bins of equal width.
    pub ece: f64,
    /// Expected calibration error, 15 bins that hold equally many images.
    pub ece_equal_mass: f64,
    /// Calibration error of the probability of each class, 15 bins of equal width, mean over
    /// classes.
    pub classwise_ece: f64,
    /// Area under the risk-coverage curve, images ordered by their largest probability.
    pub aurc: f64,
    /// That area above the best possible one at this accuracy.
    pub excess_aurc: f64,
    /// Mean entropy of the predictions, in nats.
    pub entropy: f64,
    /// Mean mutual information between class and snapshot, in nats; 0 for a single snapshot.
    pub mutual_information: f64,
}

/// A score as a table names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedScore {
    /// Its name where room is short.
    pub short: &'static str,
    /// Its name where there is room.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

impl ImageScores {
    /// The scores behind the accuracy, in the order in which every table shows them.
    pub fn named(&self) -> Vec<NamedScore> {
        let score = |short, name, value| NamedScore { short, name, value };
        vec![
            score("NLL", "NLL", self.nll),
            score("Brier", "Brier", self.brier),
            score("ECE", "ECE", self.ece),
            score("ECE (mass)", "ECE, equal mass", self.ece_equal_mass),
            score("ECE (class)", "ECE, classwise", self.classwise_ece),
            score("AURC", "AURC", self.aurc),
            score("MI", "Mutual information", self.mutual_information),
        ]
    }
}

impl ImageEvaluation {
    /// Whether the posterior is right no more often than whoever always says the most frequent class.
    pub fn is_no_better_than_a_constant(&self) -> bool {
        let largest = self.per_class.iter().map(|c| c.images).max().unwrap_or(0);
        self.posterior.accuracy <= largest as f64 / self.images.1.max(1) as f64
    }
}

impl From<&ImageScores> for Quality {
    fn from(scores: &ImageScores) -> Self {
        Self { nll: Some(scores.nll), ece: Some(scores.ece) }
    }
}

/// One snapshot alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SnapshotScores {
    /// Its chain.
    pub chain: u32,
    /// The epoch after which it was taken, from 0.
    pub epoch: usize,
    /// Its cycle, from 0.
    pub cycle: usize,
    /// Whether its mask is the final one of its chain.
    pub final_mask: bool,
    /// Whether it is averaged.
    pub kept: bool,
    /// Pruned share of all parameters.
    pub sparsity: Sparsity,
    /// Pruned share of the weights of convolutions and linear layers.
    pub weight_sparsity: Sparsity,
    /// Multiply-adds an image.
    pub multiply_adds: Amounts,
    /// Bytes of parameters and running statistics.
    pub bytes: Amounts,
    /// Its scores.
    pub scores: ImageScores,
}

/// The snapshots of one cycle, over chains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CycleScores {
    /// The cycle, from 0.
    pub cycle: usize,
    /// Scores of their average.
    pub scores: ImageScores,
}

/// How well images of another data set are told from the test images, by three scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForeignScores {
    /// The name of the data set.
    pub name: String,
    /// How many images it has.
    pub images: usize,
    /// By 1 − the largest probability.
    pub max_probability: Option<Detection>,
    /// By the entropy of the prediction.
    pub entropy: Option<Detection>,
    /// By the mutual information between class and snapshot.
    pub mutual_information: Option<Detection>,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassScores {
    /// Its name.
    pub name: String,
    /// Test images of it.
    pub images: usize,
    /// The share of them that is right; 0 where there are none.
    pub accuracy: f64,
}

/// A class that is taken for another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confusion {
    /// The true class.
    pub truth: String,
    /// What it is taken for.
    pub predicted: String,
    /// How often.
    pub count: usize,
    /// The share of the true class.
    pub share: f64,
}

/// Everything `thinfer eval` prints about a run on images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageEvaluation {
    /// Training and test images.
    pub images: (usize, usize),
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The headline: the average of the snapshots that the run keeps, see [`SampleRule`].
    pub posterior: ImageScores,
    /// How often the nearest mean image of a class is right; nothing where images are not held in
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest_mean: Option<f64>,
    /// The average of all snapshots of chains that did not blow up, masks of all ages.
    pub all_samples: ImageScores,
    /// The last snapshot of each chain alone, its scores averaged over chains.
    pub last: ImageScores,
    /// The average of the snapshots of each cycle.
    pub cycles: Vec<CycleScores>,
    /// Every snapshot alone.
    pub snapshots: Vec<SnapshotScores>,
    /// The reliability diagram of the headline, in bins of equal width.
    pub reliability: Vec<ReliabilityBin>,
    /// The same in bins that hold equally many images.
    pub reliability_equal_mass: Vec<ReliabilityBin>,
    /// The risk-coverage curve of the headline: share of images answered, share of them wrong.
    pub risk_coverage: Vec<(f64, f64)>,
    /// How often the headline takes each class for which, `[true][predicted]`; empty with more than
    /// 100 classes.
    pub confusion: Vec<Vec<usize>>,
    /// The most frequent confusions, most frequent first.
    pub confusions: Vec<Confusion>,
    /// Every class.
    pub per_class: Vec<ClassScores>,
    /// Against other data sets.
    pub foreign: Vec<ForeignScores>,
    /// The size of the last snapshot of each chain.
    pub sizes: Vec<ImageSize>,
    /// What the chains did.
    pub behaviour: Behaviour,
    /// Whether the snapshots agree.
    pub convergence: Convergence,
    /// Chains that blew up and are left out of every average.
    pub blown_up: Vec<u32>,
    /// Whether to believe all this; `None` where the run behind it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Images that could not be read: training images that others stood for, and test images that
    /// are not scored.
    pub unreadable: Broken,
    /// Test images that are worth a look; the JSON leaves them out.
    #[serde(skip)]
    pub picks: Vec<Pick>,
}

/// Evaluates what some chains found; fails where there are no snapshots or test images yet, and
/// where predictions do not fit them.
pub fn evaluate_images(input: &ImageResults<'_>) -> Result<ImageEvaluation> {
    let snapshots: Vec<&Snapshot> = input.results.iter().flat_map(|r| &r.snapshots).collect();
    let headline = input.rule.kept(&snapshots);
    check(input, snapshots.len(), headline.len())?;
    let (classes, labels) = (input.classes.len(), input.labels);
    let views = input.probabilities.len() / snapshots.len();
    let tables = |at: &usize| &input.probabilities[at * views..(at + 1) * views];
    let is_usable = |at: &usize| !input.blown_up.contains(&snapshots[*at].chain);
    let all: Vec<usize> = (0..snapshots.len()).filter(is_usable).collect();
    let chosen = |numbers: &[usize]| -> Vec<&[f64]> {
        numbers.iter().flat_map(tables).map(Vec::as_slice).collect()
    };
    let ensemble = |numbers: &[usize]| Ensemble::of(&chosen(numbers), classes);
    let score = |numbers: &[usize]| ensemble(numbers).score(classes, labels);

    let sizes = sizes(input.network, &snapshots)?;
    let cycle = |s: &Snapshot| {
        input.cycles.iter().position(|epochs| epochs.contains(&s.epoch)).unwrap_or_default()
    };
    let single: Vec<SnapshotScores> = snapshots
        .iter()
        .zip(&sizes)
        .enumerate()
        .map(|(at, (snapshot, size))| SnapshotScores {
            chain: snapshot.chain,
            epoch: snapshot.epoch,
            cycle: cycle(snapshot),
            final_mask: has_final_mask(&snapshots, at),
            kept: headline.contains(&at),
            sparsity: size.sparsity,
            weight_sparsity: size.weight_sparsity,
            multiply_adds: size.multiply_adds,
            bytes: size.bytes,
            scores: score(&[at]),
        })
        .collect();
    let mut by_cycle: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    all.iter().for_each(|&at| by_cycle.entry(single[at].cycle).or_default().push(at));
    let last: Vec<usize> = all
        .iter()
        .copied()
        .filter(|&at| snapshots.get(at + 1).is_none_or(|next| next.chain != snapshots[at].chain))
        .collect();

    let posterior = ensemble(&headline);
    let scores = posterior.score(classes, labels);
    let matrix = metrics::confusion(&posterior.mean, classes, labels);
    let bins = |found: Option<metrics::Calibration>| found.map(|c| c.bins).unwrap_or_default();
    let disagreement = metrics::disagreement(&chosen(&headline));
    Ok(ImageEvaluation {
        images: (input.train_images, labels.len()),
        classes: input.classes.to_vec(),
        posterior: scores,
        nearest_mean: None,
        all_samples: score(&all),
        last: mean_scores(&last.iter().map(|&at| single[at].scores).collect::<Vec<_>>()),
        cycles: by_cycle
            .iter()
            .map(|(&cycle, members)| CycleScores { cycle, scores: score(members) })
            .collect(),
        reliability: bins(metrics::ece(&posterior.mean, classes, labels, ECE_BINS)),
        reliability_equal_mass: bins(metrics::ece_equal_mass(
            &posterior.mean,
            classes,
            labels,
            ECE_BINS,
        )),
        risk_coverage: curve(&posterior.mean, classes, labels),
        confusions: confusions(&matrix, input.classes),
        per_class: per_class(&matrix, input.classes),
        confusion: if classes <= MOST_CLASSES { matrix } else { Vec::new() },
        foreign: input.foreign.iter().map(|f| foreign(f, &posterior, classes)).collect(),
        sizes: last.iter().map(|&at| sizes[at].clone()).collect(),
        behaviour: behaviour(input.results, disagreement, input.train_images),
        convergence: Convergence::of(
            &Sampled {
                samples: &snapshots,
                predictions: (0..snapshots.len())
                    .map(|at| {
                        let all = metrics::of_truth(&ensemble(&[at]).mean, classes, labels);
                        compared_rows(labels.len()).map(|row| all[row]).collect()
                    })
                    .collect(),
                log_likelihood: single.iter().map(|s| -s.scores.nll).collect(),
                log_sigma: None,
            },
            input.rule,
        ),
        blown_up: input.blown_up.to_vec(),
        verdict: None,
        snapshots: single,
        unreadable: Broken::default(),
        picks: pick(&chosen(&headline), labels, classes, SHOWN),
    })
}

/// Whether a snapshot has the mask of its chain's last one.
fn has_final_mask(snapshots: &[&Snapshot], at: usize) -> bool {
    let last = snapshots.iter().rfind(|s| s.chain == snapshots[at].chain);
    last.is_some_and(|last| last.keep == snapshots[at].keep)
}

fn check(input: &ImageResults<'_>, snapshots: usize, headline: usize) -> Result<()> {
    let (classes, images) = (input.classes.len(), input.labels.len());
    if snapshots == 0 {
        return Err(Error::Data(
            "the run has no posterior samples yet; let it reach the end of its first cycle".into(),
        ));
    }
    if images == 0 {
        return Err(Error::Data("there are no test images to score the run on".into()));
    }
    if let Some(label) = input.labels.iter().find(|l| **l as usize >= classes) {
        return Err(Error::Data(format!(
            "a test image has the class {label}, but there are {classes} classes, counted from 0"
        )));
    }
    let fits = |tables: &[Vec<f64>], count: usize, rows: Option<usize>| {
        let rows = rows.or(tables.first().map(|t| t.len() / classes)).unwrap_or(0);
        // A snapshot may have several tables, all of them equally many.
        let whole = !tables.is_empty() && tables.len().is_multiple_of(count.max(1));
        whole && tables.iter().all(|t| t.len() == rows * classes)
    };
    let foreign = input.foreign.iter().all(|f| fits(&f.probabilities, headline, None));
    if !fits(input.probabilities, snapshots, Some(images)) || !foreign {
        return Err(Error::Data(format!(
            "predictions do not fit: {snapshots} snapshots need one probability for each of \
             {images} images and {classes} classes; predict them again"
        )));
    }
    Ok(())
}

/// The averaged prediction of some members, and what is unknown about each image.
struct Ensemble {
    members: usize,
    mean: Vec<f64>,
    unknown: Vec<metrics::Uncertainty>,
}

impl Ensemble {
    fn of(members: &[&[f64]], classes: usize) -> Self {
        let mut mean = vec![0.0; members.first().map_or(0, |m| m.len())];
        for member in members {
            mean.iter_mut().zip(*member).for_each(|(mean, p)| *mean += p);
        }
        mean.iter_mut().for_each(|mean| *mean /= members.len().max(1) as f64);
        Self { members: members.len(), mean, unknown: metrics::uncertainty(members, classes) }
    }

    fn score(&self, classes: usize, labels: &[u32]) -> ImageScores {
        let mean = &self.mean;
        let (confidences, right) = metrics::confidences(mean, classes, labels);
        let selective = metrics::risk_coverage(&confidences, &right);
        let ece = |found: Option<metrics::Calibration>| found.map_or(0.0, |c| c.ece);
        let unknown = |value: fn(&metrics::Uncertainty) -> f64| {
            self.unknown.iter().map(value).sum::<f64>() / self.unknown.len().max(1) as f64
        };
        ImageScores {
            members: self.members,
            accuracy: right.iter().filter(|right| **right).count() as f64
                / right.len().max(1) as f64,
            nll: metrics::negative_log_likelihood_classes(mean, classes, labels)
                .unwrap_or_default(),
            brier: metrics::brier(mean, classes, labels).unwrap_or_default(),
            ece: ece(metrics::ece(mean, classes, labels, ECE_BINS)),
            ece_equal_mass: ece(metrics::ece_equal_mass(mean, classes, labels, ECE_BINS)),
            classwise_ece: metrics::classwise_ece(mean, classes, labels, ECE_BINS)
                .unwrap_or_default(),
            aurc: selective.as_ref().map_or(0.0, |s| s.aurc),
            excess_aurc: selective.map_or(0.0, |s| s.excess),
            entropy: unknown(|u| u.entropy),
            mutual_information: unknown(|u| u.mutual_information),
        }
    }

    /// 1 − the largest probability, entropy, and mutual information of each image.
    fn doubts(&self, classes: usize) -> [Vec<f64>; 3] {
        let largest = |p: &[f64]| p.iter().copied().fold(0.0, f64::max);
        [
            self.mean.chunks_exact(classes.max(1)).map(|p| 1.0 - largest(p)).collect(),
            self.unknown.iter().map(|u| u.entropy).collect(),
            self.unknown.iter().map(|u| u.mutual_information).collect(),
        ]
    }
}

/// The sizes under the masks of all snapshots; neighbours often share one.
fn sizes(network: &Network, snapshots: &[&Snapshot]) -> Result<Vec<ImageSize>> {
    let mut sizes: Vec<ImageSize> = Vec::with_capacity(snapshots.len());
    for (at, snapshot) in snapshots.iter().enumerate() {
        let same = at > 0 && snapshots[at - 1].keep == snapshot.keep;
        let size = if same { sizes[at - 1].clone() } else { image_size(network, &snapshot.keep)? };
        sizes.push(size);
    }
    Ok(sizes)
}

fn mean_scores(each: &[ImageScores]) -> ImageScores {
    let mean = |value: fn(&ImageScores) -> f64| {
        each.iter().map(value).sum::<f64>() / each.len().max(1) as f64
    };
    ImageScores {
        members: 1,
        accuracy: mean(|s| s.accuracy),
        nll: mean(|s| s.nll),
        brier: mean(|s| s.brier),
        ece: mean(|s| s.ece),
        ece_equal_mass: mean(|s| s.ece_equal_mass),
        classwise_ece: mean(|s| s.classwise_ece),
        aurc: mean(|s| s.aurc),
        excess_aurc: mean(|s| s.excess_aurc),
        entropy: mean(|s| s.entropy),
        mutual_information: mean(|s| s.mutual_information),
    }
}

/// The risk-coverage curve at equal steps of coverage, ending where all images are answered.
fn curve(mean: &[f64], classes: usize, labels: &[u32]) -> Vec<(f64, f64)> {
    let (confidences, right) = metrics::confidences(mean, classes, labels);
    let Some(found) = metrics::risk_coverage(&confidences, &right) else { return Vec::new() };
    let images = found.risks.len();
    let points = images.min(MOST_POINTS);
    let at = |point: usize| {
        let answered = point * images / points;
        (answered as f64 / images as f64, found.risks[answered - 1])
    };
    (1..=points).map(at).collect()
}

fn confusions(matrix: &[Vec<usize>], classes: &[String]) -> Vec<Confusion> {
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (truth, row) in matrix.iter().enumerate() {
        let wrong = row.iter().enumerate().filter(|(guess, n)| *guess != truth && **n > 0);
        found.extend(wrong.map(|(guess, n)| (truth, guess, *n)));
    }
    found.sort_by_key(|(truth, guess, n)| (std::cmp::Reverse(*n), *truth, *guess));
    let share = |truth: usize, n: usize| n as f64 / matrix[truth].iter().sum::<usize>() as f64;
    found
        .into_iter()
        .take(MOST_CONFUSIONS)
        .map(|(truth, guess, count)| Confusion {
            truth: classes[truth].clone(),
            predicted: classes[guess].clone(),
            count,
            share: share(truth, count),
        })
        .collect()
}

fn per_class(matrix: &[Vec<usize>], classes: &[String]) -> Vec<ClassScores> {
    let of = |(class, (name, row)): (usize, (&String, &Vec<usize>))| {
        let images = row.iter().sum();
        let accuracy = row[class] as f64 / usize::max(images, 1) as f64;
        ClassScores { name: name.clone(), images, accuracy }
    };
    classes.iter().zip(matrix).enumerate().map(of).collect()
}

fn foreign(images: &ForeignImages, known: &Ensemble, classes: usize) -> ForeignScores {
    let members: Vec<&[f64]> = images.probabilities.iter().map(Vec::as_slice).collect();
    let foreign = Ensemble::of(&members, classes);
    let (inside, outside) = (known.doubts(classes), foreign.doubts(classes));
    let [max_probability, entropy, mutual_information] =
        [0, 1, 2].map(|score| metrics::detect(&inside[score], &outside[score]));
    ForeignScores {
        name: images.name.clone(),
        images: foreign.unknown.len(),
        max_probability,
        entropy,
        mutual_information,
    }
}

#[cfg(test)]
mod tests;
