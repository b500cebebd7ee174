//! Which test images are worth a look.

use serde::Serialize;
use thinfer_core::metrics;

/// Why an image was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Right, with the largest probability.
    SurelyRight,
    /// Wrong, with the largest probability.
    SurelyWrong,
    /// The members disagree most.
    Disputed,
}

/// A test image that was picked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pick {
    /// Its number.
    pub image: usize,
    /// Why it was picked.
    pub reason: Reason,
    /// Its class.
    pub truth: usize,
    /// Class probabilities of each member.
    pub members: Vec<Vec<f64>>,
    /// What is unknown about it.
    pub uncertainty: metrics::Uncertainty,
}

/// Up to `most` images for each reason; of equals the first. An image is picked once, for the first
/// reason that applies.
pub fn pick(members: &[&[f64]], labels: &[u32], classes: usize, most: usize) -> Vec<Pick> {
    let unknown = metrics::uncertainty(members, classes);
    let count = members.len().max(1) as f64;
    let images = labels.len().min(unknown.len());
    let mean: Vec<f64> = (0..images * classes)
        .map(|at| members.iter().map(|m| m[at]).sum::<f64>() / count)
        .collect();
    let (confidences, right) = metrics::confidences(&mean, classes, &labels[..images]);
    let mut picked: Vec<(usize, Reason)> = Vec::new();
    let mut choose =
        |reason: Reason, fits: &dyn Fn(usize) -> bool, height: &dyn Fn(usize) -> f64| {
            let mut order: Vec<usize> = (0..images)
                .filter(|&image| fits(image) && picked.iter().all(|(taken, _)| *taken != image))
                .collect();
            order.sort_by(|a, b| height(*b).total_cmp(&height(*a)));
            picked.extend(order.into_iter().take(most).map(|image| (image, reason)));
        };
    choose(Reason::SurelyRight, &|image| right[image], &|image| confidences[image]);
    choose(Reason::SurelyWrong, &|image| !right[image], &|image| confidences[image]);
    choose(Reason::Disputed, &|_| true, &|image| unknown[image].mutual_information);
    let of_member =
        |image: usize| move |m: &&[f64]| m[image * classes..(image + 1) * classes].to_vec();
    picked
        .into_iter()
        .map(|(image, reason)| Pick {
            image,
            reason,
            truth: labels[image] as usize,
            members: members.iter().map(of_member(image)).collect(),
            uncertainty: unknown[image],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_and_disputed_images_are_found() {
        // Right and sure; right and less sure; wrong and sure; disputed.
        let one = [0.99, 0.01, 0.7, 0.3, 0.9, 0.1, 1.0, 0.0];
        let two = [0.99, 0.01, 0.7, 0.3, 0.9, 0.1, 0.1, 0.9];
        let picks = pick(&[&one, &two], &[0, 0, 1, 0], 2, 1);
        let found: Vec<(usize, Reason)> = picks.iter().map(|p| (p.image, p.reason)).collect();
        assert_eq!(
            found,
            [(0, Reason::SurelyRight), (2, Reason::SurelyWrong), (3, Reason::Disputed)]
        );
        assert_eq!(picks[2].members, [[1.0, 0.0], [0.1, 0.9]]);
        assert!(picks[2].uncertainty.mutual_information > 0.3);
        assert!(pick(&[], &[], 2, 3).is_empty());
        assert_eq!(pick(&[&one, &two], &[0, 0, 1, 0], 2, 9).len(), 4, "each image once");
    }
}
